//! One qdisc, several rings: a full one holds back its own packets only, in their order, and its
//! requeue list is counted (INV-TX-4, INV-TX-6, INV-TX-7, INV-TX-11, BUG-TX-9).

use super::*;
use softnet::stats::DropReason;
use softnet::testing::Random;
use softnet_tc::PrioSpec;

fn parity(mark: u32) -> u16 {
    (mark % 2) as u16
}

fn marks_of(ring: u16, marks: std::ops::Range<u32>) -> Vec<u32> {
    marks.filter(|&m| parity(m) == ring).collect()
}

#[test]
fn inv_tx_4_a_full_ring_holds_back_its_own_packets_only() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 2);
    bench.scripts[1].set_capacity(3);
    bench.send_to(parity, 0..200, Time::ZERO);
    bench.work(Time::ZERO);
    assert_eq!(bench.marks(0), marks_of(0, 0..200));
    assert_eq!(bench.marks(1), [1, 3, 5]);
    bench.check(200);
    // INV-TX-7: the rest of the batch that the ring refused was given back; what came later was
    // never offered.
    let stats = bench.device.stats().qdisc();
    assert_eq!((stats.qlen, stats.requeues), (97, 29));
    // INV-TX-11: the ring is left alone, however much comes for it, and nobody runs for it.
    let calls = bench.scripts[1].calls().len();
    for n in 0..50 {
        bench.send_to(parity, 200 + 2 * n..202 + 2 * n, Time::ZERO);
    }
    assert_eq!(bench.work(Time::ZERO).runs, 0);
    assert_eq!(bench.scripts[1].calls().len(), calls);
    assert_eq!(bench.marks(0), marks_of(0, 0..300));
    bench.check(300);
    // A little capacity, then all.
    bench.scripts[1].set_capacity(10);
    bench.wake(Time::ZERO);
    assert_eq!(bench.marks(1), marks_of(1, 0..26));
    bench.check(300);
    bench.resume(Time::ZERO);
    assert_eq!(bench.marks(1), marks_of(1, 0..300));
    bench.check(300);
    assert_eq!(bench.device.stats().tx_packets, 300);
}

/// At the bound the qdisc stops, and its own limit applies; it goes on when the ring wakes.
#[test]
fn what_waits_for_a_full_ring_is_bounded() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 500 }, 2);
    bench.scripts[1].set_capacity(0);
    bench.send_to(|_| 1, 0..1000, Time::ZERO);
    bench.work(Time::ZERO);
    bench.send_to(|_| 1, 1000..2000, Time::ZERO);
    bench.work(Time::ZERO);
    bench.check(2000);
    let most = REQUEUE_LIMIT + RUN_QUOTA - 1 + 500;
    let queued = bench.device.stats().queued as usize;
    assert!((REQUEUE_LIMIT + 500..=most).contains(&queued), "{queued}");
    assert_eq!(bench.scripts[1].calls().len(), 1);
    // Now the other ring waits, too.
    let dropped = bench.device.stats().dropped();
    bench.send(2000..2002);
    assert_eq!(bench.device.stats().dropped(), dropped + 2);
    assert!(bench.marks(0).is_empty());
    bench.scripts[1].set_capacity(700);
    bench.wake(Time::ZERO);
    bench.send(2002..2003);
    bench.work(Time::ZERO);
    assert_eq!(bench.marks(0), [2002]);
    bench.resume(Time::ZERO);
    assert!(bench.marks(1).is_sorted());
    bench.check(2003);
    assert!(bench.device.is_empty());
}

/// Also while a shaper holds the rest back: the timer runs, and the watchdog sees the ring.
#[test]
fn a_shaped_device_goes_on_by_timer_beside_a_full_ring() {
    let bench = scripted(shaped(100_000, 400, 10_000), 2);
    bench.scripts[1].set_capacity(0);
    bench.send_to(parity, 0..10, Time::ZERO);
    assert_eq!(bench.marks(0), [0, 2]);
    for milli in 1..=6 {
        let now = Time(milli * 1_000_000);
        bench.notifier.notify(1);
        bench.work(now);
    }
    assert_eq!(bench.marks(0), [0, 2, 4, 6, 8]);
    bench.check(10);
    // Tokens that were spent are not spent again.
    bench.resume(Time(6_000_000));
    assert_eq!(bench.marks(1), [1, 3, 5, 7, 9]);
    bench.check(10);
}

