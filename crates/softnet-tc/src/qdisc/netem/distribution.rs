//! Distributions of delays: a table of deviations from the mean, one of which is drawn.

use std::fmt;
use std::sync::{Arc, LazyLock};

/// The number that stands for one standard deviation (`NETEM_DIST_SCALE`).
const SCALE: i64 = 8192;
/// Most numbers of a table (`NETEM_DIST_MAX`).
const MAX: usize = 16_384;
/// Numbers of the tables that have a name.
const LEN: usize = 4096;

/// A table of deviations from the mean, in units of 1/8192 of the jitter, each as likely as any
/// other.
#[derive(Clone, PartialEq, Eq)]
pub struct Distribution(Arc<[i16]>);

/// The tables that have a name: those of iproute2, computed.
static NAMED: LazyLock<[(&str, Distribution); 3]> = LazyLock::new(|| {
    let (normal, pareto) = (normal(), pareto());
    let mixed = normal.iter().zip(&pareto);
    let mixed = mixed.map(|(&normal, &pareto)| (0.25 * normal + 0.75 * pareto).trunc());
    let table = |numbers: &[f64]| {
        let number = |&n: &f64| n.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        Distribution(numbers.iter().map(number).collect())
    };
    let mixed: Vec<f64> = mixed.collect();
    [
        ("normal", table(&normal)),
        ("pareto", table(&pareto)),
        ("paretonormal", table(&mixed)),
    ]
});

/// Quantiles of the standard normal distribution, each a quarter of a number below where a table
/// of 16,384 has it, on a grid of 1/20,000.
fn normal() -> Vec<f64> {
    const STEP: f64 = 5e-5;
    let at = |step: u32| f64::from(step) * STEP - 10.0;
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let mut numbers = Vec::new();
    // The integral by trapezoids.
    let (mut below, mut last) = (0.0, density(at(0)));
    for step in 1..=400_000 {
        let next = density(at(step));
        below += (last + next) / 2.0 * STEP;
        last = next;
        while numbers.len() < LEN && below * 16_384.0 > 4.0 * numbers.len() as f64 + 0.5 {
            numbers.push((at(step - 1) * SCALE as f64).round());
        }
    }
    numbers
}

/// Quantiles of the Pareto distribution of shape 3, with mean 0 and deviation as near to 1 as the
/// range allows.
fn pareto() -> Vec<f64> {
    let number = |index: usize| {
        let above = (LEN - index) as f64 / LEN as f64;
        let number = (1.0 / above.powf(1.0 / 3.0) - 1.5) * (4.0 / 3.0) * SCALE as f64;
        number.round().min(i16::MAX.into())
    };
    (0..LEN).map(number).collect()
}

impl Distribution {
    /// A table: 1 to 16,384 numbers.
    pub fn new(numbers: impl Into<Arc<[i16]>>) -> Option<Distribution> {
        let numbers = numbers.into();
        (1..=MAX)
            .contains(&numbers.len())
            .then_some(Distribution(numbers))
    }

    /// `normal`, `pareto` or `paretonormal`, as in tc.
    pub fn named(name: &str) -> Option<Distribution> {
        let mut named = NAMED.iter();
        let found = named.find(|(of, _)| *of == name);
        found.map(|(_, table)| table.clone())
    }

    /// Name of the table, if it has one.
    pub fn name(&self) -> Option<&'static str> {
        let mut named = NAMED.iter();
        named
            .find(|(_, table)| table == self)
            .map(|(name, _)| *name)
    }

    /// The numbers.
    pub fn numbers(&self) -> &[i16] {
        &self.0
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{} numbers", self.0.len()),
        }
    }
}

/// A number around a mean (`tabledist`): as the table has it, or within `jitter` on either side,
/// each as likely. `random` is any number; it is drawn only if there is a jitter.
#[inline]
pub(super) fn around(
    mean: i64,
    jitter: u32,
    table: Option<&Distribution>,
    random: impl FnOnce() -> u32,
) -> i64 {
    if jitter == 0 {
        return mean;
    }
    let random = random();
    let jitter = i64::from(jitter);
    let deviation = match table {
        None => i64::from(random) % (2 * jitter) - jitter,
        Some(Distribution(numbers)) => {
            let number = i64::from(numbers[random as usize % numbers.len()]);
            let rest = jitter % SCALE * number;
            let half = if rest >= 0 { SCALE / 2 } else { -SCALE / 2 };
            (rest + half) / SCALE + jitter / SCALE * number
        }
    };
    mean.saturating_add(deviation)
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// The tables that iproute2 installs, where it is.
    #[test]
    fn named_tables_are_those_of_iproute2() {
        let sums = ["normal", "pareto", "paretonormal"].map(|name| {
            let table = Distribution::named(name).unwrap();
            assert_eq!((table.numbers().len(), table.name()), (LEN, Some(name)));
            let numbers = table.numbers();
            assert!(numbers.is_sorted());
            for folder in [
                "/usr/lib/tc",
                "/usr/lib/x86_64-linux-gnu/tc",
                "/usr/lib64/tc",
            ] {
                let Ok(text) = std::fs::read_to_string(format!("{folder}/{name}.dist")) else {
                    continue;
                };
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                let theirs: Vec<i16> = lines
                    .flat_map(str::split_whitespace)
                    .map(|number| number.parse().unwrap())
                    .collect();
                assert_eq!(numbers, theirs, "{name}");
            }
            numbers.iter().map(|&n| i64::from(n)).sum::<i64>()
        });
        assert_eq!(sums, [-26_163, -1_123_786, -848_968]);
    }

    #[test]
    fn the_range_of_a_table_is_checked() {
        assert_eq!(Distribution::new([]), None);
        assert_eq!(Distribution::new(vec![0; MAX + 1]), None);
        let table = Distribution::new([-8192, 8192]).unwrap();
        assert_eq!(table.name(), None);
        let draw = |random| around(1_000_000, 300_001, Some(&table), || random);
        assert_eq!((draw(2), draw(3)), (699_999, 1_300_001));
        assert_eq!(
            around(7, 0, Some(&table), || panic!("no number is drawn")),
            7
        );
        let uniform = |random| around(100, 10, None, || random);
        assert_eq!((uniform(0), uniform(19), uniform(20)), (90, 109, 90));
        assert_eq!(
            around(i64::MAX, u32::MAX / 2, None, || u32::MAX - 3),
            i64::MAX
        );
    }
}
