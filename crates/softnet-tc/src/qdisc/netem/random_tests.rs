//! The random parts of `netem`, over 100,000 draws each: against their distributions by chi-square
//! tests, and correlations by estimates. Seeds are fixed, so that a run is the last one again.

use softnet::mem::PacketList;
use softnet::qdisc::{Next, Qdisc};
use softnet::testing::pool;
use softnet::time::Time;

use super::*;
use crate::testing::alone::{build, cx, packet};
use crate::*;

const DRAWS: usize = 100_000;

/// A probability as a parameter.
fn of(probability: f64) -> u32 {
    (probability * f64::from(u32::MAX)).round() as u32
}

/// Counts of cells against the numbers that are expected: the statistic is below what one run in
/// 10,000 exceeds (Wilson and Hilferty's approximation of the chi-square distribution).
fn chi_square(counts: &[usize], expected: &[f64], what: &str) {
    let cells = counts.iter().zip(expected);
    let statistic: f64 = cells
        .map(|(&count, expected)| (count as f64 - expected).powi(2) / expected)
        .sum();
    let freedom = counts.len() as f64 - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    let most = freedom * (1.0 - spread + 3.719 * spread.sqrt()).powi(3);
    assert!(
        statistic < most,
        "{what}: {statistic} of {most}, {counts:?}, {expected:?}"
    );
}

/// The number of draws of which something happened is that of a probability.
fn bernoulli(happened: usize, probability: f64, what: &str) {
    let draws = DRAWS as f64;
    let expected = [draws * probability, draws * (1.0 - probability)];
    chi_square(&[happened, DRAWS - happened], &expected, what);
}

/// The same for each of 100,000 packets, with these parameters. `f` is told what became of one:
/// packets that left, each with its delay, and copies.
fn each_packet(spec: NetemSpec, mut f: impl FnMut(&[(u64, &softnet::mem::Packet)], usize)) {
    let pool = pool(64);
    let spec = NetemSpec {
        seed: spec.seed.or(Some(20_261_124)),
        ..spec
    };
    let mut q = build(QdiscSpec::Netem(spec), &pool);
    let mut cx = cx(Time(1 << 40));
    for _ in 0..DRAWS {
        let start = cx.now;
        q.enqueue(&mut packet(&pool, 100, 0, 0).into(), &mut cx);
        let copies = cx.reinject.len();
        drop(cx.reinject.take());
        let mut left = Vec::new();
        loop {
            let mut out = PacketList::new();
            let next = q.dequeue(1, &mut out, &mut cx);
            let delay = cx.now.nanos() - start.nanos();
            left.extend(out.pop_front().map(|packet| (delay, packet)));
            match next {
                Next::At(time) => cx.now = time,
                Next::Ready => {}
                Next::Idle => break,
            }
        }
        let left: Vec<_> = left
            .iter()
            .map(|(delay, packet)| (*delay, packet))
            .collect();
        f(&left, copies);
        cx.dropped.settle(&softnet::stats::DropCounters::new());
    }
}

/// For each packet whether it was lost.
fn losses(spec: NetemSpec) -> Vec<bool> {
    let mut lost = Vec::new();
    each_packet(spec, |left, _| lost.push(left.is_empty()));
    lost
}

fn count(of: &[bool]) -> usize {
    of.iter().filter(|&&one| one).count()
}

/// Lengths of runs of losses are those of independent ones.
fn independent(lost: &[bool], probability: f64, what: &str) {
    let mut runs = [0; 4];
    let mut total = 0;
    for run in lost.split(|&one| !one).filter(|run| !run.is_empty()) {
        runs[(run.len() - 1).min(3)] += 1;
        total += 1;
    }
    let p = probability;
    let of = |n: i32| f64::from(total) * p.powi(n) * if n < 3 { 1.0 - p } else { 1.0 };
    chi_square(&runs, &[of(0), of(1), of(2), of(3)], what);
}

