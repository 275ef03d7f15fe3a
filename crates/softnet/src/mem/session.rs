//! A thread inside a pool: everything but the fast paths. The thread is in its own home or, if it has none or cannot get in, outside with
//! a cache for the moment. As long as it is in either, the pool is not freed.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Header;
use super::cache::{Cache, Chain, prefetch};
use super::home::{Counts, Home, NOWHERE, Waker, bump};
use super::{Inner, close, magazine, thread};
use crate::sync::{Claim, membarrier};

/// Homes claimed with one barrier.
const CLAIMS: usize = 16;

/// Threads in a pool without a home, and what they did.
#[derive(Debug, Default)]
pub(super) struct Outside {
    inside: AtomicUsize,
    pub(super) allocated: AtomicU64,
    pub(super) freed: AtomicU64,
    pub(super) counts: Counts,
}

impl Outside {
    /// Whether nobody is in. With Acquire, so that what they did is seen.
    pub(super) fn is_empty(&self) -> bool {
        self.inside.load(Ordering::Acquire) == 0
    }
}

/// See the [module](self).
pub(super) struct Session<'a> {
    pool: &'a Inner,
    /// `None`: outside.
    home: Option<&'a Home>,
    cache: &'a Cache,
    /// To be called after leaving: they may use the pool themselves.
    wakers: &'a RefCell<Vec<Waker>>,
}

