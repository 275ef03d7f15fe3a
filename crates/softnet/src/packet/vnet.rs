//! The virtio-net header (virtio 1.2, 5.1.6) that TAP, AF_PACKET and vhost-user put in front of each frame, and its
//! translation to and from a packet's offload metadata.
//!
//! The header comes from a guest or another host and may lie. [`VnetHeader::apply`] checks every field that it uses against
//! the frame; what it accepts, [`segment`](super::segment()) and [`fill_checksum`](super::fill_checksum) can finish in software.
//! The limits are those of Linux (`virtio_net_hdr_to_skb`), and stricter where a field has only one sensible value.

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{fold, pseudo_header_of};
use super::segment::{checksum_place, plan};
use super::{Headers, L4, parse};
use crate::mem::{Checksum, Gso, GsoKind, Packet};
use crate::stats::DropReason;

/// Bytes of a [`VnetHeader`].
pub const VNET_HDR_LEN: usize = 12;

/// `VIRTIO_NET_HDR_F_*`.
mod flag {
    /// The transport checksum is still to be filled in.
    pub(super) const NEEDS_CSUM: u8 = 1;
    /// The transport checksum was verified.
    pub(super) const DATA_VALID: u8 = 2;
}

/// `VIRTIO_NET_HDR_GSO_*`. UDP fragmentation (3) is refused: nobody may send it who was not offered it.
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

impl VnetHeader {
    /// Reads a header. Nothing is checked yet.
    pub fn from_bytes(bytes: &[u8; VNET_HDR_LEN]) -> VnetHeader {
        zerocopy::transmute!(*bytes)
    }

    /// The header as it is written in front of a frame.
    pub fn to_bytes(self) -> [u8; VNET_HDR_LEN] {
        zerocopy::transmute!(self)
    }

    /// Describes `packet` for a driver that leaves checksum and segmentation to its other side.
    #[inline]
    pub fn of(packet: &Packet) -> VnetHeader {
        // virtio 1.2 5.1.6.4.1: one buffer, unless the driver knows better.
        let mut header = VnetHeader {
            num_buffers: U16::new(1),
            ..VnetHeader::default()
        };
        if let Some(Checksum { start, offset }) = packet.checksum() {
            header.flags = flag::NEEDS_CSUM;
            header.csum_start = U16::new(start);
            header.csum_offset = U16::new(offset);
        } else if packet.checksum_verified() {
            header.flags = flag::DATA_VALID;
        }
        if let Some(gso) = packet.gso() {
            header.gso_type = match gso.kind {
                GsoKind::TcpV4 => gso_type::TCPV4,
                GsoKind::TcpV6 => gso_type::TCPV6,
                GsoKind::Udp => gso_type::UDP_L4,
            } | if gso.ecn { gso_type::ECN } else { 0 };
            header.hdr_len = U16::new(gso.header_len);
            header.gso_size = U16::new(gso.size);
        }
        header
    }

    /// Notes in `packet`, a frame just received with this header, what the header says. A large frame whose payload fits one
    /// wire packet is not noted as one. A large TCP frame that comes with a complete checksum is turned into one with a
    /// checksum to be filled in, since each of its wire packets needs another.
    ///
    /// # Errors
    /// The reason to drop the frame: [`DropReason::BadGso`] or [`DropReason::BadChecksumOffload`] if the header does not
    /// fit the frame; what [`parse()`] says if the frame's own headers are bad, which is not looked at when the header asks for nothing.
    #[inline]
    pub fn apply(&self, packet: &mut Packet) -> Result<(), DropReason> {
        if self.flags & (flag::NEEDS_CSUM | flag::DATA_VALID) == 0
            && self.gso_type == gso_type::NONE
        {
            return Ok(());
        }
        self.apply_offloads(packet)
    }

