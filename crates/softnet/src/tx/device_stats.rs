//! The statistics of a device.

use std::sync::atomic::Ordering;

use super::{Device, QueueStats, TxQueue, TxRing};
use crate::qdisc::{Qdisc, QdiscStats};
use crate::stats::{Counts, DropReason};

/// Statistics of a device. Packets are wire packets, bytes are wire bytes (Ethernet header
/// included, no preamble or FCS).
#[derive(Clone, Debug, Default)]
pub struct DeviceStats {
    /// Received from the driver, dropped ones included.
    pub rx_packets: u64,
    /// Received bytes.
    pub rx_bytes: u64,
    /// Handed to the device.
    pub tx_packets: u64,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Waiting in transmit queues.
    pub queued: u64,
    /// Dropped on the way in or out, by reason.
    pub drops: Vec<(DropReason, u64)>,
    /// Each transmit queue.
    pub queues: Vec<QueueStats>,
    /// Wire packets that egress actions and qdiscs have added by copying.
    pub copied: u64,
    /// Wire packets that actions had arrive here, through the backlog of a worker. Not among those
    /// received.
    pub deferred: u64,
    /// Times that the watchdog had to restart a queue.
    pub tx_timeouts: u64,
    /// Panics of the driver or a qdisc in a program that unwinds. Each took a queue out of use,
    /// until the device is taken down and up again. (A task's waker that panics counts as well.)
    pub panics: u64,
    /// Distributions of times and sizes.
    pub distributions: Distributions,
}

/// Times of things and sizes of batches, sampled. Empty where nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distributions {
    /// Nanoseconds for which transmit calls owned a queue. (Calls that push for another owner are
    /// not measured, so there are none where the worker alone serves.)
    pub call_ns: Counts,
    /// Nanoseconds from a packet's timestamp to the moment when its owner hands it to the driver.
    /// The engine's workers set the timestamp at reception; a program that embeds a device sets
    /// it itself; for a qdisc that [wants the enqueue time](Qdisc::wants_enqueue_time) the sender
    /// sets it.
    pub sojourn_ns: Counts,
    /// Packets handed to the driver at once.
    pub batch: Counts,
}

impl DeviceStats {
    /// All drops together.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|&(_, n)| n).sum()
    }

    /// The statistics of the root qdisc: of `mq` and `mqprio` the sums of all queues', those not
    /// in use included.
    pub fn qdisc(&self) -> QdiscStats {
        self.queues.iter().map(|queue| queue.qdisc).sum()
    }
}

/// Positions in [`Device::received`].
const RX_PACKETS: usize = 0;
const RX_BYTES: usize = 1;
/// Positions in [`Device::acted`].
const COPIED: usize = 0;
pub(super) const DEFERRED: usize = 1;

impl<R: TxRing, Q: Qdisc> Device<R, Q> {
    #[doc(hidden)]
    /// Counts packets that the driver received.
    pub fn count_received(&self, packets: u64, bytes: u64) {
        self.received.add(RX_PACKETS, packets);
        self.received.add(RX_BYTES, bytes);
    }

    #[doc(hidden)]
    /// Counts packets that egress actions have added by copying.
    pub fn count_copied(&self, wire_packets: u64) {
        self.acted.add(COPIED, wire_packets);
    }

    /// The device's statistics.
    pub fn stats(&self) -> DeviceStats {
        let queues: Vec<QueueStats> = self.queues.iter().map(TxQueue::stats).collect();
        let by_qdiscs: u64 = self.queues.iter().map(|queue| queue.status.copied()).sum();
        let mut distributions = Distributions::default();
        (self.queues.iter()).for_each(|queue| queue.status.sum_up(&mut distributions));
        DeviceStats {
            rx_packets: self.received.sum(RX_PACKETS),
            rx_bytes: self.received.sum(RX_BYTES),
            tx_packets: queues.iter().map(|q| q.tx_packets).sum(),
            tx_bytes: queues.iter().map(|q| q.tx_bytes).sum(),
            queued: queues.iter().map(|q| q.qdisc.queued).sum(),
            drops: self.drops.nonzero(),
            copied: self.acted.sum(COPIED) + by_qdiscs,
            deferred: self.acted.sum(DEFERRED),
            tx_timeouts: self.timeouts.load(Ordering::Relaxed),
            panics: self.queues.iter().map(|q| q.status.panics()).sum(),
            distributions,
            queues,
        }
    }
}
