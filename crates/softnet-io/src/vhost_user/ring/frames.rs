//! Frames between chains and packets: one copy, directly.

use std::ops::Range;
use std::slice::Iter;

use softnet::mem::{HEADROOM, Packet, PacketList};
use softnet::stats::DropReason;
use softnet::tx::{Features, Sent, Xmit};
use softnet::wire::{GsoKind, MAX_FRAME, VNET_HDR_LEN, VnetHeader};
use softnet_engine::rx::Receive;
use zerocopy::byteorder::little_endian::U16;

use super::chain::Batch;
use super::{Ring, RingConfig, RingError};
use crate::Buffers;
use crate::vhost_user::memory::{GuestMemory, Span};

/// Chains in work at once.
const BATCH: usize = 32;
/// Spans of a chain that cost as much as a frame: to find, read and check them takes about as long.
/// A large frame has some more, and counts as many packets.
const FREE_SPANS: usize = 8;
/// Spans of a guest's buffers that a run of 64 packets looks at: as many as are
/// free when they are received. Beyond, to find and check them takes longer than a
/// run is to take.
pub const WORK: usize = 64 * FREE_SPANS;
/// Bytes that cost as much as a packet to copy.
const FREE_BYTES: usize = 2048;
/// `VIRTIO_NET_HDR_F_DATA_VALID`.
const DATA_VALID: u8 = 2;
/// An Ethernet header.
const MIN_FRAME: usize = 14;

/// A position in the bytes of chains.
struct Cursor<'a, 'm> {
    /// The rest of the current span.
    now: Span<'m>,
    rest: Iter<'a, Span<'m>>,
}

impl<'a, 'm> Cursor<'a, 'm> {
    #[inline]
    fn new(spans: &'a [Span<'m>]) -> Cursor<'a, 'm> {
        let mut rest = spans.iter();
        Cursor {
            now: rest.next().copied().unwrap_or(Span::EMPTY),
            rest,
        }
    }

    /// Reads a virtio-net header, or as much of one as there is.
    #[inline]
    fn read_header(&mut self) -> VnetHeader {
        let bytes = self.now.read_array().unwrap_or_else(|| {
            let mut bytes = [0; VNET_HDR_LEN];
            self.read(&mut bytes);
            bytes
        });
        VnetHeader::from_bytes(&bytes)
    }

    /// Writes a virtio-net header, or as much of it as has a place.
    #[inline]
    fn write_header(&mut self, Header { first, second }: Header) {
        if !self.now.update(first, second) {
            self.write(&first.to_ne_bytes());
            self.write(&second.to_ne_bytes());
        }
    }

    /// Reads as many bytes as there are.
    #[inline]
    fn read(&mut self, to: &mut [u8]) {
        let mut done = self.now.read_into(to);
        while done < to.len()
            && let Some(next) = self.rest.next()
        {
            self.now = *next;
            done += self.now.read_into(&mut to[done..]);
        }
    }

    /// Writes as many bytes as have a place.
    #[inline]
    fn write(&mut self, from: &[u8]) {
        let mut done = self.now.write_from(from);
        while done < from.len()
            && let Some(next) = self.rest.next()
        {
            self.now = *next;
            done += self.now.write_from(&from[done..]);
        }
    }
}

/// From the guest.
pub(super) struct Receiver<'a> {
    pub(super) memory: &'a GuestMemory,
    pub(super) buffers: &'a Buffers,
    pub(super) queue: Option<u16>,
    /// Bytes of a frame that a small buffer takes.
    pub(super) payload: usize,
    /// Empty small buffers.
    pub(super) fresh: &'a mut PacketList,
    /// The longest frame of one packet.
    pub(super) longest: usize,
}

