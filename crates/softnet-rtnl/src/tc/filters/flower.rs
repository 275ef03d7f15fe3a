//! `flower` (`TCA_FLOWER_*`). Keys of tunnels, connection tracking and hardware are refused. A
//! match on the mark, which the kernel does not have, is not shown.
//!
//! Source: `net/sched/cls_flower.c`.

mod fields;

use std::net::IpAddr;
use std::ops::RangeInclusive;

use softnet_tc::{
    ChainTemplate, ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, FilterSpec, FilterStats, Flower, FlowerField,
    Prefix,
};

use self::fields::{dump_fields, fields, is_field};
use super::action::{self, Effect};
use super::indev;
use super::kinds::{check_flags, put_flags, refusal};
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;
use crate::tc::actions::ShownAt;

const CLASSID: u16 = 1;
const INDEV: u16 = 2;
const ACT: u16 = 3;
const ETH_TYPE: u16 = 8;
const IP_PROTO: u16 = 9;
/// Addresses; the mask of each has the next number.
const IPV4_SRC: u16 = 10;
const IPV4_DST: u16 = 12;
const IPV6_SRC: u16 = 14;
const IPV6_DST: u16 = 16;
const FLAGS: u16 = 22;
const VLAN_ID: u16 = 23;
const VLAN_PRIO: u16 = 24;
const VLAN_ETH_TYPE: u16 = 25;
const CVLAN_ETH_TYPE: u16 = 79;
const IP_TOS: u16 = 73;
const IP_TOS_MASK: u16 = 74;
const IN_HW_COUNT: u16 = 86;
const NUM_OF_VLANS: u16 = 102;

/// The attributes of one port.
struct Port {
    /// For each of TCP and UDP the value, and its mask.
    exact: [(u8, u16, u16); 2],
    min: u16,
    max: u16,
    invalid: &'static str,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SRC_PORT: Port = Port {
    exact: [(TCP, 18, 35), (UDP, 20, 37)],
    min: 87,
    max: 88,
    invalid: "Invalid source port range (min must be strictly smaller than max)",
};
const DST_PORT: Port = Port {
    exact: [(TCP, 19, 36), (UDP, 21, 38)],
    min: 89,
    max: 90,
    invalid: "Invalid destination port range (min must be strictly smaller than max)",
};

/// Types up to the highest are read, so that those of other keys can be refused.
const POLICY: Policy = Policy::new(
    127,
    &[
        (CLASSID, Rule::U32),
        (INDEV, Rule::Str { max: 16 }),
        (ETH_TYPE, Rule::U16),
        (IP_PROTO, Rule::U8),
        (IPV4_SRC, Rule::U32),
        (IPV4_SRC + 1, Rule::U32),
        (IPV4_DST, Rule::U32),
        (IPV4_DST + 1, Rule::U32),
        (IPV6_SRC, Rule::Min(16)),
        (IPV6_SRC + 1, Rule::Min(16)),
        (IPV6_DST, Rule::Min(16)),
        (IPV6_DST + 1, Rule::Min(16)),
        (18, Rule::U16),
        (19, Rule::U16),
        (20, Rule::U16),
        (21, Rule::U16),
        (FLAGS, Rule::U32),
        (VLAN_ID, Rule::U16),
        (VLAN_PRIO, Rule::U8),
        (VLAN_ETH_TYPE, Rule::U16),
        (35, Rule::U16),
        (36, Rule::U16),
        (37, Rule::U16),
        (38, Rule::U16),
        (IP_TOS, Rule::U8),
        (IP_TOS_MASK, Rule::U8),
        (IN_HW_COUNT, Rule::U32),
        (87, Rule::U16),
        (88, Rule::U16),
        (89, Rule::U16),
        (90, Rule::U16),
    ],
);

fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8)
}

/// Name in tc of a key that Softnet does not have.
fn name(kind: u16) -> &'static str {
    match kind {
        26..=34 | 43..=46 | 80..=85 | 110 | 111 => "of a tunnel (enc_*)",
        91..=98 => "of connection tracking",
        100 | 101 => "hash",
        105 => "l2tpv3_sid",
        106 => "l2_miss",
        107 => "cfm",
        108 | 109 => "spi",
        _ => "of this type",
    }
}

fn be16(attrs: &Attrs<'_>, kind: u16) -> Result<Option<u16>, Error> {
    attrs.get(kind).map(|attr| attr.be16()).transpose()
}

