//! Disciplines in virtual time, against what tc's manuals and the kernel do.

use std::time::Duration;

use proptest::prelude::*;

use softnet::mem::{AccountedLen, Packet, PacketList};
use softnet::qdisc::*;
use softnet::testing::{frame, pool};
use softnet::time::Time;
use softnet::wire::traffic_class;

use crate::testing::alone::*;
use crate::testing::{MS, Opaque, ip, large};
use crate::*;

/// G10 of the kernel: 12 packets of priority 2, 12 of priority 0, 6 of priority 6 into bands of 8.
#[test]
fn inv_pf_1_2_3_pfifo_fast_has_three_strict_bands() {
    let pool = pool(64);
    let mut q = build(QdiscSpec::PfifoFast { limit: 8 }, &pool);
    for (priority, count, refused) in [(2, 12, 4), (0, 12, 4), (6, 6, 0)] {
        let missed = (0..count)
            .filter(|n| {
                !offer(
                    &mut q,
                    packet(&pool, 100, priority, priority * 100 + n),
                    Time::ZERO,
                )
            })
            .count();
        assert_eq!(missed, refused);
    }
    // BUG-PF-8: a priority beyond 15 stays within the table.
    assert!(offer(
        &mut q,
        packet(&pool, 100, 0xFFFF_FFF6, 999),
        Time::ZERO
    ));
    let (marks, next) = leave(&mut q, Time::ZERO);
    let expected: Vec<u32> = (600..606)
        .chain([999])
        .chain(0..8)
        .chain(200..208)
        .collect();
    assert_eq!((marks, next), (expected, Next::Idle));
    let stats = q.stats();
    assert_eq!(
        (stats.packets, stats.bytes, stats.drops, stats.qlen),
        (23, 2300, 8, 0)
    );
}

#[test]
fn fifos_limit_frames_and_bytes() {
    let pool = pool(64);
    let mut frames = build(QdiscSpec::Pfifo { limit: 3 }, &pool);
    let mut bytes = build(QdiscSpec::Bfifo { limit: 250 }, &pool);
    let mut none = build(QdiscSpec::Pfifo { limit: 0 }, &pool);
    let admitted = |q: &mut AnyQdisc| {
        (0..5)
            .filter(|&n| offer(q, packet(&pool, 100, 0, n), Time::ZERO))
            .count()
    };
    assert_eq!(
        (
            admitted(&mut frames),
            admitted(&mut bytes),
            admitted(&mut none)
        ),
        (3, 2, 0)
    );
    assert!(
        offer(&mut bytes, packet(&pool, 50, 0, 9), Time::ZERO),
        "exactly the limit"
    );
    assert_eq!(bytes.stats().backlog, 250);
    assert_eq!(leave(&mut frames, Time::ZERO), (vec![0, 1, 2], Next::Idle));
    let mut out = PacketList::new();
    assert_eq!(bytes.dequeue(2, &mut out, &mut cx(Time::ZERO)), Next::Ready);
    assert_eq!((out.len(), bytes.stats().qlen), (2, 1));
}

/// Budgets are in wire packets: a frame with which the budget is used up is the last.
#[test]
fn budgets_are_charged_in_wire_packets() {
    let pool = pool(64);
    let fast = || QdiscSpec::PfifoFast { limit: 100 };
    for spec in [
        QdiscSpec::Pfifo { limit: 100 },
        fast(),
        QdiscSpec::Prio(PrioSpec::default()),
    ] {
        let mut q = build(spec.clone(), &pool);
        for _ in 0..4 {
            assert!(offer(&mut q, large(&pool), Time::ZERO));
        }
        // Another band, where there are bands.
        assert!(offer(&mut q, packet(&pool, 100, 2, 9), Time::ZERO));
        assert_eq!(
            leave_at_most(&mut q, 1, Time::ZERO),
            (1, Next::Ready),
            "{spec:?}"
        );
        assert_eq!(
            leave_at_most(&mut q, 9, Time::ZERO),
            (2, Next::Ready),
            "{spec:?}"
        );
        assert_eq!(
            leave_at_most(&mut q, 8, Time::ZERO),
            (1, Next::Ready),
            "{spec:?}"
        );
        assert_eq!(
            leave_at_most(&mut q, 8, Time::ZERO),
            (1, Next::Idle),
            "{spec:?}"
        );
    }
}

