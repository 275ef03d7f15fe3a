//! Specifications that are applied, read back and refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::link_tests::{engine, port};
use super::*;
use crate::forward::{FdbState, MirredDir, MirredMode, PortVlans, VlanFlags};
use crate::testing::{FedDevices, FedQueue, wait};
use softnet::testing::{ScriptedRing, frame};
use softnet::tx::{Features, TcQueues};
use softnet::wire::EthernetAddress;
use softnet_tc::rate::{GroupSpec, RateSpec};
use softnet_tc::{PrioSpec, QdiscSpec, TreeSpec};

fn vlans(list: &[u16], pvid: u16) -> Option<PortVlans> {
    let mut vlans = PortVlans::default();
    for &vlan in list {
        let flags = VlanFlags {
            pvid: vlan == pvid,
            untagged: vlan == pvid,
        };
        vlans.add(vlan, flags);
    }
    Some(vlans)
}

fn station(last: u8, vlan: Option<u16>) -> FdbSpec {
    FdbSpec {
        address: EthernetAddress([2, 0, 0, 0, 0, last]),
        vlan,
        state: FdbState::Static,
        sticky: false,
    }
}

/// Each field differs from its default somewhere.
fn spec() -> Spec<&'static str> {
    let address = |last| Some(EthernetAddress([2, 0, 0, 0, 1, last]));
    let mut a = port("a", Some("br0"));
    a.settings.address = address(1);
    (a.settings.mtu, a.settings.tx_queue_len, a.settings.group) = (1400, 9, 7);
    (a.settings.alias, a.settings.up) = ("left".into(), false);
    (a.options.queues, a.options.parallel) = (2, true);
    a.options.map.classes = [0, 1].map(|offset| TcQueues { count: 1, offset }).to_vec();
    a.options.map.prio_tc_map[4] = 1;
    a.options.steering.rps = vec![0];
    a.options.rate_group = Some("tenant".into());
    a.options.security.max_macs = Some(3);
    let prio = QdiscSpec::Prio(PrioSpec::default());
    a.qdisc = QdiscSpec::Tree(TreeSpec::from(prio));
    a.actions = vec![ActionSpec {
        mode: MirredMode::Mirror,
        dir: MirredDir::Egress,
        to: "b".into(),
    }];
    a.member.options.learning = false;
    a.member.vlans = vlans(&[5, 20, 21], 20);
    a.member.stations = vec![station(1, None), station(2, Some(20))];
    let mut b = port("b", Some("br0"));
    b.settings.address = address(2);
    b.options.device = "socket";
    b.member.stations = vec![station(3, None)];
    let bridge = BridgeSpec {
        settings: Settings {
            address: address(3),
            ..Settings::new("br0")
        },
        options: BridgeOptions {
            ageing_time: Duration::from_secs(7),
            vlan_filtering: true,
            default_pvid: Some(5),
            fdb_max_learned: 20_000,
            ..BridgeOptions::default()
        },
        vlans: vlans(&[9], 9),
    };
    let rate = RateSpec {
        rate: 1_000_000,
        burst: 10_000,
        unit: 1518,
    };
    let group = GroupSpec {
        bytes: Some(rate),
        packets: None,
    };
    Spec {
        blocks: Default::default(),
        ports: vec![a, b],
        bridges: vec![bridge],
        rate_groups: [("tenant".to_owned(), group)].into(),
    }
}

fn applied(engine: &Engine<FedDevices>, spec: &Spec<&'static str>) {
    assert!(engine.apply(spec, true).unwrap().is_empty());
    assert_eq!(engine.spec().unwrap(), *spec);
}

/// Bridges are numbered, and so listed, before new ports: what is read is what was applied.
#[test]
fn a_specification_is_read_back_and_changes_nothing_twice() {
    let (engine, devices, _) = engine();
    let all = spec();
    applied(&engine, &all);
    let opened = devices.opened.lock().unwrap().len();
    engine.take_changes();
    applied(&engine, &all);
    assert_eq!(engine.take_changes(), (Vec::new(), false));
    assert_eq!(devices.opened.lock().unwrap().len(), opened);
    // Everything becomes the default, and back.
    let mut plain = all.clone();
    for spec in &mut plain.ports {
        let address = spec.settings.address;
        *spec = port(&spec.settings.name, Some("br0"));
        spec.settings.address = address;
    }
    plain.ports[1].options.device = "socket";
    plain.rate_groups.clear();
    (plain.bridges[0].options, plain.bridges[0].vlans) = (BridgeOptions::default(), None);
    applied(&engine, &plain);
    applied(&engine, &all);
    applied(&engine, &Spec::default());
    engine.stop(Duration::ZERO);
}

