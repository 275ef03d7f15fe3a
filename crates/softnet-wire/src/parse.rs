//! Reads the headers of a frame: Ethernet, VLAN tags, IPv4 or IPv6, TCP, UDP or ICMP.
//!
//! Every length is checked against the frame and every header against its first segment, in which
//! drivers put all headers of sane frames. Only lengths are judged, not checksums or addresses.

use std::net::IpAddr;

use crate::{EthernetAddress, WireError, array};

/// Bytes of an Ethernet header without VLAN tags.
pub(crate) const ETHERNET_LEN: usize = 14;
/// VLAN tags a frame may have: 802.1ad service and customer tag, and two to spare.
const MAX_VLAN_TAGS: u8 = 4;
/// IPv6 extension headers a packet may have.
pub(crate) const MAX_EXTENSION_HEADERS: usize = 8;

pub(crate) mod ethertype {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const ARP: u16 = 0x0806;
    pub(crate) const IPV6: u16 = 0x86dd;
    /// IEEE 802.1Q.
    pub(crate) const VLAN: u16 = 0x8100;
    /// IEEE 802.1ad.
    pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
    /// The outer tag's EtherType in equipment from before 802.1ad.
    pub(crate) const QINQ: u16 = 0x9100;
    pub(crate) const MPLS: u16 = 0x8847;
    pub(crate) const MPLS_MULTICAST: u16 = 0x8848;
    /// A session's data (RFC 2516).
    pub(crate) const PPPOE: u16 = 0x8864;
}

pub(crate) mod protocol {
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(super) const ICMP: u8 = 1;
    pub(crate) const IGMP: u8 = 2;
    /// IPv4 in IP.
    pub(crate) const IPV4: u8 = 4;
    pub(super) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    /// IPv6 in IP.
    pub(crate) const IPV6: u8 = 41;
    pub(super) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const GRE: u8 = 47;
    pub(crate) const ICMPV6: u8 = 58;
    pub(super) const DESTINATION_OPTIONS: u8 = 60;
    pub(crate) const PIM: u8 = 103;
    pub(super) const MOBILITY: u8 = 135;
    pub(super) const HIP: u8 = 139;
    pub(super) const SHIM6: u8 = 140;

    /// The headers of RFC 8200 4, RFC 6275 6.1, RFC 7401 5.1 and RFC 5533 5.1, all of the same
    /// shape. What lies behind an authentication header must stay as it is, so that counts as a
    /// transport of its own here, as in IPv4.
    pub(crate) fn is_extension_header(protocol: u8) -> bool {
        matches!(
            protocol,
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6
        )
    }
}

/// The network layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Anything else, for example ARP.
    Other,
}

/// The transport layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum L4 {
    /// TCP.
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// UDP.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP for IPv4 or IPv6.
    Icmp,
    /// A fragment, the first one included: ports are not looked at, so that all fragments of a
    /// datagram are alike.
    Fragment,
    /// Another protocol above IP; see [`Headers::protocol`].
    Other,
    /// The frame is not IP, or [`dissect`] did not get that far.
    None,
}

/// The result of [`parse`] or [`dissect`]. Offsets are in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Destination MAC address.
    pub destination: EthernetAddress,
    /// Source MAC address.
    pub source: EthernetAddress,
    /// EtherType behind the VLAN tags; below 1536 it is an IEEE 802.3 length.
    pub ethertype: u16,
    /// VLAN tags in the frame.
    pub vlan_tags: u8,
    /// Network layer.
    pub network: Network,
    /// Start of the network header.
    pub network_offset: u16,
    /// End of the IP packet, or of a frame that is not IP. What follows is padding.
    pub network_end: u32,
    /// IPv4 type of service or IPv6 traffic class: DSCP and ECN. 0 if not IP.
    pub traffic_class: u8,
    /// IP protocol number of the transport layer. 0 if not IP.
    pub protocol: u8,
    /// Transport layer.
    pub transport: L4,
    /// Start of the transport header, behind all options and extension headers.
    pub transport_offset: u16,
    /// Bytes of all headers, through the transport header if it is known.
    pub header_len: u16,
}

impl Headers {
    /// Headers of no frame: a place for [`dissect_into`].
    pub const NONE: Headers = Headers {
        destination: EthernetAddress([0; 6]),
        source: EthernetAddress([0; 6]),
        ethertype: 0,
        vlan_tags: 0,
        network: Network::Other,
        network_offset: 0,
        network_end: 0,
        traffic_class: 0,
        protocol: 0,
        transport: L4::None,
        transport_offset: 0,
        header_len: 0,
    };

    /// Differentiated services code point (RFC 2474).
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// Start of the network and of the transport header.
    #[inline]
    pub fn offsets(&self) -> (usize, usize) {
        (self.network_offset.into(), self.transport_offset.into())
    }

