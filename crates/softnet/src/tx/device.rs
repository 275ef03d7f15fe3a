//! A network device: a name, transmit queues, and its counters.
//!
//! With the default, `noqueue`, `mq` or `mqprio`, every queue has a qdisc of its own and its own
//! ring. With any other, the device has *one* instance, at queue 0, which feeds all rings: a
//! rate limit is that of the device, not of a queue.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::Features;
use super::notifier::Notifier;
use super::policy::TxPolicy;
use super::queue::{QueueStats, Surroundings, TxQueue};
use super::ring::TxRing;
use super::select::{Selector, select_queue};
use super::{ActionStats, Egress, QueueMap, TcQueues};
use crate::mem::{PacketList, Pool};
use crate::qdisc::{Cx, Qdisc, QdiscStats};
use crate::stats::{Counts, DropCounters, DropReason, SharedHistogram};
use crate::sync::PerCpu;
use crate::time::{Clock, Time};

/// What a device is made of, besides its rings.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Name, as shown.
    pub name: String,
    /// What the driver does in hardware (or lets the kernel do).
    pub features: Features,
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
    /// Wire packets that actions on the way out have added by copying.
    pub copied: u64,
    /// Wire packets that actions had arrive here, through the backlog of a worker. Not among those received.
    pub deferred: u64,
    /// Times that the watchdog had to restart a queue.
    pub tx_timeouts: u64,
    /// Actions on the way out.
    pub actions: Vec<ActionStats>,
    /// Distributions of times and sizes.
    pub distributions: Distributions,
}

/// How long things take and how many come at once, sampled. Empty where nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distributions {
    /// Nanoseconds that transmit calls took.
    pub call_ns: Counts,
    /// Nanoseconds from a packet's timestamp (the engine's workers set it at reception; a program that embeds a device does it itself) to the run that
    /// hands it to the driver.
    pub sojourn_ns: Counts,
    /// Packets handed to the driver at once.
    pub batch: Counts,
}

impl DeviceStats {
    /// All drops together.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|&(_, n)| n).sum()
    }

    /// The numbers of the root discipline: of `mq` and `mqprio` the sums of all queues', those not in use included.
    pub fn qdisc(&self) -> QdiscStats {
        sum(&self.queues)
    }

    /// The numbers of an `mqprio` class: the sums of its queues'.
    pub fn class(&self, class: TcQueues) -> QdiscStats {
        let queues = self.queues.iter().skip(class.offset.into());
        sum(queues.take(class.count.into()))
    }
}

/// The rings of each of `count` queues, of which the first `active` are in use.
fn share<R>(rings: Vec<R>, count: usize, active: usize) -> Vec<Vec<R>> {
    let mut shares: Vec<Vec<R>> = (0..count).map(|_| Vec::new()).collect();
    for (index, ring) in rings.into_iter().enumerate() {
        shares[index % active].push(ring);
    }
    shares
}

fn sum<'a>(queues: impl IntoIterator<Item = &'a QueueStats>) -> QdiscStats {
    let mut sum = QdiscStats::default();
    for QueueStats { qdisc, .. } in queues {
        sum.bytes += qdisc.bytes;
        sum.packets += qdisc.packets;
        sum.drops += qdisc.drops;
        sum.overlimits += qdisc.overlimits;
        sum.requeues += qdisc.requeues;
        sum.qlen += qdisc.qlen;
        sum.backlog += qdisc.backlog;
        sum.queued += qdisc.queued;
        sum.memory += qdisc.memory;
    }
    sum
}

const RX_PACKETS: usize = 0;
const RX_BYTES: usize = 1;

/// Positions in [`Device::acted`].
pub(super) const COPIED: usize = 0;
pub(super) const DEFERRED: usize = 1;

/// How a device receives what did not come from its driver.
pub trait Ingress: Send + Sync + std::fmt::Debug {
    /// Has the device's worker receive `packets` later. Never blocks. What is left in the list was
    /// refused.
    fn receive_later(&self, packets: &mut PacketList);
}

