//! A device of several queues whose driver counts what leaves: bytes as the wire has them, and the
//! packets of each flow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use softnet::mem::{PacketList, Pool};
use softnet::offload::Features;
use softnet::time::Clock;
use softnet::tx::{Qdiscs, Sender, Sent, TxRing, Xmit};
use softnet_tc::{AnyQdisc, DeviceTree, QdiscEnv, QdiscSpec};

use super::Share;
use crate::error::{BenchError, failed};

/// The qdiscs of a device whose queues share this.
pub(super) fn qdiscs(
    spec: &QdiscSpec,
    share: Share,
    queues: usize,
    pool: &Pool,
) -> Result<Qdiscs<AnyQdisc>, BenchError> {
    let env = QdiscEnv {
        parallel: share == Share::Rates,
        ..QdiscEnv::new(pool)
    };
    if share == Share::Nothing {
        let own = (0..queues).map(|_| spec.build(&env).map_err(failed));
        return Ok(Qdiscs::per_queue(own.collect::<Result<_, _>>()?));
    }
    let (_, qdiscs) = DeviceTree::new(spec.clone(), queues, &env).map_err(failed)?;
    Ok(qdiscs)
}

/// The driver's counters.
#[derive(Debug)]
pub(super) struct Meter {
    /// By queue; written by the queue's owner.
    bytes: Box<[CachePadded<AtomicU64>]>,
    /// By flow, each of which uses one queue.
    packets: Box<[CachePadded<AtomicU64>]>,
}

impl Meter {
    pub(super) fn new(queues: usize, flows: usize) -> Arc<Meter> {
        let zeros = |n| (0..n).map(|_| CachePadded::default()).collect();
        Arc::new(Meter {
            bytes: zeros(queues),
            packets: zeros(flows),
        })
    }

    /// Bytes on the wire, of all queues.
    pub(super) fn bytes(&self) -> u64 {
        // Pairs with the driver's: the buffers are back.
        let of = |bytes: &CachePadded<AtomicU64>| bytes.load(Ordering::Acquire);
        self.bytes.iter().map(of).sum()
    }

    /// Packets of each flow, large frames as one.
    pub(super) fn packets(&self) -> Vec<u64> {
        (0..self.packets.len()).map(|flow| self.of(flow)).collect()
    }

    /// Packets of a flow.
    pub(super) fn of(&self, flow: usize) -> u64 {
        self.packets[flow].load(Ordering::Relaxed)
    }
}

/// The driver of a queue: takes every packet, at once. A packet's port is its flow.
#[derive(Debug)]
pub(super) struct Counter {
    meter: Arc<Meter>,
    queue: usize,
}

fn add(counter: &AtomicU64, n: u64, order: Ordering) {
    counter.store(counter.load(Ordering::Relaxed) + n, order);
}

impl TxRing for Counter {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let mut bytes = 0;
        for packet in packets.iter() {
            bytes += packet.wire_len();
            sent.packets += packet.wire_packets();
            if let Some(flow) = self.meter.packets.get(usize::from(packet.port())) {
                add(flow, 1, Ordering::Relaxed);
            }
        }
        sent.bytes += bytes;
        drop(packets.take());
        add(&self.meter.bytes[self.queue], bytes, Ordering::Release);
        Xmit::Complete
    }
}

/// A device with a queue for each of the meter's.
pub(super) fn start(
    qdiscs: Qdiscs<AnyQdisc>,
    meter: &Arc<Meter>,
    pool: &Pool,
    clock: &Clock,
) -> Result<Sender<Counter, AnyQdisc>, BenchError> {
    let counter = |queue| Counter {
        meter: meter.clone(),
        queue,
    };
    let features = Features {
        tso4: true,
        ..Features::default()
    };
    let counters = (0..meter.bytes.len()).map(counter).collect();
    let sender = Sender::builder().features(features).qdiscs(qdiscs);
    let sender = sender.pool(pool).clock(clock.clone());
    sender.start_all(counters).map_err(failed)
}
