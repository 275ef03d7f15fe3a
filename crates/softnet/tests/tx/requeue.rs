//! One discipline, several rings: a full one holds back its own packets only, in their order, and what waits for it is counted wherever a queue's packets are
//! (INV-TX-4, INV-TX-6, INV-TX-7, INV-TX-11, BUG-TX-9).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bench::Bench;
use super::*;
use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::testing::{Done, Record, RecordingRing, wait_for_buffers};
use softnet::time::Time;
use softnet_tc::{PrioSpec, QdiscSpec, TbfSpec};

fn records(n: usize) -> (Vec<RecordingRing>, Vec<Arc<Record>>) {
    (0..n).map(|_| RecordingRing::new()).unzip()
}

fn parity(mark: u32) -> u16 {
    (mark % 2) as u16
}

fn marks_of(ring: u16, marks: std::ops::Range<u32>) -> Vec<u32> {
    marks.filter(|&m| parity(m) == ring).collect()
}

#[test]
fn inv_tx_4_a_full_ring_holds_back_its_own_packets_only() {
    let (rings, records) = records(2);
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, rings);
    records[1].room.store(3, Ordering::Relaxed);
    bench.send(0..200, parity, Time::ZERO);
    bench.work(Time::ZERO);
    assert_eq!(records[0].marks(), marks_of(0, 0..200));
    assert_eq!(records[1].marks(), [1, 3, 5]);
    bench.check(200);
    // INV-TX-7: of the batch that the ring refused the rest was given back; what came later was never offered.
    let stats = bench.device.stats().qdisc();
    assert_eq!((stats.qlen, stats.requeues), (97, 29));
    // INV-TX-11: the ring is left alone, however much comes for it, and nobody runs for it.
    let calls = records[1].calls.load(Ordering::Relaxed);
    for n in 0..50 {
        bench.send(200 + 2 * n..202 + 2 * n, parity, Time::ZERO);
    }
    assert_eq!(bench.work(Time::ZERO), 0);
    assert_eq!(records[1].calls.load(Ordering::Relaxed), calls);
    assert_eq!(records[0].marks(), marks_of(0, 0..300));
    bench.check(300);
    // A little room, then all.
    records[1].room.store(10, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time::ZERO);
    assert_eq!(records[1].marks(), marks_of(1, 0..26));
    bench.check(300);
    records[1].room.store(usize::MAX, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time::ZERO);
    assert_eq!(records[1].marks(), marks_of(1, 0..300));
    bench.check(300);
    assert_eq!(bench.device.stats().tx_packets, 300);
}

/// At the bound the discipline stops, and its own limit applies; it goes on when the ring wakes.
#[test]
fn what_waits_for_a_full_ring_is_bounded() {
    let (rings, records) = records(2);
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 500 }, rings);
    records[1].room.store(0, Ordering::Relaxed);
    bench.send(0..1000, |_| 1, Time::ZERO);
    bench.work(Time::ZERO);
    bench.send(1000..2000, |_| 1, Time::ZERO);
    bench.work(Time::ZERO);
    bench.check(2000);
    let most = REQUEUE_LIMIT + RUN_QUOTA - 1 + 500;
    let queued = bench.device.stats().queued as usize;
    assert!((REQUEUE_LIMIT + 500..=most).contains(&queued), "{queued}");
    assert_eq!(records[1].calls.load(Ordering::Relaxed), 1);
    // Now the other ring waits, too.
    let dropped = bench.device.stats().dropped();
    bench.send(2000..2002, |_| 0, Time::ZERO);
    assert_eq!(bench.device.stats().dropped(), dropped + 2);
    assert!(records[0].marks().is_empty());
    records[1].room.store(700, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time::ZERO);
    bench.send(2002..2003, |_| 0, Time::ZERO);
    bench.work(Time::ZERO);
    assert_eq!(records[0].marks(), [2002]);
    records[1].room.store(usize::MAX, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time::ZERO);
    assert!(records[1].marks().is_sorted());
    bench.check(2003);
    assert!(bench.device.is_empty());
}