/// The qdiscs of a device.
#[derive(Clone, Debug)]
pub struct Qdiscs<Q> {
    /// One for each transmit queue.
    pub instances: Vec<Q>,
    /// How many of them are used: all, or only the first, which then feeds all rings.
    pub active: usize,
    /// Which queues the packets of a priority use (`mqprio`).
    pub map: Option<QueueMap>,
}

impl<Q: Qdisc> Qdiscs<Q> {
    /// One qdisc at each transmit queue.
    pub fn per_queue(instances: Vec<Q>) -> Qdiscs<Q> {
        Qdiscs {
            active: instances.len(),
            instances,
            map: None,
        }
    }

    fn is_noqueue(&self) -> bool {
        self.instances.first().is_some_and(Qdisc::is_noqueue)
    }
}

/// What a sender has to do besides pushing; bits of [`Device::uses`].
pub(super) mod uses {
    /// There are actions on the way out.
    pub(in crate::tx) const EGRESS: u8 = 1;
    /// Nothing holds packets back, so recursion is counted.
    pub(in crate::tx) const NOQUEUE: u8 = 2;
    /// Calls are measured.
    pub(in crate::tx) const MEASURE: u8 = 4;
    /// The device is down.
    pub(in crate::tx) const DOWN: u8 = 8;
}

/// A network device: a name, transmit queues, and its counters.
///
/// With the default qdisc, `noqueue`, `mq` or `mqprio`, every queue has one of its own. With any
/// other, the device has one instance, which feeds all rings: a rate limit is that of the
/// device.
#[derive(Debug)]
pub struct Device<R, Q> {
    name: ArcSwap<String>,
    pub(super) queues: Box<[TxQueue<R, Q>]>,
    /// See [`set_buffer_quota`](Device::set_buffer_quota); the largest number for none.
    buffer_quota: AtomicU64,
    /// Queues in use: all of them, or the first.
    pub(super) active: AtomicUsize,
    pub(super) uses: AtomicU8,
    pub(super) selector: Selector,
    /// The queues' map is that of an `mqprio`.
    mqprio: AtomicBool,
    pub(super) egress: ArcSwapOption<Box<dyn Egress<R, Q>>>,
    pub(super) clock: OnceLock<Clock>,
    pub(super) drops: Arc<DropCounters>,
    received: PerCpu<2>,
    /// Wire packets that actions copied, and that they had arrive here.
    pub(super) acted: PerCpu<2>,
    pub(super) calls: SharedHistogram,
    /// See [`DeviceStats::tx_timeouts`].
    pub(super) timeouts: AtomicU64,
    /// Where packets go that are to arrive here, if an engine has the device.
    pub(super) ingress: OnceLock<Box<dyn Ingress>>,
    pub(super) pool: Pool,
}

impl<R: TxRing, Q: Qdisc> Device<R, Q> {
    /// A device with one transmit queue for each ring. `workers` names for each queue the worker that
    /// serves it, and the event by which that worker knows the queue.
    ///
    /// # Panics
    /// If there is not one qdisc and one worker for each ring.
    pub fn new(
        config: DeviceConfig,
        rings: Vec<R>,
        qdiscs: Qdiscs<Q>,
        pool: &Pool,
        workers: &[(Arc<Notifier>, usize)],
    ) -> Device<R, Q> {
        let count = rings.len();
        assert_eq!(qdiscs.instances.len(), count, "a qdisc for each ring");
        assert_eq!(workers.len(), count, "a worker for each ring");
        let drops = Arc::new(DropCounters::new());
        let active = qdiscs.active;
        let noqueue = qdiscs.is_noqueue();
        let mut queues = Vec::new();
        let shares = share(rings, count, active);
        let parts = shares.into_iter().zip(qdiscs.instances).zip(workers);
        for ((share, qdisc), (notifier, event)) in parts {
            let around = Surroundings {
                policy: config.policy.clone(),
                features: config.features,
                drops: drops.clone(),
                pool: pool.clone(),
                notifier: notifier.clone(),
                token: *event,
            };
            queues.push(TxQueue::new(share, qdisc, around));
        }
        let selector = Selector::new(count);
        if let Some(map) = &qdiscs.map {
            selector.set(map);
        }
        Device {
            name: ArcSwap::from_pointee(config.name),
            queues: queues.into_boxed_slice(),
            buffer_quota: AtomicU64::new(u64::MAX),
            active: AtomicUsize::new(active),
            uses: AtomicU8::new(if noqueue { uses::NOQUEUE } else { 0 }),
            selector,
            mqprio: AtomicBool::new(qdiscs.map.is_some()),
            egress: ArcSwapOption::empty(),
            clock: OnceLock::new(),
            drops,
            received: PerCpu::new(),
            acted: PerCpu::new(),
            calls: SharedHistogram::default(),
            timeouts: AtomicU64::new(0),
            ingress: OnceLock::new(),
            pool: pool.clone(),
        }
    }

