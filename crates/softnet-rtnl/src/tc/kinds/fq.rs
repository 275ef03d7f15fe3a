//! `fq` (`TCA_FQ_*`).

use std::time::Duration;

use softnet_tc::{FqSpec, QdiscSpec};
use zerocopy::{Immutable, IntoBytes};

use super::prio::PrioOptions;
use super::{QdiscContext, Values};
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const PLIMIT: u16 = 1;
const FLOW_PLIMIT: u16 = 2;
const QUANTUM: u16 = 3;
const INITIAL_QUANTUM: u16 = 4;
const RATE_ENABLE: u16 = 5;
const FLOW_DEFAULT_RATE: u16 = 6;
const FLOW_MAX_RATE: u16 = 7;
const BUCKETS_LOG: u16 = 8;
const FLOW_REFILL_DELAY: u16 = 9;
const ORPHAN_MASK: u16 = 10;
const LOW_RATE_THRESHOLD: u16 = 11;
const CE_THRESHOLD: u16 = 12;
const TIMER_SLACK: u16 = 13;
const HORIZON: u16 = 14;
const HORIZON_DROP: u16 = 15;
const PRIOMAP: u16 = 16;
const WEIGHTS: u16 = 17;
const OFFLOAD_HORIZON: u16 = 18;

/// `FQ_BANDS`.
const BANDS: i32 = 3;
/// `FQ_MIN_WEIGHT`.
const MIN_WEIGHT: i32 = 16_384;
/// Bytes of the weights.
const WEIGHTS_SIZE: usize = 3 * size_of::<i32>();
/// What a quantum is brought within.
const QUANTA: std::ops::RangeInclusive<u32> = 256..=1 << 20;
/// No `maxrate`, and no `ce_threshold`.
const NONE: u32 = u32::MAX;

const POLICY: Policy = Policy {
    max: OFFLOAD_HORIZON,
    strict_from: TIMER_SLACK,
    rules: &[
        (PLIMIT, Rule::U32),
        (FLOW_PLIMIT, Rule::U32),
        (QUANTUM, Rule::U32),
        (INITIAL_QUANTUM, Rule::U32Range(0, *QUANTA.end())),
        (RATE_ENABLE, Rule::U32),
        (FLOW_DEFAULT_RATE, Rule::U32),
        (FLOW_MAX_RATE, Rule::U32),
        (BUCKETS_LOG, Rule::U32),
        (FLOW_REFILL_DELAY, Rule::U32),
        (ORPHAN_MASK, Rule::U32),
        (LOW_RATE_THRESHOLD, Rule::U32),
        (CE_THRESHOLD, Rule::U32),
        (TIMER_SLACK, Rule::U32),
        (HORIZON, Rule::U32),
        (HORIZON_DROP, Rule::U8),
        (PRIOMAP, Rule::Exact(size_of::<PrioOptions>())),
        (WEIGHTS, Rule::Exact(WEIGHTS_SIZE)),
        (OFFLOAD_HORIZON, Rule::U32),
    ],
};

/// `fq_init`, `fq_change`.
pub(super) fn parse(
    options: Option<Attr<'_>>,
    before: Option<&QdiscSpec>,
) -> Result<QdiscSpec, Error> {
    let mut spec = match before {
        Some(QdiscSpec::Fq(before)) => before.clone(),
        _ => FqSpec::default(),
    };
    if let Some(options) = options {
        change(&mut spec, &options.nested(&POLICY)?)?;
    }
    Ok(QdiscSpec::Fq(spec))
}

fn change(spec: &mut FqSpec, attrs: &Attrs<'_>) -> Result<(), Error> {
    let refuse = |attr: &Attr<'_>, help: &str| Err(Error::from(Errno::EINVAL).help(help).at(attr));
    let micros = |kind| -> Result<Option<Duration>, Error> {
        Ok(attrs.u32(kind)?.map(|us| Duration::from_micros(us.into())))
    };
    let bounded = |bytes: u32| bytes.clamp(*QUANTA.start(), *QUANTA.end());
    spec.limit = attrs.u32(PLIMIT)?.unwrap_or(spec.limit);
    spec.flow_limit = attrs.u32(FLOW_PLIMIT)?.unwrap_or(spec.flow_limit);
    spec.quantum = attrs.u32(QUANTUM)?.map(bounded).or(spec.quantum);
    spec.initial_quantum = attrs.u32(INITIAL_QUANTUM)?.or(spec.initial_quantum);
    spec.orphan_mask = attrs.u32(ORPHAN_MASK)?.unwrap_or(spec.orphan_mask);
    spec.refill_delay = micros(FLOW_REFILL_DELAY)?.unwrap_or(spec.refill_delay);
    spec.horizon = micros(HORIZON)?.unwrap_or(spec.horizon);
    if let Some(pacing) = attrs.get(RATE_ENABLE) {
        spec.pacing = match pacing.u32()? {
            0 => false,
            1 => true,
            _ => return refuse(&pacing, "rate_enable must be 0 or 1"),
        };
    }
    if let Some(rate) = attrs.u32(FLOW_MAX_RATE)? {
        spec.maxrate = Some(rate.into()).filter(|_| rate != NONE);
    }
    if let Some(buckets) = attrs.get(BUCKETS_LOG) {
        spec.buckets_log = match buckets.u32()? {
            log @ 1..=18 => log as u8,
            _ => return refuse(&buckets, "buckets must be 2 to 262144"),
        };
    }
    if let Some(rate) = attrs.u32(LOW_RATE_THRESHOLD)? {
        spec.low_rate_threshold = rate.into();
    }
    if let Some(us) = attrs.u32(CE_THRESHOLD)? {
        let threshold = Duration::from_micros(us.into());
        spec.ce_threshold = Some(threshold).filter(|_| us != NONE);
    }
    if let Some(ns) = attrs.u32(TIMER_SLACK)? {
        spec.timer_slack = Duration::from_nanos(ns.into());
    }
    if let Some(drop) = attrs.u8(HORIZON_DROP)? {
        spec.horizon_drop = drop != 0;
    }
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
    match attrs.get(OFFLOAD_HORIZON) {
        Some(horizon) if horizon.u32()? != 0 => {
            Err(Error::invalid("sch_fq: invalid offload_horizon").at(&horizon))
        }
        _ => Ok(()),
    }
}

