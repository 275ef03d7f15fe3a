//! Finishes in software what a port cannot leave to its other side: cuts large TCP and UDP frames
//! into wire packets ([`segment`]) and completes checksums ([`fill_checksum`]).
//!
//! The wire packets are those that a network card's TSO or Linux's software GSO would make.
//! Payload is copied once, into fresh buffers; headers must lie in the frame's first segment. No
//! state; any thread may call.
//!
//! A frame may stand for thousands of wire packets. So it is cut in chunks: a call makes as many
//! as its caller can use, and the rest waits in the frame, in one piece.

use crate::mem::{Packet, PacketList, Pool, Segments};
use crate::stats::DropReason;
use crate::wire::{Checksum, Gso, GsoKind, Headers, Network, PartialSum, fold, sum_bytes};

/// A frame was dropped instead of being cut. All its buffers have been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {packets} wire packets was dropped: {reason}")]
pub struct SegmentError {
    /// The reason to count.
    pub reason: DropReason,
    /// Wire packets lost: all that were still to be made of the frame.
    pub packets: u64,
}

/// Appends to `out` the next wire packets of a frame, at most `limit` (and at least one), with
/// complete checksums and with the frame's metadata. Returns the frame if there are more, which
/// another call then makes: it stands for those only. A frame that is not a large one is appended
/// itself, its checksum completed.
///
/// All wire packets of a call are appended or none. One that does not fit in a buffer of `pool`
/// is a chain of buffers.
///
/// # Errors
/// [`SegmentError`], with [`DropReason::NoBuffer`] if the pool is exhausted,
/// [`DropReason::TooLong`] if the headers do not fit in a buffer of `pool`, and another reason if
/// the metadata does not fit the frame.
pub fn segment(
    mut packet: Packet,
    limit: usize,
    pool: &Pool,
    out: &mut PacketList,
) -> Result<Option<Packet>, SegmentError> {
    let packets = packet.wire_packets();
    let failed = |reason| SegmentError { reason, packets };
    let Some(gso) = packet.gso() else {
        if packet.checksum().is_some() && !packet.make_unique(pool) {
            return Err(failed(DropReason::NoBuffer));
        }
        fill_checksum(&mut packet).map_err(failed)?;
        out.push_back(packet);
        return Ok(None);
    };
    let count = limit.clamp(1, usize::from(gso.segments));
    let cut = Cut::new(&packet, gso).and_then(|cut| cut.run(count, pool));
    out.append(&mut cut.map_err(failed)?);
    let left = gso.segments - count as u16;
    Ok((left > 0).then(|| {
        packet.set_segments_left(left);
        packet
    }))
}

/// Completes the checksum of a frame that is marked as needing it ([`Packet::checksum`]) and
/// clears the mark. Does nothing to other frames.
///
/// # Errors
/// [`DropReason::BadChecksumOffload`] if the field is not in the frame's first segment;
/// [`DropReason::BadGso`] for a large frame, which needs as many checksums as it has wire
/// packets. The frame is unchanged then.
///
/// # Panics
/// If the packet is marked and [shared](Packet::is_shared).
pub fn fill_checksum(packet: &mut Packet) -> Result<(), DropReason> {
    let Some(Checksum { start, offset }) = packet.checksum() else {
        return Ok(());
    };
    if packet.gso().is_some() {
        return Err(DropReason::BadGso);
    }
    let at = usize::from(start) + usize::from(offset);
    if at + 2 > packet.data().len() {
        return Err(DropReason::BadChecksumOffload);
    }
    let sum = packet.sum(usize::from(start));
    packet.data_mut()[at..at + 2].copy_from_slice(&never_zero(!fold(sum)).to_be_bytes());
    packet.set_checksum(None);
    Ok(())
}

/// RFC 768: zero would say that there is no checksum; 0xffff is the same number in one's
/// complement.
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// A large frame being cut.
struct Cut<'a> {
    frame: &'a Packet,
    /// Of the whole frame.
    gso: Gso,
    /// Wire packets that were made before.
    made: u16,
    headers: Headers,
    /// All headers, as in the frame.
    template: &'a [u8],
    /// Partial sum of the pseudo-header without its length.
    pseudo: u64,
    payload: Payload<'a>,
}

