//! Which frames, made by hand, a filter matches.

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

#[test]
fn flower_looks_at_headers() {
    let pool = pool(8);
    let dns = packet(&pool, &[&IP, &ipv4(0xb8, 7, 17, 0), &ports(1000, 53)]);
    let web = packet(&pool, &[&IP, &ipv4(0, 8, 6, 0), &ports(1000, 443)]);
    // The first fragment, whose ports are there, but are not looked at.
    let part = packet(&pool, &[&IP, &ipv4(0, 7, 17, 0x2000), &ports(1000, 53)]);
    let arp = frame(&pool, 1, 2, 60, 5);
    let v6 = packet(&pool, &[&IPV6, &ipv6(17, &[]), &ports(1000, 53)]);
    let all = [&dns, &web, &part, &arp, &v6];
    let any = Flower::default;
    for (protocol, flower, expected) in [
        (ETH_P_ALL, any(), [1, 1, 1, 1, 1]),
        (ETH_P_IP, any(), [1, 1, 1, 0, 0]),
        (ETH_P_IPV6, any(), [0, 0, 0, 0, 1]),
        (0x88B5, any(), [0, 0, 0, 1, 0]),
        (
            ETH_P_ALL,
            Flower {
                dst_ip: prefix("192.168.7.0", 24),
                ..any()
            },
            [1, 0, 1, 0, 0],
        ),
        (
            ETH_P_ALL,
            Flower {
                src_ip: prefix("0.0.0.0", 0),
                ..any()
            },
            [1, 1, 1, 0, 0],
        ),
        (
            ETH_P_ALL,
            Flower {
                src_ip: prefix("fd00::", 8),
                ..any()
            },
            [0, 0, 0, 0, 1],
        ),
        (
            ETH_P_ALL,
            Flower {
                dst_ip: prefix("2001::", 128),
                ..any()
            },
            [0, 0, 0, 0, 1],
        ),
        (
            ETH_P_IP,
            Flower {
                ip_proto: Some(17),
                ..any()
            },
            [1, 0, 1, 0, 0],
        ),
        (
            ETH_P_ALL,
            Flower {
                ip_proto: Some(17),
                ..any()
            },
            [1, 0, 1, 0, 1],
        ),
        // ARP is not IP of protocol 0.
        (
            ETH_P_ALL,
            Flower {
                ip_proto: Some(0),
                ..any()
            },
            [0; 5],
        ),
        (
            ETH_P_ALL,
            Flower {
                dst_port: Some(53..=53),
                ..any()
            },
            [1, 0, 0, 0, 1],
        ),
        (
            ETH_P_ALL,
            Flower {
                dst_port: Some(50..=500),
                ..any()
            },
            [1, 1, 0, 0, 1],
        ),
        (
            ETH_P_ALL,
            Flower {
                src_port: Some(1..=999),
                ..any()
            },
            [0; 5],
        ),
        (
            ETH_P_ALL,
            Flower {
                ip_tos: Some((46 << 2, 0xfc)),
                ..any()
            },
            [1, 0, 0, 0, 1],
        ),
        (
            ETH_P_ALL,
            Flower {
                ip_tos: Some((0, 0xfc)),
                ..any()
            },
            [0, 1, 1, 0, 0],
        ),
        (
            ETH_P_ALL,
            Flower {
                mark: Some((0x15, 0x0f)),
                ..any()
            },
            [0, 0, 0, 1, 0],
        ),
    ] {
        let kind = FilterKind::Flower(flower);
        let hits = all.map(|packet| u8::from(matches(&kind, protocol, packet)));
        assert_eq!(hits, expected, "{kind:?}");
    }
    assert_eq!(Prefix::new("10.0.0.0".parse().unwrap(), 33), None);
}

