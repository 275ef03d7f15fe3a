//! What a pool tells about itself.

use std::sync::atomic::Ordering;

use super::{Inner, thread};

/// Numbers of a pool. `buffers`, `free`, `allocated` and the other sums of events are exact at rest; where free buffers lie (`cached`, `deferred`,
/// `depot`, `unused`) is a recent value, exact when no thread uses, joins or leaves the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Buffers in all.
    pub buffers: usize,
    /// Buffers that are free, wherever they are.
    pub free: usize,
    /// Of these, in the caches of threads, ready to be allocated or on their way home.
    pub cached: usize,
    /// Of these, in the inboxes of their homes.
    pub deferred: usize,
    /// Of these, in the depot.
    pub depot: usize,
    /// Of these, never used so far.
    pub unused: usize,
    /// Buffers allocated so far.
    pub allocated: u64,
    /// Allocations refused because nothing was free.
    pub exhausted: u64,
    /// Wake-ups of sleeping homes.
    pub kicks: u64,
    /// Buffers freed by another thread than that which allocated them, and sent to its inbox so far.
    pub sent_home: u64,
    /// Buffers that went to the depot because their home's inbox was full or their home's thread gone.
    pub bypassed: u64,
    /// Exchanges with the depot so far, each of up to 64 buffers.
    pub depot_ops: u64,
    /// Buffers taken out of other threads' caches because there were none left elsewhere.
    pub stolen: u64,
}

/// Numbers of one home: of the thread that has it and of those that had it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeStats {
    /// Number of the home, from 0.
    pub home: u16,
    /// Whether a thread has it.
    pub occupied: bool,
    /// Buffers allocated here.
    pub allocated: u64,
    /// Buffers freed here, whatever their home.
    pub freed: u64,
    /// Free buffers ready to be allocated.
    pub cached: usize,
    /// Buffers freed here that will be sent to other homes.
    pub outgoing: usize,
    /// Buffers in the inbox.
    pub deferred: usize,
    /// Buffers taken from the inbox into the cache.
    pub drained: u64,
    /// Wake-ups sent to the home's thread.
    pub kicks: u64,
    /// Buffers freed here that were sent to their homes.
    pub sent_home: u64,
    /// Buffers freed here that went to the depot instead of their home.
    pub bypassed: u64,
    /// Exchanges with the depot.
    pub depot_ops: u64,
}

impl Inner {
    pub(super) fn home_stats(&self) -> Vec<HomeStats> {
        let each = self.homes.iter().map(|home| {
            let (cached, outgoing) = home.cached();
            HomeStats {
                home: home.index,
                occupied: thread::is_occupied(home),
                allocated: home.allocated(),
                freed: home.freed.load(Ordering::Relaxed),
                cached,
                outgoing,
                deferred: home.remote.inbox.len(),
                drained: home.counts.drained.load(Ordering::Relaxed),
                kicks: home.remote.kicks.load(Ordering::Relaxed),
                sent_home: home.counts.sent_home.load(Ordering::Relaxed),
                bypassed: home.counts.bypassed.load(Ordering::Relaxed),
                depot_ops: home.counts.depot_ops.load(Ordering::Relaxed),
            }
        });
        each.collect()
    }

    pub(super) fn stats(&self) -> PoolStats {
        let homes = self.home_stats();
        let sum = |of: fn(&HomeStats) -> u64| homes.iter().map(of).sum::<u64>();
        let (depot, unused) = self.depot.count(&self.arena);
        let outside = &self.outside.counts;
        PoolStats {
            buffers: self.arena.len(),
            free: self.arena.len() - self.in_use().min(self.arena.len()),
            cached: homes.iter().map(|h| h.cached + h.outgoing).sum(),
            deferred: homes.iter().map(|h| h.deferred).sum(),
            depot,
            unused,
            allocated: sum(|h| h.allocated) + self.outside.allocated.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
            kicks: sum(|h| h.kicks),
            sent_home: sum(|h| h.sent_home) + outside.sent_home.load(Ordering::Relaxed),
            bypassed: sum(|h| h.bypassed) + outside.bypassed.load(Ordering::Relaxed),
            depot_ops: sum(|h| h.depot_ops) + outside.depot_ops.load(Ordering::Relaxed),
            stolen: self.stolen.load(Ordering::Relaxed),
        }
    }

    /// Buffers that belong to packets, sent or shared ones included. The frees are summed first, so that while threads use
    /// the pool, the result is too large rather than too small.
    pub(super) fn in_use(&self) -> usize {
        // Acquire: pairs with the Release of a free from outside; see `close`.
        let outside = self.outside.freed.load(Ordering::Acquire);
        let freed = self
            .homes
            .iter()
            .fold(outside, |sum, h| sum + h.freed.load(Ordering::Acquire));
        let outside = self.outside.allocated.load(Ordering::Relaxed);
        let allocated = self
            .homes
            .iter()
            .fold(outside, |sum, h| sum + h.allocated());
        usize::try_from(allocated.saturating_sub(freed)).unwrap_or(usize::MAX)
    }
}
