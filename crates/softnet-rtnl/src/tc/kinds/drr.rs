//! Classes of `drr` (`TCA_DRR_*`). The qdisc has no options, and reads none.

use softnet_tc::{ClassSpec, DrrClassSpec, LinkDefaults, OwnStats};
use zerocopy::{Immutable, IntoBytes};

use super::ShownClass;
use crate::nl::{Attr, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const QUANTUM: u16 = 1;

const POLICY: Policy = Policy::new(QUANTUM, &[(QUANTUM, Rule::U32)]);

/// `drr_change_class`.
pub(super) fn parse_class(
    options: Option<Attr<'_>>,
    link: &LinkDefaults,
    before: Option<&DrrClassSpec>,
) -> Result<ClassSpec, Error> {
    let options =
        options.ok_or_else(|| Error::invalid("DRR options are required for this operation"))?;
    let quantum = options.nested(&POLICY)?.u32(QUANTUM)?;
    if quantum == Some(0) {
        return Err(Error::invalid("Specified DRR quantum cannot be zero"));
    }
    let kept = || before.map_or_else(|| link.frame(), |before| before.quantum);
    let spec = DrrClassSpec::new(quantum.unwrap_or_else(kept));
    Ok(ClassSpec::Drr(spec))
}

pub(super) fn dump_class(spec: &DrrClassSpec, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| out.put_u32(QUANTUM, spec.quantum));
}

/// `struct tc_drr_stats`.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct Stats {
    deficit: u32,
}

pub(super) fn class_xstats(class: &ShownClass<'_>) -> Vec<u8> {
    let deficit = match class.stats.own {
        Some(OwnStats::Drr { deficit }) => u32::try_from(deficit).unwrap_or(u32::MAX),
        _ => 0,
    };
    Stats { deficit }.as_bytes().to_vec()
}
