//! A simulation against what can be worked out by hand, and its flows against another
//! implementation of the headers.

use std::convert::Infallible;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use softnet::mem::Pool;
use softnet::stats::DropReason;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use super::*;
use crate::*;

const SECOND: u64 = 1_000_000_000;

fn tree(nodes: &[(&str, &str, QdiscSpec)], pool: &Pool) -> Tree {
    let mut spec = TreeSpec::new();
    for (parent, handle, qdisc) in nodes {
        spec.add(
            parent.parse().unwrap(),
            handle.parse().unwrap(),
            qdisc.clone(),
        )
        .unwrap();
    }
    Tree::build(spec, &QdiscEnv::new(pool)).unwrap()
}

fn flow() -> Flow {
    Flow {
        rate: 125_000,
        size: 100..=1500,
        start: Time(5),
        duration: 10 * SECOND,
        pattern: Pattern::Constant,
        seed: 1,
        source: ([10, 0, 0, 1].into(), 1000),
        destination: ([10, 0, 0, 2].into(), 53),
        dscp: 46,
        priority: 6,
        mark: 9,
        direction: Direction::Forward,
    }
}

/// Marks and times of departure.
fn run(mut sim: Simulator, arrivals: Vec<(u64, Packet)>) -> (Vec<(u32, u64)>, Report) {
    let mut left = Vec::new();
    let mut depart = |time: Time, packet: &Packet| {
        left.push((packet.mark(), time.0));
        Ok::<(), Infallible>(())
    };
    for (time, packet) in arrivals {
        let Ok(()) = sim.arrive(packet, Time(time), &mut depart);
    }
    let Ok(report) = sim.finish(&mut depart);
    assert!(report.holds(), "{report:?}");
    (left, report)
}

/// G3 of the kernel, at exact times: 80 kbit/s, burst 3000, limit 6000, twelve packets of 1000
/// bytes at once.
#[test]
fn g3_tbf_in_virtual_time() {
    let pool = pool(64);
    let tbf = TbfSpec {
        rate: 10_000,
        burst: 3000,
        limit: 6000,
        ..TbfSpec::default()
    };
    let sim = Simulator::new(
        tree(&[("root", "1:", QdiscSpec::Tbf(tbf))], &pool),
        SimLink::default(),
    );
    let arrivals = (0..12).map(|n| (7, frame(&pool, 1, 2, 1000, n))).collect();
    let (left, report) = run(sim, arrivals);
    let expected: Vec<(u32, u64)> = (0..9)
        .map(|n| (n, 7 + u64::from(u32::saturating_sub(n, 2)) * SECOND / 10))
        .collect();
    assert_eq!(left, expected);
    let root = &report.classes[0];
    assert_eq!(root.drops, [(DropReason::QdiscLimit, 3)]);
    // 9 failed attempts of senders, and one timer for each but the last packet that waits.
    assert_eq!((root.stats.packets, root.stats.overlimits), (9, 9 + 5));
    // Percentiles are known to 0.8 %.
    let off = root.sojourn.p50.abs_diff(2 * SECOND / 10);
    assert!(off * 125 < 2 * SECOND / 10, "{:?}", root.sojourn);
    assert_eq!(root.sojourn.max, 6 * SECOND / 10);
    assert_eq!((report.span, root.rate), (6 * SECOND / 10, 120_000));
    assert_eq!(pool.stats().free, 64);
}

/// A link of 1000 bytes in 3 ns: what rounding leaves over is not lost.
#[test]
fn the_link_sends_one_after_the_other() {
    let pool = pool(64);
    let fifo = QdiscSpec::Pfifo { limit: 100 };
    let link = SimLink {
        rate: Some(1_000 * SECOND / 3),
        cost: LinkCost::default(),
    };
    let sim = Simulator::new(tree(&[("root", "1:", fifo)], &pool), link);
    let arrivals = (0..30).map(|n| (0, frame(&pool, 1, 2, 500, n))).collect();
    let (left, _) = run(sim, arrivals);
    let rate = u128::from(1_000 * SECOND / 3);
    for (n, (mark, time)) in left.into_iter().enumerate() {
        let exact = (n as u128 * 500 * u128::from(SECOND)).div_ceil(rate);
        assert_eq!((mark, u128::from(time)), (n as u32, exact));
    }
}

