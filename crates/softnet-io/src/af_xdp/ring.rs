//! The rings that an XDP socket shares with the kernel (af_xdp in the kernel's documentation):
//! one side writes entries and moves the producer's index, the other reads them and moves the
//! consumer's.
//!
//! Each side writes one index and keeps what it last read of the other's, which it reads again
//! only when that says that nothing can be done.
//!
//! # Memory ordering
//!
//! An entry is written before the producer's index is stored with Release, and read after that was
//! loaded with Acquire: so who sees the index sees the entry. The consumer has read an entry before
//! it stores its index with Release, and the producer loads that with Acquire before it writes to
//! the same place again: so it does not overwrite what is still being read. Indexes count up and
//! wrap at 2^32, of which the size is a divisor. Whether the kernel sleeps is asked with a full
//! fence behind the store of the index: it sets the flag, and looks at the index once more.
//!
//! # Bounds
//!
//! An index of the kernel's that is farther from ours than the ring is long is not believed: there
//! is nothing to read then, or no room. Places are masked, so no index leads outside.

#![allow(unsafe_code, reason = "maps and shares memory with the kernel")]

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpDesc, XdpRingOffset};

/// An entry of a ring: plain data, of which the kernel may write any bits.
///
/// # Safety
/// All bit patterns are values, and there is no padding.
pub(super) unsafe trait Entry: Copy {}

// SAFETY: an integer.
unsafe impl Entry for u64 {}
// SAFETY: integers of 64, 32 and 32 bits; the last is a set of flags that keeps unknown ones.
unsafe impl Entry for XdpDesc {}

/// Memory of a ring.
enum Memory {
    Mapped {
        start: NonNull<u8>,
        len: usize,
    },
    #[cfg(test)]
    Heap(Box<[std::cell::UnsafeCell<u64>]>),
}

// SAFETY: the memory may be used from any thread; this only gives out its address.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn start(&self) -> NonNull<u8> {
        match self {
            Memory::Mapped { start, .. } => *start,
            #[cfg(test)]
            Memory::Heap(words) => NonNull::from(&**words).cast(),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self {
            // SAFETY: mapped in `Ring::map` with this length; nothing points there any more, as
            // rings keep their memory. An error would mean that it is not mapped.
            Memory::Mapped { start, len } => unsafe {
                let _ = munmap(start.as_ptr().cast(), *len);
            },
            #[cfg(test)]
            Memory::Heap(_) => {}
        }
    }
}

/// A ring as both of its sides see it.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Ring<T> {
    memory: Arc<Memory>,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: NonNull<T>,
    size: u32,
}

