//! Packets that could be lost without a count, kept without a limit, or left behind.

use super::embed::timed;
use super::*;
use softnet::qdisc::{Cx, Next, Noqueue, Pfifo, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;
use softnet_tc::{CustomSpec, Handle, PrioSpec, TreeSpec};

/// A ring whose device is down: it takes everything, and says so.
struct Down;

impl TxRing for Down {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let taken = packets.take();
        taken
            .iter()
            .for_each(|packet| sent.drop(DropReason::DeviceDown, packet));
        Xmit::Complete
    }
}

/// A ring that refuses packets for two reasons.
struct Picky;

impl TxRing for Picky {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        for packet in &packets.take() {
            match packet.mark() % 3 {
                0 => sent.count(packet),
                1 => sent.drop(DropReason::TooLong, packet),
                _ => sent.drop(DropReason::DriverRefused, packet),
            }
        }
        Xmit::Complete
    }
}

#[test]
fn each_drop_of_a_batch_is_counted_for_its_reason() {
    let bench = with_rings(QdiscSpec::Pfifo { limit: 100 }, vec![Picky]);
    bench.send_to(|_| 0, 0..10, Time::ZERO);
    let stats = bench.device.stats();
    assert_eq!(stats.tx_packets, 4);
    let drops = [(DropReason::TooLong, 3), (DropReason::DriverRefused, 3)];
    assert_eq!(stats.drops, drops);
}

/// Drops of one ring are counted before the next ring is given anything.
#[test]
fn what_each_of_several_rings_drops_is_counted() {
    let bench = with_rings(QdiscSpec::Pfifo { limit: 100 }, vec![Down, Down]);
    bench.send_to(|mark| (mark % 2) as u16, 0..10, Time::ZERO);
    assert_eq!(bench.device.drops().get(DropReason::DeviceDown), 10);
    bench.check(10);
}

/// Without a queue nothing waits for a driver that was full before.
#[test]
fn noqueue_keeps_nothing_for_a_full_driver() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 100 }, 1);
    bench.set_capacity(0);
    bench.send(0..2);
    bench.set(&QdiscSpec::Noqueue);
    let requeued = bench.device.stats().queued;
    for mark in 0..50 {
        bench.send([mark]);
    }
    assert!(
        bench.device.stats().queued <= requeued,
        "{:?}",
        bench.device.stats()
    );
    bench.check(52);
}

/// Copies what passes it.
#[derive(Debug)]
struct Copier(Pfifo);

impl Qdisc for Copier {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.0.enqueue(packets, cx)
    }
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let passes = self.0.try_pass(packets, sum, cx);
        for packet in packets.iter().filter(|_| passes) {
            let copy = packet.copy(&cx.pool).expect("a buffer");
            cx.reinject.push_back(copy);
        }
        passes
    }
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.0.dequeue(budget, out, cx)
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.0.drain(out);
    }
    fn stats(&self) -> &QdiscStats {
        self.0.stats()
    }
}

fn copier() -> QdiscSpec {
    QdiscSpec::Custom(CustomSpec::new("copier", |_| {
        Box::new(Copier(Pfifo::new(1000)))
    }))
}

/// INV-TX-2: a copy made while its original passes leaves, too.
#[test]
fn inv_tx_2_a_copy_of_a_packet_that_passes_leaves() {
    let bench = scripted(copier(), 1);
    bench.send([7]);
    assert_eq!(bench.marks(0), [7, 7]);
    bench.check(2);
}

/// A packet that finds the qdisc empty goes past it, also where it feeds several rings; not while a
/// ring is full.
#[test]
fn packets_pass_a_qdisc_of_several_rings_while_none_is_full() {
    let bench = scripted(copier(), 4);
    let send = |ring, mark| bench.send_to(|_| ring, [mark], Time::ZERO);
    send(2, 1);
    assert_eq!(bench.marks(2), [1, 1], "it was copied on its way");
    bench.scripts[3].set_capacity(0);
    send(3, 2);
    send(2, 3);
    assert_eq!(bench.marks(2), [1, 1, 3], "it was queued");
    bench.resume(Time::ZERO);
    assert_eq!(bench.marks(3), [2, 2]);
    send(2, 4);
    assert_eq!(bench.marks(2), [1, 1, 3, 4, 4]);
    bench.check(7);
}

/// INV-TX-10: a control call leaves nothing behind of what is to be enqueued again.
#[test]
fn inv_tx_10_nothing_is_left_to_enqueue_again() {
    for down in [false, true] {
        let bench = scripted(copier(), 1);
        let packet = bench.packet(0, 1);
        bench
            .device
            .with_qdisc(0, &Clock::virtual_at(Time::ZERO), |_, cx| {
                cx.reinject.push_back(packet)
            })
            .unwrap();
        if down {
            bench.device.deactivate().unwrap();
        } else {
            bench.work(Time::ZERO);
        }
        assert_eq!(bench.device.stats().queued, 0);
        bench.check(1);
    }
}

/// The number of qdiscs in use is one or all.
#[test]
#[should_panic(expected = "2 of 4 qdiscs in use")]
fn two_of_four_qdiscs_are_refused() {
    let pool = pool(8);
    let qdiscs = Qdiscs {
        instances: (0..4).map(|_| Noqueue::default()).collect(),
        active: 2,
        map: None,
    };
    let (rings, _) = ScriptedRing::many(4);
    let _ = softnet::testing::Bench::new(config("two"), rings, qdiscs, &pool);
}

/// BUG-TX-23: other rings, and the driver is not stuck any more.
#[test]
fn bug_tx_23_new_rings_are_not_stuck() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 100 }, 1);
    bench.set_capacity(0);
    bench.send(0..2);
    let (ring, _) = ScriptedRing::new();
    bench.device.replace_rings(vec![ring]).unwrap();
    bench.device.watchdog(Time::ZERO + 2 * WATCHDOG_TIMEO);
    assert_eq!(bench.device.stats().tx_timeouts, 0);
}

/// INV-MQ-2: packets that wait keep to the queues of their class when mqprio comes.
#[test]
fn inv_mq_2_what_waits_goes_to_the_queues_of_its_class() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 100 }, 4);
    bench.set_capacity(0);
    let packets: PacketList = (0..40)
        .map(|mark| {
            let mut packet = bench.packet((mark % 4) as u16, mark);
            packet.set_priority(1);
            packet
        })
        .collect();
    bench.device.transmit(packets, Time::ZERO);
    let mut map = QueueMap::default();
    map.prio_tc_map[1] = 1;
    map.classes = [0, 2].map(|offset| TcQueues { count: 2, offset }).to_vec();
    bench.set(&QdiscSpec::Mqprio(map));
    let queued = bench
        .device
        .queues()
        .iter()
        .map(|queue| queue.stats().qdisc.qlen);
    let queued: Vec<u64> = queued.collect();
    assert_eq!(queued[0] + queued[1], 0, "{queued:?}");
    assert!(queued[2] + queued[3] > 0, "{queued:?}");
}

/// A child's packets carry the time of the push, too, whatever its parents are.
#[test]
fn a_child_is_told_the_time_of_the_push() {
    let (child, times) = timed();
    let mut tree = TreeSpec::new();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    let root = tree.add(Handle::ROOT, Handle::NONE, prio).unwrap();
    for band in 1..=3 {
        tree.add(root.class(band), Handle::NONE, child.clone())
            .unwrap();
    }
    let bench = scripted(QdiscSpec::Tree(tree), 1);
    bench.send_to(|_| 0, [1, 2], Time(77));
    assert_eq!(*times.lock().unwrap(), [(1, 77), (2, 77)]);
}