/// Runs `f` inside `pool`.
///
/// # Safety
/// The pool lives at least until `f` has begun: the caller has a handle, or a packet that `f` frees. The thread is not inside.
pub(super) unsafe fn enter<R>(pool: NonNull<Inner>, f: impl FnOnce(&Session<'_>) -> R) -> R {
    let wakers = RefCell::new(Vec::new());
    // SAFETY: alive by the caller's promise. Not used beyond this line: `f` may free the last packet.
    let home =
        unsafe { thread::find(pool.as_ref().id).or_else(|| thread::register(pool.as_ref())) };
    // SAFETY: a home that was found belongs to this thread until it registers again.
    let home = home.map(|home| unsafe { home.as_ref() });
    let result;
    let closed;
    // SAFETY: this thread owns the home, and is not in it by the caller's promise.
    if let Some((home, guard)) = home.and_then(|home| Some((home, unsafe { home.enter()? }))) {
        {
            // SAFETY: alive, and not freed while we are in the home.
            let pool = unsafe { pool.as_ref() };
            guard.set_capacity(pool.cache_capacity());
            result = f(&Session {
                pool,
                home: Some(home),
                cache: &guard,
                wakers: &wakers,
            });
            closed = pool.is_closed();
        }
        drop(guard);
    } else {
        // SAFETY: alive by the caller's promise.
        let outside = unsafe { &raw const (*pool.as_ptr()).outside.inside };
        // SAFETY: alive. Acquire and Release: with `Outside::is_empty`.
        unsafe { (*outside).fetch_add(1, Ordering::Acquire) };
        {
            // SAFETY: alive, and not freed while we are counted.
            let pool = unsafe { pool.as_ref() };
            let cache = Cache::new(pool.capacity);
            let session = Session {
                pool,
                home: None,
                cache: &cache,
                wakers: &wakers,
            };
            result = f(&session);
            cache.spill(cache.len(), pool.batch, |bundle| session.shelve(bundle));
            closed = pool.is_closed();
        }
        // SAFETY: still counted, so alive; nothing of the pool is used after this.
        unsafe { (*outside).fetch_sub(1, Ordering::Release) };
    }
    wakers.into_inner().into_iter().for_each(|wake| wake());
    if closed {
        close::sweep_if_idle();
    }
    result
}

impl Session<'_> {
    pub(super) fn pool(&self) -> &Inner {
        self.pool
    }

    /// The number that buffers allocated here have as their home.
    fn index(&self) -> u16 {
        self.home.map_or(NOWHERE, |home| home.index)
    }

    /// Up to `n` buffers as fresh packets. Fewer than `n` only if the cache had no more: call again.
    /// `None` if there is nothing left in the whole pool.
    pub(super) fn alloc(&self, n: usize) -> Option<Chain> {
        if self.cache.len() == 0 && !self.refill(n) {
            return None;
        }
        let chain = self.cache.take(n, self.index())?;
        if self.home.is_none() {
            // A home's cache counts by itself.
            let allocated = &self.pool.outside.allocated;
            allocated.fetch_add(chain.len as u64, Ordering::Relaxed);
        }
        Some(chain)
    }

    /// Takes a buffer back.
    ///
    /// # Safety
    /// The buffer is of this pool, the caller owns it and gives it up; it is no part of a chain, not shared, and in its own memory.
    pub(super) unsafe fn free(&self, header: NonNull<Header>) {
        // SAFETY: still ours.
        let belongs = unsafe { (*header.as_ptr()).home };
        match self.home {
            Some(home) => {
                bump(&home.freed, 1);
                let limit = self.pool.park_limit();
                if belongs != home.index && belongs != NOWHERE && limit > 0 {
                    if self.cache.len() < self.cache.keep_below() && self.cache.push(header) {
                        return;
                    }
                    let remote = || Some(NonNull::from(&*self.pool.homes.get(belongs)?.remote));
                    self.cache
                        .park(header, belongs, limit, remote, |to, bundle| {
                            self.cache.decide(self.pool.batch);
                            self.deliver(to, bundle);
                        });
                    return;
                }
            }
            None => drop(self.pool.outside.freed.fetch_add(1, Ordering::Release)),
        }
        if !self.cache.push(header) {
            // Half goes, half stays (INV-BUF-3).
            let keep = self.pool.cache_capacity() / 2;
            let spilled = self.cache.len().saturating_sub(keep);
            self.cache
                .spill(spilled, self.pool.batch, |bundle| self.shelve(bundle));
            self.cache.push(header);
        }
    }

    /// Counts an event: for the home that this thread owns, or for all threads outside.
    fn count(&self, of: fn(&Counts) -> &AtomicU64, by: usize) {
        match self.home {
            Some(home) => bump(of(&home.counts), by as u64),
            None => drop(of(&self.pool.outside.counts).fetch_add(by as u64, Ordering::Relaxed)),
        }
    }

    /// Puts a bundle into the depot.
    fn shelve(&self, bundle: NonNull<Header>) {
        self.count(|counts| &counts.depot_ops, 1);
        // SAFETY: bundles handed around in a session are ours and of this pool.
        unsafe { self.pool.depot.push(&self.pool.arena, bundle) };
    }

    /// Takes a bundle out of the depot into the empty or nearly empty cache. False if there is none.
    fn unshelve(&self) -> bool {
        let Some(bundle) = self.pool.depot.pop(&self.pool.arena) else {
            return false;
        };
        self.count(|counts| &counts.depot_ops, 1);
        self.accept(bundle);
        true
    }

    /// Sends a bundle home, or to the depot if nobody lives there or the inbox is full.
    fn deliver(&self, home: u16, bundle: NonNull<Header>) {
        // SAFETY: ours; a home it was sent to may have it at once, so its size is read before.
        let n = unsafe { magazine::size(bundle) };
        let limit = self.pool.defer_max();
        let home = self
            .pool
            .homes
            .get(home)
            .inspect(|home| prefetch(NonNull::from(&home.remote)))
            .filter(|home| thread::is_occupied(home));
        let Some(home) = home.filter(|home| {
            // SAFETY: ours, a chain of one node that stands for `n` buffers; given up if this returns true.
            n <= limit && unsafe { home.remote.inbox.push(bundle, bundle, n, limit) }.is_some()
        }) else {
            self.count(|counts| &counts.bypassed, n);
            return self.shelve(bundle);
        };
        self.count(|counts| &counts.sent_home, n);
        // From half the bound on, a sleeping home is woken; `Notify` lets one of us do that, once per sleep.
        if home.remote.inbox.len() >= limit.div_ceil(2) && home.remote.notify.notify() {
            home.remote.kicks.fetch_add(1, Ordering::Relaxed);
            self.wakers.borrow_mut().extend(home.waker());
        }
    }

    /// Sends away what was freed here for other homes.
    pub(super) fn flush(&self) {
        self.cache
            .unpark_all(|home, bundle| self.deliver(home, bundle));
    }

    /// Takes in what others freed for this home.
    pub(super) fn drain(&self) {
        let Some(home) = self.home else { return };
        prefetch(NonNull::from(&home.remote));
        let before = self.cache.len();
        home.remote.inbox.take(|bundle| self.accept(bundle));
        bump(&home.counts.drained, (self.cache.len() - before) as u64);
        self.cache.warm();
    }

    /// Takes a bundle into the cache, or puts it into the depot if it does not fit.
    fn accept(&self, bundle: NonNull<Header>) {
        // SAFETY: ours.
        if !unsafe { self.cache.unpack(bundle) } {
            self.shelve(bundle);
        }
    }

    /// Fills the empty cache: from the inbox, from the depot, with buffers never used, from what was freed here for other homes, and
    /// at last from other threads' homes. False if nothing was found anywhere.
    #[cold]
    fn refill(&self, want: usize) -> bool {
        self.drain();
        let pool = self.pool;
        while self.cache.len() < want.min(pool.batch) && self.unshelve() {}
        if self.cache.len() == 0 {
            let carved = pool.depot.carve(&pool.arena, pool.batch, |header| {
                self.cache.push(header);
            });
            self.count(|counts| &counts.depot_ops, usize::from(carved > 0));
        }
        if self.cache.len() == 0 {
            self.cache.unpark_all(|_, bundle| self.accept(bundle));
        }
        self.cache.len() > 0 || self.steal()
    }

    /// Nothing is stranded: takes from inboxes first, which is free, and then from the caches of threads that are not in the pool at
    /// this moment (asleep, preempted elsewhere, or simply slower).
    fn steal(&self) -> bool {
        let pool = self.pool;
        for home in pool.homes.iter() {
            home.remote.inbox.take(|bundle| self.accept(bundle));
            if self.cache.len() > 0 {
                return true;
            }
        }
        let mut homes = pool.homes.iter().filter(|home| home.index != self.index());
        loop {
            let mut claims: [Option<Claim<'_, Cache>>; CLAIMS] = [const { None }; CLAIMS];
            let mut claimed = 0;
            while claimed < CLAIMS {
                let Some(home) = homes.next() else { break };
                if home.cached() != (0, 0)
                    && let Some(claim) = home.lock.claim()
                {
                    claims[claimed] = Some(claim);
                    claimed += 1;
                }
            }
            if claimed == 0 || !membarrier::heavy() {
                break;
            }
            for claim in claims.iter_mut().filter_map(Option::take) {
                // SAFETY: the barrier succeeded after all the claims.
                let Some(victim) = (unsafe { claim.enter() }) else {
                    continue;
                };
                let before = victim.len() + victim.parked();
                victim.spill(victim.len(), pool.batch, |bundle| self.accept(bundle));
                victim.unpark_all(|_, bundle| self.accept(bundle));
                pool.stolen.fetch_add(before as u64, Ordering::Relaxed);
            }
            if self.cache.len() > 0 {
                return true;
            }
        }
        // Another thread that did the same may have put back what it did not need.
        self.unshelve();
        self.cache.len() > 0
    }

    /// The owner goes to sleep. False if there is a reason not to.
    pub(super) fn prepare_sleep(&self) -> bool {
        self.flush();
        self.drain();
        let Some(home) = self.home else { return true };
        home.sleeping.store(true, Ordering::Relaxed);
        home.remote.notify.prepare();
        // The look after the announcement: with `Notify`, none is lost.
        if home.remote.inbox.len() >= self.pool.defer_max().div_ceil(2).max(1) {
            self.awake();
            return false;
        }
        true
    }

    pub(super) fn awake(&self) {
        if let Some(home) = self.home
            && home.sleeping.load(Ordering::Relaxed)
        {
            home.sleeping.store(false, Ordering::Relaxed);
            home.remote.notify.awake();
        }
    }
}

impl Inner {
    /// Empties the home of a thread that exits. The thread is in it.
    pub(super) fn give_back(&self, home: &Home, cache: &Cache) {
        let shelve = |bundle| {
            bump(&home.counts.depot_ops, 1);
            // SAFETY: the bundles come out of this pool's cache and inbox, which gave them to us.
            unsafe { self.depot.push(&self.arena, bundle) };
        };
        cache.spill(cache.len(), self.batch, shelve);
        cache.unpark_all(|_, bundle| shelve(bundle));
        home.remote.inbox.take(shelve);
    }
}
