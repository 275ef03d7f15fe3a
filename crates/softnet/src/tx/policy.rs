//! Who runs a queue, and for how long.

/// Packets a run sends before it hands over to the worker (the kernel's `dev_tx_weight`).
pub const RUN_QUOTA: usize = 64;

/// Packets that a helper thread which serves nothing but its device sends in one run. While it has the run, senders only push.
pub(super) const HELPER_QUOTA: usize = 16 * RUN_QUOTA;

/// Packets that may wait on the adoption list unless configured otherwise (the kernel's `net.core.qdisc_max_burst`, which is 1000 there).
///
/// In the kernel nobody is preempted while he holds the queue; here a runner can lose its CPU for milliseconds, and what the others send meanwhile has to
/// wait somewhere. The default is 4 ms (a time slice) of 10 million packets per second. It bounds the list alone, not the discipline.
pub const QDISC_MAX_BURST: usize = 40_000;

/// Who runs a queue, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxPolicy {
    /// Packets that may wait for the thread that runs the queue, 1 to 65,535 (above: as that). What a sender has beyond that is dropped as
    /// [`DropReason::QdiscBurst`](crate::stats::DropReason::QdiscBurst).
    pub max_burst: usize,
    /// Who runs the queue.
    pub served_by: ServedBy,
}

impl Default for TxPolicy {
    /// Senders run the queue; only the quota bounds a run.
    fn default() -> Self {
        TxPolicy {
            max_burst: QDISC_MAX_BURST,
            served_by: ServedBy::default(),
        }
    }
}

/// Who runs a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServedBy {
    /// The sender that finds nobody running, for a bounded number of packets; the queue's worker does what is left. A packet that finds the queue
    /// idle leaves at once, and the worker can sleep.
    #[default]
    Senders,
    /// The queue's worker alone; senders push and ring. A transmit call costs the same whatever the driver and the others do, but each packet waits for
    /// the worker, which has to be awake or to be woken.
    Worker,
}
