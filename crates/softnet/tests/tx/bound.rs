//! Cost of a transmit call, and its answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::*;
use softnet::qdisc::{Cx, Next, Pfifo, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::testing::wait_for_buffers;
use softnet_tc::CustomSpec;

/// A device with one ring, whose driver can send itself ([`Script::on_next_call`]).
///
/// [`Script::on_next_call`]: softnet::testing::Script::on_next_call
fn shared(qdisc: QdiscSpec, tx: TxPolicy) -> Arc<Bench> {
    Arc::new(configured(policy(tx), qdisc, 1).unwrap())
}

/// A pfifo that calls a function with what it is given.
struct Watched<F>(Pfifo, F);

impl<F> std::fmt::Debug for Watched<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<F: FnMut(&PacketList, &Cx) + Send> Qdisc for Watched<F> {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        (self.1)(packets, cx);
        self.0.enqueue(packets, cx)
    }
    fn dequeue(&mut self, n: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.0.dequeue(n, out, cx)
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.0.drain(out);
    }
    fn stats(&self) -> &QdiscStats {
        self.0.stats()
    }
}

fn watched<F>(limit: u32, enqueue: F) -> QdiscSpec
where
    F: FnMut(&PacketList, &Cx) + Clone + Send + Sync + 'static,
{
    QdiscSpec::Custom(CustomSpec::new("watched", move |_| {
        Box::new(Watched(Pfifo::new(limit), enqueue.clone()))
    }))
}

/// A pfifo, and the number of packets that it was given.
fn counting(limit: u32) -> (QdiscSpec, Arc<AtomicUsize>) {
    let enqueued = Arc::new(AtomicUsize::new(0));
    let counted = enqueued.clone();
    let count = move |packets: &PacketList, _: &Cx| {
        counted.fetch_add(packets.len(), Ordering::Relaxed);
    };
    (watched(limit, count), enqueued)
}

/// A full driver charges nothing to the quota. A call that adopted what others left meanwhile,
/// again and again, never came back.
#[test]
fn a_call_adopts_at_most_256_packets() {
    const MOST: usize = 256;
    for active in [true, false] {
        let device = Arc::new(Mutex::new(Weak::<Bench>::new()));
        let others = device.clone();
        // Other packets are sent whenever some are enqueued, as by fast senders on other CPUs.
        let breed = move |_: &PacketList, cx: &Cx| {
            if let Some(bench) = others.lock().unwrap().upgrade() {
                bench.send_to(|_| 0, 0..10, cx.now);
            }
        };
        let bench = shared(watched(100_000, breed), TxPolicy::default());
        bench.set_capacity(0);
        bench.device.queues()[0].set_active(active);
        *device.lock().unwrap() = Arc::downgrade(&bench);
        bench.send([0]);
        *device.lock().unwrap() = Weak::new();
        let enqueued = bench.device.stats().qdisc().qlen as usize;
        assert!(enqueued <= MOST + 1, "{enqueued}");
        assert!(!active || enqueued > MOST / 2, "{enqueued}");
        // What it left is not stuck.
        bench.resume(Time::ZERO);
        assert!(bench.device.is_empty());
    }
}

/// INV-TX-9: an owner is told what became of its own packet, not of those that it adopted.
#[test]
fn inv_tx_9_another_senders_drop_is_not_the_owners() {
    let bench = shared(QdiscSpec::Pfifo { limit: 5 }, TxPolicy::default());
    let sender = bench.clone();
    bench.set_capacity(0);
    bench.scripts[0].on_next_call(move || {
        for mark in 1..=20 {
            let result = sender.send([mark]);
            assert_eq!(result, XmitResult::Success, "left to the owner");
        }
    });
    assert_eq!(bench.send([0]), XmitResult::Success);
    assert_eq!(bench.device.stats().drops, [(DropReason::QdiscLimit, 15)]);
    assert_eq!(bench.send([21]), XmitResult::Drop);
    bench.check(22);
}

/// INV-TX-19: while an owner stands still in its driver, a single packet, a short list and a long
/// one are all left to it: their senders return, and what they sent leaves when the owner goes on.
#[test]
fn inv_tx_19_no_sender_waits_for_an_owner_that_stands_still() {
    let bench = shared(QdiscSpec::Pfifo { limit: 1000 }, TxPolicy::default());
    let sender = bench.clone();
    bench.scripts[0].on_next_call(move || {
        // It does not go on before they have returned.
        std::thread::scope(|scope| {
            for marks in [1..2, 2..9, 9..73] {
                let sent = scope.spawn(|| sender.send(marks));
                assert_eq!(sent.join().unwrap(), XmitResult::Success);
            }
        });
    });
    bench.send([0]);
    bench.work(Time::ZERO);
    assert_eq!(bench.marks(0), (0..73).collect::<Vec<_>>());
    bench.check(73);
}