#[test]
fn losses_are_as_likely_as_said_and_independent() {
    for probability in [0.01, 0.1, 0.5, 0.9] {
        let lost = losses(NetemSpec {
            loss: of(probability),
            ..NetemSpec::default()
        });
        bernoulli(count(&lost), probability, "loss");
        if probability >= 0.1 {
            independent(&lost, probability, "runs of losses");
        }
    }
    let all = losses(NetemSpec {
        loss: u32::MAX,
        ..NetemSpec::default()
    });
    assert_eq!(count(&all), DRAWS);
}

#[test]
fn copies_and_changes_and_reordering_are_as_likely_as_said() {
    let mut copied = 0;
    let spec = NetemSpec {
        duplicate: of(0.2),
        ..NetemSpec::default()
    };
    each_packet(spec, |_, copies| copied += copies);
    bernoulli(copied, 0.2, "copies");

    let spec = NetemSpec {
        corrupt: of(0.3),
        ..NetemSpec::default()
    };
    let pool = pool(1);
    let plain = packet(&pool, 100, 0, 0).data().to_vec();
    let mut places = vec![0; 100];
    let mut bits = [0; 8];
    each_packet(spec, |left, _| {
        for (place, (was, is)) in plain.iter().zip(left[0].1.data()).enumerate() {
            if was != is {
                places[place] += 1;
                bits[(was ^ is).trailing_zeros() as usize] += 1;
            }
        }
    });
    let changed: usize = places.iter().sum();
    bernoulli(changed, 0.3, "changes");
    chi_square(&places, &[changed as f64 / 100.0; 100], "changed bytes");
    chi_square(&bits, &[changed as f64 / 8.0; 8], "changed bits");

    let mut early = 0;
    let spec = NetemSpec {
        reorder: of(0.25),
        gap: 1,
        delay: Duration::from_millis(1),
        ..NetemSpec::default()
    };
    each_packet(spec, |left, _| early += usize::from(left[0].0 == 0));
    bernoulli(early, 0.25, "reordering");
}

/// Numbers of which each has the weight `rho` of the one before: their autocorrelation is that,
/// their mean is the same, and their variance is (1 - rho) / (1 + rho) of the uniform one.
#[test]
fn correlated_numbers_resemble_the_one_before() {
    for rho in [0.0, 0.1, 0.25, 0.5, 0.9] {
        let mut prng = Prng::seeded(7);
        let mut correlated = Correlated::new(of(rho), prng.next());
        let mut next = || f64::from(correlated.next(&mut prng)) / f64::from(u32::MAX);
        (0..100).for_each(|_| _ = next());
        let numbers: Vec<f64> = (0..DRAWS).map(|_| next()).collect();
        let n = DRAWS as f64;
        let mean = numbers.iter().sum::<f64>() / n;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let pairs = numbers.windows(2).map(|w| (w[0] - mean) * (w[1] - mean));
        let found = pairs.sum::<f64>() / n / variance;
        // Four standard errors.
        assert!((found - rho).abs() < 4.0 / n.sqrt(), "{found}, not {rho}");
        let expected = (1.0 - rho) / (1.0 + rho) / 12.0;
        assert!(
            (variance / expected - 1.0).abs() < 0.05,
            "{variance}, not {expected}"
        );
        let error = (expected * (1.0 + rho) / (1.0 - rho) / n).sqrt();
        assert!((mean - 0.5).abs() < 4.0 * error, "{mean}");
    }
    // The kernel's numbers with that seed and no correlation, over the range.
    let mut prng = Prng::seeded(1);
    let mut cells = [0; 256];
    (0..DRAWS).for_each(|_| cells[(prng.next() >> 24) as usize] += 1);
    chi_square(&cells, &[DRAWS as f64 / 256.0; 256], "the generator");
}

