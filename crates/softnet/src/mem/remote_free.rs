//! Remote frees: how buffers come back to the thread that owns them; how that thread sleeps and is
//! woken; and the bound.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::Outgoing;
use super::magazine::Magazine;
use super::slow::{self, OwedWake, SlowPath};
use super::stats::Event;
use super::thread_cache::ThreadCache;
use super::{Inner, Pool, thread};
use crate::sync::{Chain, Sleeping, prefetch_for_write};

impl Pool {
    /// Buffers that a thread's remote-free list holds at most (`skb_defer_max`); more go to the
    /// depot. 0 turns deferred freeing off: every buffer stays with the thread that frees it.
    /// Applies to frees from now on. At most 32,768.
    pub fn set_defer_max(&self, buffers: usize) {
        let pool = self.inner();
        let max = buffers.min(1 << 15);
        pool.defer_max.store(max, Ordering::Relaxed);
        let limit = max.min(pool.batch);
        pool.defer_limit.store(limit, Ordering::Relaxed);
    }

    /// To be called by a thread at the start of a poll and after a sleep: takes in the buffers
    /// that other threads have freed for it. Costs a few nanoseconds if there are none. A thread
    /// that never calls this takes them in when its cache is empty.
    #[inline]
    pub fn poll_remote_free(&self) {
        // SAFETY: used here only.
        if let Some(thread) = unsafe { thread::find(self.id) }
            && thread.remote.list.is_empty()
            && !thread.asleep.load(Ordering::Relaxed)
        {
            return;
        }
        // SAFETY: we have a handle, and are not inside.
        unsafe {
            slow::enter(self.inner.0, |slow| {
                slow.thread.map(ThreadCache::awake);
                slow.drain();
            });
        }
    }

    /// To be called by a thread before it sleeps: sends off what it freed for others and allows
    /// its [waker](Pool::set_waker) to be called. False: do not sleep, buffers have come
    /// meanwhile. Call [`poll_remote_free`](Pool::poll_remote_free) when awake again.
    pub fn prepare_sleep(&self) -> bool {
        // SAFETY: we have a handle, and are not inside.
        unsafe { slow::enter(self.inner.0, |slow| slow.prepare_sleep()) }
    }

    /// Sets what is called when this thread sleeps ([`prepare_sleep`](Pool::prepare_sleep)) and
    /// its remote-free list is half full: once per sleep, or by several threads at the same
    /// moment, on the thread that freed the packet. It should make this thread call
    /// [`poll_remote_free`](Pool::poll_remote_free). Forgotten when the thread exits.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(thread) = thread::register(self.inner()) {
            thread.set_waker(Some(Arc::new(wake)));
        }
    }
}

impl Inner {
    fn defer_max(&self) -> usize {
        self.defer_max.load(Ordering::Relaxed)
    }

    /// Buffers from which on a sleeping owner is woken.
    fn wake_at(&self) -> usize {
        self.defer_max().div_ceil(2).max(1)
    }
}

impl SlowPath<'_> {
    /// Sends a magazine to its owner, or to the depot if the owner is gone or its list full.
    pub(super) fn deliver(&self, outgoing: &Outgoing) {
        let Some(magazine) = outgoing.take() else {
            return;
        };
        let (n, limit) = (magazine.len(), self.pool.defer_max());
        let to = self.pool.threads.get(outgoing.owner()).filter(|thread| {
            prefetch_for_write(&raw const thread.remote);
            let chain = Chain::one(magazine.as_raw());
            // SAFETY: ours, a chain of one node that stands for `n` buffers; given up if this is
            // true.
            n <= limit
                && !thread.remote.vacant.load(Ordering::Relaxed)
                && unsafe { thread.remote.list.push(&chain, n, limit) }.is_some()
        });
        let Some(thread) = to else {
            self.count(Event::Bypassed, n);
            return self.store(magazine);
        };
        self.count(Event::RemoteFreed, n);
        if thread.remote.list.len() >= self.pool.wake_at()
            && let Some(sleeping) = thread.remote.notify.sleeping()
        {
            self.wake_later(thread, sleeping);
        }
    }

    /// Has the owner of a thread cache woken when this thread has left the pool.
    #[cold]
    fn wake_later(&self, thread: &Arc<ThreadCache>, sleeping: Sleeping) {
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|owed| owed.owner.index == thread.index) {
            self.count(Event::Kick, 1);
            wakers.push(OwedWake {
                owner: thread.clone(),
                sleeping,
            });
        }
    }

    /// Takes what others freed for `thread`.
    pub(super) fn take_remote_free(&self, thread: &ThreadCache) {
        let list = &thread.remote.list;
        // SAFETY: the nodes of the list are magazines, pushed one by one; `take` gives them to us.
        list.take(|chain| self.accept(unsafe { Magazine::from_raw(chain.head) }));
    }

    /// Takes in what others freed for this thread.
    pub(super) fn drain(&self) {
        let Some(thread) = self.thread else { return };
        prefetch_for_write(&raw const thread.remote);
        let before = self.cache.len();
        self.take_remote_free(thread);
        self.count(Event::Drained, self.cache.len() - before);
        self.cache.warm();
    }

    /// The owner goes to sleep. False if there is a reason not to.
    fn prepare_sleep(&self) -> bool {
        for outgoing in self.cache.outgoing() {
            self.deliver(outgoing);
        }
        self.drain();
        let Some(thread) = self.thread else {
            return true;
        };
        thread.asleep.store(true, Ordering::Relaxed);
        thread.remote.notify.prepare();
        // The look after the announcement: with `Notify`, none is lost.
        let sleep = thread.remote.list.len() < self.pool.wake_at();
        if !sleep {
            thread.awake();
        }
        sleep
    }
}
