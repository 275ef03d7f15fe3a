//! Counters that many threads write and nobody waits for: an array of shards, a cache line pair
//! each, one of which a thread uses for all its additions.
//!
//! Invariant: the sum over the shards is the sum of all additions (modulo 2^64). A shard's
//! counter may be any number; only the sum means something (INV-PF-4 of the kernel's per-CPU
//! statistics). Ordering: everything is Relaxed. A counter carries no data; a reader that needs
//! an exact sum at rest gets it through whatever told it that the writers are at rest (a join, a
//! lock, a channel).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Shards per counter set. More threads than this share shards, which costs time, never exactness.
/// (Under miri, to make and to read a thousand counters of drops takes long.)
const SHARDS: usize = if cfg!(miri) { 2 } else { 16 };

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn shard() -> usize {
    SHARD.with(|s| {
        if s.get() == usize::MAX {
            s.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        s.get()
    })
}

/// `N` counters, sharded by thread.
#[derive(Debug)]
pub struct PerCpu<const N: usize> {
    shards: Box<[CachePadded<[AtomicU64; N]>]>,
}

impl<const N: usize> Default for PerCpu<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> PerCpu<N> {
    /// All zero.
    pub fn new() -> Self {
        let shards = (0..SHARDS)
            .map(|_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0))))
            .collect();
        PerCpu { shards }
    }

    /// Adds to counter `index` in this thread's shard. Never waits.
    pub fn add(&self, index: usize, value: u64) {
        self.shards[shard()][index].fetch_add(value, Ordering::Relaxed);
    }

    /// The counter's value: exact at rest, a recent value while threads add.
    pub fn sum(&self, index: usize) -> u64 {
        self.shards.iter().fold(0, |sum, s| {
            sum.wrapping_add(s[index].load(Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-PF-4.
    #[test]
    fn sum_is_exact_over_more_threads_than_shards() {
        let counters = PerCpu::<2>::new();
        let threads = if cfg!(miri) { 3 } else { 2 * SHARDS + 1 };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..100).for_each(|_| counters.add(1, 3)));
            }
        });
        assert_eq!(counters.sum(1), threads as u64 * 300);
        assert_eq!(counters.sum(0), 0);
    }
}
