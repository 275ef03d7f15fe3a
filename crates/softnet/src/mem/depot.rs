//! The depot: bundles of free buffers that any thread may take, and the buffers never used so far. Lock-free; one exchange moves a bundle.
//!
//! Invariant: a bundle is in the stack once, by the number of its first header; buffers with numbers from `unused` on have never been handed out.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use super::Header;
use super::arena::Arena;
use super::magazine;
use crate::sync::IndexStack;

#[derive(Debug)]
pub(super) struct Depot {
    bundles: IndexStack,
    /// Buffers in `bundles`: exact at rest, and below zero for an instant when a bundle is taken before it was counted.
    count: AtomicIsize,
    /// First number never handed out.
    unused: AtomicUsize,
}

impl Depot {
    pub(super) fn new(buffers: usize) -> Depot {
        Depot {
            bundles: IndexStack::new(buffers),
            count: AtomicIsize::new(0),
            unused: AtomicUsize::new(0),
        }
    }

    /// # Safety
    /// `head` is a bundle of buffers of `arena`, which the caller gives up.
    pub(super) unsafe fn push(&self, arena: &Arena, head: NonNull<Header>) {
        // SAFETY: still ours.
        let n = unsafe { magazine::size(head) };
        self.bundles.push(arena.index(head) as u32);
        self.count.fetch_add(n as isize, Ordering::Relaxed);
    }

    /// A bundle, which then belongs to the caller.
    pub(super) fn pop(&self, arena: &Arena) -> Option<NonNull<Header>> {
        let index = self.bundles.pop()?;
        // SAFETY: only numbers of this arena's headers were pushed, and the pop gave the bundle to us.
        let (head, n) = unsafe {
            let head = arena.header(index as usize);
            (head, magazine::size(head))
        };
        self.count.fetch_sub(n as isize, Ordering::Relaxed);
        Some(head)
    }

    /// Hands out up to `n` buffers never used so far; returns how many.
    pub(super) fn carve(
        &self,
        arena: &Arena,
        n: usize,
        mut visit: impl FnMut(NonNull<Header>),
    ) -> usize {
        let mut first = self.unused.load(Ordering::Relaxed);
        loop {
            let end = arena.len().min(first + n);
            if first == end {
                return 0;
            }
            // Relaxed: nothing was ever written there.
            let swap = Ordering::Relaxed;
            match self.unused.compare_exchange_weak(first, end, swap, swap) {
                // SAFETY: the exchange gave these numbers to us alone, for the first time.
                Ok(_) => (first..end).for_each(|index| visit(unsafe { arena.first_use(index) })),
                Err(now) => {
                    first = now;
                    continue;
                }
            }
            return end - first;
        }
    }

    /// Buffers in bundles, and buffers never used.
    pub(super) fn count(&self, arena: &Arena) -> (usize, usize) {
        let bundled = self.count.load(Ordering::Relaxed);
        (
            usize::try_from(bundled).unwrap_or(0),
            arena.len() - self.unused.load(Ordering::Relaxed),
        )
    }
}
