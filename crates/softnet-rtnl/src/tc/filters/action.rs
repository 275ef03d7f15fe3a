//! A filter's effect on packets: the class that they go to, and `gact` actions (tc-actions(8)).
//!
//! There is one action to a filter, which is its own: none is shared by its index, which is shown
//! as 0. It has no times, random choices or cookies. A filter with a class that only lets packets
//! pass is shown without that action.
//!
//! Source: `net/sched/act_api.c`, `net/sched/act_gact.c`.

use softnet::qdisc::QdiscStats;
use softnet_tc::{FilterAction, FilterSpec, FilterStats, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::kinds::refusal;
use crate::nl::{Attrs, Errno, Error, Message, Policy, Rule};
use crate::tc::stats;

const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_ACT_INDEX: u16 = 3;
const TCA_ACT_STATS: u16 = 4;
const TCA_ACT_COOKIE: u16 = 6;
const TCA_GACT_PARMS: u16 = 2;
const TCA_GACT_PROB: u16 = 3;

/// `TCA_ACT_MAX_PRIO`
const LIST: Policy = Policy::new(32, &[]);
const ACTION: Policy = Policy::new(
    10,
    &[
        (TCA_ACT_KIND, Rule::Str { max: 15 }),
        (TCA_ACT_INDEX, Rule::U32),
        (TCA_ACT_COOKIE, Rule::Binary { max: 16 }),
        (TCA_ACT_OPTIONS, Rule::NestedAny),
    ],
);
const GACT: Policy = Policy::new(
    4,
    &[
        (TCA_GACT_PARMS, Rule::Exact(size_of::<Gact>())),
        (TCA_GACT_PROB, Rule::Exact(8)),
    ],
);

/// `struct tc_gact`
#[derive(Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Gact {
    index: u32,
    capab: u32,
    action: i32,
    refcnt: i32,
    bindcnt: i32,
}

/// `TC_ACT_*`
const UNSPEC: i32 = -1;
const OK: i32 = 0;
const RECLASSIFY: i32 = 1;
const SHOT: i32 = 2;
const VALUE_MAX: i32 = 8;
const GOTO_CHAIN: i32 = 2 << 28;
const EXTENDED: i32 = 0xf << 28;

/// Effect on packets that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) class: Option<Handle>,
    pub(super) action: FilterAction,
}

impl Effect {
    /// From a kind's attributes for both.
    pub(super) fn parse(attrs: &Attrs<'_>, class: u16, action: u16) -> Result<Effect, Error> {
        let class = attrs.u32(class)?.map(Handle::from_raw);
        Ok(Effect {
            class: class.filter(|&class| class != Handle::NONE),
            action: parse(attrs, action)?,
        })
    }
}

/// `tcf_action_init`
fn parse(attrs: &Attrs<'_>, kind: u16) -> Result<FilterAction, Error> {
    let Some(list) = attrs.get(kind) else {
        return Ok(FilterAction::Pass);
    };
    let list = list.nested(&LIST)?;
    let Some(first) = list.get(1) else {
        return Ok(FilterAction::Pass);
    };
    let action = first.nested(&ACTION)?;
    let name = action.str(TCA_ACT_KIND)?;
    let name = name.ok_or_else(|| Error::invalid("TC action kind must be specified"))?;
    if name != "gact" {
        let help = "This version has gact alone: pass, drop, continue, reclassify and goto chain";
        let error = Error::new(Errno::ENOENT).text("Failed to load TC action module");
        return Err(error.help(help));
    }
    if let Some(second) = list.get(2) {
        return Err(refusal("second action").at(&second));
    }
    if let Some(cookie) = action.get(TCA_ACT_COOKIE) {
        return Err(refusal("cookies").at(&cookie));
    }
    let options = action.get(TCA_ACT_OPTIONS);
    let none = || Error::invalid("Gact requires attributes to be passed");
    let gact = options.ok_or_else(none)?.nested(&GACT)?;
    let parms = gact.get(TCA_GACT_PARMS);
    let none = || Error::invalid("Missing required gact parameters");
    let parms: Gact = parms.ok_or_else(none)?.fixed()?;
    if parms.index != 0 {
        return Err(refusal("actions by index"));
    }
    if let Some(choice) = gact.get(TCA_GACT_PROB)
        && choice.u16()? != 0
    {
        return Err(refusal("random actions").at(&choice));
    }
    match parms.action {
        UNSPEC => Ok(FilterAction::Continue),
        OK => Ok(FilterAction::Pass),
        RECLASSIFY => Ok(FilterAction::Reclassify),
        SHOT => Ok(FilterAction::Drop),
        other if other & EXTENDED == GOTO_CHAIN => {
            Ok(FilterAction::Goto((other & !EXTENDED) as u32))
        }
        3..=VALUE_MAX => Err(refusal(
            "actions but pass, drop, continue, reclassify and goto chain",
        )),
        other if other & EXTENDED == GOTO_CHAIN / 2 => Err(refusal("jumps over actions")),
        _ => Err(Error::invalid("invalid control action")),
    }
}

/// Writes the action (`tcf_exts_dump`, `tcf_gact_dump`).
pub(super) fn dump(kind: u16, spec: &FilterSpec, stats: &FilterStats, out: &mut Message<'_>) {
    let action = match spec.action {
        FilterAction::Pass if spec.class.is_some() => return,
        FilterAction::Pass => OK,
        FilterAction::Drop => SHOT,
        FilterAction::Continue => UNSPEC,
        FilterAction::Reclassify => RECLASSIFY,
        FilterAction::Goto(chain) => GOTO_CHAIN | chain as i32,
    };
    let drops = match spec.action {
        FilterAction::Drop => stats.matched,
        _ => 0,
    };
    let counted = QdiscStats {
        bytes: stats.bytes,
        packets: stats.packets,
        drops,
        ..QdiscStats::default()
    };
    let gact = Gact {
        action,
        refcnt: 1,
        bindcnt: 1,
        ..Gact::default()
    };
    out.nest(kind, |out| {
        out.nest(1, |out| {
            out.put_str(TCA_ACT_KIND, "gact");
            out.nest(TCA_ACT_STATS, |out| {
                stats::put_counts(&counted, out);
            });
            out.nest(TCA_ACT_OPTIONS, |out| out.put(TCA_GACT_PARMS, &gact));
        });
    });
}
