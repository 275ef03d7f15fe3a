//! Frames that are flooded to many ports: how much of that a turn does, and that nothing is lost
//! or overtaken by it.

use std::time::Duration;

use super::*;
use crate::forward::{BridgePortOptions, PortSecurity, StormLimits};
use crate::rx::{Rfs, SteeringSpec};
use crate::testing::Net;
use softnet::mem::Packet;
use softnet::testing::frame;
use softnet::time::{Clock, Time};

/// So many that a turn floods less than a frame.
const PORTS: usize = 300;
/// A station that everyone knows, behind the last port.
const KNOWN: u8 = 250;
/// Frames that one poll receives.
const FLOOD: u32 = 64;

/// A switch whose workers' turns cost nothing by its clock, so that ports take turns.
fn net(workers: usize) -> Net {
    let clock = Clock::virtual_at(Time(1));
    let net = Net::at(clock, workers, PORTS, 4096, EngineConfig::default());
    net.receive(PORTS - 1, [frame(&net.pool, 0, KNOWN, 60, 0)]);
    let seen = || (0..PORTS - 1).all(|port| net.marks(port) == [0]);
    net.wait("the known station", seen);
    net
}

fn floods(net: &Net) -> Vec<Packet> {
    let flood = |n| frame(&net.pool, 0, 1, 60, n);
    (1..=FLOOD).map(flood).collect()
}

#[test]
fn what_others_send_does_not_wait_for_a_whole_flood() {
    let net = net(1);
    let stalled = net.ports[0].queue.stall();
    net.receive(1, floods(&net));
    // A port's own frames stay behind those before.
    net.receive(1, [frame(&net.pool, KNOWN, 1, 60, 1000)]);
    net.receive(2, [frame(&net.pool, KNOWN, 2, 60, 2000)]);
    drop(stalled);
    net.settle();
    let marks = net.marks(PORTS - 1);
    let place = |mark| marks.iter().position(|&m| m == mark).unwrap();
    assert!(place(2000) <= 2, "{marks:?}");
    assert_eq!(place(1000), marks.len() - 1);
    let (_, floods): (Vec<u32>, Vec<u32>) = marks.iter().partition(|&&mark| mark >= 1000);
    assert!(floods.iter().copied().eq(1..=FLOOD), "{floods:?}");
    assert_eq!(net.stop().drops(), []);
}

/// A turn has copies for half of them: two lists, and the frame between that had to wait.
#[test]
fn a_port_gets_what_a_turn_floods_in_one_list() {
    let clock = Clock::virtual_at(Time(1));
    let net = Net::at(clock, 1, 3, 1024, EngineConfig::default());
    let stalled = net.ports[0].queue.stall();
    net.receive(1, floods(&net));
    drop(stalled);
    net.settle();
    for port in [0, 2] {
        assert!(net.marks(port).into_iter().eq(1..=FLOOD), "{port}");
        let calls = net.ports[port].script.calls();
        assert!(calls.len() <= 4, "{calls:?}");
    }
    let stats = net.stop();
    assert_eq!(stats.drops(), []);
    let counts = stats.conservation();
    let copies = u64::from(FLOOD);
    assert_eq!((counts.copied, counts.tx), (copies, 2 * copies));
}

/// Has the bridge forward by rules.
fn rule(net: &Net) {
    let options = BridgePortOptions {
        hairpin: true,
        ..BridgePortOptions::default()
    };
    let set = net.engine.set_bridge_port(net.ports[PORTS - 2].id, options);
    set.unwrap();
}

#[test]
fn what_others_send_does_not_wait_for_all_who_flood() {
    unicast_beside_flooders(&net(1), 2);
}

#[test]
fn nor_does_it_by_rules() {
    let net = net(1);
    rule(&net);
    // A turn is one frame there.
    unicast_beside_flooders(&net, 200 / 8 + 2);
}

