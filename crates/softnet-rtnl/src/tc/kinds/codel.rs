//! `codel` (`TCA_CODEL_*`) and `fq_codel` (`TCA_FQ_CODEL_*`).
//!
//! The kernel keeps times in units of 1,024 ns, so that it shows 5 ms as 4,999 µs. Softnet keeps
//! them as they are given, and shows what the kernel would. The kernel also shows the flows of
//! `fq_codel` that have packets as classes; Softnet does not.

use std::time::Duration;

use softnet_tc::{AqmSpec, CodelSpec, FqCodelSpec, QdiscSpec};
use zerocopy::{Immutable, IntoBytes};

use super::{QdiscContext, Values};
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const TARGET: u16 = 1;
const LIMIT: u16 = 2;
const INTERVAL: u16 = 3;
const ECN: u16 = 4;
const CODEL_CE_THRESHOLD: u16 = 5;
const FLOWS: u16 = 5;
const QUANTUM: u16 = 6;
const CE_THRESHOLD: u16 = 7;
const DROP_BATCH_SIZE: u16 = 8;
const MEMORY_LIMIT: u16 = 9;
const CE_THRESHOLD_SELECTOR: u16 = 10;
const CE_THRESHOLD_MASK: u16 = 11;

const CODEL: Policy = Policy::new(
    5,
    &[
        (TARGET, Rule::U32),
        (LIMIT, Rule::U32),
        (INTERVAL, Rule::U32),
        (ECN, Rule::U32),
        (CODEL_CE_THRESHOLD, Rule::U32),
    ],
);

const FQ_CODEL: Policy = Policy::new(
    11,
    &[
        (TARGET, Rule::U32),
        (LIMIT, Rule::U32),
        (INTERVAL, Rule::U32),
        (ECN, Rule::U32),
        (FLOWS, Rule::U32),
        (QUANTUM, Rule::U32),
        (CE_THRESHOLD, Rule::U32),
        (DROP_BATCH_SIZE, Rule::U32),
        (MEMORY_LIMIT, Rule::U32),
        (CE_THRESHOLD_SELECTOR, Rule::U8),
        (CE_THRESHOLD_MASK, Rule::U8),
    ],
);

/// `FQ_CODEL_QUANTUM_MAX`.
const MAX_QUANTUM: u32 = 1 << 20;

/// A time in microseconds, as the kernel shows it.
fn shown(time: Duration) -> u32 {
    let units = time.as_nanos() >> 10;
    u32::try_from((units << 10) / 1000).unwrap_or(u32::MAX)
}

fn parse_aqm(aqm: &mut AqmSpec, attrs: &Attrs<'_>, ce_threshold: u16) -> Result<(), Error> {
    let time = |kind| -> Result<Option<Duration>, Error> {
        Ok(attrs.u32(kind)?.map(|us| Duration::from_micros(us.into())))
    };
    aqm.target = time(TARGET)?.unwrap_or(aqm.target);
    aqm.interval = time(INTERVAL)?.unwrap_or(aqm.interval);
    aqm.ecn = attrs.u32(ECN)?.map_or(aqm.ecn, |ecn| ecn != 0);
    aqm.ce_threshold = time(ce_threshold)?.or(aqm.ce_threshold);
    Ok(())
}

/// `codel_init`, `codel_change`.
pub(super) fn parse(
    options: Option<Attr<'_>>,
    before: Option<&QdiscSpec>,
) -> Result<QdiscSpec, Error> {
    let mut spec = match before {
        Some(QdiscSpec::Codel(before)) => before.clone(),
        _ => CodelSpec::default(),
    };
    if let Some(options) = options {
        let attrs = options.nested(&CODEL)?;
        spec.limit = attrs.u32(LIMIT)?.unwrap_or(spec.limit);
        parse_aqm(&mut spec.aqm, &attrs, CODEL_CE_THRESHOLD)?;
    }
    Ok(QdiscSpec::Codel(spec))
}