    /// Source and destination address of an IP packet. `data` is what was parsed.
    #[inline]
    pub fn addresses(&self, data: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let at = usize::from(self.network_offset);
        match self.network {
            Network::V4 => {
                let [a, b] = array::<8>(data, at + 12)?.as_chunks::<4>().0 else {
                    return None;
                };
                Some((IpAddr::from(*a), IpAddr::from(*b)))
            }
            Network::V6 => {
                let [a, b] = array::<32>(data, at + 8)?.as_chunks::<16>().0 else {
                    return None;
                };
                Some((IpAddr::from(*a), IpAddr::from(*b)))
            }
            Network::Other => None,
        }
    }
}

/// Source and destination port of TCP or UDP.
#[inline]
pub(crate) fn ports(data: &[u8], at: usize) -> Option<(u16, u16)> {
    let [a, b, c, d] = *array(data, at)?;
    Some((be16([a, b]), be16([c, d])))
}

pub(crate) fn be16(bytes: [u8; 2]) -> u16 {
    u16::from_be_bytes(bytes)
}

/// Destination and source MAC address. Reads nothing else.
///
/// # Errors
/// [`WireError::Runt`] if `data` is shorter than an Ethernet header.
#[inline]
pub fn ethernet(data: &[u8]) -> Result<(EthernetAddress, EthernetAddress), WireError> {
    let header: &[u8; ETHERNET_LEN] = array(data, 0).ok_or(WireError::Runt)?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, _, _] = *header;
    Ok((
        EthernetAddress([a, b, c, d, e, f]),
        EthernetAddress([g, h, i, j, k, l]),
    ))
}

/// EtherType behind the VLAN tags, how many there are, and where the network header starts.
#[inline]
pub(crate) fn link(data: &[u8]) -> Result<(u16, u8, usize), WireError> {
    let header: &[u8; ETHERNET_LEN] = array(data, 0).ok_or(WireError::Runt)?;
    let mut ethertype = be16([header[12], header[13]]);
    let mut at = ETHERNET_LEN;
    let mut vlan_tags = 0;
    while matches!(
        ethertype,
        ethertype::VLAN | ethertype::SERVICE_VLAN | ethertype::QINQ
    ) {
        vlan_tags += 1;
        let [_, _, hi, lo] = *array::<4>(data, at).ok_or(WireError::BadHeader)?;
        if vlan_tags > MAX_VLAN_TAGS {
            return Err(WireError::BadHeader);
        }
        ethertype = be16([hi, lo]);
        at += 4;
    }
    Ok((ethertype, vlan_tags, at))
}

/// Reads the headers of a frame of `len` bytes, of which `data` is the first segment.
///
/// # Errors
/// [`WireError::Runt`] or [`WireError::BadHeader`].
#[inline]
pub fn parse(data: &[u8], len: usize) -> Result<Headers, WireError> {
    match read(data, len)? {
        (headers, true) => Ok(headers),
        (_, false) => Err(WireError::BadHeader),
    }
}

/// As [`parse`] where that succeeds. Where an IP header, or one behind it, is bad, this has what
/// could be read up to there, as the kernel's flow dissector has: addresses, traffic class and
/// protocol as soon as the fixed part of the IP header is there, ports as soon as those are.
/// Lengths and the transport are not to be relied on then; [`L4::None`] if it was not reached.
///
/// # Errors
/// [`WireError::Runt`], or [`WireError::BadHeader`] for VLAN tags.
pub fn dissect(data: &[u8], len: usize) -> Result<Headers, WireError> {
    let mut headers = Headers::NONE;
    dissect_into(&mut headers, data, len)?;
    Ok(headers)
}

/// As [`dissect`], in a place that the caller has. Fields are written there one by one, so that to
/// read one at once does not wait until a copy of all is complete.
///
/// # Errors
/// As [`dissect`]; what is in `headers` means nothing then.
pub fn dissect_into(headers: &mut Headers, data: &[u8], len: usize) -> Result<(), WireError> {
    let at = headers.parse_link(data, len)?;
    headers.parse_network(data, at);
    Ok(())
}

/// The headers as far as they are readable, and whether all are good.
#[inline(always)]
pub(crate) fn read(data: &[u8], len: usize) -> Result<(Headers, bool), WireError> {
    let mut headers = Headers::NONE;
    let at = headers.parse_link(data, len)?;
    let good = headers.parse_network(data, at);
    Ok((headers, good))
}

/// A place in the headers.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "tags, extension headers and options are less than 24 KiB together"
)]
pub(crate) fn offset(at: usize) -> u16 {
    debug_assert!(at <= 0xffff);
    at as u16
}

impl Headers {
    /// Headers as far as the network header, and where that starts.
    #[inline(always)]
    fn parse_link(&mut self, data: &[u8], len: usize) -> Result<usize, WireError> {
        debug_assert!(data.len() <= len, "a segment is part of its frame");
        let (destination, source) = ethernet(data)?;
        let (ethertype, vlan_tags, at) = link(data)?;
        *self = Headers {
            destination,
            source,
            ethertype,
            vlan_tags,
            network: Network::Other,
            network_offset: offset(at),
            network_end: u32::try_from(len).unwrap_or(u32::MAX),
            traffic_class: 0,
            protocol: 0,
            transport: L4::None,
            transport_offset: offset(at),
            header_len: offset(at),
        };
        Ok(at)
    }