/// BUG-TX-23: the others' progress does not hide that a ring is stuck, and a ring that works is
/// not restarted.
#[test]
fn bug_tx_23_the_watchdog_sees_one_stuck_ring_among_others() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 3);
    let ring = |mark: u32| (mark % 3) as u16;
    let at = |seconds: u64| Time(seconds * 1_000_000_000);
    bench.scripts[1].set_capacity(0);
    bench.scripts[2].set_capacity(0);
    for second in 1..6_u32 {
        let now = at(second.into());
        bench.send_to(ring, 3 * second..3 * second + 3, now);
        // Ring 2 is slow, but alive.
        bench.scripts[2].set_capacity(1);
        bench.wake(now);
        assert_eq!(bench.device.watchdog(now), 0);
    }
    assert_eq!(bench.device.watchdog(at(6)), 1);
    let restarts = |ring: usize| bench.scripts[ring].restarts().len();
    assert_eq!([0, 1, 2].map(restarts), [0, 1, 0]);
    bench.work(at(6));
    // It did not help: the next is due five seconds after the driver refused again.
    assert_eq!(bench.device.watchdog(at(10)), 0);
    bench.set_capacity(usize::MAX);
    assert_eq!(bench.device.watchdog(at(11)), 1);
    bench.work(at(11));
    assert_eq!(restarts(1), 2);
    bench.wake(at(11));
    bench.check(15);
    assert!(bench.device.is_empty());
    assert_eq!(bench.device.watchdog(at(100)), 0);
}

/// BUG-TX-23: a ring that had no capacity, and later no limit, is not full since then.
#[test]
fn bug_tx_23_a_ring_that_has_no_limit_any_more_is_not_stuck() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 1);
    let at = |seconds: u64| Time(seconds * 1_000_000_000);
    let script = &bench.scripts[0];
    script.set_byte_limit(500);
    bench.send_to(|_| 0, 0..30, at(1));
    bench.work(at(1));
    assert!(script.marks().len() < 30);
    script.set_byte_limit(u64::MAX);
    bench.wake(at(2));
    assert_eq!(script.marks().len(), 30);
    // It is full again, for a moment.
    script.set_byte_limit(500);
    bench.send_to(|_| 0, 30..60, at(20));
    bench.work(at(20));
    assert_eq!(script.marks().len(), 30);
    assert_eq!(bench.device.watchdog(at(21)), 0);
    assert_eq!(bench.device.watchdog(at(25)), 1);
}

/// Another qdisc of one queue leaves the requeue lists as they are; one qdisc a ring takes them
/// over, ahead of what the old one held. A change does not touch them. A device that goes down
/// drops them, with a reason. The driver wakes the queue of its ring, whichever queue feeds it.
#[test]
fn inv_tx_6_the_lists_are_part_of_the_queue() {
    let ring = |mark: u32| (mark % 4) as u16;
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 4);
    bench.scripts[2].set_capacity(0);
    let mut sent = 0;
    let mut send = |count: u32| {
        bench.send_to(ring, sent..sent + count, Time::ZERO);
        sent += count;
        bench.work(Time::ZERO);
        bench.check(sent.into());
    };
    send(40);
    assert_eq!(bench.device.stats().queued, 10);
    let set = |spec: &QdiscSpec| {
        bench.set(spec);
        bench.work(Time::ZERO);
    };
    set(&QdiscSpec::Prio(PrioSpec::default()));
    let change = QdiscSpec::Prio(PrioSpec {
        bands: 2,
        priomap: [1; 16],
    });
    bench.device.change_qdisc(0, &change).unwrap();
    bench.work(Time::ZERO);
    assert_eq!(bench.device.stats().queued, 10);
    send(40);
    assert_eq!(bench.device.stats().queued, 20);
    // One qdisc at each ring.
    set(&QdiscSpec::default());
    assert_eq!(bench.device.stats().queues[2].qdisc.qlen, 20);
    assert_eq!(bench.device.stats().queues[0].qdisc.qlen, 0);
    send(40);
    // And one for all again.
    set(&QdiscSpec::Pfifo { limit: 1000 });
    assert_eq!(bench.device.stats().queues[0].qdisc.qlen, 30);
    send(40);
    bench.scripts[2].set_capacity(35);
    bench.device.queues()[2].wake();
    bench.work(Time::ZERO);
    for (at, script) in bench.scripts.iter().enumerate() {
        let all = (0..160).filter(|m| m % 4 == at as u32);
        let got = if at == 2 { 35 } else { 40 };
        assert_eq!(script.marks(), all.take(got).collect::<Vec<_>>());
    }
    bench.check(160);
    bench.device.deactivate().unwrap();
    bench.check(160);
    assert_eq!(bench.device.stats().drops, [(DropReason::QdiscReset, 5)]);
    bench.device.activate().unwrap();
    bench.scripts[2].set_capacity(usize::MAX);
    send(4);
    assert!(bench.device.is_empty());
    assert_eq!(bench.marks(2).last(), Some(&162));
}

