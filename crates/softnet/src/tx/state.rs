//! State of a queue that only the owner touches, and its work: enqueue, dequeue, make packets
//! fit the device, and hand them to the rings.

mod rare;

use std::sync::{Arc, OnceLock};

use super::adopted::Adopted;
use super::budget::Budget;
use super::counts::Counts;
use super::egress::Outlet;
use super::quota::{Limit, SMALL_BUFFER};
use super::ring::{TxRing, Xmit};
use super::rings::Rings;
use super::status::Status;
use crate::mem::{PacketList, Pool};
use crate::offload::{Features, merge, validate};
use crate::qdisc::{Cx, Next, Qdisc, Verdict, WireSum};
use crate::stats::{ClassPath, DropReason, Place, Sampler, Tap};
use crate::time::Time;

/// State that only the owner touches.
#[derive(Debug)]
pub(super) struct QueueState<R, Q> {
    /// The fast path is open: the device is up, there are rings, none of which was full when it
    /// was tried last, nothing that was dequeued waits, and nobody looks. Updated where statistics
    /// are published.
    steady: bool,
    /// False: the device is down; packets are dropped.
    pub(super) active: bool,
    pub(super) qdisc: Q,
    /// Taken over, and not enqueued yet. It goes before anything that comes later.
    pub(super) adopted: Adopted,
    pub(super) rings: Rings<R>,
    /// Offloads of the device. Packets that were requeued fit it.
    features: Features,
    /// Dequeued, but not yet known to fit the device: the rest of a frame that is being segmented,
    /// and what was requeued when the features changed. It leaves before anything dequeued later.
    unfit: PacketList,
    /// Packets being sent, those that a dequeue for a ring with a byte limit took last, and those
    /// the qdisc is being given; empty otherwise. They are here for the case that a call of the
    /// driver or the qdisc panics.
    batch: PacketList,
    one: PacketList,
    offered: PacketList,
    /// Packets that left the qdisc, as published.
    left: WireSum,
    /// Context that the qdisc is given; also takes what is dropped elsewhere, and has the pool for
    /// segments.
    pub(super) cx: Cx,
    /// Which batches are measured.
    pub(super) sampler: Sampler,
    /// Who is shown what leaves and what is dropped, and the number that this queue has there.
    pub(super) tap: Option<(Arc<dyn Tap>, u16)>,
}

impl<R: TxRing, Q: Qdisc> QueueState<R, Q> {
    pub(super) fn new(qdisc: Q, rings: Vec<R>, features: Features, pool: &Pool) -> Self {
        let mut state = QueueState {
            steady: false,
            active: true,
            rings: Rings::new(rings, qdisc.is_noqueue()),
            qdisc,
            features,
            adopted: Adopted::default(),
            unfit: PacketList::new(),
            batch: PacketList::new(),
            one: PacketList::new(),
            offered: PacketList::new(),
            left: WireSum::default(),
            cx: Cx::new(pool),
            sampler: Sampler::default(),
            tap: None,
        };
        state.steady = state.is_steady();
        state
    }

    fn is_steady(&self) -> bool {
        self.active
            && self.rings.are_free()
            && self.unfit.is_empty()
            && self.adopted.is_empty()
            && self.tap.is_none()
    }

    /// Enqueues the backlog that the owner adopted, as far as the budget goes, and the caller's own
    /// packets, before anything is dequeued. Returns what became of the caller's own.
    pub(super) fn enqueue(
        &mut self,
        backlog: &mut PacketList,
        own: &mut PacketList,
        limit: Option<Limit>,
        budget: &mut Budget,
    ) -> Verdict {
        let now = budget.start;
        let fits = backlog.len() <= budget.adoptions;
        if self.active && (!fits || !self.adopted.is_empty()) {
            let adoptions = std::mem::take(&mut budget.adoptions);
            return self.adopt(backlog, own, limit, adoptions, now);
        }
        budget.adopt(backlog.len());
        if !self.active {
            let verdict = if own.is_empty() {
                Verdict::Queued
            } else {
                Verdict::Dropped
            };
            self.cx
                .dropped
                .append(backlog.take(), DropReason::DeviceDown);
            self.cx.dropped.append(own.take(), DropReason::DeviceDown);
            return verdict;
        }
        self.enqueue_within(limit, backlog, now);
        self.enqueue_within(limit, own, now)
    }

