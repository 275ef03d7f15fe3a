//! `netem` in virtual time. Random parts are in `random_tests`.

mod child;
mod property;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, Verdict};
use softnet::stats::{DropCounters, DropReason};
use softnet::testing::pool;
use softnet::time::Time;
use softnet::wire::{fold, sum_bytes};

use super::*;
use crate::testing::alone::{build, cx, leave, offer, packet};
use crate::testing::{MS, ip, large};
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
