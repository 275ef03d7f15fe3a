//! Changes of a queue by the control path: it becomes the owner, for which it waits, changes
//! something, and notifies the worker. A thread that owns a queue already (a call from a driver, a
//! qdisc, or a closure given to a queue) might wait for itself, and is [refused](ControlError).

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::RUN_QUOTA;
use super::adopted::ADOPTIONS;
use super::queue::{Owner, TxQueue, stamp};
use super::ring::TxRing;
use super::state::QueueState;
use crate::mem::PacketList;
use crate::probes;
use crate::qdisc::Qdisc;
use crate::stats::DropReason;
use crate::sync::is_owner_here;
use crate::time::{Clock, Time};

/// Cause for which the control path changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// This thread owns a transmit queue: the call came from a driver, a qdisc or a closure given
    /// to a queue, and might have waited for itself.
    #[error("called by the owner of a transmit queue, which would wait for itself")]
    CalledByOwner,
    /// The device has no queue of this number.
    #[error("the device has no transmit queue {0}")]
    NoSuchQueue(usize),
}

impl ControlError {
    #[doc(hidden)]
    /// To be asked before anything is changed, or locked.
    ///
    /// # Errors
    /// [`ControlError::CalledByOwner`], if this thread owns a transmit queue.
    pub fn unless_owner() -> Result<(), ControlError> {
        if is_owner_here() {
            Err(ControlError::CalledByOwner)
        } else {
            Ok(())
        }
    }
}

/// A queue that the control path owns. What senders push stays on the adoption list. Ends, also
/// by a panic, by publishing, freeing, and notifying the worker.
pub(super) struct Control<'a, R: TxRing, Q: Qdisc> {
    queue: &'a TxQueue<R, Q>,
    /// None only while it is dropped.
    owner: Option<Owner<'a, R, Q>>,
}

impl<'a, R: TxRing, Q: Qdisc> Control<'a, R, Q> {
    fn of(queue: &'a TxQueue<R, Q>, owner: Owner<'a, R, Q>) -> Self {
        probes::queue_run(queue);
        Control {
            queue,
            owner: Some(owner),
        }
    }

    /// Restarts rings that have taken nothing for so long. A driver that panics takes the queue out
    /// of use, as in any of its calls.
    pub(super) fn restart(mut self, now: Time, timeout: Duration) {
        let rings = &mut self.rings;
        let result = catch_unwind(AssertUnwindSafe(|| rings.restart(now, timeout)));
        if let Err(panic) = result {
            self.abandon();
            self.queue.status.count_panic();
            drop(self);
            resume_unwind(panic);
        }
    }

    /// Takes what senders have pushed.
    fn take_pushed(&mut self) -> PacketList {
        (self.owner.as_mut()).map_or_else(PacketList::new, Owner::take_all)
    }
}

impl<R: TxRing, Q: Qdisc> Deref for Control<'_, R, Q> {
    type Target = QueueState<R, Q>;
    fn deref(&self) -> &QueueState<R, Q> {
        self.owner.as_ref().expect("only a drop takes it")
    }
}

impl<R: TxRing, Q: Qdisc> DerefMut for Control<'_, R, Q> {
    fn deref_mut(&mut self) -> &mut QueueState<R, Q> {
        self.owner.as_mut().expect("only a drop takes it")
    }
}

