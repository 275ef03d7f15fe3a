//! The packet pool: one arena, a cache for each thread, a depot of bundles behind them.
//!
//! Any thread may allocate and free, registered or not; nobody waits for anybody. The first use gives the thread a *home* in the pool, with a
//! cache of up to 128 buffers that it enters without an atomic operation on a shared line (a [biased lock](crate::sync::Biased)). An empty cache takes
//! a *bundle* of up to 32 buffers from the depot, a full one gives half away in bundles. A bundle moves in one exchange.
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
//! **Why thread-held caches and not per-CPU ones** (restartable sequences). Measured on the development machine: a per-CPU pop and push with rseq takes
//! 2.8 ns, a thread-local counter 2.3 ns, an uncontended atomic 6 ns; allocating and freeing a packet here 3.4 ns, 2.2 ns in bulks of 8. So both avoid the atomic, and rseq is no faster; it would bound what
//! caches hold by CPUs rather than threads, but needs assembly for each architecture, commits one store at a time (no bulk), and is
//! missing under valgrind, miri and musl, where the thread-held caches would be needed beside it. That caches of many idle threads hold much is
//! answered by stealing. The owner's side of the lock costs two plain stores because `membarrier` makes the thief pay (22 µs).
//!
//! **Why bundles of addresses and not chains**: see `bundle.rs`. **Why an outbox and not one push per freed list**: a push to a line that another
//! CPU uses costs as much as freeing many packets, and lists of one or two packets are common. What waits in an outbox is part of
//! the cache: it is used before anything is stolen, can itself be stolen, and is sent off before the thread sleeps ([`Pool::prepare_sleep`]).
//!
//! Memory: the arena lives until the last [`Pool`] handle is gone *and* all packets are back; see `close.rs`.

#![allow(unsafe_code, reason = "this module hands out the buffers of an arena")]

mod arena;
mod bundle;
mod cache;
mod close;
mod depot;
mod home;
mod memory;
#[cfg(debug_assertions)]
mod places;
mod release;
mod session;
mod stats;
mod thread;

#[cfg(debug_assertions)]
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(debug_assertions)]
use crate::packet::Header;
use crate::packet::{Packet, PacketList};
use crate::sync::membarrier;
use arena::Arena;
use bundle::BUNDLE;
use cache::{CACHE, Chain};
use depot::Depot;
use home::{Homes, bump};
use session::Outside;

pub use memory::Memory;
#[cfg(debug_assertions)]
pub use places::Outstanding;
pub(crate) use release::{buffer_size, free_list, free_one};
pub use stats::{HomeStats, PoolStats};

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
        PoolConfig {
            buffers: 65_536,
            buffer_size: 2048,
        }
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
    /// The memory given is too small or not aligned to 64 bytes.
    #[error("a memory area of {given} bytes does not hold {needed} bytes aligned to 64")]
    Area {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
}

/// The pool had no buffer left. Counted in [`PoolStats::exhausted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet pool is exhausted")]
pub struct Exhausted;

/// A handle to a pool of packet buffers; clones share it.
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

/// What the header slabs point to. Alive as long as a handle or a packet exists or a thread is in a home or outside (see `close.rs`).
#[derive(Debug)]
pub(crate) struct Inner {
    arena: Arena,
    /// Never used for another pool.
    id: u64,
    homes: Homes,
    depot: Depot,
    /// Buffers a cache holds, and moves at once. Smaller for small pools, so that a few caches cannot hold all.
    capacity: usize,
    batch: usize,
    defer_max: AtomicUsize,
    outside: Outside,
    exhausted: AtomicU64,
    stolen: AtomicU64,
    closed: AtomicBool,
    #[cfg(debug_assertions)]
    places: places::Places,
}

impl Inner {
    #[inline(always)]
    fn defer_max(&self) -> usize {
        self.defer_max.load(Ordering::Relaxed)
    }

    /// Buffers that are collected for a home before they are sent there; 0: they stay here.
    #[inline(always)]
    fn park_limit(&self) -> usize {
        self.defer_max().min(self.batch)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn set_closed(&self) {
        self.homes.close();
        self.closed.store(true, Ordering::Release);
    }

    #[cfg(debug_assertions)]
    fn note(&self, header: NonNull<Header>, place: Option<&'static Location<'static>>) {
        self.places.set(self.arena.index(header), place);
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
        let capacity = (config.buffers / 8).clamp(8, CACHE);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let inner = Box::new(Inner {
            arena,
            id,
            homes: Homes::new(),
            depot: Depot::new(config.buffers),
            capacity,
            batch: (capacity / 4).min(BUNDLE),
            defer_max: AtomicUsize::new(capacity),
            outside: Outside::default(),
            exhausted: AtomicU64::new(0),
            stolen: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            #[cfg(debug_assertions)]
            places: places::Places::new(config.buffers),
        });
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

    /// An empty packet with [`HEADROOM`](crate::packet::HEADROOM) free bytes in front.
    ///
    /// # Errors
    /// [`Exhausted`] if no buffer is free anywhere in the pool.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn alloc(&self) -> Result<Packet, Exhausted> {
        if let Some(home) = thread::find(self.id) {
            // SAFETY: the home that `find` found belongs to this thread and lives as long as it does not register with another.
            let home = unsafe { home.as_ref() };
            // SAFETY: as above; nothing in a home allocates.
            if let Some(cache) = unsafe { home.enter() }
                && let Some(mut header) = cache.pop()
            {
                bump(&home.allocated, 1);
                drop(cache);
                #[cfg(debug_assertions)]
                self.inner().note(header, Some(Location::caller()));
                // SAFETY: the cache gave this buffer out to us alone.
                return Ok(unsafe {
                    header.as_mut().reset(home.index);
                    Packet::from_raw(header)
                });
            }
        }
        let chain = self.alloc_slow(1).ok_or(Exhausted)?;
        // SAFETY: a chain of one packet, which is ours alone.
        Ok(unsafe { Packet::from_raw(chain.head) })
    }

    /// Appends up to `n` empty packets to `list`; returns how many. Fewer than `n` means that the pool is exhausted.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn alloc_bulk(&self, n: usize, list: &mut PacketList) -> usize {
        if let Some(home) = thread::find(self.id) {
            // SAFETY: as in `alloc`.
            let home = unsafe { home.as_ref() };
            // SAFETY: as in `alloc`.
            if let Some(cache) = unsafe { home.enter() }
                && cache.len() >= n
                && let Some(chain) = cache.take(n, home.index)
            {
                bump(&home.allocated, n as u64);
                drop(cache);
                self.note_all(&chain);
                // SAFETY: the chain came out of the cache, which gave it to us alone; its packets are empty and linked.
                unsafe { list.append_empty(chain.head, chain.tail, chain.len) };
                return n;
            }
        }
        let Some(chain) = self.alloc_slow(n) else {
            return 0;
        };
        // SAFETY: as above.
        unsafe { list.append_empty(chain.head, chain.tail, chain.len) };
        chain.len
    }

