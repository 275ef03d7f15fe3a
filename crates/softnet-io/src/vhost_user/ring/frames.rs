//! Frames between chains and packets: one copy, directly.

use std::slice::Iter;

use softnet::mem::{HEADROOM, Packet, PacketList};
use softnet::stats::DropReason;
use softnet::tx::{Sent, Xmit};
use softnet::wire::{MAX_FRAME, VNET_HDR_LEN, VnetHeader};
use softnet_engine::rx::CountDrop;
use zerocopy::byteorder::little_endian::U16;

use super::chain::{Batch, Buffer};
use super::{Ring, RingError};
use crate::Buffers;
use crate::vhost_user::memory::{GuestMemory, OutOfRange};

/// Chains in work at once.
const BATCH: usize = 32;
/// Descriptors of a chain that cost as much as a frame.
const FREE_DESCRIPTORS: usize = 64;
/// An Ethernet header.
const MIN_FRAME: usize = 14;

/// A position in a list of buffers.
struct Cursor<'a> {
    memory: &'a GuestMemory,
    /// What is left of the current buffer.
    now: Buffer,
    rest: Iter<'a, Buffer>,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn new(memory: &'a GuestMemory, buffers: &'a [Buffer]) -> Cursor<'a> {
        Cursor {
            memory,
            now: Buffer { address: 0, len: 0 },
            rest: buffers.iter(),
        }
    }

    /// Where the next bytes are and how many of `wanted` lie there. `None` at the end.
    #[inline]
    fn step(&mut self, wanted: usize) -> Option<(u64, usize)> {
        while self.now.len == 0 {
            self.now = *self.rest.next()?;
        }
        let n = (self.now.len as usize).min(wanted);
        let address = self.now.address;
        self.now = Buffer {
            // If it wraps, the next byte is not in guest memory.
            address: address.wrapping_add(n as u64),
            len: self.now.len - n as u32,
        };
        Some((address, n))
    }

    /// The caller knows that the buffers have as many bytes.
    #[inline]
    fn read(&mut self, mut to: &mut [u8]) -> Result<(), OutOfRange> {
        while !to.is_empty()
            && let Some((at, n)) = self.step(to.len())
        {
            let (part, rest) = to.split_at_mut(n);
            self.memory.read_into(at, part)?;
            to = rest;
        }
        Ok(())
    }

    /// The caller knows that the buffers have as many bytes.
    #[inline]
    fn write(&mut self, mut from: &[u8]) -> Result<(), OutOfRange> {
        while !from.is_empty()
            && let Some((at, n)) = self.step(from.len())
        {
            let (part, rest) = from.split_at(n);
            self.memory.write_from(at, part)?;
            from = rest;
        }
        Ok(())
    }
}

/// From the guest.
pub(super) struct Receiver<'a> {
    pub(super) memory: &'a GuestMemory,
    pub(super) buffers: &'a Buffers,
    pub(super) queue: Option<u16>,
    /// Empty small buffers.
    pub(super) fresh: &'a mut PacketList,
}

