//! What is published of a class, and sums and differences of statistics.

use super::htb::HtbCounters;
use super::{QdiscStats, WireSum};
use softnet::stats::Published;

/// The statistics of a class, which are those of the qdisc on it. The owner of the queue writes
/// them as they change; any thread may read them, at any rate. What all qdiscs have is in one cache
/// line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct ClassCounters {
    stats: Published<8>,
    /// Of a class of `htb`.
    pub(super) htb: HtbCounters,
}

impl ClassCounters {
    /// The statistics now. Each is whole, but they need not be from the same moment.
    pub fn get(&self) -> QdiscStats {
        let [
            bytes,
            packets,
            drops,
            overlimits,
            qlen,
            backlog,
            queued,
            memory,
        ] = self.stats.get();
        QdiscStats {
            bytes,
            packets,
            drops,
            overlimits,
            requeues: 0,
            qlen,
            backlog,
            queued,
            memory,
        }
    }

    pub(super) fn reset(&self) {
        self.stats.set([0; 8]);
    }

    #[inline]
    pub(super) fn count_sent(&self, sum: WireSum) {
        self.stats.add(0, sum.bytes);
        self.stats.add(1, sum.packets);
    }

    /// Stores what is queued now.
    #[inline]
    pub(super) fn put_queued(&self, now: &QdiscStats) {
        self.stats.put(4, now.qlen);
        self.stats.put(5, now.backlog);
        self.stats.put(6, now.queued);
        self.stats.put(7, now.memory);
    }

    /// Counts what was queued and was sent, and stores what is queued now.
    #[inline]
    pub(super) fn count_taken(&self, taken: &QdiscStats, now: &QdiscStats) {
        self.stats.add(0, taken.backlog);
        self.stats.add(1, taken.queued);
        self.put_queued(now);
    }

    #[inline]
    pub(super) fn add(&self, delta: &QdiscStats) {
        self.stats.add(0, delta.bytes);
        self.stats.add(1, delta.packets);
        self.stats.add(2, delta.drops);
        self.stats.add(3, delta.overlimits);
        self.stats.add(4, delta.qlen);
        self.stats.add(5, delta.backlog);
        self.stats.add(6, delta.queued);
        self.stats.add(7, delta.memory);
    }
}

/// Each statistic from two.
#[inline]
pub(super) fn zip(a: &QdiscStats, b: &QdiscStats, f: impl Fn(u64, u64) -> u64) -> QdiscStats {
    QdiscStats {
        bytes: f(a.bytes, b.bytes),
        packets: f(a.packets, b.packets),
        drops: f(a.drops, b.drops),
        overlimits: f(a.overlimits, b.overlimits),
        requeues: 0,
        qlen: f(a.qlen, b.qlen),
        backlog: f(a.backlog, b.backlog),
        queued: f(a.queued, b.queued),
        memory: f(a.memory, b.memory),
    }
}

/// Adds what changed in a child, modulo 2^64. `overlimits` and `requeues` are the parent's own, as
/// in the kernel.
#[inline]
pub(super) fn apply(sum: &mut QdiscStats, delta: &QdiscStats) {
    *sum = QdiscStats {
        overlimits: sum.overlimits,
        requeues: sum.requeues,
        ..zip(sum, delta, u64::wrapping_add)
    };
}
