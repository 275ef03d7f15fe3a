//! Filters: which class of a qdisc a packet belongs to. They are tried in the order of their
//! priorities; the first that matches decides (tc-flower(8), tc-matchall(8), tc-fw(8)).

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::Handle;
use softnet::mem::Packet;
use softnet::wire::{Headers, L4, Network};

/// A range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// All addresses that share their first `len` bits with `address`; `None` if an address has
    /// fewer bits.
    pub fn new(address: IpAddr, len: u8) -> Option<Prefix> {
        (len <= if address.is_ipv4() { 32 } else { 128 }).then_some(Prefix { address, len })
    }

    /// Whether the range has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)).leading_zeros(),
            _ => return false,
        };
        same >= u32::from(self.len)
    }

    /// Whether it is one of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// What a packet must be like. What is `None` is not looked at: a match with nothing in it matches
/// all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// IPv4 or IPv6, and no VLAN tag: tc's `protocol`, which is the frame's EtherType.
    pub network: Option<Network>,
    /// Source address.
    pub source: Option<Prefix>,
    /// Destination address.
    pub destination: Option<Prefix>,
    /// Protocol number behind IPv6 extension headers, or of IPv4.
    pub protocol: Option<u8>,
    /// Source port of TCP or UDP. Fragments have no ports.
    pub source_port: Option<RangeInclusive<u16>>,
    /// Destination port of TCP or UDP.
    pub destination_port: Option<RangeInclusive<u16>>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// `(value, mask)`: the packet's mark under the mask is the value.
    pub mark: Option<(u32, u32)>,
}

impl Match {
    /// Whether headers have to be read.
    fn reads_headers(&self) -> bool {
        let Match {
            network,
            source,
            destination,
            protocol,
            source_port,
            destination_port,
            dscp,
            mark: _,
        } = self;
        network.is_some()
            || source.is_some()
            || destination.is_some()
            || protocol.is_some()
            || source_port.is_some()
            || destination_port.is_some()
            || dscp.is_some()
    }

    fn mark_matches(&self, packet: &Packet) -> bool {
        self.mark
            .is_none_or(|(value, mask)| packet.mark() & mask == value & mask)
    }

    fn headers_match(&self, packet: &Packet, headers: &Headers) -> bool {
        let tagged = headers.vlan_tags != 0;
        if self.network.is_some_and(|n| tagged || n != headers.network) {
            return false;
        }
        let ip = headers.network != Network::Other;
        if self.protocol.is_some_and(|p| !ip || p != headers.protocol)
            || self.dscp.is_some_and(|d| !ip || d != headers.dscp())
        {
            return false;
        }
        if self.source_port.is_some() || self.destination_port.is_some() {
            let (L4::Tcp {
                source,
                destination,
            }
            | L4::Udp {
                source,
                destination,
            }) = headers.transport
            else {
                return false;
            };
            if self
                .source_port
                .as_ref()
                .is_some_and(|r| !r.contains(&source))
                || self
                    .destination_port
                    .as_ref()
                    .is_some_and(|r| !r.contains(&destination))
            {
                return false;
            }
        }
        if self.source.is_none() && self.destination.is_none() {
            return true;
        }
        let Some((source, destination)) = headers.addresses(packet.data()) else {
            return false;
        };
        self.source.is_none_or(|p| p.contains(source))
            && self.destination.is_none_or(|p| p.contains(destination))
    }
}

/// A filter of a qdisc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterSpec {
    /// The qdisc it belongs to.
    pub parent: Handle,
    /// Lower ones are tried first; equal ones in the order in which they were added. 0: one is
    /// chosen as in the kernel, 49152 for the first and one less for each one after it, so that
    /// the newest is tried first.
    pub prio: u16,
    /// What packets it is for.
    pub matches: Match,
    /// The class of `parent` that they go to (tc's `flowid` or `classid`). As long as there is
    /// no such class they go where packets of priority 0 go.
    pub class: Handle,
}

/// The filters of one qdisc.
#[derive(Debug, Default)]
pub(super) struct Filters {
    /// In the order in which they are tried.
    list: Vec<(Match, Handle)>,
    reads_headers: bool,
}

impl Filters {
    /// In any order.
    pub(super) fn new<'a>(specs: impl Iterator<Item = &'a FilterSpec>) -> Filters {
        let mut specs: Vec<&FilterSpec> = specs.collect();
        specs.sort_by_key(|spec| spec.prio);
        let list: Vec<_> = specs
            .into_iter()
            .map(|spec| (spec.matches.clone(), spec.class))
            .collect();
        let reads_headers = list.iter().any(|(matches, _)| matches.reads_headers());
        Filters {
            list,
            reads_headers,
        }
    }

    /// The class of the first filter that matches. A frame whose headers are broken matches none
    /// that looks at headers.
    pub(super) fn classify(&self, packet: &Packet) -> Option<Handle> {
        if self.list.is_empty() {
            return None;
        }
        let headers = if self.reads_headers {
            packet.parse().ok()
        } else {
            None
        };
        let matches = |m: &Match| {
            m.mark_matches(packet)
                && (!m.reads_headers()
                    || headers.as_ref().is_some_and(|h| m.headers_match(packet, h)))
        };
        self.list
            .iter()
            .find(|(m, _)| matches(m))
            .map(|&(_, class)| class)
    }
}
