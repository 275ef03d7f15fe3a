//! Experiment `tx-adopt`: many threads send through one qdisc to one driver.
//!
//! All variants in this process send packets of one Softnet pool through the same qdisc to the
//! same driver, which frees them; what differs is how a sender gets at qdisc and driver. A sender
//! has at most 256 packets under kind, and gives the CPU away when it has. Every turn ends with a
//! check: what was sent was delivered or dropped, and all buffers are back.
//!
//! Loads: flat out, and half and 80 % of what the slower of Softnet and the mutex does flat out
//! with the same parameters (measured first, in the same run). There each sender has a burst of
//! packets to send at times that are fixed beforehand, and a packet's latency counts from the time
//! at which it was due, however late the sender gets to it.
//!
//! Besides one queue: the shape of the report that the mechanism is known by, many senders on 30
//! queues with `fq` and a driver that copies.

use std::collections::HashMap;

use serde_json::{Value, json};
use softnet::tx::ServedBy;

use crate::error::BenchError;
use crate::interleave::{Variant, interleave};
use crate::numbers::median;
use crate::options::{Only, Options};
use crate::report::{Collector, OURS, Param};

mod crossbeam;
mod dpdk;
mod fq;
pub(crate) mod kernel;
pub(crate) mod load;
mod path;
pub(crate) mod rows;
mod ticks;
pub(crate) mod variants;

pub(crate) use path::{Delivery, Driver, FRAME, Path, Qdisc, Sink, Stage};
pub(crate) use ticks::Ticks;

use load::{Outcome, Plan};
use variants::{Local, Setup};

/// Numbers of threads, unless the command line names others.
const THREADS: [usize; 5] = [1, 2, 8, 64, 240];
const FEW_THREADS: [usize; 2] = [1, 64];
/// Packets in a call, besides 1.
const BULK: usize = 32;
/// Fixed loads, in percent of what the slower of Softnet and the mutex does flat out.
const LOADS: [u32; 2] = [50, 80];
/// Queues of the device in the report that the mechanism is known by, and the senders with which
/// they are shared here: as there, and a quarter.
const QUEUES: usize = 30;
const SENDERS_OF_QUEUES: [usize; 2] = [60, 240];
/// Turns to find out what the slower of the two does, if that was not measured before.
const TRIES: usize = 3;
/// Fields that Softnet is compared by.
const COMPARE: &[&str] = &[
    "mpps",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "cpu_s_per_mpkt",
    "sojourn_p50_ns",
    "sojourn_p99_ns",
    "sojourn_p999_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "latency_p999_ns",
];
/// The parameters that a ratio's short key leaves out: those of the plain case.
const PLAIN: [&str; 3] = ["qdisc=pfifo", "driver=null", "bulk=1"];

/// The variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// In this process.
    Local(Local),
    Dpdk(dpdk::Sync),
    Kernel,
}

const SOFTNET: Local = Local::Softnet(ServedBy::Senders);

const KINDS: [Kind; 10] = [
    Kind::Local(SOFTNET),
    Kind::Local(Local::Softnet(ServedBy::Worker)),
    Kind::Local(Local::Mutex),
    Kind::Local(Local::Busylock),
    Kind::Local(Local::SpinAdopt),
    Kind::Local(Local::Crossbeam),
    Kind::Dpdk(dpdk::Sync::MultiProducer),
    Kind::Dpdk(dpdk::Sync::Relaxed),
    Kind::Dpdk(dpdk::Sync::HeadTail),
    Kind::Kernel,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Local(Local::Softnet(ServedBy::Worker)) => "softnet-worker",
            Kind::Local(Local::Softnet(ServedBy::Senders)) => OURS,
            Kind::Local(Local::Mutex) => "mutex",
            Kind::Local(Local::Busylock) => "busylock",
            Kind::Local(Local::SpinAdopt) => "spin-adopt",
            Kind::Local(Local::Crossbeam) => "crossbeam",
            Kind::Local(Local::Rings) => "rings",
            Kind::Dpdk(sync) => sync.variant(),
            Kind::Kernel => "kernel",
        }
    }

    /// True if there is a figure for this case.
    fn takes(self, case: &Case) -> bool {
        let plain = case.bulk == 1 && case.load.is_none() && case.queues.is_none();
        match (self, case.through) {
            (Kind::Kernel, Through::Kernel(_)) => true,
            (Kind::Kernel, _) | (_, Through::Kernel(_)) => false,
            // It has no qdisc of its own, and paces nothing.
            (Kind::Dpdk(_), Through::Here(qdisc, _)) => qdisc == Qdisc::Pfifo && plain,
            // What the goals are about, in every case.
            (Kind::Local(kind), _) => {
                plain || [SOFTNET, Local::Mutex, Local::Busylock].contains(&kind)
            }
        }
    }
}

