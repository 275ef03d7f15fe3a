//! Trees in virtual time: what the kernel does, and what it once did wrong.

use softnet::mem::PacketList;
use softnet::qdisc::*;
use softnet::stats::DropReason;
use softnet::testing::frame;
use softnet::time::Time;

use crate::testing::bench::Bench;
use crate::testing::{Opaque, handle, large};
use crate::*;

const SECOND: u64 = 1_000_000_000;

fn tbf(rate: u64, burst: u64, limit: u64) -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate,
        burst,
        limit,
        ..TbfSpec::default()
    })
}

fn prio(bands: u16) -> QdiscSpec {
    let last = (bands - 1) as u8;
    QdiscSpec::Prio(PrioSpec {
        bands,
        priomap: PRIO_TO_BAND.map(|band| band.min(last)),
    })
}

/// G10 of the kernel: `pfifo_fast` with 8 places a band below a shaper. The first packet leaves at
/// once; what then waits in front is overtaken by what comes later in a higher band, so looking at
/// a packet must not take it out. The drops show at both.
#[test]
fn g10_bug_tbf_4_a_peek_does_not_commit() {
    let shaper = tbf(100_000, 1600, 0);
    let mut bench = Bench::new([
        ("root", "1:", shaper),
        ("1:1", "2:", QdiscSpec::PfifoFast { limit: 8 }),
    ]);
    let mut left = Vec::new();
    let mut missed = Vec::new();
    for (priority, count) in [(2, 12), (0, 12), (6, 6)] {
        let mut lost = 0;
        for n in 0..count {
            lost += bench.offer([priority * 100 + n], 1000, priority);
            left.extend(bench.leave(64, Time::ZERO).0);
        }
        missed.push(lost);
    }
    assert_eq!((left, missed), (vec![200], vec![3, 4, 0]));
    assert_eq!(
        (bench.class("root").drops, bench.class("1:1").drops),
        (7, 7)
    );
    let mut order = Vec::new();
    for step in 1..=40 {
        order.extend(bench.leave(64, Time(step * SECOND / 100)).0);
    }
    let expected: Vec<u32> = (600..606).chain(0..8).chain(201..209).collect();
    assert_eq!(order, expected);
}

#[test]
fn prio_sorts_by_class_in_priority_filter_and_map() {
    let mut bench = Bench::new([("root", "1:", prio(3))]);
    let filter = FilterSpec {
        handle: 7,
        ..FilterSpec::new(FilterKind::fw(u32::MAX), handle("1:1"))
    };
    let mut live = bench.tree.edit(&mut bench.cx);
    live.put_filter(FilterOp::Add, filter).unwrap();
    // The map: bulk is band 2, best effort 1, control 0.
    bench.offer([1], 100, 2);
    bench.offer([2], 100, 0);
    bench.offer([3], 100, 7);
    // A class in the priority; one that does not exist goes where priority 0 goes, as does a
    // foreign one (BUG-PF-8).
    bench.offer([4], 100, handle("1:3").raw());
    bench.offer([5], 100, handle("1:9").raw());
    bench.offer([6], 100, handle("2:3").raw());
    // The filter, which a class in the priority precedes.
    bench.offer([7], 100, 2);
    bench.offer([7], 101, handle("1:3").raw());
    assert_eq!(bench.class("1:1").qlen, 2);
    assert_eq!(bench.all(), [3, 7, 2, 5, 6, 1, 4, 7]);
    assert_eq!(bench.class("1:3").packets, 3);
    assert_eq!(bench.class("root").bytes, 801);
}

/// Drops of a filter are counted at its qdisc and those above, and what it matched is still known
/// after a change of the others and of the qdisc.
#[test]
fn filters_drop_and_count() {
    let mut bench = Bench::new([("root", "1:", tbf(1000, 5000, 0)), ("1:1", "2:", prio(3))]);
    let fw = |mark, minor, action: Control| FilterSpec {
        prio: 1,
        handle: mark,
        actions: action.into(),
        ..FilterSpec::new(FilterKind::fw(u32::MAX), Handle::new(2, minor))
    };
    let put = |bench: &mut Bench, filter| {
        let mut live = bench.tree.edit(&mut bench.cx);
        live.put_filter(FilterOp::Add, filter).unwrap()
    };
    let dropped = put(&mut bench, fw(8, 1, Control::Drop));
    put(&mut bench, fw(7, 3, Control::Pass));
    assert_eq!(bench.offer([7, 8, 9, 8], 100, 0), 2);
    assert_eq!(bench.reasons(), [(DropReason::FilterDrop, 2)]);
    for class in ["root", "1:1"] {
        let stats = bench.class(class);
        assert_eq!((stats.drops, stats.qlen), (2, 2), "{class}");
    }
    let hits = |bench: &Bench| {
        let filters = bench.tree.filters();
        filters
            .map(|(filter, stats)| (filter.handle, stats.packets))
            .collect::<Vec<_>>()
    };
    assert_eq!(hits(&bench), [(7, 1), (8, 2)]);
    let Bench { tree, cx, .. } = &mut bench;
    tree.edit(cx).delete_filters(handle("2:"), dropped).unwrap();
    tree.edit(cx).change(handle("2:"), &prio(4)).unwrap();
    put(&mut bench, fw(6, 4, Control::Pass));
    assert_eq!(bench.offer([6, 7, 8], 100, 0), 0);
    assert_eq!(hits(&bench), [(6, 1), (7, 2)]);
    // Another qdisc has none.
    let Bench { tree, cx, .. } = &mut bench;
    tree.edit(cx)
        .replace(handle("1:1"), handle("2:"), prio(3))
        .unwrap();
    assert_eq!(hits(&bench), []);
}

