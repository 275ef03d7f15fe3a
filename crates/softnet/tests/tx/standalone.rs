//! Embedding: senders, a helper thread, back-pressure; nothing sticks and nothing is lost.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::testing::{RecordingRing, frame, pool};
use softnet::time::{Clock, Time};
use softnet_tc::{QdiscSpec, TbfSpec};

fn start(
    qdisc: QdiscSpec,
) -> (
    Standalone<RecordingRing>,
    Arc<softnet::testing::Record>,
    softnet::mem::Pool,
) {
    let pool = pool(2048);
    let (ring, record) = RecordingRing::new();
    let config = DeviceConfig {
        name: "s0".into(),
        features: Features::default(),
        policy: TxPolicy::default(),
    };
    let out = crate::start(config, qdisc, vec![ring], &pool, Clock::monotonic());
    (out, record, pool)
}

/// The helper goes on where a rate limit, a quota or a full driver ended a sender's run; with back-pressure no limit is ever reached.
#[test]
fn senders_that_wait_for_room_lose_nothing() {
    const SENDERS: u32 = 8;
    let each = if cfg!(miri) { 5 } else { 200 };
    let tbf = TbfSpec {
        rate: 20_000_000,
        burst: 2_000,
        limit: 100 * 100,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    let (out, record, pool) = start(QdiscSpec::Tbf(tbf));
    let clock = Clock::monotonic();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (out, clock, pool) = (&out, &clock, &pool);
            scope.spawn(move || {
                for n in 0..each {
                    // Eight senders may find room at once, so the limit leaves some for each.
                    assert!(out.device().queues()[0].wait_for_room(80, Duration::from_secs(20)));
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
    let marks = record.marks();
    for sender in 0..SENDERS {
        assert!(marks.iter().filter(|&&m| m >> 24 == sender).is_sorted());
    }
}

#[test]
fn room_is_refused_in_time_and_given_when_the_driver_wakes() {
    let (out, record, pool) = start(QdiscSpec::default());
    record.room.store(0, Ordering::Relaxed);
    let queue = &out.device().queues()[0];
    let list: PacketList = (0..10).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    out.device().transmit(list, Clock::monotonic().now());
    assert!(
        !queue.wait_for_room(10, Duration::from_millis(5)),
        "ten wait"
    );
    assert!(queue.wait_for_room(11, Duration::ZERO));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| queue.wait_for_room(1, Duration::from_secs(20)));
        record.room.store(usize::MAX, Ordering::Relaxed);
        queue.wake();
        assert!(waiter.join().unwrap());
    });
    assert_eq!(record.marks(), (0..10).collect::<Vec<_>>());
}

#[test]
fn what_cannot_leave_in_time_is_dropped_and_counted() {
    let slow = TbfSpec {
        rate: 1,
        burst: 100,
        limit: 100_000,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    let (out, _, pool) = start(QdiscSpec::Tbf(slow));
    let list: PacketList = (0..10).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    out.device().transmit(list, Clock::monotonic().now());
    let device = out.device().clone();
    out.stop(Duration::from_millis(5));
    assert_eq!(device.stats().drops, [(DropReason::QdiscReset, 9)]);
}

/// Takes nothing until it is restarted; remembers when that was.
#[derive(Debug)]
struct StuckRing(Arc<Mutex<Vec<Time>>>);

impl TxRing for StuckRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        if self.0.lock().unwrap().is_empty() {
            return Xmit::Busy;
        }
        sent.packets += packets.take().wire_packets();
        Xmit::Complete
    }
    fn restart(&mut self, now: Time) {
        self.0.lock().unwrap().push(now);
    }
}

/// The helper restarts a driver that has stopped answering, once and not before its time, although no bell rings. (In virtual time, which flies here; the helper looks
/// once in a real second.)
#[test]
fn bug_tx_23_the_helper_restarts_a_driver_that_is_stuck() {
    let pool = pool(64);
    let restarts = Arc::new(Mutex::new(Vec::new()));
    let config = DeviceConfig {
        name: "stuck".into(),
        features: Features::default(),
        policy: TxPolicy::default(),
    };
    let clock = Clock::virtual_at(Time(1_000_000_000));
    let rings = vec![StuckRing(restarts.clone())];
    let out = crate::start(config, QdiscSpec::default(), rings, &pool, clock.clone());
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
    let restarts = restarts.lock().unwrap();
    assert_eq!((stats.tx_timeouts, restarts.len()), (1, 1));
    assert!(restarts[0].since(stopped) >= WATCHDOG_TIMEO);
    assert_eq!(pool.stats().free, 64);
}
