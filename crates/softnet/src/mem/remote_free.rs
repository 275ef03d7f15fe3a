//! What a thread does for the packets on their way to it: takes them in, sleeps, is woken; and the bound.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::home::Home;
use super::{Pool, session, thread};

impl Pool {
    /// Buffers that may wait in a home's inbox (`skb_defer_max`); more go to the depot. 0 turns deferred freeing off: every buffer stays
    /// with the thread that frees it. Applies to frees from now on. At most 32,768.
    pub fn set_defer_max(&self, buffers: usize) {
        self.inner()
            .defer_max
            .store(buffers.min(1 << 15), Ordering::Relaxed);
    }

    /// Buffers that may wait in a home's inbox.
    pub fn defer_max(&self) -> usize {
        self.inner().defer_max()
    }

    /// To be called by a thread at the start of a poll and after a sleep: takes in the buffers that other threads have freed for it. Costs a few
    /// nanoseconds if there are none. A thread that never calls this takes them in when its cache is empty.
    #[inline]
    pub fn poll_home(&self) {
        match thread::find(self.id) {
            // SAFETY: as in `alloc`.
            Some(home) => self.look_into(unsafe { home.as_ref() }),
            // The thread may use so many pools that this one is not at hand.
            None => drop(thread::find_anywhere(self.id).map(|home| self.look_into(&home))),
        }
    }

    /// Takes in what waits in this thread's home.
    #[inline]
    fn look_into(&self, home: &Home) {
        if home.remote.inbox.is_empty() && !home.sleeping.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: we have a handle, and are not inside.
        unsafe {
            session::enter(self.inner.0, |session| {
                session.awake();
                session.drain();
            });
        }
    }

    /// To be called by a thread before it sleeps: sends off what it freed for others and allows its [waker](Pool::set_waker) to be called. False: do
    /// not sleep, buffers have come meanwhile. Call [`poll_home`](Pool::poll_home) when awake again.
    pub fn prepare_sleep(&self) -> bool {
        // SAFETY: we have a handle, and are not inside.
        unsafe { session::enter(self.inner.0, |session| session.prepare_sleep()) }
    }

    /// Sets what is called when this thread sleeps ([`prepare_sleep`](Pool::prepare_sleep)) and its inbox is half full: at most once per sleep, on the thread that
    /// freed the packet. It should make this thread call [`poll_home`](Pool::poll_home). Forgotten when the thread exits.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        let home = thread::find(self.id).or_else(|| thread::register(self.inner()));
        if let Some(home) = home {
            // SAFETY: as in `alloc`.
            unsafe { home.as_ref() }.set_waker(Some(Arc::new(wake)));
        }
    }
}
