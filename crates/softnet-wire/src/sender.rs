//! The sender that a frame names, for a check of it: the source addresses of Ethernet and IP, and
//! those that ARP (RFC 826) and IPv6 neighbour discovery (RFC 4861) advertise.
//!
//! A frame of which that cannot be told is refused: cut off, contradicting itself, with too many
//! headers, or with neighbour discovery in fragments, which hosts must ignore (RFC 6980).

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::parse::{MAX_EXTENSION_HEADERS, be16, ethertype, link, ports, protocol};
use crate::{EthernetAddress, WireError, array, ethernet};

/// The sender that a frame names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender<'a> {
    /// Source address of the frame.
    pub mac: EthernetAddress,
    /// The claim behind the VLAN tags.
    pub claim: Claim<'a>,
}

/// The sender of a frame according to its network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<'a> {
    /// ARP for Ethernet and IPv4.
    Arp {
        /// Sender hardware address.
        mac: EthernetAddress,
        /// Sender protocol address; unspecified in a probe (RFC 5227).
        ip: Ipv4Addr,
        /// Target protocol address.
        target: Ipv4Addr,
    },
    /// IPv4.
    Ipv4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
        /// Source and destination port of UDP. None in fragments behind the first.
        udp: Option<(u16, u16)>,
    },
    /// IPv6.
    Ipv6 {
        /// Source address.
        source: Ipv6Addr,
        /// The content behind its headers.
        message: Message<'a>,
    },
    /// Neither ARP nor IP.
    Other,
}

/// The content of an IPv6 packet, as far as it tells of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Neighbour discovery.
    Neighbour(Neighbour<'a>),
    /// Other ICMP, with its type.
    Icmp(u8),
    /// UDP, with source and destination port.
    Udp(u16, u16),
    /// Anything else, or a fragment behind the first.
    Other,
}

/// A message of neighbour discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour<'a> {
    /// Type 133: who is a router?
    RouterSolicitation(LinkLayerAddresses<'a>),
    /// Type 134: the sender is a router.
    RouterAdvertisement(LinkLayerAddresses<'a>),
    /// Type 135: who has this address? From the unspecified address: does anybody
    /// (duplicate address detection, RFC 4862)?
    Solicitation(Ipv6Addr, LinkLayerAddresses<'a>),
    /// Type 136: the sender has this address.
    Advertisement(Ipv6Addr, LinkLayerAddresses<'a>),
    /// Type 137: another router is nearer.
    Redirect,
}

/// The link-layer addresses that a message of neighbour discovery gives for its sender or target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLayerAddresses<'a> {
    /// Options, checked.
    options: &'a [u8],
}

impl<'a> LinkLayerAddresses<'a> {
    /// Reads the options of a message (RFC 4861 4.6).
    fn read(options: &'a [u8]) -> Result<LinkLayerAddresses<'a>, WireError> {
        let mut rest = options;
        while !rest.is_empty() {
            let (_, behind) = first_option(rest).ok_or(WireError::BadHeader)?;
            rest = behind;
        }
        Ok(LinkLayerAddresses { options })
    }
}

impl Iterator for LinkLayerAddresses<'_> {
    type Item = EthernetAddress;

    fn next(&mut self) -> Option<EthernetAddress> {
        const SOURCE: u8 = 1;
        const TARGET: u8 = 2;
        loop {
            let (option, behind) = first_option(self.options)?;
            self.options = behind;
            if let [SOURCE | TARGET, _, a, b, c, d, e, f, ..] = *option {
                return Some(EthernetAddress([a, b, c, d, e, f]));
            }
        }
    }
}

/// The first option, and those behind it. Its length counts in units of 8 bytes and is not 0.
fn first_option(options: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = 8 * usize::from(*options.get(1)?);
    if len == 0 {
        return None;
    }
    options.split_at_checked(len)
}

/// The sender that a frame of `len` bytes names; `data` is its first segment.
///
/// # Errors
/// [`WireError::Runt`], or [`WireError::BadHeader`] if it cannot be told.
pub fn sender(data: &[u8], len: usize) -> Result<Sender<'_>, WireError> {
    let (_, mac) = ethernet(data)?;
    let (ethertype, _, at) = link(data)?;
    let claim = match ethertype {
        ethertype::ARP => arp(data, at),
        ethertype::IPV4 => ipv4(data, at, len),
        ethertype::IPV6 => {
            return Ok(Sender {
                mac,
                claim: ipv6(data, at, len)?,
            });
        }
        _ => Some(Claim::Other),
    };
    let claim = claim.ok_or(WireError::BadHeader)?;
    Ok(Sender { mac, claim })
}

/// `None`: not Ethernet and IPv4, or cut off.
fn arp(data: &[u8], at: usize) -> Option<Claim<'_>> {
    /// Ethernet, IPv4, and the lengths of their addresses.
    const TYPES: [u8; 6] = [0, 1, 8, 0, 6, 4];
    let packet: &[u8; 28] = array(data, at)?;
    let address = |at| array::<4>(packet, at).map(|bytes| Ipv4Addr::from(*bytes));
    (packet[..6] == TYPES).then_some(Claim::Arp {
        mac: EthernetAddress(*array(packet, 8)?),
        ip: address(14)?,
        target: address(24)?,
    })
}