/// A loss makes the next one likelier.
#[test]
fn correlated_losses_come_together() {
    let after_a_loss = |correlation| {
        let lost = losses(NetemSpec {
            loss: of(0.3),
            loss_correlation: of(correlation),
            ..NetemSpec::default()
        });
        let pairs = lost.windows(2).filter(|w| w[0]).count();
        let both = lost.windows(2).filter(|w| w[0] && w[1]).count();
        both as f64 / pairs as f64
    };
    let [none, some, much] = [0.0, 0.25, 0.75].map(after_a_loss);
    assert!((none - 0.3).abs() < 0.01, "{none}");
    assert!(
        some > none + 0.02 && much > some + 0.05,
        "{none} {some} {much}"
    );
}

#[test]
fn delays_are_spread_evenly_or_as_the_table_says() {
    let spec = |distribution| NetemSpec {
        delay: Duration::from_millis(100),
        jitter: Duration::from_millis(10),
        distribution,
        ..NetemSpec::default()
    };
    let mut cells = [0; 100];
    each_packet(spec(None), |left, _| {
        let (delay, _) = left[0];
        assert!((90_000_000..110_000_000).contains(&delay));
        cells[((delay - 90_000_000) / 200_000) as usize] += 1;
    });
    chi_square(&cells, &[DRAWS as f64 / 100.0; 100], "even delays");

    for name in ["normal", "pareto", "paretonormal"] {
        let table = Distribution::named(name).unwrap();
        // Quantiles of the table: of 64 cells, as it has them. Equal numbers are in one cell.
        let jitter = 10_000_000_i64;
        let value = |number: i16| 100_000_000 + jitter * i64::from(number) / 8192;
        let edges: Vec<i64> = (1..64).map(|n| value(table.numbers()[n * 64])).collect();
        let cell = |delay: i64| edges.partition_point(|&edge| edge <= delay + 1);
        let mut expected = [0.0; 64];
        for &number in table.numbers() {
            expected[cell(value(number))] += DRAWS as f64 / 4096.0;
        }
        let mut cells = [0; 64];
        each_packet(spec(Some(table)), |left, _| {
            cells[cell(left[0].0 as i64)] += 1;
        });
        let used: Vec<usize> = (0..64).filter(|&n| expected[n] > 0.0).collect();
        let expected: Vec<f64> = used.iter().map(|&n| expected[n]).collect();
        assert_eq!(used.iter().map(|&n| cells[n]).sum::<usize>(), DRAWS);
        let cells: Vec<usize> = used.iter().map(|&n| cells[n]).collect();
        chi_square(&cells, &expected, name);
    }
}

/// Gilbert and Elliot: the share of losses, and of pairs of them, is that of the chain.
#[test]
fn gemodel_loses_as_its_chain_says() {
    let (p, r, lost_in_bad, lost_in_good) = (0.05, 0.2, 0.7, 0.01);
    let lost = losses(NetemSpec {
        loss_model: LossModel::Gemodel([of(p), of(r), of(1.0 - lost_in_bad), of(lost_in_good)]),
        ..NetemSpec::default()
    });
    let bad = p / (p + r);
    let expected = bad * lost_in_bad + (1.0 - bad) * lost_in_good;
    let share = count(&lost) as f64 / DRAWS as f64;
    assert!(
        (share / expected - 1.0).abs() < 0.05,
        "{share}, not {expected}"
    );
    let stays = bad * lost_in_bad * ((1.0 - r) * lost_in_bad + r * lost_in_good);
    let comes = (1.0 - bad) * lost_in_good * (p * lost_in_bad + (1.0 - p) * lost_in_good);
    let pairs = lost.windows(2).filter(|w| w[0] && w[1]).count() as f64 / DRAWS as f64;
    assert!(
        (pairs / (stays + comes) - 1.0).abs() < 0.06,
        "{pairs}, not {}",
        stays + comes
    );
    // Its simple form loses all in the bad state: bursts have the geometric distribution.
    let lost = losses(NetemSpec {
        loss_model: LossModel::Gemodel([of(0.1), of(0.25), 0, 0]),
        ..NetemSpec::default()
    });
    let bursts: Vec<usize> = lost
        .split(|&one| !one)
        .filter(|run| !run.is_empty())
        .map(<[bool]>::len)
        .collect();
    let mut cells = [0; 8];
    bursts.iter().for_each(|&len| cells[(len - 1).min(7)] += 1);
    let expected = |n: i32| {
        let share = 0.75_f64.powi(n) * if n < 7 { 0.25 } else { 1.0 };
        share * bursts.len() as f64
    };
    let expected: Vec<f64> = (0..8).map(expected).collect();
    chi_square(&cells, &expected, "bursts of the simple Gilbert model");
}

