//! A stack of numbers that any thread pushes to and pops from (Treiber's), for things that stay
//! where they are, as the headers of an arena.
//!
//! Invariant: `head` names the top of a chain through `links`, and a number is in the chain at
//! most once. A pop reads the link of a number that another thread may have popped and pushed
//! again meanwhile (ABA); each successful change of `head` also changes the tag beside the
//! number, so that the compare-and-swap then fails. The tag has 39 bits: the stack would have to
//! change 2^39 times while one pop is preempted, hours at any rate a machine can reach.
//!
//! Ordering: a push is a Release compare-and-swap (P), a pop an Acquire load or failed swap and
//! then an Acquire swap (T); T pairs with the P of the number it takes, since all changes of
//! `head` are read-modify-write operations and continue P's release sequence. So a popper sees
//! the number's link and whatever was written before it was pushed. Never waits: a swap fails
//! only because another one succeeded.

use crossbeam_utils::CachePadded;

use super::primitive::{AtomicU32, AtomicU64, Ordering};

/// Bits of the number (plus one; 0 is the end of the chain).
const BITS: u32 = 25;
const NUMBER: u64 = (1 << BITS) - 1;

/// A lock-free stack of indices.
#[derive(Debug)]
pub struct IndexStack {
    head: CachePadded<AtomicU64>,
    links: Box<[AtomicU32]>,
}

impl IndexStack {
    /// An empty stack for the numbers below `len`, which is at most 2^24.
    ///
    /// # Panics
    /// If `len` is larger.
    pub fn new(len: usize) -> IndexStack {
        assert!(len <= 1 << 24, "too many numbers");
        IndexStack {
            head: CachePadded::new(AtomicU64::new(0)),
            links: (0..len).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn retagged(head: u64, top: u64) -> u64 {
        (head & !NUMBER).wrapping_add(1 << BITS) | top
    }

    /// Pushes a number that is not in the stack.
    ///
    /// # Panics
    /// If the number is too large.
    pub fn push(&self, index: u32) {
        let link = &self.links[index as usize];
        // P where it succeeds, always at last.
        let (p, look) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.head.fetch_update(p, look, |head| {
            link.store((head & NUMBER) as u32, Ordering::Relaxed);
            Some(Self::retagged(head, u64::from(index) + 1))
        });
    }

    /// Takes the number pushed last.
    pub fn pop(&self) -> Option<u32> {
        // T where it succeeds.
        let (t, look) = (Ordering::Acquire, Ordering::Acquire);
        let top = self.head.fetch_update(t, look, |head| {
            let index = (head & NUMBER).checked_sub(1)?;
            let below = self.links[index as usize].load(Ordering::Relaxed);
            Some(Self::retagged(head, u64::from(below)))
        });
        top.ok().map(|head| (head & NUMBER) as u32 - 1)
    }
}
