//! `fw` (`TCA_FW_*`).

use softnet_tc::{FilterSpec, FilterStats, Indev};

use super::action::{self, Effect};
use super::indev;
use crate::nl::{Attr, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;
use crate::tc::actions::{FilterFlags, ShownAt};

const CLASSID: u16 = 1;
const POLICE: u16 = 2;
const INDEV: u16 = 3;
const ACT: u16 = 4;
const MASK: u16 = 5;

const POLICY: Policy = Policy::new(
    5,
    &[
        (CLASSID, Rule::U32),
        (INDEV, Rule::Str { max: 16 }),
        (MASK, Rule::U32),
    ],
);

/// `fw_change`: mask, link and effect.
pub(super) fn parse(options: &Attr<'_>) -> Result<(u32, Option<Indev>, Effect), Error> {
    let attrs = options.nested(&POLICY)?;
    let mask = attrs.u32(MASK)?.unwrap_or(u32::MAX);
    Ok((
        mask,
        indev::parse(&attrs, INDEV)?,
        Effect::parse(&attrs, CLASSID, (ACT, Some(POLICE)), FilterFlags::default())?,
    ))
}

/// `fw_dump`
pub(super) fn dump(
    mask: u32,
    spec: &FilterSpec,
    _: &FilterStats,
    at: &ShownAt,
    out: &mut Message<'_>,
) {
    out.nest(TCA_OPTIONS, |out| {
        if let Some(class) = spec.class {
            out.put_u32(CLASSID, class.raw());
        }
        indev::dump(INDEV, spec.kind.indev(), out);
        if mask != u32::MAX {
            out.put_u32(MASK, mask);
        }
        action::dump((ACT, Some(POLICE)), spec, at, out);
    });
}
