//! `netem` in virtual time. Random parts are in `random_tests`.

use proptest::prelude::*;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, Verdict};
use softnet::stats::{DropCounters, DropReason};
use softnet::testing::pool;
use softnet::time::Time;
use softnet::wire::{fold, sum_bytes};

use super::*;
use crate::testing::alone::{build, cx, leave, offer, packet, tbf};
use crate::testing::{MS, handle, ip, large};
use crate::*;

const ALWAYS: u32 = u32::MAX;

fn netem(spec: NetemSpec) -> AnyQdisc {
    build(QdiscSpec::Netem(spec), &pool(1))
}

fn delay(nanos: u64) -> NetemSpec {
    NetemSpec {
        delay: Duration::from_nanos(nanos),
        seed: Some(1),
        ..NetemSpec::default()
    }
}

fn xstat(qdisc: &AnyQdisc, name: &str) -> u64 {
    let all: Vec<_> = qdisc.xstats().unwrap().iter().collect();
    all.iter().find(|(of, _)| *of == name).unwrap().1
}

/// All departures: the mark and the time of each.
fn departures(q: &mut AnyQdisc, mut now: Time) -> Vec<(u32, u64)> {
    let mut all = Vec::new();
    loop {
        let (marks, next) = leave(q, now);
        all.extend(marks.into_iter().map(|mark| (mark, now.nanos())));
        match next {
            Next::Idle => return all,
            Next::Ready => {}
            Next::At(time) => {
                assert!(time > now);
                now = time;
            }
        }
    }
}

/// Without jitter each packet leaves exactly its delay after it came, in order.
#[test]
fn the_delay_is_exact() {
    let pool = pool(64);
    let mut q = netem(delay(10 * MS + 7));
    for n in 0..50 {
        let now = Time(u64::from(n) * 333_333);
        assert!(offer(&mut q, packet(&pool, 100, 0, n), now));
    }
    let first = Time(10 * MS + 7);
    assert_eq!(q.peek(Time(first.nanos() - 1)), Peek::At(first));
    assert_eq!(
        leave(&mut q, Time(first.nanos() - 1)),
        (vec![], Next::At(first))
    );
    assert!(matches!(q.peek(first), Peek::Packet(size) if size.bytes == 100));
    let left = departures(&mut q, Time(first.nanos() - 1));
    let expected = (0..50).map(|n| (n, u64::from(n) * 333_333 + first.nanos()));
    assert_eq!(left, expected.collect::<Vec<_>>());
    assert_eq!(
        (xstat(&q, "delayed"), q.stats().packets, q.stats().qlen),
        (50, 50, 0)
    );
}

#[test]
fn what_is_over_the_limit_is_refused() {
    let pool = pool(64);
    let mut q = netem(NetemSpec {
        limit: 3,
        ..delay(MS)
    });
    let accepted: Vec<bool> = (0..5)
        .map(|n| offer(&mut q, packet(&pool, 100, 0, n), Time(0)))
        .collect();
    assert_eq!(accepted, [true, true, true, false, false]);
    assert_eq!((q.stats().drops, q.stats().qlen), (2, 3));
    assert_eq!(leave(&mut q, Time(MS)), (vec![0, 1, 2], Next::Idle));
}

/// The link takes one packet after the other, each with what it takes besides its own bytes; the
/// delay counts from when a packet came.
#[test]
fn the_rate_is_exact_with_overhead_and_cells() {
    let pool = pool(64);
    let send = |spec: NetemSpec, len| {
        let mut q = netem(spec);
        for n in 0..4 {
            offer(&mut q, packet(&pool, len, 0, n), Time(0));
        }
        let left = departures(&mut q, Time(0));
        left.into_iter().map(|(_, time)| time).collect::<Vec<u64>>()
    };
    let rate = |delayed: u64, packet_overhead, cell_size, cell_overhead| NetemSpec {
        rate: 1_000_000,
        packet_overhead,
        cell_size,
        cell_overhead,
        ..delay(delayed)
    };
    let steps = |from: u64, step: u64| (1..=4).map(|n| from + n * step).collect::<Vec<_>>();
    assert_eq!(send(rate(0, 0, 0, 0), 1000), steps(0, MS));
    assert_eq!(send(rate(0, 20, 0, 0), 980), steps(0, MS));
    assert_eq!(send(rate(0, -100, 0, 0), 1100), steps(0, MS));
    assert_eq!(send(rate(0, -100, 0, 0), 60), [0, 0, 0, 0]);
    // 21 cells of 53 bytes.
    assert_eq!(send(rate(0, 0, 48, 5), 1000), steps(0, 21 * 53_000));
    assert_eq!(send(rate(0, 0, 48, 5), 1008), steps(0, 21 * 53_000));
    assert_eq!(send(rate(0, 1, 48, 5), 1008), steps(0, 22 * 53_000));
    // Those behind come when they would have without a delay, later.
    assert_eq!(send(rate(10 * MS, 0, 0, 0), 1000), steps(10 * MS, MS));
}

