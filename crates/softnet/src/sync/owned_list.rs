//! A value with at most one owner, and an [adoption list](AdoptionList) of what waits for the
//! owner, in one word: the `defer_list` of the kernel's `Qdisc` together with `qdisc_run_begin`
//! and `_end`. (In the literature: flat combining; the owner is the combiner.)
//!
//! Three flags in the lowest bits of the list's word say who owns the value: OWNED (one thread is
//! the owner), MISSED (something that is not on the list happened meanwhile) and CLAIMED (a
//! thread of the control path is next).
//!
//! Invariant 1 (INV-TX-5): the value is reached only through a [`ListOwner`], and at most one
//! exists, because only the thread whose compare-and-swap set OWNED makes one, and only a
//! `ListOwner` clears it.
//!
//! Invariant 2 (INV-TX-2, nothing is stuck): a sender puts nodes on the list only by a
//! compare-and-swap that finds OWNED or CLAIMED set and leaves it set. So the owner, or the
//! claimer that becomes it, will see the node: [`end`](ListOwner::end) succeeds only if list and
//! flags are empty, in the same atomic step that clears OWNED. With a list and an owner in two
//! words there is a moment between push and claim at which a preempted sender leaves packets that
//! nobody serves; here there is none. An owner whose budget is used up may
//! [`leave`](ListOwner::leave) nodes behind; it must then tell the queue's worker, and any sender
//! that comes before the worker becomes the owner and [takes](ListOwner::take_left) them first. A
//! claimer forgets missed events: it must tell the worker when it gives the list up.
//!
//! Invariant 3 (the control path does not starve): while CLAIMED is set no sender becomes the
//! owner, and an owner cannot [`take`](ListOwner::take) (but once what was left before it). So a
//! claimer waits for one owner. A claimer that has lost its CPU before it is the owner stops nobody
//! for long: who finds too much waiting [takes its turn](OwnedList::begin_overdue), once, and
//! leaves the claim. So a claimer that waits for another owner has been off its CPU while that much
//! came.
//!
//! Ordering: one word, so no two locations race here. Every change is a SeqCst compare-and-swap:
//! the one that takes nodes or becomes the owner reads, through a chain of such changes, from the
//! one that left them, and so sees the nodes' content and the value as they were left. For SeqCst
//! and ABA see [`AdoptionList`]. The backlog beside the word is a hint, and ordered with nothing.
//!
//! Waiting: a sender may look a bounded number of times whether the owner has ended before it
//! pushes. It becomes the owner by the same compare-and-swap, so no invariant depends on what it
//! saw.
//!
//! Cost: a sender that finds no owner pays two atomic operations, as many as an uncontended mutex,
//! and a third where the last owner left something; one that finds an owner pays one.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crossbeam_utils::CachePadded;

use super::llist::{AdoptionList, FLAGS, NodeList, Pushed, count, nodes};
use super::preempt;
use super::prefetch_for_write;
use super::primitive::{AtomicU32, Ordering, UnsafeCell};

/// One thread is the owner.
const OWNED: usize = 1;
/// Something other than a push happened since the owner looked last.
const MISSED: usize = 2;
/// A thread of the control path is next. Senders push for it.
const CLAIMED: usize = 4;

/// Tries of the control path before it claims a list.
const PLAIN: u32 = if cfg!(loom) { 0 } else { 16 };
/// Pauses of a claimer before it yields: some tens of microseconds, more than an owner takes that
/// is not preempted.
const SPINS: u32 = if cfg!(loom) { 0 } else { 1000 };

/// Yields of the control path before it sleeps: enough for an owner of the same priority, which
/// has the CPU after a few. One of a lower scheduling class never has it while this thread yields.
#[cfg(not(loom))]
const YIELDS: u32 = 256;
/// The sleep.
#[cfg(not(loom))]
const SLEEP: std::time::Duration = std::time::Duration::from_micros(50);

/// Lets some time pass, for a thread of the control path that has yielded so often.
pub(super) fn pause(yields: u32) {
    #[cfg(loom)]
    let _ = yields;
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    if yields < YIELDS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(SLEEP);
    }
}

/// Lets an owner go on that is about to end.
fn pause_briefly() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Pauses behind each look of so many in all: a 32nd of all, twice that and so on up to a quarter,
/// so that an owner that ends late in the time is not missed for half of it.
pub(crate) fn gaps(pauses: u32) -> impl Iterator<Item = u32> {
    let most = (pauses / 4).max(1);
    let (mut left, mut gap) = (pauses, (pauses / 32).max(1));
    std::iter::from_fn(move || {
        let now = gap.min(left);
        left -= now;
        gap = gap.saturating_mul(2).min(most);
        (now > 0).then_some(now)
    })
}

