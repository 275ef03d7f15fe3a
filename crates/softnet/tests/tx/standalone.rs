//! Embedding: senders, a helper thread, back-pressure; nothing sticks and nothing is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use softnet::stats::DropReason;
use softnet::testing::Script;

fn start(qdisc: QdiscSpec) -> (Standalone<ScriptedRing>, Arc<Script>, Pool) {
    let pool = pool(2048);
    let (ring, script) = ScriptedRing::new();
    let clock = Clock::monotonic();
    let out = super::start(config("standalone"), qdisc, vec![ring], &pool, clock);
    (out, script, pool)
}

/// The helper thread goes on where a rate limit, a quota or a full driver ended a sender's run;
/// with back-pressure no limit is ever reached.
#[test]
fn senders_that_wait_for_capacity_lose_nothing() {
    const SENDERS: u32 = 8;
    let each = if cfg!(miri) { 5 } else { 200 };
    let tbf = shaped(20_000_000, 2_000, 100 * 100);
    let (out, script, pool) = start(tbf);
    let clock = Clock::monotonic();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (out, clock, pool) = (&out, &clock, &pool);
            scope.spawn(move || {
                for n in 0..each {
                    // Eight senders may find room at once, so the limit leaves some for each.
                    assert!(
                        out.device().queues()[0].wait_for_capacity(80, Duration::from_secs(20))
                    );
                    let packet = frame(pool, 1, 2, 100, sender << 24 | n);
                    out.device().transmit(packet.into(), clock.now());
                }
            });
        }
    });
    let device = out.device().clone();
    out.stop(Duration::from_secs(20));
    let stats = device.stats();
    assert_eq!(
        (stats.tx_packets, stats.dropped(), stats.queued),
        (u64::from(SENDERS * each), 0, 0)
    );
    let marks = script.marks();
    for sender in 0..SENDERS {
        assert!(marks.iter().filter(|&&m| m >> 24 == sender).is_sorted());
    }
}

#[test]
fn room_is_refused_in_time_and_given_when_the_driver_wakes() {
    let (out, script, pool) = start(QdiscSpec::default());
    script.set_capacity(0);
    let queue = &out.device().queues()[0];
    let list: PacketList = (0..10).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    out.device().transmit(list, Clock::monotonic().now());
    assert!(
        !queue.wait_for_capacity(10, Duration::from_millis(5)),
        "ten wait"
    );
    assert!(queue.wait_for_capacity(11, Duration::ZERO));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| queue.wait_for_capacity(1, Duration::from_secs(20)));
        script.set_capacity(usize::MAX);
        queue.wake();
        assert!(waiter.join().unwrap());
    });
    assert_eq!(script.marks(), (0..10).collect::<Vec<_>>());
}

/// A queue that the control path empties has capacity, and no worker need say so. (A waiter that is
/// not told waits for ever.)
#[test]
fn a_waiter_is_told_when_the_device_goes_down() {
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.send(0..10);
    std::thread::scope(|scope| {
        let queue = &bench.device.queues()[0];
        let waiter = scope.spawn(|| queue.wait_for_capacity(1, Duration::MAX));
        std::thread::yield_now();
        bench.device.deactivate();
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn what_cannot_leave_in_time_is_dropped_and_counted() {
    let slow = shaped(1, 100, 100_000);
    let (out, _, pool) = start(slow);
    let list: PacketList = (0..10).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    out.device().transmit(list, Clock::monotonic().now());
    let device = out.device().clone();
    out.stop(Duration::from_millis(5));
    assert_eq!(device.stats().drops, [(DropReason::QdiscReset, 9)]);
}

/// The helper thread restarts a driver that has stopped answering, once and not before its time,
/// though there is no event. (In virtual time, which flies here; the thread looks once in a real
/// second.)
#[test]
fn bug_tx_23_the_helper_restarts_a_driver_that_is_stuck() {
    let pool = pool(64);
    let (ring, script) = ScriptedRing::new();
    script.set_capacity(0);
    script.restart_helps();
    let clock = Clock::virtual_at(Time(1_000_000_000));
    let qdisc = QdiscSpec::default();
    let out = super::start(config("stuck"), qdisc, vec![ring], &pool, clock.clone());
    let list: PacketList = (0..5).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    let stopped = clock.now();
    out.device().transmit(list, stopped);
    let patience = Instant::now() + Duration::from_secs(30);
    while !out.device().is_empty() {
        assert!(Instant::now() < patience, "stuck: {:?}", out.device());
        clock.advance(Duration::from_millis(100));
        std::thread::sleep(Duration::from_millis(1));
    }
    clock.advance(Duration::from_secs(100));
    let device = out.device().clone();
    out.stop(Duration::from_secs(20));
    let stats = device.stats();
    assert_eq!((stats.tx_packets, stats.dropped()), (5, 0));
    let restarts = script.restarts();
    assert_eq!((stats.tx_timeouts, restarts.len()), (1, 1));
    assert!(restarts[0].since(stopped) >= WATCHDOG_TIMEO);
    assert_eq!(pool.stats().free, 64);
}
