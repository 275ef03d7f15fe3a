//! Explicit congestion notification (RFC 3168): the low two bits of the IPv4 type of service and
//! of the IPv6 traffic class. Reads the network header alone, so that a packet is marked whatever
//! its transport.

use crate::parse::{ethertype, link};
use crate::{Network, array};

/// Not ECN-capable: a queue drops such a packet where it would mark another.
const NOT_ECT: u8 = 0;
/// Congestion experienced.
const CE: u8 = 3;

/// The network layer of a frame, and where its header starts. The header is there in full, but for
/// options.
#[inline]
fn ip(data: &[u8]) -> Option<(Network, usize)> {
    let (ethertype, _, at) = link(data).ok()?;
    match ethertype {
        ethertype::IPV4 if array::<20>(data, at)?[0] >> 4 == 4 => Some((Network::V4, at)),
        ethertype::IPV6 if array::<40>(data, at)?[0] >> 4 == 6 => Some((Network::V6, at)),
        _ => None,
    }
}

/// The IPv4 type of service or IPv6 traffic class: DSCP and ECN. `None` if the frame is not IP.
#[inline]
pub fn traffic_class(data: &[u8]) -> Option<u8> {
    let (network, at) = ip(data)?;
    Some(match network {
        Network::V4 => data[at + 1],
        _ => data[at] << 4 | data[at + 1] >> 4,
    })
}

/// Start of the network header, behind VLAN tags; 14 if the frame cannot be read.
#[inline]
pub fn network_offset(data: &[u8]) -> usize {
    link(data).map_or(14, |(_, _, at)| at)
}

/// Clears the DSCP of an IP packet and leaves ECN, and keeps its IPv4 checksum as right or wrong
/// as it was. Returns whether the frame is IP; nothing is changed if it is not.
#[inline]
pub fn clear_dscp(data: &mut [u8]) -> bool {
    let Some((network, at)) = ip(data) else {
        return false;
    };
    if network == Network::V6 {
        data[at] &= 0xf0;
        data[at + 1] &= 0x3f;
        return true;
    }
    let gone = u32::from(data[at + 1] & !CE);
    data[at + 1] &= CE;
    // RFC 1624, equation 3: the word got smaller by this much.
    let sum = u32::from(!u16::from_be_bytes([data[at + 10], data[at + 11]])) + (0xffff - gone);
    let [_, _, sum @ ..] = (!((sum & 0xffff) + (sum >> 16))).to_be_bytes();
    data[at + 10..at + 12].copy_from_slice(&sum);
    true
}

