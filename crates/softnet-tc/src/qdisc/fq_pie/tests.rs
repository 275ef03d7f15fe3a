//! PIE in many flows: shares, delays and limits.

use softnet::mem::Pool;
use softnet::testing::{Random, pool};
use softnet::time::Time;

use super::*;
use crate::testing::sparse::beside_bulk;
use crate::testing::{MS, ip, jain, shares};
use crate::tree::{Tree, TreeSpec};

const HANDLE: Handle = Handle::new(1, 0);

fn fq_pie(spec: &FqPieSpec, pool: &Pool) -> FqPie {
    FqPie::check(spec).unwrap();
    FqPie::make(
        spec,
        HANDLE,
        &QdiscEnv {
            seed: 1,
            ..QdiscEnv::new(pool)
        },
    )
}

fn of_flow(pool: &Pool, len: usize, flow: u32, mark: u32) -> Packet {
    let mut packet = ip(pool, len, 0, mark);
    packet.set_priority(HANDLE.class(flow as u16 + 1).raw());
    packet
}

fn xstat(qdisc: &FqPie, name: &str) -> u64 {
    let stats = qdisc.xstats().unwrap();
    stats.iter().find(|(of, _)| *of == name).unwrap().1
}

/// INV-Q-4: flows that always have packets get the same bytes, whatever their packets' sizes.
#[test]
fn inv_q_4_flows_share_alike() {
    let pool = pool(8192);
    let mut cx = Cx::new(&pool);
    let mut qdisc = fq_pie(&FqPieSpec::default(), &pool);
    let packet = |len: usize, flow: u32| of_flow(&pool, len, flow, flow);
    let bytes = shares(&mut qdisc, 100, packet, cx.at(Time(MS)));
    assert!(jain(&bytes) > 0.999, "{} {bytes:?}", jain(&bytes));
}

/// A flow that sends 50 packets a second waits for the packet that is being sent, beside 128 flows
/// that send as much as they can through 100 Mbit/s.
#[test]
fn a_sparse_flow_hardly_waits() {
    let pool = pool(12_000);
    let qdisc = QdiscSpec::FqPie(FqPieSpec::default());
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, HANDLE, qdisc).unwrap();
    let tree = Tree::build(tree, &QdiscEnv::new(&pool)).unwrap();
    let packet = |len: usize, flow: u32| of_flow(&pool, len, flow, flow);
    let [sparse, bulk] = beside_bulk(tree, packet);
    assert!(sparse.frames > 400 && sparse.p99 < 5 * MS, "{sparse:?}");
    assert!(bulk.p50 > 10 * MS, "{bulk:?}");
}

/// Both limits hold, and are counted apart.
#[test]
fn limits_hold() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let list =
        |count: u32| -> PacketList { (0..count).map(|n| of_flow(&pool, 100, n, n)).collect() };
    let mut qdisc = fq_pie(
        &FqPieSpec {
            limit: 5,
            ..FqPieSpec::default()
        },
        &pool,
    );
    assert_eq!(qdisc.enqueue(&mut list(9), &mut cx), Verdict::Dropped);
    assert_eq!((qdisc.stats().qlen, xstat(&qdisc, "overlimit")), (5, 4));
    let memory = qdisc.stats().memory as u32 / 5;
    let spec = FqPieSpec {
        memory_limit: 3 * memory,
        ..FqPieSpec::default()
    };
    let mut qdisc = fq_pie(&spec, &pool);
    assert_eq!(qdisc.enqueue(&mut list(9), &mut cx), Verdict::Dropped);
    assert_eq!((qdisc.stats().qlen, xstat(&qdisc, "overmemory")), (3, 6));
    let less = FqPieSpec {
        limit: 2,
        ..spec.clone()
    };
    qdisc.change(&less, &mut cx);
    assert_eq!((qdisc.stats().qlen, qdisc.stats().drops), (2, 7));
    qdisc.change(
        &FqPieSpec {
            memory_limit: memory,
            ..spec
        },
        &mut cx,
    );
    assert_eq!((qdisc.stats().qlen, qdisc.stats().drops), (1, 8));
    assert_eq!(xstat(&qdisc, "memory_used"), memory.into());
}

/// One flow that is too fast has drops; the other has none.
#[test]
fn a_flow_pays_for_itself() {
    let pool = pool(4096);
    let mut cx = Cx::new(&pool);
    let mut qdisc = fq_pie(&FqPieSpec::default(), &pool);
    let mut left = [0_u32; 2];
    for time in 1..4_000_u64 {
        let mut list: PacketList = (0..2).map(|n| of_flow(&pool, 1500, 0, n)).collect();
        if time % 8 == 0 {
            list.push_back(of_flow(&pool, 1500, 1, 0));
        }
        qdisc.enqueue(&mut list, cx.at(Time(time * MS)));
        let mut out = PacketList::new();
        qdisc.dequeue(1, &mut out, cx.at(Time(time * MS)));
        for packet in &out {
            left[Handle::from_raw(packet.priority()).minor() as usize - 1] += 1;
        }
        cx.dropped.settle(&softnet::stats::DropCounters::new());
    }
    assert!(qdisc.stats().drops > 1000, "{left:?}");
    assert!(left[1] >= 498, "{left:?}");
}

/// Random packets and times: nothing is lost, and lengths are right.
#[test]
fn conservation() {
    let pool = pool(512);
    let mut random = Random(3);
    let law = PieLawSpec {
        ecn: true,
        alpha: 300,
        beta: 3000,
        ..PieLawSpec::default()
    };
    let spec = FqPieSpec {
        limit: 200,
        flows: 5,
        law,
        quantum: Some(300),
        ..FqPieSpec::default()
    };
    let mut qdisc = fq_pie(&spec, &pool);
    let mut cx = Cx::new(&pool);
    let (mut came, mut left, mut now) = (0, 0, 1);
    for _ in 0..5000 {
        now += u64::from(random.below(9));
        let count = random.below(9);
        let mut list: PacketList = (0..count)
            .map(|n| of_flow(&pool, 60 + random.below(1400) as usize, random.below(6), n))
            .collect();
        qdisc.enqueue(&mut list, cx.at(Time(now * MS)));
        let mut out = PacketList::new();
        let next = qdisc.dequeue(random.below(6) as usize, &mut out, cx.at(Time(now * MS)));
        came += u64::from(count);
        left += out.len() as u64;
        cx.dropped.settle(&softnet::stats::DropCounters::new());
        let stats = qdisc.stats();
        assert_eq!(came, left + stats.drops + stats.qlen);
        assert_eq!(next == Next::Idle, stats.qlen == 0);
        let backlogs: u64 = qdisc.flows.iter().map(|flow| flow.backlog).sum();
        assert_eq!(backlogs, stats.backlog);
    }
    assert!(xstat(&qdisc, "dropped") > 100);
}
