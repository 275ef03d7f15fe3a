//! The addresses of a list's nodes in an array, by which the taker prefetches.
//!
//! The walk down a list that another CPU filled is a chain of cache misses, each of which must
//! end before the next can begin. So a push also stores its nodes' addresses in an array, by
//! their place in the list, and the taker prefetches the lines of a dozen nodes ahead of its
//! walk.
//!
//! Invariant: none is needed. The array is written and read without any order: a wrong address in
//! it (a push that failed, a list taken meanwhile, a node of an earlier list) costs a prefetch,
//! nothing else; nothing is ever read through it. Only the array itself is published with Release
//! and read after Acquire. (Eight senders on two distant cores: from 6 to
//! 13 million packets per second through an [`OwnedList`](super::OwnedList).)

use std::ptr::NonNull;

use super::llist::{Chain, Link, Linked};
use super::prefetch::prefetch_for_write;
use super::primitive::{AtomicPtr, Ordering};

/// Nodes ahead of the walk that are prefetched.
const AHEAD: usize = 12;

/// The lowest places are not noted: a line that every short list writes would bounce between CPUs.
const UNNOTED: usize = 8;

/// Most nodes of a chain that are noted: those of one run.
const NOTED: usize = 64;

/// Addresses of a chain's nodes, the oldest first, as they were while its owner had it.
pub(super) struct Addresses<N> {
    nodes: [*mut N; NOTED],
    len: usize,
}

impl<N: Linked> Addresses<N> {
    /// Reads the chain, as far as it is noted.
    ///
    /// # Safety
    /// The caller owns it.
    #[inline]
    pub(super) unsafe fn of(chain: &Chain<N>) -> Self {
        let mut addresses = Addresses {
            nodes: [std::ptr::null_mut(); NOTED],
            len: 0,
        };
        let mut next = Some(chain.head);
        for slot in &mut addresses.nodes {
            let Some(node) = next else { break };
            *slot = node.as_ptr();
            addresses.len += 1;
            if node == chain.tail {
                break;
            }
            // SAFETY: the caller owns the chain, in which this is not the last node.
            next = unsafe { N::next(node) };
        }
        addresses
    }
}

/// Addresses of a list's nodes by their place: the taker comes to the highest first. The array is
/// made when more nodes wait than are [unnoted](UNNOTED), and then stays: most lists never have so
/// many.
pub(super) struct PrefetchIndex<N> {
    /// `len` places, or null.
    places: AtomicPtr<AtomicPtr<N>>,
    len: usize,
}

impl<N: Linked> PrefetchIndex<N> {
    /// For lists of up to `expected` nodes; of longer ones the rest is not noted. Takes 8 bytes
    /// for each, from the first list on that is longer than a few nodes.
    pub(super) fn new(expected: usize) -> Self {
        // For an interpreter each borrow of the array costs its length; models have none.
        let most = match (cfg!(loom), cfg!(miri)) {
            (true, _) => 0,
            (_, true) => 32,
            _ => u16::MAX.into(),
        };
        PrefetchIndex {
            places: AtomicPtr::new(std::ptr::null_mut()),
            len: expected.min(most),
        }
    }

    /// The places; none if there is no array.
    #[inline(always)]
    fn places(&self) -> &[AtomicPtr<N>] {
        if self.len == 0 {
            return &[];
        }
        // M: pairs with the store of `make`.
        match NonNull::new(self.places.load(Ordering::Acquire)) {
            // SAFETY: it points to `len` places, which live as long as `self` does, and are only
            // changed as atomics.
            Some(places) => unsafe { std::slice::from_raw_parts(places.as_ptr(), self.len) },
            None => &[],
        }
    }

    /// The places, made if there are none.
    #[inline(always)]
    fn noted(&self) -> &[AtomicPtr<N>] {
        let places = self.places();
        if places.is_empty() && self.len > 0 {
            return self.make();
        }
        places
    }

    #[cold]
    #[inline(never)]
    fn make(&self) -> &[AtomicPtr<N>] {
        let new = Box::<[AtomicPtr<N>]>::new_zeroed_slice(self.len);
        // SAFETY: a pointer of zeros is a null pointer.
        let new = Box::into_raw(unsafe { new.assume_init() });
        let null = std::ptr::null_mut();
        let (made, before) = (Ordering::Release, Ordering::Relaxed);
        let set = self
            .places
            .compare_exchange(null, new.cast::<AtomicPtr<N>>(), made, before);
        if set.is_err() {
            // SAFETY: somebody else's was set; nobody has seen this one.
            drop(unsafe { Box::from_raw(new) });
        }
        self.places()
    }

    /// True if nodes of a list of so many are noted.
    #[inline(always)]
    pub(super) fn is_for(&self, len: usize) -> bool {
        self.len > 0 && len > UNNOTED
    }

    /// Notes the addresses of a chain that was pushed: the list has `len` nodes now. None is read:
    /// they may be gone.
    #[inline]
    pub(super) fn note(&self, chain: &Addresses<N>, len: usize) {
        let places = self.noted();
        for (place, node) in (UNNOTED..len).rev().zip(&chain.nodes[..chain.len]) {
            if let Some(slot) = places.get(place) {
                slot.store(*node, Ordering::Relaxed);
            }
        }
    }

    /// Notes the address of a node that was pushed on top of `waiting` others. It is not read: it
    /// may be gone.
    #[inline(always)]
    pub(super) fn note_one(&self, node: NonNull<N>, waiting: usize) {
        if waiting >= UNNOTED
            && let Some(slot) = self.noted().get(waiting)
        {
            slot.store(node.as_ptr(), Ordering::Relaxed);
        }
    }

    /// Hands `count` nodes that were in a list to `visit`, chain by chain, `first` being the first
    /// node of the one pushed last.
    ///
    /// # Safety
    /// The caller owns the nodes, which are linked as in the list.
    #[inline]
    pub(super) unsafe fn walk(
        &self,
        first: Option<NonNull<N>>,
        count: usize,
        mut visit: impl FnMut(Chain<N>),
    ) {
        let mut place = count;
        let places = self.places();
        for ahead in 1..AHEAD {
            fetch(places, place.wrapping_sub(ahead));
        }
        let mut first = first;
        while let Some(head) = first {
            let (mut tail, mut len, mut bytes) = (head, 0, 0);
            loop {
                place = place.wrapping_sub(1);
                fetch(places, place.wrapping_sub(AHEAD));
                len += 1;
                // SAFETY: the nodes are the caller's.
                let link = unsafe {
                    bytes += N::bytes(tail);
                    Link::of(N::next(tail))
                };
                match link {
                    Link::Next(next) => tail = next,
                    Link::End(before) => {
                        first = before;
                        break;
                    }
                }
            }
            visit(Chain {
                head,
                tail,
                len,
                bytes,
            });
        }
    }
}

/// Prefetches the line of the node that was noted at `place`.
#[inline(always)]
fn fetch<N>(places: &[AtomicPtr<N>], place: usize) {
    if place >= UNNOTED
        && let Some(slot) = places.get(place)
    {
        prefetch_for_write(slot.load(Ordering::Relaxed));
    }
}

impl<N> Drop for PrefetchIndex<N> {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        let places = self.places.load(Ordering::Acquire);
        if !places.is_null() {
            let places = std::ptr::slice_from_raw_parts_mut(places, self.len);
            // SAFETY: they were made as a box of so many, and nobody else has them any more.
            drop(unsafe { Box::from_raw(places) });
        }
    }
}
