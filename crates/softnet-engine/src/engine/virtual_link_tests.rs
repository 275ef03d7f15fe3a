//! Links without a device, by whole engines.

use std::time::Duration;

use super::link_tests::{engine, port};
use super::*;
use crate::forward::{MirredDir, MirredMode};
use crate::testing::{FedDevices, wait};
use softnet::mem::{Packet, Pool};
use softnet::stats::DropReason;
use softnet::testing::frame;

fn of(name: &str, device: &'static str, master: Option<&str>) -> PortSpec<&'static str> {
    let mut port = port(name, master);
    port.options.device = device;
    port
}

fn tagged(pool: &Pool, from: u8, to: u8, vlan: u16) -> Packet {
    let mut packet = frame(pool, from, to, 60, u32::from(vlan));
    assert!(packet.push_front(4).is_some());
    let data = packet.data_mut();
    data.copy_within(4..16, 0);
    data[12..14].copy_from_slice(&[0x81, 0x00]);
    data[14..16].copy_from_slice(&vlan.to_be_bytes());
    packet
}

fn feed(devices: &FedDevices, name: &str, packet: Packet) {
    devices.last(name).0.feed().packets.push_back(packet);
}

fn conserved(engine: Engine<FedDevices>) -> EngineStats {
    let stats = engine.stop(Duration::from_secs(5));
    let conservation = stats.conservation();
    assert!(conservation.holds(), "{conservation:?}");
    stats
}

/// Frames of the VLAN arrive there without the tag, and leave with it; others pass the parent's
/// own bridge.
#[test]
fn a_vlan_link_takes_its_frames_and_tags_what_it_sends() {
    let (engine, devices, pool) = engine();
    engine.add_bridge(Settings::new("br5")).unwrap();
    engine.add_port(of("a", "tun", None)).unwrap();
    let ports = [
        of("a.5", "vlan.a.5", Some("br5")),
        of("b", "tun", Some("br5")),
    ];
    engine.add_ports(ports.to_vec()).unwrap();
    let (b, a) = (devices.last("b").1, devices.last("a").1);
    feed(&devices, "a", tagged(&pool, 1, 2, 5));
    feed(&devices, "a", tagged(&pool, 1, 2, 6));
    wait("the frame of VLAN 5", || b.sent().len() == 1);
    assert_eq!(*b.sent(), [(5, 60)], "without the tag");
    feed(&devices, "b", frame(&pool, 2, 1, 60, 9));
    wait("the answer", || a.sent().len() == 1);
    assert_eq!(*a.sent(), [(9, 64)], "with the tag");
    let a5 = engine.link_named("a.5").unwrap().index;
    wait("its counters", || {
        let stats = engine.port_stats(a5).unwrap().device;
        (stats.rx_packets, stats.rx_bytes, stats.tx_packets) == (1, 60, 1)
    });
    // What is not received when the engine stops is not dropped, either.
    let dropped = || engine.stats().conservation().dropped;
    wait("the drop", || dropped() == 1);
    let stats = conserved(engine);
    assert_eq!(stats.drops(), [(DropReason::NoForward, 1)], "VLAN 6");
}

#[test]
fn vlans_go_with_their_parents_and_follow_names() {
    let (engine, _, _) = engine();
    engine.add_port(of("a", "tun", None)).unwrap();
    engine.add_port(of("a.5", "vlan.a.5", None)).unwrap();
    engine.add_port(of("a.5.6", "vlan.a.5", None)).unwrap_err();
    engine.add_port(of("x.6", "vlan.x.6", None)).unwrap_err();
    engine.add_port(of("a.6", "vlan.a.6", None)).unwrap();
    let lo = engine.add_port(of("lo", "lo", None)).unwrap();
    assert!(matches!(engine.delete(lo), Err(EngineError::Stays(_))));
    let refused = engine.add_port(of("lo.6", "vlan.lo.6", None));
    assert!(matches!(refused, Err(EngineError::NoVlans)));
    let a = engine.link_named("a").unwrap().index;
    engine.delete(a).unwrap();
    let links = engine.links();
    let left: Vec<_> = links.values().map(|l| l.settings.name.as_str()).collect();
    assert_eq!(left, ["lo"]);
}

/// A packet that is redirected to an `ifb` passes its tree, and leaves where it was to leave; a
/// copy, and what is sent there by a bridge, ends there.
#[test]
fn an_ifb_gives_back_what_was_redirected() {
    let (engine, devices, pool) = engine();
    engine.add_bridge(Settings::new("br")).unwrap();
    let ports = [
        of("a", "tun", Some("br")),
        of("b", "tun", Some("br")),
        of("ifb0", "ifb", None),
    ];
    let ports = engine.add_ports(ports.to_vec()).unwrap();
    let action = |mode| ActionSpec {
        mode,
        dir: MirredDir::Egress,
        to: ports[2],
    };
    let actions = [action(MirredMode::Mirror), action(MirredMode::Redirect)];
    engine.set_actions(ports[1], &actions).unwrap();
    let (b, ifb) = (devices.last("b").1, devices.last("ifb0").1);
    for n in 0..10 {
        feed(&devices, "a", frame(&pool, 1, 2, 60, n));
    }
    wait("all", || b.sent().len() == 10);
    assert_eq!(b.marks(), (0..10).collect::<Vec<_>>());
    assert_eq!(ifb.sent().len(), 20);
    let stats = conserved(engine);
    assert_eq!(stats.copied, 10);
    assert_eq!(stats.drops(), [(DropReason::NoForward, 10)]);
}

/// An `ifb` that redirects to itself, and two that redirect to each other.
#[test]
fn loops_of_ifbs_end() {
    let (engine, devices, pool) = engine();
    engine.add_bridge(Settings::new("br")).unwrap();
    let ports = [
        of("a", "tun", Some("br")),
        of("b", "tun", Some("br")),
        of("ifb0", "ifb", None),
        of("ifb1", "ifb", None),
    ];
    let ports = engine.add_ports(ports.to_vec()).unwrap();
    let to = |index| ActionSpec {
        mode: MirredMode::Redirect,
        dir: MirredDir::Egress,
        to: index,
    };
    engine.set_actions(ports[1], &[to(ports[2])]).unwrap();
    let ring = |first, second| {
        engine.set_actions(ports[2], &[to(first)]).unwrap();
        engine.set_actions(ports[3], &[to(second)]).unwrap();
    };
    for (first, second) in [
        (ports[2], ports[2]),
        (ports[3], ports[2]),
        (ports[1], ports[1]),
    ] {
        ring(first, second);
        for n in 0..10 {
            feed(&devices, "a", frame(&pool, 1, 2, 60, n));
        }
    }
    let dropped = || engine.stats().conservation().dropped;
    wait("all to end", || dropped() == 30);
    conserved(engine);
}
