//! The virtio-net header (virtio 1.2, 5.1.6) that TAP, AF_PACKET and vhost-user put in front of
//! each frame, and its translation to and from offload metadata.
//!
//! The header comes from a guest or another host and may lie. [`VnetHeader::offload`] checks
//! every field that it uses against the frame; what it accepts can be finished in software. The
//! limits are those of Linux (`virtio_net_hdr_to_skb`), and stricter where a field has only one
//! sensible value.

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::parse::ethertype;
use crate::{Checksum, Gso, GsoKind, Headers, L4, WireError, parse};

/// Bytes of a [`VnetHeader`].
pub const VNET_HDR_LEN: usize = 12;

/// `VIRTIO_NET_HDR_F_*`.
mod flag {
    /// The transport checksum is still to be filled in.
    pub(super) const NEEDS_CSUM: u8 = 1;
    /// The transport checksum was verified.
    pub(super) const DATA_VALID: u8 = 2;
}

/// `VIRTIO_NET_HDR_GSO_*`. UDP fragmentation (3) is refused: nobody may send it who was not
/// offered it.
mod gso_type {
    pub(super) const NONE: u8 = 0;
    pub(super) const TCPV4: u8 = 1;
    pub(super) const TCPV6: u8 = 4;
    pub(super) const UDP_L4: u8 = 5;
    /// A bit beside the TCP types.
    pub(super) const ECN: u8 = 0x80;
}

/// `struct virtio_net_hdr_v1`: the little-endian header with `num_buffers`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct VnetHeader {
    /// Bits: 1 checksum to be filled in, 2 checksum verified. Others are ignored.
    pub flags: u8,
    /// 0 none, 1 TCP over IPv4, 4 TCP over IPv6, 5 UDP; bit 0x80 with TCP: CWR may be set.
    pub gso_type: u8,
    /// Bytes of all headers. A hint: the frame itself is believed.
    pub hdr_len: U16,
    /// Payload bytes per wire packet.
    pub gso_size: U16,
    /// First byte that the checksum covers, from the start of the frame.
    pub csum_start: U16,
    /// Position of the checksum field, from `csum_start`.
    pub csum_offset: U16,
    /// Receive buffers that the frame was spread over.
    pub num_buffers: U16,
}

const _: () = assert!(size_of::<VnetHeader>() == VNET_HDR_LEN);

/// Work that a sender left to its receiver, checked against the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum still to be filled in.
    pub checksum: Option<Checksum>,
    /// True if the sender vouches for the transport checksum.
    pub checksum_verified: bool,
    /// The segmentation of the frame, if it is a large one.
    pub gso: Option<Gso>,
}

impl VnetHeader {
    /// Reads a header. Nothing is checked yet.
    #[inline]
    pub fn from_bytes(bytes: &[u8; VNET_HDR_LEN]) -> VnetHeader {
        zerocopy::transmute!(*bytes)
    }

    /// The header as it is written in front of a frame.
    #[inline]
    pub fn to_bytes(self) -> [u8; VNET_HDR_LEN] {
        zerocopy::transmute!(self)
    }

    /// Describes a frame for a driver that leaves checksum and segmentation to its other side.
    #[inline]
    pub fn new(offload: &Offload) -> VnetHeader {
        // virtio 1.2 5.1.6.4.1: one buffer, unless the driver knows better.
        let mut header = VnetHeader {
            num_buffers: U16::new(1),
            ..VnetHeader::default()
        };
        if let Some(Checksum { start, offset }) = offload.checksum {
            header.flags = flag::NEEDS_CSUM;
            header.csum_start = U16::new(start);
            header.csum_offset = U16::new(offset);
        } else if offload.checksum_verified {
            header.flags = flag::DATA_VALID;
        }
        if let Some(gso) = offload.gso {
            header.gso_type = gso.kind as u8 | if gso.ecn { gso_type::ECN } else { 0 };
            header.hdr_len = U16::new(gso.header_len);
            header.gso_size = U16::new(gso.size);
        }
        header
    }

