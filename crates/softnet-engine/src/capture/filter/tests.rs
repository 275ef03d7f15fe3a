//! Filters: packets that they match, and words that are refused.

use super::*;

/// A frame with these bytes behind the addresses.
fn frame(rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2][..], &[2, 0, 0, 0, 0, 1], rest].concat()
}

/// IPv4 from 10.0.0.1 to 192.168.7.9.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u8;
    let header = [
        0x45, 0, 0, len, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 192, 168, 7, 9,
    ];
    [&header[..], payload].concat()
}

fn tcp() -> Vec<u8> {
    let mut header = [0; 20];
    header[..4].copy_from_slice(&[0x04, 0xd2, 0x01, 0xbb]);
    header[12] = 0x50;
    ipv4(6, &header)
}

/// UDP from fd00::1 to fd00::2, port 53 to 5353.
fn udp6() -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    for host in [1, 2] {
        let mut address = [0; 16];
        (address[0], address[15]) = (0xfd, host);
        header.extend_from_slice(&address);
    }
    header.extend_from_slice(&[0, 53, 0x14, 0xe9, 0, 8, 0, 0]);
    header
}

fn arp() -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1];
    body.extend_from_slice(&[2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
    body.extend_from_slice(&[0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    body
}

fn frames() -> [(&'static str, Vec<u8>); 6] {
    let with = |ethertype: &[u8], body: Vec<u8>| frame(&[ethertype, &body].concat());
    [
        ("tcp", with(&[8, 0], tcp())),
        ("tagged", with(&[0x81, 0, 0, 7, 8, 0], tcp())),
        ("icmp", with(&[8, 0], ipv4(1, &[8, 0, 0, 0, 0, 0, 0, 0]))),
        ("udp6", with(&[0x86, 0xdd], udp6())),
        ("arp", with(&[8, 6], arp())),
        ("runt", vec![0; 5]),
    ]
}

/// Names of the frames that a filter matches.
fn matched(filter: &str) -> String {
    let filter = Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    let frames = frames();
    let matched = frames
        .iter()
        .filter(|(_, frame)| filter.matches_frame(frame, frame.len()));
    matched.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

#[test]
fn filters_match_what_they_say() {
    for (filter, expected) in [
        ("", "tcp tagged icmp udp6 arp runt"),
        ("tcp", "tcp tagged"),
        ("udp", "udp6"),
        ("proto 6", "tcp tagged"),
        ("proto udp", "udp6"),
        ("icmp", "icmp"),
        ("arp", "arp"),
        ("ip", "tcp tagged icmp"),
        ("ip6", "udp6"),
        ("host 10.0.0.1", "tcp tagged icmp arp"),
        ("dst host 10.0.0.1", ""),
        ("dst host 10.0.0.2", "arp"),
        ("src net 10.0.0.0/8", "tcp tagged icmp arp"),
        ("dst net 192.168.0.0/16", "tcp tagged icmp"),
        ("net 192.168.8.0/22", ""),
        ("net 0.0.0.0/0", "tcp tagged icmp arp"),
        ("net fd00::/8", "udp6"),
        ("port 443", "tcp tagged"),
        ("src port 443", ""),
        ("tcp dst port 443 and vlan", "tagged"),
        ("udp port 53 or icmp", "icmp udp6"),
        ("vlan 7", "tagged"),
        ("vlan 8", ""),
        ("vlan and tcp", "tagged"),
        ("ether host 02:00:00:00:00:01", "tcp tagged icmp udp6 arp"),
        ("ether dst 2:0:0:0:0:1", ""),
        ("not tcp", "icmp udp6 arp runt"),
        ("! ( tcp or icmp )&&ip", ""),
        ("not(tcp||arp)and host 10.0.0.1", "icmp"),
        ("arp or tcp and vlan", "tagged arp"),
        ("(arp or tcp) and vlan", "tagged"),
    ] {
        assert_eq!(matched(filter), expected, "{filter}");
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let deep = "(".repeat(40) + "tcp";
    let long = "tcp or ".repeat(1000) + "udp";
    for (filter, part) in [
        ("portrange 1-9", "(port 80 or port 81)"),
        ("greater 100", "\"greater\" is not a word of filters here"),
        ("tcp[13] = 2", "bytes are not compared"),
        (
            "frobnicate",
            "\"frobnicate\" is not understood: a filter is made of",
        ),
        ("host example.org", "names are not looked up"),
        ("port https", "names are not looked up"),
        ("port 65536", "\"65536\" is not a port's number"),
        ("net 10.0.0.0/33", "is not a prefix like"),
        ("vlan 4096", "is not a VLAN's number"),
        ("ether host 02:00", "is not an address like"),
        ("ether host +2:00:00:00:00:01", "is not an address like"),
        ("src tcp", "\"tcp\" is not host, net or port"),
        ("src", "ends where host, net or port"),
        ("tcp and", "ends where a test was expected"),
        ("( tcp", "ends where `)`"),
        ("tcp )", "\")\" is not `and` or `or`"),
        ("tcp udp", "\"udp\" is not `and` or `or`"),
        ("proto proto", "\"proto\" is not tcp"),
        ("proto 256", "\"256\" is not tcp"),
        ("tcp & udp", "\"&\" is not `and` or `or`"),
        (&deep, "more than 32 deep"),
        (&long, "more than 4096 bytes"),
    ] {
        let error = Filter::parse(filter).expect_err(filter).to_string();
        assert!(error.contains(part), "{filter}: {error}");
    }
}
