//! Filters of captures: words like tcpdump's (pcap-filter(7)), as far as they are about addresses,
//! ports, protocols and VLANs.
//!
//! [`compile`] makes an expression of them, whose depth and length are bounded; [`Frame`] is what
//! it is asked of: a frame's headers as far as they can be read.

mod compile;

use std::net::{IpAddr, Ipv4Addr};

use softnet::mem::Packet;
use softnet::wire::{EthernetAddress, Headers, L4, Network, dissect};

pub use compile::FilterError;

/// Ends of a packet's way that a test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
}

impl Side {
    /// True if the ends that this is about have what `f` says.
    fn any<T>(self, (source, destination): (T, T), f: impl Fn(T) -> bool) -> bool {
        match self {
            Side::Source => f(source),
            Side::Destination => f(destination),
            Side::Either => f(source) || f(destination),
        }
    }
}

/// Kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Ip4,
    Ip6,
    Arp,
    /// IPv4 or IPv6 with this protocol.
    Above(u8),
    /// ICMP of IPv4.
    Icmp,
}

/// Addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Net {
    address: IpAddr,
    bits: u8,
}

impl Net {
    fn holds(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(address)) => {
                let differs = net.to_bits() ^ address.to_bits();
                differs.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(net), IpAddr::V6(address)) => {
                let differs = net.to_bits() ^ address.to_bits();
                differs.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

/// A question about a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Protocol(Protocol),
    Net(Side, Net),
    Port(Side, u16),
    Ether(Side, EthernetAddress),
    /// Has a tag, with this number if one is given.
    Vlan(Option<u16>),
}

/// The meaning of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    Test(Test),
    Not(Box<Expression>),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

/// Packets that are wanted: all, or those that an expression says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Option<Expression>);

impl Filter {
    /// Reads a filter; of nothing but spaces, one that matches everything.
    ///
    /// # Errors
    /// [`FilterError`]: with the word that it cannot read, and what to write.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        compile::compile(text).map(Filter)
    }

    /// True if the packet is wanted.
    pub fn matches(&self, packet: &Packet) -> bool {
        self.matches_frame(packet.data(), packet.len())
    }

    /// True if a frame of `len` bytes is wanted, of which `data` is the first part.
    pub fn matches_frame(&self, data: &[u8], len: usize) -> bool {
        let Some(expression) = &self.0 else {
            return true;
        };
        let headers = dissect(data, len).ok();
        Frame { data, headers }.is(expression)
    }
}

/// A frame, and its headers if there are any.
struct Frame<'a> {
    data: &'a [u8],
    headers: Option<Headers>,
}

impl Frame<'_> {
    fn is(&self, expression: &Expression) -> bool {
        match expression {
            Expression::Test(test) => self.passes(test),
            Expression::Not(of) => !self.is(of),
            Expression::All(of) => of.iter().all(|each| self.is(each)),
            Expression::Any(of) => of.iter().any(|each| self.is(each)),
        }
    }

    fn passes(&self, test: &Test) -> bool {
        let Some(headers) = &self.headers else {
            return false;
        };
        match test {
            Test::Protocol(protocol) => has(headers, *protocol),
            Test::Net(side, net) => {
                let ends = self.addresses(headers);
                ends.is_some_and(|ends| side.any(ends, |address| net.holds(address)))
            }
            Test::Port(side, port) => match headers.transport {
                L4::Tcp {
                    source,
                    destination,
                }
                | L4::Udp {
                    source,
                    destination,
                } => side.any((source, destination), |has| has == *port),
                _ => false,
            },
            Test::Ether(side, address) => {
                side.any((headers.source, headers.destination), |has| has == *address)
            }
            Test::Vlan(None) => headers.vlan_tags > 0,
            Test::Vlan(Some(vlan)) => self.vlans(headers).any(|has| has == *vlan),
        }
    }

    /// Source and destination, of ARP as well.
    fn addresses(&self, headers: &Headers) -> Option<(IpAddr, IpAddr)> {
        if headers.ethertype != ARP {
            return headers.addresses(self.data);
        }
        let arp = self.data.get(usize::from(headers.network_offset)..)?;
        // IPv4 addresses of 4 bytes behind hardware addresses of 6 (RFC 826).
        if arp.get(2..6)? != [0x08, 0x00, 6, 4] {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 4] = *arp.get(at..)?.first_chunk()?;
            Some(Ipv4Addr::from(bytes).into())
        };
        Some((address(14)?, address(24)?))
    }

    /// Numbers of its VLAN tags.
    fn vlans(&self, headers: &Headers) -> impl Iterator<Item = u16> + '_ {
        let tags = (0..usize::from(headers.vlan_tags)).map(|tag| 14 + 4 * tag);
        tags.filter_map(|at| {
            let bytes: [u8; 2] = *self.data.get(at..)?.first_chunk()?;
            Some(u16::from_be_bytes(bytes) & 0x0fff)
        })
    }
}

/// EtherType of ARP.
const ARP: u16 = 0x0806;
/// IP protocols.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

fn has(headers: &Headers, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Ip4 => headers.network == Network::V4,
        Protocol::Ip6 => headers.network == Network::V6,
        Protocol::Arp => headers.ethertype == ARP,
        Protocol::Above(number) => headers.network != Network::Other && headers.protocol == number,
        Protocol::Icmp => headers.network == Network::V4 && headers.protocol == ICMP,
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
