//! Filters against frames made by hand.

use super::filter::Filters;
use super::*;
use softnet::mem::Packet;
use softnet::testing::{frame, pool};

fn handle(text: &str) -> Handle {
    text.parse().unwrap()
}

#[test]
fn filters_read_headers() {
    use std::net::IpAddr;
    let pool = pool(8);
    let v4 = |dscp: u8, dst: [u8; 4], protocol: u8, ports: (u16, u16), fragment: bool| {
        let mut p = pool.alloc().unwrap();
        let mut b = vec![0; 14 + 20 + 20];
        b[12..14].copy_from_slice(&[8, 0]);
        b[14..16].copy_from_slice(&[0x45, dscp << 2]);
        b[16..18].copy_from_slice(&40_u16.to_be_bytes());
        b[20] = if fragment { 0x20 } else { 0 };
        b[22..24].copy_from_slice(&[64, protocol]);
        b[26..30].copy_from_slice(&[10, 0, 0, 1]);
        b[30..34].copy_from_slice(&dst);
        b[34..36].copy_from_slice(&ports.0.to_be_bytes());
        b[36..38].copy_from_slice(&ports.1.to_be_bytes());
        // A UDP length, and with it a TCP header length of 20 behind it.
        b[38..40].copy_from_slice(&20_u16.to_be_bytes());
        b[46] = 0x50;
        assert!(p.append(&b));
        p
    };
    let v6 = {
        let mut p = pool.alloc().unwrap();
        let mut b = vec![0; 14 + 40 + 8];
        b[12..14].copy_from_slice(&[0x86, 0xdd]);
        // Traffic class 0xb8: DSCP 46.
        b[14..16].copy_from_slice(&[0x6b, 0x80]);
        b[18..20].copy_from_slice(&8_u16.to_be_bytes());
        b[20..22].copy_from_slice(&[17, 64]);
        b[22..24].copy_from_slice(&[0xfd, 0x09]);
        b[38..40].copy_from_slice(&[0x20, 0x01]);
        b[54..56].copy_from_slice(&1000_u16.to_be_bytes());
        b[56..58].copy_from_slice(&53_u16.to_be_bytes());
        b[58..60].copy_from_slice(&8_u16.to_be_bytes());
        assert!(p.append(&b));
        p
    };
    let prefix = |address: &str, len| Prefix::new(address.parse::<IpAddr>().unwrap(), len);
    let matches = |m: Match, packet: &Packet| {
        let spec = FilterSpec {
            parent: handle("1:"),
            prio: 1,
            matches: m,
            class: handle("1:1"),
        };
        Filters::new([spec].iter()).classify(packet).is_some()
    };
    let dns = v4(46, [192, 168, 7, 9], 17, (1000, 53), false);
    let web = v4(0, [192, 168, 8, 9], 6, (1000, 443), false);
    let part = v4(0, [192, 168, 7, 9], 17, (1000, 53), true);
    let arp = frame(&pool, 1, 2, 60, 5);
    let any = Match::default;
    let all = [&dns, &web, &part, &arp, &v6];
    let hits = |m: Match| all.map(|p| u8::from(matches(m.clone(), p)));
    assert_eq!(hits(any()), [1, 1, 1, 1, 1], "matchall");
    assert_eq!(
        hits(Match {
            network: Some(softnet::wire::Network::V4),
            ..any()
        }),
        [1, 1, 1, 0, 0]
    );
    assert_eq!(
        hits(Match {
            destination: prefix("192.168.7.0", 24),
            ..any()
        }),
        [1, 0, 1, 0, 0]
    );
    assert_eq!(
        hits(Match {
            source: prefix("0.0.0.0", 0),
            ..any()
        }),
        [1, 1, 1, 0, 0]
    );
    assert_eq!(
        hits(Match {
            source: prefix("fd00::", 8),
            ..any()
        }),
        [0, 0, 0, 0, 1]
    );
    assert_eq!(
        hits(Match {
            destination: prefix("2001::", 128),
            ..any()
        }),
        [0, 0, 0, 0, 1]
    );
    assert_eq!(
        hits(Match {
            protocol: Some(17),
            ..any()
        }),
        [1, 0, 1, 0, 1]
    );
    assert_eq!(
        hits(Match {
            destination_port: Some(53..=53),
            ..any()
        }),
        [1, 0, 0, 0, 1]
    );
    assert_eq!(
        hits(Match {
            destination_port: Some(50..=500),
            ..any()
        }),
        [1, 1, 0, 0, 1]
    );
    assert_eq!(
        hits(Match {
            source_port: Some(1..=999),
            ..any()
        }),
        [0; 5]
    );
    assert_eq!(
        hits(Match {
            dscp: Some(46),
            ..any()
        }),
        [1, 0, 0, 0, 1]
    );
    assert_eq!(
        hits(Match {
            dscp: Some(0),
            ..any()
        }),
        [0, 1, 1, 0, 0]
    );
    assert_eq!(
        hits(Match {
            mark: Some((0x15, 0x0f)),
            ..any()
        }),
        [0, 0, 0, 1, 0]
    );
    assert_eq!(Prefix::new("10.0.0.0".parse().unwrap(), 33), None);
    // A broken header matches nothing that reads it.
    let mut broken = pool.alloc().unwrap();
    assert!(broken.append(&[0; 10]));
    assert!(matches(any(), &broken));
    assert!(!matches(
        Match {
            dscp: Some(0),
            ..any()
        },
        &broken
    ));
    // The order is that of the priorities, then of arrival.
    let with = |prio, class: &str| FilterSpec {
        parent: handle("1:"),
        prio,
        matches: any(),
        class: handle(class),
    };
    let list = [with(9, "1:9"), with(2, "1:2"), with(2, "1:3")];
    let first = Filters::new(list.iter()).classify(&dns);
    assert_eq!(first, Some(handle("1:2")));
}

