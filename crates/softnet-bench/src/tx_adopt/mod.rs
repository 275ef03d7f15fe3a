//! Experiment `tx-adopt`: many threads send through one discipline to one driver.
//!
//! All variants in this process send packets of one Softnet pool through the same discipline to the same driver, which frees them; what
//! differs is how a sender gets at discipline and driver. A sender has at most 256 packets under way, and gives the CPU away when it has. Every turn ends with a check: what was sent was delivered or dropped, and all buffers are back.
//!
//! Loads: flat out, and half and 80 % of what the mutex does flat out with the same parameters (measured first, in the same run). A sender
//! at a given load sleeps when it is ahead of it, so packets come in small bursts.

use std::collections::HashMap;
use std::time::Duration;

use ::softnet::tx::ServedBy;
use serde_json::{Value, json};

use crate::baselines::busylock::Busylock;
use crate::baselines::mutex::Locked;
use crate::baselines::spin_adopt::SpinAdopt;
use crate::error::BenchError;
use crate::interleave::{Variant, interleave};
use crate::options::{Only, Options};
use crate::report::{Collector, OURS, Param};

mod crossbeam;
mod dpdk;
mod fq;
pub(crate) mod kernel;
pub(crate) mod load;
mod path;
pub(crate) mod rows;
mod softnet;
mod ticks;

pub(crate) use path::{Delivery, Driver, Path, Sink, Stage};
pub(crate) use ticks::Ticks;

use load::{Outcome, Plan};
use path::{Discipline, FRAME};

/// Numbers of threads, unless the command line names others.
const THREADS: [usize; 5] = [1, 2, 8, 64, 240];
/// Of these, with a fixed load.
const PACED_THREADS: [usize; 3] = [8, 64, 240];
/// Packets in a call, besides 1.
const BULK: usize = 32;
/// Fixed loads, in percent of the mutex's capacity.
const LOADS: [u32; 2] = [50, 80];
/// Of `--seconds`, what one figure gets: there are hundreds.
const SHARE: f64 = 0.1;
/// The shortest turn, and what each thread adds to it: each of them should have had the CPU a few times.
const SHORTEST: Duration = Duration::from_millis(100);
const PER_THREAD: Duration = Duration::from_millis(2);
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
];
/// The parameters that a ratio's short key leaves out: those of the plain case.
const PLAIN: [&str; 3] = ["qdisc=pfifo", "driver=null", "bulk=1"];

/// The ways that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Softnet,
    /// With the policy in which the device's worker alone runs the queue.
    SoftnetWorker,
    Busylock,
    SpinAdopt,
    Mutex,
    Crossbeam,
    Dpdk(dpdk::Sync),
    Kernel,
}

const WAYS: [Way; 10] = [
    Way::Softnet,
    Way::SoftnetWorker,
    Way::Mutex,
    Way::Busylock,
    Way::SpinAdopt,
    Way::Crossbeam,
    Way::Dpdk(dpdk::Sync::MultiProducer),
    Way::Dpdk(dpdk::Sync::Relaxed),
    Way::Dpdk(dpdk::Sync::HeadTail),
    Way::Kernel,
];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Softnet => OURS,
            Way::SoftnetWorker => "softnet-worker",
            Way::Busylock => "busylock",
            Way::SpinAdopt => "spin-adopt",
            Way::Mutex => "mutex",
            Way::Crossbeam => "crossbeam",
            Way::Dpdk(sync) => sync.variant(),
            Way::Kernel => "kernel",
        }
    }

    /// Whether there is a figure for this case.
    fn takes(self, case: &Case) -> bool {
        match (self, case.through) {
            (Way::Kernel, Through::Kernel(_)) => true,
            (Way::Kernel, _) | (_, Through::Kernel(_)) => false,
            // It has no discipline of its own, and paces nothing.
            (Way::Dpdk(_), Through::Here(discipline, _)) => {
                discipline == Discipline::Pfifo && case.load.is_none()
            }
            _ => true,
        }
    }
}

