//! Filters and a packet, made of the input.

use std::net::IpAddr;

use softnet_tc::{
    Compare, Control, Ematch, FilterKind, FilterSpec, Flower, Key, Layer, Prefix, Test, U32, Width,
};

use super::ROOT;

const PROTOCOLS: [u16; 5] = [3, 0x0800, 0x86dd, 0x8100, 0x88a8];

/// Numbers that say what to make.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(super) fn below(&mut self, limit: u8) -> u8 {
        self.byte() % limit
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(9) == 0).then(|| make(self))
    }

    /// 10.0.0.0 to 10.0.0.3, or fd00:: to fd00::3, and a length.
    fn prefix(&mut self) -> Prefix {
        let (kind, last) = (self.below(4), self.below(4));
        let (address, len) = match kind {
            0 | 1 => (
                IpAddr::from([10, 0, 0, last]),
                [30, 31, 32, 0][usize::from(kind)],
            ),
            _ => {
                let mut bytes = [0; 16];
                (bytes[0], bytes[15]) = (0xfd, last);
                (IpAddr::from(bytes), [126, 127, 128, 0][usize::from(kind)])
            }
        };
        Prefix::new(address, len).expect("a length of the family")
    }

    fn ports(&mut self) -> std::ops::RangeInclusive<u16> {
        let first = u16::from(self.below(4));
        first..=first + u16::from(self.below(2))
    }

    fn mark(&mut self) -> (u32, u32) {
        (
            u32::from(self.below(4)),
            [0, 1, 3, u32::MAX][usize::from(self.below(4))],
        )
    }

    fn key(&mut self) -> Key {
        let at = i32::from(self.below(14)) * 4 - 16;
        let value = u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()]);
        let mask = [
            0,
            0xff,
            0xff_0000,
            0x00ff_ff00,
            0xf000_0000,
            3,
            u32::MAX,
            0xff00,
        ];
        let mask = mask[usize::from(self.below(8))];
        Key {
            value,
            mask,
            at,
            next: 0,
        }
    }

    fn compare(&mut self) -> Compare {
        [Compare::Eq, Compare::Lt, Compare::Gt][usize::from(self.below(3))]
    }

    fn ematch(&mut self) -> Ematch {
        let negated = self.below(2) == 1;
        let test = match self.below(4) {
            0 => Test::Word(self.key()),
            1 => Test::Priority(self.compare(), u32::from(self.below(4))),
            2 => Test::Mark {
                mask: 3,
                compare: self.compare(),
                value: u32::from(self.below(4)),
            },
            _ => Test::Cmp {
                width: [Width::One, Width::Two, Width::Four][usize::from(self.below(3))],
                at: u16::from(self.byte()),
                layer: [Layer::Link, Layer::Network, Layer::Transport][usize::from(self.below(3))],
                mask: [0, 0xff, 0xf0, 0xffff_0000][usize::from(self.below(4))],
                compare: self.compare(),
                value: u32::from(self.byte()),
                trans: false,
            },
        };
        let or = self.below(4) == 0;
        Ematch { negated, or, test }
    }

    fn flower(&mut self) -> Flower {
        Flower {
            indev: None,
            vlan_id: self.maybe(|i| u16::from(i.below(3))),
            vlan_prio: self.maybe(|i| i.below(2)),
            vlan_ethtype: self.maybe(|i| PROTOCOLS[1 + usize::from(i.below(3))]),
            src_ip: self.maybe(Input::prefix),
            dst_ip: self.maybe(Input::prefix),
            ip_proto: self.maybe(|i| [6, 17, 1, 44][usize::from(i.below(4))]),
            ip_tos: self.maybe(|i| (i.byte(), [0xfc, 0xff, 3, 0][usize::from(i.below(4))])),
            src_port: self.maybe(Input::ports),
            dst_port: self.maybe(Input::ports),
            mark: self.maybe(Input::mark),
            fields: Vec::new(),
        }
    }

    pub(super) fn filter(&mut self) -> FilterSpec {
        let chain = u32::from(self.below(5).saturating_sub(2));
        let prio = [1, 1, 1, 2, 3, 0][usize::from(self.below(6))];
        let protocol = PROTOCOLS[usize::from(self.below(16).saturating_sub(11))];
        let handle = u32::from(self.below(6));
        let action = match self.below(10) {
            0 => Control::Drop,
            1 | 2 => Control::Continue,
            3 => Control::Reclassify,
            4 | 5 => Control::Goto(u32::from(self.below(4))),
            _ => Control::Pass,
        };
        let class = ROOT.class(u16::from(self.below(18)));
        // Mostly one that fits the others of the priority.
        let kind = match (self.below(8), prio) {
            (of @ 0..4, _) => of,
            (_, 2) => 2,
            (_, 3) => 3,
            _ => 4,
        };
        let kind = match kind {
            0 => FilterKind::Matchall,
            1 => FilterKind::fw(self.mark().1),
            2 => FilterKind::Basic((0..self.below(3)).map(|_| self.ematch()).collect()),
            3 => FilterKind::U32(U32 {
                keys: (0..self.below(3)).map(|_| self.key()).collect(),
                mark: self.maybe(Input::mark),
                ..U32::default()
            }),
            _ => self.flower().into(),
        };
        FilterSpec {
            chain,
            prio,
            protocol,
            handle,
            actions: action.into(),
            class: Some(class).filter(|class| class.minor() != 17),
            ..FilterSpec::new(kind, ROOT)
        }
    }

    /// A frame with the headers that filters look at, cut and changed somewhere; or any bytes.
    pub(super) fn frame(&mut self) -> Vec<u8> {
        let (tags, shape) = (self.below(3), self.below(4));
        let mut frame = vec![2, 0, 0, 0, 0, self.below(4), 2, 0, 0, 0, 0, self.below(4)];
        for tag in 0..tags {
            frame.extend([[0x81, 0], [0x88, 0xa8]][usize::from(tag & 1)]);
            frame.extend([self.below(2) << 5, self.below(3)]);
        }
        let protocol = [6, 17, 1, 44][usize::from(self.below(4))];
        let tos = self.byte();
        let (source, destination) = (self.below(4), self.below(4));
        match shape {
            0 => {
                frame.extend([8, 0, 0x45, tos, 0, 40, 0, 0, self.byte() & 0x20, 0]);
                frame.extend([64, protocol, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
            }
            1 => {
                frame.extend([
                    0x86,
                    0xdd,
                    0x60 | tos >> 4,
                    tos << 4,
                    0,
                    0,
                    0,
                    20,
                    protocol,
                    64,
                ]);
                for last in [source, destination] {
                    frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
                }
            }
            2 => frame.extend([8, 6]),
            _ => return self.0.to_vec(),
        }
        frame.extend([
            0,
            self.below(4),
            0,
            self.below(4),
            0,
            20,
            0,
            0,
            0,
            0,
            0,
            0,
            0x50,
            0,
        ]);
        frame.extend([0; 6]);
        let changes = usize::from(self.below(4));
        for change in self.0.chunks_exact(2).take(changes) {
            let at = usize::from(change[0]);
            match frame.get_mut(at) {
                Some(byte) => *byte = change[1],
                None => frame.truncate(usize::from(change[1])),
            }
        }
        frame
    }
}
