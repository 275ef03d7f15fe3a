//! The end of a pool. Packets may outlive the last handle; the memory goes when both are gone.
//!
//! A pool whose last handle is gone is put on a list. [`sweep`] first closes its thread caches:
//! who is in one may finish, and nobody enters any more. When all have been seen left, all frees
//! are those of unregistered threads, counted. Then *allocated = freed* says that no packet is
//! out, hence that nobody will come any more, and *nobody is inside* that the last one who came
//! has left. The order matters: who frees the last packet is counted as inside before the free is
//! counted, so a sweep that sees the free and then nobody inside knows that this thread has left.
//!
//! No sweep is missed. Who leaves the slow path learns that the pool was closed, and sweeps, or
//! whoever closes it sees that it has left: `OwnerGuard::leave`, or, counted, [`CLOSED`] in the
//! same atomic. Who finds the list locked has set [`AGAIN`], at which every holder looks after
//! unlocking. The fast path does not look; a thread that was there at the closing sweeps when it
//! frees for this pool again, registers with another, or exits.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError, TryLockError};

use super::Inner;
use crate::sync::membarrier;

/// Set in the number of unregistered threads inside, once the last handle is gone.
pub(super) const CLOSED: usize = 1 << (usize::BITS - 1);

/// A pool whose last handle is gone.
pub(super) struct Closed {
    pool: NonNull<Inner>,
    /// True: the caches were seen left after they had been closed.
    is_left: bool,
}

// SAFETY: `Inner` is made for any thread, and whoever takes it out of the list is the only one to
// free it.
unsafe impl Send for Closed {}

/// Never held while the user's code runs.
pub(super) static CLOSING: Mutex<Vec<Closed>> = Mutex::new(Vec::new());
/// Somebody wants a sweep.
static AGAIN: AtomicBool = AtomicBool::new(false);

/// Takes over a pool without handles and frees it as soon as its packets are back.
///
/// # Safety
/// `pool` was made by `Box::leak`, no handle is left, and this is called once.
pub(super) unsafe fn close(pool: NonNull<Inner>) {
    // SAFETY: it is freed by a sweep only, which comes later.
    let shared = unsafe { pool.as_ref() };
    shared.threads.close();
    // Acquire: who was counted and did not see it has left. Release: pairs with `is_complete`.
    let inside = &shared.unregistered.inside;
    inside.fetch_or(CLOSED, Ordering::AcqRel);
    let is_left = false;
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.push(Closed { pool, is_left });
    drop(closing);
    sweep();
}

/// Frees the closed pools whose packets are all back, or leaves it to a thread that is doing so.
pub(super) fn sweep() {
    // Release: what the caller did before is seen by whoever sweeps.
    AGAIN.store(true, Ordering::Release);
    sweep_again();
}

/// As [`sweep`], if somebody wants it. To be called after unlocking the list.
pub(super) fn sweep_again() {
    let mut complete = Vec::new();
    loop {
        // Between `AGAIN` and the lock, in both orders: who finds it locked is seen here by the
        // one who unlocked it.
        fence(Ordering::SeqCst);
        if !AGAIN.load(Ordering::Relaxed) {
            break;
        }
        let mut closing = match CLOSING.try_lock() {
            Ok(closing) => closing,
            Err(TryLockError::Poisoned(closing)) => closing.into_inner(),
            Err(TryLockError::WouldBlock) => break,
        };
        AGAIN.swap(false, Ordering::Acquire); // pairs with `sweep`
        let pools = closing.extract_if(.., |closed| closed.is_complete());
        // SAFETY: made by `Box::leak`; no handle, no packet and no thread refers to it (module
        // text), nor the list any more.
        complete.extend(pools.map(|closed| unsafe { Box::from_raw(closed.pool.as_ptr()) }));
    }
    // The user's code: wakers, of which the threads would keep others.
    for pool in complete {
        pool.threads
            .iter()
            .for_each(|thread| thread.set_waker(None));
    }
}

impl Closed {
    /// True if it can be freed.
    fn is_complete(&mut self) -> bool {
        // SAFETY: a pool in the list is freed nowhere but after it was taken out, by us.
        let pool = unsafe { self.pool.as_ref() };
        let caches = || pool.threads.iter().map(|thread| &thread.lock);
        if !self.is_left {
            caches().for_each(|lock| lock.close());
            // If the barrier fails, a later sweep will try again.
            self.is_left = membarrier::heavy() && !caches().any(|lock| lock.is_busy());
        }
        self.is_left
            && pool.in_use() == 0
            && pool.unregistered.inside.load(Ordering::Acquire) == CLOSED
    }
}
