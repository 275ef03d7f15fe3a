//! Back-pressure: a sender waits until a queue has capacity, instead of losing packets to a limit.
//!
//! Invariant: when an owner has published a length below the limit of a thread that waits, that
//! thread has seen it, or will look again, or one with at least its limit will. No owner waits for
//! a waiter, and none does anything for waiters for which there is no capacity.
//!
//! Argument: in each round a waiter puts itself on the list of sleepers, which says what limit is
//! [wanted](Capacity::wanted) at most (W), under the lock, then looks (L), then sleeps. The owner
//! stores the length, gives the queue up (G), and looks what is wanted (A). All four are SeqCst,
//! and L begins with a load of the word that G changed. If A comes before W, then G comes before
//! L, which acquires the length. Else the owner compares the length (the last owner's is the true
//! one: others only push), and if there is capacity sets `news` and [`tell`](Capacity::tell)s: it
//! takes the sleepers with the largest limits off the list, a few, and unparks them. Where one of
//! those finds no capacity, there is none for the rest either; one that leaves wakes the next few.
//! A waiter that comes on the list later looks after that, and sees what happened before under the
//! lock. Where the lock is held, by a waiter that comes or goes or by another owner, its holder
//! looks for `news` after it has let go: the fence in between orders that, as it orders the
//! owner's attempt after the store of `news`.

use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::primitive::thread::{self, Thread};
use super::primitive::{AtomicBool, AtomicUsize, Mutex, Ordering, fence, store_load_barrier};

/// Sleepers that an owner wakes, and each of them when it leaves: a system call each.
const WAKES: usize = if cfg!(loom) { 1 } else { 2 };

/// The senders that wait for a queue's capacity.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    /// The largest limit of a sleeper; 0 if there is none. Changed under the lock.
    wanted: AtomicUsize,
    /// Sleepers are to be told.
    news: AtomicBool,
    /// By limit, the largest last; of those with the same one the oldest last.
    sleepers: Mutex<Vec<(usize, Thread)>>,
}

impl Capacity {
    /// Called by an owner that has given the queue up, with the new length published, which `len`
    /// reads. Never waits.
    #[inline]
    pub(crate) fn published(&self, len: impl FnOnce() -> usize) {
        store_load_barrier();
        // A
        let wanted = self.wanted.load(Ordering::SeqCst);
        if wanted != 0 && len() < wanted {
            self.news.store(true, Ordering::Release);
            self.tell();
        }
    }

    /// Wakes sleepers if there is news, or leaves it to the thread that has the lock. Called by
    /// everyone who had it.
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
            self.wake(&mut sleepers);
        }
    }

    /// Wakes the sleepers with the largest limits: if these find no capacity, no other would.
    fn wake(&self, sleepers: &mut Vec<(usize, Thread)>) {
        let few = sleepers.split_off(sleepers.len().saturating_sub(WAKES));
        self.set_wanted(sleepers);
        few.iter().for_each(|(_, thread)| thread.unpark());
    }

    /// Under the lock.
    fn set_wanted(&self, sleepers: &[(usize, Thread)]) {
        let wanted = sleepers.last().map_or(0, |(limit, _)| *limit);
        // W
        self.wanted.store(wanted, Ordering::SeqCst);
    }

    /// Takes the caller off the list of sleepers, and puts it there again if it is to `sleep` until
    /// there are fewer than so many; else, if it has been `woken`, wakes the next. Returns whether
    /// it was on the list.
    fn list(&self, sleep: Option<usize>, woken: bool) -> bool {
        let me = thread::current();
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let place = sleepers.iter().position(|(_, t)| t.id() == me.id());
        place.map(|place| sleepers.remove(place));
        let listed = place.is_some();
        if let Some(limit) = sleep {
            let place = sleepers.partition_point(|(other, _)| *other < limit);
            sleepers.insert(place, (limit, me));
        }
        if sleep.is_none() && (woken || !listed) {
            self.wake(&mut sleepers);
        } else {
            self.set_wanted(&sleepers);
        }
        drop(sleepers);
        self.tell();
        listed
    }

    /// Waits until `len` is less than `limit`, for at most `timeout`. Returns whether it is. `len`
    /// first loads, SeqCst, the word by which owners give the queue up.
    pub(crate) fn wait(&self, timeout: Duration, limit: usize, len: impl Fn() -> usize) -> bool {
        if len() < limit {
            return true;
        }
        let start = Instant::now();
        self.list(Some(limit), false);
        let mut woken = false;
        let found = loop {
            store_load_barrier();
            // L
            if len() < limit {
                break true;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                break false;
            }
            thread::park_timeout(left);
            woken |= !self.list(Some(limit), false);
        };
        self.list(None, woken);
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Above the limits of all sleepers an owner looks and goes on: no news, no lock, no wake-up,
    /// however many sleep. The first length below the largest limit wakes.
    #[test]
    fn owners_without_capacity_wake_nobody() {
        let capacity = Capacity::default();
        let sleepers = [4, 8, 8].map(|limit| (limit, thread::current()));
        let listed = capacity.sleepers.lock().map(|mut list| {
            list.extend(sleepers);
            capacity.set_wanted(&list);
        });
        assert!(listed.is_ok());
        for len in [8, 9, 1000] {
            capacity.published(|| len);
            assert!(!capacity.news.load(Ordering::Relaxed), "length {len}");
        }
        let left = || capacity.sleepers.lock().map_or(0, |list| list.len());
        assert_eq!(left(), 3);
        capacity.published(|| 7);
        assert_eq!(left(), 3 - WAKES.min(3));
        assert_eq!(capacity.wanted.load(Ordering::Relaxed), 4);
        capacity.published(|| 4);
        assert_eq!(left(), 1, "there is no capacity for the one that is left");
    }
}
