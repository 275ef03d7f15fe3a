//! `tbf` in virtual time, against what tc's manual and the kernel do.

use proptest::prelude::*;
use softnet::mem::PacketList;
use softnet::qdisc::*;
use softnet::stats::{DropCounters, DropReason};
use softnet::testing::{frame, pool};
use softnet::time::Time;

use crate::testing::alone::*;
use crate::testing::large;
use crate::*;

/// G3 of the kernel: 80 kbit/s, burst 3000, limit 6000, twelve packets of 1000 bytes: 3 leave at
/// once, 6 wait, 3 are dropped; overlimits counts each failed attempt; after a second all have
/// left.
#[test]
fn tbf_like_the_kernel() {
    let pool = pool(64);
    let mut q = build(tbf(10_000, 3000, 6000), &pool);
    let mut sent = Vec::new();
    let mut refused = 0;
    for n in 0..12 {
        if !offer(&mut q, packet(&pool, 1000, 0, n), Time::ZERO) {
            refused += 1;
        }
        sent.extend(leave(&mut q, Time::ZERO).0);
    }
    assert_eq!((sent, refused), (vec![0, 1, 2], 3));
    let stats = q.stats();
    assert_eq!(
        (stats.qlen, stats.backlog, stats.drops, stats.overlimits),
        (6, 6000, 3, 9)
    );
    assert_eq!(
        leave(&mut q, Time(SECOND / 2)).0,
        [3, 4, 5],
        "the bucket holds 3"
    );
    let (marks, next) = leave(&mut q, Time(SECOND));
    assert_eq!((marks, next), (vec![6, 7, 8], Next::Idle));
}

#[test]
fn tbf_drops_what_can_never_leave() {
    let pool = pool(64);
    let mut q = build(tbf(1000, 500, 10_000), &pool);
    let counters = DropCounters::new();
    let mut cx = cx(Time::ZERO);
    let list = [packet(&pool, 501, 0, 1), packet(&pool, 500, 0, 2)];
    q.enqueue(&mut list.into_iter().collect(), &mut cx);
    cx.dropped.settle(&counters);
    assert_eq!(counters.nonzero(), [(DropReason::QdiscOversize, 1)]);
    assert_eq!(leave(&mut q, Time::ZERO).0, [2], "the queue is not blocked");
}

/// A large frame that does not fit the bucket is cut as it leaves: its segments leave one by one,
/// and until then it takes no buffer but its own.
#[test]
fn tbf_cuts_large_frames() {
    let pool = pool(64);
    let mut q = build(tbf(1_000_000, 2000, 100_000), &pool);
    let large = large(&pool);
    let mut small = build(tbf(1_000_000, 1000, 100_000), &pool);
    let copy = large.copy(&pool).unwrap();
    assert!(offer(&mut q, large, Time::ZERO));
    assert_eq!(
        (q.stats().qlen, q.stats().queued, q.stats().backlog),
        (1, 8, 8 * 192)
    );
    let used = || pool.stats().buffers - pool.stats().free;
    let before = used();
    assert!(offer(&mut small, copy, Time::ZERO));
    assert_eq!(used(), before);
    let counts = |q: &AnyQdisc| {
        let s = q.stats();
        (s.qlen, s.queued, s.backlog, s.packets, s.bytes)
    };
    assert_eq!(counts(&small), (1, 8, 8 * 192, 0, 0));
    // What left and what waits add up at every step.
    assert_eq!(leave_at_most(&mut small, 2, Time::ZERO), (2, Next::Ready));
    assert_eq!(counts(&small), (1, 6, 6 * 192, 2, 2 * 192));
    assert_eq!(
        leave(&mut small, Time::ZERO).0.len(),
        3,
        "1000 bytes of 192"
    );
    assert_eq!(counts(&small), (1, 3, 3 * 192, 5, 5 * 192));
    // A budget that just suffices ends with nothing queued.
    let later = Time(SECOND);
    assert_eq!(leave_at_most(&mut small, 3, later), (3, Next::Idle));
    assert_eq!(counts(&small), (0, 0, 0, 8, 8 * 192));
}

/// A half-segmented frame moves, whole as it is left, where the queue's content moves, and its
/// rest is not counted as sent.
#[test]
fn tbf_gives_back_a_half_segmented_frame() {
    let pool = pool(64);
    let mut q = build(tbf(1_000_000, 1000, 100_000), &pool);
    assert!(offer(&mut q, large(&pool), Time::ZERO));
    assert_eq!(leave(&mut q, Time::ZERO).0.len(), 5);
    let mut moved = PacketList::new();
    q.drain(&mut moved);
    assert_eq!((moved.len(), moved.wire_packets()), (1, 3));
    let stats = q.stats();
    assert_eq!((stats.packets, stats.bytes), (5, 5 * 192));
    assert_eq!((stats.qlen, stats.queued, stats.backlog), (0, 0, 0));
    let mut other = build(tbf(1_000_000, 400, 100_000), &pool);
    other.enqueue(&mut moved, &mut cx(Time::ZERO));
    assert_eq!((other.stats().queued, other.stats().backlog), (3, 3 * 192));
    assert_eq!(leave(&mut other, Time::ZERO).0.len(), 2);
    assert_eq!(leave(&mut other, Time(SECOND)), (vec![0], Next::Idle));
}

