//! Work that owners of a queue leave to its worker: the time for which it comes back, and whether
//! it may be gone.
//!
//! The worker has a timer of its own. It sets it to the time that it is given where it owned the
//! queue, and forgets it where it comes and is turned away, by an owner that sees that it was (it
//! has *missed* something). [`WorkerTimer`] is what owners know of that timer; only they write it.
//!
//! Invariant 1 (INV-TX-2): where nobody owns the queue, and it wants to be served at a time, the
//! worker's timer is that time or an earlier one, or the worker has been notified and has not
//! come. Argument: the last owner that was a sender and found the worker's timer late has notified
//! the worker, which sets its timer when it comes. If the timer fires meanwhile, the worker owns
//! the queue, or it is turned away by an owner, which cannot end without seeing that: that owner
//! notifies it once more, since its own time may be earlier than the worker's, so that it may not
//! know that the time has come. A time that is over for a sender is none: the worker has come
//! since, or comes now.
//!
//! Invariant 2 (INV-TX-10): what is pushed for the worker of a device that is down is taken off
//! the list by the thread that takes the device down, or by the one that pushed it; the worker may
//! be gone. Argument: [`Down`] is set before the control path owns the queue, and looked at after
//! the push; both change the list's word by read-modify-writes. Whichever of them comes first in
//! that word's order, the other sees what its thread did before: the push is seen by the control
//! path, which then serves the queue until it is empty, or the flag by the sender, which serves it
//! itself.

use super::primitive::{AtomicBool, AtomicU64, Ordering};
use crate::time::Time;

/// The time for which a queue's worker has been asked to come back. Used by owners only.
#[derive(Debug)]
pub(crate) struct WorkerTimer(AtomicU64);

/// When an owner notifies the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    Nothing,
    /// Before it gives the queue up.
    Now,
    /// After it has given the queue up, and in any case.
    After,
}

impl WorkerTimer {
    pub(crate) fn new() -> WorkerTimer {
        WorkerTimer(AtomicU64::new(Time::MAX.nanos()))
    }

    /// The queue is given up empty. Whoever emptied it may have left a time behind for which the
    /// worker, if that is the owner, does not come back.
    #[inline]
    pub(crate) fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != Time::MAX.nanos() {
            self.0.store(Time::MAX.nanos(), Ordering::Relaxed);
        }
    }

    /// The queue is given up, and wants to be served at `timer` ([`Time::MAX`]: it does not), by a
    /// sender at that time, or by the worker. `missed`: the worker was turned away meanwhile.
    #[inline]
    pub(crate) fn leave(&self, timer: Time, sender: Option<Time>, missed: bool) -> Tell {
        let mut tell = Tell::Nothing;
        if let Some(now) = sender
            && timer != Time::MAX
        {
            let armed = Time(self.0.load(Ordering::Relaxed));
            tell = match missed {
                true => Tell::After,
                false if armed > timer || armed <= now => Tell::Now,
                false => return Tell::Nothing,
            };
        }
        self.0.store(timer.nanos(), Ordering::Relaxed);
        tell
    }
}

/// The device is down: its workers may be gone.
#[derive(Debug, Default)]
pub(crate) struct Down(AtomicBool);

impl Down {
    /// By the control path, before it owns the queue.
    pub(crate) fn set(&self, down: bool) {
        self.0.store(down, Ordering::Release);
    }

    /// By a sender, after it has pushed for the worker.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
