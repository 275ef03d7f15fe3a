//! `red` (`TCA_RED_*`).

use softnet_tc::{QdiscSpec, RedCurve, RedSpec, Xstat, Xstats};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::xstats::Slot;
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const PARMS: u16 = 1;
const STAB: u16 = 2;
const MAX_P: u16 = 3;
const FLAGS: u16 = 4;
const EARLY_DROP_BLOCK: u16 = 5;
const MARK_BLOCK: u16 = 6;

pub(super) const ECN: u8 = 1;
pub(super) const HARDDROP: u8 = 2;
const ADAPTIVE: u8 = 4;
const NODROP: u8 = 8;
/// `TC_RED_HISTORIC_FLAGS`.
const HISTORIC: u8 = ECN | HARDDROP | ADAPTIVE;
/// `TC_RED_SUPPORTED_FLAGS`.
const SUPPORTED: u32 = (HISTORIC | NODROP) as u32;

/// `struct tc_red_qopt`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Parms {
    limit: u32,
    min: u32,
    max: u32,
    wlog: u8,
    plog: u8,
    cell_log: u8,
    flags: u8,
}

/// `struct nla_bitfield32`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Bits {
    value: u32,
    selector: u32,
}

const POLICY: Policy = Policy {
    max: MARK_BLOCK,
    strict_from: FLAGS,
    rules: &[
        (PARMS, Rule::Min(size_of::<Parms>())),
        (STAB, Rule::Min(256)),
        (MAX_P, Rule::U32),
        (FLAGS, Rule::Bits(SUPPORTED)),
        (EARLY_DROP_BLOCK, Rule::U32),
        (MARK_BLOCK, Rule::U32),
    ],
};

fn flags(spec: &RedSpec) -> u8 {
    let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    flag(spec.ecn, ECN)
        | flag(spec.harddrop, HARDDROP)
        | flag(spec.adaptive, ADAPTIVE)
        | flag(spec.nodrop, NODROP)
}

/// `red_init`, `red_change`: a change, too, names all there is, but for flags.
pub(super) fn parse(
    options: Option<Attr<'_>>,
    before: Option<&QdiscSpec>,
) -> Result<QdiscSpec, Error> {
    let refuse = |help: &str| Error::from(Errno::EINVAL).help(help);
    let options = options.ok_or_else(|| refuse("red needs limit, min, max and avpkt"))?;
    let attrs = options.nested(&POLICY)?;
    let (Some(parms), Some(stab)) = (attrs.fixed::<Parms>(PARMS)?, attrs.get(STAB)) else {
        return Err(refuse("red needs limit, min, max and avpkt").at(&options));
    };
    for block in [EARLY_DROP_BLOCK, MARK_BLOCK] {
        if let Some(block) = attrs.get(block) {
            if block.u32()? == 0 {
                return Err(Error::invalid("Block number may not be zero").at(&block));
            }
            let help = "Softnet has no qevents (yet): red's early_drop and mark have no blocks";
            return Err(Error::from(Errno::EOPNOTSUPP).help(help).at(&block));
        }
    }
    let stab = Box::new(stab.fixed::<[u8; 256]>()?);
    let curve = RedCurve {
        min: parms.min,
        max: parms.max,
        wlog: parms.wlog,
        plog: parms.plog,
        cell_log: parms.cell_log,
        max_p: attrs.u32(MAX_P)?.unwrap_or(0),
    };
    let given = attrs.fixed::<Bits>(FLAGS)?;
    if given.is_some() && parms.flags != 0 {
        return Err(Error::invalid(
            "sch_red: flags should be passed either through qopt, or through a dedicated attribute",
        ));
    }
    let bits = given.unwrap_or_else(|| Bits {
        value: (parms.flags & HISTORIC).into(),
        selector: HISTORIC.into(),
    });
    let old = match before {
        Some(QdiscSpec::Red(spec)) => u32::from(flags(spec)),
        _ => 0,
    };
    let flags = ((old & !bits.selector) | bits.value) as u8;
    if flags & NODROP != 0 && flags & ECN == 0 {
        return Err(Error::invalid(
            "sch_red: nodrop mode is only meaningful with ECN",
        ));
    }
    let spec = QdiscSpec::Red(RedSpec {
        limit: parms.limit,
        curve,
        stab,
        ecn: flags & ECN != 0,
        harddrop: flags & HARDDROP != 0,
        adaptive: flags & ADAPTIVE != 0,
        nodrop: flags & NODROP != 0,
        user_flags: parms.flags & !HISTORIC,
    });
    // `red_check_params`, which has no text.
    if let Err(error) = spec.check() {
        return Err(refuse(&error.to_string()));
    }
    Ok(spec)
}

/// Probability at `max` that is in use: the kernel shows what it made of `plog`.
pub(super) fn shown_max_p(curve: &RedCurve) -> u32 {
    let delta = curve.max.saturating_sub(curve.min).max(1);
    let of_plog = u32::MAX
        .checked_shr(curve.plog.into())
        .unwrap_or(u32::MAX)
        .wrapping_mul(delta);
    if curve.max_p == 0 {
        of_plog
    } else {
        curve.max_p
    }
}

/// With `adaptive` the probability is the present one, if it is known.
pub(super) fn dump(spec: &RedSpec, stats: Option<&Xstats>, out: &mut Message<'_>) {
    let curve = &spec.curve;
    let now = stats.and_then(|stats| stats.value(Xstat::MaxP));
    let max_p = match now {
        Some(now) if spec.adaptive => now as u32,
        _ => shown_max_p(curve),
    };
    out.nest(TCA_OPTIONS, |out| {
        let parms = Parms {
            limit: spec.limit,
            min: curve.min,
            max: curve.max,
            wlog: curve.wlog,
            plog: curve.plog,
            cell_log: curve.cell_log,
            flags: flags(spec) & HISTORIC | spec.user_flags,
        };
        out.put(PARMS, &parms);
        out.put_u32(MAX_P, max_p);
        let bits = Bits {
            value: flags(spec).into(),
            selector: SUPPORTED,
        };
        out.put(FLAGS, &bits);
    });
}

/// `struct tc_red_xstats`.
pub(super) const XSTATS: &[Slot] = &[
    Slot::U32(Xstat::EarlyDrops),
    Slot::U32(Xstat::QueueDrops),
    // `other`, which nothing in the kernel counts, either.
    Slot::Zero(4),
    Slot::U32(Xstat::Marked),
];
