//! The subject of the measurement: the path of many senders through one qdisc to one driver, and
//! the driver.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use softnet::mem::{PacketList, Pool};
use softnet::offload::validate;
use softnet::qdisc::{Cx, Next, Qdisc as _, WireSum};
use softnet::stats::{Counts, DropCounters, Histogram};
use softnet::time::Time;
use softnet::tx::{Features, RingWaker, Sent, TxRing, Xmit};
use softnet_tc::AnyQdisc;

use super::ticks::Ticks;

/// Bytes of a packet in `tx-adopt`: the size of the reports that the mechanism is known by.
pub(crate) const FRAME: usize = 120;
/// Batches of which one is refused, by the driver that does.
const REFUSED: u32 = 8;
/// Frames that the copying driver keeps, as a ring of descriptors would.
const SLOTS: usize = 256;

/// The path from the senders to the driver.
pub(crate) trait Path: Sync {
    /// True if a thread has to be in [`serve`](Path::serve) for packets to move.
    const SERVED: bool;

    /// Sends. Adds the nanoseconds spent waiting for locks to `waited`. Returns how many of the
    /// packets were refused.
    fn transmit(&self, packets: PacketList, now: Time, waited: &mut u64) -> u64;

    /// The loop of the path's own thread until `stop`. All packets sent before that have left when
    /// it returns.
    fn serve(&self, _stop: &AtomicBool) {}

    /// Packets dropped by now; exact when no sender is active.
    fn dropped(&self) -> u64;
}

/// Which driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Driver {
    /// Frees the packets.
    Null,
    /// Copies [`FRAME`] bytes of each packet first.
    Copy,
    /// As the null driver, but refuses one batch in [`REFUSED`], and has capacity again at once.
    Refuse,
}

impl Driver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Driver::Null => "null",
            Driver::Copy => "copy",
            Driver::Refuse => "refuse",
        }
    }
}

/// Counters of one queue of a driver. Written by one thread at a time.
#[derive(Debug, Default)]
struct QueueCounters {
    packets: AtomicU64,
    /// From the start of the transmit call to the driver, in nanoseconds, of packets sent at or
    /// after [`since`](Delivery::count_from).
    sojourn: Histogram<4>,
}

/// Counters of a driver.
#[derive(Debug)]
pub(crate) struct Delivery {
    queues: Box<[CachePadded<QueueCounters>]>,
    since: CachePadded<AtomicU64>,
    /// Packets delivered, by the sender's number, which they carry as their port.
    returned: Box<[CachePadded<AtomicU64>]>,
}

