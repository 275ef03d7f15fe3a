//! What surrounds the queues: maps on a device, byte limits, recursion, watchdog, taking down (INV-TX-10, INV-TX-14, INV-TX-15, INV-TX-16).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::*;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::DropReason;
use softnet::testing::{NoWake, Record, RecordingRing, frame, pool};
use softnet::time::{Clock, Time};
use softnet_tc::QdiscSpec;

fn device<R: TxRing>(qdisc: QdiscSpec, rings: Vec<R>, pool: &Pool) -> (Device<R>, Arc<Notifier>) {
    let notifier = Arc::new(Notifier::new(rings.len() + 1, Arc::new(NoWake)));
    let homes: Vec<_> = (1..=rings.len()).map(|t| (notifier.clone(), t)).collect();
    let config = DeviceConfig {
        name: "t".into(),
        features: Features::default(),
        policy: TxPolicy::default(),
    };
    (
        new_device(config, qdisc, rings, pool, &homes).unwrap(),
        notifier,
    )
}

/// Runs queues as long as a bell rings.
fn work<R: TxRing>(device: &Device<R>, notifier: &Notifier, now: Time) {
    loop {
        let mut bells = Vec::new();
        if !notifier.take(|bell| bells.push(bell)) {
            return;
        }
        for bell in bells {
            let _ = device.run_from_worker(bell - 1, RUN_QUOTA, now);
        }
    }
}

fn flow(pool: &Pool, hash: u32, priority: u32, mark: u32) -> Packet {
    let mut packet = frame(pool, 1, 2, 100, mark);
    packet.set_flow_hash(hash);
    packet.set_priority(priority);
    packet
}

fn rings(n: usize) -> (Vec<RecordingRing>, Vec<Arc<Record>>) {
    (0..n).map(|_| RecordingRing::new()).unzip()
}

/// INV-MQ-2 on a device: a class's packets leave through its rings, below a discipline for each ring and below one for all.
#[test]
fn inv_mq_2_classes_use_their_rings() {
    for qdisc in [QdiscSpec::default(), QdiscSpec::Pfifo { limit: 1000 }] {
        let pool = pool(1024);
        let (rings, records) = rings(4);
        let (device, notifier) = device(qdisc, rings, &pool);
        let map = QueueMap {
            prio_tc_map: std::array::from_fn(|p| u8::from(p == 6)),
            classes: vec![
                TcQueues {
                    count: 3,
                    offset: 0,
                },
                TcQueues {
                    count: 1,
                    offset: 3,
                },
            ],
            ..QueueMap::default()
        };
        device.set_queue_map(&map).unwrap();
        let list = (0..60).map(|n| flow(&pool, n << 26, if n % 3 == 0 { 6 } else { 0 }, n));
        device.transmit(list.collect(), Time::ZERO);
        work(&device, &notifier, Time::ZERO);
        let urgent: Vec<u32> = (0..60).filter(|n| n % 3 == 0).collect();
        assert_eq!(records[3].marks(), urgent);
        let rest: usize = records[..3].iter().map(|r| r.marks().len()).sum();
        assert_eq!(rest, 40);
        assert!(records.iter().all(|r| !r.marks().is_empty()));
        let wrong = QueueMap {
            classes: vec![TcQueues {
                count: 5,
                offset: 0,
            }],
            ..QueueMap::default()
        };
        assert!(device.set_queue_map(&wrong).is_err());
        assert_eq!((device.stats().tx_packets, pool.stats().free), (60, 1024));
    }
}

