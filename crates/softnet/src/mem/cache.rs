//! The buffers that a thread holds of a pool: those that it allocates next, and those that it freed
//! and that belong to other owners.
//!
//! Invariant: `len <= capacity <= CACHE` (INV-BUF-3), and the first `len` slots hold free buffers
//! that are nowhere else (INV-BUF-2). A cache is used by one thread at a time (it is the value of
//! a [`Biased`](crate::sync::Biased) lock); only its counts are read by others, so they are
//! atomics, used as plain memory.
//!
//! The length is kept as the difference of two counts: an allocation changes only `taken`, a free
//! only `end`. A thread that allocates and frees in turn would otherwise load in each step what
//! it stored in the step before, and wait for that: 1 ns a packet.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};

use super::arena::Slab;
use super::list::Chain;
use super::magazine::{MAGAZINE, Magazine};
use super::thread_cache::Remote;
use super::{Header, short, size};
use crate::sync::prefetch_for_write;

/// Buffers a cache holds at most.
pub(super) const CACHE: usize = 256;
/// Owners whose buffers are collected at the same time; one uses the magazine of its number modulo
/// this.
pub(super) const OUTGOING: usize = 8;

/// The owner of a magazine that was never used: the number of no thread.
const NOBODY: u16 = u16::MAX - 1;

type Slot = Cell<MaybeUninit<NonNull<Header>>>;

/// See the [module](self).
#[repr(C)]
pub(super) struct Cache {
    /// `taken`, plus the buffers that are in.
    end: AtomicU64,
    /// Buffers allocated from here so far.
    taken: AtomicU64,
    /// Set by the owner; see [`Inner::cache_capacity`](super::Inner::cache_capacity).
    capacity: AtomicUsize,
    /// Others' buffers are kept rather than deferred while `len` is below this: 0, half the
    /// capacity, or no bound.
    keep_below: Cell<usize>,
    /// Value of `taken` when `keep_below` was last decided.
    decided: Cell<u64>,
    /// Headers in the slots from here on were touched when they were freed here, or are fetched;
    /// those below came in magazines. A hint.
    pub(super) cold: Cell<usize>,
    slots: [Slot; CACHE],
    outgoing: [Outgoing; OUTGOING],
}

// SAFETY: the pointers are to buffers that the cache owns, and to memory that is only prefetched.
unsafe impl Send for Cache {}

/// Freed buffers of another owner: a magazine in the making. The first `len` slots hold free
/// buffers that are nowhere else.
pub(super) struct Outgoing {
    owner: Cell<u16>,
    /// Read by others.
    len: AtomicU16,
    /// The owner's lines that the magazine is pushed to. Only prefetched.
    remote: Cell<*const Remote>,
    slots: [Slot; MAGAZINE],
}

impl Outgoing {
    const fn new() -> Outgoing {
        Outgoing {
            owner: Cell::new(NOBODY),
            len: AtomicU16::new(0),
            remote: Cell::new(null()),
            slots: [const { Cell::new(MaybeUninit::uninit()) }; MAGAZINE],
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len.load(Ordering::Relaxed))
    }

    /// Whose buffers these are.
    #[inline(always)]
    pub(super) fn owner(&self) -> u16 {
        self.owner.get()
    }

    /// Uses the magazine, which is empty, for another owner.
    pub(super) fn turn_to(&self, owner: u16, remote: *const Remote) {
        debug_assert_eq!(self.len(), 0);
        self.owner.set(owner);
        self.remote.set(remote);
    }

    /// Adds a buffer behind `len` others; [`set_len`](Outgoing::set_len) follows.
    ///
    /// # Safety
    /// The caller owns the buffer and gives it up; `len` is the length so far, below `MAGAZINE`.
    #[inline(always)]
    pub(super) unsafe fn put(&self, header: NonNull<Header>, len: usize) {
        debug_assert!(len < MAGAZINE);
        if len == 0 {
            // The lines will be here when the magazine is full.
            prefetch_for_write(self.remote.get());
            // SAFETY: by the caller's promise.
            unsafe { Magazine::prefetch(header) };
        }
        // SAFETY: by the caller's promise.
        unsafe { self.slots.get_unchecked(len) }.set(MaybeUninit::new(header));
    }

