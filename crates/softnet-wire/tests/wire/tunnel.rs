//! Flow hashes of what is inside PPPoE, MPLS, GRE and IP in IP.

use softnet_wire::parse;

use super::frames::Frame;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: u16 = 0x8847;
const PPPOE: u16 = 0x8864;
const IPIP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

/// A UDP packet of IPv4 or IPv6, without Ethernet.
fn packet(v6: bool, ports: (u16, u16)) -> Vec<u8> {
    let frame = Frame {
        v6,
        ports,
        ..Frame::default()
    };
    frame.bytes()[14..].to_vec()
}

fn ethernet(ethertype: u16, inside: &[u8]) -> Vec<u8> {
    let addresses = [2_u8, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    [&addresses[..], &ethertype.to_be_bytes(), inside].concat()
}

fn ipv4(protocol: u8, inside: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + inside.len() as u16).to_be_bytes();
    let first = [0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0];
    let addresses = [192, 0, 2, 1, 192, 0, 2, 2];
    [&first[..], &addresses, inside].concat()
}

fn ipv6(next: u8, inside: &[u8]) -> Vec<u8> {
    let [high, low] = (inside.len() as u16).to_be_bytes();
    let first = [0x60, 0, 0, 0, high, low, next, 64];
    [&first[..], &[0x20; 32], inside].concat()
}

fn pppoe(protocol: u16, inside: &[u8]) -> Vec<u8> {
    let [high, low] = (2 + inside.len() as u16).to_be_bytes();
    let session = [0x11, 0, 0, 7, high, low];
    [&session[..], &protocol.to_be_bytes(), inside].concat()
}

/// So many labels, the last of them the bottom of the stack.
fn mpls(labels: usize, inside: &[u8]) -> Vec<u8> {
    let mut stack = [0_u8, 1, 0x10, 64].repeat(labels);
    stack[4 * labels - 2] |= 1;
    [&stack[..], inside].concat()
}

/// A GRE header with these flags and the fields that they announce.
fn gre(flags: u16, protocol: u16, inside: &[u8]) -> Vec<u8> {
    let fields = 4 * (flags & 0xb080).count_ones() as usize;
    let (flags, protocol) = (flags.to_be_bytes(), protocol.to_be_bytes());
    [&flags[..], &protocol, &vec![9_u8; fields], inside].concat()
}

fn hash(frame: &[u8]) -> u32 {
    parse(frame, frame.len()).unwrap().flow_hash(frame)
}

/// Frames that carry a packet of IPv4 or IPv6, one for each way.
fn carried(v6: bool, ports: (u16, u16)) -> Vec<Vec<u8>> {
    let inside = packet(v6, ports);
    let (ethertype, next, ppp) = match v6 {
        true => (IPV6, IPV6_IN_IP, 0x0057_u16),
        false => (IPV4, IPIP, 0x0021),
    };
    let tagged = [
        &[0, 5, 0x81, 0, 0, 6][..],
        &ethertype.to_be_bytes(),
        &inside,
    ]
    .concat();
    vec![
        ethernet(PPPOE, &pppoe(ppp, &inside)),
        ethernet(MPLS, &mpls(1, &inside)),
        ethernet(0x8848, &mpls(8, &inside)),
        ethernet(PPPOE, &pppoe(0x0281, &mpls(2, &inside))),
        ethernet(IPV4, &ipv4(next, &inside)),
        ethernet(IPV6, &ipv6(next, &inside)),
        ethernet(IPV4, &ipv4(IPIP, &ipv4(next, &inside))),
        ethernet(IPV4, &ipv4(GRE, &gre(0, ethertype, &inside))),
        ethernet(IPV6, &ipv6(GRE, &gre(0xb000, ethertype, &inside))),
        ethernet(IPV4, &ipv4(GRE, &gre(0x2000, MPLS, &mpls(1, &inside)))),
        ethernet(
            IPV4,
            &ipv4(GRE, &gre(0, 0x6558, &ethernet(ethertype, &inside))),
        ),
        ethernet(
            IPV4,
            &ipv4(GRE, &gre(0, 0x6558, &ethernet(0x88a8, &tagged))),
        ),
        ethernet(
            IPV4,
            &ipv4(
                GRE,
                &gre(0x3081, 0x880b, &ppp_frame(&ppp.to_be_bytes(), &inside)),
            ),
        ),
        ethernet(PPPOE, &pppoe(0x0021, &ipv4(next, &inside))),
    ]
}

/// PPP with address and control.
fn ppp_frame(protocol: &[u8], inside: &[u8]) -> Vec<u8> {
    [&[0xff, 0x03][..], protocol, inside].concat()
}

