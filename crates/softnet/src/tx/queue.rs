//! One transmit queue: adoption list, run state, discipline, requeue list, driver ring.
//!
//! A sender pushes its packets in one atomic step and claims the run if nobody has it. The runner adopts everything on the list, enqueues
//! it, dequeues batches of at most its remaining quota, and hands them to the driver. What the driver does not take is requeued and
//! leaves before anything dequeued later (INV-TX-4). A run ends when the quota is used up (the worker goes on), when nothing may leave now
//! (the worker's timer goes on), when the driver is full ([`wake`](TxQueue::wake) goes on) or when all is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::ring::{Features, Sent, TxRing, Xmit};
use super::room::Room;
use super::select::select_queue;
use super::validate;
use crate::packet::{Packet, PacketAdoption, PacketList, merge};
use crate::pool::Pool;
use crate::qdisc::{AnyQdisc, Next, Qdisc, QdiscStats};
use crate::rx::Doorbell;
use crate::stats::{DropCounters, DropReason, Dropped, Published};
use crate::sync::{RunGuard, RunState};
use crate::time::Time;

/// Packets a run sends before it hands over to the worker (the kernel's `dev_tx_weight`).
pub const RUN_QUOTA: usize = 64;
/// Packets that may wait on the adoption list (the kernel's `net.core.qdisc_max_burst`).
pub const QDISC_MAX_BURST: usize = 1000;

/// Position of the length in frames among the published numbers.
const QLEN: usize = 5;

/// What became of packets given to a transmit call (`NET_XMIT_*`). The packets are consumed in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XmitResult {
    /// Accepted: sent, queued, or left to the thread that runs the queue.
    Success,
    /// Dropped: the only packet of the call did not get in, or too many packets wait for adoption.
    Drop,
    /// Congestion: some packets were dropped, not necessarily the caller's.
    Congestion,
}

/// What one run left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// The quota is used up.
    More,
    /// Nothing may leave before this time.
    Until(Time),
    /// The driver is full.
    Stopped,
}

/// Numbers of a queue. Frames or wire packets as said in [`QdiscStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// The discipline's numbers; `requeues`, `qlen`, `backlog` and `queued` include the requeue list.
    pub qdisc: QdiscStats,
    /// Wire packets handed to the device.
    pub tx_packets: u64,
    /// Their wire bytes.
    pub tx_bytes: u64,
}

/// What only the runner touches.
#[derive(Debug)]
struct Runner<R> {
    qdisc: AnyQdisc,
    /// What the driver gave back, already fit for it.
    requeued: PacketList,
    requeues: u64,
    /// The driver's rings that this queue feeds: its own, or all of the device, or none (see [`Device`](super::Device)).
    rings: Vec<R>,
    sent: Sent,
    dropped: Dropped,
    /// False: the device is down; packets are dropped.
    active: bool,
    /// The driver was full and has not been heard of since (INV-TX-11: it is not tried meanwhile).
    stopped: bool,
}

/// One transmit queue: adoption list, run state, discipline, requeue list, driver rings.
///
/// A sender pushes its packets in one atomic step and claims the run if nobody has it; the runner adopts everything on the list, enqueues it, dequeues
/// batches and hands them to the driver. Nobody waits for anybody. What a bounded run leaves is done by the queue's worker.
#[derive(Debug)]
pub struct TxQueue<R> {
    /// Written by senders.
    adoption: CachePadded<PacketAdoption>,
    run: CachePadded<RunState<Runner<R>>>,
    /// Written by the runner, read by anyone.
    published: CachePadded<Published<10>>,
    /// The time for which the worker has been asked to come back; `u64::MAX` if it has not. Written by the runner only.
    armed: AtomicU64,
    /// The driver may have room again; set by [`wake`](TxQueue::wake), cleared by the runner before it tries.
    woken: AtomicBool,
    room: Room,
    features: Features,
    drops: Arc<DropCounters>,
    pool: Pool,
    doorbell: Arc<Doorbell>,
    token: usize,
}