#[test]
fn bad_parameters_are_named() {
    let check = |rate, burst, peakrate, mtu| {
        QdiscSpec::Tbf(TbfSpec {
            rate,
            burst,
            limit: 0,
            peakrate,
            mtu,
            link: Default::default(),
        })
        .check()
    };
    let wrong = |result| match result {
        Err(SpecError::Parameter {
            kind: "tbf",
            parameter,
            ..
        }) => parameter,
        other => panic!("{other:?}"),
    };
    assert_eq!(wrong(check(0, 1, None, 0)), "rate");
    assert_eq!(wrong(check(1, 0, None, 0)), "burst");
    assert_eq!(wrong(check(1, 1 << 32, None, 0)), "burst");
    assert_eq!(wrong(check(10, 1, Some(10), 1)), "peakrate");
    assert_eq!(wrong(check(10, 1, Some(11), 0)), "mtu");
    assert_eq!(check(10, 1, Some(11), 1), Ok(()));
    let limit = |limit| {
        QdiscSpec::Tbf(TbfSpec {
            limit,
            rate: 1,
            burst: 1,
            ..TbfSpec::default()
        })
        .check()
    };
    assert_eq!(limit(1 << 50), Ok(()));
    assert_eq!(wrong(limit((1 << 50) + 1)), "limit");
    let rate = units::Rate::bytes_per_second(units::MAX_RATE);
    let long = TbfSpec::with_latency(rate, units::ByteSize(1), Duration::MAX);
    assert_eq!(QdiscSpec::Tbf(long).check(), Ok(()));
}