fn unicast_beside_flooders(net: &Net, overtaken: usize) {
    let pool = &net.pool;
    let stalled = net.ports[0].queue.stall();
    let flooders = 1..=100;
    for port in flooders.clone() {
        let flood = |n| frame(pool, 0, port as u8, 60, 10 * port as u32 + n);
        net.receive(port, (0..2).map(flood));
    }
    let known = |n| frame(pool, KNOWN, 200, 60, n);
    net.receive(200, (2000..2200).map(known));
    drop(stalled);
    net.settle();
    let marks = net.marks(PORTS - 1);
    let (known, floods): (Vec<u32>, Vec<u32>) = marks.iter().partition(|&&mark| mark >= 2000);
    assert!(known.iter().copied().eq(2000..2200));
    let last = marks.iter().position(|&mark| mark == 2199).unwrap();
    assert!(last < 200 + overtaken, "{marks:?}");
    // They take turns; the first has had one before the others had to wait.
    let mut sources: Vec<_> = floods[..100].iter().map(|mark| mark / 10).collect();
    sources.sort_unstable();
    sources.dedup();
    assert!(sources.len() >= 99, "{floods:?}");
    assert_eq!(floods.len(), 200);
    assert_eq!(net.engine.stats().drops(), []);
}

#[test]
fn a_frame_that_waits_counts_once_as_a_storm() {
    let net = net(1);
    rule(&net);
    let security = PortSecurity {
        storm: StormLimits {
            unknown_unicast: Some(FLOOD),
            ..StormLimits::default()
        },
        ..PortSecurity::default()
    };
    let set = |options: &mut PortOptions<()>| options.security = security.clone();
    net.engine.set_options(net.ports[1].id, set).unwrap();
    net.receive(1, floods(&net));
    net.settle();
    assert!(net.marks(0).into_iter().skip(1).eq(1..=FLOOD));
    assert_eq!(net.stop().drops(), []);
}

#[test]
fn each_port_gets_a_flood_once_while_others_come_and_go() {
    let net = net(1);
    let stalled = net.ports[0].queue.stall();
    for port in [1, 2] {
        let flood = |n| frame(&net.pool, 0, port as u8, 60, 1000 * port as u32 + n);
        net.receive(port, (0..FLOOD).map(flood));
    }
    drop(stalled);
    for port in (100..PORTS - 10).step_by(10) {
        net.engine.delete(net.ports[port].id).unwrap();
        net.engine
            .set_master(net.ports[port + 1].id, None)
            .and_then(|()| {
                net.engine
                    .set_master(net.ports[port + 1].id, Some(net.bridge))
            })
            .unwrap();
    }
    net.settle();
    let marks = |port| {
        let marks = net.marks(port).into_iter();
        let (one, other): (Vec<_>, Vec<_>) = marks
            .filter(|&mark| mark > 0)
            .partition(|&mark| mark < 2000);
        [one, other]
    };
    for port in (3..PORTS - 1).filter(|port| *port < 100 || port % 10 > 1) {
        let [one, other] = marks(port);
        assert!(one.into_iter().eq((1000..).take(FLOOD as usize)), "{port}");
        assert!(
            other.into_iter().eq((2000..).take(FLOOD as usize)),
            "{port}"
        );
    }
    for port in (101..PORTS - 10).step_by(10) {
        // It was away for a while.
        assert!(
            marks(port)
                .iter()
                .all(|marks| marks.is_sorted_by(|a, b| a < b)),
            "{port}"
        );
    }
    net.stop();
}

#[test]
fn flooded_frames_of_a_backlog_stay_in_order() {
    let net = net(2);
    for port in [1, 2] {
        let steering = SteeringSpec {
            rps: vec![0],
            rfs: Rfs::Off,
        };
        let set = |options: &mut PortOptions<()>| options.steering = steering.clone();
        net.engine.set_options(net.ports[port].id, set).unwrap();
    }
    for round in 0..4 {
        net.receive(1, floods(&net));
        let known = |n: u32| frame(&net.pool, KNOWN, 2, 60, 1000 + n);
        net.receive(2, (round * 64..).take(64).map(known));
    }
    net.settle();
    let marks = net.marks(PORTS - 1);
    let known = marks.iter().copied().filter(|&mark| mark >= 1000);
    assert!(known.eq(1000..1256), "{marks:?}");
    let floods = marks.iter().copied().filter(|&mark| mark < 1000);
    assert!(floods.eq((0..4).flat_map(|_| 1..=FLOOD)), "{marks:?}");
    assert_eq!(net.stop().drops(), []);
}

#[test]
fn the_rest_of_a_flood_is_dropped_with_its_port() {
    let net = net(1);
    let stalled = net.ports[0].queue.stall();
    net.receive(1, floods(&net));
    std::thread::scope(|scope| {
        scope.spawn(|| net.engine.delete(net.ports[1].id).unwrap());
        std::thread::sleep(Duration::from_millis(1));
        drop(stalled);
    });
    // Whether it was received or not is up to the worker: nothing of it is unaccounted for.
    net.stop();
}