/// tc's `protocol` is the frame's EtherType, which is that of the first tag where there is one.
/// What a filter without it says of addresses holds behind tags, too.
#[test]
fn vlan_tags_are_looked_at_and_behind() {
    let pool = pool(4);
    let inner = [ipv4(0, 7, 17, 0), ports(1, 2)].concat();
    let plain = packet(&pool, &[&IP, &inner]);
    // Priority 5, VLAN 7; and the same in a service VLAN, 9.
    let tagged = packet(&pool, &[&[0x81, 0, 0xA0, 7], &IP, &inner]);
    let service = [0x88, 0xa8, 0x60, 9, 0x81, 0, 0xA0, 7];
    let double = packet(&pool, &[&service, &IP, &inner]);
    let cut = packet(&pool, &[&[0x81, 0, 0xA0]]);
    let all = [&plain, &tagged, &double, &cut];
    let any = Flower::default;
    for (protocol, flower, expected) in [
        (ETH_P_IP, any(), [1, 0, 0, 0]),
        (0x8100, any(), [0, 1, 0, 1]),
        (0x88a8, any(), [0, 0, 1, 0]),
        (
            ETH_P_ALL,
            Flower {
                dst_ip: prefix("192.168.7.9", 32),
                ..any()
            },
            [1, 1, 1, 0],
        ),
        (
            ETH_P_ALL,
            Flower {
                vlan_id: Some(7),
                ..any()
            },
            [0, 1, 0, 0],
        ),
        (
            ETH_P_ALL,
            Flower {
                vlan_id: Some(9),
                vlan_prio: Some(3),
                ..any()
            },
            [0, 0, 1, 0],
        ),
        (
            0x8100,
            Flower {
                vlan_prio: Some(4),
                ..any()
            },
            [0, 0, 0, 0],
        ),
        (
            ETH_P_ALL,
            Flower {
                vlan_ethtype: Some(ETH_P_IP),
                ..any()
            },
            [0, 1, 0, 0],
        ),
        // That of the second tag.
        (
            ETH_P_ALL,
            Flower {
                vlan_ethtype: Some(0x8100),
                dst_ip: prefix("192.168.7.9", 32),
                ..any()
            },
            [0, 0, 1, 0],
        ),
    ] {
        let kind = FilterKind::Flower(flower);
        let hits = all.map(|packet| u8::from(matches(&kind, protocol, packet)));
        assert_eq!(hits, expected, "{kind:?}");
    }
}

/// Hop-by-hop and routing headers are skipped; behind a fragment's header there are no ports.
#[test]
fn extension_headers_are_looked_behind() {
    let pool = pool(4);
    let hop = |next: u8| vec![next, 0, 0, 0, 0, 0, 0, 0];
    let chain = [hop(43), hop(17)].concat();
    let behind = packet(&pool, &[&IPV6, &ipv6(0, &chain), &ports(1, 53)]);
    // A fragment that is the first of several.
    let fragment = [17, 0, 0, 1, 0, 0, 0, 0];
    let part = packet(&pool, &[&IPV6, &ipv6(44, &fragment), &ports(1, 53)]);
    // A header that is longer than the packet.
    let long = packet(&pool, &[&IPV6, &ipv6(0, &[17, 255, 0, 0]), &ports(1, 53)]);
    let all = [&behind, &part, &long];
    let port = Flower {
        dst_port: Some(53..=53),
        ..Flower::default()
    };
    let udp = Flower {
        ip_proto: Some(17),
        ..Flower::default()
    };
    let next = Key {
        value: 44 << 8,
        mask: 0xff00,
        at: 4,
        next: 0,
    };
    let word = U32 {
        keys: vec![next],
        ..U32::default()
    };
    for (kind, expected) in [
        (FilterKind::Flower(port), [1, 0, 0]),
        // As the kernel, which reads the number in a header that is too long.
        (FilterKind::Flower(udp), [1, 1, 1]),
        // This one looks at bytes only.
        (FilterKind::U32(word), [0, 1, 0]),
    ] {
        let hits = all.map(|packet| u8::from(matches(&kind, ETH_P_IPV6, packet)));
        assert_eq!(hits, expected, "{kind:?}");
    }
}

