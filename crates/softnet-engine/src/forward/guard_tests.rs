//! Guarded ports' frames: each rule by example.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::bridge::Destination;
use super::guard::{Guard, PortSecurity};
use super::storm::StormLimits;
use softnet::mem::Pool;
use softnet::stats::DropReason::{self, BadHeader, BadSource, IpSpoof, MacSpoof, ProtoFilter};
use softnet::testing::{packet, pool};
use softnet::time::Time;
use softnet::wire::EthernetAddress;
use softnet_tc::Prefix;

const MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
const OTHER: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
/// Address made of [`MAC`].
const LINK_LOCAL: &str = "fe80::ff:fe00:1";
const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

struct Port {
    guard: Guard,
    pool: Pool,
}

fn port(macs: &[EthernetAddress], ips: &[&str]) -> Port {
    let prefix = |text: &&str| {
        let (address, len) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), len.parse().unwrap()).unwrap()
    };
    let security = PortSecurity {
        allowed_macs: macs.to_vec(),
        allowed_ips: ips.iter().map(prefix).collect(),
        ..PortSecurity::default()
    };
    Port {
        guard: Guard::new(&security).unwrap(),
        pool: pool(8),
    }
}

impl Port {
    /// Fate of a frame, without VLAN tags, with one and with two.
    #[track_caller]
    fn check(
        &self,
        source: EthernetAddress,
        ethertype: u16,
        payload: &[u8],
    ) -> Option<DropReason> {
        let of_tags = [
            &[][..],
            &[0x81, 0, 0, 7],
            &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7],
        ]
        .map(|tags| {
            let mut packet = packet(&self.pool);
            let header = [&[0xff; 6], &source.0[..], tags, &ethertype.to_be_bytes()].concat();
            assert!(packet.append(&header) && packet.append(payload));
            self.guard.check(&packet, Time(0)).err()
        });
        assert!(
            of_tags.iter().all(|&result| result == of_tags[0]),
            "{of_tags:?}"
        );
        of_tags[0]
    }

    /// The same for ARP: sender, target.
    #[track_caller]
    fn arp(&self, mac: EthernetAddress, ip: [u8; 4], target: [u8; 4]) -> Option<DropReason> {
        let addresses = [&mac.0[..], &ip, &[0; 6], &target].concat();
        let arp = |op| [&[0, 1, 8, 0, 6, 4, 0, op][..], &addresses].concat();
        let [request, reply] = [1, 2].map(|op| self.check(MAC, ARP, &arp(op)));
        assert_eq!(request, reply);
        request
    }

    #[track_caller]
    fn udp4(&self, source: [u8; 4], to: [u8; 4], ports: (u16, u16)) -> Option<DropReason> {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes.extend([source, to].concat());
        bytes.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
        bytes.extend([0, 8, 0, 0]);
        self.check(MAC, IPV4, &bytes)
    }

    #[track_caller]
    fn ipv6(&self, source: &str, next: u8, body: &[u8]) -> Option<DropReason> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, body.len() as u8, next, 255];
        bytes.extend(source.parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend("ff02::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(body);
        self.check(MAC, IPV6, &bytes)
    }

    /// A message of neighbour discovery with a target, and a link-layer address if one is given.
    #[track_caller]
    fn neighbour(
        &self,
        kind: u8,
        source: &str,
        target: &str,
        mac: Option<EthernetAddress>,
    ) -> Option<DropReason> {
        let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        body.extend(target.parse::<Ipv6Addr>().unwrap().octets());
        // The address of the sender, or of the target.
        let option = if kind == 135 { 1 } else { 2 };
        body.extend(
            mac.iter()
                .flat_map(|mac| [&[option, 1][..], &mac.0].concat()),
        );
        self.ipv6(source, 58, &body)
    }
}

const OWN: [u8; 4] = [10, 0, 0, 1];
const FOREIGN: [u8; 4] = [10, 0, 0, 7];
const NONE: [u8; 4] = [0; 4];
const ALL: [u8; 4] = [255; 4];

#[test]
fn ethernet_sources_are_among_those_allowed() {
    let port = port(&[MAC, OTHER], &[]);
    assert_eq!(port.check(MAC, 0x88cc, &[]), None);
    assert_eq!(port.check(OTHER, 0x88cc, &[]), None);
    let third = EthernetAddress([2, 0, 0, 0, 0, 3]);
    assert_eq!(port.check(third, 0x88cc, &[]), Some(MacSpoof));
    assert_eq!(
        port.check(EthernetAddress([3, 0, 0, 0, 0, 1]), 0x88cc, &[]),
        Some(BadSource)
    );
    assert_eq!(
        port.check(EthernetAddress([0; 6]), 0x88cc, &[]),
        Some(BadSource)
    );
}