/// BUG-PRIO-3, BUG-TX-20: a qdisc that cannot tell what is next has it taken out, and keeps
/// the count. What is looked at first leaves first.
#[test]
fn a_child_that_cannot_be_looked_into_loses_nothing() {
    let opaque = QdiscSpec::Custom(CustomSpec::new("opaque", |_| {
        Box::new(Opaque(Pfifo::new(5)))
    }));
    let mut bench = Bench::new([
        ("root", "1:", tbf(1000, 100, 0)),
        ("1:1", "2:", prio(2)),
        ("2:1", "3:", opaque),
    ]);
    assert_eq!(bench.offer(0..5, 100, 6), 0);
    assert_eq!(
        bench.leave(64, Time::ZERO),
        (vec![0], Next::At(Time(SECOND / 10)))
    );
    // The shaper looked at packet 1: it has left the qdisc below, and is still the shaper's.
    for (class, numbers) in [
        ("root", (4, 400, 1)),
        ("1:1", (4, 400, 1)),
        ("2:1", (3, 300, 2)),
    ] {
        let stats = bench.class(class);
        assert_eq!(
            (stats.qlen, stats.backlog, stats.packets),
            numbers,
            "{class}"
        );
    }
    // Replacing it takes along what was looked at, in front.
    bench
        .tree
        .edit(&mut bench.cx)
        .replace(handle("2:1"), handle("4:"), QdiscSpec::Pfifo { limit: 9 })
        .unwrap();
    assert_eq!(bench.class("root").qlen, 4);
    let mut order = Vec::new();
    for step in 1..10 {
        order.extend(bench.leave(64, Time(step * SECOND / 10)).0);
    }
    assert_eq!(order, [1, 2, 3, 4]);
}

/// BUG-TBF-1, BUG-TX-19: what is cut or dropped deep in the tree shows in the numbers of
/// everything above, frame by frame and byte by byte.
#[test]
fn segmentation_below_is_counted_above() {
    let mut bench = Bench::new([
        ("root", "1:", prio(2)),
        ("1:2", "2:", tbf(1_000_000, 500, 0)),
        ("2:1", "3:", QdiscSpec::Pfifo { limit: 6 }),
    ]);
    let large = large(&bench.pool);
    bench.tree.enqueue(&mut large.into(), &mut bench.cx);
    // 8 of 192 bytes, of which the bucket holds 2 at a time. Out of the class's queue at once, and
    // out of all above as they leave.
    let check = |bench: &Bench, left: u64| {
        for class in ["root", "1:2"] {
            let stats = bench.class(class);
            assert_eq!(
                (stats.qlen, stats.queued, stats.backlog, stats.drops),
                (u64::from(left > 0), left, left * 192, 0),
                "{class}"
            );
            assert_eq!((stats.packets, stats.bytes), (8 - left, (8 - left) * 192));
        }
    };
    check(&bench, 8);
    for left in [6, 4, 2, 0] {
        let now = Time((8 - left) * SECOND);
        assert_eq!(bench.leave(64, now).0.len(), 2, "of 500 bytes");
        check(&bench, left);
    }
}

