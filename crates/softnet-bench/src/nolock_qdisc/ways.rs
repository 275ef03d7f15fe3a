//! The ways of this process to a discipline, one for each transmit queue.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use softnet::packet::PacketList;
use softnet::pool::Pool;
use softnet::qdisc::{MqSpec, PrioSpec, QdiscEnv, QdiscSpec, TbfSpec};
use softnet::time::Time;
use softnet::tx::{DeviceConfig, Features, Standalone, TxPolicy, XmitResult};

use super::{Case, Qdisc, Way};
use crate::baselines::busylock::Busylock;
use crate::baselines::mutex::Locked;
use crate::error::BenchError;
use crate::tx_adopt::load::{self, Outcome, Plan};
use crate::tx_adopt::{Delivery, Driver, Path, Sink, Ticks};

/// Bytes per second, bucket and limit of a `tbf` that never limits.
const RATE: u64 = 100_000_000_000;
const BURST: u64 = 1 << 30;

impl Qdisc {
    /// One that never refuses a packet of a pool of `packets`.
    fn spec(self, packets: usize) -> QdiscSpec {
        match self {
            Qdisc::PfifoFast => QdiscSpec::PfifoFast {
                limit: packets as u32,
            },
            Qdisc::Tbf => QdiscSpec::Tbf(TbfSpec {
                rate: RATE,
                burst: BURST,
                limit: BURST,
                peakrate: None,
                mtu: 0,
                link: Default::default(),
            }),
            Qdisc::Prio => QdiscSpec::Prio(PrioSpec::default()),
        }
    }
}

/// Makes the way afresh and measures it once.
pub(super) fn measure(
    way: Way,
    case: &Case,
    plan: &Plan,
    ticks: &Ticks,
) -> Result<Outcome, BenchError> {
    let pool = plan.pool()?;
    let queues = case.queues();
    let delivery = Arc::new(Delivery::new(queues, plan.threads));
    let sinks = (0..queues).map(|n| Sink::of(Driver::Null, n, delivery.clone(), ticks.clone()));
    let child = case.qdisc.spec(plan.packets());
    let spec = match case.mq {
        Some(_) => QdiscSpec::Mq(MqSpec {
            others: Box::new(child),
            ..MqSpec::default()
        }),
        None => child,
    };
    let build = || {
        let env = QdiscEnv { pool: pool.clone() };
        spec.build(&env)
            .map_err(|e| BenchError::Measure(e.to_string()))
    };
    match way {
        Way::Softnet => {
            let path = Softnet::new(&spec, plan, sinks.collect(), ticks, &pool)?;
            load::measure(&path, &delivery, &pool, ticks, plan)
        }
        Way::Locked => {
            let mut locked = Vec::new();
            for sink in sinks {
                locked.push(CachePadded::new(Locked::new(build()?, sink, ticks.clone())));
            }
            load::measure(&Several(locked), &delivery, &pool, ticks, plan)
        }
        Way::Busylock => {
            // As in the kernel, where pfifo_fast has the flag.
            let can_bypass = case.qdisc == Qdisc::PfifoFast;
            let Some(sink) = { sinks }.next() else {
                return Err(BenchError::Measure("no queue".into()));
            };
            let path = Busylock::new(build()?, can_bypass, sink, ticks.clone(), pool.clone());
            load::measure(&path, &delivery, &pool, ticks, plan)
        }
        Way::Kernel => Err(BenchError::Measure("no such case".into())),
    }
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
    const SERVED: bool = false;

    fn transmit(&self, packets: PacketList, now: Time, waited: &mut u64) -> u64 {
        self.0[queue(&packets, self.0.len())].transmit(packets, now, waited)
    }

    fn dropped(&self) -> u64 {
        self.0.iter().map(|path| path.dropped()).sum()
    }
}

/// A standalone device: senders run its queues, its helper thread does what they leave.
#[derive(Debug)]
struct Softnet(Standalone<Sink>);

impl Softnet {
    fn new(
        spec: &QdiscSpec,
        plan: &Plan,
        sinks: Vec<Sink>,
        ticks: &Ticks,
        pool: &Pool,
    ) -> Result<Softnet, BenchError> {
        let config = DeviceConfig {
            name: "bench".to_owned(),
            features: Features::default(),
            qdisc: spec.clone(),
            policy: TxPolicy {
                max_burst: plan.packets(),
                ..TxPolicy::default()
            },
        };
        Standalone::start(config, sinks, pool, ticks.clock())
            .map(Softnet)
            .map_err(|e| BenchError::Measure(e.to_string()))
    }
}

impl Path for Softnet {
    const SERVED: bool = false;

    fn transmit(&self, packets: PacketList, now: Time, _: &mut u64) -> u64 {
        let count = packets.len() as u64;
        let queues = self.0.device().queues();
        // The discipline's limit is never reached, so all of them were refused at the adoption list.
        match queues[queue(&packets, queues.len())].transmit(packets, now) {
            XmitResult::Drop => count,
            XmitResult::Success | XmitResult::Congestion => 0,
        }
    }

    fn dropped(&self) -> u64 {
        self.0.device().drops().total()
    }
}
