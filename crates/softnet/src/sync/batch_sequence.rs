//! Tells whether what was handed over before some moment has been dealt with, without counting
//! packets.
//!
//! The owner of a list takes it whole, batch after batch: *[`begin`](BatchSequence::begin), take,
//! work, [`end`](BatchSequence::end)*. Who pushes asks for a [`mark`](BatchSequence::mark) after
//! the push, and later whether the mark has [`passed`](BatchSequence::passed). (The kernel counts
//! packets at both ends of a backlog under its lock, `input_queue_tail` and `input_queue_head`,
//! for the same purpose; without a lock a count at the tail cannot be had in the order of the
//! pushes.)
//!
//! Invariant: if `passed(mark)`, every packet pushed before `mark` was asked for has been worked
//! on, and what the work wrote is visible. Argument: batches are numbered from 1. `begin` writes
//! the number before the take. Push (P), the look at the number in `mark` (L), the write of the
//! number (W) and the take (T) are all SeqCst, so they have one order. If L reads number n, L
//! comes before W of n + 1, so P does too, and so P comes before T of n + 1: the packet is in
//! batch n + 1 or an earlier one. `mark` returns n + 1, and it has passed when that batch has
//! ended. It errs on one side only: a packet of batch n whose mark is n + 1 has passed when the
//! next batch has ended. `end` (E, Release) pairs with the look in `passed` (Acquire).
//!
//! Numbers wrap: a mark is compared by the sign of the difference, which is right for 2^63
//! batches.

use super::primitive::{AtomicU64, Ordering, store_load_barrier};

/// Tells whether what was handed over before some moment has been dealt with.
#[derive(Debug, Default)]
pub struct BatchSequence {
    /// Number of the batch that was begun last. Written by the owner.
    begun: AtomicU64,
    /// Number of the batch that has ended last. Written by the owner.
    ended: AtomicU64,
}

impl BatchSequence {
    /// Nothing begun.
    pub fn new() -> BatchSequence {
        BatchSequence::starting_at(0)
    }

    /// As if `batches` batches had come and gone.
    pub fn starting_at(batches: u64) -> BatchSequence {
        BatchSequence {
            begun: AtomicU64::new(batches),
            ended: AtomicU64::new(batches),
        }
    }

    /// The owner is about to take a batch. By one thread at a time, which has
    /// [ended](BatchSequence::end) the batch before.
    pub fn begin(&self) {
        let number = self.begun.load(Ordering::Relaxed).wrapping_add(1);
        // W: comes before the take.
        self.begun.store(number, Ordering::SeqCst);
        store_load_barrier();
    }

    /// The owner has worked on the batch.
    pub fn end(&self) {
        // E: pairs with the look in `passed`.
        self.ended
            .store(self.begun.load(Ordering::Relaxed), Ordering::Release);
    }

    /// A mark behind everything that the caller has pushed so far.
    pub fn mark(&self) -> u64 {
        store_load_barrier();
        // L: comes after the push.
        self.begun.load(Ordering::SeqCst).wrapping_add(1)
    }

    /// Whether everything in front of `mark` has been worked on.
    pub fn passed(&self, mark: u64) -> bool {
        self.ended.load(Ordering::Acquire).wrapping_sub(mark) as i64 >= 0
    }
}
