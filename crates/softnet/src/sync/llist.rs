//! The adoption list: many threads push chains, one takes everything. (The kernel's `llist`, with
//! the length beside the head.)
//!
//! One word holds the address of the newest node of a chain linked by `next` down to the oldest,
//! the number of nodes (saturating) in its upper 16 bits, so that push and count are one atomic
//! operation and the limit is exact, and in its lowest bits the flags of an
//! [`OwnedList`](super::OwnedList); here they are 0. Nodes in the list belong to the list.
//!
//! ABA: nothing takes a single node, so a compare-and-swap that succeeds on a head that was taken
//! and pushed again in between still links to the true head.
//!
//! Ordering: a push is a SeqCst compare-and-swap (P); taking all is a SeqCst swap (T). T reads
//! what P wrote, and a chain of pushes is one release sequence, so the taker sees every node's
//! content and `next`. Acquire and release would do for that; SeqCst is for callers that look at
//! another location next: a worker's event, a sleeper's state, senders that wait for capacity.

use std::fmt;
use std::ptr::NonNull;

use super::preempt;
use super::prefetch::prefetch_for_write;
use super::prefetch_index::{Addresses, PrefetchIndex};
use super::primitive::{AtomicPtr, Ordering};

/// A node with an intrusive link.
///
/// # Safety
/// `next` and `set_next` read and write one and the same field, which nothing else touches while
/// the node is in a list. A node may be put in a list by one thread and taken by another (which
/// `Send` would say, but nodes are moved by pointer).
pub(crate) unsafe trait Linked {
    /// The node's link.
    ///
    /// # Safety
    /// `node` is valid and owned by the caller.
    unsafe fn next(node: NonNull<Self>) -> Option<NonNull<Self>>;

    /// Changes the node's link.
    ///
    /// # Safety
    /// `node` is valid and owned by the caller.
    unsafe fn set_next(node: NonNull<Self>, next: Option<NonNull<Self>>);
}

/// Nodes linked by `next` from `head` to `tail` that are in no list. Whoever has the chain owns
/// them.
#[derive(Debug)]
pub(crate) struct Chain<N> {
    /// The first node.
    pub(crate) head: NonNull<N>,
    /// The last node.
    pub(crate) tail: NonNull<N>,
    /// Number of nodes.
    pub(crate) len: usize,
    /// Sum of the nodes' bytes, where a list counts them.
    pub(crate) bytes: u64,
}

impl<N> Clone for Chain<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Chain<N> {}

/// A FIFO of nodes, as their owner holds them.
///
/// # Safety
/// A list owns its nodes. What [`newest_first`](NodeList::newest_first) returns is a chain of nodes
/// that nothing else refers to, with the right number.
pub(crate) unsafe trait NodeList: Default {
    /// A node.
    type Node: Linked;

    /// True if an owner of such a list calls drivers and qdiscs; then it is noted that this thread
    /// is one.
    const IS_OF_PACKETS: bool = false;

    /// Takes all nodes out, as a chain that runs from the newest to the oldest.
    fn newest_first(&mut self) -> Option<Chain<Self::Node>>;

    /// Undoes [`newest_first`](NodeList::newest_first), in the empty list. The link behind the
    /// oldest may be anything.
    ///
    /// # Safety
    /// The caller owns the chain, and gives it up.
    unsafe fn give_back(&mut self, chain: Chain<Self::Node>);

    /// Puts a node in front of the others.
    ///
    /// # Safety
    /// The caller owns the node, and gives it up.
    unsafe fn put_front(&mut self, node: NonNull<Self::Node>);
}

/// The bits below the address.
pub(super) const FLAGS: usize = 7;
/// Position of the count. User-space addresses on x86-64 and AArch64 stay below it (without an
/// explicit hint to `mmap`, also where the machine has five-level page tables).
const SHIFT: u32 = 48;
const ADDRESS: usize = ((1 << SHIFT) - 1) & !FLAGS;
/// Largest count that can be told; a limit above it counts as that.
const MOST: usize = u16::MAX as usize;

pub(super) fn count<N>(word: *mut N) -> usize {
    word.addr() >> SHIFT
}

pub(super) fn nodes<N>(word: *mut N) -> Option<NonNull<N>> {
    NonNull::new(word.map_addr(|a| a & ADDRESS))
}

/// Fate of nodes that a thread wanted to push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// They wait behind so many others (65,535: at least so many).
    Queued(usize),
    /// Too many wait; the caller still has its nodes.
    Full,
    /// The list has no owner; the caller still has its nodes.
    Unowned,
}

/// Many threads push chains of nodes in one atomic step each, one takes them all. The length is
/// kept beside the head, so the limit is exact.
pub(crate) struct AdoptionList<N: Linked> {
    pub(super) word: AtomicPtr<N>,
    /// Read by all, changed by none (what it points to is).
    pub(super) index: PrefetchIndex<N>,
}

