//! What the control path does with a queue: it takes the run for itself, for which it waits, changes something, and lets the worker look at what waits.

use std::time::Duration;

use super::queue::TxQueue;
use super::ring::TxRing;
use super::runner::Runner;
use crate::packet::{PacketList, PacketRunner};
use crate::qdisc::{AnyQdisc, Qdisc};
use crate::stats::{DropReason, Dropped};
use crate::time::Time;

impl<R: TxRing> TxQueue<R> {
    /// Has the driver's rings that took nothing for `timeout` [restarted](TxRing::restart), and tries them anew. Waits for a running thread: control path
    /// only.
    pub(super) fn restart(&self, now: Time, timeout: Duration) {
        let (mut guard, left) = self.run.begin_slow();
        guard.restart(now, timeout);
        self.watch().restarted();
        self.leave(guard, left);
    }

    /// Takes rings and everything that waits out of the queue, in the order in which it would have left. Waits for a running thread:
    /// control path only.
    pub(super) fn evict(&self) -> (Vec<R>, PacketList) {
        let (mut guard, mut left) = self.run.begin_slow();
        let mut waiting = guard.take_dequeued();
        guard.qdisc.drain(&mut waiting);
        waiting.append(&mut guard.adopted);
        waiting.append(&mut left);
        let rings = std::mem::take(&mut guard.rings);
        guard.stopped = false;
        self.watch().restarted();
        self.leave(guard, PacketList::new());
        (rings, waiting)
    }

    /// Takes everything that waits out of a queue that has no rings; of one that has, the bell rings instead. Waits for nobody: a thread that runs the queue rings when
    /// it is done.
    pub(super) fn take_stranded(&self) -> PacketList {
        let mut stranded = PacketList::new();
        if let Some((mut guard, mut left)) = self.run.begin_or_miss() {
            // The queue may have come back into use since the caller looked.
            if guard.rings.is_empty() {
                guard.qdisc.drain(&mut stranded);
                stranded.append(&mut guard.adopted);
                stranded.append(&mut left);
            }
            self.leave(guard, left);
        }
        stranded
    }

    /// Gives the queue a discipline and rings (besides those it has). What the old discipline holds moves to the new one, in the order in which
    /// it would have left, and `waiting` behind it; what does not fit is dropped as [`DropReason::QdiscLimit`]. Waits for a running thread:
    /// control path only.
    pub(super) fn install(
        &self,
        qdisc: AnyQdisc,
        rings: Vec<R>,
        mut waiting: PacketList,
        now: Time,
    ) {
        let (mut guard, mut left) = self.run.begin_slow();
        // Where something waits to come here the queue was evicted, and what it has now is younger.
        let mut moved = PacketList::new();
        moved.append(&mut waiting);
        guard.qdisc.drain(&mut moved);
        moved.append(&mut guard.adopted);
        moved.append(&mut left);
        guard.rings.extend(rings);
        // Numbers are those of the qdisc that there is.
        guard.requeues = 0;
        guard.qdisc = qdisc;
        let Runner { qdisc, dropped, .. } = &mut *guard;
        qdisc.enqueue(&mut moved, now, dropped);
        self.leave(guard, PacketList::new());
    }

    /// Does something with the discipline that needs it for itself, and then lets leave what may leave now. Waits for a running thread: control path
    /// only.
    pub(super) fn with_qdisc<T>(&self, f: impl FnOnce(&mut AnyQdisc, &mut Dropped) -> T) -> T {
        let (mut guard, left) = self.run.begin_slow();
        let Runner { qdisc, dropped, .. } = &mut *guard;
        let result = f(qdisc, dropped);
        self.leave(guard, left);
        result
    }

    /// Replaces the driver's rings, for a device that went or came back. Waits for a running
    /// thread: control path only.
    pub(super) fn replace_rings(&self, rings: Vec<R>) {
        let (mut guard, left) = self.run.begin_slow();
        guard.rings = rings;
        guard.requeued.unblock();
        guard.stopped = false;
        self.leave(guard, left);
    }

    /// Takes the queue down (packets are dropped as [`DropReason::DeviceDown`], what is queued as
    /// [`DropReason::QdiscReset`]) or up again. Waits for a running thread: control path only.
    pub fn set_active(&self, active: bool) {
        let (mut guard, left) = self.run.begin_slow();
        guard.active = active;
        if !active {
            let mut gone = guard.take_dequeued();
            guard.stopped = false;
            guard.qdisc.drain(&mut gone);
            guard.dropped.append(gone, DropReason::QdiscReset);
        }
        self.leave(guard, left);
    }

    /// Ends a run of the control path: keeps what waited for the next run, publishes, frees, and lets the worker look at the rest.
    pub(super) fn leave(&self, mut guard: PacketRunner<'_, Runner<R>>, mut left: PacketList) {
        guard.adopted.append(&mut left);
        guard.publish(&self.published);
        guard.dropped.settle(&self.drops);
        let _ = guard.leave();
        self.doorbell.ring(self.token);
    }
}
