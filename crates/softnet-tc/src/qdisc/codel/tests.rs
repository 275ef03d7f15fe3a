//! CoDel and `codel` against the pseudo-code of RFC 8289, and the kernel's past bugs.

use std::time::Duration;

use proptest::prelude::*;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::DropReason;
use softnet::testing::{large_tcp, pool};
use softnet::time::Time;
use softnet::wire::traffic_class;

use crate::qdisc::aqm::DROPS_PER_PACKET;
use crate::qdisc::kind::Kind;
use crate::testing::codel_model::{Rfc8289, Step, Waiting, leave, spec, steps};
use crate::testing::{MS, ip};
use crate::*;

proptest! {
    /// Every packet leaves, is marked or is dropped at the moment that RFC 8289 says.
    #[test]
    fn decisions_of_rfc_8289(
        steps in steps(),
        target in 1..20_000_u64,
        interval in 1..100_000_u64,
        ecn: bool,
        limit in 1..300_u32,
    ) {
        let pool = pool(512);
        let aqm = spec(target, interval, ecn);
        let spec = CodelSpec { limit, aqm };
        let mut codel = Codel::make(&spec, Handle::NONE, &QdiscEnv::new(&pool));
        let mut cx = Cx::new(&pool);
        let mut reference = Rfc8289::new(target, interval, ecn);
        // A packet at time 0 has no time yet.
        let (mut now, mut bytes, mut mark) = (MS, 0, 0);
        for step in steps {
            match step {
                Step::Wait(micros) => now += micros * 1000,
                Step::Arrive(packets) => {
                    for (len, ect, _) in packets {
                        let mut packet = ip(&pool, len, ect.into(), mark);
                        packet.set_timestamp(Time(now));
                        codel.enqueue(&mut packet.into(), cx.at(Time(now)));
                        if reference.queue.len() < limit as usize {
                            let waiting = Waiting { mark, bytes: len as u64, time: now, ect };
                            reference.queue.push_back(waiting);
                            bytes += len as u64;
                        }
                        mark += 1;
                    }
                    cx.dropped.settle(&softnet::stats::DropCounters::new());
                }
                Step::Leave(packets) => for _ in 0..packets {
                    let mut may_drop = DROPS_PER_PACKET;
                    let expected = reference.deque(now, &mut bytes, &mut may_drop);
                    prop_assert_eq!(leave(&mut codel, cx.at(Time(now))), expected);
                },
            }
            prop_assert_eq!(codel.stats().qlen, reference.queue.len() as u64);
            prop_assert_eq!(codel.stats().backlog, bytes);
        }
    }
}

fn codel(spec: &CodelSpec, pool: &Pool) -> Codel {
    Codel::make(spec, Handle::NONE, &QdiscEnv::new(pool))
}

fn xstat(qdisc: &impl Kind, name: &str) -> u64 {
    let mut all = qdisc.xstats().unwrap().iter();
    all.find(|(own, _)| *own == name).unwrap().1
}

/// A queue of `packets` packets of 1,000 bytes that came at `time`.
fn fill(codel: &mut Codel, packets: u32, tos: u8, time: u64, cx: &mut Cx) {
    let pool = cx.pool.clone();
    let mut list: PacketList = (0..packets)
        .map(|mark| ip(&pool, 1000, tos, mark))
        .collect();
    codel.enqueue(&mut list, cx.at(Time(time)));
}

/// The distances between drops shrink with the root of their number (RFC 8289 5.6): with an
/// interval of 100 ms they are 100, 70.7, 57.7 and 50 ms.
#[test]
fn drops_come_faster() {
    let pool = pool(2048);
    let mut cx = Cx::new(&pool);
    let mut codel = codel(
        &CodelSpec {
            limit: 2000,
            ..CodelSpec::default()
        },
        &pool,
    );
    fill(&mut codel, 1500, 0, MS, &mut cx);
    let mut drops = Vec::new();
    for time in 10..1_000 {
        leave(&mut codel, cx.at(Time(time * MS)));
        if codel.stats().drops > drops.len() as u64 {
            drops.push(time);
        }
    }
    // The first above the target is at 10 ms, and the first drop an interval later.
    assert_eq!(drops[..5], [110, 210, 281, 339, 389]);
    assert_eq!(xstat(&codel, "count"), drops.len() as u64);
    assert_eq!(
        (xstat(&codel, "dropping"), xstat(&codel, "maxpacket")),
        (1, 1000)
    );
}

