//! Variant `cake-mq-kernel`: the algorithm by which `cake_mq` of Linux 7 (`sch_cake.c`) shares a
//! rate among queues, around our `cake`. It is a model, not the kernel's code.
//!
//! Each queue has a `cake` with a rate of its own. Every 200 µs, as it takes packets out, a queue
//! counts those that are active: that have packets waiting, or have sent one since it last
//! counted. Its rate is the whole one, divided by their number. So what a queue with few packets
//! does not use of its part is lost to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use softnet::mem::{PacketList, Pool};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict};
use softnet::time::Time;
use softnet::tx::Qdiscs;
use softnet_tc::{AnyQdisc, CakeSpec, QdiscEnv, QdiscSpec};

use crate::error::{BenchError, failed};

/// Nanoseconds between two counts.
const SYNC: u64 = 200_000;

/// Hints for the other queues, which the owner of the queue writes: Relaxed suffices.
#[derive(Debug, Default)]
struct Shown {
    /// Packets that wait.
    waiting: AtomicU64,
    /// Nanoseconds, when a packet left last.
    active: AtomicU64,
}

/// One of the queues.
#[derive(Debug)]
struct Divided {
    cake: AnyQdisc,
    /// With the whole rate.
    spec: CakeSpec,
    all: Arc<[CachePadded<Shown>]>,
    queue: usize,
    /// When it counted last, and how many were active.
    counted: Time,
    parts: u64,
}

/// The qdiscs of a device with so many queues.
pub(super) fn qdiscs(
    spec: &CakeSpec,
    queues: usize,
    pool: &Pool,
) -> Result<Qdiscs<AnyQdisc>, BenchError> {
    let env = QdiscEnv::new(pool);
    let all: Arc<[CachePadded<Shown>]> = (0..queues).map(|_| CachePadded::default()).collect();
    let mut qdiscs = Vec::new();
    for queue in 0..queues {
        qdiscs.push(AnyQdisc::Custom(Box::new(Divided {
            cake: QdiscSpec::Cake(spec.clone()).build(&env).map_err(failed)?,
            spec: spec.clone(),
            all: all.clone(),
            queue,
            counted: Time::ZERO,
            parts: 1,
        })));
    }
    Ok(Qdiscs::per_queue(qdiscs))
}

impl Divided {
    /// Counts the active queues, if it is time, and takes its part of the rate.
    fn count(&mut self, cx: &mut Cx) {
        let before = self.counted.nanos();
        if cx.now.nanos() < before + SYNC {
            return;
        }
        let mut parts = 1;
        for (queue, shown) in self.all.iter().enumerate() {
            let waits = shown.waiting.load(Ordering::Relaxed) > 0;
            let is_active = waits || shown.active.load(Ordering::Relaxed) > before;
            parts += u64::from(queue != self.queue && is_active);
        }
        self.counted = cx.now;
        if parts != self.parts {
            self.parts = parts;
            let part = CakeSpec {
                bandwidth: self.spec.bandwidth.map(|rate| rate / parts),
                ..self.spec.clone()
            };
            let changed = self.cake.change(&QdiscSpec::Cake(part), cx);
            changed.expect("a cake, which gets another rate");
        }
    }

    fn show(&self) {
        let waiting = self.cake.stats().qlen;
        let shown = &self.all[self.queue];
        shown.waiting.store(waiting, Ordering::Relaxed);
    }
}

impl Qdisc for Divided {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let verdict = self.cake.enqueue(packets, cx);
        self.show();
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.count(cx);
        let before = out.len();
        let next = self.cake.dequeue(budget, out, cx);
        if out.len() > before {
            let shown = &self.all[self.queue];
            shown.active.store(cx.now.nanos(), Ordering::Relaxed);
        }
        self.show();
        next
    }

    fn peek(&self, now: Time) -> Peek {
        self.cake.peek(now)
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.cake.drain(out);
        self.show();
    }

    fn wants_enqueue_time(&self) -> bool {
        self.cake.wants_enqueue_time()
    }

    fn stats(&self) -> &QdiscStats {
        self.cake.stats()
    }
}

#[cfg(test)]
mod tests {
    use softnet::mem::Packet;

    use super::super::shaped::cake;
    use super::super::{QUEUES, Share, device};
    use super::*;
    use crate::buffers;

    /// 1 Gbit/s, in bytes per second.
    const RATE: u64 = 125_000_000;
    /// Nanoseconds from one call to the next.
    const STEP: u64 = 10_000;

    /// The part of the rate that leaves, in virtual time, while queue 0 always has packets waiting
    /// and queue 1 gets one of 60 bytes every 100 µs.
    fn part(mut qdiscs: Vec<AnyQdisc>, pool: &Pool) -> f64 {
        const WARM_UP: u64 = 10_000;
        const STEPS: u64 = 20_000;
        let mut cx = Cx::new(pool);
        let mut bytes = 0;
        for step in 0..WARM_UP + STEPS {
            cx.now = Time(1_000_000_000 + step * STEP);
            for (queue, qdisc) in qdiscs.iter_mut().enumerate() {
                let (len, count) = match queue {
                    0 => (1514, 64_u64.saturating_sub(qdisc.stats().qlen)),
                    _ => (60, u64::from(step % 10 == 0)),
                };
                let packet = |_| {
                    let mut packet = pool.alloc().expect("a buffer");
                    packet.extend(len);
                    packet.set_flow_hash(queue as u32 + 1);
                    packet
                };
                let mut list: PacketList = (0..count).map(packet).collect();
                qdisc.enqueue(&mut list, &mut cx);
                let mut out = PacketList::new();
                qdisc.dequeue(64, &mut out, &mut cx);
                if step >= WARM_UP {
                    bytes += out.iter().map(Packet::wire_len).sum::<u64>();
                }
            }
        }
        bytes as f64 * 1e9 / (STEPS * STEP * RATE) as f64
    }

    /// A queue with hardly a packet costs the other one half of the rate by the kernel's
    /// algorithm, and nothing by ours.
    #[test]
    fn a_sparse_queue_takes_half_of_the_rate_or_nothing() {
        let pool = buffers::pool(512, 2048).expect("a pool");
        let theirs = qdiscs(&cake(RATE), QUEUES, &pool).expect("two cakes");
        let theirs = part(theirs.instances, &pool);
        assert!((0.49..0.52).contains(&theirs), "{theirs}");
        let spec = QdiscSpec::Cake(cake(RATE));
        let ours = device::qdiscs(&spec, Share::Rates, QUEUES, &pool).expect("a cake");
        let ours = part(ours.instances, &pool);
        assert!(ours >= 0.99, "{ours}");
    }

    /// Alone, a queue has all of it.
    #[test]
    fn a_queue_alone_has_the_whole_rate() {
        let pool = buffers::pool(512, 2048).expect("a pool");
        let mut theirs = qdiscs(&cake(RATE), QUEUES, &pool).expect("two cakes");
        theirs.instances.truncate(1);
        let part = part(theirs.instances, &pool);
        assert!((0.99..1.01).contains(&part), "{part}");
    }
}