fn has<N>(word: *mut N, flag: usize) -> bool {
    word.addr() & flag != 0
}

/// The word of a list that has an owner now, and no other flag.
fn owned<N>(word: *mut N) -> *mut N {
    word.map_addr(|a| a & !FLAGS | OWNED)
}

fn flags<N>(flags: usize) -> *mut N {
    std::ptr::without_provenance_mut(flags)
}

thread_local! {
    /// Lists of packets that this thread owns now.
    static OWNED_HERE: Cell<u32> = const { Cell::new(0) };
}

/// True if this thread owns a list of packets: it is inside a driver, a qdisc or a closure of the
/// control path. If it waited for a list, it might wait for itself.
pub(crate) fn is_owner_here() -> bool {
    OWNED_HERE.get() != 0
}

/// Tells if nodes waited when an ownership began.
#[derive(Debug)]
#[must_use = "what was left goes first"]
pub(crate) struct Left(bool);

impl Left {
    /// True if some did.
    #[inline(always)]
    pub(crate) fn some(&self) -> bool {
        self.0
    }
}

/// Result of [`OwnedList::enter`].
#[derive(Debug)]
pub(crate) enum Entry<'a, L: NodeList, T> {
    /// The caller owns the list, and still has its nodes. What others [left](ListOwner::take_left)
    /// goes first.
    Acquired(ListOwner<'a, L, T>, Left),
    /// They wait for the owner, behind so many others.
    Queued(usize),
    /// Too many wait. The caller still has its nodes.
    Full,
}

/// Fields that all threads write.
struct Shared<L: NodeList> {
    list: AdoptionList<L::Node>,
    /// See [`OwnedList::backlog`]. On the line that a push needs anyway.
    backlog: AtomicU32,
}

/// The word, and what only the owner may touch. Senders and the owner hold nodes in lists of type
/// `L`; those that wait when it is dropped are dropped as one.
pub(crate) struct OwnedList<L: NodeList, T> {
    /// Alone on its cache lines: senders write it while the owner is busy with the value.
    shared: CachePadded<Shared<L>>,
    /// Alone on its lines too: it is the owner's.
    owned: CachePadded<Owned<T>>,
}

/// Fields that only the owner may touch.
struct Owned<T> {
    value: UnsafeCell<T>,
    /// See [`OwnedList::when_abandoned`].
    abandoned: fn(&mut T),
}

// SAFETY: the value is used by one thread at a time (invariant 1), which needs no more than
// `T: Send`; nodes may go from thread to thread (`Linked`).
unsafe impl<L: NodeList, T: Send> Sync for OwnedList<L, T> {}
// SAFETY: moving the list moves the value; nodes as above.
unsafe impl<L: NodeList, T: Send> Send for OwnedList<L, T> {}

impl<L: NodeList, T> OwnedList<L, T> {
    /// Idle and empty, around `value`, made for lists of up to `expected` nodes (see
    /// [`AdoptionList::expecting`]).
    pub(crate) fn new(value: T, expected: usize) -> Self {
        OwnedList {
            shared: CachePadded::new(Shared {
                list: AdoptionList::expecting(expected),
                backlog: AtomicU32::new(0),
            }),
            owned: CachePadded::new(Owned {
                value: UnsafeCell::new(value),
                abandoned: |_| (),
            }),
        }
    }

    /// Has an owner that is dropped, by a panic, call `abandoned` before it gives the list up.
    /// That must not panic.
    #[must_use]
    pub(crate) fn when_abandoned(mut self, abandoned: fn(&mut T)) -> Self {
        self.owned.abandoned = abandoned;
        self
    }

