//! A lock for a value that one thread uses all the time and others hardly ever: the owner enters
//! with two plain stores and a plain load.
//!
//! Invariant: the value is reached only through an [`OwnerGuard`] or a [`ThiefGuard`], and never
//! by both. The owner writes `busy` (B1), then reads `state` (S2), and enters if nothing is set
//! there. A thief sets CLAIMED in `state` (S1), then reads `busy` (B2), and enters if it is not
//! set. Between the two steps the owner has a [`light`](membarrier::light) and the thief a
//! [`heavy`](membarrier::heavy) barrier, so B2 sees B1 or S2 sees S1: at least one of the two
//! stays out. Only one thief gets past S1 at a time, because it is an atomic exchange that must
//! find CLAIMED unset; there is only one owner at a time by the contract of
//! [`enter`](Biased::enter). CLOSED stays set for ever. By the same two steps, with CLOSED in place
//! of CLAIMED, a closer that finds `busy` unset after the barrier knows that the owner is out for
//! ever. An owner that leaves has the steps, too: B3, the light barrier, S2; so it learns that the
//! lock was closed or the closer sees it gone.
//!
//! Ordering of the value: the owner leaves with a Release store to `busy` (B3), which B2
//! acquires; the thief leaves with a Release change of `state` (S3), which S2 acquires. Nobody
//! waits: who stays out does something else.

use std::marker::PhantomData;
use std::ops::Deref;

use super::membarrier;
use super::primitive::{AtomicU8, Ordering, UnsafeCell, fence};

/// The owner must use a fence of its own, as the kernel has no `membarrier`. Never changes.
const FENCED: u8 = 1;
/// A thief wants in or is in.
const CLAIMED: u8 = 2;
/// The owner may never enter again.
const CLOSED: u8 = 4;

/// A lock that its owner enters with plain stores, and that any other thread can still take, at
/// the price of a barrier in every running thread.
#[repr(C)]
pub(crate) struct Biased<T> {
    busy: AtomicU8,
    state: AtomicU8,
    value: UnsafeCell<T>,
    #[cfg(loom)]
    membarrier: bool,
}

// SAFETY: one thread at a time uses the value (module invariant), which needs no more than `T:
// Send`.
unsafe impl<T: Send> Sync for Biased<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: Send> Send for Biased<T> {}

impl<T> Biased<T> {
    /// A free lock around `value`.
    pub(crate) fn new(value: T) -> Self {
        Self::of(value, membarrier::available())
    }

    /// As [`new`](Biased::new), where the kernel has `membarrier` or has not.
    pub(super) fn of(value: T, membarrier: bool) -> Self {
        let state = if membarrier { 0 } else { FENCED };
        Biased {
            busy: AtomicU8::new(0),
            state: AtomicU8::new(state),
            value: UnsafeCell::new(value),
            #[cfg(loom)]
            membarrier,
        }
    }

    /// The owner's barrier.
    #[inline(always)]
    fn light(&self) {
        // In a model of a kernel without the call the fences alone must do.
        #[cfg(loom)]
        if !self.membarrier {
            return;
        }
        membarrier::light();
    }

    /// The owner goes in, unless a thief is in or about to be.
    ///
    /// # Safety
    /// The caller is the owner: no other thread calls this until the lock's ownership was handed
    /// over by some means that orders memory. The owner has no other guard of this lock.
    #[inline(always)]
    pub(crate) unsafe fn enter(&self) -> Option<OwnerGuard<'_, T>> {
        self.busy.store(1, Ordering::Relaxed); // B1, ordered before S2 by the barrier
        self.light();
        // S2: pairs with S3.
        if self.state.load(Ordering::Acquire) == 0 {
            return Some(OwnerGuard::new(self));
        }
        self.enter_slow()
    }

    #[cold]
    fn enter_slow(&self) -> Option<OwnerGuard<'_, T>> {
        fence(Ordering::SeqCst); // B1 before S2 where `membarrier` is missing
        if self.state.load(Ordering::Acquire) == FENCED {
            return Some(OwnerGuard::new(self));
        }
        self.busy.store(0, Ordering::Release);
        None
    }

    /// Announces that a thief wants in; nothing if another one has. Call
    /// [`heavy`](membarrier::heavy) (once for any number of claims), then [`Claim::enter`].
    pub(crate) fn claim(&self) -> Option<Claim<'_, T>> {
        // S1. Acquire: pairs with the last thief's S3.
        let before = self.state.fetch_or(CLAIMED, Ordering::AcqRel);
        (before & CLAIMED == 0).then(|| Claim { lock: self })
    }

    /// Keeps the owner out for ever once it has left. If [`is_busy`](Biased::is_busy) is false
    /// after a [`heavy`](membarrier::heavy), it has.
    pub(crate) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::Release);
    }

    /// True if it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// True if the owner is in, or was just about to.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) != 0 // B2: pairs with B3
    }

    /// The value, which another thread may be using.
    ///
    /// # Safety
    /// The caller touches only parts that are made for that (atomics), and the value is never
    /// referred to by `&mut`.
    pub(crate) unsafe fn peek(&self) -> &T {
        // SAFETY: guards give shared references only, and the caller keeps to what may be shared.
        self.value.with_mut(|value| unsafe { &*value })
    }
}

