//! `matchall` (`TCA_MATCHALL_*`).

use softnet_tc::{FilterSpec, FilterStats};

use super::action::{self, Effect};
use super::kinds::{check_flags, put_flags};
use crate::nl::{Attr, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;
use crate::tc::actions::ShownAt;

const CLASSID: u16 = 1;
const ACT: u16 = 2;
const FLAGS: u16 = 3;
const PCNT: u16 = 4;

const POLICY: Policy = Policy::new(5, &[(CLASSID, Rule::U32), (FLAGS, Rule::U32)]);

/// `mall_change`
pub(super) fn parse(options: &Attr<'_>) -> Result<Effect, Error> {
    let attrs = options.nested(&POLICY)?;
    let flags = check_flags(&attrs, FLAGS)?;
    Effect::parse(&attrs, CLASSID, (ACT, None), flags)
}

/// `mall_dump`
pub(super) fn dump(spec: &FilterSpec, stats: &FilterStats, at: &ShownAt, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| {
        if let Some(class) = spec.class {
            out.put_u32(CLASSID, class.raw());
        }
        put_flags(FLAGS, spec, out);
        out.put_u64(PCNT, stats.matched);
        action::dump((ACT, None), spec, at, out);
    });
}