impl<'m> Receiver<'m> {
    #[inline]
    pub(super) fn receive(
        &mut self,
        ring: &mut impl Ring,
        batch: &mut Batch<'m>,
        rx: &mut Receive<'_>,
    ) -> Result<bool, RingError> {
        let mut left = rx.budget;
        while left > 0 {
            batch.clear();
            let taken = ring.take(self.memory, false, left.min(BATCH), batch);
            if batch.chains.is_empty() {
                return taken.map(|()| false);
            }
            self.refill(batch.chains.len());
            let mut done = 0;
            for chain in &batch.chains {
                if left == 0 {
                    break;
                }
                let spans = batch.spans(chain);
                let used = match self.frame(spans, chain.len as usize) {
                    Ok(packet) => {
                        let wire_packets = packet.wire_packets() as usize;
                        rx.push(packet);
                        wire_packets
                    }
                    Err(reason) => {
                        rx.drop(reason);
                        1
                    }
                };
                // A long frame is one packet if its header says so.
                let copied = (chain.len as usize).min(MAX_FRAME) / FREE_BYTES;
                left = left.saturating_sub(used.max(copied) + spans.len() / FREE_SPANS);
                done += 1;
            }
            ring.complete(batch, done);
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
    fn frame(&mut self, spans: &[Span<'_>], len: usize) -> Result<Packet, DropReason> {
        let Some(len) = len.checked_sub(VNET_HDR_LEN).filter(|n| *n >= MIN_FRAME) else {
            return Err(DropReason::Runt);
        };
        let mut cursor = Cursor::new(spans);
        let mut header = cursor.read_header();
        if len > self.longest && header.gso_type == 0 {
            return Err(DropReason::TooLong);
        }
        // It is the device's to say so (virtio 1.2, 5.1.6.2.1): nobody here has verified it.
        header.flags &= !DATA_VALID;
        let mut packet = if len <= self.payload {
            // A long frame may have taken those of the frames behind it.
            self.refill(1);
            let mut packet = self.fresh.pop_front().ok_or(DropReason::NoBuffer)?;
            fill(&mut packet, &mut cursor, len);
            packet
        } else if len <= MAX_FRAME {
            self.copy_long(cursor, len).ok_or(DropReason::NoBuffer)?
        } else {
            return Err(DropReason::TooLong);
        };
        packet.set_queue(self.queue);
        packet.apply(&header)?;
        Ok(packet)
    }

    /// A packet of the next `len` bytes, which do not fit a small buffer: in one large one, else
    /// in as many small ones as it takes. `None`: there are not as many.
    fn copy_long(&mut self, mut cursor: Cursor<'_, '_>, len: usize) -> Option<Packet> {
        if let Some(large) = &self.buffers.large
            && len <= large.payload_size()
            && let Ok(mut packet) = large.alloc()
        {
            fill(&mut packet, &mut cursor, len);
            return Some(packet);
        }
        let segments = 1 + (len - self.payload).div_ceil(self.payload + HEADROOM);
        self.refill(segments);
        if self.fresh.len() < segments {
            return None;
        }
        let mut packet = self.fresh.pop_front()?;
        let mut left = len - fill(&mut packet, &mut cursor, len);
        while left > 0 {
            let mut segment = self.fresh.pop_front()?;
            segment.reserve(0);
            left -= fill(&mut segment, &mut cursor, left);
            packet.append_segment(segment);
        }
        Some(packet)
    }
}

/// Reads at most `len` bytes into the tailroom. Returns how many.
#[inline]
fn fill(packet: &mut Packet, cursor: &mut Cursor<'_, '_>, len: usize) -> usize {
    packet.extend_with(len, |place| cursor.read(place))
}

/// To the guest.
pub(super) struct Transmitter<'a> {
    pub(super) memory: &'a GuestMemory,
    pub(super) config: &'a RingConfig,
    /// Spans that may be looked at.
    pub(super) work: &'a mut usize,
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

impl<'m> Transmitter<'m> {
    #[inline]
    pub(super) fn transmit(
        &mut self,
        ring: &mut impl Ring,
        batch: &mut Batch<'m>,
        packets: &mut PacketList,
        sent: &mut Sent,
    ) -> Result<Xmit, RingError> {
        let mut gone = PacketList::new();
        let mut first = true;
        loop {
            batch.clear();
            let (mut used, mut done) = (0, 0);
            let mut result = Ok(Xmit::Complete);
            for packet in &*packets {
                if !packet.is_plain() && !takes(&self.config.takes, packet) {
                    sent.drop(DropReason::DriverRefused, packet);
                    done += 1;
                    continue;
                }
                let len = VNET_HDR_LEN + packet.len();
                let place = match batch.chains.get(used) {
                    Some(chain) if chain.len as usize >= len => Ok(Place::Chains(1)),
                    _ => {
                        let wanted = (packets.len() - done).min(BATCH);
                        match *self.work {
                            0 if !first => Ok(Place::Later),
                            _ => self.place(ring, batch, used, len, wanted),
                        }
                    }
                };
                match place {
                    Ok(Place::Chains(n)) => {
                        copy(self.config, batch, used..used + n, packet);
                        used += n;
                        sent.count(packet);
                    }
                    Ok(Place::Never) => {
                        sent.drop(DropReason::TooLong, packet);
                    }
                    Ok(Place::Later) => {
                        result = Ok(Xmit::Busy);
                        break;
                    }
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
                done += 1;
                first = false;
            }
            ring.complete(batch, used);
            packets.split_front(done, &mut gone);
            // What was busy may be so because of the batch alone.
            if result != Ok(Xmit::Busy) || used == 0 || *self.work == 0 {
                return result;
            }
        }
    }

    /// Finds chains for `len` bytes behind the `used` ones of the batch, and takes up to `wanted`
    /// of them into it if it has too few.
    fn place(
        &mut self,
        ring: &mut impl Ring,
        batch: &mut Batch<'m>,
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
                if !self.config.mergeable {
                    return Ok(Place::Never);
                }
            }
            let (before, looked) = (batch.chains.len(), batch.len());
            let taken = ring.take(self.memory, true, wanted, batch);
            *self.work = self.work.saturating_sub(batch.len() - looked);
            if batch.chains.len() == before {
                taken?;
                // With an empty batch before it, it has all that it ever gets.
                let all = batch.slots >= self.config.size || !batch.has_capacity();
                let never = used == 0 && all;
                return Ok(if never { Place::Never } else { Place::Later });
            }
        }
    }
}

/// True if a driver takes the offloads left to it. Others are finished before a packet comes here,
/// but for a moment after the guest has changed its mind.
fn takes(features: &Features, packet: &Packet) -> bool {
    let segments = packet.gso().is_none_or(|gso| {
        let kind = match gso.kind {
            GsoKind::TcpV4 => features.tso4,
            GsoKind::TcpV6 => features.tso6,
            GsoKind::Udp => features.uso,
        };
        kind && (features.ecn || !gso.ecn)
    });
    segments && (features.checksum || packet.checksum().is_none())
}

/// The bytes of a virtio-net header, as they lie in memory.
#[derive(Clone, Copy)]
struct Header {
    first: u64,
    second: u32,
}

impl Header {
    /// That of a packet in so many chains.
    #[inline]
    fn new(config: &RingConfig, packet: &Packet, chains: u16) -> Header {
        if packet.is_plain() && !packet.checksum_verified() {
            let [a, b] = chains.to_le_bytes();
            return Header {
                first: 0,
                second: u32::from_ne_bytes([0, 0, a, b]),
            };
        }
        let mut header = packet.vnet_header();
        // virtio 1.2 5.1.6.4.1: no flags where they were not negotiated.
        if !config.takes.checksum {
            header.flags = 0;
        }
        header.num_buffers = U16::new(chains);
        let [a, b, c, d, e, f, g, h, rest @ ..] = header.to_bytes();
        Header {
            first: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            second: u32::from_ne_bytes(rest),
        }
    }
}

/// Copies the packet behind its header into chains that have enough bytes.
#[inline]
fn copy(config: &RingConfig, batch: &mut Batch<'_>, chains: Range<usize>, packet: &Packet) {
    // A ring has at most 32,768 chains.
    let header = Header::new(config, packet, chains.len() as u16);
    let mut left = VNET_HDR_LEN + packet.len();
    if chains.len() == 1 && !packet.is_chained() {
        let chain = &batch.chains[chains.start];
        let mut cursor = Cursor::new(batch.spans(chain));
        cursor.write_header(header);
        cursor.write(packet.data());
        // A packet is shorter than 4 GiB.
        batch.chains[chains.start].written = left as u32;
        return;
    }
    let mut cursor = Cursor::new(batch.all_spans(chains.clone()));
    cursor.write_header(header);
    for segment in packet.segments() {
        cursor.write(segment);
    }
    for chain in &mut batch.chains[chains] {
        let written = left.min(chain.len as usize);
        chain.written = written as u32;
        left -= written;
    }
}
