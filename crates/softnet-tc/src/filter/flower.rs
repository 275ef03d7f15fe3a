//! `flower`: a match on the headers' fields (tc-flower(8)).

use std::ops::RangeInclusive;

use super::frame::Frame;
use super::{FieldMatch, Indev, Prefix};
#[cfg(doc)]
use softnet::mem::Packet;
use softnet::wire::{L4, Network};

/// Headers that a packet must have. A field that is `None` is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flower {
    /// The link that the packet was received on last ([`Packet::port`]): of a port, a VLAN, `lo`,
    /// or where an action had it arrive. At an `ifb` it is the one that it was redirected from.
    pub indev: Option<Indev>,
    /// VLAN identifier of the first tag.
    pub vlan_id: Option<u16>,
    /// Priority in the first tag.
    pub vlan_prio: Option<u8>,
    /// EtherType behind the first tag, which may be another tag's.
    pub vlan_ethtype: Option<u16>,
    /// Source address.
    pub src_ip: Option<Prefix>,
    /// Destination address.
    pub dst_ip: Option<Prefix>,
    /// Protocol number behind IPv6 extension headers, or of IPv4.
    pub ip_proto: Option<u8>,
    /// `(value, mask)` of type of service or traffic class. A DSCP is its upper six bits.
    pub ip_tos: Option<(u8, u8)>,
    /// Source port of TCP or UDP. Fragments have no ports.
    pub src_port: Option<RangeInclusive<u16>>,
    /// Destination port of TCP or UDP.
    pub dst_port: Option<RangeInclusive<u16>>,
    /// `(value, mask)`: the packet's mark under the mask is the value.
    pub mark: Option<(u32, u32)>,
    /// Other fields, each once, in their order.
    pub fields: Vec<FieldMatch>,
}

impl Flower {
    pub(super) fn matches(&self, frame: &Frame<'_>) -> bool {
        let Flower {
            indev,
            vlan_id,
            vlan_prio,
            vlan_ethtype,
            src_ip,
            dst_ip,
            ip_proto,
            ip_tos,
            src_port,
            dst_port,
            mark,
            fields,
        } = self;
        if mark.is_some_and(|(value, mask)| (frame.packet.mark() ^ value) & mask != 0) {
            return false;
        }
        if let Some(indev) = indev
            && !indev.has_received(frame.packet)
        {
            return false;
        }
        if vlan_id.is_some() || vlan_prio.is_some() || vlan_ethtype.is_some() {
            let Some((tag, ethertype)) = frame.tag() else {
                return false;
            };
            if vlan_id.is_some_and(|id| tag & 0x0fff != id)
                || vlan_prio.is_some_and(|prio| tag >> 13 != u16::from(prio))
                || vlan_ethtype.is_some_and(|behind| ethertype != behind)
            {
                return false;
            }
        }
        let differs = |of: &FieldMatch| {
            let number = frame.field(of.field);
            number.is_none_or(|number| (number ^ of.value) & of.mask != 0)
        };
        if fields.iter().any(differs) {
            return false;
        }
        let reads_ports = src_port.is_some() || dst_port.is_some();
        let reads_addresses = src_ip.is_some() || dst_ip.is_some();
        let reads_ip = reads_ports || reads_addresses || ip_proto.is_some() || ip_tos.is_some();
        if !reads_ip {
            return true;
        }
        let Some(headers) = frame.headers() else {
            return false;
        };
        if headers.network == Network::Other
            || ip_proto.is_some_and(|protocol| protocol != headers.protocol)
            || ip_tos.is_some_and(|(value, mask)| (headers.traffic_class ^ value) & mask != 0)
        {
            return false;
        }
        if reads_ports {
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
            if src_port.as_ref().is_some_and(|r| !r.contains(&source))
                || dst_port.as_ref().is_some_and(|r| !r.contains(&destination))
            {
                return false;
            }
        }
        if !reads_addresses {
            return true;
        }
        let Some((source, destination)) = frame.addresses() else {
            return false;
        };
        src_ip.is_none_or(|p| p.contains(source)) && dst_ip.is_none_or(|p| p.contains(destination))
    }

    /// True if both match the same packets, and look at the same bits.
    pub(super) fn is_same(&self, other: &Flower) -> bool {
        let same = |a: Option<Prefix>, b: Option<Prefix>| match (a, b) {
            (Some(a), Some(b)) => a.is_same(&b),
            (a, b) => a.is_none() && b.is_none(),
        };
        // What the mask leaves out does not count.
        let fields = |flower: &Flower| {
            (
                (flower.vlan_id, flower.vlan_prio, flower.vlan_ethtype),
                flower.ip_proto,
                flower.ip_tos.map(|(value, mask)| (value & mask, mask)),
                flower.mark.map(|(value, mask)| (value & mask, mask)),
            )
        };
        same(self.src_ip, other.src_ip)
            && same(self.dst_ip, other.dst_ip)
            && (&self.src_port, &self.dst_port) == (&other.src_port, &other.dst_port)
            && fields(self) == fields(other)
            && self.indev == other.indev
            && self.fields.len() == other.fields.len()
            && self
                .fields
                .iter()
                .zip(&other.fields)
                .all(|(a, b)| a.is_same(b))
    }
}