    #[inline(always)]
    pub(super) fn set_len(&self, len: usize) {
        self.len.store(short(len), Ordering::Relaxed);
    }

    /// Takes the magazine out, unless it is empty.
    pub(super) fn take(&self) -> Option<Magazine> {
        let n = self.len();
        self.set_len(0);
        // SAFETY: the first `n` slots are filled with buffers that are ours, and given up.
        (n > 0).then(|| unsafe { Magazine::pack(self.slots.as_ptr().cast(), n) })
    }
}

/// Headers fetched ahead of their use: what hides the way of a line from a far CPU.
const AHEAD: usize = 32;

impl Cache {
    pub(super) fn new(capacity: usize) -> Cache {
        Cache {
            end: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            capacity: AtomicUsize::new(capacity.min(CACHE)),
            keep_below: Cell::new(0),
            decided: Cell::new(0),
            cold: Cell::new(0),
            slots: [const { Cell::new(MaybeUninit::uninit()) }; CACHE],
            outgoing: [const { Outgoing::new() }; OUTGOING],
        }
    }

    /// Buffers that are taken in at most.
    #[inline(always)]
    fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes how many buffers are taken in, and says whether others' are deferred. What is too
    /// much goes when the next is freed.
    pub(super) fn configure(&self, capacity: usize, defers: bool) {
        self.capacity.store(capacity.min(CACHE), Ordering::Relaxed);
        if !defers {
            self.keep_below.set(usize::MAX);
        } else if self.keep_below.get() == usize::MAX {
            self.keep_below.set(0);
        }
    }