/// ECN-capable packets are marked, with a right checksum, and none is dropped; a frame that is
/// shared with another queue is copied first.
#[test]
fn marks_instead_of_dropping() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let aqm = AqmSpec {
        ecn: true,
        ..AqmSpec::default()
    };
    let mut codel = codel(&CodelSpec { limit: 1000, aqm }, &pool);
    fill(&mut codel, 100, 2, MS, &mut cx);
    let mut shared = ip(&pool, 1000, 2, 100);
    let other = shared.share(&pool).unwrap();
    codel.enqueue(&mut shared.into(), cx.at(Time(MS)));
    fill(&mut codel, 9, 2, MS, &mut cx);
    let mut marked = 0;
    for n in 0..100 {
        let left = leave(&mut codel, cx.at(Time((10 + n) * MS)));
        marked += u64::from(left.packet.unwrap().1);
    }
    let left = leave(&mut codel, cx.at(Time(5_000 * MS)));
    assert_eq!(left.packet, Some((100, true)));
    assert_eq!(
        traffic_class(other.data()),
        Some(2),
        "the other one's data is untouched"
    );
    assert_eq!(codel.stats().drops, 0);
    assert_eq!(xstat(&codel, "ecn_mark"), marked + 1);
    // It was given back: memory is counted as it was when the packet came.
    let mut rest = PacketList::new();
    codel.drain(&mut rest);
    assert_eq!((rest.len(), codel.stats().memory), (9, 0));
}

/// `ce_threshold` marks what waited longer, of the traffic classes that are selected.
#[test]
fn marks_above_a_threshold() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let aqm = AqmSpec {
        ce_threshold: Some(Duration::from_millis(1)),
        ce_threshold_selector: 1,
        ce_threshold_mask: 3,
        ..AqmSpec::default()
    };
    let mut codel = codel(&CodelSpec { limit: 10, aqm }, &pool);
    for (mark, tos) in [(0, 1), (1, 2), (2, 0x41), (3, 0)] {
        codel.enqueue(&mut ip(&pool, 100, tos, mark).into(), cx.at(Time(MS)));
    }
    codel.enqueue(
        &mut softnet::testing::frame(&pool, 1, 2, 60, 4).into(),
        cx.at(Time(MS)),
    );
    let mut out = PacketList::new();
    codel.dequeue(1, &mut out, cx.at(Time(2 * MS)));
    codel.dequeue(9, &mut out, cx.at(Time(2 * MS + 1)));
    let classes: Vec<_> = out
        .iter()
        .map(|packet| traffic_class(packet.data()))
        .collect();
    // The first waited exactly as long as is allowed.
    assert_eq!(classes, [Some(1), Some(2), Some(0x43), Some(0), None]);
    assert_eq!(xstat(&codel, "ce_mark"), 1);
}

/// A large frame counts as its wire packets, in one piece.
#[test]
fn large_frames_count_as_their_packets() {
    let pool = softnet::testing::large_pool(8);
    let mut cx = Cx::new(&pool);
    let mut codel = codel(&CodelSpec::default(), &pool);
    let large = large_tcp(&pool, 30_000, 1000, 1);
    let (bytes, packets) = large.wire();
    codel.enqueue(&mut large.into(), cx.at(Time(MS)));
    let stats = *codel.stats();
    assert_eq!(
        (stats.qlen, stats.queued, stats.backlog),
        (1, packets, bytes)
    );
    let mut out = PacketList::new();
    assert_eq!(codel.dequeue(1, &mut out, cx.at(Time(MS))), Next::Idle);
    assert_eq!((codel.stats().packets, codel.stats().bytes), (30, bytes));
    assert_eq!(xstat(&codel, "maxpacket"), bytes);
}

/// BUG-CODEL-5: an MTU of 64 KiB does not switch CoDel off.
#[test]
fn bug_codel_5_a_large_mtu_does_not_disable_it() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let env = QdiscEnv {
        mtu: 65_536,
        ..QdiscEnv::new(&pool)
    };
    let mut codel = Codel::make(&CodelSpec::default(), Handle::NONE, &env);
    fill(&mut codel, 40, 0, MS, &mut cx);
    for n in 0..20 {
        leave(&mut codel, cx.at(Time((10 + 10 * n) * MS)));
    }
    assert!(codel.stats().drops > 0);
}