/// One of `gap` packets, the last, leaves at once; of several the latest is first.
#[test]
fn one_in_gap_packets_is_early() {
    let pool = pool(64);
    let mut q = netem(NetemSpec {
        reorder: ALWAYS,
        gap: 3,
        ..delay(MS)
    });
    for n in 0..9 {
        offer(&mut q, packet(&pool, 100, 0, n), Time(0));
    }
    assert!(matches!(q.peek(Time(0)), Peek::Packet(_)));
    assert_eq!(leave(&mut q, Time(0)), (vec![8, 5, 2], Next::At(Time(MS))));
    assert_eq!(leave(&mut q, Time(MS)).0, [0, 1, 3, 4, 6, 7]);
    assert_eq!(xstat(&q, "reordered"), 3);
}

/// A copy goes to the root, and is not copied again.
#[test]
fn a_copy_is_enqueued_at_the_root_once() {
    let pool = pool(64);
    let mut q = netem(NetemSpec {
        duplicate: ALWAYS,
        ..delay(MS)
    });
    let mut cx = cx(Time(0));
    let mut list: PacketList = (0..3).map(|n| packet(&pool, 100, 0, n)).collect();
    q.enqueue(&mut list, &mut cx);
    assert_eq!((cx.reinject.len(), cx.copied, q.stats().qlen), (3, 3, 3));
    let mut again = cx.reinject.take();
    q.enqueue(&mut again, &mut cx);
    assert_eq!((cx.reinject.len(), cx.copied), (0, 3));
    assert_eq!(leave(&mut q, Time(MS)).0, [0, 1, 2, 0, 1, 2]);
    assert_eq!(xstat(&q, "duplicated"), 3);
    // What is refused has no copy.
    let mut none = netem(NetemSpec {
        duplicate: ALWAYS,
        limit: 0,
        ..delay(MS)
    });
    none.enqueue(&mut packet(&pool, 100, 0, 0).into(), &mut cx);
    assert_eq!(
        (cx.reinject.len(), cx.copied, cx.dropped.wire_packets()),
        (0, 3, 1)
    );
    cx.dropped.settle(&DropCounters::new());
}

/// As in the kernel, a packet that is copied and lost comes once.
#[test]
fn a_lost_copy_leaves_the_packet() {
    let pool = pool(64);
    let spec = NetemSpec {
        duplicate: ALWAYS,
        loss: ALWAYS,
        ..delay(MS)
    };
    let mut q = netem(spec);
    let mut cx = cx(Time(0));
    let verdict = q.enqueue(&mut packet(&pool, 100, 0, 7).into(), &mut cx);
    assert_eq!(
        (verdict, cx.reinject.len(), q.stats().qlen),
        (Verdict::Queued, 0, 1)
    );
    assert_eq!((xstat(&q, "dropped"), q.stats().drops), (1, 0));
    // A copy is lost like any other packet, and its sender is not told.
    let mut copy = packet(&pool, 100, 0, 8);
    copy.set_deferred(1);
    assert_eq!(q.enqueue(&mut copy.into(), &mut cx), Verdict::Queued);
    let counters = DropCounters::new();
    cx.dropped.settle(&counters);
    assert_eq!(counters.nonzero(), [(DropReason::NetemLoss, 1)]);
    assert_eq!((q.stats().drops, q.stats().qlen), (1, 1));
}

