//! The packet pool: one arena, caches that threads use without waiting, a shared depot behind them.
//!
//! Any thread may allocate and free, registered or not. A thread uses the cache of its own slot; if another thread is in it, the
//! next one: nobody waits for a cache. An empty cache takes a whole magazine of [`MAGAZINE`] buffers from the depot, a full one
//! gives one back. The depot's mutex is held for a pointer swap only. Before an allocation fails, every cache is looked through,
//! so no buffer is stranded.
//!
//! Memory: the arena lives until the last [`Pool`] handle is gone *and* all packets are back; if packets outlive the handles,
//! it is freed when the next pool is closed or made after their return.

#![allow(unsafe_code, reason = "this module hands out the buffers of an arena")]

mod arena;
mod cache;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::packet::{Header, Packet, PacketList};
use arena::{Arena, Slab};
use cache::{Caches, MAGAZINE};

/// What a pool is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Number of buffers.
    pub buffers: usize,
    /// Bytes of a buffer, including 256 for headroom and bookkeeping; a multiple of 64, at most 65,536.
    pub buffer_size: usize,
}

impl Default for PoolConfig {
    /// 65,536 buffers of 2 KiB: an Ethernet frame of 1,792 bytes fits in one.
    fn default() -> Self {
        PoolConfig { buffers: 65_536, buffer_size: 2048 }
    }
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
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

/// The pool had no buffer left. Counted in [`PoolStats::exhausted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet pool is exhausted")]
pub struct Exhausted;

/// Numbers of a pool; a recent value while threads use it, exact at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Buffers in all.
    pub buffers: usize,
    /// Buffers that are free: in a cache or in the depot.
    pub free: usize,
    /// Of these, in the depot.
    pub depot: usize,
    /// Allocations refused because nothing was free.
    pub exhausted: u64,
}

/// A handle to a pool of packet buffers; clones share it.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Handle>,
}

/// Pointer to the pool's shared part; whoever drops the last [`Pool`] moves it to [`CLOSING`].
#[derive(Debug)]
struct Handle(NonNull<Inner>);

// SAFETY: `Inner` is shared state made for any thread (atomics, locks); the pointer stays valid as long as a handle exists.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// What the header slabs point to.
#[derive(Debug)]
pub(crate) struct Inner {
    arena: Arena,
    caches: Caches,
    exhausted: AtomicU64,
}

impl Pool {
    /// Makes a pool; memory is reserved at once and touched when first used.
    ///
    /// # Errors
    /// [`PoolError`] if the sizes are out of range or the memory cannot be had.
    pub fn new(config: PoolConfig) -> Result<Pool, PoolError> {
        sweep(&mut CLOSING.lock().unwrap_or_else(PoisonError::into_inner));
        let arena = Arena::new(config)?;
        let inner = Box::new(Inner {
            caches: Caches::new(),
            arena,
            exhausted: AtomicU64::new(0),
        });
        let inner = NonNull::from(Box::leak(inner));
        // SAFETY: just made, not shared yet.
        unsafe {
            (*inner.as_ptr()).arena.adopt(inner);
            inner.as_ref().caches.fill(inner.as_ref().arena.headers());
        }
        Ok(Pool { inner: Arc::new(Handle(inner)) })
    }

    fn inner(&self) -> &Inner {
        // SAFETY: `Inner` is freed only after the last handle is gone.
        unsafe { self.inner.0.as_ref() }
    }

    /// An empty packet with [`HEADROOM`](crate::packet::HEADROOM) free bytes in front.
    ///
    /// # Errors
    /// [`Exhausted`] if no buffer is free anywhere in the pool.
    pub fn alloc(&self) -> Result<Packet, Exhausted> {
        let mut one = [None];
        match self.inner().caches.alloc(&mut one) {
            (1, home) => {
                let header = one[0].take().ok_or(Exhausted)?;
                // SAFETY: the caches gave this buffer out to us alone.
                Ok(unsafe { fresh(header, home) })
            }
            _ => {
                self.inner().exhausted.fetch_add(1, Ordering::Relaxed);
                Err(Exhausted)
            }
        }
    }

