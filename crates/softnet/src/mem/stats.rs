//! Statistics of a pool.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::thread_cache::Raids;
use super::{Inner, Pool, size};

/// Statistics of a pool. `buffers`, `free`, `allocated` and the other sums of events are exact at
/// rest; where free buffers are (`cached`, `deferred`, `depot`, `unused`) is a recent value, exact
/// when no thread uses, joins or leaves the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Buffers in all.
    pub buffers: usize,
    /// Buffers that are free, wherever they are.
    pub free: usize,
    /// Free ones in the caches of threads: ready to be allocated, or collected for their owners.
    pub cached: usize,
    /// Free ones in the remote-free lists of their owners.
    pub deferred: usize,
    /// Free ones in the depot.
    pub depot: usize,
    /// Free ones that were never used so far.
    pub unused: usize,
    /// Buffers allocated so far.
    pub allocated: u64,
    /// Allocations refused because nothing was free.
    pub exhausted: u64,
    /// Wake-ups of sleeping owners.
    pub kicks: u64,
    /// Buffers freed by another thread than their owner, and sent to its remote-free list.
    pub remote_freed: u64,
    /// Buffers that went to the depot because their owner's remote-free list was full or its
    /// thread gone.
    pub bypassed: u64,
    /// Exchanges with the depot, each of up to 64 buffers.
    pub depot_ops: u64,
    /// Buffers taken out of other threads' caches because there were none left elsewhere.
    pub stolen: u64,
}

/// Events off the fast path.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// A buffer allocated by an unregistered thread.
    Allocated,
    /// A buffer freed by one.
    Freed,
    Exhausted,
    Kick,
    RemoteFreed,
    Bypassed,
    Drained,
    DepotOp,
    Stolen,
}

/// Number of times that each [`Event`] happened.
#[derive(Default)]
pub(super) struct Counters([AtomicU64; Event::Stolen as usize + 1]);

impl Counters {
    /// Acquire: pairs with [`add`](Counters::add); see `close`.
    pub(super) fn get(&self, event: Event) -> u64 {
        self.0[event as usize].load(Ordering::Acquire)
    }

    /// Counts, where any thread may.
    pub(super) fn add(&self, event: Event, by: usize) {
        self.0[event as usize].fetch_add(by as u64, Ordering::Release);
    }

    /// Counts, where one thread at a time may.
    pub(super) fn bump(&self, event: Event, by: usize) {
        bump(&self.0[event as usize], by as u64);
    }
}

/// Adds where one thread at a time writes: no need for an atomic addition.
#[inline(always)]
pub(super) fn bump(counter: &AtomicU64, by: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(sum, Ordering::Relaxed);
}

/// Unregistered threads: how many are in the pool, and what they did.
#[derive(Default)]
pub(super) struct Unregistered {
    /// And [`CLOSED`](super::close::CLOSED).
    pub(super) inside: AtomicUsize,
    pub(super) raids: Raids,
    pub(super) counters: Counters,
}

impl Pool {
    /// The pool's statistics. Disturbs nobody, but reads a line of every thread.
    pub fn stats(&self) -> PoolStats {
        let pool = self.inner();
        let (depot, unused) = pool.depot.count(&pool.arena);
        let threads = || pool.threads.iter();
        let cached = threads().map(|thread| thread.cached());
        PoolStats {
            buffers: pool.arena.len(),
            free: pool.arena.len().saturating_sub(pool.in_use()),
            cached: cached.map(|(ready, outgoing)| ready + outgoing).sum(),
            deferred: threads().map(|thread| thread.remote.list.len()).sum(),
            depot,
            unused,
            allocated: pool.allocated(),
            exhausted: pool.count(Event::Exhausted),
            kicks: pool.count(Event::Kick),
            remote_freed: pool.count(Event::RemoteFreed),
            bypassed: pool.count(Event::Bypassed),
            depot_ops: pool.count(Event::DepotOp),
            stolen: pool.count(Event::Stolen),
        }
    }
}

impl Inner {
    /// Number of times that an event happened in all.
    fn count(&self, event: Event) -> u64 {
        let of_threads = self.threads.iter().map(|thread| thread.counters.get(event));
        self.unregistered.counters.get(event) + of_threads.sum::<u64>()
    }

    /// Buffers that belong to packets, deferred or shared ones included. The frees are summed
    /// first, so that while threads use the pool, the result is too large rather than too small.
    pub(super) fn in_use(&self) -> usize {
        // The counter's Acquire pairs with the Release of a free by an unregistered thread; see
        // `close`.
        let by_threads = self.threads.iter().map(|t| t.freed.load(Ordering::Acquire));
        let freed = self.unregistered.counters.get(Event::Freed) + by_threads.sum::<u64>();
        size(self.allocated().saturating_sub(freed))
    }

    /// Buffers allocated so far.
    fn allocated(&self) -> u64 {
        let of_threads = self.threads.iter().map(|thread| thread.allocated());
        self.unregistered.counters.get(Event::Allocated) + of_threads.sum::<u64>()
    }
}
