//! Finishes in software what a port cannot leave to its other side: makes wire packets of large
//! TCP and UDP frames ([`segment`]) and completes checksums ([`fill_checksum`]).
//!
//! The wire packets are those that a network card's TSO or Linux's software GSO would make.
//! Payload is copied once, into fresh buffers; headers must lie in the frame's first segment.
//!
//! A frame may stand for thousands of wire packets. So it is segmented in chunks: a call makes as
//! many as its caller can use, and the rest waits in the frame, in one piece.

use crate::mem::{AccountedLen, Packet, PacketList, Pool};
use crate::stats::DropReason;
use crate::wire::{Checksum, Gso, fold, sum_bytes};

/// A frame was dropped instead of being segmented. All its buffers have been freed.
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
/// All wire packets of a call are appended or none. One that does not fit in a buffer of `pool` is
/// a chain of buffers.
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
    out.append(&mut next(&packet, gso, count, pool).map_err(failed)?);
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
/// [`DropReason::BadGso`] for a large frame, which needs as many checksums as it has wire packets.
/// The frame is unchanged then.
///
/// # Panics
/// If the packet is marked and [shared](Packet::is_shared).
pub fn fill_checksum(packet: &mut Packet) -> Result<(), DropReason> {
    let Some(checksum) = packet.checksum() else {
        return Ok(());
    };
    if packet.gso().is_some() {
        return Err(DropReason::BadGso);
    }
    complete(packet, checksum)?;
    packet.set_checksum(None);
    Ok(())
}

/// Completes a checksum whose field holds the pseudo-header's sum.
#[inline]
fn complete(packet: &mut Packet, checksum: Checksum) -> Result<(), DropReason> {
    let start = usize::from(checksum.start);
    let at = start + usize::from(checksum.offset);
    if at + 2 > packet.data().len() {
        return Err(DropReason::BadChecksumOffload);
    }
    let sum = match !fold(packet.sum(start)) {
        // RFC 768: zero would say that there is no checksum; 0xffff is the same number in one's
        // complement.
        0 => 0xffff,
        sum => sum,
    };
    packet.data_mut()[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// The next `count` wire packets of a large frame, which stands for at least as many.
fn next(frame: &Packet, gso: Gso, count: usize, pool: &Pool) -> Result<PacketList, DropReason> {
    let headers = frame.parse()?;
    let whole = headers
        .gso(frame.data(), frame.len(), gso.kind, gso.ecn, gso.size)?
        .ok_or(DropReason::BadGso)?;
    let made = whole.segments.saturating_sub(gso.segments);
    let segments = whole.segments - made;
    if gso != (Gso { segments, ..whole }) || frame.is_partial() != (made > 0) {
        return Err(DropReason::BadGso);
    }
    let place = headers.checksum().ok_or(DropReason::BadGso)?;
    let size = usize::from(gso.size);
    let header_len = usize::from(gso.header_len);
    let template = frame.data().get(..header_len).ok_or(DropReason::BadGso)?;
    // Partial sum of the pseudo-header without its length.
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

    let mut fresh = PacketList::new();
    if pool.alloc_bulk(count, &mut fresh) < count {
        return Err(DropReason::NoBuffer);
    }
    let mut payload = frame.read_from(header_len + usize::from(made) * size);
    let mut wire = PacketList::new();
    let mut index = made;
    while let Some(mut packet) = fresh.pop_front() {
        if !packet.append(template) {
            return Err(DropReason::TooLong);
        }
        packet
            .append_from(&mut payload, size, pool)
            .map_err(|_| DropReason::NoBuffer)?;
        packet.copy_metadata(frame);
        packet.set_gso(None);
        packet.set_checksum(None);
        let last = index + 1 == whole.segments;
        packet.set_accounted(frame.accounted().map(|len| AccountedLen {
            last: if last { len.last } else { len.each },
            ..len
        }));
        let len = packet.len();
        let data = packet.data_mut();
        headers.cut(data, len, &whole, index);
        let covered = (len - usize::from(place.start)) as u16;
        let at = usize::from(place.start + place.offset);
        let seed = fold(pseudo + u64::from(covered.to_be()));
        data[at..at + 2].copy_from_slice(&seed.to_be_bytes());
        complete(&mut packet, place)?;
        wire.push_back(packet);
        index += 1;
    }
    Ok(wire)
}