    /// The device's name.
    pub fn name(&self) -> Arc<String> {
        self.name.load_full()
    }

    /// Gives the device another name.
    pub fn rename(&self, name: String) {
        self.name.store(Arc::new(name));
    }

    /// Says where packets go that actions have arrive at this device. Once.
    pub fn set_ingress(&self, ingress: Box<dyn Ingress>) {
        let _ = self.ingress.set(ingress);
    }

    /// The transmit queues.
    pub fn queues(&self) -> &[TxQueue<R, Q>] {
        &self.queues
    }

    /// How many of the queues are in use: all, or only the first.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Whether each transmit queue has a discipline of its own: what stands at the root then, `mq` or `mqprio`, and for how many queues. Not so if one discipline is for
    /// the whole device.
    pub fn per_queue(&self) -> Option<(&'static str, usize)> {
        let queues = self.active.load(Ordering::Relaxed);
        let mqprio = self.mqprio.load(Ordering::Relaxed);
        (mqprio || queues > 1).then_some((if mqprio { "mqprio" } else { "mq" }, queues))
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

    /// Gives the device other qdiscs while packets flow. What is queued moves to them, in the order
    /// in which it would have left; what does not fit is dropped as [`DropReason::QdiscLimit`].
    /// Where the number of qdiscs in use changes, what a thread sends just then, having looked before
    /// the change, may leave late or through the first ring. Waits for running threads: control path
    /// only, one caller at a time.
    ///
    /// # Panics
    /// If there is not one qdisc for each queue.
    pub fn set_qdiscs(&self, qdiscs: Qdiscs<Q>, now: Time) {
        let noqueue = qdiscs.is_noqueue();
        let Qdiscs {
            instances,
            active,
            map,
        } = qdiscs;
        assert_eq!(instances.len(), self.queues.len(), "a qdisc for each queue");
        if let Some(map) = map {
            self.selector.set(&map);
            self.mqprio.store(true, Ordering::Relaxed);
        } else if self.mqprio.swap(false, Ordering::Relaxed) {
            self.selector.set(&QueueMap::default());
        }
        self.change_uses(uses::NOQUEUE, noqueue);
        let before = self.active.load(Ordering::Relaxed);
        if active == before {
            for (queue, qdisc) in self.queues.iter().zip(instances) {
                queue.install(qdisc, Vec::new(), PacketList::new(), now);
            }
            return;
        }
        // From one to all, or from all to one: take rings and packets away, then share them out. Without rings nothing leaves, so nothing leaves by the wrong one.
        let mut rings = Vec::new();
        let mut shares: Vec<(Vec<R>, PacketList)> = Vec::new();
        shares.resize_with(self.queues.len(), Default::default);
        let mut collect = |queue: &TxQueue<R, Q>| {
            let (own, waiting) = queue.evict();
            rings.extend(own);
            for packet in waiting {
                shares[select_queue(&packet, active)].1.push_back(packet);
            }
        };
        self.queues.iter().for_each(&mut collect);
        self.active.store(active, Ordering::Relaxed);
        self.share_out_quota();
        // What came meanwhile, to the queues that senders used before first: a sender that has gone over does not overtake himself.
        if active < before {
            self.queues.iter().rev().for_each(collect);
        } else {
            self.queues.iter().for_each(collect);
        }
        for (index, ring) in rings.into_iter().enumerate() {
            shares[index % active].0.push(ring);
        }
        for ((queue, qdisc), (rings, waiting)) in self.queues.iter().zip(instances).zip(shares) {
            queue.install(qdisc, rings, waiting, now);
        }
    }

    /// Does something with the qdisc of transmit queue `queue` that needs it for itself: changes its
    /// parameters while packets flow. Afterwards what may leave now leaves. `None` if there is no
    /// such queue. Senders go on meanwhile, and their packets wait. `f` must not put another qdisc
    /// in the place of this one: that is what [`set_qdiscs`](Device::set_qdiscs) is for. Waits for a
    /// running thread: control path only.
    pub fn with_qdisc<T>(
        &self,
        queue: usize,
        now: Time,
        f: impl FnOnce(&mut Q, &mut Cx) -> T,
    ) -> Option<T> {
        Some(self.queues.get(queue)?.with_qdisc(now, f))
    }

    /// Sets how many bytes of buffers the device's queues may hold; what comes beyond that is dropped as [`DropReason::BufferQuota`]. Without it there is no
    /// such limit.
    pub fn set_buffer_quota(&self, bytes: u64) {
        self.buffer_quota.store(bytes, Ordering::Relaxed);
        self.share_out_quota();
    }

    /// Divides the quota among the queues in use.
    fn share_out_quota(&self) {
        let bytes = self.buffer_quota.load(Ordering::Relaxed);
        if bytes != u64::MAX {
            let active = self.active.load(Ordering::Relaxed).max(1) as u64;
            self.queues
                .iter()
                .for_each(|queue| queue.quota().set(bytes / active));
        }
    }

    /// Replaces the rings, by as many for a device that came back, or by none for one that is gone
    /// (which is [down](Device::deactivate) then). Waits for running threads: control path only.
    pub fn replace_rings(&self, rings: Vec<R>) {
        let active = self.active.load(Ordering::Relaxed);
        for (queue, share) in self
            .queues
            .iter()
            .zip(share(rings, self.queues.len(), active))
        {
            queue.replace_rings(share);
        }
    }

    /// The worker's turn at one of the queues; see
    /// [`TxQueue::run_from_worker`].
    pub fn run_from_worker(&self, index: usize, quota: usize, now: Time) -> Option<Time> {
        let queue = &self.queues[index];
        let active = self.active.load(Ordering::Relaxed);
        if index >= active {
            // Its ring is another queue's now, and the driver speaks of the ring.
            if queue.take_woken() {
                // Read again: the queue may have come back into use, and stopped, since. What caused
                // the wake-up came after that, and `take_woken` has acquired it.
                let active = self.active.load(Ordering::Relaxed);
                self.queues[index % active].wake();
            }
            // A sender may have used it still while the discipline changed to one for all queues.
            if !queue.is_empty() {
                let mut late = queue.take_stranded(now);
                if !late.is_empty() {
                    self.push(&mut late, now);
                }
                return None;
            }
        }
        let noqueue = self.uses.load(Ordering::Relaxed) & uses::NOQUEUE != 0;
        let _inside = noqueue.then(|| self.enter());
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
            copied: self.acted.sum(COPIED),
            deferred: self.acted.sum(DEFERRED),
            tx_timeouts: self.timeouts.load(Ordering::Relaxed),
            actions: self
                .egress
                .load()
                .as_ref()
                .map_or_else(Vec::new, |egress| egress.stats()),
            distributions: self.distributions(),
            queues,
        }
    }

    fn distributions(&self) -> Distributions {
        let mut all = Distributions {
            call_ns: self.calls.counts(),
            ..Distributions::default()
        };
        for queue in &self.queues {
            all.sojourn_ns.merge(&queue.watch().sojourn());
            all.batch.merge(&queue.watch().batch());
        }
        all
    }
}
