//! Distributions of times and sizes, in buckets of powers of two.
//!
//! [`Counts`] is a plain value: merged, asked for percentiles. [`Histogram`] is recorded into by
//! one thread at a time (the one that runs a queue), and read at any time. A measurement that
//! would cost more than what it measures is taken of one event in [`SAMPLE`]: [`Sampler`].
//!
//! Ordering: everything is Relaxed: a count carries no other data.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Events for each that is measured, on average. Two readings of a clock for each would cost a
/// quarter of a transmit call; one in 128 costs less than 2 % of its instructions.
pub const SAMPLE: u32 = 128;

/// Buckets of a histogram with `fine` bits of resolution below the power of two.
const fn buckets(fine: u32) -> usize {
    ((64 - fine as usize) << fine) + (1 << fine)
}

/// Number of values of each size. Each bucket is a power of two, divided into `2^FINE`
/// equal parts: with the default of 0 a value is known to a factor of 2, with 4 to 6 %.
#[derive(Clone, PartialEq, Eq)]
pub struct Counts<const FINE: u32 = 0>(Box<[u64]>);

impl<const FINE: u32> Default for Counts<FINE> {
    fn default() -> Self {
        Counts(vec![0; buckets(FINE)].into_boxed_slice())
    }
}

impl<const FINE: u32> fmt::Debug for Counts<FINE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let occupied = self.0.iter().enumerate().filter(|&(_, &n)| n != 0);
        f.debug_map()
            .entries(occupied.map(|(b, n)| (Self::bucket_range(b).0, n)))
            .finish()
    }
}

impl<const FINE: u32> Counts<FINE> {
    /// Number of the bucket of a value, also for counts that are kept elsewhere: exact below
    /// `2^FINE`, then `2^FINE` buckets for each power of two.
    pub fn bucket_of(value: u64) -> usize {
        if value < 1 << FINE {
            return value as usize;
        }
        let exponent = value.ilog2();
        let within = (value >> (exponent - FINE)) as usize & ((1 << FINE) - 1);
        (((exponent - FINE + 1) as usize) << FINE) + within
    }

    /// The smallest value of a bucket, and the number of values in it.
    pub fn bucket_range(bucket: usize) -> (u64, u64) {
        if bucket < 1 << FINE {
            return (bucket as u64, 1);
        }
        let shift = (bucket >> FINE) as u32 - 1;
        let within = (bucket & ((1 << FINE) - 1)) as u64;
        (((1 << FINE) + within) << shift, 1 << shift)
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.0[Self::bucket_of(value)] += 1;
    }

    /// Adds another one's counts.
    pub fn merge(&mut self, other: &Counts<FINE>) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.wrapping_add(*more);
        }
    }

    /// Values counted.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, &n| sum.wrapping_add(n))
    }

    /// True if no value was counted.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&n| n == 0)
    }

    /// The middle of the bucket in which the smallest value lies that at least `fraction` (0 to 1)
    /// of the values do not exceed; none if there are no values.
    pub fn percentile(&self, fraction: f64) -> Option<f64> {
        let rank = ((fraction * self.total() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.0.iter().position(|&count| {
            seen += count;
            seen >= rank
        })?;
        let (from, width) = Self::bucket_range(at);
        Some(from as f64 + (width - 1) as f64 / 2.0)
    }

    /// The largest value that the last bucket with a value may hold; none if there are no values.
    pub fn max(&self) -> Option<u64> {
        let (from, width, _) = self.rows().last()?;
        Some(from + (width - 1))
    }

    /// The buckets from the first to the last that is not empty, as (smallest value, number of
    /// values, count).
    pub fn rows(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let is_occupied = |&n: &u64| n != 0;
        let first = self.0.iter().position(is_occupied).unwrap_or(0);
        let end = self.0.iter().rposition(is_occupied).map_or(0, |i| i + 1);
        (first..end).map(|i| {
            let (from, width) = Self::bucket_range(i);
            (from, width, self.0[i])
        })
    }
}

/// A distribution with one writer at a time, which may be another thread each time if something
/// else orders them (the run state of a queue).
#[derive(Debug)]
pub struct Histogram<const FINE: u32 = 0>(Box<[AtomicU64]>);

impl<const FINE: u32> Default for Histogram<FINE> {
    fn default() -> Self {
        Histogram((0..buckets(FINE)).map(|_| AtomicU64::new(0)).collect())
    }
}

impl<const FINE: u32> Histogram<FINE> {
    /// Counts one value. One thread at a time; two at once may lose a count, nothing worse. Plain
    /// loads and stores: no locked instruction.
    pub fn record(&self, value: u64) {
        let count = &self.0[Counts::<FINE>::bucket_of(value)];
        let next = count.load(Ordering::Relaxed).wrapping_add(1);
        count.store(next, Ordering::Relaxed);
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts<FINE> {
        Counts(self.0.iter().map(|n| n.load(Ordering::Relaxed)).collect())
    }
}

/// Chooses one event in [`SAMPLE`], at irregular distances, so that what occurs regularly is
/// neither always nor never measured. Costs a decrement and a branch for each event.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    left: u32,
    /// State of a xorshift generator (Marsaglia, "Xorshift RNGs", 2003). Never zero.
    random: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler {
            left: 1,
            random: 0x2545_F491,
        }
    }
}

