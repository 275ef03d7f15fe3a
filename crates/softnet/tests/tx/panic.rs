//! A driver or a qdisc that panics, in a program that unwinds: its queue is out of use until it is
//! taken down and up again, and no packet is lost uncounted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;
use softnet::qdisc::{Cx, Next, Pfifo, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::testing::Script;
use softnet_tc::CustomSpec;

/// Panics once in each call of `xmit` for which it is `armed`; sends what follows it then.
struct Panicking {
    ring: ScriptedRing,
    armed: Arc<AtomicBool>,
}

impl TxRing for Panicking {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        assert!(!self.armed.swap(false, Ordering::Relaxed), "armed");
        self.ring.xmit(packets, sent)
    }
    fn available(&mut self, now: Time) -> Option<u64> {
        self.ring.available(now)
    }
    fn restart(&mut self, now: Time) {
        assert!(!self.armed.swap(false, Ordering::Relaxed), "armed");
        self.ring.restart(now);
    }
}

struct Setup {
    bench: Bench<Panicking>,
    scripts: Vec<Arc<Script>>,
    armed: Arc<AtomicBool>,
}

fn setup(qdisc: QdiscSpec, rings: usize) -> Setup {
    let (rings, scripts) = ScriptedRing::many(rings);
    let armed = Arc::new(AtomicBool::new(false));
    let rings = rings.into_iter().map(|ring| Panicking {
        ring,
        armed: armed.clone(),
    });
    Setup {
        bench: with_rings(qdisc, rings.collect()),
        scripts,
        armed,
    }
}

/// The queue is out of use, and all that was `offered` is accounted for; taken down and up, it
/// sends again.
fn check<R: TxRing>(bench: &Bench<R>, offered: u64, reset: u64) {
    bench.work(Time::ZERO);
    bench.check(offered);
    let drops = bench.device.stats().drops;
    assert_eq!(drops, [(DropReason::QdiscReset, reset)]);
    bench.send([1000]);
    assert_eq!(bench.device.drops().get(DropReason::DeviceDown), 1);
    bench.device.deactivate().unwrap();
    bench.device.activate().unwrap();
    let before = bench.device.stats().tx_packets;
    bench.send([1001]);
    bench.work(Time::ZERO);
    assert_eq!(bench.device.stats().tx_packets, before + 1);
    bench.check(offered + 2);
}

#[test]
fn a_driver_that_panics_loses_no_packet_uncounted() {
    let pfifo = || QdiscSpec::Pfifo { limit: 1000 };
    // What passes the qdisc.
    let Setup { bench, armed, .. } = setup(pfifo(), 1);
    bench.send(0..2);
    armed.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| bench.send(2..5))).is_err());
    check(&bench, 5, 3);

    // What was dequeued, by the worker; by one ring, by one with a byte limit, by two.
    for (rings, limit) in [(1, u64::MAX), (1, 1000), (2, u64::MAX)] {
        let Setup {
            bench,
            scripts,
            armed,
        } = setup(pfifo(), rings);
        scripts[0].set_byte_limit(limit);
        scripts[0].set_capacity(0);
        bench.send(0..3);
        bench.send(3..10);
        scripts[0].set_capacity(usize::MAX);
        bench.device.queues()[0].wake();
        armed.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| bench.work(Time::ZERO))).is_err());
        let reset = bench.device.drops().get(DropReason::QdiscReset);
        assert!(reset > 0);
        let stats = bench.device.stats();
        assert_eq!(stats.tx_packets, 0);
        check(&bench, 10, reset);
    }

    // What others have pushed meanwhile finds the device down.
    let Setup {
        bench,
        scripts,
        armed,
    } = setup(pfifo(), 1);
    let bench = Arc::new(bench);
    let (sender, arm) = (Arc::downgrade(&bench), armed);
    scripts[0].on_next_call(move || {
        sender.upgrade().unwrap().send(2..5);
        arm.store(true, Ordering::Relaxed);
    });
    assert!(catch_unwind(AssertUnwindSafe(|| bench.send(0..2))).is_err());
    bench.check(5);
    let drops = bench.device.stats().drops;
    assert_eq!(drops, [(DropReason::QdiscReset, 3)]);
    assert_eq!(bench.device.stats().tx_packets, 2);
    assert_eq!(scripts[0].marks(), [0, 1]);
}

