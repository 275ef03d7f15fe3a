//! A device around its queues: maps, byte limits, recursion, watchdog, going down (INV-TX-10,
//! INV-TX-14, INV-TX-15, INV-TX-16).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use softnet::qdisc::{PfifoFast, Qdisc};
use softnet::stats::DropReason;

/// INV-MQ-2 on a device: a class's packets leave through its rings, below a qdisc for each ring
/// and below one for all.
#[test]
fn inv_mq_2_classes_use_their_rings() {
    let class = |count, offset| TcQueues { count, offset };
    for qdisc in [QdiscSpec::default(), QdiscSpec::Pfifo { limit: 1000 }] {
        let bench = scripted(qdisc, 4);
        let map = QueueMap {
            prio_tc_map: std::array::from_fn(|p| u8::from(p == 6)),
            classes: vec![class(3, 0), class(1, 3)],
        };
        bench.device.set_queue_map(&map);
        let urgent = |n: &u32| n.is_multiple_of(3);
        let list = (0..60).map(|n| flow(&bench.pool, n << 26, 6 * u32::from(urgent(&n)), n));
        bench.device.transmit(list.collect(), Time::ZERO);
        bench.work(Time::ZERO);
        assert!(bench.marks(3).into_iter().eq((0..60).filter(urgent)));
        let sent = bench.sent();
        assert_eq!(sent[..3].iter().sum::<usize>(), 40);
        assert!(sent.iter().all(|&n| n > 0));
        bench.finish(60);
    }
}