impl<R: TxRing, Q: Qdisc> Drop for Control<'_, R, Q> {
    fn drop(&mut self) {
        let Some(mut owner) = self.owner.take() else {
            return;
        };
        let stamps = owner.qdisc.wants_enqueue_time() || owner.tap.is_some();
        self.queue.stamps.store(stamps, Ordering::Relaxed);
        owner.settle_reinjected();
        self.queue.status.stopped_since(owner.rings.refused_since());
        owner.publish(&self.queue.status);
        self.queue.status.count_copied(&mut owner.cx);
        owner.settle_elsewhere(&self.queue.cold.outlet);
        owner.cx.dropped.settle(&self.queue.drops);
        // The next owner says what is due.
        owner.set_backlog(0);
        let pushed = owner.leave();
        self.queue.waker.notify();
        // The worker of a queue that is down may have forgotten it: what a sender pushed meanwhile
        // that had seen the device up is dropped here. (The sender looks as well, see
        // `push_for_worker`; it found the queue owned.)
        if pushed && self.queue.down.is_set() {
            let timer = self.queue.run_from_worker(RUN_QUOTA, Time::ZERO);
            if timer.is_some() {
                self.queue.waker.notify();
            }
        }
        self.queue.published();
    }
}

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// Waits for the present owner: control path only.
    pub(super) fn control(&self) -> Control<'_, R, Q> {
        probes::owner_wait(self, self.list.len());
        let owner = self.list.begin_slow();
        probes::owner_waited(self);
        Control::of(self, owner)
    }

    /// As [`control`](TxQueue::control), if nobody owns the queue. Waits for nobody.
    pub(super) fn try_control(&self, now: Time) -> Option<Control<'_, R, Q>> {
        let (owner, mut backlog) = self.list.try_begin()?;
        let mut control = Control::of(self, owner);
        let (limit, mut budget) = (self.quota.limit(), self.budget(0, now));
        control.enqueue(&mut backlog, &mut PacketList::new(), limit, &mut budget);
        Some(control)
    }

    /// Takes rings and everything that waits out of the queue, in the order in which it would have
    /// left. Waits for the owner: control path only.
    pub(super) fn evict(&self) -> (Vec<R>, PacketList) {
        let mut control = self.control();
        let mut waiting = control.take_dequeued();
        control.qdisc.drain(&mut waiting);
        waiting.append(&mut control.adopted.take());
        waiting.append(&mut control.take_pushed());
        (control.rings.take(), waiting)
    }

    /// Takes everything that waits out of a queue that has no rings; of one that has, the worker
    /// is notified instead. Waits for nobody: an owner notifies the worker when it is done.
    pub(super) fn take_stranded(&self, now: Time) -> PacketList {
        let mut stranded = PacketList::new();
        if let Some((owner, mut backlog)) = self.list.begin_or_miss() {
            let mut control = Control::of(self, owner);
            // The queue may have come back into use since the caller looked.
            if control.rings.is_empty() {
                control.qdisc.drain(&mut stranded);
                stranded.append(&mut control.cx.reinject);
                stranded.append(&mut control.adopted.take());
                stranded.append(&mut backlog);
            } else {
                let (limit, mut budget) = (self.quota.limit(), self.budget(0, now));
                control.enqueue(&mut backlog, &mut PacketList::new(), limit, &mut budget);
            }
        }
        stranded
    }

    /// Gives the queue a qdisc and rings (besides those it has). What the old qdisc holds moves
    /// to the new one, in the order in which it would have left, and `waiting` behind it; what
    /// does not fit is dropped as [`DropReason::QdiscLimit`]. The queue's next owners do most of
    /// that, so that senders are not kept out for long. Waits for the owner: control path only.
    pub(super) fn install(&self, qdisc: Q, rings: Vec<R>, mut waiting: PacketList, clock: &Clock) {
        // Dropped when the queue has been given up.
        let old;
        let mut control = self.control();
        let now = clock.now();
        // Where something waits to come here the queue was evicted, and what it has now is
        // younger.
        let mut moved = PacketList::new();
        moved.append(&mut waiting);
        control.qdisc.drain(&mut moved);
        moved.append(&mut control.adopted.take());
        moved.append(&mut control.take_pushed());
        control.rings.extend(rings);
        let stamped = control.qdisc.wants_enqueue_time();
        old = control.set_qdisc(qdisc);
        let state = &mut *control;
        if !state.active {
            state.cx.dropped.append(moved, DropReason::DeviceDown);
            drop(control);
            return drop(old);
        }
        if state.qdisc.wants_enqueue_time() && !stamped {
            stamp(&mut moved, now);
        }
        let none = &mut PacketList::new();
        state.adopt(&mut moved, none, None, ADOPTIONS, now);
        drop(control);
        drop(old);
    }

    /// Takes the queue down (packets are dropped as [`DropReason::DeviceDown`], what is queued as
    /// [`DropReason::QdiscReset`]) or up again. Waits for the owner: control path only.
    #[doc(hidden)]
    pub fn set_active(&self, active: bool) {
        self.down.set(!active);
        let mut control = self.control();
        control.active = active;
        if !active {
            let mut gone = control.take_dequeued();
            control.qdisc.drain(&mut gone);
            gone.append(&mut control.adopted.take());
            control.cx.dropped.append(gone, DropReason::QdiscReset);
        }
    }
}