/// BUG-TX-18, BUG-TX-19, INV-Q-10: a lower limit drops what is over it, counted once. A packet
/// that the parent has taken out to look at is the parent's, and stays.
#[test]
fn a_lower_limit_drops_the_oldest() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let tbf = TbfSpec {
        rate: 1_000_000,
        burst: 2000,
        limit: 1,
        ..TbfSpec::default()
    };
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, "1:".parse().unwrap(), QdiscSpec::Tbf(tbf))
        .unwrap();
    let limited = |limit| {
        QdiscSpec::Codel(CodelSpec {
            limit,
            ..CodelSpec::default()
        })
    };
    let codel = tree
        .add("1:1".parse().unwrap(), "2:".parse().unwrap(), limited(20))
        .unwrap();
    let mut tree = Tree::build(tree, &QdiscEnv::new(&pool)).unwrap();
    let mut list: PacketList = (0..21).map(|mark| ip(&pool, 1000, 0, mark)).collect();
    tree.enqueue(&mut list, cx.at(Time(MS)));
    assert_eq!((tree.stats().qlen, cx.dropped.wire_packets()), (20, 1));
    let mut out = PacketList::new();
    // Two leave, and tbf has taken a third out to look at it.
    tree.dequeue(9, &mut out, cx.at(Time(MS)));
    assert_eq!((out.len(), tree.stats().qlen), (2, 18));
    tree.edit(cx.at(Time(MS)))
        .change(codel, &limited(5))
        .unwrap();
    // Five in codel, and the one in tbf.
    assert_eq!((tree.stats().qlen, tree.stats().backlog), (6, 6000));
    assert_eq!(
        (tree.stats().drops, cx.dropped.wire_packets()),
        (1 + 12, 13)
    );
    let drops = cx.dropped.counts()[DropReason::QdiscLimit as usize];
    assert_eq!(drops, 13);
    tree.dequeue(9, &mut out, cx.at(Time(1_000 * MS)));
    tree.dequeue(9, &mut out, cx.at(Time(2_000 * MS)));
    let marks: Vec<u32> = out.iter().map(Packet::mark).collect();
    assert_eq!(marks[..4], [0, 1, 2, 15]);
    let xstats: Vec<_> = tree.xstats(codel).unwrap().iter().collect();
    assert_eq!(xstats[7], ("drop_overlimit", 13));
}

/// A queue of 3,000 packets that is being dropped from at `10 * MS` and later.
fn dropping(codel: &mut Codel, cx: &mut Cx) {
    fill(codel, 3_000, 0, MS, cx);
    leave(codel, cx.at(Time(10 * MS)));
    leave(codel, cx.at(Time(110 * MS)));
    assert_eq!(xstat(codel, "dropping"), 1);
}

fn long(pool: &Pool) -> Codel {
    let spec = CodelSpec {
        limit: 4_000,
        ..CodelSpec::default()
    };
    codel(&spec, pool)
}

/// BUG-CODEL-2: a queue that was emptied while it was being dropped from (the device went down, or
/// the limit was 0 for a while) starts afresh.
#[test]
fn bug_codel_2_an_emptied_queue_starts_afresh() {
    for drained in [true, false] {
        let pool = pool(4096);
        let mut cx = Cx::new(&pool);
        let mut codel = long(&pool);
        dropping(&mut codel, &mut cx);
        for time in 200..1_200 {
            leave(&mut codel, cx.at(Time(time * MS)));
        }
        if drained {
            codel.drain(&mut PacketList::new());
        } else {
            for limit in [0, 4_000] {
                let spec = CodelSpec {
                    limit,
                    ..CodelSpec::default()
                };
                codel.change(&spec, cx.at(Time(1_200 * MS)));
            }
            cx.dropped.settle(&softnet::stats::DropCounters::new());
        }
        let before = codel.stats().drops;
        fill(&mut codel, 1_000, 0, 61_000 * MS, &mut cx);
        for _ in 0..1_000 {
            leave(&mut codel, cx.at(Time(61_006 * MS)));
        }
        assert_eq!(codel.stats().drops, before, "drained: {drained}");
    }
}

/// A sender that was preempted after it had read its clock does not end the dropping: what it
/// takes out has waited as long as others have seen.
#[test]
fn time_does_not_go_back() {
    let pool = pool(4096);
    let mut cx = Cx::new(&pool);
    let mut codel = long(&pool);
    dropping(&mut codel, &mut cx);
    leave(&mut codel, cx.at(Time(2 * MS)));
    assert_eq!(
        (xstat(&codel, "dropping"), xstat(&codel, "ldelay")),
        (1, 109 * MS)
    );
    // The next drop is when it was due.
    leave(&mut codel, cx.at(Time(209 * MS)));
    assert_eq!(codel.stats().drops, 1);
    leave(&mut codel, cx.at(Time(210 * MS)));
    assert_eq!(codel.stats().drops, 2);
}