    /// Changes the word as `change` says. Returns what it was, or what it is if `change` returns
    /// none. Goes round again only where another thread's change succeeded.
    #[inline(always)]
    fn update(
        &self,
        change: impl Fn(*mut L::Node) -> Option<*mut L::Node>,
    ) -> Result<*mut L::Node, *mut L::Node> {
        let step = |word| {
            preempt::point();
            change(word)
        };
        let word = &self.shared.list.word;
        word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, step)
    }

    fn word(&self, ordering: Ordering) -> *mut L::Node {
        self.shared.list.word.load(ordering)
    }

    /// The nodes of a word that this thread has taken, oldest first.
    #[inline(always)]
    fn taken(&self, word: *mut L::Node) -> L {
        let mut list = L::default();
        let index = &self.shared.list.index;
        // SAFETY: the change of the word made the nodes ours.
        unsafe { index.walk(nodes(word), count(word), |chain| list.put_front(chain)) };
        list
    }

    /// As [`taken`](OwnedList::taken), where usually there is none.
    #[inline(always)]
    fn left(&self, word: *mut L::Node) -> L {
        if nodes(word).is_none() {
            return L::default();
        }
        self.some_left(word)
    }

    #[cold]
    #[inline(never)]
    fn some_left(&self, word: *mut L::Node) -> L {
        self.taken(word)
    }

    /// For the thread that has just set OWNED.
    #[inline(always)]
    fn owner(&self) -> ListOwner<'_, L, T> {
        if L::IS_OF_PACKETS {
            OWNED_HERE.with(|lists| lists.set(lists.get().wrapping_add(1)));
        }
        ListOwner {
            list: self,
            _exclusive: PhantomData,
        }
    }

    /// Becomes the owner, with all that waits, if there is none. Never waits.
    #[inline]
    pub(crate) fn try_begin(&self) -> Option<(ListOwner<'_, L, T>, L)> {
        let begin = |word| (!has(word, OWNED | CLAIMED)).then(|| flags(OWNED));
        let word = self.update(begin).ok()?;
        Some((self.owner(), self.left(word)))
    }

    /// Becomes the owner, if there is none; else, what the word is. What waits stays on the list:
    /// mostly there is nothing, and a caller that has nodes of its own may look at these first. (An
    /// empty list that goes with the owner is copied in pieces other than those in which it was
    /// written, for which the processor waits.)
    #[inline(always)]
    fn begin(&self) -> Result<(ListOwner<'_, L, T>, Left), *mut L::Node> {
        let begin = |word| (!has(word, OWNED | CLAIMED)).then(|| owned(word));
        let word = self.update(begin)?;
        Ok((self.owner(), Left(nodes(word).is_some())))
    }

    /// Becomes the owner as soon as there is none, within so many pauses. Each [time between two
    /// looks](gaps) is twice the last: a look takes the word's line from the owner, which has to
    /// write it. A claim ends it: this thread would wait for a thread of the control path.
    #[inline]
    pub(crate) fn begin_within(&self, pauses: u32) -> Option<(ListOwner<'_, L, T>, Left)> {
        for gap in gaps(pauses) {
            let word = self.word(Ordering::Relaxed);
            if has(word, CLAIMED) {
                return None;
            }
            if !has(word, OWNED)
                && let Ok(begun) = self.begin()
            {
                return Some(begun);
            }
            (0..gap).for_each(|_| pause_briefly());
        }
        None
    }

    /// Becomes the owner if there is none, else pushes `nodes`, in one atomic operation, to the
    /// owner, unless others wait and together they would be more than `limit` says. Never waits.
    #[inline(always)]
    pub(crate) fn enter(
        &self,
        nodes: &mut L,
        limit: impl FnOnce(&L) -> usize + Copy,
    ) -> Entry<'_, L, T> {
        // Whoever does not become the owner writes the word, too.
        prefetch_for_write(&raw const self.shared.list.word);
        loop {
            let word = match self.begin() {
                Ok((owner, left)) => return Entry::Acquired(owner, left),
                Err(word) => word,
            };
            match self.push_chain(word, nodes, limit(nodes), false) {
                Pushed::Queued(before) => return Entry::Queued(before),
                Pushed::Full => return Entry::Full,
                Pushed::Unowned => {}
            }
        }
    }

    /// Pushes `nodes` without becoming the owner, also where there is none: the caller must tell
    /// somebody to become it. Returns how many waited before; none, and the nodes still in the
    /// list, if others wait and together they would be more than `limit`. Never waits.
    #[inline]
    pub(crate) fn push(&self, nodes: &mut L, limit: usize) -> Option<usize> {
        match self.push_chain(self.word(Ordering::Relaxed), nodes, limit, true) {
            Pushed::Queued(before) => Some(before),
            Pushed::Full | Pushed::Unowned => None,
        }
    }

    /// `word`: what the list's word was when this thread saw it last.
    #[inline]
    fn push_chain(
        &self,
        word: *mut L::Node,
        nodes: &mut L,
        limit: usize,
        unowned: bool,
    ) -> Pushed {
        let Some(chain) = nodes.take_nodes() else {
            return Pushed::Queued(0);
        };
        let may = |flags| unowned || flags & (OWNED | CLAIMED) != 0;
        let list = &self.shared.list;
        // SAFETY: the chain is ours.
        let pushed = unsafe { list.push_if(word, &chain, chain.len, limit, may) };
        if !matches!(pushed, Pushed::Queued(_)) {
            // SAFETY: not pushed, so still ours.
            unsafe { nodes.put_front(chain) };
        }
        pushed
    }

    /// Becomes the owner with all that waits, or makes the owner go round once more. For events
    /// that are not on the list: a timer, a driver with capacity again, a worker's turn.
    pub(crate) fn begin_or_miss(&self) -> Option<(ListOwner<'_, L, T>, L)> {
        // Written also where MISSED is set already: the owner that sees it must see what happened
        // before this call.
        let busy = |word| has(word, OWNED | CLAIMED);
        let step = |word: *mut L::Node| match busy(word) {
            true => Some(word.map_addr(|a| a | MISSED)),
            false => Some(flags(OWNED)),
        };
        let (Ok(word) | Err(word)) = self.update(step);
        (!busy(word)).then(|| (self.owner(), self.left(word)))
    }

    /// Becomes the owner, with all that waits, if a thread of the control path has claimed the list
    /// and does not come, and at least `overdue` nodes wait. The claim stays. (A missed event is
    /// forgotten: the claimer tells the worker.) Never waits.
    #[cold]
    pub(crate) fn begin_overdue(&self, overdue: usize) -> Option<(ListOwner<'_, L, T>, L)> {
        let claimed = |word| has(word, CLAIMED) && !has(word, OWNED);
        let begin =
            |word| (claimed(word) && count(word) >= overdue).then(|| flags(OWNED | CLAIMED));
        let word = self.update(begin).ok()?;
        Some((self.owner(), self.left(word)))
    }

    /// Claims the list, as a thread of the control path that stands still then.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn claim(&self) {
        let claimed = |word: *mut L::Node| Some(word.map_addr(|a| a | CLAIMED));
        assert!(self.update(claimed).is_ok());
    }

    /// Becomes the owner, and leaves what waits on the list. Tries some times in the gaps that
    /// owners leave, yielding the CPU, and then claims the list: from then on senders push for
    /// this thread, which waits for the present owner (two claimers: also for what owns the list
    /// between them). That is short, so the claimer spins before it yields, and sleeps where
    /// yielding does not help. For the control path only, and never by the list's owner.
    pub(crate) fn begin_slow(&self) -> ListOwner<'_, L, T> {
        let mut tries = 0;
        loop {
            let step = |word: *mut L::Node| match has(word, OWNED) {
                true if tries < PLAIN => None,
                true => Some(word.map_addr(|a| a | CLAIMED)),
                false => Some(owned(word)),
            };
            match self.update(step) {
                Ok(word) if !has(word, OWNED) => return self.owner(),
                _ => tries = tries.saturating_add(1),
            }
            let spins = tries.saturating_sub(PLAIN);
            if (1..=SPINS).contains(&spins) {
                std::hint::spin_loop();
            } else {
                pause(tries.min(PLAIN) + spins.saturating_sub(SPINS));
            }
        }
    }

    /// The owner's last word on work that is due besides the list: a hint that costs no cache line
    /// of its own.
    #[inline]
    pub(crate) fn backlog(&self) -> usize {
        self.shared.backlog.load(Ordering::Relaxed) as usize
    }

    /// Nodes that wait (at most 65,535 are told apart). SeqCst, for a caller that goes to sleep
    /// if there are too many; what the last owner did is seen as done.
    pub(crate) fn len(&self) -> usize {
        count(self.word(Ordering::SeqCst))
    }

    /// True if nothing waits and there is no owner. What the last owner did is seen as done.
    pub(crate) fn is_idle(&self) -> bool {
        self.word(Ordering::Acquire).is_null()
    }

    /// True if some thread is the owner at this moment.
    #[cfg(all(test, loom))]
    pub(crate) fn is_owned(&self) -> bool {
        has(self.word(Ordering::Relaxed), OWNED)
    }

    /// True if no node waits.
    #[cfg(all(test, loom))]
    pub(crate) fn is_empty(&self) -> bool {
        nodes(self.word(Ordering::Acquire)).is_none()
    }
}

