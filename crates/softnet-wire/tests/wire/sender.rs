//! Senders that frames name, by example: honest ones, and those that hide it.

use std::net::{Ipv4Addr, Ipv6Addr};

use softnet_wire::{Claim, EthernetAddress, Message, Neighbour, WireError, sender};

const MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// A frame with so many VLAN tags.
fn frame(tags: usize, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [[0xff; 6], MAC.0].concat();
    (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

fn arp(mac: [u8; 6], ip: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 2];
    packet.extend(mac);
    packet.extend(ip);
    packet.extend([0; 6]);
    packet.extend([10, 0, 0, 7]);
    packet
}

fn ipv4(protocol: u8, fragment: u16, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + body.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(body);
    packet
}

fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([next, 255]);
    packet.extend(source().octets());
    packet.extend(ALL_NODES);
    packet.extend(body);
    packet
}

fn source() -> Ipv6Addr {
    "fd00::1".parse().expect("an address")
}

fn target() -> Ipv6Addr {
    "fd00::7".parse().expect("an address")
}

/// A solicitation or advertisement of `target` with options.
fn neighbour(kind: u8, options: &[u8]) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    body.extend(target().octets());
    body.extend(options);
    body
}

fn link_layer(kind: u8, mac: [u8; 6]) -> Vec<u8> {
    [&[kind, 1][..], &mac].concat()
}

#[track_caller]
fn claim(frame: &[u8]) -> Result<Claim<'_>, WireError> {
    let found = sender(frame, frame.len())?;
    assert_eq!(found.mac, MAC);
    Ok(found.claim)
}

#[track_caller]
fn message(frame: &[u8]) -> Result<Message<'_>, WireError> {
    match claim(frame)? {
        Claim::Ipv6 {
            source: from,
            message,
        } => {
            assert_eq!(from, source());
            Ok(message)
        }
        other => panic!("{other:?}"),
    }
}

const BAD: Result<Claim<'_>, WireError> = Err(WireError::BadHeader);
const BAD_MESSAGE: Result<Message<'_>, WireError> = Err(WireError::BadHeader);

#[test]
fn arp_says_who_sends_it() {
    for tags in 0..=4 {
        let expected = Claim::Arp {
            mac: EthernetAddress(OTHER),
            ip: Ipv4Addr::new(10, 0, 0, 1),
            target: Ipv4Addr::new(10, 0, 0, 7),
        };
        let packet = arp(OTHER, [10, 0, 0, 1]);
        assert_eq!(claim(&frame(tags, 0x0806, &packet)), Ok(expected));
        let short = &packet[..packet.len() - 1];
        assert_eq!(claim(&frame(tags, 0x0806, short)), BAD);
    }
    assert_eq!(claim(&frame(5, 0x0806, &arp(OTHER, [10, 0, 0, 1]))), BAD);
    // IEEE 802 in the place of Ethernet, which Linux takes, too; other lengths.
    for (at, value) in [(1, 6), (2, 9), (4, 7), (5, 16)] {
        let mut packet = arp(OTHER, [10, 0, 0, 1]);
        packet[at] = value;
        assert_eq!(claim(&frame(0, 0x0806, &packet)), BAD);
    }
}

#[test]
fn ipv4_says_who_sends_it() {
    let ports = [0, 68, 0, 67, 0, 8, 0, 0];
    let found = |fragment: u16, udp| {
        let packet = ipv4(17, fragment, &ports);
        let expected = Claim::Ipv4 {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            udp,
        };
        assert_eq!(claim(&frame(1, 0x0800, &packet)), Ok(expected));
    };
    found(0, Some((68, 67)));
    found(0x2000, Some((68, 67)));
    found(0x2001, None);
    found(1, None);
    let bad = |at: usize, value: u8| {
        let mut packet = ipv4(17, 0, &ports);
        packet[at] = value;
        assert_eq!(claim(&frame(0, 0x0800, &packet)), BAD, "{at}");
    };
    // Version, length of the header, total length: too long, and shorter than the header.
    for (at, value) in [(0, 0x65), (0, 0x44), (3, 29), (3, 19), (0, 0x48)] {
        bad(at, value);
    }
    // UDP that ends in its ports, be there padding behind it or not.
    for padding in [0, 10] {
        let mut packet = ipv4(17, 0, &ports[..3]);
        packet.extend(vec![0; padding]);
        assert_eq!(claim(&frame(0, 0x0800, &packet)), BAD);
    }
    assert_eq!(claim(&frame(0, 0x0800, &[0x45; 19])), BAD);
}