/// Also while a shaper holds the rest back: the timer runs, and the watchdog sees the ring.
#[test]
fn a_shaped_device_goes_on_by_timer_beside_a_full_ring() {
    let (rings, records) = records(2);
    let tbf = TbfSpec {
        rate: 100_000,
        burst: 400,
        limit: 10_000,
        ..TbfSpec::default()
    };
    let bench = Bench::new(QdiscSpec::Tbf(tbf), rings);
    records[1].room.store(0, Ordering::Relaxed);
    bench.send(0..10, parity, Time::ZERO);
    assert_eq!(records[0].marks(), [0, 2]);
    for milli in 1..=6 {
        let now = Time(milli * 1_000_000);
        bench.notifier.notify(1);
        bench.work(now);
    }
    assert_eq!(records[0].marks(), [0, 2, 4, 6, 8]);
    bench.check(10);
    // Tokens that were spent are not spent again.
    records[1].room.store(usize::MAX, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time(6_000_000));
    assert_eq!(records[1].marks(), [1, 3, 5, 7, 9]);
    bench.check(10);
}

/// BUG-TX-23: the others' progress does not hide that a ring is stuck, and a ring that works is not restarted.
#[test]
fn bug_tx_23_the_watchdog_sees_one_stuck_ring_among_others() {
    let (rings, records) = records(3);
    let restarted: Vec<_> = (0..3).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let rings = rings
        .into_iter()
        .zip(&restarted)
        .map(|(ring, restarts)| Restarting {
            ring,
            restarts: restarts.clone(),
        })
        .collect();
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, rings);
    let ring = |mark: u32| (mark % 3) as u16;
    let at = |seconds: u64| Time(seconds * 1_000_000_000);
    records[1].room.store(0, Ordering::Relaxed);
    records[2].room.store(0, Ordering::Relaxed);
    for second in 1..6_u32 {
        let now = at(second.into());
        bench.send(3 * second..3 * second + 3, ring, now);
        // Ring 2 is slow, but alive.
        records[2].room.store(1, Ordering::Relaxed);
        bench.device.queues()[0].wake();
        bench.work(now);
        assert_eq!(bench.device.watchdog(now), 0);
    }
    assert_eq!(bench.device.watchdog(at(6)), 1);
    let restarts = || {
        let each = restarted.iter().map(|r| r.load(Ordering::Relaxed));
        each.collect::<Vec<_>>()
    };
    assert_eq!(restarts(), [0, 1, 0]);
    bench.work(at(6));
    // It did not help: the next is due five seconds after the driver refused again.
    assert_eq!(bench.device.watchdog(at(10)), 0);
    records[1].room.store(usize::MAX, Ordering::Relaxed);
    records[2].room.store(usize::MAX, Ordering::Relaxed);
    assert_eq!(bench.device.watchdog(at(11)), 1);
    bench.work(at(11));
    assert_eq!(restarts()[1], 2);
    bench.device.queues()[0].wake();
    bench.work(at(11));
    bench.check(15);
    assert!(bench.device.is_empty());
    assert_eq!(bench.device.watchdog(at(100)), 0);
}

/// A ring that counts its restarts.
struct Restarting {
    ring: RecordingRing,
    restarts: Arc<AtomicU64>,
}

impl TxRing for Restarting {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        self.ring.xmit(packets, sent)
    }
    fn restart(&mut self, _: Time) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }
}

