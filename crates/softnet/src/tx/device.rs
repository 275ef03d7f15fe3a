//! A network device: a name, transmit queues, and its counters.
//!
//! With a discipline that may stand at each queue by itself (`pfifo_fast`, `noqueue`), every queue has one and its own ring, as below the kernel's
//! `mq`. With any other, the device has *one* instance, at queue 0, which feeds all rings: a rate limit is that of the device, not of a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::policy::TxPolicy;
use super::queue::{QueueStats, Surroundings, TxQueue, XmitResult};
use super::ring::{Features, TxRing};
use super::select::select_queue;
use crate::packet::PacketList;
use crate::pool::Pool;
use crate::qdisc::{AnyQdisc, Qdisc, QdiscEnv, QdiscSpec, SpecError};
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
    /// Who runs the queues.
    pub policy: TxPolicy,
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

/// A network device: a name, transmit queues, and its counters.
///
/// With a discipline that may stand at each queue by itself (`pfifo_fast`, `noqueue`), every queue has one, as below the kernel's `mq`. With any
/// other, the device has one instance, which feeds all rings: a rate limit is that of the device.
#[derive(Debug)]
pub struct Device<R> {
    name: String,
    queues: Box<[TxQueue<R>]>,
    /// Queues in use: all of them, or the first.
    active: AtomicUsize,
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
        let count = rings.len();
        let active = config.qdisc.queues(count);
        let mut shares: Vec<Vec<R>> = (0..count).map(|_| Vec::new()).collect();
        for (index, ring) in rings.into_iter().enumerate() {
            shares[index % active].push(ring);
        }
        let mut queues = Vec::new();
        for (share, (doorbell, token)) in shares.into_iter().zip(homes) {
            let around = Surroundings {
                policy: config.policy.clone(),
                features: config.features,
                drops: drops.clone(),
                pool: pool.clone(),
                doorbell: doorbell.clone(),
                token: *token,
            };
            queues.push(TxQueue::new(share, config.qdisc.build(&env)?, around));
        }
        Ok(Device {
            name: config.name,
            queues: queues.into_boxed_slice(),
            active: AtomicUsize::new(active),
            drops,
            received: PerCpu::new(),
            env,
        })
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
        // Relaxed: a sender that reads the old number uses a queue that hands the packets on.
        match &self.queues[..self.active.load(Ordering::Relaxed)] {
            [] => {
                self.drops
                    .add(DropReason::DeviceDown, packets.wire_packets());
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
        while let Some(packet) = packets.pop_front() {
            let queue = select_queue(&packet, queues.len());
            if queue != current && !run.is_empty() {
                result = worse(result, queues[current].transmit(run.take(), now));
            }
            current = queue;
            run.push_back(packet);
        }
        worse(result, queues[current].transmit(run, now))
    }

    /// Gives the device a new discipline while packets flow. What is queued moves to it, in the order in which it would have left; what does not
    /// fit is dropped as [`DropReason::QdiscLimit`]. Waits for running threads: control path only, one caller at a time.
    ///
    /// # Errors
    /// If the parameters are wrong; nothing is changed then.
    pub fn set_qdisc(&self, spec: &QdiscSpec, now: Time) -> Result<(), SpecError> {
        let mut fresh = Vec::new();
        for _ in &self.queues {
            fresh.push(spec.build(&self.env)?);
        }
        let before = self.active.load(Ordering::Relaxed);
        let active = spec.queues(self.queues.len());
        if active == before {
            for (queue, qdisc) in self.queues.iter().zip(fresh) {
                queue.install(qdisc, Vec::new(), PacketList::new(), now);
            }
            return Ok(());
        }
        // From one to all, or from all to one: collect rings and packets, then share them out.
        self.active.store(active, Ordering::Relaxed);
        let mut rings = Vec::new();
        let mut shares: Vec<(Vec<R>, PacketList)> = Vec::new();
        shares.resize_with(self.queues.len(), Default::default);
        for queue in &self.queues {
            let (own, waiting) = queue.evict();
            rings.extend(own);
            for packet in waiting {
                shares[select_queue(&packet, active)].1.push_back(packet);
            }
        }
        for (index, ring) in rings.into_iter().enumerate() {
            shares[index % active].0.push(ring);
        }
        for ((queue, qdisc), (rings, waiting)) in self.queues.iter().zip(fresh).zip(shares) {
            queue.install(qdisc, rings, waiting, now);
        }
        Ok(())
    }

    /// Gives transmit queue `queue` a discipline of the caller's own, which stays until the next [`set_qdisc`](Device::set_qdisc). What is queued
    /// moves to it as there. Does nothing if there is no such queue. Waits for a running thread: control path only.
    pub fn set_custom_qdisc(&self, queue: usize, qdisc: Box<dyn Qdisc>, now: Time) {
        if let Some(queue) = self.queues.get(queue) {
            queue.install(AnyQdisc::Custom(qdisc), Vec::new(), PacketList::new(), now);
        }
    }

    /// Replaces the rings, for a device that came back. Waits for running threads: control path only.
    pub fn replace_rings(&self, rings: Vec<R>) {
        let mut rings = rings.into_iter();
        self.queues
            .iter()
            .for_each(|queue| queue.replace_rings(&mut rings));
    }

    /// The worker's turn at one of the queues; see [`TxQueue::run_from_worker`].
    pub(crate) fn run_from_worker(&self, index: usize, quota: usize, now: Time) -> Option<Time> {
        let queue = &self.queues[index];
        if index >= self.active.load(Ordering::Relaxed) && !queue.is_empty() {
            // A sender still used it while the discipline changed to one for all queues.
            let (rings, late) = queue.evict();
            debug_assert!(rings.is_empty(), "a queue that is not in use has no ring");
            self.transmit(late, now);
            return None;
        }
        queue.run_from_worker(quota, now)
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

fn worse(a: XmitResult, b: XmitResult) -> XmitResult {
    if a == XmitResult::Success {
        b
    } else if b == XmitResult::Success {
        a
    } else {
        XmitResult::Congestion
    }
}
