//! Bundles: up to [`BUNDLE`] free buffers that travel as one. The first one's header is the handle; its buffer holds the addresses of the others.
//!
//! Passing addresses rather than a chain matters: the next owner reads five neighbouring lines and can then fetch all headers at
//! once, where a chain makes it wait for one header after the other (a round trip of a line between the CPUs of the
//! development machine takes 540 ns).

use std::ptr::NonNull;

use crate::packet::{HEADROOM, Header, SHARED_INFO};

/// Buffers that move between a cache and the depot, or to another home, at once (the kernel's NAPI cache moves 32).
pub(super) const BUNDLE: usize = 32;

const _: () = assert!((BUNDLE - 1) * size_of::<NonNull<Header>>() <= SHARED_INFO + HEADROOM);

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