/// A large frame of which no packet fits the bucket is dropped whole: not even a short last packet
/// passes.
#[test]
fn tbf_drops_a_large_frame_that_never_fits() {
    let pool = pool(64);
    let mut q = build(tbf(1_000_000, 191, 100_000), &pool);
    let mut cx = cx(Time::ZERO);
    q.enqueue(&mut large(&pool).into(), &mut cx);
    assert_eq!(cx.dropped.wire_packets(), 8);
    assert_eq!((q.stats().drops, q.stats().qlen), (1, 0));
    cx.dropped.settle(&DropCounters::new());
}

#[test]
fn tbf_peakrate_spaces_packets() {
    let pool = pool(64);
    let spec = TbfSpec {
        rate: 10_000,
        burst: 10_000,
        limit: 100_000,
        peakrate: Some(100_000),
        mtu: 1000,
        link: Default::default(),
    };
    let mut q = build(QdiscSpec::Tbf(spec), &pool);
    for n in 0..5 {
        assert!(offer(&mut q, packet(&pool, 1000, 0, n), Time::ZERO));
    }
    assert_eq!(
        leave(&mut q, Time::ZERO),
        (vec![0], Next::At(Time(10_000_000)))
    );
    assert_eq!(
        leave(&mut q, Time(10_000_000)),
        (vec![1], Next::At(Time(20_000_000)))
    );
}

/// Packets pass when there are tokens for all of them, in both buckets and with the link's framing.
#[test]
fn packets_pass_an_empty_tbf() {
    let pool = pool(16);
    let pass = |q: &mut AnyQdisc, packets, len, now| {
        let list: PacketList = (0..packets).map(|n| packet(&pool, len, 0, n)).collect();
        q.try_pass(&list, WireSum::from(&list), &mut cx(Time(now)))
    };
    const MS: u64 = 1_000_000;
    // A bucket holds one packet of 2000 bytes with its framing.
    for (peakrate, overhead, len, wait) in [
        (None, 0, 1000, 100 * MS),
        (Some(20_000), 0, 1000, 100 * MS),
        (None, 100, 900, 90 * MS),
        (Some(20_000), 100, 900, 90 * MS),
    ] {
        let spec = TbfSpec {
            rate: 10_000,
            burst: 2000,
            limit: 100_000,
            peakrate,
            mtu: 2000,
            link: LinkCost {
                overhead,
                ..LinkCost::default()
            },
        };
        let mut q = build(QdiscSpec::Tbf(spec.clone()), &pool);
        assert!(!pass(&mut q, 3, len, 0), "{spec:?}");
        assert!(pass(&mut q, 2, len, 0), "{spec:?}");
        assert!(!pass(&mut q, 1, len, wait - 1), "{spec:?}");
        assert!(pass(&mut q, 1, len, wait), "{spec:?}");
        assert_eq!((q.stats().packets, q.stats().bytes), (3, 3 * len as u64));
        // Behind others it would overtake them.
        assert!(offer(&mut q, packet(&pool, 60, 0, 9), Time(wait)));
        assert!(!pass(&mut q, 1, 60, 10 * SECOND), "{spec:?}");
        // What several instances share is theirs together.
        let env = QdiscEnv {
            parallel: true,
            ..QdiscEnv::new(&pool)
        };
        let mut tree = TreeSpec::new();
        tree.add(Handle::ROOT, Handle::NONE, QdiscSpec::Tbf(spec.clone()))
            .unwrap();
        let mut instances = DeviceTree::new(tree, 2, &env).unwrap().1.instances;
        let passed = |instances: &mut [AnyQdisc], now| {
            let tries = [0, 1, 0, 1, 0, 1];
            tries
                .iter()
                .filter(|&&at| pass(&mut instances[at], 1, len, now))
                .count()
        };
        for now in [SECOND, 10 * SECOND] {
            let passed = passed(&mut instances, now);
            assert!((1..=2).contains(&passed), "{spec:?}: {passed}");
        }
    }
}

