//! What is in a packet: headers, checksums, segmentation and merging, the virtio-net header.
//!
//! Nothing here blocks, allocates from the heap or makes a system call.

mod checksum;
mod hash;
mod merge;
mod parse;
mod segment;
mod vnet;

pub use checksum::{checksum, fold, pseudo_header, sum_bytes};
pub(crate) use hash::keyed_hash;
pub use merge::{MergeKinds, merge};
pub use parse::{EthernetAddress, Headers, L4, Network, ethernet, parse};
pub use segment::{SegmentError, TCP_MIN_GSO_SIZE, UDP_MAX_SEGMENTS, fill_checksum, segment};
pub use vnet::{VNET_HDR_LEN, VnetHeader};

/// The longest frame: an IP packet of 65,535 bytes behind an Ethernet header with two VLAN tags.
pub const MAX_FRAME: usize = 65_535 + 14 + 8;

#[cfg(all(test, not(miri)))]
mod merge_tests;
#[cfg(all(test, not(miri)))]
mod parse_tests;
#[cfg(all(test, not(miri)))]
mod segment_tests;
#[cfg(all(test, not(miri)))]
mod testing;
#[cfg(all(test, not(miri)))]
mod vnet_hostile_tests;
#[cfg(all(test, not(miri)))]
mod vnet_tests;
