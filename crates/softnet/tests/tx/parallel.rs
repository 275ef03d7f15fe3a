//! A tree with an instance at each transmit queue.

use super::*;
use softnet_tc::{
    ClassSpec, DeviceTree, FilterKind, FilterOp, FilterSpec, FqCodelSpec, Handle, HtbClassSpec,
    HtbSpec, QdiscEnv, TreeSpec,
};

const QUEUES: usize = 2;

fn handle(text: &str) -> Handle {
    text.parse().unwrap()
}

/// A class that all of a test passes at once.
fn class(rate: u64) -> ClassSpec {
    ClassSpec::Htb(HtbClassSpec {
        burst: 1 << 30,
        cburst: 1 << 30,
        ..HtbClassSpec::new(rate)
    })
}

/// `htb` with a class for all.
fn htb() -> TreeSpec {
    let mut spec = TreeSpec::new();
    let htb = HtbSpec {
        default: 1,
        ..HtbSpec::default()
    };
    let htb = QdiscSpec::Htb(htb);
    spec.add(Handle::ROOT, handle("1:"), htb).unwrap();
    let class = class(100_000_000_000);
    spec.add_class(handle("1:"), handle("1:1"), class).unwrap();
    spec
}

fn parallel(spec: TreeSpec) -> (Bench, DeviceTree) {
    let bench = scripted(QdiscSpec::default(), QUEUES);
    let env = QdiscEnv {
        parallel: true,
        ..QdiscEnv::new(&bench.pool)
    };
    let (tree, roots) = DeviceTree::new(spec, QUEUES, &env).unwrap();
    bench
        .device
        .set_qdiscs(roots, &Clock::virtual_at(Time::ZERO))
        .unwrap();
    (bench, tree)
}

/// Each queue has a ring and an instance, and a sender's packets go to the queue that they name.
#[test]
fn every_queue_is_in_use() {
    let (bench, mut tree) = parallel(htb());
    assert_eq!(bench.device.active(), QUEUES);
    bench.send_to(|mark| (mark % 2) as u16, 0..10, Time::ZERO);
    bench.wake(Time::ZERO);
    assert_eq!(bench.marks(0), [0, 2, 4, 6, 8]);
    assert_eq!(bench.marks(1), [1, 3, 5, 7, 9]);
    let queues: Vec<_> = bench
        .device
        .queues()
        .iter()
        .map(|queue| queue.stats().qdisc)
        .collect();
    assert_eq!(tree.stats_at(handle("1:1"), &queues).unwrap().packets, 10);
    // One queue for all of it, and back; what waits moves, by its queue.
    bench.set_capacity(0);
    bench.send_to(|mark| (mark % 2) as u16, 10..20, Time::ZERO);
    let clock = Clock::virtual_at(Time::ZERO);
    for parallel in [false, true] {
        tree.on((&*bench.device, &clock)).set_parallel(parallel);
        let active = if parallel { QUEUES } else { 1 };
        assert_eq!(bench.device.active(), active);
        assert_eq!(bench.device.stats().queued, 10);
    }
    bench.finish(20);
    assert_eq!(bench.sent(), [10, 10]);
    bench.assert_order();
}

/// INV-TX-15: a flow stays with its instance while packets of it wait there, whichever thread sends
/// them, and may leave it then.
#[test]
fn a_flow_that_waits_keeps_its_instance() {
    let (bench, _tree) = parallel(htb());
    let send = |worker, mark| {
        set_worker(worker);
        let mut packet = frame(&bench.pool, 1, 2, 100, mark);
        packet.set_flow_hash(7);
        bench.device.transmit(packet.into(), Time::ZERO);
    };
    bench.set_capacity(0);
    send(0, 0);
    send(1, 1);
    send(1, 2);
    bench.resume(Time::ZERO);
    assert_eq!(bench.marks(0), [0, 1, 2]);
    send(1, 3);
    assert_eq!(bench.marks(1), [3]);
    bench.finish(4);
}

/// INV-TX-1, INV-TX-3, INV-Q-1, INV-MQ-4: classes, qdiscs and filters come and go, in both
/// instances, while four threads send to both. Nothing is lost uncounted, the packets of each
/// sender that keeps its class leave in order, and the sums are those of what left.
#[test]
fn both_instances_are_changed_while_packets_flow() {
    let (bench, mut tree) = parallel(htb());
    let spec = tree.spec().clone();
    let clock = Clock::virtual_at(Time::ZERO);
    let change = |tree: &mut DeviceTree, step: usize| {
        let mut tree = tree.on((&*bench.device, &clock));
        let other = handle("1:2");
        match step % 8 {
            0 => tree.add_class(handle("1:"), other, class(10_000_000_000)),
            1 => {
                let senders = FilterKind::fw(2 << 24);
                let filter = FilterSpec {
                    handle: 2 << 24,
                    ..FilterSpec::new(senders, other)
                };
                tree.put_filter(FilterOp::Add, filter).map(drop)
            }
            2 => tree.change_class(other, &class(20_000_000_000)),
            3 => {
                let qdisc = QdiscSpec::FqCodel(FqCodelSpec::default());
                tree.add(other, handle("2:"), qdisc).map(drop)
            }
            4 => {
                let qdisc = QdiscSpec::Pfifo { limit: 300 };
                tree.replace(other, handle("3:"), qdisc).map(drop)
            }
            5 => tree.change(handle("3:"), &QdiscSpec::Pfifo { limit: 200 }),
            6 => tree.delete_filters(handle("1:"), softnet_tc::FilterKey::default()),
            _ => tree.delete_class(other),
        }
    };
    let packets = |sender: u32, n: u32| bench.packet(sender as u16 % 2, sender << 24 | n).into();
    let serve = |turn: usize| {
        bench.set_capacity(turn % 50);
        bench.wake(Time::ZERO);
    };
    let mut step = 0;
    let meanwhile = || {
        change(&mut tree, step).unwrap();
        step += 1;
    };
    let offered = bench.storm(4, 5_000, packets, serve, meanwhile);
    while step % 8 != 0 {
        change(&mut tree, step).unwrap();
        step += 1;
    }
    assert_eq!(*tree.spec(), spec);
    bench.finish(offered);
    for ring in 0..QUEUES {
        // The other of the two changes its class: its packets overtake those that wait in the old.
        let (keeps, mut changes): (Vec<_>, Vec<_>) = bench
            .marks(ring)
            .into_iter()
            .partition(|mark| mark >> 24 == ring as u32);
        assert!(keeps.is_sorted_by(|a, b| a < b), "INV-TX-3");
        changes.sort_unstable();
        assert!(changes.is_sorted_by(|a, b| a < b), "one left twice");
    }
    let queues: Vec<_> = bench
        .device
        .queues()
        .iter()
        .map(|queue| queue.stats().qdisc)
        .collect();
    assert!(queues.iter().all(|queue| queue.packets > 0));
    let root = tree.stats_at(Handle::ROOT, &queues).unwrap();
    assert_eq!(root.packets, bench.device.stats().tx_packets);
    assert_eq!((root.qlen, root.backlog), (0, 0));
}
