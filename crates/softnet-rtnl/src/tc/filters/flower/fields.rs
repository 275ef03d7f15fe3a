//! Keys of `flower` that have a row in a table, and those of MPLS.

use softnet_tc::{ETH_P_IP, ETH_P_IPV6, FieldMatch, Flower, FlowerField};

use super::{NUM_OF_VLANS, TCP, UDP};
use crate::nl::{Attr, Attrs, Error, Message, Policy, Rule};
use crate::tc::filters::kinds::refusal;

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

/// True if an attribute of this kind is a key, or the mask of one, of those here.
pub(super) fn is_field(kind: u16) -> bool {
    matches!(kind, MPLS_OPTS | 67..=70) || FIELDS.iter().any(|row| kind == row.1 || kind == row.2)
}

/// Fields with a table of their own (`fl_set_key`). What packets of the filter do not have is
/// passed over, as the kernel does.
pub(super) fn fields(
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
pub(super) fn dump_fields(
    network: Option<u16>,
    has_two: bool,
    flower: &Flower,
    out: &mut Message<'_>,
) {
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