    /// Appends up to `n` empty packets to `list`; returns how many. Fewer than `n` means that the pool is exhausted.
    pub fn alloc_bulk(&self, n: usize, list: &mut PacketList) -> usize {
        let mut got = 0;
        let mut batch = [None; MAGAZINE];
        while got < n {
            let want = (n - got).min(MAGAZINE);
            let (k, home) = self.inner().caches.alloc(&mut batch[..want]);
            for header in batch[..k].iter_mut().filter_map(Option::take) {
                // SAFETY: the caches gave this buffer out to us alone.
                list.push_back(unsafe { fresh(header, home) });
            }
            got += k;
            if k < want {
                self.inner().exhausted.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        got
    }

    /// Data bytes that a fresh packet of this pool holds.
    pub fn payload_size(&self) -> usize {
        self.inner().arena.buffer_size() - crate::packet::SHARED_INFO - crate::packet::HEADROOM
    }

    /// The pool's numbers. Takes each cache for an instant; a thread that meets that uses another one.
    pub fn stats(&self) -> PoolStats {
        let inner = self.inner();
        let (cached, depot) = inner.caches.count();
        PoolStats {
            buffers: inner.arena.len(),
            free: cached + depot,
            depot,
            exhausted: inner.exhausted.load(Ordering::Relaxed),
        }
    }
}

/// # Safety
/// `header` was just taken out of a cache or the depot.
unsafe fn fresh(mut header: NonNull<Header>, home: u16) -> Packet {
    // SAFETY: the caller's promise makes this the only access.
    unsafe {
        header.as_mut().reset(home);
        Packet::from_raw(header)
    }
}

/// Size of the buffer that belongs to `header`.
pub(crate) fn buffer_size(header: NonNull<Header>) -> usize {
    // SAFETY: every header line lies in a slab, whose pool outlives the packet.
    unsafe { Slab::of(header).as_ref().pool().as_ref().arena.buffer_size() }
}

/// Frees a packet whose handle is being dropped.
pub(crate) fn free_one(packet: &mut Packet) {
    if let Some(frags) = packet.take_frags() {
        let mut batch = FreeBatch::new();
        // SAFETY: the chain was unlinked from the packet, which owned it alone.
        unsafe { batch.push_linked(frags) };
    }
    let mut batch = FreeBatch::new();
    batch.push(packet.raw());
}

/// Frees all packets of a list, in bulk.
pub(crate) fn free_list(list: &mut PacketList) {
    let mut batch = FreeBatch::new();
    while let Some(mut packet) = list.pop_front() {
        let frags = packet.take_frags();
        batch.push(packet.into_raw());
        if let Some(frags) = frags {
            // SAFETY: the chain was unlinked from the packet, which owned it alone.
            unsafe { batch.push_linked(frags) };
        }
    }
}

/// Collects buffers of one pool and gives them back together.
struct FreeBatch {
    headers: [Option<NonNull<Header>>; MAGAZINE],
    len: usize,
}

impl FreeBatch {
    fn new() -> FreeBatch {
        FreeBatch { headers: [None; MAGAZINE], len: 0 }
    }

    fn push(&mut self, header: NonNull<Header>) {
        let full = self.len == MAGAZINE;
        let other_pool = self.len > 0
            && self.headers[0].is_some_and(|first| pool_of(first) != pool_of(header));
        if full || other_pool {
            self.flush();
        }
        self.headers[self.len] = Some(header);
        self.len += 1;
    }

    /// # Safety
    /// `first` starts a list linked by `next` that the caller owns.
    unsafe fn push_linked(&mut self, first: NonNull<Header>) {
        let mut next = Some(first);
        while let Some(header) = next {
            // SAFETY: owned by the caller's promise, and read before it is given away.
            next = unsafe { header.as_ref().next };
            self.push(header);
        }
    }

    fn flush(&mut self) {
        let Some(first) = self.headers[0] else { return };
        if self.len == 0 {
            return;
        }
        let pool = pool_of(first);
        // SAFETY: the pool lives at least until these packets are back, and nothing here touches it after that.
        unsafe { pool.as_ref() }.caches.free(&self.headers[..self.len]);
        self.len = 0;
    }
}

impl Drop for FreeBatch {
    fn drop(&mut self) {
        self.flush();
    }
}

fn pool_of(header: NonNull<Header>) -> NonNull<Inner> {
    // SAFETY: every header line lies in a slab that lives as long as its pool, which outlives the packet.
    unsafe { Slab::of(header).as_ref().pool() }
}

/// A pool whose last handle is gone.
struct Closed(NonNull<Inner>);

// SAFETY: as for `Handle`.
unsafe impl Send for Closed {}

/// Pools whose last handle went while packets were still out.
static CLOSING: Mutex<Vec<Closed>> = Mutex::new(Vec::new());

/// Frees the closed pools whose packets are all back.
///
/// Nothing is allocated from a closed pool, so its count of free buffers only grows. When it is complete, the thread that
/// freed the last one has already left the cache (the count takes each cache in turn), which is the last it touches.
fn sweep(closing: &mut Vec<Closed>) {
    closing.retain(|closed| {
        // SAFETY: a pool in this list is freed nowhere but here.
        let inner = unsafe { closed.0.as_ref() };
        let (cached, depot) = inner.caches.count();
        let complete = cached + depot == inner.arena.len();
        if complete {
            // SAFETY: made by `Box::leak`, referred to by no handle (it is in this list) and by no packet.
            drop(unsafe { Box::from_raw(closed.0.as_ptr()) });
        }
        !complete
    });
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
        closing.push(Closed(self.0));
        sweep(&mut closing);
    }
}

#[cfg(test)]
mod tests;
