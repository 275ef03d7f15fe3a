//! What the control path does with a queue: it becomes the owner, for which it waits, changes
//! something, and lets the worker look at what waits. None of this may be called from inside a run of
//! the same queue (from a driver, a qdisc, or a closure given to the queue): it would wait for itself.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::queue::TxQueue;
use super::ring::TxRing;
use super::runner::Runner;
use crate::mem::{PacketList, PacketRunner};
use crate::qdisc::{Cx, Qdisc};
use crate::stats::DropReason;
use crate::time::Time;

/// A queue that the control path owns. What senders left stays on the adoption list. Ends, also by a
/// panic, by publishing, freeing, and notifying the worker.
struct Control<'a, R: TxRing, Q: Qdisc> {
    queue: &'a TxQueue<R, Q>,
    /// None only while it is dropped.
    owner: Option<PacketRunner<'a, Runner<R, Q>>>,
}

impl<'a, R: TxRing, Q: Qdisc> Control<'a, R, Q> {
    fn of(queue: &'a TxQueue<R, Q>, owner: PacketRunner<'a, Runner<R, Q>>) -> Self {
        Control {
            queue,
            owner: Some(owner),
        }
    }

    fn owner(&mut self) -> &mut PacketRunner<'a, Runner<R, Q>> {
        self.owner.as_mut().expect("only a drop takes it")
    }

    /// Everything that waits, in the order in which it would have left.
    fn take_all(&mut self) -> PacketList {
        let mut all = self.take_dequeued();
        self.qdisc.drain(&mut all);
        all.append(&mut self.owner().take_all());
        all
    }
}

impl<R: TxRing, Q: Qdisc> Deref for Control<'_, R, Q> {
    type Target = Runner<R, Q>;
    fn deref(&self) -> &Runner<R, Q> {
        self.owner.as_ref().expect("only a drop takes it")
    }
}

impl<R: TxRing, Q: Qdisc> DerefMut for Control<'_, R, Q> {
    fn deref_mut(&mut self) -> &mut Runner<R, Q> {
        self.owner()
    }
}

impl<R: TxRing, Q: Qdisc> Drop for Control<'_, R, Q> {
    fn drop(&mut self) {
        let Some(mut owner) = self.owner.take() else {
            return;
        };
        owner.publish(&self.queue.published);
        owner.cx.dropped.settle(&self.queue.drops);
        // The next run says what is due.
        owner.set_backlog(0);
        let _ = owner.leave();
        self.queue.notifier.notify(self.queue.token);
    }
}

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// Waits for the present owner's run.
    fn control(&self) -> Control<'_, R, Q> {
        Control::of(self, self.run.begin_slow())
    }

    /// Has the driver's rings that took nothing for `timeout` [restarted](TxRing::restart), and tries
    /// them anew. Waits for a running thread: control path only.
    pub(super) fn restart(&self, now: Time, timeout: Duration) {
        self.control().restart(now, timeout);
        self.watch().restarted();
    }

    /// Takes rings and everything that waits out of the queue, in the order in which it would have
    /// left. Waits for a running thread: control path only.
    pub(super) fn evict(&self) -> (Vec<R>, PacketList) {
        let mut control = self.control();
        let waiting = control.take_all();
        let rings = std::mem::take(&mut control.rings);
        control.stopped = false;
        self.watch().restarted();
        (rings, waiting)
    }

    /// Takes everything that waits out of a queue that has no rings; of one that has, the worker is
    /// notified instead. Waits for nobody: an owner notifies the worker when it is done.
    pub(super) fn take_stranded(&self, now: Time) -> PacketList {
        let mut stranded = PacketList::new();
        if let Some((owner, mut left)) = self.run.begin_or_miss() {
            let mut control = Control::of(self, owner);
            // The queue may have come back into use since the caller looked.
            if control.rings.is_empty() {
                control.qdisc.drain(&mut stranded);
                stranded.append(&mut left);
            } else {
                control.enqueue(self, &mut left, &mut PacketList::new(), now);
            }
        }
        stranded
    }

    /// Gives the queue a qdisc and rings (besides those it has). What the old qdisc holds moves to the
    /// new one, in the order in which it would have left, and `waiting` behind it; what does not fit is
    /// dropped as [`DropReason::QdiscLimit`]. Waits for a running thread: control path only.
    pub(super) fn install(&self, qdisc: Q, rings: Vec<R>, mut waiting: PacketList, now: Time) {
        let mut control = self.control();
        // Where something waits to come here the queue was evicted, and what it has now is younger.
        let mut moved = PacketList::new();
        moved.append(&mut waiting);
        control.qdisc.drain(&mut moved);
        moved.append(&mut control.owner().take_all());
        control.rings.extend(rings);
        control.qdisc = qdisc;
        // A new qdisc counts from nothing.
        control.requeues = 0;
        let Runner {
            qdisc, cx, active, ..
        } = &mut *control;
        if *active {
            qdisc.enqueue(&mut moved, cx.at(now));
        } else {
            cx.dropped.append(moved, DropReason::DeviceDown);
        }
    }

    /// Does something with the qdisc that needs it for itself, and then lets leave what may leave now.
    /// Waits for a running thread: control path only.
    pub(super) fn with_qdisc<T>(&self, now: Time, f: impl FnOnce(&mut Q, &mut Cx) -> T) -> T {
        let mut control = self.control();
        let Runner { qdisc, cx, .. } = &mut *control;
        f(qdisc, cx.at(now))
    }

    /// Replaces the driver's rings, for a device that went or came back. Waits for a running thread:
    /// control path only.
    pub(super) fn replace_rings(&self, rings: Vec<R>) {
        let mut control = self.control();
        control.rings = rings;
        control.requeued.unblock();
        control.stopped = false;
    }

    /// Takes the queue down (packets are dropped as [`DropReason::DeviceDown`], what is queued as
    /// [`DropReason::QdiscReset`]) or up again. Waits for a running thread: control path only.
    pub fn set_active(&self, active: bool) {
        // Before the qdisc is emptied: a sender that leaves packets to the worker looks after that.
        self.down.store(!active, Ordering::SeqCst);
        let mut control = self.control();
        control.active = active;
        if !active {
            let mut gone = control.take_dequeued();
            control.stopped = false;
            control.qdisc.drain(&mut gone);
            control.cx.dropped.append(gone, DropReason::QdiscReset);
        }
    }
}
