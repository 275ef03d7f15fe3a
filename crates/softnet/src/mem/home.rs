//! Homes: each thread that uses a pool has one there, with a cache of its own and an inbox for what others freed.
//!
//! Invariant: a home has at most one owner, the thread that changed `vacant` from true to false and has not changed it back; its number is
//! below [`HOMES`] and the same for the life of the pool (INV-BUF-11). The inbox holds at most the pool's limit (INV-BUF-5): the bound
//! is exact, since the list counts in the exchange that pushes. Anybody may empty it, so nothing in it is stranded.
//!
//! A home outlives its pool while a thread is registered with it: it is then closed, and nobody goes in any more.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, ptr};

use crossbeam_utils::CachePadded;

use super::Header;
use super::Inner;
use super::cache::Cache;
use crate::sync::{AdoptionList, Biased, Notify, OwnerGuard};

/// Homes of a pool at most. Further threads go to the depot.
pub(super) const HOMES: usize = 1024;
/// The home of packets that were allocated without one.
pub(super) const NOWHERE: u16 = u16::MAX;

/// Wakes the owner of a home.
pub(super) type Waker = Arc<dyn Fn() + Send + Sync>;

/// See the [module](self).
#[repr(C)]
pub(super) struct Home {
    /// Written by who holds the lock; monotonic.
    pub(super) freed: AtomicU64,
    pub(super) index: u16,
    pub(super) lock: Biased<Cache>,
    /// What others write is on lines of its own.
    pub(super) remote: CachePadded<Remote>,
    pub(super) pool: NonNull<Inner>,
    pub(super) id: u64,
    /// Written by who holds the lock.
    pub(super) counts: Counts,
    /// Whether `notify` was told that the owner sleeps. Written by the owner.
    pub(super) sleeping: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// What happened off the fast path: monotonic.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Buffers sent to the inboxes of their homes.
    pub(super) sent_home: AtomicU64,
    /// Buffers that were not, for want of room or of an owner.
    pub(super) bypassed: AtomicU64,
    /// Buffers taken from the own inbox.
    pub(super) drained: AtomicU64,
    /// Exchanges with the depot: a bundle put in, a bundle taken out, or some buffers never used before.
    pub(super) depot_ops: AtomicU64,
}

/// What other threads write.
pub(super) struct Remote {
    pub(super) inbox: AdoptionList<Header>,
    pub(super) notify: Notify,
    pub(super) vacant: AtomicBool,
    pub(super) kicks: AtomicU64,
}

// SAFETY: the inbox holds buffers that belong to the list, the lock guards the cache, and `pool` is used only where that is argued (`Inner`'s
// own documentation); the rest is atomic or never changes.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    fn new(pool: NonNull<Inner>, id: u64, index: u16, capacity: usize) -> Home {
        Home {
            freed: AtomicU64::new(0),
            index,
            lock: Biased::new(Cache::new(capacity)),
            remote: CachePadded::new(Remote {
                inbox: AdoptionList::new(),
                notify: Notify::new(),
                vacant: AtomicBool::new(false),
                kicks: AtomicU64::new(0),
            }),
            pool,
            id,
            counts: Counts::default(),
            sleeping: AtomicBool::new(false),
            waker: Mutex::new(None),
        }
    }

    /// The owner goes in.
    ///
    /// # Safety
    /// The caller is the owner and not in yet.
    #[inline(always)]
    pub(super) unsafe fn enter(&self) -> Option<OwnerGuard<'_, Cache>> {
        // SAFETY: by the caller's promise. Ownership passes through `vacant`, which orders memory.
        unsafe { self.lock.enter() }
    }

    /// The counts of the cache: ready, in outboxes. A recent value.
    pub(super) fn cached(&self) -> (usize, usize) {
        // SAFETY: these counts are atomics made for this, and nothing ever makes a `&mut Cache` of a home.
        let cache = unsafe { self.lock.peek() };
        (cache.recent_len(), cache.parked())
    }

    /// Buffers allocated here so far.
    pub(super) fn allocated(&self) -> u64 {
        // SAFETY: as in `cached`.
        unsafe { self.lock.peek() }.taken()
    }

    pub(super) fn set_waker(&self, waker: Option<Waker>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }

    pub(super) fn waker(&self) -> Option<Waker> {
        self.waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Lets the next thread have the home.
    pub(super) fn leave(&self) {
        self.set_waker(None);
        self.sleeping.store(false, Ordering::Relaxed);
        self.remote.notify.awake();
        self.remote.vacant.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// The owner's counters are written by one thread at a time: no need for an atomic addition.
#[inline(always)]
pub(super) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

/// The homes of a pool.
pub(super) struct Homes {
    table: Box<[AtomicPtr<Home>]>,
    len: AtomicUsize,
    /// Held while the table grows; true when no home may be taken any more.
    closed: Mutex<bool>,
}

impl fmt::Debug for Homes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Homes")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Homes {
    pub(super) fn new() -> Homes {
        Homes {
            table: (0..HOMES)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            len: AtomicUsize::new(0),
            closed: Mutex::new(false),
        }
    }

    /// Home `index`, if there is one.
    pub(super) fn get(&self, index: u16) -> Option<&Home> {
        let home = self.table.get(usize::from(index))?.load(Ordering::Acquire);
        // SAFETY: entries are set once, from an `Arc` that lives as long as the table.
        NonNull::new(home).map(|home| unsafe { home.as_ref() })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Home> {
        (0..self.len.load(Ordering::Acquire) as u16).filter_map(|index| self.get(index))
    }

    /// A home for the calling thread, which becomes its owner: one that another thread left, or a new one. `None` if there are too
    /// many or the pool is closed. Waits for other threads that do the same; once per thread.
    pub(super) fn adopt(
        &self,
        pool: NonNull<Inner>,
        id: u64,
        capacity: usize,
    ) -> Option<Arc<Home>> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return None;
        }
        for home in self.iter() {
            let vacant = &home.remote.vacant;
            // Acquire: pairs with the Release in `leave`.
            if vacant.load(Ordering::Relaxed) && vacant.swap(false, Ordering::Acquire) {
                let home: *const Home = self.table[usize::from(home.index)].load(Ordering::Relaxed);
                // SAFETY: the table holds a reference made by `Arc::into_raw`.
                return Some(unsafe {
                    Arc::increment_strong_count(home);
                    Arc::from_raw(home)
                });
            }
        }
        let len = self.len.load(Ordering::Relaxed);
        let entry = self.table.get(len)?;
        let home = Arc::new(Home::new(pool, id, len as u16, capacity));
        entry.store(Arc::into_raw(home.clone()).cast_mut(), Ordering::Release);
        self.len.store(len + 1, Ordering::Release);
        Some(home)
    }

    /// Homes made so far.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Nobody becomes an owner any more.
    pub(super) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

impl Drop for Homes {
    fn drop(&mut self) {
        for entry in &mut self.table {
            let home = *entry.get_mut();
            if !home.is_null() {
                // SAFETY: made by `Arc::into_raw` in `adopt`, given up once here.
                drop(unsafe { Arc::from_raw(home.cast_const()) });
            }
        }
    }
}
