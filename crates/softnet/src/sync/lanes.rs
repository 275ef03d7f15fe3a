//! Lists beside a [`RunList`](super::RunList), one for each CPU or group of threads: what a sender leaves there costs it no access to a line that other CPUs write, and
//! can be taken by a sender of the same CPU, in whose cache it still is.
//!
//! A *lane* is a word: the newest of its nodes, their number in the upper 16 bits, and the flag ATTENDED: somebody has been told that nodes are there. A lane
//! that is not attended is empty, and has an epoch in place of the nodes' address. `announced` has a bit for each lane whose nodes wait to be looked at.
//!
//! A sender that finds its lane attended [pushes](Lanes::push). One that does not, takes the run of the run list, or, where another thread has that:
//! 1. reads the lane's word: not attended, epoch e;
//! 2. [announces](Lanes::announce) the lane;
//! 3. makes the thread that has the run go round once more ([`begin_or_note`](super::RunList::begin_or_note)), or takes the run after all;
//! 4. [settles](Lanes::settle): puts its nodes and ATTENDED there by a compare-and-swap that succeeds only if the word is still the one that it read.
//!
//! Whoever has the run [takes](Lanes::take) a lane by clearing its bit first, and then swapping the word for an empty one of the next epoch.
//!
//! Invariant (nothing is stuck): a lane is attended only if its bit is set, or the thread that has the run has cleared the bit and will yet take the lane.
//! For if the compare-and-swap of step 4 succeeds, the lane has not been taken since step 1, because each taking changes the epoch. The bit was set in step 2. If it has
//! been cleared since, the taking that belongs to the clearing has not happened yet. Step 3 sees to it that a thread which has the run
//! looks at the bits again after step 2. A thread that gives the run up and leaves bits must have told somebody else (a worker) to come, as with nodes of the run list.
//! A sender that is preempted between the steps holds up nobody: its nodes are still its own, and its bit makes somebody look at a lane without need.
//!
//! Ordering: all steps are SeqCst. Nodes go through one word each, as in the run list. Between the words: the bit is set before the run list's word is read or written in step
//! 3, and a runner reads the bits after it has swapped that word, so one of both sees the other.
//!
//! Cost: a sender whose lane is attended pays one compare-and-swap on a line that its own CPU wrote last.

use std::fmt;
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use super::hints::Hints;
use super::primitive::{AtomicPtr, AtomicUsize, Ordering};
use super::{Linked, Taken, preempt};

/// Somebody has been told about the lane's nodes.
const ATTENDED: usize = 1;
/// Position of the count.
const SHIFT: u32 = 48;
const ADDRESS: usize = ((1 << SHIFT) - 1) & !ATTENDED;
/// What an epoch is counted in: the flag's place stays free.
const EPOCH: usize = ATTENDED << 1;
/// The bit that says: whoever looks takes all lanes, however much that is.
const ALL: usize = 1 << (usize::BITS - 1);

/// Most lanes there can be.
pub const MAX_LANES: usize = 32;

/// What became of nodes that a sender wanted to leave in its lane; see [`Lanes::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanePush {
    /// They wait, and so many with them; somebody has been told.
    Left(usize),
    /// Too many wait; the caller still has its nodes.
    Full,
    /// Nobody looks after the lane, which is empty; the caller still has its nodes: it [announces](Lanes::announce) the lane, looks after the
    /// run, and [settles](Lanes::settle).
    Unattended(Epoch),
}

/// Of an empty lane: changes whenever the lane is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(usize);

struct Lane<N> {
    word: AtomicPtr<N>,
    /// Of the empty word that there was last; written by the thread that has the run.
    epoch: AtomicUsize,
    hints: Hints<N>,
}

/// Lists beside a [`RunList`](super::RunList), one for each CPU or group of threads. Nobody who uses them ever waits for another.
pub struct Lanes<N> {
    lanes: Box<[CachePadded<Lane<N>>]>,
    /// A bit for each lane whose nodes wait to be looked at, and [`ALL`].
    announced: CachePadded<AtomicUsize>,
}

// SAFETY: nodes may go from thread to thread (`Linked`); everything else is atomic.
unsafe impl<N: Linked> Sync for Lanes<N> {}
// SAFETY: as above.
unsafe impl<N: Linked> Send for Lanes<N> {}

