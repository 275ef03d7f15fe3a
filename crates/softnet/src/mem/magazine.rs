//! Bundles: up to [`BUNDLE`] free buffers that travel as one. The first one's header is the handle; its buffer holds the addresses of the others.
//!
//! Passing addresses rather than a chain matters: the next owner reads nine lines, eight of them neighbours, and can then fetch all headers at
//! once, where a chain makes it wait for one header after the other (a round trip of a line between the CPUs of the
//! development machine takes 540 ns).

use std::ptr::NonNull;

use super::Header;

/// Buffers that move between a cache and the depot, or to another home, at once. The kernel's NAPI cache moves 32; here twice as many share what a
/// bundle costs by itself: two or three trips of a line between CPUs, one waiting for the other.
pub(super) const BUNDLE: usize = 64;

const _: () = assert!((BUNDLE - 1) * size_of::<NonNull<Header>>() <= 512);

/// Makes a bundle of the `n` buffers whose headers' addresses start at `items`.
///
/// # Safety
/// `1 <= n <= BUNDLE`; the addresses may be read; the caller owns the buffers and gives them up to whoever gets the bundle.
pub(super) unsafe fn pack(items: *const NonNull<Header>, n: usize) -> NonNull<Header> {
    debug_assert!((1..=BUNDLE).contains(&n));
    // SAFETY: by the caller's promise; a buffer has at least 512 bytes and is aligned to 64.
    unsafe {
        let head = *items;
        (*head.as_ptr()).total_len = n as u32;
        let others = (*head.as_ptr()).buf.as_ptr().cast::<NonNull<Header>>();
        std::ptr::copy_nonoverlapping(items.add(1), others, n - 1);
        head
    }
}

/// Buffers in a bundle.
///
/// # Safety
/// The caller owns the bundle.
pub(super) unsafe fn size(head: NonNull<Header>) -> usize {
    // SAFETY: by the caller's promise.
    unsafe { (*head.as_ptr()).total_len as usize }
}

/// Writes the addresses of the bundle's headers to `out`.
///
/// # Safety
/// The caller owns the bundle, and `out` has room for [`size`] addresses.
pub(super) unsafe fn unpack(head: NonNull<Header>, out: *mut NonNull<Header>) {
    // SAFETY: by the caller's promise; `pack` wrote the addresses.
    unsafe {
        let others = (*head.as_ptr()).buf.as_ptr().cast::<NonNull<Header>>();
        *out = head;
        std::ptr::copy_nonoverlapping(others, out.add(1), size(head) - 1);
    }
}

/// A bundle in the making: addresses are written where they will be read.
#[derive(Clone, Copy)]
pub(super) struct Growing {
    head: NonNull<Header>,
    others: NonNull<NonNull<Header>>,
}

impl Growing {
    /// A bundle of one.
    ///
    /// # Safety
    /// The caller owns the buffer, gives it up with the bundle, and does not touch it before.
    #[inline(always)]
    pub(super) unsafe fn begin(head: NonNull<Header>) -> Growing {
        // SAFETY: by the caller's promise.
        let others = unsafe { (*head.as_ptr()).buf.cast() };
        Growing { head, others }
    }

    /// Adds a buffer to a bundle of `n`.
    ///
    /// # Safety
    /// As for [`begin`](Growing::begin); `1 <= n < BUNDLE` buffers are in it.
    #[inline(always)]
    pub(super) unsafe fn add(self, header: NonNull<Header>, n: usize) {
        debug_assert!((1..BUNDLE).contains(&n));
        // SAFETY: a buffer has at least 512 bytes and is aligned to 64.
        unsafe { self.others.add(n - 1).write(header) };
    }

    /// The bundle.
    ///
    /// # Safety
    /// `n` buffers are in it.
    pub(super) unsafe fn end(self, n: usize) -> NonNull<Header> {
        // SAFETY: ours since `begin`.
        unsafe { (*self.head.as_ptr()).total_len = n as u32 };
        self.head
    }
}