    /// [`enqueue`](QueueState::enqueue) where more waits than this owner may enqueue. Where some
    /// has waited before, as much is enqueued as has come, so what waits does not grow.
    #[cold]
    #[inline(never)]
    pub(super) fn adopt(
        &mut self,
        backlog: &mut PacketList,
        own: &mut PacketList,
        limit: Option<Limit>,
        mut adoptions: usize,
        now: Time,
    ) -> Verdict {
        if !self.adopted.is_empty() {
            adoptions = adoptions.max(backlog.len() + own.len());
        }
        self.cut(limit, backlog);
        self.adopted.append(backlog);
        self.adopted.split_front(adoptions, &mut self.offered);
        self.qdisc.enqueue(&mut self.offered, self.cx.at(now));
        self.reinject();
        if self.adopted.is_empty() {
            return self.enqueue_within(limit, own, now);
        }
        // INV-TX-3: the sender's earlier packets may be among those that wait.
        let verdict = self.cut(limit, own);
        self.adopted.append(own);
        verdict
    }

    /// Drops packets beyond the queue's [quota](super::quota) of buffers.
    #[inline]
    fn cut(&mut self, limit: Option<Limit>, packets: &mut PacketList) -> Verdict {
        let Some(limit) = limit else {
            return Verdict::Queued;
        };
        let stats = self.qdisc.stats();
        let queued = stats.memory.max(stats.qlen * SMALL_BUFFER);
        let offered = packets.len();
        let used = queued + self.beside().memory;
        limit.cut(used, packets, &mut self.cx.dropped);
        if packets.len() < offered {
            Verdict::Dropped
        } else {
            Verdict::Queued
        }
    }

    /// Enqueues packets, as far as the quota of buffers goes.
    #[inline]
    fn enqueue_within(
        &mut self,
        limit: Option<Limit>,
        packets: &mut PacketList,
        now: Time,
    ) -> Verdict {
        if packets.is_empty() {
            return Verdict::Queued;
        }
        let cut = self.cut(limit, packets);
        self.offer(packets, now).max(cut)
    }

    /// Gives packets to the qdisc, and what it wants to have enqueued at the root.
    fn offer(&mut self, packets: &mut PacketList, now: Time) -> Verdict {
        if self.tap.is_some() {
            return self.offer_each(packets, now);
        }
        let verdict = self.qdisc.enqueue(packets, self.cx.at(now));
        self.reinject();
        verdict
    }

    /// Shows a tap what was dropped elsewhere.
    fn show_unplaced(&mut self) {
        if let Some((tap, _)) = &self.tap {
            let dropped = &mut self.cx.dropped;
            dropped.show(|packet, reason| tap.dropped(packet, None, reason));
        }
    }

    /// Shows a tap what the last call of the qdisc let go, and what it dropped.
    fn show(&mut self, now: Time) {
        let Some((tap, queue)) = &self.tap else {
            return;
        };
        let mut classes = ClassPath::default();
        self.qdisc.take_classes(&mut classes);
        let place = Place {
            queue: *queue,
            classes,
        };
        if !self.one.is_empty() {
            tap.sent(&self.one, place, now);
        }
        let dropped = &mut self.cx.dropped;
        dropped.show(|packet, reason| tap.dropped(packet, Some(place), reason));
    }

    /// Enqueues what the qdisc wants to have enqueued at the root. Once: a qdisc that does so
    /// again with what it gets here would never end. Returns how many wire packets there were.
    #[inline]
    fn reinject(&mut self) -> u64 {
        if self.cx.reinject.is_empty() {
            return 0;
        }
        self.offered.append(&mut self.cx.reinject);
        let count = self.offered.wire_packets();
        self.qdisc.enqueue(&mut self.offered, &mut self.cx);
        let again = self.cx.reinject.take();
        self.cx.dropped.append(again, DropReason::RecursionLimit);
        count
    }

    /// Has what actions of filters send to other links carried out. Where nobody does, it is
    /// dropped; copies are as if they had not been made.
    #[inline]
    pub(super) fn settle_elsewhere(&mut self, outlet: &OnceLock<Arc<dyn Outlet>>) {
        if !self.cx.elsewhere.is_empty() {
            match outlet.get() {
                Some(outlet) => self.carry_out(&**outlet),
                None => self.lose_elsewhere(),
            }
        }
    }

