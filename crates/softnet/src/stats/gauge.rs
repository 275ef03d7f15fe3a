//! Numbers with one writer and many readers.

use std::sync::atomic::{AtomicU64, Ordering};

/// `N` numbers that one thread at a time (the owner of the thing measured) publishes. Plain
/// stores: no locked instruction. A reader sees each number whole, but not all from the same
/// moment.
#[derive(Debug)]
pub struct Published<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Published<N> {
    fn default() -> Self {
        Published(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> Published<N> {
    /// Stores all numbers.
    pub fn set(&self, values: [u64; N]) {
        for (slot, value) in self.0.iter().zip(values) {
            slot.store(value, Ordering::Relaxed);
        }
    }

    /// Stores one number.
    #[inline]
    pub fn put(&self, index: usize, value: u64) {
        self.0[index].store(value, Ordering::Relaxed);
    }

    /// Adds to one number. Only the owner calls this, so it need not be one atomic step.
    pub fn add(&self, index: usize, value: u64) {
        let slot = &self.0[index];
        slot.store(
            slot.load(Ordering::Relaxed).wrapping_add(value),
            Ordering::Relaxed,
        );
    }

    /// One number.
    pub fn get_one(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    /// All numbers.
    pub fn get(&self) -> [u64; N] {
        std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed))
    }
}
