//! What a thread holds of a pool: the buffers it will allocate next, and those it freed that belong to other homes.
//!
//! Invariant: `len <= capacity <= CACHE` (INV-BUF-3), and the first `len` slots hold free buffers that are nowhere else (INV-BUF-2).
//! A cache is used by one thread at a time (it is the value of a [`Biased`](crate::sync::Biased) lock); only its
//! counts may be looked at by others, so they are atomics, used as plain memory.
//!
//! The length is kept as the difference of two counts: an allocation changes only `taken`, a free only `end`. A thread that allocates and frees in
//! turn would otherwise read in each step what it stored in the step before, and wait for that: 1 ns a packet.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Header;
use super::home::Remote;
use super::magazine;
use super::outgoing::{Outbox, UNUSED};

/// Buffers a cache holds at most.
pub(super) const CACHE: usize = 256;
/// Homes for which freed buffers are collected at the same time; a home uses the outbox of its number modulo this.
pub(super) const OUTBOXES: usize = 8;

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
    /// Other homes' buffers are kept rather than collected for them while `len` is below this: 0, or half the capacity.
    keep_below: Cell<usize>,
    /// What `taken` was when `keep_below` was last decided.
    decided: Cell<u64>,
    buffers: [Slot; CACHE],
    outboxes: [Outbox; OUTBOXES],
}

// SAFETY: the pointers are to buffers that the cache owns.
unsafe impl Send for Cache {}

/// Packets linked by `next`, not in a list yet.
pub(super) struct Chain {
    pub(super) head: NonNull<Header>,
    pub(super) tail: NonNull<Header>,
    pub(super) len: usize,
}

