//! The variants, in this process: from a sender's call through the qdisc to the driver.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_utils::CachePadded;
use softnet::mem::{PacketList, Pool};
use softnet::time::Time;
use softnet::tx::{Qdiscs, Sender, ServedBy, TxPolicy, XmitResult};
use softnet_tc::{AnyQdisc, Handle, QdiscEnv, QdiscSpec, SpecError, TreeSpec};

use super::crossbeam::Crossbeam;
use super::load::{self, Outcome, Plan};
use super::path::{Delivery, Driver, Path, Sink};
use super::ticks::Ticks;
use crate::baselines::busylock::Busylock;
use crate::baselines::mutex::Locked;
use crate::baselines::rings::Rings;
use crate::baselines::spin_adopt::SpinAdopt;
use crate::error::BenchError;

/// The path of senders to the qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// Softnet's transmit queue.
    Softnet(ServedBy),
    Mutex,
    Busylock,
    SpinAdopt,
    Crossbeam,
    /// Only `pfifo_fast`, whatever the qdisc is said to be.
    Rings,
}

/// The setup that all of them have in common.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    /// The qdisc of each queue.
    pub(crate) qdisc: QdiscSpec,
    /// Queues below `mq`; `None`: the qdisc is the root of a device with one queue.
    pub(crate) mq: Option<usize>,
    pub(crate) driver: Driver,
    pub(crate) plan: &'a Plan,
    pub(crate) ticks: &'a Ticks,
}

impl Setup<'_> {
    /// Makes the variant afresh and measures it once.
    pub(crate) fn measure(&self, kind: Local) -> Result<Outcome, BenchError> {
        let pool = self.plan.pool()?;
        let queues = self.mq.unwrap_or(1);
        let delivery = Arc::new(Delivery::new(queues, self.plan.threads));
        let ticks = || self.ticks.clone();
        let sinks: Vec<_> = (0..queues)
            .map(|n| Sink::of(self.driver, n, delivery.clone(), ticks()))
            .collect();
        let own = || pool.clone();
        let outcome = match kind {
            Local::Softnet(served_by) => {
                let path = self.softnet(served_by, sinks, &pool)?;
                load::measure(&path, &delivery, &pool, self.ticks, self.plan)
            }
            Local::Mutex => self.each(sinks, &delivery, &pool, |qdisc, sink| {
                Locked::new(qdisc, sink, ticks(), own())
            }),
            Local::Busylock => self.each(sinks, &delivery, &pool, |qdisc, sink| {
                Busylock::new(qdisc, sink, ticks(), own())
            }),
            Local::SpinAdopt => self.each(sinks, &delivery, &pool, |qdisc, sink| {
                SpinAdopt::new(qdisc, sink, ticks(), own())
            }),
            Local::Crossbeam => self.each(sinks, &delivery, &pool, |qdisc, sink| {
                Crossbeam::new(qdisc, sink, ticks(), own(), self.plan.packets())
            }),
            Local::Rings => self.each(sinks, &delivery, &pool, |_, sink| {
                Rings::new(self.plan.packets(), sink, own())
            }),
        };
        // `fq` notes when it was given a packet in place of the push, by which all others' sojourn
        // counts.
        let restamps = matches!(self.qdisc, QdiscSpec::Fq(_));
        outcome.map(|outcome| Outcome {
            sojourn: outcome.sojourn.filter(|_| !restamps),
            ..outcome
        })
    }

    /// A path for each queue.
    fn each<P: Path>(
        &self,
        sinks: Vec<Sink>,
        delivery: &Delivery,
        pool: &Pool,
        make: impl Fn(AnyQdisc, Sink) -> P,
    ) -> Result<Outcome, BenchError> {
        let env = QdiscEnv::new(pool);
        let path = |sink| match self.qdisc.build(&env) {
            Ok(qdisc) => Ok(CachePadded::new(make(qdisc, sink))),
            Err(e) => Err(BenchError::Measure(e.to_string())),
        };
        let mut paths = sinks.into_iter().map(path).collect::<Result<Vec<_>, _>>()?;
        match (paths.pop(), paths.is_empty()) {
            (Some(only), true) => load::measure(&*only, delivery, pool, self.ticks, self.plan),
            (last, _) => {
                paths.extend(last);
                load::measure(&Several(paths), delivery, pool, self.ticks, self.plan)
            }
        }
    }

    fn softnet(
        &self,
        served_by: ServedBy,
        sinks: Vec<Sink>,
        pool: &Pool,
    ) -> Result<Softnet, BenchError> {
        let failed = |e: SpecError| BenchError::Measure(e.to_string());
        let qdisc = match self.mq {
            Some(_) => each_queue(&self.qdisc, sinks.len()).map_err(failed)?,
            None => self.qdisc.clone(),
        };
        let qdiscs = qdisc.instances(sinks.len(), pool).map_err(failed)?;
        Softnet::start(served_by, sinks, qdiscs, pool, self.ticks)
    }
}

