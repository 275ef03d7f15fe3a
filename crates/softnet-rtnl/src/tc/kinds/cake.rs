//! `cake` and `cake_mq` (`TCA_CAKE_*`).

use std::time::Duration;

use softnet_tc::{AckFilter, CakeSpec, Diffserv, Framing, Isolation, QdiscSpec, Xstat, Xstats};

use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const BASE_RATE64: u16 = 2;
const DIFFSERV_MODE: u16 = 3;
const ATM: u16 = 4;
const FLOW_MODE: u16 = 5;
const OVERHEAD: u16 = 6;
const RTT: u16 = 7;
const TARGET: u16 = 8;
const AUTORATE: u16 = 9;
const MEMORY: u16 = 10;
const NAT: u16 = 11;
const RAW: u16 = 12;
const WASH: u16 = 13;
const MPU: u16 = 14;
const INGRESS: u16 = 15;
const ACK_FILTER: u16 = 16;
const SPLIT_GSO: u16 = 17;
const FWMARK: u16 = 18;

/// Bits of `FLOW_MODE`; NAT is another attribute.
const FLOW_MASK: u32 = 7;

/// `cake_policy`.
static POLICY: Policy = Policy::new(
    FWMARK,
    &[
        (BASE_RATE64, Rule::U64),
        (DIFFSERV_MODE, Rule::U32),
        (ATM, Rule::U32),
        (FLOW_MODE, Rule::U32),
        (OVERHEAD, Rule::U32),
        (RTT, Rule::U32),
        (TARGET, Rule::U32),
        (AUTORATE, Rule::U32),
        (MEMORY, Rule::U32),
        (NAT, Rule::U32),
        (RAW, Rule::U32),
        (WASH, Rule::U32),
        (MPU, Rule::U32),
        (INGRESS, Rule::U32),
        (ACK_FILTER, Rule::U32),
        (SPLIT_GSO, Rule::U32),
        (FWMARK, Rule::U32),
    ],
);

/// `cake_change`, `cake_mq_change`. What is not named stays.
pub(super) fn parse(spec: &mut QdiscSpec, options: Attr<'_>) -> Result<(), Error> {
    let is_mq = matches!(spec, QdiscSpec::CakeMq(_));
    let (QdiscSpec::Cake(spec) | QdiscSpec::CakeMq(spec)) = spec else {
        return Ok(());
    };
    let attrs = options.nested(&POLICY)?;
    if is_mq && let Some(autorate) = attrs.get(AUTORATE).filter(|attr| attr.u32() != Ok(0)) {
        let text = "Can't use autorate-ingress with cake_mq";
        return Err(Error::new(Errno::EOPNOTSUPP).text(text).at(&autorate));
    }
    let flag = |kind, to: &mut bool| -> Result<(), Error> {
        *to = attrs.u32(kind)?.map_or(*to, |number| number != 0);
        Ok(())
    };
    flag(AUTORATE, &mut spec.autorate_ingress)?;
    flag(NAT, &mut spec.nat)?;
    flag(WASH, &mut spec.wash)?;
    flag(INGRESS, &mut spec.ingress)?;
    flag(SPLIT_GSO, &mut spec.split_gso)?;
    if let Some(rate) = attrs.u64(BASE_RATE64)? {
        spec.bandwidth = Some(rate).filter(|&rate| rate > 0);
    }
    if let Some(mode) = attrs.u32(DIFFSERV_MODE)? {
        spec.diffserv = nth(Diffserv::ALL, mode).unwrap_or_default();
    }
    if let Some(mode) = attrs.u32(FLOW_MODE)? {
        spec.isolation = nth(Isolation::ALL, mode & FLOW_MASK).unwrap_or_default();
    }
    if let Some(mode) = attrs.u32(ATM)? {
        spec.framing = nth(Framing::ALL, mode).unwrap_or_default();
    }
    if let Some(mode) = attrs.u32(ACK_FILTER)? {
        spec.ack_filter = nth(AckFilter::ALL, mode).unwrap_or(AckFilter::Filter);
    }
    if let Some(bytes) = attrs.u32(OVERHEAD)? {
        spec.overhead = Some(bytes.cast_signed());
    }
    if attrs.has(RAW) {
        spec.overhead = None;
    }
    spec.mpu = attrs.u32(MPU)?.unwrap_or(spec.mpu);
    spec.fwmark = attrs.u32(FWMARK)?.unwrap_or(spec.fwmark);
    if let Some(bytes) = attrs.u32(MEMORY)? {
        spec.memlimit = Some(bytes).filter(|&bytes| bytes > 0);
    }
    // The target stays, too, unless it is named.
    let micros = |number: u32| Duration::from_micros(number.max(1).into());
    let target = attrs.u32(TARGET)?.map_or_else(|| spec.target(), micros);
    spec.rtt = attrs.u32(RTT)?.map_or(spec.rtt, micros);
    spec.target = None;
    if spec.target() != target {
        spec.target = Some(target);
    }
    Ok(())
}

fn nth<T: Copy>(all: &[T], number: u32) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
}

/// Warning about what has no effect.
pub(super) fn warning(spec: &CakeSpec, instances: usize) -> Option<String> {
    let all: Vec<String> = spec
        .without_effect(instances)
        .map(|(parameter, text)| format!("{parameter} {text}"))
        .collect();
    (!all.is_empty()).then(|| format!("cake: {}", all.join("; ")))
}

