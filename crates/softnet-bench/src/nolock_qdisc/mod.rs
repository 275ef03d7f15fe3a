//! Experiment `nolock-qdisc`: threads that make packets and hand them straight to a transmit queue
//! (the kernel's `pktgen` with `xmit_mode queue_xmit`), 64 bytes each, one in a call.
//!
//! `pfifo_fast` at the root and below `mq`, where each sender uses one of the queues; `tbf`, which
//! never limits here, `prio`, `fq` and `fq_codel` at the root. What differs is how a sender gets at
//! the qdisc:
//!
//! - `softnet`: the default policy;
//! - `rings`: the kernel's `pfifo_fast` without a lock, ported: senders fill its rings themselves;
//! - `locked`: one mutex around queueing, dequeueing and sending; waiters sleep;
//! - `busylock`: the kernel's locked path before 6.19, ported: root lock, a second lock for those
//!   who wait, driver lock;
//! - `kernel`: the kernel's own qdisc, by UDP sockets over veth: a whole stack more, so beside the
//!   others, not against them.
//!
//! Beside them, qdiscs with a queue for each flow, by the number of [flows]; two more shapes of
//! [senders]; and [one core](one_core) alone with an `htb`.
//!
//! The load and its checks are those of `tx-adopt`: what was sent was delivered or dropped, and
//! all buffers are back, after every turn.

pub(crate) mod dpdk_sched;
mod flows;
mod one_core;
mod senders;

use std::time::Duration;

use serde_json::{Value, json};
use softnet::tx::ServedBy;
use softnet_tc::{AqmSpec, FqCodelSpec, FqSpec, PrioSpec, QdiscSpec, TbfSpec};

use crate::error::BenchError;
use crate::interleave::{Variant, interleave};
use crate::options::Options;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::load::{Outcome, Plan};
use crate::tx_adopt::variants::{Local, Setup};
use crate::tx_adopt::{Driver, Ticks, kernel, rows};

/// Name of these rows for `--only case=`.
const CASE: &str = "pktgen";
/// Numbers of threads, unless the command line names others.
const THREADS: [usize; 4] = [1, 2, 8, 64];
const FEW_THREADS: [usize; 2] = [1, 64];
/// Numbers of queues below `mq`; with one there is no `mq`.
const QUEUES: [usize; 3] = [2, 4, 8];
/// Bytes of a packet.
pub(crate) const FRAME: usize = 64;
/// Packets in a call of the kernel's senders: a system call would be all that is measured
/// otherwise.
pub(crate) const KERNEL_BULK: usize = 32;
/// Bytes per second, bucket and limit of a `tbf` that never limits.
const RATE: u64 = 100_000_000_000;
const BURST: u64 = 1 << 30;
/// Fields that Softnet is compared by.
pub(crate) const COMPARE: &[&str] = &["mpps", "p50_ns", "p99_ns", "p999_ns", "cpu_s_per_mpkt"];

/// The path of senders to the qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// In this process.
    Local(Local),
    Kernel,
}

const KINDS: [Kind; 5] = [
    Kind::Local(Local::Softnet(ServedBy::Senders)),
    Kind::Local(Local::Rings),
    Kind::Local(Local::Mutex),
    Kind::Local(Local::Busylock),
    Kind::Kernel,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Local(Local::Rings) => "rings",
            Kind::Local(Local::Mutex) => "locked",
            Kind::Local(Local::Busylock) => "busylock",
            Kind::Local(_) => OURS,
            Kind::Kernel => "kernel",
        }
    }

    /// True if there is a figure for this case.
    fn takes(self, case: &Case) -> bool {
        match self {
            Kind::Local(Local::Rings) => case.qdisc == Qdisc::PfifoFast,
            Kind::Local(_) => true,
            Kind::Kernel => case.mq.is_none() && case.qdisc.in_kernel().is_some(),
        }
    }
}

/// Which qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Qdisc {
    PfifoFast,
    Tbf,
    Prio,
    Fq,
    FqCodel,
}