/// INV-TX-7: what a ring refuses again is counted again.
#[test]
fn inv_tx_7_a_refusal_on_retry_is_counted() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 1);
    bench.scripts[0].set_capacity(0);
    bench.device.transmit(flows(&bench.pool, 0..3), Time::ZERO);
    let requeues = || bench.device.stats().qdisc().requeues;
    let first = requeues();
    for retries in 1..=2 {
        bench.device.queues()[0].wake();
        bench.work(Time::ZERO);
        assert_eq!(requeues(), first + 3 * retries);
    }
    bench.check(3);
}

/// New rings are tried with what waits for those that they replace.
#[test]
fn what_waits_for_a_ring_goes_to_the_one_that_replaces_it() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 2);
    bench.scripts[0].set_capacity(0);
    bench.send_to(parity, 0..20, Time::ZERO);
    let (rings, new) = ScriptedRing::many(2);
    bench.device.replace_rings(rings).unwrap();
    bench.work(Time::ZERO);
    assert_eq!(new[0].marks(), marks_of(0, 0..20));
    assert_eq!(bench.marks(1), marks_of(1, 0..20));
    bench.check(20);
}

/// INV-TX-12: the quota of a run bounds what it requeues, too; the next run does the rest.
#[test]
fn inv_tx_12_rings_that_wake_together_share_the_quota() {
    let ring = |mark: u32| (mark % 4) as u16;
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 4);
    bench.set_capacity(0);
    bench.send_to(ring, 0..400, Time::ZERO);
    bench.work(Time::ZERO);
    assert_eq!(bench.device.stats().tx_packets, 0);
    bench.set_capacity(usize::MAX);
    bench.device.queues()[0].wake();
    assert_eq!(bench.device.run_from_worker(0, RUN_QUOTA, Time::ZERO), None);
    assert_eq!(bench.device.stats().tx_packets, RUN_QUOTA as u64);
    bench.work(Time::ZERO);
    for (at, script) in bench.scripts.iter().enumerate() {
        let all: Vec<u32> = (0..400).filter(|m| m % 4 == at as u32).collect();
        assert_eq!(script.marks(), all);
    }
    bench.check(400);
}

/// A driver that completes later is asked for its capacity, and so gets to free what is completed.
#[test]
fn byte_limits_hold_for_each_of_several_rings() {
    let (rings, scripts) = ScriptedRing::many(2);
    scripts.iter().for_each(|script| script.set_byte_limit(500));
    let bench = with_rings(QdiscSpec::Pfifo { limit: 1000 }, rings);
    bench.send_to(parity, 0..100, Time::ZERO);
    bench.work(Time::ZERO);
    let mut turns = 0;
    while !bench.device.is_empty() {
        turns += 1;
        assert!(turns < 100, "starved: {:?}", bench.device.stats());
        for script in &scripts {
            assert!(script.in_flight() <= 600);
            script.complete(usize::MAX);
        }
        bench.wake(Time(turns * 1_000_000));
    }
    assert_eq!(bench.device.stats().tx_packets, 100);
    bench.check(100);
}

/// INV-TX-1 to -4, BUG-TX-9 with real threads and rings that stall, each in its own time. Nothing
/// is stuck or lost, and no flow is out of order, also where one ring is full most of the time.
#[test]
fn rings_that_stall_at_random_reorder_and_lose_nothing() {
    const RINGS: u32 = 3;
    let each = if cfg!(miri) { 40 } else { 8_000 };
    let bench = scripted(QdiscSpec::Pfifo { limit: 600 }, RINGS as usize);
    // A flow for each sender and ring.
    let packets = |sender: u32, n: u32| {
        let mut random = Random(1 + (sender << 24 | n));
        let packet = |n| bench.packet(random.below(RINGS) as u16, sender << 24 | n);
        (n..n + 1 + n % 7).map(packet).collect()
    };
    let mut random = Random(7);
    let serve = |_| {
        let ring = random.below(RINGS) as usize;
        // The last ring has capacity once in a while only.
        let most = if ring == RINGS as usize - 1 { 5 } else { 200 };
        bench.scripts[ring].set_capacity(random.below(most) as usize);
        // The driver has capacity, but has not said so.
        std::thread::yield_now();
        bench.device.queues()[ring].wake();
        bench.work(Time::ZERO);
    };
    let offered = bench.storm(4, each, packets, serve, || {});
    bench.finish(offered);
    let reasons = [DropReason::QdiscLimit, DropReason::QdiscBurst];
    let drops = bench.device.stats().drops;
    assert!(drops.iter().all(|d| reasons.contains(&d.0)), "{drops:?}");
    assert!(bench.sent().iter().all(|&n| n > 0));
    bench.assert_order();
}
