//! `fq` against a plain model of it, its fairness and pacing, and the kernel's past bugs.

mod limits;
mod model;
mod pacing;

use std::collections::HashMap;
use std::time::Duration;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::DropReason;
use softnet::testing::{large_tcp, pool};
use softnet::time::Time;

use crate::qdisc::kind::Kind;
use crate::testing::{MS, ip, jain, shares};
use crate::units::MAX_RATE;
use crate::*;

const SECOND: u64 = 1000 * MS;

fn fq(spec: &FqSpec, pool: &Pool) -> Fq {
    Fq::make(spec, Handle::NONE, &QdiscEnv::new(pool))
}

/// Packets of different hashes are of different flows.
fn by_whole_hash() -> FqSpec {
    FqSpec {
        orphan_mask: u32::MAX,
        ..FqSpec::default()
    }
}

fn xstat(qdisc: &Fq, name: &str) -> u64 {
    let mut all = qdisc.xstats().unwrap().iter();
    all.find(|(own, _)| *own == name).unwrap().1
}

/// A packet of a flow, by its number.
fn of_flow(pool: &Pool, len: usize, flow: u32, mark: u32) -> Packet {
    let mut packet = ip(pool, len, 0, mark);
    packet.set_flow_hash(flow);
    packet
}

/// The mark of what leaves now.
fn leave(fq: &mut Fq, now: u64, cx: &mut Cx) -> Option<u32> {
    let mut out = PacketList::new();
    fq.dequeue(1, &mut out, cx.at(Time(now)));
    out.front().map(Packet::mark)
}

/// Marks and times of everything that leaves until `end`, asked for at the times that it says.
fn run(fq: &mut Fq, mut now: u64, end: u64, cx: &mut Cx) -> Vec<(u32, u64)> {
    let mut left = Vec::new();
    while now < end {
        let mut out = PacketList::new();
        let next = fq.dequeue(1, &mut out, cx.at(Time(now)));
        left.extend(out.iter().map(|packet| (packet.mark(), now)));
        match next {
            Next::Idle => break,
            Next::Ready => {}
            Next::At(time) => {
                assert!(time.0 > now);
                now = time.0;
            }
        }
    }
    left
}

/// INV-Q-4: flows that always have packets get the same bytes, whatever their packets' sizes.
#[test]
fn inv_q_4_flows_share_alike() {
    let pool = pool(8192);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&by_whole_hash(), &pool);
    let packet = |len: usize, flow: u32| of_flow(&pool, len, flow, flow);
    let bytes = shares(&mut fq, 100, packet, cx.at(Time(MS)));
    assert!(jain(&bytes) > 0.999, "{} {bytes:?}", jain(&bytes));
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(most - least <= 2 * (3028 + 1514), "{least} {most}");
}

/// Nothing of many flows is lost, and each one's packets leave in their order, also in lists that
/// are longer than what is asked for ahead.
#[test]
fn packets_of_many_flows_leave_in_order() {
    const FLOWS: u32 = 5000;
    let pool = pool(8192);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&by_whole_hash(), &pool);
    for numbers in [0..FLOWS, FLOWS..6000, 6000..7000] {
        let packet = |n: u32| of_flow(&pool, 100, n * 7 % FLOWS, n);
        let mut list: PacketList = numbers.map(packet).collect();
        assert_eq!(fq.enqueue(&mut list, cx.at(Time(MS))), Verdict::Queued);
    }
    let (mut out, mut last) = (PacketList::new(), HashMap::new());
    fq.dequeue(10_000, &mut out, cx.at(Time(MS)));
    for packet in out.iter() {
        let before = last.insert(packet.flow_hash(), packet.mark());
        assert!(before < Some(packet.mark()), "{before:?}");
    }
    assert_eq!((out.len(), last.len()), (7000, FLOWS as usize));
}

/// Bands that always have packets share as their weights say, within 0.1 %.
#[test]
fn bands_share_by_weight() {
    let pool = pool(1024);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    // TC_PRIO_CONTROL, TC_PRIO_BESTEFFORT, TC_PRIO_BULK: bands 0, 1 and 2.
    let packet = |band: u32| {
        let mut packet = of_flow(&pool, 1000, band, band);
        packet.set_priority([7, 0, 2][band as usize]);
        packet
    };
    let mut list: PacketList = (0..240).map(|n| packet(n % 3)).collect();
    fq.enqueue(&mut list, cx.at(Time(MS)));
    let mut sent = [0_u64; 3];
    for _ in 0..400_000 {
        let band = leave(&mut fq, MS, &mut cx).unwrap();
        sent[band as usize] += 1;
        fq.enqueue(&mut packet(band).into(), &mut cx);
    }
    for (band, share) in [9.0, 3.0, 1.0].into_iter().enumerate() {
        let got = sent[band] as f64 / 400_000.0 * 13.0 / share;
        // The last round is not over.
        assert!((got - 1.0).abs() < 0.003, "{sent:?}");
    }
}

