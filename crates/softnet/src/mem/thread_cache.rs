//! Thread caches: each thread that uses a pool has one there, with a remote-free list for what
//! other threads freed of its buffers.
//!
//! Invariant: a thread cache has at most one owner, the thread that changed `vacant` from true to
//! false and has not changed it back; its number is below [`THREADS`] and the same for the life
//! of the pool (INV-BUF-11). The remote-free list holds at most the pool's limit (INV-BUF-5): the
//! bound is exact, since the list counts in the exchange that pushes. Any thread may empty it, so
//! nothing in it is stranded.
//!
//! A thread cache outlives its pool while a thread is registered with it: it is then closed, and
//! nobody enters any more.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_utils::CachePadded;

use super::cache::{CACHE, Cache};
use super::stats::Counters;
use super::{Header, Inner, short};
use crate::sync::{AdoptionList, Biased, Notify, ThiefGuard, membarrier};

/// Thread caches of a pool at most. Further threads use the depot. (An interpreter would spend its
/// time with the table, which each pool has.)
pub(super) const THREADS: usize = if cfg!(miri) { 64 } else { 1024 };
/// The owner of packets that an unregistered thread allocated.
pub(super) const UNOWNED: u16 = u16::MAX;
/// Thread caches claimed with one barrier.
const CLAIMS: usize = 16;

/// Wakes the owner of a thread cache.
pub(super) type Waker = Arc<dyn Fn() + Send + Sync>;

/// See the [module](self).
#[repr(C)]
pub(super) struct ThreadCache {
    /// Buffers freed here, whoever owns them. Written by who holds the lock.
    pub(super) freed: AtomicU64,
    pub(super) index: u16,
    pub(super) lock: Biased<Cache>,
    /// Fields that others write are on lines of their own.
    pub(super) remote: CachePadded<Remote>,
    pub(super) pool: NonNull<Inner>,
    pub(super) id: u64,
    /// Written by who holds the lock.
    pub(super) counters: Counters,
    /// True if `notify` was told that the owner sleeps. Written by the owner.
    pub(super) asleep: AtomicBool,
    pub(super) raids: Raids,
    waker: Mutex<Option<Waker>>,
}

/// Fields that other threads write.
pub(super) struct Remote {
    /// Magazines of the owner's buffers. Counts buffers.
    pub(super) list: AdoptionList<Header>,
    pub(super) notify: Notify,
    pub(super) vacant: AtomicBool,
}

// SAFETY: the list holds buffers that belong to it, the lock guards the cache, and `pool` is used
// only where that is argued (`Inner`'s own documentation); the rest is atomic or never changes.
unsafe impl Send for ThreadCache {}
// SAFETY: as above.
unsafe impl Sync for ThreadCache {}

impl ThreadCache {
    fn new(pool: NonNull<Inner>, id: u64, index: u16, capacity: usize) -> ThreadCache {
        ThreadCache {
            freed: AtomicU64::new(0),
            index,
            lock: Biased::new(Cache::new(capacity)),
            remote: CachePadded::new(Remote {
                list: AdoptionList::expecting(0),
                notify: Notify::new(),
                vacant: AtomicBool::new(false),
            }),
            pool,
            id,
            counters: Counters::default(),
            asleep: AtomicBool::new(false),
            raids: Raids::default(),
            waker: Mutex::new(None),
        }
    }

    /// Buffers ready to be allocated and those collected for other owners: recent values.
    pub(super) fn cached(&self) -> (usize, usize) {
        // SAFETY: these counts are atomics made for this, and nothing ever makes a `&mut Cache`.
        let cache = unsafe { self.lock.peek() };
        // Its two counts are not read at once.
        let len = cache.len().cast_signed().max(0).cast_unsigned();
        (len.min(CACHE), cache.outgoing_len())
    }

    /// Buffers allocated here so far.
    pub(super) fn allocated(&self) -> u64 {
        // SAFETY: as in `cached`.
        unsafe { self.lock.peek() }.taken()
    }

    pub(super) fn set_waker(&self, waker: Option<Waker>) {
        // The old one is dropped when the lock is not held: that is the user's code.
        let mut current = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        let _old = std::mem::replace(&mut *current, waker);
        drop(current);
    }

    pub(super) fn waker(&self) -> Option<Waker> {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        waker.clone()
    }

