//! Which frames, made by hand, a filter matches.

mod headers;
mod words;

use super::*;
use softnet::mem::{Packet, Pool};
use softnet::testing::{frame, pool};

/// True if a filter of this kind and protocol has the packet.
fn matches(kind: &FilterKind, protocol: u16, packet: &Packet) -> bool {
    let mut list = FilterList::default();
    let handle = match kind {
        FilterKind::Fw { .. } => 5,
        _ => 0,
    };
    let filter = FilterSpec {
        protocol,
        handle,
        ..FilterSpec::new(kind.clone(), Handle::new(1, 1))
    };
    list.put(FilterOp::Add, filter).unwrap();
    let matched = list.filters().try_on(packet) == Classified::Class(Handle::new(1, 1));
    let (_, stats) = list.shown().next().unwrap();
    assert_eq!(stats.packets, u64::from(matched));
    matched
}

fn prefix(address: &str, len: u8) -> Option<Prefix> {
    Some(Prefix::new(address.parse().unwrap(), len).unwrap())
}

/// A packet with these bytes behind the addresses.
fn packet(pool: &Pool, parts: &[&[u8]]) -> Packet {
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(&[2, 0, 0, 0, 0, 0xB, 2, 0, 0, 0, 0, 0xA]));
    for part in parts {
        assert!(packet.append(part));
    }
    packet
}

/// An IPv4 header for 20 bytes of payload, to 192.168.DST.9; in eighths of a byte: the offset.
fn ipv4(tos: u8, dst: u8, protocol: u8, fragment: u16) -> Vec<u8> {
    let [hi, lo] = fragment.to_be_bytes();
    let mut header = vec![0x45, tos, 0, 40, 0, 0, hi, lo, 64, protocol, 0, 0];
    header.extend([10, 0, 0, 1, 192, 168, dst, 9]);
    header
}

/// Ports, and a UDP length of 20 that is a TCP header length behind it.
fn ports(source: u16, destination: u16) -> Vec<u8> {
    let mut header = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    header.extend([0, 20, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    header
}

/// An IPv6 header of traffic class 0xb8 from fd09:: to 2001::, then 20 bytes behind `extension`.
fn ipv6(next: u8, extension: &[u8]) -> Vec<u8> {
    let len = (20 + extension.len()) as u8;
    let mut header = vec![0x6b, 0x80, 0, 0, 0, len, next, 64];
    header.extend([0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    header.extend([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    header.extend(extension);
    header
}

const IP: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Frames that end anywhere are looked at as far as they go.
#[test]
fn short_frames_match_what_they_have() {
    let pool = pool(4);
    let whole = [ipv4(0, 7, 17, 0), ports(1, 53)].concat();
    let port = Flower {
        dst_port: Some(53..=53),
        ..Flower::default()
    };
    let word = |at| {
        let keys = vec![Key {
            value: 0,
            mask: 0,
            at,
            next: 0,
        }];
        FilterKind::U32(U32 {
            keys,
            ..U32::default()
        })
    };
    for len in 0..=14 + whole.len() {
        let bytes = [&[2, 0, 0, 0, 0, 0xB, 2, 0, 0, 0, 0, 0xA], &IP[..], &whole].concat();
        let mut packet = pool.alloc().unwrap();
        assert!(packet.append(&bytes[..len]));
        assert!(matches(&FilterKind::Matchall, ETH_P_ALL, &packet));
        assert_eq!(matches(&FilterKind::Matchall, ETH_P_IP, &packet), len >= 14);
        assert_eq!(matches(&word(0), ETH_P_ALL, &packet), len >= 18, "{len}");
        assert_eq!(matches(&word(-4), ETH_P_ALL, &packet), len >= 14, "{len}");
        let flower = FilterKind::Flower(port.clone());
        assert_eq!(matches(&flower, ETH_P_ALL, &packet), len == bytes.len());
    }
}

/// By the number of its port, as long as it is there. Filters that look at the same bits may each
/// name another link.
#[test]
fn flower_matches_the_link_that_received() {
    let pool = pool(2);
    let mut packet = frame(&pool, 1, 2, 60, 5);
    let mut table = IndevTable::default();
    let (a, b) = (table.add("a", None), table.add("b", None));
    let mut list = FilterList::default();
    for (minor, indev) in [(1, &a), (2, &b)] {
        let flower = Flower {
            indev: Some(indev.clone()),
            ..Flower::default()
        };
        let filter = FilterSpec {
            prio: 1,
            ..FilterSpec::new(flower, Handle::new(1, minor))
        };
        list.put(FilterOp::Add, filter.clone()).unwrap();
        let again = list.put(FilterOp::Add, filter);
        assert_eq!(again, Err(FilterError::Exists(1)));
    }
    let filters = list.filters();
    let mut class = |port: u16| {
        packet.set_port(port);
        match filters.try_on(&packet) {
            Classified::Class(class) => class.minor(),
            _ => 0,
        }
    };
    assert_eq!([class(0), class(3)], [0, 0], "nobody has found the links");
    table.resolve(|name| {
        Some(if name == "a" {
            (7, Some(0))
        } else {
            (8, Some(3))
        })
    });
    assert_eq!([class(0), class(3), class(4)], [1, 2, 0]);
    table.link_gone(7);
    assert_eq!([class(0), class(3)], [0, 2]);
    // A bridge is a link, and no port.
    table.resolve(|_| Some((9, None)));
    assert_eq!([class(0), class(3)], [0, 2]);
}

/// The one filter of a mark is for what its link received (`fw_classify`).
#[test]
fn fw_matches_the_link_that_received() {
    let pool = pool(1);
    let mut packet = frame(&pool, 1, 2, 60, 0);
    let kind = FilterKind::Fw {
        mask: 0xf,
        indev: Some(IndevTable::default().add("a", Some((7, Some(3))))),
    };
    for (mark, port, expected) in [(0x15, 3, true), (0x15, 4, false), (6, 3, false)] {
        packet.set_mark(mark);
        packet.set_port(port);
        assert_eq!(matches(&kind, ETH_P_ALL, &packet), expected);
    }
}
