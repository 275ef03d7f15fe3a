//! Senders in two more shapes.
//!
//! Case `htb`: two senders into one `htb`, whose classes they use in turn; against the same qdisc
//! and driver behind a mutex, and beside the kernel's. Case `copy`: the shape of the report that
//! list adoption is known by, `fq` and a driver that copies 120 bytes of each packet, with 30
//! queues and as many senders as there, and with one sender a queue; against the kernel's locked
//! path.

use std::time::Duration;

use serde_json::json;
use softnet::tx::ServedBy;
use softnet_tc::QdiscSpec;

use super::{FRAME, KERNEL_BULK, Qdisc};
use crate::error::BenchError;
use crate::htb_tree;
use crate::interleave::{Variant, interleave};
use crate::options::Options;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::load::{Outcome, Plan};
use crate::tx_adopt::variants::{Local, Setup};
use crate::tx_adopt::{self, Driver, Ticks, kernel, rows};

/// Packets in a call of the senders into `htb`.
const BULKS: [usize; 2] = [1, KERNEL_BULK];
/// Senders and queues of the report's shape.
const SHAPES: [(usize, usize); 2] = [(2, 2), (240, 30)];

/// The path of senders to the qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Softnet,
    Mutex,
    Busylock,
    Kernel,
}

const KINDS: [Kind; 4] = [Kind::Softnet, Kind::Mutex, Kind::Busylock, Kind::Kernel];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Softnet => OURS,
            Kind::Mutex => "mutex",
            Kind::Busylock => "busylock",
            Kind::Kernel => "kernel",
        }
    }

    /// True if there is a figure for this case.
    fn takes(self, case: &Case) -> bool {
        match (self, case.shape) {
            (Kind::Softnet, _) => true,
            (Kind::Mutex, Shape::Htb { .. }) | (Kind::Busylock, Shape::Copy { .. }) => true,
            (Kind::Kernel, Shape::Htb { .. }) => case.bulk == KERNEL_BULK,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Htb { classes: u16 },
    Copy { queues: usize },
}

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
struct Case {
    threads: usize,
    bulk: usize,
    shape: Shape,
}

impl Case {
    /// All of them.
    fn all() -> Vec<Case> {
        let htb = |classes| {
            BULKS.map(|bulk| Case {
                threads: 2,
                bulk,
                shape: Shape::Htb { classes },
            })
        };
        let copy = |(threads, queues)| Case {
            threads,
            bulk: 1,
            shape: Shape::Copy { queues },
        };
        let htb = htb_tree::CLASSES.into_iter().flat_map(htb);
        htb.chain(SHAPES.map(copy)).collect()
    }

    fn params(&self) -> Vec<Param> {
        let case = match self.shape {
            Shape::Htb { .. } => "htb",
            Shape::Copy { .. } => "copy",
        };
        let mut params = vec![("case", json!(case)), ("threads", json!(self.threads))];
        match self.shape {
            Shape::Htb { classes } => {
                params.extend([("qdisc", json!("htb")), ("classes", json!(classes))]);
            }
            Shape::Copy { queues } => {
                let driver = Driver::Copy.name();
                params.extend([("qdisc", json!("fq")), ("driver", json!(driver))]);
                params.push(("queues", json!(queues)));
            }
        }
        params.push(("bulk", json!(self.bulk)));
        params
    }

    fn plan(&self, time: Duration) -> Plan {
        let (frame, classes) = match self.shape {
            Shape::Htb { classes } => (FRAME, classes),
            Shape::Copy { .. } => (tx_adopt::FRAME, 0),
        };
        Plan {
            threads: self.threads,
            bulk: self.bulk,
            offered: None,
            frame,
            classes,
            time,
        }
    }

    fn qdisc(&self, packets: usize) -> Result<QdiscSpec, BenchError> {
        match self.shape {
            Shape::Htb { classes } => {
                htb_tree::spec(classes).map_err(|e| BenchError::Measure(e.to_string()))
            }
            Shape::Copy { .. } => Ok(Qdisc::Fq.spec(packets)),
        }
    }
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
        let (queues, driver) = match self.case.shape {
            Shape::Htb { .. } => (None, Driver::Null),
            Shape::Copy { queues } => (Some(queues), Driver::Copy),
        };
        let local = match self.kind {
            Kind::Softnet => Local::Softnet(ServedBy::Senders),
            Kind::Mutex => Local::Mutex,
            Kind::Busylock => Local::Busylock,
            Kind::Kernel => {
                let commands = htb_tree::commands("a0", self.plan.classes);
                return kernel::Veth::new(&commands, self.ticks.clone())?.measure(&self.plan);
            }
        };
        Setup {
            qdisc: self.case.qdisc(self.plan.packets())?,
            mq: queues,
            driver,
            plan: &self.plan,
            ticks: &self.ticks,
        }
        .measure(local)
    }
}

impl Variant for Turn {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn params(&self) -> Vec<Param> {
        self.case.params()
    }

    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError> {
        let outcome = self.measure()?;
        rows::add(self.name(), &self.case.params(), None, &outcome, results);
        Ok(())
    }
}

/// The names of all variants.
pub(super) fn variants() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(Kind::name)
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let ticks = Ticks::new();
    for case in Case::all() {
        let wanted = options.threads.is_empty() || options.threads.contains(&case.threads);
        if !wanted || !only.allows(&case.params()) {
            continue;
        }
        let time = options.window(case.threads);
        let chosen = |kind: &Kind| kind.takes(&case) && options.wants(kind.name());
        let mut variants: Vec<Box<dyn Variant>> = Vec::new();
        for kind in KINDS.into_iter().filter(chosen) {
            variants.push(Box::new(Turn {
                kind,
                case,
                plan: case.plan(time),
                ticks: ticks.clone(),
            }));
        }
        let rounds = options.rounds().of(&case.params(), time);
        interleave(rounds, &mut variants, results)?;
    }
    Ok(())
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    Case::all().iter().map(Case::params).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx_adopt::load;

    /// The measurement itself fails if a packet is lost or stuck.
    #[test]
    fn every_path_delivers_all_packets() {
        for case in Case::all() {
            for kind in KINDS.into_iter().filter(|kind| kind.takes(&case)) {
                let turn = Turn {
                    kind,
                    case,
                    plan: case.plan(Duration::from_millis(5)),
                    ticks: Ticks::new(),
                };
                match load::until_delivered(|| turn.measure()) {
                    Ok(()) => {}
                    Err(BenchError::Unavailable(why)) => softnet_tests::skip(&why),
                    Err(error) => panic!("{} {case:?}: {error}", kind.name()),
                }
            }
        }
    }
}