/// What the packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Through {
    Here(Discipline, Driver),
    /// The kernel's discipline of this index, and a veth device.
    Kernel(usize),
}

/// What one row is about.
#[derive(Debug, Clone, Copy)]
struct Case {
    threads: usize,
    bulk: usize,
    through: Through,
    /// In percent of the mutex's capacity; `None`: flat out.
    load: Option<u32>,
}

impl Case {
    fn params(&self) -> Vec<Param> {
        let (qdisc, driver) = match self.through {
            Through::Here(discipline, driver) => (discipline.name(), driver.name()),
            Through::Kernel(index) => (kernel::DISCIPLINES[index].0, "veth"),
        };
        let mut params = vec![
            ("threads", json!(self.threads)),
            ("qdisc", json!(qdisc)),
            ("driver", json!(driver)),
            ("bulk", json!(self.bulk)),
        ];
        if let Some(load) = self.load {
            params.push(("load", json!(format!("{load}%"))));
        }
        params
    }

    /// Whether the command line asks for it; `load=full` is what has no load.
    fn wanted(&self, only: &Only) -> bool {
        let mut params = self.params();
        if self.load.is_none() {
            params.push(("load", json!("full")));
        }
        only.allows(&params)
    }
}

/// Every case, those that belong together next to each other.
fn cases(threads: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    let chosen = if threads.is_empty() {
        &THREADS[..]
    } else {
        threads
    };
    for &threads_of_case in chosen {
        let mut add = |through, bulk, load| {
            cases.push(Case {
                threads: threads_of_case,
                bulk,
                through,
                load,
            });
        };
        for discipline in [Discipline::Pfifo, Discipline::Fq] {
            for driver in [Driver::Null, Driver::Copy] {
                add(Through::Here(discipline, driver), 1, None);
            }
        }
        add(Through::Here(Discipline::Pfifo, Driver::Null), BULK, None);
        if !threads.is_empty() || PACED_THREADS.contains(&threads_of_case) {
            for load in LOADS {
                add(
                    Through::Here(Discipline::Pfifo, Driver::Null),
                    1,
                    Some(load),
                );
                add(Through::Here(Discipline::Fq, Driver::Copy), 1, Some(load));
            }
        }
        for index in 0..kernel::DISCIPLINES.len() {
            add(Through::Kernel(index), BULK, None);
        }
    }
    cases
}

/// A variant's turns at one case.
struct Turn {
    way: Way,
    case: Case,
    plan: Plan,
    ticks: Ticks,
}

