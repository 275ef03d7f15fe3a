//! Stochastic fairness queueing against the kernel and lists that are searched.

use softnet::mem::Pool;
use softnet::testing::{Random, pool};
use softnet::wire::traffic_class;

use super::*;
use crate::qdisc::red::RedCurve;
use crate::testing::{MS, ip, jain, shares};

const HANDLE: Handle = Handle::new(1, 0);

pub(super) fn sfq(spec: &SfqSpec, pool: &Pool) -> Sfq {
    spec.check().unwrap();
    Sfq::make(
        spec,
        HANDLE,
        &QdiscEnv {
            seed: 1,
            ..QdiscEnv::new(pool)
        },
    )
}

/// A packet of a queue.
pub(super) fn of(pool: &Pool, len: usize, flow: u32, mark: u32) -> Packet {
    let mut packet = ip(pool, len, 1, mark);
    packet.set_priority(HANDLE.class(flow as u16 + 1).raw());
    packet
}

fn marks(list: &PacketList) -> Vec<u32> {
    list.iter().map(Packet::mark).collect()
}

pub(super) fn all(sfq: &mut Sfq, cx: &mut Cx) -> Vec<u32> {
    let mut out = PacketList::new();
    sfq.dequeue(usize::MAX >> 1, &mut out, cx);
    marks(&out)
}

/// Parameters are cut to each other as in the kernel (`sfq_change`).
#[test]
fn parameters_limit_each_other() {
    let rows = [
        ((None, 128, 1024, 127), (127, 128, 127)),
        ((Some(1000), 128, 1024, 127), (1000, 128, 127)),
        ((Some(8), 128, 1024, 127), (8, 8, 127)),
        ((Some(1000), 20, 1024, 10), (200, 20, 10)),
        ((Some(1000), 128, 16, 10), (160, 16, 10)),
        (
            (Some(1 << 30), 1 << 20, 1 << 16, 500),
            (65_408 * 127, 65_408, 127),
        ),
    ];
    for ((limit, flows, divisor, depth), expected) in rows {
        let spec = SfqSpec {
            limit,
            flows,
            divisor,
            depth,
            ..SfqSpec::default()
        };
        spec.check().unwrap();
        let shown = spec.effective();
        assert_eq!((shown.limit.unwrap(), shown.flows, shown.depth), expected);
    }
    for (limit, flows, divisor) in [(2, 1, 1024), (2, 128, 1), (1, 128, 1024)] {
        let limit = Some(limit);
        let spec = SfqSpec {
            limit,
            flows,
            divisor,
            depth: 1,
            ..SfqSpec::default()
        };
        assert!(spec.check().is_err());
    }
}

/// New flows wait for the others; each sends a quantum.
#[test]
fn flows_take_turns() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut sfq = sfq(&SfqSpec::default(), &pool);
    for (flow, mark) in [(0, 0), (0, 1), (0, 2), (1, 10), (1, 11), (2, 20)] {
        sfq.enqueue(&mut of(&pool, 1000, flow, mark).into(), &mut cx);
    }
    // 1,514 bytes: two packets in the first round, then one and two by turns.
    assert_eq!(all(&mut sfq, &mut cx), [0, 1, 10, 11, 20, 2]);
    assert_eq!(sfq.stats().qlen, 0);
}

/// Flows that always have packets get the same bytes, whatever their sizes (INV-Q-4).
#[test]
fn inv_q_4_flows_share_alike() {
    let pool = pool(8192);
    let mut cx = Cx::new(&pool);
    let spec = SfqSpec {
        limit: Some(8000),
        divisor: 128,
        ..SfqSpec::default()
    };
    let mut sfq = sfq(&spec, &pool);
    let packet = |len: usize, flow: u32| of(&pool, len, flow, flow);
    let bytes = shares(&mut sfq, 100, packet, cx.at(Time(MS)));
    assert!(jain(&bytes) > 0.999, "{} {bytes:?}", jain(&bytes));
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(most - least <= 2 * (1514 + 1514), "{least} {most}");
}

/// At the limit the longest flow loses its newest packet, or with `headdrop` its oldest; of several
/// the one that became so last. Where all have one, the first loses it.
#[test]
fn the_longest_flow_loses() {
    let pool = pool(64);
    for (headdrop, kept) in [(false, 0), (true, 1)] {
        let mut cx = Cx::new(&pool);
        let spec = SfqSpec {
            limit: Some(4),
            headdrop,
            ..SfqSpec::default()
        };
        let mut sfq = sfq(&spec, &pool);
        for (flow, mark) in [(0, 0), (0, 1), (1, 10), (2, 20)] {
            sfq.enqueue(&mut of(&pool, 100, flow, mark).into(), &mut cx);
        }
        // Flow 0 has two: it loses one for a packet of another.
        let verdict = sfq.enqueue(&mut of(&pool, 100, 3, 30).into(), &mut cx);
        assert_eq!((verdict, sfq.stats().qlen), (Verdict::Queued, 4));
        // All have one: no slot is free for a fifth, so that it is the one that is dropped.
        let verdict = sfq.enqueue(&mut of(&pool, 100, 4, 40).into(), &mut cx);
        assert_eq!((verdict, sfq.stats().drops), (Verdict::Dropped, 2));
        let left = all(&mut sfq, &mut cx);
        assert_eq!(left, [kept, 10, 20, 30]);
        // A flow that loses its own says so.
        for mark in 0..5 {
            let verdict = sfq.enqueue(&mut of(&pool, 100, 0, mark).into(), &mut cx);
            assert_eq!(verdict == Verdict::Congestion, mark == 4);
        }
        let expected = if headdrop { [1, 2, 3, 4] } else { [0, 1, 2, 3] };
        assert_eq!(all(&mut sfq, &mut cx), expected);
    }
}