pub(super) fn dump(spec: &FqSpec, context: &QdiscContext, out: &mut Message<'_>) {
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    let rate = |rate: u64| u32::try_from(rate).unwrap_or(u32::MAX);
    let frames = |count: u32| context.frame().saturating_mul(count);
    let slack = u32::try_from(spec.timer_slack.as_nanos()).unwrap_or(u32::MAX);
    out.nest(TCA_OPTIONS, |out| {
        out.put_u32(PLIMIT, spec.limit);
        out.put_u32(FLOW_PLIMIT, spec.flow_limit);
        out.put_u32(QUANTUM, spec.quantum.unwrap_or_else(|| frames(2)));
        let initial = spec.initial_quantum.unwrap_or_else(|| frames(10));
        out.put_u32(INITIAL_QUANTUM, initial);
        out.put_u32(RATE_ENABLE, spec.pacing.into());
        out.put_u32(FLOW_MAX_RATE, spec.maxrate.map_or(NONE, rate));
        out.put_u32(FLOW_REFILL_DELAY, micros(spec.refill_delay));
        out.put_u32(ORPHAN_MASK, spec.orphan_mask);
        out.put_u32(LOW_RATE_THRESHOLD, rate(spec.low_rate_threshold));
        out.put_u32(CE_THRESHOLD, spec.ce_threshold.map_or(NONE, micros));
        out.put_u32(BUCKETS_LOG, spec.buckets_log.into());
        out.put_u32(TIMER_SLACK, slack);
        out.put_u32(HORIZON, micros(spec.horizon));
        out.put_u32(OFFLOAD_HORIZON, 0);
        out.put_u8(HORIZON_DROP, spec.horizon_drop.into());
        let (bands, priomap) = (BANDS, spec.priomap);
        out.put(PRIOMAP, &PrioOptions { bands, priomap });
        out.put(WEIGHTS, &spec.weights);
    });
}

/// `struct tc_fq_qd_stats`. Times are in nanoseconds.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
struct Stats {
    gc_flows: u64,
    highprio_packets: u64,
    tcp_retrans: u64,
    throttled: u64,
    flows_plimit: u64,
    pkts_too_long: u64,
    allocation_errors: u64,
    time_next_delayed_flow: i64,
    flows: u32,
    inactive_flows: u32,
    throttled_flows: u32,
    unthrottle_latency_ns: u32,
    ce_mark: u64,
    horizon_drops: u64,
    horizon_caps: u64,
    fastpath_packets: u64,
    band_drops: [u64; 3],
    band_pkt_count: [u32; 3],
    pad: u32,
}

pub(super) fn xstats(values: &Values) -> Vec<u8> {
    let stats = Stats {
        gc_flows: values.u64("gc"),
        throttled: values.u64("throttled"),
        flows_plimit: values.u64("flows_plimit"),
        pkts_too_long: values.u64("pkts_too_long"),
        allocation_errors: values.u64("alloc_errors"),
        time_next_delayed_flow: values.u64("next_packet_delay").cast_signed(),
        flows: values.u32("flows"),
        inactive_flows: values.u32("inactive_flows"),
        throttled_flows: values.u32("throttled_flows"),
        unthrottle_latency_ns: values.u64("latency").try_into().unwrap_or(u32::MAX),
        ce_mark: values.u64("ce_mark"),
        horizon_drops: values.u64("horizon_drops"),
        horizon_caps: values.u64("horizon_caps"),
        band_drops: ["band0_drops", "band1_drops", "band2_drops"].map(|name| values.u64(name)),
        band_pkt_count: ["band0_pkts", "band1_pkts", "band2_pkts"].map(|name| values.u32(name)),
        ..Stats::default()
    };
    stats.as_bytes().to_vec()
}