/// `cake_dump`.
pub(super) fn dump(spec: &CakeSpec, out: &mut Message<'_>) {
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    out.nest(TCA_OPTIONS, |out| {
        out.put_u64(BASE_RATE64, spec.bandwidth.unwrap_or(0));
        out.put_u32(FLOW_MODE, spec.isolation as u32);
        out.put_u32(RTT, micros(spec.rtt));
        out.put_u32(TARGET, micros(spec.target()));
        out.put_u32(AUTORATE, spec.autorate_ingress.into());
        out.put_u32(MEMORY, spec.memlimit.unwrap_or(0));
        out.put_u32(NAT, spec.nat.into());
        out.put_u32(DIFFSERV_MODE, spec.diffserv as u32);
        out.put_u32(WASH, spec.wash.into());
        out.put_i32(OVERHEAD, spec.overhead.unwrap_or(0));
        if spec.overhead.is_none() {
            out.put_u32(RAW, 0);
        }
        out.put_u32(ATM, spec.framing as u32);
        out.put_u32(MPU, spec.mpu);
        out.put_u32(INGRESS, spec.ingress.into());
        out.put_u32(ACK_FILTER, spec.ack_filter as u32);
        out.put_u32(SPLIT_GSO, spec.split_gso.into());
        out.put_u32(FWMARK, spec.fwmark);
    });
}

/// A statistic as an attribute.
#[derive(Clone, Copy, Debug)]
enum Stat {
    U32(Xstat),
    U64(Xstat),
    /// Nanoseconds, shown as microseconds.
    Micros(Xstat),
    /// The lowest length, or 65535 if there was none.
    Least(Xstat),
}

/// `TCA_CAKE_STATS_*`, in the kernel's order.
const STATS: [(u16, Stat); 8] = [
    (2, Stat::U64(Xstat::CapacityEstimate)),
    (3, Stat::U32(Xstat::MemoryLimit)),
    (4, Stat::U32(Xstat::MemoryUsed)),
    (5, Stat::U32(Xstat::AvgHdrOffset)),
    (7, Stat::U32(Xstat::MaxNetworkSize)),
    (9, Stat::U32(Xstat::MaxAdjSize)),
    (6, Stat::Least(Xstat::MinNetworkSize)),
    (8, Stat::Least(Xstat::MinAdjSize)),
];
const ACTIVE_QUEUES: u16 = 17;
const TINS: u16 = 10;

/// `TCA_CAKE_TIN_STATS_*`, in the kernel's order.
const TIN_STATS: [(u16, Stat); 20] = [
    (12, Stat::U64(Xstat::ThresholdRate)),
    (3, Stat::U64(Xstat::SentBytes)),
    (11, Stat::U32(Xstat::BacklogBytes)),
    (13, Stat::Micros(Xstat::Target)),
    (14, Stat::Micros(Xstat::Interval)),
    (2, Stat::U32(Xstat::SentPackets)),
    (4, Stat::U32(Xstat::Drops)),
    (8, Stat::U32(Xstat::EcnMark)),
    (6, Stat::U32(Xstat::AckDrops)),
    (18, Stat::Micros(Xstat::PeakDelay)),
    (19, Stat::Micros(Xstat::AvgDelay)),
    (20, Stat::Micros(Xstat::BaseDelay)),
    (15, Stat::U32(Xstat::WayIndirectHits)),
    (16, Stat::U32(Xstat::WayMisses)),
    (17, Stat::U32(Xstat::WayCollisions)),
    (21, Stat::U32(Xstat::SparseFlows)),
    (22, Stat::U32(Xstat::BulkFlows)),
    (23, Stat::U32(Xstat::UnresponsiveFlows)),
    (24, Stat::U32(Xstat::MaxPktLen)),
    (25, Stat::U32(Xstat::FlowQuantum)),
];

/// `cake_dump_stats`: attributes, not a structure.
pub(super) fn stats(spec: &CakeSpec, xstats: Option<&Xstats>) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, stat) in STATS {
        put(kind, stat, xstats, &mut out);
    }
    let mut tins = Vec::new();
    for (number, _) in (1..).zip(spec.diffserv.order()) {
        let tin = xstats.and_then(|xstats| xstats.parts().get(usize::from(number) - 1));
        let mut of = Vec::new();
        for (kind, stat) in TIN_STATS {
            put(kind, stat, tin, &mut of);
        }
        attribute(number, &of, &mut tins);
    }
    attribute(TINS, &tins, &mut out);
    put(
        ACTIVE_QUEUES,
        Stat::U32(Xstat::ActiveQueues),
        xstats,
        &mut out,
    );
    out
}

fn put(kind: u16, stat: Stat, xstats: Option<&Xstats>, out: &mut Vec<u8>) {
    let value = |stat| xstats.and_then(|xstats| xstats.value(stat)).unwrap_or(0);
    let number = match stat {
        Stat::U64(stat) => return attribute(kind, &value(stat).to_ne_bytes(), out),
        Stat::U32(stat) => value(stat) as u32,
        Stat::Micros(stat) => u32::try_from(value(stat) / 1000).unwrap_or(u32::MAX),
        Stat::Least(stat) => match value(stat) {
            0 => 0xffff,
            least => least as u32,
        },
    };
    attribute(kind, &number.to_ne_bytes(), out);
}

/// An attribute whose payload is short.
fn attribute(kind: u16, payload: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(payload.len() + 4).unwrap_or(u16::MAX);
    out.extend(len.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(payload);
    out.resize(out.len().next_multiple_of(4), 0);
}