/// INV-TX-15 with real threads: two threads pass one flow back and forth, each with a queue of its own, and drivers that stall: the flow's order is that
/// of the sending, whichever queues it took.
#[test]
fn inv_tx_15_a_flow_that_changes_threads_keeps_its_order() {
    let rounds: u32 = if cfg!(miri) { 40 } else { 4_000 };
    let pool = pool(4096);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let rings = (0..2)
        .map(|seed| StallingRing {
            sent: sent.clone(),
            random: seed,
        })
        .collect();
    let (device, notifier) = device(QdiscSpec::default(), rings, &pool);
    let map = QueueMap {
        xps_cpus: vec![vec![0], vec![1]],
        ..QueueMap::default()
    };
    device.set_queue_map(&map).unwrap();
    let turn = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for me in 0..2 {
            let (device, turn, pool, refused) = (&device, &turn, &pool, &refused);
            scope.spawn(move || {
                set_sender_cpu(me);
                for round in (0..rounds).filter(|r| *r as usize % 2 == me) {
                    while turn.load(Ordering::Acquire) != round as usize {
                        std::thread::yield_now();
                    }
                    let list = (0..3).map(|n| flow(pool, 5, 0, round * 3 + n));
                    // Looked at in the end: who waits for this thread's turn would wait for ever.
                    if device.transmit(list.collect(), Time::ZERO) != XmitResult::Success {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    // Sometimes everything leaves before the other's turn, so that the flow may move.
                    for _ in 0..1000 {
                        if round % 5 == 0 && !device.is_empty() {
                            std::thread::yield_now();
                        }
                    }
                    turn.store(round as usize + 1, Ordering::Release);
                }
            });
        }
        let (device, notifier, done) = (&device, &notifier, &done);
        let worker = scope.spawn(move || {
            while !done.load(Ordering::Acquire) || !device.is_empty() {
                device.queues().iter().for_each(TxQueue::wake);
                work(device, notifier, Time::ZERO);
                std::thread::yield_now();
            }
        });
        while turn.load(Ordering::Acquire) != rounds as usize {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
        worker.join().unwrap();
    });
    assert_eq!(refused.into_inner(), 0);
    let sent = sent.lock().unwrap();
    let marks: Vec<u32> = sent.iter().map(|s| s.1).collect();
    assert_eq!(marks, (0..rounds * 3).collect::<Vec<_>>());
    assert_eq!(pool.stats().free, 4096);
}

/// Refuses at random, and notes on which ring what was sent.
struct StallingRing {
    sent: Arc<Mutex<Vec<(u32, u32)>>>,
    random: u32,
}

impl TxRing for StallingRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let ring = self.random & 1;
        while !packets.is_empty() {
            self.random = self
                .random
                .wrapping_mul(1_664_525)
                .wrapping_add(2 * 506_952_111);
            if self.random >> 28 == 0 {
                return Xmit::Busy;
            }
            let packet = packets.pop_front().unwrap();
            sent.packets += 1;
            sent.bytes += packet.wire_len();
            self.sent.lock().unwrap().push((ring, packet.mark()));
        }
        Xmit::Complete
    }
}

/// A ring that is done with packets when the test says so.
#[derive(Default)]
struct LaterRing(Arc<Mutex<Later>>);

#[derive(Default)]
struct Later {
    marks: Vec<u32>,
    lengths: Vec<u64>,
    completed: usize,
    reported: usize,
}

impl TxRing for LaterRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let mut later = self.0.lock().unwrap();
        for packet in packets.take() {
            sent.packets += 1;
            sent.bytes += packet.wire_len();
            later.marks.push(packet.mark());
            later.lengths.push(packet.wire_len());
        }
        Xmit::Complete
    }
}

impl Completes for LaterRing {
    fn complete(&mut self) -> u64 {
        let mut later = self.0.lock().unwrap();
        let new = later.reported..later.completed;
        later.reported = later.completed;
        later.lengths[new].iter().sum()
    }
}

/// INV-TX-14 through a queue: the ring holds the limit and one packet at most, what waits stays in the discipline (so an urgent packet overtakes it), and
/// completions and wake-ups empty it.
#[test]
fn inv_tx_14_what_the_ring_need_not_hold_can_be_overtaken() {
    let pool = pool(1024);
    let later = Arc::new(Mutex::new(Later::default()));
    let bounds = DqlBounds { min: 500, max: 500 };
    let ring = ByteLimited::new(LaterRing(later.clone()), bounds, Time::ZERO);
    let (device, notifier) = device(QdiscSpec::default(), vec![ring], &pool);
    device.transmit((0..50).map(|n| flow(&pool, 0, 0, n)).collect(), Time::ZERO);
    work(&device, &notifier, Time::ZERO);
    assert_eq!(
        later.lock().unwrap().marks,
        [0, 1, 2, 3, 4, 5],
        "500 bytes and one packet"
    );
    assert_eq!(device.stats().queued, 44);
    assert_eq!(
        device.stats().queues[0].qdisc.requeues,
        0,
        "none left the discipline in vain"
    );
    device.transmit(flow(&pool, 0, 6, 100).into(), Time::ZERO);
    let mut now = Time::ZERO;
    let mut rounds = 0;
    while !device.is_empty() {
        rounds += 1;
        assert!(rounds < 100, "starved: {:?}", device.stats());
        now = now.plus_nanos(1_000_000);
        let in_flight = {
            let mut later = later.lock().unwrap();
            later.completed = (later.completed + 3).min(later.marks.len());
            later.lengths[later.completed..].iter().sum::<u64>()
        };
        assert!(in_flight <= 600);
        device.queues()[0].wake();
        work(&device, &notifier, now);
    }
    let marks = later.lock().unwrap().marks.clone();
    assert_eq!(marks[6], 100, "the urgent packet went next");
    assert_eq!(marks[7..], (6..50).collect::<Vec<_>>()[..]);
    assert_eq!(device.stats().tx_packets, 51);
}

