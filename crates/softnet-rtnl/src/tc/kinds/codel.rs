//! `codel` (`TCA_CODEL_*`) and `fq_codel` (`TCA_FQ_CODEL_*`).
//!
//! The kernel keeps times in units of 1,024 ns, so that it shows 5 ms as 4,999 µs. Softnet keeps
//! them as they are given, and shows what the kernel would. Flows of `fq_codel` that have packets
//! are shown as classes. Their `ldelay` is the time that the oldest packet has waited; the kernel's
//! is that of the last one that left.

use std::sync::LazyLock;

use softnet_tc::{FlowStats, FqCodelSpec, QdiscSpec, Xstat};

use super::xstats::Slot;
use super::{QdiscContext, regular};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const FLOWS: u16 = 5;
const QUANTUM: u16 = 6;
const CE_THRESHOLD_SELECTOR: u16 = 10;
const CE_THRESHOLD_MASK: u16 = 11;

static CODEL: LazyLock<Policy> = LazyLock::new(|| regular::policy("codel", 0, &[]));
static FQ_CODEL: LazyLock<Policy> = LazyLock::new(|| {
    let others = [
        (CE_THRESHOLD_SELECTOR, Rule::U8),
        (CE_THRESHOLD_MASK, Rule::U8),
    ];
    regular::policy("fq_codel", 0, &others)
});

/// `FQ_CODEL_QUANTUM_MAX`.
const MAX_QUANTUM: u32 = 1 << 20;

/// A time in microseconds, as the kernel shows it.
pub(super) fn shown(nanos: u64) -> u32 {
    u32::try_from(((nanos >> 10) << 10) / 1000).unwrap_or(u32::MAX)
}

/// `codel_init`, `codel_change`.
pub(super) fn parse(spec: &mut QdiscSpec, options: Attr<'_>) -> Result<(), Error> {
    regular::parse(spec, &options.nested(&CODEL)?)
}

/// `fq_codel_init`, `fq_codel_change`.
pub(super) fn parse_fq(
    spec: &mut QdiscSpec,
    options: Attr<'_>,
    is_new: bool,
) -> Result<(), Error> {
    let refuse = |help: &str| Error::from(Errno::EINVAL).help(help);
    let attrs = options.nested(&FQ_CODEL)?;
    if let Some(flows) = attrs.get(FLOWS) {
        if !is_new {
            return Err(refuse("flows cannot be changed; delete the qdisc first").at(&flows));
        }
        if !(1..=65_536).contains(&flows.u32()?) {
            return Err(refuse("flows must be 1 to 65536").at(&flows));
        }
    }
    if let Some(quantum) = attrs.get(QUANTUM)
        && quantum.u32()? > MAX_QUANTUM
    {
        let error = Error::invalid("Invalid quantum");
        return Err(error.help("It must be at most 1048576").at(&quantum));
    }
    regular::parse(spec, &attrs)?;
    if let QdiscSpec::FqCodel(FqCodelSpec { aqm, .. }) = spec {
        let selector = attrs.u8(CE_THRESHOLD_SELECTOR)?;
        aqm.ce_threshold_selector = selector.unwrap_or(aqm.ce_threshold_selector);
        let mask = attrs.u8(CE_THRESHOLD_MASK)?;
        aqm.ce_threshold_mask = mask.unwrap_or(aqm.ce_threshold_mask);
    }
    Ok(())
}

pub(super) fn dump(spec: &QdiscSpec, context: &QdiscContext, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| {
        let options = regular::options(spec.kind());
        regular::dump(options, spec, &context.link, out, |_, _| {});
        if let QdiscSpec::FqCodel(FqCodelSpec { aqm, .. }) = spec
            && aqm.ce_threshold.is_some()
        {
            out.put_u8(CE_THRESHOLD_SELECTOR, aqm.ce_threshold_selector);
            out.put_u8(CE_THRESHOLD_MASK, aqm.ce_threshold_mask);
        }
    });
}

/// `struct tc_codel_xstats`.
pub(super) const XSTATS: &[Slot] = &[
    Slot::U32(Xstat::MaxPacket),
    Slot::U32(Xstat::Count),
    Slot::U32(Xstat::LastCount),
    Slot::Micros(Xstat::Delay, u32::MAX),
    Slot::Micros(Xstat::DropNext, i32::MAX as u32),
    Slot::U32(Xstat::DropOverLimit),
    Slot::U32(Xstat::EcnMark),
    Slot::U32(Xstat::Dropping),
    Slot::U32(Xstat::CeMark),
];

/// `struct tc_fq_codel_xstats` of a qdisc. The first is `TCA_FQ_CODEL_XSTATS_QDISC`.
pub(super) const XSTATS_FQ: &[Slot] = &[
    Slot::Zero(4),
    Slot::U32(Xstat::MaxPacket),
    Slot::U32(Xstat::DropOverLimit),
    Slot::U32(Xstat::EcnMark),
    Slot::U32(Xstat::NewFlowCount),
    Slot::U32(Xstat::NewFlowsLen),
    Slot::U32(Xstat::OldFlowsLen),
    Slot::U32(Xstat::CeMark),
    Slot::U32(Xstat::MemoryUsed),
    Slot::U32(Xstat::DropOverMemory),
];

/// `struct tc_fq_codel_xstats` of a class. The first is `TCA_FQ_CODEL_XSTATS_CLASS`.
pub(super) fn flow_xstats(flow: &FlowStats) -> Vec<u8> {
    let drop_next = flow.drop_next.map_or(0, |nanos| {
        let micros = shown(nanos.unsigned_abs()).min(i32::MAX as u32) as i32;
        if nanos < 0 { -micros } else { micros }
    });
    let words = [
        1,
        flow.deficit as u32,
        shown(flow.sojourn),
        flow.count,
        flow.last_count,
        u32::from(flow.drop_next.is_some()),
        drop_next as u32,
        // The structure of a qdisc is longer.
        0,
        0,
        0,
    ];
    words.map(u32::to_ne_bytes).concat()
}
