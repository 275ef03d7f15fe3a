//! The handle to a pool, and how one is made.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::Arena;
use crate::sync::membarrier;

#[cfg(debug_assertions)]
use super::places::Outstanding;
use super::{HomeStats, Inner, Memory, PoolConfig, PoolError, PoolStats, close};

/// A handle to a pool of packet buffers; clones share it. Any thread may use it, at any time, except in a signal handler: it may have interrupted the thread inside
/// the pool.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(super) inner: Arc<Handle>,
    /// [`Inner::id`], at hand for the fast path.
    pub(super) id: u64,
}

/// Pointer to the pool's shared part; whoever drops the last [`Pool`] closes it.
#[derive(Debug)]
pub(super) struct Handle(pub(super) NonNull<Inner>);

// SAFETY: `Inner` is shared state made for any thread (atomics, locks); the pointer stays valid as long as a handle exists.
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
        Self::build(config, None)
    }

    /// Makes a pool whose buffers lie in `memory`, one behind the other from its start.
    ///
    /// # Errors
    /// [`PoolError`] if the sizes are out of range or `memory` is too small.
    pub fn with_memory(config: PoolConfig, memory: Box<dyn Memory>) -> Result<Pool, PoolError> {
        Self::build(config, Some(memory))
    }

    fn build(config: PoolConfig, memory: Option<Box<dyn Memory>>) -> Result<Pool, PoolError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        close::sweep_all();
        // Registers the process, before threads that would have to be told.
        membarrier::available();
        let arena = Arena::new(config, memory)?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let inner = Box::new(Inner::new(arena, id));
        let inner = NonNull::from(Box::leak(inner));
        // SAFETY: just made, not shared yet.
        unsafe { inner.as_ref().arena.adopt(inner, id) };
        Ok(Pool {
            inner: Arc::new(Handle(inner)),
            id,
        })
    }

    pub(super) fn inner(&self) -> &Inner {
        // SAFETY: `Inner` is freed only after the last handle is gone.
        unsafe { self.inner.0.as_ref() }
    }

    /// Whether `other` is a handle to the same pool.
    pub fn is_same(&self, other: &Pool) -> bool {
        self.id == other.id
    }

    /// Data bytes that a fresh packet of this pool holds.
    pub fn payload_size(&self) -> usize {
        self.inner().arena.usable() - crate::mem::SHARED_INFO - crate::mem::HEADROOM
    }

    /// Bytes of all buffers.
    pub fn memory(&self) -> u64 {
        let arena = &self.inner().arena;
        arena.len() as u64 * arena.usable() as u64
    }

    /// The pool's numbers. Disturbs nobody, but reads a line of every thread.
    pub fn stats(&self) -> PoolStats {
        self.inner().stats()
    }

    /// The numbers of each home.
    pub fn home_stats(&self) -> Vec<HomeStats> {
        self.inner().home_stats()
    }

    /// The packets that are out, by the place in the program that allocated them (debug builds only). What is listed when all should be back
    /// has leaked. Segments and shared packets count as one each.
    #[cfg(debug_assertions)]
    pub fn outstanding(&self) -> Vec<Outstanding> {
        self.inner().places.report()
    }
}
