//! Random early detection against the paper, the kernel and tc.

use std::time::Duration;

use softnet::mem::Pool;
use softnet::testing::{Random, pool};
use softnet::wire::traffic_class;

use super::*;
use crate::testing::{MS, ip};

/// 5,000 bytes to 15,000, a weight of 1/16.
fn spec() -> RedSpec {
    let curve = RedCurve {
        min: 5_000,
        max: 15_000,
        wlog: 4,
        plog: 18,
        cell_log: 4,
        max_p: 1 << 30,
    };
    RedSpec {
        limit: 60_000,
        curve,
        ..RedSpec::default()
    }
}

fn red(spec: &RedSpec, pool: &Pool) -> Red {
    spec.check().unwrap();
    Red::make(spec, Handle::new(1, 0), &QdiscEnv::new(pool))
}

fn xstat(red: &Red, name: &str) -> u64 {
    let stats = red.xstats().unwrap();
    stats.iter().find(|(of, _)| *of == name).unwrap().1
}

/// The average is `avg * (1 - W) + length * W` of the paper, less what its fixed point rounds off.
#[test]
fn the_average_is_that_of_the_paper() {
    for wlog in [1, 4, 9] {
        let curve = RedCurve {
            wlog,
            ..spec().curve
        };
        let (law, mut average) = (Law::new(&curve), Average::default());
        let (mut exact, mut random) = (0.0, Random(5));
        let weight = 0.5_f64.powi(wlog.into());
        for _ in 0..20_000 {
            let backlog = u64::from(random.below(60_000));
            law.count(&mut average, backlog);
            exact = exact * (1.0 - weight) + backlog as f64 * weight;
            let shown = average.value as f64 * weight;
            assert!(
                shown >= exact - 1.0 && shown <= exact + 2.0,
                "{shown} {exact}"
            );
        }
    }
}

/// Between the thresholds packets between two marks are as many as drawn from 1 to `1/p` (the
/// paper's second method): chi-squared over 100,000 marks.
#[test]
fn marks_are_as_far_apart_as_the_paper_has_it() {
    const MOST: usize = 16;
    // At three quarters between the thresholds: 1/4 of `2^30`, 3/4 of it.
    let curve = RedCurve {
        max_p: ((1_u64 << 32) / 12) as u32,
        ..spec().curve
    };
    let (law, mut draws) = (Law::new(&curve), Draws::new(7));
    let mut average = Average::default();
    average.value = (5_000 + 7_500) << 4;
    let (mut gaps, mut gap) = ([0_u32; MOST + 2], 0);
    for _ in 0..100_000 * (MOST + 1) / 2 {
        gap += 1;
        if law.decide(&mut average, &mut draws) == Action::Early {
            gaps[gap.min(MOST + 1)] += 1;
            gap = 0;
        }
    }
    let marks: u32 = gaps.iter().sum();
    assert_eq!(gaps[0], 0);
    // Rounding leaves a few beyond the last.
    assert!(gaps[MOST + 1] < marks / 1000, "{gaps:?}");
    let each = f64::from(marks) / MOST as f64;
    let squares = gaps[1..=MOST]
        .iter()
        .map(|&n| (f64::from(n) - each).powi(2) / each);
    let chi: f64 = squares.sum();
    // With 15 degrees of freedom above 60 less than once in 10^6.
    assert!(chi < 60.0, "{chi} {gaps:?}");
}

/// Below `min` nothing is marked, at `max` everything.
#[test]
fn thresholds_and_flags() {
    let pool = pool(256);
    // Bits of ECN, flags, and what becomes of a packet at `max`.
    let rows = [
        (0, (false, false, false), (1, 0)),
        (1, (false, false, false), (1, 0)),
        (0, (true, false, false), (1, 0)),
        (1, (true, false, false), (0, 1)),
        (1, (true, true, false), (1, 0)),
        (0, (true, false, true), (0, 0)),
        (0, (true, true, true), (1, 0)),
    ];
    for (ecn, (marks, harddrop, nodrop), expected) in rows {
        let spec = RedSpec {
            ecn: marks,
            harddrop,
            nodrop,
            ..spec()
        };
        let mut red = red(&spec, &pool);
        let mut cx = Cx::new(&pool);
        red.average.value = 4_999 << 4;
        let one = |red: &mut Red, cx: &mut Cx| {
            red.enqueue(&mut ip(&pool, 1000, ecn, 0).into(), cx);
        };
        one(&mut red, &mut cx);
        assert_eq!((red.stats().qlen, red.stats().overlimits), (1, 0));
        red.average.value = 20_000 << 4;
        one(&mut red, &mut cx);
        let (early, marked) = (xstat(&red, "early"), xstat(&red, "marked"));
        assert_eq!((early, marked), expected, "{spec:?}");
        assert_eq!((red.stats().overlimits, red.stats().drops), (1, expected.0));
        let mut out = PacketList::new();
        red.dequeue(9, &mut out, &mut cx);
        let last = out.iter().last().unwrap();
        let is_marked = traffic_class(last.data()).unwrap() & 3 == 3;
        assert_eq!(is_marked, marked == 1);
        cx.dropped.settle(&softnet::stats::DropCounters::new());
    }
}

