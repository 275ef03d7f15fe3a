//! Qdiscs that borrow their flows from a store with too few of them.

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::DropCounters;
use softnet::testing::{Random, pool};
use softnet::time::Time;

use crate::qdisc::kind::Kind;
use crate::testing::{MS, ip};
use crate::*;

const HANDLE: Handle = Handle::new(1, 0);

/// `N` qdiscs of one device whose store has so many pages of 16 flows.
fn qdiscs<const N: usize>(spec: &FqCodelSpec, pages: usize, pool: &Pool) -> [FqCodel; N] {
    let env = QdiscEnv {
        flows: FlowStore::of(pages),
        ..QdiscEnv::new(pool)
    };
    std::array::from_fn(|_| FqCodel::make(spec, HANDLE, &env))
}

/// With 64 flows, in 4 pages.
fn spec() -> FqCodelSpec {
    FqCodelSpec {
        flows: 64,
        ..FqCodelSpec::default()
    }
}

fn of_flow(pool: &Pool, flow: u32, mark: u32) -> Packet {
    let mut packet = ip(pool, 1000, 0, mark);
    packet.set_priority(HANDLE.class(flow as u16 + 1).raw());
    packet
}

/// Packets of these flows, marked with them, come one by one.
fn send(qdisc: &mut FqCodel, flows: &[u32], pool: &Pool) {
    let mut cx = Cx::new(pool);
    for &flow in flows {
        let mut packets = PacketList::from(of_flow(pool, flow, flow));
        let verdict = qdisc.enqueue(&mut packets, cx.at(Time(MS)));
        assert_eq!(verdict, Verdict::Queued);
    }
}

/// Marks of all packets, which leave.
fn empty(qdisc: &mut FqCodel, pool: &Pool) -> Vec<u32> {
    let mut cx = Cx::new(pool);
    let mut out = PacketList::new();
    assert_eq!(qdisc.dequeue(1000, &mut out, cx.at(Time(MS))), Next::Idle);
    assert_eq!(qdisc.listed(), 0);
    out.iter().map(Packet::mark).collect()
}

/// Packets that found no page.
fn shared(qdisc: &FqCodel) -> u64 {
    qdisc.xstats().unwrap().value(Xstat::SharedPackets).unwrap()
}

#[test]
fn flows_without_a_page_share_one_until_others_are_idle() {
    let pool = pool(64);
    let [mut busy, mut late, mut last] = qdiscs(&spec(), 4, &pool);
    send(&mut busy, &[0, 16, 32, 48, 0], &pool);
    assert_eq!((busy.listed(), shared(&busy)), (4, 0));
    // Flows of their own would alternate: in one they are in their order.
    send(&mut late, &[0, 0, 40, 40], &pool);
    assert_eq!((late.listed(), shared(&late)), (1, 4));
    assert_eq!(empty(&mut late, &pool), [0, 0, 40, 40]);
    send(&mut late, &[7], &pool);
    assert_eq!((late.listed(), shared(&late)), (1, 5));
    // It keeps two of the four.
    assert_eq!(empty(&mut busy, &pool).len(), 5);
    send(&mut late, &[7, 40], &pool);
    assert_eq!((late.listed(), shared(&late)), (2, 6), "7 stays behind 7");
    assert_eq!(empty(&mut late, &pool), [7, 7, 40]);
    // Nothing waits that may be of this flow.
    send(&mut late, &[7, 7], &pool);
    assert_eq!((late.listed(), shared(&late)), (1, 6));
    assert_eq!(empty(&mut late, &pool), [7, 7]);
    // Pages of a qdisc that goes come back, with packets or without.
    drop(late);
    send(&mut busy, &[0, 16, 32, 48], &pool);
    assert_eq!((busy.listed(), shared(&busy)), (4, 0));
    drop(busy);
    send(&mut last, &[0, 16, 32, 48], &pool);
    assert_eq!((last.listed(), shared(&last)), (4, 0));
    // And those of one whose packets are taken.
    let mut out = PacketList::new();
    last.drain(&mut out);
    assert_eq!((out.len(), last.listed()), (4, 0));
    send(&mut last, &[5], &pool);
    assert_eq!(empty(&mut last, &pool), [5]);
}

/// However many qdiscs were busy, what they keep leaves half of the store to one that is now.
#[test]
fn quiet_qdiscs_keep_half_of_the_store() {
    let pool = pool(64);
    let mut all: [FqCodel; 5] = qdiscs(&spec(), 8, &pool);
    let (last, quiet) = all.split_last_mut().unwrap();
    for qdisc in quiet.iter_mut() {
        send(qdisc, &[0, 16, 32, 48], &pool);
    }
    let sharing = quiet.iter().map(shared);
    assert_eq!(sharing.sum::<u64>(), 8, "eight of sixteen have a page");
    for qdisc in quiet {
        assert_eq!(empty(qdisc, &pool).len(), 4);
    }
    send(last, &[0, 16, 32, 48], &pool);
    assert_eq!((last.listed(), shared(last)), (4, 0));
}

