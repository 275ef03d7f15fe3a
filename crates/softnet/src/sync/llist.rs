//! The adoption list: many threads push chains, one takes everything. (The kernel's `llist`, with
//! the length beside the head.)
//!
//! Invariant: `head` is null, or points to the newest node of a chain linked by `next` down to
//! the oldest; the upper 16 bits of the pointer hold the number of nodes (saturating), so that
//! push and count are one atomic operation and the limit is exact. Nodes in the list belong to
//! the list. Nothing ever takes a single node, so a compare-and-swap that succeeds on a head that
//! was taken and pushed again in between (ABA) still links to the true head.
//!
//! Ordering: a push is a SeqCst compare-and-swap (P); taking all is a SeqCst swap (T). T reads
//! what P wrote, and a chain of pushes is one release sequence, so the taker sees every node's
//! content and `next`. SeqCst rather than AcqRel because of the store-load race with
//! [`RunState`](super::RunState), argued there.
//!
//! Long lists that are filled on other CPUs are taken faster with
//! [hints](AdoptionList::expecting): where their nodes are, noted beside the list.

use std::fmt;
use std::ptr::NonNull;

use super::hints::Hints;
use super::prefetch::prefetch_for_write;
use super::primitive::{AtomicPtr, Ordering};

/// A node with an intrusive link.
///
/// # Safety
/// `next` and `set_next` read and write one and the same field, which nothing else touches while
/// the node is in a list. A node may be put in a list by one thread and taken by another (which
/// `Send` would say, but nodes are moved by pointer).
pub unsafe trait Linked {
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

/// Position of the count in the head pointer. User-space addresses on x86-64 and AArch64 stay
/// below it (without an explicit hint to `mmap`, also where the machine has five-level page
/// tables).
const SHIFT: u32 = 48;
const ADDRESS: usize = (1 << SHIFT) - 1;

/// Many threads push chains of nodes in one atomic step each, one takes them all. The length is
/// kept beside the head, so the limit is exact.
pub struct AdoptionList<N: Linked> {
    head: AtomicPtr<N>,
    /// Read by all, changed by none (what it points to is).
    hints: Hints<N>,
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

/// What the count can tell; a limit above it counts as that.
const MOST: usize = u16::MAX as usize;

fn count<N>(head: *mut N) -> usize {
    head.addr() >> SHIFT
}

fn untag<N>(head: *mut N) -> Option<NonNull<N>> {
    NonNull::new(head.map_addr(|a| a & ADDRESS))
}

impl<N: Linked> AdoptionList<N> {
    /// An empty list, for short ones.
    pub fn new() -> Self {
        Self::expecting(0)
    }

    /// An empty list, made for up to `expected` nodes; longer ones work, but are walked more
    /// slowly. Takes 8 bytes for each, of which only those up to the longest list that there was
    /// are ever touched.
    pub fn expecting(expected: usize) -> Self {
        AdoptionList {
            head: AtomicPtr::new(std::ptr::null_mut()),
            hints: Hints::new(expected),
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
    pub unsafe fn push(
        &self,
        newest: NonNull<N>,
        oldest: NonNull<N>,
        n: usize,
        limit: usize,
    ) -> Option<usize> {
        // The line is to be written to: fetched once, not to be read and then again.
        prefetch_for_write(&raw const self.head);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let waiting = count(head);
            if waiting != 0 && waiting + n > limit.min(MOST) {
                return None;
            }
            // SAFETY: the chain is still ours.
            unsafe {
                N::set_next(oldest, untag(head));
                if n > 1 {
                    self.hints.note(newest, n, waiting);
                }
            }
            let tag = (waiting + n).min(MOST) << SHIFT;
            let tagged = newest.as_ptr().map_addr(|a| a | tag);
            // P: publishes the chain; pairs with T.
            match self
                .head
                .compare_exchange_weak(head, tagged, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => {
                    if n == 1 {
                        // Not before: the swap would wait for the array's line.
                        self.hints.note_one(newest, waiting);
                    }
                    return Some(waiting);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Whether the list is empty. SeqCst, see [`RunState`](super::RunState).
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// Number of nodes (at most 65,535 are told apart).
    pub fn len(&self) -> usize {
        count(self.head.load(Ordering::Relaxed))
    }

    /// Takes all nodes and hands them to `visit`, newest first, each with its link intact until
    /// `visit` changes it.
    pub fn take(&self, visit: impl FnMut(NonNull<N>)) {
        if !self.head.load(Ordering::Relaxed).is_null() {
            self.take_now(visit);
        }
    }

    /// As [`take`](AdoptionList::take) without looking whether there is any node: cheaper where
    /// there is one as a rule.
    pub fn take_now(&self, visit: impl FnMut(NonNull<N>)) {
        // T: pairs with every P of the chain.
        let head = self.head.swap(std::ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: the swap made the whole chain ours.
        unsafe { self.hints.walk(untag(head), count(head), visit) };
    }
}
