//! Work that a sender may leave to its receiver, in the terms of the virtio-net header (virtio 1.2,
//! 5.1.6): a checksum still to be filled in, a large frame still to be segmented.

use crate::{Headers, L4, Network, WireError, array, checksum, fold};

/// The fewest payload bytes in each TCP segment of a large frame: what is left of the smallest
/// MSS beside the longest options (the kernel's `TCP_MIN_GSO_SIZE`).
pub const TCP_MIN_GSO_SIZE: u16 = 8;
/// The most datagrams in a large UDP frame (the kernel's `UDP_MAX_SEGMENTS`).
pub const UDP_MAX_SEGMENTS: usize = 128;

/// The kind of a large frame, as in the virtio-net header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GsoKind {
    /// TCP over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
    TcpV4 = 1,
    /// TCP over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
    TcpV6 = 4,
    /// UDP datagrams of equal size over IPv4 or IPv6 (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    Udp = 5,
}

/// The segmentation of a large frame into wire packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gso {
    /// The protocol to segment.
    pub kind: GsoKind,
    /// TCP only: the first segment alone keeps the CWR flag (RFC 3168 6.1.2).
    pub ecn: bool,
    /// Payload bytes per wire packet. Never zero.
    pub size: u16,
    /// Wire packets this frame stands for: `ceil((len - header_len) / size)`, less those that were
    /// made of it already. Never zero.
    pub segments: u16,
    /// Bytes of all headers up to and including the transport header, repeated in each wire
    /// packet.
    pub header_len: u16,
}

/// Where a transport checksum is still missing: it covers the bytes from `start` to the end of the
/// frame and goes to `start + offset`, where the pseudo-header's sum already lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksum {
    /// First byte covered, from the start of the frame.
    pub start: u16,
    /// Position of the checksum field, from `start`.
    pub offset: u16,
}

impl Headers {
    /// Where the checksum of the frame's TCP or UDP header lies.
    #[inline]
    pub fn checksum(&self) -> Option<Checksum> {
        let offset = match self.transport {
            L4::Tcp { .. } => 16,
            L4::Udp { .. } => 6,
            _ => return None,
        };
        Some(Checksum {
            start: self.transport_offset,
            offset,
        })
    }

    /// The kind of the frame as a large one.
    #[inline]
    pub fn gso_kind(&self) -> Option<GsoKind> {
        match (self.network, self.transport) {
            (Network::V4, L4::Tcp { .. }) => Some(GsoKind::TcpV4),
            (Network::V6, L4::Tcp { .. }) => Some(GsoKind::TcpV6),
            (_, L4::Udp { .. }) => Some(GsoKind::Udp),
            _ => None,
        }
    }

    /// True if the TCP segment or UDP datagram ends where the frame of `len` bytes does. `data` is
    /// what was parsed.
    #[inline]
    pub fn fills(&self, data: &[u8], len: usize) -> bool {
        let whole = self.network_end as usize == len;
        if !whole || !matches!(self.transport, L4::Udp { .. }) {
            return whole;
        }
        let at = usize::from(self.transport_offset);
        let udp_len = array(data, at + 4).map(|b| usize::from(u16::from_be_bytes(*b)));
        udp_len == Some(len - at)
    }

    /// The segmentation of a frame with these headers into wire packets of `size` payload bytes;
    /// `None` if it fits one. The frame has `len` bytes, `data` is what was parsed.
    ///
    /// # Errors
    /// [`WireError::BadGso`] if a frame like this cannot be segmented like that,
    /// [`WireError::GsoSize`] if no honest stack asks for that.
    pub fn gso(
        &self,
        data: &[u8],
        len: usize,
        kind: GsoKind,
        ecn: bool,
        size: u16,
    ) -> Result<Option<Gso>, WireError> {
        // Padding behind the packet would become payload.
        if self.gso_kind() != Some(kind) || !self.fills(data, len) || size == 0 {
            return Err(WireError::BadGso);
        }
        let payload = len - usize::from(self.header_len);
        if payload <= usize::from(size) {
            return Ok(None);
        }
        let segments = payload.div_ceil(usize::from(size));
        let sane = match kind {
            GsoKind::TcpV4 | GsoKind::TcpV6 => size >= TCP_MIN_GSO_SIZE,
            GsoKind::Udp => segments <= UDP_MAX_SEGMENTS,
        };
        if !sane {
            return Err(WireError::GsoSize);
        }
        let segments = u16::try_from(segments).map_err(|_| WireError::BadGso)?;
        Ok(Some(Gso {
            kind,
            ecn,
            size,
            segments,
            header_len: self.header_len,
        }))
    }

    /// Makes the headers at the start of `data` those of a frame of `len` bytes: writes the IP and
    /// UDP lengths and the IPv4 header checksum.
    ///
    /// # Panics
    /// If `data` does not hold the headers.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "frames are made of IP packets, which are no longer, or cut from such"
    )]
    pub fn set_len(&self, data: &mut [u8], len: usize) {
        let (ip, at) = self.offsets();
        debug_assert!(len - ip - 40 * usize::from(self.network == Network::V6) <= 0xffff);
        let (network, transport) = data[ip..].split_at_mut(at - ip);
        if matches!(self.transport, L4::Udp { .. }) {
            transport[4..6].copy_from_slice(&((len - at) as u16).to_be_bytes());
        }
        if self.network == Network::V6 {
            network[4..6].copy_from_slice(&((len - ip - 40) as u16).to_be_bytes());
        } else {
            network[2..4].copy_from_slice(&((len - ip) as u16).to_be_bytes());
            network[10..12].fill(0);
            let sum = checksum(network);
            network[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Stores the pseudo-header's sum of a frame of `len` bytes in the TCP or UDP checksum field,
    /// and returns the place, for the checksum to be filled in. `None` if there is no such field.
    #[inline]
    pub fn seed_checksum(&self, data: &mut [u8], len: usize) -> Option<Checksum> {
        let place = self.checksum()?;
        let covered = u32::try_from(len.checked_sub(usize::from(place.start))?).ok()?;
        let sum = fold(self.pseudo_header(data, covered));
        let at = usize::from(place.start) + usize::from(place.offset);
        let field = data.get_mut(at..at + 2)?;
        field.copy_from_slice(&sum.to_be_bytes());
        Some(place)
    }
}