    /// Sends packets past a qdisc that is empty and need not see them (`TCQ_F_CAN_BYPASS`), and
    /// publishes that. False if that cannot be, or did not end well: [`run`](QueueState::run) does
    /// the rest.
    #[inline(always)]
    pub(super) fn pass(
        &mut self,
        status: &Status,
        packets: &mut PacketList,
        budget: &mut Budget,
    ) -> bool {
        let now = budget.start;
        if !self.steady || packets.is_empty() || self.rings.available(now).is_some() {
            return false;
        }
        // One look at each packet: most lists hold one, which needs nothing. Several may merge.
        let features = &self.features;
        let mut plain = !features.may_merge(packets);
        let mut sum = WireSum::default();
        for packet in &*packets {
            let is_plain = features.takes_plain(packet);
            // What is beyond the budget, or has to be segmented, takes the long way.
            if sum.packets >= budget.packets as u64 || !is_plain && features.must_segment(packet) {
                return false;
            }
            sum.add(packet);
            plain &= is_plain;
        }
        if !self.qdisc.try_pass(packets, sum, self.cx.at(now)) {
            return false;
        }
        self.left.packets += sum.packets;
        self.left.bytes += sum.bytes;
        budget.charge(sum.packets);
        if self.sampler.take() {
            status.sample(packets, now);
        }
        let sent = if plain {
            self.rings.send(packets, now, &mut self.cx.dropped)
        } else {
            self.batch.append(packets);
            self.fit_and_send(usize::MAX, now)
        };
        let settled = self.cx.dropped.wire_packets() == 0
            && self.cx.reinject.is_empty()
            && self.cx.elsewhere.is_empty();
        if sent == Xmit::Busy || !settled {
            return false;
        }
        status.publish_sent(self.left, &self.rings.sent);
        true
    }

    /// As [`pass`](QueueState::pass), where it is not the only thing to do.
    #[inline(never)]
    pub(super) fn pass_backlog(
        &mut self,
        status: &Status,
        packets: &mut PacketList,
        budget: &mut Budget,
    ) -> bool {
        self.pass(status, packets, budget)
    }

    /// Dequeues and sends, within `budget`. Idle: nothing is due but what waits for a driver.
    pub(super) fn run(&mut self, status: &Status, budget: &mut Budget) -> Next {
        let next = self.send_queued(status, budget);
        status.stopped_since(self.rings.refused_since());
        next
    }

    fn send_queued(&mut self, status: &Status, budget: &mut Budget) -> Next {
        if !self.active {
            return Next::Idle;
        }
        if self.rings.is_empty() {
            // The device's qdisc is another queue's now: the worker takes what came too late.
            let idle = self.qdisc.stats().qlen == 0 && self.unfit.is_empty();
            return if idle { Next::Idle } else { Next::Ready };
        }
        // INV-TX-4: what the driver refused before goes first.
        if self.rings.is_held_up() {
            if self.rings.retry(budget, &mut self.cx.dropped) {
                return Next::Ready;
            }
            if self.rings.is_stopped() {
                return self.stop();
            }
        }
        let now = budget.start;
        loop {
            if budget.is_used_up() {
                return Next::Ready;
            }
            let capacity = self.rings.capacity(now);
            if capacity == Some(0) {
                return self.stop();
            }
            let mut next = Next::Ready;
            let mut again = 0;
            if self.unfit.is_empty() {
                (next, again) = self.dequeue(budget.packets, capacity, now);
            } else {
                self.unfit
                    .split_wire_packets(budget.packets, &mut self.batch);
            }
            let waits = !self.batch.is_empty() && self.finish(status, budget) == Xmit::Busy;
            if waits && self.rings.is_stopped() {
                return Next::Idle;
            }
            // INV-TX-12. A qdisc that only moves packets back to its root would never end.
            budget.charge(again);
            if self.unfit.is_empty() && next != Next::Ready {
                return next;
            }
        }
    }

    /// The driver is full. Without a queue nothing waits for it.
    #[cold]
    fn stop(&mut self) -> Next {
        if self.rings.noqueue {
            self.qdisc.drain(&mut self.batch);
            let refused = self.batch.take();
            self.cx.dropped.append(refused, DropReason::DriverRefused);
        }
        Next::Idle
    }

