//! Experiment `scale`: a model of cores and cache lines that replays the memory accesses of the
//! transmit path's designs on up to 512 cores.
//!
//! A discrete-event simulation in virtual time, deterministic from a seed. Each core runs the
//! program of a sender of `tx-adopt`, step by step as the real code has it, where every access to
//! a line that cores share is an access to a [line](mod@line) of the model; everything else is a
//! time in which the core does not touch shared lines ([`Work`]).
//!
//! # What a packet touches
//!
//! - In each design: the line of the packet's header, which goes to the core that sends it and
//!   comes back with the buffer ([`pool`]: one line of the sender's remote-free list for 64 of
//!   them); the driver's count and the sender's count of what was sent ([`device`]).
//! - `busylock`: the flag that the qdisc is run; of three ticket locks two lines each; what root
//!   and driver lock guard ([`busylock`]).
//! - `softnet` (adoption): the word with list and owner, once for each push and twice for each
//!   batch that an owner sends; the owner's state and its published counters when another core
//!   becomes the owner ([`adoption`]).
//! - `private`: the same, one queue and one shaper for each instance.
//! - `all-cores`: as `private`, and the shared word of the rate once for 64 of the longest frames
//!   ([`adoption::Pot`]).
//!
//! # What the numbers are from
//!
//! All of them are measured when the experiment runs: costs of accesses between two CPUs, and of
//! each design what one thread takes, in calls of one packet and of 32. One constant is fitted,
//! for all designs at once: the part of a transfer in which neither core has the line (`flight`),
//! so that two cores of the model that contend for one line take as long as was measured. So on
//! one core the model agrees by construction; two cores are a prediction, compared with the real
//! designs in the same round (`deviation_percent`).
//!
//! # Assumptions and limits
//!
//! - Other distances than that of this machine's two CPUs are taken from a publication
//!   ([`topology`]).
//! - Transfers of one line follow each other in the order of the requests; transfers of different
//!   lines do not disturb each other. Loads that miss between two atomic operations were all asked
//!   for at once (the processor predicts), stores do not hold the core up before the next atomic
//!   operation, and a miss takes from 3/4 to 5/4 of its time, at random.
//! - Left out: bandwidth of memory and of the links, what a directory does with many sharers, SMT,
//!   the processor's frequency, interrupts, and all that a scheduler does: each sender has a core,
//!   and a helper runs only where a sender has nothing to do.
//! - `all-cores` with a rate that never limits. While it limits, a draw also reads one word of
//!   each other instance.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::BenchError;
use crate::numbers::{median, significant};
use crate::options::{Options, SHORT};
use crate::random::Random;
use crate::report::{Collector, Param};

mod adoption;
mod busylock;
mod calibrate;
mod device;
mod line;
mod machine;
mod model;
mod pool;
mod real;
mod shape;
#[cfg(test)]
mod tests;
mod topology;

use calibrate::Calibration;
use device::Work;
use model::Load;
use real::{Control, Make};
use shape::Cell;

/// Numbers of cores, unless the command line names others. What two of them do is measured, too.
const CORES: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Packets that the model counts, and more for each core.
const PACKETS: u64 = 8000;
const PER_CORE: u64 = 300;
const SHORT_PER_CORE: u64 = 10;
/// Fields that Softnet is compared by.
const COMPARE: &[&str] = &["mpps"];

/// The instructions of a design with a qdisc.
type Works = BTreeMap<(&'static str, &'static str), Work>;

fn simulate(
    cell: &Cell,
    work: Work,
    calibration: &Calibration,
    options: &Options,
    seed: u32,
) -> f64 {
    let each = match options.seconds < SHORT {
        true => SHORT_PER_CORE,
        false => PER_CORE,
    };
    let load = Load {
        design: cell.design(),
        cores: cell.cores,
        queues: cell.instances(),
        work: cell.shape.work(work, calibration),
        packets: PACKETS + each * cell.cores as u64,
        seed,
    };
    model::mpps(&load, calibration.costs)
}

/// One round: what memory costs now, and the real designs on one and two CPUs beside the model.
struct Round {
    calibration: Calibration,
    works: Works,
}

