//! An [adoption list](AdoptionList) that its owner takes whole, batch after batch, and that tells
//! whether what was pushed before some moment has been dealt with, without counting nodes.
//!
//! The owner [takes a batch](BatchList::take), works on it, and [ends](BatchList::end_batch)
//! it. Who pushes asks for a [`mark`](BatchList::mark) after the push, and later whether the mark
//! has [`passed`](BatchList::passed). (The kernel counts packets at both ends of a backlog under
//! its lock, `input_queue_tail` and `input_queue_head`, for the same purpose; without a lock a
//! count at the tail cannot be had in the order of the pushes.)
//!
//! Invariant: if `passed(mark)`, every node pushed before `mark` was asked for has been worked on,
//! and what the work wrote is visible. Argument: batches are numbered from 1. `take` writes
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
//! list [is empty](BatchList::is_empty). A sender looks at the sleeper's state after the push,
//! which is a SeqCst read-modify-write
//! ([`wake`](super::Notify::wake)): one of them sees the other.

#![expect(private_bounds, reason = "other crates have lists of packets alone")]

use std::fmt;

use crossbeam_utils::CachePadded;

use super::llist::{AdoptionList, NodeList};
use super::primitive::{AtomicU64, Ordering};

/// Many threads push lists, one takes them all, batch after batch, in the order of the pushes.
/// Nobody waits.
pub struct BatchList<L: NodeList> {
    /// Written by all.
    list: CachePadded<AdoptionList<L::Node>>,
    batches: CachePadded<Batches>,
}

/// Numbers of batches, written by the owner.
struct Batches {
    /// Number of the one that was begun last.
    begun: AtomicU64,
    /// Number of the one that has ended last.
    ended: AtomicU64,
}

impl<L: NodeList> BatchList<L> {
    /// An empty list, made for up to `expected` nodes (see [`AdoptionList::expecting`]).
    pub fn expecting(expected: usize) -> Self {
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

    /// Pushes all of `nodes`, in one atomic operation. They count as `weight`, which is their
    /// number or more. Returns how much waited before them.
    ///
    /// # Errors
    /// With the nodes, if the list is not empty and would weigh more than `limit`.
    pub fn push(&self, mut nodes: L, weight: usize, limit: usize) -> Result<usize, L> {
        let Some(chain) = nodes.take_nodes() else {
            return Ok(self.len());
        };
        // SAFETY: the chain is ours.
        let pushed = unsafe { self.list.push(&chain, weight, limit) };
        pushed.ok_or_else(|| {
            // SAFETY: not pushed, so still ours.
            unsafe { nodes.put_front(chain) };
            nodes
        })
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The weight of what waits.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes all nodes, oldest first, as the next batch. By one thread at a time, which has
    /// [ended](BatchList::end_batch) the batch before.
    pub fn take(&self) -> L {
        let begun = &self.batches.begun;
        let number = begun.load(Ordering::Relaxed).wrapping_add(1);
        // W: published by the take.
        begun.store(number, Ordering::Relaxed);
        let mut nodes = L::default();
        // SAFETY: every chain is given to us.
        self.list
            .take_now(|chain| unsafe { nodes.put_front(chain) });
        nodes
    }

    /// The owner has worked on the batch.
    pub fn end_batch(&self) {
        let number = self.batches.begun.load(Ordering::Relaxed);
        // E: pairs with the look in `passed`.
        self.batches.ended.store(number, Ordering::Release);
    }

    /// A mark behind everything that the caller has pushed so far.
    pub fn mark(&self) -> u64 {
        // L: comes after the push, which acquires.
        let begun = self.batches.begun.load(Ordering::Relaxed);
        begun.wrapping_add(1)
    }

    /// True if everything in front of `mark` has been worked on.
    pub fn passed(&self, mark: u64) -> bool {
        let ended = self.batches.ended.load(Ordering::Acquire);
        ended.wrapping_sub(mark) as i64 >= 0
    }
}

impl<L: NodeList> Drop for BatchList<L> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<L: NodeList> fmt::Debug for BatchList<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_struct("BatchList");
        list.field("len", &self.len()).finish_non_exhaustive()
    }
}