/// tc's `protocol` is the frame's EtherType, which is that of the tag where there is one. What a
/// filter without it says of addresses holds behind tags, too.
#[test]
fn protocol_ip_is_not_that_of_a_tagged_frame() {
    use softnet::wire::Network;
    let pool = pool(4);
    let frame = |tags: &[u8], ethertype: [u8; 2], version: u8| {
        let mut bytes = vec![0; 12];
        bytes.extend(tags);
        bytes.extend(ethertype);
        let mut header = vec![0; 40];
        header[0] = version;
        if version == 0x45 {
            header[2..4].copy_from_slice(&20_u16.to_be_bytes());
            header[8..10].copy_from_slice(&[64, 253]);
        } else {
            header[6] = 59;
        }
        bytes.extend(header);
        let mut packet = pool.alloc().unwrap();
        assert!(packet.append(&bytes));
        packet
    };
    let tag = [0x81, 0, 0, 7];
    for (network, ethertype, version) in [
        (Network::V4, [0x08, 0x00], 0x45),
        (Network::V6, [0x86, 0xdd], 0x60),
    ] {
        let any = if network == Network::V4 {
            "0.0.0.0"
        } else {
            "::"
        };
        let by_address = Match {
            source: Prefix::new(any.parse().unwrap(), 8),
            ..Match::default()
        };
        let by_protocol = Match {
            network: Some(network),
            ..by_address.clone()
        };
        for (tags, expected) in [(&[][..], true), (&tag, false)] {
            let packet = frame(tags, ethertype, version);
            let matches = |m: &Match| {
                let spec = FilterSpec {
                    parent: handle("1:"),
                    prio: 1,
                    matches: m.clone(),
                    class: handle("1:1"),
                };
                Filters::new([spec].iter()).classify(&packet).is_some()
            };
            assert_eq!(matches(&by_protocol), expected, "{network:?} {tags:?}");
            assert!(matches(&by_address), "{network:?} {tags:?}");
        }
    }
}