impl Variant for Turn {
    fn name(&self) -> &'static str {
        self.way.name()
    }

    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError> {
        let outcome = measure(self.way, self.case.through, &self.plan, &self.ticks)?;
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

/// Makes the way afresh and measures it once.
fn measure(way: Way, through: Through, plan: &Plan, ticks: &Ticks) -> Result<Outcome, BenchError> {
    let (discipline, driver) = match (way, through) {
        (_, Through::Kernel(index)) => {
            let (_, commands) = kernel::DISCIPLINES[index];
            return kernel::Veth::new(commands, ticks.clone())?.measure(plan);
        }
        (Way::Dpdk(sync), Through::Here(_, driver)) => return dpdk::measure(sync, driver, plan),
        (_, Through::Here(discipline, driver)) => (discipline, driver),
    };
    let pool = plan.pool()?;
    let packets = plan.packets();
    let (sink, delivery) = Sink::new(driver, plan.threads, ticks.clone());
    let qdisc = discipline.build(packets);
    // As in the kernel, where pfifo has the flag and fq has not.
    let can_bypass = discipline == Discipline::Pfifo;
    let clock = ticks.clone();
    match way {
        Way::Softnet | Way::SoftnetWorker => {
            let served_by = match way {
                Way::SoftnetWorker => ServedBy::Worker,
                _ => ServedBy::Senders,
            };
            let path = softnet::Softnet::new(discipline, packets, sink, ticks, &pool, served_by)?;
            load::measure(&path, &delivery, &pool, ticks, plan)
        }
        Way::Mutex => {
            let path = Locked::new(qdisc, sink, clock);
            load::measure(&path, &delivery, &pool, ticks, plan)
        }
        Way::Busylock => {
            let path = Busylock::new(qdisc, can_bypass, sink, clock, pool.clone());
            load::measure(&path, &delivery, &pool, ticks, plan)
        }
        Way::SpinAdopt => {
            let path = SpinAdopt::new(qdisc, can_bypass, sink, clock, pool.clone());
            load::measure(&path, &delivery, &pool, ticks, plan)
        }
        Way::Crossbeam => {
            let path = crossbeam::Crossbeam::new(qdisc, sink, clock, packets);
            load::measure(&path, &delivery, &pool, ticks, plan)
        }
        Way::Dpdk(_) | Way::Kernel => Err(BenchError::Measure("no such case".into())),
    }
}

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    let only = options.only()?;
    options.check_variants("tx-adopt", &WAYS.map(Way::name))?;
    let ticks = Ticks::new();
    let rounds = options.rounds();
    let slice = options.slice().mul_f64(SHARE);
    let mut results = Collector::default();
    let mut capacity: HashMap<(usize, Through), f64> = HashMap::new();
    for case in cases(&options.threads) {
        if !case.wanted(&only) {
            continue;
        }
        let least = SHORTEST.max(PER_THREAD * case.threads as u32);
        let mut plan = Plan {
            threads: case.threads,
            bulk: case.bulk,
            offered: None,
            frame: FRAME,
            time: slice.max(least),
        };
        if let Some(load) = case.load {
            let known = capacity.get(&(case.threads, case.through)).copied();
            let full = match known {
                Some(full) => full,
                None => {
                    let outcome = measure(Way::Mutex, case.through, &plan, &ticks)?;
                    outcome.delivered as f64 / outcome.time.as_secs_f64()
                }
            };
            capacity.insert((case.threads, case.through), full);
            plan.offered = Some(full * f64::from(load) / 100.0);
        }
        let chosen = |way: &Way| way.takes(&case) && options.wants(way.name());
        let mut variants: Vec<Box<dyn Variant>> = Vec::new();
        for way in WAYS.into_iter().filter(chosen) {
            variants.push(Box::new(Turn {
                way,
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
    for chain in rows.iter().filter(|row| row["bulk"] == BULK) {
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
        through: Through::Here(Discipline::Fq, Driver::Copy),
        load: None,
    };

    /// The measurement itself fails if a packet is lost or stuck.
    #[test]
    fn every_way_delivers_or_drops_what_was_sent() {
        let ticks = Ticks::new();
        for way in [
            Way::Softnet,
            Way::SoftnetWorker,
            Way::Mutex,
            Way::Busylock,
            Way::SpinAdopt,
            Way::Crossbeam,
        ] {
            for discipline in [Discipline::Pfifo, Discipline::Fq] {
                for (bulk, offered) in [(1, None), (BULK, None), (1, Some(50_000.0))] {
                    let plan = Plan {
                        threads: 4,
                        bulk,
                        offered,
                        frame: FRAME,
                        time: Duration::from_millis(20),
                    };
                    let through = Through::Here(discipline, Driver::Copy);
                    load::until_delivered(|| measure(way, through, &plan, &ticks))
                        .unwrap_or_else(|error| panic!("{} {plan:?}: {error}", way.name()));
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
        let row = |bulk: usize, mpps: f64| json!({"variant": "softnet", "threads": 8, "qdisc": "pfifo", "driver": "null", "bulk": bulk, "mpps": mpps});
        let mut report = json!({"rows": [row(1, 10.0), row(32, 45.0)], "ratios": {}});
        chains(&mut report);
        assert_eq!(
            report["ratios"],
            json!({"mpps_over_bulk=1/softnet/threads=8,bulk=32": 4.5})
        );
    }
}
