//! The end of a pool. Packets may outlive the last handle; the memory goes when both are gone.
//!
//! A pool whose last handle is gone is put on a list. [`sweep`] first closes its thread caches,
//! one after the other, for ever: one is closed while its owner is not in it, so when all are
//! closed, nobody is in one, and from then on all frees are those of unregistered threads,
//! counted. Then *allocated = freed* says that no packet is out, hence that nobody will come any
//! more, and *nobody is inside* that the last one who came has left. The order matters: who frees
//! the last packet is counted as inside before the free is counted, so a sweep that sees the free
//! and then nobody inside knows that this thread has left.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError, TryLockError};

use super::Inner;
use super::thread_cache::raid;

/// A pool whose last handle is gone.
struct Closed(NonNull<Inner>);

// SAFETY: `Inner` is made for any thread, and whoever takes it out of the list is the only one to
// free it.
unsafe impl Send for Closed {}

static CLOSING: Mutex<Vec<Closed>> = Mutex::new(Vec::new());

/// Takes over a pool without handles and frees it as soon as its packets are back.
///
/// # Safety
/// `pool` was made by `Box::leak`, no handle is left, and this is called once.
pub(super) unsafe fn close(pool: NonNull<Inner>) {
    // SAFETY: it is freed by a sweep only, which comes later.
    let shared = unsafe { pool.as_ref() };
    shared.threads.close();
    shared.closed.store(true, Ordering::Release);
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.push(Closed(pool));
    sweep(&mut closing);
}

/// Frees the closed pools whose packets are all back.
pub(super) fn sweep_all() {
    sweep(&mut CLOSING.lock().unwrap_or_else(PoisonError::into_inner));
}

/// The same, but does nothing if another thread is about to.
pub(super) fn sweep_if_idle() {
    match CLOSING.try_lock() {
        Ok(mut closing) => sweep(&mut closing),
        Err(TryLockError::Poisoned(closing)) => sweep(&mut closing.into_inner()),
        Err(TryLockError::WouldBlock) => {}
    }
}

fn sweep(closing: &mut Vec<Closed>) {
    closing.retain(|closed| {
        // SAFETY: a pool in this list is freed nowhere but here, under the list's lock.
        let complete = unsafe { closed.0.as_ref() }.is_complete();
        if complete {
            // SAFETY: made by `Box::leak`; no handle, no packet and no thread refers to it
            // (module text).
            drop(unsafe { Box::from_raw(closed.0.as_ptr()) });
        }
        !complete
    });
}

impl Inner {
    /// Whether a closed pool can be freed.
    fn is_complete(&self) -> bool {
        let open = || {
            self.threads
                .iter()
                .filter(|thread| !thread.lock.is_closed())
        };
        raid(open(), |guard| guard.close(), || false);
        open().next().is_none()
            && self.in_use() == 0
            && self.unregistered.inside.load(Ordering::Acquire) == 0
    }
}