impl<R: TxRing> TxQueue<R> {
    /// A queue whose leftover work is done by the worker behind `doorbell`, which knows the queue as `token`.
    pub(super) fn new(
        rings: Vec<R>,
        qdisc: AnyQdisc,
        features: Features,
        drops: Arc<DropCounters>,
        pool: Pool,
        doorbell: Arc<Doorbell>,
        token: usize,
    ) -> Self {
        let runner = Runner {
            qdisc,
            requeued: PacketList::new(),
            requeues: 0,
            rings,
            sent: Sent::default(),
            dropped: Dropped::new(),
            active: true,
            stopped: false,
        };
        TxQueue {
            adoption: CachePadded::new(PacketAdoption::new()),
            run: CachePadded::new(RunState::new(runner)),
            published: CachePadded::default(),
            armed: AtomicU64::new(u64::MAX),
            woken: AtomicBool::new(false),
            room: Room::default(),
            features,
            drops,
            pool,
            doorbell,
            token,
        }
    }

    /// Sends `packets` through the discipline. Never blocks and never waits for another thread; sends at most [`RUN_QUOTA`]
    /// packets, its own or others', on the caller's time.
    pub fn transmit(&self, packets: PacketList, now: Time) -> XmitResult {
        let single = packets.len() == 1;
        if let Err(refused) = self.adoption.push(packets, QDISC_MAX_BURST) {
            self.drops
                .add(DropReason::QdiscBurst, refused.wire_packets());
            return XmitResult::Drop;
        }
        let dropped = self.run(now);
        match (dropped, single) {
            (0, _) => XmitResult::Success,
            // The only packet that was adopted is the caller's own (INV-TX-9).
            (_, true) if dropped == 1 => XmitResult::Drop,
            _ => XmitResult::Congestion,
        }
    }

    /// Runs the queue if nobody does. Returns how many packets were dropped meanwhile.
    fn run(&self, now: Time) -> u64 {
        let mut drops = 0;
        let mut quota = RUN_QUOTA;
        while let Some(guard) = self.run.try_begin() {
            let (left, _) = self.finish(guard, now, &mut quota, &mut drops, Some(now));
            // A sender that pushed while we ran left its packets to us; see `RunState`.
            let pushed = !self.adoption.is_empty();
            if left == Left::More || pushed && quota == 0 {
                self.doorbell.ring(self.token);
                break;
            }
            if !pushed {
                break;
            }
        }
        drops
    }

    /// Runs until the guard can be given up. Returns what is left, and how often the run went round.
    ///
    /// The worker's timer is armed inside the run, so that `armed` has one writer at a time: by this function if `arm` says that the runner
    /// is a sender (at that time), else by the worker itself.
    fn finish(
        &self,
        mut guard: RunGuard<'_, Runner<R>>,
        now: Time,
        quota: &mut usize,
        drops: &mut u64,
        arm: Option<Time>,
    ) -> (Left, Option<Time>) {
        let mut missed = false;
        loop {
            let left = guard.run(self, now, quota);
            *drops += guard.dropped.wire_packets();
            guard.publish(&self.published);
            guard.dropped.settle(&self.drops);
            let timer = if let Left::Until(time) = left {
                Some(time)
            } else {
                None
            };
            match (timer, arm) {
                (Some(time), Some(now)) => self.arm(time, now, missed),
                _ => self
                    .armed
                    .store(timer.map_or(u64::MAX, Time::nanos), Ordering::Relaxed),
            }
            match guard.end() {
                Ok(()) => {
                    self.room.published();
                    return (left, timer);
                }
                Err(again) => {
                    missed = true;
                    guard = again;
                }
            }
        }
    }

    /// Asks the worker to come back at `time`, unless it will do so anyway. If the worker was turned away meanwhile (`missed`), it has
    /// forgotten its timer, which may have fired at a time that this sender has not seen yet.
    fn arm(&self, time: Time, now: Time, missed: bool) {
        let armed = self.armed.load(Ordering::Relaxed);
        if missed || armed > time.nanos() || armed <= now.nanos() {
            self.armed.store(time.nanos(), Ordering::Relaxed);
            self.doorbell.ring(self.token);
        }
    }

