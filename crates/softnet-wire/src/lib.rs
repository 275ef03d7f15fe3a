//! Reads and checks what is on the wire: Ethernet, VLAN, IPv4, IPv6, TCP, UDP and ICMP headers,
//! the Internet checksum, and the virtio-net header in front of a frame.
//!
//! Everything works on byte slices, which may come from an attacker: every length is checked, and
//! what does not fit is a [`WireError`]. Nothing here allocates or blocks; any thread may call.
//!
//! A frame may lie in several segments. The functions take the first one, which must hold all
//! headers, and the length of the whole frame.
//!
//! ```
//! use softnet_wire::{L4, Network, VnetHeader, WireError, checksum, parse};
//!
//! // A DNS query over IPv4, as a guest hands it over: checksums still to be filled in.
//! let mut frame = [
//!     2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet
//!     0x45, 0xb8, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
//!     4, 0, 0, 53, 0, 12, 0, 0, // UDP
//!     b'd', b'a', b't', b'a',
//! ];
//! let len = frame.len();
//! let headers = parse(&frame, len)?;
//! assert_eq!(headers.network, Network::V4);
//! assert_eq!(headers.transport, L4::Udp { source: 1024, destination: 53 });
//! assert_eq!((headers.dscp(), headers.header_len), (46, 42));
//!
//! let sum = checksum(&frame[14..34]);
//! frame[24..26].copy_from_slice(&sum.to_be_bytes());
//! assert_eq!(checksum(&frame[14..34]), 0, "the IPv4 header is right now");
//!
//! // The virtio-net header says where the UDP checksum goes.
//! let nothing = VnetHeader::default();
//! let header = VnetHeader { flags: 1, csum_start: 34.into(), csum_offset: 6.into(), ..nothing };
//! assert_eq!(header.offload(&mut frame, len)?.checksum, headers.checksum());
//! let liar = VnetHeader { csum_offset: 60_000.into(), ..header };
//! assert_eq!(liar.offload(&mut frame, len), Err(WireError::BadChecksumOffload));
//! # Ok::<(), WireError>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod address;
mod checksum;
mod ecn;
mod hash;
mod large;
mod membership;
mod offload;
mod parse;
mod sender;
mod tunnel;
mod vnet;

pub use address::EthernetAddress;
pub use checksum::{PartialSum, checksum, fold, pseudo_header, sum_bytes};
pub use ecn::{clear_dscp, network_offset, set_ce, traffic_class};
pub use hash::{FIXED_KEY, flow_hash, keyed_hash, use_fixed_key};
pub use membership::{
    GroupQuery, GroupRecord, GroupRecords, Membership, Multicast, RecordKind, is_unsnooped,
    multicast,
};
pub use offload::{Checksum, Gso, GsoKind, TCP_MIN_GSO_SIZE, UDP_MAX_SEGMENTS};
pub use parse::{Headers, L4, Network, dissect, dissect_into, ethernet, parse};
pub use sender::{Claim, LinkLayerAddresses, Message, Neighbour, Sender, sender};
pub use vnet::{Offload, VNET_HDR_LEN, VnetHeader};

/// The longest frame: an IP packet of 65,535 bytes behind an Ethernet header with two VLAN tags.
pub const MAX_FRAME: usize = 65_535 + 14 + 8;

/// Why a frame, or the virtio-net header in front of it, was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WireError {
    /// The frame is shorter than an Ethernet header.
    #[error("shorter than an Ethernet header")]
    Runt,
    /// A header is cut off, runs past the first segment, contradicts the length of the frame or of
    /// the headers around it, or there are too many.
    #[error("a header runs past its end or contradicts itself")]
    BadHeader,
    /// The segmentation fields do not fit the frame.
    #[error("the segmentation fields do not fit the frame")]
    BadGso,
    /// The frame claims smaller or more wire packets than any honest stack makes.
    #[error("smaller or more wire packets than any honest stack makes")]
    GsoSize,
    /// The checksum fields point to a place where no checksum belongs.
    #[error("the checksum fields point to a wrong place")]
    BadChecksumOffload,
}

/// `N` bytes from position `at`, if they are there.
#[inline]
fn array<const N: usize>(data: &[u8], at: usize) -> Option<&[u8; N]> {
    data.get(at..)?.first_chunk()
}
