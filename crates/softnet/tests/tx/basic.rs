//! The transmit invariants of the kernel (INV-TX-n) as tests, with a driver that the test controls. Its historical bugs (BUG-TX-n), with what of them cannot exist
//! here: [`bug_tests`](super::bug_tests).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use softnet::mem::{PacketList, Pool};
use softnet::qdisc::{Next, Qdisc, QdiscStats, Verdict};
use softnet::stats::{DropReason, Dropped};
use softnet::testing::{Done, NoWake, Record, RecordingRing, frame, pool, wait_for_buffers};
use softnet::time::Time;
use softnet_tc::{AnyQdisc, QdiscSpec, TbfSpec};

pub(crate) struct Bench {
    pub(crate) device: Device<RecordingRing>,
    pub(crate) record: Arc<Record>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) pool: Pool,
}

impl Bench {
    pub(crate) fn new(qdisc: QdiscSpec) -> Bench {
        let pool = pool(4096);
        let (ring, record) = RecordingRing::new();
        let notifier = Arc::new(Notifier::new(1, Arc::new(NoWake)));
        let config = DeviceConfig {
            name: "t0".into(),
            features: Features::default(),
            policy: TxPolicy::default(),
        };
        let homes = [(notifier.clone(), 1)];
        let device = new_device(config, qdisc, vec![ring], &pool, &homes).unwrap();
        Bench {
            device,
            record,
            notifier,
            pool,
        }
    }

    pub(crate) fn list(&self, marks: impl IntoIterator<Item = u32>) -> PacketList {
        marks
            .into_iter()
            .map(|mark| frame(&self.pool, 1, 2, 100, mark))
            .collect()
    }

    pub(crate) fn send(&self, marks: impl IntoIterator<Item = u32>) -> XmitResult {
        self.device.transmit(self.list(marks), Time::ZERO)
    }

    /// What a worker does: runs the queue as long as its bell rings. Returns its timer.
    pub(crate) fn work(&self, now: Time) -> Option<Time> {
        let mut timer = None;
        loop {
            let mut rung = false;
            self.notifier.take(|_| rung = true);
            if !rung {
                return timer;
            }
            timer = self.device.queues()[0].run_from_worker(RUN_QUOTA, now);
        }
    }

    /// INV-TX-1 and INV-TX-6 at rest: all of `offered` is accounted for, and lengths are those of what is really queued.
    pub(crate) fn check(&self, offered: u64) {
        let stats = self.device.stats();
        assert_eq!(
            offered,
            stats.tx_packets + stats.dropped() + stats.queued,
            "{stats:?}"
        );
        let q = stats.queues[0].qdisc;
        assert_eq!((q.qlen, q.backlog), (stats.queued, stats.queued * 100));
        assert_eq!(
            self.pool.stats().free as u64 + q.qlen,
            4096,
            "a packet is neither queued nor freed"
        );
    }
}

#[test]
fn inv_tx_1_every_packet_is_sent_queued_or_dropped_with_a_reason() {
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 10 });
    bench.record.room.store(5, Ordering::Relaxed);
    bench.record.refuse.store(2, Ordering::Relaxed);
    assert_eq!(bench.send(0..30), XmitResult::Drop);
    bench.work(Time::ZERO);
    bench.check(30);
    let stats = bench.device.stats();
    assert_eq!(
        stats.drops,
        [(DropReason::QdiscLimit, 20), (DropReason::DriverRefused, 2)]
    );
    assert_eq!((stats.tx_packets, stats.queued), (3, 5));
}

#[test]
fn inv_tx_2_nothing_is_stuck_when_the_driver_wakes() {
    let bench = Bench::new(QdiscSpec::default());
    bench.record.room.store(3, Ordering::Relaxed);
    bench.send(0..5);
    assert_eq!(bench.work(Time::ZERO), None);
    // INV-TX-11: a stopped driver is left alone, however much is enqueued.
    let calls = bench.record.calls.load(Ordering::Relaxed);
    bench.send(5..105);
    bench.work(Time::ZERO);
    assert_eq!(bench.record.calls.load(Ordering::Relaxed), calls);
    bench.check(105);
    bench.record.room.store(usize::MAX, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time::ZERO);
    assert_eq!(bench.record.marks(), (0..105).collect::<Vec<_>>());
    bench.check(105);
    assert!(bench.device.queues()[0].is_empty());
}

