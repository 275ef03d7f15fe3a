//! Bytes of guest memory that lie together here: a region for look-ups, and what is to be copied.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

use super::GuestMemory;

/// A region of guest memory: where it is, read once for many look-ups.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    pub(super) guest: u64,
    pub(super) len: u64,
    pub(super) start: NonNull<u8>,
    /// Keeps it mapped.
    pub(super) memory: PhantomData<&'a GuestMemory>,
}

impl<'a> Window<'a> {
    /// All of the `len` bytes from `at` on, if they lie in it.
    #[inline(always)]
    pub fn span(&self, at: u64, len: usize) -> Option<Span<'a>> {
        // Below the region it wraps: what is left of the addresses is no less than its length, as
        // the region's end does not wrap.
        let into = at.wrapping_sub(self.guest);
        if into >= self.len || len as u64 > self.len - into {
            return None;
        }
        Some(Span {
            // SAFETY: `into` is less than the region's length, and all of that is mapped.
            start: unsafe { self.start.add(into as usize) },
            len,
            memory: PhantomData,
        })
    }
}

/// Bytes of guest memory that lie together here, to be copied.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    /// Keeps them mapped.
    pub(super) memory: PhantomData<&'a GuestMemory>,
}

// SAFETY: as the regions that it points into, which any thread may use while they are borrowed.
unsafe impl Send for Span<'_> {}
// SAFETY: as above.
unsafe impl Sync for Span<'_> {}

impl Span<'_> {
    /// No bytes.
    pub const EMPTY: Span<'static> = Span {
        start: NonNull::dangling(),
        len: 0,
        memory: PhantomData,
    };

    /// The number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the first bytes, as many as both have, and takes them off. Returns how many.
    #[inline]
    pub fn read_into(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.len);
        // SAFETY: as in `GuestMemory::read_into`: `n` bytes are mapped from `start` on.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr(), to.as_mut_ptr(), n) };
        compiler_fence(Ordering::SeqCst);
        self.skip(n);
        n
    }

    /// Copies the first `N` bytes, if there are as many, and takes them off.
    #[inline]
    pub fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut to = [0; N];
        if self.len < N {
            return None;
        }
        self.read_into(&mut to);
        Some(to)
    }

    /// Makes the first 12 bytes these, if there are as many, and takes them off. False: there are
    /// not. What they are already is not written: a cache line that neither side changes stays in
    /// both sides' caches. (The values come in registers: a load of bytes that were just stored in
    /// smaller parts would wait for all stores before it.)
    #[inline]
    pub fn update(&mut self, first: u64, second: u32) -> bool {
        if self.len < 12 {
            return false;
        }
        let (at, behind) = (
            self.start.cast::<u64>(),
            self.start.as_ptr().wrapping_add(8),
        );
        let behind = behind.cast::<u32>();
        // SAFETY: 12 bytes are mapped from `start` on. That the guest writes meanwhile makes what
        // is read arbitrary, and spoils its own bytes.
        unsafe {
            if at.read_unaligned() != first || behind.read_unaligned() != second {
                at.write_unaligned(first);
                behind.write_unaligned(second);
            }
        }
        compiler_fence(Ordering::SeqCst);
        self.skip(12);
        true
    }

    /// Copies to the first bytes, as many as both have, and takes them off. Returns how many.
    #[inline]
    pub fn write_from(&mut self, from: &[u8]) -> usize {
        let n = from.len().min(self.len);
        // SAFETY: as above, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr(), n) };
        compiler_fence(Ordering::SeqCst);
        self.skip(n);
        n
    }

    /// `n` is at most the length.
    #[inline]
    fn skip(&mut self, n: usize) {
        // SAFETY: at most the end of the mapped bytes.
        self.start = unsafe { self.start.add(n) };
        self.len -= n;
    }

    /// Asks for the first cache lines, which will be read.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads nothing and cannot fault, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let first = self.start.as_ptr().cast::<i8>();
            _mm_prefetch::<_MM_HINT_T0>(first);
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64));
        }
    }

    /// Asks for the first cache lines. Those behind `header` bytes the guest has, and they will be
    /// written: each comes once, not to be read first and then for the write. One that has but the
    /// header is mostly not changed ([`update`](Span::update)).
    #[inline]
    pub fn prefetch_for_write(&self, header: usize) {
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        let _ = header;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: as above. CPUs without the instruction pass it over.
        unsafe {
            std::arch::asm!(
                "prefetchw byte ptr [{at} + {header}]",
                "prefetchw byte ptr [{at} + 64]",
                "prefetcht0 byte ptr [{at}]",
                at = in(reg) self.start.addr().get(),
                header = in(reg) header,
                options(nomem, nostack, preserves_flags)
            );
        }
    }
}
