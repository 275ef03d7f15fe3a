//! Who owns a queue, and what waits for the owner, in one word: the adoption list (`defer_list` of the
//! kernel's `Qdisc`) and the run state (`qdisc_run_begin` and `_end`) as one atomic pointer.
//!
//! The word holds the newest of the waiting nodes, their number in its upper 16 bits, and three flags
//! in its lowest bits: RUNNING (one thread is the owner), MISSED (something that is not on the list
//! happened meanwhile) and CLAIMED (a thread of the control path is next).
//!
//! Invariant 1 (INV-TX-5): the value is reached only through a [`RunnerGuard`], and at most one
//! exists, because only the thread whose compare-and-swap set RUNNING makes one, and only a guard
//! clears it.
//!
//! Invariant 2 (INV-TX-2, nothing is stuck): a sender puts nodes on the list only by a
//! compare-and-swap that finds RUNNING or CLAIMED set and leaves it set. So the owner, or the claimer
//! that becomes it, will see the node: [`end`](RunnerGuard::end) succeeds only if list and flags are
//! empty, in the same atomic step that clears RUNNING. With a list and a run state in two words there
//! is a moment between push and claim at which a preempted sender leaves packets that nobody serves;
//! here there is none. An owner whose budget is used up may [`leave`](RunnerGuard::leave) nodes
//! behind; it must then tell the queue's worker, and any sender that comes before the worker becomes
//! the owner and gets the nodes with it. A claimer forgets missed events: it must tell the worker
//! when it gives the list up.
//!
//! Invariant 3 (the control path does not starve): while CLAIMED is set no sender becomes the owner,
//! and an owner cannot [`take`](RunnerGuard::take). So a claimer waits for one run. The price: if the
//! claimer is preempted, the list grows until it is back.
//!
//! Ordering: one word, so no two locations race here. Every change is a SeqCst compare-and-swap: the
//! one that takes nodes or becomes the owner reads, through a chain of such changes, from the one that
//! left them, and so sees the nodes' content and the value as they were left. (Acquire and release
//! would do for that. SeqCst is for callers that look at another location next: a worker's event,
//! senders that wait for capacity.) ABA: nothing takes a single node; a push that succeeds on a head
//! which was taken and pushed again in between still links to the true head. The backlog beside the
//! word is a hint, and ordered with nothing.
//!
//! The walk down a list that another CPU filled is sped up by [hints](super::hints).
//!
//! Cost: a sender that finds the queue idle pays two atomic operations, as many as an uncontended
//! mutex; one that finds it owned pays one.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use super::hints::Hints;
use super::primitive::{AtomicPtr, AtomicU32, Ordering, UnsafeCell, store_load_barrier};
use super::{Linked, preempt};

/// One thread has the run.
const RUNNING: usize = 1;
/// Something other than a push happened since the owner looked last.
const MISSED: usize = 2;
/// A thread of the control path is next. Senders leave their packets to it.
const CLAIMED: usize = 4;
const FLAGS: usize = RUNNING | MISSED | CLAIMED;
/// Position of the count; see [`AdoptionList`](super::AdoptionList).
const SHIFT: u32 = 48;
const ADDRESS: usize = ((1 << SHIFT) - 1) & !FLAGS;

/// What the count can tell; a limit above it counts as that.
const MOST: usize = u16::MAX as usize;

/// Tries of the control path before it claims a list.
const PLAIN: u32 = if cfg!(loom) { 0 } else { 16 };
/// Pauses of a claimer before it yields: some tens of microseconds, more than a run takes that is not
/// preempted.
const SPINS: u32 = if cfg!(loom) { 0 } else { 1000 };

/// Lets some time pass.
fn pause(yields: bool) {
    #[cfg(loom)]
    let _ = yields;
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    if yields {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

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
    /// They wait for the owner, behind so many others (65,535: at least so many).
    Left(usize),
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
        // Usual without contention: there is nothing to visit.
        if let (Some(hints), Some(_)) = (self.hints, self.newest) {
            // SAFETY: the nodes are the holder's.
            unsafe { hints.walk(self.newest, self.count, visit) };
        }
    }
}

/// What all threads write.
struct Shared<N> {
    word: AtomicPtr<N>,
    /// See [`RunList::backlog`]. On the line that a push needs anyway.
    backlog: AtomicU32,
}

