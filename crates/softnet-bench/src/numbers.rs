//! Medians and percentiles of samples.

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
    fn significant_digits() {
        assert_eq!(significant(123_456.0, 3), 123_000.0);
        assert_eq!(significant(0.001_234_56, 3), 0.00123);
        assert_eq!(significant(99.96, 3), 100.0);
        assert_eq!(significant(-2.345, 2), -2.3);
        assert_eq!(significant(0.0, 3), 0.0);
    }
}