    /// Says that the owner is awake.
    pub(super) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        self.remote.notify.awake();
    }

    /// Lets the next thread have it.
    pub(super) fn leave(&self) {
        self.set_waker(None);
        self.awake();
        self.remote.vacant.store(true, Ordering::Release);
    }
}

/// A limit on how often a thread raids the caches of others. A raid costs a barrier, 22 µs and an
/// interrupt on every CPU; where a pool stays exhausted, each buffer that is freed shows in some
/// cache, and all threads would go for it. So after raids that found little a thread fails some
/// allocations without one. It has no clock: failures are counted. (Plain memory, but for
/// unregistered threads, which share one: they lose counts.)
#[derive(Default)]
pub(super) struct Raids {
    /// Raids that found little, since the last that found more.
    poor: AtomicU32,
    /// Allocations to fail before the next one.
    skip: AtomicU32,
}

impl Raids {
    /// Fewer poor raids than these have no consequences: the end of a burst, not exhaustion.
    const FREE: u32 = 4;
    /// At most 1,024 failures between two raids: of some 100 ns each, so that raids take at most a
    /// fifth of a thread's time.
    const MOST: u32 = Self::FREE + 10;

    /// True if a raid is due.
    pub(super) fn may(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        self.skip.store(skip.saturating_sub(1), Ordering::Relaxed);
        skip == 0
    }

    /// There was one, which found `few`.
    pub(super) fn note(&self, few: bool) {
        let poor = self.poor.load(Ordering::Relaxed);
        let poor = if few { Self::MOST.min(poor + 1) } else { 0 };
        self.poor.store(poor, Ordering::Relaxed);
        self.skip
            .store((1 << poor) >> Self::FREE, Ordering::Relaxed);
    }
}

/// The thread caches of a pool.
pub(super) struct ThreadCaches {
    table: Box<[OnceLock<Arc<ThreadCache>>]>,
    len: AtomicUsize,
    /// Held while the table grows; true when nobody may become an owner any more.
    closed: Mutex<bool>,
}

impl ThreadCaches {
    pub(super) fn new() -> ThreadCaches {
        ThreadCaches {
            table: (0..THREADS).map(|_| OnceLock::new()).collect(),
            len: AtomicUsize::new(0),
            closed: Mutex::new(false),
        }
    }

    pub(super) fn get(&self, index: u16) -> Option<&Arc<ThreadCache>> {
        self.table.get(usize::from(index))?.get()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<ThreadCache>> {
        self.table.iter().map_while(OnceLock::get)
    }

    /// Number of them.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// One for the calling thread, which becomes its owner: one that another thread left, or a
    /// new one. `None` if there are too many or the pool is closed. Waits for other threads that
    /// do the same; once per thread.
    pub(super) fn adopt(
        &self,
        pool: NonNull<Inner>,
        id: u64,
        capacity: usize,
    ) -> Option<Arc<ThreadCache>> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return None;
        }
        // Acquire: pairs with the Release in `leave`.
        let left = |cache: &&Arc<ThreadCache>| cache.remote.vacant.swap(false, Ordering::Acquire);
        if let Some(cache) = self.iter().find(left) {
            return Some(cache.clone());
        }
        let len = self.len();
        let cache = Arc::new(ThreadCache::new(pool, id, short(len), capacity));
        self.table.get(len)?.set(cache.clone()).ok()?;
        self.len.store(len + 1, Ordering::Relaxed);
        Some(cache)
    }

    /// Nobody becomes an owner any more.
    pub(super) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// Enters `caches` as a thief, but for those whose owner is in, until `done`. The caches of a
/// group share one barrier. Returns whether there was one.
pub(super) fn raid<'a>(
    mut caches: impl Iterator<Item = &'a Arc<ThreadCache>>,
    mut visit: impl FnMut(ThiefGuard<'a, Cache>),
    done: impl Fn() -> bool,
) -> bool {
    let mut any = false;
    loop {
        let claims: [_; CLAIMS] =
            std::array::from_fn(|_| caches.find_map(|cache| cache.lock.claim()));
        if claims[0].is_none() {
            return any;
        }
        any = true;
        if !membarrier::heavy() {
            return any;
        }
        for claim in claims.into_iter().flatten() {
            // SAFETY: the barrier succeeded after all the claims.
            unsafe { claim.enter() }.map(&mut visit);
        }
        if done() {
            return any;
        }
    }
}