#[test]
fn classes_are_told_apart() {
    let pool = pool(64);
    let nodes = [
        ("root", "1:", QdiscSpec::Prio(PrioSpec::default())),
        ("1:3", "3:", QdiscSpec::Pfifo { limit: 2 }),
    ];
    let link = SimLink {
        rate: Some(1000),
        cost: LinkCost::default(),
    };
    let sim = Simulator::new(tree(&nodes, &pool), link);
    let packet = |mark: u32, priority| {
        let mut p = frame(&pool, 1, 2, 100, mark);
        p.set_priority(priority);
        p
    };
    let mut arrivals: Vec<_> = (0..5).map(|n| (0, packet(n, 2))).collect();
    arrivals.extend((10..13).map(|n| (0, packet(n, 6))));
    let (left, report) = run(sim, arrivals);
    let marks: Vec<u32> = left.iter().map(|l| l.0).collect();
    assert_eq!(marks, [0, 10, 11, 12, 1, 2]);
    let class = |name: &str| {
        let mut classes = report.classes.iter();
        classes.find(|c| c.class == name.parse().unwrap()).unwrap()
    };
    assert_eq!(class("1:1").sojourn.max, 3 * SECOND / 10);
    assert_eq!(class("1:3").sojourn.max, 5 * SECOND / 10);
    assert_eq!(class("1:3").drops, [(DropReason::QdiscLimit, 2)]);
    assert_eq!(class("root").drops, [(DropReason::QdiscLimit, 2)]);
    assert!(class("1:2").drops.is_empty() && class("1:1").drops.is_empty());
}

#[test]
fn flows_keep_their_rate_and_are_well_formed() {
    let pool = pool(4);
    for (v6, pattern) in [
        (false, Pattern::Constant),
        (true, Pattern::Poisson),
        (false, Pattern::Bursts(8)),
    ] {
        let mut flow = Flow { pattern, ..flow() };
        if v6 {
            flow.source.0 = "fd00::1".parse().unwrap();
            flow.destination.0 = "fd00::2".parse().unwrap();
        }
        let arrivals: Vec<(Time, u16)> = flow.arrivals().unwrap().collect();
        assert_eq!(
            arrivals,
            flow.arrivals().unwrap().collect::<Vec<_>>(),
            "the same again"
        );
        assert!(arrivals.is_sorted_by_key(|a| a.0) && arrivals[0].0 == Time(5));
        let bytes: u64 = arrivals.iter().map(|a| u64::from(a.1)).sum();
        let share = bytes as f64 / 1_250_000.0;
        let tolerance = if pattern == Pattern::Poisson {
            0.15
        } else {
            0.02
        };
        assert!((share - 1.0).abs() < tolerance, "{pattern:?}: {share}");
        if let Pattern::Bursts(n) = pattern {
            assert!(
                arrivals
                    .chunks_exact(n as usize)
                    .all(|burst| burst.iter().all(|a| a.0 == burst[0].0))
            );
        }
        let packet = flow.packet(arrivals[0].1, &pool).unwrap();
        assert_eq!(
            (packet.len(), packet.priority(), packet.mark()),
            (usize::from(arrivals[0].1), 6, 9)
        );
        let sliced = SlicedPacket::from_ethernet(packet.data()).unwrap();
        let Some(TransportSlice::Udp(udp)) = &sliced.transport else {
            panic!("no UDP")
        };
        assert_eq!((udp.source_port(), udp.destination_port()), (1000, 53));
        let sum = match &sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header().to_header();
                assert_eq!(header.calc_header_checksum(), header.header_checksum);
                assert_eq!(u8::from(header.dscp), 46);
                udp.to_header().calc_checksum_ipv4(&header, udp.payload())
            }
            Some(NetSlice::Ipv6(ip)) => {
                let header = ip.header().to_header();
                assert_eq!(header.traffic_class >> 2, 46);
                udp.to_header().calc_checksum_ipv6(&header, udp.payload())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(sum.unwrap(), udp.checksum());
    }
    let error = |change: fn(&mut Flow)| {
        let mut flow = flow();
        change(&mut flow);
        flow.arrivals().unwrap_err()
    };
    assert_eq!(error(|f| f.rate = 0), FlowError::Rate);
    assert_eq!(error(|f| f.size = 41..=60), FlowError::Size);
    assert_eq!(error(|f| f.size = 60..=9000), FlowError::Size);
    assert_eq!(
        error(|f| f.source.0 = "::1".parse().unwrap()),
        FlowError::Family
    );
    assert_eq!(error(|f| f.dscp = 64), FlowError::Dscp);
    assert_eq!(error(|f| f.pattern = Pattern::Bursts(0)), FlowError::Burst);
}

