//! `parse` against etherparse, and hostile frames by name.

use proptest::collection::vec;
use proptest::prelude::*;

use softnet_wire::{
    EthernetAddress, Headers, L4, Network, WireError, dissect, dissect_into, ethernet, parse,
};

use super::corpus;
use super::frames::{Frame, Transport, damage, damaged, frames};
use super::fuzz::{self, agree, facts, oracle};

fn parse_bytes(bytes: &[u8]) -> Result<Headers, WireError> {
    parse(bytes, bytes.len())
}

fn hash(bytes: &[u8]) -> u32 {
    parse_bytes(bytes).unwrap().flow_hash(bytes)
}

proptest! {
    #[test]
    fn never_panics_on_arbitrary_bytes(bytes in vec(any::<u8>(), 0..200), cut in 0..200_usize) {
        for first in [&bytes[..], &bytes[..cut.min(bytes.len())]] {
            if let Ok(headers) = parse(first, bytes.len()) {
                headers.flow_hash(first);
                prop_assert!(usize::from(headers.header_len) <= first.len());
                prop_assert!(headers.network_end as usize <= bytes.len());
            }
        }
        prop_assert_eq!(ethernet(&bytes).is_err(), bytes.len() < 14);
    }

    #[test]
    fn parse_finds_the_built_headers(frame in frames(300)) {
        let bytes = frame.bytes();
        let headers = parse_bytes(&bytes).unwrap();
        prop_assert_eq!(headers.destination, EthernetAddress([2, 0, 0, 0, 0, 2]));
        prop_assert_eq!(headers.source, EthernetAddress([2, 0, 0, 0, 0, 1]));
        prop_assert_eq!(headers.ethertype, if frame.v6 { 0x86dd } else { 0x0800 });
        prop_assert_eq!(usize::from(headers.network_offset), frame.network_offset());
        prop_assert_eq!(usize::from(headers.transport_offset), frame.transport_offset());
        prop_assert_eq!(usize::from(headers.header_len), frame.header_len());
        prop_assert_eq!(headers.network_end as usize, bytes.len() - frame.padding);
        prop_assert_eq!(headers.protocol, frame.protocol());
        prop_assert_eq!(Some(facts(&headers)), oracle(&bytes));
    }

    /// Where both accept a damaged frame, both read the same; etherparse accepts nothing with
    /// broken lengths.
    #[test]
    fn agrees_on_damaged_frames(frame in frames(60), damage in damage()) {
        let bytes = damaged(frame.bytes(), damage);
        if let (Ok(headers), Some(expected)) = (parse_bytes(&bytes), oracle(&bytes)) {
            prop_assert!(agree(&headers, expected), "{headers:?} is {expected:?}");
        }
    }

    /// Headers that another frame left in the place do not matter.
    #[test]
    fn dissects_into_a_used_place(before in frames(60), frame in frames(60), damage in damage()) {
        let (before, bytes) = (before.bytes(), damaged(frame.bytes(), damage));
        let mut headers = parse_bytes(&before).unwrap();
        let found = dissect_into(&mut headers, &bytes, bytes.len());
        prop_assert_eq!(found.map(|()| headers), dissect(&bytes, bytes.len()));
    }

    /// Every cut through the headers is noticed, wherever it is.
    #[test]
    fn every_truncation_is_refused(frame in frames(60), cut: prop::sample::Index) {
        let bytes = frame.bytes();
        let cut = cut.index(bytes.len() - frame.padding);
        let reason = if cut < 14 { WireError::Runt } else { WireError::BadHeader };
        prop_assert_eq!(parse_bytes(&bytes[..cut]), Err(reason));
    }

    /// A frame may be cut into segments anywhere behind its headers, and nowhere else.
    #[test]
    fn headers_lie_in_the_first_segment(frame in frames(60), cut: prop::sample::Index) {
        let bytes = frame.bytes();
        let cut = cut.index(bytes.len());
        let found = parse(&bytes[..cut], bytes.len());
        if cut < 14 {
            prop_assert_eq!(found, Err(WireError::Runt));
        } else if cut < frame.header_len() {
            prop_assert_eq!(found, Err(WireError::BadHeader));
        } else {
            prop_assert_eq!(found, parse_bytes(&bytes));
        }
    }

    #[test]
    fn flow_hash_is_that_of_the_flow(frame in frames(60), other in frames(60)) {
        let hash = |frame: &Frame| hash(&frame.bytes());
        // Another packet of the same flow: all but addresses, ports and protocol differs.
        let same = Frame {
            v6: frame.v6,
            ports: frame.ports,
            transport: frame.transport.clone(),
            options: frame.options,
            ..other
        };
        prop_assert_eq!(hash(&frame), hash(&same));
        let (a, b) = frame.ports;
        if !matches!(frame.transport, Transport::Icmp) {
            let changed = Frame { ports: (a, b ^ 1), ..frame.clone() };
            prop_assert_ne!(hash(&frame), hash(&changed));
        }
    }
}

