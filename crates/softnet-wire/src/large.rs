//! Headers of a large frame and those of its wire packets: which packets a large frame can be made
//! of, and what each of its wire packets gets.

use crate::{Gso, GsoKind, Headers, Network, array, checksum, parse::be16};

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// Flags of a TCP header, from its start.
const FLAGS: usize = 13;

/// Methods take as `data` the first segment of a frame of `len` bytes, which was parsed.
impl Headers {
    /// The frame, which is of this [kind](Headers::gso_kind), as a large frame of one wire packet;
    /// and true if PSH ends it. `None` if it must stay alone: if it has IP options or padding, a
    /// wrong IPv4 checksum, another TCP flag than ACK, PSH and ECE, or no payload.
    pub fn merges(&self, data: &[u8], len: usize, kind: GsoKind) -> Option<(Gso, bool)> {
        let (ip, at) = self.offsets();
        let plain = match self.network {
            Network::V4 => at == ip + 20 && checksum(array::<20>(data, ip)?) == 0,
            _ => at == ip + 40,
        };
        let flags = match kind {
            GsoKind::Udp => ACK,
            _ => *data.get(at + FLAGS)?,
        };
        let size = u16::try_from(len.checked_sub(self.header_len.into())?).ok()?;
        if !plain || size == 0 || flags & !(PSH | ECE) != ACK || !self.fills(data, len) {
            return None;
        }
        let gso = Gso {
            kind,
            ecn: false,
            size,
            segments: 1,
            header_len: self.header_len,
        };
        Some((gso, flags & PSH != 0))
    }

    /// True if another frame that [merges](Headers::merges) is of the same flow: addresses, ports,
    /// protocol, and the link layer's header.
    #[inline]
    pub fn is_same_flow(&self, data: &[u8], other: &Headers, others: &[u8]) -> bool {
        let (ip, at) = self.offsets();
        // Cheapest first, and likeliest to differ: the ports.
        self.offsets() == other.offsets()
            && array::<4>(data, at) == array::<4>(others, at)
            && self.protocol == other.protocol
            && self.network == other.network
            && match self.network {
                Network::V4 => array::<8>(data, ip + 12) == array::<8>(others, ip + 12),
                _ => array::<32>(data, ip + 8) == array::<32>(others, ip + 8),
            }
            && data.get(..ip) == others.get(..ip)
    }

    /// True if the headers of a frame of the [same flow](Headers::is_same_flow), at the start of
    /// `next`, are those of the next wire packet of the large frame `gso`, whose headers are still
    /// those of its first wire packet.
    #[inline]
    pub fn is_continued(&self, data: &[u8], len: usize, gso: &Gso, next: &[u8]) -> bool {
        let (ip, at) = self.offsets();
        let network = match self.network {
            // All but total length, identification, checksum and addresses.
            Network::V4 => both::<20>(data, next, ip).is_some_and(|(x, y)| {
                let never_fragmented = x[6] & 0x40 != 0;
                let next_id = be16([x[4], x[5]]).wrapping_add(gso.segments);
                x[..2] == y[..2]
                    && x[6..10] == y[6..10]
                    && (never_fragmented || be16([y[4], y[5]]) == next_id)
            }),
            // All but payload length and addresses.
            _ => both::<8>(data, next, ip)
                .is_some_and(|(x, y)| x[..4] == y[..4] && x[6..] == y[6..]),
        };
        // All but ports, sequence number, PSH and checksum.
        let tcp = || {
            let end = usize::from(gso.header_len);
            both::<20>(data, next, at).is_some_and(|(x, y)| {
                let payload = u32::try_from(len - end).unwrap_or(u32::MAX);
                sequence(y) == sequence(x).wrapping_add(payload)
                    && x[8..13] == y[8..13]
                    && (x[FLAGS] ^ y[FLAGS]) & !PSH == 0
                    && x[14..16] == y[14..16]
                    && x[18..] == y[18..]
                    && data.get(at + 20..end) == next.get(at + 20..end)
            })
        };
        network && (gso.kind == GsoKind::Udp || tcp())
    }

    /// Sets PSH in the TCP header of a large frame: its last wire packet has it.
    ///
    /// # Panics
    /// If `data` does not hold the headers.
    pub fn push(&self, data: &mut [u8]) {
        data[usize::from(self.transport_offset) + FLAGS] |= PSH;
    }

    /// Makes the headers of the large frame at the start of `data` those of its wire packet
    /// `index`, of `len` bytes. The TCP or UDP checksum is still to be filled in.
    ///
    /// # Panics
    /// If `data` does not hold the headers.
    #[inline]
    pub fn cut(&self, data: &mut [u8], len: usize, frame: &Gso, index: u16) {
        let (ip, at) = self.offsets();
        if self.network == Network::V4 {
            let id = &mut data[ip + 4..][..2];
            let next = be16([id[0], id[1]]).wrapping_add(index);
            id.copy_from_slice(&next.to_be_bytes());
        }
        self.set_len(data, len);
        if frame.kind == GsoKind::Udp {
            return;
        }
        let tcp = &mut data[at..];
        let next = sequence(tcp).wrapping_add(u32::from(index) * u32::from(frame.size));
        tcp[4..8].copy_from_slice(&next.to_be_bytes());
        if index != 0 {
            tcp[FLAGS] &= !CWR;
        }
        if index + 1 != frame.segments {
            tcp[FLAGS] &= !(FIN | PSH);
        }
    }
}

/// `N` bytes of two frames at the same position.
#[inline]
fn both<'a, const N: usize>(
    a: &'a [u8],
    b: &'a [u8],
    at: usize,
) -> Option<(&'a [u8; N], &'a [u8; N])> {
    Some((array(a, at)?, array(b, at)?))
}

/// The sequence number of a TCP header.
#[inline]
fn sequence(tcp: &[u8]) -> u32 {
    u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])
}
