//! `fq_codel` against RFC 8290, its fairness, and the kernel's past bugs.

mod flows;
mod model;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::testing::{Random, pool};
use softnet::time::Time;

use crate::qdisc::aqm::DROPS_PER_PACKET;
use crate::qdisc::kind::Kind;
use crate::testing::codel_model::{leave, spec};
use crate::testing::{MS, ip};
use crate::*;

const HANDLE: Handle = Handle::new(1, 0);

fn fq_codel(spec: &FqCodelSpec, pool: &Pool) -> FqCodel {
    FqCodel::make(spec, HANDLE, &QdiscEnv::new(pool))
}

fn xstat(qdisc: &FqCodel, name: &str) -> u64 {
    let mut all = qdisc.xstats().unwrap().iter();
    all.find(|(own, _)| *own == name).unwrap().1
}

/// A packet of flow `flow` (0, 1, …).
fn of_flow(pool: &Pool, len: usize, flow: u32, mark: u32) -> Packet {
    let mut packet = ip(pool, len, 0, mark);
    packet.set_priority(HANDLE.class(flow as u16 + 1).raw());
    packet
}

fn marks(list: &PacketList) -> Vec<u32> {
    list.iter().map(Packet::mark).collect()
}

/// INV-Q-6: the memory limit holds when an enqueue returns, whatever the packets' sizes, and a
/// flow of empty frames is a flow.
#[test]
fn memory_is_limited() {
    let pool = pool(256);
    let mut cx = Cx::new(&pool);
    let one = pool.alloc().unwrap().memory();
    let spec = FqCodelSpec {
        memory_limit: 20 * one as u32,
        ..FqCodelSpec::default()
    };
    let mut qdisc = fq_codel(&spec, &pool);
    let mut random = Random(7);
    for mark in 0..200 {
        let mut packet = of_flow(&pool, 60, random.below(4), mark);
        for _ in 0..random.below(6) {
            packet.append_segment(ip(&pool, 1500, 0, 0));
        }
        qdisc.enqueue(&mut packet.into(), cx.at(Time(MS)));
        assert!(qdisc.stats().memory <= 20 * one);
        assert_eq!(qdisc.stats().memory, xstat(&qdisc, "memory_used"));
        cx.dropped.settle(&softnet::stats::DropCounters::new());
    }
    let drops = xstat(&qdisc, "drop_overmemory");
    assert!(drops > 0);
    assert_eq!(
        (drops, drops),
        (xstat(&qdisc, "drop_overlimit"), qdisc.stats().drops)
    );
    for _ in 0..40 {
        qdisc.enqueue(&mut pool.alloc().unwrap().into(), cx.at(Time(MS)));
    }
    assert!(qdisc.stats().memory <= 20 * one);
    let mut left = PacketList::new();
    qdisc.drain(&mut left);
    assert_eq!((qdisc.stats().qlen, qdisc.stats().memory), (0, 0));
}

/// Exactly what the limits allow is not over them.
#[test]
fn what_reaches_a_limit_stays() {
    let pool = pool(16);
    let mut cx = Cx::new(&pool);
    let one = pool.alloc().unwrap().memory() as u32;
    for (limit, memory_limit) in [(3, u32::MAX), (100, 3 * one)] {
        let spec = FqCodelSpec {
            limit,
            memory_limit,
            ..FqCodelSpec::default()
        };
        let mut qdisc = fq_codel(&spec, &pool);
        for (mark, expected) in [(0, (1, 0)), (1, (2, 0)), (2, (3, 0)), (3, (3, 1))] {
            let packet = of_flow(&pool, 60, mark, mark);
            qdisc.enqueue(&mut packet.into(), cx.at(Time(MS)));
            assert_eq!((qdisc.stats().qlen, qdisc.stats().drops), expected);
        }
        cx.dropped.settle(&softnet::stats::DropCounters::new());
    }
}

/// BUG-CODEL-1, BUG-CODEL-4, BUG-TX-20: CoDel drops while the parent looks for the next packet.
/// Every level has counted them when the call returns, and nobody counts them again.
#[test]
fn bug_codel_1_drops_under_a_parents_peek() {
    let pool = pool(256);
    let mut cx = Cx::new(&pool);
    let tbf = TbfSpec {
        rate: 100_000,
        burst: 1000,
        limit: 1,
        ..TbfSpec::default()
    };
    let mut spec = TreeSpec::new();
    spec.add(
        Handle::ROOT,
        Handle::new(9, 0),
        QdiscSpec::Prio(PrioSpec::default()),
    )
    .unwrap();
    spec.add(Handle::new(9, 2), Handle::new(8, 0), QdiscSpec::Tbf(tbf))
        .unwrap();
    let child = QdiscSpec::FqCodel(FqCodelSpec::default());
    spec.add(Handle::new(8, 1), HANDLE, child).unwrap();
    let mut tree = Tree::build(spec, &QdiscEnv::new(&pool)).unwrap();
    let mut list: PacketList = (0..200).map(|mark| of_flow(&pool, 1000, 0, mark)).collect();
    tree.enqueue(&mut list, cx.at(Time(MS)));
    let (mut left, mut dropped) = (0, 0);
    for time in 1..3_000 {
        let mut out = PacketList::new();
        tree.dequeue(64, &mut out, cx.at(Time(time * MS)));
        left += out.len() as u64;
        dropped += cx.dropped.packets().len() as u64;
        cx.dropped.settle(&softnet::stats::DropCounters::new());
        let inside = 200 - left - dropped;
        for class in tree.classes() {
            if [Handle::ROOT, Handle::new(9, 2), Handle::new(8, 1)].contains(&class.class) {
                assert_eq!(class.stats.qlen, inside, "{class:?}");
                assert_eq!(class.stats.backlog, inside * 1000);
                assert_eq!((class.stats.packets, class.stats.drops), (left, dropped));
            }
        }
    }
    assert!(dropped > 20 && left + dropped == 200, "{left} {dropped}");
}

