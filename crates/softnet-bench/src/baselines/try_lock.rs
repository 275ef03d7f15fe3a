//! A lock that nobody waits for: a thread that finds it taken does something else, or tries again.
//!
//! Invariant: at most one guard exists at a time, because only the thread whose compare-and-swap
//! changed `taken` from 0 to 1 makes one. Ordering: that operation is Acquire (A), the guard's
//! drop stores 0 with Release (R). A pairs with R, so everything the last holder did to the value
//! is seen by the next.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

/// A value that one thread at a time may use.
pub(super) struct TryLock<T> {
    taken: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time, which needs no more than `T: Send`.
unsafe impl<T: Send> Sync for TryLock<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: Send> Send for TryLock<T> {}

impl<T> TryLock<T> {
    /// A free lock around `value`.
    pub(super) fn new(value: T) -> Self {
        TryLock {
            taken: AtomicU8::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock if it is free.
    pub(super) fn try_lock(&self) -> Option<TryLockGuard<'_, T>> {
        // A: pairs with R in the guard's drop.
        self.taken
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| TryLockGuard {
                lock: self,
                _not_sync: PhantomData,
            })
    }

    /// Takes the lock, yielding the CPU while it is taken. For statistics and shutdown, never on a
    /// packet's way.
    pub(super) fn lock_slow(&self) -> TryLockGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            std::thread::yield_now();
        }
    }
}

impl<T> fmt::Debug for TryLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryLock").finish_non_exhaustive()
    }
}

/// Access to the value; gives the lock back when dropped.
pub(super) struct TryLockGuard<'a, T> {
    lock: &'a TryLock<T>,
    /// Neither `Send` nor `Sync` by itself: the bounds are below.
    _not_sync: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared references to the value, so it may be shared where those
// may.
unsafe impl<T: Sync> Sync for TryLockGuard<'_, T> {}

impl<T> fmt::Debug for TryLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryLockGuard").finish_non_exhaustive()
    }
}

impl<T> Deref for TryLockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (module invariant), and shared borrows of it give
        // shared references.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for TryLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (module invariant) and borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for TryLockGuard<'_, T> {
    fn drop(&mut self) {
        // R: pairs with A in `try_lock`.
        self.lock.taken.store(0, Ordering::Release);
    }
}
