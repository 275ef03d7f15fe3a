//! The adoption list: many threads push chains, one takes everything. (The kernel's `llist`, with
//! the length beside the head.)
//!
//! One word holds the address of the first node of the chain that was pushed last, the number of
//! nodes (saturating) in its upper 16 bits, so that push and count are one atomic operation and the
//! limit is exact, and in its lowest bits the flags of an [`OwnedList`](super::OwnedList); here
//! they are 0. Nodes in the list belong to the list.
//!
//! A chain is pushed as it is, linked from its oldest node to its newest, so a sender writes one
//! link of it: the last, which leads to the first node of the chain pushed before, or to none, and
//! is [marked](END) by its lowest bit. The taker turns round the order of the chains, and writes
//! one link of each, too.
//!
//! Invariant: while a chain is in the list, its last link is marked, and no other is. For the push
//! marks the last link before its compare-and-swap, anew in each try, and it is the caller's
//! promise that no other link of its chain is marked. Who has the chain afterwards, the taker or a
//! caller whose push was refused, overwrites the last link first.
//!
//! ABA: nothing takes a single node, so a compare-and-swap that succeeds on a word that was taken
//! and pushed again in between still links to the true first node of the last chain.
//!
//! Ordering: a push is a SeqCst compare-and-swap (P); taking all is a SeqCst swap (T). T reads
//! what P wrote, and a chain of pushes is one release sequence, so the taker sees every node's
//! content and `next`, and that each last link is marked: it was written before P. Acquire and
//! release would do for that; SeqCst is for callers that look at another location next: a worker's
//! event, a sleeper's state, senders that wait for capacity.

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

    /// The node's bytes, where a list counts them.
    ///
    /// # Safety
    /// `node` is valid and owned by the caller.
    unsafe fn bytes(_node: NonNull<Self>) -> u64 {
        0
    }
}

/// Nodes linked by `next` from the oldest, `head`, to the newest, `tail`, that are in no list.
/// Whoever has the chain owns them.
#[derive(Debug)]
pub(crate) struct Chain<N> {
    /// The first node.
    pub(crate) head: NonNull<N>,
    /// The last node. Its link may be anything.
    pub(crate) tail: NonNull<N>,
    /// Number of nodes.
    pub(crate) len: usize,
    /// Sum of the nodes' bytes, where a list counts them.
    pub(crate) bytes: u64,
}

impl<N> Chain<N> {
    /// A single node, without bytes.
    pub(crate) fn one(node: NonNull<N>) -> Self {
        Chain {
            head: node,
            tail: node,
            len: 1,
            bytes: 0,
        }
    }
}

/// A FIFO of nodes, as their owner holds them.
///
/// # Safety
/// A list owns its nodes. What [`take_nodes`](NodeList::take_nodes) returns is a chain of nodes
/// that nothing else refers to, with the right counts.
pub(crate) unsafe trait NodeList: Default {
    /// A node.
    type Node: Linked;

    /// True if an owner of such a list calls drivers and qdiscs; then it is noted that this thread
    /// is one.
    const IS_OF_PACKETS: bool = false;

    /// Takes all nodes out.
    fn take_nodes(&mut self) -> Option<Chain<Self::Node>>;

    /// Puts a chain in front of the others.
    ///
    /// # Safety
    /// The caller owns the chain, and gives it up.
    unsafe fn put_front(&mut self, chain: Chain<Self::Node>);
}

/// The bit that marks the last link of a chain in a list.
const END: usize = 1;

/// The last link of a chain in front of `before`.
#[inline(always)]
fn last_link<N>(before: Option<NonNull<N>>) -> Option<NonNull<N>> {
    let before = before.map_or(std::ptr::null_mut(), NonNull::as_ptr);
    NonNull::new(before.map_addr(|a| a | END))
}

/// A link of a chain in a list.
pub(super) enum Link<N> {
    /// The next node of the chain.
    Next(NonNull<N>),
    /// The first node of the chain that was pushed before.
    End(Option<NonNull<N>>),
}

impl<N> Link<N> {
    #[inline(always)]
    pub(super) fn of(link: Option<NonNull<N>>) -> Link<N> {
        match link {
            Some(next) if next.addr().get() & END == 0 => Link::Next(next),
            // (A link that is not marked and leads nowhere does not occur.)
            link => Link::End(link.and_then(|link| nodes(link.as_ptr()))),
        }
    }
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

impl<N: Linked> AdoptionList<N> {
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

    /// Pushes a chain that counts as `n` nodes. An empty list takes any chain; another one only if
    /// it then holds at most `limit` nodes. Never waits: a compare-and-swap fails only because
    /// another push or take succeeded.
    ///
    /// Returns how many nodes it held before (at most 65,535 are told apart), or `None` if the
    /// limit is reached; the chain, but for its last link, then still belongs to the caller.
    ///
    /// # Safety
    /// The caller owns the chain, and gives it up if this returns `Some`.
    pub(crate) unsafe fn push(&self, chain: &Chain<N>, n: usize, limit: usize) -> Option<usize> {
        // The line is to be written to: fetched once, not to be read and then again.
        prefetch_for_write(&raw const self.word);
        let word = self.word.load(Ordering::Relaxed);
        // SAFETY: by the caller's promise.
        match unsafe { self.push_if(word, chain, n, limit, |_| true) } {
            Pushed::Queued(before) => Some(before),
            Pushed::Full | Pushed::Unowned => None,
        }
    }

    /// As [`push`](AdoptionList::push), where `may` allows it by the flags, which stay. `word` is
    /// what the word was when this thread saw it last; the line is not read again for it.
    ///
    /// # Safety
    /// As for `push`; the nodes are given up if this returns [`Pushed::Queued`].
    #[inline(always)]
    pub(super) unsafe fn push_if(
        &self,
        mut word: *mut N,
        chain: &Chain<N>,
        n: usize,
        limit: usize,
        may: impl Fn(usize) -> bool,
    ) -> Pushed {
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
            if chain.len > 1 && noted.is_none() && self.index.is_for(waiting + n) {
                // SAFETY: the chain is still ours.
                noted = Some(unsafe { Addresses::of(chain) });
            }
            // SAFETY: as before.
            unsafe { N::set_next(chain.tail, last_link(nodes(word))) };
            let tag = (waiting + n).min(MOST) << SHIFT | flags;
            let next = chain.head.as_ptr().map_addr(|a| a | tag);
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
                        None => self.index.note_one(chain.head, waiting),
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

    /// Takes all nodes and hands them to `visit`, which owns them, chain by chain, the one pushed
    /// last first.
    pub(crate) fn take(&self, visit: impl FnMut(Chain<N>)) {
        if !self.word.load(Ordering::Relaxed).is_null() {
            self.take_now(visit);
        }
    }

    /// As [`take`](AdoptionList::take) without looking whether there is any node: cheaper where
    /// there is one as a rule.
    pub(crate) fn take_now(&self, visit: impl FnMut(Chain<N>)) {
        // T: pairs with every P.
        let word = self.word.swap(std::ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: the swap made all nodes ours.
        unsafe { self.index.walk(nodes(word), count(word), visit) };
    }
}