/// The qdisc and the driver that the packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Through {
    Here(Qdisc, Driver),
    /// The kernel's qdisc of this index, and a veth device.
    Kernel(usize),
}

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
struct Case {
    threads: usize,
    bulk: usize,
    through: Through,
    /// Queues below `mq`; `None`: the qdisc is the root of a device with one queue.
    queues: Option<usize>,
    /// In percent of what the slower of Softnet and the mutex does; `None`: flat out.
    load: Option<u32>,
}

impl Case {
    fn params(&self) -> Vec<Param> {
        let (qdisc, driver) = match self.through {
            Through::Here(qdisc, driver) => (qdisc.name(), driver.name()),
            Through::Kernel(index) => (kernel::QDISCS[index].0, "veth"),
        };
        let mut params = vec![
            ("threads", json!(self.threads)),
            ("qdisc", json!(qdisc)),
            ("driver", json!(driver)),
            ("bulk", json!(self.bulk)),
        ];
        params.extend(self.queues.map(|queues| ("queues", json!(queues))));
        if let Some(load) = self.load {
            params.push(("load", json!(format!("{load}%"))));
        }
        params
    }

    /// True if the command line asks for it; a case without a load is `load=full`, one with one
    /// queue `queues=1`.
    fn wanted(&self, only: &Only) -> bool {
        let mut params = self.params();
        if self.load.is_none() {
            params.push(("load", json!("full")));
        }
        if self.queues.is_none() {
            params.push(("queues", json!(1)));
        }
        only.allows(&params)
    }
}

/// Every case, those that belong together next to each other; what is flat out comes before the
/// loads that are a part of it.
fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for &threads in options.threads(&THREADS, &FEW_THREADS) {
        let plain = |through| Case {
            threads,
            bulk: 1,
            through,
            queues: None,
            load: None,
        };
        for qdisc in [Qdisc::Pfifo, Qdisc::Fq] {
            for driver in [Driver::Null, Driver::Copy] {
                let case = plain(Through::Here(qdisc, driver));
                cases.push(case);
                cases.push(Case { bulk: BULK, ..case });
                let loads = LOADS.map(Some);
                cases.extend(loads.map(|load| Case { load, ..case }));
            }
        }
        for index in 0..kernel::QDISCS.len() {
            let case = plain(Through::Kernel(index));
            cases.push(Case { bulk: BULK, ..case });
        }
    }
    let shared = |threads: &usize| Case {
        threads: *threads,
        bulk: 1,
        through: Through::Here(Qdisc::Fq, Driver::Copy),
        queues: Some(QUEUES),
        load: None,
    };
    let several = options.threads(&SENDERS_OF_QUEUES, &SENDERS_OF_QUEUES[..1]);
    cases.extend(several.iter().map(shared));
    cases
}

/// A variant's turns at one case.
struct Turn {
    kind: Kind,
    case: Case,
    plan: Plan,
    ticks: Ticks,
}

impl Variant for Turn {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError> {
        let outcome = measure(self.kind, &self.case, &self.plan, &self.ticks)?;
        rows::add(
            self.name(),
            &self.case.params(),
            self.plan.offered,
            &outcome,
            results,
        );
        Ok(())
    }
}

