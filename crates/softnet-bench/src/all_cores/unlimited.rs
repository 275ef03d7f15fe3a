//! Case `unlimited`: 64-byte packets, one in a call, through rates that never limit; the load of
//! `tx-adopt`. One sender with one queue, where every packet finds the qdisc empty, and a sender at
//! each of two queues. The classes of `htb` are used in turn, by every sender.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use softnet::tx::ServedBy;
use softnet_tc::{QdiscEnv, QdiscSpec};

use super::device::{failed, qdiscs};
use super::{ADOPT, KERNEL, MUTEX, PRIVATE, QUEUES, SCHED, Share};
use crate::baselines::mutex::Locked;
use crate::buffers::pinned::Cpus;
use crate::error::BenchError;
use crate::htb_tree;
use crate::interleave::{self, Turn};
use crate::nolock_qdisc::dpdk_sched::Sched;
use crate::nolock_qdisc::{FRAME, KERNEL_BULK, unlimited_tbf};
use crate::options::Options;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::load::{self, Outcome, Plan};
use crate::tx_adopt::variants::Softnet;
use crate::tx_adopt::{Delivery, Driver, Sink, Ticks, kernel, rows};

/// Name of these rows for `--only case=`.
const CASE: &str = "unlimited";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Qdisc {
    /// For comparison: what all of this costs without a shaper.
    Pfifo,
    Tbf,
    Htb {
        classes: u16,
    },
}

impl Qdisc {
    fn name(self) -> &'static str {
        match self {
            Qdisc::Pfifo => "pfifo",
            Qdisc::Tbf => "tbf",
            Qdisc::Htb { .. } => "htb",
        }
    }

    fn classes(self) -> u16 {
        match self {
            Qdisc::Htb { classes } => classes,
            _ => 0,
        }
    }

    fn spec(self, packets: usize) -> Result<QdiscSpec, BenchError> {
        match self {
            Qdisc::Pfifo => Ok(QdiscSpec::Pfifo {
                limit: packets as u32,
            }),
            Qdisc::Tbf => Ok(unlimited_tbf()),
            Qdisc::Htb { classes } => htb_tree::spec(classes).map_err(failed),
        }
    }

    /// The commands that make the kernel's.
    fn in_kernel(self) -> Vec<String> {
        match self {
            Qdisc::Htb { classes } => htb_tree::commands("a0", classes),
            _ => kernel::QDISCS
                .iter()
                .filter(|(name, _)| *name == self.name())
                .flat_map(|(_, commands)| commands.iter().map(|line| (*line).to_owned()))
                .collect(),
        }
    }
}

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// As many as queues.
    threads: usize,
    qdisc: Qdisc,
}

impl Case {
    /// All of them.
    fn all() -> impl Iterator<Item = Case> {
        let classes = htb_tree::CLASSES[htb_tree::CLASSES.len() - 1];
        let of = move |threads| {
            [Qdisc::Pfifo, Qdisc::Tbf, Qdisc::Htb { classes }].map(|qdisc| Case { threads, qdisc })
        };
        [1, QUEUES].into_iter().flat_map(of)
    }

    fn params(&self) -> Vec<Param> {
        let mut params = vec![
            ("case", json!(CASE)),
            ("threads", json!(self.threads)),
            ("queues", json!(self.threads)),
            ("qdisc", json!(self.qdisc.name())),
        ];
        let classes = self.qdisc.classes();
        params.extend((classes > 0).then(|| ("classes", json!(classes))));
        params
    }

    /// The variants that there are figures of.
    fn variants(&self) -> Vec<&'static str> {
        let mut names = vec![OURS, MUTEX];
        if self.threads > 1 {
            names.extend([ADOPT, PRIVATE]);
        }
        if self.qdisc != Qdisc::Pfifo {
            names.push(KERNEL);
        }
        if self.threads == 1 && self.qdisc.classes() > 0 {
            names.push(SCHED);
        }
        names
    }

    /// One turn of a variant in this process or of the kernel.
    fn measure(&self, name: &str, time: Duration, ticks: &Ticks) -> Result<Outcome, BenchError> {
        let mut plan = Plan {
            threads: self.threads,
            bulk: 1,
            offered: None,
            frame: FRAME,
            classes: self.qdisc.classes(),
            time,
        };
        let share = match name {
            KERNEL => {
                plan.bulk = KERNEL_BULK;
                let commands = self.qdisc.in_kernel();
                return kernel::Veth::new(&commands, ticks.clone())?.measure(&plan);
            }
            ADOPT | MUTEX => Share::Instance,
            PRIVATE => Share::Nothing,
            _ => Share::Rates,
        };
        let queues = match share {
            Share::Instance => 1,
            _ => self.threads,
        };
        let pool = plan.pool()?;
        let delivery = Arc::new(Delivery::new(queues, plan.threads));
        let sink = |n| Sink::of(Driver::Null, n, delivery.clone(), ticks.clone());
        let spec = self.qdisc.spec(plan.packets())?;
        if name == MUTEX {
            let qdisc = spec.build(&QdiscEnv::new(&pool)).map_err(failed)?;
            let path = Locked::new(qdisc, sink(0), ticks.clone(), pool.clone());
            return load::measure(&path, &delivery, &pool, ticks, &plan);
        }
        let qdiscs = qdiscs(&spec, share, queues, &pool)?;
        let sinks = (0..queues).map(sink).collect();
        let path = Softnet::start(ServedBy::Senders, sinks, qdiscs, &pool, ticks)?;
        load::measure(&path, &delivery, &pool, ticks, &plan)
    }

    fn turn(self, name: &'static str, time: Duration, ticks: Ticks, cpu: usize) -> Turn {
        let params = self.params();
        if name == SCHED {
            let sched = Sched::new(self.qdisc.classes(), 0, cpu);
            let best = Cell::new(None);
            let measure = move |results: &mut Collector| {
                let reading = sched.measure(&best, time)?;
                let mpps = reading.packets as f64 / reading.time.as_secs_f64() / 1e6;
                results.add(SCHED, &self.params(), &[("mpps", mpps)]);
                Ok(())
            };
            return Turn {
                name,
                params,
                measure: Box::new(measure),
            };
        }
        let measure = move |results: &mut Collector| {
            let outcome = self.measure(name, time, &ticks)?;
            rows::add(name, &self.params(), None, &outcome, results);
            Ok(())
        };
        Turn {
            name,
            params,
            measure: Box::new(measure),
        }
    }
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let ticks = Ticks::new();
    let time = options.window(1);
    let cpu = Cpus::choose()?.b;
    for case in Case::all() {
        let wanted = options.threads.is_empty() || options.threads.contains(&case.threads);
        if wanted && only.allows(&case.params()) {
            let turn = |name| case.turn(name, time, ticks.clone(), cpu);
            let turns = case.variants().into_iter().map(turn).collect();
            let rounds = options.rounds().of(&case.params(), time);
            interleave::measure(options, rounds, turns, results)?;
        }
    }
    Ok(())
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    Case::all().map(|case| case.params()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measurement itself fails if a packet is lost or stuck.
    #[test]
    fn every_variant_delivers_all_packets() {
        for case in Case::all() {
            let here = |name: &&'static str| ![KERNEL, SCHED].contains(name);
            for name in case.variants().into_iter().filter(here) {
                let time = Duration::from_millis(5);
                let measure = || case.measure(name, time, &Ticks::new());
                load::until_delivered(measure).unwrap_or_else(|e| panic!("{name} {case:?}: {e}"));
            }
        }
    }
}