/// Another discipline of the same kind of place leaves the lists as they are; one for each ring takes them over, ahead of what the old one held; a change
/// does not touch them; going down drops them, with a reason. The driver wakes the queue of its ring, whichever queue feeds it.
#[test]
fn inv_tx_6_the_lists_are_part_of_the_queue() {
    let (rings, records) = records(4);
    let ring = |mark: u32| (mark % 4) as u16;
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, rings);
    records[2].room.store(0, Ordering::Relaxed);
    let mut sent = 0;
    let mut send = |count: u32| {
        bench.send(sent..sent + count, ring, Time::ZERO);
        sent += count;
        bench.work(Time::ZERO);
        bench.check(sent.into());
    };
    send(40);
    assert_eq!(bench.device.stats().queued, 10);
    let set = |spec: &QdiscSpec| {
        bench.device.set_qdisc(spec, Time::ZERO).unwrap();
        bench.work(Time::ZERO);
    };
    set(&QdiscSpec::Prio(PrioSpec::default()));
    let change = QdiscSpec::Prio(PrioSpec {
        bands: 2,
        priomap: [1; 16],
    });
    bench.device.change_qdisc(&change, Time::ZERO).unwrap();
    bench.work(Time::ZERO);
    assert_eq!(bench.device.stats().queued, 10);
    send(40);
    assert_eq!(bench.device.stats().queued, 20);
    // One discipline at each ring.
    set(&QdiscSpec::default());
    assert_eq!(bench.device.stats().queues[2].qdisc.qlen, 20);
    assert_eq!(bench.device.stats().queues[0].qdisc.qlen, 0);
    send(40);
    // And one for all again.
    set(&QdiscSpec::Pfifo { limit: 1000 });
    assert_eq!(bench.device.stats().queues[0].qdisc.qlen, 30);
    send(40);
    records[2].room.store(35, Ordering::Relaxed);
    bench.device.queues()[2].wake();
    bench.work(Time::ZERO);
    for (at, record) in records.iter().enumerate() {
        let all = (0..160).filter(|m| m % 4 == at as u32);
        let got = if at == 2 { 35 } else { 40 };
        assert_eq!(record.marks(), all.take(got).collect::<Vec<_>>());
    }
    bench.check(160);
    bench.device.deactivate();
    bench.check(160);
    assert_eq!(bench.device.stats().drops, [(DropReason::QdiscReset, 5)]);
    bench.device.activate();
    records[2].room.store(usize::MAX, Ordering::Relaxed);
    send(4);
    assert!(bench.device.is_empty());
    assert_eq!(records[2].marks().last(), Some(&162));
}

/// New rings are tried with what waits for those that they replace.
#[test]
fn what_waits_for_a_ring_goes_to_the_one_that_replaces_it() {
    let (rings, old) = records(2);
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, rings);
    old[0].room.store(0, Ordering::Relaxed);
    bench.send(0..20, parity, Time::ZERO);
    let (rings, new) = records(2);
    bench.device.replace_rings(rings);
    bench.work(Time::ZERO);
    assert_eq!(new[0].marks(), marks_of(0, 0..20));
    assert_eq!(old[1].marks(), marks_of(1, 0..20));
    bench.check(20);
}

/// What a run may send bounds what it tries again, too (INV-TX-12), and what it did not come to is done by the next.
#[test]
fn inv_tx_12_rings_that_wake_together_share_the_quota() {
    let (rings, records) = records(4);
    let ring = |mark: u32| (mark % 4) as u16;
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, rings);
    records
        .iter()
        .for_each(|r| r.room.store(0, Ordering::Relaxed));
    bench.send(0..400, ring, Time::ZERO);
    bench.work(Time::ZERO);
    assert_eq!(bench.device.stats().tx_packets, 0);
    records
        .iter()
        .for_each(|r| r.room.store(usize::MAX, Ordering::Relaxed));
    bench.device.queues()[0].wake();
    assert_eq!(bench.device.run_from_worker(0, RUN_QUOTA, Time::ZERO), None);
    assert_eq!(bench.device.stats().tx_packets, RUN_QUOTA as u64);
    bench.work(Time::ZERO);
    for (at, record) in records.iter().enumerate() {
        let all: Vec<u32> = (0..400).filter(|m| m % 4 == at as u32).collect();
        assert_eq!(record.marks(), all);
    }
    bench.check(400);
}

