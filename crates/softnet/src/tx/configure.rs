//! Changes of a device by the control path while packets flow: qdiscs, queue map, rings,
//! features, quota, actions. One caller at a time.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::control::ControlError;
use super::device::{Device, Ingress, Qdiscs, share, uses};
use super::queue_map::{Maps, QueueMap};
use super::select::Held;
use super::state::QueueState;
use super::{Egress, Outlet, TxQueue, TxRing};
use crate::mem::PacketList;
use crate::offload::Features;
use crate::qdisc::{Cx, Qdisc};
#[cfg(doc)]
use crate::stats::DropReason;
use crate::stats::{ClassPath, Tap};
use crate::time::Clock;

impl<R: TxRing, Q: Qdisc> Device<R, Q> {
    pub(super) fn change_uses(&self, bit: u8, set: bool) {
        if set {
            self.uses.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.uses.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Gives the device other qdiscs while packets flow. What is queued moves to them, in the
    /// order in which it would have left; what does not fit is dropped as
    /// [`DropReason::QdiscLimit`]. Where the number of qdiscs in use changes, what a thread sends
    /// just then, having looked before the change, may leave late or through the first ring.
    /// Waits for owners, and reads the clock after that: control path only, one caller at a time.
    ///
    /// # Errors
    /// [`ControlError::CalledByOwner`]; nothing is changed then.
    ///
    /// # Panics
    /// If there is not one qdisc for each queue, or neither one nor all are in use.
    pub fn set_qdiscs(&self, qdiscs: Qdiscs<Q>, clock: &Clock) -> Result<(), ControlError> {
        ControlError::unless_owner()?;
        qdiscs.check();
        let noqueue = qdiscs.is_noqueue();
        let Qdiscs {
            instances,
            active,
            map,
        } = qdiscs;
        assert_eq!(instances.len(), self.queues.len(), "a qdisc for each queue");
        if self.maps().mqprio != map {
            self.change_maps(|maps| maps.mqprio = map);
        }
        self.change_uses(uses::NOQUEUE, noqueue);
        let before = self.active();
        if active == before {
            for (queue, qdisc) in self.queues.iter().zip(instances) {
                queue.install(qdisc, Vec::new(), PacketList::new(), clock);
            }
            return Ok(());
        }
        // From one to all, or from all to one: take rings and packets away, then share them out.
        // Without rings nothing leaves, so nothing leaves by the wrong one.
        let mut rings = Vec::new();
        let mut shares: Vec<(Vec<R>, PacketList)> = Vec::new();
        shares.resize_with(self.queues.len(), Default::default);
        let mut collect = |queue: &TxQueue<R, Q>| {
            let (own, waiting) = queue.evict();
            rings.extend(own);
            for mut packet in waiting {
                // INV-MQ-2: by the map, if there is one. What moves has no other queue to stay in.
                let held = &mut Held::default();
                let queue = self.selector.choose(&mut packet, held, |_| true);
                shares[queue % active].1.push_back(packet);
            }
        };
        self.queues.iter().for_each(&mut collect);
        self.active.store(active, Ordering::Relaxed);
        self.share_out_quota();
        // What came meanwhile, to the queues that senders used before first: a sender that has
        // gone over does not overtake itself.
        if active < before {
            self.queues.iter().rev().for_each(collect);
        } else {
            self.queues.iter().for_each(collect);
        }
        for (index, ring) in rings.into_iter().enumerate() {
            shares[index % active].0.push(ring);
        }
        for ((queue, qdisc), (rings, waiting)) in self.queues.iter().zip(instances).zip(shares) {
            queue.install(qdisc, rings, waiting, clock);
        }
        Ok(())
    }

    /// Queue of this number, for the control path.
    fn controlled(&self, queue: usize) -> Result<&TxQueue<R, Q>, ControlError> {
        ControlError::unless_owner()?;
        let found = self.queues.get(queue);
        found.ok_or(ControlError::NoSuchQueue(queue))
    }

    /// Gives one transmit queue another qdisc; see [`set_qdiscs`](Device::set_qdiscs).
    ///
    /// # Errors
    /// [`ControlError`]; nothing is changed then.
    pub fn set_qdisc_at(&self, queue: usize, qdisc: Q, clock: &Clock) -> Result<(), ControlError> {
        let queue = self.controlled(queue)?;
        queue.install(qdisc, Vec::new(), PacketList::new(), clock);
        Ok(())
    }

    /// Does something with the qdisc of transmit queue `queue` that needs it for itself: changes
    /// its parameters while packets flow. Afterwards what may leave now leaves. Senders go on
    /// meanwhile, and their packets wait. `f` must not put another qdisc in the place of this one:
    /// that is what [`set_qdiscs`](Device::set_qdiscs) is for. Waits for the owner, and reads the
    /// clock after that: control path only.
    ///
    /// # Errors
    /// [`ControlError`]; `f` is not called then.
    pub fn with_qdisc<T>(
        &self,
        queue: usize,
        clock: &Clock,
        f: impl FnOnce(&mut Q, &mut Cx) -> T,
    ) -> Result<T, ControlError> {
        let mut control = self.controlled(queue)?.control();
        let QueueState { qdisc, cx, .. } = &mut *control;
        Ok(f(qdisc, cx.at(clock.now())))
    }

    /// Sets how many bytes of buffers the device's queues may hold; what comes beyond that is
    /// dropped as [`DropReason::BufferQuota`]. Without it there is no such limit.
    pub fn set_buffer_quota(&self, bytes: u64) {
        self.buffer_quota.store(bytes, Ordering::Relaxed);
        self.share_out_quota();
    }

    /// Divides the quota among the queues in use.
    fn share_out_quota(&self) {
        let bytes = self.buffer_quota.load(Ordering::Relaxed);
        if bytes != u64::MAX {
            let each = bytes / self.active().max(1) as u64;
            self.queues.iter().for_each(|queue| queue.quota.set(each));
        }
    }

    /// Replaces the rings, by as many for a device that came back, or by none for one that is gone
    /// (which is [down](Device::deactivate) then). Returns those that it had: the system may take
    /// its time to close them. Waits for owners: control path only.
    ///
    /// # Errors
    /// [`ControlError::CalledByOwner`]; nothing is changed then.
    pub fn replace_rings(&self, rings: Vec<R>) -> Result<Vec<R>, ControlError> {
        ControlError::unless_owner()?;
        let wakers: Vec<_> = self.queues.iter().map(|queue| &queue.waker).collect();
        let shares = share(rings, &wakers, self.active());
        let mut before = Vec::new();
        for (queue, rings) in self.queues.iter().zip(shares) {
            // Dropped when the queue has been given up: a driver's end may take long, and call the
            // device.
            before.extend(queue.control().replace_rings(rings));
        }
        Ok(before)
    }

    /// Other features from now on, as for a guest that reconnects with others, or a changed MTU.
    /// What was made fit for the old features and waits for the driver is made fit for the new
    /// ones, or dropped, before the driver sees it: from when this returns, the driver sees no
    /// packet that does not fit. Waits for owners: control path only.
    ///
    /// # Errors
    /// [`ControlError::CalledByOwner`]; nothing is changed then.
    pub fn set_features(&self, features: Features) -> Result<(), ControlError> {
        ControlError::unless_owner()?;
        for queue in &self.queues {
            queue.control().set_features(features);
        }
        Ok(())
    }

    /// Gives the device another map of its own, while packets flow. Flows may be reordered once,
    /// where the new map takes their queue from them. As long as the qdiscs have a
    /// [map](Qdiscs::map), its classes are in force, and not those of `map`. Control path only, one
    /// caller at a time.
    ///
    /// A class of which no queue exists has all of them.
    pub fn set_queue_map(&self, map: &QueueMap) {
        self.change_maps(|maps| maps.own = map.clone());
    }

    /// The device's own map.
    pub fn queue_map(&self) -> QueueMap {
        self.maps().own.clone()
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_maps(&self, change: impl FnOnce(&mut Maps)) {
        let mut maps = self.maps();
        change(&mut maps);
        self.selector.set(maps.in_force());
    }

    #[doc(hidden)]
    /// Attaches egress actions, in the place of those that the device has; none detaches them.
    /// Senders that are in the old ones finish there. Control path only.
    pub fn set_egress(&self, egress: Option<Box<dyn Egress<R, Q>>>) {
        let attached = egress.is_some();
        self.egress.store(egress.map(Arc::new));
        self.change_uses(uses::EGRESS, attached);
    }

    #[doc(hidden)]
    /// Says where packets go that actions have arrive at this device. Once.
    pub fn set_ingress(&self, ingress: Box<dyn Ingress>) {
        let _ = self.ingress.set(ingress);
    }

    /// Says who carries out what actions of qdiscs' filters send to other links. Once.
    pub fn set_outlet(&self, outlet: &Arc<dyn Outlet>) {
        for queue in &self.queues {
            let _ = queue.cold.outlet.set(outlet.clone());
        }
    }

    #[doc(hidden)]
    /// Has `tap` look at what leaves the queues and at what is dropped, in the place of who did so
    /// far. Packets are stamped for it, and go through the qdisc one by one. Waits for owners:
    /// control path only, one caller at a time.
    ///
    /// # Errors
    /// [`ControlError::CalledByOwner`]; nothing is changed then.
    pub fn set_tap(&self, tap: Option<&Arc<dyn Tap>>) -> Result<(), ControlError> {
        ControlError::unless_owner()?;
        self.drops.set_tap(tap.cloned());
        for (queue, number) in self.queues.iter().zip(0..) {
            let mut control = queue.control();
            control.tap = tap.map(|tap| (tap.clone(), number));
            // Whatever it was about before.
            control.qdisc.take_classes(&mut ClassPath::default());
        }
        Ok(())
    }

    #[doc(hidden)]
    /// Times transmit calls by `clock` from now on: those of senders that own a queue, one in
    /// [`SAMPLE`](crate::stats::SAMPLE). Only the first clock counts.
    pub fn measure(&self, clock: Clock) {
        for queue in &self.queues {
            let _ = queue.cold.clock.set(clock.clone());
        }
    }
}
