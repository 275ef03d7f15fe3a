//! The packet pool: one arena, a cache for each thread, a depot of bundles behind them.
//!
//! Any thread may allocate and free, registered or not; nobody waits for anybody. The first use gives the thread a *home* in the pool, with a
//! cache of up to 256 buffers that it enters without an atomic operation on a shared line (a [biased lock](crate::sync::Biased)). An empty cache takes
//! a *bundle* of up to 64 buffers from the depot, a full one gives half away in bundles. A bundle moves in one exchange.
//!
//! **Packets go home.** Each buffer records the home that allocated it. Freed by another thread, it is collected there in an outbox for its home; a
//! full outbox goes to the home's inbox as one bundle, in one exchange. Home takes its inbox in before it looks into the depot, and when its
//! thread calls [`Pool::poll_home`]. An inbox is bounded ([`Pool::set_defer_max`]); what does not fit goes to the depot. A home that sleeps is
//! woken at half the bound, once.
//!
//! *Unless they are needed here:* a thread that allocates as much as it frees for others (two workers that forward to each other) keeps what
//! it frees while its cache is less than half full: the lines are warm here, and home does not miss them. It is decided anew whenever
//! a bundle goes home: a thread that allocated fewer than a bundle's worth since the last one keeps nothing.
//!
//! **Nothing is stranded.** A thread that exits gives back all it held. Before an allocation fails, the inboxes and then the caches of all other
//! threads are searched, except those whose thread is inside the pool at this very moment.
//!
//! **Why thread-held caches and not per-CPU ones** (restartable sequences). Measured against each other
//! (`docs/results/rseq.md`; AMD EPYC, 2 CPUs): allocating and freeing on one CPU takes 2.6 ns here and 4.5 ns with a cache per CPU that is entered by restartable
//! sequences, 2.1 against 2.8 ns in bulks of 8, 1.7 against 2.2 in bulks of 32. Both avoid atomic operations; a sequence has to announce itself and to look
//! for its CPU each time, and can only take effect with one store. It would bound what caches hold by CPUs rather than threads, but needs assembly for each
//! architecture, and is missing under valgrind, miri and musl, where thread-held caches would be needed beside it. That the caches of many
//! idle threads hold much is answered by stealing. The owner's side of the lock costs two plain stores because `membarrier` makes the thief pay (22 µs).
//!
//! **Why bundles of addresses and not chains**: see `bundle.rs`. **Why an outbox and not one push per freed list**: a push to a line that another
//! CPU uses costs as much as freeing many packets, and lists of one or two packets are common. What waits in an outbox is part of
//! the cache: it is used before anything is stolen, can itself be stolen, and is sent off before the thread sleeps ([`Pool::prepare_sleep`]).
//!
//! Memory: the arena lives until the last [`Pool`] handle is gone *and* all packets are back; see `close.rs`.

#![allow(unsafe_code, reason = "this module hands out the buffers of an arena")]

mod alloc;
mod arena;
mod bundle;
mod cache;
mod close;
mod config;
mod depot;
mod home;
mod inner;
mod memory;
mod outbox;
#[cfg(debug_assertions)]
mod places;
mod release;
mod session;
mod stats;
mod thread;
mod way_home;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::membarrier;
use arena::Arena;

pub use config::{Exhausted, PoolConfig, PoolError};
pub(crate) use inner::Inner;
pub use memory::Memory;
#[cfg(debug_assertions)]
pub use places::Outstanding;
pub(crate) use release::{buffer_size, free_list, free_one};
pub use stats::{HomeStats, PoolStats};

/// A handle to a pool of packet buffers; clones share it. Any thread may use it, at any time, except in a signal handler: it may have interrupted the thread inside
/// the pool.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Handle>,
    /// [`Inner::id`], at hand for the fast path.
    id: u64,
}

/// Pointer to the pool's shared part; whoever drops the last [`Pool`] closes it.
#[derive(Debug)]
struct Handle(NonNull<Inner>);

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

    fn inner(&self) -> &Inner {
        // SAFETY: `Inner` is freed only after the last handle is gone.
        unsafe { self.inner.0.as_ref() }
    }

    /// Whether `other` is a handle to the same pool.
    pub fn is_same(&self, other: &Pool) -> bool {
        self.id == other.id
    }

    /// Data bytes that a fresh packet of this pool holds.
    pub fn payload_size(&self) -> usize {
        self.inner().arena.usable() - crate::packet::SHARED_INFO - crate::packet::HEADROOM
    }

    /// Bytes of all buffers.
    pub(crate) fn memory(&self) -> u64 {
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

#[cfg(test)]
mod bug_tests;
#[cfg(test)]
mod defer_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod share_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
