//! The part of a pool that its handles, packets and threads share.

#[cfg(debug_assertions)]
use std::panic::Location;
#[cfg(debug_assertions)]
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(debug_assertions)]
use super::Header;
use super::arena::Arena;
use super::cache::CACHE;
use super::depot::Depot;
use super::home::Homes;
use super::magazine::BUNDLE;
#[cfg(debug_assertions)]
use super::places;
use super::session::Outside;

/// What the header slabs point to. Alive as long as a handle or a packet exists or a thread is in a home or outside (see `close.rs`).
#[derive(Debug)]
pub(crate) struct Inner {
    pub(super) arena: Arena,
    /// Never used for another pool.
    pub(super) id: u64,
    pub(super) homes: Homes,
    pub(super) depot: Depot,
    /// Buffers a cache holds at most, and moves at once. Smaller for small pools, so that a few
    /// caches cannot hold all; for many caches see [`cache_capacity`](Inner::cache_capacity).
    pub(super) capacity: usize,
    pub(super) batch: usize,
    pub(super) defer_max: AtomicUsize,
    pub(super) outside: Outside,
    pub(super) exhausted: AtomicU64,
    pub(super) stolen: AtomicU64,
    pub(super) closed: AtomicBool,
    #[cfg(debug_assertions)]
    pub(super) places: places::Places,
}

impl Inner {
    /// A pool with all its buffers in `arena`, unused.
    pub(super) fn new(arena: Arena, id: u64) -> Inner {
        let buffers = arena.len();
        let capacity = (buffers / 8).clamp(8, CACHE);
        Inner {
            arena,
            id,
            homes: Homes::new(),
            depot: Depot::new(buffers),
            capacity,
            batch: (capacity / 4).min(BUNDLE),
            defer_max: AtomicUsize::new(capacity),
            outside: Outside::default(),
            exhausted: AtomicU64::new(0),
            stolen: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            #[cfg(debug_assertions)]
            places: places::Places::new(buffers),
        }
    }

    /// Buffers that each cache may hold, as many as there are now: together no more than half of
    /// the pool, but each at least two batches, so that a bundle always fits one that runs low.
    pub(super) fn cache_capacity(&self) -> usize {
        let share = self.arena.len() / 2 / self.homes.len().max(1);
        share.clamp(2 * self.batch, self.capacity)
    }

    #[inline(always)]
    pub(super) fn defer_max(&self) -> usize {
        self.defer_max.load(Ordering::Relaxed)
    }

    /// Buffers that are collected for a home before they are sent there; 0: they stay here.
    #[inline(always)]
    pub(super) fn park_limit(&self) -> usize {
        self.defer_max().min(self.batch)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn set_closed(&self) {
        self.homes.close();
        self.closed.store(true, Ordering::Release);
    }

    #[cfg(debug_assertions)]
    pub(super) fn note(&self, header: NonNull<Header>, place: Option<&'static Location<'static>>) {
        self.places.set(self.arena.index(header), place);
    }
}
