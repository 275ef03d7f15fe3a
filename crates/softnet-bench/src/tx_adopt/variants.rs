//! The variants: from a sender's call through the qdisc to the driver.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_utils::CachePadded;
use softnet::mem::{PacketList, Pool};
use softnet::time::Time;
use softnet::tx::{Qdiscs, Sender, XmitResult};
use softnet_tc::{AnyQdisc, Handle, QdiscEnv, QdiscSpec, SpecError, TreeSpec};

use super::dpdk;
use super::load::{self, Outcome, Plan};
use super::path::{Delivery, Driver, Path, Sink};
use super::rows;
use super::ticks::Ticks;
use crate::baselines::busylock::Busylock;
use crate::baselines::mutex::Locked;
use crate::baselines::rings::Rings;
use crate::baselines::spin_adopt::SpinAdopt;
use crate::error::{BenchError, failed};
use crate::interleave::Turn;
use crate::qdiscs;
use crate::report::{Collector, Param};

pub(crate) const MUTEX: &str = "mutex";
/// The same where a qdisc is called what it does.
pub(crate) const LOCKED: &str = "locked";
/// A queue behind a lock for each sender, for which nobody else comes: what the generator, qdisc
/// and driver take by themselves.
pub(crate) const PRIVATE: &str = "private";
pub(crate) const BUSYLOCK: &str = "busylock";
pub(crate) const SPIN_ADOPT: &str = "spin-adopt";
/// Only `pfifo_fast`, whatever the qdisc is said to be.
pub(crate) const RINGS: &str = "rings";

/// One row: the load, the qdisc and the driver that its variants have in common.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) params: Vec<Param>,
    pub(crate) plan: Plan,
    /// The qdisc of each queue, by its [name](crate::qdiscs).
    pub(crate) qdisc: &'static str,
    /// Queues below `mq`; `None`: the qdisc is the root of a device with one queue.
    pub(crate) mq: Option<usize>,
    pub(crate) driver: Driver,
}

impl Shape {
    /// The turns of these variants.
    pub(crate) fn turns(
        &self,
        variants: impl IntoIterator<Item = &'static str>,
        ticks: &Ticks,
    ) -> Vec<Turn> {
        let turn = |name| {
            let (shape, ticks) = (self.clone(), ticks.clone());
            let measure = move |results: &mut Collector| {
                let outcome = shape.measure(name, &ticks)?;
                rows::add(name, &shape.params, shape.plan.offered, &outcome, results);
                Ok(())
            };
            Turn::new(name, &self.params, measure)
        };
        variants.into_iter().map(turn).collect()
    }

    /// Makes the variant afresh and measures it once.
    pub(crate) fn measure(&self, name: &str, ticks: &Ticks) -> Result<Outcome, BenchError> {
        if name == dpdk::HTS {
            return dpdk::measure(self.driver, &self.plan);
        }
        let pool = self.plan.pool()?;
        let queues = match (name, self.mq) {
            (PRIVATE, _) => self.plan.threads,
            (_, queues) => queues.unwrap_or(1),
        };
        let delivery = Arc::new(Delivery::new(queues, self.plan.threads));
        let sinks: Vec<_> = (0..queues)
            .map(|n| Sink::of(self.driver, n, delivery.clone(), ticks.clone()))
            .collect();
        let run = Run {
            qdisc: qdiscs::spec(self.qdisc, self.plan.classes, self.plan.packets())?,
            plan: &self.plan,
            delivery: &delivery,
            pool: &pool,
            ticks,
        };
        let (clock, own) = (|| ticks.clone(), || pool.clone());
        match name {
            MUTEX | LOCKED | PRIVATE => run.each(sinks, |qdisc, sink| {
                Locked::new(qdisc, sink, clock(), own())
            }),
            BUSYLOCK => run.each(sinks, |qdisc, sink| {
                Busylock::new(qdisc, sink, clock(), own())
            }),
            SPIN_ADOPT => run.each(sinks, |qdisc, sink| {
                SpinAdopt::new(qdisc, sink, clock(), own())
            }),
            RINGS => run.each(sinks, |_, sink| {
                Rings::new(self.plan.packets(), sink, own())
            }),
            _ => {
                let spec = match self.mq {
                    Some(queues) => each_queue(&run.qdisc, queues).map_err(failed)?,
                    None => run.qdisc.clone(),
                };
                let qdiscs = spec.instances(queues, &pool).map_err(failed)?;
                run.load(&Softnet::start(sinks, qdiscs, &pool, ticks)?)
            }
        }
    }
}

/// One turn in this process.
struct Run<'a> {
    qdisc: QdiscSpec,
    plan: &'a Plan,
    delivery: &'a Delivery,
    pool: &'a Pool,
    ticks: &'a Ticks,
}

impl Run<'_> {
    fn load<P: Path>(&self, path: &P) -> Result<Outcome, BenchError> {
        load::measure(path, self.delivery, self.pool, self.ticks, self.plan)
    }

    /// A path for each queue.
    fn each<P: Path>(
        &self,
        sinks: Vec<Sink>,
        make: impl Fn(AnyQdisc, Sink) -> P,
    ) -> Result<Outcome, BenchError> {
        let env = QdiscEnv::new(self.pool);
        let path = |sink| match self.qdisc.build(&env) {
            Ok(qdisc) => Ok(CachePadded::new(make(qdisc, sink))),
            Err(e) => Err(failed(e)),
        };
        let mut paths = sinks.into_iter().map(path).collect::<Result<Vec<_>, _>>()?;
        match (paths.pop(), paths.is_empty()) {
            (Some(only), true) => self.load(&*only),
            (last, _) => {
                paths.extend(last);
                self.load(&Several(paths))
            }
        }
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
    /// With the default policy.
    pub(crate) fn start(
        sinks: Vec<Sink>,
        qdiscs: Qdiscs<AnyQdisc>,
        pool: &Pool,
        ticks: &Ticks,
    ) -> Result<Softnet, BenchError> {
        let sender = Sender::builder().qdiscs(qdiscs).pool(pool);
        let sender = sender.clock(ticks.clock());
        sender.start_all(sinks).map(Softnet).map_err(failed)
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
