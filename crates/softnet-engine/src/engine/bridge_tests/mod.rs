//! Options, VLANs and entries of bridges as the control path sets them, and what packets do then.

mod entries;

use std::time::Duration;

use super::*;
use crate::forward::{BridgePortOptions, FdbState, PortSecurity, VlanFlags};
use crate::testing::{Net, wait};
use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::testing::{frame, large_tcp};
use softnet::wire::EthernetAddress;

fn mac(station: u8) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, 0, station])
}

struct Bridged {
    net: Net,
    bridge: u32,
    mark: u32,
}

impl Bridged {
    fn new(ports: usize) -> Bridged {
        let net = Net::new(1, ports);
        let bridge = net.bridge;
        Bridged {
            net,
            bridge,
            mark: 0,
        }
    }

    fn options(&self, change: impl FnOnce(&mut BridgeOptions)) {
        let mut options = self.net.engine.bridge(self.bridge).unwrap().options;
        change(&mut options);
        self.net.engine.set_bridge(self.bridge, options).unwrap();
        assert_eq!(
            self.net.engine.bridge(self.bridge).unwrap().options,
            options
        );
    }

    fn vlans(&self, port: usize) -> Vec<(u16, bool, bool)> {
        let port = self
            .net
            .engine
            .bridge_port(self.net.ports[port].id)
            .unwrap();
        let vlans = port.vlans.iter();
        vlans.map(|(vlan, f)| (vlan, f.pvid, f.untagged)).collect()
    }

    fn add_vlans(&self, port: usize, vlans: std::ops::RangeInclusive<u16>, flags: VlanFlags) {
        let owner = self.net.ports[port].id;
        self.net.engine.add_vlans(owner, vlans, flags).unwrap();
    }

    /// The ports that a packet leaves through.
    fn pass(&mut self, port: usize, packet: Packet) -> Vec<usize> {
        self.mark += 1;
        let (mark, mut packet) = (self.mark, packet);
        packet.set_mark(mark);
        self.net.receive(port, [packet]);
        self.net.settle();
        let ports = 0..self.net.ports.len();
        let got = |&port: &usize| self.net.marks(port).contains(&mark);
        ports.filter(got).collect()
    }

    fn send(&mut self, port: usize, to: u8, from: u8) -> Vec<usize> {
        let packet = frame(&self.net.pool, to, from, 60, 0);
        self.pass(port, packet)
    }

    fn entries(&self) -> Vec<FdbEntry> {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(place) = from {
            let page = self.net.engine.fdb_entries(self.bridge, place, 2).unwrap();
            all.extend(page.0);
            from = page.1;
        }
        all.sort_by_key(|entry| (entry.address, entry.vlan));
        all
    }

    fn spec(&self, station: u8, state: FdbState) -> FdbSpec {
        FdbSpec {
            address: mac(station),
            vlan: None,
            state,
            sticky: false,
        }
    }
}

const TAGGED: VlanFlags = VlanFlags {
    pvid: false,
    untagged: false,
};
const ACCESS: VlanFlags = VlanFlags {
    pvid: true,
    untagged: true,
};

#[test]
fn options_of_a_port_last_until_it_leaves() {
    let mut b = Bridged::new(3);
    let ids: Vec<_> = b.net.ports.iter().map(|port| port.id).collect();
    assert_eq!(b.send(0, 0, 1), [1, 2]);
    let isolated = BridgePortOptions {
        isolated: true,
        ..BridgePortOptions::default()
    };
    for &id in &ids[..2] {
        b.net.engine.set_bridge_port(id, isolated).unwrap();
        assert_eq!(b.net.engine.bridge_port(id).unwrap().options, isolated);
    }
    assert_eq!(b.send(0, 0, 1), [2]);
    assert_eq!(b.send(1, 1, 2), [0; 0]);
    assert_eq!(b.net.engine.stats().drops(), [(DropReason::Isolated, 1)]);
    assert_eq!(b.send(2, 1, 3), [0]);
    // It is another member when it joins again.
    b.net.engine.set_master(ids[1], None).unwrap();
    assert!(b.net.engine.bridge_port(ids[1]).is_err());
    assert!(b.net.engine.set_bridge_port(ids[1], isolated).is_err());
    b.net.engine.join(b.bridge, &[ids[1]]).unwrap();
    let port = b.net.engine.bridge_port(ids[1]).unwrap();
    assert_eq!(
        (port.bridge, port.options),
        (b.bridge, BridgePortOptions::default())
    );
    assert_eq!(b.send(1, 1, 2), [0]);
    b.net.stop();
}

