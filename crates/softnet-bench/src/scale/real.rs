//! The real designs on one and two CPUs of this machine, by the load of `tx-adopt`.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use softnet::mem::{PacketAdoption, PacketList};
use softnet::qdisc::{Cx, Qdisc as _};
use softnet::time::Time;
use softnet_tc::{QdiscEnv, QdiscSpec, TbfSpec};

use super::calibrate::{Calibration, repeated};
use super::device::Work;
use super::machine::Costs;
use super::model::{self, Design, Load};
use super::shape::Shape;
use crate::error::BenchError;
use crate::tx_adopt::load::{self, Plan};
use crate::tx_adopt::variants::{Local, Setup};
use crate::tx_adopt::{Delivery, Driver, FRAME, Path, Qdisc, Ticks};

/// Packets in the calls by which the costs of a call and of a packet are told apart.
pub(super) const BULK: usize = 32;
/// Packets that are taken from a list at once.
const LIST: usize = 64;
/// Bytes per second and bucket of a `tbf` that never limits.
const RATE: u64 = 100_000_000_000;
const BURST: u64 = 1 << 30;
/// Turns at most, how fast the CPUs must be in one, and how long that is looked at.
const TRIES: usize = 5;
const ENOUGH: f64 = 0.92;
const MOMENT: Duration = Duration::from_millis(20);

fn plan(threads: usize, bulk: usize, time: Duration) -> Plan {
    Plan {
        threads,
        bulk,
        offered: None,
        frame: FRAME,
        classes: 0,
        time,
    }
}

/// One design as it is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Real {
    pub(super) local: Local,
    pub(super) design: Design,
    pub(super) fq: bool,
    pub(super) shape: Shape,
}

impl Real {
    /// Millions of packets per second.
    pub(super) fn mpps(
        &self,
        threads: usize,
        bulk: usize,
        time: Duration,
        control: &Control,
    ) -> Result<f64, BenchError> {
        let plan = plan(threads, bulk, time);
        let queues = self.queues(threads);
        control.beside(threads, || {
            let outcome = Setup {
                qdisc: self.qdisc(plan.packets()),
                mq: (queues > 1).then_some(queues),
                driver: Driver::Null,
                plan: &plan,
                ticks: &control.ticks,
            }
            .measure(self.local)?;
            Ok(outcome.delivered as f64 / outcome.time.as_secs_f64() / 1e6)
        })
    }

    fn qdisc(&self, packets: usize) -> QdiscSpec {
        match self.fq {
            true => Qdisc::Fq.spec(packets),
            false => QdiscSpec::Tbf(TbfSpec {
                rate: RATE,
                burst: BURST,
                limit: BURST,
                ..TbfSpec::default()
            }),
        }
    }

    /// Nanoseconds in which the qdisc takes a packet and gives it back, of many at once.
    pub(super) fn queued(&self, control: &Control) -> Result<f64, BenchError> {
        let plan = plan(1, BULK, Duration::ZERO);
        let pool = plan.pool()?;
        let mut qdisc = self
            .qdisc(plan.packets())
            .build(&QdiscEnv::new(&pool))
            .map_err(|e| BenchError::Measure(e.to_string()))?;
        let (mut cx, now) = (Cx::new(&pool), Time(1));
        let mut turn = |queue: bool| {
            let mut list = PacketList::new();
            pool.alloc_bulk(BULK, &mut list);
            list.for_each_mut(|packet| packet.extend(FRAME));
            if queue {
                qdisc.enqueue(&mut list, cx.at(now));
                let _ = qdisc.dequeue(BULK, &mut list, cx.at(now));
            }
        };
        control.beside(1, || {
            let with = repeated(|| turn(true));
            Ok((with - repeated(|| turn(false))).max(0.0) / BULK as f64)
        })
    }

    /// The instructions of a design: what one thread takes, without what its accesses cost in the
    /// model. Calls of one packet and of many tell apart what a call costs and what a packet does.
    pub(super) fn work(
        &self,
        make: Make,
        (single, chained, queued): (f64, f64, f64),
        calibration: &Calibration,
    ) -> Work {
        let none = Work {
            make: make.single,
            push: (make.push - calibration.costs.atomic).max(0.0),
            queued,
            pause: calibration.pause,
            clock: calibration.clock,
            r#yield: calibration.r#yield,
            ..Work::default()
        };
        let accesses = 1e3 / alone(self.design, none, calibration.costs) - make.single;
        let each = 1e3 / single - make.single - accesses;
        let many = (1e3 / chained - make.chained) * BULK as f64 - accesses;
        let packet = ((many - each) / (BULK - 1) as f64).clamp(0.0, each.max(0.0));
        Work {
            call: (each - packet).max(0.0),
            packet,
            ..none
        }
    }
}