/// No part of a nanosecond is lost, however many packets there were.
#[test]
fn times_of_a_constant_rate_are_exact() {
    for size in [100..=100, 100..=1500] {
        let flow = Flow {
            rate: 333_333,
            size,
            ..flow()
        };
        let mut bytes = 0_u128;
        for (time, len) in flow.arrivals().unwrap() {
            assert_eq!(u128::from(time.0 - 5), bytes * u128::from(SECOND) / 333_333);
            bytes += u128::from(len);
        }
        assert!(bytes > 3_300_000, "{bytes}");
    }
}

/// Hashes are not those of the process, which differ from run to run: what is written here is what
/// came out once.
#[test]
fn flows_fall_into_the_same_queues_on_every_run() {
    let pool = pool(256);
    let spec = FqCodelSpec {
        flows: 4,
        limit: 24,
        ..FqCodelSpec::default()
    };
    let env = QdiscEnv {
        seed: 1,
        ..QdiscEnv::new(&pool)
    };
    let tree = Tree::build(QdiscSpec::FqCodel(spec), &env).unwrap();
    let link = SimLink {
        rate: Some(1000),
        cost: LinkCost::default(),
    };
    let mut sim = Simulator::new(tree, link);
    let mut order = Vec::new();
    let mut depart = |_: Time, packet: &Packet| {
        order.push(packet.mark());
        Ok::<(), Infallible>(())
    };
    for n in 0..24 {
        let flow = Flow {
            source: ([10, 0, 0, 1].into(), n as u16 % 8),
            mark: n,
            ..flow()
        };
        let Ok(()) = sim.arrive(flow.packet(100, &pool).unwrap(), Time(0), &mut depart);
    }
    let Ok(_) = sim.finish(&mut depart);
    assert_eq!(order, ORDER);
}

/// The order in which packets of eight flows leave four queues; CoDel drops the others.
const ORDER: [u32; 21] = [
    0, 1, 17, 2, 8, 12, 16, 18, 20, 3, 5, 11, 13, 19, 21, 6, 7, 14, 15, 22, 23,
];

fn matchall(class: &str, actions: &[&str]) -> FilterSpec {
    let actions = actions
        .iter()
        .map(|text| Action::new(text.parse().unwrap()));
    FilterSpec {
        actions: actions.collect(),
        ..FilterSpec::new(FilterKind::Matchall, class.parse().unwrap())
    }
}

/// There is no other link: what is redirected there is dropped, and copies are as if they had not
/// been made.
#[test]
fn what_goes_elsewhere_is_accounted_for() {
    for (actions, left) in [
        ("mirred egress redirect blockid 3", 0),
        ("mirred egress mirror blockid 3", 5),
    ] {
        let pool = pool(64);
        let mut spec = TreeSpec::new();
        let prio = QdiscSpec::Prio(PrioSpec::default());
        spec.add(Handle::ROOT, "1:".parse().unwrap(), prio).unwrap();
        spec.put_filter(FilterOp::Add, matchall("1:2", &[actions]))
            .unwrap();
        let tree = Tree::build(spec, &QdiscEnv::new(&pool)).unwrap();
        let sim = Simulator::new(tree, SimLink::default());
        let arrivals = (0..5).map(|n| (n, frame(&pool, 1, 2, 100, n as u32)));
        let (sent, report) = run(sim, arrivals.collect());
        assert_eq!((sent.len(), report.offered.0), (left, 5), "{actions}");
        let lost: Vec<_> = (left < 5)
            .then_some((DropReason::NoForward, 5))
            .into_iter()
            .collect();
        assert_eq!(report.drops, lost, "{actions}");
        assert_eq!(pool.stats().free, 64, "{actions}");
    }
}