/// The average falls while nothing waits, as the table says; the first part of a cell linearly.
#[test]
fn an_idle_queue_is_forgotten() {
    let law = Law::new(&spec().curve);
    let mut average = Average::default();
    average.value = 16_000;
    let mut stab = [0; 256];
    (stab[2], stab[3], stab[255]) = (1, 2, 31);
    // Cells are of 16 us.
    let after = |micros: u64| law.after_idle(&average, micros * 1000, &stab);
    assert_eq!([after(0), after(4), after(15)], [16_000, 12_000, 8_000]);
    assert_eq!([after(32), after(48), after(1 << 40)], [8_000, 4_000, 0]);
    let pool = pool(64);
    let mut red = red(
        &RedSpec {
            stab: Box::new(stab),
            ..spec()
        },
        &pool,
    );
    let mut cx = Cx::new(&pool);
    let mut list: PacketList = (0..20).map(|_| ip(&pool, 1000, 0, 0)).collect();
    red.enqueue(&mut list, cx.at(Time(MS)));
    let full = red.average.value;
    assert!(full > 5_000 << 4);
    red.dequeue(64, &mut PacketList::new(), cx.at(Time(2 * MS)));
    red.enqueue(
        &mut ip(&pool, 1000, 0, 0).into(),
        cx.at(Time(2 * MS + 48_000)),
    );
    assert_eq!(red.average.value, full >> 2);
}

/// Packets that the class refuses are counted apart; a lower limit is the class's.
#[test]
fn the_class_has_the_limit() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let small = RedSpec {
        limit: 3_500,
        ..spec()
    };
    let mut red = red(&small, &pool);
    let mut list: PacketList = (0..5).map(|mark| ip(&pool, 1000, 0, mark)).collect();
    assert_eq!(red.enqueue(&mut list, &mut cx), Verdict::Dropped);
    assert_eq!((red.stats().qlen, xstat(&red, "pdrop")), (3, 2));
    red.change(
        &RedSpec {
            limit: 10_000,
            ..small
        },
        &mut cx,
    );
    let mut list: PacketList = (0..5).map(|mark| ip(&pool, 1000, 0, mark)).collect();
    assert_eq!(red.enqueue(&mut list, &mut cx), Verdict::Queued);
    assert_eq!((red.stats().qlen, red.stats().drops), (8, 2));
}

/// The probability is brought to where the average is in the middle, in steps of at most 1 %, and
/// is the same whether calls come every half second or after an hour.
#[test]
fn adaptive_red_does_not_depend_on_calls() {
    let pool = pool(64);
    let adaptive = RedSpec {
        adaptive: true,
        ..spec()
    };
    let run = |step: u64, average: u64, total: u64| {
        let mut red = red(&adaptive, &pool);
        let mut cx = Cx::new(&pool);
        red.enqueue(&mut ip(&pool, 1000, 0, 0).into(), cx.at(Time(MS)));
        red.average.value = average << 4;
        for time in (0..=total).step_by(step as usize) {
            red.dequeue(0, &mut PacketList::new(), cx.at(Time((1 + time) * MS)));
        }
        let found = red.law.max_p();
        assert_eq!(xstat(&red, "max_p"), found.into());
        red.change(&adaptive, &mut cx);
        assert_eq!(xstat(&red, "max_p"), spec().curve.max_p.into());
        found
    };
    let start = f64::from(spec().curve.max_p);
    let percent = 2_f64.powi(32) / 100.0;
    for (average, expected) in [
        (14_000, start + 6.0 * percent),
        (10_000, start),
        (5_000, start * 0.9_f64.powi(6)),
    ] {
        let often = run(100, average, 3_000);
        assert_eq!(often, run(3_000, average, 3_000));
        assert!(
            (f64::from(often) / expected - 1.0).abs() < 1e-6,
            "{often} {expected}"
        );
    }
    for average in [14_000, 5_000] {
        assert_eq!(
            run(500, average, 3_600_000),
            run(3_600_000, average, 3_600_000)
        );
    }
    assert!(f64::from(run(3_600_000, 14_000, 3_600_000)) > 49.9 * percent);
}

