//! PIE in many flows: shares, delays and limits.

use std::convert::Infallible;
use std::sync::Arc;

use softnet::mem::Pool;
use softnet::sync::PageStore;
use softnet::testing::{Random, pool};

use super::*;
use crate::sim::{SimLink, Simulator, Sojourn};
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
    const RATE: u64 = 12_500_000;
    let pool = pool(12_000);
    let qdisc = QdiscSpec::FqPie(FqPieSpec::default());
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, HANDLE, qdisc).unwrap();
    let tree = Tree::build(tree, &QdiscEnv::new(&pool)).unwrap();
    let link = SimLink {
        rate: Some(RATE),
        ..SimLink::default()
    };
    let mut simulator = Simulator::new(tree, link);
    let (mut sparse, mut bulk) = (Vec::new(), Vec::new());
    let mut depart = |time: Time, packet: &Packet| {
        let waited = time.since(packet.timestamp()).as_nanos() as u64;
        let of = if packet.mark() == 128 {
            &mut sparse
        } else {
            &mut bulk
        };
        of.push(waited);
        Ok::<(), Infallible>(())
    };
    // Twice what the link sends, for ten seconds.
    let gap = 1514 * 1_000_000_000 / (2 * RATE);
    let mut due = 0;
    for n in 0..10_000_000_000 / gap {
        let time = Time(n * gap);
        if time.0 >= due {
            let Ok(()) = simulator.arrive(of_flow(&pool, 100, 128, 128), time, &mut depart);
            due += 20 * MS;
        }
        let flow = n as u32 * 31 % 128;
        let Ok(()) = simulator.arrive(of_flow(&pool, 1514, flow, flow), time, &mut depart);
    }
    let Ok(report) = simulator.finish(&mut depart);
    assert!(report.holds());
    let (sparse, bulk) = (Sojourn::of(&sparse), Sojourn::of(&bulk));
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
        let backlogs: u64 = qdisc.flows.backlogs().map(|(_, backlog)| backlog).sum();
        assert_eq!(backlogs, stats.backlog);
    }
    assert!(xstat(&qdisc, "dropped") > 100);
}

/// Two qdiscs of one device with 64 flows each, for which the store has 2 pages of 32.
#[test]
fn flows_without_a_page_share_one_until_others_are_idle() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut env = QdiscEnv::new(&pool);
    env.flows.fq_pie = Arc::new(PageStore::new(2));
    let spec = FqPieSpec {
        flows: 64,
        ..FqPieSpec::default()
    };
    let [mut busy, mut late] = [(); 2].map(|()| FqPie::make(&spec, HANDLE, &env));
    let send = |qdisc: &mut FqPie, cx: &mut Cx, flows: &[u32]| {
        for &flow in flows {
            qdisc.enqueue(&mut of_flow(&pool, 1000, flow, flow).into(), cx);
        }
        (qdisc.flows(), xstat(qdisc, "shared_pkts"))
    };
    let empty = |qdisc: &mut FqPie, cx: &mut Cx| {
        let mut out = PacketList::new();
        assert_eq!(qdisc.dequeue(100, &mut out, cx), Next::Idle);
        out.len()
    };
    assert_eq!(send(&mut busy, &mut cx, &[0, 40]), (2, 0));
    assert_eq!(send(&mut late, &mut cx, &[0, 40]), (1, 2));
    assert_eq!(
        (empty(&mut busy, &mut cx), empty(&mut late, &mut cx)),
        (2, 2)
    );
    assert_eq!(send(&mut late, &mut cx, &[0, 40]), (2, 2));
}
