//! `flower` (`TCA_FLOWER_*`). Keys of tunnels, connection tracking and hardware are refused. A
//! match on the mark, which the kernel does not have, is not shown.
//!
//! Source: `net/sched/cls_flower.c`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use softnet_tc::{
    ChainTemplate, ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, FieldMatch, FilterSpec, FilterStats, Flower,
    FlowerField, Prefix,
};

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

/// The form of a field in messages.
#[derive(Clone, Copy)]
enum Form {
    U8,
    /// In the machine's byte order.
    U16,
    Be16,
    Be32,
    Mac,
}

/// The packets that have a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Any,
    SecondTag,
    Pppoe,
    Ip,
    Proto(u8),
    Icmp4,
    Icmp6,
    Arp,
}

/// Attribute, that of the mask (0: all bits count), form and packets of each field.
const FIELDS: [(FlowerField, u16, u16, Form, Of); 26] = [
    (FlowerField::DstMac, 4, 5, Form::Mac, Of::Any),
    (FlowerField::SrcMac, 6, 7, Form::Mac, Of::Any),
    (FlowerField::NumOfVlans, NUM_OF_VLANS, 0, Form::U8, Of::Any),
    (FlowerField::CvlanId, 77, 0, Form::U16, Of::SecondTag),
    (FlowerField::CvlanPrio, 78, 0, Form::U8, Of::SecondTag),
    (FlowerField::CvlanEthtype, 79, 0, Form::Be16, Of::SecondTag),
    (FlowerField::PppoeSid, 103, 0, Form::Be16, Of::Pppoe),
    (FlowerField::PppProto, 104, 0, Form::Be16, Of::Pppoe),
    (FlowerField::IpTtl, 75, 76, Form::U8, Of::Ip),
    (FlowerField::IpFlags, 47, 48, Form::Be32, Of::Any),
    (FlowerField::TcpFlags, 71, 72, Form::Be16, Of::Proto(TCP)),
    (FlowerField::SrcPort, 18, 35, Form::Be16, Of::Proto(TCP)),
    (FlowerField::SrcPort, 20, 37, Form::Be16, Of::Proto(UDP)),
    (FlowerField::SrcPort, 41, 39, Form::Be16, Of::Proto(SCTP)),
    (FlowerField::DstPort, 19, 36, Form::Be16, Of::Proto(TCP)),
    (FlowerField::DstPort, 21, 38, Form::Be16, Of::Proto(UDP)),
    (FlowerField::DstPort, 42, 40, Form::Be16, Of::Proto(SCTP)),
    (FlowerField::IcmpType, 51, 52, Form::U8, Of::Icmp4),
    (FlowerField::IcmpCode, 49, 50, Form::U8, Of::Icmp4),
    (FlowerField::IcmpType, 55, 56, Form::U8, Of::Icmp6),
    (FlowerField::IcmpCode, 53, 54, Form::U8, Of::Icmp6),
    (FlowerField::ArpOp, 61, 62, Form::U8, Of::Arp),
    (FlowerField::ArpSip, 57, 58, Form::Be32, Of::Arp),
    (FlowerField::ArpTip, 59, 60, Form::Be32, Of::Arp),
    (FlowerField::ArpSha, 63, 64, Form::Mac, Of::Arp),
    (FlowerField::ArpTha, 65, 66, Form::Mac, Of::Arp),
];

/// The parts of a label stack entry: attribute of the first entry, and in `LSE`; bits and shift.
const MPLS: [(u16, u16, u64, u32); 4] = [
    (67, 2, 0xff, 0),
    (68, 3, 1, 8),
    (69, 4, 7, 9),
    (70, 5, 0xf_ffff, 12),
];
const MPLS_OPTS: u16 = 99;
const LSE: u16 = 1;
const LSE_DEPTH: u16 = 1;
const LSE_POLICY: Policy = Policy::new(
    5,
    &[
        (LSE_DEPTH, Rule::U8),
        (2, Rule::U8),
        (3, Rule::U8),
        (4, Rule::U8),
        (5, Rule::U32),
    ],
);

