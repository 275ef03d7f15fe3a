//! Which bits of a frame a `flower` or `fw` filter looks at, and what those bits hash to. A filter
//! and each frame that it matches have the same hash.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use softnet::wire::{L4, Network};

use super::frame::Frame;
use super::{FilterKind, FilterSpec, Flower, FlowerField, Prefix};

/// The bits that filters look at. Those with the same are tried by one look-up, but for ports'
/// ranges and `indev`: filters that differ in them alone are tried in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask {
    /// It is not hashed: it may become another port.
    indev: bool,
    vlan_id: bool,
    vlan_prio: bool,
    vlan_ethtype: bool,
    /// IPv4 or not, and the number of bits.
    src_ip: Option<(bool, u8)>,
    dst_ip: Option<(bool, u8)>,
    ip_proto: bool,
    ip_tos: Option<u8>,
    src_port: Option<Ports>,
    dst_port: Option<Ports>,
    mark: Option<u32>,
    fields: Vec<(FlowerField, u64)>,
}

/// Use of a port by a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    One,
    /// Ranges are not hashed: filters with one are tried in their order.
    Range,
}

/// Fields become one number by turns of multiplication (Fibonacci hashing). What is looked up is
/// the configuration's, so a sender gains nothing by choosing what collides.
#[derive(Clone, Copy, Default)]
struct Fields(u64);

impl Fields {
    #[inline]
    fn add(&mut self, field: u64) {
        self.0 = (self.0.rotate_left(23) ^ field).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn add_address(&mut self, address: IpAddr, len: u8) {
        match address {
            IpAddr::V4(address) => {
                let shift = 32 - u32::from(len);
                self.add(u32::from(address).checked_shr(shift).unwrap_or(0).into());
            }
            IpAddr::V6(address) => {
                let shift = 128 - u32::from(len);
                let bits = u128::from(address).checked_shr(shift).unwrap_or(0);
                self.add(bits as u64);
                self.add((bits >> 64) as u64);
            }
        }
    }

    /// The lowest bits choose the bucket, so the highest go there.
    fn hash(self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

impl Mask {
    /// That of a filter of these kinds; of others, that of one that matches all frames.
    pub(super) fn of(spec: &FilterSpec) -> Mask {
        match &spec.kind {
            FilterKind::Flower(flower) => flower.mask(),
            &FilterKind::Fw { mask, .. } => Mask {
                mark: Some(mask),
                ..Mask::default()
            },
            _ => Mask::default(),
        }
    }

    /// The hash of a filter with this mask.
    pub(super) fn hash_of(spec: &FilterSpec) -> u64 {
        let mut fields = Fields::default();
        match &spec.kind {
            FilterKind::Flower(flower) => flower.fields(&mut fields),
            FilterKind::Fw { .. } => fields.add(spec.handle.into()),
            _ => {}
        }
        fields.hash()
    }

    /// The hash of a frame. `None`: it lacks a header, so no filter with this mask matches it.
    pub(super) fn hash(&self, frame: &Frame<'_>) -> Option<u64> {
        let mut fields = Fields::default();
        if let Some(mask) = self.mark {
            fields.add((frame.packet.mark() & mask).into());
        }
        for &(field, mask) in &self.fields {
            fields.add(frame.field(field)? & mask);
        }
        if self.vlan_id || self.vlan_prio || self.vlan_ethtype {
            let (tag, ethertype) = frame.tag()?;
            if self.vlan_id {
                fields.add((tag & 0x0fff).into());
            }
            if self.vlan_prio {
                fields.add((tag >> 13).into());
            }
            if self.vlan_ethtype {
                fields.add(ethertype.into());
            }
        }
        let reads_ports = self.src_port.is_some() || self.dst_port.is_some();
        let reads_addresses = self.src_ip.is_some() || self.dst_ip.is_some();
        if !(reads_ports || reads_addresses || self.ip_proto || self.ip_tos.is_some()) {
            return Some(fields.hash());
        }
        let headers = frame.headers()?;
        if headers.network == Network::Other {
            return None;
        }
        if self.ip_proto {
            fields.add(headers.protocol.into());
        }
        if let Some(mask) = self.ip_tos {
            fields.add((headers.traffic_class & mask).into());
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
                return None;
            };
            for (ports, port) in [(self.src_port, source), (self.dst_port, destination)] {
                if ports == Some(Ports::One) {
                    fields.add(port.into());
                }
            }
        }
        if reads_addresses {
            let (source, destination) = frame.addresses()?;
            for (mask, address) in [(self.src_ip, source), (self.dst_ip, destination)] {
                let Some((is_ipv4, len)) = mask else { continue };
                if address.is_ipv4() != is_ipv4 {
                    return None;
                }
                fields.add_address(address, len);
            }
        }
        Some(fields.hash())
    }
}

impl Flower {
    pub(super) fn mask(&self) -> Mask {
        let prefix = |prefix: &Prefix| (prefix.is_ipv4(), prefix.bits());
        let ports = |range: &RangeInclusive<u16>| match range.start() == range.end() {
            true => Ports::One,
            false => Ports::Range,
        };
        Mask {
            indev: self.indev.is_some(),
            vlan_id: self.vlan_id.is_some(),
            vlan_prio: self.vlan_prio.is_some(),
            vlan_ethtype: self.vlan_ethtype.is_some(),
            src_ip: self.src_ip.as_ref().map(prefix),
            dst_ip: self.dst_ip.as_ref().map(prefix),
            ip_proto: self.ip_proto.is_some(),
            ip_tos: self.ip_tos.map(|(_, mask)| mask),
            src_port: self.src_port.as_ref().map(ports),
            dst_port: self.dst_port.as_ref().map(ports),
            mark: self.mark.map(|(_, mask)| mask),
            fields: self.fields.iter().map(|of| (of.field, of.mask)).collect(),
        }
    }

    /// In the order of [`Mask::hash`].
    fn fields(&self, fields: &mut Fields) {
        if let Some((value, mask)) = self.mark {
            fields.add((value & mask).into());
        }
        for of in &self.fields {
            fields.add(of.value & of.mask);
        }
        let tag = [
            self.vlan_id,
            self.vlan_prio.map(u16::from),
            self.vlan_ethtype,
        ];
        tag.into_iter().flatten().for_each(|n| fields.add(n.into()));
        if let Some(protocol) = self.ip_proto {
            fields.add(protocol.into());
        }
        if let Some((value, mask)) = self.ip_tos {
            fields.add((value & mask).into());
        }
        for ports in [&self.src_port, &self.dst_port].into_iter().flatten() {
            if ports.start() == ports.end() {
                fields.add((*ports.start()).into());
            }
        }
        for prefix in [self.src_ip, self.dst_ip].into_iter().flatten() {
            fields.add_address(prefix.address(), prefix.bits());
        }
    }
}