#[test]
fn flow_hash_spreads_ports_and_addresses() {
    // 4096 flows that differ in few bits, over 256 buckets: 16 each, as evenly as if by chance,
    // whatever the key. (Chi-squared is 255 on average; 450 is 8.6 standard deviations away.)
    for v6 in [false, true] {
        let mut buckets = [[0_u32; 256]; 2];
        for n in 0..4096_u16 {
            let mut bytes = Frame {
                v6,
                ports: (1024 + n, 80),
                ..Frame::default()
            }
            .bytes();
            let at = if v6 { 14 + 8 + 14 } else { 14 + 12 + 2 };
            if n % 2 == 0 {
                bytes[at..at + 2].copy_from_slice(&n.to_be_bytes());
            }
            let hash = hash(&bytes);
            buckets[0][(hash & 0xff) as usize] += 1;
            buckets[1][(hash >> 24) as usize] += 1;
        }
        for buckets in buckets {
            let squares = buckets
                .iter()
                .map(|&n| (f64::from(n) - 16.0).powi(2) / 16.0);
            let sum: f64 = squares.sum();
            assert!(sum < 450.0, "{sum}: {buckets:?}");
        }
    }
}

#[test]
fn flow_hash_of_a_reply_is_that_of_the_request() {
    for v6 in [false, true] {
        let request = Frame {
            v6,
            ..Frame::default()
        }
        .bytes();
        let mut reply = Frame {
            v6,
            ports: (53, 1024),
            ..Frame::default()
        }
        .bytes();
        let (at, n) = if v6 { (14 + 8, 16) } else { (14 + 12, 4) };
        for i in 0..n {
            reply.swap(at + i, at + n + i);
        }
        assert_eq!(hash(&request), hash(&reply));
    }
}

#[test]
fn flow_hash_of_all_fragments_is_the_same() {
    let hash = |offset: u16| {
        let mut bytes = Frame::default().bytes();
        bytes[20..22].copy_from_slice(&offset.to_be_bytes());
        let headers = parse_bytes(&bytes).unwrap();
        assert_eq!((headers.transport, headers.protocol), (L4::Fragment, 17));
        headers.flow_hash(&bytes)
    };
    assert_eq!(hash(0x2000), hash(0x2003));
    assert_eq!(hash(0x2000), hash(0x0006));
}

#[test]
fn the_fuzzers_corpus() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "parse", fuzz::run);
}

#[test]
fn runt() {
    for len in 0..14 {
        assert_eq!(parse_bytes(&vec![0xff; len]), Err(WireError::Runt));
        assert_eq!(ethernet(&vec![0xff; len]), Err(WireError::Runt));
    }
}

#[test]
fn frames_that_are_not_ip_are_fine() {
    let mut bytes = vec![0xff; 14];
    bytes[12..14].copy_from_slice(&[0x08, 0x06]);
    let headers = parse_bytes(&bytes).unwrap();
    assert_eq!(
        (headers.network, headers.transport),
        (Network::Other, L4::None)
    );
    assert_eq!(
        (headers.ethertype, headers.header_len, headers.network_end),
        (0x0806, 14, 14)
    );
    assert!(headers.destination.is_broadcast() && headers.destination.is_multicast());
}

#[test]
fn vlan_stacks_up_to_four_tags() {
    for vlans in 0..=4 {
        let headers = parse_bytes(
            &Frame {
                vlans,
                ..Frame::default()
            }
            .bytes(),
        )
        .unwrap();
        assert_eq!(usize::from(headers.vlan_tags), vlans);
        assert_eq!(
            headers.transport,
            L4::Udp {
                source: 1024,
                destination: 53
            }
        );
    }
    for vlans in [5, 6, 400] {
        let bytes = Frame {
            vlans,
            ..Frame::default()
        }
        .bytes();
        assert_eq!(parse_bytes(&bytes), Err(WireError::BadHeader));
    }
}

