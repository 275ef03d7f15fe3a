//! Who runs a queue, and what waits for them, in one word: the adoption list (`defer_list` of the kernel's `Qdisc`) and the run state (`qdisc_run_begin`
//! and `_end`) as one atomic pointer.
//!
//! The word holds the newest of the waiting nodes, their number in its upper 16 bits, and two flags in its lowest bits: RUNNING (one thread has the
//! run) and MISSED (something that is not on the list happened meanwhile).
//!
//! Invariant 1 (INV-TX-5): the value is reached only through a [`RunnerGuard`], and at most one exists, because only the thread whose
//! compare-and-swap set RUNNING makes one, and only a guard clears it.
//!
//! Invariant 2 (INV-TX-2, nothing is stuck): a sender puts nodes on the list only by a compare-and-swap that finds RUNNING set and leaves it set. So whoever
//! has the run at that moment will see the node: [`end`](RunnerGuard::end) succeeds only if list and MISSED are empty, in the same atomic step that
//! clears RUNNING. With a list and a run state in two words there is a moment between push and claim at which a preempted sender leaves packets
//! that nobody serves; here there is none: a sender either finds the run free and *has* it, or leaves its packets to a thread that has it.
//! A runner whose quota is used up may [`leave`](RunnerGuard::leave) nodes behind; it must then tell the queue's worker, and any sender that comes
//! before the worker finds the run free and gets the nodes with it.
//!
//! Ordering: one word, so no two locations race here. Every change is a SeqCst compare-and-swap or swap: the one that takes nodes or the run reads, through a
//! chain of such changes, from the one that left them, and so sees the nodes' content and the value as they were left.
//! (Acquire and release would do for that. SeqCst is for callers that look at another location next: a worker's bell, a waiting room.) ABA: nothing
//! takes a single node; a push that succeeds on a head which was taken and pushed again in between still links to the true head.
//!
//! The walk down a list that another CPU filled is sped up by [hints](super::hints).
//!
//! Cost: a sender that finds the queue idle pays two atomic operations, as many as an uncontended mutex; one that finds it running pays one.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use super::hints::Hints;
use super::primitive::{AtomicPtr, Ordering, UnsafeCell, store_load_barrier};
use super::{Linked, preempt};

/// One thread has the run.
const RUNNING: usize = 1;
/// Something other than a push happened since the runner looked last.
const MISSED: usize = 2;
/// Position of the count; see [`AdoptionList`](super::AdoptionList).
const SHIFT: u32 = 48;
const ADDRESS: usize = ((1 << SHIFT) - 1) & !(RUNNING | MISSED);

fn count<N>(word: *mut N) -> usize {
    word.addr() >> SHIFT
}

fn nodes<N>(word: *mut N) -> Option<NonNull<N>> {
    NonNull::new(word.map_addr(|a| a & ADDRESS))
}

fn has<N>(word: *mut N, flag: usize) -> bool {
    word.addr() & flag != 0
}

fn flags<N>(flags: usize) -> *mut N {
    std::ptr::without_provenance_mut(flags)
}

/// What became of nodes that a sender wanted to leave to the runner; see [`RunList::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// They wait for the thread that has the run.
    Left,
    /// Too many wait; the caller still has its nodes.
    Full,
    /// Nobody has the run: [begin](RunList::try_begin). The caller still has its nodes.
    Idle,
}

/// Nodes taken off a list: the newest, linked down to the oldest. Whoever has this owns them.
#[derive(Debug)]
pub struct Taken<'a, N> {
    newest: Option<NonNull<N>>,
    /// How many there are (65,535: at least so many).
    count: usize,
    missed: bool,
    /// None where there are no nodes.
    hints: Option<&'a Hints<N>>,
}

impl<'a, N: Linked> Taken<'a, N> {
    fn of(word: *mut N, hints: Option<&'a Hints<N>>) -> Self {
        Taken {
            newest: nodes(word),
            count: count(word),
            missed: has(word, MISSED),
            hints,
        }
    }