#[test]
fn what_arp_and_neighbour_discovery_advertise_is_among_those_allowed() {
    let port = port(&[MAC], &[]);
    assert_eq!(port.arp(MAC, FOREIGN, OWN), None, "IP addresses are free");
    assert_eq!(port.arp(OTHER, FOREIGN, OWN), Some(MacSpoof));
    for kind in [135, 136] {
        assert_eq!(port.neighbour(kind, "fd00::7", "fd00::8", Some(MAC)), None);
        assert_eq!(port.neighbour(kind, "fd00::7", "fd00::8", None), None);
        let spoofed = port.neighbour(kind, "fd00::7", "fd00::8", Some(OTHER));
        assert_eq!(spoofed, Some(MacSpoof));
    }
    let option = [&[1, 1][..], &OTHER.0].concat();
    let solicitation = [&[133, 0, 0, 0, 0, 0, 0, 0][..], &option].concat();
    assert_eq!(port.ipv6("fe80::7", 58, &solicitation), Some(MacSpoof));
    let advertisement = [&[134; 16][..], &option].concat();
    assert_eq!(port.ipv6("fe80::7", 58, &advertisement), Some(MacSpoof));
    // Another router's address is no lie of this one. Without restricted addresses a port may be a
    // router.
    assert_eq!(port.neighbour(137, "fe80::7", "fe80::8", Some(OTHER)), None);
}

#[test]
fn frames_that_cannot_be_judged_are_dropped() {
    for port in [
        port(&[MAC], &[]),
        port(&[], &["10.0.0.1/32", "fd00::1/128"]),
    ] {
        assert_eq!(port.check(MAC, ARP, &[0; 27]), Some(BadHeader));
        assert_eq!(port.check(MAC, IPV4, &[0x45; 19]), Some(BadHeader));
        assert_eq!(port.check(MAC, IPV6, &[0x60; 39]), Some(BadHeader));
        assert_eq!(port.ipv6("fd00::1", 58, &[136, 0]), Some(BadHeader));
    }
}

#[test]
fn ipv4_addresses_are_among_those_allowed() {
    let port = port(&[], &["10.0.0.1/32", "10.1.0.0/16"]);
    for own in [OWN, [10, 1, 2, 3]] {
        assert_eq!(port.udp4(own, FOREIGN, (1, 2)), None);
        assert_eq!(port.arp(MAC, own, FOREIGN), None);
        assert_eq!(port.arp(MAC, own, own), None, "gratuitous");
        assert_eq!(port.arp(MAC, NONE, own), None, "a probe");
    }
    for foreign in [FOREIGN, [10, 2, 0, 0], [127, 0, 0, 1], ALL, [224, 0, 0, 1]] {
        assert_eq!(port.udp4(foreign, OWN, (1, 2)), Some(IpSpoof));
        assert_eq!(port.arp(MAC, foreign, OWN), Some(IpSpoof));
        assert_eq!(port.arp(MAC, foreign, foreign), Some(IpSpoof), "gratuitous");
        assert_eq!(port.arp(MAC, NONE, foreign), Some(IpSpoof), "a probe");
    }
    // A fragment behind the first has a source, too.
    let mut fragment = vec![0x45, 0, 0, 28, 0, 0, 0, 5, 64, 17, 0, 0];
    fragment.extend([FOREIGN, OWN, NONE, NONE].concat());
    assert_eq!(port.check(MAC, IPV4, &fragment), Some(IpSpoof));
    fragment[12..16].copy_from_slice(&OWN);
    assert_eq!(port.check(MAC, IPV4, &fragment), None);
    // The other family.
    assert_eq!(port.ipv6("fd00::1", 59, &[]), Some(IpSpoof));
    assert_eq!(port.ipv6(LINK_LOCAL, 59, &[]), Some(IpSpoof));
    assert_eq!(port.ipv6("::", 58, &[143, 0]), Some(IpSpoof));
    for other in [0x88cc, 0x8035, 0x8847, 0x0003] {
        assert_eq!(port.check(MAC, other, &[0; 64]), Some(ProtoFilter));
    }
}