/// BUG-CODEL-3: a quantum and a drop batch of 0 neither stand still nor go round for ever.
#[test]
fn bug_codel_3_silly_values() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let spec = FqCodelSpec {
        limit: 10,
        flows: 1,
        quantum: Some(0),
        drop_batch: 0,
        ..FqCodelSpec::default()
    };
    let mut qdisc = fq_codel(&spec, &pool);
    let mut list: PacketList = (0..20).map(|mark| ip(&pool, 1500, 0, mark)).collect();
    assert_eq!(
        qdisc.enqueue(&mut list, cx.at(Time(MS))),
        Verdict::Congestion
    );
    assert_eq!((qdisc.stats().qlen, qdisc.stats().drops), (10, 10));
    let mut out = PacketList::new();
    assert_eq!(qdisc.dequeue(64, &mut out, cx.at(Time(MS))), Next::Idle);
    assert_eq!(marks(&out), (10..20).collect::<Vec<_>>());
    for (flows, quantum) in [(0, None), (65_537, None), (1, Some((1 << 20) + 1))] {
        let spec = FqCodelSpec {
            flows,
            quantum,
            ..FqCodelSpec::default()
        };
        assert!(QdiscSpec::FqCodel(spec).check().is_err());
    }
}

/// INV-TX-12: the bound is for all flows together, some of which lose all their packets.
#[test]
fn inv_tx_12_drops_of_a_call_are_bounded() {
    let pool = pool(8192);
    let mut cx = Cx::new(&pool);
    let mut qdisc = fq_codel(&FqCodelSpec::default(), &pool);
    let round = |packets: u32, qdisc: &mut FqCodel, cx: &mut Cx| {
        for flow in 0..500 {
            let mut list: PacketList = (0..packets)
                .map(|_| of_flow(&pool, 1000, flow, flow))
                .collect();
            qdisc.enqueue(&mut list, cx);
        }
    };
    // Two packets of each flow leave, an interval apart, so that each is dropped from.
    round(12, &mut qdisc, cx.at(Time(MS)));
    let mut out = PacketList::new();
    qdisc.dequeue(1_500, &mut out, cx.at(Time(10 * MS)));
    qdisc.dequeue(1_000, &mut out, cx.at(Time(110 * MS)));
    assert_eq!(qdisc.stats().drops, 500);
    cx.dropped.settle(&softnet::stats::DropCounters::new());
    let now = Time(10_000 * MS);
    while qdisc.stats().qlen > 0 {
        let left = leave(&mut qdisc, cx.at(now));
        assert!(left.dropped.len() <= DROPS_PER_PACKET as usize);
        assert!(left.packet.is_some());
    }
    assert!(qdisc.stats().drops > 2_000);
}

/// A much lower limit costs a few looks at all flows, not one for each packet.
#[test]
fn a_change_searches_once_for_many_drops() {
    let pool = pool(8192);
    let mut cx = Cx::new(&pool);
    let spec = FqCodelSpec {
        flows: 8192,
        ..FqCodelSpec::default()
    };
    let mut qdisc = fq_codel(&spec, &pool);
    let mut list: PacketList = (0..8000)
        .map(|flow| of_flow(&pool, 100, flow, flow))
        .collect();
    qdisc.enqueue(&mut list, cx.at(Time(MS)));
    let one = FqCodelSpec { limit: 1, ..spec };
    qdisc.change(&one, cx.at(Time(MS)));
    assert_eq!((qdisc.stats().qlen, qdisc.stats().drops), (1, 7999));
    assert_eq!(xstat(&qdisc, "drop_overlimit"), 7999);
    assert!(qdisc.searches <= 2, "{}", qdisc.searches);
}

/// A lower limit is at the expense of the flows with most bytes; frames without a byte go, too.
#[test]
fn a_change_spares_thin_flows() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let mut qdisc = fq_codel(&FqCodelSpec::default(), &pool);
    let mut list: PacketList = (0..10)
        .map(|flow| of_flow(&pool, 100, flow, flow))
        .collect();
    list.extend((0..200).map(|_| of_flow(&pool, 1000, 10, 10)));
    list.extend((0..100).map(|_| of_flow(&pool, 1000, 11, 11)));
    qdisc.enqueue(&mut list, cx.at(Time(MS)));
    let limited = |limit| FqCodelSpec {
        limit,
        ..FqCodelSpec::default()
    };
    qdisc.change(&limited(50), cx.at(Time(MS)));
    let mut out = PacketList::new();
    qdisc.dequeue(50, &mut out, cx.at(Time(MS)));
    let of = |flow| marks(&out).iter().filter(|&&mark| mark == flow).count();
    assert_eq!((out.len(), (0..10).map(of).sum::<usize>()), (50, 10));
    assert!(of(10).abs_diff(of(11)) <= 10, "{} {}", of(10), of(11));
    let mut empty: PacketList = (0..20).map(|_| pool.alloc().unwrap()).collect();
    qdisc.enqueue(&mut empty, cx.at(Time(MS)));
    qdisc.change(&limited(0), cx.at(Time(MS)));
    assert_eq!(qdisc.stats().qlen, 0);
}