/// A station that two ports exchange, or that changes its state, is where it is said to be.
#[test]
fn stations_move_between_ports() {
    let (engine, ..) = engine();
    let mut spec = spec();
    applied(&engine, &spec);
    let of_b = std::mem::take(&mut spec.ports[1].member.stations);
    let of_a = std::mem::replace(&mut spec.ports[0].member.stations, of_b);
    spec.ports[1].member.stations = of_a[..1].to_vec();
    applied(&engine, &spec);
    spec.ports[0].member.stations[0].state = FdbState::Permanent;
    applied(&engine, &spec);
    engine.stop(Duration::ZERO);
}

#[test]
fn what_is_refused_leaves_all_as_it_was() {
    let (engine, devices, _) = engine();
    let before = spec();
    applied(&engine, &before);
    let mut wrong = before.clone();
    wrong.ports[0].master = None;
    wrong.ports[0].member = MemberSpec::default();
    wrong.ports[1].settings.name = "renamed".into();
    wrong.ports[0].actions.clear();
    wrong.ports[1].options.rate_group = Some("nobody".into());
    let error = engine.apply(&wrong, true).unwrap_err();
    assert_eq!(error.to_string(), "port \"renamed\" cannot be changed");
    assert_eq!((error.port, error.lost.is_none()), (Some(1), true));
    assert_eq!(engine.spec().unwrap(), before);
    devices.refuses.store(true, Ordering::SeqCst);
    let mut more = before.clone();
    more.ports.push(port("c", Some("br0")));
    more.ports.push(port("d", None));
    let error = engine.apply(&more, true).unwrap_err();
    assert_eq!(error.to_string(), "port \"c\" cannot be opened");
    let next = error.next.unwrap();
    assert_eq!(next.to_string(), "port \"d\" cannot be opened");
    assert!(next.next.is_none());
    assert_eq!(engine.spec().unwrap(), before);
    // A device may come later.
    let missing = engine.apply(&more, false).unwrap();
    let c = engine.link_named("c").unwrap();
    assert_eq!(missing[0].0, c.index);
    assert!(!c.open);
    engine.stop(Duration::ZERO);
}

/// Packets that a port's new device has received are never forwarded by the port's old bridge: the
/// stations of two networks are kept apart while a port changes sides.
#[test]
fn a_new_device_is_never_in_its_port_s_old_bridge() {
    let (engine, devices, pool) = engine();
    let bridge = |name| BridgeSpec {
        settings: Settings::new(name),
        ..BridgeSpec::default()
    };
    let mut spec = Spec {
        ports: vec![port("a", Some("br0")), port("b", Some("br0"))],
        bridges: vec![bridge("br0"), bridge("br1")],
        ..Spec::default()
    };
    engine.apply(&spec, true).unwrap();
    let (_, script) = devices.last("b");
    *devices.waiting.lock().unwrap() = [frame(&pool, 0xFF, 1, 60, 7)].into_iter().collect();
    spec.ports[0].options.device = "dummy";
    spec.ports[0].master = Some("br1".into());
    engine.apply(&spec, true).unwrap();
    let (queue, _) = devices.last("a");
    wait("reception", || queue.feed().packets.is_empty());
    engine.sync();
    assert_eq!(script.marks(), []);
    engine.stop(Duration::ZERO);
}

/// VLANs that are refused with the rest of a specification were never in force: workers are told
/// of the state that stays, once.
#[test]
fn what_is_refused_and_undone_is_not_told_to_workers() {
    let (engine, ..) = engine();
    let before = spec();
    applied(&engine, &before);
    let mut wrong = before.clone();
    wrong.ports[0].member.vlans = vlans(&[7, 8], 8);
    wrong.ports[0].member.stations.clear();
    wrong.ports[1].options.rate_group = Some("nobody".into());
    let published = engine.published();
    engine.apply(&wrong, true).unwrap_err();
    assert_eq!(engine.published() - published, 1);
    assert_eq!(engine.spec().unwrap(), before);
    engine.stop(Duration::ZERO);
}

/// A device that has other queues than were asked for is not opened again and again.
#[test]
fn the_queues_that_were_asked_for_are_kept() {
    let (engine, devices, _) = engine();
    let (rings, _) = ScriptedRing::many(2);
    let mut asked = port("a", None);
    asked.options.queues = 4;
    let device = Opened {
        rx: vec![FedQueue::default()],
        tx: rings,
        features: Features::default(),
    };
    let index = engine.add_port_with(asked, device).unwrap();
    let spec = engine.spec().unwrap();
    assert_eq!(spec.ports[0].options.queues, 4);
    assert_eq!(engine.link(index).unwrap().queues(), 2);
    applied(&engine, &spec);
    assert!(devices.opened.lock().unwrap().is_empty());
    // With as many as asked for.
    engine.reopen_device(index).unwrap();
    assert_eq!(engine.link(index).unwrap().queues(), 4);
    assert_eq!(engine.spec().unwrap(), spec);
    engine.stop(Duration::ZERO);
}