#[test]
fn ecn_marks_instead_of_losing() {
    let pool = pool(8);
    let mut q = netem(NetemSpec {
        loss: ALWAYS,
        ecn: true,
        ..delay(0)
    });
    for (n, tos) in [0, 1, 2, 3].into_iter().enumerate() {
        offer(&mut q, ip(&pool, 100, tos, n as u32), Time(0));
    }
    let mut out = PacketList::new();
    q.dequeue(9, &mut out, &mut cx(Time(0)));
    let left: Vec<(u32, u8)> = out.iter().map(|p| (p.mark(), p.data()[15] & 3)).collect();
    assert_eq!(left, [(1, 3), (2, 3), (3, 3)]);
    assert_eq!((xstat(&q, "ecn_marked"), xstat(&q, "dropped")), (3, 1));
}

/// One bit is another, in this packet alone, and a checksum that was still to be made says what
/// was there before.
#[test]
fn a_bit_is_changed() {
    let pool = pool(8);
    let mut q = netem(NetemSpec {
        corrupt: ALWAYS,
        ..delay(0)
    });
    let mut one = ip(&pool, 300, 0, 0);
    let other = one.share(&pool).unwrap();
    let before = other.data().to_vec();
    offer(&mut q, one, Time(0));
    let mut out = PacketList::new();
    q.dequeue(9, &mut out, &mut cx(Time(0)));
    let changed = out.pop_front().unwrap();
    assert_eq!(other.data(), before);
    let bits = before
        .iter()
        .zip(changed.data())
        .map(|(a, b)| (a ^ b).count_ones());
    assert_eq!(bits.sum::<u32>(), 1);

    let mut udp = ip(&pool, 300, 0, 0);
    udp.set_checksum(Some(softnet::wire::Checksum {
        start: 14 + 20,
        offset: 6,
    }));
    offer(&mut q, udp, Time(0));
    q.dequeue(9, &mut out, &mut cx(Time(0)));
    let changed = out.pop_front().unwrap();
    assert_eq!(changed.checksum(), None);
    // The sum of what it covers is that of 0xffff but for the bit.
    let sum = fold(sum_bytes(&changed.data()[14 + 20..]));
    let header = changed.data()[..14 + 20] != before[..14 + 20];
    assert_eq!(sum == 0xffff, header);
    assert_eq!(xstat(&q, "corrupted"), 2);
}