const SCTP: u8 = 132;

impl Form {
    fn read(self, attr: &Attr<'_>) -> Result<u64, Error> {
        Ok(match self {
            Form::U8 => attr.u8()?.into(),
            Form::U16 => attr.u16()?.into(),
            Form::Be16 => attr.be16()?.into(),
            Form::Be32 => attr.be32()?.into(),
            Form::Mac => {
                let bytes = attr.mac()?;
                bytes
                    .into_iter()
                    .fold(0, |sum, byte| sum << 8 | u64::from(byte))
            }
        })
    }

    fn put(self, kind: u16, value: u64, out: &mut Message<'_>) {
        match self {
            Form::U8 => out.put_u8(kind, value as u8),
            Form::U16 => out.put_u16(kind, value as u16),
            Form::Be16 => out.put_be16(kind, value as u16),
            Form::Be32 => out.put_be32(kind, value as u32),
            Form::Mac => out.put_bytes(kind, &value.to_be_bytes()[2..]),
        }
    }
}

impl Of {
    /// True if packets of a filter for this network and protocol have the field, of two tags if
    /// `has_two`.
    fn holds(self, network: Option<u16>, has_two: bool, flower: &Flower) -> bool {
        let proto = flower.ip_proto;
        match self {
            Of::Any => true,
            Of::SecondTag => has_two,
            Of::Pppoe => network == Some(0x8864),
            Of::Ip => matches!(network, None | Some(ETH_P_IP | ETH_P_IPV6)),
            Of::Proto(of) => proto == Some(of),
            Of::Icmp4 => proto == Some(1) && network != Some(ETH_P_IPV6),
            Of::Icmp6 => proto == Some(58) && network != Some(ETH_P_IP),
            Of::Arp => matches!(network, Some(0x0806 | 0x8035)),
        }
    }
}

/// Fields with a table of their own (`fl_set_key`). What packets of the filter do not have is
/// passed over, as the kernel does.
fn fields(
    attrs: &Attrs<'_>,
    network: Option<u16>,
    has_two: bool,
    flower: &Flower,
) -> Result<Vec<FieldMatch>, Error> {
    let mut found = Vec::new();
    for (field, kind, mask_kind, form, of) in FIELDS {
        let is_read = of.holds(network, has_two, flower) && (of != Of::Ip || network.is_some());
        let Some(attr) = attrs.get(kind).filter(|_| is_read) else {
            continue;
        };
        let mask = match attrs.get(mask_kind).filter(|_| mask_kind != 0) {
            Some(mask) => form.read(&mask)?,
            None if field == FlowerField::IpFlags => {
                return Err(Error::invalid("Missing flags mask").at(&attr));
            }
            None => u64::MAX,
        };
        if field == FlowerField::IpFlags && mask & !field.ones() != 0 {
            return Err(refusal("ip_flags but frag and firstfrag").at(&attr));
        }
        let ports = matches!(field, FlowerField::SrcPort | FlowerField::DstPort);
        // Whole ports of TCP and UDP have a place of their own.
        if ports && mask & 0xffff == 0xffff && of != Of::Proto(SCTP) {
            continue;
        }
        found.push(FieldMatch::new(field, form.read(&attr)?, mask));
    }
    if matches!(network, Some(0x8847 | 0x8848)) {
        mpls(attrs, &mut found)?;
    }
    found.retain(|of| of.mask != 0);
    found.sort();
    Ok(found)
}

