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
    /// `packets` wire packets died on arrival for `reason`. They count as received and as dropped.
    /// A frame whose metadata was not checked, or did not pass, is one: what it claims to stand
    /// for must not enter any count.
    fn count_drop(&mut self, reason: DropReason, packets: u64);
}

/// One receive queue of a port. Owned and polled by one worker.
///
/// A queue with a file is polled when the file is readable, until it is empty. One whose packets
/// are in memory that it shares with the device suppresses notifications meanwhile: it is
/// [disarmed](RxQueue::disarm) when its worker polls it, [looked at](RxQueue::peek) in every round
/// once it is empty, and [armed](RxQueue::arm) before the worker sleeps.
pub trait RxQueue: Send {
    /// Appends received packets to `out` until they stand for `budget` wire packets or more,
    /// without blocking. Packets come checked: offload metadata fits the frame (see
    /// [`VnetHeader`](softnet::wire::VnetHeader)), the length is at least an Ethernet header's,
    /// and the receive queue is recorded if the device has several. What does not pass is counted
    /// in `drops` and freed, and uses budget too.
    fn poll(
        &mut self,
        budget: usize,
        now: Time,
        out: &mut PacketList,
        drops: &mut dyn CountDrop,
    ) -> Polled;

    /// Asks for notifications: from now on the file becomes readable when packets come. False:
    /// packets have come meanwhile, and the queue must be polled instead. Asked when the queue was
    /// empty.
    fn arm(&mut self) -> bool {
        true
    }

    /// Notifications are not needed until the queue is [armed](RxQueue::arm). Asked before each
    /// poll of the queue's worker. Another worker may poll the queue once while that one sleeps:
    /// the queue stays armed then.
    fn disarm(&mut self) {}

    /// Whether packets wait, without a system call. `None`: that cannot be told, so the queue is
    /// armed as soon as it is empty.
    fn peek(&mut self) -> Option<bool> {
        None
    }

    /// When a queue without a file is to be polled next. Asked after each poll;
    /// [`Time::ZERO`]: in every round, so that its worker never sleeps.
    fn next_poll(&self) -> Time {
        Time::ZERO
    }

    /// The pools that [`poll`](RxQueue::poll) takes buffers from. The worker that polls the queue
    /// is registered with them: it takes in what others freed to it there, and sends off what it
    /// freed for others before it sleeps. The engine's own pool need not be named. Asked by the
    /// control path.
    fn pools(&self) -> Vec<&Pool> {
        Vec::new()
    }

    /// What the driver knows of its device. One of a port's queues tells. Asked by the control
    /// path.
    fn link(&self) -> Option<Arc<dyn Link>> {
        None
    }

    /// What becomes readable when the queue has packets; `None` for a queue that must be polled.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}
