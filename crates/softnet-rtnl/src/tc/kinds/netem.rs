//! `netem` (`struct tc_netem_qopt`, `TCA_NETEM_*`): a structure, and attributes behind it.

use std::time::Duration;

use softnet_tc::{Distribution, LossModel, NetemSpec, QdiscSpec, Xstat};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::xstats::Slot;
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const CORR: u16 = 1;
const DELAY_DIST: u16 = 2;
const REORDER: u16 = 3;
const CORRUPT: u16 = 4;
const LOSS: u16 = 5;
const RATE: u16 = 6;
const ECN: u16 = 7;
const RATE64: u16 = 8;
const LATENCY64: u16 = 10;
const JITTER64: u16 = 11;
const SLOT: u16 = 12;
const SLOT_DIST: u16 = 13;
const PRNG_SEED: u16 = 14;

const LOSS_GI: u16 = 1;
const LOSS_GE: u16 = 2;

/// `PSCHED_SHIFT`: a tick is 64 ns.
const TICK: u32 = 6;

/// `struct tc_netem_qopt`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Options {
    latency: u32,
    limit: u32,
    loss: u32,
    gap: u32,
    duplicate: u32,
    jitter: u32,
}

/// `struct tc_netem_corr`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Correlations {
    delay: u32,
    loss: u32,
    duplicate: u32,
}

/// `struct tc_netem_reorder`, `struct tc_netem_corrupt`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Chance {
    probability: u32,
    correlation: u32,
}

/// `struct tc_netem_rate`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct LinkRate {
    rate: u32,
    packet_overhead: i32,
    cell_size: u32,
    cell_overhead: i32,
}

/// `struct tc_netem_slot`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct SlotTimes {
    min_delay: i64,
    max_delay: i64,
    max_packets: i32,
    max_bytes: i32,
    dist_delay: i64,
    dist_jitter: i64,
}

const POLICY: Policy = Policy::new(
    PRNG_SEED,
    &[
        (CORR, Rule::Min(size_of::<Correlations>())),
        (REORDER, Rule::Min(size_of::<Chance>())),
        (CORRUPT, Rule::Min(size_of::<Chance>())),
        (RATE, Rule::Min(size_of::<LinkRate>())),
        (LOSS, Rule::NestedAny),
        (ECN, Rule::U32),
        (RATE64, Rule::U64),
        (LATENCY64, Rule::U64),
        (JITTER64, Rule::U64),
        (SLOT, Rule::Min(size_of::<SlotTimes>())),
        (PRNG_SEED, Rule::U64),
    ],
);

fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() >> TICK).unwrap_or(u32::MAX)
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A time that is not negative.
fn time(nanos: i64) -> Option<Duration> {
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// `netem_init`, `netem_change`: what an attribute says stays without it, but for the model of
/// loss.
pub(super) fn parse(
    options: Option<Attr<'_>>,
    before: Option<&QdiscSpec>,
) -> Result<QdiscSpec, Error> {
    let Some(options) = options else {
        return Err(Error::from(Errno::EINVAL).help("netem needs options"));
    };
    let (length, least) = (options.data.len(), size_of::<Options>());
    if length < least {
        let text = format!("netem: invalid attributes len {length} < {least}");
        return Err(Error::from(Errno::EINVAL).text(text));
    }
    let qopt: Options = options.fixed()?;
    let attrs = options.nested_behind(least, &POLICY)?;
    let mut spec = match before {
        Some(QdiscSpec::Netem(spec)) => spec.clone(),
        _ => NetemSpec::default(),
    };
    if let Some(table) = attrs.get(DELAY_DIST) {
        spec.distribution = Some(distribution(table)?);
    }
    if let Some(table) = attrs.get(SLOT_DIST) {
        spec.slot_distribution = Some(distribution(table)?);
    }
    slot(&attrs, &mut spec)?;
    let latency = named_time(&attrs, LATENCY64, "latency")?;
    let jitter = named_time(&attrs, JITTER64, "jitter")?;
    spec.loss_model = match attrs.get(LOSS) {
        Some(nest) => loss_model(nest, &spec.loss_model)?,
        None => LossModel::Random,
    };
    let of_ticks = |ticks: u32| Duration::from_nanos(u64::from(ticks) << TICK);
    spec.delay = latency.unwrap_or_else(|| of_ticks(qopt.latency));
    let most = Duration::from_nanos(i32::MAX as u64);
    spec.jitter = jitter.unwrap_or_else(|| of_ticks(qopt.jitter)).min(most);
    (spec.limit, spec.loss) = (qopt.limit, qopt.loss);
    (spec.gap, spec.duplicate) = (qopt.gap, qopt.duplicate);
    if spec.gap > 0 {
        spec.reorder = u32::MAX;
    }
    if let Some(of) = attrs.fixed::<Correlations>(CORR)? {
        spec.delay_correlation = of.delay;
        spec.loss_correlation = of.loss;
        spec.duplicate_correlation = of.duplicate;
    }
    if let Some(of) = attrs.fixed::<Chance>(REORDER)? {
        (spec.reorder, spec.reorder_correlation) = (of.probability, of.correlation);
    }
    if let Some(of) = attrs.fixed::<Chance>(CORRUPT)? {
        (spec.corrupt, spec.corrupt_correlation) = (of.probability, of.correlation);
    }
    if let Some(of) = attrs.fixed::<LinkRate>(RATE)? {
        spec.rate = of.rate.into();
        spec.packet_overhead = of.packet_overhead;
        (spec.cell_size, spec.cell_overhead) = (of.cell_size, of.cell_overhead);
    }
    if let Some(rate) = attrs.u64(RATE64)? {
        spec.rate = spec.rate.max(rate);
    }
    if let Some(ecn) = attrs.u32(ECN)? {
        spec.ecn = ecn != 0;
    }
    if let Some(seed) = attrs.u64(PRNG_SEED)? {
        spec.seed = Some(seed);
    }
    Ok(QdiscSpec::Netem(spec))
}

/// `get_dist_table`.
fn distribution(attr: Attr<'_>) -> Result<Distribution, Error> {
    let numbers: Vec<i16> = attr.array().collect();
    let table = Distribution::new(numbers);
    table.ok_or_else(|| {
        let error = Error::from(Errno::EINVAL);
        error
            .help("A distribution has 1 to 16384 numbers")
            .at(&attr)
    })
}

/// `validate_time`.
fn named_time(attrs: &Attrs<'_>, kind: u16, name: &str) -> Result<Option<Duration>, Error> {
    let Some(attr) = attrs.get(kind) else {
        return Ok(None);
    };
    let time = time(attr.fixed()?);
    let negative = || Error::from(Errno::EINVAL).text(format!("negative {name}"));
    time.map(Some).ok_or_else(|| negative().at(&attr))
}

/// `validate_slot`, `get_slot`.
fn slot(attrs: &Attrs<'_>, spec: &mut NetemSpec) -> Result<(), Error> {
    let Some(attr) = attrs.get(SLOT) else {
        return Ok(());
    };
    let of: SlotTimes = attr.fixed()?;
    let refuse = |text| Error::invalid(text).at(&attr);
    let (min, max) = (time(of.min_delay), time(of.max_delay));
    let (Some(min), Some(max)) = (min, max) else {
        return Err(refuse("negative slot delay"));
    };
    if min > max {
        return Err(refuse("slot min delay greater than max delay"));
    }
    let (Some(delay), Some(jitter)) = (time(of.dist_delay), time(of.dist_jitter)) else {
        return Err(refuse("negative dist delay"));
    };
    // The highest stands for none, as 0 does.
    let limit = |limit: i32| match limit {
        i32::MAX => Some(0),
        limit => u32::try_from(limit).ok(),
    };
    let limits = (limit(of.max_packets), limit(of.max_bytes));
    let (Some(packets), Some(bytes)) = limits else {
        return Err(refuse("negative slot limit"));
    };
    let most = Duration::from_nanos(i32::MAX as u64);
    let slot = &mut spec.slot;
    (slot.min, slot.max) = (min, max);
    (slot.delay, slot.jitter) = (delay, jitter.min(most));
    (slot.packets, slot.bytes) = (packets, bytes);
    Ok(())
}

/// `get_loss_clg`: of several the last; without one what there was.
fn loss_model(nest: Attr<'_>, before: &LossModel) -> Result<LossModel, Error> {
    let mut model = before.clone();
    for attr in nest.children() {
        let numbers: Vec<u32> = attr.array().collect();
        model = match (attr.kind(), &numbers[..]) {
            (LOSS_GI, &[p13, p31, p32, p14, p23, ..]) => {
                LossModel::State([p13, p31, p32, p14, p23])
            }
            (LOSS_GI, _) => {
                return Err(Error::invalid("netem: incorrect gi model size").at(&attr));
            }
            (LOSS_GE, &[p, r, h, k1, ..]) => LossModel::Gemodel([p, r, h, k1]),
            (LOSS_GE, _) => {
                return Err(Error::invalid("netem: incorrect ge model size").at(&attr));
            }
            (other, _) => {
                let text = format!("netem: unknown loss type {other}");
                return Err(Error::from(Errno::EINVAL).text(text).at(&attr));
            }
        };
    }
    Ok(model)
}

/// `netem_dump`. Distributions are not shown.
pub(super) fn dump(spec: &NetemSpec, out: &mut Message<'_>) {
    let qopt = Options {
        latency: ticks(spec.delay),
        limit: spec.limit,
        loss: spec.loss,
        gap: spec.gap,
        duplicate: spec.duplicate,
        jitter: ticks(spec.jitter),
    };
    out.nest_with(TCA_OPTIONS, &qopt, |out| {
        out.put(LATENCY64, &nanos(spec.delay));
        out.put(JITTER64, &nanos(spec.jitter));
        let correlations = Correlations {
            delay: spec.delay_correlation,
            loss: spec.loss_correlation,
            duplicate: spec.duplicate_correlation,
        };
        out.put(CORR, &correlations);
        let chance = |probability, correlation| Chance {
            probability,
            correlation,
        };
        out.put(REORDER, &chance(spec.reorder, spec.reorder_correlation));
        out.put(CORRUPT, &chance(spec.corrupt, spec.corrupt_correlation));
        if spec.rate > u32::MAX.into() {
            out.put_u64(RATE64, spec.rate);
        }
        let rate = LinkRate {
            rate: u32::try_from(spec.rate).unwrap_or(u32::MAX),
            packet_overhead: spec.packet_overhead,
            cell_size: spec.cell_size,
            cell_overhead: spec.cell_overhead,
        };
        out.put(RATE, &rate);
        if spec.ecn {
            out.put_u32(ECN, 1);
        }
        match spec.loss_model {
            LossModel::Random => {}
            LossModel::State(of) => out.nest(LOSS, |out| out.put(LOSS_GI, &of)),
            LossModel::Gemodel(of) => out.nest(LOSS, |out| out.put(LOSS_GE, &of)),
        }
        if spec.slot.is_on() {
            let slot = &spec.slot;
            let limit = |limit: u32| limit.try_into().unwrap_or(i32::MAX);
            let times = SlotTimes {
                min_delay: nanos(slot.min),
                max_delay: nanos(slot.max),
                max_packets: limit(slot.packets),
                max_bytes: limit(slot.bytes),
                dist_delay: nanos(slot.delay),
                dist_jitter: nanos(slot.jitter),
            };
            out.put(SLOT, &times);
        }
        if let Some(seed) = spec.seed {
            out.put_u64(PRNG_SEED, seed);
        }
    });
}

/// `struct tc_netem_xstats`.
pub(super) const XSTATS: &[Slot] = &[
    Slot::U64(Xstat::Delayed),
    Slot::U64(Xstat::Dropped),
    Slot::U64(Xstat::Corrupted),
    Slot::U64(Xstat::Duplicated),
    Slot::U64(Xstat::Reordered),
    Slot::U64(Xstat::EcnMarked),
    Slot::U64(Xstat::AllocationErrors),
];
