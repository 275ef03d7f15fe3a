//! The options of each kind of filter.

use softnet_tc::{FilterKind, FilterList, FilterSpec, FilterStats};

use super::action::Effect;
use super::{Home, Which, basic, flower, fw, matchall, u32};
use crate::nl::{Attr, Attrs, Errno, Error, Message};
use crate::tc::actions::{FilterFlags, ShownAt};

/// `TCA_CLS_FLAGS_*`
const SKIP_HW: u32 = 1 << 0;
const SKIP_SW: u32 = 1 << 1;
const NOT_IN_HW: u32 = 1 << 3;
const VERBOSE: u32 = 1 << 4;

/// A filter's options, parsed.
pub(super) struct Parsed {
    pub(super) handle: u32,
    pub(super) kind: FilterKind,
    pub(super) effect: Effect,
}

/// Refuses the name of a kind that is not there.
pub(super) fn check_kind(kind: &str) -> Result<(), Error> {
    if FilterKind::NAMES.contains(&kind) {
        return Ok(());
    }
    let help = format!("This version has {}", FilterKind::NAMES.join(", "));
    let error = Error::new(Errno::ENOENT).text("TC classifier not found");
    Err(error.help(help))
}

/// Reads the options of a filter that is to be. `before` is the one that it takes the place of, or
/// another one of its priority.
pub(super) fn parse(
    kind: &str,
    options: Option<Attr<'_>>,
    which: &Which<'_>,
    before: Option<&FilterSpec>,
    list: &FilterList,
) -> Result<Parsed, Error> {
    check_kind(kind)?;
    let handle = which.key.handle;
    if kind == "fw" && options.is_none() && handle == 0 {
        // The marks would be classes of a qdisc, which a block has not.
        if let Home::Block(_) = which.home {
            let text = "Must specify mark when attaching fw filter to block";
            return Err(Error::invalid(text));
        }
        return Ok(Parsed {
            handle,
            kind: FilterKind::FwClass,
            effect: Effect::default(),
        });
    }
    if kind == "u32" && options.is_none() {
        if handle != 0 {
            return Err(Error::invalid("cls_u32: Filter handle requires options"));
        }
        return Ok(Parsed {
            handle,
            kind: FilterKind::U32Root,
            effect: Effect::default(),
        });
    }
    let options = options.ok_or(Errno::EINVAL)?;
    let (handle, kind, effect) = match kind {
        "flower" => {
            let (flower, effect) = flower::parse(&options, which.protocol)?;
            (handle, FilterKind::Flower(flower), effect)
        }
        "u32" => u32::parse(&options, which, before, list)?,
        "basic" => {
            let (ematches, effect) = basic::parse(&options)?;
            (handle, FilterKind::Basic(ematches), effect)
        }
        "matchall" => (handle, FilterKind::Matchall, matchall::parse(&options)?),
        _ => {
            let (mask, indev, effect) = fw::parse(&options)?;
            // One that is changed keeps it.
            let indev = indev.or_else(|| before?.kind.indev().cloned());
            (handle, FilterKind::Fw { mask, indev }, effect)
        }
    };
    Ok(Parsed {
        handle,
        kind,
        effect,
    })
}

/// Writes the options of a filter.
pub(super) fn dump(spec: &FilterSpec, stats: &FilterStats, at: &ShownAt, out: &mut Message<'_>) {
    match &spec.kind {
        FilterKind::Flower(flower) => flower::dump(flower, spec, stats, at, out),
        FilterKind::U32(keys) => u32::dump(keys, spec, stats, at, out),
        FilterKind::U32Table { buckets } => u32::dump_table(*buckets, out),
        FilterKind::Basic(ematches) => basic::dump(ematches, spec, stats, at, out),
        FilterKind::Matchall => matchall::dump(spec, stats, at, out),
        FilterKind::Fw { mask, .. } => fw::dump(*mask, spec, stats, at, out),
        FilterKind::U32Root | FilterKind::FwClass => {}
    }
}

/// A program looks at a filter: the kernel asks drivers what they counted of it
/// (`fl_hw_update_stats`, `mall_stats_hw_filter`).
pub(super) fn ask_drivers(spec: &FilterSpec) {
    if matches!(spec.kind, FilterKind::Flower(_) | FilterKind::Matchall) && !spec.skip_hw {
        for action in spec.actions.as_slice() {
            action.show_hw_stats(false);
        }
    }
}

/// Checks the flags of a filter: there is no hardware that could have it (`tc_flags_valid`, which
/// refuses what is shown).
pub(super) fn check_flags(attrs: &Attrs<'_>, kind: u16) -> Result<FilterFlags, Error> {
    let flags = attrs.u32(kind)?.unwrap_or(0);
    let both = SKIP_HW | SKIP_SW;
    if flags & !(both | NOT_IN_HW | VERBOSE) != 0 || flags & both == both {
        return Err(Errno::EINVAL.into());
    }
    if flags & SKIP_SW != 0 {
        let help = "there is no hardware to have the filter; leave skip_sw out";
        return Err(Error::new(Errno::EOPNOTSUPP).help(help));
    }
    Ok(FilterFlags {
        skip_hw: flags & SKIP_HW != 0,
    })
}

pub(super) fn put_flags(kind: u16, spec: &FilterSpec, out: &mut Message<'_>) {
    let skip_hw = if spec.skip_hw { SKIP_HW } else { 0 };
    out.put_u32(kind, skip_hw | NOT_IN_HW);
}

/// For what the kernel has and Softnet has not.
pub(super) fn refusal(what: &str) -> Error {
    Error::new(Errno::EOPNOTSUPP).help(format!("filters have no {what} here"))
}