impl Receiver<'_> {
    #[inline]
    pub(super) fn receive(
        &mut self,
        ring: &mut impl Ring,
        batch: &mut Batch,
        budget: usize,
        out: &mut PacketList,
        drops: &mut dyn CountDrop,
    ) -> Result<bool, RingError> {
        let mut left = budget;
        while left > 0 {
            batch.clear();
            let taken = ring.take(self.memory, false, left.min(BATCH), batch);
            if batch.chains.is_empty() {
                return taken.map(|()| false);
            }
            self.refill(batch.chains.len());
            let mut done = 0;
            let mut copied = Ok(());
            while done < batch.chains.len() && left > 0 {
                let buffers = batch.buffers(done..done + 1);
                let len = batch.chains[done].len as usize;
                let used = match self.frame(buffers, len) {
                    Ok(Ok(packet)) => {
                        let wire_packets = packet.wire_packets() as usize;
                        out.push_back(packet);
                        wire_packets
                    }
                    Ok(Err(reason)) => {
                        drops.count_drop(reason, 1);
                        1
                    }
                    Err(error) => {
                        copied = Err(error);
                        break;
                    }
                };
                left = left.saturating_sub(used + buffers.len() / FREE_DESCRIPTORS);
                done += 1;
            }
            ring.complete(batch, done);
            copied?;
            taken?;
        }
        Ok(true)
    }

    /// Sees to it that there are `n` empty small buffers, if the pool has as many.
    #[inline]
    fn refill(&mut self, n: usize) {
        let missing = n.saturating_sub(self.fresh.len());
        if missing > 0 {
            self.buffers.small.alloc_bulk(missing, self.fresh);
        }
    }

    /// Copies a frame of `len` bytes, header included.
    #[inline]
    fn frame(
        &mut self,
        buffers: &[Buffer],
        len: usize,
    ) -> Result<Result<Packet, DropReason>, OutOfRange> {
        let Some(len) = len.checked_sub(VNET_HDR_LEN).filter(|n| *n >= MIN_FRAME) else {
            return Ok(Err(DropReason::Runt));
        };
        if len > MAX_FRAME {
            return Ok(Err(DropReason::TooLong));
        }
        let mut cursor = Cursor::new(self.memory, buffers);
        let mut header = [0; VNET_HDR_LEN];
        cursor.read(&mut header)?;
        let Some(mut packet) = self.copy(&mut cursor, len)? else {
            return Ok(Err(DropReason::NoBuffer));
        };
        packet.set_queue(self.queue);
        let applied = packet.apply(&VnetHeader::from_bytes(&header));
        Ok(applied.map(|()| packet))
    }

    /// A packet of the next `len` bytes: in one small buffer, else in one large one, else in as
    /// many small ones as it takes. `None`: there are not as many.
    #[inline]
    fn copy(&mut self, cursor: &mut Cursor<'_>, len: usize) -> Result<Option<Packet>, OutOfRange> {
        if len > self.buffers.small.payload_size() {
            return self.copy_long(cursor, len);
        }
        // A long frame may have taken those of the frames behind it.
        self.refill(1);
        let Some(mut packet) = self.fresh.pop_front() else {
            return Ok(None);
        };
        fill(&mut packet, cursor, len)?;
        Ok(Some(packet))
    }

    fn copy_long(
        &mut self,
        cursor: &mut Cursor<'_>,
        len: usize,
    ) -> Result<Option<Packet>, OutOfRange> {
        if let Some(large) = &self.buffers.large
            && len <= large.payload_size()
            && let Ok(mut packet) = large.alloc()
        {
            fill(&mut packet, cursor, len)?;
            return Ok(Some(packet));
        }
        let small = &self.buffers.small;
        let segments = 1 + (len - small.payload_size()).div_ceil(small.payload_size() + HEADROOM);
        self.refill(segments);
        if self.fresh.len() < segments {
            return Ok(None);
        }
        let Some(mut packet) = self.fresh.pop_front() else {
            return Ok(None);
        };
        let mut left = len - fill(&mut packet, cursor, len)?;
        while left > 0
            && let Some(mut segment) = self.fresh.pop_front()
        {
            segment.reserve(0);
            left -= fill(&mut segment, cursor, left)?;
            packet.append_segment(segment);
        }
        Ok(Some(packet))
    }
}

/// Reads at most `len` bytes into the tailroom. Returns how many.
#[inline]
fn fill(packet: &mut Packet, cursor: &mut Cursor<'_>, len: usize) -> Result<usize, OutOfRange> {
    let tailroom = packet.tailroom_mut();
    let n = len.min(tailroom.len());
    cursor.read(&mut tailroom[..n])?;
    packet.extend(n);
    Ok(n)
}

/// To the guest.
pub(super) struct Transmitter<'a> {
    pub(super) memory: &'a GuestMemory,
    pub(super) mergeable: bool,
    /// Descriptors of the ring.
    pub(super) size: usize,
}