/// A driver that completes later is asked how much it has room for, and so gets to say what is done.
#[test]
fn byte_limits_hold_for_each_of_several_rings() {
    let later: Vec<_> = (0..2).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let bounds = DqlBounds { min: 500, max: 500 };
    let rings = later
        .iter()
        .map(|in_flight| {
            let ring = LaterRing {
                in_flight: in_flight.clone(),
                completed: 0,
            };
            ByteLimited::new(ring, bounds, Time::ZERO)
        })
        .collect();
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, rings);
    bench.send(0..100, parity, Time::ZERO);
    bench.work(Time::ZERO);
    let mut turns = 0;
    while !bench.device.is_empty() {
        turns += 1;
        assert!(turns < 100, "starved: {:?}", bench.device.stats());
        for in_flight in &later {
            assert!(in_flight.load(Ordering::Relaxed) <= 600);
            in_flight.store(0, Ordering::Relaxed);
        }
        bench.device.queues()[0].wake();
        bench.work(Time(turns * 1_000_000));
    }
    assert_eq!(bench.device.stats().tx_packets, 100);
    bench.check(100);
}

/// Holds bytes until the test takes them out.
struct LaterRing {
    in_flight: Arc<AtomicU64>,
    completed: u64,
}

impl TxRing for LaterRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        for packet in packets.take() {
            sent.packets += 1;
            sent.bytes += packet.wire_len();
            self.completed += packet.wire_len();
            self.in_flight
                .fetch_add(packet.wire_len(), Ordering::Relaxed);
        }
        Xmit::Complete
    }
}

impl Completes for LaterRing {
    fn complete(&mut self) -> u64 {
        let left = self.in_flight.load(Ordering::Relaxed);
        let done = self.completed - left;
        self.completed = left;
        done
    }
}

/// With real threads and rings that stall, each in its own time: nothing is stuck, nothing is lost, and no flow is out of order, also where one ring is full most
/// of the time (INV-TX-1 to -4, BUG-TX-9).
#[test]
fn rings_that_stall_at_random_reorder_and_lose_nothing() {
    const SENDERS: u32 = 4;
    const RINGS: u32 = 3;
    let each: u32 = if cfg!(miri) { 40 } else { 8_000 };
    let (rings, records) = records(RINGS as usize);
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 600 }, rings);
    let offered = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (bench, offered, done) = (&bench, &offered, &done);
            scope.spawn(move || {
                let _done = Done(done);
                let mut random = sender + 1;
                let mut n = 0;
                while n < each {
                    wait_for_buffers(&bench.pool, 512);
                    let mut list = PacketList::new();
                    // A flow for each sender and ring.
                    for _ in 0..1 + n % 7 {
                        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let ring = (random >> 16) % RINGS;
                        list.push_back(bench.packet(ring as u16, sender << 24 | n));
                        n += 1;
                    }
                    offered.fetch_add(list.len() as u64, Ordering::Relaxed);
                    bench.device.transmit(list, Time::ZERO);
                    if n % 64 < 7 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let (bench, records, done) = (&bench, &records, &done);
        scope.spawn(move || {
            let mut random = 7_u32;
            while done.load(Ordering::Acquire) < u64::from(SENDERS) {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let ring = (random >> 16) % RINGS;
                // The last ring has room once in a while only.
                let room = if ring == RINGS - 1 { 5 } else { 200 };
                records[ring as usize]
                    .room
                    .store((random >> 8) as usize % room, Ordering::Relaxed);
                // The driver has room, but has not said so.
                std::thread::yield_now();
                bench.device.queues()[ring as usize].wake();
                bench.work(Time::ZERO);
                std::thread::yield_now();
            }
        });
    });
    for record in &records {
        record.room.store(usize::MAX, Ordering::Relaxed);
    }
    bench.device.queues()[1].wake();
    bench.work(Time::ZERO);
    bench.check(offered.into_inner());
    let stats = bench.device.stats();
    assert_eq!(stats.queued, 0, "INV-TX-2");
    let reasons = [DropReason::QdiscLimit, DropReason::QdiscBurst];
    assert!(stats.drops.iter().all(|d| reasons.contains(&d.0)));
    for record in &records {
        let marks = record.marks();
        assert!(!marks.is_empty());
        for sender in 0..SENDERS {
            let own = marks.iter().filter(|&&m| m >> 24 == sender);
            assert!(own.is_sorted_by(|a, b| a < b), "INV-TX-3, INV-TX-4");
        }
    }
}
