//! Statistics of each thread cache.

use super::super::Pool;
use super::super::stats::Event;

/// Statistics of one thread cache: of the thread that owns it and of those that did before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStats {
    /// Buffers allocated here.
    pub allocated: u64,
    /// Free buffers ready to be allocated.
    pub cached: usize,
    /// Buffers freed here that will be sent to their owners.
    pub outgoing: usize,
    /// Buffers in the remote-free list.
    pub deferred: usize,
    /// Buffers taken from the remote-free list into the cache.
    pub drained: u64,
    /// Buffers freed here that were sent to their owners.
    pub remote_freed: u64,
}

impl Pool {
    /// The statistics of each thread cache, by its number.
    pub fn thread_stats(&self) -> Vec<ThreadStats> {
        let each = self.inner().threads.iter().map(|thread| {
            let (cached, outgoing) = thread.cached();
            ThreadStats {
                allocated: thread.allocated(),
                cached,
                outgoing,
                deferred: thread.remote.list.len(),
                drained: thread.counters.get(Event::Drained),
                remote_freed: thread.counters.get(Event::RemoteFreed),
            }
        });
        each.collect()
    }
}