    /// None.
    pub(super) fn none() -> Self {
        Taken {
            newest: None,
            count: 0,
            missed: false,
            hints: None,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// How many there are; more than 65,535 count as that.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether something that is no node was missed.
    pub fn missed(&self) -> bool {
        self.missed
    }

    /// Hands the nodes to `visit`, newest first, each with its link intact until `visit` changes it.
    #[inline]
    pub fn visit(self, visit: impl FnMut(NonNull<N>)) {
        if let Some(hints) = self.hints {
            // SAFETY: the nodes are the holder's.
            unsafe { hints.walk(self.newest, self.count, visit) };
        }
    }
}

/// The word, and what only the runner may touch.
pub struct RunList<N: Linked, T> {
    /// Alone on its cache lines: senders write it while the runner is busy with the value.
    word: CachePadded<AtomicPtr<N>>,
    /// Read by all, changed by none (what it points to is).
    hints: Hints<N>,
    /// Alone on its lines too: it is the runner's.
    value: CachePadded<UnsafeCell<T>>,
}

// SAFETY: the value is used by one thread at a time (invariant 1), which needs no more than `T: Send`; nodes may go from thread to thread (`Linked`).
unsafe impl<N: Linked, T: Send> Sync for RunList<N, T> {}
// SAFETY: moving the list moves the value; nodes as above.
unsafe impl<N: Linked, T: Send> Send for RunList<N, T> {}

impl<N: Linked, T> RunList<N, T> {
    /// Idle and empty, around `value`, made for lists of up to `expected` nodes; longer ones work, but are walked more slowly. Takes 8 bytes for each, of which only
    /// those up to the longest list that there was are ever touched.
    pub fn new(value: T, expected: usize) -> Self {
        const {
            assert!(
                align_of::<N>() > (RUNNING | MISSED),
                "the flags need the lowest bits"
            );
        }
        RunList {
            word: CachePadded::new(AtomicPtr::new(std::ptr::null_mut())),
            hints: Hints::new(expected),
            value: CachePadded::new(UnsafeCell::new(value)),
        }
    }

    /// Takes the run with all that waits, if nobody has it. Never waits: the compare-and-swap is tried again only if another thread's succeeded.
    #[inline]
    pub fn try_begin(&self) -> Option<(RunnerGuard<'_, N, T>, Taken<'_, N>)> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if has(word, RUNNING) {
                return None;
            }
            preempt::point();
            match self.word.compare_exchange_weak(
                word,
                flags(RUNNING),
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Some((RunnerGuard::of(self), Taken::of(word, Some(&self.hints))));
                }
                Err(now) => word = now,
            }
        }
    }

    /// Leaves nodes to the thread that has the run, unless there are others and together they would be more than `limit`. Never waits.
    ///
    /// With `unattended` nodes are left also where nobody runs: the caller must then tell somebody to run.
    ///
    /// # Safety
    /// The caller owns `n` nodes, linked from `newest` to `oldest`, and gives them up if this returns [`Pushed::Left`].
    #[inline]
    pub unsafe fn push(
        &self,
        newest: NonNull<N>,
        oldest: NonNull<N>,
        n: usize,
        limit: usize,
        unattended: bool,
    ) -> Pushed {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if !unattended && !has(word, RUNNING) {
                return Pushed::Idle;
            }
            let waiting = count(word);
            if waiting != 0 && waiting + n > limit {
                return Pushed::Full;
            }
            // SAFETY: the chain is still ours.
            unsafe {
                N::set_next(oldest, nodes(word));
                self.hints.note(newest, n, waiting);
            }
            let tag = (waiting + n).min(usize::from(u16::MAX)) << SHIFT;
            let kept = word.addr() & (RUNNING | MISSED);
            let next = newest.as_ptr().map_addr(|a| a | tag | kept);
            preempt::point();
            match self
                .word
                .compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return Pushed::Left,
                Err(now) => word = now,
            }
        }
    }

    /// Takes the run with all that waits, or makes the thread that has it go round once more. For events that are not on the list: a timer, a driver with
    /// room again, a worker's turn.
    pub fn begin_or_miss(&self) -> Option<(RunnerGuard<'_, N, T>, Taken<'_, N>)> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let running = has(word, RUNNING);
            let next = if running {
                word.map_addr(|a| a | MISSED)
            } else {
                flags(RUNNING)
            };
            // Also where MISSED is set already: the runner that sees it must see what happened before this call.
            preempt::point();
            match self
                .word
                .compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) if running => return None,
                Ok(_) => {
                    return Some((RunnerGuard::of(self), Taken::of(word, Some(&self.hints))));
                }
                Err(now) => word = now,
            }
        }
    }

    /// Takes the run with all that waits, yielding the CPU while another thread has it. For the control path only.
    pub fn begin_slow(&self) -> (RunnerGuard<'_, N, T>, Taken<'_, N>) {
        loop {
            if let Some(begun) = self.try_begin() {
                return begun;
            }
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(not(loom))]
            std::thread::yield_now();
        }
    }

    /// Whether some thread runs at this moment.
    pub fn is_running(&self) -> bool {
        has(self.word.load(Ordering::Relaxed), RUNNING)
    }

    /// How many nodes wait (at most 65,535 are told apart).
    pub fn len(&self) -> usize {
        count(self.word.load(Ordering::Relaxed))
    }

    /// Whether nothing waits and nobody runs. What ran before is seen as done.
    pub fn is_idle(&self) -> bool {
        self.word.load(Ordering::Acquire).is_null()
    }

    /// Whether no node waits.
    pub fn is_empty(&self) -> bool {
        nodes(self.word.load(Ordering::Acquire)).is_none()
    }

    /// What waits, where the caller proves by `&mut` that nobody runs.
    pub fn take_mut(&mut self) -> Taken<'_, N> {
        Taken::of(
            self.word.swap(std::ptr::null_mut(), Ordering::Acquire),
            Some(&self.hints),
        )
    }

    /// The value, where the caller proves by `&mut` that nobody runs.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every guard, which would borrow `self`.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<N: Linked, T> fmt::Debug for RunList<N, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunList")
            .field("running", &self.is_running())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The run: exclusive access to the value. Dropping it gives the run up and forgets a missed event; what waits stays.
