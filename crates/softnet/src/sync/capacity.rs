//! Back-pressure: a sender waits until a queue has capacity, instead of losing packets to a limit.
//!
//! Invariant: when an owner has published a length with which there is capacity, each thread that
//! waits has seen it, or will look again. No owner waits for a waiter.
//!
//! Argument: in each round a waiter puts itself on the list of sleepers and counts itself there
//! (W), under the lock, then looks (L), then sleeps. The owner stores the length, gives the queue
//! up (G), and looks whether anybody is on the list (A). All four are SeqCst, and L begins with a
//! load of the word that G changed. If A comes before W, then G comes before L, which acquires
//! the length. Else the owner sets `news` and [`tell`](Capacity::tell)s the sleepers: it takes
//! them off the list and unparks them. A waiter that comes on the list later looks after that,
//! and sees what happened before under the lock. Where the lock is held, by a waiter that comes
//! or goes or by another owner, its holder looks for `news` after it has let go: the fence in
//! between orders that, as it orders the owner's attempt after the store of `news`.

use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::primitive::thread::{self, Thread};
use super::primitive::{AtomicBool, AtomicUsize, Mutex, Ordering, fence, store_load_barrier};

/// The senders that wait for a queue's capacity.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    /// How many sleepers there are. Changed under the lock.
    waiting: AtomicUsize,
    /// The sleepers are to be told.
    news: AtomicBool,
    sleepers: Mutex<Vec<Thread>>,
}

impl Capacity {
    /// Called by an owner that has given the queue up, with the new length published. Never waits.
    #[inline]
    pub(crate) fn published(&self) {
        store_load_barrier();
        // A
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.news.store(true, Ordering::Release);
            self.tell();
        }
    }

    /// Wakes the sleepers if there is news, or leaves it to the thread that has the lock. Called
    /// by everyone who had it.
    #[cold]
    fn tell(&self) {
        loop {
            fence(Ordering::SeqCst);
            if !self.news.load(Ordering::Relaxed) {
                return;
            }
            let mut sleepers = match self.sleepers.try_lock() {
                Ok(sleepers) => sleepers,
                Err(TryLockError::Poisoned(sleepers)) => sleepers.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            // Pairs with `published`, also where two owners had news.
            self.news.swap(false, Ordering::Acquire);
            self.waiting.store(0, Ordering::SeqCst);
            sleepers.drain(..).for_each(|thread| thread.unpark());
        }
    }

    /// Takes the caller off the list of sleepers, and puts it there again if it is to `sleep`.
    fn list(&self, sleep: bool) {
        let me = thread::current();
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.retain(|thread| thread.id() != me.id());
        if sleep {
            sleepers.push(me);
        }
        // W
        self.waiting.store(sleepers.len(), Ordering::SeqCst);
        drop(sleepers);
        self.tell();
    }

    /// Waits until `has_capacity`, for at most `timeout`. Returns whether it has. `has_capacity`
    /// first loads, SeqCst, the word by which owners give the queue up.
    pub(crate) fn wait(&self, timeout: Duration, has_capacity: impl Fn() -> bool) -> bool {
        if has_capacity() {
            return true;
        }
        let start = Instant::now();
        let found = loop {
            self.list(true);
            store_load_barrier();
            // L
            if has_capacity() {
                break true;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                break false;
            }
            thread::park_timeout(left);
        };
        self.list(false);
        found
    }
}
