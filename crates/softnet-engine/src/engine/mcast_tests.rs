//! Groups through a whole engine: copies that hosts cost, members and routers as they are shown,
//! and conservation with frames that the bridge itself sends.

use std::time::Duration;

use super::*;
use crate::forward::multicast_frames::{data, host_begins, igmp, join, leave, query};
use crate::forward::{Group, VlanFlags};
use crate::testing::{Net, wait};
use softnet::testing::packet;

const GROUP: [u8; 4] = [239, 1, 1, 1];

/// A bridge, which asks if `querier`; its hosts are taken to have answered.
fn net(ports: usize, querier: bool) -> Net {
    let net = Net::with(1, ports, 8192, EngineConfig::default());
    let mut options = net.engine.bridge(net.bridge).unwrap().options;
    options.multicast.querier = querier;
    options.multicast.query_response_interval = Duration::ZERO;
    // No test takes so long: what is counted as copied is then what hosts cost.
    options.multicast.startup_query_interval = Duration::from_secs(3600);
    net.engine.set_bridge(net.bridge, options).unwrap();
    if querier {
        let asked = 2 * ports as u64;
        wait("queries", || net.engine.stats().copied == asked);
    }
    net.settle();
    net
}

fn send(net: &Net, port: usize, bytes: &[u8]) {
    let mut packet = packet(&net.pool);
    assert!(packet.append(bytes));
    net.receive(port, [packet]);
    net.settle();
}

/// Copies that are made while all hosts of a bridge come up.
fn copies(ports: usize, querier: bool) -> u64 {
    let net = net(ports, querier);
    let before = net.engine.stats().copied;
    for host in 0..ports {
        for frame in host_begins(host as u16 + 1) {
            send(&net, host, &frame);
        }
    }
    let copies = net.engine.stats().copied - before;
    net.stop();
    copies
}

/// Hosts that come up cost copies in the square of their number, unless somebody asks: then none,
/// as nobody else is a member.
#[test]
fn hosts_that_come_up_cost_no_copies() {
    const PORTS: usize = 40;
    let others = PORTS as u64 - 1;
    assert_eq!(copies(PORTS, false), 3 * PORTS as u64 * (others - 1));
    assert_eq!(copies(PORTS, true), 0);
}

#[test]
fn members_are_shown_and_told_of() {
    let net = net(4, true);
    let engine = &net.engine;
    engine.take_changes();
    send(&net, 1, &join(1, GROUP));
    send(&net, 3, &query(3));
    let (entries, routers) = engine.mdb(net.bridge).unwrap();
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    assert_eq!(
        (entry.group, entry.port),
        (Group::Ip(GROUP.into()), net.ports[1].id)
    );
    assert!(!entry.permanent && entry.left > Duration::from_secs(200));
    assert_eq!(routers.len(), 1);
    assert!(routers[0].port == net.ports[3].id && routers[0].ipv4.is_some());
    assert!(engine.has_changes());
    let told = |engine: &Engine<_>| {
        let changes = engine.take_changes().0.into_iter();
        let told = changes.map(|change| match change {
            Change::Mdb { gone, .. } => ("member", gone),
            Change::McastRouter { gone, .. } => ("router", gone),
            _ => ("other", false),
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(told(engine), [("member", false), ("router", false)]);
    assert!(!engine.has_changes());
    engine.set_master(net.ports[1].id, None).unwrap();
    assert!(engine.mdb(net.bridge).unwrap().0.is_empty());
    net.stop();
}

#[test]
fn members_by_an_administrator() {
    let net = net(3, true);
    let engine = &net.engine;
    let [p1, p2] = [net.ports[1].id, net.ports[2].id];
    let spec = MdbSpec {
        group: Group::Ip(GROUP.into()),
        vlan: None,
        source: None,
        permanent: true,
    };
    engine.add_mdb(p1, spec).unwrap();
    let groups = |port| engine.bridge_port(port).unwrap().groups;
    assert_eq!([groups(p1), groups(p2)], [1, 0]);
    let again = engine.add_mdb(p1, spec);
    assert!(matches!(again, Err(EngineError::MdbEntryExists(_))));
    let missing = engine.remove_mdb(p2, spec);
    assert!(matches!(missing, Err(EngineError::NoMdbEntry(_))));
    let local = MdbSpec {
        group: Group::Ip([224, 0, 0, 7].into()),
        ..spec
    };
    assert!(matches!(
        engine.add_mdb(p1, local),
        Err(EngineError::BadGroup(_))
    ));
    let vlan = Some(9);
    let elsewhere = engine.add_mdb(p1, MdbSpec { vlan, ..spec });
    assert!(matches!(
        elsewhere,
        Err(EngineError::NoVlan { vlan: 9, .. })
    ));
    let sent = |port: usize| net.ports[port].script.marks().len();
    let before = [sent(1), sent(2)];
    send(&net, 0, &data(9, GROUP));
    assert_eq!([sent(1), sent(2)], [before[0] + 1, before[1]]);
    engine.remove_mdb(p1, spec).unwrap();
    assert_eq!(groups(p1), 0);
    send(&net, 0, &data(9, GROUP));
    assert_eq!([sent(1), sent(2)], [before[0] + 1, before[1]]);
    net.stop();
}

/// By the rules of VLANs: a member in one VLAN is none in another, and the copy has its tag.
#[test]
fn members_in_vlans() {
    let net = net(4, true);
    let engine = &net.engine;
    let mut options = engine.bridge(net.bridge).unwrap().options;
    options.vlan_filtering = true;
    engine.set_bridge(net.bridge, options).unwrap();
    let tagged = VlanFlags::default();
    for port in &net.ports[1..] {
        engine.add_vlans(port.id, 7..=7, tagged).unwrap();
    }
    let in_vlan = |mut frame: Vec<u8>| {
        frame.splice(12..12, [0x81, 0, 0, 7]);
        frame
    };
    send(&net, 1, &in_vlan(join(1, GROUP)));
    send(&net, 2, &join(2, GROUP));
    let sent = || [0, 1, 2, 3].map(|port| net.ports[port].script.marks().len());
    let before = sent();
    send(&net, 3, &in_vlan(data(9, GROUP)));
    let after = sent();
    assert_eq!(after, [before[0], before[1] + 1, before[2], before[3]]);
    send(&net, 0, &data(9, GROUP));
    assert_eq!(sent(), [after[0], after[1], after[2] + 1, after[3]]);
    send(&net, 1, &in_vlan(leave(1, GROUP)));
    send(&net, 2, &igmp(2, GROUP, &[0x77, 0, 0, 0, 239, 1, 1, 1]));
    net.stop();
}