/// A qdisc at each queue.
fn each_queue(qdisc: &QdiscSpec, queues: usize) -> Result<QdiscSpec, SpecError> {
    let mut tree = TreeSpec::new();
    let mq = tree.add(Handle::ROOT, Handle::NONE, QdiscSpec::Mq)?;
    for (minor, _) in (1..).zip(0..queues) {
        tree.add(mq.class(minor), Handle::NONE, qdisc.clone())?;
    }
    Ok(QdiscSpec::Tree(tree))
}

/// The queue of a list: each sender has one. Its number is the packets' port.
fn queue(packets: &PacketList, queues: usize) -> usize {
    packets
        .front()
        .map_or(0, |packet| usize::from(packet.port()) % queues)
}

/// Several queues, each a path of its own.
#[derive(Debug)]
struct Several<P>(Vec<CachePadded<P>>);

impl<P: Path> Path for Several<P> {
    const SERVED: bool = P::SERVED;

    fn transmit(&self, packets: PacketList, now: Time, waited: &mut u64) -> u64 {
        self.0[queue(&packets, self.0.len())].transmit(packets, now, waited)
    }

    fn serve(&self, stop: &AtomicBool) {
        std::thread::scope(|scope| {
            for path in &self.0 {
                scope.spawn(|| path.serve(stop));
            }
        });
    }

    fn dropped(&self) -> u64 {
        self.0.iter().map(|path| path.dropped()).sum()
    }
}

/// A device without an engine: senders run its queues, its helper thread does what they leave.
#[derive(Debug)]
pub(crate) struct Softnet(Sender<Sink, AnyQdisc>);

impl Softnet {
    /// With the default policy but for who serves it.
    pub(crate) fn start(
        served_by: ServedBy,
        sinks: Vec<Sink>,
        qdiscs: Qdiscs<AnyQdisc>,
        pool: &Pool,
        ticks: &Ticks,
    ) -> Result<Softnet, BenchError> {
        let policy = TxPolicy {
            served_by,
            ..TxPolicy::default()
        };
        let sender = Sender::builder().policy(policy).qdiscs(qdiscs).pool(pool);
        sender
            .clock(ticks.clock())
            .start_all(sinks)
            .map(Softnet)
            .map_err(|e| BenchError::Measure(e.to_string()))
    }
}

impl Path for Softnet {
    const SERVED: bool = false;

    fn transmit(&self, packets: PacketList, now: Time, _: &mut u64) -> u64 {
        let count = packets.len() as u64;
        let queues = self.0.device().queues();
        // The qdisc's limit is never reached, so all of them were refused at the adoption list.
        match queues[queue(&packets, queues.len())].transmit(packets, now) {
            XmitResult::Drop => count,
            XmitResult::Success | XmitResult::Congestion => 0,
        }
    }

    fn dropped(&self) -> u64 {
        self.0.device().drops().total()
    }
}
