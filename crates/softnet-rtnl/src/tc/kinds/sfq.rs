//! `sfq` (`struct tc_sfq_qopt`, and the longer `struct tc_sfq_qopt_v1`).

use std::time::Duration;

use softnet_tc::{QdiscSpec, RedCurve, SfqSpec, Xstat, Xstats};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::xstats::{self, Slot};
use super::{QdiscContext, red};
use crate::nl::{Attr, Errno, Error, Message};
use crate::tc::TCA_OPTIONS;

/// `struct tc_sfq_qopt`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Options {
    quantum: u32,
    perturb: i32,
    limit: u32,
    divisor: u32,
    flows: u32,
}

/// The rest of `struct tc_sfq_qopt_v1`, without the statistics at its end.
#[derive(Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct More {
    depth: u32,
    headdrop: u32,
    /// Bytes that a flow may hold, by which `tc` computes the others.
    limit: u32,
    min: u32,
    max: u32,
    wlog: u8,
    plog: u8,
    cell_log: u8,
    flags: u8,
    max_p: u32,
}

/// `struct tc_sfqred_stats`.
const STATS: &[Slot] = &[
    Slot::U32(Xstat::ProbDrop),
    Slot::U32(Xstat::ForcedDrop),
    Slot::U32(Xstat::ProbMark),
    Slot::U32(Xstat::ForcedMark),
    Slot::U32(Xstat::ProbMarkHead),
    Slot::U32(Xstat::ForcedMarkHead),
];

const FRONT: usize = size_of::<Options>();
const LONG: usize = FRONT + size_of::<More>() + 24;

/// The longest period: that of a kernel whose clock ticks 1,000 times a second.
const MAX_PERTURB: i32 = i32::MAX / 1000;

/// `sfq_init`. What is 0 is the default.
pub(super) fn parse(spec: &mut QdiscSpec, options: Attr<'_>) -> Result<(), Error> {
    let refuse = |help: &str| Err(Error::from(Errno::EINVAL).help(help).at(&options));
    let QdiscSpec::Sfq(sfq) = spec else {
        return Ok(());
    };
    let data = options.data;
    let Ok((given, _)) = Options::read_from_prefix(data) else {
        return refuse("sfq's options are a structure of 20 bytes or more");
    };
    let more = (data.len() >= LONG).then(|| data.get(FRONT..)).flatten();
    let more = more.and_then(|more| Some(More::read_from_prefix(more).ok()?.0));
    if given.divisor != 0 && (!given.divisor.is_power_of_two() || given.divisor > 1 << 16) {
        return refuse("divisor must be a power of 2, at most 65536");
    }
    if given.quantum > i32::MAX as u32 {
        return Err(Error::invalid("sch_sfq: invalid quantum").at(&options));
    }
    let Some(seconds) = u64::try_from(given.perturb)
        .ok()
        .filter(|_| given.perturb <= MAX_PERTURB)
    else {
        let error = Error::invalid("sch_sfq: invalid perturb period").at(&options);
        return Err(error.help("perturb must be 0 to 2147483 seconds"));
    };
    let some = |number: u32| Some(number).filter(|&number| number != 0);
    sfq.quantum = some(given.quantum);
    sfq.perturb = Duration::from_secs(seconds);
    sfq.limit = some(given.limit);
    sfq.divisor = some(given.divisor).unwrap_or(sfq.divisor);
    sfq.flows = some(given.flows).unwrap_or(sfq.flows);
    if let Some(more) = more {
        sfq.depth = some(more.depth).unwrap_or(sfq.depth);
        // A byte in the kernel.
        sfq.headdrop = more.headdrop as u8 != 0;
        (sfq.ecn, sfq.harddrop) = (more.flags & red::ECN != 0, more.flags & red::HARDDROP != 0);
        sfq.user_flags = more.flags & !(red::ECN | red::HARDDROP);
        let curve = RedCurve {
            min: more.min,
            max: more.max,
            wlog: more.wlog,
            plog: more.plog,
            cell_log: more.cell_log,
            max_p: more.max_p,
        };
        sfq.red = Some(curve);
    }
    let checked = spec.check();
    // The kernel checks the curve in any case, and uses it if it has a threshold.
    if let QdiscSpec::Sfq(sfq) = spec {
        sfq.red = sfq.red.take().filter(|curve| curve.min != 0);
        if sfq.effective().limit == Some(1) {
            let error = Error::invalid("sch_sfq: invalid limit").at(&options);
            return Err(error.help("limit must come to at least 2, also as depth times flows"));
        }
    }
    checked.or_else(|error| refuse(&error.to_string()))
}

/// Puts what the parameters come to, and the statistics of RED.
pub(super) fn dump(
    spec: &SfqSpec,
    stats: Option<&Xstats>,
    context: &QdiscContext,
    out: &mut Message<'_>,
) {
    let spec = spec.effective();
    let options = Options {
        quantum: spec.quantum.unwrap_or_else(|| context.link.frame()),
        perturb: i32::try_from(spec.perturb.as_secs()).unwrap_or(i32::MAX),
        limit: spec.limit.unwrap_or(0),
        divisor: spec.divisor,
        flows: spec.flows,
    };
    let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    let mut more = More {
        depth: spec.depth,
        headdrop: spec.headdrop.into(),
        flags: flag(spec.ecn, red::ECN) | flag(spec.harddrop, red::HARDDROP) | spec.user_flags,
        ..More::default()
    };
    if let Some(curve) = &spec.red {
        (more.min, more.max) = (curve.min, curve.max);
        (more.wlog, more.plog, more.cell_log) = (curve.wlog, curve.plog, curve.cell_log);
        more.max_p = red::shown_max_p(curve);
    }
    let mut bytes = [options.as_bytes(), more.as_bytes()].concat();
    bytes.extend(xstats::bytes(STATS, stats));
    out.put_bytes(TCA_OPTIONS, &bytes);
}
