//! Metadata of a packet: what a stage notes for a later one. Offload terms are those of the
//! virtio-net header (virtio 1.2, 5.1.6): a checksum still to be filled in, a large frame still
//! to be cut.

use std::sync::atomic::Ordering;

use super::{Flags, Packet};
use crate::stats::DropReason;
use crate::time::Time;
use crate::wire::{Checksum, Gso, GsoKind};

/// [`Gso`] as stored; `kind` 0 means none.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawGso {
    size: u16,
    segments: u16,
    header_len: u16,
    kind: u8,
}

/// Set in `RawGso::kind` beside the kind, as in the virtio-net header.
const ECN: u8 = 0x80;
/// Set in `RawGso::kind`: the first wire packets were made, and `segments` counts the others. The
/// frame's data is whole.
const PARTIAL: u8 = 0x40;
/// Set in `RawGso::kind`: [`Packet::accounted`] is not `None`, and `segments` is valid.
const ACCOUNTED: u8 = 0x20;

impl RawGso {
    /// Without [`ACCOUNTED`].
    pub(super) fn as_on_wire(self) -> RawGso {
        match self.kind & !ACCOUNTED {
            0 => RawGso::default(),
            kind => RawGso { kind, ..self },
        }
    }
}

/// Bits of `Header::way`: [`Packet::deferred`], [`Packet::turn`], and from [`HOPS`] on
/// [`Packet::hops`].
const DEFERRED: u8 = 0b11;
const TURN: u8 = 0b1100;
const HOPS: u32 = 4;

/// A place where a packet goes on that was given to a link without a device (an `ifb`, a VLAN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Turn {
    /// None: it arrives at its [port](Packet::port).
    #[default]
    None,
    /// Where its port receives, behind the hook there: it was redirected from there.
    Ingress = 0b0100,
    /// Where its port sends, behind the hook there.
    Egress = 0b1000,
    /// Where the device below its port sends.
    Lower = TURN,
}

/// Bytes that the wire packets of a frame count as, in place of their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountedLen {
    /// Each wire packet but the last.
    pub each: u32,
    /// The last wire packet, which may be the only one.
    pub last: u32,
}

impl Packet {
    /// Segmentation that the frame needs, if it is a large one.
    #[inline]
    pub fn gso(&self) -> Option<Gso> {
        let raw = &self.header().gso;
        let kind = match raw.kind & !(ECN | PARTIAL | ACCOUNTED) {
            1 => GsoKind::TcpV4,
            4 => GsoKind::TcpV6,
            5 => GsoKind::Udp,
            _ => return None,
        };
        Some(Gso {
            kind,
            ecn: raw.kind & ECN != 0,
            size: raw.size,
            segments: raw.segments,
            header_len: raw.header_len,
        })
    }

    /// Marks the frame as a large one, or as none. The caller has checked the fields against the
    /// frame (see [`Packet::apply`]). It counts as its own length again.
    pub fn set_gso(&mut self, gso: Option<Gso>) {
        self.header_mut().gso = gso.map_or_else(RawGso::default, |g| RawGso {
            size: g.size,
            // Counts and lengths are never those of no packet, whatever the caller says.
            segments: g.segments.max(1),
            header_len: g.header_len,
            kind: g.kind as u8 | if g.ecn { ECN } else { 0 },
        });
    }

    /// Notes that all but the last `segments` wire packets were made of a large frame.
    pub(crate) fn set_segments_left(&mut self, segments: u16) {
        let raw = &mut self.header_mut().gso;
        raw.segments = segments;
        raw.kind |= PARTIAL;
    }

    /// True if the first wire packets were made of a large frame, which must then make the others.
    pub fn is_partial(&self) -> bool {
        self.header().gso.kind & PARTIAL != 0
    }

    /// Bytes of the buffers that the packet keeps from others while it waits, whatever they hold
    /// (the kernel's `truesize`). Of data that it shares it counts all.
    #[inline]
    pub fn memory(&self) -> u64 {
        let own = super::buffer_size(self.0) as u64;
        if self.header().has_parts() {
            own + self.other_memory()
        } else {
            own
        }
    }

    /// Wire packets this frame stands for: 1, or the number of segments of a large frame. All
    /// packet counters count these.
    pub fn wire_packets(&self) -> u64 {
        let raw = &self.header().gso;
        if raw.kind == 0 {
            1
        } else {
            u64::from(raw.segments)
        }
    }

