//! Case `one-core`: an `htb` that one thread has for itself. A burst of packets is allocated and
//! enqueued, as many are dequeued and freed. Packets take the classes in an order that was
//! shuffled once, and each class has some packets before a burst comes, or none.
//!
//! Beside it the peer `dpdk-sched`: DPDK's `rte_sched`, a pipe for each class, with the same rates.

use std::cell::Cell;
use std::time::Duration;

use serde_json::json;
use softnet::mem::{PacketList, Pool};
use softnet::qdisc::{Cx, Qdisc as _};
use softnet::stats::DropCounters;
use softnet_tc::{AnyQdisc, QdiscEnv};

use super::FRAME;
use super::dpdk_sched::{BULK, Sched};
use crate::buffers::pinned::{self, Cpus};
use crate::buffers::{Counts, Reading, figure, pool, take_turns};
use crate::error::{BenchError, failed};
use crate::htb_tree;
use crate::options::Options;
use crate::random::Random;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::Ticks;

/// Name of these rows for `--only case=`.
const CASE: &str = "one-core";
/// Packets that each class has before a burst comes.
const WAITING: [usize; 2] = [0, 2];
/// Bytes of a buffer, and packets in the pool beyond those that wait.
const BUFFER: usize = 512;
const SPARE: usize = 4096;
/// Bursts between two looks at the clock that the measurement goes by.
const STRIDE: usize = 64;
/// The peer's name.
const PEER: &str = "dpdk-sched";

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
struct Case {
    classes: u16,
    /// Packets that each class has before a burst comes.
    waiting: usize,
}

impl Case {
    /// All of them.
    fn all() -> impl Iterator<Item = Case> {
        let case = |classes| WAITING.map(|waiting| Case { classes, waiting });
        htb_tree::CLASSES.into_iter().flat_map(case)
    }

    fn params(&self) -> Vec<Param> {
        vec![
            ("case", json!(CASE)),
            ("threads", json!(1)),
            ("qdisc", json!("htb")),
            ("classes", json!(self.classes)),
            ("waiting", json!(self.waiting)),
            ("bulk", json!(BULK)),
        ]
    }

    /// Packets that wait before a burst comes.
    fn standing(&self) -> usize {
        usize::from(self.classes) * self.waiting
    }
}

/// The qdisc and what goes through it.
struct Load {
    qdisc: AnyQdisc,
    cx: Cx,
    drops: DropCounters,
    ticks: Ticks,
    pool: Pool,
    /// The classes as packets name them, and the next one.
    order: Vec<u32>,
    next: usize,
}

impl Load {
    fn new(case: &Case, ticks: Ticks) -> Result<Load, BenchError> {
        let pool = pool(case.standing() + SPARE, BUFFER)?;
        let mut order: Vec<u32> = (0..case.classes).map(htb_tree::priority).collect();
        Random::new(1).shuffle(&mut order);
        let env = QdiscEnv::new(&pool);
        let mut load = Load {
            qdisc: htb_tree::spec(case.classes)
                .and_then(|spec| spec.build(&env))
                .map_err(failed)?,
            cx: Cx::new(&pool),
            drops: DropCounters::new(),
            ticks,
            pool,
            order,
            next: 0,
        };
        load.put(case.standing())?;
        Ok(load)
    }

    fn put(&mut self, count: usize) -> Result<(), BenchError> {
        let mut packets = PacketList::new();
        if self.pool.alloc_bulk(count, &mut packets) < count {
            return Err(BenchError::Measure("the pool is exhausted".into()));
        }
        let Load { order, next, .. } = self;
        packets.for_each_mut(|packet| {
            packet.extend(FRAME);
            packet.set_priority(order[*next]);
            *next += 1;
            if *next == order.len() {
                *next = 0;
            }
        });
        let now = self.ticks.now();
        self.qdisc.enqueue(&mut packets, self.cx.at(now));
        Ok(())
    }

    /// Returns how many packets came.
    fn take(&mut self, count: usize) -> usize {
        let mut packets = PacketList::new();
        let now = self.ticks.now();
        self.qdisc.dequeue(count, &mut packets, self.cx.at(now));
        self.cx.dropped.settle(&self.drops);
        packets.len()
    }

    fn burst(&mut self) -> Result<usize, BenchError> {
        self.put(BULK)?;
        Ok(self.take(BULK))
    }

    /// Takes out what is left; an error if packets were lost.
    fn finish(mut self) -> Result<(), BenchError> {
        while self.take(BULK) > 0 {}
        let Load { pool, qdisc, .. } = self;
        drop(qdisc);
        let stats = pool.stats();
        if stats.free == stats.buffers {
            return Ok(());
        }
        Err(BenchError::Measure(format!(
            "{} of {} buffers are free",
            stats.free, stats.buffers
        )))
    }
}

/// Measures once, on a thread bound to `cpu`.
fn measure(case: &Case, cpu: usize, ticks: Ticks, time: Duration) -> Result<Reading, BenchError> {
    pinned::on_cpu(cpu, || {
        let mut load = Load::new(case, ticks)?;
        let stride = || {
            let mut packets = 0;
            for _ in 0..STRIDE {
                packets += load.burst()?;
            }
            Ok(packets)
        };
        let reading = pinned::repeat(time, Counts::default, stride)?;
        load.finish()?;
        Ok(reading)
    })
}

/// The names of all variants.
pub(super) const VARIANTS: [&str; 2] = [OURS, PEER];

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    if !options.threads.is_empty() && !options.threads.contains(&1) {
        return Ok(());
    }
    let only = options.only()?;
    let slice = options.window(1);
    let cpu = Cpus::choose()?.b;
    let ticks = Ticks::new();
    for case in Case::all() {
        if !only.allows(&case.params()) {
            continue;
        }
        let ticks = ticks.clone();
        let ours = move |time| measure(&case, cpu, ticks.clone(), time);
        let (sched, best) = (Sched::new(case.classes, case.waiting, cpu), Cell::new(None));
        let figures = vec![
            figure(OURS, case.params(), slice, ours),
            figure(PEER, case.params(), slice, move |time| {
                sched.measure(&best, time)
            }),
        ];
        take_turns(options, slice, figures, results)?;
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

    /// The measurement itself fails if a packet is lost.
    #[test]
    fn as_many_packets_come_out_as_go_in() {
        for case in Case::all() {
            let mut load = Load::new(&case, Ticks::new()).expect("the tree is right");
            for _ in 0..100 {
                assert_eq!(load.burst().ok(), Some(BULK), "{case:?}");
            }
            let queued = load.qdisc.stats().qlen;
            assert_eq!(queued, case.standing() as u64, "{case:?}");
            assert_eq!(load.drops.total(), 0, "{case:?}");
            load.finish().unwrap_or_else(|e| panic!("{case:?}: {e}"));
        }
    }
}