impl<'a> Cut<'a> {
    fn new(frame: &'a Packet, gso: Gso) -> Result<Cut<'a>, DropReason> {
        let headers = frame.parse()?;
        let whole = headers
            .gso(frame.data(), frame.len(), gso.kind, gso.ecn, gso.size)?
            .ok_or(DropReason::BadGso)?;
        let made = whole.segments.saturating_sub(gso.segments);
        let left = Gso {
            segments: whole.segments - made,
            ..whole
        };
        if left != gso || frame.is_partial() != (made > 0) {
            return Err(DropReason::BadGso);
        }
        let place = headers.checksum().ok_or(DropReason::BadGso)?;
        let (template, rest) = frame
            .data()
            .split_at_checked(usize::from(gso.header_len))
            .ok_or(DropReason::BadGso)?;
        let pseudo = match frame.checksum() {
            // The sum in the field is right even where the addresses in the IP header are not the
            // final ones (routing headers): take the frame's length out of it.
            Some(checksum) if checksum == place => {
                let at = usize::from(place.start + place.offset);
                let len = (frame.len() - usize::from(place.start)) as u16;
                sum_bytes(&template[at..at + 2]) + u64::from((!len).to_be())
            }
            Some(_) => return Err(DropReason::BadChecksumOffload),
            None => headers.pseudo_header(template, 0),
        };
        let mut segments = frame.segments();
        segments.next();
        let mut payload = Payload {
            part: rest,
            segments,
        };
        payload.skip(usize::from(made) * usize::from(gso.size));
        Ok(Cut {
            frame,
            gso: whole,
            made,
            headers,
            template,
            pseudo,
            payload,
        })
    }

    /// The next `count` wire packets, which there are.
    fn run(mut self, count: usize, pool: &Pool) -> Result<PacketList, DropReason> {
        let mut fresh = PacketList::new();
        if pool.alloc_bulk(count, &mut fresh) < count {
            return Err(DropReason::NoBuffer);
        }
        let mut wire = PacketList::new();
        let made = usize::from(self.made) * usize::from(self.gso.size);
        let mut rest = self.frame.len() - self.template.len() - made;
        let mut index = self.made;
        while let Some(mut packet) = fresh.pop_front() {
            let n = rest.min(usize::from(self.gso.size));
            rest -= n;
            if !packet.append(self.template) {
                return Err(DropReason::TooLong);
            }
            let sum = self.payload.copy(n, &mut packet, pool)?;
            self.write_headers(packet.data_mut(), index, n, sum);
            packet.copy_metadata(self.frame);
            packet.set_gso(None);
            packet.set_checksum(None);
            wire.push_back(packet);
            index += 1;
        }
        Ok(wire)
    }

    /// Adapts the headers of wire packet `index` with `payload` bytes, whose partial sum is
    /// `sum`. They are at the start of `data` and have the lengths that `parse` found in the
    /// frame.
    fn write_headers(&self, data: &mut [u8], index: u16, payload: usize, sum: u64) {
        let network_at = usize::from(self.headers.network_offset);
        let transport_at = usize::from(self.headers.transport_offset);
        let header = &mut data[network_at..self.template.len()];
        // None of the lengths overflows: the frame, which is longer, had room for its own.
        let network_len = header.len() + payload;
        let (network, transport) = header.split_at_mut(transport_at - network_at);
        let transport_len = (transport.len() + payload) as u16;

        if self.headers.network == Network::V4 {
            // RFC 791 3.1: total length, identification, header checksum.
            network[2..4].copy_from_slice(&(network_len as u16).to_be_bytes());
            let id = u16::from_be_bytes([network[4], network[5]]).wrapping_add(index);
            network[4..6].copy_from_slice(&id.to_be_bytes());
            network[10..12].fill(0);
            let checksum = !fold(sum_bytes(network));
            network[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            network[4..6].copy_from_slice(&((network_len - 40) as u16).to_be_bytes());
        }

        let field = if self.gso.kind == GsoKind::Udp {
            transport[4..6].copy_from_slice(&transport_len.to_be_bytes());
            6
        } else {
            self.write_tcp(transport, index);
            16
        };
        transport[field..field + 2].fill(0);
        let sum = sum + sum_bytes(transport) + self.pseudo + u64::from(transport_len.to_be());
        transport[field..field + 2].copy_from_slice(&never_zero(!fold(sum)).to_be_bytes());
    }

    fn write_tcp(&self, tcp: &mut [u8], index: u16) {
        const FIN: u8 = 0x01;
        const PSH: u8 = 0x08;
        const CWR: u8 = 0x80;
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let seq = seq.wrapping_add(u32::from(index) * u32::from(self.gso.size));
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        if index != 0 {
            tcp[13] &= !CWR;
        }
        if index + 1 != self.gso.segments {
            tcp[13] &= !(FIN | PSH);
        }
    }
}

/// The payload that is not copied yet.
struct Payload<'a> {
    part: &'a [u8],
    segments: Segments<'a>,
}

impl Payload<'_> {
    /// Leaves `n` bytes out.
    fn skip(&mut self, mut n: usize) {
        while n > self.part.len() {
            n -= self.part.len();
            match self.segments.next() {
                Some(part) => self.part = part,
                None => n = 0,
            }
        }
        self.part = &self.part[n..];
    }

    /// Appends the next `n` bytes to `packet`, in further buffers of `pool` if it is full.
    /// Returns their partial sum.
    fn copy(&mut self, mut n: usize, packet: &mut Packet, pool: &Pool) -> Result<u64, DropReason> {
        let mut sum = PartialSum::default();
        let mut further: Option<Packet> = None;
        while n > 0 {
            if self.part.is_empty() {
                self.part = self.segments.next().ok_or(DropReason::BadGso)?;
                continue;
            }
            let target = further.as_mut().unwrap_or(&mut *packet);
            let room = target.tailroom_mut();
            let now = n.min(self.part.len()).min(room.len());
            if now == 0 {
                let mut next = pool.alloc().map_err(|_| DropReason::NoBuffer)?;
                next.reserve(0);
                if let Some(full) = further.replace(next) {
                    packet.append_segment(full);
                }
                continue;
            }
            let (bytes, part) = self.part.split_at(now);
            room[..now].copy_from_slice(bytes);
            sum.add(&room[..now]);
            target.extend(now);
            self.part = part;
            n -= now;
        }
        if let Some(last) = further {
            packet.append_segment(last);
        }
        Ok(sum.get())
    }
}
