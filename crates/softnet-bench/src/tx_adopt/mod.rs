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

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::BenchError;
use crate::interleave;
use crate::numbers::median;
use crate::options::{Only, Options};
use crate::report::{Collector, OURS};

mod dpdk;
pub(crate) mod load;
mod path;
pub(crate) mod rows;
mod ticks;
pub(crate) mod variants;

pub(crate) use path::{Delivery, Driver, FRAME, Path, Sink, Stage};
pub(crate) use ticks::Ticks;

use load::Plan;
use variants::{BUSYLOCK, MUTEX, PRIVATE, SPIN_ADOPT, Shape};

/// Numbers of threads, unless the command line names others.
const THREADS: [usize; 5] = [1, 2, 8, 64, 240];
const FEW_THREADS: [usize; 2] = [1, 64];
/// Packets in a call, besides 1.
pub(crate) const BULK: usize = 32;
/// Fixed loads, in percent of what the slower of Softnet and the mutex does flat out.
const LOADS: [u32; 2] = [50, 80];
/// Turns to find out what the slower of the two does, if that was not measured before.
const TRIES: usize = 3;

const VARIANTS: [&str; 6] = [OURS, MUTEX, BUSYLOCK, PRIVATE, SPIN_ADOPT, dpdk::HTS];

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
struct Case {
    threads: usize,
    bulk: usize,
    qdisc: &'static str,
    driver: Driver,
    /// In percent of what the slower of Softnet and the mutex does; `None`: flat out.
    load: Option<u32>,
}

impl Case {
    /// True if there is a figure of the variant.
    fn has(&self, variant: &str) -> bool {
        let plain = self.bulk == 1 && self.load.is_none();
        match variant {
            // What the goals are about, in every case.
            OURS | MUTEX | BUSYLOCK => true,
            PRIVATE => self.load.is_some(),
            SPIN_ADOPT => plain,
            // It has no qdisc of its own, and paces nothing.
            _ => plain && self.qdisc == "pfifo" && self.driver != Driver::Refuse,
        }
    }

    /// Flat out.
    fn shape(&self, time: Duration) -> Shape {
        let mut params = vec![
            ("threads", json!(self.threads)),
            ("qdisc", json!(self.qdisc)),
            ("driver", json!(self.driver.name())),
            ("bulk", json!(self.bulk)),
        ];
        let load = self.load.map(|load| ("load", json!(format!("{load}%"))));
        params.extend(load);
        Shape {
            params,
            plan: Plan {
                threads: self.threads,
                bulk: self.bulk,
                offered: None,
                frame: FRAME,
                classes: 0,
                time,
            },
            qdisc: self.qdisc,
            mq: None,
            driver: self.driver,
        }
    }

    /// True if the command line asks for it; a case without a load is `load=full`.
    fn wanted(&self, only: &Only) -> bool {
        let mut params = self.shape(Duration::ZERO).params;
        if self.load.is_none() {
            params.push(("load", json!("full")));
        }
        only.allows(&params)
    }
}

/// Every case, those that belong together next to each other; what is flat out comes before the
/// loads that are a part of it.
fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for &threads in &options.threads(&THREADS, &FEW_THREADS) {
        let plain = |qdisc, driver| Case {
            threads,
            bulk: 1,
            qdisc,
            driver,
            load: None,
        };
        for qdisc in ["pfifo", "fq"] {
            for driver in [Driver::Null, Driver::Copy] {
                let case = plain(qdisc, driver);
                cases.push(case);
                cases.push(Case { bulk: BULK, ..case });
                let loads = LOADS.map(Some);
                cases.extend(loads.map(|load| Case { load, ..case }));
            }
        }
        cases.push(plain("pfifo", Driver::Refuse));
    }
    cases
}

/// Packets per second that the slower of Softnet and the mutex does flat out: as measured before
/// in this run, or now.
fn capacity(full: &Shape, ticks: &Ticks, results: &Collector) -> Result<f64, BenchError> {
    let mut least = f64::INFINITY;
    for name in [OURS, MUTEX] {
        let mpps = match results.median(name, &full.params, "mpps") {
            Some(mpps) => mpps,
            None => {
                let turn = |_| {
                    let outcome = full.measure(name, ticks)?;
                    Ok(outcome.delivered as f64 / outcome.time.as_secs_f64() / 1e6)
                };
                let turns = (0..TRIES).map(turn);
                median(&turns.collect::<Result<Vec<_>, BenchError>>()?)
            }
        };
        least = least.min(mpps * 1e6);
    }
    Ok(least)
}

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    let only = options.only()?;
    options.check_variants("tx-adopt", &VARIANTS)?;
    let ticks = Ticks::new();
    let mut results = Collector::default();
    let mut known: HashMap<_, f64> = HashMap::new();
    for case in cases(options) {
        if !case.wanted(&only) {
            continue;
        }
        let time = options.window(case.threads);
        let mut shape = case.shape(time);
        let rounds = options.rounds().of(&shape.params, time);
        if !rounds.want(OURS) {
            continue;
        }
        if let Some(load) = case.load {
            let full = Case { load: None, ..case }.shape(time);
            let key = (case.threads, case.qdisc, case.driver);
            let most = match known.get(&key) {
                Some(most) => *most,
                None if options.plan => 0.0,
                None => capacity(&full, &ticks, &results)?,
            };
            known.insert(key, most);
            shape.plan.offered = Some(most * f64::from(load) / 100.0);
        }
        let variants = VARIANTS.into_iter().filter(|name| case.has(name));
        let turns = shape.turns(variants, &ticks);
        interleave::measure(options, rounds, turns, &mut results)?;
    }
    Ok(results.report("tx-adopt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: Case = Case {
        threads: 4,
        bulk: 1,
        qdisc: "fq",
        driver: Driver::Copy,
        load: None,
    };

    /// The measurement itself fails if a packet is lost or stuck.
    #[test]
    fn every_path_delivers_or_drops_all_packets() {
        let ticks = Ticks::new();
        for name in [OURS, MUTEX, BUSYLOCK, PRIVATE, SPIN_ADOPT] {
            for qdisc in ["pfifo", "fq"] {
                for (bulk, offered, mq) in [
                    (1, None, None),
                    (BULK, None, None),
                    (1, Some(50_000.0), None),
                    (1, None, Some(3)),
                ] {
                    let case = Case {
                        bulk,
                        qdisc,
                        ..CASE
                    };
                    let mut shape = case.shape(Duration::from_millis(20));
                    (shape.plan.offered, shape.mq) = (offered, mq);
                    load::until_delivered(|| shape.measure(name, &ticks))
                        .unwrap_or_else(|error| panic!("{name} {shape:?}: {error}"));
                    if case.has(name) && offered.is_none() {
                        shape.driver = Driver::Refuse;
                        load::until_delivered(|| shape.measure(name, &ticks))
                            .unwrap_or_else(|error| panic!("{name} {shape:?}: {error}"));
                    }
                }
            }
        }
    }

    #[test]
    fn only_chooses_by_parameter() {
        use clap::Parser as _;
        let only = |text: &str| {
            let options = Options::parse_from(["softnet-bench", "tx-adopt", "--only", text]);
            options.only().map(|only| CASE.wanted(&only)).ok()
        };
        assert_eq!(only("qdisc=pfifo,qdisc=fq,load=full"), Some(true));
        assert_eq!(only("qdisc=pfifo"), Some(false));
        assert_eq!(only("load=50%"), Some(false));
    }
}