/// It is of the port, not of its place in a bridge.
#[test]
fn security_stays_with_the_port() {
    let mut b = Bridged::new(2);
    let port = b.net.ports[0].id;
    let security = PortSecurity {
        max_macs: Some(1),
        ..PortSecurity::default()
    };
    b.net
        .engine
        .set_options(port, |port| port.security = security.clone())
        .unwrap();
    assert_eq!(b.send(0, 9, 1), [1]);
    assert_eq!(b.send(0, 9, 2), [0; 0]);
    b.net.engine.set_master(port, None).unwrap();
    b.net.engine.join(b.bridge, &[port]).unwrap();
    assert_eq!(b.send(0, 9, 2), [0; 0]);
    assert_eq!(b.send(0, 9, 1), [1]);
    assert_eq!(b.send(1, 9, 2), [0], "of the other port nothing was said");
    assert_eq!(b.net.engine.stats().drops(), [(DropReason::MacLimit, 2)]);
    b.net
        .engine
        .set_options(port, |port| port.security = PortSecurity::default().clone())
        .unwrap();
    assert_eq!(b.send(0, 9, 3), [1]);
    b.net.stop();
}

/// As the kernel does it, also where the user had other plans for a port.
#[test]
fn the_default_pvid_is_what_nobody_changed() {
    let b = Bridged::new(3);
    let own = |b: &Bridged| -> Vec<u16> {
        b.net
            .engine
            .bridge(b.bridge)
            .unwrap()
            .vlans
            .iter()
            .map(|vlan| vlan.0)
            .collect()
    };
    assert_eq!((b.vlans(0), own(&b)), (vec![(1, true, true)], vec![1]));
    b.add_vlans(1, 1..=1, TAGGED);
    b.add_vlans(2, 5..=6, TAGGED);
    b.options(|options| options.default_pvid = Some(5));
    assert_eq!((b.vlans(0), own(&b)), (vec![(5, true, true)], vec![5]));
    assert_eq!(b.vlans(1), [(1, false, false)], "changed before");
    let kept = [(1, true, true), (5, false, false), (6, false, false)];
    assert_eq!(b.vlans(2), kept, "5 is in use");
    b.options(|options| options.default_pvid = None);
    assert_eq!((b.vlans(0), own(&b)), (vec![], vec![]));
    assert_eq!(b.vlans(2), kept);
    let port = b.net.ports[0].id;
    b.net.engine.set_master(port, None).unwrap();
    b.net.engine.join(b.bridge, &[port]).unwrap();
    assert_eq!(b.vlans(0), []);
    let (engine, owner) = (&b.net.engine, b.bridge);
    engine.add_vlans(owner, 7..=8, TAGGED).unwrap();
    engine.remove_vlans(owner, 8..=8).unwrap();
    assert_eq!(own(&b), [7]);
    for bad in [0..=3, 3..=4095] {
        let refused = engine.add_vlans(owner, bad, TAGGED);
        assert!(
            matches!(refused, Err(EngineError::BadVlan(0 | 4095))),
            "{refused:?}"
        );
    }
    let options = BridgeOptions {
        default_pvid: Some(4095),
        ..BridgeOptions::default()
    };
    let refused = engine.set_bridge(b.bridge, options);
    assert!(matches!(refused, Err(EngineError::BadVlan(4095))));
    b.net.stop();
}