    /// True if the header says nothing about the frame, which may then be anything.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flags & (flag::NEEDS_CSUM | flag::DATA_VALID) == 0 && self.gso_type == gso_type::NONE
    }

    /// The offload that the header asks for a frame just received with it, of `len` bytes, whose
    /// first segment is `data`. A large frame whose payload fits one wire packet is no large one. A
    /// large TCP frame that comes with a complete checksum is turned into one with a checksum to be
    /// filled in, since each of its wire packets needs another: the field in `data` then holds the
    /// pseudo-header's sum.
    ///
    /// # Errors
    /// [`WireError::BadGso`], [`WireError::GsoSize`] or [`WireError::BadChecksumOffload`] if the
    /// header does not fit the frame; what [`parse()`] says if the frame's own headers are bad,
    /// which are read only if checksum or segmentation are asked for. Nothing is changed then.
    #[inline]
    pub fn offload(&self, data: &mut [u8], len: usize) -> Result<Offload, WireError> {
        if self.is_plain() {
            return Ok(Offload::default());
        }
        self.check(data, len)
    }

    fn check(&self, data: &mut [u8], len: usize) -> Result<Offload, WireError> {
        let kind = self.gso_kind()?;
        let needs_checksum = self.flags & flag::NEEDS_CSUM != 0;
        let mut offload = Offload {
            checksum_verified: !needs_checksum && self.flags & flag::DATA_VALID != 0,
            ..Offload::default()
        };
        if kind.is_none() && !needs_checksum {
            return Ok(offload);
        }
        if usize::from(self.hdr_len.get()) > len {
            return Err(WireError::BadGso);
        }
        let headers = parse(data, len)?;
        if needs_checksum {
            offload.checksum = Some(self.checksum(data.len(), &headers)?);
        }
        if let Some(kind) = kind {
            let ecn = self.gso_type & gso_type::ECN != 0;
            offload.gso = headers.gso(data, len, kind, ecn, self.gso_size.get())?;
            match offload.checksum {
                Some(_) if offload.checksum != headers.checksum() => {
                    return Err(WireError::BadChecksumOffload);
                }
                // As Linux has it: only TCP may come without.
                None if kind == GsoKind::Udp => return Err(WireError::BadGso),
                None if offload.gso.is_some() => {
                    offload.checksum = headers.seed_checksum(data, len);
                }
                _ => {}
            }
        }
        Ok(offload)
    }

    fn gso_kind(&self) -> Result<Option<GsoKind>, WireError> {
        let ecn = self.gso_type & gso_type::ECN != 0;
        match (self.gso_type & !gso_type::ECN, ecn) {
            (gso_type::NONE, false) => Ok(None),
            (gso_type::TCPV4, _) => Ok(Some(GsoKind::TcpV4)),
            (gso_type::TCPV6, _) => Ok(Some(GsoKind::TcpV6)),
            (gso_type::UDP_L4, false) => Ok(Some(GsoKind::Udp)),
            _ => Err(WireError::BadGso),
        }
    }

    /// The place of a checksum to be filled in. It may belong to the frame's transport header or,
    /// in a tunnel, to an inner one, but never lies in the network header, in padding, across the
    /// end, or behind the `first` bytes in the first segment.
    fn checksum(&self, first: usize, headers: &Headers) -> Result<Checksum, WireError> {
        let checksum = Checksum {
            start: self.csum_start.get(),
            offset: self.csum_offset.get(),
        };
        let Checksum { start, offset } = checksum;
        let end = usize::from(start) + usize::from(offset) + 2;
        let inside = first.min(headers.network_end as usize);
        let plausible = match headers.transport {
            L4::Tcp { .. } => Some(checksum) == headers.checksum(),
            L4::Udp { .. } => start >= headers.header_len || Some(checksum) == headers.checksum(),
            L4::Icmp => start == headers.transport_offset && offset == 2,
            // Never: fragments are made of packets with complete checksums.
            L4::Fragment => false,
            // It has none, and whoever checked its addresses would have checked others.
            L4::None if headers.ethertype == ethertype::ARP => false,
            L4::Other | L4::None => start >= headers.transport_offset,
        };
        if end > inside || offset % 2 != 0 || !plausible {
            return Err(WireError::BadChecksumOffload);
        }
        Ok(checksum)
    }
}
