//! The caches in front of the depot.
//!
//! Invariant: each free buffer is in exactly one cache or in the depot (INV-BUF-1, INV-BUF-2), and a cache holds at most
//! [`CACHE`] (INV-BUF-3). A cache is entered by [`TryLock`] only: who finds it taken goes to the next one.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use crate::packet::Header;
use crate::sync::TryLock;

/// Buffers that move between a cache and the depot at once (the kernel's NAPI cache moves 32).
pub(super) const MAGAZINE: usize = 32;
/// Buffers a cache holds at most.
const CACHE: usize = 128;
/// Caches in a pool; a thread uses the one of its number modulo this.
const CACHES: usize = 16;

type Buffer = Option<NonNull<Header>>;

#[derive(Debug)]
struct Cache {
    buffers: [Buffer; CACHE],
    len: usize,
}

/// Free buffers in magazines.
#[derive(Debug, Default)]
struct Depot {
    full: Vec<Box<[Buffer; MAGAZINE]>>,
    empty: Vec<Box<[Buffer; MAGAZINE]>>,
    /// Fewer than a magazine.
    loose: Vec<Buffer>,
}

#[derive(Debug)]
pub(super) struct Caches {
    caches: Box<[CachePadded<TryLock<Cache>>]>,
    depot: Mutex<Depot>,
}

// SAFETY: the pointers in caches and depot are buffers owned by whoever holds the lock around them.
unsafe impl Send for Caches {}
// SAFETY: as above; all access goes through `TryLock` or `Mutex`.
unsafe impl Sync for Caches {}

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of this thread's cache.
fn slot() -> usize {
    SLOT.with(|slot| {
        if slot.get() == usize::MAX {
            slot.set(NEXT.fetch_add(1, Ordering::Relaxed) % CACHES);
        }
        slot.get()
    })
}

impl Caches {
    pub(super) fn new() -> Caches {
        let cache = || CachePadded::new(TryLock::new(Cache { buffers: [None; CACHE], len: 0 }));
        Caches {
            caches: (0..CACHES).map(|_| cache()).collect(),
            depot: Mutex::new(Depot::default()),
        }
    }

    /// Puts a new pool's buffers into the depot.
    pub(super) fn fill(&self, mut headers: impl Iterator<Item = NonNull<Header>>) {
        let mut depot = self.depot();
        loop {
            let mut magazine = Box::new([None; MAGAZINE]);
            let n = magazine.iter_mut().zip(&mut headers).map(|(m, h)| *m = Some(h)).count();
            if n < MAGAZINE {
                depot.loose.extend(&magazine[..n]);
                return;
            }
            depot.full.push(magazine);
        }
    }

    fn depot(&self) -> MutexGuard<'_, Depot> {
        self.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caches, this thread's own first.
    fn each(&self) -> impl Iterator<Item = (usize, &TryLock<Cache>)> {
        let own = slot();
        (own..own + CACHES).map(|i| (i % CACHES, &*self.caches[i % CACHES]))
    }

    /// Fills `out` from the front; returns how many were found, and the home they belong to.
    pub(super) fn alloc(&self, out: &mut [Buffer]) -> (usize, u16) {
        for (index, cache) in self.each() {
            let Some(mut cache) = cache.try_lock() else { continue };
            let home = index as u16;
            let mut got = cache.pop(out);
            if got < out.len() {
                self.refill(&mut cache);
                got += cache.pop(&mut out[got..]);
            }
            drop(cache);
            if got < out.len() {
                got += self.scavenge(&mut out[got..]);
            }
            return (got, home);
        }
        // Every cache is in use by another thread at this moment.
        (self.scavenge(out), slot() as u16)
    }

    /// Takes from the depot and from whatever cache still has some: nothing is stranded.
    fn scavenge(&self, out: &mut [Buffer]) -> usize {
        let mut got = 0;
        {
            let mut depot = self.depot();
            while got < out.len() {
                if depot.loose.is_empty() {
                    let Some(mut magazine) = depot.full.pop() else { break };
                    depot.loose.extend(magazine.iter_mut().map(Option::take));
                    depot.empty.push(magazine);
                }
                out[got] = depot.loose.pop().flatten();
                got += 1;
            }
        }
        for (_, cache) in self.each() {
            if got == out.len() {
                break;
            }
            if let Some(mut cache) = cache.try_lock() {
                got += cache.pop(&mut out[got..]);
            }
        }
        got
    }

    fn refill(&self, cache: &mut Cache) {
        let magazine = self.depot().full.pop();
        if let Some(mut magazine) = magazine {
            cache.push(&mut magazine[..]);
            self.depot().empty.push(magazine);
        }
    }

    /// Takes the buffers back.
    pub(super) fn free(&self, buffers: &[Buffer]) {
        for (_, cache) in self.each() {
            let Some(mut cache) = cache.try_lock() else { continue };
            if cache.len + buffers.len() > CACHE {
                // Half goes, half stays (INV-BUF-3).
                self.spill(&mut cache, CACHE / 2 / MAGAZINE);
            }
            let len = cache.len;
            cache.buffers[len..][..buffers.len()].copy_from_slice(buffers);
            cache.len += buffers.len();
            return;
        }
        self.depot().loose.extend(buffers);
    }

    fn spill(&self, cache: &mut Cache, magazines: usize) {
        let mut depot = self.depot();
        for _ in 0..magazines {
            let mut magazine = depot.empty.pop().unwrap_or_else(|| Box::new([None; MAGAZINE]));
            let n = cache.pop(&mut magazine[..]);
            if n == MAGAZINE {
                depot.full.push(magazine);
            } else {
                depot.loose.extend(&magazine[..n]);
            }
        }
    }

    /// Buffers in caches and in the depot. Waits for caches in use: for statistics and closing only.
    pub(super) fn count(&self) -> (usize, usize) {
        let cached = self.caches.iter().map(|cache| cache.lock_slow().len).sum();
        let depot = self.depot();
        (cached, depot.full.len() * MAGAZINE + depot.loose.len())
    }
}

impl Cache {
    /// Takes up to `out.len()` buffers, the most recently freed first (their lines are warm).
    fn pop(&mut self, out: &mut [Buffer]) -> usize {
        let n = out.len().min(self.len);
        for slot in &mut out[..n] {
            self.len -= 1;
            *slot = self.buffers[self.len].take();
        }
        n
    }

    fn push(&mut self, buffers: &mut [Buffer]) {
        for buffer in buffers {
            self.buffers[self.len] = buffer.take();
            self.len += 1;
        }
    }
}