/// Panics in the call of its number.
#[derive(Debug)]
struct Fragile {
    queue: Pfifo,
    calls: Arc<AtomicUsize>,
}

impl Fragile {
    fn call(&self) {
        assert_ne!(self.calls.fetch_sub(1, Ordering::Relaxed), 1, "its time");
    }
}

impl Qdisc for Fragile {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.call();
        self.queue.enqueue(packets, cx)
    }
    fn dequeue(&mut self, n: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let next = self.queue.dequeue(n, out, cx);
        self.call();
        next
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out);
    }
    fn stats(&self) -> &QdiscStats {
        self.queue.stats()
    }
}

#[test]
fn a_qdisc_that_panics_loses_no_packet_uncounted() {
    // At an enqueue, and with packets dequeued; for a ring with and without a byte limit.
    for call in [1, 2] {
        for limit in [u64::MAX, 1000] {
            let calls = Arc::new(AtomicUsize::new(usize::MAX));
            let counted = calls.clone();
            let spec = CustomSpec::new("fragile", move |_| {
                Box::new(Fragile {
                    queue: Pfifo::new(1000),
                    calls: counted.clone(),
                })
            });
            let bench = scripted(QdiscSpec::Custom(spec), 1);
            bench.scripts[0].set_byte_limit(limit);
            calls.store(call, Ordering::Relaxed);
            assert!(catch_unwind(AssertUnwindSafe(|| bench.send(0..5))).is_err());
            let reset = bench.device.drops().get(DropReason::QdiscReset);
            assert!(reset > 0);
            check(&bench, 5, reset);
        }
    }
}

/// The helper of a sender goes on for the other rings, where a driver panics in a transmission or
/// in a restart; so does a loop of the program.
#[test]
fn a_driver_that_panics_ends_no_other_ring() {
    for by_watchdog in [false, true] {
        let pool = pool(256);
        let (rings, scripts) = ScriptedRing::many(2);
        let armed = Arc::new(AtomicBool::new(false));
        let rings = rings.into_iter().map(|ring| Panicking {
            ring,
            armed: armed.clone(),
        });
        let clock = Clock::virtual_at(Time(1_000_000));
        let qdisc = QdiscSpec::default();
        let out = start(config("out"), qdisc, rings.collect(), &pool, clock.clone());
        scripts.iter().for_each(|script| script.set_capacity(0));
        // One flow each, whichever the queues are.
        out.transmit(flows(&pool, 0..40));
        let queues = out.device().queues();
        let waits: Vec<_> = queues.iter().map(|queue| queue.waiting() as u64).collect();
        assert!(waits.iter().all(|&waits| waits > 0), "{waits:?}");
        armed.store(true, Ordering::Relaxed);
        if by_watchdog {
            clock.advance(2 * WATCHDOG_TIMEO);
        } else {
            scripts[0].set_capacity(usize::MAX);
            queues[0].wake();
        }
        wait_for("the panic", || !armed.load(Ordering::Relaxed));
        scripts[1].set_capacity(usize::MAX);
        queues[1].wake();
        wait_for("the other ring", || queues[1].is_empty());
        // What the qdisc of the first holds stays there until then.
        out.device().deactivate().unwrap();
        let stats = out.device().stats();
        assert_eq!((stats.panics, stats.tx_packets), (1, waits[1]));
        assert_eq!(stats.drops, [(DropReason::QdiscReset, waits[0])]);
        drop(out);
        assert_eq!(pool.stats().free, 256);
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < patience, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
