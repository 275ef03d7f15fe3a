//! A coalesced wake-up: usually one is sent for a sleep, and none to a thread that is awake.
//!
//! Invariant: an event published *before* [`wake`](Notify::wake) is seen by the sleeper's look that
//! comes after [`prepare`](Notify::prepare), or the caller wakes the sleeper, or another one has
//! called [`told`](Notify::told) for this sleep. That one has sent its wake-up before: no caller
//! goes by one that a preempted thread has still to send. The price: callers that come between
//! another's wake-up and its note send one each.
//!
//! Ordering: publish-then-swap on one side, store-then-look on the other: a store-load race
//! (Dekker), so swap and store are SeqCst and the sleeper's look at the event must be a SeqCst
//! load or come after a SeqCst fence, which `prepare` ends with.
//!
//! Sleeps are numbered: a note that comes late, after the sleep that it is about, changes nothing.
//! Else it would stand for a wake-up of a later sleep that nobody has sent.

use super::primitive::{AtomicU64, Ordering, fence, store_load_barrier};

/// The lowest bits of the state; above is the number of the sleep.
const STATE: u64 = 3;
const AWAKE: u64 = 0;
const SLEEPING: u64 = 1;
const NOTIFIED: u64 = 2;

/// One sleep of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleeping(u64);

/// A coalesced wake-up: usually one is sent for a sleep, and none to a thread that is awake.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    state: AtomicU64,
}

impl Notify {
    /// Awake.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The sleeper is about to sleep: look at every source of events once more after this, then
    /// sleep or [`awake`](Notify::awake).
    pub(crate) fn prepare(&self) {
        // Only notes of others come between, and only where the sleeper calls this twice.
        let number = (self.state.load(Ordering::Relaxed) | STATE).wrapping_add(1);
        self.state.store(number | SLEEPING, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The sleeper is up again.
    pub(crate) fn awake(&self) {
        // A read-modify-write: what it finds is the last note of this sleep.
        self.state.fetch_and(!STATE, Ordering::SeqCst);
    }

    /// True if the sleeper sleeps, or has been woken and is not up yet. A hint: it may have
    /// changed by the time of the answer.
    pub(crate) fn is_asleep(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STATE != AWAKE
    }

    /// Calls `wake`, which wakes the sleeper, if it sleeps and has not been woken. The event was
    /// published by a SeqCst read-modify-write: that, the look here, and both steps of the sleeper
    /// are in one order, with no fence between. (On x86-64 a fence costs as much as the
    /// publication.) Returns whether it was called.
    #[inline]
    pub(crate) fn wake(&self, wake: impl FnOnce()) -> bool {
        let Some(sleeping) = self.sleeping() else {
            return false;
        };
        wake();
        self.told(sleeping);
        true
    }

    /// First step of [`wake`](Notify::wake): the sleep that somebody must end.
    #[inline]
    pub(crate) fn sleeping(&self) -> Option<Sleeping> {
        store_load_barrier();
        let state = self.state.load(Ordering::SeqCst);
        (state & STATE == SLEEPING).then_some(Sleeping(state))
    }

    /// Last step of [`wake`](Notify::wake): a wake-up was sent for this sleep. Returns whether
    /// nobody has said so before.
    pub(crate) fn told(&self, Sleeping(state): Sleeping) -> bool {
        let notified = state & !STATE | NOTIFIED;
        self.state
            .compare_exchange(state, notified, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }
}