/// Nothing escapes a filter because of what is behind the fields that it looks at: not by a bad
/// transport header, not by more extension headers than are read, not by being in pieces.
#[test]
fn a_bad_header_hides_none_in_front_of_it() {
    let pool = pool(32);
    let udp = |len: u8| {
        [
            0, 1, 0, 53, 0, len, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ]
    };
    let mut tcp = ports(1, 53);
    tcp[12] = 0x40;
    let v4 = |protocol, l4: &[u8]| [&IP, &ipv4(0xb8, 7, protocol, 0)[..], l4].concat();
    let mut long = v4(17, &udp(20));
    long[5] = 200;
    let mut version = v4(17, &udp(20));
    version[2] = 0x65;
    // To 192.168.7.9 with ports, and without.
    let with_ports = [
        v4(17, &udp(7)),
        v4(17, &udp(21)),
        v4(6, &tcp),
        v4(17, &udp(20)[..4]),
    ];
    let without = [long, version, v4(17, &udp(20)[..3]), v4(1, &[8, 0, 0, 0])];
    let whole = |bytes: &Vec<u8>| packet(&pool, &[bytes]);
    let flower = |dst_ip, protocol, dst_port| {
        FilterKind::Flower(Flower {
            dst_ip,
            ip_proto: Some(protocol),
            ip_tos: Some((0xb8, 0xff)),
            dst_port,
            ..Flower::default()
        })
    };
    let dst = || prefix("192.168.7.9", 32);
    for (bytes, has_ports) in [(&with_ports[..], true), (&without[..], false)] {
        for bytes in bytes {
            let protocol = bytes[11];
            // Its length is that of the bytes.
            let mut bytes = bytes.clone();
            if bytes[5] == 40 {
                bytes[5] = bytes.len() as u8 - 2;
            }
            let packet = whole(&bytes);
            assert!(packet.parse().is_err(), "{bytes:?}");
            let kind = flower(dst(), protocol, None);
            assert!(matches(&kind, ETH_P_ALL, &packet), "{bytes:?}");
            let kind = flower(dst(), protocol, Some(53..=53));
            assert_eq!(matches(&kind, ETH_P_ALL, &packet), has_ports, "{bytes:?}");
            let compare = Compare::Eq;
            let port = Test::Cmp {
                width: Width::Two,
                at: 2,
                layer: Layer::Transport,
                mask: 0,
                compare,
                value: 53,
                trans: false,
            };
            let negated = false;
            let kind = FilterKind::Basic(vec![Ematch {
                negated,
                or: false,
                test: port,
            }]);
            assert_eq!(matches(&kind, ETH_P_ALL, &packet), has_ports, "{bytes:?}");
        }
    }
    // Nine extension headers, then UDP.
    let mut hops = [0, 0, 0, 0, 0, 0, 0, 0].repeat(9);
    hops[64] = 17;
    let many = packet(&pool, &[&IPV6, &ipv6(0, &hops), &udp(20)]);
    assert!(many.parse().is_err());
    let dst6 = || prefix("2001::", 16);
    assert!(matches(&flower(dst6(), 17, None), ETH_P_ALL, &many));
    assert!(!matches(
        &flower(dst6(), 17, Some(53..=53)),
        ETH_P_ALL,
        &many
    ));
    // Cut anywhere.
    let bytes = [
        &[2, 0, 0, 0, 0, 0xB, 2, 0, 0, 0, 0, 0xA],
        &v4(17, &udp(20))[..],
    ]
    .concat();
    for cut in 1..bytes.len() {
        let mut packet = pool.alloc().unwrap();
        assert!(packet.append(&bytes[..cut]));
        let mut rest = pool.alloc().unwrap();
        assert!(rest.append(&bytes[cut..]));
        packet.append_segment(rest);
        let kind = flower(dst(), 17, Some(53..=53));
        assert!(matches(&kind, ETH_P_ALL, &packet), "{cut}");
    }
}

#[test]
fn u32_looks_at_words() {
    let pool = pool(8);
    let inner = [ipv4(0xb8, 7, 17, 0), ports(1, 53)].concat();
    let plain = packet(&pool, &[&IP, &inner]);
    let tagged = packet(&pool, &[&[0x81, 0, 0, 7], &IP, &inner]);
    let mut marked = packet(&pool, &[&IP, &inner]);
    marked.set_mark(0x25);
    let kind = |keys: &[(u32, u32, i32)], mark| {
        let keys = keys.iter();
        let keys = keys.map(|&(value, mask, at)| Key {
            value,
            mask,
            at,
            next: 0,
        });
        FilterKind::U32(U32 {
            keys: keys.collect(),
            mark,
            ..U32::default()
        })
    };
    let ethertype = (0x0800, 0xffff, -4);
    for (kind, expected) in [
        (kind(&[], None), [1, 1, 1]),
        (kind(&[(0x45b8_0000, 0xffff_0000, 0)], None), [1, 1, 1]),
        (kind(&[(0x0a00_0001, u32::MAX, 12)], None), [1, 1, 1]),
        (kind(&[(0x0a00_0001, 0xffff_0000, 12)], None), [1, 1, 1]),
        (kind(&[(53, 0xffff, 20)], None), [1, 1, 1]),
        (
            kind(&[(53, 0xffff, 20), (6 << 16, 0xff_0000, 8)], None),
            [0, 0, 0],
        ),
        // The addresses are 02:00:00:00:00:0b and 02:00:00:00:00:0a.
        (
            kind(&[(0x0200, 0xffff, -16), (0xb, u32::MAX, -12)], None),
            [1, 1, 1],
        ),
        (
            kind(&[(0x0200_0000, u32::MAX, -8), ethertype], None),
            [1, 1, 1],
        ),
        (kind(&[(0x000a_0000, 0xffff_0000, -4)], None), [1, 1, 1]),
        // The last word, and one that is not whole.
        (kind(&[(0, 0, 36)], None), [1, 1, 1]),
        (kind(&[(0, 0, 40)], None), [0, 0, 0]),
        (kind(&[], Some((0x125, 0xff))), [0, 0, 1]),
    ] {
        let hits = [&plain, &tagged, &marked].map(|p| u8::from(matches(&kind, ETH_P_ALL, p)));
        assert_eq!(hits, expected, "{kind:?}");
    }
    // What is in another segment is found.
    let mut chained = packet(&pool, &[&IP, &inner[..21]]);
    let mut rest = pool.alloc().unwrap();
    assert!(rest.append(&inner[21..]));
    chained.append_segment(rest);
    let both = kind(&[(53, 0xffff, 20), (0x0001_0035, u32::MAX, 20)], None);
    assert!(matches(&both, ETH_P_ALL, &chained));
}

