//! Merging TCP segments and UDP datagrams of one flow into large frames, where one large frame
//! costs the driver less than many small ones: the inverse of [`segment`](super::segment()), and
//! the kernel's generic receive offload (`tcp_gro_receive`, `udp_gro_receive`), done on egress.
//! There it is known what the far port takes, and qdiscs see single packets.
//!
//! Only packets that lie together in one batch are merged, so no packet waits for another. These
//! must agree in every header byte but lengths, IPv4 identification, TCP sequence number, PSH and
//! checksums. Their checksums must be pending or right, and their sequence numbers must join. All
//! payloads are as long as the first, which is as long as a large frame's may be; the last may be
//! shorter. PSH ends a frame. A packet with any other flag than ACK, PSH and ECE or without
//! payload stays alone. If a flow's packet does not fit the frame being built of that flow, the
//! frame leaves first: each flow stays in order.
//!
//! [`segment`](super::segment()) restores what went in, byte for byte, if IPv4 identifications
//! count up. Where they do not, the packet must be one that is never fragmented (DF), whose
//! identification means nothing (RFC 6864 4.1).

use super::Features;
use crate::mem::{Packet, PacketList};
use crate::wire::{Gso, GsoKind, Headers, TCP_MIN_GSO_SIZE, fold};

/// Packets in one large frame at most (the kernel takes 128; segments of a `writev` are cheap up
/// to about this).
const MAX_SEGMENTS: u16 = 64;
/// Large frames being built at a time: flows that may be interleaved in a batch.
const OPEN: usize = 8;
/// Payloads up to this length are copied behind the first one, until the buffer is full; longer
/// ones are chained.
const COPY: usize = 512;
/// Longest IP packet.
const MAX_LEN: usize = 65_535;

/// Replaces packets of one flow by large frames, chains among them, that a device with `features`
/// segments. Each flow's packets stay in order.
pub fn merge(packets: &mut PacketList, features: &Features) {
    if !features.may_merge(packets) {
        return;
    }
    let mut merged = PacketList::new();
    let mut open: [Option<Open>; OPEN] = [const { None }; OPEN];
    let mut used = 0;
    while let Some(packet) = packets.pop_front() {
        let Some((headers, gso, closed)) = mergeable(&packet, features) else {
            flush(&mut open, &mut used, &mut merged);
            merged.push_back(packet);
            continue;
        };
        let next = Open {
            packet,
            headers,
            gso,
            closed,
        };
        let mut frames = open[..used].iter_mut().flatten();
        let frame = frames.find(|frame| frame.same_flow(&next));
        let must_flush = frame.is_some() || used == OPEN;
        if let Some(frame) = frame
            && frame.joins(&next)
        {
            frame.append(next);
            continue;
        }
        if must_flush {
            flush(&mut open, &mut used, &mut merged);
        }
        open[used] = Some(next);
        used += 1;
    }
    flush(&mut open, &mut used, &mut merged);
    packets.append(&mut merged);
}

fn flush(open: &mut [Option<Open>], used: &mut usize, merged: &mut PacketList) {
    for frame in open[..*used].iter_mut().filter_map(Option::take) {
        merged.push_back(frame.finish());
    }
    *used = 0;
}

/// A packet that may be merged, or a large frame being built.
struct Open {
    packet: Packet,
    /// Headers of the first packet.
    headers: Headers,
    gso: Gso,
    /// A shorter packet or PSH ended it.
    closed: bool,
}

impl Open {
    /// True if it is the same flow.
    fn same_flow(&self, other: &Open) -> bool {
        let (a, b) = (self.packet.data(), other.packet.data());
        self.headers.is_same_flow(a, &other.headers, b)
    }

    /// True if a packet of the same flow continues the frame.
    fn joins(&mut self, other: &Open) -> bool {
        // A long chain of short segments would cost more than it saves.
        let room = usize::from(self.gso.size) > COPY
            || self.packet.tailroom_mut().len() >= usize::from(other.gso.size);
        let (a, b) = (self.packet.data(), other.packet.data());
        let len = self.packet.len();
        !self.closed
            && other.gso.size <= self.gso.size
            && (self.gso.kind == GsoKind::Udp || self.gso.size >= TCP_MIN_GSO_SIZE)
            && self.gso.segments < MAX_SEGMENTS
            && len + usize::from(other.gso.size) <= MAX_LEN
            && room
            && self.headers.is_continued(a, len, &self.gso, b)
    }

    /// Adds a packet that [`joins`](Open::joins).
    fn append(&mut self, mut other: Open) {
        let header_len = usize::from(other.gso.header_len);
        let copied = usize::from(other.gso.size) <= COPY
            && !self.packet.is_chained()
            && self.packet.append(&other.packet.data()[header_len..]);
        if !copied {
            other.packet.pull_front(header_len);
            self.packet.append_segment(other.packet);
        }
        if other.closed {
            // `segment` leaves PSH to the last packet.
            self.headers.push(self.packet.data_mut());
        }
        self.closed = other.closed || other.gso.size < self.gso.size;
        self.gso.segments += 1;
    }

    /// Makes it a large frame: lengths, checksum seed and metadata.
    fn finish(mut self) -> Packet {
        if self.gso.segments > 1 {
            let len = self.packet.len();
            let data = self.packet.data_mut();
            self.headers.set_len(data, len);
            let checksum = self.headers.seed_checksum(data, len);
            self.packet.set_checksum(checksum);
            self.packet.set_gso(Some(self.gso));
        }
        self.packet
    }
}

/// Facts about a packet that may be merged: its headers, itself as a large frame of one, and
/// whether PSH ends it.
fn mergeable(packet: &Packet, features: &Features) -> Option<(Headers, Gso, bool)> {
    if packet.gso().is_some() || packet.is_chained() || packet.is_shared() {
        return None;
    }
    let headers = packet.parse().ok()?;
    let kind = headers.gso_kind().filter(|&k| features.segments(k))?;
    let (gso, closed) = headers.merges(packet.data(), packet.len(), kind)?;
    checksum_is_good(packet, &headers).then_some((headers, gso, closed))
}

/// True if the checksum is still to be filled in by whoever sends the frame, or right as it is. A
/// datagram without one stays alone.
fn checksum_is_good(packet: &Packet, headers: &Headers) -> bool {
    if packet.checksum().is_some() {
        return packet.checksum() == headers.checksum();
    }
    let at = usize::from(headers.transport_offset);
    if headers.gso_kind() == Some(GsoKind::Udp) && packet.data()[at + 6..at + 8] == [0, 0] {
        return false;
    }
    if packet.checksum_verified() {
        return true;
    }
    let len = (packet.len() - at) as u32;
    let sum = headers.pseudo_header(packet.data(), len) + packet.sum(at);
    fold(sum) == 0xFFFF
}
