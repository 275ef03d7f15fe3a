//! Magazines: up to [`MAGAZINE`] free buffers that move as one; and the depot, the shared store
//! of full ones (Bonwick).
//!
//! The first buffer's header is the handle; its buffer holds the addresses of the others.
//! Addresses and not a chain: the next owner reads nine lines, eight of them neighbours, and can
//! then fetch all headers at once, where a chain makes it wait for one header after the other (a
//! round trip of a line between the CPUs of the development machine takes 540 ns).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use super::arena::Arena;
use super::{Header, word};
use crate::sync::{IndexStack, prefetch_for_write};

/// Buffers that move between a cache and the depot, or to their owner, at once. The kernel's NAPI
/// cache moves 32; here twice as many share what an exchange costs: two or three trips of a line
/// between CPUs, one waiting for the other.
pub(super) const MAGAZINE: usize = 64;

/// Bytes of the addresses in a magazine's first buffer.
const ADDRESSES: usize = (MAGAZINE - 1) * size_of::<NonNull<Header>>();
const _: () = assert!(ADDRESSES <= 512);

/// Free buffers, owned. Not to be dropped: its buffers would be lost.
#[must_use = "its buffers would be lost"]
pub(super) struct Magazine(NonNull<Header>);

impl Magazine {
    /// Asks for the lines that [`pack`](Magazine::pack) will write if this buffer is the first.
    /// The push that follows is atomic, and would wait until all of them have come from the CPU
    /// that read them last.
    ///
    /// # Safety
    /// The caller owns the buffer.
    #[inline(always)]
    pub(super) unsafe fn prefetch(first: NonNull<Header>) {
        // SAFETY: by the caller's promise.
        let buffer = unsafe { first.as_ref() }.buf.as_ptr();
        for line in (0..ADDRESSES).step_by(64) {
            prefetch_for_write(buffer.wrapping_add(line));
        }
    }

    /// The `n` buffers whose headers' addresses start at `items`.
    ///
    /// # Safety
    /// `1 <= n <= MAGAZINE`; the addresses may be read; the caller owns the buffers and gives them
    /// up.
    pub(super) unsafe fn pack(items: *const NonNull<Header>, n: usize) -> Magazine {
        debug_assert!((1..=MAGAZINE).contains(&n));
        // SAFETY: by the caller's promise; a buffer has at least 512 bytes and is aligned to 64.
        unsafe {
            let head = *items;
            (*head.as_ptr()).total_len = word(n);
            #[cfg(feature = "check")]
            super::check::link(items, n);
            #[cfg(not(feature = "check"))]
            {
                let others = (*head.as_ptr()).buf.as_ptr().cast::<NonNull<Header>>();
                std::ptr::copy_nonoverlapping(items.add(1), others, n - 1);
            }
            Magazine(head)
        }
    }

    /// Buffers in it.
    pub(super) fn len(&self) -> usize {
        // SAFETY: the magazine owns its buffers.
        unsafe { (*self.0.as_ptr()).total_len as usize }
    }

    /// Writes the addresses of the headers to `out`.
    ///
    /// # Safety
    /// `out` has space for [`len`](Magazine::len) addresses.
    pub(super) unsafe fn unpack(self, out: *mut NonNull<Header>) {
        // SAFETY: by the caller's promise; `pack` wrote the addresses.
        unsafe {
            *out = self.0;
            #[cfg(feature = "check")]
            super::check::unlink(self.0, out.add(1));
            #[cfg(not(feature = "check"))]
            {
                let others = (*self.0.as_ptr()).buf.as_ptr().cast::<NonNull<Header>>();
                std::ptr::copy_nonoverlapping(others, out.add(1), self.len() - 1);
            }
        }
    }

    /// The handle.
    pub(super) fn as_raw(&self) -> NonNull<Header> {
        self.0
    }

    /// # Safety
    /// `head` is the handle of a magazine, which the caller owns.
    pub(super) unsafe fn from_raw(head: NonNull<Header>) -> Magazine {
        Magazine(head)
    }
}

/// Magazines that any thread may take, and the buffers never used so far. Lock-free.
///
/// Invariant: a magazine is in the stack once, by the number of its first header; buffers with
/// numbers from `unused` on were never handed out.
pub(super) struct Depot {
    full: IndexStack,
    /// Buffers in `full`: exact at rest, and below zero for an instant when a magazine is taken
    /// before it was counted.
    count: AtomicIsize,
    /// First number never handed out.
    unused: AtomicUsize,
}

impl Depot {
    pub(super) fn new(buffers: usize) -> Depot {
        Depot {
            full: IndexStack::new(buffers),
            count: AtomicIsize::new(0),
            unused: AtomicUsize::new(0),
        }
    }

    /// Stores a magazine of buffers of `arena`.
    pub(super) fn push(&self, arena: &Arena, magazine: Magazine) {
        let n = magazine.len();
        self.full.push(word(arena.index(magazine.0)));
        self.count.fetch_add(n.cast_signed(), Ordering::Relaxed);
    }

    pub(super) fn pop(&self, arena: &Arena) -> Option<Magazine> {
        let index = self.full.pop()?;
        // SAFETY: only numbers of this arena's headers were pushed; the pop gave the magazine to
        // us.
        let magazine = Magazine(unsafe { arena.header(index as usize) });
        self.count
            .fetch_sub(magazine.len().cast_signed(), Ordering::Relaxed);
        Some(magazine)
    }

    /// Hands out up to `n` buffers never used so far; returns how many.
    pub(super) fn carve(
        &self,
        arena: &Arena,
        n: usize,
        visit: impl FnMut(NonNull<Header>),
    ) -> usize {
        // Relaxed: nothing was ever written there.
        let relaxed = Ordering::Relaxed;
        let first = self.unused.fetch_update(relaxed, relaxed, |first| {
            (first < arena.len()).then(|| arena.len().min(first + n))
        });
        let Ok(first) = first else { return 0 };
        let end = arena.len().min(first + n);
        // SAFETY: the exchange gave these numbers to us alone, for the first time.
        let headers = (first..end).map(|index| unsafe { arena.first_use(index) });
        headers.for_each(visit);
        end - first
    }

    /// Buffers in magazines, and buffers never used.
    pub(super) fn count(&self, arena: &Arena) -> (usize, usize) {
        let full = self.count.load(Ordering::Relaxed).max(0);
        (
            full.cast_unsigned(),
            arena.len() - self.unused.load(Ordering::Relaxed),
        )
    }
}
