//! Connections and flows through a tree and a link.

use std::convert::Infallible;

use softnet::mem::PoolConfig;

use super::super::report::ClassReport;
use super::super::tcp::Algorithm;
use super::super::{Pattern, SimLink, Window};
use super::*;
use crate::qdisc::{FqCodelSpec, QdiscEnv, QdiscSpec};
use crate::tree::Tree;

pub(super) fn flow(sport: u16) -> Flow {
    Flow {
        rate: 1,
        size: 1514..=1514,
        start: Time::ZERO,
        duration: 1,
        pattern: Pattern::Constant,
        seed: 1,
        source: ([10, 0, 0, 1].into(), sport),
        destination: ([10, 0, 0, 2].into(), 80),
        dscp: 0,
        priority: 0,
        mark: 0,
        direction: Direction::Forward,
    }
}

fn connection(sport: u16, algorithm: Algorithm, ecn: bool) -> Connection {
    Connection {
        algorithm,
        ecn,
        rtt: 20_000_000,
        start: Time::ZERO,
        duration: 10_000_000_000,
        bytes: None,
        receive_window: None,
        pages: false,
        flow: flow(sport),
    }
}

/// Flows that share a queue by their hashes do so in each run.
fn tree(spec: QdiscSpec, pool: &Pool) -> Tree {
    let env = QdiscEnv {
        seed: 1,
        ..QdiscEnv::new(pool)
    };
    Tree::build(spec, &env).expect("a tree")
}

fn run(spec: QdiscSpec, connections: &[Connection]) -> (Report, Vec<FlowReport>) {
    let pool = Pool::new(PoolConfig {
        buffers: 8192,
        buffer_size: 2048,
    });
    let pool = pool.expect("a pool");
    let tree = tree(spec, &pool);
    let link = SimLink {
        rate: Some(1_250_000),
        ..SimLink::default()
    };
    let mut world = World::new(Simulator::new(tree, link), &pool);
    for (index, connection) in connections.iter().enumerate() {
        world
            .add_connection(&index.to_string(), connection.clone())
            .expect("valid");
    }
    let (report, flows) = world
        .finish(&mut |_, _| Ok::<_, Infallible>(()))
        .expect("no errors");
    assert!(report.holds());
    assert_eq!(
        report.offered.0,
        flows.iter().map(|flow| flow.sent).sum::<u64>()
    );
    (report, flows)
}

#[test]
fn a_connection_fills_the_link_and_a_long_queue() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let (_, flows) = run(
            QdiscSpec::Pfifo { limit: 100 },
            &[connection(1, algorithm, false)],
        );
        let rate = flows[0].rate as f64;
        assert!((9.0e6..10.05e6).contains(&rate), "{algorithm:?} {rate}");
        // 100 packets of 1514 bytes at 10 Mb/s take 121 ms.
        assert!(
            flows[0].sojourn.p99 > 100_000_000,
            "{algorithm:?} {:?}",
            flows[0].sojourn
        );
        assert!(flows[0].again > 0, "{algorithm:?} loses and sends again");
    }
}

#[test]
fn fair_queues_share_among_unlike_connections() {
    let connections = [
        connection(1, Algorithm::Reno, false),
        connection(2, Algorithm::Cubic, false),
        connection(3, Algorithm::Bbr, false),
    ];
    let spec = QdiscSpec::FqCodel(FqCodelSpec::default());
    let (_, flows) = run(spec, &connections);
    let rates: Vec<u64> = flows.iter().map(|flow| flow.rate).collect();
    assert!(jain(rates.iter().copied()) > 0.95, "{rates:?}");
    assert!(rates.iter().sum::<u64>() > 9_000_000, "{rates:?}");
    assert!(flows[1].sojourn.p50 < 30_000_000, "{:?}", flows[1].sojourn);
}

#[test]
fn marks_spare_losses() {
    let spec = FqCodelSpec::default();
    let (report, flows) = run(
        QdiscSpec::FqCodel(spec),
        &[connection(1, Algorithm::Cubic, true)],
    );
    assert!(flows[0].marked > 0, "{flows:?}");
    assert!(report.drops.is_empty(), "{:?}", report.drops);
    assert!(flows[0].rate > 9_000_000, "{}", flows[0].rate);
}

#[test]
fn the_same_again_is_the_same() {
    let connections = [
        connection(1, Algorithm::Bbr, false),
        connection(2, Algorithm::Cubic, false),
    ];
    let once = run(QdiscSpec::Pfifo { limit: 50 }, &connections);
    let again = run(QdiscSpec::Pfifo { limit: 50 }, &connections);
    assert_eq!(format!("{:?}", once.1), format!("{:?}", again.1));
}

