//! Flows: the packets of each, and its share.

use std::time::Duration;

use softnet::testing::large_tcp;

use super::*;
use crate::testing::sparse::beside_bulk;
use crate::testing::{jain, shares};

/// Flows: by priority, by filter, else by hash; one without a hash has that of its headers, in
/// both directions.
#[test]
fn a_packets_flow() {
    let pool = pool(64);
    let mut spec = TreeSpec::new();
    spec.add(
        Handle::ROOT,
        HANDLE,
        QdiscSpec::FqCodel(FqCodelSpec::default()),
    )
    .unwrap();
    let filter = FilterSpec {
        handle: 77,
        ..FilterSpec::new(FilterKind::fw(u32::MAX), HANDLE.class(9))
    };
    spec.put_filter(FilterOp::Add, filter).unwrap();
    let mut tree = Tree::build(spec, &QdiscEnv::new(&pool)).unwrap();
    let mut cx = Cx::new(&pool);
    let new_flows = |tree: &Tree| {
        let all: Vec<_> = tree.xstats(HANDLE).unwrap().iter().collect();
        all[2].1
    };
    let mut enqueue = |tree: &mut Tree, packet: Packet| {
        tree.enqueue(&mut packet.into(), cx.at(Time(MS)));
        new_flows(tree)
    };
    assert_eq!(enqueue(&mut tree, of_flow(&pool, 60, 3, 0)), 1);
    assert_eq!(enqueue(&mut tree, of_flow(&pool, 60, 3, 1)), 1);
    assert_eq!(enqueue(&mut tree, of_flow(&pool, 60, 8, 2)), 2);
    assert_eq!(
        enqueue(&mut tree, ip(&pool, 60, 0, 77)),
        2,
        "the filter's flow 9"
    );
    let addressed = |from: u8, to: u8| {
        let mut packet = ip(&pool, 60, 0, 5);
        let bytes = packet.data_mut();
        bytes[26..30].copy_from_slice(&[10, 0, 0, from]);
        bytes[30..34].copy_from_slice(&[10, 0, 0, to]);
        packet
    };
    let flows = enqueue(&mut tree, addressed(1, 2));
    assert_eq!(enqueue(&mut tree, addressed(2, 1)), flows);
    for n in 3..30 {
        enqueue(&mut tree, addressed(1, n));
    }
    // 28 flows in 1,024 queues: fewer than 16 of them distinct is a chance below 10^-15.
    assert!(new_flows(&tree) > flows + 14);
    // Not a flow of this qdisc: by hash.
    let mut foreign = addressed(1, 2);
    foreign.set_priority(HANDLE.class(1025).raw());
    let before = new_flows(&tree);
    assert_eq!(enqueue(&mut tree, foreign), before);
}

/// BUG-CODEL-2: a flow that lost all its packets at the limit while it was being dropped from
/// starts afresh.
#[test]
fn bug_codel_2_no_state_stays_with_an_empty_flow() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let spec = FqCodelSpec {
        limit: 100,
        flows: 2,
        drop_batch: 100,
        ..FqCodelSpec::default()
    };
    let mut qdisc = fq_codel(&spec, &pool);
    let mut list: PacketList = (0..100).map(|mark| of_flow(&pool, 1000, 0, mark)).collect();
    qdisc.enqueue(&mut list, cx.at(Time(MS)));
    for time in 0..40 {
        leave(&mut qdisc, cx.at(Time((10 + 5 * time) * MS)));
    }
    let drops = qdisc.stats().drops;
    assert!(drops > 0);
    // All that is left goes for a single large frame of the other flow, at a limit of 1.
    let one = FqCodelSpec { limit: 1, ..spec };
    qdisc.change(&one, cx.at(Time(210 * MS)));
    qdisc.enqueue(
        &mut of_flow(&pool, 60, 1, 1000).into(),
        cx.at(Time(210 * MS)),
    );
    assert_eq!((qdisc.stats().qlen, qdisc.stats().backlog), (1, 60));
    cx.dropped.settle(&softnet::stats::DropCounters::new());
    // The flow gets packets again, which wait long, but not for an interval yet.
    qdisc.change(&FqCodelSpec { limit: 100, ..one }, cx.at(Time(210 * MS)));
    let mut list: PacketList = (0..10).map(|mark| of_flow(&pool, 1000, 0, mark)).collect();
    qdisc.enqueue(&mut list, cx.at(Time(211 * MS)));
    let before = qdisc.stats().drops;
    let mut out = PacketList::new();
    assert_eq!(
        qdisc.dequeue(20, &mut out, cx.at(Time(300 * MS))),
        Next::Idle
    );
    assert_eq!((out.len(), qdisc.stats().drops), (11, before));
}

