//! An adoption list that its owner takes whole, batch after batch, and that tells whether what was
//! pushed before some moment has been dealt with, without counting nodes.
//!
//! The owner [takes a batch](BatchList::take_batch), works on it, and [ends](BatchList::end_batch)
//! it. Who pushes asks for a [`mark`](BatchList::mark) after the push, and later whether the mark
//! has [`passed`](BatchList::passed). (The kernel counts packets at both ends of a backlog under
//! its lock, `input_queue_tail` and `input_queue_head`, for the same purpose; without a lock a
//! count at the tail cannot be had in the order of the pushes.)
//!
//! Invariant: if `passed(mark)`, every node pushed before `mark` was asked for has been worked on,
//! and what the work wrote is visible. Argument: batches are numbered from 1. `take_batch` writes
//! the number (W) before the take (T), a swap of the word that a push (P) changes by a
//! compare-and-swap. One of T and P comes first in that word's order. If T of batch n + 1 does, P
//! acquires what T released, so the look at the number in `mark` (L), after P, reads n + 1 or more.
//! So if L reads n, P comes before that T: the node is in batch n + 1 or an earlier one. `mark`
//! returns n + 1, and it has passed when that batch has ended. It errs on one side only: a node of
//! batch n whose mark is n + 1 has passed when the next batch has ended. `end_batch` (E, Release)
//! pairs with the look in `passed` (Acquire).
//!
//! Numbers wrap: a mark is compared by the sign of the difference, which is right for 2^63
//! batches.
//!
//! An owner that sleeps: after [`Notify::prepare`](super::Notify::prepare) it looks whether the
//! list [is empty](AdoptionList::is_empty). A sender looks at the sleeper's state after the push,
//! which is a SeqCst read-modify-write
//! ([`wake`](super::Notify::wake)): one of them sees the other.

use std::fmt;
use std::ops::Deref;

use crossbeam_utils::CachePadded;

use super::llist::{AdoptionList, Chain, Linked};
use super::primitive::{AtomicU64, Ordering};

/// An adoption list that its owner takes batch after batch.
pub(crate) struct BatchList<N: Linked> {
    /// Written by all.
    list: CachePadded<AdoptionList<N>>,
    batches: CachePadded<Batches>,
}

/// Numbers of batches, written by the owner.
struct Batches {
    /// Number of the one that was begun last.
    begun: AtomicU64,
    /// Number of the one that has ended last.
    ended: AtomicU64,
}

impl<N: Linked> fmt::Debug for BatchList<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_struct("BatchList");
        list.field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<N: Linked> BatchList<N> {
    /// An empty list, made for up to `expected` nodes (see [`AdoptionList::expecting`]).
    pub(crate) fn expecting(expected: usize) -> Self {
        Self::starting_at(0, expected)
    }

    /// As if `batches` batches had come and gone.
    pub(super) fn starting_at(batches: u64, expected: usize) -> Self {
        BatchList {
            list: CachePadded::new(AdoptionList::expecting(expected)),
            batches: CachePadded::new(Batches {
                begun: AtomicU64::new(batches),
                ended: AtomicU64::new(batches),
            }),
        }
    }

    /// Takes all nodes, as [`AdoptionList::take_now`] does, as the next batch. By one thread at a
    /// time, which has [ended](BatchList::end_batch) the batch before.
    pub(crate) fn take_batch(&self, visit: impl FnMut(Chain<N>)) {
        let begun = &self.batches.begun;
        let number = begun.load(Ordering::Relaxed).wrapping_add(1);
        // W: published by the take.
        begun.store(number, Ordering::Relaxed);
        self.list.take_now(visit);
    }

    /// The owner has worked on the batch.
    pub(crate) fn end_batch(&self) {
        let number = self.batches.begun.load(Ordering::Relaxed);
        // E: pairs with the look in `passed`.
        self.batches.ended.store(number, Ordering::Release);
    }

    /// A mark behind everything that the caller has pushed so far.
    pub(crate) fn mark(&self) -> u64 {
        // L: comes after the push, which acquires.
        let begun = self.batches.begun.load(Ordering::Relaxed);
        begun.wrapping_add(1)
    }

    /// True if everything in front of `mark` has been worked on.
    pub(crate) fn passed(&self, mark: u64) -> bool {
        let ended = self.batches.ended.load(Ordering::Acquire);
        ended.wrapping_sub(mark) as i64 >= 0
    }
}

impl<N: Linked> Deref for BatchList<N> {
    type Target = AdoptionList<N>;

    fn deref(&self) -> &AdoptionList<N> {
        &self.list
    }
}