impl Sampler {
    /// True if the next event is to be measured.
    #[inline]
    pub fn is_next(&self) -> bool {
        self.left == 1
    }

    /// True if this event is to be measured. The first one is measured, then one in [`SAMPLE`] on
    /// average.
    #[inline]
    pub fn take(&mut self) -> bool {
        self.left -= 1;
        if self.left != 0 {
            return false;
        }
        self.draw();
        true
    }

    /// Distances are uniform between 1 and `2 * SAMPLE - 1`.
    #[cold]
    fn draw(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let span = u64::from(2 * SAMPLE - 1);
        self.left = 1 + ((u64::from(self.random) * span) >> 32) as u32;
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Counts {
        let mut counts = Counts::default();
        values.iter().for_each(|&v| counts.record(v));
        counts
    }

    fn lies_in_its_bucket<const FINE: u32>(value: u64) {
        let index = Counts::<FINE>::bucket_of(value);
        let (from, width) = Counts::<FINE>::bucket_range(index);
        assert!(from <= value && value - from < width, "{value} {FINE}");
        assert!(width == 1 || width << FINE == 1 << from.ilog2(), "{value}");
        assert!(index < buckets(FINE));
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        let edges = (0..64).flat_map(|shift| [1 << shift, (1 << shift) - 1, (3 << shift) / 2]);
        for value in edges.chain(0..5000).chain([u64::MAX]) {
            lies_in_its_bucket::<0>(value);
            lies_in_its_bucket::<1>(value);
            lies_in_its_bucket::<4>(value);
        }
        assert_eq!(Counts::<0>::bucket_of(u64::MAX), buckets(0) - 1);
        assert_eq!(Counts::<4>::bucket_of(u64::MAX), buckets(4) - 1);
    }

    proptest! {
        #[test]
        fn merging_is_counting_together(a: Vec<u64>, b: Vec<u64>) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both = [a, b].concat();
            prop_assert_eq!(&merged, &of(&both));
            prop_assert_eq!(merged.total(), both.len() as u64);
        }

        #[test]
        fn percentiles_are_nearest_rank_to_the_bucket(
            mut values in proptest::collection::vec(0..u64::MAX >> 12, 1..200),
            percent in 0u32..=100,
        ) {
            let mut counts = Counts::<4>::default();
            values.iter().for_each(|&v| counts.record(v));
            values.sort_unstable();
            let rank = (f64::from(percent) / 100.0 * values.len() as f64).ceil() as usize;
            let exact = values[rank.max(1) - 1];
            let (from, width) = Counts::<4>::bucket_range(Counts::<4>::bucket_of(exact));
            let middle = from as f64 + (width - 1) as f64 / 2.0;
            prop_assert_eq!(counts.percentile(f64::from(percent) / 100.0), Some(middle));
        }
    }

    #[test]
    fn no_values() {
        let none = Counts::<0>::default();
        assert!(none.is_empty() && none.percentile(0.5).is_none());
    }

    #[test]
    fn the_largest_value_is_known_to_its_bucket() {
        assert_eq!(of(&[0, 1 << 25, u64::MAX]).max(), Some(u64::MAX));
        assert_eq!(of(&[5]).max(), Some(7));
        assert_eq!(of(&[]).max(), None);
    }

    /// One in [`SAMPLE`], and regular events are caught as often as others.
    #[test]
    fn sampling_is_even_and_does_not_beat() {
        let mut sampler = Sampler::default();
        let mut taken = [0u32; 64];
        let events = if cfg!(miri) { 64 * 64 } else { 64 * 64 * 400 };
        (0..events).for_each(|n| taken[n % 64] += u32::from(sampler.take()));
        let all: u32 = taken.iter().sum();
        let expected = events as u32 / SAMPLE;
        assert!(all.abs_diff(expected) < expected / 5, "{all} of {events}");
        if !cfg!(miri) {
            assert!(taken.iter().all(|n| (100..320).contains(n)), "{taken:?}");
        }
    }
}