/// Four states: their shares are those of the stationary distribution, and bursts end as said.
#[test]
fn the_four_states_lose_as_their_chain_says() {
    let (p13, p31, p32, p23, p14) = (0.02, 0.2, 0.1, 0.3, 0.01);
    let lost = losses(NetemSpec {
        loss_model: LossModel::State([of(p13), of(p31), of(p32), of(p14), of(p23)]),
        ..NetemSpec::default()
    });
    // Balance: state 3 has p13 of 1 and p23 of 2, and loses p31 + p32; 2 has p32 of 3; 4 p14 of 1.
    let three = p13 / p31;
    let two = three * p32 / p23;
    let sum = 1.0 + two + three + p14;
    let expected = (three + p14) / sum;
    let share = count(&lost) as f64 / DRAWS as f64;
    assert!(
        (share / expected - 1.0).abs() < 0.08,
        "{share}, not {expected}"
    );
    // A run of losses goes on in state 3 alone. In state 4 it is over.
    let runs = lost.split(|&one| !one).filter(|run| !run.is_empty());
    let (mut ones, mut all) = (0, 0);
    for run in runs {
        ones += usize::from(run.len() == 1);
        all += 1;
    }
    let bursts = p13 + two * p23;
    let expected = (p14 + bursts * (p31 + p32)) / (p14 + bursts);
    let share = ones as f64 / f64::from(all);
    assert!(
        (share / expected - 1.0).abs() < 0.05,
        "{share}, not {expected}"
    );
}

/// The time from slot to slot is spread as said.
#[test]
fn slots_are_spread_evenly_or_as_the_table_says() {
    let gaps = |slot, slot_distribution| {
        let mut gaps = Vec::new();
        let spec = NetemSpec {
            slot: SlotSpec { packets: 1, ..slot },
            slot_distribution,
            ..NetemSpec::default()
        };
        each_packet(spec, |left, _| gaps.push(left[0].0));
        gaps
    };
    let even = SlotSpec {
        min: Duration::from_micros(500),
        max: Duration::from_micros(1500),
        ..SlotSpec::default()
    };
    let mut cells = [0; 50];
    for gap in gaps(even, None).into_iter().skip(1) {
        cells[((gap - 500_000) / 20_000) as usize] += 1;
    }
    chi_square(&cells, &[(DRAWS - 1) as f64 / 50.0; 50], "even slots");
    let by_table = SlotSpec {
        delay: Duration::from_millis(1),
        jitter: Duration::from_micros(8192),
        ..SlotSpec::default()
    };
    let table = Distribution::new([-100, 0, 0, 300]).unwrap();
    let mut cells = [0; 3];
    for gap in gaps(by_table, Some(table)).into_iter().skip(1) {
        let cell = [900_000, 1_000_000, 1_300_000]
            .iter()
            .position(|&of| of == gap);
        cells[cell.unwrap()] += 1;
    }
    let draws = (DRAWS - 1) as f64;
    let expected = [draws / 4.0, draws / 2.0, draws / 4.0];
    chi_square(&cells, &expected, "slots by a table");
}