/// `fl_change`, `fl_set_key`. What is behind a header of another kind than the filter's protocol
/// is passed over, as the kernel does.
pub(super) fn parse(options: &Attr<'_>, protocol: u16) -> Result<(Flower, Effect), Error> {
    let attrs = options.nested(&POLICY)?;
    let known = |attr: &Attr<'_>| {
        let kind = attr.kind();
        kind == ACT || is_field(kind) || POLICY.rules.iter().any(|(known, _)| *known == kind)
    };
    if let Some(key) = attrs.iter().find(|attr| !known(attr)) {
        let what = format!("flower key {}", name(key.kind()));
        return Err(refusal(&what).at(&key));
    }
    let flags = check_flags(&attrs, FLAGS)?;
    let mut flower = Flower {
        indev: indev::parse(&attrs, INDEV)?,
        ..Flower::default()
    };
    let ethertype = be16(&attrs, ETH_TYPE)?;
    // What is said of the tags' number is said of the EtherTypes (`is_vlan_key`).
    let tags = attrs.u8(NUM_OF_VLANS)?.unwrap_or(0);
    let mut network = ethertype.filter(|&ethertype| tags == 0 && !is_vlan(ethertype));
    if tags > 0 || is_vlan(protocol) || ethertype.is_none() {
        flower.vlan_id = attrs.u16(VLAN_ID)?.map(|id| id & 0x0fff);
        flower.vlan_prio = attrs.u8(VLAN_PRIO)?.map(|prio| prio & 7);
        flower.vlan_ethtype = be16(&attrs, VLAN_ETH_TYPE)?;
        network = flower.vlan_ethtype.or(network);
        if has_two_tags(tags.into(), &flower) {
            network = be16(&attrs, CVLAN_ETH_TYPE)?;
        }
    }
    flower.src_ip = address(&attrs, IPV4_SRC, IPV6_SRC)?;
    flower.dst_ip = address(&attrs, IPV4_DST, IPV6_DST)?;
    if let Some(ethertype) = ethertype
        && ethertype != protocol
        && flower.vlan_ethtype != Some(ethertype)
        && be16(&attrs, CVLAN_ETH_TYPE)? != Some(ethertype)
        && (protocol != ETH_P_ALL || family(&flower) != Some(ethertype))
    {
        return Err(refusal("EtherType but their protocol"));
    }
    // Of no network protocol in particular, the kernel reads none of these.
    if matches!(network, Some(ETH_P_IP | ETH_P_IPV6)) {
        flower.ip_proto = attrs.u8(IP_PROTO)?;
        let mask = attrs.u8(IP_TOS_MASK)?.unwrap_or(u8::MAX);
        let tos = attrs.u8(IP_TOS)?.filter(|_| mask != 0);
        flower.ip_tos = tos.map(|tos| (tos, mask));
    }
    if let Some(protocol) = flower.ip_proto {
        flower.src_port = SRC_PORT.parse(&attrs, protocol)?;
        flower.dst_port = DST_PORT.parse(&attrs, protocol)?;
    }
    let has_two = has_two_tags(tags.into(), &flower);
    flower.fields = fields(&attrs, network, has_two, &flower)?;
    Ok((flower, Effect::parse(&attrs, CLASSID, (ACT, None), flags)?))
}

/// `fl_tmplt_create`. The protocol is the options', not the request's.
pub(super) fn parse_template(options: &Attr<'_>) -> Result<ChainTemplate, Error> {
    let protocol = be16(&options.nested(&POLICY)?, ETH_TYPE)?.unwrap_or(ETH_P_ALL);
    let (flower, _) = parse(options, protocol)?;
    Ok(ChainTemplate { protocol, flower })
}

/// True if packets of a filter have two tags: it says so, or the EtherType behind the first is one.
fn has_two_tags(tags: u64, flower: &Flower) -> bool {
    tags > 1 || flower.vlan_ethtype.is_some_and(is_vlan)
}

/// The EtherType of the addresses.
fn family(flower: &Flower) -> Option<u16> {
    let prefix = flower.src_ip.or(flower.dst_ip)?;
    Some(match prefix.is_ipv4() {
        true => ETH_P_IP,
        false => ETH_P_IPV6,
    })
}

fn address(attrs: &Attrs<'_>, v4: u16, v6: u16) -> Result<Option<Prefix>, Error> {
    let has_v4 = attrs.has(IPV4_SRC) || attrs.has(IPV4_DST);
    let kind = if has_v4 { v4 } else { v6 };
    let Some(attr) = attrs.get(kind) else {
        return Ok(None);
    };
    let mask = attrs.get(kind + 1);
    let (address, ones, zeros): (IpAddr, u32, u32) = if has_v4 {
        let mask = mask.map_or(Ok(u32::MAX), |mask| mask.be32())?;
        let address = attr.ipv4()?;
        (address.into(), mask.leading_ones(), mask.trailing_zeros())
    } else {
        let mask = mask.map_or(Ok(u128::MAX), |mask| mask.ipv6().map(u128::from))?;
        let address = attr.ipv6()?;
        (address.into(), mask.leading_ones(), mask.trailing_zeros())
    };
    let bits = if has_v4 { 32 } else { 128 };
    if ones + zeros != bits {
        return Err(refusal("masks of addresses with gaps").at(&attr));
    }
    // At most 128.
    let prefix = (ones > 0).then(|| Prefix::new(address, ones as u8));
    Ok(prefix.flatten())
}