    /// Buffers ready to be allocated. For a thread that is not in the cache: a recent value.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        let end = self.end.load(Ordering::Relaxed);
        size(end.wrapping_sub(self.taken.load(Ordering::Relaxed)))
    }

    /// Buffers allocated from here so far. Any thread may ask.
    #[inline(always)]
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Buffers collected for other owners. Any thread may ask.
    pub(super) fn outgoing_len(&self) -> usize {
        self.outgoing.iter().map(Outgoing::len).sum()
    }

    /// The magazines for other owners.
    pub(super) fn outgoing(&self) -> &[Outgoing] {
        &self.outgoing
    }

    /// The magazine that buffers of `owner` go to.
    #[inline(always)]
    pub(super) fn outgoing_for(&self, owner: u16) -> &Outgoing {
        &self.outgoing[usize::from(owner) % OUTGOING]
    }

    /// Adds to `end`, after a change of what is in.
    #[inline(always)]
    fn move_end(&self, by: isize) {
        let end = self.end.load(Ordering::Relaxed);
        self.end
            .store(end.wrapping_add_signed(by as i64), Ordering::Relaxed);
    }

    /// The first slot; those below `len` are filled.
    #[inline(always)]
    fn slots(&self) -> *mut NonNull<Header> {
        // They are cells, so a shared reference to the cache may change them.
        self.slots.as_ptr().cast_mut().cast()
    }

    /// Fetches the headers in the slots from `from` to below `to` that are cold, in the order in
    /// which they are allocated: a CPU has ten or twelve lines on their way at a time.
    ///
    /// # Safety
    /// `to <= len`.
    #[inline(always)]
    unsafe fn fetch(&self, from: usize, to: usize) {
        let cold = self.cold.get();
        if from < cold {
            let fetched = (from..to.min(cold)).rev();
            // SAFETY: filled, by the caller's promise.
            fetched.for_each(|i| prefetch_for_write(unsafe { *self.slots().add(i) }.as_ptr()));
            self.cold.set(from);
        }
    }

    /// Fetches the headers that will be allocated first.
    pub(super) fn warm(&self) {
        let len = self.len();
        // SAFETY: up to `len`.
        unsafe { self.fetch(len.saturating_sub(AHEAD), len) };
    }

    /// Allocates the most recently freed buffer (its lines are warm).
    #[inline(always)]
    pub(super) fn pop(&self) -> Option<NonNull<Header>> {
        let taken = self.taken();
        let len = size(self.end.load(Ordering::Relaxed) - taken);
        let last = len.checked_sub(1)?;
        // SAFETY: below `len`.
        let header = unsafe {
            if last >= AHEAD {
                self.fetch(last - AHEAD, last - AHEAD + 1);
            }
            *self.slots().add(last)
        };
        self.taken.store(taken + 1, Ordering::Relaxed);
        Some(header)
    }

    /// Allocates up to `n` buffers as fresh packets of `owner`, linked.
    #[inline]
    pub(super) fn take(&self, n: usize, owner: u16) -> Option<Chain> {
        let taken = self.taken();
        let len = size(self.end.load(Ordering::Relaxed) - taken);
        let n = n.min(len);
        if n == 0 {
            return None;
        }
        // Those that come `AHEAD` later. A loop of its own: one loop for both made a forwarding
        // loop half as slow again.
        let ahead = len.saturating_sub(AHEAD);
        // SAFETY: all slots looked at are below `len`; the buffers are the cache's, so nothing
        // else refers to their headers.
        unsafe {
            self.fetch(ahead.saturating_sub(n), ahead);
            let bottom = self.slots().add(len - n);
            let mut slot = self.slots().add(len - 1);
            let head = *slot;
            let mut header = head;
            while slot > bottom {
                slot = slot.sub(1);
                let next = *slot;
                Header::reset(header, owner, Some(next));
                header = next;
            }
            Header::reset(header, owner, None);
            self.taken.store(taken + n as u64, Ordering::Relaxed);
            Some(Chain {
                head,
                tail: header,
                len: n,
                bytes: 0,
            })
        }
    }

    /// Takes the buffer in, unless the cache is full.
    #[inline(always)]
    pub(super) fn push(&self, header: NonNull<Header>) -> bool {
        let (end, taken) = (self.end.load(Ordering::Relaxed), self.taken());
        let len = size(end - taken);
        if len >= self.capacity() {
            return false;
        }
        // SAFETY: `len < capacity <= CACHE`.
        unsafe { self.slots().add(len).write(header) };
        self.end.store(end + 1, Ordering::Relaxed);
        true
    }

    /// Up to which length others' buffers are kept.
    pub(super) fn keep_below(&self) -> usize {
        self.keep_below.get()
    }

    /// Decides whether others' buffers are kept: if the thread has allocated at least `enough`
    /// since this was asked last.
    pub(super) fn decide(&self, enough: usize) {
        let taken = self.taken();
        let since = taken - self.decided.replace(taken);
        self.keep_below.set(if since >= enough as u64 {
            self.capacity() / 2
        } else {
            0
        });
    }

    /// Takes packets in, linked from `first`, until one is not plain, not of this pool or of
    /// `owner`, or the cache is full. Returns how many, and the first that was left.
    ///
    /// # Safety
    /// As for [`free_while_easy`](Cache::free_while_easy).
    #[inline(always)]
    pub(super) unsafe fn free_while_own(
        &self,
        first: NonNull<Header>,
        owner: u16,
    ) -> (usize, Option<NonNull<Header>>) {
        // SAFETY: as in `free_while_easy`.
        let ours = unsafe { Slab::of(first).pool.as_ref() }.arena.headers();
        let before = self.len();
        let space = self.capacity().saturating_sub(before);
        // SAFETY: `before <= CACHE`.
        let slots = unsafe { self.slots().add(before) };
        let (mut freed, mut next) = (0, Some(first));
        while let Some(header) = next {
            // SAFETY: as in `free_while_easy`.
            let packet = unsafe { header.as_ref() };
            let inside = header.addr().get().wrapping_sub(ours.start) < ours.len();
            if packet.has_parts() || packet.owner != owner || !inside || freed >= space {
                break;
            }
            next = packet.next;
            // SAFETY: `before + freed < capacity <= CACHE`.
            unsafe { slots.add(freed).write(header) };
            freed += 1;
        }
        self.move_end(freed.cast_signed());
        (freed, next)
    }

    /// Frees packets, linked from `first`, until one is not plain, of another pool, or there is
    /// no space for it: the cache is full, or its owner's magazine is another owner's or would
    /// hold `limit`. Returns how many, and the first that was left.
    ///
    /// # Safety
    /// The caller owns the packets. The cache is that of `owner`, a thread of the first one's
    /// pool.
    #[inline(always)]
    pub(super) unsafe fn free_while_easy(
        &self,
        first: NonNull<Header>,
        owner: u16,
        limit: usize,
    ) -> (usize, Option<NonNull<Header>>) {
        // SAFETY: the packets are the caller's, and their slabs and pools live as long as they do.
        // By their place: their slabs' lines share a set of the cache.
        let ours = unsafe { Slab::of(first).pool.as_ref() }.arena.headers();
        let (before, capacity) = (self.len(), self.capacity());
        let keep_below = self.keep_below.get();
        // Lengths stay in registers; `waiting` is that of `outgoing`, which is `to`'s.
        let (mut len, mut deferred) = (before, 0);
        let (mut outgoing, mut to, mut waiting) = (&self.outgoing[0], NOBODY, 0);
        let mut next = Some(first);
        while let Some(header) = next {
            // SAFETY: as above.
            let packet = unsafe { header.as_ref() };
            if packet.has_parts() || !ours.contains(&header.addr().get()) {
                break;
            }
            let (link, belongs) = (packet.next, packet.owner);
            let keep = belongs == owner
                || len < keep_below && {
                    // It will be written here soon.
                    prefetch_for_write(header.as_ptr());
                    true
                };
            if keep {
                if len >= capacity {
                    break;
                }
                // SAFETY: `len < capacity <= CACHE`.
                unsafe { self.slots().add(len).write(header) };
                len += 1;
            } else {
                if belongs != to {
                    if to != NOBODY {
                        outgoing.set_len(waiting);
                    }
                    outgoing = self.outgoing_for(belongs);
                    (to, waiting) = (outgoing.owner(), outgoing.len());
                }
                if belongs != to || waiting + 1 >= limit {
                    break;
                }
                // SAFETY: ours to give up; less than `limit`, which is at most `MAGAZINE`.
                unsafe { outgoing.put(header, waiting) };
                waiting += 1;
                deferred += 1;
            }
            next = link;
        }
        if to != NOBODY {
            outgoing.set_len(waiting);
        }
        self.move_end((len - before).cast_signed());
        (len - before + deferred, next)
    }

    /// Takes a magazine in, unless it does not fit.
    pub(super) fn load(&self, magazine: Magazine) -> Result<(), Magazine> {
        let (len, n) = (self.len(), magazine.len());
        if len + n > self.capacity() {
            return Err(magazine);
        }
        // SAFETY: `len + n <= CACHE`.
        unsafe { magazine.unpack(self.slots().add(len)) };
        self.cold.set(len + n);
        self.move_end(n.cast_signed());
        Ok(())
    }

    /// Gives up the `n` oldest buffers, in magazines of at most `size`.
    pub(super) fn spill(&self, n: usize, size: usize, mut visit: impl FnMut(Magazine)) {
        let len = self.len();
        let n = n.min(len);
        for from in (0..n).step_by(size) {
            // SAFETY: these slots are filled, and given up with the move below.
            visit(unsafe { Magazine::pack(self.slots().add(from), size.min(n - from)) });
        }
        // SAFETY: within the filled slots.
        unsafe { std::ptr::copy(self.slots().add(n), self.slots(), len - n) };
        self.cold.set(self.cold.get().saturating_sub(n));
        self.move_end(-n.cast_signed());
    }
}