/// A flow that always has packets goes to the band of its latest packet, with that band's weight:
/// it does not stay where its first packet brought it.
#[test]
fn a_backlogged_flow_changes_band() {
    let pool = pool(1024);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let packet = |flow: u32, priority| {
        let mut packet = of_flow(&pool, 1000, flow, flow);
        packet.set_priority(priority);
        packet
    };
    // Flow 1 begins in band 0; its other packets are of band 2. Flow 2 is of band 1.
    let priorities = [0, 2, 0];
    fq.enqueue(&mut packet(1, 7).into(), cx.at(Time(MS)));
    for _ in 0..50 {
        for flow in [1, 2] {
            let mut list = packet(flow, priorities[flow as usize]).into();
            fq.enqueue(&mut list, cx.at(Time(MS)));
        }
    }
    let mut sent = [0_u64; 3];
    for _ in 0..200_000 {
        let flow = leave(&mut fq, MS, &mut cx).unwrap();
        sent[flow as usize] += 1;
        let mut list = packet(flow, priorities[flow as usize]).into();
        fq.enqueue(&mut list, cx.at(Time(MS)));
    }
    // The weights are 3 to 1.
    assert!(sent[1].abs_diff(50_000) < 500, "{sent:?}");
}

/// BUG-FQ-1: a packet that comes when its flow's time has come, but the flow is not served yet,
/// does not overtake what waits in it.
#[test]
fn bug_fq_1_nothing_overtakes_a_due_flow() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let mut packet = of_flow(&pool, 100, 1, 0);
    packet.set_departure_time(Time(2 * MS));
    fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    assert_eq!(leave(&mut fq, MS, &mut cx), None);
    let mut late = PacketList::from(of_flow(&pool, 100, 1, 1));
    let sum = WireSum::from(&late);
    assert!(!fq.try_pass(&late, sum, cx.at(Time(3 * MS))));
    fq.enqueue(&mut late, cx.at(Time(3 * MS)));
    assert_eq!(leave(&mut fq, 3 * MS, &mut cx), Some(0));
    assert_eq!(leave(&mut fq, 3 * MS, &mut cx), Some(1));
}

/// BUG-FQ-2: a queue that was full and is emptied takes packets again.
#[test]
fn bug_fq_2_an_emptied_queue_is_empty() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        limit: 10,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    for round in 1..3 {
        for mark in 0..14 {
            let mut packet = of_flow(&pool, 100, mark % 3, mark);
            packet.set_departure_time(Time(u64::from(mark % 2) * 9 * MS));
            fq.enqueue(&mut packet.into(), cx.at(Time(round * MS)));
        }
        assert_eq!(
            (fq.stats().qlen, xstat(&fq, "band1_drops")),
            (10, 4 * round)
        );
        assert_eq!(leave(&mut fq, round * MS, &mut cx), Some(0));
        let mut left = PacketList::new();
        fq.drain(&mut left);
        assert_eq!((left.len(), fq.stats().qlen, fq.stats().backlog), (9, 0, 0));
        assert_eq!(
            (xstat(&fq, "band1_pkts"), xstat(&fq, "throttled_flows")),
            (0, 0)
        );
    }
    // Nor does the time of a packet that is gone hold up what comes: of a flow that was throttled,
    // and of one that was about to be.
    for flow in [1, 2] {
        let mut packet = of_flow(&pool, 100, flow, 0);
        packet.set_departure_time(Time(9 * SECOND));
        fq.enqueue(&mut packet.into(), cx.at(Time(3 * MS)));
        if flow == 1 {
            assert_eq!(leave(&mut fq, 3 * MS, &mut cx), None);
            assert_eq!(xstat(&fq, "throttled_flows"), 1);
        }
    }
    fq.drain(&mut PacketList::new());
    for flow in [1, 2] {
        let mut list = of_flow(&pool, 100, flow, flow).into();
        fq.enqueue(&mut list, cx.at(Time(4 * MS)));
        assert_eq!(leave(&mut fq, 4 * MS, &mut cx), Some(flow));
    }
}

