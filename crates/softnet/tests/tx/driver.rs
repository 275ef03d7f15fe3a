//! A queue as a driver sees it: whole batches, the end of each, segments in order however little
//! capacity it has, and nothing freed before its turn (INV-TX-13, INV-TX-18, BUG-TX-11, BUG-TX-12,
//! BUG-TX-14).

use std::sync::{Arc, Mutex};

use super::*;
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::testing::{Script, packet};
use softnet_tc::CustomSpec;

/// Notifications of a driver that holds them back until the last packet of a batch, or until it is
/// full (`xmit_more`): one in each call that takes packets.
fn notifications(script: &Script) -> usize {
    script.calls().iter().filter(|call| call.taken > 0).count()
}

/// The size of each batch.
fn batches(script: &Script) -> Vec<usize> {
    script.calls().iter().map(|call| call.offered).collect()
}

/// INV-TX-13: the device is notified of each batch once, also where the ring or its byte limit
/// ends it early.
#[test]
fn inv_tx_13_the_end_of_each_batch_is_notified() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 1);
    let notified = || notifications(&bench.scripts[0]);
    bench.send(0..64);
    assert_eq!(notified(), 1);
    bench.send(64..164);
    bench.work(Time::ZERO);
    assert_eq!(notified(), 3, "64 and 36");
    bench.set_capacity(10);
    bench.send(164..200);
    assert_eq!(notified(), 4, "ten before the ring was full");
    bench.resume(Time::ZERO);
    assert_eq!(notified(), 5, "the rest at once, not one by one");
    bench.check(200);

    // Several rings: once for each that has a share, though the packets alternate.
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 3);
    bench.send_to(|mark| (mark % 2) as u16, 0..64, Time::ZERO);
    for (script, notified) in bench.scripts.iter().zip([1, 1, 0]) {
        assert_eq!(notifications(script), notified);
        assert_eq!(
            script.calls().len(),
            notified,
            "and called for nothing else"
        );
    }

    // A byte limit ends the batch: of 64 packets 6 go in.
    let (ring, script) = ScriptedRing::new();
    script.set_byte_limit(500);
    let bench = with_rings(QdiscSpec::Pfifo { limit: 1000 }, vec![ring]);
    bench.send(0..64);
    assert_eq!((script.sent().len(), notifications(&script)), (6, 1));
}

/// BUG-TX-14: a batch is never larger than the quota that is left, and what a full ring gave back
/// is offered again in one piece.
#[test]
fn bug_tx_14_batches_are_bounded_by_the_quota_that_is_left() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 2000 }, 1);
    let script = &bench.scripts[0];
    bench.send(0..1000);
    bench.work(Time::ZERO);
    assert_eq!(batches(script).iter().max(), Some(&RUN_QUOTA));
    assert_eq!(batches(script).iter().sum::<usize>(), 1000);

    // Requeued packets are charged to the quota, too: 40 of 50 come back, and only 24 of those
    // behind them leave in the same run.
    script.calls().clear();
    bench.set_capacity(10);
    bench.send(1000..1050);
    bench.send(1050..1250);
    bench.set_capacity(usize::MAX);
    bench.device.queues()[0].wake();
    let _ = bench.device.run_from_worker(0, RUN_QUOTA, Time::ZERO);
    assert_eq!(batches(script), [50, 40, 24]);
    let _ = bench.device.run_from_worker(0, 10, Time::ZERO);
    assert_eq!(batches(script).last(), Some(&10));
    bench.work(Time::ZERO);
    assert_eq!(bench.marks(0), (0..1250).collect::<Vec<_>>());
    bench.check(1250);
}

/// Bytes of payload of each segment.
const SEGMENT: u16 = 100;

/// A large TCP frame whose segments' sequence numbers begin at `first` and are [`SEGMENT`] apart.
fn large(pool: &Pool, first: u32, segments: u16) -> Packet {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1234, 80, first, 65_535);
    let mut bytes = Vec::new();
    let payload = vec![7; usize::from(segments) * usize::from(SEGMENT)];
    builder.write(&mut bytes, &payload).unwrap();
    let mut large = packet(pool);
    assert!(large.append(&bytes));
    large.set_mark(first);
    large.set_queue(Some(0));
    large.set_gso(Some(gso(SEGMENT, segments, 54)));
    large
}

