//! The transmit invariants of the kernel (INV-TX-n), with a driver that the test controls. Its
//! historical bugs (BUG-TX-n) are in [`bug`](super::bug).

use std::sync::{Arc, Mutex};

use super::*;
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;

#[test]
fn inv_tx_1_every_packet_is_sent_queued_or_dropped_with_a_reason() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 10 }, 1);
    bench.set_capacity(5);
    bench.scripts[0].refuse(2);
    assert_eq!(bench.send(0..30), XmitResult::Drop);
    bench.work(Time::ZERO);
    bench.check(30);
    let stats = bench.device.stats();
    assert_eq!(
        stats.drops,
        [(DropReason::QdiscLimit, 20), (DropReason::DriverRefused, 2)]
    );
    assert_eq!((stats.tx_packets, stats.queued), (3, 5));
}

#[test]
fn inv_tx_2_nothing_is_stuck_when_the_driver_wakes() {
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(3);
    bench.send(0..5);
    assert_eq!(bench.work(Time::ZERO).timer, None);
    // INV-TX-11: a stopped driver is left alone, however much is enqueued.
    let calls = bench.scripts[0].calls().len();
    bench.send(5..105);
    bench.work(Time::ZERO);
    assert_eq!(bench.scripts[0].calls().len(), calls);
    bench.check(105);
    bench.resume(Time::ZERO);
    assert_eq!(bench.marks(0), (0..105).collect::<Vec<_>>());
    bench.check(105);
    assert!(bench.device.queues()[0].is_empty());
}

#[test]
fn inv_tx_4_and_7_requeued_packets_go_first_and_are_counted() {
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(2);
    bench.send(0..4);
    bench.send([100]);
    assert_eq!(bench.device.stats().queues[0].qdisc.requeues, 2);
    bench.resume(Time::ZERO);
    assert_eq!(bench.marks(0), [0, 1, 2, 3, 100]);
    bench.check(5);
}

#[test]
fn inv_tx_12_a_sender_sends_at_most_its_quota_and_the_worker_goes_on() {
    let bench = scripted(QdiscSpec::default(), 1);
    assert_eq!(bench.send(0..200), XmitResult::Success);
    assert_eq!(bench.marks(0).len(), RUN_QUOTA);
    bench.work(Time::ZERO);
    assert_eq!(bench.marks(0), (0..200).collect::<Vec<_>>());
    bench.check(200);
}

#[test]
fn inv_tx_9_the_result_of_a_single_packet_is_its_own() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 0 }, 1);
    assert_eq!(bench.send([1]), XmitResult::Drop);
    assert_eq!(bench.send([1, 2]), XmitResult::Drop);
    let bench = scripted(QdiscSpec::default(), 1);
    assert_eq!(bench.send([1]), XmitResult::Success);
}

#[test]
fn noqueue_drops_what_the_driver_does_not_take() {
    let bench = scripted(QdiscSpec::Noqueue, 1);
    bench.set_capacity(2);
    bench.send(0..3);
    bench.check(3);
    assert_eq!(bench.device.stats().drops, [(DropReason::DriverRefused, 1)]);
}

/// A ring that takes two packets at a time, so that others have their turn.
struct Polite(Arc<Script>, ScriptedRing);

impl TxRing for Polite {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        self.0.set_capacity(2);
        self.1.xmit(packets, sent)
    }
}

#[test]
fn noqueue_offers_again_what_a_driver_would_take_later() {
    let (ring, script) = ScriptedRing::new();
    let bench = with_rings(QdiscSpec::Noqueue, vec![Polite(script.clone(), ring)]);
    bench.send_to(|_| 0, 0..7, Time::ZERO);
    assert_eq!(script.marks(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(bench.device.stats().dropped(), 0);
}

/// A throttled queue arms the worker once, and goes on by its timer.
#[test]
fn a_throttled_queue_goes_on_by_timer() {
    let bench = scripted(shaped(100_000, 200, 10_000), 1);
    bench.send(0..5);
    assert_eq!(bench.marks(0), [0, 1]);
    let mut now = Time::ZERO;
    let mut sent = 2;
    let mut timer = bench.work(now).timer;
    while let Some(due) = timer {
        assert_eq!(due, now.plus_nanos(1_000_000), "100 bytes at 100 kB/s");
        now = due;
        bench.notifier.notify(1);
        timer = bench.work(now).timer;
        sent += 1;
        assert_eq!(bench.marks(0).len(), sent);
    }
    bench.check(5);
}

/// A qdisc that holds one packet until a time, and calls back from the middle of a run.
#[derive(Debug)]
struct Interrupted {
    until: Time,
    held: PacketList,
    stats: QdiscStats,
    interrupt: Interrupt,
}

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
struct Interrupt(Arc<Mutex<Option<Callback>>>);

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interrupt")
    }
}

