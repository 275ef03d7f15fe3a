//! What the thread that runs a queue does, and what only that thread may touch: discipline, requeue list, driver rings.

use super::queue::TxQueue;
use super::quota::{SMALL_BUFFER, memory_of};
use super::requeue::Requeue;
use super::ring::{Sent, TxRing, Xmit};
use crate::mem::{Packet, PacketList, Pool};
use crate::offload::{merge, validate};
use crate::qdisc::{Cx, Next, Qdisc, Verdict, WireSum};
use crate::stats::{DropReason, Published, Sampler};
use crate::time::Time;

/// Positions among the published numbers; see [`Runner::publish`].
const BYTES: usize = 0;
const PACKETS: usize = 1;
const TX_PACKETS: usize = 8;
const TX_BYTES: usize = 9;

/// What one run left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing but what waits for one of several rings.
    Nothing,
    /// The quota or the time is used up.
    More,
    /// Nothing may leave before this time.
    Until(Time),
    /// The driver is full.
    Stopped,
}

/// What a run may do before it must hand over.
///
/// A run sends at most its quota of wire packets, and what the last frame has beyond that if the
/// driver takes it in one piece. A frame that has to be segmented is segmented as far as the quota
/// goes; the rest waits, in one piece, for the next run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Wire packets to send.
    pub(super) packets: usize,
    /// Packets of others to enqueue (or to drop, where the device is down).
    pub(super) adoptions: usize,
    /// When the run began.
    pub(super) start: Time,
}

impl Budget {
    /// Of a run that begins now, and sends at most `packets`.
    #[inline]
    pub(super) fn new(packets: usize, adoptions: usize, now: Time) -> Budget {
        Budget {
            packets,
            adoptions,
            start: now,
        }
    }

    /// Charges wire packets that were sent, or dropped instead.
    #[inline]
    pub(super) fn charge(&mut self, wire_packets: u64) {
        self.packets = self.packets.saturating_sub(wire_packets as usize);
    }

    /// Charges packets that were taken off the adoption list.
    #[inline]
    pub(super) fn adopt(&mut self, packets: usize) {
        self.adoptions = self.adoptions.saturating_sub(packets);
    }

    fn is_used_up(&self) -> bool {
        self.packets == 0
    }
}

/// What only the owner touches.
#[derive(Debug)]
pub(super) struct Runner<R, Q> {
    pub(super) qdisc: Q,
    /// What the driver gave back, and what waits for a full ring; already fit for the driver.
    pub(super) requeued: Requeue,
    /// Dequeued, but not yet fit for the driver: what is left of a frame that is being segmented.
    /// It leaves before anything dequeued later.
    segmenting: PacketList,
    pub(super) requeues: u64,
    /// The driver's rings that this queue feeds: its own, or all of the device, or none (see [`Device`](super::Device)).
    pub(super) rings: Vec<R>,
    pub(super) sent: Sent,
    /// What left the qdisc, as published.
    left: WireSum,
    /// What the qdisc is given; also takes what is dropped elsewhere in a run.
    pub(super) cx: Cx,
    /// False: the device is down; packets are dropped.
    pub(super) active: bool,
    /// The discipline stands still: the driver was full and has not been heard of since (INV-TX-11: it is not tried meanwhile).
    pub(super) stopped: bool,
    /// Which batches are measured.
    sampler: Sampler,
}

impl<R: TxRing, Q: Qdisc> Runner<R, Q> {
    pub(super) fn new(qdisc: Q, rings: Vec<R>, pool: &Pool) -> Self {
        Runner {
            qdisc,
            requeued: Requeue::default(),
            segmenting: PacketList::new(),
            requeues: 0,
            rings,
            sent: Sent::default(),
            left: WireSum::default(),
            cx: Cx::new(pool),
            active: true,
            stopped: false,
            sampler: Sampler::default(),
        }
    }

