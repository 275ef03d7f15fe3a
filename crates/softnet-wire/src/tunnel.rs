//! Headers inside PPPoE, MPLS, GRE and IP in IP, for flow hashes.
//!
//! The kernel's flow dissector goes on in the same way, but for MPLS, where it stops at the labels.
//! A header that is bad, unknown or not in the first segment ends the walk; layers, labels and the
//! place of the innermost packet have bounds.

use crate::parse::{ETHERNET_LEN, be16, ethertype, offset, protocol};
use crate::{Headers, L4, Network, array};

/// Packets in packets.
const MAX_TUNNELS: usize = 4;
/// Link layers between an IP packet and the one in it: VLAN tags, PPPoE, a stack of labels.
const MAX_LAYERS: usize = 4;
/// MPLS labels of a stack.
const MAX_LABELS: usize = 8;
/// Bytes in front of an inner IP packet. Places behind its headers fit 16 bits then, too.
const MAX_OFFSET: usize = 1024;

impl Headers {
    /// True if another packet may be inside.
    #[inline]
    pub(crate) fn is_tunnel(&self) -> bool {
        match self.transport {
            L4::Other => matches!(
                self.protocol,
                protocol::IPV4 | protocol::IPV6 | protocol::GRE
            ),
            L4::None => {
                self.network == Network::Other
                    && matches!(
                        self.ethertype,
                        ethertype::PPPOE | ethertype::MPLS | ethertype::MPLS_MULTICAST
                    )
            }
            _ => false,
        }
    }

    /// The headers of the innermost IP packet that can be read. `data` is what was parsed.
    pub(crate) fn innermost(mut self, data: &[u8]) -> Headers {
        for _ in 0..MAX_TUNNELS {
            let Some(inner) = self.inside(data) else {
                break;
            };
            self = inner;
        }
        self
    }

    /// The headers of the IP packet directly inside.
    fn inside(&self, data: &[u8]) -> Option<Headers> {
        if !self.is_tunnel() {
            return None;
        }
        let data = &data[..data.len().min(self.network_end as usize)];
        let (network, transport) = self.offsets();
        let (mut ethertype, mut at) = match (self.network, self.protocol) {
            (Network::Other, _) => (self.ethertype, network),
            (_, protocol::IPV4) => (ethertype::IPV4, transport),
            (_, protocol::IPV6) => (ethertype::IPV6, transport),
            _ => gre(data, transport)?,
        };
        for _ in 0..=MAX_LAYERS {
            (ethertype, at) = match ethertype {
                ethertype::IPV4 | ethertype::IPV6 => return self.packet(data, ethertype, at),
                ethertype::VLAN | ethertype::SERVICE_VLAN | ethertype::QINQ => {
                    let [_, _, high, low] = *array::<4>(data, at)?;
                    (be16([high, low]), at + 4)
                }
                ethertype::PPPOE => pppoe(data, at)?,
                ethertype::MPLS | ethertype::MPLS_MULTICAST => mpls(data, at)?,
                _ => return None,
            };
        }
        None
    }

    /// The headers of the IP packet at `at`, which must end inside this one.
    fn packet(&self, data: &[u8], ethertype: u16, at: usize) -> Option<Headers> {
        if at > MAX_OFFSET {
            return None;
        }
        let mut inner = Headers {
            ethertype,
            network_offset: offset(at),
            transport: L4::None,
            ..*self
        };
        match ethertype {
            ethertype::IPV4 => inner.parse_ipv4(data, at)?,
            _ => inner.parse_ipv6(data, at)?,
        }
        Some(inner)
    }
}

/// RFC 2516 4: version and type 1, code 0 for a session's data; then PPP without address and
/// control.
fn pppoe(data: &[u8], at: usize) -> Option<(u16, usize)> {
    let h: &[u8; 8] = array(data, at)?;
    if h[0] != 0x11 || h[1] != 0 {
        return None;
    }
    Some((ppp(be16([h[6], h[7]]))?, at + 8))
}

/// The EtherType of what a PPP protocol carries.
fn ppp(protocol: u16) -> Option<u16> {
    match protocol {
        0x0021 => Some(ethertype::IPV4),
        0x0057 => Some(ethertype::IPV6),
        0x0281 => Some(ethertype::MPLS),
        _ => None,
    }
}

/// RFC 3032 2.1. Nothing names what is below the last label: it is IP if its first four bits are
/// a version's (RFC 4928 2).
fn mpls(data: &[u8], mut at: usize) -> Option<(u16, usize)> {
    for _ in 0..MAX_LABELS {
        let [_, _, low, _] = *array::<4>(data, at)?;
        at += 4;
        if low & 1 == 0 {
            continue;
        }
        return match *data.get(at)? >> 4 {
            4 => Some((ethertype::IPV4, at)),
            6 => Some((ethertype::IPV6, at)),
            _ => None,
        };
    }
    None
}

/// RFC 2784 and RFC 2890, with Ethernet inside, too; PPTP (RFC 2637 4.1).
fn gre(data: &[u8], at: usize) -> Option<(u16, usize)> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGEMENT: u16 = 0x0080;
    const VERSION: u16 = 7;
    const PPP: u16 = 0x880b;
    const ETHERNET: u16 = 0x6558;

    let [a, b, c, d] = *array::<4>(data, at)?;
    let (flags, protocol) = (be16([a, b]), be16([c, d]));
    if flags & ROUTING != 0 {
        return None;
    }
    let fields = (flags & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize;
    let at = at + 4 + 4 * fields;
    match (flags & VERSION, protocol) {
        (0, ETHERNET) => {
            let h: &[u8; ETHERNET_LEN] = array(data, at)?;
            Some((be16([h[12], h[13]]), at + ETHERNET_LEN))
        }
        (0, ethertype) => Some((ethertype, at)),
        (1, PPP) if flags & KEY != 0 => {
            let at = if flags & ACKNOWLEDGEMENT != 0 {
                at + 4
            } else {
                at
            };
            let [_, _, high, low] = *array::<4>(data, at)?;
            Some((ppp(be16([high, low]))?, at + 4))
        }
        _ => None,
    }
}
