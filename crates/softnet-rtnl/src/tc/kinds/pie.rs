//! `pie` (`TCA_PIE_*`) and `fq_pie` (`TCA_FQ_PIE_*`).
//!
//! The kernel keeps the target in units of 64 ns. Softnet keeps it as it is given, and shows what
//! the kernel would. It also keeps `tupdate` as it is given, where the kernel rounds it up to ticks
//! of its clock, 1 to 10 ms.

use std::sync::LazyLock;

use softnet_tc::{QdiscSpec, Xstat};

use super::xstats::Slot;
use super::{QdiscContext, regular};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const FLOWS: u16 = 2;
const QUANTUM: u16 = 7;

static PIE: LazyLock<Policy> = LazyLock::new(|| regular::policy("pie", 0, &[]));
static FQ_PIE: LazyLock<Policy> = LazyLock::new(|| {
    let others = [(QUANTUM, Rule::U32Range(1, 1 << 20))];
    regular::policy("fq_pie", 1, &others)
});

/// `pie_init`, `pie_change`.
pub(super) fn parse(spec: &mut QdiscSpec, options: Attr<'_>) -> Result<(), Error> {
    regular::parse(spec, &options.nested(&PIE)?)
}

/// `fq_pie_init`, `fq_pie_change`.
pub(super) fn parse_fq(
    spec: &mut QdiscSpec,
    options: Attr<'_>,
    is_new: bool,
) -> Result<(), Error> {
    let attrs = options.nested(&FQ_PIE)?;
    if let Some(flows) = attrs.get(FLOWS) {
        if !is_new {
            let error = Error::invalid("sch_fq_pie: Number of flows cannot be changed");
            return Err(error.help("Delete the qdisc first").at(&flows));
        }
        if !(1..=65_536).contains(&flows.u32()?) {
            let text = "sch_fq_pie: Number of flows must range in [1..65536]";
            return Err(Error::from(Errno::EINVAL).text(text).at(&flows));
        }
    }
    regular::parse(spec, &attrs)
}

pub(super) fn dump(spec: &QdiscSpec, context: &QdiscContext, out: &mut Message<'_>) {
    let options = regular::options(spec.kind());
    out.nest(TCA_OPTIONS, |out| {
        regular::dump(options, spec, &context.link, out, |_, _| {});
    });
}

/// `struct tc_pie_xstats`.
pub(super) const XSTATS: &[Slot] = &[
    Slot::U64(Xstat::Prob),
    Slot::WholeMicros(Xstat::PieDelay),
    Slot::U32(Xstat::AvgDqRate),
    Slot::U32(Xstat::DqRateEstimating),
    Slot::U32(Xstat::PacketsIn),
    Slot::U32(Xstat::Dropped),
    Slot::U32(Xstat::OverLimit),
    Slot::U32(Xstat::MaxQueue),
    Slot::U32(Xstat::EcnMark),
];

/// `struct tc_fq_pie_xstats`.
pub(super) const XSTATS_FQ: &[Slot] = &[
    Slot::U32(Xstat::PacketsIn),
    Slot::U32(Xstat::Dropped),
    Slot::U32(Xstat::OverLimit),
    Slot::U32(Xstat::OverMemory),
    Slot::U32(Xstat::EcnMark),
    Slot::U32(Xstat::NewFlowCount),
    Slot::U32(Xstat::NewFlowsLen),
    Slot::U32(Xstat::OldFlowsLen),
    Slot::U32(Xstat::MemoryUsed),
];
