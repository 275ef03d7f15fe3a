//! Headers that `flower` looks at, and those behind which nothing hides.

use super::*;

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