#[test]
fn tbf_charges_for_framing() {
    let pool = pool(64);
    let env = QdiscEnv::new(&pool);
    let spec = TbfSpec {
        rate: 53_000,
        burst: 480,
        limit: 100_000,
        link: LinkCost {
            overhead: 0,
            mpu: 0,
            linklayer: LinkLayer::Atm,
        },
        ..TbfSpec::default()
    };
    // The bucket holds what a packet of 480 bytes costs: 10 cells.
    let mut queue = QdiscSpec::Tbf(spec.clone()).build(&env).unwrap();
    let mut cx = cx(Time::ZERO);
    let mut list: PacketList = (0..20).map(|n| frame(&pool, 1, 2, 60, n)).collect();
    queue.enqueue(&mut list, &mut cx);
    let mut out = PacketList::new();
    // 60 bytes are 2 cells, and a cell takes a millisecond.
    assert_eq!(
        queue.dequeue(64, &mut out, &mut cx),
        Next::At(Time(2_000_000))
    );
    assert_eq!(out.len(), 5);
    // A smaller bucket and a smaller limit: what is queued stays, as in the kernel; and what is
    // too long now does not block, as it does there (INV-Q-10).
    let mut list: PacketList = [frame(&pool, 1, 2, 400, 99)].into_iter().collect();
    queue.enqueue(&mut list, &mut cx);
    let smaller = TbfSpec {
        burst: 300,
        limit: 600,
        ..spec
    };
    queue.change(&QdiscSpec::Tbf(smaller), &mut cx).unwrap();
    assert_eq!((queue.stats().qlen, queue.stats().drops), (16, 0));
    // The bucket is full again with 7 cells, and 15 packets want 30. Then it fills for the last
    // one.
    let mut now = Time::ZERO;
    let mut times = Vec::new();
    for _ in 0..20 {
        let mut out = PacketList::new();
        let next = queue.dequeue(64, &mut out, cx.at(now));
        times.extend(
            out.iter()
                .map(|packet| (packet.mark(), now.nanos() / 1_000_000)),
        );
        match next {
            Next::At(time) => now = time,
            _ => break,
        }
    }
    assert_eq!(times[13..], [(18, 21), (19, 23), (99, 30)]);
    assert_eq!((queue.stats().drops, cx.dropped.wire_packets()), (0, 0));
    // The two cells more than the bucket holds are paid before the next packet.
    let mut list: PacketList = [frame(&pool, 1, 2, 60, 100)].into_iter().collect();
    queue.enqueue(&mut list, cx.at(now));
    assert_eq!(
        queue.dequeue(64, &mut PacketList::new(), &mut cx),
        Next::At(now.plus_nanos(4_000_000))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// INV-Q-3: with a queue that is never empty, any window carries at least `rate * T - packet`
    /// and at most `burst + rate * T`, from 1 Mb/s to 100 Gb/s and for any frame length: no
    /// rounding adds up.
    #[test]
    fn tbf_is_exact(mbit in 1_u64..100_000, len in 60_usize..1500, burst in 2_000_u64..100_000) {
        let pool = pool(600);
        let rate = mbit * 125_000;
        let mut q = build(tbf(rate, burst, 100_000), &pool);
        let (mut now, mut bytes, mut n) = (Time::ZERO, 0_u64, 0);
        for _ in 0..400 {
            while q.stats().backlog + len as u64 <= 100_000 && q.stats().qlen < 500 {
                prop_assert!(offer(&mut q, packet(&pool, len, 0, n), now));
                n += 1;
            }
            let (marks, next) = leave(&mut q, now);
            bytes += (marks.len() * len) as u64;
            let filled = u128::from(rate) * u128::from(now.0) / u128::from(SECOND);
            let allowed = burst as u128 + filled;
            prop_assert!(u128::from(bytes) <= allowed);
            // All that time has brought is used, but for what is not enough for one more packet.
            if let Next::At(time) = next {
                prop_assert!(allowed - u128::from(bytes) < len as u128 + 1);
                now = time;
            }
        }
    }

    /// INV-Q-3 for every length up to 64 KiB: while packets wait, what has left is never more than
    /// one packet from what the rate gives, so that any second has its share within 0.1 %, or
    /// within one packet where that is more.
    #[test]
    fn tbf_keeps_its_rate_over_any_second(
        (bits, unit) in (1_u64..1_000, prop_oneof![Just(1_000_000_u64), Just(100_000_000)]),
        len in prop_oneof![64_usize..1_500, 1_500_usize..65_537],
        burst in 0_u64..100_000,
    ) {
        let pool = pool(64 * 40);
        let rate = bits * unit / 8;
        // A time to leave is rounded up to a nanosecond: what that gives has to fit the bucket.
        let nanosecond = rate.div_ceil(SECOND);
        let burst = burst + len as u64 + nanosecond;
        let mut q = build(tbf(rate, burst, 1 << 30), &pool);
        let large = |mark| {
            let mut p = packet(&pool, len.min(1_500), 0, mark);
            while p.len() < len {
                let mut part = pool.alloc().unwrap();
                part.reserve(0);
                part.extend((len - p.len()).min(1_900));
                p.append_segment(part);
            }
            p
        };
        let (mut now, mut bytes, mut n) = (Time::ZERO, 0_u64, 0);
        let mut departures = Vec::new();
        for _ in 0..600 {
            while q.stats().qlen < 60 {
                prop_assert!(offer(&mut q, large(n), now));
                n += 1;
            }
            let (marks, next) = leave_at_most(&mut q, 30, now);
            bytes += (marks * len) as u64;
            if let Next::At(time) = next {
                departures.push((now, bytes));
                now = time;
            }
        }
        let most = len as u128 + u128::from(nanosecond) + 1;
        for (i, &(from, before)) in departures.iter().enumerate() {
            for &(to, after) in &departures[i + 1..] {
                let given = u128::from(rate) * u128::from(to.0 - from.0) / u128::from(SECOND);
                let left = u128::from(after - before);
                let off = left.abs_diff(given);
                prop_assert!(off <= most, "{from:?} {to:?}: {left} of {given}");
            }
        }
    }
}