/// Makes the variant afresh and measures it once.
fn measure(kind: Kind, case: &Case, plan: &Plan, ticks: &Ticks) -> Result<Outcome, BenchError> {
    match (kind, case.through) {
        (_, Through::Kernel(index)) => {
            let (_, commands) = kernel::QDISCS[index];
            kernel::Veth::new(commands, ticks.clone())?.measure(plan)
        }
        (Kind::Dpdk(sync), Through::Here(_, driver)) => dpdk::measure(sync, driver, plan),
        (Kind::Local(kind), Through::Here(qdisc, driver)) => Setup {
            qdisc: qdisc.spec(plan.packets()),
            mq: case.queues,
            driver,
            plan,
            ticks,
        }
        .measure(kind),
        (Kind::Kernel, _) => Err(BenchError::Measure("no such case".into())),
    }
}

/// Packets per second that the slower of Softnet and the mutex does flat out: as measured before
/// in this run, or now.
fn capacity(
    case: &Case,
    plan: &Plan,
    ticks: &Ticks,
    results: &Collector,
) -> Result<f64, BenchError> {
    let full = Case {
        load: None,
        ..*case
    };
    let mut least = f64::INFINITY;
    for kind in [Kind::Local(SOFTNET), Kind::Local(Local::Mutex)] {
        let known = results.median(kind.name(), &full.params(), "mpps");
        let mpps = match known {
            Some(mpps) => mpps,
            None => {
                let turn = |_| {
                    let outcome = measure(kind, &full, plan, ticks)?;
                    Ok(outcome.delivered as f64 / outcome.time.as_secs_f64() / 1e6)
                };
                let turns = (0..TRIES)
                    .map(turn)
                    .collect::<Result<Vec<_>, BenchError>>()?;
                median(&turns)
            }
        };
        least = least.min(mpps * 1e6);
    }
    Ok(least)
}

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    let only = options.only()?;
    options.check_variants("tx-adopt", &KINDS.map(Kind::name))?;
    let ticks = Ticks::new();
    let mut results = Collector::default();
    let mut known: HashMap<(usize, Through), f64> = HashMap::new();
    for case in cases(options) {
        if !case.wanted(&only) {
            continue;
        }
        let mut plan = Plan {
            threads: case.threads,
            bulk: case.bulk,
            offered: None,
            frame: FRAME,
            classes: 0,
            time: options.window(case.threads),
        };
        let rounds = options.rounds().of(&case.params(), plan.time);
        if !rounds.want(OURS) {
            continue;
        }
        if let Some(load) = case.load {
            let key = (case.threads, case.through);
            let full = match known.get(&key) {
                Some(full) => *full,
                None if options.plan => 0.0,
                None => capacity(&case, &plan, &ticks, &results)?,
            };
            known.insert(key, full);
            plan.offered = Some(full * f64::from(load) / 100.0);
        }
        let chosen = |kind: &Kind| kind.takes(&case) && options.wants(kind.name());
        let mut variants: Vec<Box<dyn Variant>> = Vec::new();
        for kind in KINDS.into_iter().filter(chosen) {
            variants.push(Box::new(Turn {
                kind,
                case,
                plan,
                ticks: ticks.clone(),
            }));
        }
        interleave(rounds, &mut variants, &mut results)?;
    }
    let mut report = results.report("tx-adopt", COMPARE);
    shorten(&mut report);
    chains(&mut report);
    Ok(report)
}

/// Gives the ratios of the plain case their short keys too: `mpps/busylock/threads=240`.
fn shorten(report: &mut Value) {
    let Some(ratios) = report["ratios"].as_object_mut() else {
        return;
    };
    for (key, ratio) in ratios.clone() {
        let mut rest: Vec<&str> = key.split(',').collect();
        let before = rest.len();
        rest.retain(|param| !PLAIN.contains(param));
        if rest.len() + PLAIN.len() == before {
            ratios.insert(rest.join(","), ratio);
        }
    }
}

