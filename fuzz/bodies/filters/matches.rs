//! A filter and a packet.

use softnet::wire::{L4, Network, dissect};
use softnet_tc::{Compare, FilterKind, FilterSpec, Flower, Key, Layer, Test, Width};

/// A packet as filters look at it.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) frame: &'a [u8],
    /// Length of the first segment.
    pub(super) first: usize,
    pub(super) mark: u32,
    pub(super) priority: u32,
}

impl View<'_> {
    /// A number of so many bytes.
    pub(super) fn be(&self, at: usize, bytes: usize) -> Option<u32> {
        let bytes = self.frame.get(at..at + bytes)?;
        Some(
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u32::from(*byte)),
        )
    }

    /// The bytes in which headers are sought.
    fn readable(&self) -> &[u8] {
        &self.frame[..self.first.max(512).min(self.frame.len())]
    }

    fn is_tag(&self, at: usize) -> bool {
        matches!(self.be(at, 2), Some(0x8100 | 0x88a8 | 0x9100))
    }

    /// A number in the frame without its first tag, behind two zeros.
    fn untagged(&self, at: usize, bytes: usize) -> Option<u32> {
        let mut frame = vec![0, 0];
        frame.extend(self.frame);
        self.be(12, 2)?;
        if self.is_tag(12) {
            frame.drain(14..18.min(frame.len()));
        }
        let bytes = frame.get(at..at + bytes)?;
        Some(
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u32::from(*byte)),
        )
    }

    /// `None`: the packet ends before it.
    fn key(&self, key: &Key) -> Option<bool> {
        let word = self.untagged((16 + key.at) as usize, 4)?;
        Some(word & key.mask == key.value & key.mask)
    }

    fn mark(&self, (value, mask): (u32, u32)) -> bool {
        self.mark & mask == value & mask
    }
}

fn compares(number: u32, compare: Compare, value: u32) -> bool {
    let order = match compare {
        Compare::Eq => std::cmp::Ordering::Equal,
        Compare::Lt => std::cmp::Ordering::Less,
        Compare::Gt => std::cmp::Ordering::Greater,
    };
    number.cmp(&value) == order
}

/// `None`: nor is it tried with the others of the priority.
pub(super) fn matches(filter: &FilterSpec, view: &View<'_>) -> Option<bool> {
    Some(match &filter.kind {
        FilterKind::Matchall => true,
        FilterKind::Fw { mask, .. } => view.mark & mask == filter.handle,
        // None of those is made.
        FilterKind::U32Table { .. } | FilterKind::U32Root | FilterKind::FwClass => false,
        FilterKind::U32(of) => {
            let keys = || of.keys.iter().map(|key| view.key(key));
            let first_miss = || keys().find(|holds| *holds != Some(true));
            of.mark.is_none_or(|mark| view.mark(mark)) && first_miss().unwrap_or(Some(true))?
        }
        FilterKind::Basic(all) => {
            let mut holds = true;
            for e in all {
                holds = ematch(&e.test, view) != e.negated;
                if holds == e.or {
                    break;
                }
            }
            holds
        }
        FilterKind::Flower(flower) => flower_matches(flower, view),
    })
}

fn ematch(test: &Test, view: &View<'_>) -> bool {
    match *test {
        Test::Word(key) => view.key(&key) == Some(true),
        Test::Priority(compare, value) => compares(view.priority, compare, value),
        Test::Mark {
            mask,
            compare,
            value,
        } => compares(view.mark & mask, compare, value),
        Test::Cmp {
            width,
            at,
            layer,
            mask,
            compare,
            value,
            trans: _,
        } => {
            let bytes = match width {
                Width::One => 1,
                Width::Two => 2,
                Width::Four => 4,
            };
            let at = usize::from(at);
            let number = match layer {
                Layer::Link => view.untagged(2 + at, bytes),
                Layer::Network => view.untagged(16 + at, bytes),
                Layer::Transport => dissect(view.readable(), view.frame.len())
                    .ok()
                    .filter(|headers| headers.transport != L4::None)
                    .and_then(|headers| view.be(headers.offsets().1 + at, bytes)),
            };
            let mask = if mask == 0 { u32::MAX } else { mask };
            number.is_some_and(|number| compares(number & mask, compare, value))
        }
        ref other => panic!("{other:?}"),
    }
}

fn flower_matches(flower: &Flower, view: &View<'_>) -> bool {
    let headers = dissect(view.readable(), view.frame.len()).ok();
    let tag = view.be(14, 4).filter(|_| view.is_tag(12));
    let addresses = headers.and_then(|h| h.addresses(view.frame));
    let ports = match headers.map(|headers| headers.transport) {
        Some(
            L4::Tcp {
                source,
                destination,
            }
            | L4::Udp {
                source,
                destination,
            },
        ) => Some((source, destination)),
        _ => None,
    };
    let ip = headers.filter(|headers| headers.network != Network::Other);
    let holds = [
        flower.mark.map(|mark| view.mark(mark)),
        flower
            .vlan_id
            .map(|id| tag.is_some_and(|tag| tag >> 16 & 0xfff == id.into())),
        flower
            .vlan_prio
            .map(|prio| tag.is_some_and(|tag| tag >> 29 == prio.into())),
        flower
            .vlan_ethtype
            .map(|e| tag.is_some_and(|tag| tag & 0xffff == e.into())),
        flower.ip_proto.map(|p| ip.is_some_and(|h| h.protocol == p)),
        flower.ip_tos.map(|(value, mask)| {
            ip.is_some_and(|headers| headers.traffic_class & mask == value & mask)
        }),
        flower
            .src_ip
            .map(|prefix| addresses.is_some_and(|a| prefix.contains(a.0))),
        flower
            .dst_ip
            .map(|prefix| addresses.is_some_and(|a| prefix.contains(a.1))),
        flower
            .src_port
            .as_ref()
            .map(|range| ports.is_some_and(|p| range.contains(&p.0))),
        flower
            .dst_port
            .as_ref()
            .map(|range| ports.is_some_and(|p| range.contains(&p.1))),
    ];
    holds.iter().all(|field| *field != Some(false))
}