/// BUG-TX-11, BUG-TX-12: the driver's capacity ends in the middle of a large frame that was
/// segmented, at every place there is. All that it did not take comes again, in order, and nothing
/// that was sent.
#[test]
fn bug_tx_11_12_segments_are_requeued_whole_and_in_order() {
    for rings in [1, 2] {
        for step in 1..=13 {
            let (_, script) = ScriptedRing::new();
            let twins = (0..rings).map(|_| ScriptedRing::following(&script));
            let bench = with_rings(QdiscSpec::Pfifo { limit: 1000 }, twins.collect());
            let sequence = Arc::new(Mutex::new(Vec::new()));
            let seen = sequence.clone();
            script.set_sink(move |packet| {
                let bytes = packet.data()[38..42].try_into().unwrap();
                seen.lock().unwrap().push(u32::from_be_bytes(bytes));
            });
            script.set_capacity(0);
            let count = |frame: u32| (frame * 3 % 7 + 2) as u16;
            let mut expected = Vec::new();
            for frame in 0..6_u32 {
                let first = frame * 10_000;
                let sequence = (0..count(frame)).map(|n| first + u32::from(n * SEGMENT));
                expected.extend(sequence);
                let large = large(&bench.pool, first, count(frame));
                bench.device.transmit(large.into(), Time::ZERO);
            }
            let all = expected.len() as u64;
            let mut sent = 0;
            while sent < all {
                let stats = bench.device.stats();
                assert_eq!((stats.tx_packets, stats.queued), (sent, all - sent));
                // INV-TX-6: bytes are symmetrical for segments; each is 154 bytes long.
                assert_eq!(stats.qdisc().backlog, 154 * (all - sent));
                script.set_capacity(step);
                bench.wake(Time::ZERO);
                sent = (sent + step as u64).min(all);
            }
            let stats = bench.device.stats();
            assert_eq!((stats.tx_packets, stats.queued), (all, 0));
            assert_eq!((stats.dropped(), stats.qdisc().backlog), (0, 0));
            assert_eq!(stats.qdisc().packets, all, "INV-TX-17");
            assert_eq!(*sequence.lock().unwrap(), expected);
            assert_eq!(bench.pool.stats().free, BUFFERS);
        }
    }
}

/// Drops every third packet when it comes and every third when it leaves.
#[derive(Debug, Default)]
struct Thirds {
    held: PacketList,
    stats: QdiscStats,
}

impl Qdisc for Thirds {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            if packet.mark() % 3 == 0 {
                cx.dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
            } else {
                self.held.push_back(packet);
            }
        }
        self.stats.qlen = self.held.len() as u64;
        verdict
    }
    fn dequeue(&mut self, _: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        while let Some(packet) = self.held.pop_front() {
            if packet.mark() % 3 == 1 {
                cx.dropped.push(packet, DropReason::QdiscLimit);
            } else {
                out.push_back(packet);
            }
        }
        self.stats.qlen = 0;
        Next::Idle
    }
    fn drain(&mut self, out: &mut PacketList) {
        out.append(&mut self.held);
    }
    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

/// INV-TX-18: what is dropped in a run, at enqueue, at dequeue or because it does not fit the
/// device, is freed after the driver was served: nobody's packet waits for another's to be freed.
#[test]
fn inv_tx_18_drops_are_freed_after_the_driver_was_served() {
    let bench = scripted(QdiscSpec::default(), 1);
    let thirds = CustomSpec::new("thirds", |_| Box::new(Thirds::default()));
    bench.set(&QdiscSpec::Custom(thirds));
    bench.work(Time::ZERO);
    let free = Arc::new(Mutex::new(Vec::new()));
    let (seen, pool) = (free.clone(), bench.pool.clone());
    bench.scripts[0].on_call(move || seen.lock().unwrap().push(pool.stats().free));
    let mut list: PacketList = (0..30).map(|m| bench.packet(0, m)).collect();
    // Two of the last third are too long for the device.
    for mark in [32, 35] {
        list.push_back(frame(&bench.pool, 1, 2, 1600, mark));
    }
    bench.device.transmit(list, Time::ZERO);
    assert_eq!(
        *free.lock().unwrap(),
        [BUFFERS - 32],
        "none was freed before"
    );
    assert!(bench.marks(0).into_iter().eq((0..10).map(|n| 3 * n + 2)));
    let drops = bench.device.stats().drops;
    assert_eq!(drops, [(DropReason::QdiscLimit, 20), (DropReason::Mtu, 2)]);
    assert_eq!(bench.pool.stats().free, BUFFERS, "and all afterwards");
}

/// A driver that sends `packet.data()` gets whole frames.
struct FirstSegments(Arc<Mutex<Vec<Vec<u8>>>>);

impl TxRing for FirstSegments {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        for packet in packets.take() {
            sent.count(&packet);
            self.0.lock().unwrap().push(packet.data().to_vec());
        }
        Xmit::Complete
    }
}

/// A ring that says nothing of chains gets none: a frame in two buffers arrives whole, past the
/// qdisc and through it.
#[test]
fn a_chain_arrives_whole_at_a_driver_of_one_segment() {
    let frames = Arc::new(Mutex::new(Vec::new()));
    let bench = with_rings(QdiscSpec::default(), vec![FirstSegments(frames.clone())]);
    for packets in [1, 3] {
        let chain = |mark| {
            let mut packet = frame(&bench.pool, 1, 2, 60, mark);
            packet.append_segment(frame(&bench.pool, 3, 4, 500, 0));
            packet
        };
        let list: PacketList = (0..packets).map(chain).collect();
        let whole: Vec<u8> = list
            .front()
            .unwrap()
            .segments()
            .flatten()
            .copied()
            .collect();
        bench.device.transmit(list, Time::ZERO);
        let sent = std::mem::take(&mut *frames.lock().unwrap());
        assert_eq!(sent, vec![whole; packets as usize]);
    }
    let stats = bench.device.stats();
    assert_eq!(
        (stats.tx_packets, stats.tx_bytes, stats.dropped()),
        (4, 4 * 560, 0)
    );
}
