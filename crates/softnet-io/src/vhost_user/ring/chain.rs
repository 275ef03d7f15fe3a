//! Chains of descriptors, flattened to spans of memory.

use std::ops::Range;

use softnet::wire::VNET_HDR_LEN;

use super::RingError;
use crate::vhost_user::memory::{GuestMemory, Span, Window};

/// `VIRTQ_DESC_F_*`.
pub(super) mod flag {
    /// The chain goes on.
    pub(in super::super) const NEXT: u16 = 1;
    /// The device writes the buffer.
    pub(in super::super) const WRITE: u16 = 2;
    /// The buffer is a table of descriptors.
    pub(in super::super) const INDIRECT: u16 = 4;
}

/// A batch that has as many spans takes no further chain, so that the work of a batch has a
/// bound that is not the square of the ring's size.
const ENOUGH: usize = 1024;
/// The most descriptors of a chain in the ring, and of those in an indirect table; QEMU has the
/// same limit. A chain as long as a ring may be would cost each packet a millisecond.
pub(super) const MAX_CHAIN: u16 = 1024;
/// The most spans of a chain: a buffer may go over from one region into the next. One that lies in
/// as many regions as there may be would cost each of its descriptors as many.
pub(super) const MAX_SPANS: usize = 2 * MAX_CHAIN as usize;

/// A descriptor, read once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    /// The next descriptor of a split ring; the chain's identifier in a packed one.
    pub(super) next: u16,
}

impl Descriptor {
    /// A descriptor of a split ring.
    #[inline]
    pub(super) fn split(words: [u64; 2]) -> Descriptor {
        let [address, rest] = words;
        Descriptor {
            address,
            len: rest as u32,
            flags: (rest >> 32) as u16,
            next: (rest >> 48) as u16,
        }
    }
}

/// A chain in work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// The driver's number for it.
    pub(super) id: u16,
    /// Places in the ring: 1 in a split ring, the number of descriptors in a packed one.
    pub(super) slots: u16,
    /// The chain's spans among those of the batch.
    start: u32,
    end: u32,
    /// Bytes of its buffers.
    pub(super) len: u32,
    /// Bytes that the device has written.
    pub(super) written: u32,
}

/// Asks for the cache lines of a buffer that are used first.
#[inline(always)]
fn prefetch(span: &Span<'_>, writable: bool) {
    if writable {
        span.prefetch_for_write(VNET_HDR_LEN);
    } else {
        span.prefetch();
    }
}

/// Chains in work, in the order of the ring.
#[derive(Debug, Default)]
pub(super) struct Batch<'m> {
    pub(super) chains: Vec<Chain>,
    /// The bytes of their buffers, in order.
    spans: Vec<Span<'m>>,
    /// Places in the ring of all chains.
    pub(super) slots: u16,
    /// Bytes of the chain that is being added.
    len: u64,
    /// See [`GuestMemory::span`].
    region: usize,
}

impl Batch<'_> {
    /// An empty batch for other memory, in the same allocations.
    pub(super) fn recycle<'n>(mut self) -> Batch<'n> {
        self.clear();
        Batch {
            chains: self.chains,
            // An empty vector is collected in place.
            spans: self.spans.into_iter().map(|_| Span::EMPTY).collect(),
            slots: 0,
            len: 0,
            region: self.region,
        }
    }
}

impl<'m> Batch<'m> {
    pub(super) fn clear(&mut self) {
        self.chains.clear();
        self.spans.clear();
        (self.slots, self.len) = (0, 0);
    }

    /// Spans of all chains.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if it takes further chains.
    #[inline]
    pub(super) fn has_capacity(&self) -> bool {
        self.spans.len() < ENOUGH
    }

    /// The bytes of a chain.
    #[inline]
    pub(super) fn spans(&self, chain: &Chain) -> &[Span<'m>] {
        &self.spans[chain.start as usize..chain.end as usize]
    }

    /// The bytes of chains that follow each other.
    pub(super) fn all_spans(&self, chains: Range<usize>) -> &[Span<'m>] {
        match &self.chains[chains] {
            [] => &[],
            [first, .., last] => &self.spans[first.start as usize..last.end as usize],
            [one] => self.spans(one),
        }
    }