/// Adds what chains gain over single packets: `mpps_over_bulk=1/softnet/threads=8,bulk=32`.
fn chains(report: &mut Value) {
    let rows = report["rows"].as_array().cloned().unwrap_or_default();
    let plain = |row: &&Value| row["qdisc"] == "pfifo" && row["driver"] == "null";
    for chain in rows.iter().filter(|row| row["bulk"] == BULK).filter(plain) {
        let same = |row: &&Value| {
            row["bulk"] == 1
                && row.get("load").is_none()
                && ["variant", "threads", "qdisc", "driver"]
                    .iter()
                    .all(|name| row[*name] == chain[*name])
        };
        let figures = (
            chain["mpps"].as_f64(),
            rows.iter().find(same).and_then(|row| row["mpps"].as_f64()),
        );
        if let (Some(chained), Some(single)) = figures
            && single > 0.0
            && let Some(variant) = chain["variant"].as_str()
        {
            let key = format!(
                "mpps_over_bulk=1/{variant}/threads={},bulk={BULK}",
                chain["threads"]
            );
            let ratio = crate::numbers::significant(chained / single, 5);
            report["ratios"][key] = json!(ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN_CASE: Case = Case {
        threads: 4,
        bulk: 1,
        through: Through::Here(Qdisc::Fq, Driver::Copy),
        queues: None,
        load: None,
    };

    /// The measurement itself fails if a packet is lost or stuck.
    #[test]
    fn every_path_delivers_or_drops_all_packets() {
        let ticks = Ticks::new();
        for kind in KINDS
            .into_iter()
            .filter(|kind| matches!(kind, Kind::Local(_)))
        {
            for qdisc in [Qdisc::Pfifo, Qdisc::Fq] {
                for (bulk, offered, queues) in [
                    (1, None, None),
                    (BULK, None, None),
                    (1, Some(50_000.0), None),
                    (1, None, Some(3)),
                ] {
                    let plan = Plan {
                        threads: 4,
                        bulk,
                        offered,
                        frame: FRAME,
                        classes: 0,
                        time: std::time::Duration::from_millis(20),
                    };
                    let case = Case {
                        through: Through::Here(qdisc, Driver::Copy),
                        queues,
                        ..PLAIN_CASE
                    };
                    load::until_delivered(|| measure(kind, &case, &plan, &ticks))
                        .unwrap_or_else(|error| panic!("{} {plan:?}: {error}", kind.name()));
                }
            }
        }
    }

    #[test]
    fn only_chooses_by_parameter() {
        use clap::Parser as _;
        let only = |text: &str| {
            let options = Options::parse_from(["softnet-bench", "tx-adopt", "--only", text]);
            options.only().map(|only| PLAIN_CASE.wanted(&only)).ok()
        };
        assert_eq!(only("qdisc=pfifo,qdisc=fq,load=full"), Some(true));
        assert_eq!(only("qdisc=pfifo"), Some(false));
        assert_eq!(only("load=50%"), Some(false));
    }

    #[test]
    fn ratios_of_the_plain_case_have_short_keys() {
        let mut report = json!({"ratios": {
            "mpps/busylock/threads=240,qdisc=pfifo,driver=null,bulk=1": 5.0,
            "mpps/busylock/threads=240,qdisc=fq,driver=null,bulk=1": 4.0,
        }});
        // The parameters come in the order of `Case::params`, `threads` first.
        assert!(PLAIN_CASE.params()[0].0 == "threads");
        shorten(&mut report);
        assert_eq!(report["ratios"]["mpps/busylock/threads=240"], 5.0);
        assert_eq!(report["ratios"].as_object().map(|r| r.len()), Some(3));
    }

    #[test]
    fn chains_are_compared_with_single_packets_of_the_same_case() {
        let row = |bulk: usize, mpps: f64| {
            json!({"variant": "softnet", "threads": 8, "qdisc": "pfifo", "driver": "null",
                   "bulk": bulk, "mpps": mpps})
        };
        let mut report = json!({"rows": [row(1, 10.0), row(32, 45.0)], "ratios": {}});
        chains(&mut report);
        assert_eq!(
            report["ratios"],
            json!({"mpps_over_bulk=1/softnet/threads=8,bulk=32": 4.5})
        );
    }
}
