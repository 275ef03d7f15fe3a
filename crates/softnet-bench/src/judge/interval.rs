//! Medians with an interval that holds the true one with at least 95 % confidence, whatever the
//! distribution: by order statistics. (With 7 figures it goes from the least to the greatest, 98.4
//! %; with fewer than [`ROUNDS`] no interval is that sure.)

use crate::numbers::median;

/// Rounds of which the interval is that sure.
pub(super) const ROUNDS: usize = 6;

/// A median and the interval around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Rounds that count, and all.
    pub(super) rounds: (usize, usize),
}

impl Estimate {
    /// The estimate of the samples that are numbers, if any is.
    pub(super) fn of(samples: &[f64]) -> Option<Estimate> {
        let numbers = samples.iter().filter(|sample| sample.is_finite());
        let mut sorted: Vec<_> = numbers.copied().collect();
        sorted.sort_by(f64::total_cmp);
        let skip = outside(sorted.len());
        Some(Estimate {
            median: median(&sorted),
            low: *sorted.get(skip)?,
            high: *sorted.get(sorted.len() - 1 - skip)?,
            rounds: (sorted.len(), samples.len()),
        })
    }

    /// The estimate of what `compare` makes of figures taken in the same rounds. A round in which
    /// one of the two has none does not count.
    pub(super) fn of_pairs(
        ours: &[f64],
        theirs: &[f64],
        compare: impl Fn(f64, f64) -> f64,
    ) -> Option<Estimate> {
        if ours.len() != theirs.len() {
            return None;
        }
        let pairs = ours.iter().zip(theirs);
        Estimate::of(&pairs.map(|(o, t)| compare(*o, *t)).collect::<Vec<_>>())
    }

    /// The estimate of ratios. Nobody is measured by one that did nothing in a round.
    pub(super) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Estimate> {
        Estimate::of_pairs(ours, theirs, |ours, theirs| match theirs {
            0.0 => f64::NAN,
            theirs => ours / theirs,
        })
    }

    /// True if the interval is sure enough to decide.
    pub(super) fn decides(&self) -> bool {
        self.rounds.0 >= ROUNDS
    }
}

/// The number of figures, of `n`, that may be left out at each end: the median lies beyond the
/// `k`-th from one end with the chance that fewer than `k` of `n` coins fall heads.
fn outside(n: usize) -> usize {
    let (mut term, mut tail, mut skip) = (0.5_f64.powi(n as i32), 0.0, 0);
    for k in 0..n / 2 {
        tail += term;
        if 2.0 * tail > 0.05 {
            break;
        }
        skip = k;
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    skip
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        // From tables of the sign test.
        assert_eq!([1, 5, 7, 8, 9, 15, 25].map(outside), [0, 0, 0, 0, 1, 3, 7]);
        let samples = [5.0, 1.0, 9.0, 2.0, 3.0, 4.0, 8.0, 7.0, 6.0];
        let expected = Estimate {
            median: 5.0,
            low: 2.0,
            high: 8.0,
            rounds: (9, 9),
        };
        assert_eq!(Estimate::of(&samples), Some(expected));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let range = |it: Option<Estimate>| it.map(|it| (it.low, it.high, it.rounds));
        let even = Estimate::of_ratios(&[10.0, 20.0, 30.0], &[5.0, 10.0, 15.0]);
        assert_eq!(range(even), Some((2.0, 2.0, (3, 3))));
        assert!(!even.is_some_and(|it| it.decides()));
        // One that stands still, and a round without a figure.
        let some = Estimate::of_ratios(&[9.0, 0.0, f64::NAN, 6.0], &[0.0, 0.0, 1.0, 2.0]);
        assert_eq!(range(some), Some((3.0, 3.0, (1, 4))));
        assert_eq!(Estimate::of_ratios(&[10.0], &[5.0, 5.0]), None);
    }
}