    /// Bytes this frame takes on the wire, without preamble and FCS: its length plus the repeated
    /// headers of a large frame (`qdisc_pkt_len_init`); or what it [counts
    /// as](Packet::set_accounted). Qdiscs count and shape these.
    #[inline]
    pub fn wire_len(&self) -> u64 {
        let h = self.header();
        if h.gso.kind == 0 {
            return u64::from(h.total_len);
        }
        if h.gso.kind & (PARTIAL | ACCOUNTED) != 0 {
            return self.other_wire_len();
        }
        u64::from(h.total_len) + (u64::from(h.gso.segments) - 1) * u64::from(h.gso.header_len)
    }

    #[cold]
    fn other_wire_len(&self) -> u64 {
        let h = self.header();
        if let Some(AccountedLen { each, last }) = self.accounted() {
            let others = u64::from(h.gso.segments).saturating_sub(1);
            return others * u64::from(each) + u64::from(last);
        }
        let header_len = u64::from(h.gso.header_len);
        let (size, left) = (u64::from(h.gso.size), u64::from(h.gso.segments));
        let payload = u64::from(h.total_len).saturating_sub(header_len);
        let made = payload.div_ceil(size.max(1)).saturating_sub(left);
        payload.saturating_sub(made * size) + left * header_len
    }

    /// [`wire_len`](Packet::wire_len) and [`wire_packets`](Packet::wire_packets).
    #[inline]
    pub fn wire(&self) -> (u64, u64) {
        let h = self.header();
        if h.gso.kind == 0 {
            (u64::from(h.total_len), 1)
        } else {
            (self.wire_len(), self.wire_packets())
        }
    }

    /// Bytes that its wire packets count as, if that is not their length.
    #[inline]
    pub fn accounted(&self) -> Option<AccountedLen> {
        if self.header().gso.kind & ACCOUNTED == 0 {
            return None;
        }
        // Relaxed: only the packet's owner writes and reads it.
        let both = self.own_info().accounted.load(Ordering::Relaxed);
        Some(AccountedLen {
            each: (both >> 32) as u32,
            last: (both & 0xffff_ffff) as u32,
        })
    }

    /// Says what its wire packets count as, from now on: those that are still to be made of a large
    /// frame, too. The metadata of a copy starts without.
    pub fn set_accounted(&mut self, len: Option<AccountedLen>) {
        let gso = &mut self.header_mut().gso;
        *gso = gso.as_on_wire();
        if let Some(AccountedLen { each, last }) = len {
            gso.segments = gso.segments.max(1);
            gso.kind |= ACCOUNTED;
            let both = u64::from(each) << 32 | u64::from(last);
            self.own_info().accounted.store(both, Ordering::Relaxed);
        }
    }

    /// True if a device without offloads can send it as it is, up to its length.
    #[inline]
    pub fn is_plain(&self) -> bool {
        let h = self.header();
        h.gso.kind == 0 && !h.flags.has(Flags::NEEDS_CSUM)
    }

    /// The checksum still to be filled in.
    #[inline]
    pub fn checksum(&self) -> Option<Checksum> {
        let h = self.header();
        h.flags.has(Flags::NEEDS_CSUM).then_some(Checksum {
            start: h.csum_start,
            offset: h.csum_offset,
        })
    }

    /// Says that a checksum is still to be filled in, or that none is.
    pub fn set_checksum(&mut self, checksum: Option<Checksum>) {
        let h = self.header_mut();
        h.flags.set(Flags::NEEDS_CSUM, checksum.is_some());
        if let Some(Checksum { start, offset }) = checksum {
            (h.csum_start, h.csum_offset) = (start, offset);
        }
    }

    /// True if the source vouches for the transport checksum (`VIRTIO_NET_HDR_F_DATA_VALID`).
    pub fn checksum_verified(&self) -> bool {
        self.header().flags.has(Flags::DATA_VALID)
    }

    /// Sets [`checksum_verified`](Packet::checksum_verified).
    pub fn set_checksum_verified(&mut self, valid: bool) {
        self.header_mut().flags.set(Flags::DATA_VALID, valid);
    }

    /// The flow hash noted for this packet, if one was.
    pub fn flow_hash(&self) -> Option<u32> {
        let h = self.header();
        h.flags.has(Flags::HASHED).then_some(h.hash)
    }

    /// Notes the flow hash.
    pub fn set_flow_hash(&mut self, hash: u32) {
        let h = self.header_mut();
        h.hash = hash;
        h.flags.set(Flags::HASHED, true);
    }