/// Access ports in two VLANs, and a trunk.
#[test]
fn vlans_keep_apart_and_a_trunk_carries_both() {
    let mut b = Bridged::new(5);
    for (ports, vlan) in [([0, 1], 10), ([2, 3], 20)] {
        for port in ports {
            b.add_vlans(port, vlan..=vlan, ACCESS);
            b.add_vlans(port, 1..=1, TAGGED);
            let owner = b.net.ports[port].id;
            b.net.engine.remove_vlans(owner, 1..=1).unwrap();
            assert_eq!(b.vlans(port), [(vlan, true, true)]);
        }
    }
    b.add_vlans(4, 2..=4094, TAGGED);
    assert_eq!(b.send(0, 0, 1), [1, 2, 3, 4], "not filtered");
    b.options(|options| options.vlan_filtering = true);
    assert_eq!(b.send(0, 0, 1), [1, 4]);
    assert_eq!(b.send(2, 0, 1), [3, 4], "the same address in another VLAN");
    let lens = |b: &Bridged, port: usize| b.net.ports[port].script.sent().last().unwrap().1;
    assert_eq!([1, 3, 4].map(|port| lens(&b, port)), [60, 60, 64]);
    assert_eq!(b.send(1, 1, 2), [0], "learnt");
    let learnt: Vec<_> = b
        .entries()
        .iter()
        .map(|e| (e.address.0[5], e.vlan))
        .collect();
    // What was learnt before is known when VLANs are no longer filtered.
    let expected = [(1, None), (1, Some(10)), (1, Some(20)), (2, Some(10))];
    assert_eq!(learnt, expected);
    // A VLAN that goes takes what was learnt in it along.
    let owner = b.net.ports[2].id;
    b.net.engine.remove_vlans(owner, 20..=20).unwrap();
    assert_eq!(b.entries().len(), 3);
    assert_eq!(b.send(2, 0, 1), [0; 0]);
    assert_eq!(b.net.engine.stats().drops(), [(DropReason::VlanFilter, 1)]);
    // A large frame gets its tag before it is cut.
    let large = large_tcp(&softnet::testing::large_pool(1), 4000, 1000, 0);
    assert_eq!(b.pass(0, large), [1, 4]);
    let sent = b.net.ports[4].script.sent();
    let cut: Vec<_> = sent.iter().rev().take(4).map(|sent| sent.1).collect();
    assert_eq!(cut, [1058; 4]);
    drop(sent);
    let stats = b.net.stop();
    assert_eq!(stats.drops(), [(DropReason::VlanFilter, 1)], "whole");
}

/// As in the kernel: a static entry stays when its port is taken down, and its station's frames are
/// nobody else's.
#[test]
fn frames_for_a_port_that_is_down_are_not_flooded() {
    let mut b = Bridged::new(3);
    let port = b.net.ports[1].id;
    let fixed = b.spec(7, FdbState::Static);
    b.net.engine.add_fdb(port, fixed, false).unwrap();
    for (filtering, lost) in [(false, 1), (true, 2)] {
        b.options(|options| options.vlan_filtering = filtering);
        b.net.engine.change(port, |link| link.up = false).unwrap();
        assert_eq!(b.send(0, 7, 1), [0; 0]);
        let drops = b.net.engine.stats().drops();
        assert_eq!(drops, [(DropReason::NoForward, lost)]);
        b.net.engine.change(port, |link| link.up = true).unwrap();
        assert_eq!(b.send(0, 7, 1), [1]);
    }
    b.net.stop();
}

