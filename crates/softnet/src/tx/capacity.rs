//! Back-pressure: waits for the capacity of a queue, of threads, and of programs with tasks or an
//! event loop.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{ControlError, Device, TxQueue, TxRing};
use crate::qdisc::Qdisc;
use crate::sync::Waiter;

/// One task's wait for the capacity of a transmit queue; see [`Device::capacity_waiter`]. It may be
/// used again and again.
///
/// A wake-up is given to a few waiters only. One that was woken keeps it until it is
/// [polled](CapacityWaiter::poll_capacity) again, [cancelled](CapacityWaiter::cancel) or dropped;
/// each of these passes it on, if there is capacity for others. So a task that is woken and does
/// something else first, as one that waits for several things at once, cancels its wait.
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
    /// a limit below half of the qdisc's, is slowed down instead of losing packets. Never blocks.
    /// (With a limit of 0 it is never ready.)
    ///
    /// The waker is called by the thread that sent, or changed the queue, and may run its task
    /// there at once. A thread that is in a waker calls no other: one that comes up there, also
    /// by what the task sends, is called when the first has returned.
    pub fn poll_capacity(&mut self, limit: usize, cx: &mut Context<'_>) -> Poll<()> {
        let Some(queue) = self.device.queues().get(self.queue) else {
            return Poll::Ready(());
        };
        let waiting = || queue.waiting();
        if (queue.cold.capacity).poll(&mut self.waiter, limit, cx.waker(), waiting) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Ends the wait: the waker is not called any more (but it may be called just now), and a
    /// wake-up that was given to this waiter is the next one's. Nothing happens where none is
    /// under way. Never blocks. A later poll waits anew, behind those that wait already.
    pub fn cancel(&mut self) {
        if let Some(queue) = self.device.queues().get(self.queue) {
            queue.cold.capacity.leave(&mut self.waiter);
        }
    }
}

impl<R: TxRing, Q: Qdisc> Drop for CapacityWaiter<R, Q> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// Waits until fewer than `limit` frames [`wait`](TxQueue::waiting) in this queue, for at
    /// most `timeout`; false if they are as many then. A sender that calls this before it
    /// transmits, with a limit below half of the qdisc's, is slowed down instead of losing packets.
    /// (Half: what the owner of the queue has just taken over counts when it ends its run, and may
    /// be as much.) Blocks; senders that do not call it are not affected.
    ///
    /// # Errors
    /// [`ControlError::CalledByOwner`], at once, if there is no capacity and this thread owns a
    /// queue: what waits there may be what it waits for.
    pub fn wait_for_capacity(
        &self,
        limit: usize,
        timeout: Duration,
    ) -> Result<bool, ControlError> {
        let waiting = || self.waiting();
        if waiting() < limit {
            return Ok(true);
        }
        ControlError::unless_owner()?;
        Ok(self.cold.capacity.wait(timeout, limit, waiting))
    }
}
