//! Back-pressure for programs with tasks or an event loop.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Device, TxQueue, TxRing};
use crate::qdisc::Qdisc;
use crate::sync::Waiter;

/// One task's wait for the capacity of a transmit queue; see [`Device::capacity_waiter`]. It may be
/// used again and again. Dropping it ends the wait, and lets the next waiter have the capacity.
///
/// An event loop that is no executor makes the context from [`WakeFile::waker`](super::WakeFile).
#[derive(Debug)]
pub struct CapacityWaiter<R: TxRing, Q: Qdisc> {
    device: Arc<Device<R, Q>>,
    queue: usize,
    waiter: Waiter,
}

impl<R: TxRing, Q: Qdisc> Device<R, Q> {
    /// A wait for the capacity of transmit queue `queue`. One that does not exist has always some.
    pub fn capacity_waiter(self: &Arc<Self>, queue: usize) -> CapacityWaiter<R, Q> {
        CapacityWaiter {
            device: self.clone(),
            queue,
            waiter: Waiter::default(),
        }
    }
}

impl<R: TxRing, Q: Qdisc> CapacityWaiter<R, Q> {
    /// Ready if fewer than `limit` frames [wait](TxQueue::waiting) in the queue; else the context's
    /// waker is called when that may be so. A sender that waits for this before it transmits, with
    /// a limit below the qdisc's, is slowed down instead of losing packets. Never blocks. (With a
    /// limit of 0 it is never ready.)
    pub fn poll_capacity(&mut self, limit: usize, cx: &mut Context<'_>) -> Poll<()> {
        let Some(queue) = self.device.queues().get(self.queue) else {
            return Poll::Ready(());
        };
        if queue.poll_capacity(&mut self.waiter, limit, cx.waker()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl<R: TxRing, Q: Qdisc> Drop for CapacityWaiter<R, Q> {
    fn drop(&mut self) {
        if let Some(queue) = self.device.queues().get(self.queue) {
            queue.cold.capacity.leave(&mut self.waiter);
        }
    }
}

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    fn poll_capacity(&self, waiter: &mut Waiter, limit: usize, waker: &std::task::Waker) -> bool {
        let waiting = || self.waiting();
        self.cold.capacity.poll(waiter, limit, waker, waiting)
    }
}
