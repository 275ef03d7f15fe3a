//! Distributions of times, in memory that depends on how far apart they are and not on how many.

use softnet::stats::Counts;

/// Buckets of 1/64 of a power of two: the middle of one is within 0.8 % of each time in it.
type Buckets = Counts<6>;

/// Times of frames, in nanoseconds. The mean and the longest are exact; percentiles are the middle
/// of the bucket (1/64 of a power of two) of the frame's own time (nearest rank), within 0.8 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sojourn {
    /// Frames.
    pub frames: u64,
    /// The mean, rounded down.
    pub mean: u64,
    /// Half of the frames stayed no longer.
    pub p50: u64,
    /// 90 % stayed no longer.
    pub p90: u64,
    /// 99 % stayed no longer.
    pub p99: u64,
    /// 99.9 % stayed no longer.
    pub p999: u64,
    /// The longest stay.
    pub max: u64,
}

impl Sojourn {
    /// Summary of these times, in any order.
    pub fn of(times: &[u64]) -> Sojourn {
        let mut all = Times::default();
        times.iter().for_each(|&time| all.record(time));
        all.summary()
    }
}

/// Number of times of each length.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Number of the first bucket of `counts`.
    first: usize,
    /// From the first bucket that is occupied, or was, to the last.
    counts: Vec<u64>,
    frames: u64,
    sum: u128,
    least: u64,
    max: u64,
}

impl Times {
    /// Counts one time.
    pub fn record(&mut self, time: u64) {
        let bucket = Buckets::bucket_of(time);
        if bucket.wrapping_sub(self.first) >= self.counts.len() {
            self.reach(bucket, bucket);
        }
        self.counts[bucket - self.first] += 1;
        if self.frames == 0 || time < self.least {
            self.least = time;
        }
        self.max = self.max.max(time);
        self.frames += 1;
        self.sum += u128::from(time);
    }

    /// Makes buckets from one to another.
    #[cold]
    fn reach(&mut self, from: usize, to: usize) {
        if self.counts.is_empty() {
            self.first = from;
        }
        if from < self.first {
            let more = self.first - from;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = from;
        }
        if to - self.first >= self.counts.len() {
            self.counts.resize(to - self.first + 1, 0);
        }
    }

    /// Adds the times of another one.
    pub fn merge(&mut self, other: &Times) {
        if other.frames == 0 {
            return;
        }
        self.reach(other.first, other.first + other.counts.len() - 1);
        let from = other.first - self.first;
        for (count, more) in self.counts[from..].iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.least = match self.frames {
            0 => other.least,
            _ => self.least.min(other.least),
        };
        self.max = self.max.max(other.max);
        self.frames += other.frames;
        self.sum += other.sum;
    }

    /// Forgets all times, and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.frames, self.sum, self.least, self.max) = (0, 0, 0, 0);
    }

    /// Number of times.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The buckets that are occupied: the middle of each, and the number of times in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let occupied = (self.first..).zip(&self.counts).filter(|&(_, &n)| n != 0);
        occupied.map(|(bucket, &n)| {
            let (from, width) = Buckets::bucket_range(bucket);
            ((from + (width - 1) / 2).clamp(self.least, self.max), n)
        })
    }

    /// Mean, percentiles and maximum.
    pub fn summary(&self) -> Sojourn {
        if self.frames == 0 {
            return Sojourn::default();
        }
        let ranks = [500, 900, 990, 999].map(|per_mille| {
            // Of more than 2^54 frames none is simulated.
            (self.frames.saturating_mul(per_mille))
                .div_ceil(1000)
                .max(1)
        });
        let mut at = [self.max; 4];
        let (mut seen, mut next) = (0, 0);
        for (middle, n) in self.buckets() {
            seen += n;
            while next < ranks.len() && seen >= ranks[next] {
                at[next] = middle;
                next += 1;
            }
        }
        let [p50, p90, p99, p999] = at;
        Sojourn {
            frames: self.frames,
            mean: (self.sum / u128::from(self.frames)) as u64,
            p50,
            p90,
            p99,
            p999,
            max: self.max,
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// Within 0.8 %.
    fn near(time: u64, exact: u64) -> bool {
        time.abs_diff(exact) * 125 <= exact
    }

    #[test]
    fn percentiles_are_nearest_ranks_to_the_bucket() {
        let times: Vec<u64> = (1..=100_000).rev().collect();
        let s = Sojourn::of(&times);
        assert_eq!((s.max, s.mean, s.frames), (100_000, 50_000, 100_000));
        for (time, exact) in [
            (s.p50, 50_000),
            (s.p90, 90_000),
            (s.p99, 99_000),
            (s.p999, 99_900),
        ] {
            assert!(near(time, exact), "{time} is not {exact}");
        }
        let one = Sojourn::of(&[123_456_789]);
        assert_eq!(
            (one.p50, one.p999, one.frames),
            (123_456_789, 123_456_789, 1)
        );
        assert_eq!(Sojourn::of(&[]), Sojourn::default());
    }

    #[test]
    fn merging_is_counting_together() {
        let parts: [&[u64]; 3] = [&[5_000_000, 7_000_000], &[], &[90, u64::MAX, 3]];
        let (mut merged, mut all) = (Times::default(), Times::default());
        for part in parts {
            let mut times = Times::default();
            times.record(1);
            times.clear();
            part.iter().for_each(|&time| times.record(time));
            part.iter().for_each(|&time| all.record(time));
            merged.merge(&times);
        }
        assert_eq!(merged.summary(), all.summary());
        assert_eq!(merged.buckets().map(|(_, n)| n).sum::<u64>(), 5);
        assert_eq!(merged.summary().max, u64::MAX);
    }

    /// A million frames that stay for about the same time take no more memory than a hundred.
    #[test]
    fn memory_is_bounded_by_the_spread() {
        let mut times = Times::default();
        (0..1_000_000_u64).for_each(|n| times.record(10_000_000 + n % 1_000_000));
        assert!(times.counts.len() < 64, "{}", times.counts.len());
    }
}
