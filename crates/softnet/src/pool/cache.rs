//! What a thread holds of a pool: the buffers it will allocate next, and those it freed that belong to other homes.
//!
//! Invariant: `len <= capacity <= CACHE` (INV-BUF-3), and the first `len` slots hold free buffers that are nowhere else (INV-BUF-2); an outbox holds
//! at most [`BUNDLE`]. A cache is used by one thread at a time (it is the value of a [`Biased`](crate::sync::Biased) lock); only the
//! two counts may be looked at by others, so they are atomics, used as plain memory.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bundle::{self, BUNDLE};
use crate::packet::Header;

/// Buffers a cache holds at most.
pub(super) const CACHE: usize = 128;
/// Homes for which freed buffers are collected at the same time; a home uses the outbox of its number modulo this.
pub(super) const OUTBOXES: usize = 8;

type Slot = Cell<MaybeUninit<NonNull<Header>>>;

/// See the [module](self).
#[repr(C)]
pub(super) struct Cache {
    len: AtomicUsize,
    capacity: usize,
    /// Buffers in the outboxes.
    parked: AtomicUsize,
    /// Other homes' buffers are kept rather than collected for them while `len` is below this: 0, or half the capacity.
    keep_below: Cell<usize>,
    /// What the thread had allocated when `keep_below` was last decided.
    allocated: Cell<u64>,
    buffers: [Slot; CACHE],
    outboxes: [Outbox; OUTBOXES],
}

// SAFETY: the pointers are to buffers that the cache owns.
unsafe impl Send for Cache {}

/// Freed buffers on their way to another home.
struct Outbox {
    home: Cell<u16>,
    len: Cell<u16>,
    buffers: [Slot; BUNDLE],
}

/// Packets linked by `next`, not in a list yet.
pub(super) struct Chain {
    pub(super) head: NonNull<Header>,
    pub(super) tail: NonNull<Header>,
    pub(super) len: usize,
}

