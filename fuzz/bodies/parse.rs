//! The parser of frames against etherparse, and its own promises.
//!
//! Input: the length of the first segment (2 bytes, little-endian), then the frame.

use etherparse::{LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};
use softnet_wire::{
    Claim, GsoKind, Headers, L4, Message, Neighbour, Network, WireError, checksum, dissect,
    ethernet, parse, sender, set_ce, traffic_class,
};

/// Facts about a frame that both parsers give: VLAN tags, network layer, traffic class, transport
/// layer.
pub(crate) type Facts = (u8, Network, u8, L4);

pub(crate) fn run(input: &[u8]) {
    let Some(([low, high], frame)) = input.split_first_chunk() else {
        return;
    };
    let cut = usize::from(u16::from_le_bytes([*low, *high])).min(frame.len());
    let first = &frame[..cut];
    assert_eq!(ethernet(first).is_err(), cut < 14);
    let whole = checked(frame, frame.len());
    let found = checked(first, frame.len());
    assert!(found.is_err() || found == whole, "{found:?} and {whole:?}");
    marks(first, found.ok());
    readable(frame, whole.ok());
    readable(first, found.ok());
    claims(frame, first);
    if let (Ok(headers), Some(expected)) = (whole, oracle(frame)) {
        assert!(agree(&headers, expected), "{headers:?} is {expected:?}");
    }
}

/// The result of `parse`, checked against its promises.
fn checked(first: &[u8], len: usize) -> Result<Headers, WireError> {
    let headers = parse(first, len)?;
    let (network, transport) = headers.offsets();
    let (header_len, end) = (headers.header_len.into(), headers.network_end as usize);
    assert_eq!(network, 14 + 4 * usize::from(headers.vlan_tags));
    assert!(network <= transport && transport <= header_len);
    assert!(header_len <= first.len() && header_len <= end && end <= len);
    let is_ip = headers.network != Network::Other;
    assert_eq!(headers.addresses(first).is_some(), is_ip);
    // All that describes the flow is in the headers, unless a packet may be inside.
    let (flow, cut) = (
        headers.flow_hash(first),
        headers.flow_hash(&first[..header_len]),
    );
    assert!(flow == cut || matches!(headers.transport, L4::Other | L4::None));
    for kind in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp] {
        for size in [0, 1, 8, 1448, u16::MAX] {
            if let Ok(Some(gso)) = headers.gso(first, len, kind, false, size) {
                let payload = len - header_len;
                assert_eq!(headers.gso_kind(), Some(kind));
                assert_eq!(usize::from(gso.segments), payload.div_ceil(size.into()));
            }
        }
    }
    Ok(headers)
}

/// Reads of frames with bad headers: an IP header is read, whatever is behind it.
fn readable(first: &[u8], headers: Option<Headers>) {
    let found = dissect(first, first.len().max(60));
    let Ok(found) = found else {
        assert_eq!(headers, None);
        return;
    };
    let at = usize::from(found.network_offset);
    let ip = &first[at..];
    let (network, source) = match found.ethertype {
        0x0800 if ip.len() >= 20 => (Network::V4, &ip[12..16]),
        0x86dd if ip.len() >= 40 => (Network::V6, &ip[8..24]),
        _ => (Network::Other, &[][..]),
    };
    assert_eq!(found.network, network);
    let read = found.addresses(first).map(|(source, _)| source);
    match read {
        Some(std::net::IpAddr::V4(read)) => assert_eq!(read.octets(), source),
        Some(std::net::IpAddr::V6(read)) => assert_eq!(read.octets(), source),
        None => assert!(source.is_empty()),
    }
    if network == Network::V4 {
        assert_eq!((found.traffic_class, found.protocol), (ip[1], ip[9]));
    }
}

