//! Published statistics of a class; sums and differences of statistics.

use softnet::qdisc::{QdiscStat, QdiscStats, WireSum};
use softnet::stats::Published;
use softnet::sync::prefetch;

use super::own_counters::OwnCounters;

/// All statistics but `requeues`, the first, which only a queue has.
const WORDS: usize = QdiscStats::WORDS - 1;

const fn at(stat: QdiscStat) -> usize {
    stat as usize - 1
}

/// The statistics of a class, which are those of the qdisc on it. The owner of the queue writes
/// them as they change; any thread may read them, at any rate. What all qdiscs have is in one cache
/// line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct ClassCounters {
    stats: Published<WORDS>,
    /// Numbers that only a class of its kind has.
    pub(crate) own: OwnCounters,
}

impl ClassCounters {
    /// The statistics now. Each is whole, but they need not be from the same moment.
    pub fn get(&self) -> QdiscStats {
        let mut words = [0; QdiscStats::WORDS];
        words[1..].copy_from_slice(&self.stats.get());
        QdiscStats::from_words(words)
    }

    /// Wire packets that left, and frames refused.
    #[inline]
    pub(crate) fn left_and_refused(&self) -> (u64, u64) {
        let one = |stat| self.stats.get_one(at(stat));
        (one(QdiscStat::packets), one(QdiscStat::drops))
    }

    /// Asks for the lines that most packets change.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&raw const self.stats);
        prefetch(&raw const self.own);
    }

    pub(crate) fn reset(&self) {
        self.stats.set([0; WORDS]);
    }

    #[inline]
    pub(crate) fn count_sent(&self, sum: WireSum) {
        self.stats.add(at(QdiscStat::bytes), sum.bytes);
        self.stats.add(at(QdiscStat::packets), sum.packets);
    }

    /// Stores what is queued now.
    #[inline]
    pub(crate) fn put_queued(&self, now: &QdiscStats) {
        self.stats.put(at(QdiscStat::qlen), now.qlen);
        self.stats.put(at(QdiscStat::backlog), now.backlog);
        self.stats.put(at(QdiscStat::queued), now.queued);
        self.stats.put(at(QdiscStat::memory), now.memory);
    }

    /// Counts what was queued and was sent, and stores what is queued now.
    #[inline]
    pub(crate) fn count_taken(&self, taken: &QdiscStats, now: &QdiscStats) {
        self.stats.add(at(QdiscStat::bytes), taken.backlog);
        self.stats.add(at(QdiscStat::packets), taken.queued);
        self.put_queued(now);
    }

    #[inline]
    pub(crate) fn add(&self, delta: &QdiscStats) {
        for (index, &number) in delta.words()[1..].iter().enumerate() {
            self.stats.add(index, number);
        }
    }
}

/// Each statistic from two.
#[inline]
pub(crate) fn zip(a: &QdiscStats, b: &QdiscStats, f: impl Fn(u64, u64) -> u64) -> QdiscStats {
    let (a, b) = (a.words(), b.words());
    QdiscStats::from_words(std::array::from_fn(|at| f(a[at], b[at])))
}

/// Adds what changed in a child, modulo 2^64. `overlimits` and `requeues` are the parent's own, as
/// in the kernel.
#[inline]
pub(crate) fn apply(sum: &mut QdiscStats, delta: &QdiscStats) {
    *sum = QdiscStats {
        overlimits: sum.overlimits,
        requeues: sum.requeues,
        ..zip(sum, delta, u64::wrapping_add)
    };
}
