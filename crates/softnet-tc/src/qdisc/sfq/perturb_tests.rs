//! Other keys as time goes by: what becomes of flows, and of their packets.

use std::time::Duration;

use softnet::testing::pool;

use super::tests::{all, of, sfq};
use super::*;
use crate::qdisc::red::RedCurve;
use crate::testing::ip;

const SECOND: u64 = 1_000_000_000;

/// Another key puts flows elsewhere and keeps the order in each; it is that of the period, however
/// many calls there were.
#[test]
fn flows_are_hashed_anew() {
    let pool = pool(512);
    let spec = SfqSpec {
        perturb: Duration::from_secs(2),
        limit: Some(400),
        ..SfqSpec::default()
    };
    let hashed = |mark: u32| {
        let mut packet = ip(&pool, 100, 0, mark);
        packet.set_flow_hash(mark % 40);
        packet
    };
    let (mut often, mut seldom) = (sfq(&spec, &pool), sfq(&spec, &pool));
    let mut cx = Cx::new(&pool);
    let before = often.seed;
    for qdisc in [&mut often, &mut seldom] {
        let mut list: PacketList = (0..200).map(hashed).collect();
        qdisc.enqueue(&mut list, cx.at(Time(SECOND)));
    }
    for time in 2..30 {
        often.dequeue(0, &mut PacketList::new(), cx.at(Time(time * SECOND)));
        assert_eq!(often.stats().qlen, 200);
    }
    seldom.dequeue(0, &mut PacketList::new(), cx.at(Time(29 * SECOND)));
    assert_eq!(often.seed, seldom.seed);
    assert_ne!(often.seed, before);
    let left = all(&mut often, &mut cx);
    assert_eq!(left.len(), 200);
    for flow in 0..40 {
        let of_flow: Vec<u32> = left
            .iter()
            .copied()
            .filter(|mark| mark % 40 == flow)
            .collect();
        assert!(of_flow.is_sorted(), "{of_flow:?}");
    }
    seldom.drain(&mut PacketList::new());
    assert_eq!(seldom.stats().qlen, 0);
}

/// Packets that find no place under another key are dropped, and counted.
#[test]
fn flows_that_are_hashed_together_may_lose() {
    let pool = pool(64);
    let spec = SfqSpec {
        perturb: Duration::from_secs(1),
        divisor: 4,
        depth: 5,
        ..SfqSpec::default()
    };
    let mut qdisc = sfq(&spec, &pool);
    let mut cx = Cx::new(&pool);
    // Their priorities name four queues; their headers are those of one flow.
    let mut list: PacketList = (0..20)
        .map(|n| of(&pool, 100 + n, n as u32 % 4, 0))
        .collect();
    let verdict = qdisc.enqueue(&mut list, cx.at(Time(SECOND)));
    assert_eq!((verdict, qdisc.stats().qlen), (Verdict::Queued, 20));
    qdisc.dequeue(0, &mut PacketList::new(), cx.at(Time(2 * SECOND)));
    assert_eq!((qdisc.stats().qlen, qdisc.stats().drops), (5, 15));
    assert_eq!(cx.dropped.wire_packets(), 15);
    cx.dropped.settle(&softnet::stats::DropCounters::new());
    // Those of the flow whose turn was first.
    let bytes: u64 = (0..5).map(|n| 100 + 4 * n).sum();
    assert_eq!(qdisc.stats().backlog, bytes);
    assert_eq!(all(&mut qdisc, &mut cx).len(), 5);
    assert_eq!(qdisc.stats().backlog, 0);
}

/// RED's average of a flow under another key is what its packets make it.
#[test]
fn averages_are_made_anew() {
    let pool = pool(64);
    let curve = RedCurve {
        min: 50_000,
        max: 100_000,
        wlog: 2,
        max_p: 1 << 30,
        ..RedCurve::default()
    };
    let spec = SfqSpec {
        perturb: Duration::from_secs(1),
        red: Some(curve),
        ..SfqSpec::default()
    };
    let mut qdisc = sfq(&spec, &pool);
    let mut cx = Cx::new(&pool);
    let average = |qdisc: &Sfq| {
        let mut slots = qdisc.slots.slots.iter();
        let busy = slots.find(|slot| !slot.packets.is_empty());
        busy.unwrap().average.value
    };
    let mut list: PacketList = (0..20).map(|mark| ip(&pool, 200, 0, mark)).collect();
    qdisc.enqueue(&mut list, cx.at(Time(SECOND)));
    let before = average(&qdisc);
    assert!(before > 2_000 << 2, "{before}");
    qdisc.dequeue(0, &mut PacketList::new(), cx.at(Time(2 * SECOND)));
    assert_eq!(average(&qdisc), before);
    // Of fewer packets it is less.
    qdisc.dequeue(18, &mut PacketList::new(), cx.at(Time(2 * SECOND)));
    assert_eq!(average(&qdisc), before);
    qdisc.dequeue(0, &mut PacketList::new(), cx.at(Time(3 * SECOND)));
    assert_eq!(average(&qdisc), 200);
}

/// Under the keys of 16,000 periods a flow is in each queue as often as in another (chi-squared),
/// and two flows share one as often as chance has it.
#[test]
fn keys_are_as_good_as_chance() {
    const QUEUES: usize = 16;
    const PERIODS: u64 = 16_000;
    let pool = pool(8);
    let spec = SfqSpec {
        perturb: Duration::from_secs(1),
        divisor: QUEUES as u32,
        ..SfqSpec::default()
    };
    let mut qdisc = sfq(&spec, &pool);
    let mut cx = Cx::new(&pool);
    for hash in [7, 8] {
        let mut packet = ip(&pool, 100, 0, hash);
        packet.set_flow_hash(hash);
        qdisc.enqueue(&mut packet.into(), cx.at(Time(SECOND)));
    }
    let (mut counts, mut together) = ([0_u32; QUEUES], 0);
    for period in 1..=PERIODS {
        let now = Time((1 + period) * SECOND);
        qdisc.dequeue(0, &mut PacketList::new(), cx.at(now));
        let mut slots = qdisc.slots.slots.iter();
        let its = slots.find(|slot| slot.packets.iter().any(|packet| packet.mark() == 7));
        let slot = its.unwrap();
        counts[slot.bucket as usize] += 1;
        together += u64::from(slot.packets.len() == 2);
    }
    let each = PERIODS as f64 / QUEUES as f64;
    let squares = counts
        .iter()
        .map(|&count| (f64::from(count) - each).powi(2) / each);
    let chi: f64 = squares.sum();
    // With 15 degrees of freedom above 60 less than once in 10^6.
    assert!(chi < 60.0, "{chi} {counts:?}");
    // Six standard deviations.
    assert!(
        (together as f64 - each).abs() < 6.0 * each.sqrt(),
        "{together}"
    );
}