/// The claims of frames about their senders: with only the first segment readable, that of the
/// whole frame or an error; addresses are those of `dissect` and etherparse.
fn claims(frame: &[u8], first: &[u8]) {
    let whole = sender(frame, frame.len());
    let found = sender(first, frame.len());
    assert!(found.is_err() || found == whole, "{found:?} and {whole:?}");
    let Ok(found) = whole else {
        return;
    };
    let headers = dissect(frame, frame.len()).expect("headers that can be read");
    assert_eq!(found.mac, headers.source);
    let addresses = headers.addresses(frame);
    match found.claim {
        Claim::Arp { mac, ip, target } => {
            let arp = SlicedPacket::from_ethernet(frame)
                .ok()
                .map(|packet| packet.net);
            if let Some(Some(NetSlice::Arp(arp))) = arp {
                assert_eq!(arp.sender_hw_addr(), mac.0);
                assert_eq!(arp.sender_protocol_addr(), ip.octets());
                assert_eq!(arp.target_protocol_addr(), target.octets());
            }
        }
        Claim::Ipv4 {
            source,
            destination,
            ..
        } => assert_eq!(addresses, Some((source.into(), destination.into()))),
        Claim::Ipv6 { source, message } => {
            assert_eq!(addresses.map(|(source, _)| source), Some(source.into()));
            let Message::Neighbour(neighbour) = message else {
                return;
            };
            let mut link_layer = match neighbour {
                Neighbour::RouterSolicitation(addresses)
                | Neighbour::RouterAdvertisement(addresses)
                | Neighbour::Solicitation(_, addresses)
                | Neighbour::Advertisement(_, addresses) => addresses,
                Neighbour::Redirect => return,
            };
            let there = |mac: [u8; 6]| frame.windows(6).any(|window| window == mac);
            assert!(link_layer.all(|mac| there(mac.0)));
        }
        Claim::Other => assert_eq!(addresses, None),
    }
}

/// Marking changes the congestion bits of an ECN-capable packet and its checksum, nothing else.
fn marks(first: &[u8], headers: Option<Headers>) {
    let class = traffic_class(first);
    let mut marked = first.to_vec();
    assert_eq!(
        set_ce(&mut marked),
        class.is_some_and(|class| class & 3 != 0)
    );
    let Some(headers) = headers else {
        return;
    };
    let is_ip = headers.network != Network::Other;
    assert_eq!(class, is_ip.then_some(headers.traffic_class));
    let (at, end) = headers.offsets();
    let capable = headers.traffic_class & 3 != 0;
    let expected = headers.traffic_class | if capable { 3 } else { 0 };
    assert_eq!(traffic_class(&marked), is_ip.then_some(expected));
    if headers.network == Network::V4 {
        let valid = |frame: &[u8]| checksum(&frame[at..end]) == 0;
        assert_eq!(valid(&marked), valid(first));
        marked[at + 10..at + 12].copy_from_slice(&first[at + 10..at + 12]);
    }
    if is_ip {
        marked[at..at + 2].copy_from_slice(&first[at..at + 2]);
    }
    assert_eq!(marked, first);
}

pub(crate) fn facts(headers: &Headers) -> Facts {
    let Headers {
        vlan_tags,
        network,
        traffic_class,
        transport,
        ..
    } = *headers;
    (vlan_tags, network, traffic_class, transport)
}

/// True if both parsers agree, deliberate differences aside: etherparse looks behind an
/// authentication header, and not behind the rarer extension headers or a fourth VLAN tag.
pub(crate) fn agree(headers: &Headers, expected: Facts) -> bool {
    let further = expected.1 == Network::V6 && expected.3 == L4::Other;
    headers.protocol == 51 || further || headers.vlan_tags >= 4 || facts(headers) == expected
}

/// Facts about a frame according to etherparse; `None` if it refuses it.
pub(crate) fn oracle(bytes: &[u8]) -> Option<Facts> {
    let sliced = SlicedPacket::from_ethernet(bytes).ok()?;
    let is_vlan = |ext: &&LinkExtSlice| matches!(ext, LinkExtSlice::Vlan(_));
    let vlans = sliced.link_exts.iter().take_while(is_vlan).count() as u8;
    if usize::from(vlans) < sliced.link_exts.len() {
        // MACsec: what lies behind may be encrypted.
        return Some((vlans, Network::Other, 0, L4::None));
    }
    let (network, class) = match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => (
            Network::V4,
            ip.header().dcp().value() << 2 | ip.header().ecn().value(),
        ),
        Some(NetSlice::Ipv6(ip)) => (Network::V6, ip.header().traffic_class()),
        _ => return Some((vlans, Network::Other, 0, L4::None)),
    };
    let transport = match &sliced.transport {
        _ if sliced.is_ip_payload_fragmented() => L4::Fragment,
        Some(TransportSlice::Tcp(t)) => L4::Tcp {
            source: t.source_port(),
            destination: t.destination_port(),
        },
        Some(TransportSlice::Udp(t)) => L4::Udp {
            source: t.source_port(),
            destination: t.destination_port(),
        },
        Some(TransportSlice::Icmpv4(_)) if network == Network::V4 => L4::Icmp,
        Some(TransportSlice::Icmpv6(_)) if network == Network::V6 => L4::Icmp,
        _ => L4::Other,
    };
    Some((vlans, network, class, transport))
}