impl<N: Linked> fmt::Debug for AdoptionList<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdoptionList")
            .field("len", &self.len())
            .finish()
    }
}

impl<N: Linked> Default for AdoptionList<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Linked> AdoptionList<N> {
    /// An empty list, for short ones.
    pub(crate) fn new() -> Self {
        Self::expecting(0)
    }

    /// An empty list, made for up to `expected` nodes; longer ones work, but are walked more
    /// slowly. Takes 8 bytes for each, from the first list on that is longer than a few nodes.
    pub(crate) fn expecting(expected: usize) -> Self {
        const {
            assert!(align_of::<N>() > FLAGS, "the flags need the lowest bits");
        }
        AdoptionList {
            word: AtomicPtr::new(std::ptr::null_mut()),
            index: PrefetchIndex::new(expected),
        }
    }

    /// Pushes a chain of `n` nodes, linked from `newest` to `oldest`. An empty list takes any
    /// chain; another one only if it then holds at most `limit` nodes. Never waits: a
    /// compare-and-swap fails only because another push or take succeeded.
    ///
    /// Returns how many nodes it held before (at most 65,535 are told apart), or `None` if the
    /// limit is reached; the chain then still belongs to the caller.
    ///
    /// # Safety
    /// The caller owns the `n` nodes, which are linked as said, and gives them up if this returns
    /// `Some`.
    pub(crate) unsafe fn push(
        &self,
        newest: NonNull<N>,
        oldest: NonNull<N>,
        n: usize,
        limit: usize,
    ) -> Option<usize> {
        // The line is to be written to: fetched once, not to be read and then again.
        prefetch_for_write(&raw const self.word);
        // SAFETY: by the caller's promise.
        match unsafe { self.push_if(newest, oldest, n, limit, |_| true) } {
            Pushed::Queued(before) => Some(before),
            Pushed::Full | Pushed::Unowned => None,
        }
    }

    /// As [`push`](AdoptionList::push), where `may` allows it by the flags, which stay.
    ///
    /// # Safety
    /// As for `push`; the nodes are given up if this returns [`Pushed::Queued`].
    #[inline(always)]
    pub(super) unsafe fn push_if(
        &self,
        newest: NonNull<N>,
        oldest: NonNull<N>,
        n: usize,
        limit: usize,
        may: impl Fn(usize) -> bool,
    ) -> Pushed {
        let mut word = self.word.load(Ordering::Relaxed);
        let mut noted = None;
        loop {
            let flags = word.addr() & FLAGS;
            if !may(flags) {
                return Pushed::Unowned;
            }
            let waiting = count(word);
            if waiting != 0 && waiting + n > limit.min(MOST) {
                return Pushed::Full;
            }
            if newest != oldest && noted.is_none() && self.index.is_for(waiting + n) {
                // SAFETY: the chain is still ours.
                noted = Some(unsafe { Addresses::of(newest, oldest) });
            }
            // SAFETY: as before.
            unsafe { N::set_next(oldest, nodes(word)) };
            let tag = (waiting + n).min(MOST) << SHIFT | flags;
            let next = newest.as_ptr().map_addr(|a| a | tag);
            preempt::point();
            // P: publishes the chain; pairs with T.
            match self
                .word
                .compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => {
                    // Not before: the swap would wait for the array's lines.
                    match noted {
                        Some(addresses) => self.index.note(&addresses, waiting + n),
                        None => self.index.note_one(newest, waiting),
                    }
                    return Pushed::Queued(waiting);
                }
                Err(now) => word = now,
            }
        }
    }

    /// True if the list is empty. SeqCst, for a caller that goes to sleep if so.
    pub(crate) fn is_empty(&self) -> bool {
        nodes(self.word.load(Ordering::SeqCst)).is_none()
    }

    /// Number of nodes (at most 65,535 are told apart).
    pub(crate) fn len(&self) -> usize {
        count(self.word.load(Ordering::Relaxed))
    }

    /// Takes all nodes and hands them to `visit`, newest first, each with its link intact until
    /// `visit` changes it.
    pub(crate) fn take(&self, visit: impl FnMut(NonNull<N>)) {
        if !self.word.load(Ordering::Relaxed).is_null() {
            self.take_now(visit);
        }
    }

    /// As [`take`](AdoptionList::take) without looking whether there is any node: cheaper where
    /// there is one as a rule.
    pub(crate) fn take_now(&self, visit: impl FnMut(NonNull<N>)) {
        // T: pairs with every P of the chain.
        let word = self.word.swap(std::ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: the swap made the whole chain ours.
        unsafe { self.index.walk(nodes(word), count(word), visit) };
    }
}
