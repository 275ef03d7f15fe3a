//! Case `unlimited`: 64-byte packets, one in a call, through rates that never limit; the load of
//! `tx-adopt`. One sender with one queue, where every packet finds the qdisc empty, and a sender at
//! each of two queues. The classes of `htb` are used in turn, by every sender.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{ADOPT, PRIVATE, QUEUES, Share, device};
use crate::error::BenchError;
use crate::htb_tree;
use crate::interleave::{self, Turn};
use crate::nolock_qdisc::FRAME;
use crate::options::Options;
use crate::qdiscs;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::load::{self, Outcome, Plan};
use crate::tx_adopt::variants::Softnet;
use crate::tx_adopt::{Delivery, Driver, Sink, Ticks, rows};

/// Name of these rows for `--only case=`.
const CASE: &str = "unlimited";

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// As many as queues.
    threads: usize,
    /// `pfifo` for comparison: what all of this costs without a shaper.
    qdisc: &'static str,
    classes: u16,
}

impl Case {
    /// All of them, with so many CPUs.
    fn all(cpus: Option<usize>) -> impl Iterator<Item = Case> {
        let classes = htb_tree::CLASSES[htb_tree::CLASSES.len() - 1];
        let of = move |threads| {
            let qdiscs = [("pfifo", 0), ("tbf", 0), ("htb", classes), ("cake", 0)];
            qdiscs.map(|(qdisc, classes)| Case {
                threads,
                qdisc,
                classes,
            })
        };
        let more = cpus.filter(|cpus| *cpus > QUEUES);
        [1, QUEUES].into_iter().chain(more).flat_map(of)
    }

    fn params(&self) -> Vec<Param> {
        let mut params = vec![
            ("case", json!(CASE)),
            ("threads", json!(self.threads)),
            ("queues", json!(self.threads)),
            ("qdisc", json!(self.qdisc)),
        ];
        params.extend((self.classes > 0).then(|| ("classes", json!(self.classes))));
        params
    }

    /// The variants that there are figures of.
    fn variants(&self) -> Vec<&'static str> {
        let mut names = vec![OURS];
        if self.threads > 1 {
            names.extend([ADOPT, PRIVATE]);
        }
        names
    }

    /// One turn of a variant.
    fn measure(&self, name: &str, time: Duration, ticks: &Ticks) -> Result<Outcome, BenchError> {
        let plan = Plan {
            threads: self.threads,
            bulk: 1,
            offered: None,
            frame: FRAME,
            classes: self.classes,
            time,
        };
        let (share, queues) = match name {
            ADOPT => (Share::Instance, 1),
            PRIVATE => (Share::Nothing, self.threads),
            _ => (Share::Rates, self.threads),
        };
        let pool = plan.pool()?;
        let delivery = Arc::new(Delivery::new(queues, plan.threads));
        let sink = |n| Sink::of(Driver::Null, n, delivery.clone(), ticks.clone());
        let spec = qdiscs::spec(self.qdisc, self.classes, plan.packets())?;
        let qdiscs = device::qdiscs(&spec, share, queues, &pool)?;
        let path = Softnet::start((0..queues).map(sink).collect(), qdiscs, &pool, ticks)?;
        load::measure(&path, &delivery, &pool, ticks, &plan)
    }

    fn turn(self, name: &'static str, time: Duration, ticks: Ticks) -> Turn {
        let measure = move |results: &mut Collector| {
            let outcome = self.measure(name, time, &ticks)?;
            rows::add(name, &self.params(), None, &outcome, results);
            Ok(())
        };
        Turn::new(name, &self.params(), measure)
    }
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let ticks = Ticks::new();
    let time = options.window(1);
    for case in Case::all(options.cpus) {
        let wanted = options.threads.is_empty() || options.threads.contains(&case.threads);
        if wanted && only.allows(&case.params()) {
            let turn = |name| case.turn(name, time, ticks.clone());
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
    Case::all(None).map(|case| case.params()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measurement itself fails if a packet is lost or stuck.
    #[test]
    fn every_variant_delivers_all_packets() {
        for case in Case::all(None) {
            for name in case.variants() {
                let time = Duration::from_millis(5);
                let measure = || case.measure(name, time, &Ticks::new());
                load::until_delivered(measure).unwrap_or_else(|e| panic!("{name} {case:?}: {e}"));
            }
        }
    }
}
