//! Filters of a `prio` against a plain reading of what they mean, on one packet.
//!
//! Input: numbers that say which filters to add and what the packet is; its last bytes are the
//! frame's, or change it. Where it ends, zeros follow. Values are few, so that many match.

use std::net::IpAddr;

use softnet::mem::{Packet, PoolConfig};
use softnet::qdisc::{Cx, Qdisc};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;
use softnet::wire::{L4, Network, dissect};
use softnet_tc::{
    Compare, Control, Ematch, FilterKind, FilterOp, FilterSpec, Flower, Handle, Key, Layer,
    Prefix, PrioSpec, QdiscEnv, QdiscSpec, Test, Tree, TreeSpec, U32, Width,
};

const ROOT: Handle = Handle::new(1, 0);
const PROTOCOLS: [u16; 5] = [3, 0x0800, 0x86dd, 0x8100, 0x88a8];

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, limit: u8) -> u8 {
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

    fn filter(&mut self) -> FilterSpec {
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
    fn frame(&mut self) -> Vec<u8> {
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

pub(crate) fn run(input: &[u8]) {
    let mut input = Input(input);
    let pool = softnet::mem::Pool::new(PoolConfig {
        buffers: 8,
        buffer_size: 2048,
    });
    let pool = pool.expect("a small pool");
    let mut spec = TreeSpec::new();
    let mut priomap = [14; 16];
    priomap[0] = 15;
    let prio = QdiscSpec::Prio(PrioSpec { bands: 16, priomap });
    spec.add(Handle::ROOT, ROOT, prio).expect("a prio");
    let mut added: Vec<FilterSpec> = Vec::new();
    for _ in 0..input.below(12) {
        let mut filter = input.filter();
        if let Ok(key) = spec.put_filter(FilterOp::Add, filter.clone()) {
            (filter.prio, filter.handle) = (key.prio, key.handle);
            added.push(filter);
        }
    }
    let mut tree = Tree::build(spec, &QdiscEnv::new(&pool)).expect("a tree");
    let (mark, priority) = (u32::from(input.below(5)), u32::from(input.below(4)));
    let cut = usize::from(input.below(64));
    let mut frame = input.frame();
    frame.truncate(1000);
    let mut packet = packet(&pool, &frame, cut);
    packet.set_mark(mark);
    packet.set_priority(priority);
    let view = View {
        frame: &frame,
        first: if cut == 0 {
            frame.len()
        } else {
            cut.min(frame.len())
        },
        mark,
        priority,
    };
    let (expected, hits) = decide(&added, &view);

    let mut cx = Cx::new(&pool);
    tree.enqueue(&mut packet.into(), cx.at(Time::ZERO));
    let classes = tree.classes();
    let found = classes
        .iter()
        .find(|c| c.class != Handle::ROOT && c.stats.qlen == 1);
    let found = found.map(|class| class.class.minor());
    let reasons = DropCounters::new();
    cx.dropped.settle(&reasons);
    let (minor, reason) = match expected {
        Decision::Class(minor) if (1..=16).contains(&minor) => (Some(minor), vec![]),
        Decision::Class(_) => (Some(16), vec![]),
        Decision::None => (Some(priomap[priority as usize] as u16 + 1), vec![]),
        Decision::Drop(reason) => (None, vec![(reason, 1)]),
    };
    assert_eq!(
        (found, reasons.nonzero()),
        (minor, reason),
        "{added:#?} {view:?}"
    );
    let mut counted: Vec<_> = tree
        .filters()
        .map(|(f, stats)| (f.key(), stats.packets))
        .collect();
    let mut expected: Vec<_> = added.iter().map(FilterSpec::key).zip(hits).collect();
    counted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(counted, expected, "{added:#?} {view:?}");
}

/// A packet, whose first segment ends after `cut` bytes; 0: has them all.
fn packet(pool: &softnet::mem::Pool, frame: &[u8], cut: usize) -> Packet {
    let mut packet = pool.alloc().expect("a buffer");
    if cut == 0 || cut >= frame.len() {
        assert!(packet.append(frame));
        return packet;
    }
    assert!(packet.append(&frame[..cut]));
    let mut rest = pool.alloc().expect("a buffer");
    assert!(rest.append(&frame[cut..]));
    packet.append_segment(rest);
    packet
}

#[derive(Debug)]
struct View<'a> {
    frame: &'a [u8],
    /// Length of the first segment.
    first: usize,
    mark: u32,
    priority: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision {
    Class(u16),
    None,
    Drop(DropReason),
}

/// The filters' decision on a packet, and how often each matched, in the order in which they were
/// added.
fn decide(filters: &[FilterSpec], view: &View<'_>) -> (Decision, Vec<u64>) {
    let mut hits = vec![0; filters.len()];
    let (mut chain, mut restarts) = (0, 0);
    'restart: loop {
        let mut skip = None;
        for index in order(filters, chain) {
            let filter = &filters[index];
            let ours = filter.protocol == 3 || view.be(12, 2) == Some(filter.protocol.into());
            if skip == Some(filter.prio) || !ours {
                continue;
            }
            match matches(filter, view) {
                Some(true) => {}
                Some(false) => continue,
                None => {
                    skip = Some(filter.prio);
                    continue;
                }
            }
            hits[index] += 1;
            let action = filter.actions.as_slice().first();
            chain = match action.map_or(Control::Pass, |action| action.spec().control) {
                Control::Pass => {
                    let minor = filter.class.map_or(0, Handle::minor);
                    return (Decision::Class(minor), hits);
                }
                Control::Drop => return (Decision::Drop(DropReason::FilterDrop), hits),
                Control::Continue => {
                    if matches!(filter.kind, FilterKind::Flower(_) | FilterKind::Matchall) {
                        skip = Some(filter.prio);
                    }
                    continue;
                }
                Control::Reclassify => 0,
                Control::Goto(chain) => chain,
                other => panic!("{other:?}"),
            };
            restarts += 1;
            if restarts > 16 {
                return (Decision::Drop(DropReason::ReclassifyLoop), hits);
            }
            continue 'restart;
        }
        return (Decision::None, hits);
    }
}

/// The filters of a chain in the order in which they are tried.
fn order(filters: &[FilterSpec], chain: u32) -> Vec<usize> {
    let of_chain = |&i: &usize| filters[i].chain == chain;
    let mut order: Vec<usize> = (0..filters.len()).filter(of_chain).collect();
    order.sort_by_key(|&i| {
        let filter = &filters[i];
        let place = match &filter.kind {
            FilterKind::U32(_) => filter.handle as usize,
            FilterKind::Flower(flower) => {
                let alike = |other: &FilterSpec| {
                    let FilterKind::Flower(other_flower) = &other.kind else {
                        return false;
                    };
                    (other.chain, other.prio) == (chain, filter.prio)
                        && shape(other_flower) == shape(flower)
                };
                filters.iter().position(alike).expect("itself at least")
            }
            FilterKind::Basic(_) => usize::MAX - i,
            _ => 0,
        };
        (filter.prio, place)
    });
    order
}

/// The fields and bits that a `flower` filter looks at.
fn shape(flower: &Flower) -> String {
    let prefix = |prefix: Option<Prefix>| {
        prefix.map(|p| {
            format!(
                "{} {}",
                p.is_ipv4(),
                p.to_string().split('/').nth(1).unwrap_or("")
            )
        })
    };
    let ports = |ports: &Option<std::ops::RangeInclusive<u16>>| {
        ports.as_ref().map(|ports| ports.clone().count() > 1)
    };
    format!(
        "{:?}",
        (
            (flower.vlan_id.is_some(), flower.vlan_prio.is_some()),
            (flower.vlan_ethtype.is_some(), flower.ip_proto.is_some()),
            (prefix(flower.src_ip), prefix(flower.dst_ip)),
            (ports(&flower.src_port), ports(&flower.dst_port)),
            (
                flower.ip_tos.map(|tos| tos.1),
                flower.mark.map(|mark| mark.1)
            ),
        )
    )
}

impl View<'_> {
    /// A number of so many bytes.
    fn be(&self, at: usize, bytes: usize) -> Option<u32> {
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
fn matches(filter: &FilterSpec, view: &View<'_>) -> Option<bool> {
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