/// Filters of `clsact` for what leaves run before the tree; changed ones from then on.
#[test]
fn clsact_drops_before_the_tree() {
    let pool = pool(64);
    let mut spec = TreeSpec::new();
    let fifo = QdiscSpec::Pfifo { limit: 100 };
    spec.add(Handle::ROOT, "1:".parse().unwrap(), fifo).unwrap();
    let mut hook = Hook::new(HookKind::Clsact);
    let filter = FilterSpec {
        parent: Side::Egress.parent(),
        class: None,
        ..matchall("1:1", &["gact drop"])
    };
    let egress = &mut hook.side_mut(Side::Egress).filters;
    egress.put(FilterOp::Add, filter).unwrap();
    spec.set_hook(Some(hook)).unwrap();
    let tree = Tree::build(spec, &QdiscEnv::new(&pool)).unwrap();
    let mut sim = Simulator::new(tree, SimLink::default());
    let mut ignore = |_: Time, _: &Packet| Ok::<(), Infallible>(());
    let Ok(()) = sim.arrive(frame(&pool, 1, 2, 100, 1), Time(1), &mut ignore);
    let (tree, cx) = sim.tree();
    tree.edit(cx).set_hook(None).unwrap();
    let (sent, report) = run(sim, vec![(2, frame(&pool, 1, 2, 100, 2))]);
    assert_eq!(sent, [(2, 2)]);
    assert_eq!(report.drops, [(DropReason::FilterDrop, 1)]);
    assert_eq!((report.offered.0, report.root().packets), (2, 1));
}

/// The classes of packets are found whatever class a flow's packet before took, and whatever
/// changes in the tree; drops of several classes at once are told apart.
#[test]
fn packets_count_where_they_were() {
    let pool = pool(64);
    let nodes = [
        ("root", "1:", QdiscSpec::Prio(PrioSpec::default())),
        ("1:1", "10:", QdiscSpec::Prio(PrioSpec::default())),
        ("10:1", "11:", QdiscSpec::Pfifo { limit: 100 }),
    ];
    let mut sim = Simulator::new(tree(&nodes, &pool), SimLink::default());
    let mut ignore = |_: Time, _: &Packet| Ok::<(), Infallible>(());
    // One flow, whose packets take turns.
    for n in 0..30 {
        let mut packet = frame(&pool, 1, 2, 100, n);
        packet.set_priority([6, 0, 2][n as usize % 3]);
        let Ok(()) = sim.arrive(packet, Time(n.into()), &mut ignore);
    }
    let (tree, cx) = sim.tree();
    let mut tree = tree.edit(cx);
    tree.delete("11:".parse().unwrap()).unwrap();
    let mut packet = frame(&pool, 1, 2, 100, 30);
    packet.set_priority(6);
    let Ok(()) = sim.arrive(packet, Time(30), &mut ignore);
    let Ok(report) = sim.finish(&mut ignore);
    let frames = |name: &str| {
        let mut classes = report.classes.iter();
        let class = classes.find(|c| c.class == name.parse().unwrap()).unwrap();
        assert_eq!(class.fair, 1.0);
        class.sojourn.frames
    };
    assert_eq!(frames("root"), 31);
    assert_eq!(["1:1", "1:2", "1:3"].map(frames), [11, 10, 10]);
    assert_eq!(["10:1", "10:2", "10:3"].map(frames), [11, 0, 0]);
}
