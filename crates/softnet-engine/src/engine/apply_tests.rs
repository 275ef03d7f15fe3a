//! Specifications that are applied, read back and refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::link_tests::{engine, port};
use super::*;
use crate::forward::{FdbState, MirredDir, MirredMode, PortVlans, VlanFlags};
use crate::testing::FedDevices;
use softnet::tx::TcQueues;
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
    let error = engine.apply(&more, true).unwrap_err();
    assert_eq!(error.to_string(), "port \"c\" cannot be opened");
    assert_eq!(engine.spec().unwrap(), before);
    // A device may come later.
    let missing = engine.apply(&more, false).unwrap();
    let c = engine.link_named("c").unwrap();
    assert_eq!(missing[0].0, c.index);
    assert!(!c.open);
    engine.stop(Duration::ZERO);
}