impl Qdisc {
    fn name(self) -> &'static str {
        match self {
            Qdisc::PfifoFast => "pfifo_fast",
            Qdisc::Tbf => "tbf",
            Qdisc::Prio => "prio",
            Qdisc::Fq => "fq",
            Qdisc::FqCodel => "fq_codel",
        }
    }

    /// One that never refuses a packet of a pool of `packets`.
    fn spec(self, packets: usize) -> QdiscSpec {
        match self {
            Qdisc::PfifoFast => QdiscSpec::PfifoFast {
                limit: packets as u32,
            },
            Qdisc::Tbf => unlimited_tbf(),
            Qdisc::Prio => QdiscSpec::Prio(PrioSpec::default()),
            Qdisc::Fq => QdiscSpec::Fq(FqSpec {
                limit: packets as u32,
                flow_limit: packets as u32,
                ..FqSpec::default()
            }),
            Qdisc::FqCodel => QdiscSpec::FqCodel(FqCodelSpec {
                limit: packets as u32,
                memory_limit: u32::MAX,
                aqm: AqmSpec {
                    target: Duration::from_secs(60),
                    ..AqmSpec::default()
                },
                ..FqCodelSpec::default()
            }),
        }
    }

    /// The commands that make the kernel's.
    fn in_kernel(self) -> Option<&'static [&'static str]> {
        let named = |(name, _): &&(&str, _)| *name == self.name();
        kernel::QDISCS.iter().find(named).map(|found| found.1)
    }
}

/// A `tbf` that never limits.
pub(crate) fn unlimited_tbf() -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate: RATE,
        burst: BURST,
        limit: BURST,
        ..TbfSpec::default()
    })
}

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
struct Case {
    threads: usize,
    qdisc: Qdisc,
    /// Queues below `mq`; `None`: the qdisc is the root of a device with one queue.
    mq: Option<usize>,
}

impl Case {
    fn queues(&self) -> usize {
        self.mq.unwrap_or(1)
    }

    fn params(&self) -> Vec<Param> {
        let parent = if self.mq.is_some() { "mq" } else { "root" };
        vec![
            ("threads", json!(self.threads)),
            ("qdisc", json!(self.qdisc.name())),
            ("parent", json!(parent)),
            ("queues", json!(self.queues())),
        ]
    }

    fn plan(&self, time: Duration) -> Plan {
        Plan {
            threads: self.threads,
            bulk: 1,
            offered: None,
            frame: FRAME,
            classes: 0,
            time,
        }
    }
}

/// Every case, those that belong together next to each other.
fn cases(threads: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &threads in threads {
        let mut add = |qdisc, mq| cases.push(Case { threads, qdisc, mq });
        add(Qdisc::PfifoFast, None);
        QUEUES.iter().for_each(|&n| add(Qdisc::PfifoFast, Some(n)));
        add(Qdisc::Tbf, None);
        add(Qdisc::Prio, None);
        add(Qdisc::Fq, None);
        add(Qdisc::FqCodel, None);
    }
    cases
}

/// A variant's turns at one case.
struct Turn {
    kind: Kind,
    case: Case,
    plan: Plan,
    ticks: Ticks,
}

impl Turn {
    fn measure(&self) -> Result<Outcome, BenchError> {
        match self.kind {
            Kind::Kernel => {
                let plan = Plan {
                    bulk: KERNEL_BULK,
                    ..self.plan
                };
                let commands = self.case.qdisc.in_kernel().unwrap_or_default();
                kernel::Veth::new(commands, self.ticks.clone())?.measure(&plan)
            }
            Kind::Local(kind) => Setup {
                qdisc: self.case.qdisc.spec(self.plan.packets()),
                mq: self.case.mq,
                driver: Driver::Null,
                plan: &self.plan,
                ticks: &self.ticks,
            }
            .measure(kind),
        }
    }
}

impl Variant for Turn {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError> {
        let outcome = self.measure()?;
        let params = self.case.params();
        rows::add(self.name(), &params, None, &outcome, results);
        Ok(())
    }
}