/// The word, and what only the owner may touch.
pub struct RunList<N: Linked, T> {
    /// Alone on its cache lines: senders write it while the owner is busy with the value.
    word: CachePadded<Shared<N>>,
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
            assert!(align_of::<N>() > FLAGS, "the flags need the lowest bits");
        }
        RunList {
            word: CachePadded::new(Shared {
                word: AtomicPtr::new(std::ptr::null_mut()),
                backlog: AtomicU32::new(0),
            }),
            hints: Hints::new(expected),
            value: CachePadded::new(UnsafeCell::new(value)),
        }
    }

    /// Takes the run with all that waits, if nobody has it. Never waits: the compare-and-swap is tried again only if another thread's succeeded.
    #[inline]
    pub fn try_begin(&self) -> Option<(RunnerGuard<'_, N, T>, Taken<'_, N>)> {
        let mut word = self.word.word.load(Ordering::Relaxed);
        loop {
            if has(word, RUNNING | CLAIMED) {
                return None;
            }
            preempt::point();
            match self.word.word.compare_exchange_weak(
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
        let mut word = self.word.word.load(Ordering::Relaxed);
        loop {
            if !unattended && !has(word, RUNNING | CLAIMED) {
                return Pushed::Idle;
            }
            let waiting = count(word);
            if waiting != 0 && waiting + n > limit.min(MOST) {
                return Pushed::Full;
            }
            // SAFETY: the chain is still ours.
            unsafe {
                N::set_next(oldest, nodes(word));
                self.hints.note(newest, n, waiting);
            }
            let tag = (waiting + n).min(MOST) << SHIFT;
            let kept = word.addr() & FLAGS;
            let next = newest.as_ptr().map_addr(|a| a | tag | kept);
            preempt::point();
            match self.word.word.compare_exchange_weak(
                word,
                next,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Pushed::Left(waiting),
                Err(now) => word = now,
            }
        }
    }

    /// Takes the run with all that waits, or makes the thread that has it go round once more. For events that are not on the list: a timer, a driver with
    /// room again, a worker's turn.
    pub fn begin_or_miss(&self) -> Option<(RunnerGuard<'_, N, T>, Taken<'_, N>)> {
        let mut word = self.word.word.load(Ordering::Relaxed);
        loop {
            let running = has(word, RUNNING | CLAIMED);
            let next = if running {
                word.map_addr(|a| a | MISSED)
            } else {
                flags(RUNNING)
            };
            // Also where MISSED is set already: the runner that sees it must see what happened before this call.
            preempt::point();
            match self.word.word.compare_exchange_weak(
                word,
                next,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) if running => return None,
                Ok(_) => {
                    return Some((RunnerGuard::of(self), Taken::of(word, Some(&self.hints))));
                }
                Err(now) => word = now,
            }
        }
    }

    /// Becomes the owner, and leaves what waits on the list. Tries some times in the gaps that
    /// owners leave, yielding the CPU, and then claims the list: from then on senders leave their
    /// packets to this thread, which waits for the present owner's run (two claimers: also for what
    /// runs between them). That run is short, so the claimer spins for it before it yields. For the
    /// control path only, and never inside a run of this list.
    pub fn begin_slow(&self) -> RunnerGuard<'_, N, T> {
        let word = &self.word.word;
        let mut tries = 0;
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let running = has(seen, RUNNING);
            if running && tries < PLAIN {
                tries += 1;
                pause(true);
                seen = word.load(Ordering::Relaxed);
                continue;
            }
            let next = if running {
                seen.map_addr(|a| a | CLAIMED)
            } else {
                seen.map_addr(|a| a & !FLAGS | RUNNING)
            };
            preempt::point();
            match word.compare_exchange_weak(seen, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) if running => {
                    tries += 1;
                    pause(tries > PLAIN + SPINS);
                    seen = word.load(Ordering::Relaxed);
                }
                Ok(_) => return RunnerGuard::of(self),
                Err(now) => seen = now,
            }
        }
    }

    /// What the owner said last about what is due besides the list: a hint that costs no cache line
    /// of its own.
    #[inline]
    pub fn backlog(&self) -> usize {
        self.word.backlog.load(Ordering::Relaxed) as usize
    }

    /// Whether some thread runs at this moment.
    pub fn is_running(&self) -> bool {
        has(self.word.word.load(Ordering::Relaxed), RUNNING)
    }

    /// How many nodes wait (at most 65,535 are told apart).
    pub fn len(&self) -> usize {
        count(self.word.word.load(Ordering::Relaxed))
    }

    /// Whether nothing waits and nobody runs. What ran before is seen as done.
    pub fn is_idle(&self) -> bool {
        self.word.word.load(Ordering::Acquire).is_null()
    }

    /// Whether no node waits.
    pub fn is_empty(&self) -> bool {
        nodes(self.word.word.load(Ordering::Acquire)).is_none()
    }

    /// What waits, where the caller proves by `&mut` that nobody runs.
    pub fn take_mut(&mut self) -> Taken<'_, N> {
        Taken::of(
            self.word.word.swap(std::ptr::null_mut(), Ordering::Acquire),
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

    /// Takes what waits, unless it is more than `limit` nodes, and forgets missed events: the caller
    /// looks at everything after this. A try is repeated only where another push succeeded, so at
    /// most `limit` times.
    #[inline]
    pub fn take(&mut self, limit: usize) -> Option<Taken<'_, N>> {
        let shared = &self.list.word;
        let mut word = shared.word.load(Ordering::Relaxed);
        loop {
            if word.addr() == RUNNING {
                return Some(Taken::none());
            }
            // Somebody of the control path waits for this owner.
            if count(word) > limit || has(word, CLAIMED) {
                return None;
            }
            preempt::point();
            match shared.word.compare_exchange_weak(
                word,
                flags(RUNNING),
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        store_load_barrier();
        Some(Taken::of(word, Some(&self.list.hints)))
    }

    /// Takes all that waits.
    pub fn take_all(&mut self) -> Taken<'_, N> {
        let shared = &self.list.word;
        let mut word = shared.word.load(Ordering::Relaxed);
        loop {
            let next = flags(word.addr() & FLAGS);
            preempt::point();
            match shared
                .word
                .compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return Taken::of(word, Some(&self.list.hints)),
                Err(now) => word = now,
            }
        }
    }

    /// Says what is due besides the list; see [`RunList::backlog`].
    #[inline]
    pub fn set_backlog(&self, due: u32) {
        let backlog = &self.list.word.backlog;
        if backlog.load(Ordering::Relaxed) != due {
            backlog.store(due, Ordering::Relaxed);
        }
    }

    /// Gives the run up, if nothing waits and nothing was missed.
    ///
    /// # Errors
    /// With the guard itself, still running: [`take`](RunnerGuard::take) and go round again.
    #[inline]
    pub fn end(self) -> Result<(), RunnerGuard<'a, N, T>> {
        preempt::point();
        let ended = self.list.word.word.compare_exchange(
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
        let mut word = self.word.word.load(Ordering::Relaxed);
        loop {
            let next = word.map_addr(|a| a & !(RUNNING | MISSED));
            preempt::point();
            match self.word.word.compare_exchange_weak(
                word,
                next,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
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
