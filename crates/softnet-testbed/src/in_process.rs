//! A switch that is part of this program, and its counters.

use softnet_engine::EngineStats;

use crate::error::TestbedError;

/// A switch within this program. Ends with the value.
pub trait InProcess: std::fmt::Debug + Send + Sync {
    /// Reads the counters; stops nobody.
    ///
    /// # Errors
    /// If the system does not tell what threads use.
    fn counters(&self) -> Result<Counters, TestbedError>;

    /// Ends it.
    ///
    /// # Errors
    /// [`TestbedError::Measure`] if a packet is unaccounted for.
    fn stop(self: Box<Self>) -> Result<(), TestbedError>;
}

/// The engine's counters so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Frames that the workers took in.
    pub frames: u64,
    /// Wire packets sent; a large frame counts as those it stands for.
    pub packets: u64,
    /// Wire packets dropped, for whatever reason.
    pub drops: u64,
    /// Wire packets that workers handed to others.
    pub handed_over: u64,
    /// Wake-ups that threads sent to workers.
    pub wakes: u64,
    /// Times a worker slept.
    pub sleeps: u64,
    /// CPU time of the workers, in seconds.
    pub cpu_s: f64,
    /// Buffers allocated, of all pools, as the following.
    pub allocated: u64,
    /// Exchanges with the depot.
    pub depot_ops: u64,
    /// Buffers sent to their owner's remote-free list.
    pub remote_freed: u64,
    /// Allocations refused.
    pub exhausted: u64,
    /// Wake-ups of sleeping owners.
    pub kicks: u64,
    /// Buffers that went to the depot because the list was full.
    pub bypassed: u64,
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

/// Checks that an engine that was stopped lost count of no packet.
///
/// # Errors
/// [`TestbedError::Measure`] with the sums if it did.
pub fn conserved(stats: &EngineStats) -> Result<(), TestbedError> {
    let sums = stats.conservation();
    if sums.holds() {
        return Ok(());
    }
    Err(TestbedError::Measure(format!(
        "softnet lost count of packets: {sums:?}"
    )))
}