impl<L: NodeList, T> Drop for OwnedList<L, T> {
    fn drop(&mut self) {
        // `&mut`: there is no owner.
        drop(self.taken(self.word(Ordering::Acquire)));
    }
}

impl<L: NodeList, T> fmt::Debug for OwnedList<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedList")
            .field("owned", &has(self.word(Ordering::Relaxed), OWNED))
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The ownership of an [`OwnedList`]: exclusive access to the value. Dropping it gives the list
/// up, [abandoned](OwnedList::when_abandoned), and forgets a missed event; what waits stays.
///
/// It may be shared between threads where the value may, as a `MutexGuard`, and not where the value
/// may only be sent.
pub(crate) struct ListOwner<'a, L: NodeList, T> {
    list: &'a OwnedList<L, T>,
    /// By itself neither `Send` nor `Sync`.
    _exclusive: PhantomData<*mut T>,
}

// SAFETY: a shared owner gives shared references to the value, and nothing else that is not
// atomic.
unsafe impl<L: NodeList, T: Sync> Sync for ListOwner<'_, L, T> {}

impl<'a, L: NodeList, T> ListOwner<'a, L, T> {
    /// Takes what waits, oldest first, unless it is more than `limit` nodes or a thread of the
    /// control path waits, and says whether anything but nodes was missed, which is forgotten: the
    /// caller looks at everything after this.
    #[inline]
    pub(crate) fn take(&mut self, limit: usize) -> Option<(L, bool)> {
        let word = self.list.word(Ordering::Relaxed);
        if word.addr() == OWNED {
            return Some((L::default(), false));
        }
        let fits = |word| count(word) <= limit && !has(word, CLAIMED);
        let word = self.list.update(|word| fits(word).then(|| flags(OWNED)));
        let word = word.ok()?;
        Some((self.list.taken(word), has(word, MISSED)))
    }