/// INV-TX-9: a queue that drops an old packet for a new one says congestion (`NET_XMIT_CN`); one
/// that refuses a large frame says that it was dropped, however many wire packets that were.
#[test]
fn inv_tx_9_head_drop_is_congestion_and_a_large_frame_is_one() {
    let bench = shared(QdiscSpec::PfifoHeadDrop { limit: 2 }, TxPolicy::default());
    bench.set_capacity(0);
    let results: Vec<_> = (0..4).map(|mark| bench.send([mark])).collect();
    // The first is the driver's by now.
    assert_eq!(results[..3], [XmitResult::Success; 3]);
    assert_eq!(results[3], XmitResult::Congestion);
    let bench = shared(QdiscSpec::Pfifo { limit: 0 }, TxPolicy::default());
    let mut large = bench.packet(0, 1);
    large.set_gso(Some(gso(10, 5, 50)));
    let result = bench.device.transmit(large.into(), Time::ZERO);
    assert_eq!(result, XmitResult::Drop);
}

/// An event loop does not yield: it is told that much is due, and loses nothing.
#[test]
fn who_does_not_yield_is_told_of_congestion() {
    for (yields, crowded) in [(true, XmitResult::Success), (false, XmitResult::Congestion)] {
        let policy = TxPolicy {
            yields,
            ..TxPolicy::default()
        };
        let bench = shared(QdiscSpec::Pfifo { limit: 1000 }, policy);
        let sender = bench.clone();
        bench.scripts[0].on_next_call(move || {
            for mark in 1..=200 {
                let result = sender.send([mark]);
                let before = mark as usize - 1;
                let expected = if before < 128 {
                    XmitResult::Success
                } else {
                    crowded
                };
                assert_eq!(result, expected, "behind {before}");
            }
        });
        bench.send([0]);
        bench.work(Time::ZERO);
        assert_eq!(bench.marks(0), (0..=200).collect::<Vec<_>>());
        bench.check(201);
    }
}

/// Packets due in the qdisc count, too: the list is short while an owner moves packets into the
/// qdisc faster than the driver takes them. What waits for its rate does not.
#[test]
fn what_is_due_in_the_qdisc_counts_as_waiting() {
    let policy = TxPolicy {
        yields: false,
        ..TxPolicy::default()
    };
    let bench = shared(QdiscSpec::Pfifo { limit: 1000 }, policy);
    bench.send(0..300);
    let (sender, seen) = (bench.clone(), Arc::new(Mutex::new(None)));
    let result = seen.clone();
    bench.scripts[0].on_next_call(move || {
        *result.lock().unwrap() = Some(sender.send([301]));
    });
    bench.send([300]);
    assert_eq!(*seen.lock().unwrap(), Some(XmitResult::Congestion));
    bench.work(Time::ZERO);
    bench.check(302);
}

/// The orderly end: what threads that go on sending hand over meanwhile is dropped with a reason,
/// and nothing waits when it returns.
#[test]
fn a_standalone_device_that_was_stopped_holds_nothing() {
    let pool = pool(BUFFERS);
    for served_by in [ServedBy::Senders, ServedBy::Worker] {
        let (ring, script) = ScriptedRing::new();
        script.set_capacity(50);
        let config = policy(TxPolicy {
            served_by,
            ..TxPolicy::default()
        });
        let qdisc = QdiscSpec::Pfifo { limit: 1000 };
        let standalone = start(config, qdisc, vec![ring], &pool, Clock::monotonic());
        let (device, over) = (standalone.device().clone(), AtomicBool::new(false));
        let offered = std::thread::scope(|scope| {
            let senders: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut offered = 0;
                        while !over.load(Ordering::Relaxed) {
                            wait_for_buffers(&pool, BUFFERS / 8);
                            device.transmit(frame(&pool, 1, 2, 100, 0).into(), Time::ZERO);
                            offered += 1;
                            std::thread::yield_now();
                        }
                        offered
                    })
                })
                .collect();
            standalone.stop(Duration::from_millis(1));
            over.store(true, Ordering::Relaxed);
            let offered = senders.into_iter().map(|s| s.join().unwrap());
            offered.sum::<u64>()
        });
        let stats = device.stats();
        assert_eq!(offered, stats.tx_packets + stats.dropped(), "{stats:?}");
        assert!(device.is_empty());
    }
}

/// A shaper whose worker is turned away in every round, as one is that each ring wakes on the
/// sender's own CPU.
#[derive(Debug)]
struct Throttled {
    queue: Pfifo,
    device: Arc<Mutex<Weak<Bench>>>,
    rounds: Arc<AtomicUsize>,
}

impl Qdisc for Throttled {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.queue.enqueue(packets, cx)
    }
    fn dequeue(&mut self, _: usize, _: &mut PacketList, cx: &mut Cx) -> Next {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        assert!(round < 1000, "a call goes round and round");
        if let Some(bench) = self.device.lock().unwrap().upgrade() {
            assert_eq!(bench.device.run_from_worker(0, RUN_QUOTA, cx.now), None);
        }
        Next::At(Time(1_000_000_000))
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out);
    }
    fn stats(&self) -> &QdiscStats {
        self.queue.stats()
    }
}