/// A flow of `depth` packets takes no more, or with `headdrop` loses its oldest.
#[test]
fn a_flow_has_a_depth() {
    let pool = pool(64);
    for (headdrop, verdict, left) in [
        (false, Verdict::Dropped, [0, 1, 2]),
        (true, Verdict::Congestion, [2, 3, 4]),
    ] {
        let mut cx = Cx::new(&pool);
        let spec = SfqSpec {
            depth: 3,
            headdrop,
            ..SfqSpec::default()
        };
        let mut sfq = sfq(&spec, &pool);
        let mut list: PacketList = (0..5)
            .map(|mark| of(&pool, 100 + mark as usize, 0, mark))
            .collect();
        assert_eq!(sfq.enqueue(&mut list, &mut cx), verdict);
        assert_eq!((sfq.stats().qlen, sfq.stats().drops), (3, 2));
        let bytes: u32 = left.iter().map(|mark| 100 + mark).sum();
        assert_eq!(sfq.stats().backlog, bytes.into());
        assert_eq!(all(&mut sfq, &mut cx), left);
    }
}

/// RED in each flow marks or drops, and counts which.
#[test]
fn red_in_a_flow() {
    let pool = pool(256);
    let curve = RedCurve {
        min: 1000,
        max: 3000,
        wlog: 1,
        max_p: 1 << 31,
        ..RedCurve::default()
    };
    let stat = |sfq: &Sfq, name: &str| {
        let found = sfq.xstats().unwrap().iter().find(|(of, _)| *of == name);
        found.unwrap().1
    };
    for (ecn, harddrop, headdrop) in [
        (false, false, false),
        (true, false, false),
        (true, true, false),
        (true, false, true),
    ] {
        let mut cx = Cx::new(&pool);
        let red = Some(curve.clone());
        let spec = SfqSpec {
            red,
            ecn,
            harddrop,
            headdrop,
            ..SfqSpec::default()
        };
        let mut sfq = sfq(&spec, &pool);
        let mut list: PacketList = (0..60).map(|mark| of(&pool, 200, 0, mark)).collect();
        sfq.enqueue(&mut list, &mut cx);
        let [early, forced] = ["prob", "forced"].map(|kind| {
            ["drop", "mark", "mark_head"].map(|what| stat(&sfq, &format!("{kind}_{what}")))
        });
        let which = |counts: [u64; 3]| counts.map(|count| count > 0);
        let expected = match (ecn, harddrop, headdrop) {
            (false, ..) => ([true, false, false], [true, false, false]),
            (_, true, _) => ([false, true, false], [true, false, false]),
            (_, _, true) => ([false, false, true], [false, false, true]),
            _ => ([false, true, false], [false, true, false]),
        };
        assert_eq!(
            (which(early), which(forced)),
            expected,
            "{early:?} {forced:?}"
        );
        let dropped = early[0] + forced[0];
        assert_eq!(
            (sfq.stats().drops, sfq.stats().qlen),
            (dropped, 60 - dropped)
        );
        let mut out = PacketList::new();
        sfq.dequeue(99, &mut out, &mut cx);
        let marked = out
            .iter()
            .filter(|p| traffic_class(p.data()).unwrap() & 3 == 3);
        let marked = marked.count() as u64;
        // Of the oldest, one may be marked again and again.
        let counted = early[1] + forced[1];
        assert!(if headdrop {
            marked == 1
        } else {
            marked == counted
        });
        cx.dropped.settle(&softnet::stats::DropCounters::new());
    }
}

/// Against lists that are searched: what is dropped, and from which flow.
#[test]
fn slots_find_the_longest() {
    let pool = pool(512);
    let mut random = Random(9);
    for round in 0..60 {
        let mut cx = Cx::new(&pool);
        let (limit, depth) = (2 + random.below(40), 1 + random.below(9));
        let spec = SfqSpec {
            limit: Some(limit),
            depth,
            flows: 12,
            headdrop: round % 2 == 0,
            ..SfqSpec::default()
        };
        if spec.check().is_err() {
            continue;
        }
        let mut qdisc = sfq(&spec, &pool);
        let (mut came, mut left) = (0, 0);
        for mark in 0..600 {
            qdisc.enqueue(&mut of(&pool, 60, random.below(14), mark).into(), &mut cx);
            came += 1;
            let lens = qdisc.slots.slots.iter().map(|slot| slot.packets.len());
            let longest = lens.clone().max().unwrap();
            assert_eq!(qdisc.slots.longest(), longest);
            let found = qdisc.slots.find_longest();
            assert_eq!(qdisc.slots.at(found).packets.len(), longest);
            let lens = qdisc.slots.slots.iter().map(|slot| slot.packets.len());
            assert_eq!(lens.sum::<usize>() as u64, qdisc.stats().qlen);
            assert!(qdisc.stats().qlen <= limit.into() && longest <= depth as usize);
            if random.below(3) == 0 {
                let mut out = PacketList::new();
                qdisc.dequeue(random.below(5) as usize, &mut out, &mut cx);
                left += out.len() as u64;
            }
            cx.dropped.settle(&softnet::stats::DropCounters::new());
            assert_eq!(came, left + qdisc.stats().drops + qdisc.stats().qlen);
        }
    }
}