impl Qdisc for Interrupted {
    fn enqueue(&mut self, packets: &mut PacketList, _: &mut Cx) -> Verdict {
        self.held.append(packets);
        self.stats.qlen = self.held.len() as u64;
        Verdict::Queued
    }
    fn dequeue(&mut self, _: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let interrupt = self.interrupt.0.lock().unwrap().take();
        interrupt.into_iter().for_each(|f| f());
        if self.held.is_empty() {
            return Next::Idle;
        }
        if cx.now < self.until {
            return Next::At(self.until);
        }
        self.drain(out);
        Next::Idle
    }
    fn drain(&mut self, out: &mut PacketList) {
        out.append(&mut self.held);
        self.stats.qlen = 0;
    }
    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

/// The worker's timer fires while a sender runs that has read its clock earlier: the worker is
/// turned away and forgets the timer, so the sender must ask it back, although it sees the timer
/// as armed.
#[test]
fn a_timer_that_fires_during_a_run_is_not_lost() {
    let until = Time(100);
    let bench = Arc::new(scripted(QdiscSpec::default(), 1));
    let interrupt = Interrupt::default();
    let held = Interrupted {
        until,
        held: PacketList::new(),
        stats: QdiscStats::default(),
        interrupt: interrupt.clone(),
    };
    let held = AnyQdisc::Custom(Box::new(held));
    bench
        .device
        .set_qdiscs(
            Qdiscs::per_queue(vec![held]),
            &Clock::virtual_at(Time::ZERO),
        )
        .unwrap();
    bench.send([1]);
    assert_eq!(bench.work(Time::ZERO).timer, Some(until));
    let worker = bench.clone();
    *interrupt.0.lock().unwrap() = Some(Box::new(move || {
        assert_eq!(
            worker.device.queues()[0].run_from_worker(RUN_QUOTA, until),
            None,
            "a sender runs"
        );
    }));
    bench.send_to(|_| 0, [2], Time(99));
    assert!(bench.marks(0).is_empty());
    assert_eq!(bench.work(until).timer, None);
    assert_eq!(bench.marks(0), [1, 2]);
}

#[test]
fn replacing_a_qdisc_keeps_what_is_queued() {
    let bench = scripted(shaped(1, 100, 10_000), 1);
    bench.send(0..10);
    assert_eq!(bench.marks(0), [0]);
    bench.set(&QdiscSpec::Pfifo { limit: 6 });
    bench.work(Time::ZERO);
    assert_eq!(
        bench.marks(0),
        [0, 1, 2, 3, 4, 5, 6],
        "in order; the rest did not fit"
    );
    assert_eq!(bench.device.stats().drops, [(DropReason::QdiscLimit, 3)]);
    let bad = shaped(0, 1, 1);
    assert!(bench.device.set_qdisc(&bad, Time::ZERO).is_err());
    bench.check(10);
}

/// A rate limit is the device's: one bucket for all rings, and the rings share what leaves.
#[test]
fn a_shaped_device_has_one_bucket_for_all_rings() {
    let bench = scripted(shaped(100_000, 2_000, 100_000), 4);
    bench
        .device
        .transmit(flows(&bench.pool, 0..200), Time::ZERO);
    let sent = bench.sent();
    let total: usize = sent.iter().sum();
    assert_eq!(total, 20, "2,000 bytes, not four times as much");
    assert!(sent.iter().all(|&n| n > 0), "{sent:?}");
    let stats = bench.device.stats();
    assert_eq!((stats.queued, stats.tx_packets), (180, 20));
}

/// INV-TX-15: a flow's packets take one ring, under a qdisc for each ring and under one for all.
/// Changing between the two loses nothing, also of what a sender pushed that had still the old
/// number of queues.
#[test]
fn changing_between_one_and_many_qdiscs_loses_nothing() {
    let bench = scripted(QdiscSpec::default(), 4);
    let flows = |marks| flows(&bench.pool, marks);
    bench.set_capacity(3);
    bench.device.transmit(flows(0..100), Time::ZERO);
    assert_eq!(bench.device.stats().queued, 88);
    bench.set(&QdiscSpec::Pfifo { limit: 1000 });
    // As a sender does that has read the number of queues before.
    bench.device.queues()[3].transmit(flows(100..110), Time::ZERO);
    bench.work(Time::ZERO);
    let stats = bench.device.stats();
    assert_eq!((stats.queued, stats.tx_packets), (98, 12));
    bench.set_capacity(5);
    bench.wake(Time::ZERO);
    bench.set(&QdiscSpec::default());
    bench.finish(110);
    assert_eq!(bench.device.stats().dropped(), 0);
    for (ring, script) in bench.scripts.iter().enumerate() {
        let expected = flows(0..110);
        let mut marks: Vec<u32> = expected
            .iter()
            .filter(|p| select_queue(p, 4) == ring)
            .map(Packet::mark)
            .collect();
        let mut sent = script.marks();
        sent.sort_unstable();
        marks.sort_unstable();
        assert_eq!(sent, marks);
    }
}

#[test]
fn a_device_that_is_down_drops_with_a_reason() {
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.send(0..3);
    bench.device.queues()[0].set_active(false);
    bench.send(3..5);
    bench.check(5);
    let drops = bench.device.stats().drops;
    assert_eq!(
        drops,
        [(DropReason::QdiscReset, 3), (DropReason::DeviceDown, 2)]
    );
}

#[test]
fn frames_longer_than_the_mtu_are_dropped() {
    let bench = scripted(QdiscSpec::default(), 1);
    let list = PacketList::from(frame(&bench.pool, 1, 2, 1523, 0));
    bench.device.transmit(list, Time::ZERO);
    assert_eq!(bench.device.stats().drops, [(DropReason::Mtu, 1)]);
}

/// INV-TX-1, INV-TX-2, INV-TX-3 with real threads, a driver that stalls, and a worker: all is
/// accounted for, nothing is stuck, each sender's packets leave in its order.
#[test]
fn senders_keep_their_order_and_lose_nothing() {
    let each = if cfg!(miri) { 8 } else { 5_000 };
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 1);
    let packets = |sender: u32, n: u32| {
        let burst = n..(n + 1 + n % 5).min(each);
        burst.map(|n| bench.packet(0, sender << 24 | n)).collect()
    };
    let serve = |turn: usize| {
        bench.set_capacity(turn % 50);
        bench.wake(Time::ZERO);
    };
    let offered = bench.storm(6, each, packets, serve, || {});
    bench.finish(offered);
    assert!(!bench.marks(0).is_empty());
    bench.assert_order();
}
