//! The cases of experiment `backlog` within one process: packets are handed from worker to worker.
//! How many wake-ups does that take, and what do they cost?
//!
//! Cases: `rr`, request/response flows between two workers, each flow with one transaction under
//! way; `flood`, eight threads onto one worker.
//! Variants: Softnet's backlog, whose worker looks around before it sleeps while that pays off;
//! `snapshot`, the same with the loop that marks itself done before it is (the kernel's before
//! 2014); both without looking around (`no-poll`, `snapshot-no-poll`); channels that block in
//! `recv` and carry whole lists of packets.

use std::time::Duration;

use serde_json::json;

use crate::buffers::pinned::Cpus;
use crate::error::BenchError;
use crate::interleave::{self, Turn};
use crate::numbers::percentiles;
use crate::options::Options;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::Ticks;

mod flood;
pub(crate) mod inbox;
mod rr;
pub(crate) mod worker;

/// The variants of these cases.
pub(crate) const VARIANTS: &[&str] = &[
    OURS,
    "snapshot",
    inbox::NO_POLL,
    inbox::NO_POLL_SNAPSHOT,
    "crossbeam",
];
const FLOWS: &[usize] = &[1, 16, 200];
/// Time that a stack spends on a packet, about, ns.
const SERVICES: &[u64] = &[0, 1000];
const SENDERS: usize = 8;
const BULKS: &[usize] = &[1, 32];

#[derive(Debug, Clone, Copy)]
enum Case {
    Rr {
        flows: usize,
        service: u64,
    },
    Flood {
        bulk: usize,
        /// The worker has a CPU, and the senders share the others.
        apart: bool,
    },
}

impl Case {
    fn params(self) -> Vec<Param> {
        match self {
            Case::Rr { flows, service } => vec![
                ("case", json!("rr")),
                ("flows", json!(flows)),
                ("service_ns", json!(service)),
            ],
            Case::Flood { bulk, apart } => vec![
                ("case", json!("flood")),
                ("cpus", json!(if apart { "apart" } else { "any" })),
                ("threads", json!(SENDERS)),
                ("bulk", json!(bulk)),
            ],
        }
    }
}

type Fields = Vec<(&'static str, f64)>;

/// One figure of one variant.
#[derive(Clone)]
struct Figure {
    cpus: Cpus,
    ticks: Ticks,
    time: Duration,
}

impl Figure {
    fn turn(self, name: &'static str, case: Case) -> Turn {
        Turn::new(name, &case.params(), move |results| {
            let fields = match case {
                Case::Rr { flows, service } => self.rr(name, flows, service)?,
                Case::Flood { bulk, apart } => self.flood(name, bulk, apart)?,
            };
            results.add(name, &case.params(), &fields);
            Ok(())
        })
    }

    fn rr(&self, name: &str, flows: usize, service: u64) -> Result<Fields, BenchError> {
        let plan = rr::Plan {
            flows,
            service: Duration::from_nanos(service),
            time: self.time,
        };
        let out = rr::measure(name, self.cpus, &self.ticks, plan)?;
        let seconds = out.time.as_secs_f64();
        let thousands = out.transactions.max(1) as f64 / 1e3;
        let mut fields = vec![("tps", out.transactions as f64 / seconds)];
        let of = [
            ("p50_ns", 0.5),
            ("p90_ns", 0.9),
            ("p95_ns", 0.95),
            ("p99_ns", 0.99),
        ];
        let samples = out.latency.total() as usize;
        fields.extend(percentiles(of, samples, |fraction| {
            out.latency.percentile(fraction)
        }));
        if let Some(wakes) = out.wakes {
            fields.push(("wakes", wakes as f64 / seconds));
            fields.push(("wakes_per_ktrans", wakes as f64 / thousands));
        }
        fields.push(("sleeps_per_ktrans", out.sleeps as f64 / thousands));
        fields.push(("cpu_share", out.cpu.as_secs_f64() / seconds / 2.0));
        Ok(fields)
    }

    fn flood(&self, name: &str, bulk: usize, apart: bool) -> Result<Fields, BenchError> {
        let plan = flood::Plan {
            senders: SENDERS,
            bulk,
            cpus: apart.then_some(self.cpus),
            time: self.time,
        };
        let out = flood::measure(name, plan)?;
        let (seconds, packets) = (out.time.as_secs_f64(), out.packets.max(1) as f64);
        let mut fields = vec![
            ("mpps", packets / seconds / 1e6),
            ("ns_per_packet", seconds * 1e9 / packets),
            ("cpu_s_per_mpkt", out.cpu.as_secs_f64() / packets * 1e6),
            ("drops", out.refused as f64),
        ];
        fields.extend(out.wakes.map(|wakes| ("wakes", wakes as f64 / seconds)));
        fields.push(("sleeps", out.sleeps as f64 / seconds));
        Ok(fields)
    }
}

/// The cases that `--only` leaves.
fn cases(options: &Options) -> Result<Vec<Case>, BenchError> {
    let mut cases = Vec::new();
    for &service in SERVICES {
        cases.extend(FLOWS.iter().map(|&flows| Case::Rr { flows, service }));
    }
    for apart in [false, true] {
        cases.extend(BULKS.iter().map(|&bulk| Case::Flood { bulk, apart }));
    }
    let only = options.only()?;
    cases.retain(|case| only.allows(&case.params()));
    Ok(cases)
}

/// Measures the cases that `--only` and `--variants` leave.
pub(crate) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let cases = cases(options)?;
    if cases.is_empty() {
        return Ok(());
    }
    let time = options.window(SENDERS);
    let figure = Figure {
        cpus: Cpus::choose()?,
        ticks: Ticks::new(),
        time,
    };
    for case in cases {
        let turn = |name: &&'static str| figure.clone().turn(name, case);
        let turns = VARIANTS.iter().map(turn).collect();
        let rounds = options.rounds().of(&case.params(), time);
        interleave::measure(options, rounds, turns, results)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every variant moves packets, loses none and reorders none (the measurements check that
    /// themselves).
    #[test]
    fn every_variant_does_its_work() {
        let cpus = Cpus::choose().expect("there is a CPU");
        let ticks = Ticks::new();
        let time = Duration::from_millis(30);
        for &name in VARIANTS {
            let plan = rr::Plan {
                flows: 20,
                service: Duration::ZERO,
                time,
            };
            // On a busy machine a thread may not get to run within the time.
            let worked = (0..100).any(|_| {
                let out = rr::measure(name, cpus, &ticks, plan).expect(name);
                out.transactions > 0 && !out.latency.is_empty()
            });
            assert!(worked, "{name}");
            let plan = flood::Plan {
                senders: 3,
                bulk: 5,
                cpus: None,
                time,
            };
            for cpus in [None, Some(cpus)] {
                let plan = flood::Plan { cpus, ..plan };
                let worked = (0..100).any(|_| flood::measure(name, plan).expect(name).packets > 0);
                assert!(worked, "{name}");
            }
        }
    }

    #[test]
    fn only_picks_cases() {
        use clap::Parser as _;
        let count = |only: &str| {
            let options = Options::parse_from(["softnet-bench", "backlog", "--only", only]);
            cases(&options).map(|cases| cases.len()).ok()
        };
        assert_eq!(count("case=rr,flows=200"), Some(2));
        assert_eq!(count("case=flood"), Some(4));
        assert_eq!(count("case=flood,cpus=apart"), Some(2));
        assert_eq!(count("case=tap-rr"), Some(0));
    }
}