impl<N: Linked> Lanes<N> {
    /// So many empty lanes, at least 1 and at most [`MAX_LANES`], each made for up to `expected` nodes (see [`RunList::new`](super::RunList::new)).
    pub fn new(lanes: usize, expected: usize) -> Self {
        const {
            assert!(align_of::<N>() > ATTENDED, "the flag needs the lowest bit");
        }
        let lane = || Lane {
            word: AtomicPtr::new(std::ptr::null_mut()),
            epoch: AtomicUsize::new(0),
            hints: Hints::new(expected),
        };
        let lanes = lanes.clamp(1, MAX_LANES);
        Lanes {
            lanes: (0..lanes).map(|_| CachePadded::new(lane())).collect(),
            announced: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// How many lanes there are.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Leaves nodes in a lane that somebody looks after, unless together with those that wait there they would be more than `limit`. Never waits.
    ///
    /// # Safety
    /// The caller owns `n` nodes, linked from `newest` to `oldest`, and gives them up if this returns [`LanePush::Left`].
    #[inline]
    pub unsafe fn push(
        &self,
        lane: usize,
        newest: NonNull<N>,
        oldest: NonNull<N>,
        n: usize,
        limit: usize,
    ) -> LanePush {
        let lane = &self.lanes[lane];
        let mut word = lane.word.load(Ordering::SeqCst);
        loop {
            if word.addr() & ATTENDED == 0 {
                return LanePush::Unattended(Epoch(word.addr()));
            }
            let waiting = word.addr() >> SHIFT;
            if waiting + n > limit {
                return LanePush::Full;
            }
            // SAFETY: the chain is still ours.
            unsafe {
                N::set_next(oldest, NonNull::new(word.map_addr(|a| a & ADDRESS)));
                lane.hints.note(newest, n, waiting);
            }
            preempt::point();
            let next = tagged(newest, waiting + n);
            let pushed =
                lane.word
                    .compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::SeqCst);
            match pushed {
                Ok(_) => return LanePush::Left(waiting + n),
                Err(now) => word = now,
            }
        }
    }

    /// Whether somebody looks after the lane.
    #[inline]
    pub fn is_attended(&self, lane: usize) -> bool {
        self.lanes[lane].word.load(Ordering::Relaxed).addr() & ATTENDED != 0
    }

    /// Says that somebody who has the run must look at this lane. To be followed by taking the run, or by making the thread that has it go round once more.
    pub fn announce(&self, lane: usize) {
        preempt::point();
        self.announced.fetch_or(1 << lane, Ordering::SeqCst);
        preempt::point();
    }

    /// Leaves nodes in a lane that was [announced](Lanes::announce), if it has not been taken since it had this epoch. Returns whether it did so; if not, the caller
    /// still has its nodes, and begins anew.
    ///
    /// # Safety
    /// The caller owns `n` nodes, linked from `newest` to `oldest`, and gives them up if this returns true.
    pub unsafe fn settle(
        &self,
        lane: usize,
        epoch: Epoch,
        newest: NonNull<N>,
        oldest: NonNull<N>,
        n: usize,
    ) -> bool {
        let lane = &self.lanes[lane];
        // SAFETY: the chain is ours.
        unsafe {
            N::set_next(oldest, None);
            lane.hints.note(newest, n, 0);
        }
        preempt::point();
        let empty = std::ptr::without_provenance_mut(epoch.0);
        let next = tagged(newest, n);
        lane.word
            .compare_exchange(empty, next, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Says that whoever has the run must take all lanes. To be followed as [`announce`](Lanes::announce).
    pub fn announce_all(&self) {
        self.announced.fetch_or(ALL, Ordering::SeqCst);
    }

    /// Whether no lane is announced.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.announced.load(Ordering::SeqCst) == 0
    }

    /// Whether a lane is announced.
    #[cfg(all(test, loom))]
    pub(super) fn is_announced(&self, lane: usize) -> bool {
        self.announced.load(Ordering::SeqCst) & 1 << lane != 0
    }

    /// Whether [all](Lanes::announce_all) must be taken.
    pub fn are_all_wanted(&self) -> bool {
        self.announced.load(Ordering::SeqCst) & ALL != 0
    }

    /// Takes a lane, announced or not. For the thread that has the run alone: if two take one lane at the same time, nodes may be stuck.
    pub fn take(&self, lane: usize) -> Taken<'_, N> {
        self.forget(lane);
        preempt::point();
        self.swap(lane, EPOCH)
    }

    /// The first half of taking: clears the bit.
    pub(super) fn forget(&self, lane: usize) {
        let bit = 1 << lane;
        if self.announced.load(Ordering::SeqCst) & bit != 0 {
            self.announced.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// The second half of taking: `later`, by which the epoch grows, is [`EPOCH`].
    pub(super) fn swap(&self, lane: usize, later: usize) -> Taken<'_, N> {
        let lane = &self.lanes[lane];
        let epoch = lane.epoch.load(Ordering::Relaxed).wrapping_add(later) & ADDRESS;
        lane.epoch.store(epoch, Ordering::Relaxed);
        let empty = std::ptr::without_provenance_mut(epoch);
        let word = lane.word.swap(empty, Ordering::SeqCst);
        if word.addr() & ATTENDED == 0 {
            return Taken::none();
        }
        Taken::chain(
            NonNull::new(word.map_addr(|a| a & ADDRESS)),
            word.addr() >> SHIFT,
            &lane.hints,
        )
    }

    /// Takes all announced lanes, one after the other, and forgets that all were [wanted](Lanes::announce_all). For the thread that has the run alone.
    pub fn take_announced(&self, mut each: impl FnMut(Taken<'_, N>)) {
        let bits = self.announced.load(Ordering::SeqCst);
        if bits & ALL != 0 {
            self.announced.fetch_and(!ALL, Ordering::SeqCst);
        }
        for lane in (0..self.lanes.len()).filter(|lane| bits & 1 << lane != 0) {
            each(self.take(lane));
        }
    }

    /// How many nodes wait in a lane.
    #[inline]
    pub fn waiting(&self, lane: usize) -> usize {
        let word = self.lanes[lane].word.load(Ordering::Acquire);
        if word.addr() & ATTENDED == 0 {
            return 0;
        }
        word.addr() >> SHIFT
    }

    /// How many nodes wait in the lanes that are announced.
    pub fn waiting_announced(&self) -> usize {
        let bits = self.announced.load(Ordering::SeqCst);
        (0..self.lanes.len())
            .filter(|lane| bits & 1 << lane != 0)
            .map(|lane| self.waiting(lane))
            .sum()
    }
}

/// The word of an attended lane.
fn tagged<N>(newest: NonNull<N>, n: usize) -> *mut N {
    let tag = n.min(usize::from(u16::MAX)) << SHIFT;
    newest.as_ptr().map_addr(|a| a | tag | ATTENDED)
}

impl<N> fmt::Debug for Lanes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes")
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}