/// The owner is in. Gives shared references only: what changes inside does so through cells.
pub(crate) struct OwnerGuard<'a, T> {
    lock: &'a Biased<T>,
    /// Neither `Send` nor `Sync` by itself, as a guard of a mutex.
    _value: PhantomData<*const T>,
}

// SAFETY: a shared guard gives `&T` and nothing else, which may cross threads if `T: Sync`.
unsafe impl<T: Sync> Sync for OwnerGuard<'_, T> {}

impl<'a, T> OwnerGuard<'a, T> {
    /// For the owner, when no thief is in.
    #[inline(always)]
    fn new(lock: &'a Biased<T>) -> Self {
        OwnerGuard {
            lock,
            _value: PhantomData,
        }
    }

    /// Goes out. Whether the lock is closed; if not, whoever closes it sees that we are out.
    pub(crate) fn leave(self) -> bool {
        let lock = self.lock;
        drop(self);
        lock.light();
        if lock.state.load(Ordering::Acquire) == 0 {
            return false;
        }
        fence(Ordering::SeqCst); // where `membarrier` is missing
        lock.is_closed()
    }
}

impl<T> Deref for OwnerGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: no thief is in (module invariant), and the owner has one guard.
        self.lock.value.with_mut(|value| unsafe { &*value })
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.busy.store(0, Ordering::Release); // B3: pairs with B2
    }
}

/// A thief's announcement; taken back when dropped.
pub(crate) struct Claim<'a, T> {
    lock: &'a Biased<T>,
}

impl<'a, T> Claim<'a, T> {
    /// Goes in, unless the owner is in.
    ///
    /// # Safety
    /// [`heavy`](membarrier::heavy) was called after [`Biased::claim`] and returned true.
    pub(crate) unsafe fn enter(self) -> Option<ThiefGuard<'a, T>> {
        if self.lock.is_busy() {
            return None;
        }
        Some(ThiefGuard {
            claim: self,
            _value: PhantomData,
        })
    }
}

impl<T> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        self.lock.state.fetch_and(!CLAIMED, Ordering::Release); // S3: pairs with S2 and S1
    }
}

/// A thief is in.
pub(crate) struct ThiefGuard<'a, T> {
    claim: Claim<'a, T>,
    /// As in [`OwnerGuard`].
    _value: PhantomData<*const T>,
}

impl<T> Deref for ThiefGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the owner is out (module invariant), and there is one thief at a time.
        self.claim.lock.value.with_mut(|value| unsafe { &*value })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Where the kernel has no `membarrier`, fences on both sides keep owner and thief apart: each
    /// adds to a plain value, and nothing is lost. (The thief has a fence and no system call.)
    #[test]
    fn without_membarrier_owner_and_thief_exclude_each_other() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 100_000 };
        let lock = Biased::of(Cell::new(0_u64), false);
        let add = |value: &Cell<u64>| value.set(value.get() + 1);
        std::thread::scope(|scope| {
            let thief = scope.spawn(|| {
                let mut done = 0;
                while done < ROUNDS {
                    let claim = lock.claim().expect("the only thief");
                    fence(Ordering::SeqCst);
                    // SAFETY: the owner's side has fences, so this one suffices.
                    match unsafe { claim.enter() } {
                        Some(guard) => {
                            add(&guard);
                            done += 1;
                        }
                        None => std::thread::yield_now(),
                    }
                }
            });
            let mut done = 0;
            while done < ROUNDS {
                // SAFETY: this thread is the owner, and drops each guard before the next.
                match unsafe { lock.enter() } {
                    Some(guard) => {
                        add(&guard);
                        assert!(!guard.leave(), "nobody has closed it");
                        done += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
            thief.join().expect("the thief");
        });
        lock.close();
        // SAFETY: as above.
        assert!(unsafe { lock.enter() }.is_none());
        assert!(!lock.is_busy(), "the owner is out");
        // SAFETY: nobody else is here.
        assert_eq!(unsafe { lock.peek() }.get(), 2 * ROUNDS);
    }
}
