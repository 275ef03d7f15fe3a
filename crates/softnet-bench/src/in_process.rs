//! A switch that is part of this program, and its counters.

use crate::error::BenchError;

/// A switch within this program. Ends with the value.
pub(crate) trait InProcess: std::fmt::Debug + Send + Sync {
    /// Reads the counters; stops nobody.
    ///
    /// # Errors
    /// If the system does not tell what threads use.
    fn counters(&self) -> Result<Counters, BenchError>;

    /// Ends it.
    ///
    /// # Errors
    /// [`BenchError::Measure`] if a packet is unaccounted for.
    fn stop(self: Box<Self>) -> Result<(), BenchError>;
}

/// The engine's counters so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Frames that the workers took in.
    pub(crate) frames: u64,
    /// Wire packets sent; a large frame counts as those it stands for.
    pub(crate) packets: u64,
    /// Wire packets dropped, for whatever reason.
    pub(crate) drops: u64,
    /// Wire packets that workers handed to others.
    pub(crate) handed_over: u64,
    /// Wake-ups that threads sent to workers.
    pub(crate) wakes: u64,
    /// Times a worker slept.
    pub(crate) sleeps: u64,
    /// CPU time of the workers, in seconds.
    pub(crate) cpu_s: f64,
    /// Sums of both pools: buffers allocated, exchanges with the depot, buffers sent to their
    /// owner's remote-free list, allocations refused, wake-ups of sleeping owners, buffers that
    /// went to the depot because the list was full.
    pub(crate) allocated: u64,
    pub(crate) depot_ops: u64,
    pub(crate) remote_freed: u64,
    pub(crate) exhausted: u64,
    pub(crate) kicks: u64,
    pub(crate) bypassed: u64,
}

impl std::ops::Sub for Counters {
    type Output = Counters;
    fn sub(self, before: Counters) -> Counters {
        Counters {
            frames: self.frames - before.frames,
            packets: self.packets - before.packets,
            drops: self.drops - before.drops,
            handed_over: self.handed_over - before.handed_over,
            wakes: self.wakes - before.wakes,
            sleeps: self.sleeps - before.sleeps,
            cpu_s: self.cpu_s - before.cpu_s,
            allocated: self.allocated - before.allocated,
            depot_ops: self.depot_ops - before.depot_ops,
            remote_freed: self.remote_freed - before.remote_freed,
            exhausted: self.exhausted - before.exhausted,
            kicks: self.kicks - before.kicks,
            bypassed: self.bypassed - before.bypassed,
        }
    }
}
