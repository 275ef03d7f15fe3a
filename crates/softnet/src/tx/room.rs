//! Back-pressure: a sender asks whether a queue has room, and waits until it has, instead of losing packets to a limit.
//!
//! A waiter announces itself and then looks at the queue's length; the runner publishes the length, gives the run up (a SeqCst read-modify-write)
//! and then looks whether anyone waits. On every machine we know this closes the store-load race between the two; the language's memory model
//! asks for a fence there, which each run would pay for, so a waiter also looks again every [`SLICE`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest time between two looks of a waiter.
const SLICE: Duration = Duration::from_millis(1);

/// The waiting room of a queue.
#[derive(Debug, Default)]
pub(super) struct Room {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Room {
    /// Called after a run, when its new length has been published. Waits for nobody.
    pub(super) fn published(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until `has_room`, for at most `timeout`. Returns whether there is room.
    pub(super) fn wait(&self, timeout: Duration, has_room: impl Fn() -> bool) -> bool {
        if has_room() {
            return true;
        }
        let deadline = Instant::now() + timeout;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let room = loop {
            if has_room() {
                break true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            guard = self
                .changed
                .wait_timeout(guard, left.min(SLICE))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        };
        drop(guard);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        room
    }
}