/// INV-TX-15 with real threads: two threads pass one flow back and forth, each with a queue of its
/// own, and drivers that stall. The flow's order is that of the sending, whichever queues it took.
#[test]
fn inv_tx_15_a_flow_that_changes_threads_keeps_its_order() {
    let rounds: u32 = if cfg!(miri) { 40 } else { 4_000 };
    let sent = Arc::new(Mutex::new(Vec::new()));
    let ring = |seed| {
        let sent = sent.clone();
        let sink = Sink(move |packet: Packet| sent.lock().unwrap().push(packet.mark()));
        let (mut ring, faults) = FaultInjector::new(sink, seed);
        ring.stall_one_in = 16;
        (ring, faults)
    };
    let (rings, faults): (Vec<_>, Vec<_>) = [1, 2].map(ring).into_iter().unzip();
    let bench = with_rings(QdiscSpec::default(), rings);
    let turn = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for me in 0..2 {
            let (device, pool) = (&bench.device, &bench.pool);
            let (turn, refused) = (&turn, &refused);
            scope.spawn(move || {
                set_worker(me);
                for round in (0..rounds).filter(|r| *r as usize % 2 == me) {
                    // The queues hold more than what is sent while the worker is off its CPU.
                    let waits = || device.queues().iter().map(TxQueue::waiting).sum::<usize>();
                    while turn.load(Ordering::Acquire) != round as usize || waits() > 100 {
                        std::thread::yield_now();
                    }
                    let list = (0..3).map(|n| flow(pool, 5, 0, round * 3 + n));
                    // Looked at in the end: who waits for this thread's turn would wait for ever.
                    if device.transmit(list.collect(), Time::ZERO) != XmitResult::Success {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    // Sometimes everything leaves before the other's turn, so that the flow may
                    // move.
                    for _ in 0..1000 {
                        if round % 5 == 0 && !device.is_empty() {
                            std::thread::yield_now();
                        }
                    }
                    turn.store(round as usize + 1, Ordering::Release);
                }
            });
        }
        let worker = scope.spawn(|| {
            while !done.load(Ordering::Acquire) || !bench.device.is_empty() {
                faults.iter().for_each(|faults| faults.resume());
                bench.wake(Time::ZERO);
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
    assert_eq!(*sent.lock().unwrap(), (0..rounds * 3).collect::<Vec<_>>());
    bench.check((rounds * 3).into());
}

/// INV-TX-14 through a queue: the ring holds the limit and one packet at most, the backlog stays
/// in the qdisc (so an urgent packet overtakes it), and completions and wake-ups empty it.
#[test]
fn inv_tx_14_what_the_ring_need_not_hold_can_be_overtaken() {
    let (ring, script) = ScriptedRing::new();
    script.set_byte_limit(500);
    let bench = with_rings(QdiscSpec::default(), vec![ring]);
    bench.send(0..50);
    bench.work(Time::ZERO);
    let first = [0, 1, 2, 3, 4, 5];
    assert_eq!(script.marks(), first, "500 bytes and one packet");
    let stats = bench.device.stats();
    assert_eq!(stats.queued, 44);
    assert_eq!(stats.qdisc().requeues, 0, "none left the qdisc in vain");
    let urgent = flow(&bench.pool, 0, 6, 100);
    bench.device.transmit(urgent.into(), Time::ZERO);
    let mut now = Time::ZERO;
    let mut rounds = 0;
    while !bench.device.is_empty() {
        rounds += 1;
        assert!(rounds < 100, "starved: {:?}", bench.device.stats());
        now = now.plus_nanos(1_000_000);
        script.complete(3);
        assert!(script.in_flight() <= 600);
        bench.wake(now);
    }
    let marks = script.marks();
    assert_eq!(marks[6], 100, "the urgent packet went next");
    assert!(marks[7..].iter().copied().eq(6..50));
    bench.check(51);
}

/// Noqueue devices, each of which sends through the next one.
pub(crate) fn stack(n: usize) -> Vec<Bench> {
    let benches: Vec<_> = (0..n).map(|_| scripted(QdiscSpec::Noqueue, 1)).collect();
    for (bench, next) in benches.iter().zip(&benches[1..]) {
        send_through(bench, next);
    }
    benches
}

/// The driver of `bench` sends through `next`.
fn send_through(bench: &Bench, next: &Bench) {
    let next = Arc::downgrade(&next.device);
    bench.scripts[0].set_sink(move |packet| {
        if let Some(next) = next.upgrade() {
            next.transmit(packet.into(), Time::ZERO);
        }
    });
}

/// INV-TX-16: nine noqueue devices may send through one another, the tenth drops; a loop ends at
/// once; and what other threads send is never taken for either.
#[test]
fn inv_tx_16_recursion_ends_in_a_drop() {
    let benches = stack(12);
    assert_eq!(benches[0].send([0]), XmitResult::Success);
    let sent = benches.iter().map(|b| b.device.stats().tx_packets);
    assert!(sent.eq([1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]));
    let drops = benches[9].device.stats().drops;
    assert_eq!(drops, [(DropReason::RecursionLimit, 1)]);

    let own = scripted(QdiscSpec::Noqueue, 1);
    send_through(&own, &own);
    own.send([0]);
    let stats = own.device.stats();
    assert_eq!(stats.tx_packets, 1);
    assert_eq!(stats.drops, [(DropReason::RecursionLimit, 1)]);

    let benches = stack(3);
    // What bounded runs leave.
    let serve = |_| {
        for bench in &benches {
            let _ = bench.device.run_from_worker(0, RUN_QUOTA, Time::ZERO);
        }
    };
    let each = if cfg!(miri) { 10 } else { 2_000 };
    let packets = |_, n| {
        let long = |b: &Bench| b.device.queues()[0].waiting() > 20;
        while benches.iter().any(long) {
            serve(0);
            std::thread::yield_now();
        }
        benches[0].packet(0, n).into()
    };
    let offered = benches[0].storm(4, each, packets, serve, || {});
    while benches.iter().any(|b| !b.device.is_empty()) {
        serve(0);
    }
    for bench in &benches {
        let stats = bench.device.stats();
        assert_eq!((stats.tx_packets, stats.dropped()), (offered, 0));
        assert_eq!(bench.pool.stats().free, BUFFERS);
    }
}

/// BUG-TX-9: one qdisc feeds two rings, and one of them is full. Its requeued packets are not
/// overtaken by later packets of their flow, and none is lost.
#[test]
fn bug_tx_9_a_full_ring_reorders_no_flow() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 200 }, 2);
    bench.scripts[1].set_capacity(1);
    let flows = |marks: std::ops::Range<u32>| -> PacketList {
        marks.map(|n| flow(&bench.pool, n << 31, 0, n)).collect()
    };
    bench.device.transmit(flows(0..20), Time::ZERO);
    bench.work(Time::ZERO);
    bench.scripts[1].set_capacity(3);
    bench.device.queues()[0].wake();
    bench.device.transmit(flows(20..40), Time::ZERO);
    bench.work(Time::ZERO);
    assert!(bench.device.stats().queued > 0);
    bench.finish(40);
    for parity in [0, 1] {
        let all = (0..40).filter(|n| n % 2 == parity);
        assert!(bench.marks(parity as usize).into_iter().eq(all));
    }
}

/// INV-TX-17: a large frame counts as its wire packets and bytes, once, whether it bypassed the
/// qdisc or not.
#[test]
fn inv_tx_17_large_frames_are_counted_once_by_segment() {
    for capacity in [usize::MAX, 0] {
        let tso = features(Features {
            tso4: true,
            ..Features::default()
        });
        let bench = configured(tso, QdiscSpec::default(), 1).unwrap();
        bench.set_capacity(capacity);
        let mut large = frame(&bench.pool, 1, 2, 54 + 5 * 100, 0);
        large.set_gso(Some(gso(100, 5, 54)));
        bench.device.transmit(large.into(), Time::ZERO);
        let queued = if capacity == 0 { 5 } else { 0 };
        assert_eq!(bench.device.stats().queued, queued);
        bench.resume(Time::ZERO);
        let stats = bench.device.stats();
        let bytes = 5 * (54 + 100);
        let sent = (stats.tx_packets, stats.tx_bytes, stats.queued);
        assert_eq!(sent, (5, bytes, 0));
        let qdisc = stats.queues[0].qdisc;
        assert_eq!((qdisc.packets, qdisc.bytes), (5, bytes));
    }
}

/// A driver that has taken nothing for five seconds is restarted, once, and the backlog leaves.
#[test]
fn bug_tx_23_the_watchdog_restarts_a_stuck_driver_and_no_other() {
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.scripts[0].restart_helps();
    let device = &bench.device;
    let at = |millis: u64| Time(millis * 1_000_000);
    assert_eq!(device.watchdog(at(100_000)), 0, "idle");
    bench.send_to(|_| 0, [0], at(1_000));
    bench.send_to(|_| 0, [1], at(5_000));
    assert_eq!(device.watchdog(at(5_999)), 0);
    assert_eq!(device.watchdog(at(6_000)), 1);
    bench.work(at(6_000));
    let stats = device.stats();
    assert_eq!((stats.tx_packets, stats.tx_timeouts), (2, 1));
    assert_eq!(device.watchdog(at(60_000)), 0);
    bench.set_capacity(0);
    bench.send_to(|_| 0, [2], at(60_000));
    device.deactivate().unwrap();
    assert_eq!(device.watchdog(at(100_000)), 0, "a device that is down");
}

/// INV-TX-10, BUG-TX-3, BUG-TX-5, BUG-TX-6: threads send all the time while the device goes down
/// and up. When `deactivate` has returned nothing reaches the driver, and nothing that was sent is
/// lost without a reason.
#[test]
fn inv_tx_10_nothing_is_sent_or_kept_while_down() {
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let bench = scripted(QdiscSpec::default(), 2);
    let device = &bench.device;
    let stop = AtomicBool::new(false);
    let offered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for sender in 0..3u32 {
            let (stop, offered, pool) = (&stop, &offered, &bench.pool);
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
            bench.set_capacity(if round % 2 == 0 { 5 } else { usize::MAX });
            bench.wake(Time::ZERO);
            std::thread::yield_now();
            device.deactivate().unwrap();
            assert!(!device.is_active());
            let before = bench.sent();
            bench.set_capacity(usize::MAX);
            for _ in 0..20 {
                bench.work(Time::ZERO);
                std::thread::yield_now();
            }
            assert_eq!(before, bench.sent(), "sent while down");
            device.activate().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    device.deactivate().unwrap();
    bench.check(offered.into_inner());
    let stats = device.stats();
    assert_eq!(stats.queued, 0);
    let reasons = [
        DropReason::QdiscReset,
        DropReason::DeviceDown,
        DropReason::QdiscLimit,
    ];
    let known = stats.drops.iter().all(|d| reasons.contains(&d.0));
    assert!(known, "{stats:?}");
}

/// Calls, batches and times in the queue are measured, and cost no packet.
#[test]
fn distributions_are_sampled() {
    let bench = scripted(QdiscSpec::default(), 1);
    let send = |mark, timestamp, now| {
        let mut packet = bench.packet(0, mark);
        packet.set_timestamp(timestamp);
        bench.device.transmit(packet.into(), now);
    };
    bench.device.measure(Clock::monotonic());
    bench.set_capacity(0);
    for n in 0..100 {
        send(n, Time(1_000), Time(1_000));
    }
    bench.resume(Time(2_000));
    let many = if cfg!(miri) { 2_000 } else { 20_000 };
    for n in 0..many {
        send(n, Time(3_000), Time(3_500));
    }
    let stats = bench.device.stats();
    let many = u64::from(many);
    assert_eq!(stats.tx_packets, 100 + many);
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
        let sampled = many / 256..many / 64;
        assert!(sampled.contains(&counts.total()), "{what}: {counts:?}");
    }
    let p90 = sojourn_ns.percentile(0.9);
    assert_eq!(p90, Some(383.5), "500 ns lie in [256, 512)");
}

/// INV-PF-1, INV-PF-3: only what would be neither reordered nor refused passes `pfifo_fast`.
#[test]
fn inv_pf_1_packets_of_one_priority_pass_together() {
    let pool = pool(16);
    let mut cx = Cx::new(&pool);
    let list = |priorities: &[u32]| {
        let packets = priorities.iter().map(|p| flow(&pool, 1, *p, 0));
        packets.collect::<PacketList>()
    };
    let mut qdisc = PfifoFast::new(3);
    let mut passes = |packets: &PacketList| qdisc.try_pass(packets, packets.into(), &mut cx);
    assert!(passes(&list(&[7])));
    assert!(passes(&list(&[0, 0, 0])));
    assert!(!passes(&list(&[0, 6])), "the second leaves first");
    assert!(!passes(&list(&[0, 0, 0, 0])), "the limit is 3");
    assert_eq!(qdisc.stats().packets, 4);
    qdisc.enqueue(&mut list(&[0]), &mut cx);
    let more = list(&[0, 0]);
    assert!(
        !qdisc.try_pass(&more, (&more).into(), &mut cx),
        "one is before them"
    );
}