#[test]
fn pfifo_head_drop_keeps_the_newest() {
    let pool = pool(16);
    let env = QdiscEnv::new(&pool);
    let spec = QdiscSpec::PfifoHeadDrop { limit: 3 };
    let mut queue = spec.build(&env).unwrap();
    let mut cx = cx(Time::ZERO);
    let mut list: PacketList = (0..5).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    queue.enqueue(&mut list, &mut cx);
    let gone: Vec<u32> = cx.dropped.packets().iter().map(Packet::mark).collect();
    assert_eq!(
        (gone, queue.stats().drops, queue.stats().packets),
        (vec![0, 1], 2, 0)
    );
    // Below a smaller limit a packet still replaces one packet, as in the kernel.
    let smaller = QdiscSpec::PfifoHeadDrop { limit: 1 };
    queue.change(&smaller, &mut cx).unwrap();
    assert_eq!(queue.stats().qlen, 3);
    queue.enqueue(&mut frame(&pool, 1, 2, 100, 9).into(), &mut cx);
    let mut out = PacketList::new();
    queue.dequeue(9, &mut out, &mut cx);
    assert_eq!(out.iter().map(Packet::mark).collect::<Vec<_>>(), [3, 4, 9]);
    assert_eq!((queue.stats().drops, queue.stats().backlog), (3, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// INV-Q-1, INV-Q-2: after every operation the lengths are those of what is inside, and
    /// enqueued = left + refused + inside.
    #[test]
    fn lengths_are_right_after_every_step(
        kind in 0..4_u32,
        steps in proptest::collection::vec((0..3_u8, 60..400_usize, 0..20_u32), 1..80),
    ) {
        let pool = pool(256);
        let spec = match kind {
            0 => QdiscSpec::Pfifo { limit: 7 },
            1 => QdiscSpec::Bfifo { limit: 1500 },
            2 => QdiscSpec::PfifoFast { limit: 4 },
            _ => tbf(10_000, 500, 2000),
        };
        let mut q = build(spec, &pool);
        let mut inside = std::collections::BTreeMap::new();
        let (mut lengths, mut now) = (0, Time::ZERO);
        for (n, (step, len, priority)) in steps.into_iter().enumerate() {
            match step {
                0 | 1 => {
                    if offer(&mut q, packet(&pool, len, priority, n as u32), now) {
                        inside.insert(n as u32, len as u64);
                    } else {
                        lengths += 1;
                    }
                }
                _ => {
                    now = now.plus_nanos(SECOND / 100);
                    for mark in leave(&mut q, now).0 {
                        prop_assert!(inside.remove(&mark).is_some());
                    }
                }
            }
            let stats = q.stats();
            prop_assert_eq!(stats.qlen, inside.len() as u64);
            prop_assert_eq!(stats.backlog, inside.values().sum::<u64>());
            prop_assert_eq!((stats.queued, stats.drops), (stats.qlen, lengths));
        }
        let mut rest = PacketList::new();
        q.drain(&mut rest);
        prop_assert_eq!((rest.len(), q.stats().qlen, q.stats().backlog), (inside.len(), 0, 0));
        drop(rest);
        prop_assert_eq!(pool.stats().free, 256);
    }

}

/// INV-TX-9: what a caller is told of its packets, as the kernel tells it.
#[test]
fn inv_tx_9_verdicts() {
    let pool = pool(64);
    let enqueue = |q: &mut AnyQdisc, lens: &[usize]| {
        let mut list: PacketList = lens.iter().map(|&len| packet(&pool, len, 0, 0)).collect();
        let mut cx = cx(Time::ZERO);
        let verdict = q.enqueue(&mut list, &mut cx);
        (verdict, cx.dropped.wire_packets())
    };
    use Verdict::{Congestion, Dropped as Lost, Queued};
    let head_drop = QdiscSpec::PfifoHeadDrop { limit: 1 };
    let tree = |parent, below: QdiscSpec| {
        let mut tree = TreeSpec::new();
        let name = tree.add(Handle::ROOT, Handle::new(1, 0), parent).unwrap();
        tree.add(name.class(1), Handle::NONE, below).unwrap();
        QdiscSpec::Tree(tree)
    };
    let prio = QdiscSpec::Prio(PrioSpec {
        bands: 2,
        priomap: [0; 16],
    });
    for (spec, verdicts) in [
        (QdiscSpec::Pfifo { limit: 1 }, [(Queued, 0), (Lost, 1)]),
        (QdiscSpec::Bfifo { limit: 100 }, [(Queued, 0), (Lost, 1)]),
        (QdiscSpec::PfifoFast { limit: 1 }, [(Queued, 0), (Lost, 1)]),
        (head_drop.clone(), [(Queued, 0), (Congestion, 1)]),
        (
            QdiscSpec::PfifoHeadDrop { limit: 0 },
            [(Lost, 1), (Lost, 1)],
        ),
        (tbf(1, 100, 100), [(Queued, 0), (Lost, 1)]),
        (tbf(1, 99, 1000), [(Lost, 1), (Lost, 1)]),
        (
            tree(tbf(1, 100, 0), head_drop.clone()),
            [(Queued, 0), (Congestion, 1)],
        ),
        (tree(prio, head_drop), [(Queued, 0), (Congestion, 1)]),
    ] {
        let mut q = build(spec.clone(), &pool);
        let is = [enqueue(&mut q, &[100]), enqueue(&mut q, &[100])];
        assert_eq!(is, verdicts, "{spec:?}");
    }
    // Of several the worst.
    let mut q = build(QdiscSpec::Bfifo { limit: 150 }, &pool);
    assert_eq!(enqueue(&mut q, &[100, 60, 50]), (Lost, 1));
}

/// One that has no look of its own.
#[test]
fn a_qdisc_that_cannot_be_looked_into_says_that_it_is_empty() {
    let pool = pool(8);
    let mut q = Opaque(Pfifo::new(1));
    assert_eq!(q.peek(Time::ZERO), Peek::Idle);
    let one = packet(&pool, 60, 0, 0);
    assert_eq!(
        q.enqueue(&mut one.into(), &mut cx(Time::ZERO)),
        Verdict::Queued
    );
    assert_eq!(q.peek(Time::ZERO), Peek::Unknown);
}

/// As a packet that a filter's action took: no qdisc above counts it as lost.
#[test]
fn inv_tx_9_a_stolen_packet_is_neither_queued_nor_dropped() {
    #[derive(Debug)]
    struct Steals(QdiscStats);
    impl Qdisc for Steals {
        fn enqueue(&mut self, packets: &mut PacketList, _: &mut Cx) -> Verdict {
            drop(packets.take());
            Verdict::Stolen
        }
        fn dequeue(&mut self, _: usize, _: &mut PacketList, _: &mut Cx) -> Next {
            Next::Idle
        }
        fn drain(&mut self, _: &mut PacketList) {}
        fn stats(&self) -> &QdiscStats {
            &self.0
        }
    }
    let pool = pool(8);
    let mut tree = TreeSpec::new();
    let name = tree
        .add(Handle::ROOT, Handle::NONE, tbf(1, 2000, 0))
        .unwrap();
    let spec = CustomSpec::new("steals", |_| Box::new(Steals(QdiscStats::default())));
    tree.add(name.class(1), Handle::NONE, QdiscSpec::Custom(spec))
        .unwrap();
    let mut q = build(QdiscSpec::Tree(tree), &pool);
    let mut cx = cx(Time::ZERO);
    let verdict = q.enqueue(&mut packet(&pool, 60, 0, 0).into(), &mut cx);
    assert_eq!((verdict, cx.dropped.wire_packets()), (Verdict::Stolen, 0));
    assert_eq!(*q.stats(), QdiscStats::default());
}

/// INV-Q-1, INV-Q-11: a packet that shares its data is copied to be marked. The copy is in other
/// memory, and counts as the packet did.
#[test]
fn a_copy_that_is_marked_counts_as_the_packet() {
    let pool = pool(256);
    let curve = RedCurve {
        min: 100,
        max: 100,
        ..RedCurve::default()
    };
    let aqm = AqmSpec {
        target: Duration::ZERO,
        interval: Duration::from_micros(1),
        ecn: true,
        ..AqmSpec::default()
    };
    for spec in [
        QdiscSpec::Codel(CodelSpec {
            aqm: aqm.clone(),
            ..CodelSpec::default()
        }),
        QdiscSpec::FqCodel(FqCodelSpec {
            aqm,
            ..FqCodelSpec::default()
        }),
        QdiscSpec::Fq(FqSpec {
            ce_threshold: Some(Duration::ZERO),
            ..FqSpec::default()
        }),
        QdiscSpec::Red(RedSpec {
            limit: 1 << 20,
            curve: curve.clone(),
            ecn: true,
            ..RedSpec::default()
        }),
        QdiscSpec::Sfq(SfqSpec {
            red: Some(curve),
            ecn: true,
            headdrop: true,
            ..SfqSpec::default()
        }),
        // Beyond the step; the law stays out of it.
        QdiscSpec::DualPi2(DualPi2Spec {
            tupdate: Duration::from_secs(1000),
            ..DualPi2Spec::default()
        }),
        QdiscSpec::Cake(CakeSpec {
            rtt: Duration::from_millis(1),
            ..CakeSpec::default()
        }),
    ] {
        let mut q = build(spec.clone(), &pool);
        let mut others = PacketList::new();
        for mark in 0..20 {
            let mut other = ip(&pool, 1000, 1, mark);
            let mut packet = other.share(&pool).unwrap();
            let (each, last) = (1100, 1100);
            packet.set_accounted(Some(AccountedLen { each, last }));
            q.enqueue(&mut packet.into(), &mut cx(Time(MS)));
            others.push_back(other);
        }
        assert_eq!(q.stats().backlog, 20 * 1100, "{spec:?}");
        let mut out = PacketList::new();
        for n in 1..=20 {
            q.dequeue(1, &mut out, &mut cx(Time(n * 100 * MS)));
        }
        let is_marked = |packet: &Packet| traffic_class(packet.data()).unwrap() & 3 == 3;
        assert!(out.iter().any(is_marked), "{spec:?}");
        assert!(!others.iter().any(is_marked), "{spec:?}");
        let stats = q.stats();
        let left = (stats.qlen, stats.bytes, stats.backlog, stats.memory);
        assert_eq!(left, (0, 20 * 1100, 0, 0), "{spec:?}");
    }
}
