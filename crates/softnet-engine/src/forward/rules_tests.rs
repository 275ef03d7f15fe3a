//! Forwarding by rules against a reference model: random options, VLANs and entries, and for each
//! frame the same copies out of the same ports, byte for byte.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::elsewhere::LinkTable;
use super::fdb::{AGEING, FdbState, Fixed, Station};
use super::virtual_link::Role;
use super::*;
use crate::link::LinkCell;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::{DropCounters, DropReason};
use softnet::sync::PerCpu;
use softnet::testing::{Bench, config, packet, pool};
use softnet::time::Time;
use softnet::tx::Features;
use softnet::wire::{Checksum, EthernetAddress};
use softnet_tc::{AnyQdisc, QdiscSpec};

const PORTS: usize = 4;
const SECOND: u64 = 1_000_000_000;
/// Where the checksum of an untagged frame starts, and what is there.
const START: usize = 34;
const MARKER: [u8; 4] = [0xC5; 4];

/// A frame to send: from port and station; to station, group (6) or all (7); the VLAN of its tag,
/// if any, 0 for one with a priority only.
#[derive(Clone, Copy, Debug)]
struct Sent {
    port: usize,
    from: u8,
    to: u8,
    tag: Option<u16>,
    long: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Sent),
    /// So many seconds pass.
    Wait(u64),
    Options(usize, BridgePortOptions),
    Vlan(usize, u16, Option<VlanFlags>),
    Filter(bool),
    Fix(u8, u16, usize, FdbState, bool),
    Unfix(u8, u16, usize),
    Leave(usize),
}

fn mac(station: u8) -> EthernetAddress {
    match station {
        6 => EthernetAddress([1, 0, 0x5E, 0, 0, 1]),
        7 => EthernetAddress::BROADCAST,
        n => EthernetAddress([2, 0, 0, 0, 0, n]),
    }
}

const TAG: u16 = 0x6000;

