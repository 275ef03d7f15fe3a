//! Many senders, a driver that stalls, refuses and resumes at random, disciplines that come and go, and threads that lose the CPU at every step
//! of the protocol: nothing stuck, nothing lost, each sender's packets in order (INV-TX-1 to -3, -8, -11, BUG-TX-24).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::sync::preempt;
use softnet::testing::{frame, pool};
use softnet::time::Clock;
use softnet_tc::{QdiscSpec, TbfSpec};

/// Packets of the pool.
const BUFFERS: usize = 16_384;
/// Senders have fewer in use together, so that none is stopped by the pool.
const KEPT_FREE: usize = 1024;

/// What the driver saw.
#[derive(Debug, Default)]
struct Seen {
    /// The last number of each sender.
    last: Vec<u32>,
    sent: u64,
    refused: u64,
    disorder: u64,
}

/// A driver in a mood.
#[derive(Debug)]
struct Moody {
    random: u32,
    stalled: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

fn random(state: &mut u32, below: u32) -> u32 {
    // Marsaglia's xorshift.
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    *state % below
}

impl TxRing for Moody {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        // The lock is the driver's own: only the runner is ever here.
        let mut seen = self.seen.try_lock().expect("one thread runs the queue");
        while let Some(packet) = packets.pop_front() {
            if self.stalled.load(Ordering::SeqCst) {
                packets.push_front(packet);
                return Xmit::Busy;
            }
            let mark = packet.mark();
            let (sender, number) = ((mark >> 24) as usize, mark & 0xFF_FFFF);
            if number <= seen.last[sender] {
                seen.disorder += 1;
            }
            seen.last[sender] = number;
            if random(&mut self.random, 500) == 0 {
                seen.refused += 1;
                let refused = sent.dropped.map_or(0, |(_, n)| n) + 1;
                sent.dropped = Some((DropReason::DriverRefused, refused));
            } else {
                seen.sent += 1;
                sent.packets += 1;
                sent.bytes += packet.wire_len();
            }
            if random(&mut self.random, 300) == 0 {
                self.stalled.store(true, Ordering::SeqCst);
            }
        }
        Xmit::Complete
    }
}

fn stress(senders: u32, served_by: ServedBy, time: Duration) {
    let pool = pool(BUFFERS);
    let stalled = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(Seen {
        last: vec![0; senders as usize],
        ..Seen::default()
    }));
    let driver = Moody {
        random: 77,
        stalled: stalled.clone(),
        seen: seen.clone(),
    };
    let clock = Clock::monotonic();
    let config = DeviceConfig {
        name: "moody".into(),
        features: Features::default(),
        policy: TxPolicy {
            max_burst: 2_000,
            served_by,
            yields: true,
        },
    };
    let out = crate::start(
        config,
        QdiscSpec::Pfifo { limit: 500 },
        vec![driver],
        &pool,
        clock.clone(),
    );
    let (over, offered) = (AtomicBool::new(false), AtomicU64::new(0));
    let (clock, over, offered) = (&clock, &over, &offered);
    std::thread::scope(|scope| {
        for sender in 0..senders {
            let (pool, out) = (&pool, &out);
            let run = move || {
                let mut state = sender + 1;
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    if pool.stats().free < KEPT_FREE + 8 * senders as usize {
                        std::thread::yield_now();
                        continue;
                    }
                    let list: PacketList = (0..1 + random(&mut state, 4))
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
            stalled.store(false, Ordering::SeqCst);
            out.device().queues()[0].wake();
        };
        let end = Instant::now() + time;
        let mut turn = 0;
        while Instant::now() < end {
            turn += 1;
            std::thread::sleep(Duration::from_micros(100));
            resume();
            if turn % 50 == 0 {
                let tbf = TbfSpec {
                    rate: 50_000_000,
                    burst: 20_000,
                    limit: 100_000,
                    ..TbfSpec::default()
                };
                let spec = match turn / 50 % 3 {
                    0 => QdiscSpec::Pfifo { limit: 500 },
                    1 => QdiscSpec::PfifoFast { limit: 300 },
                    _ => QdiscSpec::Tbf(tbf),
                };
                out.device().set_qdisc(&spec, clock.now()).unwrap();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    // Nobody sends any more: what is left leaves without help, but for the driver's own wake-ups.
    let patience = Instant::now() + Duration::from_secs(20);
    while !out.device().queues()[0].is_empty() {
        assert!(Instant::now() < patience, "stuck: {:?}", out.device());
        std::thread::sleep(Duration::from_millis(1));
        stalled.store(false, Ordering::SeqCst);
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
        seen.refused
    );
    assert!(seen.sent > 0);
    assert_eq!(pool.stats().free, BUFFERS, "every buffer is back");
}

/// For `SOFTNET_SOAK_SECONDS` (default: one half); 30 is what the issue that this came with asked for.
fn soak() -> Duration {
    let seconds = std::env::var("SOFTNET_SOAK_SECONDS").ok();
    Duration::from_secs_f64(seconds.and_then(|s| s.parse().ok()).unwrap_or(0.5))
}

#[test]
#[cfg_attr(miri, ignore = "240 threads are too many for an interpreter")]
fn two_hundred_and_forty_senders_and_a_moody_driver() {
    stress(240, ServedBy::Senders, soak());
}

#[test]
#[cfg_attr(miri, ignore = "it takes real time")]
fn the_worker_alone_serves_a_moody_driver() {
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
