//! A coalesced wake-up: at most one is outstanding for a sleeper, and none is sent to a thread
//! that is awake.
//!
//! Invariant: an event published *before* [`notify`](Notify::notify) is seen by the sleeper's
//! look that comes after [`prepare`](Notify::prepare), or `notify` returns true and the caller
//! must wake it. Ordering: publish-then-swap on one side, store-then-look on the other: a
//! store-load race (Dekker), so swap and store are SeqCst and the sleeper's look at the event
//! must be a SeqCst load or come after a SeqCst fence, which `prepare` ends with.

use super::primitive::{AtomicU8, Ordering, fence, store_load_barrier};

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;

/// A coalesced wake-up: at most one is outstanding for a sleeper, and none is sent to a thread
/// that is awake.
#[derive(Debug, Default)]
pub struct Notify {
    state: AtomicU8,
}

impl Notify {
    /// Awake.
    pub fn new() -> Self {
        Self::default()
    }

    /// The sleeper is about to sleep: look at every source of events once more after this, then
    /// sleep or [`awake`](Notify::awake).
    pub fn prepare(&self) {
        self.state.store(SLEEPING, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The sleeper is up again.
    pub fn awake(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// Whether the sleeper sleeps, or has been woken and is not up yet. A hint: it may have
    /// changed by the time of the answer.
    pub fn is_asleep(&self) -> bool {
        self.state.load(Ordering::Relaxed) != AWAKE
    }

    /// As [`notify`](Notify::notify), where the event was published by a SeqCst
    /// read-modify-write: that, the look here, and both steps of the sleeper are in one order,
    /// with no fence between. (On x86-64 a fence costs as much as the publication.)
    #[must_use = "if true, wake the sleeper"]
    pub fn notify_published(&self) -> bool {
        store_load_barrier();
        self.wake_one()
    }

    /// To be called after publishing an event. True for exactly one caller per sleep: that one
    /// wakes the sleeper.
    #[must_use = "if true, wake the sleeper"]
    pub fn notify(&self) -> bool {
        // The fence orders the caller's publication (which may be a weaker store) before the look
        // at the state.
        fence(Ordering::SeqCst);
        self.wake_one()
    }

    fn wake_one(&self) -> bool {
        self.state.load(Ordering::SeqCst) == SLEEPING
            && self
                .state
                .compare_exchange(SLEEPING, NOTIFIED, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }
}