/// A driver that sends through another device, and the devices of one test.
struct StackedRing {
    next: Arc<OnceLock<Weak<Device<StackedRing>>>>,
}

impl TxRing for StackedRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        for packet in packets.take() {
            sent.packets += 1;
            sent.bytes += packet.wire_len();
            if let Some(next) = self.next.get().and_then(Weak::upgrade) {
                next.transmit(packet.into(), Time::ZERO);
            }
        }
        Xmit::Complete
    }
}

fn stack(n: usize, pool: &Pool) -> Vec<Arc<Device<StackedRing>>> {
    let links: Vec<Arc<OnceLock<_>>> = (0..n).map(|_| Arc::default()).collect();
    let devices: Vec<_> = links
        .iter()
        .map(|next| {
            let ring = StackedRing { next: next.clone() };
            Arc::new(device(QdiscSpec::Noqueue, vec![ring], pool).0)
        })
        .collect();
    for (link, next) in links.iter().zip(&devices[1..]) {
        let _ = link.set(Arc::downgrade(next));
    }
    devices
}

/// INV-TX-16: nine devices without a queue may stand on one another, the tenth drops; a loop ends at once; and what other threads send is never
/// taken for either.
#[test]
fn inv_tx_16_recursion_ends_in_a_drop() {
    let pool = pool(256);
    let devices = stack(12, &pool);
    assert_eq!(
        devices[0].transmit(flow(&pool, 0, 0, 0).into(), Time::ZERO),
        XmitResult::Success
    );
    let sent: Vec<u64> = devices.iter().map(|d| d.stats().tx_packets).collect();
    assert_eq!(sent, [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]);
    assert_eq!(devices[9].stats().drops, [(DropReason::RecursionLimit, 1)]);

    let ring = StackedRing {
        next: Arc::default(),
    };
    let link = ring.next.clone();
    let own = Arc::new(device(QdiscSpec::Noqueue, vec![ring], &pool).0);
    let _ = link.set(Arc::downgrade(&own));
    own.transmit(flow(&pool, 0, 0, 0).into(), Time::ZERO);
    assert_eq!(
        (own.stats().tx_packets, own.stats().drops),
        (1, vec![(DropReason::RecursionLimit, 1)])
    );

    let devices = stack(3, &pool);
    // What bounded runs leave.
    let serve = |devices: &[Arc<Device<StackedRing>>]| {
        devices.iter().for_each(|device| {
            let _ = device.run_from_worker(0, RUN_QUOTA, Time::ZERO);
        });
    };
    let each = if cfg!(miri) { 10 } else { 2_000 };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..each {
                    devices[0].transmit(flow(&pool, 0, 0, n).into(), Time::ZERO);
                    while devices.iter().any(|d| d.queues()[0].waiting() > 20) {
                        serve(&devices);
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    while devices.iter().any(|d| !d.is_empty()) {
        serve(&devices);
    }
    for device in &devices {
        assert_eq!(
            (device.stats().tx_packets, device.stats().dropped()),
            (4 * u64::from(each), 0)
        );
    }
    assert_eq!(pool.stats().free, 256);
}

/// BUG-TX-9: one discipline feeds two rings, and one of them is full: what waits for it is not overtaken by later packets of its flow, and nothing of it is
/// lost.
#[test]
fn bug_tx_9_a_full_ring_reorders_no_flow() {
    let pool = pool(256);
    let (rings, records) = rings(2);
    let (device, notifier) = device(QdiscSpec::Pfifo { limit: 200 }, rings, &pool);
    records[1].room.store(1, Ordering::Relaxed);
    let flows = |marks: std::ops::Range<u32>| -> PacketList {
        marks.map(|n| flow(&pool, n << 31, 0, n)).collect()
    };
    device.transmit(flows(0..20), Time::ZERO);
    work(&device, &notifier, Time::ZERO);
    records[1].room.store(3, Ordering::Relaxed);
    device.queues()[0].wake();
    device.transmit(flows(20..40), Time::ZERO);
    work(&device, &notifier, Time::ZERO);
    assert!(device.stats().queued > 0);
    records[1].room.store(usize::MAX, Ordering::Relaxed);
    device.queues()[0].wake();
    work(&device, &notifier, Time::ZERO);
    for (parity, record) in (0..).zip(&records) {
        let all: Vec<u32> = (0..40).filter(|n| n % 2 == parity).collect();
        assert_eq!(record.marks(), all);
    }
    assert_eq!((device.stats().tx_packets, pool.stats().free), (40, 256));
}

/// INV-TX-17: a large frame counts as its wire packets and bytes, once, whether it went past the discipline or through it.
#[test]
fn inv_tx_17_large_frames_are_counted_once_by_segment() {
    for room in [usize::MAX, 0] {
        let pool = pool(16);
        let (rings, records) = rings(1);
        let notifier = Arc::new(Notifier::new(2, Arc::new(NoWake)));
        let config = DeviceConfig {
            name: "large".into(),
            features: Features {
                tso4: true,
                ..Features::default()
            },
            policy: TxPolicy::default(),
        };
        let device = new_device(
            config,
            QdiscSpec::default(),
            rings,
            &pool,
            &[(notifier.clone(), 1)],
        )
        .unwrap();
        records[0].room.store(room, Ordering::Relaxed);
        let mut large = frame(&pool, 1, 2, 54 + 5 * 100, 0);
        large.set_gso(Some(softnet::wire::Gso {
            kind: softnet::wire::GsoKind::TcpV4,
            ecn: false,
            size: 100,
            segments: 5,
            header_len: 54,
        }));
        device.transmit(large.into(), Time::ZERO);
        let queued = if room == 0 { 5 } else { 0 };
        assert_eq!(device.stats().queued, queued);
        records[0].room.store(usize::MAX, Ordering::Relaxed);
        device.queues()[0].wake();
        work(&device, &notifier, Time::ZERO);
        let stats = device.stats();
        let bytes = 5 * (54 + 100);
        assert_eq!(
            (stats.tx_packets, stats.tx_bytes, stats.queued),
            (5, bytes, 0)
        );
        let qdisc = stats.queues[0].qdisc;
        assert_eq!((qdisc.packets, qdisc.bytes), (5, bytes));
    }
}

/// Takes nothing until it is restarted.
struct StuckRing(Arc<AtomicBool>);

impl TxRing for StuckRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        if self.0.load(Ordering::Relaxed) {
            return Xmit::Busy;
        }
        let packets = packets.take();
        sent.packets += packets.wire_packets();
        Xmit::Complete
    }
    fn restart(&mut self, _: Time) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A driver that has taken nothing for five seconds is restarted, once, and what waited leaves.
#[test]
fn bug_tx_23_the_watchdog_restarts_a_stuck_driver_and_no_other() {
    let pool = pool(64);
    let stuck = Arc::new(AtomicBool::new(true));
    let (device, notifier) = device(QdiscSpec::default(), vec![StuckRing(stuck.clone())], &pool);
    let at = |millis: u64| Time(millis * 1_000_000);
    assert_eq!(device.watchdog(at(100_000)), 0, "idle");
    device.transmit(flow(&pool, 0, 0, 0).into(), at(1_000));
    device.transmit(flow(&pool, 0, 0, 1).into(), at(5_000));
    assert_eq!(device.watchdog(at(5_999)), 0);
    assert_eq!(device.watchdog(at(6_000)), 1);
    work(&device, &notifier, at(6_000));
    assert_eq!(
        (device.stats().tx_packets, device.stats().tx_timeouts),
        (2, 1)
    );
    assert_eq!(device.watchdog(at(60_000)), 0);
    stuck.store(true, Ordering::Relaxed);
    device.transmit(flow(&pool, 0, 0, 2).into(), at(60_000));
    device.deactivate();
    assert_eq!(device.watchdog(at(100_000)), 0, "a device that is down");
}

/// INV-TX-10, BUG-TX-3, BUG-TX-5, BUG-TX-6: threads send all the time while the device goes down and up. When `deactivate` has returned nothing reaches the
/// driver, and nothing that was sent is lost without a reason.
#[test]
fn inv_tx_10_nothing_is_sent_or_kept_while_down() {
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let pool = pool(4096);
    let (rings, records) = rings(2);
    let (device, notifier) = device(QdiscSpec::default(), rings, &pool);
    let stop = AtomicBool::new(false);
    let offered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for sender in 0..3u32 {
            let (device, stop, offered, pool) = (&device, &stop, &offered, &pool);
            scope.spawn(move || {
                let mut n = sender;
                while !stop.load(Ordering::Relaxed) {
                    n = n.wrapping_add(0x3779_79B9);
                    let list: PacketList =
                        (0..1 + n % 3).map(|k| flow(pool, n ^ k, 0, k)).collect();
                    offered.fetch_add(list.len() as u64, Ordering::Relaxed);
                    device.transmit(list, Time::ZERO);
                    std::thread::yield_now();
                }
            });
        }
        for round in 0..rounds {
            // Some rounds leave packets in the queues, and a refused batch.
            let room = if round % 2 == 0 { 5 } else { usize::MAX };
            records
                .iter()
                .for_each(|r| r.room.store(room, Ordering::Relaxed));
            device.queues().iter().for_each(TxQueue::wake);
            work(&device, &notifier, Time::ZERO);
            std::thread::yield_now();
            device.deactivate();
            assert!(!device.is_active());
            let before: usize = records.iter().map(|r| r.marks().len()).sum();
            records
                .iter()
                .for_each(|r| r.room.store(usize::MAX, Ordering::Relaxed));
            for _ in 0..20 {
                work(&device, &notifier, Time::ZERO);
                std::thread::yield_now();
            }
            let after: usize = records.iter().map(|r| r.marks().len()).sum();
            assert_eq!(before, after, "sent while down");
            device.activate();
        }
        stop.store(true, Ordering::Relaxed);
    });
    device.deactivate();
    let stats = device.stats();
    assert_eq!(stats.queued, 0);
    assert_eq!(
        offered.into_inner(),
        stats.tx_packets + stats.dropped(),
        "{stats:?}"
    );
    let reasons = [
        DropReason::QdiscReset,
        DropReason::DeviceDown,
        DropReason::QdiscLimit,
    ];
    assert!(
        stats.drops.iter().all(|d| reasons.contains(&d.0)),
        "{stats:?}"
    );
    assert_eq!(pool.stats().free, 4096);
}