    /// Dequeues at most `quota` wire packets (and what the last frame has beyond that), and none
    /// after the one with which there are `capacity` bytes (the kernel's `qdisc_avail_bulklimit`).
    /// Returns also what to charge for packets that were enqueued at the root again.
    #[inline]
    fn dequeue(&mut self, quota: usize, capacity: Option<u64>, now: Time) -> (Next, u64) {
        if capacity.is_none() && self.tap.is_none() {
            let next = self.qdisc.dequeue(quota, &mut self.batch, self.cx.at(now));
            return self.after_dequeue(next, self.batch.is_empty());
        }
        self.dequeue_each(quota, capacity.unwrap_or(u64::MAX), now)
    }

    #[inline(never)]
    fn dequeue_each(&mut self, quota: usize, capacity: u64, now: Time) -> (Next, u64) {
        let mut left = quota as u64;
        let mut sum = 0;
        loop {
            self.show_unplaced();
            let next = self.qdisc.dequeue(1, &mut self.one, self.cx.at(now));
            self.show(now);
            let (next, again) = self.after_dequeue(next, self.one.is_empty());
            sum += again;
            left = left.saturating_sub(self.one.wire_packets().max(again));
            self.batch.append(&mut self.one);
            if next != Next::Ready || left == 0 || self.batch.bytes() >= capacity {
                return (next, sum);
            }
        }
    }

    /// The next step after a dequeue that gave something or `nothing`, and the charge for packets
    /// that were enqueued at the root again.
    #[inline]
    fn after_dequeue(&mut self, next: Next, nothing: bool) -> (Next, u64) {
        match (next, self.reinject()) {
            // It says that more is ready, and gives nothing: that is work, too.
            (Next::Ready, 0) if nothing => (Next::Ready, 1),
            (next, 0) => (next, 0),
            (_, again) => (Next::Ready, again),
        }
    }

    /// Samples a batch, makes it fit the device, hands it to the rings, and charges the wire
    /// packets to the budget.
    #[inline]
    fn finish(&mut self, status: &Status, budget: &mut Budget) -> Xmit {
        let batch = &mut self.batch;
        if self.sampler.take() {
            status.sample(batch, budget.start);
        }
        // One look at each packet, if nothing has to be done to them. A plain frame is one packet
        // on the wire.
        let features = &self.features;
        if !features.may_merge(batch) && batch.iter().all(|packet| features.takes_plain(packet)) {
            budget.charge(batch.len() as u64);
            return self.rings.send(batch, budget.start, &mut self.cx.dropped);
        }
        let packets = batch.wire_packets() + self.unfit.wire_packets();
        let sent = self.fit_and_send(budget.packets, budget.start);
        budget.charge(packets - self.unfit.wire_packets());
        sent
    }

    /// Makes a batch fit the device, by segmenting as far as it takes for `limit` wire packets,
    /// and hands it to the rings.
    #[inline(never)]
    fn fit_and_send(&mut self, limit: usize, now: Time) -> Xmit {
        let batch = &mut self.batch;
        let features = &self.features;
        let mut rest = validate(batch, limit, features, &self.cx.pool, &mut self.cx.dropped);
        rest.append(&mut self.unfit);
        self.unfit = rest;
        merge(batch, features);
        self.rings.send(batch, now, &mut self.cx.dropped)
    }

    /// Sum of the packets that wait before and behind the qdisc.
    fn beside(&self) -> Counts {
        let mut sum = self.rings.requeued();
        if !self.unfit.is_empty() {
            sum.add(Counts::of(&self.unfit));
        }
        if !self.adopted.is_empty() {
            sum.add(self.adopted.counts());
        }
        sum
    }

    pub(super) fn publish(&mut self, status: &Status) {
        let mut stats = *self.qdisc.stats();
        self.left = WireSum {
            packets: stats.packets,
            bytes: stats.bytes,
        };
        // INV-TX-6: what waits beside the qdisc is part of the length.
        let beside = self.beside();
        stats.requeues += self.rings.requeues;
        stats.qlen += beside.frames as u64;
        stats.backlog = stats.backlog.wrapping_add(beside.bytes);
        stats.queued = stats.queued.wrapping_add(beside.packets);
        stats.memory += beside.memory;
        status.publish(&stats, &self.rings.sent);
        self.steady = self.is_steady();
    }
}