/// Marks an ECN-capable IP packet as having met congestion, and keeps its IPv4 checksum as right
/// or wrong as it was. Returns whether it is marked. False, and nothing changed, if the frame is
/// not IP or its transport is not ECN-capable.
#[inline]
pub fn set_ce(data: &mut [u8]) -> bool {
    let Some((network, at)) = ip(data) else {
        return false;
    };
    let class = traffic_class(data).unwrap_or(NOT_ECT);
    match class & CE {
        NOT_ECT => return false,
        CE => return true,
        _ => {}
    }
    if network == Network::V6 {
        data[at + 1] |= CE << 4;
        return true;
    }
    data[at + 1] |= CE;
    // RFC 1624, equation 3: the word with the bits grew by this much, and has no carry.
    let grown = u32::from(CE - (class & CE));
    let sum = u32::from(!u16::from_be_bytes([data[at + 10], data[at + 11]])) + grown;
    let [_, _, sum @ ..] = (!((sum & 0xffff) + (sum >> 16))).to_be_bytes();
    data[at + 10..at + 12].copy_from_slice(&sum);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use proptest::prelude::*;

    /// A frame with VLAN tags and an IPv4 or IPv6 header, and where that starts.
    fn packet(v6: bool, tags: usize, class: u8, rest: &[u8]) -> (Vec<u8>, usize) {
        let mut frame = vec![2; 12];
        for tag in 0..tags {
            frame.extend([[0x81, 0], [0x88, 0xa8]][tag % 2]);
            frame.extend([0, tag as u8]);
        }
        let at = frame.len() + 2;
        if v6 {
            frame.extend([0x86, 0xdd, 0x60 | class >> 4, class << 4 | rest[0] & 0xf]);
            frame.extend(&rest[1..39]);
        } else {
            frame.extend([8, 0, 0x45, class]);
            frame.extend(&rest[2..10]);
            frame.extend([0, 0]);
            frame.extend(&rest[12..20]);
            let sum = checksum(&frame[at..]);
            frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend(&rest[20..]);
        (frame, at)
    }

    proptest! {
        /// Marks exactly the ECN-capable, in exactly these bits, and keeps the checksum right.
        #[test]
        fn marks_the_ecn_capable(
            v6: bool,
            tags in 0..5_usize,
            class: u8,
            rest in prop::collection::vec(any::<u8>(), 40..60),
        ) {
            let (frame, at) = packet(v6, tags, class, &rest);
            prop_assert_eq!(traffic_class(&frame), Some(class));
            let mut marked = frame.clone();
            let capable = class & 3 != 0;
            prop_assert_eq!(set_ce(&mut marked), capable);
            prop_assert_eq!(traffic_class(&marked), Some(if capable { class | 3 } else { class }));
            if !v6 {
                prop_assert_eq!(checksum(&marked[at..at + 20]), 0);
                marked[at + 10..at + 12].copy_from_slice(&frame[at + 10..at + 12]);
            }
            marked[at..at + 2].copy_from_slice(&frame[at..at + 2]);
            prop_assert_eq!(marked, frame);
        }

        /// Clears the DSCP alone, and keeps the checksum right.
        #[test]
        fn clears_the_dscp(
            v6: bool,
            tags in 0..5_usize,
            class: u8,
            rest in prop::collection::vec(any::<u8>(), 40..60),
        ) {
            let (frame, at) = packet(v6, tags, class, &rest);
            prop_assert_eq!(network_offset(&frame), at);
            let mut washed = frame.clone();
            prop_assert!(clear_dscp(&mut washed));
            prop_assert_eq!(traffic_class(&washed), Some(class & 3));
            if !v6 {
                prop_assert_eq!(checksum(&washed[at..at + 20]), 0);
                washed[at + 10..at + 12].copy_from_slice(&frame[at + 10..at + 12]);
            }
            washed[at..at + 2].copy_from_slice(&frame[at..at + 2]);
            prop_assert_eq!(washed, frame);
        }

        /// A header that is cut off, five tags and random bytes are left alone.
        #[test]
        fn unknown_frames_are_not_marked(
            v6: bool,
            tags in 0..6_usize,
            rest in prop::collection::vec(any::<u8>(), 40..60),
            cut: prop::sample::Index,
        ) {
            let (mut frame, at) = packet(v6, tags, 1, &rest);
            if tags < 5 {
                frame.truncate(cut.index(at + if v6 { 40 } else { 20 }));
            }
            let mut marked = frame.clone();
            prop_assert!(!set_ce(&mut marked));
            prop_assert_eq!(traffic_class(&frame), None);
            prop_assert_eq!(marked, frame);
        }
    }

    /// The one's complement has two zeros; the sum crosses the end (RFC 1624, section 4).
    #[test]
    fn checksums_at_the_end_of_their_range() {
        let rest = [0; 60];
        let (frame, at) = packet(false, 0, 1, &rest);
        for stored in [0_u16, 1, 2, 0xfffe, 0xffff] {
            let mut marked = frame.clone();
            // Some word of the header makes this the right checksum.
            marked[at + 10..at + 12].copy_from_slice(&stored.to_be_bytes());
            marked[at + 12..at + 14].fill(0);
            let missing = checksum(&marked[at..at + 20]);
            marked[at + 12..at + 14].copy_from_slice(&missing.to_be_bytes());
            assert_eq!(checksum(&marked[at..at + 20]), 0);
            assert!(set_ce(&mut marked));
            assert_eq!(checksum(&marked[at..at + 20]), 0, "{stored:#x}");
        }
    }
}