/// Where a packet goes.
enum Place {
    /// So many of the next chains.
    Chains(usize),
    /// Nowhere until the batch is completed, or the guest offers more.
    Later,
    /// Nowhere ever.
    Never,
}

impl Transmitter<'_> {
    #[inline]
    pub(super) fn transmit(
        &mut self,
        ring: &mut impl Ring,
        batch: &mut Batch,
        packets: &mut PacketList,
        sent: &mut Sent,
    ) -> Result<Xmit, RingError> {
        let mut done = PacketList::new();
        loop {
            batch.clear();
            let mut used = 0;
            let result = loop {
                let Some(packet) = packets.front() else {
                    break Ok(Xmit::Complete);
                };
                let len = VNET_HDR_LEN + packet.len();
                let wanted = packets.len().min(BATCH);
                let copied = match self.place(ring, batch, used, len, wanted) {
                    Ok(Place::Chains(n)) => self.copy(batch, used, n, packet).map(|()| Some(n)),
                    Ok(Place::Never) => Ok(None),
                    Ok(Place::Later) => break Ok(Xmit::Busy),
                    Err(error) => Err(error),
                };
                let Some(packet) = (match copied {
                    Ok(_) => packets.pop_front(),
                    Err(error) => break Err(error),
                }) else {
                    break Ok(Xmit::Complete);
                };
                let wire_packets = packet.wire_packets();
                if let Ok(Some(n)) = copied {
                    used += n;
                    sent.packets += wire_packets;
                    sent.bytes += packet.wire_len();
                } else {
                    let before = sent.dropped.map_or(0, |(_, n)| n);
                    sent.dropped = Some((DropReason::TooLong, before + wire_packets));
                }
                done.push_back(packet);
            };
            ring.complete(batch, used);
            // What was busy may be so because of the batch alone.
            if result != Ok(Xmit::Busy) || used == 0 {
                return result;
            }
        }
    }

    /// Finds chains for `len` bytes behind the `used` ones of the batch, and takes up to `wanted`
    /// of them into it if it has too few.
    #[inline]
    fn place(
        &self,
        ring: &mut impl Ring,
        batch: &mut Batch,
        used: usize,
        len: usize,
        wanted: usize,
    ) -> Result<Place, RingError> {
        let (mut n, mut have) = (0, 0);
        loop {
            while let Some(chain) = batch.chains.get(used + n) {
                n += 1;
                have += u64::from(chain.len);
                if have >= len as u64 {
                    return Ok(Place::Chains(n));
                }
                if !self.mergeable {
                    return Ok(Place::Never);
                }
            }
            let before = batch.chains.len();
            let taken = ring.take(self.memory, true, wanted, batch);
            if batch.chains.len() == before {
                taken?;
                // With an empty ring before it, it has all that it ever gets.
                let all = usize::from(batch.slots) >= self.size || !batch.has_capacity();
                let never = used == 0 && all;
                return Ok(if never { Place::Never } else { Place::Later });
            }
        }
    }

    /// Copies the packet behind its header into `n` chains that have enough bytes.
    #[inline]
    fn copy(
        &self,
        batch: &mut Batch,
        first: usize,
        n: usize,
        packet: &Packet,
    ) -> Result<(), RingError> {
        let mut header = packet.vnet_header();
        // A ring has at most 32,768 chains.
        header.num_buffers = U16::new(n as u16);
        let mut cursor = Cursor::new(self.memory, batch.buffers(first..first + n));
        cursor.write(&header.to_bytes())?;
        for segment in packet.segments() {
            cursor.write(segment)?;
        }
        let mut left = VNET_HDR_LEN + packet.len();
        for chain in &mut batch.chains[first..first + n] {
            let written = left.min(chain.len as usize);
            chain.written = written as u32;
            left -= written;
        }
        Ok(())
    }
}
