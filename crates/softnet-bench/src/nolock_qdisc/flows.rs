//! Case `flows`: what a qdisc with a queue for each flow costs, by the number of flows. One thread,
//! packets of 64 bytes, 32 in a call, and a queue that is never empty: as many packets come as
//! leave, each for a flow drawn at random among those that have packets.
//!
//! - `softnet`: the qdisc, called by its only owner;
//! - `locked`: the same behind a mutex, which is taken for each call.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::qdisc::{Cx, Qdisc};
use softnet_tc::{AnyQdisc, FqCodelSpec, FqSpec, QdiscEnv, QdiscSpec};

use super::FRAME;
use crate::error::BenchError;
use crate::interleave::Turn;
use crate::random::Random;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::Ticks;
use crate::tx_adopt::variants::LOCKED;

/// Name of these rows for `--only case=`.
const CASE: &str = "flows";
/// Packets in a call.
const BULK: usize = 32;
/// Calls between two looks at the clock that ends a turn.
const CALLS: usize = 1000;

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    qdisc: &'static str,
    /// Flows that have sent something before.
    flows: u32,
    /// Flows that have packets now.
    active: u32,
}

/// Every case.
pub(super) const CASES: [Case; 3] = [
    Case::new("fq", 100, 100),
    Case::new("fq", 100_000, 10_000),
    Case::new("fq_codel", 1024, 1024),
];

impl Case {
    const fn new(qdisc: &'static str, flows: u32, active: u32) -> Case {
        Case {
            qdisc,
            flows,
            active,
        }
    }

    pub(super) fn params(&self) -> Vec<Param> {
        vec![
            ("case", json!(CASE)),
            ("qdisc", json!(self.qdisc)),
            ("flows", json!(self.flows)),
            ("active", json!(self.active)),
        ]
    }

    fn qdisc(&self) -> QdiscSpec {
        match self.qdisc {
            "fq" => QdiscSpec::Fq(FqSpec {
                limit: 2 * self.flows,
                orphan_mask: u32::MAX,
                ..FqSpec::default()
            }),
            _ => QdiscSpec::FqCodel(FqCodelSpec::default()),
        }
    }
}

/// A qdisc, alone or behind a lock.
enum Access {
    Owned(AnyQdisc),
    Locked(Mutex<AnyQdisc>),
}

impl Access {
    #[inline]
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) {
        match self {
            Access::Owned(qdisc) => qdisc.enqueue(packets, cx),
            Access::Locked(qdisc) => qdisc.lock().enqueue(packets, cx),
        };
    }

    #[inline]
    fn dequeue(&mut self, packets: &mut PacketList, cx: &mut Cx) {
        match self {
            Access::Owned(qdisc) => qdisc.dequeue(BULK, packets, cx),
            Access::Locked(qdisc) => qdisc.lock().dequeue(BULK, packets, cx),
        };
    }
}

impl Case {
    /// A variant's turns.
    pub(super) fn turn(self, name: &'static str, time: Duration, ticks: &Ticks) -> Turn {
        let ticks = ticks.clone();
        let measure = move |results: &mut Collector| {
            let mpps = self.measure(name, time, &ticks)?;
            results.add(name, &self.params(), &[("mpps", mpps)]);
            Ok(())
        };
        Turn::new(name, &self.params(), measure)
    }

    /// Millions of packets per second that came and left.
    fn measure(&self, name: &str, time: Duration, ticks: &Ticks) -> Result<f64, BenchError> {
        let failed = |e: &dyn std::fmt::Display| BenchError::Measure(e.to_string());
        let Case { flows, active, .. } = *self;
        let config = PoolConfig {
            buffers: flows as usize + 64 + BULK,
            buffer_size: 512,
        };
        let pool = Pool::new(config).map_err(|e| failed(&e))?;
        let mut cx = Cx::new(&pool);
        let mut qdisc = self
            .qdisc()
            .build(&QdiscEnv::new(&pool))
            .map_err(|e| failed(&e))?;
        let now = || ticks.now();
        let of_flow = |flow: u32| {
            let mut packet = pool.alloc().ok()?;
            packet.extend(FRAME);
            packet.set_flow_hash(flow);
            Some(packet)
        };
        // All become known, and leave; then those that stay.
        for (from, to) in [(0, flows), (0, active)] {
            let mut out = PacketList::new();
            qdisc.dequeue(usize::MAX >> 1, &mut out, cx.at(now()));
            drop(out);
            let mut list: PacketList = (from..to).filter_map(of_flow).collect();
            qdisc.enqueue(&mut list, cx.at(now()));
        }
        let mut packets: PacketList = (0..BULK as u32).filter_map(of_flow).collect();
        let mut access = match name {
            LOCKED => Access::Locked(Mutex::new(qdisc)),
            _ => Access::Owned(qdisc),
        };
        let mut random = Random::new(1);
        let mut turn = |calls: usize| {
            for _ in 0..calls {
                let now = now();
                packets.for_each_mut(|packet: &mut Packet| {
                    packet.set_flow_hash(random.below(active.into()) as u32);
                    packet.set_timestamp(now);
                });
                access.enqueue(&mut packets, cx.at(now));
                access.dequeue(&mut packets, &mut cx);
            }
        };
        turn(10 * CALLS);
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < time {
            turn(CALLS);
            calls += CALLS;
        }
        let mpps = (calls * BULK) as f64 / start.elapsed().as_secs_f64() / 1e6;
        if packets.len() != BULK || cx.dropped.wire_packets() != 0 {
            let text = format!("{} of {BULK} packets left at the end", packets.len());
            return Err(BenchError::Measure(text));
        }
        Ok(mpps)
    }
}

/// The variants.
pub(super) const NAMES: [&str; 2] = [OURS, LOCKED];

#[cfg(test)]
mod tests {
    use super::*;

    /// The measurement itself fails if a packet is lost.
    #[test]
    fn as_many_packets_leave_as_come() {
        for case in CASES {
            for name in NAMES {
                let mpps = case.measure(name, Duration::from_millis(2), &Ticks::new());
                let mpps = mpps.unwrap_or_else(|e| panic!("{name} {case:?}: {e}"));
                assert!(mpps > 0.0);
            }
        }
    }
}
