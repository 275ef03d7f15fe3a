//! Who runs a queue, and for how long.

use std::time::Duration;

use crate::time::{Clock, Time};

/// Packets a run sends before it hands over to the worker (the kernel's `dev_tx_weight`).
pub const RUN_QUOTA: usize = 64;

/// Packets that a sender sends in one run of what its own CPU's senders left.
pub(super) const LANE_QUOTA: usize = 8 * RUN_QUOTA;

/// Packets that a helper thread which serves nothing but its device sends in one run. While it has the run, senders only push.
pub(super) const HELPER_QUOTA: usize = 16 * RUN_QUOTA;

/// Packets that may wait on the adoption list unless configured otherwise (the kernel's `net.core.qdisc_max_burst`, which is 1000 there).
///
/// In the kernel nobody is preempted while he holds the queue; here a runner can lose its CPU for milliseconds, and what the others send meanwhile has to
/// wait somewhere. The default is 4 ms (a time slice) of 10 million packets per second. It bounds the list alone, not the discipline.
pub const QDISC_MAX_BURST: usize = 40_000;

/// Who runs a queue, and for how long.
#[derive(Clone, Debug)]
pub struct TxPolicy {
    /// Packets that may wait for the thread that runs the queue, 1 to 65,535 (above: as that). What a sender has beyond that is dropped as
    /// [`DropReason::QdiscBurst`](crate::stats::DropReason::QdiscBurst).
    pub max_burst: usize,
    /// Who runs the queue.
    pub served_by: ServedBy,
    /// Whether `pfifo_fast` stands in its [shared-reference form](crate::qdisc::PfifoFastRings): senders that do not get the run put their packets into its bands
    /// themselves instead of on the adoption list. Their calls then return the exact result, and `max_burst` does not apply.
    pub lockless: bool,
    /// How long one run may take. Without it the quota of [`RUN_QUOTA`] packets alone bounds a run.
    pub time_limit: Option<TimeLimit>,
}

impl Default for TxPolicy {
    /// Senders run the queue; only the quota bounds a run.
    fn default() -> Self {
        TxPolicy {
            max_burst: QDISC_MAX_BURST,
            served_by: ServedBy::default(),
            lockless: false,
            time_limit: None,
        }
    }
}

impl TxPolicy {
    /// Whether senders may fill `pfifo_fast` themselves.
    pub(super) fn is_lockless(&self) -> bool {
        self.lockless && self.served_by != ServedBy::SendersByCpu
    }
}

/// Who runs a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServedBy {
    /// The sender that finds nobody running, for a bounded number of packets; the queue's worker does what is left. A packet that finds the queue
    /// idle leaves at once, and the worker can sleep.
    #[default]
    Senders,
    /// As `Senders`, but what cannot leave at once waits in a *lane* of the sender's CPU, and is preferably taken by a sender of that CPU, so that few packets go from one
    /// CPU's cache to another's: for many threads that send much. What their bounded runs leave to a worker waits up to a tenth of a millisecond for a sender to
    /// take it. **Order**: the packets of each thread keep theirs. Those of different threads may pass each other also if one thread knew that the other had sent; so do not use
    /// this where a flow moves from thread to thread. [`max_burst`](TxPolicy::max_burst) is for each lane, and [`lockless`](TxPolicy::lockless) has no effect.
    SendersByCpu,
    /// The queue's worker alone; senders push and ring. A transmit call costs the same whatever the driver and the others do, but each packet waits for
    /// the worker, which has to be awake or to be woken.
    Worker,
}

/// A bound on the time of a run.
#[derive(Clone, Debug)]
pub struct TimeLimit {
    /// The clock by which senders pass `now`.
    pub clock: Clock,
    /// The run ends after the packets that it sends when this time is up; it looks every [`CHUNK`](TimeLimit::CHUNK) packets.
    pub limit: Duration,
}

impl TimeLimit {
    /// Packets between two looks at the clock.
    pub const CHUNK: usize = 16;

    /// Whether a run that began at `start` has used its time up.
    pub(super) fn is_over(&self, start: Time) -> bool {
        self.clock.now().since(start) >= self.limit
    }
}