/// BUG-PRIO-1, BUG-PRIO-2, BUG-TX-21, INV-Q-10: bands come and go with packets in them, and
/// nothing is lost uncounted.
#[test]
fn bands_are_added_and_removed_with_packets_in_them() {
    let mut bench = Bench::new([
        ("root", "1:", prio(4)),
        ("1:4", "4:", QdiscSpec::Pfifo { limit: 10 }),
        ("1:1", "5:", QdiscSpec::Pfifo { limit: 3 }),
    ]);
    let name = |band: u16| handle("1:").class(band).raw();
    bench.offer(40..43, 100, name(4));
    bench.offer(30..33, 100, name(3));
    bench.offer(10..12, 100, name(1));
    let two = PrioSpec {
        bands: 2,
        priomap: [1; 16],
    };
    let Bench { tree, cx, .. } = &mut bench;
    tree.edit(cx)
        .change(handle("1:"), &QdiscSpec::Prio(two))
        .unwrap();
    assert!(
        tree.spec().node(handle("4:")).is_none(),
        "it hung on a band that is no more"
    );
    assert_eq!(bench.class("root").qlen, 8);
    let four = prio(4);
    bench
        .tree
        .edit(&mut bench.cx)
        .change(handle("1:"), &four)
        .unwrap();
    assert_eq!(bench.all(), [10, 11, 30, 31, 32, 40, 41, 42]);
    // A class that loses its qdisc keeps a queue, and its packets.
    bench.offer([1, 2, 3], 100, name(1));
    assert_eq!(bench.offer([4], 100, name(1)), 1, "its limit is 3");
    bench.tree.edit(&mut bench.cx).delete(handle("5:")).unwrap();
    assert_eq!(
        bench.offer([5], 100, name(1)),
        0,
        "the queue it came with holds more"
    );
    assert_eq!(bench.all(), [1, 2, 3, 5]);
    // What does not fit the replacement is counted.
    bench.offer(0..5, 100, 0);
    bench
        .tree
        .edit(&mut bench.cx)
        .replace(Handle::ROOT, handle("9:"), QdiscSpec::Pfifo { limit: 2 })
        .unwrap();
    assert_eq!(
        (bench.class("root").qlen, bench.class("root").drops),
        (2, 3)
    );
    assert_eq!(bench.reasons(), [(DropReason::QdiscLimit, 4)]);
}

#[test]
fn a_filled_band_lets_the_others_pass() {
    let mut bench = Bench::new([("root", "1:", prio(2)), ("1:1", "2:", tbf(1000, 100, 1000))]);
    bench.offer([1, 2], 100, 6);
    bench.offer([3], 100, 2);
    // INV-Q-8: it says when the rest may leave.
    assert_eq!(
        bench.leave(64, Time::ZERO),
        (vec![1, 3], Next::At(Time(SECOND / 10)))
    );
    assert_eq!(bench.leave(64, Time(SECOND / 10)), (vec![2], Next::Idle));
}

/// A qdisc of one's own that lengthens packets below a shaper: what has become too long for the
/// bucket leaves when that is full, and the excess is paid before the next.
#[test]
fn a_packet_that_grew_too_long_does_not_block() {
    #[derive(Debug)]
    struct Encapsulate(Pfifo);
    impl Qdisc for Encapsulate {
        fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
            self.0.enqueue(packets, cx)
        }
        fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
            let mut some = PacketList::new();
            let next = self.0.dequeue(budget, &mut some, cx);
            some.for_each_mut(|packet| packet.push_front(50).unwrap().fill(0));
            out.append(&mut some);
            next
        }
        fn drain(&mut self, out: &mut PacketList) {
            self.0.drain(out);
        }
        fn stats(&self) -> &QdiscStats {
            self.0.stats()
        }
    }
    let custom = CustomSpec::new("encapsulate", |_| Box::new(Encapsulate(Pfifo::new(9))));
    let mut bench = Bench::new([
        ("root", "1:", tbf(1000, 500, 1)),
        ("1:1", "2:", QdiscSpec::Custom(custom)),
    ]);
    bench.offer([1], 100, 0);
    bench.offer([2], 480, 0);
    bench.offer([3], 100, 0);
    // 150 of 500 bytes are missing, at 1000 bytes/s.
    let full = Time(SECOND * 15 / 100);
    assert_eq!(bench.leave(64, Time::ZERO), (vec![1], Next::At(full)));
    // 30 bytes of debt and 150 for the next.
    let paid = full.plus_nanos(SECOND * 18 / 100);
    assert_eq!(bench.leave(64, full), (vec![2], Next::At(paid)));
    assert_eq!(bench.leave(64, paid), (vec![3], Next::Idle));
    assert_eq!(bench.reasons(), []);
    let root = bench.class("root");
    assert_eq!(
        (root.packets, root.drops, root.qlen, root.backlog),
        (3, 0, 0, 0)
    );
}

