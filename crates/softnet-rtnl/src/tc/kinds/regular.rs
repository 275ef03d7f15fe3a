//! Kinds whose options are attributes with one number each, as the tables of their options say
//! ([`QdiscOption::attr`](softnet_tc::QdiscOption::attr)).

use softnet_tc::{
    Absent, Attribute, Field, LinkDefaults, QdiscKind, QdiscOption, QdiscSpec, Wire,
};

use crate::nl::{Attrs, Errno, Error, Message, Policy, Rule};

pub(super) fn options(kind: &str) -> &'static [QdiscOption] {
    QdiscKind::find(kind).map_or(&[], |kind| kind.options)
}

/// The policy of a kind's options. `others` are attributes that the table does not have, or that
/// are checked otherwise. It is kept for good: for a `static`.
pub(super) fn policy(kind: &str, strict_from: u16, others: &[(u16, Rule)]) -> Policy {
    let own = options(kind).iter().filter_map(|option| option.attr);
    let own = own.map(|attr| match attr.wire {
        Wire::U8 => (attr.kind, Rule::U8),
        Wire::Own(size) => (attr.kind, Rule::Exact(size)),
        Wire::U32 | Wire::Micros | Wire::CodelMicros | Wire::TickMicros => (attr.kind, Rule::U32),
    });
    let rules: Vec<_> = others.iter().copied().chain(own).collect();
    Policy {
        max: rules.iter().map(|(kind, _)| *kind).max().unwrap_or(0),
        strict_from,
        rules: rules.leak(),
    }
}

/// Takes the numbers over that a request gives.
pub(super) fn parse(spec: &mut QdiscSpec, attrs: &Attrs<'_>) -> Result<(), Error> {
    for option in options(spec.kind()) {
        let Some(Attribute {
            kind,
            wire,
            within: (least, most),
            absent,
        }) = option.attr
        else {
            continue;
        };
        let (Some(attr), Some(field)) = (attrs.get(kind), (option.field)(spec)) else {
            continue;
        };
        let given = match wire {
            Wire::Own(_) => continue,
            Wire::U8 => attr.u8()?.into(),
            _ => attr.u32()?,
        };
        if absent == Absent::Highest && given == u32::MAX {
            field.clear();
            continue;
        }
        let number = u64::from(given.clamp(least, most));
        let number = match (wire, &field) {
            (Wire::Micros | Wire::CodelMicros | Wire::TickMicros, _) => number * 1000,
            (_, Field::Log2(_)) => 1_u64.checked_shl(given).unwrap_or(u64::MAX),
            _ => number,
        };
        field
            .set(number)
            .map_err(|_| Error::from(Errno::EINVAL).at(&attr))?;
    }
    Ok(())
}

/// Puts an attribute for each of these options; `own` puts those that have a structure.
pub(super) fn dump(
    options: &[QdiscOption],
    spec: &QdiscSpec,
    link: &LinkDefaults,
    out: &mut Message<'_>,
    own: impl Fn(u16, &mut Message<'_>),
) {
    let mut spec = spec.clone();
    for option in options {
        let (Some(attr), Some(field)) = (option.attr, (option.field)(&mut spec)) else {
            continue;
        };
        let number = match (field.number(), attr.wire, attr.absent) {
            (_, Wire::Own(_), _) => {
                own(attr.kind, out);
                continue;
            }
            (Some(nanos), Wire::Micros, _) => nanos / 1000,
            (Some(nanos), Wire::CodelMicros, _) => super::codel::shown(nanos).into(),
            (Some(nanos), Wire::TickMicros, _) => ((nanos >> 6) << 6) / 1000,
            (Some(number), _, _) if matches!(field, Field::Log2(_)) => number.ilog2().into(),
            (Some(number), _, _) => number,
            (None, _, Absent::Hidden) => continue,
            (None, _, Absent::Highest) => u64::MAX,
            (None, _, Absent::Frames(count)) => link.frame().saturating_mul(count).into(),
        };
        let number = u32::try_from(number).unwrap_or(u32::MAX).max(attr.within.0);
        match attr.wire {
            Wire::U8 => out.put_u8(attr.kind, number as u8),
            _ => out.put_u32(attr.kind, number),
        }
    }
}
