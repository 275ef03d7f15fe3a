//! Merging UDP datagrams of one flow into large frames: the inverse of [`segment`](super::segment), used where one large frame costs the
//! driver less than many small ones (the kernel's UDP generic receive offload, done where packets leave).
//!
//! Only datagrams that lie together in one batch are merged, so no packet waits for another. All headers but lengths, IPv4
//! identification and checksums must be the same bytes, checksums must be pending or right, and all payloads as long as the
//! first but the last, which may be shorter. [`segment`](super::segment) restores what went in, byte for byte, if IPv4 identifications count up; where
//! they do not, the datagram must be one that is never fragmented (DF), whose identification means nothing (RFC 6864 4.1).

use super::checksum::{pseudo_header_of, sum_packet};
use super::segment::checksum_place;
use super::{Gso, GsoKind, Headers, L4, Network, Packet, PacketList, checksum, fold, parse};

/// Datagrams in one large frame at most (the kernel takes 128; segments of a `writev` are cheap up to about this).
const MAX_SEGMENTS: u16 = 64;
/// Large frames being built at a time: flows that may be interleaved in a batch.
const OPEN: usize = 8;
/// Payloads up to this length are copied behind the first one, until the buffer is full; longer ones are chained.
const COPY: usize = 512;
/// Longest IP packet.
const MAX_LEN: usize = 65_535;

/// A datagram that may be merged, or a large frame being built.
struct Open {
    packet: Packet,
    headers: Headers,
    /// Payload bytes of each datagram.
    size: usize,
    segments: u16,
    /// IPv4 identification of the last datagram.
    id: u16,
    /// A shorter datagram ended it.
    closed: bool,
}

/// Replaces datagrams of one flow by large frames. Each flow's packets stay in order.
pub fn merge(packets: &mut PacketList) {
    if packets.len() < 2 {
        return;
    }
    let mut merged = PacketList::new();
    let mut open: [Option<Open>; OPEN] = [const { None }; OPEN];
    let mut used = 0;
    while let Some(packet) = packets.pop_front() {
        match Open::new(packet) {
            Ok(datagram) => {
                let Some(mut datagram) = append(&mut open[..used], datagram) else {
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
                datagram.closed = false;
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
    /// Looks whether the packet is a datagram that may be merged; gives it back if not.
    fn new(packet: Packet) -> Result<Open, Packet> {
        if packet.gso().is_some() || packet.is_chained() || packet.is_shared() {
            return Err(packet);
        }
        let Ok(headers) = parse(&packet) else {
            return Err(packet);
        };
        let ip = usize::from(headers.network_offset);
        let udp = usize::from(headers.transport_offset);
        let data = packet.data();
        let plain = match headers.network {
            Network::V4 => udp == ip + 20 && checksum(&data[ip..udp]) == 0,
            Network::V6 => udp == ip + 40,
            Network::Other => false,
        };
        let size = packet.len() - usize::from(headers.header_len);
        let whole = matches!(headers.transport, L4::Udp { .. })
            && headers.network_end as usize == packet.len()
            && usize::from(be16(data, udp + 4)) == packet.len() - udp;
        if !plain || !whole || size == 0 || !checksum_is_good(&packet, &headers) {
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
            size,
            segments: 1,
            id,
            closed: false,
        })
    }

    /// Whether every header byte that a segment repeats is the same.
    fn same_flow(&self, other: &Open) -> bool {
        let (a, b) = (self.packet.data(), other.packet.data());
        let ip = usize::from(self.headers.network_offset);
        let udp = usize::from(self.headers.transport_offset);
        // Cheapest first, and likeliest to differ: the ports.
        a.get(udp..udp + 4) == b.get(udp..udp + 4)
            && self.headers.transport_offset == other.headers.transport_offset
            && self.headers.network == other.headers.network
            && self.headers.network_offset == other.headers.network_offset
            && match self.headers.network {
                // All but total length, identification and checksum.
                Network::V4 => {
                    a[..ip + 2] == b[..ip + 2]
                        && a[ip + 6..ip + 10] == b[ip + 6..ip + 10]
                        && a[ip + 12..udp] == b[ip + 12..udp]
                }
                // All but payload length.
                _ => a[..ip + 4] == b[..ip + 4] && a[ip + 6..udp] == b[ip + 6..udp],
            }
    }

    /// Adds a datagram of the same flow.
    fn append(&mut self, mut other: Open) -> Result<(), Open> {
        let ip = usize::from(self.headers.network_offset);
        let next_id = self.headers.network != Network::V4
            || other.id == self.id.wrapping_add(1)
            || self.packet.data()[ip + 6] & 0x40 != 0;
        if self.closed
            || other.size > self.size
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
        self.closed = other.size < self.size;
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
        let udp = usize::from(self.headers.transport_offset);
        // `append` keeps the length within 16 bits.
        let udp_len = (len - udp) as u16;
        let sum = fold(pseudo_header_of(
            self.packet.data(),
            &self.headers,
            u32::from(udp_len),
        ));
        let data = self.packet.data_mut();
        match self.headers.network {
            Network::V4 => {
                data[ip + 2..ip + 4].copy_from_slice(&((len - ip) as u16).to_be_bytes());
                data[ip + 10..ip + 12].fill(0);
                let sum = checksum(&data[ip..udp]);
                data[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
            }
            _ => data[ip + 4..ip + 6].copy_from_slice(&((len - ip - 40) as u16).to_be_bytes()),
        }
        data[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
        data[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        self.packet.set_checksum(checksum_place(&self.headers));
        self.packet.set_gso(Some(Gso {
            kind: GsoKind::Udp,
            ecn: false,
            size: self.size as u16,
            segments: self.segments,
            header_len: self.headers.header_len,
        }));
        self.packet
    }
}

/// Whether the UDP checksum is still to be filled in by whoever sends the frame, or right as it is. A datagram without one stays alone.
fn checksum_is_good(packet: &Packet, headers: &Headers) -> bool {
    if packet.checksum().is_some() {
        return packet.checksum() == checksum_place(headers);
    }
    let udp = usize::from(headers.transport_offset);
    if be16(packet.data(), udp + 6) == 0 {
        return false;
    }
    let len = (packet.len() - udp) as u32;
    let sum = pseudo_header_of(packet.data(), headers, len) + sum_packet(packet, udp);
    packet.checksum_verified() || fold(sum) == 0xFFFF
}
