//! The receiving half of a driver.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::link::Link;
use softnet::mem::{PacketList, Pool};
use softnet::stats::DropReason;
use softnet::time::Time;

/// What one poll of a receive queue did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// More may be waiting: poll again. False: the queue was empty when last looked at.
    pub more: bool,
    /// The device behind the queue is gone for good; the queue must be closed.
    pub gone: bool,
}

/// Counts what a driver could not turn into a packet.
pub trait CountDrop {
    /// `packets` wire packets died on arrival for `reason`. They count as received and as dropped. A frame whose metadata was not checked, or did not pass,
    /// is one: what it claims to stand for must not enter any count.
    fn count_drop(&mut self, reason: DropReason, packets: u64);
}

/// One receive queue of a port. Owned and polled by one worker.
pub trait RxQueue: Send {
    /// Appends received packets to `out` until they stand for `budget` wire packets or more, without blocking. Packets come checked: offload metadata fits the frame
    /// (see [`VnetHeader`](softnet::wire::VnetHeader)), the length is at least an Ethernet header's, and the receive queue is
    /// recorded if the device has several. What does not pass is counted in `drops` and freed, and uses budget too.
    fn poll(
        &mut self,
        budget: usize,
        now: Time,
        out: &mut PacketList,
        drops: &mut dyn CountDrop,
    ) -> Polled;

    /// The pools that [`poll`](RxQueue::poll) takes buffers from. Whoever polls the queue is registered with them, so workers take in what others freed for them
    /// there, and send off what they freed for others before they sleep. The engine's own pool need not be named. Asked by the control path.
    fn pools(&self) -> Vec<&Pool> {
        Vec::new()
    }

    /// What the driver knows of its device. One of a port's queues tells. Asked by the control path.
    fn link(&self) -> Option<Arc<dyn Link>> {
        None
    }

    /// What becomes readable when the queue has packets; `None` for a queue that must be polled.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}