    /// The worker's turn: runs the queue, and says when it wants to be run again at the latest.
    pub(crate) fn run_from_worker(&self, now: Time) -> Option<Time> {
        let mut quota = RUN_QUOTA;
        let mut drops = 0;
        // If another thread runs, it goes round once more, and then arms or rings as it finds things.
        let guard = self.run.begin_or_miss()?;
        let (left, timer) = self.finish(guard, now, &mut quota, &mut drops, None);
        if left == Left::More || !self.adoption.is_empty() {
            self.doorbell.ring(self.token);
        }
        timer
    }

    /// The driver has room again (or may have). May be called from any thread, also while the queue runs: then it
    /// goes round once more, so that a wake-up between the driver's refusal and the queue's stop is not lost (BUG-TX-24).
    pub fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.doorbell.ring(self.token);
    }

    /// Takes rings and everything that waits out of the queue, in the order in which it would have left. Waits for a running thread:
    /// control path only.
    pub(super) fn evict(&self) -> (Vec<R>, PacketList) {
        let mut guard = self.run.begin_slow();
        let mut waiting = guard.requeued.take();
        guard.qdisc.drain(&mut waiting);
        waiting.append(&mut self.adoption.take());
        let rings = std::mem::take(&mut guard.rings);
        self.leave(guard);
        (rings, waiting)
    }

    /// Gives the queue a discipline and rings (besides those it has). What the old discipline holds moves to the new one, in the order in which
    /// it would have left, and `waiting` behind it; what does not fit is dropped as [`DropReason::QdiscLimit`]. Waits for a running thread:
    /// control path only.
    pub(super) fn install(
        &self,
        qdisc: AnyQdisc,
        rings: Vec<R>,
        mut waiting: PacketList,
        now: Time,
    ) {
        let mut guard = self.run.begin_slow();
        let mut moved = PacketList::new();
        guard.qdisc.drain(&mut moved);
        moved.append(&mut waiting);
        guard.qdisc = qdisc;
        guard.rings.extend(rings);
        let Runner { qdisc, dropped, .. } = &mut *guard;
        qdisc.enqueue(&mut moved, now, dropped);
        self.leave(guard);
    }

    /// Replaces the driver's rings, for a device that came back, as many as `rings` yields. Waits for a running thread: control path only.
    pub(super) fn replace_rings(&self, rings: &mut impl Iterator<Item = R>) {
        let mut guard = self.run.begin_slow();
        for (old, new) in guard.rings.iter_mut().zip(rings) {
            *old = new;
        }
        guard.stopped = false;
        self.leave(guard);
    }

    /// Takes the queue down (packets are dropped as [`DropReason::DeviceDown`], what is queued as
    /// [`DropReason::QdiscReset`]) or up again. Waits for a running thread: control path only.
    pub fn set_active(&self, active: bool) {
        let mut guard = self.run.begin_slow();
        guard.active = active;
        if !active {
            let mut gone = guard.requeued.take();
            guard.qdisc.drain(&mut gone);
            guard.dropped.append(gone, DropReason::QdiscReset);
        }
        self.leave(guard);
    }

    /// Ends a run of the control path: publishes, frees, and lets the worker look at the rest.
    fn leave(&self, mut guard: RunGuard<'_, Runner<R>>) {
        guard.publish(&self.published);
        guard.dropped.settle(&self.drops);
        drop(guard);
        self.doorbell.ring(self.token);
    }

    /// The queue's numbers.
    pub fn stats(&self) -> QueueStats {
        let [
            bytes,
            packets,
            drops,
            overlimits,
            requeues,
            qlen,
            backlog,
            queued,
            tx_packets,
            tx_bytes,
        ] = self.published.get();
        QueueStats {
            qdisc: QdiscStats {
                bytes,
                packets,
                drops,
                overlimits,
                requeues,
                qlen,
                backlog,
                queued,
            },
            tx_packets,
            tx_bytes,
        }
    }

    /// Frames that wait: on the adoption list, in the discipline, and for the driver. A recent value while threads send.
    pub fn waiting(&self) -> usize {
        self.adoption.len() + self.published.get()[QLEN] as usize
    }

    /// Waits until fewer than `limit` frames [`wait`](TxQueue::waiting) in this queue, for at most `timeout`; false if they are as many then. A sender that
    /// calls this before it transmits, with a limit below the discipline's, is slowed down instead of losing packets. Blocks; senders that do not call
    /// it are not affected.
    pub fn wait_for_room(&self, limit: usize, timeout: Duration) -> bool {
        self.room.wait(timeout, || self.waiting() < limit)
    }

    /// Whether nothing waits, on the adoption list or in the discipline. Exact when no sender is active.
    pub fn is_empty(&self) -> bool {
        self.adoption.is_empty() && !self.run.is_running() && self.published.get()[QLEN] == 0
    }
}