#[test]
fn jain_is_of_rates() {
    assert_eq!(jain([5, 5, 5]), 1.0);
    assert_eq!(jain([9, 0, 0]), 1.0 / 3.0);
    assert_eq!(jain([]), 1.0);
}

fn world(spec: QdiscSpec, rate: u64) -> World {
    let pool = Pool::new(PoolConfig {
        buffers: 4096,
        buffer_size: 2048,
    });
    let pool = pool.expect("a pool");
    let tree = tree(spec, &pool);
    let link = SimLink {
        rate: Some(rate),
        ..SimLink::default()
    };
    World::new(Simulator::new(tree, link), &pool)
}

fn ignore(_: Time, _: &Packet) -> Result<(), Infallible> {
    Ok(())
}

/// A flow that gets through for 100 ms of its 10 s has a hundredth of its rate; a connection whose
/// bytes are all delivered, the rate at which it got them there.
#[test]
fn rates_are_over_the_time_for_which_a_flow_sends() {
    let mut starved = world(QdiscSpec::Prio(crate::PrioSpec::default()), 125_000);
    let low = Flow {
        rate: 125_000,
        duration: 10_000_000_000,
        priority: 2,
        ..flow(1)
    };
    let high = Flow {
        start: Time(100_000_000),
        rate: 250_000,
        priority: 6,
        ..low.clone()
    };
    let high = Flow {
        source: (high.source.0, 2),
        ..high
    };
    starved.add_flow("low", low).expect("valid");
    starved.add_flow("high", high).expect("valid");
    let Ok((_, flows)) = starved.finish(&mut ignore);
    assert!(
        (5_000..25_000).contains(&flows[0].rate),
        "{}",
        flows[0].rate
    );
    let mut done = world(QdiscSpec::Pfifo { limit: 100 }, 1_250_000);
    let some = Connection {
        bytes: Some(1_000_000),
        ..connection(1, Algorithm::Cubic, false)
    };
    done.add_connection("some", some).expect("valid");
    let Ok((_, flows)) = done.finish(&mut ignore);
    assert!(flows[0].rate > 7_000_000, "{}", flows[0].rate);
}

#[test]
fn flows_that_nobody_can_tell_apart_are_refused() {
    let mut world = world(QdiscSpec::Pfifo { limit: 100 }, 125_000);
    let plain = Flow {
        rate: 1000,
        ..flow(1)
    };
    world.add_flow("one", plain.clone()).expect("the first");
    assert_eq!(world.add_flow("other", plain), Err(FlowError::Same));
    // TCP is another protocol.
    let tcp = connection(1, Algorithm::Reno, false);
    world.add_connection("tcp", tcp.clone()).expect("the first");
    assert_eq!(world.add_connection("tcp", tcp), Err(FlowError::Same));
}

fn windows(world: &mut World) -> Vec<Window> {
    let mut all = Vec::new();
    while world.due().is_some() {
        let Ok(()) = world.step(&mut ignore);
        all.extend(std::iter::from_fn(|| world.take_window()));
    }
    world.end_window();
    all.extend(std::iter::from_fn(|| world.take_window()));
    all
}

/// The windows of a flow add up to its whole, and a pause is one of them.
#[test]
fn windows_are_parts_of_the_whole() {
    let mut world = world(QdiscSpec::Pfifo { limit: 5 }, 125_000);
    world.tell_windows(100_000_000);
    let first = Flow {
        rate: 250_000,
        duration: 1_000_000_000,
        ..flow(1)
    };
    let second = Flow {
        start: Time(3_000_000_000),
        source: (first.source.0, 2),
        ..first.clone()
    };
    world.add_flow("first", first).expect("valid");
    world.add_flow("second", second).expect("valid");
    let windows = windows(&mut world);
    let Ok((report, flows)) = world.finish(&mut ignore);
    assert!(windows.windows(2).all(|two| two[0].until == two[1].from));
    let longest = windows
        .iter()
        .map(|w| w.until.since(w.from).as_millis())
        .max();
    assert!(longest > Some(1500), "{longest:?}");
    let of = |name: &str, what: fn(&FlowReport) -> u64| -> u64 {
        let flows = windows.iter().flat_map(|window| &window.flows);
        flows.filter(|flow| flow.name == name).map(what).sum()
    };
    for flow in &flows {
        assert_eq!(of(&flow.name, |flow| flow.delivered), flow.delivered);
        assert_eq!(of(&flow.name, |flow| flow.sent), flow.sent);
        assert_eq!(of(&flow.name, |flow| flow.dropped), flow.dropped);
        assert_eq!(of(&flow.name, |flow| flow.nanos), 1_000_000_000);
        assert!(flow.dropped > 20, "{flow:?}");
    }
    let root = |what: fn(&ClassReport) -> u64| -> u64 {
        windows.iter().map(|window| what(&window.classes[0])).sum()
    };
    let all = &report.classes[0];
    assert_eq!(root(|class| class.stats.packets), all.stats.packets);
    assert_eq!(root(|class| class.sojourn.frames), all.sojourn.frames);
    assert_eq!(
        root(|class| class.drops.iter().map(|d| d.1).sum()),
        all.stats.drops
    );
}