/// One flow keeps the shared one from being empty: another one leaves it all the same.
#[test]
fn a_flow_leaves_the_shared_one_behind_its_packets() {
    let pool = pool(64);
    let [mut busy, mut late] = qdiscs(&spec(), 4, &pool);
    let mut cx = Cx::new(&pool);
    let mut take = |qdisc: &mut FqCodel, n| {
        let mut out = PacketList::new();
        assert_eq!(qdisc.dequeue(n, &mut out, cx.at(Time(MS))), Next::Ready);
        out.iter().map(Packet::mark).collect::<Vec<_>>()
    };
    send(&mut busy, &[0, 16, 32, 48], &pool);
    send(&mut late, &[40, 7, 40, 40], &pool);
    // Two of its pages come back.
    assert_eq!(empty(&mut busy, &pool).len(), 4);
    assert_eq!(take(&mut late, 1), [40]);
    send(&mut late, &[7, 40], &pool);
    assert_eq!((late.listed(), shared(&late)), (1, 6), "7 waits there");
    assert_eq!(take(&mut late, 4), [7, 40, 40, 7]);
    send(&mut late, &[40, 40], &pool);
    assert_eq!((late.listed(), shared(&late)), (1, 8), "so does 40");
    assert_eq!(take(&mut late, 2), [40, 40]);
    send(&mut late, &[7, 40], &pool);
    assert_eq!((late.listed(), shared(&late)), (2, 9), "7 does not");
    let mut left = empty(&mut late, &pool);
    left.sort_unstable();
    assert_eq!(left, [7, 40, 40]);
}

/// CoDel's memory of a flow goes with its page, which stays while half of the store is free.
#[test]
fn a_flow_is_remembered_while_there_are_pages() {
    for (pages, remembered) in [(2, 1), (1, 0)] {
        let pool = pool(8);
        let spec = FqCodelSpec { limit: 1, ..spec() };
        let [mut qdisc] = qdiscs(&spec, pages, &pool);
        let mut cx = Cx::new(&pool);
        let mut two: PacketList = (0..2).map(|mark| of_flow(&pool, 0, mark)).collect();
        qdisc.enqueue(&mut two, cx.at(Time(MS)));
        cx.dropped.settle(&DropCounters::new());
        assert_eq!(qdisc.stats().drops, 1);
        assert_eq!(empty(&mut qdisc, &pool), [1]);
        send(&mut qdisc, &[0], &pool);
        let (class, flow) = qdisc.classes_from(1, Time(MS)).next().unwrap();
        assert_eq!((class, flow.qlen, flow.count), (1, 1, remembered));
    }
}

/// A limit is enforced at the expense of the shared flow, too.
#[test]
fn the_shared_flow_may_be_the_largest() {
    let pool = pool(64);
    let [mut busy, mut late] = qdiscs(&spec(), 4, &pool);
    send(&mut busy, &[0, 16, 32, 48], &pool);
    send(&mut late, &[1, 2, 3, 4, 5, 6], &pool);
    let mut cx = Cx::new(&pool);
    let limited = |limit| FqCodelSpec { limit, ..spec() };
    late.change(&limited(4), cx.at(Time(MS)));
    assert_eq!((late.stats().qlen, shared(&late)), (4, 6));
    let mut one = PacketList::from(of_flow(&pool, 7, 7));
    let verdict = late.enqueue(&mut one, cx.at(Time(MS)));
    assert_eq!((verdict, late.stats().drops), (Verdict::Congestion, 5));
    late.change(&limited(0), cx.at(Time(MS)));
    assert_eq!((late.stats().qlen, late.stats().backlog), (0, 0));
}

/// INV-Q-5 with three pages for eight: two qdiscs take them from each other.
#[test]
fn inv_q_5_a_flow_that_finds_no_page_is_a_fifo() {
    let pool = pool(2048);
    let mut cx = Cx::new(&pool);
    let mut qdiscs: [FqCodel; 2] = qdiscs(&spec(), 3, &pool);
    let mut random = Random(12);
    let (mut last, mut mark, mut left) = ([[None; 64]; 2], 0, 0);
    for time in 1..4_000 {
        let now = Time(time * MS);
        // Packets come and leave in turns, so that a queue is empty now and then.
        let comes = time / 50 % 2 == 0;
        for (qdisc, last) in qdiscs.iter_mut().zip(&mut last) {
            let mut list = PacketList::new();
            for _ in 0..random.below(if comes { 6 } else { 2 }) {
                list.push_back(of_flow(&pool, random.below(64), mark));
                mark += 1;
            }
            qdisc.enqueue(&mut list, cx.at(now));
            let mut out = PacketList::new();
            let budget = random.below(if comes { 4 } else { 9 });
            qdisc.dequeue(budget as usize, &mut out, cx.at(now));
            cx.dropped.settle(&DropCounters::new());
            for packet in &out {
                let flow = Handle::from_raw(packet.priority()).minor() - 1;
                let before = last[usize::from(flow)].replace(packet.mark());
                assert!(before < Some(packet.mark()));
                left += 1;
            }
        }
    }
    let stats = qdiscs.each_ref().map(|qdisc| *qdisc.stats());
    let known: u64 = stats.iter().map(|stats| stats.qlen + stats.drops).sum();
    assert_eq!(u64::from(mark), left + known);
    let shared = qdiscs.each_ref().map(shared);
    // Some found a page, and some did not.
    assert!(shared.iter().all(|&shared| shared > 100));
    assert!(shared.iter().sum::<u64>() < u64::from(mark) * 9 / 10);
}
