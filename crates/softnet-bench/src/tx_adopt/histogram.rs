//! Counts of nanoseconds in buckets of at most 1/16 of their value: percentiles to 6 %, in 8 KiB.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets per power of two, as a power of two.
const FINE: u32 = 4;
const BUCKETS: usize = ((64 - FINE as usize) << FINE) + (1 << FINE);

fn bucket(value: u64) -> usize {
    if value < 1 << FINE {
        return value as usize;
    }
    let exponent = value.ilog2();
    let fine = (value >> (exponent - FINE)) as usize & ((1 << FINE) - 1);
    (((exponent - FINE + 1) as usize) << FINE) + fine
}

/// The smallest value of a bucket, and the number of values in it.
fn range(bucket: usize) -> (u64, u64) {
    if bucket < 1 << FINE {
        return (bucket as u64, 1);
    }
    let shift = (bucket >> FINE) as u32 - 1;
    let fine = (bucket & ((1 << FINE) - 1)) as u64;
    (((1 << FINE) + fine) << shift, 1 << shift)
}

/// Counts with one writer at a time, that may be another thread each time; readable when it is at rest.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Box<[AtomicU64]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Histogram {
    /// Counts a value. Only one thread at a time may do so.
    pub(crate) fn record(&self, value: u64) {
        let count = &self.counts[bucket(value)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds another one's counts.
    pub(crate) fn merge(&self, other: &Histogram) {
        for (count, other) in self.counts.iter().zip(&other.counts) {
            let sum = count.load(Ordering::Relaxed) + other.load(Ordering::Relaxed);
            count.store(sum, Ordering::Relaxed);
        }
    }

    /// Adds `count` values from the range `[2^exponent, 2^(exponent+1))` split as finely as [`record`](Histogram::record) does.
    pub(crate) fn add(&self, bucket: usize, count: u64) -> Option<()> {
        self.counts.get(bucket)?.fetch_add(count, Ordering::Relaxed);
        Some(())
    }

    /// The middle of the bucket in which the smallest value lies that at least `fraction` of the values do not exceed.
    pub(crate) fn percentile(&self, fraction: f64) -> Option<f64> {
        let total: u64 = self.counts.iter().map(|c| c.load(Ordering::Relaxed)).sum();
        let rank = ((fraction * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count.load(Ordering::Relaxed);
            seen >= rank
        })?;
        let (from, width) = range(at);
        Some(from as f64 + (width - 1) as f64 / 2.0)
    }

    /// Counts by power of two, as [`log2_histogram`](crate::numbers::log2_histogram) counts.
    pub(crate) fn log2(&self) -> Vec<u64> {
        let mut log2 = Vec::new();
        for (index, count) in self.counts.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let power = range(index).0.max(1).ilog2() as usize;
                log2.resize(log2.len().max(power + 1), 0);
                log2[power] += count;
            }
        }
        log2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_are_fine() {
        let values = (0..64)
            .flat_map(|shift| [1 << shift, (1 << shift) - 1, (3 << shift) / 2])
            .chain(0..5000);
        for value in values {
            let (from, width) = range(bucket(value));
            assert!(from <= value && value - from < width, "{value}");
            assert!(width == 1 || width * 16 <= from, "{value}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        (0..10).for_each(|value| histogram.record(value));
        assert_eq!(histogram.percentile(0.5), Some(4.0));
        assert_eq!(histogram.percentile(1.0), Some(9.0));
        let other = Histogram::default();
        (0..90).for_each(|_| other.record(15));
        histogram.merge(&other);
        assert_eq!(histogram.percentile(0.1), Some(9.0));
        assert_eq!(histogram.percentile(0.11), Some(15.0));
        assert_eq!(histogram.log2(), [2, 2, 4, 92]);
    }
}