/// As in the kernel: no further filter of the priority is tried, but those of the next.
#[test]
fn a_u32_key_beyond_the_packet_ends_the_priority() {
    let pool = pool(4);
    let short = packet(&pool, &[&IP, &ipv4(0, 7, 17, 0)]);
    let word = |at| {
        let key = Key {
            value: 0,
            mask: 0,
            at,
            next: 0,
        };
        FilterKind::U32(U32 {
            keys: vec![key],
            ..U32::default()
        })
    };
    for (first, class) in [(16, 1), (20, 3)] {
        let mut list = FilterList::default();
        for (prio, at, class) in [(1, first, 1), (1, 0, 2), (2, 0, 3)] {
            let filter = FilterSpec {
                prio,
                ..FilterSpec::new(word(at), Handle::new(1, class))
            };
            list.put(FilterOp::Add, filter).unwrap();
        }
        let expected = Classified::Class(Handle::new(1, class));
        assert_eq!(list.filters().try_on(&short), expected);
        let tried: Vec<u64> = list.shown().map(|(_, stats)| stats.tried).collect();
        assert_eq!(tried, [1, 0, u64::from(class == 3)]);
    }
}

#[test]
fn basic_evaluates_expressions() {
    let pool = pool(4);
    let mut dns = packet(&pool, &[&IP, &ipv4(0xb8, 7, 17, 0), &ports(1000, 53)]);
    dns.set_priority(6);
    let mut v6 = packet(&pool, &[&IPV6, &ipv6(17, &[]), &ports(1000, 53)]);
    v6.set_mark(0x12);
    let arp = frame(&pool, 1, 2, 60, 0);
    let cmp = |width, at, layer, mask, compare, value| Test::Cmp {
        width,
        at,
        layer,
        mask,
        compare,
        value,
        trans: false,
    };
    let port = || cmp(Width::Two, 2, Layer::Transport, 0, Compare::Eq, 53);
    let (mask, value) = (0xf0, 0x10);
    let compare = Compare::Eq;
    for (all, expected) in [
        (vec![], [1, 1, 1]),
        (vec![(false, port())], [1, 1, 0]),
        (vec![(true, port())], [0, 0, 1]),
        (
            vec![(
                false,
                cmp(Width::One, 0, Layer::Network, 0xf0, Compare::Lt, 0x60),
            )],
            [1, 0, 1],
        ),
        (
            vec![(
                false,
                cmp(Width::Four, 10, Layer::Link, 0, Compare::Gt, 0x9_0800),
            )],
            [1, 1, 0],
        ),
        (
            vec![(false, Test::Priority(Compare::Gt, 5)), (false, port())],
            [1, 0, 0],
        ),
        (
            vec![(
                false,
                Test::Mark {
                    mask,
                    compare,
                    value,
                },
            )],
            [0, 1, 0],
        ),
        (
            vec![(
                false,
                Test::Word(Key {
                    value: 0x11_0000,
                    mask: 0xff_0000,
                    at: 8,
                    next: 0,
                }),
            )],
            [1, 0, 0],
        ),
        // Behind the end there is no number: neither this nor that.
        (
            vec![(
                false,
                cmp(Width::One, 60, Layer::Link, 0, Compare::Lt, 1000),
            )],
            [0, 1, 0],
        ),
    ] {
        let all = all.into_iter().map(|(negated, test)| Ematch {
            negated,
            or: false,
            test,
        });
        let kind = FilterKind::Basic(all.collect());
        let hits = [&dns, &v6, &arp].map(|p| u8::from(matches(&kind, ETH_P_ALL, p)));
        assert_eq!(hits, expected, "{kind:?}");
    }
}

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
