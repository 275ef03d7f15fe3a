//! The slow path: everything but what a thread's own cache answers. The thread is in its own
//! cache or, if it is unregistered or cannot enter, counted and with a cache for the moment. As
//! long as either is so, the pool is not freed.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::Cache;
use super::list::Chain;
use super::magazine::Magazine;
use super::stats::Event;
use super::thread_cache::{ThreadCache, UNOWNED, raid};
use super::{Inner, close, thread};
use crate::sync::Sleeping;

/// See the [module](self).
pub(super) struct SlowPath<'a> {
    pub(super) pool: &'a Inner,
    /// `None`: unregistered.
    pub(super) thread: Option<&'a ThreadCache>,
    pub(super) cache: &'a Cache,
    /// To be called after leaving: they may use the pool themselves.
    pub(super) wakers: RefCell<Vec<OwedWake>>,
}

/// A wake-up that is owed to the owner of a thread cache.
pub(super) struct OwedWake {
    pub(super) owner: Arc<ThreadCache>,
    pub(super) sleeping: Sleeping,
}

impl OwedWake {
    /// Sends it, and then notes that: a thread that stands still here takes no wake-up with it.
    fn send(self) {
        if let Some(wake) = self.owner.waker() {
            wake();
        }
        self.owner.remote.notify.told(self.sleeping);
    }
}

