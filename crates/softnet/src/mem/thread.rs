//! The homes of the running thread, one for each pool that it uses.
//!
//! [`find`] is the fast path: a table without a destructor, so that looking into it is a load and a comparison. The thread's first pool has an entry
//! of its own, whose address is known without the pool's number: a free gets the number from the packet's slab, and the next allocation, which waits for
//! what the free stores, would otherwise wait for that, too. Entries point to
//! homes that the second table keeps alive; its destructor gives everything back when the thread exits. After that the
//! thread has no homes any more (other destructors may still free packets): they go to the depot.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Inner;
use super::home::Home;

/// Entries of the fast table for all pools but the first; a pool uses the one of its number modulo this.
const FOUND: usize = 4;

struct Entry {
    /// The pool's number, which is never used again; 0: none.
    id: Cell<u64>,
    home: Cell<*const Home>,
}

impl Entry {
    const fn new() -> Entry {
        Entry {
            id: Cell::new(0),
            home: Cell::new(std::ptr::null()),
        }
    }

    /// The home, if the entry is pool `id`'s.
    #[inline(always)]
    fn home(&self, id: u64) -> Option<NonNull<Home>> {
        if self.id.get() == id {
            // SAFETY: numbers of pools are not 0, and an entry with one has a home (`set` writes both).
            Some(unsafe { NonNull::new_unchecked(self.home.get().cast_mut()) })
        } else {
            None
        }
    }

    fn set(&self, home: &Arc<Home>) {
        self.home.set(Arc::as_ptr(home));
        self.id.set(home.id);
    }

    fn forget(&self, id: u64) {
        if self.id.get() == id {
            self.id.set(0);
        }
    }
}

struct Table {
    first: Entry,
    others: [Entry; FOUND],
}

thread_local! {
    static TABLE: Table =
        const { Table { first: Entry::new(), others: [const { Entry::new() }; FOUND] } };
    static MINE: RefCell<Mine> = const { RefCell::new(Mine(Vec::new())) };
}

/// The homes that this thread owns.
struct Mine(Vec<Arc<Home>>);

/// This thread's home in pool `id`, if it has one at hand. It lives and belongs to this thread until the thread exits or calls [`register`].
#[inline(always)]
pub(super) fn find(id: u64) -> Option<NonNull<Home>> {
    TABLE.with(|table| match table.first.home(id) {
        None => table.others[id as usize % FOUND].home(id),
        found => found,
    })
}

/// This thread's home in pool `id`, if it has one. To be used where being slow does no harm: it is not at hand if another pool has taken its entry.
#[cold]
pub(super) fn find_anywhere(id: u64) -> Option<Arc<Home>> {
    MINE.try_with(|mine| {
        let mine = mine.try_borrow().ok()?;
        mine.0.iter().find(|home| home.id == id).cloned()
    })
    .ok()
    .flatten()
}

/// This thread's home in the pool, made if need be. `None` if the thread is exiting, the pool is closed or has too many homes.
/// Must not be called while the thread is in a home.
#[cold]
pub(super) fn register(pool: &Inner) -> Option<NonNull<Home>> {
    MINE.try_with(|mine| {
        let mut mine = mine.try_borrow_mut().ok()?;
        mine.0.retain(|home| {
            let keep = !home.lock.is_closed();
            if !keep {
                forget(home.id);
            }
            keep
        });
        let home = match mine.0.iter().find(|home| home.id == pool.id) {
            Some(home) => home.clone(),
            None => {
                let home = pool
                    .homes
                    .adopt(NonNull::from(pool), pool.id, pool.capacity)?;
                mine.0.push(home.clone());
                home
            }
        };
        TABLE.with(|table| {
            if table.first.id.get() == 0 {
                table.first.set(&home);
            } else {
                table.others[pool.id as usize % FOUND].set(&home);
            }
        });
        Some(NonNull::from(&*home))
    })
    .ok()
    .flatten()
}

fn forget(id: u64) {
    TABLE.with(|table| {
        table.first.forget(id);
        table.others[id as usize % FOUND].forget(id);
    });
}

impl Drop for Mine {
    /// The thread exits: gives back what its homes hold (INV-BUF-6), and the homes.
    fn drop(&mut self) {
        for home in self.0.drain(..) {
            forget(home.id);
            // SAFETY: this thread owns the home and is not in it: destructors run between, never inside, uses of the pool.
            if let Some(cache) = unsafe { home.enter() } {
                // SAFETY: the pool is freed only after it has closed all its homes, which it cannot while we are in one.
                let pool = unsafe { home.pool.as_ref() };
                pool.give_back(&home, &cache);
            }
            // Not in: a thief is (it will leave what it does not need), or the pool is gone. Whatever remains, others can take.
            home.leave();
        }
    }
}

/// Whether `home` belongs to a thread.
pub(super) fn is_occupied(home: &Home) -> bool {
    !home.remote.vacant.load(Ordering::Relaxed)
}
