//! INV-TX-1 to -3, -8, -11, BUG-TX-24: many senders, a driver that stalls, refuses and resumes at
//! random, qdiscs that come and go, and threads that lose the CPU at every step of the protocol.
//! Nothing is stuck or lost, and each sender's packets leave in order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use softnet::stats::DropReason;
use softnet::sync::preempt;
use softnet::testing::Random;

/// Packets of the pool.
const BUFFERS: usize = 16_384;
/// Senders have fewer in use together, so that none is stopped by the pool.
const KEPT_FREE: usize = 1024;

/// Packets that the driver sent.
#[derive(Debug, Default)]
struct Seen {
    /// The last number of each sender.
    last: Vec<u32>,
    sent: u64,
    disorder: u64,
}

fn stress(senders: u32, served_by: ServedBy, time: Duration) {
    let pool = pool(BUFFERS);
    let seen = Arc::new(Mutex::new(Seen {
        last: vec![0; senders as usize],
        ..Seen::default()
    }));
    let driver = seen.clone();
    let sink = Sink(move |packet: Packet| {
        // Only the owner of the queue is ever here.
        let mut seen = driver.try_lock().expect("one owner");
        let (sender, number) = ((packet.mark() >> 24) as usize, packet.mark() & 0xFF_FFFF);
        seen.disorder += u64::from(number <= seen.last[sender]);
        seen.last[sender] = number;
        seen.sent += 1;
    });
    let (mut ring, faults) = FaultInjector::new(sink, 77);
    (ring.stall_one_in, ring.refuse_one_in) = (300, 500);
    let clock = Clock::monotonic();
    let config = policy(TxPolicy {
        max_burst: 2_000,
        served_by,
        yields: true,
    });
    let qdisc = QdiscSpec::Pfifo { limit: 500 };
    let out = start(config, qdisc, vec![ring], &pool, clock.clone());
    let (over, offered) = (AtomicBool::new(false), AtomicU64::new(0));
    let (clock, over, offered) = (&clock, &over, &offered);
    std::thread::scope(|scope| {
        for sender in 0..senders {
            let (pool, out) = (&pool, &out);
            let run = move || {
                let mut random = Random(sender + 1);
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    if pool.stats().free < KEPT_FREE + 8 * senders as usize {
                        std::thread::yield_now();
                        continue;
                    }
                    let list: PacketList = (0..1 + random.below(4))
                        .map(|_| {
                            number += 1;
                            frame(pool, 1, 2, 100, sender << 24 | number)
                        })
                        .collect();
                    offered.fetch_add(list.len() as u64, Ordering::Relaxed);
                    out.device().transmit(list, clock.now());
                    if number.is_multiple_of(64) {
                        std::thread::yield_now();
                    }
                }
            };
            std::thread::Builder::new()
                .stack_size(128 << 10)
                .spawn_scoped(scope, run)
                .unwrap();
        }
        let resume = || {
            faults.resume();
            out.device().queues()[0].wake();
        };
        let end = Instant::now() + time;
        let mut turn = 0;
        while Instant::now() < end {
            turn += 1;
            std::thread::sleep(Duration::from_micros(100));
            resume();
            if turn % 50 == 0 {
                let spec = match turn / 50 % 3 {
                    0 => QdiscSpec::Pfifo { limit: 500 },
                    1 => QdiscSpec::PfifoFast { limit: 300 },
                    _ => shaped(50_000_000, 20_000, 100_000),
                };
                out.device().set_qdisc(&spec, clock.now()).unwrap();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    // Nobody sends any more: the backlog leaves without help, but for the driver's own wake-ups.
    let patience = Instant::now() + Duration::from_secs(20);
    while !out.device().queues()[0].is_empty() {
        assert!(Instant::now() < patience, "stuck: {:?}", out.device());
        std::thread::sleep(Duration::from_millis(1));
        faults.resume();
        out.device().queues()[0].wake();
    }
    let stats = out.device().stats();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.disorder, 0, "INV-TX-3");
    assert_eq!(seen.sent, stats.tx_packets);
    assert_eq!(
        offered.load(Ordering::Relaxed),
        stats.tx_packets + stats.dropped() + stats.queued,
        "INV-TX-1: {stats:?}"
    );
    assert_eq!(stats.queued, 0, "INV-TX-2");
    assert_eq!(
        out.device().drops().get(DropReason::DriverRefused),
        faults.refused()
    );
    assert!(seen.sent > 0);
    assert_eq!(pool.stats().free, BUFFERS, "every buffer is back");
}

/// `SOFTNET_SOAK_SECONDS`; without it, half a second.
fn soak() -> Duration {
    let seconds = std::env::var("SOFTNET_SOAK_SECONDS").ok();
    Duration::from_secs_f64(seconds.and_then(|s| s.parse().ok()).unwrap_or(0.5))
}

#[test]
#[cfg_attr(miri, ignore = "240 threads are too many for an interpreter")]
fn packets_of_240_senders_keep_order_with_a_faulty_driver() {
    stress(240, ServedBy::Senders, soak());
}

#[test]
#[cfg_attr(miri, ignore = "it takes real time")]
fn packets_served_by_the_worker_keep_order_with_a_faulty_driver() {
    stress(24, ServedBy::Worker, soak());
}

/// As above, and at each step of the protocol a thread may lose the CPU.
#[test]
#[cfg_attr(miri, ignore = "it takes real time")]
fn preempted_at_every_step_of_the_protocol() {
    preempt::often(40);
    stress(24, ServedBy::Senders, soak());
    stress(8, ServedBy::Worker, soak() / 2);
    preempt::often(0);
}