    /// Wire packets that the driver has taken so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.packets
    }

    /// Whether nothing that was dequeued waits.
    #[inline]
    fn nothing_dequeued(&self) -> bool {
        self.requeued.is_empty() && self.segmenting.is_empty()
    }

    /// Bytes of the buffers that hold what was dequeued and waits.
    fn dequeued_memory(&self) -> u64 {
        self.requeued.memory() + memory_of(&self.segmenting)
    }

    /// Takes everything that was dequeued and waits, in the order in which it would have left.
    pub(super) fn take_dequeued(&mut self) -> PacketList {
        let mut all = self.requeued.take();
        all.append(&mut self.segmenting);
        all
    }

    /// Enqueues what others left and the caller's own packets, all of it before anything is dequeued,
    /// so that the qdisc sees every packet. Returns what became of the caller's own.
    pub(super) fn enqueue(
        &mut self,
        queue: &TxQueue<R, Q>,
        left: &mut PacketList,
        own: &mut PacketList,
        now: Time,
    ) -> Verdict {
        if !self.active {
            let verdict = if own.is_empty() {
                Verdict::Queued
            } else {
                Verdict::Dropped
            };
            self.cx.dropped.append(left.take(), DropReason::DeviceDown);
            self.cx.dropped.append(own.take(), DropReason::DeviceDown);
            return verdict;
        }
        self.enqueue_within_quota(queue, left, now);
        self.enqueue_within_quota(queue, own, now)
    }

    /// Enqueues packets, and drops those beyond the queue's [quota](super::quota) of buffers.
    #[inline]
    fn enqueue_within_quota(
        &mut self,
        queue: &TxQueue<R, Q>,
        packets: &mut PacketList,
        now: Time,
    ) -> Verdict {
        if packets.is_empty() {
            return Verdict::Queued;
        }
        let mut cut = Verdict::Queued;
        if let Some(limit) = queue.quota().limit() {
            let stats = self.qdisc.stats();
            let queued = stats.memory.max(stats.qlen * SMALL_BUFFER);
            let offered = packets.len();
            limit.cut(
                queued + self.dequeued_memory(),
                packets,
                &mut self.cx.dropped,
            );
            if packets.len() < offered {
                cut = Verdict::Dropped;
            }
        }
        let verdict = self.qdisc.enqueue(packets, self.cx.at(now));
        self.reinject();
        verdict.max(cut)
    }

    /// Enqueues what the qdisc wants to have enqueued at the root. Once: a qdisc that does so again
    /// with what it gets here would never end. Says whether there was any.
    #[inline]
    fn reinject(&mut self) -> bool {
        let any = !self.cx.reinject.is_empty();
        if any {
            let mut packets = self.cx.reinject.take();
            self.qdisc.enqueue(&mut packets, &mut self.cx);
            let again = self.cx.reinject.take();
            self.cx.dropped.append(again, DropReason::RecursionLimit);
        }
        any
    }

    /// Dequeues and sends, within `budget`.
    pub(super) fn run(&mut self, queue: &TxQueue<R, Q>, budget: &mut Budget) -> Left {
        if !self.active {
            return Left::Nothing;
        }
        if self.rings.len() != 1 {
            if self.rings.is_empty() {
                // The device's qdisc is another queue's now: the worker takes what came too late.
                let idle = self.qdisc.stats().qlen == 0 && self.nothing_dequeued();
                return if idle { Left::Nothing } else { Left::More };
            }
            self.requeued.now = budget.start;
        }
        self.dequeue_and_send(queue, budget)
    }

    /// The rest of a [`run`](Runner::run).
    fn dequeue_and_send(&mut self, queue: &TxQueue<R, Q>, budget: &mut Budget) -> Left {
        let now = budget.start;
        // INV-TX-4: what the driver refused before goes first.
        if self.stopped || !self.requeued.is_empty() {
            let left = self.resume(queue, budget);
            if left != Left::Nothing {
                return left;
            }
        }
        loop {
            if budget.is_used_up() {
                return Left::More;
            }
            let room = self.room(now);
            if room == Some(0) {
                self.stopped = true;
                return Left::Stopped;
            }
            let mut batch = self.segmenting.take();
            let mut next = Next::Ready;
            if batch.is_empty() {
                next = self.dequeue(budget.packets, room, now, &mut batch);
            }
            if !batch.is_empty() && self.finish(queue, &mut batch, budget) == Xmit::Busy {
                return Left::Stopped;
            }
            if !self.segmenting.is_empty() {
                continue;
            }
            match next {
                Next::Idle => return Left::Nothing,
                Next::At(time) => return Left::Until(time),
                Next::Ready => {}
            }
        }
    }

    /// Sends what was adopted past a discipline that is empty and need not see it (`TCQ_F_CAN_BYPASS`), and publishes that. False if that cannot be, or
    /// if it did not end well: then [`run`](Runner::run) has the rest to do.
    #[inline(always)]
    pub(super) fn run_through(
        &mut self,
        queue: &TxQueue<R, Q>,
        adopted: &mut PacketList,
        budget: &mut Budget,
    ) -> bool {
        let may = self.active
            && !self.stopped
            && self.nothing_dequeued()
            && self.rings.len() == 1
            && self.room(budget.start).is_none()
            && !adopted.is_empty();
        if !may {
            return false;
        }
        let features = queue.features();
        // One look at each packet, for most are one and need nothing.
        // Several may merge where the device takes any kind of large frame.
        let large = features.tso4 || features.tso6 || features.uso;
        let mut plain = !(adopted.len() > 1 && large && features.checksum);
        let mut sum = WireSum::default();
        for packet in &*adopted {
            let is_plain = features.takes_plain(packet);
            // What is beyond the budget, or has to be segmented, takes the long way.
            if sum.packets >= budget.packets as u64 || (!is_plain && features.must_segment(packet))
            {
                return false;
            }
            sum.add(packet);
            plain &= is_plain;
        }
        if !self.qdisc.try_pass(adopted, sum, self.cx.at(budget.start)) {
            return false;
        }
        self.left.packets += sum.packets;
        self.left.bytes += sum.bytes;
        budget.charge(sum.packets);
        if self.sampler.take() {
            queue.watch().note(adopted, budget.start);
        }
        let sent = if plain {
            self.send(adopted)
        } else {
            self.fit_and_send(queue, adopted, usize::MAX)
        };
        if sent == Xmit::Busy || self.cx.dropped.wire_packets() != 0 {
            return false;
        }
        let published = &queue.published;
        published.put(BYTES, self.left.bytes);
        published.put(PACKETS, self.left.packets);
        published.put(TX_PACKETS, self.sent.packets);
        published.put(TX_BYTES, self.sent.bytes);
        true
    }

    /// As [`run_through`](Runner::run_through), where it is not the only thing to do.
    #[inline(never)]
    pub(super) fn run_others_through(
        &mut self,
        queue: &TxQueue<R, Q>,
        adopted: &mut PacketList,
        budget: &mut Budget,
    ) -> bool {
        self.run_through(queue, adopted, budget)
    }

    /// Bytes that the ring should be given now (see [`TxRing::available`]). Where one discipline feeds several rings, each is asked when it gets something.
    #[inline]
    fn room(&mut self, now: Time) -> Option<u64> {
        match &mut *self.rings {
            [only] => only.available(now),
            _ => None,
        }
    }

    /// Dequeues at most `quota` wire packets (and what the last frame has beyond that), and none after the one with which there are `room` bytes (the kernel's `qdisc_avail_bulklimit`).
    fn dequeue(
        &mut self,
        quota: usize,
        room: Option<u64>,
        now: Time,
        batch: &mut PacketList,
    ) -> Next {
        let Some(room) = room else {
            let next = self.qdisc.dequeue(quota, batch, self.cx.at(now));
            return if self.reinject() { Next::Ready } else { next };
        };
        let mut left = quota as u64;
        loop {
            let mut one = PacketList::new();
            let mut next = self.qdisc.dequeue(1, &mut one, self.cx.at(now));
            if self.reinject() {
                next = Next::Ready;
            }
            left = left.saturating_sub(one.wire_packets());
            batch.append(&mut one);
            if next != Next::Ready || left == 0 || batch.bytes() >= room {
                return next;
            }
        }
    }

    /// Measures a batch, if its turn has come, makes it fit for the device, hands it to the rings, and charges the wire packets to the budget.
    #[inline]
    fn finish(
        &mut self,
        queue: &TxQueue<R, Q>,
        batch: &mut PacketList,
        budget: &mut Budget,
    ) -> Xmit {
        if self.sampler.take() {
            queue.watch().note(batch, budget.start);
        }
        let alone = batch.len() == 1
            && batch
                .front()
                .is_some_and(|p| queue.features().takes_plain(p));
        if alone {
            budget.charge(1);
            return self.send(batch);
        }
        let packets = batch.wire_packets();
        let sent = self.fit_and_send(queue, batch, budget.packets);
        budget.charge(packets - self.segmenting.wire_packets());
        sent
    }

    /// Makes a batch fit for the device, by segmenting as far as it takes for `limit` wire packets, and hands it to the rings.
    #[inline(never)]
    fn fit_and_send(
        &mut self,
        queue: &TxQueue<R, Q>,
        batch: &mut PacketList,
        limit: usize,
    ) -> Xmit {
        let features = queue.features();
        self.segmenting = validate(batch, limit, features, queue.pool(), &mut self.cx.dropped);
        merge(batch, features);
        self.send(batch)
    }

    /// Hands a batch to the rings, and keeps what they do not take. Busy if the discipline must stop.
    #[inline]
    fn send(&mut self, batch: &mut PacketList) -> Xmit {
        if let [only] = &mut *self.rings {
            let sent = only.xmit(batch, &mut self.sent);
            if sent == Xmit::Complete && self.sent.dropped.is_none() {
                return Xmit::Complete;
            }
            let rest = if sent == Xmit::Busy {
                batch.take()
            } else {
                PacketList::new()
            };
            return self.keep(rest);
        }
        self.spread(batch)
    }

    pub(super) fn publish(&mut self, published: &Published<11>) {
        let q = self.qdisc.stats();
        self.left = WireSum {
            packets: q.packets,
            bytes: q.bytes,
        };
        // INV-TX-6: the requeue list is part of the length.
        let mut frames = self.requeued.len();
        let mut bytes = self.requeued.bytes();
        let mut packets = self.requeued.packets();
        if !self.segmenting.is_empty() {
            frames += self.segmenting.len();
            bytes += self.segmenting.iter().map(Packet::wire_len).sum::<u64>();
            packets += self.segmenting.wire_packets();
        }
        let memory = q.memory + self.dequeued_memory();
        published.set([
            q.bytes,
            q.packets,
            q.drops,
            q.overlimits,
            q.requeues + self.requeues,
            q.qlen + frames as u64,
            q.backlog.wrapping_add(bytes),
            q.queued.wrapping_add(packets),
            self.sent.packets,
            self.sent.bytes,
            memory,
        ]);
    }
}
