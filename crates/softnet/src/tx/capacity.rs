//! Back-pressure: a sender waits until a queue has capacity, instead of losing packets to a limit.
//!
//! A waiter announces itself and then looks at the queue's length; the owner publishes the
//! length, gives the queue up (a SeqCst read-modify-write) and then looks whether anyone waits.
//! On the machines we know this closes the store-load race between the two; the language's memory
//! model asks for a fence there, which every owner would pay for, so a waiter looks again every
//! [`SLICE`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest time between two looks of a waiter.
const SLICE: Duration = Duration::from_millis(1);

/// The senders that wait for a queue's capacity.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Capacity {
    /// Called by an owner that has given the queue up, with the new length published. Never waits.
    #[inline]
    pub(super) fn published(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until `has_capacity`, for at most `timeout`. Returns whether it has.
    pub(super) fn wait(&self, timeout: Duration, has_capacity: impl Fn() -> bool) -> bool {
        if has_capacity() {
            return true;
        }
        let start = Instant::now();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = has_capacity();
        while !found {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(guard, left.min(SLICE));
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
            found = has_capacity();
        }
        drop(guard);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }
}