/// A round in which nothing may leave charges nothing to the quota. A sender and a worker that it
/// had woken sent each other round for ever, at the time of the sender's call.
#[test]
fn a_worker_that_is_turned_away_does_not_keep_a_sender() {
    let device = Arc::new(Mutex::new(Weak::<Bench>::new()));
    let rounds = Arc::new(AtomicUsize::new(0));
    let (others, counted) = (device.clone(), rounds.clone());
    let spec = CustomSpec::new("throttled", move |_| {
        Box::new(Throttled {
            queue: Pfifo::new(1000),
            device: others.clone(),
            rounds: counted.clone(),
        })
    });
    let bench = shared(QdiscSpec::Custom(spec), TxPolicy::default());
    *device.lock().unwrap() = Arc::downgrade(&bench);
    bench.send([0]);
    *device.lock().unwrap() = Weak::new();
    assert_eq!(rounds.load(Ordering::Relaxed), 2);
    bench.check(1);
}

/// A call enqueues no more than a few of the packets that others have left; the rest is queued,
/// counted, and goes first.
#[test]
#[cfg_attr(miri, ignore = "thousands of packets are too many for an interpreter")]
fn a_call_enqueues_a_slice_of_what_others_left() {
    const LEFT: u32 = 2000;
    const SLICE: usize = 256;
    let (spec, enqueued) = counting(100_000);
    let bench = shared(spec, TxPolicy::default());
    bench.set_capacity(0);
    let sender = bench.clone();
    bench.scripts[0].on_next_call(move || {
        for mark in 1..=LEFT {
            sender.send([mark]);
        }
    });
    bench.send([0]);
    let mut sum = enqueued.swap(0, Ordering::Relaxed);
    let mut offered = LEFT + 1;
    while sum < offered as usize {
        assert_eq!(bench.send([offered]), XmitResult::Success);
        offered += 1;
        let round = enqueued.swap(0, Ordering::Relaxed);
        assert!((1..=SLICE + 1).contains(&round), "{round}");
        sum += round;
        bench.check(offered.into());
    }
    bench.finish(offered.into());
    assert!(bench.marks(0).into_iter().eq(0..offered));
}

/// Packets move to another qdisc in slices, too: senders are not kept out meanwhile. What it does
/// not take is dropped with a reason.
#[test]
#[cfg_attr(miri, ignore = "thousands of packets are too many for an interpreter")]
fn an_old_qdiscs_packets_move_in_slices() {
    let bench = shared(QdiscSpec::Pfifo { limit: 3000 }, TxPolicy::default());
    bench.set_capacity(0);
    for mark in 0..2000 {
        bench.send([mark]);
    }
    let (spec, enqueued) = counting(1000);
    bench.set(&spec);
    let moved = enqueued.load(Ordering::Relaxed);
    assert!(moved <= 256, "{moved}");
    bench.check(2000);
    bench.work(Time::ZERO);
    assert_eq!(
        enqueued.load(Ordering::Relaxed),
        1999,
        "one is the driver's"
    );
    assert_eq!(bench.device.stats().drops, [(DropReason::QdiscLimit, 999)]);
    bench.finish(2000);
    assert!(bench.marks(0).into_iter().eq(0..1001));
}

/// INV-TX-9: without a queue the driver's answer is the sender's, and not to packets that it
/// adopts.
#[test]
fn inv_tx_9_noqueue_tells_of_the_callers_own() {
    // The other's packet is refused.
    let bench = shared(QdiscSpec::Noqueue, TxPolicy::default());
    let (sender, script) = (bench.clone(), bench.scripts[0].clone());
    let mut call = 0;
    bench.scripts[0].on_call(move || {
        call += 1;
        match call {
            1 => std::thread::scope(|scope| {
                scope.spawn(|| sender.send([2]));
            }),
            2 => script.refuse(1),
            _ => {}
        }
    });
    assert_eq!(bench.send([1]), XmitResult::Success);
    assert_eq!(bench.marks(0), [1]);
    assert_eq!(bench.device.stats().drops, [(DropReason::DriverRefused, 1)]);
    bench.check(2);
    // The call holds the bench, which holds the call.
    bench.scripts[0].on_call(|| {});

    // The caller's is, behind the other's, whether that was refused or not.
    for refused in [1, 2] {
        let bench = shared(QdiscSpec::Noqueue, TxPolicy::default());
        let (sender, script) = (bench.clone(), bench.scripts[0].clone());
        bench.scripts[0].on_next_call(move || {
            sender.send([2]);
            script.refuse(refused);
        });
        let expected = XmitResult::Drop;
        assert_eq!(bench.send([1]), expected, "{refused}");
        bench.check(2);
    }
}
