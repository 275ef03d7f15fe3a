//! PIE against RFC 8033.

use std::convert::Infallible;
use std::time::Duration;

use proptest::prelude::*;
use softnet::mem::{Packet, Pool};
use softnet::testing::{Random, pool};

use super::law::{ONE, Pie as State};
use super::*;
use crate::qdisc::draws::Draws;
use crate::sim::{SimLink, Simulator};
use crate::testing::{MS, ip};
use crate::tree::{Tree, TreeSpec};

const TICK: f64 = 64e-9;

fn pie(spec: &PieSpec, pool: &Pool) -> Pie {
    Pie::make(
        spec,
        Handle::new(1, 0),
        &QdiscEnv {
            seed: 1,
            ..QdiscEnv::new(pool)
        },
    )
}

fn xstat(pie: &Pie, name: &str) -> u64 {
    let stats = pie.xstats().unwrap();
    stats.iter().find(|(of, _)| *of == name).unwrap().1
}

/// The kernel says from the start whether it estimates.
#[test]
fn statistics_are_there_before_the_first_packet() {
    let pool = pool(8);
    for dq_rate_estimator in [false, true] {
        let law = PieLawSpec {
            dq_rate_estimator,
            ..PieLawSpec::default()
        };
        let spec = PieSpec {
            law,
            ..PieSpec::default()
        };
        let shown = xstat(&pie(&spec, &pool), "dq_rate_estimating");
        assert_eq!(shown, dq_rate_estimator.into());
    }
}

/// RFC 8033, section 4.2 and appendix A, in numbers with a point. Gains are in Hz.
fn rfc_8033(p: f64, delay: f64, old: f64, target: f64, alpha: f64, beta: f64) -> f64 {
    let scale = match p {
        p if p < 0.000_001 => 2048.0,
        p if p < 0.000_01 => 512.0,
        p if p < 0.000_1 => 128.0,
        p if p < 0.001 => 32.0,
        p if p < 0.01 => 8.0,
        p if p < 0.1 => 2.0,
        _ => 1.0,
    };
    let mut change = (alpha * (delay - target) + beta * (delay - old)) / scale;
    if p >= 0.1 && change > 0.02 {
        change = 0.02;
    }
    if delay > 0.25 {
        change += 0.02;
    }
    let mut next = p + change;
    if delay == 0.0 && old == 0.0 {
        next *= 1.0 - 1.0 / 64.0;
    }
    next.clamp(0.0, 1.0)
}

fn state(prob: f64, delay: f64, old: f64) -> State {
    let mut state = State::default();
    state.prob = (prob * ONE as f64) as u64;
    state.set_delays((delay / TICK) as u64, (old / TICK) as u64);
    state
}

proptest! {
    /// Each update is the RFC's, at every level of the probability: also the scaled gains.
    #[test]
    fn updates_are_those_of_rfc_8033(
        magnitude in -7.5..0.0_f64,
        delay in prop_oneof![Just(0.0), 0.0..0.4_f64],
        old in prop_oneof![Just(0.0), 0.0..0.4_f64],
        (alpha, beta) in prop_oneof![Just((2, 20)), (1..33_u32, 1..33_u32)],
    ) {
        let spec = PieLawSpec { alpha, beta, ..PieLawSpec::default() };
        let law = Law::new(&spec, &QdiscEnv::new(&pool(8)));
        let prob = 10_f64.powf(magnitude);
        let mut state = state(prob, delay, old);
        state.update_once(&law, 0);
        let expected = rfc_8033(
            prob,
            delay,
            old,
            0.015,
            f64::from(alpha) / 16.0,
            f64::from(beta) / 16.0,
        );
        let got = state.prob as f64 / ONE as f64;
        // A tick's rounding of both delays.
        let tolerance = 1e-6 * expected + 1e-12 + TICK * f64::from(alpha + beta);
        prop_assert!((got - expected).abs() <= tolerance, "{} {}", got, expected);
    }

    /// The probability is the same whether calls come in every period or not for many.
    #[test]
    fn updates_do_not_depend_on_calls(
        steps in proptest::collection::vec((0..90_u64, 0..12_u32, 0..12_usize), 1..40),
        estimator: bool,
    ) {
        let pool = pool(1024);
        let law = PieLawSpec { dq_rate_estimator: estimator, alpha: 200, ..PieLawSpec::default() };
        let spec = PieSpec { law, ..PieSpec::default() };
        let (mut seldom, mut often) = (pie(&spec, &pool), pie(&spec, &pool));
        let mut now = 1;
        let mut cx = Cx::new(&pool);
        for pie in [&mut seldom, &mut often] {
            pie.dequeue(0, &mut PacketList::new(), cx.at(Time(MS)));
        }
        for (wait, packets, budget) in steps {
            for time in now..=now + wait {
                often.dequeue(0, &mut PacketList::new(), cx.at(Time(time * MS)));
            }
            now += wait;
            for pie in [&mut seldom, &mut often] {
                let mut list: PacketList = (0..packets).map(|n| ip(&pool, 1400, 0, n)).collect();
                pie.enqueue(&mut list, cx.at(Time(now * MS)));
                pie.dequeue(budget, &mut PacketList::new(), cx.at(Time(now * MS)));
                cx.dropped.settle(&softnet::stats::DropCounters::new());
            }
            prop_assert_eq!(&format!("{:?}", seldom.state), &format!("{:?}", often.state));
            prop_assert_eq!(seldom.stats(), often.stats());
        }
    }
}

