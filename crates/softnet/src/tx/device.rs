//! A network device: a name, transmit queues with a discipline each, and its counters.

use std::sync::Arc;

use super::queue::{QueueStats, TxQueue, XmitResult};
use super::ring::{Features, TxRing};
use crate::packet::PacketList;
use crate::pool::Pool;
use crate::qdisc::{QdiscEnv, QdiscSpec, SpecError};
use crate::rx::Doorbell;
use crate::stats::{DropCounters, DropReason};
use crate::sync::PerCpu;
use crate::time::Time;

/// What a device is made of, besides its rings.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Name, as shown.
    pub name: String,
    /// What the driver does in hardware (or lets the kernel do).
    pub features: Features,
    /// Discipline of each transmit queue.
    pub qdisc: QdiscSpec,
}

/// Numbers of a device. Packets are wire packets, bytes are wire bytes (Ethernet header included, no preamble or FCS).
#[derive(Clone, Debug, Default)]
pub struct DeviceStats {
    /// Received from the driver, dropped ones included.
    pub rx_packets: u64,
    /// Received bytes.
    pub rx_bytes: u64,
    /// Handed to the device.
    pub tx_packets: u64,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Waiting in transmit queues.
    pub queued: u64,
    /// Dropped on the way in or out, by reason.
    pub drops: Vec<(DropReason, u64)>,
    /// Each transmit queue.
    pub queues: Vec<QueueStats>,
}

impl DeviceStats {
    /// All drops together.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|&(_, n)| n).sum()
    }
}

const RX_PACKETS: usize = 0;
const RX_BYTES: usize = 1;

/// See the [module](self).
#[derive(Debug)]
pub struct Device<R> {
    name: String,
    queues: Box<[TxQueue<R>]>,
    drops: Arc<DropCounters>,
    received: PerCpu<2>,
    env: QdiscEnv,
}

impl<R: TxRing> Device<R> {
    /// A device with one transmit queue for each ring. `homes` names for each queue the worker that serves it, and the
    /// number by which the worker knows it.
    ///
    /// # Errors
    /// If the discipline's parameters are wrong.
    pub fn new(
        config: DeviceConfig,
        rings: Vec<R>,
        pool: &Pool,
        homes: &[(Arc<Doorbell>, usize)],
    ) -> Result<Device<R>, SpecError> {
        let env = QdiscEnv { pool: pool.clone() };
        let drops = Arc::new(DropCounters::new());
        let mut queues = Vec::new();
        for (ring, (doorbell, token)) in rings.into_iter().zip(homes) {
            queues.push(TxQueue::new(
                ring,
                config.qdisc.build(&env)?,
                config.features,
                drops.clone(),
                pool.clone(),
                doorbell.clone(),
                *token,
            ));
        }
        let queues = queues.into_boxed_slice();
        Ok(Device { name: config.name, queues, drops, received: PerCpu::new(), env })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The transmit queues.
    pub fn queues(&self) -> &[TxQueue<R>] {
        &self.queues
    }

    /// Why packets of this device died.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Counts packets that the driver received.
    pub fn count_received(&self, packets: u64, bytes: u64) {
        self.received.add(RX_PACKETS, packets);
        self.received.add(RX_BYTES, bytes);
    }

    /// Sends `packets` out of this device. Takes ownership always; never blocks. All packets of one flow take one queue, in order.
    pub fn transmit(&self, packets: PacketList, now: Time) -> XmitResult {
        if packets.is_empty() {
            return XmitResult::Success;
        }
        match &*self.queues {
            [] => {
                self.drops.add(DropReason::DeviceDown, packets.wire_packets());
                XmitResult::Drop
            }
            [only] => only.transmit(packets, now),
            queues => self.spread(queues, packets, now),
        }
    }

    /// Splits the list by queue; packets for one queue stay together and in order.
    fn spread(&self, queues: &[TxQueue<R>], mut packets: PacketList, now: Time) -> XmitResult {
        let mut result = XmitResult::Success;
        let mut run = PacketList::new();
        let mut current = 0;
        while let Some(mut packet) = packets.pop_front() {
            let queue = select_queue(&packet, queues.len());
            packet.set_queue(queue as u16);
            if queue != current && !run.is_empty() {
                result = worse(result, queues[current].transmit(run.take(), now));
            }
            current = queue;
            run.push_back(packet);
        }
        worse(result, queues[current].transmit(run, now))
    }

    /// Gives every queue a new discipline while packets flow; see [`TxQueue::set_qdisc`]. Control path.
    ///
    /// # Errors
    /// If the parameters are wrong; nothing is changed then.
    pub fn set_qdisc(&self, spec: &QdiscSpec, now: Time) -> Result<(), SpecError> {
        spec.check()?;
        for queue in &self.queues {
            queue.set_qdisc(spec.build(&self.env)?, now);
        }
        Ok(())
    }

    /// The device's numbers.
    pub fn stats(&self) -> DeviceStats {
        let queues: Vec<QueueStats> = self.queues.iter().map(TxQueue::stats).collect();
        DeviceStats {
            rx_packets: self.received.sum(RX_PACKETS),
            rx_bytes: self.received.sum(RX_BYTES),
            tx_packets: queues.iter().map(|q| q.tx_packets).sum(),
            tx_bytes: queues.iter().map(|q| q.tx_bytes).sum(),
            queued: queues.iter().map(|q| q.qdisc.queued).sum(),
            drops: self.drops.nonzero(),
            queues,
        }
    }
}

/// The transmit queue of a packet: its flow's hash, else the queue it was received on (`netdev_pick_tx`, the hash step).
fn select_queue(packet: &crate::packet::Packet, queues: usize) -> usize {
    match packet.flow_hash() {
        // reciprocal_scale: the product's upper half is below `queues`.
        Some(hash) => ((u64::from(hash) * queues as u64) >> 32) as usize,
        None => usize::from(packet.queue()) % queues,
    }
}

fn worse(a: XmitResult, b: XmitResult) -> XmitResult {
    if a == XmitResult::Success { b } else if b == XmitResult::Success { a } else { XmitResult::Congestion }
}