/// INV-TX-12: after a link stood still for ten seconds, thousands of drops are due. As many as one
/// packet may pay for are made; then they come as they did before.
#[test]
fn inv_tx_12_drops_of_a_call_are_bounded() {
    let pool = pool(4096);
    let mut cx = Cx::new(&pool);
    let mut codel = long(&pool);
    dropping(&mut codel, &mut cx);
    let now = 10_000 * MS;
    let left = leave(&mut codel, cx.at(Time(now)));
    assert!(left.packet.is_some());
    assert_eq!(left.dropped.len(), DROPS_PER_PACKET as usize);
    let next = now + xstat(&codel, "drop_next");
    let count = xstat(&codel, "count");
    assert_eq!(
        next - now,
        (100.0 * MS as f64 / (count as f64).sqrt()) as u64
    );
    for (time, drops) in [(now, 0), (next - 1, 0), (next, 1), (next, 0)] {
        let left = leave(&mut codel, cx.at(Time(time)));
        assert_eq!(left.dropped.len(), drops, "{time}");
    }
}

/// An interval without end never ends; one that is too short to count in is refused.
#[test]
fn extreme_intervals() {
    let of = |interval| AqmSpec {
        interval,
        ..AqmSpec::default()
    };
    for interval in [Duration::ZERO, Duration::from_nanos(999)] {
        let aqm = of(interval);
        let spec = CodelSpec {
            limit: 1,
            aqm: aqm.clone(),
        };
        assert!(QdiscSpec::Codel(spec).check().is_err());
        let spec = FqCodelSpec {
            aqm,
            ..FqCodelSpec::default()
        };
        assert!(QdiscSpec::FqCodel(spec).check().is_err());
    }
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let spec = CodelSpec {
        limit: 50,
        aqm: of(Duration::MAX),
    };
    assert!(QdiscSpec::Codel(spec.clone()).check().is_ok());
    let mut codel = codel(&spec, &pool);
    fill(&mut codel, 50, 0, MS, &mut cx);
    for second in 1..=50 {
        leave(&mut codel, cx.at(Time(second * 1_000 * MS)));
    }
    assert_eq!((codel.stats().packets, codel.stats().drops), (50, 0));
}

/// CoDel does not wait for departure times, nor does it take them for arrivals: packets that have
/// one, and come from an `fq` that was replaced, are measured from when they came.
#[test]
fn departure_times_do_not_hide_sojourns() {
    fn check(mut qdisc: impl Qdisc, pool: &Pool) {
        let mut cx = Cx::new(pool);
        let env = &QdiscEnv::new(pool);
        let mut fq = Fq::make(&FqSpec::default(), Handle::NONE, env);
        for mark in 0..100 {
            let mut packet = ip(pool, 1000, 0, mark);
            packet.set_departure_time(Time(5_000 * MS));
            fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
        }
        let mut moved = PacketList::new();
        fq.drain(&mut moved);
        qdisc.enqueue(&mut moved, cx.at(Time(2 * MS)));
        let mut out = PacketList::new();
        for n in 0..50 {
            qdisc.dequeue(1, &mut out, cx.at(Time((20 + 10 * n) * MS)));
        }
        assert!(qdisc.stats().drops > 0);
    }
    let pool = &pool(256);
    let env = &QdiscEnv::new(pool);
    check(Codel::make(&CodelSpec::default(), Handle::NONE, env), pool);
    check(
        FqCodel::make(&FqCodelSpec::default(), Handle::NONE, env),
        pool,
    );
}

/// A packet that waited for the queue's owner longer than `ce_threshold` does not pass unmarked,
/// though nothing else is queued.
#[test]
fn what_comes_late_is_marked() {
    fn check(mut qdisc: impl Qdisc, pool: &Pool) {
        let mut cx = Cx::new(pool);
        for (age, passes) in [(MS, true), (MS + 1, false)] {
            let mut packet = ip(pool, 1000, 1, 0);
            packet.set_timestamp(Time(MS));
            let mut list = PacketList::from(packet);
            let mut sum = WireSum::default();
            sum.add(list.front().unwrap());
            let cx = cx.at(Time(MS + age));
            assert_eq!(qdisc.try_pass(&list, sum, cx), passes);
            if !passes {
                qdisc.enqueue(&mut list, cx);
                assert_eq!(leave(&mut qdisc, cx).packet, Some((0, true)));
            }
        }
    }
    let pool = pool(8);
    let env = QdiscEnv::new(&pool);
    let aqm = AqmSpec {
        ce_threshold: Some(Duration::from_millis(1)),
        ..AqmSpec::default()
    };
    let spec = CodelSpec {
        limit: 10,
        aqm: aqm.clone(),
    };
    check(Codel::make(&spec, Handle::NONE, &env), &pool);
    let spec = FqCodelSpec {
        aqm,
        ..FqCodelSpec::default()
    };
    check(FqCodel::make(&spec, Handle::NONE, &env), &pool);
}