fn ipv4(data: &[u8], at: usize, len: usize) -> Option<Claim<'_>> {
    let header: &[u8; 20] = array(data, at)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(be16([header[2], header[3]]));
    let sane = header[0] >> 4 == 4 && (20..=total_len).contains(&header_len);
    if !sane || at + total_len > len {
        return None;
    }
    let first = be16([header[6], header[7]]) & 0x1fff == 0;
    let udp = if first && header[9] == protocol::UDP {
        Some(ports(
            data.get(..at + total_len).unwrap_or(data),
            at + header_len,
        )?)
    } else {
        None
    };
    let address = |at| array::<4>(header, at).map(|bytes| Ipv4Addr::from(*bytes));
    Some(Claim::Ipv4 {
        source: address(12)?,
        destination: address(16)?,
        udp,
    })
}

fn ipv6(data: &[u8], at: usize, len: usize) -> Result<Claim<'_>, WireError> {
    let header: &[u8; 40] = array(data, at).ok_or(WireError::BadHeader)?;
    let end = at + 40 + usize::from(be16([header[4], header[5]]));
    if header[0] >> 4 != 6 || end > len {
        return Err(WireError::BadHeader);
    }
    // What is not in the first segment cannot be read. Only options can be that long.
    let whole = end <= data.len();
    let packet = &data[..end.min(data.len())];
    let source = array::<16>(header, 8).ok_or(WireError::BadHeader)?;
    let message = message(packet, at + 40, header[6], whole)?;
    Ok(Claim::Ipv6 {
        source: Ipv6Addr::from(*source),
        message,
    })
}

/// The content behind the fixed header of an IPv6 packet. All headers up to the transport's are in
/// the first fragment (RFC 7112).
fn message(
    packet: &[u8],
    mut at: usize,
    mut protocol: u8,
    whole: bool,
) -> Result<Message<'_>, WireError> {
    let mut fragment = false;
    for _ in 0..=MAX_EXTENSION_HEADERS {
        let is_fragment_header = protocol == protocol::FRAGMENT;
        if !is_fragment_header && !protocol::is_extension_header(protocol) {
            return transport(packet, at, protocol, fragment, whole);
        }
        let header: &[u8; 8] = array(packet, at).ok_or(WireError::BadHeader)?;
        if is_fragment_header {
            // Offset.
            if be16([header[2], header[3]]) & 0xfff8 != 0 {
                return Ok(Message::Other);
            }
            fragment = true;
            at += 8;
        } else {
            at += 8 + 8 * usize::from(header[1]);
        }
        protocol = header[0];
    }
    Err(WireError::BadHeader)
}

fn transport(
    packet: &[u8],
    at: usize,
    protocol: u8,
    fragment: bool,
    whole: bool,
) -> Result<Message<'_>, WireError> {
    let body = packet.get(at..).ok_or(WireError::BadHeader)?;
    match protocol {
        protocol::UDP => {
            let (source, destination) = ports(body, 0).ok_or(WireError::BadHeader)?;
            Ok(Message::Udp(source, destination))
        }
        protocol::ICMPV6 => match body.first() {
            None => Err(WireError::BadHeader),
            Some(133..=137) if fragment || !whole => Err(WireError::BadHeader),
            Some(133..=137) => neighbour(body).map(Message::Neighbour),
            Some(&kind) => Ok(Message::Icmp(kind)),
        },
        _ => Ok(Message::Other),
    }
}

fn neighbour(body: &[u8]) -> Result<Neighbour<'_>, WireError> {
    let options = |at| {
        let options: &[u8] = body.get(at..).ok_or(WireError::BadHeader)?;
        LinkLayerAddresses::read(options)
    };
    let target = || {
        let target = array::<16>(body, 8).ok_or(WireError::BadHeader)?;
        Ok::<_, WireError>(Ipv6Addr::from(*target))
    };
    Ok(match body.first() {
        Some(133) => Neighbour::RouterSolicitation(options(8)?),
        Some(134) => Neighbour::RouterAdvertisement(options(16)?),
        Some(135) => Neighbour::Solicitation(target()?, options(24)?),
        Some(136) => Neighbour::Advertisement(target()?, options(24)?),
        Some(137) => Neighbour::Redirect,
        _ => return Err(WireError::BadHeader),
    })
}