/// Fetches a line for writing.
#[inline(always)]
pub(super) fn prefetch(line: NonNull<Header>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Headers fetched ahead of their use: about what a CPU can have under way.
const AHEAD: usize = 8;

/// What [`Cache::push_while`] is to do with a buffer, and what follows it.
pub(super) enum Fate {
    /// Take it in.
    Push(Option<NonNull<Header>>),
    /// It has gone elsewhere.
    Gone(Option<NonNull<Header>>),
    /// Leave it, and end.
    Stop,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Cache {
        let outbox = || Outbox {
            home: Cell::new(0),
            len: Cell::new(0),
            buffers: [const { Cell::new(MaybeUninit::uninit()) }; BUNDLE],
        };
        Cache {
            len: AtomicUsize::new(0),
            capacity: capacity.min(CACHE),
            parked: AtomicUsize::new(0),
            keep_below: Cell::new(0),
            allocated: Cell::new(0),
            buffers: [const { Cell::new(MaybeUninit::uninit()) }; CACHE],
            outboxes: std::array::from_fn(|_| outbox()),
        }
    }

    /// Buffers ready to be allocated. May be asked by any thread.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Buffers in the outboxes. May be asked by any thread.
    pub(super) fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    /// # Safety
    /// `i < self.len()`.
    #[inline(always)]
    unsafe fn at(&self, i: usize) -> NonNull<Header> {
        debug_assert!(i < self.len());
        // SAFETY: slots below `len`, which is at most `CACHE`, are filled.
        unsafe { self.buffers.get_unchecked(i).get().assume_init() }
    }

    /// The most recently freed buffer (its lines are warm).
    #[inline(always)]
    pub(super) fn pop(&self) -> Option<NonNull<Header>> {
        let last = self.len().checked_sub(1)?;
        // SAFETY: below `len`, as is the next one if there is one.
        let header = unsafe {
            prefetch(self.at(last.saturating_sub(AHEAD)));
            self.at(last)
        };
        self.len.store(last, Ordering::Relaxed);
        Some(header)
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
        self.push_below(header, self.capacity)
    }

    /// Takes another home's buffer in, if such are kept now.
    #[inline(always)]
    pub(super) fn keep(&self, header: NonNull<Header>) -> bool {
        self.push_below(header, self.keep_below.get())
    }

    /// Up to which length other homes' buffers are kept.
    #[inline(always)]
    pub(super) fn keep_below(&self) -> usize {
        self.keep_below.get()
    }

    /// Decides whether other homes' buffers are kept: if the thread has allocated at least `enough` since this was asked last.
    pub(super) fn decide(&self, allocated: u64, enough: usize) {
        let since = allocated.wrapping_sub(self.allocated.replace(allocated));
        self.keep_below.set(if since >= enough as u64 {
            self.capacity / 2
        } else {
            0
        });
    }

    #[inline(always)]
    fn push_below(&self, header: NonNull<Header>, limit: usize) -> bool {
        let len = self.len();
        if len >= limit {
            return false;
        }
        debug_assert!(limit <= self.capacity);
        // SAFETY: `len < limit`, and both limits are at most `capacity`, which is at most `CACHE`.
        unsafe { self.buffers.get_unchecked(len) }.set(MaybeUninit::new(header));
        self.len.store(len + 1, Ordering::Relaxed);
        true
    }

    /// Takes in a chain from `first` on until the cache is full or `fate` (asked before each buffer, with the cache's length)
    /// says so. Returns how many are gone or taken in, and the first that is not.
    #[inline(always)]
    pub(super) fn push_while(
        &self,
        first: NonNull<Header>,
        mut fate: impl FnMut(NonNull<Header>, usize) -> Fate,
    ) -> (usize, Option<NonNull<Header>>) {
        let before = self.len();
        let (mut len, mut gone) = (before, 0);
        let mut rest = Some(first);
        while let Some(header) = rest
            && len < self.capacity
        {
            match fate(header, len) {
                Fate::Push(next) => {
                    // SAFETY: `len < capacity <= CACHE`.
                    unsafe { self.buffers.get_unchecked(len) }.set(MaybeUninit::new(header));
                    len += 1;
                    rest = next;
                }
                Fate::Gone(next) => {
                    gone += 1;
                    rest = next;
                }
                Fate::Stop => break,
            }
        }
        self.len.store(len, Ordering::Relaxed);
        (len - before + gone, rest)
    }

    /// Up to `n` buffers as fresh packets of `home`, linked.
    #[inline]
    pub(super) fn take(&self, n: usize, home: u16) -> Option<Chain> {
        let len = self.len();
        let n = n.min(len);
        let mut next = None;
        if n == 0 {
            return None;
        }
        // SAFETY: all indices are below `len`; the buffers are the cache's, so nothing else refers to their headers.
        unsafe {
            let tail = self.at(len - n);
            for i in len - n..len {
                if i + AHEAD < len {
                    prefetch(self.at(i + AHEAD));
                }
                let header = self.at(i);
                (*header.as_ptr()).reset(home);
                (*header.as_ptr()).next = next;
                next = Some(header);
            }
            self.len.store(len - n, Ordering::Relaxed);
            Some(Chain {
                head: next?,
                tail,
                len: n,
            })
        }
    }

    /// Unpacks a bundle, unless it does not fit.
    ///
    /// # Safety
    /// The caller owns the bundle and gives it up if this returns true.
    pub(super) unsafe fn unpack(&self, head: NonNull<Header>) -> bool {
        let len = self.len();
        // SAFETY: ours by the caller's promise; `len + n <= CACHE` is checked before the slots are written.
        unsafe {
            let n = bundle::size(head);
            if len + n > self.capacity {
                return false;
            }
            bundle::unpack(head, self.buffers.as_ptr().add(len).cast_mut().cast());
            self.len.store(len + n, Ordering::Relaxed);
        }
        true
    }

    /// Gives up the `n` oldest buffers, in bundles of at most `size`.
    pub(super) fn spill(&self, n: usize, size: usize, mut bundle: impl FnMut(NonNull<Header>)) {
        let len = self.len();
        let n = n.min(len);
        let slots = self.buffers.as_ptr().cast_mut().cast::<NonNull<Header>>();
        let mut from = 0;
        while from < n {
            let k = size.min(n - from);
            // SAFETY: the slots `from..from + k` are filled, and given up with the move below.
            bundle(unsafe { bundle::pack(slots.add(from), k) });
            from += k;
        }
        // SAFETY: within the filled slots. They are cells, so a shared reference to the cache may change them.
        unsafe { std::ptr::copy(slots.add(n), slots, len - n) };
        self.len.store(len - n, Ordering::Relaxed);
    }

    /// Puts a buffer that belongs to `home` into its outbox, if that is in use for this home and will hold less than `limit`.
    #[inline(always)]
    pub(super) fn park_more(&self, header: NonNull<Header>, home: u16, limit: usize) -> bool {
        let outbox = &self.outboxes[usize::from(home) % OUTBOXES];
        let len = outbox.len.get();
        if outbox.home.get() != home || usize::from(len) + 1 >= limit {
            return false;
        }
        outbox.buffers[usize::from(len)].set(MaybeUninit::new(header));
        outbox.len.set(len + 1);
        self.parked.store(self.parked() + 1, Ordering::Relaxed);
        true
    }

    /// Puts a buffer that belongs to `home` into its outbox. `bundle` gets what had to make room or is `limit` long.
    #[inline]
    pub(super) fn park(
        &self,
        header: NonNull<Header>,
        home: u16,
        limit: usize,
        mut bundle: impl FnMut(u16, NonNull<Header>),
    ) {
        let outbox = &self.outboxes[usize::from(home) % OUTBOXES];
        if outbox.home.get() != home {
            self.unpark(outbox, &mut bundle);
            outbox.home.set(home);
        }
        let len = outbox.len.get();
        outbox.buffers[usize::from(len)].set(MaybeUninit::new(header));
        outbox.len.set(len + 1);
        self.parked.store(self.parked() + 1, Ordering::Relaxed);
        if usize::from(len) + 1 >= limit.min(BUNDLE) {
            self.unpark(outbox, &mut bundle);
        }
    }

    fn unpark(&self, outbox: &Outbox, bundle: &mut impl FnMut(u16, NonNull<Header>)) {
        let n = usize::from(outbox.len.replace(0));
        if n > 0 {
            self.parked.store(self.parked() - n, Ordering::Relaxed);
            // SAFETY: the first `n` slots are filled with buffers that are ours, and forgotten by `len` being 0 now.
            bundle(outbox.home.get(), unsafe {
                bundle::pack(outbox.buffers.as_ptr().cast(), n)
            });
        }
    }

    /// Empties the outboxes.
    pub(super) fn unpark_all(&self, mut bundle: impl FnMut(u16, NonNull<Header>)) {
        if self.parked() > 0 {
            self.outboxes
                .iter()
                .for_each(|outbox| self.unpark(outbox, &mut bundle));
        }
    }
}