#[test]
fn inv_tx_4_and_7_requeued_packets_go_first_and_are_counted() {
    let bench = Bench::new(QdiscSpec::default());
    bench.record.room.store(2, Ordering::Relaxed);
    bench.send(0..4);
    bench.send([100]);
    assert_eq!(bench.device.stats().queues[0].qdisc.requeues, 2);
    bench.record.room.store(usize::MAX, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time::ZERO);
    assert_eq!(bench.record.marks(), [0, 1, 2, 3, 100]);
    bench.check(5);
}

#[test]
fn inv_tx_12_a_sender_sends_at_most_its_quota_and_the_worker_goes_on() {
    let bench = Bench::new(QdiscSpec::default());
    assert_eq!(bench.send(0..200), XmitResult::Success);
    assert_eq!(bench.record.marks().len(), RUN_QUOTA);
    bench.work(Time::ZERO);
    assert_eq!(bench.record.marks(), (0..200).collect::<Vec<_>>());
    bench.check(200);
}

#[test]
fn inv_tx_9_the_result_of_a_single_packet_is_its_own() {
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 0 });
    assert_eq!(bench.send([1]), XmitResult::Drop);
    assert_eq!(bench.send([1, 2]), XmitResult::Drop);
    let bench = Bench::new(QdiscSpec::default());
    assert_eq!(bench.send([1]), XmitResult::Success);
}

#[test]
fn noqueue_drops_what_the_driver_does_not_take() {
    let bench = Bench::new(QdiscSpec::Noqueue);
    bench.record.room.store(2, Ordering::Relaxed);
    bench.send(0..3);
    bench.check(3);
    assert_eq!(bench.device.stats().drops, [(DropReason::DriverRefused, 1)]);
}

/// A throttled queue arms the worker once, and goes on by its timer.
#[test]
fn a_throttled_queue_goes_on_by_timer() {
    let tbf = TbfSpec {
        rate: 100_000,
        burst: 200,
        limit: 10_000,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    let bench = Bench::new(QdiscSpec::Tbf(tbf));
    bench.send(0..5);
    assert_eq!(bench.record.marks(), [0, 1]);
    let mut now = Time::ZERO;
    let mut sent = 2;
    let mut timer = bench.work(now);
    while let Some(due) = timer {
        assert_eq!(due, now.plus_nanos(1_000_000), "100 bytes at 100 kB/s");
        now = due;
        bench.notifier.notify(1);
        timer = bench.work(now);
        sent += 1;
        assert_eq!(bench.record.marks().len(), sent);
    }
    bench.check(5);
}

/// A discipline that holds one packet until a time, and calls back from the middle of a run.
#[derive(Debug)]
struct Interrupted {
    until: Time,
    held: PacketList,
    interrupt: Interrupt,
}

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
struct Interrupt(Arc<std::sync::Mutex<Option<Callback>>>);

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interrupt")
    }
}

impl Qdisc for Interrupted {
    fn enqueue(&mut self, packets: &mut PacketList, _: Time, _: &mut Dropped) -> Verdict {
        self.held.append(packets);
        Verdict::Queued
    }
    fn dequeue(&mut self, _: usize, now: Time, out: &mut PacketList, _: &mut Dropped) -> Next {
        let interrupt = self.interrupt.0.lock().unwrap().take();
        interrupt.into_iter().for_each(|f| f());
        if self.held.is_empty() {
            return Next::Idle;
        }
        if now < self.until {
            return Next::At(self.until);
        }
        out.append(&mut self.held);
        Next::Idle
    }
    fn drain(&mut self, out: &mut PacketList) {
        out.append(&mut self.held);
    }
    fn stats(&self) -> QdiscStats {
        QdiscStats {
            qlen: self.held.len() as u64,
            ..QdiscStats::default()
        }
    }
}

