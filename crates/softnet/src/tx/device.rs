//! A network device: a name, transmit queues, and its counters.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::notifier::Notifier;
use super::policy::TxPolicy;
use super::queue::TxQueue;
use super::queue_map::Maps;
use super::ring::TxRing;
use super::select::Selector;
use super::waker::RingWaker;
use super::{Egress, QueueMap};
use crate::mem::{PacketList, Pool};
use crate::offload::Features;
use crate::qdisc::Qdisc;
use crate::stats::DropCounters;
use crate::sync::PerCpu;

/// Parts of a device, besides its rings.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Name, as shown.
    pub name: String,
    /// Offloads that the driver does in hardware (or lets the kernel do).
    pub features: Features,
    /// Who serves the queues.
    pub policy: TxPolicy,
}

/// Receiver of packets that did not come from a device's driver.
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
    /// Number of them in use: all, or only the first, which then feeds all rings.
    pub active: usize,
    /// Which queues the packets of a priority use (`mqprio`): its classes.
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

    /// Rings are bound to queues one to one, or all to the first.
    pub(super) fn fits(&self) -> bool {
        let count = self.instances.len();
        count > 0 && [1, count].contains(&self.active)
    }

    pub(super) fn check(&self) {
        let (active, count) = (self.active, self.instances.len());
        assert!(self.fits(), "{active} of {count} qdiscs in use: one or all");
    }

    pub(super) fn is_noqueue(&self) -> bool {
        self.instances.first().is_some_and(Qdisc::is_noqueue)
    }
}

/// Duties of a sender besides pushing; bits of [`Device::uses`].
pub(super) mod uses {
    /// There are egress actions.
    pub(in crate::tx) const EGRESS: u8 = 1;
    /// Nothing holds packets back, so recursion is counted.
    pub(in crate::tx) const NOQUEUE: u8 = 2;
    /// The device is down.
    pub(in crate::tx) const DOWN: u8 = 4;
}

/// A network device: a name, transmit queues, and its counters.
///
/// Every queue has a qdisc of its own and its own ring (the default qdisc, `noqueue`, `mq`,
/// `mqprio`, or an instance of a parallel tree), or the device has *one*, at queue 0, which feeds
/// all rings: a rate limit is that of the device, not of a queue.
#[derive(Debug)]
pub struct Device<R, Q> {
    name: ArcSwap<String>,
    pub(super) queues: Box<[TxQueue<R, Q>]>,
    /// See [`set_buffer_quota`](Device::set_buffer_quota); the largest number for none.
    pub(super) buffer_quota: AtomicU64,
    /// Queues in use: all of them, or the first.
    pub(super) active: AtomicUsize,
    pub(super) uses: AtomicU8,
    pub(super) selector: Selector,
    /// Maps that `selector` was set from. Control path only.
    pub(super) maps: Mutex<Maps>,
    pub(super) egress: ArcSwapOption<Box<dyn Egress<R, Q>>>,
    pub(super) drops: Arc<DropCounters>,
    /// Wire packets and bytes that the driver received.
    pub(super) received: PerCpu<2>,
    /// Wire packets that actions copied, and that they had arrive here.
    pub(super) acted: PerCpu<2>,
    /// See [`DeviceStats::tx_timeouts`](super::DeviceStats).
    pub(super) timeouts: AtomicU64,
    /// Where packets go that are to arrive here, if an engine has the device.
    pub(super) ingress: OnceLock<Box<dyn Ingress>>,
    pool: Pool,
}

/// Binds each ring to the queue of its number, and says which rings each queue feeds where the
/// first `active` are in use.
pub(super) fn share<R: TxRing>(
    rings: Vec<R>,
    wakers: &[&RingWaker],
    active: usize,
) -> Vec<Vec<R>> {
    let mut shares: Vec<_> = wakers.iter().map(|_| Vec::new()).collect();
    for (index, (mut ring, &waker)) in rings.into_iter().zip(wakers).enumerate() {
        ring.bind(waker.clone());
        shares[index % active].push(ring);
    }
    shares
}

impl<R: TxRing, Q: Qdisc> Device<R, Q> {
    /// A device with a transmit queue for each qdisc, and a ring for each, or none: it must be
    /// taken down then until it [has some](Device::replace_rings). `workers` names for each queue
    /// the worker that serves it, and the event by which that worker knows the queue.
    ///
    /// # Panics
    /// If there is no qdisc, or not one ring (or none at all) and one worker for each, or neither
    /// one nor all are in use.
    pub fn new(
        config: DeviceConfig,
        rings: Vec<R>,
        qdiscs: Qdiscs<Q>,
        pool: &Pool,
        workers: &[(Arc<Notifier>, usize)],
    ) -> Device<R, Q> {
        let count = qdiscs.instances.len();
        assert!([0, count].contains(&rings.len()), "a ring for each qdisc");
        assert_eq!(workers.len(), count, "a worker for each qdisc");
        qdiscs.check();
        let drops = Arc::new(DropCounters::new());
        let active = qdiscs.active;
        let noqueue = qdiscs.is_noqueue();
        let wakers: Vec<_> = workers
            .iter()
            .map(|(notifier, event)| RingWaker::new(notifier.clone(), *event))
            .collect();
        let shares = share(rings, &wakers.iter().collect::<Vec<_>>(), active);
        let queues = shares.into_iter().zip(qdiscs.instances).zip(wakers);
        let queue = |((rings, qdisc), waker)| {
            TxQueue::new(rings, qdisc, &config, (drops.clone(), pool), waker)
        };
        let queues = queues.map(queue).collect();
        let selector = Selector::new(count);
        let maps = Maps {
            mqprio: qdiscs.map,
            ..Maps::default()
        };
        selector.set(maps.in_force());
        Device {
            name: ArcSwap::from_pointee(config.name),
            queues,
            buffer_quota: AtomicU64::new(u64::MAX),
            active: AtomicUsize::new(active),
            uses: AtomicU8::new(if noqueue { uses::NOQUEUE } else { 0 }),
            selector,
            maps: Mutex::new(maps),
            egress: ArcSwapOption::empty(),
            drops,
            received: PerCpu::new(),
            acted: PerCpu::new(),
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

    /// The transmit queues.
    pub fn queues(&self) -> &[TxQueue<R, Q>] {
        &self.queues
    }

    /// Number of queues in use: all, or only the first.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Why packets of this device died.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Buffers for copies and segments.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
