//! The comparison: shapes of a device, the variants that each has, and which of them are measured.

use serde_json::json;
use softnet::tx::ServedBy;

use super::calibrate::Calibration;
use super::device::Work;
use super::model::Design;
use super::real::Real;
use crate::report::{OURS, Param};
use crate::tx_adopt::variants::Local;

pub(super) const BUSYLOCK: &str = "busylock";
pub(super) const PRIVATE: &str = "private";
pub(super) const ALL_CORES: &str = "all-cores";
pub(super) const VARIANTS: [&str; 4] = [OURS, BUSYLOCK, PRIVATE, ALL_CORES];
pub(super) const TBF: &str = "tbf";
const FQ: &str = "fq";

/// Queues and senders of the report that list adoption is known by, and what it says: millions of
/// packets per second before and with it.
const QUEUES: usize = 30;
const SENDERS: usize = 240;
const PUBLISHED: [(&str, f64); 2] = [(BUSYLOCK, 16.0), (OURS, 29.0)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A limit (`tbf`) and one queue.
    One,
    /// The limit, and 30 queues: `softnet` and `busylock` have one instance for all.
    Thirty,
    /// The limit, and as many queues as cores.
    PerCore,
    /// `mq` with 30 queues, an `fq` each.
    Fair,
    /// The same with the report's senders, each of whose packets passes the kernel's stack.
    Report,
}

/// The shapes with which the real designs are measured.
pub(super) const MEASURED: [(&str, Shape); 5] = [
    (OURS, Shape::One),
    (BUSYLOCK, Shape::One),
    (PRIVATE, Shape::PerCore),
    (OURS, Shape::Fair),
    (BUSYLOCK, Shape::Fair),
];

impl Shape {
    const ALL: [Shape; 5] = [
        Shape::One,
        Shape::Thirty,
        Shape::PerCore,
        Shape::Fair,
        Shape::Report,
    ];

    fn name(self) -> &'static str {
        match self {
            Shape::One => "one-queue",
            Shape::Thirty => "30-queues",
            Shape::PerCore => "queue-per-core",
            Shape::Fair => "30-fair-queues",
            Shape::Report => "report",
        }
    }

    pub(super) fn qdisc(self) -> &'static str {
        match self {
            Shape::Fair | Shape::Report => FQ,
            _ => TBF,
        }
    }

    /// Senders do the same work in shapes of the same name.
    pub(super) fn work_name(self) -> &'static str {
        match self {
            Shape::Report => self.name(),
            _ => self.qdisc(),
        }
    }

    fn variants(self) -> &'static [&'static str] {
        match self {
            Shape::Fair | Shape::Report => &VARIANTS[..2],
            _ => &VARIANTS,
        }
    }

    fn queues(self, cores: usize) -> usize {
        match self {
            Shape::One => 1,
            Shape::PerCore => cores,
            _ => QUEUES,
        }
    }

    pub(super) fn work(self, work: Work, calibration: &Calibration) -> Work {
        let datagram = match self {
            Shape::Report => calibration.datagram,
            _ => 0.0,
        };
        Work {
            make: work.make + datagram,
            ..work
        }
    }
}

/// A variant in a shape on so many cores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) variant: &'static str,
    pub(super) shape: Shape,
    pub(super) cores: usize,
}

impl Cell {
    pub(super) fn params(&self) -> Vec<Param> {
        let mut params = vec![
            ("shape", json!(self.shape.name())),
            ("qdisc", json!(self.shape.qdisc())),
            ("threads", json!(self.cores)),
            ("queues", json!(self.shape.queues(self.cores))),
        ];
        if self.shape == Shape::Report {
            params.push(("work", json!("datagram")));
        }
        params
    }

    pub(super) fn design(&self) -> Design {
        match self.variant {
            BUSYLOCK => Design::Busylock,
            ALL_CORES => Design::AllCores,
            _ => Design::Adoption,
        }
    }

    /// The number of qdiscs with a lock or an owner.
    pub(super) fn instances(&self) -> usize {
        let limited = self.shape.qdisc() == TBF;
        match limited && [OURS, BUSYLOCK].contains(&self.variant) {
            true => 1,
            false => self.shape.queues(self.cores),
        }
    }

    /// The real design.
    pub(super) fn real(&self) -> Real {
        Real {
            local: match self.variant {
                BUSYLOCK => Local::Busylock,
                _ => Local::Softnet(ServedBy::Senders),
            },
            design: self.design(),
            fq: self.shape.qdisc() == FQ,
            shape: self.shape,
        }
    }

    pub(super) fn published(&self) -> Option<f64> {
        let own = |(name, _): &&(&str, f64)| *name == self.variant;
        let found = PUBLISHED.iter().find(own).map(|(_, mpps)| *mpps);
        found.filter(|_| self.shape == Shape::Report)
    }
}

impl Real {
    /// Queues of the device with so many threads.
    pub(super) fn queues(&self, threads: usize) -> usize {
        self.shape.queues(threads)
    }
}

/// Every cell.
pub(super) fn cells(cores: &[usize]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for shape in Shape::ALL {
        let cores = match shape {
            Shape::Report => &[SENDERS],
            _ => cores,
        };
        for &cores in cores {
            let cell = |variant: &&'static str| Cell {
                variant,
                shape,
                cores,
            };
            cells.extend(shape.variants().iter().map(cell));
        }
    }
    cells
}