    /// Takes what waited when the ownership began, and what came since, oldest first; nothing if
    /// nothing waited then. Also if the list has been claimed since: what waited goes first.
    #[inline]
    pub(crate) fn take_left(&mut self, left: Left) -> L {
        if left.some() {
            self.take_all()
        } else {
            L::default()
        }
    }

    /// Takes all that waits, oldest first.
    pub(crate) fn take_all(&mut self) -> L {
        let kept = |word: *mut L::Node| Some(flags(word.addr() & FLAGS));
        let (Ok(word) | Err(word)) = self.list.update(kept);
        self.list.taken(word)
    }

    /// Says what is due besides the list; see [`OwnedList::backlog`].
    #[inline]
    pub(crate) fn set_backlog(&self, due: u32) {
        let backlog = &self.list.shared.backlog;
        if backlog.load(Ordering::Relaxed) != due {
            backlog.store(due, Ordering::Relaxed);
        }
    }

    /// Gives the list up, if nothing waits and nothing was missed.
    ///
    /// # Errors
    /// With the ownership itself: [`take`](ListOwner::take) and go round again.
    #[inline]
    pub(crate) fn end(self) -> Result<(), ListOwner<'a, L, T>> {
        preempt::point();
        let (from, to) = (flags(OWNED), flags(0));
        let word = &self.list.shared.list.word;
        match word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => {
                std::mem::forget(self);
                no_owner_here::<L>();
                Ok(())
            }
            Err(_) => Err(self),
        }
    }

    /// Gives the list up, whatever waits. Returns true if anything does, or was missed: somebody
    /// must then be told to become the owner.
    #[must_use = "what waits is stuck unless somebody is told"]
    pub(crate) fn leave(self) -> bool {
        let list = self.list;
        std::mem::forget(self);
        list.give_up()
    }
}

/// An ownership has ended.
#[inline(always)]
fn no_owner_here<L: NodeList>() {
    if L::IS_OF_PACKETS {
        OWNED_HERE.with(|lists| lists.set(lists.get().wrapping_sub(1)));
    }
}

impl<L: NodeList, T> OwnedList<L, T> {
    /// Clears the owner's flags.
    fn give_up(&self) -> bool {
        no_owner_here::<L>();
        let cleared = |word: *mut L::Node| Some(word.map_addr(|a| a & !(OWNED | MISSED)));
        let (Ok(word) | Err(word)) = self.update(cleared);
        word.addr() != OWNED
    }
}

impl<L: NodeList, T> Drop for ListOwner<'_, L, T> {
    fn drop(&mut self) {
        (self.list.owned.abandoned)(self);
        self.list.give_up();
    }
}

impl<L: NodeList, T> Deref for ListOwner<'_, L, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only owner (invariant 1); borrowed shared, it gives shared
        // references.
        self.list.owned.value.with_mut(|value| unsafe { &*value })
    }
}

impl<L: NodeList, T> DerefMut for ListOwner<'_, L, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only owner (invariant 1), and it is borrowed exclusively.
        self.list
            .owned
            .value
            .with_mut(|value| unsafe { &mut *value })
    }
}

impl<L: NodeList, T> fmt::Debug for ListOwner<'_, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListOwner").finish_non_exhaustive()
    }
}
