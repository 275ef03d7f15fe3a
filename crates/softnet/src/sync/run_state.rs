//! Who runs a queue: at most one thread at a time, and nobody waits to become it. (The kernel's `qdisc_run_begin`/`_end`, with
//! the states IDLE, RUNNING and MISSED.)
//!
//! Invariant 1 (INV-TX-5): the value is reached only through a [`RunGuard`], and at most one exists, because only the thread whose
//! compare-and-swap changed IDLE to RUNNING makes one.
//!
//! Invariant 2 (INV-TX-2, nothing is stuck): work published *before* [`begin_or_miss`](RunState::begin_or_miss) is seen by a runner: either
//! the caller becomes it, or MISSED is left behind and the running one goes round again. A sender that publishes on an
//! [`AdoptionList`](super::AdoptionList) uses the cheaper pair *push, then [`try_begin`](RunState::try_begin)*, and every runner does
//! *[`end`](RunGuard::end), then look at the list again, then `try_begin`*. Push, the look at the state, the change to IDLE and the look at
//! the list are all SeqCst, so in their single order either the sender sees IDLE (and claims the run) or the runner's look at the list
//! comes after the push (and the runner claims it again). A sender preempted between push and claim holds up nobody: the next
//! sender, the runner or the queue's worker finds list and state as they are and claims the run.
//!
//! Ordering of the value itself: RUNNING is set by an acquiring compare-and-swap (A), IDLE by a releasing one (R); A pairs with R.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::primitive::{AtomicU8, Ordering, UnsafeCell, store_load_barrier};

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const MISSED: u8 = 2;

/// Owns what the running thread may use.
pub struct RunState<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by one thread at a time (invariant 1), which needs no more than `T: Send`.
unsafe impl<T: Send> Sync for RunState<T> {}
// SAFETY: moving the state moves the value.
unsafe impl<T: Send> Send for RunState<T> {}

impl<T> RunState<T> {
    /// Idle, around `value`.
    pub fn new(value: T) -> Self {
        RunState {
            state: AtomicU8::new(IDLE),
            value: UnsafeCell::new(value),
        }
    }

    /// Claims the run if nobody has it. Call after publishing work on an adoption list.
    pub fn try_begin(&self) -> Option<RunGuard<'_, T>> {
        store_load_barrier();
        if self.state.load(Ordering::SeqCst) != IDLE {
            return None;
        }
        // A: pairs with R in `end`.
        self.state
            .compare_exchange(IDLE, RUNNING, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
            .then(|| RunGuard::new(self))
    }

    /// Claims the run, or makes the thread that has it go round once more. For events that are not on a list: a timer, a driver
    /// with room again, a changed setting.
    ///
    /// Every caller that is turned away has written the state, also one that finds MISSED: the
    /// runner acquires what they published with the last of these writes, as each of them is a
    /// read-modify-write and so continues the release sequences of those before it.
    pub fn begin_or_miss(&self) -> Option<RunGuard<'_, T>> {
        let mut state = IDLE;
        loop {
            let next = if state == IDLE { RUNNING } else { MISSED };
            // A: pairs with R. Releasing too, for the runner's swap in `end`.
            match self
                .state
                .compare_exchange(state, next, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(IDLE) => return Some(RunGuard::new(self)),
                Ok(_) => return None,
                Err(now) => state = now,
            }
        }
    }

    /// Claims the run, yielding the CPU while another thread has it. For the control path only.
    pub fn begin_slow(&self) -> RunGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_begin() {
                return guard;
            }
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(not(loom))]
            std::thread::yield_now();
        }
    }

    /// Whether some thread runs at this moment.
    pub fn is_running(&self) -> bool {
        self.state.load(Ordering::Relaxed) != IDLE
    }

    /// The value, where the caller proves by `&mut` that nobody runs.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every guard, which would borrow `self`.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> fmt::Debug for RunState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunState")
            .field("running", &self.is_running())
            .finish_non_exhaustive()
    }
}

/// The run: exclusive access to the value. Dropping it without [`end`](RunGuard::end) (a panic) gives the run up and forgets
/// a missed event.
pub struct RunGuard<'a, T> {
    run: &'a RunState<T>,
    /// Neither `Send` nor `Sync` by itself, as a guard of a mutex.
    _value: PhantomData<*mut T>,
}

// SAFETY: a shared guard gives `&T` and nothing else, which may cross threads if `T: Sync`.
unsafe impl<T: Sync> Sync for RunGuard<'_, T> {}

impl<'a, T> RunGuard<'a, T> {
    /// For the thread that has just changed the state from IDLE, or found it MISSED in `end`.
    fn new(run: &'a RunState<T>) -> Self {
        RunGuard {
            run,
            _value: PhantomData,
        }
    }

    /// Gives the run up.
    ///
    /// # Errors
    /// With the guard itself, still running, if an event was missed meanwhile: go round again.
    pub fn end(self) -> Result<(), RunGuard<'a, T>> {
        let run = self.run;
        std::mem::forget(self);
        // R: pairs with A. SeqCst for invariant 2: the caller looks at its list next.
        if run
            .state
            .compare_exchange(RUNNING, IDLE, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            store_load_barrier();
            return Ok(());
        }
        // MISSED: only the runner changes it. The swap acquires what was published before it was set.
        run.state.swap(RUNNING, Ordering::SeqCst);
        Err(RunGuard::new(run))
    }
}

impl<T> Drop for RunGuard<'_, T> {
    fn drop(&mut self) {
        self.run.state.store(IDLE, Ordering::SeqCst);
    }
}

impl<T> Deref for RunGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (invariant 1); borrowing it shared gives shared references.
        self.run.value.with_mut(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for RunGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (invariant 1) and borrowed exclusively.
        self.run.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> fmt::Debug for RunGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunGuard").finish_non_exhaustive()
    }
}