/// The flow is that of the packet inside, whatever carries it.
#[test]
fn flows_inside_tunnels() {
    for v6 in [false, true] {
        let ethertype = if v6 { IPV6 } else { IPV4 };
        for ports in [(1024, 53), (1025, 53), (1024, 80)] {
            let alone = hash(&ethernet(ethertype, &packet(v6, ports)));
            for (index, frame) in carried(v6, ports).iter().enumerate() {
                assert_eq!(hash(frame), alone, "{index}, IPv6: {v6}");
            }
        }
    }
}

/// A first segment that ends within the headers inside has the flow of the headers outside.
#[test]
fn truncated_tunnels() {
    const UDP: usize = 8;
    for v6 in [false, true] {
        let network = if v6 { 40 } else { 20 };
        for (index, frame) in carried(v6, (1024, 53)).iter().enumerate() {
            let all = frame.len() - packet(v6, (1024, 53)).len() + network + UDP;
            let inner = hash(frame);
            for cut in 14..=frame.len() {
                let first = &frame[..cut];
                let Ok(headers) = parse(first, frame.len()) else {
                    continue;
                };
                let is_inner = headers.flow_hash(first) == inner;
                assert_eq!(is_inner, cut >= all, "{index}, IPv6: {v6}, {cut} bytes");
            }
        }
    }
}

/// A header inside that is not known or not good leaves the flow as it is outside: other ports
/// make no other flow.
#[test]
fn bad_tunnels() {
    let frames = |ports| {
        let inside = packet(false, ports);
        let damaged = |at: usize, value: u8| {
            let mut inside = inside.clone();
            inside[at] = value;
            inside
        };
        let routed = gre(0x4000, IPV4, &inside);
        let in_itself = |count| (0..count).fold(inside.clone(), |packet, _| ipv4(IPIP, &packet));
        let tagged = (0..5).fold(inside.clone(), |packet, n| {
            let ethertype: u16 = if n == 0 { IPV4 } else { 0x8100 };
            [&[0, 5][..], &ethertype.to_be_bytes(), &packet].concat()
        });
        let mut fragment = ipv4(IPIP, &inside);
        fragment[6] = 0x20;
        vec![
            // A discovery packet, another version, compression control.
            ethernet(
                PPPOE,
                &[&[0x11, 9][..], &pppoe(0x0021, &inside)[2..]].concat(),
            ),
            ethernet(
                PPPOE,
                &[&[0x21, 0][..], &pppoe(0x0021, &inside)[2..]].concat(),
            ),
            ethernet(PPPOE, &pppoe(0x80fd, &inside)),
            // Too many labels, no bottom, a control word.
            ethernet(MPLS, &mpls(9, &inside)),
            ethernet(MPLS, &[0_u8, 1, 0x10, 64].repeat(8)),
            ethernet(MPLS, &mpls(1, &[&[0; 4][..], &inside].concat())),
            // Routing, a later version, PPTP without its key, not IP, too many tags.
            ethernet(IPV4, &ipv4(GRE, &routed)),
            ethernet(IPV4, &ipv4(GRE, &gre(2, IPV4, &inside))),
            ethernet(
                IPV4,
                &ipv4(GRE, &gre(1, 0x880b, &ppp_frame(&[0, 0x21], &inside))),
            ),
            ethernet(IPV4, &ipv4(GRE, &gre(0, 0x0806, &inside))),
            ethernet(IPV4, &ipv4(GRE, &gre(0, 0x8100, &tagged))),
            // Another version, a packet longer than the one around it, a UDP length beyond it.
            ethernet(IPV4, &ipv4(IPIP, &damaged(0, 0x65))),
            ethernet(IPV4, &ipv4(IPIP, &damaged(3, 255))),
            ethernet(IPV4, &ipv4(IPIP, &damaged(25, 255))),
            // A fragment; deeper than anybody looks.
            ethernet(IPV4, &fragment),
            ethernet(IPV4, &in_itself(5)),
            ethernet(IPV4, &in_itself(500)),
        ]
    };
    let pairs = frames((1024, 53)).into_iter().zip(frames((1025, 53)));
    for (index, (one, other)) in pairs.enumerate() {
        assert_eq!(hash(&one), hash(&other), "{index}");
    }
    assert_ne!(
        hash(&ethernet(IPV4, &ipv4(IPIP, &packet(false, (1024, 53))))),
        hash(&ethernet(IPV4, &ipv4(IPIP, &packet(false, (1025, 53)))))
    );
}