/// A queue that was left alone for years settles at once: full at 1, empty at 0.
#[test]
fn years_are_caught_up_with() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut pie = pie(&PieSpec::default(), &pool);
    let mut list: PacketList = (0..20).map(|n| ip(&pool, 1400, 0, n)).collect();
    pie.enqueue(&mut list, cx.at(Time(MS)));
    pie.dequeue(1, &mut PacketList::new(), cx.at(Time(100 * MS)));
    pie.dequeue(0, &mut PacketList::new(), cx.at(Time(1 << 60)));
    assert_eq!(pie.state.prob, ONE);
    pie.dequeue(99, &mut PacketList::new(), cx.at(Time(1 << 60)));
    assert_eq!(pie.stats().qlen, 0);
    pie.dequeue(0, &mut PacketList::new(), cx.at(Time(1 << 61)));
    assert_eq!(pie.state.prob, 0);
}

/// A burst of 150 ms is let through whatever its delay; then packets are dropped (RFC 8033 4.4).
#[test]
fn a_burst_is_let_through() {
    let pool = pool(4096);
    let mut cx = Cx::new(&pool);
    let mut pie = pie(
        &PieSpec {
            limit: 4000,
            ..PieSpec::default()
        },
        &pool,
    );
    let mut first_drop = None;
    // Twice what leaves.
    for time in 1..600 {
        let mut list: PacketList = (0..4).map(|n| ip(&pool, 1000, 0, n)).collect();
        pie.enqueue(&mut list, cx.at(Time(time * MS)));
        pie.dequeue(2, &mut PacketList::new(), cx.at(Time(time * MS)));
        if pie.stats().drops > 0 && first_drop.is_none() {
            first_drop = Some(time);
        }
        cx.dropped.settle(&softnet::stats::DropCounters::new());
    }
    let first_drop = first_drop.unwrap();
    assert!((150..400).contains(&first_drop), "{first_drop}");
}

/// Drops come neither at once nor far apart: after 0.85 of a probability's reciprocal, and before
/// 8.5 of it (RFC 8033 5.4). In between each packet is dropped with the probability: chi-squared.
/// In `bytemode` a packet of half the MTU has half of it.
#[test]
fn drops_are_spread() {
    let env = QdiscEnv {
        seed: 3,
        ..QdiscEnv::new(&pool(8))
    };
    for (prob, bytemode, each) in [(0.05, false, 0.05), (0.12, true, 0.06)] {
        let spec = PieLawSpec {
            bytemode,
            ..PieLawSpec::default()
        };
        let mut law = Law::new(&spec, &env);
        let mut state = state(prob, 0.02, 0.02);
        state.end_burst();
        let mut gaps = vec![0_u32; 200];
        let mut gap = 0;
        for _ in 0..2_000_000 {
            gap += 1;
            if state.drops(&mut law, 100_000, 757) {
                gaps[gap] += 1;
                gap = 0;
            }
        }
        let (least, most) = ((0.85_f64 / each).ceil() as usize, 8.5 / each);
        assert!(gaps[..least].iter().all(|&n| n == 0), "{gaps:?}");
        assert!(
            gaps[most as usize + 2..].iter().all(|&n| n == 0),
            "{gaps:?}"
        );
        let total: u32 = gaps.iter().sum();
        let mut chi = 0.0;
        for (after, &count) in gaps[least..least + 60].iter().enumerate() {
            let expected = f64::from(total) * each * (1.0 - each).powi(after as i32);
            chi += (f64::from(count) - expected).powi(2) / expected;
        }
        // With 60 degrees of freedom above 130 less than once in 10^6.
        assert!(chi < 130.0, "{chi}");
    }
}

