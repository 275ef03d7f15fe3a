//! Merging TCP segments and UDP datagrams of one flow into large frames: the inverse of
//! [`segment`](super::segment), used where one large frame costs the driver less than many small
//! ones (the kernel's generic receive offload, `tcp_gro_receive` and `udp_gro_receive`, done
//! where packets leave: there it is known what the far port takes, and disciplines see single
//! packets).
//!
//! Only packets that lie together in one batch are merged, so no packet waits for another. All
//! headers but lengths, IPv4 identification, TCP sequence number and checksums must be the same
//! bytes, checksums must be pending or right, sequence numbers must join, and all payloads be as
//! long as the first (which must be as long as a large frame's may be) but the last, which may be
//! shorter; PSH ends a frame, and any other flag than ACK, PSH and ECE, or an empty payload,
//! stays alone. A packet of a flow that does not fit what was collected of it sends that off
//! first: a flow's packets stay in order. [`segment`](super::segment) restores what went in, byte
//! for byte, if IPv4 identifications count up; where they do not, the packet must be one that is
//! never fragmented (DF), whose identification means nothing (RFC 6864 4.1).

use crate::mem::{Packet, PacketList};
use crate::wire::{Gso, GsoKind, Headers, L4, Network, TCP_MIN_GSO_SIZE, checksum, fold};

/// Datagrams in one large frame at most (the kernel takes 128; segments of a `writev` are cheap
/// up to about this).
const MAX_SEGMENTS: u16 = 64;
/// Large frames being built at a time: flows that may be interleaved in a batch.
const OPEN: usize = 8;
/// Payloads up to this length are copied behind the first one, until the buffer is full; longer
/// ones are chained.
const COPY: usize = 512;
/// Longest IP packet.
const MAX_LEN: usize = 65_535;

/// What may be merged: the kinds of large frames that the driver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MergeKinds {
    /// TCP over IPv4.
    pub tcp4: bool,
    /// TCP over IPv6.
    pub tcp6: bool,
    /// UDP.
    pub udp: bool,
}

impl MergeKinds {
    fn any(self) -> bool {
        self.tcp4 || self.tcp6 || self.udp
    }

    fn takes(self, kind: GsoKind) -> bool {
        match kind {
            GsoKind::TcpV4 => self.tcp4,
            GsoKind::TcpV6 => self.tcp6,
            GsoKind::Udp => self.udp,
        }
    }
}

const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// A packet that may be merged, or a large frame being built.
struct Open {
    packet: Packet,
    headers: Headers,
    kind: GsoKind,
    /// TCP: the sequence number behind the payload.
    next_seq: u32,
    /// Payload bytes of each packet.
    size: usize,
    segments: u16,
    /// IPv4 identification of the last packet.
    id: u16,
    /// A shorter packet or PSH ended it.
    closed: bool,
}

/// Replaces packets of one flow by large frames of the kinds given. Each flow's packets stay in
/// order.
pub fn merge(packets: &mut PacketList, kinds: MergeKinds) {
    if packets.len() < 2 || !kinds.any() {
        return;
    }
    let mut merged = PacketList::new();
    let mut open: [Option<Open>; OPEN] = [const { None }; OPEN];
    let mut used = 0;
    while let Some(packet) = packets.pop_front() {
        match Open::new(packet, kinds) {
            Ok(datagram) => {
                let Some(datagram) = append(&mut open[..used], datagram) else {
                    continue;
                };
                // A frame of the same flow that takes no more must leave first.
                let stuck = open[..used]
                    .iter()
                    .flatten()
                    .any(|o| o.same_flow(&datagram));
                if stuck || used == OPEN {
                    flush(&mut open[..used], &mut merged);
                    used = 0;
                }
                open[used] = Some(datagram);
                used += 1;
            }
            Err(packet) => {
                flush(&mut open[..used], &mut merged);
                used = 0;
                merged.push_back(packet);
            }
        }
    }
    flush(&mut open[..used], &mut merged);
    packets.append(&mut merged);
}