    /// `skb->priority`: the low 4 bits choose a pfifo_fast band; a value `major:minor` names a
    /// class.
    pub fn priority(&self) -> u32 {
        self.header().priority
    }

    /// Sets the priority.
    pub fn set_priority(&mut self, priority: u32) {
        self.header_mut().priority = priority;
    }

    /// `skb->mark`, for filters.
    pub fn mark(&self) -> u32 {
        self.header().mark
    }

    /// Sets the mark.
    pub fn set_mark(&mut self, mark: u32) {
        self.header_mut().mark = mark;
    }

    /// `skb->queue_mapping`: the receive queue, where it was recorded.
    pub fn queue(&self) -> Option<u16> {
        self.header().queue.checked_sub(1)
    }

    /// Records the receive queue, for a device that has several.
    pub fn set_queue(&mut self, queue: Option<u16>) {
        // The largest number is never a queue's: devices have at most 256.
        self.header_mut().queue = queue.map_or(0, |q| q.saturating_add(1));
    }

    /// Index of the port of arrival.
    pub fn port(&self) -> u16 {
        self.header().port
    }

    /// Sets the port of arrival.
    pub fn set_port(&mut self, port: u16) {
        self.header_mut().port = port;
    }

    /// When the packet reached the stage that holds it, or its
    /// [departure time](Packet::departure_time). The threads that note it may have read the clock
    /// later than the one that reads it.
    #[inline]
    pub fn timestamp(&self) -> Time {
        Time(self.header().tstamp)
    }

    /// Notes when the packet reached the stage that holds it. It has no departure time then.
    #[inline]
    pub fn set_timestamp(&mut self, time: Time) {
        let h = self.header_mut();
        h.tstamp = time.0;
        h.flags.set(Flags::DEPARTS, false);
    }

    /// When the packet is to depart, if somebody said so: `fq` keeps it until then. (The kernel's
    /// `skb->tstamp`, as `SO_TXTIME` sets it.)
    #[inline]
    pub fn departure_time(&self) -> Option<Time> {
        let h = self.header();
        h.flags.has(Flags::DEPARTS).then_some(Time(h.tstamp))
    }

    /// Says when the packet is to depart, instead of when it arrived.
    #[inline]
    pub fn set_departure_time(&mut self, time: Time) {
        let h = self.header_mut();
        h.tstamp = time.0;
        h.flags.set(Flags::DEPARTS, true);
    }

    /// Times that an action sent the packet through a backlog.
    pub fn deferred(&self) -> u8 {
        self.header().way & DEFERRED
    }

    /// Sets [`deferred`](Packet::deferred), at most 3.
    pub fn set_deferred(&mut self, times: u8) {
        let way = &mut self.header_mut().way;
        *way = *way & !DEFERRED | times.min(DEFERRED);
    }

    /// The place where the packet goes on when a link without a device gives it back.
    pub fn turn(&self) -> Turn {
        let bits = self.header().way & TURN;
        let turns = [Turn::Ingress, Turn::Egress, Turn::Lower];
        let turn = turns.into_iter().find(|&turn| turn as u8 == bits);
        turn.unwrap_or_default()
    }

    /// Sets [`turn`](Packet::turn).
    pub fn set_turn(&mut self, turn: Turn) {
        let way = &mut self.header_mut().way;
        *way = *way & !TURN | turn as u8;
    }

    /// Times that a link without a device gave the packet back, up to 15.
    pub fn hops(&self) -> u8 {
        self.header().way >> HOPS
    }

    /// Counts a [hop](Packet::hops).
    pub fn add_hop(&mut self) {
        let way = &mut self.header_mut().way;
        *way = way.checked_add(1 << HOPS).unwrap_or(*way);
    }

    /// The reason that was noted last for its drop.
    pub(crate) fn drop_reason(&self) -> DropReason {
        let reason = DropReason::ALL.get(usize::from(self.header().way));
        reason.copied().unwrap_or(DropReason::QdiscLimit)
    }

    /// Notes why it is dropped. It goes nowhere any more, so this is where its way was.
    #[inline]
    pub(crate) fn set_drop_reason(&mut self, reason: DropReason) {
        self.header_mut().way = reason as u8;
    }

    /// Takes over the metadata of `from` (all but length and segments, and what it counts as).
    pub fn copy_metadata(&mut self, from: &Packet) {
        self.header_mut().copy_metadata(from.header());
    }
}