impl Port {
    /// Ports of a packet of this protocol (`fl_set_key_port_range`).
    fn parse(
        &self,
        attrs: &Attrs<'_>,
        protocol: u8,
    ) -> Result<Option<RangeInclusive<u16>>, Error> {
        let exact = self.exact.iter().find(|(of, ..)| *of == protocol);
        let Some(&(_, value, mask)) = exact else {
            return Ok(None);
        };
        let (min, max) = (be16(attrs, self.min)?, be16(attrs, self.max)?);
        let value = be16(attrs, value)?;
        let mask = be16(attrs, mask)?.unwrap_or(u16::MAX);
        match (min, max, value) {
            (Some(min), Some(max), _) if max <= min => Err(Error::invalid(self.invalid)),
            (Some(_), Some(_), Some(_)) => Err(refusal("port and range of ports at once")),
            (Some(min), Some(max), None) => Ok(Some(min..=max)),
            (None, None, Some(_)) if mask == 0 => Ok(None),
            (None, None, Some(port)) if mask == u16::MAX => Ok(Some(port..=port)),
            // Ports of which only some bits count are fields.
            (None, None, Some(_)) => Ok(None),
            (None, None, None) => Ok(None),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn dump(&self, ports: &RangeInclusive<u16>, protocol: Option<u8>, out: &mut Message<'_>) {
        let (first, last) = (*ports.start(), *ports.end());
        let exact = self.exact.iter().find(|(of, ..)| Some(*of) == protocol);
        let Some(&(_, value, mask)) = exact else {
            // There is no word for a port of both.
            return;
        };
        if first == last {
            out.put_be16(value, first);
            out.put_be16(mask, u16::MAX);
        } else {
            out.put_be16(self.min, first);
            out.put_be16(self.max, last);
        }
    }
}

/// `fl_dump`
pub(super) fn dump(
    flower: &Flower,
    spec: &FilterSpec,
    _: &FilterStats,
    at: &ShownAt,
    out: &mut Message<'_>,
) {
    out.nest(TCA_OPTIONS, |out| {
        if let Some(class) = spec.class {
            out.put_u32(CLASSID, class.raw());
        }
        dump_key(flower, spec.protocol, out);
        put_flags(FLAGS, spec, out);
        out.put_u32(IN_HW_COUNT, 0);
        action::dump((ACT, None), spec, at, out);
    });
}

/// `fl_tmplt_dump`
pub(super) fn dump_template(template: &ChainTemplate, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| {
        dump_key(&template.flower, template.protocol, out);
    });
}

/// `fl_dump_key`
fn dump_key(flower: &Flower, protocol: u16, out: &mut Message<'_>) {
    indev::dump(INDEV, flower.indev.as_ref(), out);
    // The one behind the tags, as the kernel has it.
    let value = |field| flower.fields.iter().find(|of| of.field == field);
    let value = |field| value(field).map(|of| of.value);
    let tags = value(FlowerField::NumOfVlans).unwrap_or(0);
    let has_tags = is_vlan(protocol) || tags > 0;
    let has_two = has_two_tags(tags, flower);
    let second = value(FlowerField::CvlanEthtype).map(|value| value as u16);
    let ethertype = match protocol {
        _ if has_tags && has_two => second,
        _ if has_tags => flower.vlan_ethtype,
        ETH_P_ALL => family(flower),
        _ => Some(protocol),
    };
    if let Some(ethertype) = ethertype {
        out.put_be16(ETH_TYPE, ethertype);
    }
    if let Some(id) = flower.vlan_id {
        out.put_u16(VLAN_ID, id);
    }
    if let Some(prio) = flower.vlan_prio {
        out.put_u8(VLAN_PRIO, prio);
    }
    if let Some(ethertype) = flower.vlan_ethtype {
        out.put_be16(VLAN_ETH_TYPE, ethertype);
    }
    if let Some(protocol) = flower.ip_proto {
        out.put_u8(IP_PROTO, protocol);
    }
    if let Some((tos, mask)) = flower.ip_tos {
        out.put_u8(IP_TOS, tos);
        out.put_u8(IP_TOS_MASK, mask);
    }
    for (prefix, v4, v6) in [
        (flower.src_ip, IPV4_SRC, IPV6_SRC),
        (flower.dst_ip, IPV4_DST, IPV6_DST),
    ] {
        let Some(prefix) = prefix else { continue };
        let host = |bits: u32| bits - u32::from(prefix.bits());
        match prefix.address() {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(host(32)).unwrap_or(0);
                out.put_bytes(v4, &address.octets());
                out.put_be32(v4 + 1, mask);
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(host(128)).unwrap_or(0);
                out.put_bytes(v6, &address.octets());
                out.put_bytes(v6 + 1, &mask.to_be_bytes());
            }
        }
    }
    dump_fields(second.or(ethertype), has_two, flower, out);
    for (ports, port) in [(&flower.src_port, SRC_PORT), (&flower.dst_port, DST_PORT)] {
        if let Some(ports) = ports {
            port.dump(ports, flower.ip_proto, out);
        }
    }
}
