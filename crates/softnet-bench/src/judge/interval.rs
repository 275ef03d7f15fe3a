//! Medians with an interval that holds the true one with at least 95 % confidence, whatever the
//! distribution: by order statistics. (With 7 figures it goes from the least to the greatest, 98.4
//! %; with fewer than 6 no interval is that sure.)

use crate::numbers::median;

/// A median and the interval around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Estimate {
    /// The estimate of at least one figure.
    pub(super) fn of(samples: &[f64]) -> Option<Estimate> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let skip = outside(sorted.len());
        Some(Estimate {
            median: median(&sorted),
            low: *sorted.get(skip)?,
            high: *sorted.get(sorted.len() - 1 - skip)?,
        })
    }

    /// The estimate of the ratios of figures taken in the same rounds. With unequal numbers of
    /// both, the ratio of the medians, in an interval without bounds.
    pub(super) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Estimate> {
        if ours.len() != theirs.len() {
            return Some(Estimate {
                median: median(ours) / median(theirs),
                low: f64::NEG_INFINITY,
                high: f64::INFINITY,
            });
        }
        let ratio = |(ours, theirs): (&f64, &f64)| match (*ours, *theirs) {
            (0.0, 0.0) => 1.0,
            (ours, theirs) => ours / theirs,
        };
        let ratios: Vec<_> = ours.iter().zip(theirs).map(ratio).collect();
        Estimate::of(&ratios)
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

/// The confidence of an interval of `n` figures, in percent.
pub(super) fn confidence(n: usize) -> f64 {
    let mut term = 0.5_f64.powi(n as i32);
    let mut tail = 0.0;
    for k in 0..=outside(n).min(n) {
        tail += term;
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    100.0 * (1.0 - 2.0 * tail).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        // From tables of the sign test.
        assert_eq!([1, 5, 7, 8, 9, 15, 25].map(outside), [0, 0, 0, 0, 1, 3, 7]);
        assert!((confidence(7) - 98.4).abs() < 0.1 && (confidence(9) - 96.1).abs() < 0.1);
        assert!(confidence(5) < 95.0);
        let samples = [5.0, 1.0, 9.0, 2.0, 3.0, 4.0, 8.0, 7.0, 6.0];
        let expected = Estimate {
            median: 5.0,
            low: 2.0,
            high: 8.0,
        };
        assert_eq!(Estimate::of(&samples), Some(expected));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let even = Estimate::of_ratios(&[10.0, 20.0, 30.0], &[5.0, 10.0, 15.0]);
        assert_eq!(
            even,
            Some(Estimate {
                median: 2.0,
                low: 2.0,
                high: 2.0
            })
        );
        let odd = Estimate::of_ratios(&[10.0], &[5.0, 5.0]);
        assert!(odd.is_some_and(|odd| odd.median == 2.0 && odd.low < 0.0));
        let nothing = Estimate::of_ratios(&[0.0], &[0.0]);
        assert_eq!(nothing.map(|n| n.median), Some(1.0));
    }
}