fn round(
    options: &Options,
    number: usize,
    control: &Control,
    results: &mut Collector,
) -> Result<Round, BenchError> {
    let time = options.window(1);
    let only = options.only()?;
    let calibration = Calibration::measure(control.ticks())?;
    let make = Make::measure(time, control)?;
    let mut works = Works::new();
    let mut measured = shape::MEASURED;
    Random::of_now().shuffle(&mut measured);
    for (variant, shape) in measured {
        let cell = |cores| Cell {
            variant,
            shape,
            cores,
        };
        let real = cell(1).real();
        let single = real.mpps(1, 1, time, control)?;
        let chained = real.mpps(1, real::BULK, time, control)?;
        let work = real.work(make, (single, chained, real.queued(control)?), &calibration);
        works.insert((variant, shape.qdisc()), work);
        for (cores, mpps) in [(1, Some(single)), (2, None)] {
            let cell = cell(cores);
            if !options.wants(variant) || !only.allows(&cell.params()) {
                continue;
            }
            let mpps = match mpps {
                Some(mpps) => mpps,
                None => real.mpps(cores, 1, time, control)?,
            };
            let model = simulate(&cell, work, &calibration, options, number as u32);
            let deviation = (model / mpps - 1.0).abs() * 100.0;
            let fields = [
                ("mpps", model),
                ("measured_mpps", mpps),
                ("deviation_percent", deviation),
            ];
            results.add(variant, &cell.params(), &fields);
        }
    }
    // Its instructions are those of `private`, but for the draws.
    if let Some(work) = works.get(&(shape::PRIVATE, shape::TBF)).copied() {
        works.insert((shape::ALL_CORES, shape::TBF), work);
    }
    Ok(Round { calibration, works })
}

/// The round in which a transfer took the median time, with the medians of the instructions.
fn typical(mut rounds: Vec<Round>) -> Option<Round> {
    let middle = |works: &[Work]| {
        let of = |field: fn(&Work) -> f64| median(&works.iter().map(field).collect::<Vec<_>>());
        Work {
            make: of(|work| work.make),
            push: of(|work| work.push),
            call: of(|work| work.call),
            packet: of(|work| work.packet),
            queued: of(|work| work.queued),
            pause: of(|work| work.pause),
            clock: of(|work| work.clock),
            r#yield: of(|work| work.r#yield),
        }
    };
    rounds.sort_by(|a, b| a.calibration.costs.rmw.total_cmp(&b.calibration.costs.rmw));
    let keys: Vec<_> = rounds.first()?.works.keys().copied().collect();
    let works = keys.into_iter().map(|key| {
        let all: Vec<_> = rounds
            .iter()
            .filter_map(|r| r.works.get(&key).copied())
            .collect();
        (key, middle(&all))
    });
    Some(Round {
        works: works.collect(),
        calibration: rounds[(rounds.len() - 1) / 2].calibration,
    })
}

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    if options.plan {
        return Ok(json!({}));
    }
    options.check_variants("scale", &shape::VARIANTS)?;
    let only = options.only()?;
    let control = Control::new();
    let mut results = Collector::default();
    results.expect(shape::VARIANTS.into_iter());
    let rounds: Result<Vec<_>, _> = (0..options.rounds().count)
        .map(|number| round(options, number, &control, &mut results))
        .collect();
    let Some(typical) = typical(rounds?) else {
        return Err(BenchError::Measure("no round".into()));
    };
    let cores = match &options.threads[..] {
        [] => &CORES[..],
        some => some,
    };
    let mut known = BTreeMap::new();
    for cell in shape::cells(cores) {
        let params = cell.params();
        let chosen = options.wants(cell.variant) && only.allows(&params);
        if !chosen || results.median(cell.variant, &params, "mpps").is_some() {
            continue;
        }
        let Some(work) = typical.works.get(&(cell.variant, cell.shape.qdisc())) else {
            continue;
        };
        // One instance for all queues is the same whatever the number of queues.
        let key = (
            cell.variant,
            cell.shape.work_name(),
            cell.instances(),
            cell.cores,
        );
        let mpps = *known
            .entry(key)
            .or_insert_with(|| simulate(&cell, *work, &typical.calibration, options, 1));
        let mut fields = vec![("mpps", mpps)];
        if let Some(published) = cell.published() {
            fields.push(("published_mpps", published));
            fields.push(("of_published", mpps / published));
        }
        results.add(cell.variant, &params, &fields);
    }
    let mut report = results.report("scale", COMPARE);
    report["calibration"] = typical.calibration.to_json();
    if let Some(rows) = report["rows"].as_array_mut() {
        let order: Vec<_> = shape::cells(cores).iter().map(Cell::params).collect();
        let place = |row: &Value| {
            let same = |params: &Vec<Param>| params.iter().all(|(n, v)| row[*n] == *v);
            order.iter().position(same)
        };
        rows.sort_by_cached_key(place);
    }
    for ((variant, qdisc), work) in &typical.works {
        let nanos = [
            ("make", work.make),
            ("push", work.push),
            ("call", work.call),
            ("packet", work.packet),
            ("queued", work.queued),
        ];
        for (name, value) in nanos {
            let key = format!("{variant}_{qdisc}_{name}_ns");
            report["calibration"][key] = json!(significant(value, 4));
        }
    }
    Ok(report)
}