/// The number of flows is that of the creation; a change of it is refused as a whole (INV-Q-10).
#[test]
fn flows_cannot_be_changed() {
    let pool = pool(8);
    let mut cx = Cx::new(&pool);
    let of = |flows, limit| {
        QdiscSpec::FqCodel(FqCodelSpec {
            flows,
            limit,
            ..Default::default()
        })
    };
    let mut tree = Tree::build(of(8, 100), &QdiscEnv::new(&pool)).unwrap();
    let handle = tree.spec().root().unwrap().handle;
    assert!(tree.edit(&mut cx).change(handle, &of(9, 50)).is_err());
    assert_eq!(tree.spec().root().unwrap().qdisc, of(8, 100));
    tree.edit(&mut cx).change(handle, &of(8, 50)).unwrap();
}

/// INV-Q-4: flows that always have packets get the same bytes, whatever their packets' sizes.
#[test]
fn inv_q_4_flows_share_alike() {
    let pool = pool(8192);
    let mut cx = Cx::new(&pool);
    let mut qdisc = fq_codel(&FqCodelSpec::default(), &pool);
    let packet = |len: usize, flow: u32| of_flow(&pool, len, flow, flow);
    let bytes = shares(&mut qdisc, 100, packet, cx.at(Time(MS)));
    assert!(jain(&bytes) > 0.999, "{} {bytes:?}", jain(&bytes));
    // In one round, a quantum and a packet apart at most.
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(most - least <= 2 * (1514 + 1514), "{least} {most}");
}

/// A flow that sends less often than once a round (15.5 ms here), 50 packets a second, is always
/// new: it waits for the packet that is being sent, beside 128 flows that send as much as they can
/// through 100 Mbit/s.
#[test]
fn a_sparse_flow_hardly_waits() {
    let pool = pool(4096);
    let qdisc = QdiscSpec::FqCodel(FqCodelSpec {
        limit: 3000,
        ..FqCodelSpec::default()
    });
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, HANDLE, qdisc).unwrap();
    let tree = Tree::build(tree, &QdiscEnv::new(&pool)).unwrap();
    let packet = |len: usize, flow: u32| of_flow(&pool, len, flow, flow);
    let [sparse, bulk] = beside_bulk(tree, packet);
    assert!(sparse.frames > 400 && sparse.p99 < 5 * MS, "{sparse:?}");
    // The queue was there: what filled it waited.
    assert!(bulk.p50 > 20 * MS, "{bulk:?}");
}

/// INV-Q-5: in each flow packets leave in the order in which they came.
#[test]
fn inv_q_5_a_flow_is_a_fifo() {
    let pool = pool(1024);
    let mut cx = Cx::new(&pool);
    let spec = FqCodelSpec {
        flows: 7,
        limit: 400,
        ..FqCodelSpec::default()
    };
    let mut qdisc = fq_codel(&spec, &pool);
    let mut random = Random(11);
    let (mut last, mut mark, mut left) = ([None; 7], 0, 0);
    for time in 0..2_000 {
        let mut list = PacketList::new();
        for _ in 0..random.below(6) {
            list.push_back(of_flow(
                &pool,
                60 + random.below(1400) as usize,
                random.below(7),
                mark,
            ));
            mark += 1;
        }
        qdisc.enqueue(&mut list, cx.at(Time((time + 1) * MS)));
        let mut out = PacketList::new();
        qdisc.dequeue(
            random.below(5) as usize,
            &mut out,
            cx.at(Time((time + 1) * MS)),
        );
        cx.dropped.settle(&softnet::stats::DropCounters::new());
        for packet in &out {
            let flow = Handle::from_raw(packet.priority()).minor() - 1;
            assert!(last[usize::from(flow)].replace(packet.mark()) < Some(packet.mark()));
            left += 1;
        }
    }
    assert!(left > 1000);
}

