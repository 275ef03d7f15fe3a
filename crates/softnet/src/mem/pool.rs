//! The handle to a pool, how one is made, and what its handles, packets and threads share.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::arena::Arena;
use super::cache::CACHE;
use super::magazine::{Depot, MAGAZINE};
use super::stats::Unregistered;
use super::thread_cache::ThreadCaches;
use super::{HEADROOM, SHARED_INFO, close};
use crate::sync::membarrier;

/// Size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Number of buffers.
    pub buffers: usize,
    /// Bytes of a buffer, including 256 for headroom and bookkeeping; a multiple of 64, at most
    /// 65,536.
    pub buffer_size: usize,
}

impl Default for PoolConfig {
    /// 65,536 buffers of 2 KiB: an Ethernet frame of 1,792 bytes fits in one.
    fn default() -> Self {
        PoolConfig {
            buffers: 65_536,
            buffer_size: 2048,
        }
    }
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// `buffer_size` is out of range.
    #[error("buffer size {0} is not a multiple of 64 between 512 and 65536")]
    BufferSize(usize),
    /// `buffers` is out of range.
    #[error("a pool needs between 1 and 16777216 buffers, not {0}")]
    Buffers(usize),
    /// The system has not that much memory.
    #[error("no memory for {0} bytes of packet buffers; ask for fewer buffers")]
    Memory(usize),
}

/// The pool had no buffer left but, maybe, in caches that were in use at that moment: by their
/// thread, or by another one that found no buffer either and searched them. Counted in
/// [`PoolStats::exhausted`](super::PoolStats::exhausted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet pool is exhausted")]
pub struct Exhausted;

/// A handle to a pool of packet buffers; clones share it. Any thread may use it, at any time,
/// except in a signal handler: it may have interrupted the thread inside the pool.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(super) inner: Arc<Handle>,
    /// [`Inner::id`], at hand for the fast path.
    pub(super) id: u64,
}

/// Pointer to the pool's shared part; who drops the last [`Pool`] closes it.
#[derive(Debug)]
pub(super) struct Handle(pub(super) NonNull<Inner>);

// SAFETY: `Inner` is shared state made for any thread (atomics, locks); the pointer stays valid
// as long as a handle exists.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this was the last handle, and the pointer came from `Box::leak`.
        unsafe { close::close(self.0) };
    }
}

impl Pool {
    /// Makes a pool; memory is reserved at once and touched when first used.
    ///
    /// # Errors
    /// [`PoolError`] if the sizes are out of range or the memory cannot be had.
    pub fn new(config: PoolConfig) -> Result<Pool, PoolError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        close::sweep();
        // Registers the process, before threads that would have to be told.
        membarrier::available();
        let arena = Arena::new(config)?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let inner = NonNull::from(Box::leak(Box::new(Inner::new(arena, id))));
        // SAFETY: just made, not shared yet.
        unsafe { inner.as_ref().arena.adopt(inner, id) };
        let inner = Arc::new(Handle(inner));
        Ok(Pool { inner, id })
    }

    pub(super) fn inner(&self) -> &Inner {
        // SAFETY: `Inner` is freed only after the last handle is gone.
        unsafe { self.inner.0.as_ref() }
    }

    /// True if `other` is a handle to the same pool.
    pub fn is_same(&self, other: &Pool) -> bool {
        self.id == other.id
    }

    /// Data bytes that a fresh packet of this pool holds.
    pub fn payload_size(&self) -> usize {
        self.inner().arena.usable() - SHARED_INFO - HEADROOM
    }

    /// Memory of all buffers, one behind the other, for a driver that shares it with its device.
    /// The first 512 bytes of a buffer also hold pointers of the pool while the buffer is free. So
    /// nothing else may write here, but a trusted party (a device, the kernel) may write where a
    /// packet that the driver owns offers tailroom, as long as the driver owns it.
    pub fn area(&self) -> NonNull<[u8]> {
        self.inner().arena.area()
    }

    /// Bytes from one buffer to the next.
    pub fn buffer_size(&self) -> usize {
        self.inner().arena.buffer_size()
    }

    /// Bytes of all buffers.
    pub fn memory(&self) -> u64 {
        let arena = &self.inner().arena;
        arena.len() as u64 * arena.usable() as u64
    }
}

/// The shared state of a pool, to which the header slabs point. Alive as long as a handle or a
/// packet exists or a thread is in a cache of it or counted as unregistered (see `close.rs`).
pub(super) struct Inner {
    pub(super) arena: Arena,
    /// Never used for another pool.
    pub(super) id: u64,
    pub(super) threads: ThreadCaches,
    pub(super) depot: Depot,
    /// Buffers a cache holds at most, and moves at once. Smaller for small pools, so that a few
    /// caches cannot hold all; for many caches see [`cache_capacity`](Inner::cache_capacity).
    pub(super) capacity: usize,
    pub(super) batch: usize,
    /// Buffers that a remote-free list holds at most.
    pub(super) defer_max: AtomicUsize,
    /// Buffers that are collected for an owner before they are sent there; 0: none are.
    pub(super) defer_limit: AtomicUsize,
    pub(super) unregistered: Unregistered,
    #[cfg(any(test, feature = "controls"))]
    pub(super) controls: super::testing::controls::Controls,
}

impl Inner {
    /// A pool with all its buffers in `arena`, unused.
    fn new(arena: Arena, id: u64) -> Inner {
        let buffers = arena.len();
        let capacity = (buffers / 8).clamp(8, CACHE);
        let batch = (capacity / 4).min(MAGAZINE);
        Inner {
            arena,
            id,
            threads: ThreadCaches::new(),
            depot: Depot::new(buffers),
            capacity,
            batch,
            defer_max: AtomicUsize::new(capacity),
            defer_limit: AtomicUsize::new(batch),
            unregistered: Unregistered::default(),
            #[cfg(any(test, feature = "controls"))]
            controls: super::testing::controls::Controls::default(),
        }
    }

    /// Buffers that each cache may hold, as many as there are now: together no more than half of
    /// the pool, but each at least two batches, so that a magazine always fits one that runs low.
    pub(super) fn cache_capacity(&self) -> usize {
        let (half, threads) = (self.arena.len() / 2, self.threads.len().max(1));
        // Mostly there is enough for all; a division takes as long as several packets.
        if half >= threads * self.capacity {
            return self.capacity;
        }
        (half / threads).clamp(2 * self.batch, self.capacity)
    }

    #[inline(always)]
    pub(super) fn defer_limit(&self) -> usize {
        self.defer_limit.load(Ordering::Relaxed)
    }
}
