//! `fq` (`TCA_FQ_*`).

use std::sync::LazyLock;

use softnet_tc::{QdiscSpec, Xstat};

use super::prio::PrioOptions;
use super::xstats::Slot;
use super::{QdiscContext, regular};
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const INITIAL_QUANTUM: u16 = 4;
const RATE_ENABLE: u16 = 5;
const FLOW_DEFAULT_RATE: u16 = 6;
const BUCKETS_LOG: u16 = 8;
const TIMER_SLACK: u16 = 13;
const PRIOMAP: u16 = 16;
const WEIGHTS: u16 = 17;
const OFFLOAD_HORIZON: u16 = 18;

/// `FQ_BANDS`.
const BANDS: i32 = 3;
/// `FQ_MIN_WEIGHT`.
const MIN_WEIGHT: i32 = 16_384;

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let others = [
        (INITIAL_QUANTUM, Rule::U32Range(0, 1 << 20)),
        (FLOW_DEFAULT_RATE, Rule::U32),
    ];
    regular::policy("fq", TIMER_SLACK, &others)
});

/// `fq_init`, `fq_change`.
pub(super) fn parse(spec: &mut QdiscSpec, options: Attr<'_>) -> Result<(), Error> {
    let attrs = options.nested(&POLICY)?;
    check(&attrs)?;
    regular::parse(spec, &attrs)?;
    let QdiscSpec::Fq(spec) = spec else {
        return Ok(());
    };
    if let Some(map) = attrs.get(PRIOMAP) {
        let PrioOptions { bands, priomap } = map.fixed()?;
        if bands != BANDS {
            return Err(Error::invalid("sch_fq: FQ only supports 3 bands").at(&map));
        }
        let is_wrong = |&band: &u8| i32::from(band) >= BANDS;
        if let Some(field) = priomap.iter().position(is_wrong) {
            let text = format!(
                "sch_fq: FQ priomap field {field} maps to a too high band {}",
                priomap[field]
            );
            return Err(Error::from(Errno::EINVAL).text(text).at(&map));
        }
        spec.priomap = priomap;
    }
    if let Some(attr) = attrs.get(WEIGHTS) {
        let weights: [i32; 3] = attr.fixed()?;
        if let Some(weight) = weights.iter().find(|&&weight| weight < MIN_WEIGHT) {
            let text = format!("sch_fq: Weight {weight} less that minimum allowed {MIN_WEIGHT}");
            return Err(Error::from(Errno::EINVAL).text(text).at(&attr));
        }
        spec.weights = weights.map(i32::cast_unsigned);
    }
    Ok(())
}

/// Refuses numbers that the kernel refuses.
fn check(attrs: &Attrs<'_>) -> Result<(), Error> {
    let refuse = |attr: &Attr<'_>, help: &str| Err(Error::from(Errno::EINVAL).help(help).at(attr));
    if let Some(pacing) = attrs
        .get(RATE_ENABLE)
        .filter(|attr| !matches!(attr.u32(), Ok(0 | 1)))
    {
        return refuse(&pacing, "rate_enable must be 0 or 1");
    }
    let is_wrong = |attr: &Attr<'_>| !attr.u32().is_ok_and(|log| (1..=18).contains(&log));
    if let Some(buckets) = attrs.get(BUCKETS_LOG).filter(is_wrong) {
        return refuse(&buckets, "buckets must be 2 to 262144");
    }
    match attrs.get(OFFLOAD_HORIZON) {
        Some(horizon) if horizon.u32()? != 0 => {
            Err(Error::invalid("sch_fq: invalid offload_horizon").at(&horizon))
        }
        _ => Ok(()),
    }
}

pub(super) fn dump(spec: &QdiscSpec, context: &QdiscContext, out: &mut Message<'_>) {
    let QdiscSpec::Fq(fq) = spec else {
        return;
    };
    let own = |kind, out: &mut Message<'_>| match kind {
        PRIOMAP => {
            let (bands, priomap) = (BANDS, fq.priomap);
            out.put(PRIOMAP, &PrioOptions { bands, priomap });
        }
        _ => out.put(WEIGHTS, &fq.weights),
    };
    out.nest(TCA_OPTIONS, |out| {
        regular::dump(regular::options(spec.kind()), spec, &context.link, out, own);
    });
}

/// `struct tc_fq_qd_stats`. Times are in nanoseconds.
pub(super) const XSTATS: &[Slot] = &[
    Slot::U64(Xstat::Collected),
    // `highprio_packets`, `tcp_retrans`.
    Slot::Zero(16),
    Slot::U64(Xstat::Throttled),
    Slot::U64(Xstat::FlowsLimit),
    Slot::U64(Xstat::PacketsTooLong),
    Slot::U64(Xstat::AllocErrors),
    Slot::U64(Xstat::NextPacketDelay),
    Slot::U32(Xstat::Flows),
    Slot::U32(Xstat::InactiveFlows),
    Slot::U32(Xstat::ThrottledFlows),
    Slot::AtMostU32(Xstat::Latency),
    Slot::U64(Xstat::CeMark),
    Slot::U64(Xstat::HorizonDrops),
    Slot::U64(Xstat::HorizonCaps),
    Slot::U64(Xstat::FastpathPackets),
    Slot::U64(Xstat::Band0Drops),
    Slot::U64(Xstat::Band1Drops),
    Slot::U64(Xstat::Band2Drops),
    Slot::U32(Xstat::Band0Packets),
    Slot::U32(Xstat::Band1Packets),
    Slot::U32(Xstat::Band2Packets),
    Slot::Zero(4),
];