/// Runs `f` on the slow path of `pool`.
///
/// # Safety
/// The pool lives at least until `f` has begun: the caller has a handle, or a packet that `f`
/// frees. The thread is not inside.
pub(super) unsafe fn enter<R>(pool: NonNull<Inner>, f: impl FnOnce(&SlowPath<'_>) -> R) -> R {
    // SAFETY: alive by the caller's promise, here and in the next block: `f` may free the last
    // packet. What was found belongs to this thread until it registers again.
    let (thread, unregistered) = unsafe {
        let id = pool.as_ref().id;
        let thread = thread::find(id).or_else(|| thread::register(pool.as_ref()));
        (thread, &raw const (*pool.as_ptr()).unregistered.inside)
    };
    // SAFETY: this thread owns the cache, and is not in it by the caller's promise.
    let entered = thread.and_then(|thread| Some((thread, unsafe { thread.lock.enter()? })));
    let run = |thread, cache: &Cache| {
        // SAFETY: alive, and not freed while we are in a cache of it or counted.
        let pool = unsafe { pool.as_ref() };
        cache.configure(pool.cache_capacity(), pool.defer_limit() > 0);
        let slow = SlowPath::of(pool, thread, cache);
        let result = f(&slow);
        if thread.is_none() {
            slow.spill(cache.len());
        }
        (result, slow.wakers.into_inner())
    };
    let ((result, wakers), closed) = if let Some((thread, cache)) = entered {
        (run(Some(thread), &cache), cache.leave())
    } else {
        // SAFETY: alive, and from then on not freed while we are counted. Acquire and Release:
        // with `Closed::is_complete`.
        unsafe { (*unregistered).fetch_add(1, Ordering::Acquire) };
        let result = run(None, &Cache::new(0));
        // SAFETY: still counted, so alive; nothing of the pool is used after this.
        let before = unsafe { (*unregistered).fetch_sub(1, Ordering::Release) };
        (result, before & close::CLOSED != 0)
    };
    if closed {
        close::sweep();
    }
    wakers.into_iter().for_each(OwedWake::send);
    result
}

impl<'a> SlowPath<'a> {
    pub(super) fn of(pool: &'a Inner, thread: Option<&'a ThreadCache>, cache: &'a Cache) -> Self {
        SlowPath {
            pool,
            thread,
            cache,
            wakers: RefCell::default(),
        }
    }

    /// Counts an event: for this thread, or for all unregistered ones.
    pub(super) fn count(&self, event: Event, by: usize) {
        match self.thread {
            Some(thread) => thread.counters.bump(event, by),
            None => self.pool.unregistered.counters.add(event, by),
        }
    }

    /// The number that buffers allocated here have as their owner.
    pub(super) fn index(&self) -> u16 {
        self.thread.map_or(UNOWNED, |thread| thread.index)
    }

    /// Up to `n` buffers as fresh packets. Fewer than `n` only if the cache had no more: call
    /// again. `None` if there is nothing left in the whole pool.
    pub(super) fn alloc(&self, n: usize) -> Option<Chain> {
        if self.cache.len() == 0 && !self.refill(n) {
            self.count(Event::Exhausted, 1);
            return None;
        }
        let chain = self.cache.take(n, self.index())?;
        if self.thread.is_none() {
            // A thread's cache counts by itself.
            self.count(Event::Allocated, chain.len);
        }
        Some(chain)
    }

    /// Puts a magazine into the depot.
    pub(super) fn store(&self, magazine: Magazine) {
        self.count(Event::DepotOp, 1);
        self.pool.depot.push(&self.pool.arena, magazine);
    }

    /// Takes a magazine into the cache, or puts it into the depot if it does not fit.
    pub(super) fn accept(&self, magazine: Magazine) {
        if let Err(magazine) = self.cache.load(magazine) {
            self.store(magazine);
        }
    }

    /// Gives the `n` oldest buffers of the cache to the depot.
    pub(super) fn spill(&self, n: usize) {
        self.cache
            .spill(n, self.pool.batch, |magazine| self.store(magazine));
    }

    /// Takes a magazine out of the depot into the empty or nearly empty cache. False if there is
    /// none.
    fn unload_depot(&self) -> bool {
        let magazine = self.pool.depot.pop(&self.pool.arena);
        self.count(Event::DepotOp, usize::from(magazine.is_some()));
        magazine.map(|magazine| self.accept(magazine)).is_some()
    }

    /// Fills the empty cache: from the remote-free list, from the depot, with buffers never used,
    /// from what was freed here for other owners, and at last from other threads. False if
    /// nothing was found anywhere.
    #[cold]
    fn refill(&self, want: usize) -> bool {
        let pool = self.pool;
        self.drain();
        while self.cache.len() < want.min(pool.batch) && self.unload_depot() {}
        if self.cache.len() == 0 {
            let carved = pool.depot.carve(&pool.arena, pool.batch, |header| {
                self.cache.push(header);
            });
            self.count(Event::DepotOp, usize::from(carved > 0));
        }
        if self.cache.len() == 0 {
            self.take_outgoing(self.cache);
        }
        self.cache.len() > 0 || self.steal()
    }

    /// Takes what a cache has for other owners.
    fn take_outgoing(&self, cache: &Cache) {
        let magazines = cache
            .outgoing()
            .iter()
            .filter_map(|outgoing| outgoing.take());
        magazines.for_each(|magazine| self.accept(magazine));
    }

    /// Nothing is stranded: takes from remote-free lists first, which is free, and then from the
    /// caches of threads that are not in the pool at this moment (asleep, preempted elsewhere, or
    /// simply slower): not each time where that finds [little](super::thread_cache::Raids).
    fn steal(&self) -> bool {
        let pool = self.pool;
        for thread in pool.threads.iter() {
            self.take_remote_free(thread);
            if self.cache.len() > 0 {
                return true;
            }
        }
        let raids = self
            .thread
            .map_or(&pool.unregistered.raids, |thread| &thread.raids);
        if !raids.may() {
            return false;
        }
        let others = pool.threads.iter();
        let others = others.filter(|t| t.index != self.index() && t.cached() != (0, 0));
        let steal = |victim: &Cache| {
            self.count(Event::Stolen, victim.len() + victim.outgoing_len());
            victim.spill(victim.len(), pool.batch, |magazine| self.accept(magazine));
            self.take_outgoing(victim);
        };
        if raid(others, |victim| steal(&victim), || self.cache.len() > 0) {
            raids.note(self.cache.len() < pool.batch);
        }
        if self.cache.len() == 0 {
            // Another thread that did the same may have put back what it did not need.
            self.unload_depot();
        }
        self.cache.len() > 0
    }

    /// The thread exits: empties its cache and its remote-free list into the depot.
    pub(super) fn give_back(&self) {
        self.spill(self.cache.len());
        for outgoing in self.cache.outgoing() {
            outgoing.take().into_iter().for_each(|m| self.store(m));
        }
        // What comes now goes to the depot.
        self.cache.configure(0, true);
        if let Some(thread) = self.thread {
            self.take_remote_free(thread);
        }
    }
}
