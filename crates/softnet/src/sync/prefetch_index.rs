//! The addresses of a list's nodes in an array, by which the taker prefetches.
//!
//! The walk down a list that another CPU filled is a chain of cache misses, each of which must
//! end before the next can begin. So a push also stores its nodes' addresses in an array, by
//! their place in the list, and the taker prefetches the lines of a dozen nodes ahead of its
//! walk.
//!
//! Invariant: none is needed. The array is written and read without any order: a wrong address in
//! it (a push that failed, a list taken meanwhile, a node of an earlier list) costs a prefetch,
//! nothing else; nothing is ever read through it. (Eight senders on two distant cores: from 6 to
//! 13 million packets per second through an [`OwnedList`](super::OwnedList).)

use std::ptr::NonNull;

use super::Linked;
use super::prefetch::prefetch_for_write;
use super::primitive::{AtomicPtr, Ordering};

/// Nodes ahead of the walk that are prefetched.
const AHEAD: usize = 12;

/// The lowest places are not noted: a line that every short list writes would bounce between CPUs.
const UNNOTED: usize = 8;

/// Addresses of a list's nodes by their place, the oldest first. Read by all and changed by none,
/// but for what it points to.
pub(super) struct PrefetchIndex<N> {
    places: Box<[AtomicPtr<N>]>,
}

impl<N: Linked> PrefetchIndex<N> {
    /// For lists of up to `expected` nodes; of longer ones the rest is not noted. Takes 8 bytes
    /// for each, of which only those up to the longest list that there was are ever touched.
    #[cfg(not(loom))]
    pub(super) fn new(expected: usize) -> Self {
        // For an interpreter each borrow of the array costs its length.
        let most = if cfg!(miri) { 32 } else { u16::MAX.into() };
        let places = Box::<[AtomicPtr<N>]>::new_zeroed_slice(expected.min(most));
        PrefetchIndex {
            // SAFETY: a pointer of zeros is a null pointer.
            places: unsafe { places.assume_init() },
        }
    }

    #[cfg(loom)]
    pub(super) fn new(_: usize) -> Self {
        PrefetchIndex {
            places: Box::default(),
        }
    }

    /// Notes the addresses of a chain that is to be pushed on top of `waiting` other nodes. A
    /// chain that counts for `n` may have fewer nodes (a magazine is one): none beyond `oldest` is
    /// read.
    ///
    /// # Safety
    /// The caller owns the nodes from `newest` to `oldest`.
    #[inline]
    pub(super) unsafe fn note(
        &self,
        newest: NonNull<N>,
        oldest: NonNull<N>,
        n: usize,
        waiting: usize,
    ) {
        let mut node = newest;
        for place in (waiting.max(UNNOTED)..waiting + n).rev() {
            if let Some(slot) = self.places.get(place) {
                slot.store(node.as_ptr(), Ordering::Relaxed);
            }
            if node == oldest {
                return;
            }
            // SAFETY: the caller owns the chain, in which this is not the last node.
            match unsafe { N::next(node) } {
                Some(next) => node = next,
                None => return,
            }
        }
    }

    /// Notes the address of a node that was pushed on top of `waiting` others. It is not read: it
    /// may be gone.
    #[inline(always)]
    pub(super) fn note_one(&self, node: NonNull<N>, waiting: usize) {
        if waiting >= UNNOTED
            && let Some(slot) = self.places.get(waiting)
        {
            slot.store(node.as_ptr(), Ordering::Relaxed);
        }
    }

    /// Hands `count` nodes, linked from `newest` down to the oldest, to `visit`, each with its
    /// link intact until `visit` changes it.
    ///
    /// # Safety
    /// The caller owns the nodes.
    #[inline]
    pub(super) unsafe fn walk(
        &self,
        newest: Option<NonNull<N>>,
        count: usize,
        mut visit: impl FnMut(NonNull<N>),
    ) {
        let mut place = count;
        for ahead in 1..AHEAD {
            self.fetch(place.wrapping_sub(ahead));
        }
        let mut next = newest;
        while let Some(node) = next {
            place = place.wrapping_sub(1);
            self.fetch(place.wrapping_sub(AHEAD));
            // SAFETY: the nodes are the caller's; the link is read before `visit` may change it.
            next = unsafe { N::next(node) };
            visit(node);
        }
    }

    /// Prefetches the line of the node that was noted at `place`.
    #[inline(always)]
    fn fetch(&self, place: usize) {
        if place >= UNNOTED
            && let Some(slot) = self.places.get(place)
        {
            prefetch_for_write(slot.load(Ordering::Relaxed));
        }
    }
}

impl<N> std::fmt::Debug for PrefetchIndex<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefetchIndex")
            .field("places", &self.places.len())
            .finish()
    }
}