/// ECN-capable packets are marked up to a probability of 10 %, and dropped above it.
#[test]
fn marks_while_the_probability_is_low() {
    let pool = pool(256);
    for (prob, marks) in [(0.099, true), (0.11, false)] {
        let mut cx = Cx::new(&pool);
        let law = PieLawSpec {
            ecn: true,
            tupdate: Duration::ZERO,
            ..PieLawSpec::default()
        };
        let mut pie = pie(
            &PieSpec {
                law,
                ..PieSpec::default()
            },
            &pool,
        );
        pie.state = state(prob, 0.02, 0.02);
        pie.state.end_burst();
        let mut list: PacketList = (0..200).map(|n| ip(&pool, 1000, 2, n)).collect();
        pie.enqueue(&mut list, cx.at(Time(MS)));
        let (marked, dropped) = (xstat(&pie, "ecn_mark"), xstat(&pie, "dropped"));
        assert_eq!(
            (marked > 5, dropped > 5),
            (marks, !marks),
            "{marked} {dropped}"
        );
        assert_eq!(pie.stats().drops, dropped);
        assert_eq!(xstat(&pie, "pkts_in"), 200 - dropped);
        cx.dropped.settle(&softnet::stats::DropCounters::new());
    }
}

/// Half a packet is dropped half as often in `bytemode`.
#[test]
fn small_packets_are_dropped_less_in_bytemode() {
    let count = |bytes, bytemode| {
        let env = QdiscEnv {
            seed: 3,
            ..QdiscEnv::new(&pool(8))
        };
        let mut law = Law::new(
            &PieLawSpec {
                bytemode,
                ..PieLawSpec::default()
            },
            &env,
        );
        let mut state = state(0.1, 0.02, 0.02);
        state.end_burst();
        (0..100_000)
            .filter(|_| state.drops(&mut law, 100_000, bytes))
            .count() as f64
    };
    let (whole, half) = (count(1514, true), count(757, true));
    assert!((half / whole - 0.5).abs() < 0.03, "{whole} {half}");
    assert_eq!(count(757, false), whole);
}

/// Twice what the link sends comes for half a minute: the delay is kept at the target, by dropping
/// half. With the estimated rate, too.
#[test]
fn the_delay_is_kept_at_the_target() {
    const RATE: u64 = 1_250_000;
    for dq_rate_estimator in [false, true] {
        let pool = pool(2048);
        let law = PieLawSpec {
            dq_rate_estimator,
            ..PieLawSpec::default()
        };
        let qdisc = crate::QdiscSpec::Pie(PieSpec {
            law,
            ..PieSpec::default()
        });
        let mut tree = TreeSpec::new();
        tree.add(Handle::ROOT, Handle::new(1, 0), qdisc).unwrap();
        let env = QdiscEnv {
            seed: 1,
            ..QdiscEnv::new(&pool)
        };
        let tree = Tree::build(tree, &env).unwrap();
        let link = SimLink {
            rate: Some(RATE),
            ..SimLink::default()
        };
        let mut simulator = Simulator::new(tree, link);
        let mut delays = Vec::new();
        let mut depart = |time: Time, packet: &Packet| {
            if time.0 > 10_000 * MS {
                delays.push(time.since(packet.timestamp()).as_nanos() as u64);
            }
            Ok::<(), Infallible>(())
        };
        let gap = 1000 * 1_000_000_000 / (2 * RATE);
        let mut draws = Draws::new(4);
        for n in 0..30_000 * MS / gap {
            let time = Time(n * gap + draws.u64() % gap);
            let Ok(()) = simulator.arrive(ip(&pool, 1000, 0, 0), time, &mut depart);
        }
        let Ok(report) = simulator.finish(&mut depart);
        assert!(report.holds());
        let mean = delays.iter().sum::<u64>() / delays.len() as u64;
        assert!((12 * MS..18 * MS).contains(&mean), "{mean}");
    }
}

/// Random packets and times: nothing is lost, and lengths are right; a change keeps to its limit.
#[test]
fn conservation() {
    let pool = pool(512);
    let mut random = Random(3);
    for round in 0..20 {
        let law = PieLawSpec {
            ecn: round % 2 == 0,
            dq_rate_estimator: round % 3 == 0,
            target: Duration::from_millis(1),
            alpha: 300,
            beta: 3000,
            ..PieLawSpec::default()
        };
        let mut spec = PieSpec { limit: 100, law };
        let mut pie = pie(&spec, &pool);
        let mut cx = Cx::new(&pool);
        let (mut came, mut left, mut now) = (0, 0, 1);
        for _ in 0..600 {
            now += u64::from(random.below(9));
            let count = random.below(9);
            let mut list: PacketList =
                (0..count).map(|n| ip(&pool, 900, n as u8 & 3, n)).collect();
            pie.enqueue(&mut list, cx.at(Time(now * MS)));
            let mut out = PacketList::new();
            pie.dequeue(random.below(6) as usize, &mut out, cx.at(Time(now * MS)));
            if random.below(50) == 0 {
                spec.limit = random.below(100);
                pie.change(&spec, cx.at(Time(now * MS)));
            }
            came += u64::from(count);
            left += out.len() as u64;
            cx.dropped.settle(&softnet::stats::DropCounters::new());
            let stats = pie.stats();
            assert_eq!(came, left + stats.drops + stats.qlen);
            assert!(stats.qlen <= spec.limit.into());
        }
    }
}
