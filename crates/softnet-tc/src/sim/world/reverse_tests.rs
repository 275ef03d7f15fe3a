//! Two trees: what answers senders waits in one of its own, and may be lost there.

use std::convert::Infallible;

use softnet::stats::DropReason;
use softnet::testing::pool;

use super::super::tcp::Algorithm;
use super::super::{Pattern, SimLink};
use super::*;
use crate::qdisc::{AckFilter, CakeSpec, FqCodelSpec, NetemSpec, QdiscEnv, QdiscSpec};
use crate::tree::Tree;

const SECOND: u64 = 1_000_000_000;
fn fifo() -> QdiscSpec {
    QdiscSpec::Pfifo { limit: 1000 }
}

fn flow(sport: u16, direction: Direction) -> Flow {
    let flow = Flow {
        rate: 1000,
        size: 100..=100,
        start: Time::ZERO,
        duration: SECOND,
        pattern: Pattern::Bursts(2),
        seed: 1,
        source: ([10, 0, 0, 1].into(), sport),
        destination: ([10, 0, 0, 2].into(), 80),
        dscp: 0,
        priority: 0,
        mark: 0,
        direction,
    };
    match direction {
        Direction::Forward => flow,
        Direction::Reverse => Flow {
            source: (flow.destination.0, sport),
            destination: (flow.source.0, 80),
            ..flow
        },
    }
}

fn connection(sport: u16, direction: Direction) -> Connection {
    Connection {
        algorithm: Algorithm::Reno,
        ecn: false,
        rtt: 20_000_000,
        start: Time::ZERO,
        duration: 10 * SECOND,
        bytes: None,
        receive_window: None,
        pages: false,
        flow: flow(sport, direction),
    }
}

/// A tree and the rate of the link behind it, for each direction.
fn world(forward: (QdiscSpec, Option<u64>), reverse: (QdiscSpec, Option<u64>)) -> World {
    let pool = pool(8192);
    let simulator = |(spec, rate): (QdiscSpec, Option<u64>)| {
        let env = QdiscEnv {
            seed: 1,
            ..QdiscEnv::new(&pool)
        };
        let tree = Tree::build(spec, &env).expect("a tree");
        let link = SimLink {
            rate,
            ..SimLink::default()
        };
        Simulator::new(tree, link)
    };
    World::new(simulator(forward), &pool).with_reverse(simulator(reverse))
}

/// Reports on both directions, and on the flows.
fn run(world: World) -> (Report, Report, Vec<FlowReport>) {
    let Ok((mut report, flows)) = world.finish(&mut |_, _| Ok::<_, Infallible>(()));
    let reverse = *report.reverse.take().expect("a tree of its own");
    assert!(report.holds() && reverse.holds(), "{report:?} {reverse:?}");
    (report, reverse, flows)
}

/// A download of 50 Mbit/s beside four uploads, over 1 Mbit/s.
fn asymmetric(reverse: (QdiscSpec, Option<u64>)) -> (Report, Vec<FlowReport>) {
    let mut world = world((fifo(), Some(6_250_000)), reverse);
    let download = Connection {
        receive_window: Some(512 << 10),
        ..connection(1, Direction::Forward)
    };
    world.add_connection("down", download).expect("valid");
    for number in 2..6 {
        let upload = connection(number, Direction::Reverse);
        world.add_connection("up", upload).expect("valid");
    }
    let (_, reverse, flows) = run(world);
    (reverse, flows)
}

#[test]
fn a_thin_way_back_is_enough_if_acknowledgments_are_thinned() {
    let (_, flows) = asymmetric((fifo(), Some(125_000)));
    assert!(flows[0].rate < 10_000_000, "{:?}", flows[0]);
    let cake = CakeSpec {
        bandwidth: Some(125_000),
        ack_filter: AckFilter::Filter,
        ..CakeSpec::default()
    };
    let (reverse, flows) = asymmetric((QdiscSpec::Cake(cake), None));
    assert!(flows[0].rate > 35_000_000, "{:?}", flows[0]);
    let filtered = (reverse.drops.iter()).find(|(reason, _)| *reason == DropReason::AckFilter);
    assert!(filtered.is_some_and(|&(_, n)| n > 100), "{reverse:?}");
    // Acknowledgments that are dropped are no packets of the flow.
    assert_eq!(flows[0].dropped, 0);
}

