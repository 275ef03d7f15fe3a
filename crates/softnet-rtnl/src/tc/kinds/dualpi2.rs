//! `dualpi2` (`TCA_DUALPI2_*`).

use std::time::Duration;

use softnet_tc::{DualPi2Spec, QdiscSpec, Xstat, dualpi2_shown_gain};

use super::QdiscContext;
use super::xstats::Slot;
use crate::nl::{Attr, Attrs, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const LIMIT: u16 = 1;
const MEMORY_LIMIT: u16 = 2;
const TARGET: u16 = 3;
const TUPDATE: u16 = 4;
const ALPHA: u16 = 5;
const BETA: u16 = 6;
const STEP_THRESH_PKTS: u16 = 7;
const STEP_THRESH_US: u16 = 8;
const MIN_QLEN_STEP: u16 = 9;
const COUPLING: u16 = 10;
const DROP_OVERLOAD: u16 = 11;
const DROP_EARLY: u16 = 12;
const C_PROTECTION: u16 = 13;
const ECN_MASK: u16 = 14;
const SPLIT_GSO: u16 = 15;

const GAIN: Rule = Rule::U32Range(1, i32::MAX as u32);

const POLICY: Policy = Policy {
    max: SPLIT_GSO + 1,
    strict_from: 1,
    rules: &[
        (LIMIT, Rule::U32Range(1, u32::MAX)),
        (MEMORY_LIMIT, Rule::U32Range(1, u32::MAX)),
        (TARGET, Rule::U32),
        (TUPDATE, Rule::U32Range(1, u32::MAX)),
        (ALPHA, GAIN),
        (BETA, GAIN),
        (STEP_THRESH_PKTS, Rule::U32),
        (STEP_THRESH_US, Rule::U32),
        (MIN_QLEN_STEP, Rule::U32),
        (COUPLING, Rule::U8Range(1, u8::MAX)),
        (DROP_OVERLOAD, Rule::U8Range(0, 1)),
        (DROP_EARLY, Rule::U8Range(0, 1)),
        (C_PROTECTION, Rule::U8Range(0, 100)),
        (ECN_MASK, Rule::U8Range(1, 3)),
        (SPLIT_GSO, Rule::U8Range(0, 1)),
    ],
};

/// `dualpi2_init`, `dualpi2_change`.
pub(super) fn parse(spec: &mut QdiscSpec, options: Attr<'_>, is_new: bool) -> Result<(), Error> {
    let QdiscSpec::DualPi2(spec) = spec else {
        return Ok(());
    };
    if options.data.is_empty() {
        if is_new {
            return Ok(());
        }
        return Err(Error::invalid("sch_dualpi2: Dualpi2 options are required").at(&options));
    }
    let attrs = options.nested(&POLICY)?;
    if attrs.has(STEP_THRESH_PKTS) && attrs.has(STEP_THRESH_US) {
        return Err(Error::invalid("sch_dualpi2: multiple step thresh attributes").at(&options));
    }
    take(spec, &attrs)
}

fn take(spec: &mut DualPi2Spec, attrs: &Attrs<'_>) -> Result<(), Error> {
    let number = |kind, field: &mut u32| -> Result<(), Error> {
        *field = attrs.u32(kind)?.unwrap_or(*field);
        Ok(())
    };
    let byte = |kind, field: &mut u8| -> Result<(), Error> {
        *field = attrs.u8(kind)?.unwrap_or(*field);
        Ok(())
    };
    let flag = |kind, field: &mut bool| -> Result<(), Error> {
        *field = attrs.u8(kind)?.map_or(*field, |given| given != 0);
        Ok(())
    };
    // The kernel keeps these in nanoseconds in 32 bits.
    let short =
        |micros: u32| Duration::from_nanos((u64::from(micros) * 1000).min(u32::MAX.into()));
    if attrs.has(LIMIT) {
        // Another limit is another limit of memory, where none is given.
        spec.memory_limit = None;
    }
    number(LIMIT, &mut spec.limit)?;
    spec.memory_limit = attrs.u32(MEMORY_LIMIT)?.or(spec.memory_limit);
    if let Some(target) = attrs.u32(TARGET)? {
        spec.target = Duration::from_micros(target.into());
    }
    if let Some(tupdate) = attrs.u32(TUPDATE)? {
        spec.tupdate = short(tupdate);
    }
    number(ALPHA, &mut spec.alpha)?;
    number(BETA, &mut spec.beta)?;
    if let Some(packets) = attrs.u32(STEP_THRESH_PKTS)? {
        spec.step_packets = Some(packets);
    }
    if let Some(micros) = attrs.u32(STEP_THRESH_US)? {
        (spec.step_packets, spec.step_thresh) = (None, short(micros));
    }
    number(MIN_QLEN_STEP, &mut spec.min_qlen_step)?;
    byte(COUPLING, &mut spec.coupling_factor)?;
    flag(DROP_OVERLOAD, &mut spec.drop_on_overload)?;
    flag(DROP_EARLY, &mut spec.drop_enqueue)?;
    byte(C_PROTECTION, &mut spec.classic_protection)?;
    byte(ECN_MASK, &mut spec.ecn_mask)?;
    flag(SPLIT_GSO, &mut spec.split_gso)
}

pub(super) fn dump(spec: &DualPi2Spec, context: &QdiscContext, out: &mut Message<'_>) {
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    out.nest(TCA_OPTIONS, |out| {
        out.put_u32(LIMIT, spec.limit);
        out.put_u32(MEMORY_LIMIT, spec.memory_limit(context.link.frame()));
        out.put_u32(TARGET, micros(spec.target));
        out.put_u32(TUPDATE, micros(spec.tupdate));
        out.put_u32(ALPHA, dualpi2_shown_gain(spec.alpha));
        out.put_u32(BETA, dualpi2_shown_gain(spec.beta));
        match spec.step_packets {
            Some(packets) => out.put_u32(STEP_THRESH_PKTS, packets),
            None => out.put_u32(STEP_THRESH_US, micros(spec.step_thresh)),
        }
        out.put_u32(MIN_QLEN_STEP, spec.min_qlen_step);
        out.put_u8(COUPLING, spec.coupling_factor);
        out.put_u8(DROP_OVERLOAD, spec.drop_on_overload.into());
        out.put_u8(DROP_EARLY, spec.drop_enqueue.into());
        out.put_u8(C_PROTECTION, spec.classic_protection);
        out.put_u8(ECN_MASK, spec.ecn_mask);
        out.put_u8(SPLIT_GSO, spec.split_gso.into());
    });
}

/// `struct tc_dualpi2_xstats`.
pub(super) const XSTATS: &[Slot] = &[
    Slot::U32(Xstat::Prob),
    Slot::WholeMicros(Xstat::DelayC),
    Slot::WholeMicros(Xstat::DelayL),
    Slot::U32(Xstat::PacketsInC),
    Slot::U32(Xstat::PacketsInL),
    Slot::U32(Xstat::MaxQueue),
    Slot::U32(Xstat::EcnMark),
    Slot::U32(Xstat::StepMarks),
    Slot::U32(Xstat::Credit),
    Slot::U32(Xstat::MemoryUsed),
    Slot::U32(Xstat::MaxMemoryUsed),
    Slot::U32(Xstat::MemoryLimit),
];
