//! Medians, percentiles and log2 histograms of samples.

/// The middle of the samples that are numbers, the mean of the two in the middle if their number
/// is even; NaN of none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let numbers = samples.iter().filter(|sample| !sample.is_nan());
    let mut sorted: Vec<f64> = numbers.copied().collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (n, middle) if n % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The smallest sample that at least `fraction` (0 to 1) of the samples do not exceed; NaN of
/// none.
pub(crate) fn percentile(samples: &[f64], fraction: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

/// True if this many samples have such a percentile: ten of them are beyond it.
pub(crate) fn supports(samples: usize, fraction: f64) -> bool {
    samples as f64 * (1.0 - fraction) > 9.999
}

/// The percentiles of these names and fractions that this many samples support.
pub(crate) fn percentiles<'a>(
    of: impl IntoIterator<Item = (&'static str, f64)> + 'a,
    samples: usize,
    at: impl Fn(f64) -> Option<f64> + 'a,
) -> impl Iterator<Item = (&'static str, f64)> + 'a {
    let supported = move |(_, fraction): &(&str, f64)| supports(samples, *fraction);
    let of = of.into_iter().filter(supported);
    of.filter_map(move |(name, fraction)| Some((name, at(fraction)?)))
}

/// The fields of the round-trip times of pings.
pub(crate) fn ping_fields(us: &[f64]) -> Vec<(&'static str, f64)> {
    let of = [
        ("ping_p50_us", 0.5),
        ("ping_p90_us", 0.9),
        ("ping_p99_us", 0.99),
    ];
    let at = |fraction| Some(percentile(us, fraction));
    let mut fields = vec![("ping_mean_us", mean(us))];
    fields.extend(percentiles(of, us.len(), at));
    fields
}

/// The arithmetic mean; NaN of none.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Counts samples by power of two: entry `i` is the number in `[2^i, 2^(i+1))`, entry 0 also
/// counts what is below 1.
pub(crate) fn log2_histogram(samples: &[f64]) -> Vec<u64> {
    let mut counts = Vec::new();
    for sample in samples {
        let bucket = sample.max(1.0).log2().floor().min(63.0) as usize;
        if counts.len() <= bucket {
            counts.resize(bucket + 1, 0);
        }
        counts[bucket] += 1;
    }
    counts
}

/// The counts of a finer histogram, by power of two as [`log2_histogram`] has them.
pub(crate) fn log2<const FINE: u32>(counts: &softnet::stats::Counts<FINE>) -> Vec<u64> {
    let mut powers = Vec::new();
    for (from, _, count) in counts.powers().rows() {
        let power = from.max(1).ilog2() as usize;
        powers.resize(powers.len().max(power + 1), 0);
        powers[power] += count;
    }
    powers
}

/// Rounded to `digits` significant digits, for output.
pub(crate) fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = digits - 1 - value.abs().log10().floor() as i32;
    // Through text: powers of ten are exact there, and 0.1 + 0.2 does not come out as
    // 0.30000000000000004.
    if places >= 0 {
        format!("{value:.*}", places.unsigned_abs() as usize)
            .parse()
            .unwrap_or(value)
    } else {
        let unit = 10f64.powi(-places);
        (value / unit).round() * unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn percentile_is_nearest_rank() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&samples, 0.5), 50.0);
        assert_eq!(percentile(&samples, 0.99), 99.0);
        assert_eq!(percentile(&samples, 1.0), 100.0);
        assert_eq!(percentile(&samples, 0.0), 1.0);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn histogram_buckets_are_powers_of_two() {
        assert_eq!(
            log2_histogram(&[0.2, 1.0, 1.9, 2.0, 3.9, 4.0, 1024.0]).len(),
            11
        );
        assert_eq!(
            log2_histogram(&[0.2, 1.0, 1.9, 2.0, 3.9, 4.0])[..],
            [3, 2, 1]
        );
    }

    #[test]
    fn fine_counts_become_powers_of_two() {
        let mut counts = softnet::stats::Counts::<4>::default();
        for value in [0, 1, 1, 3, 900, 1000] {
            counts.record(value);
        }
        assert_eq!(log2(&counts), [3, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert!(log2(&softnet::stats::Counts::<4>::default()).is_empty());
    }

    #[test]
    fn significant_digits() {
        assert_eq!(significant(123_456.0, 3), 123_000.0);
        assert_eq!(significant(0.001_234_56, 3), 0.00123);
        assert_eq!(significant(99.96, 3), 100.0);
        assert_eq!(significant(-2.345, 2), -2.3);
        assert_eq!(significant(0.0, 3), 0.0);
    }
}