impl<R: TxRing> Runner<R> {
    /// Adopts, enqueues, dequeues and sends, for at most `quota` packets.
    fn run(&mut self, queue: &TxQueue<R>, now: Time, quota: &mut usize) -> Left {
        let mut adopted = queue.adoption.take();
        if !self.active {
            self.dropped.append(adopted, DropReason::DeviceDown);
            return Left::Nothing;
        }
        if !adopted.is_empty() {
            self.qdisc.enqueue(&mut adopted, now, &mut self.dropped);
        }
        if self.rings.is_empty() {
            // The device's discipline is another queue's now: the worker takes what came too late there.
            let idle = self.qdisc.stats().qlen == 0 && self.requeued.is_empty();
            return if idle { Left::Nothing } else { Left::More };
        }
        if self.stopped {
            if !queue.woken.swap(false, Ordering::Acquire) {
                return Left::Stopped;
            }
            self.stopped = false;
        }
        loop {
            // INV-TX-4: what the driver refused before goes first.
            let mut batch = self.requeued.take();
            let mut next = Next::Ready;
            if batch.is_empty() {
                if *quota == 0 {
                    return Left::More;
                }
                next = self
                    .qdisc
                    .dequeue(*quota, now, &mut batch, &mut self.dropped);
                *quota -= batch.len().min(*quota);
                validate(&mut batch, &queue.features, &queue.pool, &mut self.dropped);
                if queue.features.uso && queue.features.checksum {
                    merge(&mut batch);
                }
            }
            if !batch.is_empty() && self.send(batch) == Xmit::Busy {
                return Left::Stopped;
            }
            match next {
                Next::Idle => return Left::Nothing,
                Next::At(time) => return Left::Until(time),
                Next::Ready => {}
            }
        }
    }

    /// Hands a batch to the rings, and keeps what they do not take.
    fn send(&mut self, mut batch: PacketList) -> Xmit {
        let mut rest = PacketList::new();
        let rings = self.rings.len();
        if let [only] = &mut *self.rings {
            if only.xmit(&mut batch, &mut self.sent) == Xmit::Busy {
                rest.append(&mut batch);
            }
        } else {
            // Runs of packets for one ring stay together. From the first refusal on, everything waits: order is kept.
            while let Some(first) = batch.front() {
                let ring = select_queue(first, rings);
                let mut run = PacketList::new();
                while let Some(packet) = batch.pop_front() {
                    if select_queue(&packet, rings) != ring {
                        batch.push_front(packet);
                        break;
                    }
                    run.push_back(packet);
                }
                if self.rings[ring].xmit(&mut run, &mut self.sent) == Xmit::Busy {
                    rest.append(&mut run);
                    rest.append(&mut batch);
                }
            }
        }
        if let Some((reason, packets)) = self.sent.dropped.take() {
            self.dropped.note(reason, packets);
        }
        if rest.is_empty() {
            return Xmit::Complete;
        }
        if self.qdisc.is_noqueue() {
            self.dropped.append(rest, DropReason::DriverRefused);
            return Xmit::Complete;
        }
        self.requeues += rest.len() as u64;
        self.requeued = rest;
        self.stopped = true;
        Xmit::Busy
    }

    fn publish(&self, published: &Published<10>) {
        let q = self.qdisc.stats();
        // INV-TX-6: the requeue list is part of the length.
        let requeued_bytes: u64 = self.requeued.iter().map(Packet::wire_len).sum();
        published.set([
            q.bytes,
            q.packets,
            q.drops,
            q.overlimits,
            q.requeues + self.requeues,
            q.qlen + self.requeued.len() as u64,
            q.backlog + requeued_bytes,
            q.queued + self.requeued.wire_packets(),
            self.sent.packets,
            self.sent.bytes,
        ]);
    }
}
