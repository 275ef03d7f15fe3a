//! Frames of hosts and routers, for tests.

use std::net::Ipv6Addr;

use softnet::wire::{checksum, fold, pseudo_header, sum_bytes};

fn put_sum(bytes: &mut [u8], at: usize, beside: u64) {
    let sum = !fold(sum_bytes(bytes) + beside);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn ethernet(to: [u8; 6], host: u8, kind: [u8; 2], body: &[u8]) -> Vec<u8> {
    [&to[..], &[2, 0, 0, 0, 0, host], &kind, body].concat()
}

/// An IPv4 packet of 10.0.0.`host`.
pub(crate) fn ipv4(host: u8, to: [u8; 4], protocol: u8, body: &[u8]) -> Vec<u8> {
    let len = (24 + body.len()) as u16;
    let mut header = vec![0x46, 0xc0];
    header.extend(len.to_be_bytes());
    header.extend([0, 0, 0x40, 0, 1, protocol, 0, 0, 10, 0, 0, host]);
    header.extend(to);
    header.extend([0x94, 4, 0, 0]);
    put_sum(&mut header, 10, 0);
    let mac = [1, 0, 0x5e, to[1] & 0x7f, to[2], to[3]];
    ethernet(mac, host, [8, 0], &[header, body.to_vec()].concat())
}

/// An IGMP message to a group.
pub(crate) fn igmp(host: u8, to: [u8; 4], message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    put_sum(&mut message, 2, 0);
    assert_eq!(checksum(&message), 0);
    ipv4(host, to, 2, &message)
}

/// A report of IGMPv2.
pub(crate) fn join(host: u8, group: [u8; 4]) -> Vec<u8> {
    igmp(host, group, &[&[0x16, 0, 0, 0], &group[..]].concat())
}

/// A leave of IGMPv2.
pub(crate) fn leave(host: u8, group: [u8; 4]) -> Vec<u8> {
    igmp(
        host,
        [224, 0, 0, 2],
        &[&[0x17, 0, 0, 0], &group[..]].concat(),
    )
}

/// A general query of IGMPv2.
pub(crate) fn query(host: u8) -> Vec<u8> {
    igmp(host, [224, 0, 0, 1], &[0x11, 100, 0, 0, 0, 0, 0, 0])
}

/// A report of IGMPv3 with one record, whose sources are 10.0.1.n.
pub(crate) fn record(host: u8, kind: u8, group: [u8; 4], sources: &[u8]) -> Vec<u8> {
    let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    message.extend(group);
    sources.iter().for_each(|&n| message.extend([10, 0, 1, n]));
    igmp(host, [224, 0, 0, 22], &message)
}

/// A UDP datagram's beginning.
pub(crate) fn data(host: u8, group: [u8; 4]) -> Vec<u8> {
    ipv4(host, group, 17, &[0; 16])
}

/// The solicited-node group of fe80::`host`.
pub(crate) fn solicited_node(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, host)
}

/// ICMPv6 of fe80::`host`:0:0:`host` to a group, behind a router alert if `alert`.
pub(crate) fn icmpv6(host: u16, to: Ipv6Addr, alert: bool, message: &[u8]) -> Vec<u8> {
    let from = Ipv6Addr::new(0xfe80, 0, 0, 0, host, 0, 0, host).octets();
    let mut message = message.to_vec();
    let to = to.octets();
    let len = message.len() as u16;
    put_sum(&mut message, 2, pseudo_header(&from, &to, 58, len.into()));
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((len + if alert { 8 } else { 0 }).to_be_bytes());
    bytes.extend([if alert { 0 } else { 58 }, 255]);
    bytes.extend(from);
    bytes.extend(to);
    if alert {
        bytes.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    }
    bytes.extend(message);
    let mac = [0x33, 0x33, to[12], to[13], to[14], to[15]];
    let mut frame = ethernet(mac, 0, [0x86, 0xdd], &bytes);
    frame[10..12].copy_from_slice(&host.to_be_bytes());
    frame
}

/// A report of MLDv2: a host joins a group.
pub(crate) fn mld_join(host: u16, group: Ipv6Addr) -> Vec<u8> {
    let message = [&[143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0][..], &group.octets()].concat();
    icmpv6(
        host,
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16),
        true,
        &message,
    )
}

/// The frames of an IPv6 host whose link comes up: it joins a group, looks for its address, and
/// for routers.
pub(crate) fn host_begins(host: u16) -> [Vec<u8>; 3] {
    let group = solicited_node(host);
    let target = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host).octets();
    let solicits = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target].concat();
    let routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    [
        mld_join(host, group),
        icmpv6(host, group, false, &solicits),
        icmpv6(host, routers, false, &[133, 0, 0, 0, 0, 0, 0, 0]),
    ]
}