/// A tenth more comes than leaves, for a minute: the probability becomes one with which the average
/// is in the middle between the thresholds; one of 2 % that stays leaves it at `max`.
#[test]
fn adaptive_red_finds_the_probability() {
    const STEP: u64 = 800_000;
    let pool = pool(512);
    for (adaptive, expected) in [(true, 52_000..68_000), (false, 85_000..95_000)] {
        let curve = RedCurve {
            min: 30_000,
            max: 90_000,
            wlog: 6,
            cell_log: 4,
            max_p: ((1_u64 << 32) / 50) as u32,
            ..RedCurve::default()
        };
        let spec = RedSpec {
            limit: 400_000,
            curve,
            adaptive,
            ..RedSpec::default()
        };
        let mut red = red(&spec, &pool);
        let mut cx = Cx::new(&pool);
        let mut sum = 0;
        for step in 0..75_000 {
            let now = Time(MS + step * STEP);
            let count = if step % 10 == 0 { 2 } else { 1 };
            let mut list: PacketList = (0..count).map(|n| ip(&pool, 1000, 0, n)).collect();
            red.enqueue(&mut list, cx.at(now));
            red.dequeue(1, &mut PacketList::new(), cx.at(now));
            cx.dropped.settle(&softnet::stats::DropCounters::new());
            if step >= 50_000 {
                sum += red.average.value >> spec.curve.wlog;
            }
        }
        let mean = sum / 25_000;
        assert!(expected.contains(&mean), "{adaptive} {mean}");
    }
}

/// Weights and tables are those that tc 7.3 sent as Linux was recorded.
#[test]
fn numbers_are_those_of_tc() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/options-aqm.txt"
    );
    let text = std::fs::read_to_string(file).unwrap();
    for (command, (min, max), burst, avpkt, bandwidth, probability) in [
        (
            "add dev d0 root handle 1: red limit 1M avpkt 1500 min 100K max 300K",
            (102_400, 307_200),
            113,
            1500,
            1_250_000,
            0.02,
        ),
        (
            "change dev d0 root handle 1: red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 ecn",
            (30_000, 90_000),
            55,
            1000,
            1_250_000,
            0.02,
        ),
        (
            "change dev d0 root handle 1: red limit 9000 avpkt 100 bandwidth 100mbit probability 0.1",
            (750, 2250),
            12,
            100,
            12_500_000,
            0.1,
        ),
    ] {
        let line = format!("$ qdisc {command}\n> red ");
        let (_, sent) = text.split_once(&line).expect(command);
        let sent = sent.lines().next().unwrap();
        let bytes: Vec<u8> = (0..sent.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&sent[at..at + 2], 16).unwrap())
            .collect();
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((number(8), number(12)), (min, max), "{command}");
        let (wlog, plog, cell_log) = (bytes[16], bytes[17], bytes[18]);
        assert_eq!(red_weight(min, burst, avpkt), Some(wlog), "{command}");
        assert_eq!(red_probability_log(min, max, probability), Some(plog));
        let (log, table) = red_idle_table(wlog, avpkt, bandwidth).unwrap();
        assert_eq!((log, &table[..]), (cell_log, &bytes[24..280]), "{command}");
        assert_eq!(number(284), (probability * 2_f64.powi(32)) as u32);
    }
    assert_eq!(red_weight(30_000, 5, 1000), None);
    assert_eq!(red_probability_log(5, 4, 0.02), None);
}

/// Random packets and times: nothing is lost, and lengths are right.
#[test]
fn conservation() {
    let pool = pool(512);
    let mut random = Random(3);
    for seed in 0..20 {
        let spec = RedSpec {
            ecn: seed % 2 == 0,
            nodrop: seed % 4 == 0,
            adaptive: seed % 3 == 0,
            limit: 1 + random.below(40_000),
            ..spec()
        };
        let mut red = red(&spec, &pool);
        let mut cx = Cx::new(&pool);
        let (mut came, mut left, mut now) = (0, 0, Duration::ZERO);
        for _ in 0..400 {
            now += Duration::from_micros(random.below(3_000).into());
            let time = Time(now.as_nanos() as u64);
            let count = random.below(9);
            let mut list: PacketList = (0..count)
                .map(|mark| {
                    ip(
                        &pool,
                        60 + random.below(1400) as usize,
                        mark as u8 & 3,
                        mark,
                    )
                })
                .collect();
            red.enqueue(&mut list, cx.at(time));
            let mut out = PacketList::new();
            red.dequeue(random.below(6) as usize, &mut out, cx.at(time));
            came += u64::from(count);
            left += out.len() as u64;
            cx.dropped.settle(&softnet::stats::DropCounters::new());
            let stats = red.stats();
            assert_eq!(came, left + stats.drops + stats.qlen);
            assert_eq!(xstat(&red, "early") + xstat(&red, "pdrop"), stats.drops);
        }
    }
}