/// `fq_codel_init`, `fq_codel_change`.
pub(super) fn parse_fq(
    options: Option<Attr<'_>>,
    before: Option<&QdiscSpec>,
) -> Result<QdiscSpec, Error> {
    let refuse = |help: &str| Error::from(Errno::EINVAL).help(help);
    let (mut spec, is_new) = match before {
        Some(QdiscSpec::FqCodel(before)) => (before.clone(), false),
        _ => (FqCodelSpec::default(), true),
    };
    let Some(options) = options else {
        return Ok(QdiscSpec::FqCodel(spec));
    };
    let attrs = options.nested(&FQ_CODEL)?;
    if let Some(flows) = attrs.get(FLOWS) {
        if !is_new {
            return Err(refuse("flows cannot be changed; delete the qdisc first").at(&flows));
        }
        spec.flows = flows.u32()?;
        if !(1..=65_536).contains(&spec.flows) {
            return Err(refuse("flows must be 1 to 65536").at(&flows));
        }
    }
    if let Some(quantum) = attrs.get(QUANTUM) {
        let bytes = quantum.u32()?.max(256);
        if bytes > MAX_QUANTUM {
            let error = Error::invalid("Invalid quantum");
            return Err(error.help("It must be at most 1048576").at(&quantum));
        }
        spec.quantum = Some(bytes);
    }
    spec.limit = attrs.u32(LIMIT)?.unwrap_or(spec.limit);
    if let Some(drop_batch) = attrs.u32(DROP_BATCH_SIZE)? {
        spec.drop_batch = drop_batch.max(1);
    }
    if let Some(memory_limit) = attrs.u32(MEMORY_LIMIT)? {
        spec.memory_limit = memory_limit.min(1 << 31);
    }
    let aqm = &mut spec.aqm;
    parse_aqm(aqm, &attrs, CE_THRESHOLD)?;
    let selector = attrs.u8(CE_THRESHOLD_SELECTOR)?;
    aqm.ce_threshold_selector = selector.unwrap_or(aqm.ce_threshold_selector);
    let mask = attrs.u8(CE_THRESHOLD_MASK)?;
    aqm.ce_threshold_mask = mask.unwrap_or(aqm.ce_threshold_mask);
    Ok(QdiscSpec::FqCodel(spec))
}

fn dump_aqm(aqm: &AqmSpec, limit: u32, out: &mut Message<'_>) {
    out.put_u32(TARGET, shown(aqm.target));
    out.put_u32(LIMIT, limit);
    out.put_u32(INTERVAL, shown(aqm.interval));
    out.put_u32(ECN, aqm.ecn.into());
}

pub(super) fn dump(spec: &CodelSpec, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| {
        dump_aqm(&spec.aqm, spec.limit, out);
        if let Some(threshold) = spec.aqm.ce_threshold {
            out.put_u32(CODEL_CE_THRESHOLD, shown(threshold));
        }
    });
}

pub(super) fn dump_fq(spec: &FqCodelSpec, context: &QdiscContext, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| {
        dump_aqm(&spec.aqm, spec.limit, out);
        out.put_u32(QUANTUM, spec.quantum.unwrap_or_else(|| context.frame()));
        out.put_u32(DROP_BATCH_SIZE, spec.drop_batch.max(1));
        out.put_u32(MEMORY_LIMIT, spec.memory_limit);
        out.put_u32(FLOWS, spec.flows);
        if let Some(threshold) = spec.aqm.ce_threshold {
            out.put_u32(CE_THRESHOLD, shown(threshold));
            out.put_u8(CE_THRESHOLD_SELECTOR, spec.aqm.ce_threshold_selector);
            out.put_u8(CE_THRESHOLD_MASK, spec.aqm.ce_threshold_mask);
        }
    });
}

/// `struct tc_codel_xstats`. Times are in microseconds.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct CodelStats {
    maxpacket: u32,
    count: u32,
    lastcount: u32,
    ldelay: u32,
    drop_next: i32,
    drop_overlimit: u32,
    ecn_mark: u32,
    dropping: u32,
    ce_mark: u32,
}

pub(super) fn xstats(values: &Values) -> Vec<u8> {
    let micros = |name| shown(Duration::from_nanos(values.u64(name)));
    let stats = CodelStats {
        maxpacket: values.u32("maxpacket"),
        count: values.u32("count"),
        lastcount: values.u32("lastcount"),
        ldelay: micros("ldelay"),
        drop_next: micros("drop_next").try_into().unwrap_or(i32::MAX),
        drop_overlimit: values.u32("drop_overlimit"),
        ecn_mark: values.u32("ecn_mark"),
        dropping: values.u32("dropping"),
        ce_mark: values.u32("ce_mark"),
    };
    stats.as_bytes().to_vec()
}

/// `struct tc_fq_codel_xstats` of a qdisc.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct FqCodelStats {
    /// `TCA_FQ_CODEL_XSTATS_QDISC`: 0.
    kind: u32,
    maxpacket: u32,
    drop_overlimit: u32,
    ecn_mark: u32,
    new_flow_count: u32,
    new_flows_len: u32,
    old_flows_len: u32,
    ce_mark: u32,
    memory_usage: u32,
    drop_overmemory: u32,
}

pub(super) fn xstats_fq(values: &Values) -> Vec<u8> {
    let stats = FqCodelStats {
        kind: 0,
        maxpacket: values.u32("maxpacket"),
        drop_overlimit: values.u32("drop_overlimit"),
        ecn_mark: values.u32("ecn_mark"),
        new_flow_count: values.u32("new_flow_count"),
        new_flows_len: values.u32("new_flows_len"),
        old_flows_len: values.u32("old_flows_len"),
        ce_mark: values.u32("ce_mark"),
        memory_usage: values.u32("memory_used"),
        drop_overmemory: values.u32("drop_overmemory"),
    };
    stats.as_bytes().to_vec()
}