/// A large frame costs the credit of all its wire bytes.
#[test]
fn large_frames_pay_for_all_their_packets() {
    let pool = softnet::testing::large_pool(64);
    let mut cx = Cx::new(&pool);
    let aqm = AqmSpec {
        target: Duration::from_secs(1),
        ..AqmSpec::default()
    };
    let mut qdisc = fq_codel(
        &FqCodelSpec {
            aqm,
            ..FqCodelSpec::default()
        },
        &pool,
    );
    let mut large = large_tcp(&pool, 15_000, 1000, 1);
    large.set_priority(HANDLE.class(1).raw());
    let mut list = PacketList::from(large);
    list.push_back(of_flow(&pool, 1000, 0, 1));
    list.extend((0..30).map(|_| of_flow(&pool, 1000, 1, 2)));
    qdisc.enqueue(&mut list, cx.at(Time(MS)));
    let mut out = PacketList::new();
    qdisc.dequeue(usize::MAX >> 1, &mut out, cx.at(Time(MS)));
    let order = marks(&out);
    // 15,810 bytes are eleven quanta of 1,514: about as many packets of the other flow.
    let between = order.iter().skip(1).take_while(|&&mark| mark == 2).count();
    assert!((14..=17).contains(&between), "{order:?}");
}

/// BUG-CODEL-2: so does a flow that lost its packets because the device went down.
#[test]
fn bug_codel_2_a_drained_flow_starts_afresh() {
    let pool = pool(4096);
    let mut cx = Cx::new(&pool);
    let mut qdisc = fq_codel(&FqCodelSpec::default(), &pool);
    let fill = |qdisc: &mut FqCodel, cx: &mut Cx| {
        let mut list: PacketList = (0..1000).map(|_| of_flow(&pool, 1000, 0, 0)).collect();
        qdisc.enqueue(&mut list, cx);
    };
    fill(&mut qdisc, cx.at(Time(MS)));
    for time in 10..500 {
        leave(&mut qdisc, cx.at(Time(time * MS)));
    }
    let drops = qdisc.stats().drops;
    assert!(drops > 3);
    qdisc.drain(&mut PacketList::new());
    fill(&mut qdisc, cx.at(Time(600 * MS)));
    // Dropping begins with one packet an interval, as if it had never been.
    for time in [610, 710] {
        leave(&mut qdisc, cx.at(Time(time * MS)));
    }
    assert_eq!(qdisc.stats().drops, drops + 1);
    for time in [809, 810] {
        leave(&mut qdisc, cx.at(Time(time * MS)));
    }
    assert_eq!(qdisc.stats().drops, drops + 2);
}

/// Flows with packets are classes: from one on, so many, and of several instances together.
#[test]
fn flows_are_classes() {
    let pool = pool(64);
    let spec = FqCodelSpec {
        flows: 65_536,
        quantum: Some(300),
        ..FqCodelSpec::default()
    };
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, HANDLE, QdiscSpec::FqCodel(spec))
        .unwrap();
    let mut tree = Tree::build(tree, &QdiscEnv::new(&pool)).unwrap();
    let mut cx = Cx::new(&pool);
    for nothing in [HANDLE, Handle::new(2, 0)] {
        assert_eq!(tree.edit(&mut cx).flows(nothing, 9), Ok(Vec::new()));
    }
    let mut list = PacketList::new();
    for flow in [4, 4, 0, 65_534] {
        list.push_back(of_flow(&pool, 100, flow, 0));
    }
    let bytes = list.front().unwrap().wire_len();
    tree.enqueue(&mut list, cx.at(Time(1000)));
    let flow = |class, packets| {
        let stats = FlowStats {
            qlen: packets,
            backlog: packets * bytes,
            deficit: 300,
            sojourn: 2000,
            ..FlowStats::default()
        };
        (HANDLE.class(class), stats)
    };
    let mut flows = |from, most| {
        let live = &mut tree.edit(cx.at(Time(3000)));
        live.flows(HANDLE.class(from), most).unwrap()
    };
    assert_eq!(flows(0, 9), [flow(1, 1), flow(5, 2), flow(0xffff, 1)]);
    assert_eq!(flows(2, 1), [flow(5, 2)]);
    assert_eq!(flows(6, 9), [flow(0xffff, 1)]);
    let (small, large) = (flow(1, 1).1, flow(1, 2).1);
    let small = FlowStats { count: 7, ..small };
    assert_eq!(small.join(large), flow(1, 3).1);
    assert_eq!(large.join(small), flow(1, 3).1);
}