    /// Up to `n` packets, linked. Returned rather than put into the caller's list: a list whose address does not get out
    /// stays in registers, where moving it costs nothing.
    #[cold]
    #[inline(never)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn alloc_slow(&self, n: usize) -> Option<Chain> {
        let mut all: Option<Chain> = None;
        loop {
            let got = all.as_ref().map_or(0, |chain| chain.len);
            if got >= n {
                return all;
            }
            // SAFETY: we have a handle; callers are not inside.
            let chain = unsafe { session::enter(self.inner.0, |session| session.alloc(n - got)) };
            let Some(chain) = chain else {
                self.inner().exhausted.fetch_add(1, Ordering::Relaxed);
                return all;
            };
            self.note_all(&chain);
            all = Some(match all {
                None => chain,
                Some(before) => {
                    // SAFETY: both chains are ours; `tail` is the last of its chain.
                    unsafe { (*before.tail.as_ptr()).next = Some(chain.head) };
                    Chain {
                        head: before.head,
                        tail: chain.tail,
                        len: got + chain.len,
                    }
                }
            });
        }
    }

    /// Remembers who allocated the packets (debug builds only).
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn note_all(&self, chain: &Chain) {
        #[cfg(not(debug_assertions))]
        let _ = chain;
        #[cfg(debug_assertions)]
        {
            let mut next = Some(chain.head);
            while let Some(header) = next {
                self.inner().note(header, Some(Location::caller()));
                // SAFETY: the chain is ours.
                next = unsafe { header.as_ref().next };
            }
        }
    }

    /// Data bytes that a fresh packet of this pool holds.
    pub fn payload_size(&self) -> usize {
        self.inner().arena.buffer_size() - crate::packet::SHARED_INFO - crate::packet::HEADROOM
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

    /// Buffers that may wait in a home's inbox (`skb_defer_max`); more go to the depot. 0 turns deferred freeing off: every buffer stays
    /// with the thread that frees it. Applies to frees from now on. At most 32,768.
    pub fn set_defer_max(&self, buffers: usize) {
        self.inner()
            .defer_max
            .store(buffers.min(1 << 15), Ordering::Relaxed);
    }

    /// Buffers that may wait in a home's inbox.
    pub fn defer_max(&self) -> usize {
        self.inner().defer_max()
    }

    /// To be called by a thread at the start of a poll and after a sleep: takes in the buffers that other threads have freed for it. Costs a few
    /// nanoseconds if there are none. A thread that never calls this takes them in when its cache is empty.
    #[inline]
    pub fn poll_home(&self) {
        if let Some(home) = thread::find(self.id) {
            // SAFETY: as in `alloc`.
            let home = unsafe { home.as_ref() };
            if home.remote.inbox.is_empty() && !home.sleeping.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: we have a handle, and are not inside.
            unsafe {
                session::enter(self.inner.0, |session| {
                    session.awake();
                    session.drain();
                });
            }
        }
    }

    /// To be called by a thread before it sleeps: sends off what it freed for others and allows its [waker](Pool::set_waker) to be called. False: do
    /// not sleep, buffers have come meanwhile. Call [`poll_home`](Pool::poll_home) when awake again.
    pub fn prepare_sleep(&self) -> bool {
        // SAFETY: we have a handle, and are not inside.
        unsafe { session::enter(self.inner.0, |session| session.prepare_sleep()) }
    }

    /// Sets what is called when this thread sleeps ([`prepare_sleep`](Pool::prepare_sleep)) and its inbox is half full: at most once per sleep, on the thread that
    /// freed the packet. It should make this thread call [`poll_home`](Pool::poll_home). Forgotten when the thread exits.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        let home = thread::find(self.id).or_else(|| thread::register(self.inner()));
        if let Some(home) = home {
            // SAFETY: as in `alloc`.
            unsafe { home.as_ref() }.set_waker(Some(Arc::new(wake)));
        }
    }
}

#[cfg(test)]
mod defer_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