    fn apply_offloads(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let kind = self.gso_kind()?;
        let needs_checksum = self.flags & flag::NEEDS_CSUM != 0;
        if kind.is_none() && !needs_checksum {
            packet.set_checksum_verified(true);
            return Ok(());
        }
        if usize::from(self.hdr_len.get()) > packet.len() {
            return Err(DropReason::BadGso);
        }
        let headers = parse(packet)?;
        let mut checksum = None;
        if needs_checksum {
            checksum = Some(self.checksum(packet, &headers)?);
        }
        let mut gso = None;
        if let Some(kind) = kind {
            gso = self.gso(packet, &headers, kind, checksum)?;
            if gso.is_some() && checksum.is_none() {
                checksum = Some(seed(packet, &headers)?);
            }
        }
        packet.set_checksum(checksum);
        packet.set_checksum_verified(!needs_checksum && self.flags & flag::DATA_VALID != 0);
        packet.set_gso(gso);
        Ok(())
    }

    fn gso_kind(&self) -> Result<Option<GsoKind>, DropReason> {
        match (
            self.gso_type & !gso_type::ECN,
            self.gso_type & gso_type::ECN != 0,
        ) {
            (gso_type::NONE, false) => Ok(None),
            (gso_type::TCPV4, _) => Ok(Some(GsoKind::TcpV4)),
            (gso_type::TCPV6, _) => Ok(Some(GsoKind::TcpV6)),
            (gso_type::UDP_L4, false) => Ok(Some(GsoKind::Udp)),
            _ => Err(DropReason::BadGso),
        }
    }

    /// The place of a checksum to be filled in. It may belong to the frame's transport header or, in a tunnel, to an inner one,
    /// but never lies in the network header, in padding or across the end.
    fn checksum(&self, packet: &Packet, headers: &Headers) -> Result<Checksum, DropReason> {
        let checksum = Checksum {
            start: self.csum_start.get(),
            offset: self.csum_offset.get(),
        };
        let (start, offset) = (checksum.start, checksum.offset);
        let end = usize::from(start) + usize::from(offset) + 2;
        let inside = packet.data().len().min(headers.network_end as usize);
        let plausible = match headers.transport {
            L4::Tcp { .. } => Some(checksum) == checksum_place(headers),
            L4::Udp { .. } => {
                start >= headers.header_len || Some(checksum) == checksum_place(headers)
            }
            L4::Icmp => start == headers.transport_offset && offset == 2,
            // Never: fragments are cut from packets with complete checksums.
            L4::Fragment => false,
            L4::Other | L4::None => start >= headers.transport_offset,
        };
        if end > inside || offset % 2 != 0 || !plausible {
            return Err(DropReason::BadChecksumOffload);
        }
        Ok(checksum)
    }

    fn gso(
        &self,
        packet: &Packet,
        headers: &Headers,
        kind: GsoKind,
        checksum: Option<Checksum>,
    ) -> Result<Option<Gso>, DropReason> {
        let ecn = self.gso_type & gso_type::ECN != 0;
        let gso = plan(packet, headers, kind, ecn, self.gso_size.get())?;
        match checksum {
            Some(_) if checksum != checksum_place(headers) => Err(DropReason::BadChecksumOffload),
            // As Linux has it: only TCP may come without.
            None if kind == GsoKind::Udp => Err(DropReason::BadGso),
            _ => Ok(gso),
        }
    }
}

/// Stores the pseudo-header's sum in the transport checksum field.
fn seed(packet: &mut Packet, headers: &Headers) -> Result<Checksum, DropReason> {
    let place = checksum_place(headers).ok_or(DropReason::BadGso)?;
    let len = packet.len() as u32 - u32::from(place.start);
    let sum = fold(pseudo_header_of(packet.data(), headers, len));
    let at = usize::from(place.start + place.offset);
    let field = packet
        .data_mut()
        .get_mut(at..at + 2)
        .ok_or(DropReason::BadGso)?;
    field.copy_from_slice(&sum.to_be_bytes());
    Ok(place)
}