/// With a qdisc at the class, packets are its when their delay is over: it orders them, and what
/// it drops counts above, too.
#[test]
fn a_child_has_the_packets_after_the_delay() {
    let pool = pool(64);
    let env = QdiscEnv::new(&pool);
    let mut tree = Tree::build(TreeSpec::new(), &env).unwrap();
    let mut cx = Cx::new(&pool);
    let spec = QdiscSpec::Netem(delay(MS));
    tree.edit(&mut cx)
        .add(Handle::ROOT, handle("1:"), spec)
        .unwrap();
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
    let env = QdiscEnv::new(&pool);
    let mut tree = Tree::build(TreeSpec::new(), &env).unwrap();
    let mut cx = Cx::new(&pool);
    let spec = QdiscSpec::Netem(delay(500 * MS));
    tree.edit(&mut cx)
        .add(Handle::ROOT, handle("1:"), spec)
        .unwrap();
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
    let env = QdiscEnv::new(&pool);
    let mut tree = Tree::build(TreeSpec::new(), &env).unwrap();
    let mut cx = Cx::new(&pool);
    let spec = QdiscSpec::Netem(delay(MS));
    tree.edit(&mut cx)
        .add(Handle::ROOT, handle("1:"), spec)
        .unwrap();
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

/// In each slot so many packets or bytes leave; the next one begins so much later.
#[test]
fn packets_leave_in_slots() {
    let pool = pool(64);
    let slot = |packets, bytes| SlotSpec {
        min: Duration::from_millis(5),
        max: Duration::from_millis(5),
        packets,
        bytes,
        ..SlotSpec::default()
    };
    let times = |slot| {
        let mut q = netem(NetemSpec { slot, ..delay(0) });
        for n in 0..7 {
            offer(&mut q, packet(&pool, 100, 0, n), Time(MS));
        }
        let left = departures(&mut q, Time(MS));
        left.into_iter()
            .map(|(_, time)| time / MS)
            .collect::<Vec<u64>>()
    };
    assert_eq!(times(slot(3, 0)), [6, 6, 6, 11, 11, 11, 16]);
    assert_eq!(times(slot(0, 150)), [6, 6, 11, 11, 16, 16, 21]);
    assert_eq!(times(slot(0, 0)), [6; 7]);
    let none = SlotSpec {
        packets: 1,
        ..SlotSpec::default()
    };
    assert_eq!(times(none), [1; 7]);
}

/// A large frame is as many packets as it stands for where it matters.
#[test]
fn large_frames_are_cut_as_on_a_wire() {
    let pool = pool(64);
    let mut whole = netem(delay(MS));
    offer(&mut whole, large(&pool), Time(0));
    assert_eq!((whole.stats().qlen, whole.stats().queued), (1, 8));

    let mut cut = netem(NetemSpec {
        rate: 192_000,
        ..delay(MS)
    });
    offer(&mut cut, large(&pool), Time(0));
    assert_eq!((cut.stats().qlen, cut.stats().queued), (8, 8));
    assert_eq!(cut.stats().backlog, 8 * 192);
    let left = departures(&mut cut, Time(0));
    let times: Vec<u64> = left.into_iter().map(|(_, time)| time / MS).collect();
    assert_eq!(times, (2..10).collect::<Vec<u64>>());

    let mut lossy = netem(NetemSpec {
        loss: ALWAYS / 2,
        ..delay(0)
    });
    for _ in 0..50 {
        let mut cx = cx(Time(0));
        lossy.enqueue(&mut large(&pool).into(), &mut cx);
        cx.dropped.settle(&DropCounters::new());
        leave(&mut lossy, Time(0));
    }
    let lost = xstat(&lossy, "dropped");
    assert_eq!(lost + lossy.stats().packets, 400);
    assert!((150..250).contains(&lost), "{lost}");

    // Without a buffer it is dropped, as a whole.
    let none = softnet::testing::pool(1);
    let mut cx = Cx::new(&none);
    let frame = large(&none);
    lossy.enqueue(&mut frame.into(), &mut cx);
    let counters = DropCounters::new();
    cx.dropped.settle(&counters);
    assert_eq!(counters.nonzero(), [(DropReason::NoBuffer, 8)]);
    assert_eq!(xstat(&lossy, "allocation_errors"), 1);
}

/// One call makes no more segments than it may: the others stay whole.
#[test]
fn the_work_of_a_call_is_bounded() {
    let pool = pool(8192);
    let mut q = netem(NetemSpec {
        limit: 100_000,
        rate: 1_000_000_000,
        ..delay(0)
    });
    let mut frames: PacketList = (0..600).map(|_| large(&pool)).collect();
    let mut cx = Cx::new(&pool);
    q.enqueue(&mut frames, &mut cx);
    let cut = CUTS / 8;
    assert_eq!(
        (q.stats().qlen, q.stats().queued),
        (cut * 8 + 600 - cut, 4800)
    );
    // What is over the limit is not even segmented.
    let mut q = netem(NetemSpec {
        limit: 20,
        rate: 1_000_000_000,
        ..delay(0)
    });
    let free = pool.stats().free;
    let mut frames: PacketList = (0..6).map(|_| large(&pool)).collect();
    q.enqueue(&mut frames, &mut cx);
    assert_eq!((q.stats().qlen, cx.dropped.wire_packets()), (20, 28));
    cx.dropped.settle(&DropCounters::new());
    drop(q);
    assert!(pool.stats().free >= free);
}

/// Packets that wait keep their times; those that come have new ones. A new seed starts anew.
#[test]
fn a_change_holds_for_what_comes() {
    let pool = pool(64);
    let mut q = netem(delay(10 * MS));
    offer(&mut q, packet(&pool, 100, 0, 0), Time(0));
    let mut context = cx(Time(MS));
    q.change(&QdiscSpec::Netem(delay(MS)), &mut context)
        .unwrap();
    offer(&mut q, packet(&pool, 100, 0, 1), Time(MS));
    assert_eq!(departures(&mut q, Time(MS)), [(1, 2 * MS), (0, 10 * MS)]);
    let losses = |q: &mut AnyQdisc| {
        (0..100)
            .map(|n| {
                let accepted = offer(q, packet(&pool, 100, 0, n), Time(0));
                leave(q, Time(0));
                accepted
            })
            .collect::<Vec<bool>>()
    };
    let lossy = |seed| NetemSpec {
        loss: ALWAYS / 2,
        seed: Some(seed),
        ..delay(0)
    };
    let mut q = netem(lossy(1));
    let first = losses(&mut q);
    assert_ne!(losses(&mut q), first);
    q.change(&QdiscSpec::Netem(lossy(2)), &mut context).unwrap();
    let second = losses(&mut q);
    assert_ne!(second, first);
    q.change(&QdiscSpec::Netem(lossy(1)), &mut context).unwrap();
    assert_eq!(losses(&mut q), first);
    // The same seed goes on.
    q.change(&QdiscSpec::Netem(lossy(1)), &mut context).unwrap();
    assert_ne!(losses(&mut q), first);
}

/// The instances of a tree have random numbers of their own, the first those of the seed.
#[test]
fn instances_differ() {
    let pool = pool(64);
    let env = QdiscEnv {
        parallel: true,
        ..QdiscEnv::new(&pool)
    };
    let spec = QdiscSpec::Netem(NetemSpec {
        loss: ALWAYS / 2,
        ..delay(0)
    });
    let (_, mut qdiscs) = DeviceTree::new(spec.clone(), 3, &env).unwrap();
    let losses = |q: &mut AnyQdisc| {
        let lost = (0..64).map(|n| offer(q, packet(&pool, 100, 0, n), Time(0)));
        let lost: Vec<bool> = lost.collect();
        leave(q, Time(0));
        lost
    };
    let all: Vec<Vec<bool>> = qdiscs.instances.iter_mut().map(losses).collect();
    assert_eq!(all.len(), 3);
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    assert_eq!(losses(&mut build(spec, &pool)), all[0]);
}

/// Every number that a request can say.
fn any_spec() -> impl Strategy<Value = NetemSpec> {
    let chance = || prop_oneof![Just(0), Just(ALWAYS), any::<u32>()];
    let time = || prop_oneof![Just(0), 0..20 * MS, 0..=1_u64 << 53];
    let table = || {
        let numbers = proptest::collection::vec(any::<i16>(), 1..9);
        proptest::option::of(numbers.prop_map(|numbers| Distribution::new(numbers).unwrap()))
    };
    let model = prop_oneof![
        2 => Just(LossModel::Random),
        1 => [(); 5].map(|()| chance()).prop_map(LossModel::State),
        1 => [(); 4].map(|()| chance()).prop_map(LossModel::Gemodel),
    ];
    let loss = (chance(), chance(), model, any::<bool>());
    let delays = (time(), time(), chance(), table());
    let chances = (chance(), chance(), chance(), chance(), chance(), chance());
    let rate = (
        time(),
        any::<i32>(),
        prop_oneof![Just(0), any::<u32>()],
        any::<i32>(),
    );
    let slot = (
        time(),
        time(),
        time(),
        time(),
        0..5_u32,
        0..3000_u32,
        table(),
    );
    let rest = (0..40_u32, prop_oneof![0..4_u32, any::<u32>()], any::<u64>());
    (loss, delays, chances, rate, slot, rest).prop_map(
        |(loss, delays, chances, rate, slot, (limit, gap, seed))| NetemSpec {
            limit,
            delay: Duration::from_nanos(delays.0),
            jitter: Duration::from_nanos(delays.1.min(i32::MAX as u64)),
            delay_correlation: delays.2,
            distribution: delays.3,
            loss: loss.0,
            loss_correlation: loss.1,
            loss_model: loss.2,
            ecn: loss.3,
            duplicate: chances.0,
            duplicate_correlation: chances.1,
            corrupt: chances.2,
            corrupt_correlation: chances.3,
            reorder: chances.4,
            reorder_correlation: chances.5,
            gap,
            rate: rate.0.min(1_000_000_000_000),
            packet_overhead: rate.1,
            cell_size: rate.2,
            cell_overhead: rate.3,
            slot: SlotSpec {
                min: Duration::from_nanos(slot.0.min(slot.1)),
                max: Duration::from_nanos(slot.0.max(slot.1)),
                delay: Duration::from_nanos(slot.2),
                jitter: Duration::from_nanos(slot.3.min(i32::MAX as u64)),
                packets: slot.4,
                bytes: slot.5,
            },
            slot_distribution: slot.6,
            seed: Some(seed),
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue(u32, bool),
    Dequeue(usize, u64),
    Change(Box<NetemSpec>),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the parameters, nothing is lost uncounted, a look says what comes, no wake-up is
    /// in the past, and after enough time all has left.
    #[test]
    fn nothing_is_lost_uncounted(
        spec in any_spec(),
        steps in proptest::collection::vec(prop_oneof![
            3 => (1..9_u32, any::<bool>()).prop_map(|(n, large)| Step::Enqueue(n, large)),
            3 => (0..9_usize, 0..30 * MS).prop_map(|(budget, wait)| Step::Dequeue(budget, wait)),
            1 => any_spec().prop_map(|spec| Step::Change(Box::new(spec))),
        ], 1..30),
    ) {
        let pool = pool(2048);
        let mut q = netem(spec);
        let mut cx = Cx::new(&pool);
        let (mut received, mut sent) = (0, 0);
        let counters = DropCounters::new();
        let mut now = Time(5);
        let step = |q: &mut AnyQdisc, cx: &mut Cx, budget: usize, sent: &mut u64| {
            let before = *q.stats();
            let peek = q.peek(cx.now);
            let mut out = PacketList::new();
            let next = q.dequeue(budget, &mut out, cx);
            *sent += out.wire_packets();
            match (peek, out.front()) {
                (Peek::Packet(size), Some(packet)) => {
                    assert_eq!(size.bytes, packet.wire_len());
                }
                (Peek::Packet(_), None) => assert_eq!(budget, 0),
                (Peek::Idle, _) => assert_eq!(before.qlen, 0),
                (Peek::At(time), _) => assert!(out.is_empty() && time > cx.now),
                (Peek::Unknown, _) => {}
            }
            if let Next::At(time) = next {
                assert!(time > cx.now);
            }
            assert_eq!(next == Next::Idle, q.stats().qlen == 0);
            next
        };
        for one in steps {
            match one {
                Step::Enqueue(count, is_large) => {
                    let one = |n| if is_large { large(&pool) } else { ip(&pool, 200, 2, n) };
                    let mut list: PacketList = (0..count).map(one).collect();
                    received += list.wire_packets();
                    q.enqueue(&mut list, cx.at(now));
                    let mut again = cx.reinject.take();
                    assert_eq!(std::mem::take(&mut cx.copied), again.wire_packets());
                    received += again.wire_packets();
                    q.enqueue(&mut again, &mut cx);
                    assert!(cx.reinject.is_empty());
                }
                Step::Dequeue(budget, wait) => {
                    now = now.plus_nanos(wait);
                    step(&mut q, cx.at(now), budget, &mut sent);
                }
                Step::Change(spec) => q.change(&QdiscSpec::Netem(*spec), cx.at(now)).unwrap(),
            }
            cx.dropped.settle(&counters);
            let stats = q.stats();
            prop_assert_eq!(received, sent + counters.total() + stats.queued);
            prop_assert_eq!(sent, stats.packets);
        }
        // Then without slots, which might be for ever.
        q.change(&QdiscSpec::Netem(delay(0)), cx.at(now)).unwrap();
        let mut rounds = 0;
        loop {
            match step(&mut q, cx.at(now), 64, &mut sent) {
                Next::Idle => break,
                Next::Ready => {}
                Next::At(time) => now = time,
            }
            rounds += 1;
            assert!(rounds < 1000);
        }
        prop_assert_eq!(received, sent + counters.total());
        prop_assert_eq!(q.stats().backlog, 0);
        drop(q);
        prop_assert_eq!(pool.stats().free, 2048);
    }
}

/// By the times: those that came in order are a queue, the others a heap.
#[test]
fn packets_are_sorted_by_their_times() {
    let pool = pool(256);
    let mut queue = TimeQueue::default();
    let mut random = softnet::testing::Random(5);
    let mut expected = Vec::new();
    for n in 0..256_u32 {
        let time = u64::from(random.below(100)) + u64::from(n) / 4;
        queue.push(time, packet(&pool, 60, 0, n));
        expected.push((time, n));
        if n % 3 == 0 {
            expected.sort_by_key(|&(time, _)| time);
            let first = queue.first().map(|(time, _)| time);
            assert_eq!(first, Some(expected[0].0));
            let left = queue.pop().unwrap();
            let at = expected
                .iter()
                .position(|&(_, n)| n == left.mark())
                .unwrap();
            assert_eq!(expected.remove(at).0, first.unwrap());
        }
    }
    let mut last = 0;
    while let Some((time, _)) = queue.first() {
        assert!(time >= last);
        last = time;
        let left = queue.pop().unwrap().mark();
        let at = expected.iter().position(|&(_, n)| n == left).unwrap();
        assert_eq!(expected.remove(at).0, time);
    }
    assert!(expected.is_empty());
}