/// BUG-FQ-3, BUG-FQ-4: no quantum overflows a credit, and no weight or quantum is too small for a
/// frame of any size to leave.
#[test]
fn bug_fq_3_and_4_extreme_quanta_and_weights() {
    let check = |spec: FqSpec| QdiscSpec::Fq(spec).check().is_ok();
    let of = |quantum| FqSpec {
        quantum: Some(quantum),
        ..FqSpec::default()
    };
    assert!(check(of(1 << 20)) && check(of(0)));
    assert!(!check(of((1 << 20) + 1)));
    let weights = |weight| FqSpec {
        weights: [weight, 1 << 29, 16_384],
        ..FqSpec::default()
    };
    assert!(check(weights(16_384)));
    assert!(!check(weights(16_383)) && !check(weights(1 << 30)));
    let rates = |maxrate, low_rate_threshold| FqSpec {
        maxrate: Some(maxrate),
        low_rate_threshold,
        ..FqSpec::default()
    };
    assert!(check(rates(MAX_RATE, MAX_RATE)) && check(rates(1, 0)));
    for (maxrate, threshold) in [(0, 1), (MAX_RATE + 1, 1), (1, MAX_RATE + 1)] {
        assert!(!check(rates(maxrate, threshold)));
    }
    let pool = softnet::testing::large_pool(64);
    let mut cx = Cx::new(&pool);
    for (quantum, initial) in [(0, 0), (1 << 20, i32::MAX as u32)] {
        let spec = FqSpec {
            quantum: Some(quantum),
            initial_quantum: Some(initial),
            weights: [16_384; 3],
            ..FqSpec::default()
        };
        assert!(check(spec.clone()));
        let mut fq = fq(&spec, &pool);
        let large = |mark| {
            let mut large = large_tcp(&pool, 64_000, 8, mark);
            large.set_flow_hash(mark % 2);
            large
        };
        let mut list: PacketList = (0..40).map(large).collect();
        fq.enqueue(&mut list, cx.at(Time(MS)));
        let left = run(&mut fq, MS, MS + 1, &mut cx);
        assert_eq!(left.len(), 40);
    }
}

/// Budgets are charged in wire packets, also where a flow sends several large frames in its turn.
#[test]
fn a_run_ends_with_the_budget() {
    let pool = pool(256);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        initial_quantum: Some(1 << 20),
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    let mut list: PacketList = (0..5)
        .map(|mark| large_tcp(&pool, 1200, 150, mark))
        .collect();
    assert_eq!(list.wire_packets(), 40);
    fq.enqueue(&mut list, cx.at(Time(MS)));
    for (budget, frames) in [(1, 1), (9, 2), (8, 1), (100, 1)] {
        let mut out = PacketList::new();
        fq.dequeue(budget, &mut out, cx.at(Time(MS)));
        assert_eq!(out.len(), frames, "of a budget of {budget}");
    }
    assert_eq!((fq.stats().packets, fq.stats().qlen), (40, 0));
    assert_eq!((fq.stats().memory, fq.stats().backlog), (0, 0));
}

/// Packets of a list that nobody has looked at yet are told apart, too.
#[test]
fn a_run_ends_with_the_flow() {
    let pool = pool(256);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&by_whole_hash(), &pool);
    let flows = [0, 0, 0, 1, 1, 0, 2, 2, 2, 2, 1];
    let of = |(mark, &flow): (u32, &u8)| {
        let mut packet = ip(&pool, 100, 0, mark);
        packet.data_mut()[26..30].copy_from_slice(&[10, 0, 0, flow]);
        packet
    };
    let mut list: PacketList = (0..).zip(&flows).map(of).collect();
    fq.enqueue(&mut list, cx.at(Time(MS)));
    assert_eq!((xstat(&fq, "flows"), fq.stats().qlen), (3, 11));
    let left = run(&mut fq, MS, MS + 1, &mut cx);
    let marks: Vec<u32> = left.iter().map(|&(mark, _)| mark).collect();
    assert_eq!(marks, [0, 1, 2, 5, 3, 4, 10, 6, 7, 8, 9]);
}

/// BUG-FQ-7: packets without a socket are told apart by their headers; flows beyond the mask share
/// a queue, and with a full mask none do.
#[test]
fn bug_fq_7_flows_are_told_apart() {
    let pool = pool(256);
    let mut cx = Cx::new(&pool);
    for (orphan_mask, flows) in [(1023, 100), (0, 1), (u32::MAX, 100)] {
        let spec = FqSpec {
            orphan_mask,
            ..FqSpec::default()
        };
        let mut fq = fq(&spec, &pool);
        for n in 0..100 {
            let packet = of_flow(&pool, 100, n, n);
            fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
        }
        assert_eq!(xstat(&fq, "flows"), flows);
    }
    let mut fq = fq(&FqSpec::default(), &pool);
    for n in 0..100 {
        let mut packet = ip(&pool, 100, 0, n);
        packet.data_mut()[26..30].copy_from_slice(&[10, 0, 0, n as u8]);
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    // 100 of 1,024: fewer than 70 distinct is a chance below 10^-15.
    assert!(xstat(&fq, "flows") > 70);
}