/// Adds the datagram to the frame it belongs to; gives it back if there is none that takes it.
fn append(open: &mut [Option<Open>], datagram: Open) -> Option<Open> {
    let frame = open.iter_mut().flatten().find(|o| o.same_flow(&datagram));
    match frame {
        Some(frame) => frame.append(datagram).err(),
        None => Some(datagram),
    }
}

fn flush(open: &mut [Option<Open>], merged: &mut PacketList) {
    for frame in open.iter_mut().filter_map(Option::take) {
        merged.push_back(frame.finish());
    }
}

fn be16(data: &[u8], at: usize) -> u16 {
    data.get(at..at + 2)
        .map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

impl Open {
    /// Looks whether the packet may be merged; gives it back if not.
    fn new(packet: Packet, kinds: MergeKinds) -> Result<Open, Packet> {
        if packet.gso().is_some() || packet.is_chained() || packet.is_shared() {
            return Err(packet);
        }
        let Ok(headers) = packet.parse() else {
            return Err(packet);
        };
        let ip = usize::from(headers.network_offset);
        let at = usize::from(headers.transport_offset);
        let data = packet.data();
        let plain = match headers.network {
            Network::V4 => at == ip + 20 && checksum(&data[ip..at]) == 0,
            Network::V6 => at == ip + 40,
            Network::Other => false,
        };
        let size = packet.len() - usize::from(headers.header_len);
        let (kind, fits, next_seq, closed) = match (headers.transport, headers.network) {
            (L4::Udp { .. }, _) => {
                let whole = usize::from(be16(data, at + 4)) == packet.len() - at;
                (GsoKind::Udp, whole, 0, false)
            }
            (L4::Tcp { .. }, network) => {
                let kind = match network {
                    Network::V4 => GsoKind::TcpV4,
                    _ => GsoKind::TcpV6,
                };
                let flags = data[at + 13];
                let seq =
                    u32::from_be_bytes([data[at + 4], data[at + 5], data[at + 6], data[at + 7]]);
                let fits = flags & !(PSH | ECE) == ACK;
                (kind, fits, seq.wrapping_add(size as u32), flags & PSH != 0)
            }
            _ => return Err(packet),
        };
        let whole = fits && headers.network_end as usize == packet.len();
        if !plain
            || !whole
            || size == 0
            || !kinds.takes(kind)
            || !checksum_is_good(&packet, &headers)
        {
            return Err(packet);
        }
        let id = if headers.network == Network::V4 {
            be16(data, ip + 4)
        } else {
            0
        };
        Ok(Open {
            packet,
            headers,
            kind,
            next_seq,
            size,
            segments: 1,
            id,
            closed,
        })
    }

    /// Whether it is the same flow: addresses, ports, protocol, and the link layer's header.
    fn same_flow(&self, other: &Open) -> bool {
        let (a, b) = (self.packet.data(), other.packet.data());
        let ip = usize::from(self.headers.network_offset);
        let at = usize::from(self.headers.transport_offset);
        let addresses = match self.headers.network {
            Network::V4 => ip + 12..ip + 20,
            _ => ip + 8..ip + 40,
        };
        // Cheapest first, and likeliest to differ: the ports.
        a.get(at..at + 4) == b.get(at..at + 4)
            && self.kind == other.kind
            && self.headers.transport_offset == other.headers.transport_offset
            && self.headers.network == other.headers.network
            && self.headers.network_offset == other.headers.network_offset
            && a[addresses.clone()] == b[addresses]
            && a[..ip] == b[..ip]
    }

    /// Whether every header byte that a segment repeats is the same, in a packet of the same flow.
    fn alike(&self, other: &Open) -> bool {
        let (a, b) = (self.packet.data(), other.packet.data());
        let ip = usize::from(self.headers.network_offset);
        let at = usize::from(self.headers.transport_offset);
        let same = |from: usize, to: usize| a[from..to] == b[from..to];
        let network = match self.headers.network {
            // All but total length, identification, checksum and addresses.
            Network::V4 => same(ip, ip + 2) && same(ip + 6, ip + 10),
            // All but payload length and addresses.
            _ => same(ip, ip + 4) && same(ip + 6, ip + 8),
        };
        let end = usize::from(self.headers.header_len);
        // All but ports, sequence number, PSH and checksum.
        let tcp = || {
            self.headers.header_len == other.headers.header_len
                && same(at + 8, at + 13)
                && (a[at + 13] ^ b[at + 13]) & !PSH == 0
                && same(at + 14, at + 16)
                && same(at + 18, end)
        };
        network && (self.kind == GsoKind::Udp || tcp())
    }

    /// Adds a packet of the same flow, or gives it back.
    fn append(&mut self, mut other: Open) -> Result<(), Open> {
        let ip = usize::from(self.headers.network_offset);
        let next_id = self.headers.network != Network::V4
            || other.id == self.id.wrapping_add(1)
            || self.packet.data()[ip + 6] & 0x40 != 0;
        let joins = self.kind == GsoKind::Udp
            || self.next_seq == other.next_seq.wrapping_sub(other.size as u32);
        if self.closed
            || !joins
            || !self.alike(&other)
            || other.size > self.size
            || self.kind != GsoKind::Udp && self.size < usize::from(TCP_MIN_GSO_SIZE)
            || self.segments == MAX_SEGMENTS
            || self.packet.len() + other.size > MAX_LEN
            || !next_id
        {
            return Err(other);
        }
        let header_len = usize::from(other.headers.header_len);
        let copied = other.size <= COPY
            && !self.packet.is_chained()
            && self.packet.append(&other.packet.data()[header_len..]);
        if !copied {
            // A long chain of short segments would cost more than it saves.
            if self.size <= COPY {
                return Err(other);
            }
            other.packet.pull_front(header_len);
            self.packet.append_segment(other.packet);
        }
        if other.closed {
            // `segment` leaves PSH to the last packet.
            let flags = usize::from(self.headers.transport_offset) + 13;
            self.packet.data_mut()[flags] |= PSH;
        }
        self.closed = other.closed || other.size < self.size;
        self.next_seq = other.next_seq;
        self.id = other.id;
        self.segments += 1;
        Ok(())
    }

    /// Writes the lengths and the checksum seed of the large frame.
    fn finish(mut self) -> Packet {
        if self.segments == 1 {
            return self.packet;
        }
        let len = self.packet.len();
        let ip = usize::from(self.headers.network_offset);
        let at = usize::from(self.headers.transport_offset);
        // `append` keeps the length within 16 bits.
        let transport_len = (len - at) as u16;
        let pseudo = self
            .headers
            .pseudo_header(self.packet.data(), u32::from(transport_len));
        let sum = fold(pseudo);
        let place = self.headers.checksum();
        let data = self.packet.data_mut();
        match self.headers.network {
            Network::V4 => {
                data[ip + 2..ip + 4].copy_from_slice(&((len - ip) as u16).to_be_bytes());
                data[ip + 10..ip + 12].fill(0);
                let sum = checksum(&data[ip..at]);
                data[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
            }
            _ => data[ip + 4..ip + 6].copy_from_slice(&((len - ip - 40) as u16).to_be_bytes()),
        }
        if self.kind == GsoKind::Udp {
            data[at + 4..at + 6].copy_from_slice(&transport_len.to_be_bytes());
        }
        if let Some(place) = place {
            let field = at + usize::from(place.offset);
            data[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
        self.packet.set_checksum(place);
        self.packet.set_gso(Some(Gso {
            kind: self.kind,
            ecn: false,
            size: self.size as u16,
            segments: self.segments,
            header_len: self.headers.header_len,
        }));
        self.packet
    }
}

/// Whether the checksum is still to be filled in by whoever sends the frame, or right as it is. A
/// datagram without one stays alone.
fn checksum_is_good(packet: &Packet, headers: &Headers) -> bool {
    if packet.checksum().is_some() {
        return packet.checksum() == headers.checksum();
    }
    let at = usize::from(headers.transport_offset);
    if matches!(headers.transport, L4::Udp { .. }) && be16(packet.data(), at + 6) == 0 {
        return false;
    }
    if packet.checksum_verified() {
        return true;
    }
    let len = (packet.len() - at) as u32;
    let sum = headers.pseudo_header(packet.data(), len) + packet.sum(at);
    fold(sum) == 0xFFFF
}
