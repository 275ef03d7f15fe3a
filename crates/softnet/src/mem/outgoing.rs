//! Freed buffers on their way to another home: a bundle in the making.
//!
//! Invariant: the first `len` buffers of `bundle` are free and nowhere else (INV-BUF-2), belong to `home`, and are at most [`BUNDLE`]. An
//! outbox is part of a [`Cache`](super::cache::Cache) and used by who has that; `len` may be looked at by others.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use super::Header;
use super::cache::prefetch;
use super::home::Remote;
use super::magazine::{BUNDLE, Growing};

/// What an outbox that was never used is in use for: the number of no home.
pub(super) const UNUSED: u16 = u16::MAX - 1;

/// See the [module](self).
pub(super) struct Outbox {
    home: Cell<u16>,
    len: AtomicU16,
    /// Valid while `len` is not 0.
    bundle: Cell<MaybeUninit<Growing>>,
    /// The lines of the home that the bundle will be pushed to. Only a hint, never read.
    remote: Cell<Option<NonNull<Remote>>>,
}

impl Outbox {
    pub(super) const fn new() -> Outbox {
        Outbox {
            home: Cell::new(UNUSED),
            len: AtomicU16::new(0),
            bundle: Cell::new(MaybeUninit::uninit()),
            remote: Cell::new(None),
        }
    }

    /// Buffers in it. May be asked by any thread.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len.load(Ordering::Relaxed))
    }

    /// The home it is in use for; [`UNUSED`] if it never was.
    #[inline(always)]
    pub(super) fn home(&self) -> u16 {
        self.home.get()
    }

    /// Uses the outbox, which is empty, for another home.
    pub(super) fn turn_to(&self, home: u16, remote: Option<NonNull<Remote>>) {
        debug_assert_eq!(self.len(), 0);
        self.home.set(home);
        self.remote.set(remote);
    }

    /// Adds a buffer without counting it: [`set_len`](Outbox::set_len) comes later.
    ///
    /// # Safety
    /// `len < BUNDLE` buffers are in it, the caller owns this one, and gives it up.
    #[inline(always)]
    pub(super) unsafe fn add(&self, header: NonNull<Header>, len: usize) {
        debug_assert!(len < BUNDLE);
        // SAFETY: by the caller's promise; the bundle was begun when `len` was 0.
        unsafe {
            if len == 0 {
                self.bundle.set(MaybeUninit::new(Growing::begin(header)));
                // The line will be here when the bundle is complete.
                if let Some(remote) = self.remote.get() {
                    prefetch(remote);
                }
            } else {
                self.bundle.get().assume_init().add(header, len);
            }
        }
    }

    /// Counts what was added.
    #[inline(always)]
    pub(super) fn set_len(&self, len: usize) {
        self.len.store(len as u16, Ordering::Relaxed);
    }

    /// Takes out the bundle, if there is one.
    pub(super) fn take(&self) -> Option<NonNull<Header>> {
        let n = self.len();
        if n == 0 {
            return None;
        }
        self.set_len(0);
        // SAFETY: begun and filled with `n` buffers that are ours, and forgotten by `len` being 0 now.
        Some(unsafe { self.bundle.get().assume_init().end(n) })
    }
}
