//! Baseline `depot`: a packet goes into the cache of the thread that frees it, with a shared depot
//! behind all caches. This is the pool that Softnet had before packets returned to their owners.
//!
//! A cache is entered by whoever finds its lock free; who does not goes to the next one. Magazines
//! of [`MAGAZINE`] packets move between cache and depot under a mutex, half of a cache when it is
//! full.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

use crate::buffers::line::{Chain, Line, Owned};
use crate::buffers::{Buffers, Counts, DATA};
use crate::error::BenchError;

const MAGAZINE: usize = 32;
const CACHE: usize = 128;
/// Caches in a pool; a thread uses the one of its number modulo this.
const CACHES: usize = 16;

type Buffer = Option<NonNull<Line>>;

#[derive(Debug)]
struct Cache {
    buffers: [Buffer; CACHE],
    len: usize,
}

#[derive(Debug, Default)]
struct Shared {
    #[allow(clippy::vec_box, reason = "magazines are exchanged by pointer")]
    full: Vec<Box<[Buffer; MAGAZINE]>>,
    #[allow(clippy::vec_box, reason = "as above")]
    empty: Vec<Box<[Buffer; MAGAZINE]>>,
    /// Fewer than a magazine.
    loose: Vec<Buffer>,
    /// Exchanges with the depot.
    ops: u64,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Depot {
    caches: Box<[CachePadded<Mutex<Cache>>]>,
    depot: Mutex<Shared>,
    lines: Block,
    data: Block,
    buffers: usize,
}

// SAFETY: the pointers in caches and depot are buffers owned by whoever holds the lock around
// them.
unsafe impl Send for Depot {}
// SAFETY: as above; all access goes through a lock.
unsafe impl Sync for Depot {}

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

impl Depot {
    /// A pool of that many buffers.
    pub(crate) fn new(buffers: usize) -> Result<Depot, BenchError> {
        let cache = || {
            CachePadded::new(Mutex::new(Cache {
                buffers: [None; CACHE],
                len: 0,
            }))
        };
        let depot = Depot {
            caches: (0..CACHES).map(|_| cache()).collect(),
            depot: Mutex::new(Shared::default()),
            lines: Block::new(buffers * size_of::<Line>(), size_of::<Line>())?,
            data: Block::new(buffers * DATA, 4096)?,
            buffers,
        };
        let owner = depot.id();
        let mut shared = depot.shared();
        for index in 0..buffers {
            // SAFETY: `index` is below `buffers`, for which both blocks have room; nothing refers
            // to the line yet.
            let line = unsafe {
                let data = depot.data.start.add(index * DATA);
                let line = depot.lines.start.cast::<Line>().add(index);
                line.write(Line::new(data, owner));
                line
            };
            shared.put(Some(line));
        }
        drop(shared);
        Ok(depot)
    }

    /// A number that tells this pool's packets from another's.
    fn id(&self) -> usize {
        self.lines.start.addr().get()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.depot.lock();
        shared.ops += 1;
        shared
    }

    /// The caches, this thread's own first.
    fn each(&self) -> impl Iterator<Item = &Mutex<Cache>> {
        let own = slot();
        (own..own + CACHES).map(|i| &*self.caches[i % CACHES])
    }

    /// Fills `out` from the front; returns how many were found.
    fn take(&self, out: &mut [Buffer]) -> usize {
        for cache in self.each() {
            let Some(mut cache) = cache.try_lock() else {
                continue;
            };
            let mut got = cache.pop(out);
            if got < out.len() {
                self.refill(&mut cache);
                got += cache.pop(&mut out[got..]);
            }
            drop(cache);
            if got < out.len() {
                got += self.scavenge(&mut out[got..]);
            }
            return got;
        }
        self.scavenge(out)
    }