fn bytes(sent: Sent, tag: Option<u16>) -> Vec<u8> {
    let mut bytes = [mac(sent.to).0, mac(sent.from).0].concat();
    if let Some(tag) = tag {
        bytes.extend([0x81, 0]);
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend([0x88, 0xB5]);
    bytes.extend([0; START - 14]);
    bytes.extend(MARKER);
    bytes.extend(vec![0; if sent.long { 300 } else { 30 }]);
    bytes
}

/// The reference: written for clarity, with maps and loops.
struct Model {
    filtering: bool,
    options: [BridgePortOptions; PORTS],
    /// By port and VLAN.
    vlans: BTreeMap<(usize, u16), VlanFlags>,
    /// By VLAN and station: port, state, sticky, and the second it was seen.
    fdb: BTreeMap<(u16, u8), (usize, FdbState, bool, u64)>,
}

impl Model {
    /// Entries that are too old count as absent.
    fn age(&mut self, second: u64) {
        let old =
            |state, seen: u64| state == FdbState::Dynamic && seen + AGEING.as_secs() <= second;
        self.fdb
            .retain(|_, &mut (_, state, _, seen)| !old(state, seen));
    }

    /// The ports that a frame leaves through, and the tag that it then has; or why it does not.
    fn forward(
        &mut self,
        sent: Sent,
        second: u64,
    ) -> Result<Vec<(usize, Option<u16>)>, DropReason> {
        let Sent { port, .. } = sent;
        let priority = TAG & 0xF000;
        let vlan = match sent.tag {
            _ if !self.filtering => 0,
            Some(vlan) if vlan > 0 => {
                let member = self.vlans.contains_key(&(port, vlan));
                member.then_some(vlan).ok_or(DropReason::VlanFilter)?
            }
            _ => {
                let mut all = self.vlans.iter();
                let pvid = all.find(|((p, _), flags)| *p == port && flags.pvid);
                pvid.ok_or(DropReason::VlanFilter)?.0.1
            }
        };
        self.age(second);
        if self.options[port].locked {
            let known = self.fdb.get(&(vlan, sent.from));
            let behind =
                known.is_some_and(|&(at, state, ..)| at == port && state != FdbState::Permanent);
            if !behind {
                return Err(DropReason::MacSpoof);
            }
        }
        if self.options[port].learning {
            match self.fdb.get_mut(&(vlan, sent.from)) {
                Some((_, FdbState::Permanent, ..)) => {}
                Some((at, _, sticky, seen)) => {
                    if *at == port || !*sticky {
                        (*at, *seen) = (port, second);
                    }
                }
                None => {
                    let learnt = (port, FdbState::Dynamic, false, second);
                    self.fdb.insert((vlan, sent.from), learnt);
                }
            }
        }
        let known = self.fdb.get(&(vlan, sent.to)).copied();
        if known.is_some_and(|known| known.1 == FdbState::Permanent) {
            return Err(DropReason::NoForward);
        }
        let refused = |to: usize| {
            let [a, b] = [port, to].map(|p| self.options[p]);
            if to == port && !b.hairpin {
                Some(DropReason::Sameport)
            } else if self.filtering && !self.vlans.contains_key(&(to, vlan)) {
                Some(DropReason::VlanFilter)
            } else {
                (a.isolated && b.isolated).then_some(DropReason::Isolated)
            }
        };
        let targets: Vec<usize> = match known {
            Some((to, ..)) => match refused(to) {
                Some(reason) => return Err(reason),
                None => vec![to],
            },
            None => (0..PORTS)
                .filter(|&to| refused(to).is_none())
                .filter(|&to| match sent.to {
                    6 => self.options[to].mcast_flood,
                    7 => self.options[to].bcast_flood,
                    _ => self.options[to].flood,
                })
                .collect(),
        };
        if targets.is_empty() {
            return Err(DropReason::NoForward);
        }
        let tag = |to: usize| match sent.tag {
            _ if self.filtering && self.vlans[&(to, vlan)].untagged => None,
            None if self.filtering => Some(vlan),
            Some(_) if self.filtering => Some(priority | vlan),
            as_it_is => as_it_is.map(|vlan| priority | vlan),
        };
        Ok(targets.into_iter().map(|to| (to, tag(to))).collect())
    }
}

type Out = Arc<Mutex<Vec<(usize, Vec<u8>, usize)>>>;

/// The bridge under test, with the model beside it.
struct Pair {
    devices: Vec<Bench<AnyQdisc>>,
    forwarder: Forwarder<softnet::testing::ScriptedRing>,
    bridge: Arc<Bridge>,
    members: Vec<Member>,
    local: bool,
    out: Out,
    pool: Pool,
    model: Model,
    now: u64,
}

impl Pair {
    fn new() -> Pair {
        let (pool, out) = (pool(256), Out::default());
        let device = |n| {
            let mut config = config(&format!("p{n}"));
            // The driver sees the metadata.
            config.features = Features {
                checksum: true,
                ..Features::default()
            };
            let qdiscs = QdiscSpec::default().instances(1, &pool).unwrap();
            let bench = Bench::scripted(config, qdiscs, &pool);
            let out = out.clone();
            bench.scripts[0].set_sink(move |packet| {
                let start = packet.checksum().map_or(0, |c| usize::from(c.start));
                let bytes = packet.segments().flatten().copied().collect();
                out.lock().unwrap().push((n, bytes, start));
            });
            bench
        };
        let mut pair = Pair {
            devices: (0..PORTS).map(device).collect(),
            forwarder: Forwarder {
                links: Arc::new(LinkTable::new()),
                ports: Vec::new(),
                bridges: Vec::new(),
                pool: pool.clone(),
                copied: Arc::new(PerCpu::new()),
                orphans: Arc::new(DropCounters::new()),
            },
            bridge: Arc::new(Bridge::new(4096, AGEING)),
            members: vec![Member::default(); PORTS],
            local: false,
            out,
            pool,
            model: Model {
                filtering: false,
                options: Default::default(),
                vlans: BTreeMap::new(),
                fdb: BTreeMap::new(),
            },
            now: 0,
        };
        pair.publish();
        pair
    }

    fn publish(&mut self) {
        let members = Arc::new(Members::new(
            self.bridge.clone(),
            (0..PORTS as u16).collect(),
            self.members.clone(),
            self.model.filtering,
            self.local,
        ));
        let entry = |bench: &Bench<AnyQdisc>| {
            Some(Entry {
                device: bench.device.clone(),
                bridge: Some(members.clone()),
                link: Arc::new(LinkCell::new()),
                guard: None,
                role: Role::default(),
                arrival: None,
            })
        };
        self.forwarder.ports = self.devices.iter().map(entry).collect();
    }

    fn packet(&self, sent: Sent) -> Packet {
        let mut packet = packet(&self.pool);
        let tag = sent.tag.map(|vlan| TAG & 0xF000 | vlan);
        assert!(packet.append(&bytes(sent, tag)));
        let start = if tag.is_some() { START + 4 } else { START };
        packet.set_checksum(Some(Checksum {
            start: start as u16,
            offset: 2,
        }));
        packet
    }

    fn drops(&self) -> BTreeMap<DropReason, u64> {
        let mut sums = BTreeMap::new();
        for (reason, count) in self.devices.iter().flat_map(|d| d.device.stats().drops) {
            *sums.entry(reason).or_default() += count;
        }
        sums
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send(sent) => return self.send(sent),
            Step::Wait(seconds) => self.now += seconds,
            Step::Options(port, options) => {
                self.model.options[port] = options;
                self.members[port].options = options;
            }
            Step::Vlan(port, vlan, Some(flags)) => {
                if flags.pvid {
                    for (_, other) in self.model.vlans.iter_mut().filter(|v| v.0.0 == port) {
                        other.pvid = false;
                    }
                }
                self.model.vlans.insert((port, vlan), flags);
                Arc::make_mut(&mut self.members[port].vlans).add(vlan, flags);
            }
            Step::Vlan(port, vlan, None) => {
                self.model.vlans.remove(&(port, vlan));
                Arc::make_mut(&mut self.members[port].vlans).remove(vlan);
            }
            Step::Filter(filtering) => self.model.filtering = filtering,
            Step::Fix(station, vlan, port, state, sticky) => {
                self.local |= state == FdbState::Permanent;
                self.publish();
                let entry = (port, state, sticky, self.now);
                self.model.fdb.insert((vlan, station), entry);
                let fixed = Fixed {
                    station: Station {
                        vlan,
                        address: mac(station),
                    },
                    port: port as u16,
                    state,
                    sticky,
                };
                let now = Time(self.now * SECOND);
                self.bridge.fdb().fix(fixed, true, now).unwrap();
            }
            Step::Unfix(station, vlan, port) => {
                self.model.age(self.now);
                let key = (vlan, station);
                let had = self.model.fdb.get(&key).is_some_and(|e| e.0 == port);
                if had {
                    self.model.fdb.remove(&key);
                }
                let (address, now) = (mac(station), Time(self.now * SECOND));
                let removed = self
                    .bridge
                    .fdb()
                    .unfix(Station { vlan, address }, port as u16, now);
                assert_eq!(removed, had);
            }
            Step::Leave(port) => {
                self.model.fdb.retain(|_, entry| entry.0 != port);
                self.bridge.fdb().forget_port(port as u16);
            }
        }
        self.publish();
    }

    fn send(&mut self, sent: Sent) {
        let before = self.drops();
        let mut list = PacketList::from(self.packet(sent)).into();
        let source = &self.devices[sent.port].device;
        let now = Time(self.now * SECOND);
        let (port, mut copies) = (sent.port as u16, usize::MAX);
        self.forwarder
            .forward(source, port, &mut list, &mut copies, now);
        assert!(list.packets.is_empty());
        let mut out = std::mem::take(&mut *self.out.lock().unwrap());
        out.sort();
        let mut drops = self.drops();
        drops.retain(|reason, count| {
            *count -= before.get(reason).copied().unwrap_or(0);
            *count > 0
        });
        let (expected, reason) = match self.model.forward(sent, self.now) {
            Ok(targets) => (targets, None),
            Err(reason) => (Vec::new(), Some((reason, 1))),
        };
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(to, tag)| {
                let start = if tag.is_some() { START + 4 } else { START };
                (to, bytes(sent, tag), start)
            })
            .collect();
        for (_, bytes, start) in &out {
            assert_eq!(
                bytes[*start..][..4],
                MARKER,
                "the checksum's start moves along"
            );
        }
        assert_eq!(out, expected);
        assert_eq!(
            drops.into_iter().collect::<Vec<_>>(),
            Vec::from_iter(reason)
        );
        let stats = self.pool.stats();
        assert_eq!(stats.free, stats.buffers, "freed");
    }
}