// SAFETY: the memory may be used from any thread; who uses which of it is up to the two sides.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Maps a ring of a socket. `size`: entries, as the socket was told; a power of two.
    ///
    /// # Errors
    /// If the kernel refuses, or says that parts of the ring are where they cannot be.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        places: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Ring<T>> {
        let place = |offset: u64| usize::try_from(offset).map_err(|_| wrong());
        let entries = place(places.desc)?;
        let (producer, consumer) = (place(places.producer)?, place(places.consumer)?);
        let flags = places.flags.map(place).transpose()?;
        let len = (size as usize)
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_add(entries))
            .ok_or_else(wrong)?;
        let indexes = [Some(producer), Some(consumer), flags];
        let inside =
            |at: usize| at.is_multiple_of(size_of::<u32>()) && at <= len - size_of::<u32>();
        if !size.is_power_of_two()
            || !entries.is_multiple_of(align_of::<T>())
            || !indexes.into_iter().flatten().all(inside)
        {
            return Err(wrong());
        }
        let (access, shared) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::POPULATE,
        );
        // SAFETY: a new mapping where the system chooses.
        let start = unsafe { mmap(ptr::null_mut(), len, access, shared, socket, page_offset)? };
        let start = NonNull::new(start.cast()).ok_or_else(wrong)?;
        Ok(Ring {
            memory: Arc::new(Memory::Mapped { start, len }),
            producer,
            consumer,
            flags,
            // SAFETY: inside the mapping (`len` has been computed from it).
            entries: unsafe { start.add(entries) }.cast(),
            size,
        })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` is one of the places that were found to be aligned and inside the memory,
        // which lives as long as `self`, and is accessed there by atomic operations alone.
        unsafe { self.memory.start().add(at).cast().as_ref() }
    }

    /// The place of an index.
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: masked, it is below the size, and as many entries are in the memory.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

fn wrong() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

/// The side that writes: of fill rings and transmit rings.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Behind the last entry that was written.
    next: u32,
    /// Index of the other side, as last seen.
    seen: u32,
}

impl<T: Entry> Producer<T> {
    /// The producer of a ring that has none yet.
    pub(super) fn new(ring: Ring<T>) -> Producer<T> {
        Producer {
            next: ring.word(ring.producer).load(Ordering::Relaxed),
            seen: ring.word(ring.consumer).load(Ordering::Acquire),
            ring,
        }
    }

    /// Writes an entry, which the other side sees after [`submit`](Producer::submit). False: there
    /// is no room.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.seen) >= self.ring.size {
            // Acquire: its reads of what is overwritten are over.
            self.seen = self.ring.word(self.ring.consumer).load(Ordering::Acquire);
            if self.next.wrapping_sub(self.seen) >= self.ring.size {
                return false;
            }
        }
        // SAFETY: the other side is behind this place, and comes to it after the index is stored.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the other side what was written.
    pub(super) fn submit(&mut self) {
        let index = self.ring.word(self.ring.producer);
        // Release: the entries are written.
        index.store(self.next, Ordering::Release);
    }

    /// Entries that the other side has not taken.
    pub(super) fn waiting(&self) -> u32 {
        let seen = self.ring.word(self.ring.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(seen).min(self.ring.size)
    }

    /// True if the kernel takes nothing before a system call. A kernel without the flag (before
    /// Linux 5.4) always wants one.
    pub(super) fn needs_wakeup(&self) -> bool {
        const NEED_WAKEUP: u32 = 1;
        fence(Ordering::SeqCst);
        self.ring
            .flags
            .is_none_or(|flags| self.ring.word(flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0)
    }
}

/// The side that reads: of receive rings and completion rings.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry to read.
    next: u32,
    /// Index of the other side, as last seen.
    seen: u32,
}

impl<T: Entry> Consumer<T> {
    /// The consumer of a ring that has none yet.
    pub(super) fn new(ring: Ring<T>) -> Consumer<T> {
        let next = ring.word(ring.consumer).load(Ordering::Relaxed);
        Consumer {
            ring,
            next,
            seen: next,
        }
    }

    /// Entries that can be read. `wanted`: no more are asked for.
    pub(super) fn waiting(&mut self, wanted: u32) -> u32 {
        if self.seen.wrapping_sub(self.next) < wanted {
            // Acquire: the entries are written.
            let seen = self.ring.word(self.ring.producer).load(Ordering::Acquire);
            if seen.wrapping_sub(self.next) <= self.ring.size {
                self.seen = seen;
            }
        }
        self.seen.wrapping_sub(self.next)
    }

    /// The next entry. Its place is the other side's again after
    /// [`release`](Consumer::release).
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.waiting(1) == 0 {
            return None;
        }
        // SAFETY: the other side has written this entry, and leaves it until the index is stored.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of what was read back.
    pub(super) fn release(&mut self) {
        let index = self.ring.word(self.ring.consumer);
        // Release: the entries have been read.
        index.store(self.next, Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("next", &self.next)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("next", &self.next)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

// Of this name, by which miri finds it.
#[cfg(test)]
mod pointer_tests {
    use std::cell::UnsafeCell;
    use std::collections::VecDeque;
    use std::thread;

    use super::*;

    /// A ring of 64-bit entries on the heap, whose indexes both start at `index`.
    fn ring(size: u32, index: u32) -> Ring<u64> {
        let words = (0..3 + size).map(|_| UnsafeCell::new(0)).collect();
        let memory = Arc::new(Memory::Heap(words));
        let ring = Ring {
            producer: 0,
            consumer: 8,
            flags: Some(16),
            // SAFETY: behind the three words, inside the block.
            entries: unsafe { memory.start().add(24) }.cast(),
            memory,
            size,
        };
        for at in [ring.producer, ring.consumer] {
            ring.word(at).store(index, Ordering::Relaxed);
        }
        ring
    }

    /// Both sides do what a queue does that holds as many entries, wherever indexes start.
    #[test]
    fn a_ring_is_a_bounded_queue() {
        const STEPS: usize = if cfg!(miri) { 300 } else { 20_000 };
        let mut seed = 0x9e37_79b9_u32;
        let mut random = move |below: u32| {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed % below
        };
        for index in [0, 5, u32::MAX - 3, u32::MAX] {
            for size in [1, 4, 8] {
                let ring = ring(size, index);
                let mut producer = Producer::new(ring.clone());
                let mut consumer = Consumer::new(ring);
                // Written, and shown; read, and not given back.
                let (mut hidden, mut shown) = (VecDeque::new(), VecDeque::new());
                let (mut kept, mut number) = (0, 0);
                for _ in 0..STEPS {
                    match random(4) {
                        0 => {
                            let full = hidden.len() + shown.len() + kept == size as usize;
                            assert_eq!(producer.push(number), !full);
                            if !full {
                                hidden.push_back(number);
                                number += 1;
                            }
                        }
                        1 => {
                            producer.submit();
                            shown.append(&mut hidden);
                        }
                        2 => {
                            let entry = consumer.pop();
                            assert_eq!(entry, shown.pop_front());
                            kept += usize::from(entry.is_some());
                        }
                        _ => {
                            consumer.release();
                            kept = 0;
                        }
                    }
                    let taken = hidden.len() + shown.len() + kept;
                    assert_eq!(producer.waiting() as usize, taken);
                    assert_eq!(consumer.waiting(u32::MAX) as usize, shown.len());
                }
            }
        }
    }

    #[test]
    fn entries_cross_between_threads() {
        const COUNT: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let ring = ring(16, u32::MAX - 50);
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..COUNT {
                    while !producer.push(number) {
                        thread::yield_now();
                    }
                    producer.submit();
                }
            });
            for number in 0..COUNT {
                loop {
                    if let Some(entry) = consumer.pop() {
                        assert_eq!(entry, number);
                        break;
                    }
                    thread::yield_now();
                }
                consumer.release();
            }
        });
    }

    /// An index that the ring cannot have: nothing is read, and nothing overwritten.
    #[test]
    fn an_impossible_index_is_not_believed() {
        let ring = ring(4, 10);
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring.clone());
        ring.word(ring.producer).store(15, Ordering::Relaxed);
        assert_eq!((consumer.waiting(1), consumer.pop()), (0, None));
        ring.word(ring.producer).store(9, Ordering::Relaxed);
        assert_eq!(consumer.pop(), None);
        for number in 0..4 {
            assert!(producer.push(number));
        }
        ring.word(ring.consumer).store(15, Ordering::Relaxed);
        assert!(!producer.push(4));
        assert_eq!(producer.waiting(), 4);
    }
}