/// The design on one core in the model.
fn alone(design: Design, work: Work, costs: Costs) -> f64 {
    let load = Load {
        design,
        cores: 1,
        queues: 1,
        work,
        packets: 4000,
        seed: 1,
    };
    model::mpps(&load, costs)
}

/// Work of senders without contention: nanoseconds a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Make {
    /// To make it and to free it, in a call of its own and in one of many.
    single: f64,
    chained: f64,
    /// To push it besides, and to take it from the list with 63 others.
    push: f64,
}

/// A path that ends at once: every packet is refused.
struct Nowhere {
    /// By way of a list.
    list: Option<PacketAdoption>,
    /// By sender.
    refused: [CachePadded<AtomicU64>; 2],
}

impl Nowhere {
    /// Sends packets there; how many, and the nanoseconds of CPU time that each took.
    fn measure(plan: &Plan, listed: bool, ticks: &Ticks) -> Result<(f64, f64), BenchError> {
        let path = Nowhere {
            list: listed.then(|| PacketAdoption::expecting(LIST)),
            refused: Default::default(),
        };
        let (pool, delivery) = (plan.pool()?, Delivery::new(1, plan.threads));
        let outcome = load::measure(&path, &delivery, &pool, ticks, plan)?;
        let packets = outcome.drops as f64;
        let rate = packets / outcome.time.as_secs_f64();
        Ok((rate, outcome.cpu.as_nanos() as f64 / packets))
    }
}

impl Path for Nowhere {
    const SERVED: bool = false;

    fn transmit(&self, packets: PacketList, _: Time, _: &mut u64) -> u64 {
        let count = packets.len() as u64;
        let sender = packets.front().map_or(0, |first| first.port());
        match &self.list {
            Some(list) => {
                // The list is not limited.
                let _ = list.push(packets, usize::MAX);
                if list.len() >= LIST {
                    drop(list.take());
                }
            }
            None => drop(packets),
        }
        let own = &self.refused[usize::from(sender) % self.refused.len()];
        own.store(own.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        count
    }

    fn dropped(&self) -> u64 {
        self.list.iter().for_each(|list| drop(list.take()));
        let of = |refused: &CachePadded<AtomicU64>| refused.load(Ordering::Relaxed);
        self.refused.iter().map(of).sum()
    }
}

/// A check that the machine gives us whole CPUs: threads that share nothing, which make packets and
/// free them. A turn counts if they were as fast right before and after it, each of as many
/// threads, as one was at best; else it is tried again, and the best in that respect counts.
pub(super) struct Control {
    ticks: Ticks,
    /// Packets per second of one thread, the most so far.
    most: Cell<f64>,
}

impl Control {
    pub(super) fn new() -> Control {
        Control {
            ticks: Ticks::new(),
            most: Cell::new(0.0),
        }
    }

    pub(super) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// The speed of the CPUs now, relative to the highest so far.
    fn speed(&self, threads: usize) -> Result<f64, BenchError> {
        let (rate, _) = Nowhere::measure(&plan(threads, 1, MOMENT), false, &self.ticks)?;
        let each = rate / threads as f64;
        self.most.set(self.most.get().max(each));
        Ok(each / self.most.get())
    }

    fn beside<T>(
        &self,
        threads: usize,
        mut measure: impl FnMut() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let mut turn = || {
            let before = self.speed(threads)?;
            let value = measure()?;
            Ok::<_, BenchError>((before.min(self.speed(threads)?), value))
        };
        let mut best = turn()?;
        for _ in 1..TRIES {
            if best.0 >= ENOUGH {
                break;
            }
            let next = turn()?;
            if next.0 > best.0 {
                best = next;
            }
        }
        Ok(best.1)
    }
}

impl Make {
    /// Measures.
    pub(super) fn measure(time: Duration, control: &Control) -> Result<Make, BenchError> {
        let nanos = |bulk, listed| {
            let plan = plan(1, bulk, time);
            control.beside(1, || Ok(Nowhere::measure(&plan, listed, &control.ticks)?.1))
        };
        let single = nanos(1, false)?;
        Ok(Make {
            single,
            chained: nanos(BULK, false)?,
            push: nanos(1, true)? - single,
        })
    }
}