/// Packets that arrive together: each goes its own way, those that go the same way stay in order.
#[test]
fn packets_of_a_batch_go_where_each_belongs() {
    let mut b = Bridged::new(3);
    assert_eq!(b.send(1, 0, 11), [0, 2]);
    assert_eq!(b.send(2, 0, 12), [0, 1]);
    let before = [1, 2].map(|port| b.net.marks(port).len());
    let runt = |mark| {
        let mut packet = b.net.pool.alloc().unwrap();
        assert!(packet.append(&[2, 0, 0, 0, 0, 11, 2, 0, 0, 0, 0, 10, 8]));
        packet.set_mark(mark);
        packet
    };
    // To and from: 11 is behind port 1, 12 behind port 2, 13 nobody knows where.
    let ways = [
        [11, 10],
        [11, 10],
        [12, 10],
        [12, 9],
        [11, 10],
        [13, 10],
        [13, 10],
    ];
    let pool = b.net.pool.clone();
    let of = |(mark, [to, from]): (u32, [u8; 2])| frame(&pool, to, from, 60, mark);
    let mut packets: Vec<_> = (100..).zip(ways).map(of).collect();
    packets.insert(1, runt(120));
    packets.push(runt(121));
    packets.push(runt(122));
    packets.extend([of((123, [9, 10])), of((124, [9, 10])), of((125, [11, 10]))]);
    b.net.receive(0, packets);
    b.net.settle();
    let marks = |port: usize| b.net.marks(port)[before[port - 1]..].to_vec();
    assert_eq!(marks(1), [100, 101, 104, 105, 106, 125]);
    assert_eq!(marks(2), [102, 103, 105, 106]);
    let drops = b.net.engine.stats().drops();
    assert_eq!(drops, [(DropReason::Runt, 3), (DropReason::Sameport, 2)]);
}

#[test]
fn a_bridge_is_renamed_and_its_ageing_time_set() {
    let mut b = Bridged::new(2);
    let other = b.net.engine.add_bridge(Settings::new("br1")).unwrap();
    assert!(matches!(
        b.net
            .engine
            .change(b.bridge, |link| link.name = "br1".into()),
        Err(EngineError::Exists(_))
    ));
    b.net
        .engine
        .change(b.bridge, |link| link.name = "lan".into())
        .unwrap();
    b.net
        .engine
        .change(b.bridge, |link| link.name = "lan".into())
        .unwrap();
    let found = ["br0", "br1", "lan"].map(|name| b.net.engine.link_named(name).ok());
    let found = found.map(|link| link.map(|link| link.index));
    assert_eq!(found, [None, Some(other), Some(b.bridge)]);
    b.net.engine.delete(other).unwrap();
    assert!(
        b.net
            .engine
            .change(other, |link| link.name = "x".into())
            .is_err()
    );
    assert!(b.net.engine.fdb_entries(other, 0, 1).is_err());
    b.options(|options| options.ageing_time = Duration::ZERO);
    b.send(0, 0, 1);
    assert_eq!(b.entries(), []);
    b.options(|options| options.ageing_time = Duration::from_secs(1));
    b.send(0, 0, 1);
    wait("the entry to age", || b.entries().is_empty());
    b.net.stop();
}

/// Workers are told once of what is held back, and what is learnt in a VLAN that a port loses
/// meanwhile is forgotten in the end.
#[test]
fn what_is_held_back_is_told_once() {
    let mut b = Bridged::new(3);
    b.add_vlans(0, 10..=10, ACCESS);
    b.add_vlans(1, 10..=10, ACCESS);
    b.options(|options| options.vlan_filtering = true);
    let ids: Vec<_> = b.net.ports.iter().map(|port| port.id).collect();
    let before = b.net.engine.published();
    b.net.engine.hold();
    b.net.engine.hold();
    for vlan in 20..40 {
        b.add_vlans(2, vlan..=vlan, TAGGED);
    }
    let owner = ids[0];
    b.net.engine.remove_vlans(owner, 10..=10).unwrap();
    // Workers do not know yet, and learn.
    assert_eq!(b.send(0, 0, 1), [1]);
    assert_eq!(b.entries().len(), 1);
    b.net.engine.release();
    assert_eq!(b.net.engine.published(), before);
    b.net.engine.release();
    assert_eq!(b.net.engine.published(), before + 1);
    assert_eq!(b.entries(), []);
    assert_eq!(b.send(0, 0, 1), [0; 0]);
    // What takes something away is told at once, with all that was held back.
    b.net.engine.hold();
    b.net.engine.remove_vlans(ids[1], 10..=10).unwrap();
    b.net.engine.change(ids[2], |link| link.up = false).unwrap();
    assert_eq!(b.net.engine.published(), before + 2);
    b.net.engine.release();
    assert_eq!(b.net.engine.published(), before + 2);
    b.net.stop();
}