/// The names of all variants.
pub(crate) fn variants() -> Vec<&'static str> {
    let mut names: Vec<_> = KINDS.iter().map(|kind| kind.name()).collect();
    for name in senders::variants().chain(one_core::VARIANTS) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Measures.
pub(crate) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let ticks = Ticks::new();
    for case in cases(options.threads(&THREADS, &FEW_THREADS)) {
        let params = [&[("case", json!(CASE))], &case.params()[..]].concat();
        if !only.allows(&params) {
            continue;
        }
        let plan = case.plan(options.window(case.threads));
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
        let rounds = options.rounds().of(&params, plan.time);
        interleave(rounds, &mut variants, results)?;
    }
    for case in flows::CASES {
        if !only.allows(&case.params()) {
            continue;
        }
        let chosen = flows::NAMES.into_iter().filter(|name| options.wants(name));
        let mut variants: Vec<Box<dyn Variant>> = Vec::new();
        for name in chosen {
            variants.push(Box::new(flows::Turn {
                name,
                case,
                time: options.window(1),
                ticks: ticks.clone(),
            }));
        }
        let rounds = options.rounds().of(&case.params(), options.window(1));
        interleave(rounds, &mut variants, results)?;
    }
    senders::rows(options, results)?;
    one_core::rows(options, results)
}

/// Adds what queues below `mq` give over one at the root:
/// `mpps_over_queues=1/softnet/threads=2,queues=2`.
pub(crate) fn scaling(report: &mut Value) {
    let rows = report["rows"].as_array().cloned().unwrap_or_default();
    let below_mq = |row: &&Value| row["parent"] == "mq" && row["mpps"].as_f64().is_some();
    for row in rows.iter().filter(below_mq) {
        let same = |one: &&Value| {
            one["parent"] == "root"
                && one["queues"] == 1
                && ["variant", "threads", "qdisc"]
                    .iter()
                    .all(|name| one[*name] == row[*name])
        };
        let one = rows.iter().find(same).and_then(|one| one["mpps"].as_f64());
        if let (Some(mpps), Some(one), Some(variant)) =
            (row["mpps"].as_f64(), one, row["variant"].as_str())
            && one > 0.0
        {
            let key = format!(
                "mpps_over_queues=1/{variant}/threads={},queues={}",
                row["threads"], row["queues"]
            );
            report["ratios"][key] = json!(crate::numbers::significant(mpps / one, 5));
        }
    }
}

/// The parameters of all rows.
#[cfg(test)]
pub(crate) fn measured() -> Vec<Vec<Param>> {
    let flows = flows::CASES.iter().map(flows::Case::params);
    let pktgen = cases(&THREADS);
    let pktgen = pktgen.iter().map(Case::params);
    let others = senders::measured().into_iter().chain(one_core::measured());
    pktgen.chain(flows).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx_adopt::load;

    /// The measurement itself fails if a packet is lost or stuck.
    #[test]
    fn every_variant_delivers_or_drops_all_packets() {
        let ticks = Ticks::new();
        for case in cases(&[1, 5]) {
            let here = |kind: &Kind| *kind != Kind::Kernel && kind.takes(&case);
            for kind in KINDS.into_iter().filter(here) {
                let turn = Turn {
                    kind,
                    case,
                    plan: case.plan(Duration::from_millis(5)),
                    ticks: ticks.clone(),
                };
                load::until_delivered(|| turn.measure())
                    .unwrap_or_else(|error| panic!("{} {case:?}: {error}", kind.name()));
            }
        }
    }

    #[test]
    fn queues_are_compared_with_one_queue_of_the_same_case() {
        let row = |parent: &str, queues: usize, mpps: f64| {
            json!({"variant": "softnet", "threads": 2, "qdisc": "pfifo_fast", "parent": parent,
                   "queues": queues, "mpps": mpps})
        };
        let rows = [row("root", 1, 10.0), row("mq", 2, 19.0)];
        let mut report = json!({"rows": rows, "ratios": {}});
        scaling(&mut report);
        let expected = json!({"mpps_over_queues=1/softnet/threads=2,queues=2": 1.9});
        assert_eq!(report["ratios"], expected);
    }
}