#[test]
fn vlan_tag_cut_off() {
    let bytes = Frame {
        vlans: 2,
        ..Frame::default()
    }
    .bytes();
    for len in 14..22 {
        assert_eq!(parse_bytes(&bytes[..len]), Err(WireError::BadHeader));
    }
}

/// Changes one byte of a frame of UDP over IPv4 or IPv6.
fn with_byte(v6: bool, at: usize, value: u8) -> Result<Headers, WireError> {
    let mut bytes = Frame {
        v6,
        ..Frame::default()
    }
    .bytes();
    bytes[at] = value;
    parse_bytes(&bytes)
}

#[test]
fn ip_version_against_the_ethertype() {
    assert_eq!(with_byte(false, 14, 0x65), Err(WireError::BadHeader));
    assert_eq!(with_byte(true, 14, 0x45), Err(WireError::BadHeader));
}

#[test]
fn ipv4_header_length_too_small_or_beyond_the_packet() {
    for ihl in 0..5 {
        assert_eq!(with_byte(false, 14, 0x40 | ihl), Err(WireError::BadHeader));
    }
    assert_eq!(with_byte(false, 14, 0x4f), Err(WireError::BadHeader));
}

#[test]
fn ipv4_total_length_beyond_the_frame_or_inside_the_headers() {
    // The frame has 50 bytes behind the Ethernet header.
    for len in [0, 19, 20, 27, 51, 255] {
        assert_eq!(
            with_byte(false, 17, len),
            Err(WireError::BadHeader),
            "{len}"
        );
    }
    // One byte less than the UDP length needs.
    assert_eq!(with_byte(false, 17, 49), Err(WireError::BadHeader));
}

#[test]
fn ipv6_payload_length_beyond_the_frame_or_inside_the_headers() {
    for len in [0, 7, 29, 31, 255] {
        assert_eq!(with_byte(true, 19, len), Err(WireError::BadHeader), "{len}");
    }
}

#[test]
fn udp_length_below_its_header_or_beyond_the_packet() {
    for len in [0, 7, 31] {
        assert_eq!(
            with_byte(false, 39, len),
            Err(WireError::BadHeader),
            "{len}"
        );
    }
    // Shorter than the packet is legal (RFC 9868 puts options there).
    assert!(with_byte(false, 39, 8).is_ok());
}

#[test]
fn tcp_data_offset_below_its_header_or_beyond_the_packet() {
    let bytes = Frame {
        transport: Transport::Tcp {
            options: 0,
            flags: 2,
        },
        ..Frame::default()
    }
    .bytes();
    for words in [0, 4, 11, 15] {
        let mut bytes = bytes.clone();
        bytes[14 + 20 + 12] = words << 4;
        assert_eq!(parse_bytes(&bytes), Err(WireError::BadHeader), "{words}");
    }
}

/// IPv6 with these next-header numbers and 8 bytes for each extension header, then a UDP header.
fn extension_headers(kinds: &[u8]) -> Vec<u8> {
    let udp = Frame {
        v6: true,
        ..Frame::default()
    }
    .bytes();
    let mut bytes = udp[..54].to_vec();
    let all = [kinds, &[17]].concat();
    bytes[20] = all[0];
    for next in &all[1..] {
        bytes.extend([*next, 0, 0, 0, 0, 0, 0, 0]);
    }
    bytes.extend(&udp[54..]);
    let len = (bytes.len() - 54) as u16;
    bytes[18..20].copy_from_slice(&len.to_be_bytes());
    bytes
}

#[test]
fn extension_headers_are_walked_to_a_bound() {
    let headers = parse_bytes(&extension_headers(&[60; 8])).unwrap();
    assert_eq!(
        headers.transport,
        L4::Udp {
            source: 1024,
            destination: 53
        }
    );
    assert_eq!(headers.transport_offset, 54 + 64);
    assert_eq!(
        parse_bytes(&extension_headers(&[60; 9])),
        Err(WireError::BadHeader)
    );
    assert_eq!(
        parse_bytes(&extension_headers(&[60; 100])),
        Err(WireError::BadHeader)
    );
}

#[test]
fn every_kind_of_extension_header() {
    let headers = parse_bytes(&extension_headers(&[0, 60, 43, 44, 135, 139, 140])).unwrap();
    assert_eq!(
        headers.transport,
        L4::Udp {
            source: 1024,
            destination: 53
        }
    );
}

