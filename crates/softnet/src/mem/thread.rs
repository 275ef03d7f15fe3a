//! The thread caches of the running thread, one for each pool that it uses.
//!
//! [`find`] is the fast path: a table without a destructor, so that looking into it is a load and
//! a comparison. The thread's first pool has an entry of its own, whose address is known without
//! the pool's number: a free gets the number from the packet's slab, and the next allocation,
//! which waits for what the free stores, would otherwise wait for that, too. Entries point to
//! caches that the second table keeps alive; its destructor gives everything back when the thread
//! exits. After that the thread is unregistered (other destructors may still free packets): it
//! uses the depot.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

use super::cache::Cache;
use super::slow::SlowPath;
use super::thread_cache::ThreadCache;
use super::{Inner, close, size};
use crate::sync::OwnerGuard;

/// Entries of the fast table for all pools but the first. A pool gets a free one; if there is none,
/// that of its number modulo this.
const FOUND: usize = 4;

struct Entry {
    /// The pool's number, which is never used again; 0: none.
    id: Cell<u64>,
    /// Valid if there is a number.
    cache: Cell<NonNull<ThreadCache>>,
}

impl Entry {
    /// # Safety
    /// As for [`find`].
    #[inline(always)]
    unsafe fn cache_of<'a>(&self, id: u64) -> Option<&'a ThreadCache> {
        // SAFETY: an entry with the number of a pool has a cache (`register` writes both), which
        // `MINE` keeps.
        (self.id.get() == id).then(|| unsafe { self.cache.get().as_ref() })
    }
}

thread_local! {
    /// The first one is that of the thread's first pool.
    static TABLE: [Entry; 1 + FOUND] = const {
        [const { Entry { id: Cell::new(0), cache: Cell::new(NonNull::dangling()) } }; 1 + FOUND]
    };
    static MINE: RefCell<Mine> = const { RefCell::new(Mine(Vec::new())) };
}

/// The caches that this thread owns.
struct Mine(Vec<Arc<ThreadCache>>);

/// This thread's cache in pool `id`, if it is at hand.
///
/// # Safety
/// The result is used by this thread, and not after it exits or calls [`register`].
#[inline(always)]
pub(super) unsafe fn find<'a>(id: u64) -> Option<&'a ThreadCache> {
    TABLE.with(|table| {
        // SAFETY: by the caller's promise.
        let cache = |entry: &Entry| unsafe { entry.cache_of(id) };
        cache(&table[0]).or_else(|| others(&table[1..], cache))
    })
}

/// As [`find`], in the thread's first pool alone.
///
/// # Safety
/// As for [`find`].
#[inline(always)]
pub(super) unsafe fn find_first<'a>(id: u64) -> Option<&'a ThreadCache> {
    // SAFETY: by the caller's promise.
    TABLE.with(|table| unsafe { table[0].cache_of(id) })
}

/// [`find`] for all pools but the thread's first. Not inlined: its loop costs the first registers.
#[inline(never)]
fn others<'a>(
    entries: &[Entry],
    cache: impl Fn(&Entry) -> Option<&'a ThreadCache>,
) -> Option<&'a ThreadCache> {
    entries.iter().find_map(cache)
}

/// As [`find`], entered.
///
/// # Safety
/// As for [`find`]; the thread is not in it yet.
#[inline(always)]
pub(super) unsafe fn enter<'a>(id: u64) -> Option<(&'a ThreadCache, OwnerGuard<'a, Cache>)> {
    // SAFETY: by the caller's promise. The thread owns what it finds; ownership passes through
    // `vacant`, which orders memory.
    unsafe {
        let thread = find(id)?;
        Some((thread, thread.lock.enter()?))
    }
}

/// This thread's cache in the pool, made if need be. `None` if the thread is exiting, the pool is
/// closed or has too many. Must not be called while the thread is in a cache.
#[cold]
pub(super) fn register<'a>(pool: &Inner) -> Option<&'a ThreadCache> {
    if forget_closed() {
        close::sweep();
    }
    MINE.try_with(|mine| {
        let mut mine = mine.try_borrow_mut().ok()?;
        let cache = match mine.0.iter().find(|cache| cache.id == pool.id) {
            Some(cache) => cache.clone(),
            None => {
                let raw = NonNull::from(pool);
                let cache = pool.threads.adopt(raw, pool.id, pool.capacity)?;
                mine.0.push(cache.clone());
                cache
            }
        };
        TABLE.with(|table| {
            let free = table.iter().find(|entry| entry.id.get() == 0);
            let entry = free.unwrap_or_else(|| &table[1 + size(pool.id) % FOUND]);
            entry.cache.set(NonNull::from(&*cache));
            entry.id.set(pool.id);
        });
        // SAFETY: `MINE` keeps it until the thread exits or registers again.
        Some(unsafe { &*Arc::as_ptr(&cache) })
    })
    .ok()
    .flatten()
}

/// Lets go of the caches of closed pools. Whether there were any: their last packet may have been
/// freed where nobody looked.
fn forget_closed() -> bool {
    let forget_all = |mine: &RefCell<Mine>| {
        let mut mine = mine.try_borrow_mut().ok()?;
        let closed = mine.0.extract_if(.., |cache| cache.lock.is_closed());
        Some(closed.map(|cache| forget(cache.id)).count() > 0)
    };
    MINE.try_with(forget_all).ok().flatten().unwrap_or(false)
}

fn forget(id: u64) {
    TABLE.with(|table| {
        for entry in table.iter().filter(|entry| entry.id.get() == id) {
            entry.id.set(0);
        }
    });
}

impl Drop for Mine {
    /// The thread exits: gives back what its caches hold (INV-BUF-6), and the caches.
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            forget(thread.id);
            // SAFETY: this thread owns it and is not in it: destructors run between, never inside,
            // uses of the pool.
            if let Some(cache) = unsafe { thread.lock.enter() } {
                // SAFETY: the pool is freed only after all its thread caches were seen left.
                let pool = unsafe { thread.pool.as_ref() };
                SlowPath::of(pool, Some(&thread), &cache).give_back();
            }
            // Not in: a thief is (it will leave what it does not need), or the pool is gone.
            // Whatever remains, others can take.
            thread.leave();
        }
        close::sweep();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::testing::small;
    use super::*;

    /// Pools take an entry from each other only where there are more of them than entries.
    #[test]
    fn pools_of_one_thread_do_not_evict_each_other() {
        let pools: Vec<_> = (0..=FOUND + 1).map(|_| small(8)).collect();
        let id = |n: usize| pools[n].inner().id;
        // Of so many after the first two have one number modulo the entries.
        let pairs = (1..pools.len()).flat_map(|a| (1..a).map(move |b| (a, b)));
        let same = |&(a, b): &(usize, usize)| id(a) % FOUND as u64 == id(b) % FOUND as u64;
        let (a, b) = pairs.into_iter().find(same).expect("more than entries");
        for n in [0, a, b] {
            drop(pools[n].alloc());
        }
        for n in [0, a, b] {
            // SAFETY: looked at here only.
            assert!(unsafe { find(id(n)) }.is_some(), "{n}");
        }
    }
}