/// A window of 64 KiB in 100 ms: 5.2 Mb/s, whatever the link has.
#[test]
fn a_receive_window_bounds_what_is_in_flight() {
    let mut world = world(QdiscSpec::Pfifo { limit: 1000 }, 12_500_000);
    let small = Connection {
        receive_window: Some(65_536),
        rtt: 100_000_000,
        ..connection(1, Algorithm::Cubic, false)
    };
    world.add_connection("small", small).expect("valid");
    let Ok((_, flows)) = world.finish(&mut ignore);
    assert!((4_500_000..5_600_000).contains(&flows[0].rate), "{flows:?}");
}

/// Without a window of its own a receiver's room grows with its path: at 64 KiB it were 5 Mb/s.
#[test]
fn room_grows_until_a_long_path_is_full() {
    let mut world = world(QdiscSpec::Pfifo { limit: 1000 }, 12_500_000);
    let long = Connection {
        rtt: 100_000_000,
        ..connection(1, Algorithm::Cubic, false)
    };
    world.add_connection("long", long).expect("valid");
    let Ok((_, flows)) = world.finish(&mut ignore);
    assert!(flows[0].rate > 50_000_000, "{flows:?}");
}

/// Pages come and are read; nothing is sent in between, and each connection has its own.
#[test]
fn pages_are_sent_with_pauses() {
    let mut world = world(QdiscSpec::Pfifo { limit: 1000 }, 12_500_000);
    for number in 0..20 {
        let mut user = Connection {
            pages: true,
            duration: 60_000_000_000,
            ..connection(number, Algorithm::Cubic, false)
        };
        user.flow.seed = number.into();
        world.add_connection("user", user).expect("valid");
    }
    let Ok((report, flows)) = world.finish(&mut ignore);
    assert!(report.holds());
    let bytes: u64 = flows.iter().map(|flow| flow.bytes).sum();
    // 20 users, some 28 pages each, of some 50 KiB.
    assert!((12_000_000..60_000_000).contains(&bytes), "{bytes}");
    assert!(flows.iter().all(|flow| flow.bytes > 100_000), "{flows:?}");
    assert!(flows.windows(2).any(|two| two[0].bytes != two[1].bytes));
}

/// Packets of 1000 bytes a millisecond apart: ten, a pause of 90 ms, ten.
#[test]
fn on_and_off_take_turns() {
    let pattern = Pattern::OnOff {
        on: 10_000_000,
        off: 90_000_000,
    };
    let of = |pattern| Flow {
        rate: 1_000_000,
        size: 1000..=1000,
        duration: 200_000_000,
        pattern,
        ..flow(1)
    };
    let times: Vec<u64> = (of(pattern).arrivals().expect("valid"))
        .map(|(time, _)| time.0 / 1_000_000)
        .collect();
    let expected: Vec<u64> = (0..10).chain(100..110).collect();
    assert_eq!(times, expected);
    let never = Pattern::OnOff { on: 0, off: 1 };
    assert_eq!(of(never).arrivals().err(), Some(FlowError::On));
}

/// Also where no rate in whole bytes per second has that distance, and whatever the lengths are.
#[test]
fn packets_come_at_equal_distances_in_time() {
    let of = |nanos| Flow {
        size: 60..=1500,
        duration: 400_000_000_000,
        pattern: Pattern::Every(nanos),
        ..flow(1)
    };
    let minute = 60_000_000_000;
    let times: Vec<u64> = (of(minute).arrivals().expect("valid"))
        .map(|(time, _)| time.0)
        .collect();
    let expected: Vec<u64> = (0..7).map(|n| n * minute).collect();
    assert_eq!(times, expected);
    assert_eq!(of(0).arrivals().err(), Some(FlowError::Apart));
}

/// A ping's round trip is what it is without queues, and what it waits.
#[test]
fn pings_tell_the_round_trip() {
    let mut world = world(QdiscSpec::Pfifo { limit: 10 }, 12_500);
    let ping = Flow {
        rate: 1000,
        size: 100..=100,
        duration: 1_000_000_000,
        pattern: Pattern::Bursts(2),
        ..flow(1)
    };
    world.add_pings("ping", ping, 30_000_000).expect("valid");
    let Ok((_, flows)) = world.finish(&mut ignore);
    // The second of each two waits for the first: 8 ms.
    assert_eq!((flows[0].rtt.frames, flows[0].rtt.max), (10, 38_000_000));
    assert_eq!(flows[0].rtt.mean, 34_000_000);
}