/// Fetches a line for writing.
#[inline(always)]
pub(super) fn prefetch<T>(line: NonNull<T>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Headers fetched ahead of their use: what hides the way of a line from a far CPU.
const AHEAD: usize = 32;

/// What [`Cache::free_while`] is to do with a buffer.
pub(super) enum Fate {
    /// Take it in.
    Keep,
    /// Collect it for its home, which is this one.
    Park(u16),
    /// Leave it, and end.
    Stop,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Cache {
        Cache {
            end: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            capacity: AtomicUsize::new(capacity.min(CACHE)),
            keep_below: Cell::new(0),
            decided: Cell::new(0),
            buffers: [const { Cell::new(MaybeUninit::uninit()) }; CACHE],
            outboxes: [const { Outbox::new() }; OUTBOXES],
        }
    }

    /// Buffers that are taken in at most.
    #[inline(always)]
    fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes how many buffers are taken in. What is too much then goes when the next is freed.
    pub(super) fn set_capacity(&self, capacity: usize) {
        self.capacity.store(capacity.min(CACHE), Ordering::Relaxed);
    }

    /// Buffers ready to be allocated.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        let len = self.end.load(Ordering::Relaxed) - self.taken.load(Ordering::Relaxed);
        len as usize
    }

    /// The same, asked by a thread that does not have the cache: a recent value.
    pub(super) fn recent_len(&self) -> usize {
        let end = self.end.load(Ordering::Relaxed);
        let len = end.saturating_sub(self.taken.load(Ordering::Relaxed));
        CACHE.min(len as usize)
    }

    /// Buffers allocated from here so far. May be asked by any thread.
    #[inline(always)]
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Buffers in the outboxes. May be asked by any thread.
    pub(super) fn parked(&self) -> usize {
        self.outboxes.iter().map(Outbox::len).sum()
    }

    /// Adds to `end`, after a change of what is in.
    #[inline(always)]
    fn move_end(&self, by: isize) {
        let end = self.end.load(Ordering::Relaxed);
        self.end
            .store(end.wrapping_add_signed(by as i64), Ordering::Relaxed);
    }

    /// # Safety
    /// `i < self.len()`.
    #[inline(always)]
    unsafe fn at(&self, i: usize) -> NonNull<Header> {
        debug_assert!(i < CACHE);
        // SAFETY: slots below `len`, which is at most `CACHE`, are filled.
        unsafe { self.buffers.get_unchecked(i).get().assume_init() }
    }

    /// # Safety
    /// `i < CACHE`, and slot `i` is beyond what is in.
    #[inline(always)]
    unsafe fn put(&self, i: usize, header: NonNull<Header>) {
        debug_assert!(i < CACHE);
        // SAFETY: by the caller's promise.
        unsafe { self.buffers.get_unchecked(i) }.set(MaybeUninit::new(header));
    }

    /// Allocates the most recently freed buffer (its lines are warm).
    #[inline(always)]
    pub(super) fn pop(&self) -> Option<NonNull<Header>> {
        let taken = self.taken();
        let len = self.end.load(Ordering::Relaxed) - taken;
        let last = (len as usize).checked_sub(1)?;
        // SAFETY: below `len`, as is the other one.
        let header = unsafe {
            if last >= AHEAD {
                prefetch(self.at(last - AHEAD));
            }
            self.at(last)
        };
        self.taken.store(taken + 1, Ordering::Relaxed);
        Some(header)
    }

    /// Allocates up to `n` buffers as fresh packets of `home`, linked.
    #[inline]
    pub(super) fn take(&self, n: usize, home: u16) -> Option<Chain> {
        let taken = self.taken();
        let len = (self.end.load(Ordering::Relaxed) - taken) as usize;
        let n = n.min(len);
        if n == 0 {
            return None;
        }
        // Those that come `AHEAD` later. A loop of its own: one loop for both made a forwarding loop half as slow again.
        let ahead = len.saturating_sub(AHEAD);
        for i in ahead.saturating_sub(n)..ahead {
            // SAFETY: below `len`.
            prefetch(unsafe { self.at(i) });
        }
        // SAFETY: all slots looked at are below `len`; the buffers are the cache's, so nothing else refers to their headers.
        unsafe {
            let bottom = self.slots().add(len - n);
            let mut slot = self.slots().add(len - 1);
            let head = *slot;
            let mut header = head;
            while slot > bottom {
                slot = slot.sub(1);
                let next = *slot;
                Header::reset(header, home, Some(next));
                header = next;
            }
            Header::reset(header, home, None);
            self.taken.store(taken + n as u64, Ordering::Relaxed);
            Some(Chain {
                head,
                tail: header,
                len: n,
            })
        }
    }

    /// The first slot; those below `len` are filled.
    #[inline(always)]
    fn slots(&self) -> *mut NonNull<Header> {
        // They are cells, so a shared reference to the cache may change them.
        self.buffers.as_ptr().cast_mut().cast()
    }

    /// Fetches the headers that will be allocated first.
    pub(super) fn warm(&self) {
        let len = self.len();
        // SAFETY: below `len`.
        (len.saturating_sub(AHEAD)..len).for_each(|i| prefetch(unsafe { self.at(i) }));
    }

    /// Takes the buffer in, unless the cache is full.
    #[inline(always)]
    pub(super) fn push(&self, header: NonNull<Header>) -> bool {
        let (end, taken) = (self.end.load(Ordering::Relaxed), self.taken());
        let len = (end - taken) as usize;
        if len >= self.capacity() {
            return false;
        }
        // SAFETY: `len < capacity <= CACHE`.
        unsafe { self.put(len, header) };
        self.end.store(end + 1, Ordering::Relaxed);
        true
    }

    /// Puts a buffer that belongs to `home` into its outbox, if that is in use for this home and will hold less than `limit`.
    #[inline(always)]
    pub(super) fn park_more(&self, header: NonNull<Header>, home: u16, limit: usize) -> bool {
        let outbox = &self.outboxes[usize::from(home) % OUTBOXES];
        let len = outbox.len();
        if outbox.home() != home || len + 1 >= limit {
            return false;
        }
        // SAFETY: less than `limit`, which is at most `BUNDLE`.
        unsafe { outbox.add(header, len) };
        outbox.set_len(len + 1);
        true
    }

    /// Up to which length other homes' buffers are kept.
    #[inline(always)]
    pub(super) fn keep_below(&self) -> usize {
        self.keep_below.get()
    }

    /// Decides whether other homes' buffers are kept: if the thread has allocated at least `enough` since this was asked last.
    pub(super) fn decide(&self, enough: usize) {
        let taken = self.taken();
        let since = taken - self.decided.replace(taken);
        self.keep_below.set(if since >= enough as u64 {
            self.capacity() / 2
        } else {
            0
        });
    }

    /// Takes buffers in or collects them for their homes as `fate` says (asked with the cache's length), until it says stop, the cache is full, or
    /// an outbox is in use for another home or would hold `limit`. Returns how many, and the first that was left.
    #[inline(always)]
    pub(super) fn free_while(
        &self,
        buffers: impl Iterator<Item = NonNull<Header>>,
        limit: usize,
        mut fate: impl FnMut(NonNull<Header>, usize) -> Fate,
    ) -> (usize, Option<NonNull<Header>>) {
        let before = self.len();
        // Lengths stay in registers; `outbox` is in use for `to`.
        let (mut len, mut parked) = (before, 0);
        let (mut outbox, mut to, mut waiting) = (&self.outboxes[0], UNUSED, 0);
        let mut rest = None;
        for header in buffers {
            match fate(header, len) {
                Fate::Keep if len < self.capacity() => {
                    // SAFETY: `len < capacity <= CACHE`.
                    unsafe { self.put(len, header) };
                    len += 1;
                    continue;
                }
                Fate::Park(home) => {
                    if home != to {
                        if to != UNUSED {
                            outbox.set_len(waiting);
                        }
                        outbox = &self.outboxes[usize::from(home) % OUTBOXES];
                        (to, waiting) = (outbox.home(), outbox.len());
                    }
                    if home == to && waiting + 1 < limit {
                        // SAFETY: less than `limit`, which is at most `BUNDLE`.
                        unsafe { outbox.add(header, waiting) };
                        waiting += 1;
                        parked += 1;
                        continue;
                    }
                }
                Fate::Keep | Fate::Stop => {}
            }
            rest = Some(header);
            break;
        }
        if to != UNUSED {
            outbox.set_len(waiting);
        }
        self.move_end((len - before) as isize);
        (len - before + parked, rest)
    }

    /// Unpacks a bundle, unless it does not fit.
    ///
    /// # Safety
    /// The caller owns the bundle and gives it up if this returns true.
    pub(super) unsafe fn unpack(&self, head: NonNull<Header>) -> bool {
        let len = self.len();
        // SAFETY: ours by the caller's promise; `len + n <= CACHE` is checked before the slots are written.
        unsafe {
            let n = magazine::size(head);
            if len + n > self.capacity() {
                return false;
            }
            magazine::unpack(head, self.slots().add(len));
            self.move_end(n as isize);
        }
        true
    }

    /// Gives up the `n` oldest buffers, in bundles of at most `size`.
    pub(super) fn spill(&self, n: usize, size: usize, mut bundle: impl FnMut(NonNull<Header>)) {
        let len = self.len();
        let n = n.min(len);
        let slots = self.slots();
        let mut from = 0;
        while from < n {
            let k = size.min(n - from);
            // SAFETY: the slots `from..from + k` are filled, and given up with the move below.
            bundle(unsafe { magazine::pack(slots.add(from), k) });
            from += k;
        }
        // SAFETY: within the filled slots.
        unsafe { std::ptr::copy(slots.add(n), slots, len - n) };
        self.move_end(-(n as isize));
    }

    /// Puts a buffer that belongs to `home` into its outbox. `bundle` gets what had to make room or is `limit` long; `remote` is asked for the
    /// lines of the home.
    #[inline]
    pub(super) fn park(
        &self,
        header: NonNull<Header>,
        home: u16,
        limit: usize,
        remote: impl FnOnce() -> Option<NonNull<Remote>>,
        mut bundle: impl FnMut(u16, NonNull<Header>),
    ) {
        let outbox = &self.outboxes[usize::from(home) % OUTBOXES];
        if outbox.home() != home {
            if let Some(other) = outbox.take() {
                bundle(outbox.home(), other);
            }
            outbox.turn_to(home, remote());
        }
        let len = outbox.len();
        // SAFETY: an outbox is emptied below before it holds more than `limit`, which is at most `BUNDLE`.
        unsafe { outbox.add(header, len) };
        outbox.set_len(len + 1);
        if len + 1 >= limit
            && let Some(complete) = outbox.take()
        {
            bundle(home, complete);
        }
    }

    /// Empties the outboxes.
    pub(super) fn unpark_all(&self, mut bundle: impl FnMut(u16, NonNull<Header>)) {
        for outbox in &self.outboxes {
            if let Some(waiting) = outbox.take() {
                bundle(outbox.home(), waiting);
            }
        }
    }
}