#[test]
fn neighbour_discovery_gives_link_layer_addresses() {
    let options = [
        link_layer(14, [7; 6]),
        link_layer(1, OTHER),
        link_layer(2, [4; 6]),
    ]
    .concat();
    let bodies: [(u8, Vec<u8>); 4] = [
        (
            133,
            [vec![133, 0, 0, 0, 0, 0, 0, 0], options.clone()].concat(),
        ),
        (134, [vec![134; 16], options.clone()].concat()),
        (135, neighbour(135, &options)),
        (136, neighbour(136, &options)),
    ];
    for (kind, body) in bodies {
        let bytes = frame(2, 0x86dd, &ipv6(58, &body));
        let Ok(Message::Neighbour(found)) = message(&bytes) else {
            panic!("{kind}: {:?}", message(&bytes));
        };
        let addresses = match (kind, found) {
            (133, Neighbour::RouterSolicitation(addresses))
            | (134, Neighbour::RouterAdvertisement(addresses)) => addresses,
            (135, Neighbour::Solicitation(at, addresses))
            | (136, Neighbour::Advertisement(at, addresses)) => {
                assert_eq!(at, target());
                addresses
            }
            other => panic!("{other:?}"),
        };
        let addresses: Vec<_> = addresses.map(|mac| mac.0).collect();
        assert_eq!(addresses, [OTHER, [4; 6]], "{kind}");
        // Cut off, whatever the length says.
        for cut in 1..body.len() {
            let body = &body[..cut];
            let bytes = frame(0, 0x86dd, &ipv6(58, body));
            let found = message(&bytes);
            let whole = cut
                >= match kind {
                    133 => 8,
                    134 => 16,
                    _ => 24,
                };
            let in_option = whole && cut % 8 != 0;
            assert_eq!(
                found.is_err(),
                !whole || in_option,
                "{kind} {cut}: {found:?}"
            );
        }
    }
    let redirect = frame(0, 0x86dd, &ipv6(58, &[137, 0]));
    assert_eq!(
        message(&redirect),
        Ok(Message::Neighbour(Neighbour::Redirect))
    );
    // A length of 0, and one that runs past the end.
    for bad in [[1, 0, 0, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0]] {
        let bytes = frame(0, 0x86dd, &ipv6(58, &neighbour(135, &bad)));
        assert_eq!(message(&bytes), BAD_MESSAGE);
    }
}

#[test]
fn neighbour_discovery_hides_behind_nothing() {
    let body = neighbour(136, &link_layer(2, OTHER));
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    // Behind hop-by-hop, routing, destination options, in any order.
    let chain = [&options(43)[..], &options(60), &options(58), &body].concat();
    let bytes = frame(0, 0x86dd, &ipv6(0, &chain));
    assert!(matches!(
        message(&bytes),
        Ok(Message::Neighbour(Neighbour::Advertisement(..)))
    ));
    // Too many.
    let many = [
        [options(60); 8].concat(),
        options(58).to_vec(),
        body.clone(),
    ]
    .concat();
    assert_eq!(message(&frame(0, 0x86dd, &ipv6(60, &many))), BAD_MESSAGE);
    // In a fragment: an atomic one, the first of several, also behind options in it.
    for offset in [0, 1] {
        let header = [58, 0, 0, offset, 0, 0, 0, 1];
        let bytes = frame(0, 0x86dd, &ipv6(44, &[&header[..], &body].concat()));
        assert_eq!(message(&bytes), BAD_MESSAGE);
        let header = [60, 0, 0, offset, 0, 0, 0, 1];
        let bytes = frame(
            0,
            0x86dd,
            &ipv6(44, &[&header[..], &options(58), &body].concat()),
        );
        assert_eq!(message(&bytes), BAD_MESSAGE);
        // Headers that go on in the next fragment (RFC 7112).
        let bytes = frame(
            0,
            0x86dd,
            &ipv6(44, &[&header[..], &[58, 2, 0, 0, 0, 0, 0, 0]].concat()),
        );
        assert_eq!(message(&bytes), BAD_MESSAGE);
        let bytes = frame(0, 0x86dd, &ipv6(44, &header));
        assert_eq!(message(&bytes), BAD_MESSAGE);
    }
    // Other ICMP may be in fragments; those behind the first say nothing.
    let header = [58, 0, 0, 1, 0, 0, 0, 1];
    let bytes = frame(
        0,
        0x86dd,
        &ipv6(44, &[&header[..], &[128, 0, 0, 0]].concat()),
    );
    assert_eq!(message(&bytes), Ok(Message::Icmp(128)));
    let header = [58, 0, 0, 8, 0, 0, 0, 1];
    let bytes = frame(0, 0x86dd, &ipv6(44, &[&header[..], &body].concat()));
    assert_eq!(message(&bytes), Ok(Message::Other));
    // Not all of it in the first segment.
    let bytes = frame(0, 0x86dd, &ipv6(58, &body));
    assert_eq!(
        sender(&bytes[..bytes.len() - 1], bytes.len()),
        Err(WireError::BadHeader)
    );
    // Padding behind the packet is no option.
    let mut padded = frame(0, 0x86dd, &ipv6(58, &neighbour(136, &[])));
    padded.extend(link_layer(2, OTHER));
    let Ok(Message::Neighbour(Neighbour::Advertisement(_, mut addresses))) = message(&padded)
    else {
        panic!("{:?}", message(&padded));
    };
    assert_eq!(addresses.next(), None);
    // A packet that is longer than its frame.
    let mut long = frame(0, 0x86dd, &ipv6(58, &body));
    long[14 + 5] += 1;
    assert_eq!(message(&long), BAD_MESSAGE);
}

#[test]
fn ipv6_says_what_it_carries() {
    let udp = frame(0, 0x86dd, &ipv6(17, &[2, 0x23, 2, 0x22]));
    assert_eq!(message(&udp), Ok(Message::Udp(547, 546)));
    let report = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &[143, 0, 0, 0]].concat();
    let report = frame(0, 0x86dd, &ipv6(0, &report));
    assert_eq!(message(&report), Ok(Message::Icmp(143)));
    assert_eq!(
        message(&frame(0, 0x86dd, &ipv6(6, &[]))),
        Ok(Message::Other)
    );
    assert_eq!(claim(&frame(0, 0x88cc, &[1, 2])), Ok(Claim::Other));
    // LLC and SNAP are lengths.
    assert_eq!(claim(&frame(0, 3, &[0x42; 3])), Ok(Claim::Other));
    for (next, body) in [
        (17, &[2, 0x23, 2][..]),
        (58, &[]),
        (0, &[58, 1, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(
            message(&frame(0, 0x86dd, &ipv6(next, body))),
            BAD_MESSAGE,
            "{next}"
        );
    }
    assert_eq!(sender(&[0; 13], 13), Err(WireError::Runt));
}