/// As in the kernel, which does not look the class up: until there is one, packets go where
/// those of priority 0 go.
#[test]
fn a_filter_may_name_a_class_that_comes_later() {
    let map = |bands| {
        QdiscSpec::Prio(PrioSpec {
            bands,
            priomap: [1; 16],
        })
    };
    let mut bench = Bench::new([("root", "1:", map(2))]);
    let filter = FilterSpec::new(FilterKind::Matchall, handle("1:4"));
    let mut live = bench.tree.edit(&mut bench.cx);
    live.put_filter(FilterOp::Add, filter).unwrap();
    bench.offer([1], 100, 0);
    assert_eq!(bench.class("1:2").qlen, 1);
    let Bench { tree, cx, .. } = &mut bench;
    tree.edit(cx).change(handle("1:"), &map(4)).unwrap();
    bench.offer([2], 100, 0);
    assert_eq!(bench.class("1:4").qlen, 1);
    // And it stays when the class goes.
    let Bench { tree, cx, .. } = &mut bench;
    tree.edit(cx).change(handle("1:"), &map(3)).unwrap();
    assert_eq!(bench.tree.spec().filters().count(), 1);
    bench.offer([3], 100, 0);
    assert_eq!((bench.class("1:2").qlen, bench.all()), (3, vec![1, 2, 3]));
}

/// The actions of a filter are done once with a packet, also if its band goes.
#[test]
fn a_packet_whose_band_goes_meets_no_filter_again() {
    let mut bench = Bench::new([("root", "1:", prio(3))]);
    let action = Action::new("vlan push id 5".parse().unwrap());
    let filter = FilterSpec {
        actions: [action].into_iter().collect(),
        ..FilterSpec::new(FilterKind::Matchall, handle("1:3"))
    };
    let mut live = bench.tree.edit(&mut bench.cx);
    live.put_filter(FilterOp::Add, filter).unwrap();
    bench.offer(0..2, 100, 0);
    assert_eq!(bench.class("1:3").backlog, 2 * 104);
    let Bench { tree, cx, .. } = &mut bench;
    tree.edit(cx).change(handle("1:"), &prio(2)).unwrap();
    assert_eq!(bench.class("1:2").backlog, 2 * 104);
    let matched = bench.tree.filters().map(|(_, stats)| stats.matched);
    assert_eq!(matched.sum::<u64>(), 2);
}

/// Counts of a root before it was replaced are not the new one's.
#[test]
fn a_new_root_counts_from_the_start() {
    let mut bench = Bench::new([("root", "1:", QdiscSpec::Pfifo { limit: 2 })]);
    bench.offer(0..3, 100, 0);
    assert_eq!(bench.leave(1, Time::ZERO).0, [0]);
    let before = bench.class("root");
    assert_eq!((before.packets, before.bytes, before.drops), (1, 100, 1));
    let Bench { tree, cx, .. } = &mut bench;
    tree.edit(cx)
        .replace(Handle::ROOT, handle("2:"), prio(2))
        .unwrap();
    let expected = QdiscStats {
        qlen: 1,
        backlog: 100,
        queued: 1,
        memory: before.memory,
        ..QdiscStats::default()
    };
    assert_eq!(
        (bench.class("root"), bench.tree.stats()),
        (expected, &expected)
    );
}

/// tbf asks its child for a packet even if that has none that may leave yet, and the child
/// counts that.
#[test]
fn a_shaper_below_a_shaper_counts_its_overlimits() {
    let mut bench = Bench::new([
        ("root", "1:", tbf(100_000, 1000, 0)),
        ("1:1", "2:", tbf(1000, 100, 1000)),
    ]);
    bench.offer(0..3, 100, 0);
    let mut now = Time::ZERO;
    for n in 0..3_u64 {
        let (marks, next) = bench.leave(64, now);
        assert_eq!(marks, [n as u32]);
        if let Next::At(time) = next {
            assert_eq!(time, Time((n + 1) * SECOND / 10));
            now = time;
        }
        // The inner one is in the way at the end of each run but the last.
        let counts = [bench.class("root"), bench.class("1:1")].map(|s| s.overlimits);
        assert_eq!(counts, [0, (n + 1).min(2)]);
    }
}

/// A packet that passes an htb below another qdisc, and takes the last of a class's tokens: the
/// class above did not count the overlimit.
#[test]
fn an_overlimit_of_what_passes_is_counted_above() {
    let htb = QdiscSpec::Htb(HtbSpec {
        default: 0x10,
        ..HtbSpec::default()
    });
    let mut bench = Bench::new([("root", "1:", prio(2)), ("1:2", "2:", htb)]);
    let class = HtbClassSpec {
        burst: 1,
        cburst: 1,
        ..HtbClassSpec::new(1)
    };
    let mut tree = bench.tree.edit(&mut bench.cx);
    tree.add_class(handle("2:"), handle("2:10"), ClassSpec::Htb(class))
        .unwrap();
    let list = PacketList::from(frame(&bench.pool, 1, 2, 60, 0));
    let sum = WireSum::from(&list);
    assert!(bench.tree.try_pass(&list, sum, &mut bench.cx));
    let classes = bench.tree.classes();
    let above = classes.iter().find(|class| class.class == handle("1:2"));
    let above = above.unwrap().stats;
    assert_eq!((above.packets, above.overlimits), (1, 1));
}
