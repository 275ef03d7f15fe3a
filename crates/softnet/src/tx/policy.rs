//! Who runs a queue, and for how long.

/// Wire packets that an owner sends before it hands over to the worker (the kernel's
/// `dev_tx_weight`).
pub const RUN_QUOTA: usize = 64;

/// Wire packets that a helper thread which serves nothing but its device sends in one run. While
/// it owns the queue, senders only push.
pub(super) const HELPER_QUOTA: usize = 16 * RUN_QUOTA;

/// Packets that may wait on the adoption list unless configured otherwise (the kernel's
/// `net.core.qdisc_max_burst`, which is 1000 there). It bounds the list alone, not the qdisc.
///
/// In the kernel nobody is preempted while it owns the queue. Here an owner can lose its CPU, and
/// then every other sender may leave one list before it [yields](TxPolicy::yields): 256 threads
/// that send 32 packets in a call.
pub const QDISC_MAX_BURST: usize = 8192;

/// Packets due, on the adoption list and in the qdisc, from which on a sender yields. Twice what
/// one run sends, so that an owner that makes progress is not disturbed. (With 32 two threads on
/// distant CPUs sent 13.8 million packets/s through `fq` instead of 18.2. Yielding once in 32
/// packets, more often as the list grows, and up to 16 times in a call, gave what once gives,
/// within the noise.)
pub(super) const CROWDED: usize = 2 * RUN_QUOTA;

/// Who runs a queue, and for how long.
///
/// Scheduling classes: while the queue's owner is off its CPU, nothing leaves, whoever sends. Among
/// threads of one class that lasts a time slice at most. Where senders of different classes share
/// a queue, it has no bound: a real-time sender (`SCHED_FIFO`, `SCHED_RR`) that never sleeps keeps
/// an owner of a lower class off its CPU, its yields do not help, and its own packets are dropped
/// once the adoption list is full. Such programs use [`ServedBy::Worker`], with a worker of the
/// highest class among the senders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxPolicy {
    /// Packets that may wait for the queue's owner, 0 to 65,535 (above: as that). An empty list
    /// takes any number; what a sender has beyond that is dropped as
    /// [`DropReason::QdiscBurst`](crate::stats::DropReason::QdiscBurst).
    pub max_burst: usize,
    /// Who runs the queue.
    pub served_by: ServedBy,
    /// True if a sender that finds the list full, or leaves packets where many are due, yields the
    /// CPU once for each (`sched_yield`), since the owner may be preempted and need it. Set: a call
    /// may cost two turns of the scheduler. Not set, for event loops: it gets
    /// [`XmitResult::Congestion`](super::XmitResult) instead, and should look at the queue's
    /// [capacity](super::TxQueue::waiting).
    pub yields: bool,
}

impl Default for TxPolicy {
    /// Senders run the queue, and yield.
    fn default() -> Self {
        TxPolicy {
            max_burst: QDISC_MAX_BURST,
            served_by: ServedBy::default(),
            yields: true,
        }
    }
}

/// Who runs a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServedBy {
    /// The sender that finds nobody running, for a bounded number of packets; the queue's worker
    /// does what is left. A packet that finds the queue idle leaves at once, and the worker can
    /// sleep.
    #[default]
    Senders,
    /// The queue's worker alone; senders push and ring. A transmit call costs the same whatever
    /// the driver and the others do, but each packet waits for the worker, which has to be awake
    /// or to be woken.
    Worker,
}