    /// Takes from the depot and from whatever cache still has some.
    fn scavenge(&self, out: &mut [Buffer]) -> usize {
        let mut got = 0;
        {
            let mut depot = self.shared();
            while got < out.len() {
                if depot.loose.is_empty() {
                    let Some(mut magazine) = depot.full.pop() else {
                        break;
                    };
                    depot.loose.extend(magazine.iter_mut().map(Option::take));
                    depot.empty.push(magazine);
                }
                out[got] = depot.loose.pop().flatten();
                got += 1;
            }
        }
        for cache in self.each() {
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
        let magazine = self.shared().full.pop();
        if let Some(mut magazine) = magazine {
            for buffer in &mut magazine[..] {
                cache.buffers[cache.len] = buffer.take();
                cache.len += 1;
            }
            self.shared().empty.push(magazine);
        }
    }

    /// Takes the buffers back.
    fn give(&self, buffers: &[Buffer]) {
        for cache in self.each() {
            let Some(mut cache) = cache.try_lock() else {
                continue;
            };
            if cache.len + buffers.len() > CACHE {
                self.spill(&mut cache);
            }
            let len = cache.len;
            cache.buffers[len..][..buffers.len()].copy_from_slice(buffers);
            cache.len += buffers.len();
            return;
        }
        let mut depot = self.shared();
        buffers.iter().for_each(|&buffer| depot.put(buffer));
    }

    fn spill(&self, cache: &mut Cache) {
        let mut depot = self.shared();
        for _ in 0..CACHE / 2 / MAGAZINE {
            let mut magazine = depot.empty_magazine();
            let n = cache.pop(&mut magazine[..]);
            if n == MAGAZINE {
                depot.full.push(magazine);
            } else {
                depot.loose.extend(&magazine[..n]);
            }
        }
    }

    /// Takes the buffer out of its handle.
    fn unwrap(&self, packet: Owned<Depot>) -> Buffer {
        let line = packet.into_raw();
        // SAFETY: the packet was the only handle to its line, which lives as long as its pool, or
        // for ever.
        let owner = unsafe { line.as_ref() }.owner();
        assert_eq!(owner, self.id(), "a packet goes back to its own pool");
        Some(line)
    }

    /// Makes a buffer a packet.
    ///
    /// # Safety
    /// `line` was just taken out of a cache or the depot.
    unsafe fn wrap(&self, line: NonNull<Line>) -> Owned<Depot> {
        // SAFETY: by the caller's promise nothing else refers to the line; all lines were
        // initialised by `new`.
        unsafe {
            line.write(Line::new(line.as_ref().data(), self.id()));
            Owned::new(line)
        }
    }

    fn free_buffers(&mut self) -> usize {
        let cached: usize = self.caches.iter().map(|c| c.lock().len).sum();
        let depot = self.shared();
        cached + depot.full.len() * MAGAZINE + depot.loose.len()
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        if self.free_buffers() == self.buffers {
            self.lines.free();
            self.data.free();
        }
        // Else packets are still out, and their memory stays.
    }
}

impl Shared {
    fn empty_magazine(&mut self) -> Box<[Buffer; MAGAZINE]> {
        self.empty
            .pop()
            .unwrap_or_else(|| Box::new([None; MAGAZINE]))
    }

    fn put(&mut self, buffer: Buffer) {
        self.loose.push(buffer);
        if self.loose.len() == MAGAZINE {
            let mut magazine = self.empty_magazine();
            magazine.copy_from_slice(&self.loose);
            self.loose.clear();
            self.full.push(magazine);
        }
    }
}

impl Cache {
    /// Takes up to `out.len()` buffers, the most recently freed first.
    fn pop(&mut self, out: &mut [Buffer]) -> usize {
        let n = out.len().min(self.len);
        for slot in &mut out[..n] {
            self.len -= 1;
            *slot = self.buffers[self.len].take();
        }
        n
    }
}

impl Buffers for Depot {
    type Packet = Owned<Depot>;
    type Burst = Chain<Depot>;

    fn alloc(&self) -> Option<Owned<Depot>> {
        let mut one = [None];
        self.take(&mut one);
        // SAFETY: just taken.
        one[0].map(|line| unsafe { self.wrap(line) })
    }

    fn alloc_bulk(&self, n: usize, burst: &mut Chain<Depot>) -> usize {
        let mut got = 0;
        let mut batch = [None; MAGAZINE];
        while got < n {
            let want = (n - got).min(MAGAZINE);
            let k = self.take(&mut batch[..want]);
            for line in batch[..k].iter_mut().filter_map(Option::take) {
                // SAFETY: just taken.
                burst.push(unsafe { self.wrap(line) });
            }
            got += k;
            if k < want {
                break;
            }
        }
        got
    }

    fn frame_len(&self, packet: &Owned<Depot>) -> usize {
        packet.frame_len()
    }

    fn push(&self, burst: &mut Chain<Depot>, packet: Owned<Depot>) {
        burst.push(packet);
    }

    fn pop(&self, burst: &mut Chain<Depot>) -> Option<Owned<Depot>> {
        burst.pop()
    }

    fn free(&self, packet: Owned<Depot>) {
        self.give(&[self.unwrap(packet)]);
    }

    fn free_bulk(&self, mut burst: Chain<Depot>) {
        let mut batch = [None; MAGAZINE];
        let mut n = 0;
        while let Some(packet) = burst.pop() {
            batch[n] = self.unwrap(packet);
            n += 1;
            if n == MAGAZINE {
                self.give(&batch);
                n = 0;
            }
        }
        if n > 0 {
            self.give(&batch[..n]);
        }
    }

    fn counts(&self) -> Counts {
        // Looking is a use, too: one in a turn.
        Counts {
            depot_ops: Some(self.shared().ops),
            ..Counts::default()
        }
    }
}

/// One zeroed allocation, untouched until used.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

impl Block {
    fn new(bytes: usize, align: usize) -> Result<Block, BenchError> {
        let no_memory = || BenchError::Measure(format!("no memory for {bytes} bytes of packets"));
        let layout = Layout::from_size_align(bytes.max(1), align).map_err(|_| no_memory())?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        Ok(Block { start, layout })
    }

    /// Called once at most, when nothing refers to the block any more.
    fn free(&mut self) {
        // SAFETY: allocated in `new` with this layout; the only caller is the pool's drop, with
        // all its packets back.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::tests::everything_comes_back;

    #[test]
    fn every_buffer_comes_back() {
        let depot = Depot::new(1000).expect("a small pool");
        everything_comes_back(&depot, 1000);
        assert!(depot.alloc_bulk(1001, &mut Chain::default()) == 1000);
    }
}