#[test]
fn extension_header_longer_than_the_packet() {
    let mut bytes = extension_headers(&[0, 60]);
    bytes[54 + 8 + 1] = 255;
    assert_eq!(parse_bytes(&bytes), Err(WireError::BadHeader));
}

#[test]
fn authentication_header_and_esp_end_the_walk() {
    for kind in [50, 51, 59] {
        let headers = parse_bytes(&extension_headers(&[0, kind])).unwrap();
        assert_eq!((headers.transport, headers.protocol), (L4::Other, kind));
        assert_eq!(headers.header_len, 54 + 8);
    }
}

#[test]
fn ipv6_fragments() {
    let mut bytes = extension_headers(&[0, 44]);
    // An atomic fragment is a whole packet (RFC 6946).
    assert!(matches!(
        parse_bytes(&bytes).unwrap().transport,
        L4::Udp { .. }
    ));
    for [hi, lo] in [[0, 1], [0, 8], [0xff, 0xf8], [0x40, 0x01]] {
        bytes[54 + 8 + 2] = hi;
        bytes[54 + 8 + 3] = lo;
        let headers = parse_bytes(&bytes).unwrap();
        assert_eq!((headers.transport, headers.protocol), (L4::Fragment, 17));
        assert_eq!(headers.header_len, 54 + 16);
    }
}

/// A second fragment header is looked at, too: the first one may be an atomic fragment's.
#[test]
fn a_fragment_header_behind_another() {
    let mut bytes = extension_headers(&[44, 44]);
    bytes[54 + 8 + 3] = 1;
    let headers = parse_bytes(&bytes).unwrap();
    assert_eq!((headers.transport, headers.protocol), (L4::Fragment, 17));
    assert_eq!(headers.header_len, 54 + 16);
}

/// RFC 2675: the length is in a hop-by-hop option, and the header says 0.
#[test]
fn jumbograms_are_refused() {
    let mut bytes = extension_headers(&[0]);
    bytes[18..20].fill(0);
    bytes[56..62].copy_from_slice(&[0xc2, 4, 0, 1, 0, 0]);
    assert_eq!(parse_bytes(&bytes), Err(WireError::BadHeader));
}

#[test]
fn nothing_behind_the_last_extension_header() {
    let mut bytes = extension_headers(&[60]);
    bytes[19] = 8;
    assert_eq!(parse_bytes(&bytes), Err(WireError::BadHeader), "no UDP");
    bytes[54] = 59;
    let headers = parse_bytes(&bytes).unwrap();
    assert_eq!((headers.transport, headers.protocol), (L4::Other, 59));
    assert_eq!((headers.header_len, headers.network_end), (62, 62));
}

/// ICMP of the other IP version has no meaning (RFC 4443 1).
#[test]
fn icmp_of_the_other_version() {
    for (v6, protocol, at) in [(false, 58, 23), (true, 1, 20)] {
        let headers = with_byte(v6, at, protocol).unwrap();
        assert_eq!(headers.transport, L4::Other);
        assert_eq!(headers.header_len, headers.transport_offset);
    }
}

#[test]
fn later_fragments_may_be_short() {
    // An IPv4 fragment with one byte of payload: too short for a UDP header, and none is expected.
    let mut bytes = Frame::default().bytes()[..35].to_vec();
    bytes[16..18].copy_from_slice(&21_u16.to_be_bytes());
    bytes[20..22].copy_from_slice(&[0x00, 0x01]);
    assert_eq!(parse_bytes(&bytes).unwrap().transport, L4::Fragment);
}

#[test]
fn addresses() {
    let show = |a: [u8; 6]| EthernetAddress(a).to_string();
    assert_eq!(show([0x02, 0, 0xab, 0, 0, 0x0f]), "02:00:ab:00:00:0f");
    assert!(EthernetAddress([1, 0x80, 0xc2, 0, 0, 0x0e]).is_link_local());
    assert!(!EthernetAddress([1, 0x80, 0xc2, 0, 0, 0x10]).is_link_local());
    assert!(!EthernetAddress([1, 0x80, 0xc2, 0, 1, 0x00]).is_link_local());
    assert!(EthernetAddress([1, 0, 0x5e, 0, 0, 1]).is_multicast());
    assert!(!EthernetAddress([2, 0, 0, 0, 0, 1]).is_multicast());
    assert!(EthernetAddress::default().is_zero());
}