    /// The region in which the last buffer was that was searched for.
    #[inline]
    pub(super) fn window(&self, memory: &'m GuestMemory) -> Window<'m> {
        memory.window(self.region)
    }

    /// Adds a chain of one buffer in one place, if it lies inside of `window`. False: it does not,
    /// and is not added.
    #[inline(always)]
    pub(super) fn push_plain(
        &mut self,
        window: &Window<'m>,
        address: u64,
        len: u32,
        id: u16,
        writable: bool,
    ) -> bool {
        let Some(span) = window.span(address, len as usize) else {
            return false;
        };
        let start = self.spans.len() as u32;
        self.push_span(span, writable);
        self.chains.push(Chain {
            id,
            slots: 1,
            start,
            end: start + 1,
            len,
            written: 0,
        });
        self.slots += 1;
        true
    }

    /// As [`push_plain`](Batch::push_plain), of the four chains of a line of a packed ring: all or
    /// none of them.
    #[inline(always)]
    pub(super) fn push_line(
        &mut self,
        window: &Window<'m>,
        line: [[u64; 2]; 4],
        writable: bool,
    ) -> bool {
        let span = |[address, rest]: [u64; 2]| window.span(address, rest as u32 as usize);
        let [Some(a), Some(b), Some(c), Some(d)] = line.map(span) else {
            return false;
        };
        let spans = [a, b, c, d];
        spans.iter().for_each(|span| prefetch(span, writable));
        let start = self.spans.len() as u32;
        self.spans.extend(spans);
        self.chains
            .extend((start..).zip(line).map(|(start, [_, rest])| Chain {
                id: (rest >> 32) as u16,
                slots: 1,
                start,
                end: start + 1,
                len: rest as u32,
                written: 0,
            }));
        self.slots += 4;
        true
    }

    /// Adds a buffer to the chain that is being added.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        memory: &'m GuestMemory,
        from: Descriptor,
        writable: bool,
    ) -> Result<(), RingError> {
        if (from.flags & flag::WRITE != 0) != writable {
            return Err(RingError::WrongDirection);
        }
        self.len += u64::from(from.len);
        let len = from.len as usize;
        // An empty one, too: it counts as work.
        match memory.window(self.region).span(from.address, len) {
            Some(span) => self.push_span(span, writable),
            None => self.push_parts(memory, from.address, len, writable)?,
        }
        Ok(())
    }

    #[inline(always)]
    fn push_span(&mut self, span: Span<'m>, writable: bool) {
        prefetch(&span, writable);
        self.spans.push(span);
    }

    /// Adds a buffer in another region than that of the last, or in several.
    #[inline(never)]
    fn push_parts(
        &mut self,
        memory: &'m GuestMemory,
        mut at: u64,
        mut left: usize,
        writable: bool,
    ) -> Result<(), RingError> {
        if left == 0 {
            self.spans.push(Span::EMPTY);
        }
        let start = self.chains.last().map_or(0, |chain| chain.end) as usize;
        while left > 0 {
            if self.spans.len() - start >= MAX_SPANS {
                return Err(RingError::Scattered);
            }
            let span = memory.span(at, left, &mut self.region)?;
            left -= span.len();
            // If it wraps, the next byte is not in guest memory.
            at = at.wrapping_add(span.len() as u64);
            self.push_span(span, writable);
        }
        Ok(())
    }

    /// Ends the chain that is being added.
    #[inline]
    pub(super) fn end(&mut self, id: u16, slots: u16) -> Result<(), RingError> {
        let len = u32::try_from(self.len).map_err(|_| RingError::LongChain)?;
        self.len = 0;
        let start = self.chains.last().map_or(0, |chain| chain.end);
        self.chains.push(Chain {
            id,
            slots,
            start,
            // A chain has some for each descriptor, and a batch not many more.
            end: self.spans.len() as u32,
            len,
            written: 0,
        });
        self.slots += slots;
        Ok(())
    }

    /// Forgets the chain that is being added.
    #[cold]
    pub(super) fn abandon(&mut self) {
        let end = self.chains.last().map_or(0, |chain| chain.end);
        self.spans.truncate(end as usize);
        self.len = 0;
    }

    /// Adds the buffers of an indirect table. It has at most as many descriptors as the ring, and
    /// is read a descriptor at a time, [`MAX_CHAIN`] at most. `linked`: they are linked by `next`,
    /// else in order.
    #[inline]
    pub(super) fn push_indirect(
        &mut self,
        memory: &'m GuestMemory,
        table: &Descriptor,
        size: u16,
        linked: bool,
        writable: bool,
    ) -> Result<(), RingError> {
        let n = table.len / 16;
        let possible = n > 0 && n <= size.into() && table.len.is_multiple_of(16);
        if !possible || table.flags & flag::NEXT != 0 {
            return Err(RingError::BadIndirect);
        }
        let (mut index, mut read) = (0, 0);
        loop {
            if read == n.min(MAX_CHAIN.into()) {
                return Err(RingError::EndlessChain);
            }
            read += 1;
            let mut bytes = [[0; 8]; 2];
            let at = table.address.wrapping_add(16 * u64::from(index));
            memory.read_into(at, bytes.as_flattened_mut())?;
            let mut descriptor = Descriptor::split(bytes.map(u64::from_le_bytes));
            if linked && descriptor.flags & flag::INDIRECT != 0 {
                return Err(RingError::BadIndirect);
            }
            if !linked && !writable {
                // Of a packed ring all other flags are ignored (2.8.7). DPDK's driver leaves this
                // one where it wants nothing to be written, too, and its back end does not look.
                descriptor.flags &= !flag::WRITE;
            }
            self.push(memory, descriptor, writable)?;
            if linked {
                if descriptor.flags & flag::NEXT == 0 {
                    return Ok(());
                }
                index = descriptor.next.into();
                if index >= n {
                    return Err(RingError::BadDescriptor(descriptor.next));
                }
            } else {
                index += 1;
                if index == n {
                    return Ok(());
                }
            }
        }
    }
}