impl Delivery {
    /// For packets of senders numbered from 0, each of which uses one of the queues. Times nothing
    /// yet.
    pub(crate) fn new(queues: usize, senders: usize) -> Delivery {
        Delivery {
            queues: (0..queues).map(|_| CachePadded::default()).collect(),
            since: CachePadded::new(AtomicU64::new(u64::MAX)),
            returned: (0..senders).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Times in the queue, of all queues.
    pub(crate) fn sojourn(&self) -> Counts<4> {
        let mut all = Counts::default();
        for queue in &self.queues {
            all.merge(&queue.sojourn.counts());
        }
        all
    }

    /// Packets of this sender that were delivered by now.
    pub(crate) fn returned(&self, sender: usize) -> u64 {
        self.returned
            .get(sender)
            .map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// Adds to what was delivered of one sender.
    fn give_back(&self, sender: u16, packets: u64) {
        if let Some(returned) = self.returned.get(usize::from(sender)) {
            returned.store(
                returned.load(Ordering::Relaxed) + packets,
                Ordering::Relaxed,
            );
        }
    }

    /// Packets delivered by now.
    pub(crate) fn packets(&self) -> u64 {
        let packets = |queue: &CachePadded<QueueCounters>| queue.packets.load(Ordering::Relaxed);
        self.queues.iter().map(packets).sum()
    }

    /// Since when packets are timed.
    pub(super) fn counted_from(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// Times packets from now on.
    pub(crate) fn count_from(&self, now: Time) {
        self.since.store(now.nanos(), Ordering::Relaxed);
    }
}

/// The mark of a packet whose path through the queue is timed: when it was due, modulo 17 s. The
/// timestamp is the qdisc's.
pub(crate) fn due(time: Time) -> u32 {
    (time.nanos() >> 2) as u32 | 1
}

/// Nanoseconds from what [`due`] was told until now, 8 s at most.
fn since(mark: u32, now: u64) -> u64 {
    let passed = due(Time(now)).wrapping_sub(mark) as i32;
    u64::from(passed.max(0).unsigned_abs()) << 2
}

/// The driver: takes every packet, at once, or none of a batch.
#[derive(Debug)]
pub(crate) struct Sink {
    delivery: Arc<Delivery>,
    queue: usize,
    ticks: Ticks,
    /// Empty for the null driver.
    frames: Box<[[u8; FRAME]]>,
    next: usize,
    /// Batches until one is refused, for the driver that does.
    refuse: Option<u32>,
    waker: Option<RingWaker>,
}

impl Sink {
    /// One of several queues that count together.
    pub(crate) fn of(driver: Driver, queue: usize, delivery: Arc<Delivery>, ticks: Ticks) -> Sink {
        let slots = if driver == Driver::Copy { SLOTS } else { 0 };
        Sink {
            delivery,
            queue,
            ticks,
            frames: vec![[0; FRAME]; slots].into_boxed_slice(),
            next: 0,
            refuse: (driver == Driver::Refuse).then_some(REFUSED),
            waker: None,
        }
    }
}

impl TxRing for Sink {
    fn bind(&mut self, waker: RingWaker) {
        self.waker = Some(waker);
    }

    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        if let Some(left) = &mut self.refuse {
            *left -= 1;
            if *left == 0 {
                *left = REFUSED;
                if let Some(waker) = &self.waker {
                    waker.wake();
                }
                return Xmit::Busy;
            }
        }
        let queue = &self.delivery.queues[self.queue];
        // Runs of packets of one sender are given back together.
        let (mut sender, mut run) = (0, 0);
        for packet in packets.iter() {
            if packet.port() != sender && run > 0 {
                self.delivery.give_back(sender, std::mem::take(&mut run));
            }
            sender = packet.port();
            run += 1;
            if !self.frames.is_empty() {
                let frame = &mut self.frames[self.next % SLOTS];
                self.next += 1;
                if let Some(data) = packet.data().get(..FRAME) {
                    frame.copy_from_slice(data);
                }
                black_box(frame);
            }
            if packet.mark() != 0 {
                let now = self.ticks.nanos();
                let sojourn = since(packet.mark(), now);
                if now - sojourn >= self.delivery.since.load(Ordering::Relaxed) {
                    queue.sojourn.record(sojourn);
                }
            }
        }
        self.delivery.give_back(sender, run);
        sent.packets += packets.len() as u64;
        sent.bytes += packets.bytes();
        let delivered = queue.packets.load(Ordering::Relaxed) + packets.len() as u64;
        drop(packets.take());
        // Released after the packets are back in their pool.
        queue.packets.store(delivered, Ordering::Release);
        Xmit::Complete
    }
}

/// Qdisc and driver together, for those who reach them through a lock.
#[derive(Debug)]
pub(crate) struct Stage<R = Sink> {
    qdisc: AnyQdisc,
    ring: R,
    pub(crate) sent: Sent,
    cx: Cx,
    features: Features,
    pool: Pool,
}

impl<R: TxRing> Stage<R> {
    /// For a driver without offloads.
    pub(crate) fn new(qdisc: AnyQdisc, ring: R, pool: Pool) -> Stage<R> {
        Stage::with_features(qdisc, ring, Features::default(), pool)
    }

    pub(crate) fn with_features(
        qdisc: AnyQdisc,
        ring: R,
        features: Features,
        pool: Pool,
    ) -> Stage<R> {
        Stage {
            qdisc,
            ring,
            sent: Sent::default(),
            cx: Cx::new(&pool),
            features,
            pool,
        }
    }

    /// Queues `packets` and sends all that is queued. What need not be queued, by the same rule as
    /// Softnet's, is not.
    pub(crate) fn pass(&mut self, mut packets: PacketList, now: Time, drops: &DropCounters) {
        let sum = WireSum::from(&packets);
        if self.qdisc.try_pass(&packets, sum, self.cx.at(now)) {
            self.send(packets);
            self.cx.dropped.settle(drops);
            return;
        }
        self.qdisc.enqueue(&mut packets, self.cx.at(now));
        let mut next = Next::Ready;
        while next == Next::Ready {
            let mut batch = PacketList::new();
            let budget = softnet::tx::RUN_QUOTA;
            next = self.qdisc.dequeue(budget, &mut batch, self.cx.at(now));
            if !batch.is_empty() {
                self.send(batch);
            }
        }
        self.cx.dropped.settle(drops);
    }

    /// Hands packets to the driver. One that is full has capacity again at once.
    fn send(&mut self, mut batch: PacketList) {
        let (features, pool) = (&self.features, &self.pool);
        validate(&mut batch, usize::MAX, features, pool, &mut self.cx.dropped);
        while self.ring.xmit(&mut batch, &mut self.sent) == Xmit::Busy {}
    }
}