/// `fl_set_key_mpls`
fn mpls(attrs: &Attrs<'_>, found: &mut Vec<FieldMatch>) -> Result<(), Error> {
    let mut entries = [(0, 0); 7];
    let mut add = |depth: usize, part: &Attr<'_>, bits: u64, shift: u32| {
        let value = match bits > 0xff {
            true => part.u32()?.into(),
            false => u64::from(part.u8()?),
        };
        if value & !bits != 0 {
            let text = "Part of an MPLS label stack entry is out of range";
            return Err(Error::invalid(text).at(part));
        }
        let Some(entry) = entries.get_mut(depth) else {
            return Err(Error::invalid("MPLS_DEPTH must be between 1 and 7").at(part));
        };
        entry.0 |= value << shift;
        entry.1 |= bits << shift;
        Ok(())
    };
    for (kind, _, bits, shift) in MPLS {
        if let Some(part) = attrs.get(kind) {
            if attrs.has(MPLS_OPTS) {
                let text = "MPLS label, Traffic Class, Bottom Of Stack and Time To Live must be \
                            encapsulated in the MPLS options attribute";
                return Err(Error::invalid(text).at(&part));
            }
            add(0, &part, bits, shift)?;
        }
    }
    for lse in attrs.get(MPLS_OPTS).iter().flat_map(Attr::children) {
        if lse.kind() != LSE {
            return Err(Error::invalid("Invalid MPLS option type").at(&lse));
        }
        let parts = lse.nested(&LSE_POLICY)?;
        let none = || Error::invalid("Missing MPLS option \"depth\"").at(&lse);
        let depth = parts.get(LSE_DEPTH).ok_or_else(none)?;
        let number = usize::from(depth.u8()?).wrapping_sub(1);
        for (_, kind, bits, shift) in MPLS {
            if let Some(part) = parts.get(kind) {
                add(number, &part, bits, shift)?;
            }
        }
    }
    for (depth, (value, mask)) in (0..).zip(entries) {
        found.push(FieldMatch::new(FlowerField::Mpls(depth), value, mask));
    }
    Ok(())
}

/// Writes the fields with a table of their own. tc has no word for a part of an entry of MPLS
/// that has only some of its bits.
fn dump_fields(network: Option<u16>, has_two: bool, flower: &Flower, out: &mut Message<'_>) {
    let is_mpls = |of: &&FieldMatch| matches!(of.field, FlowerField::Mpls(_));
    for of in flower.fields.iter().filter(|of| !is_mpls(of)) {
        let holds = |row: &&(FlowerField, u16, u16, Form, Of)| {
            row.0 == of.field && row.4.holds(network, has_two, flower)
        };
        let Some((_, kind, mask, form, _)) = FIELDS.iter().find(holds) else {
            continue;
        };
        form.put(*kind, of.value, out);
        if *mask != 0 {
            form.put(*mask, of.mask, out);
        }
    }
    let mut entries = flower.fields.iter().filter(is_mpls).peekable();
    let Some(first) = entries.peek().copied() else {
        return;
    };
    let part = |of: &FieldMatch, kind: u16, bits: u64, shift: u32, out: &mut Message<'_>| {
        if of.mask >> shift & bits == bits {
            let value = of.value >> shift & bits;
            match bits > 0xff {
                true => out.put_u32(kind, value as u32),
                false => out.put_u8(kind, value as u8),
            }
        }
    };
    if flower.fields.iter().filter(is_mpls).count() == 1 && first.field == FlowerField::Mpls(0) {
        for (kind, _, bits, shift) in MPLS {
            part(first, kind, bits, shift, out);
        }
        return;
    }
    out.nest(MPLS_OPTS, |out| {
        for of in entries {
            let FlowerField::Mpls(depth) = of.field else {
                continue;
            };
            out.nest(LSE, |out| {
                out.put_u8(LSE_DEPTH, depth + 1);
                for (_, kind, bits, shift) in MPLS {
                    part(of, kind, bits, shift, out);
                }
            });
        }
    });
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
        let in_fields = |&(_, value, mask, ..): &(FlowerField, u16, u16, Form, Of)| {
            kind == value || kind == mask
        };
        matches!(kind, ACT | MPLS_OPTS | 67..=70)
            || POLICY.rules.iter().any(|(known, _)| *known == kind)
            || FIELDS.iter().any(in_fields)
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
