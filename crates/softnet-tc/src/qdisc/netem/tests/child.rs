//! A qdisc below `netem`.

use softnet::mem::Pool;

use super::*;
use crate::testing::alone::tbf;
use crate::testing::handle;

/// A tree with a netem of this delay at its root.
fn delayed(pool: &Pool, by: u64) -> (Tree, Cx) {
    let mut tree = Tree::build(TreeSpec::new(), &QdiscEnv::new(pool)).unwrap();
    let mut cx = Cx::new(pool);
    let spec = QdiscSpec::Netem(delay(by));
    tree.edit(&mut cx)
        .add(Handle::ROOT, handle("1:"), spec)
        .unwrap();
    (tree, cx)
}

/// With a qdisc at the class, packets are its when their delay is over: it orders them, and what
/// it drops counts above, too.
#[test]
fn a_child_has_the_packets_after_the_delay() {
    let pool = pool(64);
    let (mut tree, mut cx) = delayed(&pool, MS);
    // Without one there is no class to see.
    assert_eq!(tree.classes().len(), 1);
    let prio = QdiscSpec::Prio(PrioSpec::default());
    tree.edit(&mut cx)
        .add(handle("1:1"), handle("2:"), prio)
        .unwrap();
    let queue = QdiscSpec::Pfifo { limit: 2 };
    tree.edit(&mut cx)
        .add(handle("2:1"), handle("3:"), queue)
        .unwrap();
    for (n, priority) in [(0, 0), (1, 6), (2, 6), (3, 6), (4, 0)] {
        tree.enqueue(&mut packet(&pool, 100, priority, n).into(), &mut cx);
    }
    let class = |tree: &Tree, name: &str| {
        let classes = tree.classes();
        let found = classes.iter().find(|class| class.class == handle(name));
        found.unwrap().stats
    };
    assert_eq!((tree.stats().qlen, class(&tree, "1:1").qlen), (5, 0));
    let mut out = PacketList::new();
    assert_eq!(
        tree.dequeue(1, &mut out, cx.at(Time(MS - 1))),
        Next::At(Time(MS))
    );
    assert_eq!(tree.dequeue(1, &mut out, cx.at(Time(MS))), Next::Ready);
    // All that was due is in the child, whose first band took two of three.
    assert_eq!((tree.stats().qlen, class(&tree, "1:1").qlen), (3, 3));
    assert_eq!((tree.stats().drops, class(&tree, "2:1").drops), (1, 1));
    // Without it they leave as they were.
    tree.edit(&mut cx).delete(handle("2:")).unwrap();
    assert_eq!(tree.stats().qlen, 3);
    tree.enqueue(&mut packet(&pool, 100, 0, 9).into(), &mut cx);
    assert_eq!(tree.dequeue(9, &mut out, &mut cx), Next::At(Time(2 * MS)));
    assert_eq!(tree.dequeue(9, &mut out, cx.at(Time(2 * MS))), Next::Idle);
    let marks: Vec<u32> = out.iter().map(Packet::mark).collect();
    assert_eq!(marks, [1, 2, 0, 4, 9]);
    assert_eq!((tree.stats().packets, tree.stats().backlog), (5, 0));
    cx.dropped.settle(&DropCounters::new());
}

/// Packets whose delay is over, and that the class holds, leave room for others (Linux 6.13).
#[test]
fn the_limit_is_of_those_that_wait_for_their_time() {
    let pool = pool(64);
    let env = QdiscEnv::new(&pool);
    let mut tree = Tree::build(TreeSpec::new(), &env).unwrap();
    let mut cx = Cx::new(&pool);
    let spec = NetemSpec {
        limit: 3,
        ..delay(MS)
    };
    tree.edit(&mut cx)
        .add(Handle::ROOT, handle("1:"), QdiscSpec::Netem(spec))
        .unwrap();
    let queue = QdiscSpec::Pfifo { limit: 10 };
    tree.edit(&mut cx)
        .add(handle("1:1"), handle("2:"), queue)
        .unwrap();
    let mut out = PacketList::new();
    for (time, qlen, drops) in [(0, 3, 1), (MS, 6, 2), (2 * MS, 9, 3)] {
        // What is due goes to the class.
        tree.dequeue(0, &mut out, cx.at(Time(time)));
        for n in 0..4 {
            tree.enqueue(&mut packet(&pool, 100, 0, n).into(), cx.at(Time(time)));
        }
        assert_eq!((tree.stats().qlen, tree.stats().drops), (qlen, drops));
    }
    assert!(out.is_empty());
    tree.dequeue(99, &mut out, cx.at(Time(3 * MS)));
    assert_eq!((out.len(), tree.stats().qlen), (9, 0));
    cx.dropped.settle(&DropCounters::new());
}

/// CoDel's time is that in its own queue.
#[test]
fn the_delay_is_no_sojourn_time() {
    let pool = pool(128);
    let (mut tree, mut cx) = delayed(&pool, 500 * MS);
    let codel = QdiscSpec::Codel(CodelSpec::default());
    tree.edit(&mut cx)
        .add(handle("1:1"), handle("2:"), codel)
        .unwrap();
    let mut out = PacketList::new();
    for n in 0..100_u64 {
        let mut one = packet(&pool, 1500, 0, n as u32);
        one.set_timestamp(Time(n * 10 * MS + 1));
        tree.enqueue(&mut one.into(), cx.at(Time(n * 10 * MS + 1)));
        tree.dequeue(1, &mut out, &mut cx);
    }
    while let Next::At(time) = tree.dequeue(9, &mut out, &mut cx) {
        cx.now = time;
    }
    assert_eq!((out.len(), tree.stats().drops), (100, 0));
}

/// A shaper in the class holds packets back, and is asked when they may leave.
#[test]
fn a_child_that_waits_is_waited_for() {
    let pool = pool(8);
    let (mut tree, mut cx) = delayed(&pool, MS);
    let tbf = tbf(1_000_000, 1000, 10_000);
    tree.edit(&mut cx)
        .add(handle("1:1"), handle("2:"), tbf)
        .unwrap();
    let mut list: PacketList = (0..3).map(|n| packet(&pool, 1000, 0, n)).collect();
    tree.enqueue(&mut list, &mut cx);
    let mut out = PacketList::new();
    let mut times = Vec::new();
    loop {
        let before = out.len();
        let next = tree.dequeue(9, &mut out, &mut cx);
        times.extend((before..out.len()).map(|_| cx.now.nanos() / MS));
        match next {
            Next::At(time) => cx.now = time,
            Next::Idle => break,
            Next::Ready => panic!("with budget left"),
        }
    }
    assert_eq!(times, [1, 2, 3]);
}