#[test]
fn an_upload_delays_acknowledgments_unless_queues_are_fair() {
    let rtt = |reverse: QdiscSpec| {
        let mut world = world((fifo(), Some(1_250_000)), (reverse, Some(125_000)));
        let download = Connection {
            receive_window: Some(64 << 10),
            ..connection(1, Direction::Forward)
        };
        world.add_connection("down", download).expect("valid");
        let upload = connection(2, Direction::Reverse);
        world.add_connection("up", upload).expect("valid");
        let (_, _, flows) = run(world);
        flows[0].rtt.p90
    };
    let (plain, fair) = (rtt(fifo()), rtt(QdiscSpec::FqCodel(FqCodelSpec::default())));
    assert!(plain > SECOND / 2, "{plain}");
    assert!(fair < 200_000_000, "{fair}");
}

fn lossy(loss: u32) -> QdiscSpec {
    QdiscSpec::Netem(NetemSpec {
        loss,
        ..NetemSpec::default()
    })
}

fn some_bytes(bytes: u64, loss: u32) -> (Report, FlowReport) {
    let mut world = world((fifo(), Some(1_250_000)), (lossy(loss), None));
    let some = Connection {
        bytes: Some(bytes),
        receive_window: Some(64 << 10),
        ..connection(1, Direction::Forward)
    };
    world.add_connection("some", some).expect("valid");
    let (_, reverse, mut flows) = run(world);
    (reverse, flows.remove(0))
}

#[test]
fn lost_acknowledgments_are_made_good_by_later_ones() {
    let (reverse, flow) = some_bytes(2_000_000, u32::MAX / 10 * 3);
    let lost: u64 = reverse.drops.iter().map(|&(_, n)| n).sum();
    assert!(lost > 100, "{reverse:?}");
    assert!(flow.rate > 7_000_000, "{flow:?}");
    assert!(flow.again < 30 && flow.dropped == 0, "{flow:?}");
}

/// Without any answer a sender gives up, and the simulation comes to its end.
#[test]
fn a_sender_that_nobody_answers_gives_up() {
    let (reverse, flow) = some_bytes(100_000, u32::MAX);
    assert_eq!(reverse.root().packets, 0);
    assert!((1..100).contains(&flow.again), "{flow:?}");
}

/// The second of each two replies or pings waits 8 ms for the first, where the link is thin.
#[test]
fn replies_to_pings_wait() {
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut world = world((fifo(), None), (fifo(), Some(12_500)));
        let ping = flow(1, direction);
        world.add_pings("ping", ping, 30_000_000).expect("valid");
        let (report, reverse, flows) = run(world);
        assert_eq!((flows[0].rtt.frames, flows[0].rtt.max), (10, 38_000_000));
        assert_eq!(flows[0].rtt.mean, 34_000_000);
        let waited = match direction {
            Direction::Forward => 0,
            Direction::Reverse => 8_000_000,
        };
        assert_eq!(flows[0].sojourn.max, waited);
        assert_eq!((report.root().packets, reverse.root().packets), (10, 10));
    }
    // A reply has room for a time.
    let mut world = world((fifo(), None), (fifo(), None));
    let short = Flow {
        rate: 420,
        size: 42..=42,
        ..flow(1, Direction::Forward)
    };
    world.add_pings("ping", short, 30_000_000).expect("valid");
    let (report, reverse, flows) = run(world);
    assert_eq!((report.root().bytes, reverse.root().bytes), (420, 500));
    assert_eq!((flows[0].rtt.frames, flows[0].rtt.max), (10, 30_000_000));
}

#[test]
fn the_same_again_is_the_same() {
    let once = || format!("{:?}", asymmetric((lossy(u32::MAX / 50), Some(125_000))));
    assert_eq!(once(), once());
}

#[test]
fn a_direction_without_a_tree_is_refused() {
    let pool = pool(256);
    let tree = Tree::build(fifo(), &QdiscEnv::new(&pool)).expect("a tree");
    let mut world = World::new(Simulator::new(tree, SimLink::default()), &pool);
    let back = flow(1, Direction::Reverse);
    assert_eq!(world.add_flow("back", back), Err(FlowError::Direction));
}