pub struct RunnerGuard<'a, N: Linked, T> {
    list: &'a RunList<N, T>,
    /// By itself neither `Send` nor `Sync`.
    _exclusive: PhantomData<*mut T>,
}

// SAFETY: a shared guard gives shared references to the value, and nothing else that is not atomic.
unsafe impl<N: Linked, T: Sync> Sync for RunnerGuard<'_, N, T> {}

impl<'a, N: Linked, T> RunnerGuard<'a, N, T> {
    /// Called by the thread whose compare-and-swap has set RUNNING.
    #[inline]
    fn of(list: &'a RunList<N, T>) -> Self {
        RunnerGuard {
            list,
            _exclusive: PhantomData,
        }
    }

    /// Takes what waits, and forgets missed events: the caller looks at everything after this.
    #[inline]
    pub fn take(&mut self) -> Taken<'_, N> {
        if self.list.word.load(Ordering::Relaxed).addr() == RUNNING {
            return Taken::none();
        }
        preempt::point();
        let word = self.list.word.swap(flags(RUNNING), Ordering::SeqCst);
        let taken = Taken::of(word, Some(&self.list.hints));
        store_load_barrier();
        taken
    }

    /// Whether nodes wait now.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Gives the run up, if nothing waits and nothing was missed.
    ///
    /// # Errors
    /// With the guard itself, still running: [`take`](RunnerGuard::take) and go round again.
    #[inline]
    pub fn end(self) -> Result<(), RunnerGuard<'a, N, T>> {
        preempt::point();
        let ended = self.list.word.compare_exchange(
            flags(RUNNING),
            flags(0),
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        if ended.is_err() {
            return Err(self);
        }
        std::mem::forget(self);
        Ok(())
    }

    /// Gives the run up, whatever waits. Returns true if anything does, or was missed: somebody must then be told to run.
    #[must_use = "what waits is stuck unless somebody is told"]
    pub fn leave(self) -> bool {
        let list = self.list;
        std::mem::forget(self);
        list.stop()
    }
}

impl<N: Linked, T> RunList<N, T> {
    /// Clears both flags.
    fn stop(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let next = word.map_addr(|a| a & !(RUNNING | MISSED));
            preempt::point();
            match self
                .word
                .compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return word.addr() != RUNNING,
                Err(now) => word = now,
            }
        }
    }
}

impl<N: Linked, T> Drop for RunnerGuard<'_, N, T> {
    fn drop(&mut self) {
        self.list.stop();
    }
}

impl<N: Linked, T> Deref for RunnerGuard<'_, N, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (invariant 1); borrowing it shared gives shared references.
        self.list.value.with_mut(|value| unsafe { &*value })
    }
}

impl<N: Linked, T> DerefMut for RunnerGuard<'_, N, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (invariant 1) and borrowed exclusively.
        self.list.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<N: Linked, T> fmt::Debug for RunnerGuard<'_, N, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerGuard").finish_non_exhaustive()
    }
}