/// Calls, batches and times in the queue are measured, and cost no packet.
#[test]
fn distributions_are_sampled() {
    let pool = pool(256);
    let (rings, records) = rings(1);
    let (device, notifier) = device(QdiscSpec::default(), rings, &pool);
    device.measure(Clock::monotonic());
    records[0].room.store(0, Ordering::Relaxed);
    for n in 0..100 {
        let mut packet = flow(&pool, 0, 0, n);
        packet.set_timestamp(Time(1_000));
        device.transmit(packet.into(), Time(1_000));
    }
    records[0].room.store(usize::MAX, Ordering::Relaxed);
    device.queues()[0].wake();
    work(&device, &notifier, Time(2_000));
    let many = if cfg!(miri) { 2_000 } else { 20_000 };
    for n in 0..many {
        let mut packet = flow(&pool, 0, 0, n);
        packet.set_timestamp(Time(3_000));
        device.transmit(packet.into(), Time(3_500));
    }
    let stats = device.stats();
    assert_eq!(stats.tx_packets, 100 + u64::from(many));
    let Distributions {
        call_ns,
        sojourn_ns,
        batch,
    } = stats.distributions;
    for (what, counts) in [
        ("calls", &call_ns),
        ("sojourn", &sojourn_ns),
        ("batches", &batch),
    ] {
        assert!(
            (u64::from(many) / 256..u64::from(many) / 64).contains(&counts.total()),
            "{what}: {counts:?}"
        );
    }
    assert_eq!(
        sojourn_ns.percentile(0.9),
        Some(383.5),
        "500 ns lie in [256, 512)"
    );
}