#[test]
fn a_station_that_moves_while_its_frame_waits_stays_where_it_is() {
    for hairpin in [false, true] {
        let mut pair = Pair::new();
        let options = BridgePortOptions {
            hairpin,
            ..BridgePortOptions::default()
        };
        pair.step(&Step::Options(3, options));
        let [old, new] = [2, 3];
        let frame = |port| {
            let [from, to] = [1, 5];
            let (tag, long) = (None, false);
            pair.packet(Sent {
                port,
                from,
                to,
                tag,
                long,
            })
        };
        let forward = |port: usize, pending: &mut Pending, mut copies: usize| {
            let source = &pair.devices[port].device;
            pair.forwarder
                .forward(source, port as u16, pending, &mut copies, Time(SECOND));
            pending.packets.len()
        };
        let mut waits = PacketList::from(frame(old)).into();
        assert_eq!(forward(old, &mut waits, 0), 1);
        let mut after = PacketList::from(frame(new)).into();
        assert_eq!(forward(new, &mut after, PORTS), 0);
        assert_eq!(forward(old, &mut waits, PORTS), 0);
        let seen = pair.bridge.fdb().lookup(mac(1), Time(SECOND));
        assert_eq!(seen, Some(new as u16), "by rules: {hairpin}");
    }
}