/// The worker's timer fires while a sender runs that has read its clock earlier: the worker is turned away and forgets the timer, so the sender
/// must ask it back, although it sees the timer as armed.
#[test]
fn a_timer_that_fires_during_a_run_is_not_lost() {
    let until = Time(100);
    let bench = Arc::new(Bench::new(QdiscSpec::default()));
    let interrupt = Interrupt::default();
    let held = Interrupted {
        until,
        held: PacketList::new(),
        interrupt: interrupt.clone(),
    };
    let held = AnyQdisc::Custom(Box::new(held));
    bench
        .device
        .set_qdiscs(Qdiscs::per_queue(vec![held]), Time::ZERO);
    bench.send([1]);
    assert_eq!(bench.work(Time::ZERO), Some(until));
    let worker = bench.clone();
    *interrupt.0.lock().unwrap() = Some(Box::new(move || {
        assert_eq!(
            worker.device.queues()[0].run_from_worker(RUN_QUOTA, until),
            None,
            "a sender runs"
        );
    }));
    bench.device.transmit(bench.list([2]), Time(99));
    assert!(bench.record.marks().is_empty());
    assert_eq!(bench.work(until), None);
    assert_eq!(bench.record.marks(), [1, 2]);
}

#[test]
fn replacing_a_discipline_keeps_what_is_queued() {
    let slow = TbfSpec {
        rate: 1,
        burst: 100,
        limit: 10_000,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    let bench = Bench::new(QdiscSpec::Tbf(slow));
    bench.send(0..10);
    assert_eq!(bench.record.marks(), [0]);
    bench
        .device
        .set_qdisc(&QdiscSpec::Pfifo { limit: 6 }, Time::ZERO)
        .unwrap();
    bench.work(Time::ZERO);
    assert_eq!(
        bench.record.marks(),
        [0, 1, 2, 3, 4, 5, 6],
        "in order; the rest did not fit"
    );
    assert_eq!(bench.device.stats().drops, [(DropReason::QdiscLimit, 3)]);
    let bad = TbfSpec {
        rate: 0,
        burst: 1,
        limit: 1,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    assert!(
        bench
            .device
            .set_qdisc(&QdiscSpec::Tbf(bad), Time::ZERO)
            .is_err()
    );
    bench.check(10);
}

/// A device with four rings, and what each of them sent.
fn four_rings(qdisc: QdiscSpec) -> (Device<RecordingRing>, Vec<Arc<Record>>, Arc<Notifier>, Pool) {
    let pool = pool(4096);
    let notifier = Arc::new(Notifier::new(5, Arc::new(NoWake)));
    let (rings, records): (Vec<_>, Vec<_>) = (0..4).map(|_| RecordingRing::new()).unzip();
    let config = DeviceConfig {
        name: "t4".into(),
        features: Features::default(),
        policy: TxPolicy::default(),
    };
    let homes: Vec<_> = (1..5).map(|token| (notifier.clone(), token)).collect();
    (
        new_device(config, qdisc, rings, &pool, &homes).unwrap(),
        records,
        notifier,
        pool,
    )
}

/// Packets 0.. of 100 bytes, each of a flow of its own.
fn flows(pool: &Pool, marks: std::ops::Range<u32>) -> PacketList {
    let frame = |mark: u32| {
        let mut p = frame(pool, 1, 2, 100, mark);
        p.set_flow_hash(mark.wrapping_mul(0x9E37_79B9));
        p
    };
    marks.map(frame).collect()
}

/// A rate limit is the device's: one bucket for all rings, and the rings share what leaves.
#[test]
fn a_shaped_device_has_one_bucket_for_all_rings() {
    let tbf = TbfSpec {
        rate: 100_000,
        burst: 2_000,
        limit: 100_000,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    let (device, records, _, pool) = four_rings(QdiscSpec::Tbf(tbf));
    device.transmit(flows(&pool, 0..200), Time::ZERO);
    let sent: Vec<usize> = records.iter().map(|r| r.marks().len()).collect();
    assert_eq!(
        sent.iter().sum::<usize>(),
        20,
        "2,000 bytes, not four times as much"
    );
    assert!(sent.iter().all(|&n| n > 0), "{sent:?}");
    let stats = device.stats();
    assert_eq!((stats.queued, stats.tx_packets), (180, 20));
}

/// INV-TX-15: a flow's packets take one ring, under a discipline for each ring and under one for all; changing between the two loses
/// nothing, also of what a sender with the old number of queues pushed too late.
#[test]
fn changing_between_one_and_many_disciplines_loses_nothing() {
    let (device, records, notifier, pool) = four_rings(QdiscSpec::default());
    let work = || {
        for _ in 0..20 {
            let mut bells = Vec::new();
            notifier.take(|bell| bells.push(bell));
            for bell in bells {
                let _ = device.run_from_worker(bell - 1, RUN_QUOTA, Time::ZERO);
            }
        }
    };
    records
        .iter()
        .for_each(|r| r.room.store(3, Ordering::Relaxed));
    device.transmit(flows(&pool, 0..100), Time::ZERO);
    assert_eq!(device.stats().queued, 88);
    device
        .set_qdisc(&QdiscSpec::Pfifo { limit: 1000 }, Time::ZERO)
        .unwrap();
    // As a sender does that has read the number of queues before.
    device.queues()[3].transmit(flows(&pool, 100..110), Time::ZERO);
    work();
    assert_eq!((device.stats().queued, device.stats().tx_packets), (98, 12));
    records
        .iter()
        .for_each(|r| r.room.store(5, Ordering::Relaxed));
    device.queues()[0].wake();
    work();
    device.set_qdisc(&QdiscSpec::default(), Time::ZERO).unwrap();
    records
        .iter()
        .for_each(|r| r.room.store(usize::MAX, Ordering::Relaxed));
    device.queues().iter().for_each(TxQueue::wake);
    work();
    let stats = device.stats();
    assert_eq!(
        (stats.queued, stats.tx_packets, stats.dropped()),
        (0, 110, 0)
    );
    let mut all: Vec<u32> = records.iter().flat_map(|r| r.marks()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..110).collect::<Vec<_>>());
    for (ring, record) in records.iter().enumerate() {
        let flows = flows(&pool, 0..110);
        let right = |m: &u32| {
            flows
                .iter()
                .any(|p| p.mark() == *m && select_queue(p, 4) == ring)
        };
        assert!(record.marks().iter().all(right));
    }
    assert_eq!(pool.stats().free, 4096);
}

#[test]
fn a_device_that_is_down_drops_with_a_reason() {
    let bench = Bench::new(QdiscSpec::default());
    bench.record.room.store(0, Ordering::Relaxed);
    bench.send(0..3);
    bench.device.queues()[0].set_active(false);
    bench.send(3..5);
    bench.check(5);
    let drops = bench.device.stats().drops;
    assert_eq!(
        drops,
        [(DropReason::QdiscReset, 3), (DropReason::DeviceDown, 2)]
    );
}

#[test]
fn frames_longer_than_the_mtu_are_dropped() {
    let bench = Bench::new(QdiscSpec::default());
    let list = PacketList::from(frame(&bench.pool, 1, 2, 1523, 0));
    bench.device.transmit(list, Time::ZERO);
    assert_eq!(bench.device.stats().drops, [(DropReason::Mtu, 1)]);
}

/// INV-TX-1, INV-TX-2, INV-TX-3 with real threads, a driver that stalls, and a worker: all is accounted for, nothing is stuck, each sender's
/// packets leave in its order.
#[test]
fn senders_keep_their_order_and_lose_nothing() {
    const SENDERS: u32 = 6;
    let each: u32 = if cfg!(miri) { 20 } else { 5_000 };
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 });
    let offered = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (bench, offered, done) = (&bench, &offered, &done);
            scope.spawn(move || {
                let _done = Done(done);
                let mut n = 0;
                while n < each {
                    let burst = 1 + n % 5;
                    let mut list = PacketList::new();
                    for k in n..(n + burst).min(each) {
                        // A pool that is in use everywhere is back-pressure, not an error.
                        wait_for_buffers(&bench.pool, 1024);
                        list.push_back(frame(&bench.pool, 1, 2, 100, sender << 24 | k));
                    }
                    offered.fetch_add(list.len() as u64, Ordering::Relaxed);
                    n += burst;
                    bench.device.transmit(list, Time::ZERO);
                }
            });
        }
        scope.spawn(|| {
            let mut turn = 0_usize;
            while done.load(Ordering::Acquire) < u64::from(SENDERS) {
                turn += 1;
                bench.record.room.store(turn % 50, Ordering::Relaxed);
                bench.device.queues()[0].wake();
                bench.work(Time::ZERO);
                std::thread::yield_now();
            }
        });
    });
    bench.record.room.store(usize::MAX, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time::ZERO);
    bench.check(offered.load(Ordering::Relaxed));
    assert_eq!(bench.device.stats().queued, 0);
    let marks = bench.record.marks();
    assert!(!marks.is_empty());
    for sender in 0..SENDERS {
        assert!(
            marks.iter().filter(|&&m| m >> 24 == sender).is_sorted(),
            "INV-TX-3"
        );
    }
}