    /// The headers behind the link's. False: one is bad.
    #[inline(always)]
    fn parse_network(&mut self, data: &[u8], at: usize) -> bool {
        let parsed = match self.ethertype {
            ethertype::IPV4 => self.parse_ipv4(data, at),
            ethertype::IPV6 => self.parse_ipv6(data, at),
            _ => Some(()),
        };
        parsed.is_some()
    }

    /// RFC 791 3.1. `None`: bad.
    #[inline]
    pub(crate) fn parse_ipv4(&mut self, data: &[u8], at: usize) -> Option<()> {
        let h: &[u8; 20] = array(data, at)?;
        let header_len = usize::from(h[0] & 0x0f) * 4;
        let total_len = usize::from(be16([h[2], h[3]]));
        let end = at + total_len;
        self.network = Network::V4;
        self.traffic_class = h[1];
        self.protocol = h[9];
        if h[0] >> 4 != 4
            || header_len < 20
            || total_len < header_len
            || end > self.network_end as usize
        {
            return None;
        }
        self.network_end = u32::try_from(end).ok()?;
        // More fragments, or not the first.
        let fragment = be16([h[6], h[7]]) & 0x3fff != 0;
        self.parse_transport(data, at + header_len, fragment)
    }

    /// RFC 8200 3 and 4. `None`: bad. Jumbograms (RFC 2675) are longer than any frame here and so
    /// are bad, too.
    #[inline]
    pub(crate) fn parse_ipv6(&mut self, data: &[u8], at: usize) -> Option<()> {
        let h: &[u8; 40] = array(data, at)?;
        let end = at + 40 + usize::from(be16([h[4], h[5]]));
        self.network = Network::V6;
        self.traffic_class = h[0] << 4 | h[1] >> 4;
        self.protocol = h[6];
        if h[0] >> 4 != 6 || end > self.network_end as usize {
            return None;
        }
        self.network_end = u32::try_from(end).ok()?;
        if matches!(h[6], protocol::TCP | protocol::UDP) {
            return self.parse_transport(data, at + 40, false);
        }
        self.parse_extension_headers(data, at + 40)
    }

    fn parse_extension_headers(&mut self, data: &[u8], mut at: usize) -> Option<()> {
        let inside = data.len().min(self.network_end as usize);
        for _ in 0..=MAX_EXTENSION_HEADERS {
            let fragment = self.protocol == protocol::FRAGMENT;
            if !fragment && !protocol::is_extension_header(self.protocol) {
                return self.parse_transport(data, at, false);
            }
            let h: &[u8; 8] = array(&data[..inside], at)?;
            at += if fragment {
                8
            } else {
                8 + 8 * usize::from(h[1])
            };
            self.protocol = h[0];
            if at > inside {
                return None;
            }
            // Offset not 0, or more to come. Otherwise an atomic fragment (RFC 6946): a whole
            // packet.
            if fragment && be16([h[2], h[3]]) & 0xfff9 != 0 {
                return self.parse_transport(data, at, true);
            }
        }
        None
    }

    #[inline]
    fn parse_transport(&mut self, data: &[u8], at: usize, fragment: bool) -> Option<()> {
        let inside = data.len().min(self.network_end as usize);
        if at > inside {
            return None;
        }
        self.transport_offset = offset(at);
        let data = &data[..inside];
        let mut header_len = 0;
        match (self.protocol, self.network) {
            _ if fragment => self.transport = L4::Fragment,
            (protocol::TCP, _) => {
                // RFC 9293 3.1.
                let (source, destination) = ports(data, at)?;
                self.transport = L4::Tcp {
                    source,
                    destination,
                };
                let h: &[u8; 20] = array(data, at)?;
                header_len = usize::from(h[12] >> 4) * 4;
                if header_len < 20 || at + header_len > inside {
                    return None;
                }
            }
            (protocol::UDP, _) => {
                // RFC 768. The length may be less than what IP carries (UDP options), never more.
                let (source, destination) = ports(data, at)?;
                self.transport = L4::Udp {
                    source,
                    destination,
                };
                let h: &[u8; 8] = array(data, at)?;
                header_len = 8;
                let len = usize::from(be16([h[4], h[5]]));
                if len < 8 || at + len > self.network_end as usize {
                    return None;
                }
            }
            (protocol::ICMP, Network::V4) | (protocol::ICMPV6, Network::V6) => {
                self.transport = L4::Icmp;
                array::<8>(data, at)?;
                header_len = 8;
            }
            _ => self.transport = L4::Other,
        }
        self.header_len = offset(at + header_len);
        Some(())
    }
}