fn options() -> impl Strategy<Value = BridgePortOptions> {
    // Each in a quarter of the cases other than by default.
    let rare = || prop::bool::weighted(0.25);
    prop::array::uniform7(rare()).prop_map(|[a, b, c, d, e, f, g]| BridgePortOptions {
        isolated: a,
        locked: b,
        learning: !c,
        flood: !d,
        mcast_flood: !e,
        bcast_flood: !f,
        hairpin: g,
        ..BridgePortOptions::default()
    })
}

fn step() -> impl Strategy<Value = Step> {
    let port = || 0..PORTS;
    let flags =
        (any::<bool>(), any::<bool>()).prop_map(|(pvid, untagged)| VlanFlags { pvid, untagged });
    let tag = prop::option::of(0..4_u16);
    let state = prop::sample::select(vec![
        FdbState::Permanent,
        FdbState::Static,
        FdbState::Dynamic,
    ]);
    let sent = (port(), 0..6_u8, 0..8_u8, tag, any::<bool>());
    prop_oneof![
        12 => sent.prop_map(|(port, from, to, tag, long)| {
            Step::Send(Sent { port, from, to, tag, long })
        }),
        1 => (0..400_u64).prop_map(Step::Wait),
        2 => (port(), options()).prop_map(|(port, options)| Step::Options(port, options)),
        4 => (port(), 1..4_u16, prop::option::weighted(0.8, flags))
            .prop_map(|(port, vlan, flags)| Step::Vlan(port, vlan, flags)),
        1 => prop::bool::weighted(0.8).prop_map(Step::Filter),
        1 => (0..6_u8, 0..4_u16, port(), state, any::<bool>()).prop_map(
            |(station, vlan, port, state, sticky)| {
                Step::Fix(station, vlan, port, state, sticky && state != FdbState::Permanent)
            }
        ),
        1 => (0..6_u8, 0..4_u16, port()).prop_map(|(s, vlan, port)| Step::Unfix(s, vlan, port)),
        1 => port().prop_map(Step::Leave),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn forwards_as_the_model(
        filtering in any::<bool>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new();
        pair.step(&Step::Filter(filtering));
        for step in &steps {
            pair.step(step);
        }
    }
}