#[test]
fn dhcp_clients_may_ask_and_nobody_may_answer() {
    let v4 = port(&[], &["10.0.0.1/32"]);
    assert_eq!(v4.udp4(NONE, ALL, (68, 67)), None);
    for (to, ports) in [
        (FOREIGN, (68, 67)),
        (ALL, (67, 68)),
        (ALL, (68, 68)),
        (ALL, (1, 67)),
    ] {
        assert_eq!(v4.udp4(NONE, to, ports), Some(IpSpoof));
    }
    assert_eq!(v4.udp4(OWN, FOREIGN, (68, 67)), None, "renewal");
    for source in [67, 68, 1067] {
        assert_eq!(v4.udp4(OWN, ALL, (source, 68)), Some(ProtoFilter));
    }
    let v6 = port(&[], &["fd00::1/128"]);
    assert_eq!(
        v6.udp4(NONE, ALL, (68, 67)),
        Some(IpSpoof),
        "no IPv4 at all"
    );
    assert_eq!(v6.arp(MAC, NONE, OWN), Some(IpSpoof));
    let udp = |source: u16, to: u16| [source.to_be_bytes(), to.to_be_bytes()].concat();
    assert_eq!(v6.ipv6(LINK_LOCAL, 17, &udp(546, 547)), None);
    for source in [547, 546, 1547] {
        let answer = udp(source, 546);
        assert_eq!(v6.ipv6(LINK_LOCAL, 17, &answer), Some(ProtoFilter));
    }
}

#[test]
fn ipv6_addresses_are_among_those_allowed() {
    let port = port(&[], &["fd00::1/128", "fd01::/64"]);
    for own in ["fd00::1", "fd01::9", LINK_LOCAL] {
        assert_eq!(port.ipv6(own, 59, &[]), None, "{own}");
        assert_eq!(port.neighbour(135, own, "fd00::7", Some(MAC)), None);
        assert_eq!(port.neighbour(136, own, own, Some(MAC)), None);
        assert_eq!(
            port.neighbour(136, own, "fd00::7", Some(MAC)),
            Some(IpSpoof)
        );
        // Does anybody have the address that I want?
        assert_eq!(port.neighbour(135, "::", own, None), None);
    }
    for foreign in [
        "fd00::2",
        "fd01:0:0:1::9",
        "fe80::ff:fe00:2",
        "::1",
        "ff02::1",
    ] {
        assert_eq!(port.ipv6(foreign, 59, &[]), Some(IpSpoof), "{foreign}");
        assert_eq!(port.neighbour(135, foreign, "fd00::1", None), Some(IpSpoof));
        assert_eq!(port.neighbour(136, "fd00::1", foreign, None), Some(IpSpoof));
        assert_eq!(port.neighbour(135, "::", foreign, None), Some(IpSpoof));
    }
    // What hosts send that have no address yet, and nothing else.
    assert_eq!(port.ipv6("::", 58, &[133, 0, 0, 0, 0, 0, 0, 0]), None);
    let report = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &[143, 0]].concat();
    assert_eq!(port.ipv6("::", 0, &report), None);
    assert_eq!(port.ipv6("::", 58, &[128, 0]), Some(IpSpoof));
    assert_eq!(port.neighbour(136, "::", "fd00::1", None), Some(IpSpoof));
    // What only routers send.
    assert_eq!(port.ipv6("fd00::1", 58, &[134; 16]), Some(ProtoFilter));
    assert_eq!(port.ipv6("fd00::1", 58, &[137; 40]), Some(ProtoFilter));
    // The other family.
    assert_eq!(port.udp4(OWN, FOREIGN, (1, 2)), Some(IpSpoof));
    assert_eq!(port.arp(MAC, OWN, FOREIGN), Some(IpSpoof));
}

#[test]
fn all_addresses_may_be_given_as_prefixes_of_no_bits() {
    let port = port(&[], &["0.0.0.0/0", "::/0"]);
    assert_eq!(port.udp4(Ipv4Addr::LOCALHOST.octets(), OWN, (1, 2)), None);
    assert_eq!(port.ipv6("fe80::1234", 59, &[]), None);
    assert_eq!(port.check(MAC, 0x88cc, &[]), Some(ProtoFilter));
}

#[test]
fn only_floods_are_storms() {
    let limits = StormLimits {
        broadcast: Some(1),
        multicast: Some(2),
        unknown_unicast: None,
    };
    let security = PortSecurity {
        storm: limits,
        ..PortSecurity::default()
    };
    let guard = Guard::new(&security).unwrap();
    let passed = |to| {
        (0..5)
            .filter(|_| guard.check_flood(to, 1, Time(9)).is_ok())
            .count()
    };
    assert_eq!(passed(Destination::Port(1)), 5);
    assert_eq!(passed(Destination::Broadcast), 1);
    assert_eq!(passed(Destination::Multicast), 2);
    assert_eq!(passed(Destination::Unknown), 5);
    assert_eq!(
        guard.check_flood(Destination::Broadcast, 1, Time(9)),
        Err(DropReason::Storm)
    );
    assert!(Guard::new(&PortSecurity::default()).is_none());
}
