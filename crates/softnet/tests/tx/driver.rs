//! What a driver sees of a queue: whole batches, the end of each, segments in order however little room it has, and nothing freed before its turn
//! (INV-TX-13, INV-TX-18, BUG-TX-11, BUG-TX-12, BUG-TX-14).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::bench::{BUFFERS, Bench};
use super::*;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::{Next, Qdisc, QdiscStats, Verdict};
use softnet::stats::{DropReason, Dropped};
use softnet::testing::{frame, packet};
use softnet::time::Time;
use softnet::wire::{Gso, GsoKind};
use softnet_tc::{CustomSpec, QdiscSpec};

/// What a driver notes.
#[derive(Debug, Default)]
struct Notes {
    /// How many packets lay before it at each call.
    batches: Vec<usize>,
    marks: Vec<u32>,
    /// TCP sequence numbers.
    sequence: Vec<u32>,
    /// Packets that the device has not been told of.
    unnotified: usize,
    notifications: usize,
    /// Free buffers at each call.
    free: Vec<usize>,
}

/// A driver that has room for so many packets, and holds back its notification until the last of a batch, or until it is full (`xmit_more`).
#[derive(Debug)]
struct NotingRing {
    notes: Arc<Mutex<Notes>>,
    room: Arc<AtomicUsize>,
    pool: Arc<Mutex<Option<Pool>>>,
}

impl NotingRing {
    fn new() -> NotingRing {
        NotingRing {
            notes: Arc::default(),
            room: Arc::new(AtomicUsize::new(usize::MAX)),
            pool: Arc::default(),
        }
    }

    fn twin(&self) -> NotingRing {
        NotingRing {
            notes: self.notes.clone(),
            room: self.room.clone(),
            pool: self.pool.clone(),
        }
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap()
    }
}

impl TxRing for NotingRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let mut notes = self.notes.lock().unwrap();
        notes.batches.push(packets.len());
        if let Some(pool) = &*self.pool.lock().unwrap() {
            notes.free.push(pool.stats().free);
        }
        while !packets.is_empty() {
            let take = |n: usize| n.checked_sub(1);
            let full = self
                .room
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_err();
            if !full {
                let packet = packets.pop_front().unwrap();
                sent.packets += packet.wire_packets();
                sent.bytes += packet.wire_len();
                notes.marks.push(packet.mark());
                if let Some(bytes) = packet.data().get(38..42) {
                    let sequence = u32::from_be_bytes(bytes.try_into().unwrap());
                    notes.sequence.push(sequence);
                }
                notes.unnotified += 1;
            }
            if (full || packets.is_empty()) && notes.unnotified > 0 {
                notes.unnotified = 0;
                notes.notifications += 1;
            }
            if full {
                return Xmit::Busy;
            }
        }
        Xmit::Complete
    }
}

impl Completes for NotingRing {
    fn complete(&mut self) -> u64 {
        0
    }
}

/// INV-TX-13: the device is told of each batch once, with its last packet, also where the ring or its byte limit ends it early; nothing stays
/// untold.
#[test]
fn inv_tx_13_the_end_of_each_batch_is_told() {
    let ring = NotingRing::new();
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, vec![ring.twin()]);
    let told = || {
        let notes = ring.notes();
        assert_eq!(notes.unnotified, 0);
        notes.notifications
    };
    bench.send(0..64, |_| 0, Time::ZERO);
    assert_eq!(told(), 1);
    bench.send(64..164, |_| 0, Time::ZERO);
    bench.work(Time::ZERO);
    assert_eq!(told(), 3, "64 and 36");
    ring.room.store(10, Ordering::Relaxed);
    bench.send(164..200, |_| 0, Time::ZERO);
    assert_eq!(told(), 4, "ten before the ring was full");
    ring.room.store(usize::MAX, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    bench.work(Time::ZERO);
    assert_eq!(told(), 5, "the rest at once, not one by one");
    bench.check(200);

    // Several rings: once for each that has a share, though the packets alternate.
    let rings: Vec<_> = (0..3).map(|_| NotingRing::new()).collect();
    let twins = rings.iter().map(NotingRing::twin).collect();
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, twins);
    bench.send(0..64, |mark| (mark % 2) as u16, Time::ZERO);
    for (ring, told) in rings.iter().zip([1, 1, 0]) {
        let notes = ring.notes();
        assert_eq!((notes.notifications, notes.unnotified), (told, 0));
        assert_eq!(notes.batches.len(), told, "and called for nothing else");
    }

    // A byte limit ends the batch: of 64 packets 6 go in.
    let ring = NotingRing::new();
    let bounds = DqlBounds { min: 500, max: 500 };
    let limited = ByteLimited::new(ring.twin(), bounds, Time::ZERO);
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, vec![limited]);
    bench.send(0..64, |_| 0, Time::ZERO);
    let notes = ring.notes();
    assert_eq!((notes.marks.len(), notes.unnotified), (6, 0));
    assert_eq!(notes.notifications, 1);
}

/// BUG-TX-14: a batch is never larger than what is left of the quota, and what a full ring gave back is offered again in one piece.
#[test]
fn bug_tx_14_batches_are_bounded_by_the_quota_that_is_left() {
    let ring = NotingRing::new();
    let bench = Bench::new(QdiscSpec::Pfifo { limit: 2000 }, vec![ring.twin()]);
    bench.send(0..1000, |_| 0, Time::ZERO);
    bench.work(Time::ZERO);
    assert_eq!(ring.notes().batches.iter().max(), Some(&RUN_QUOTA));
    assert_eq!(ring.notes().batches.iter().sum::<usize>(), 1000);

    // Whoever tries again pays with his quota: 40 of 50 come back, and of what waits behind them only 24 leave in the same run.
    ring.notes().batches.clear();
    ring.room.store(10, Ordering::Relaxed);
    bench.send(1000..1050, |_| 0, Time::ZERO);
    bench.send(1050..1250, |_| 0, Time::ZERO);
    ring.room.store(usize::MAX, Ordering::Relaxed);
    bench.device.queues()[0].wake();
    let _ = bench.device.run_from_worker(0, RUN_QUOTA, Time::ZERO);
    assert_eq!(ring.notes().batches, [50, 40, 24]);
    let _ = bench.device.run_from_worker(0, 10, Time::ZERO);
    assert_eq!(ring.notes().batches.last(), Some(&10));
    bench.work(Time::ZERO);
    assert_eq!(ring.notes().marks, (0..1250).collect::<Vec<_>>());
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
    large.set_gso(Some(Gso {
        kind: GsoKind::TcpV4,
        ecn: false,
        size: SEGMENT,
        segments,
        header_len: 54,
    }));
    large
}

/// BUG-TX-11, BUG-TX-12: the driver's room ends in the middle of a large frame that was cut into segments, at every place there is. All that it did not take
/// comes again, in order, and nothing that was sent.
#[test]
fn bug_tx_11_12_segments_are_requeued_whole_and_in_order() {
    for rings in [1, 2] {
        for step in 1..=13 {
            let ring = NotingRing::new();
            let twins: Vec<_> = (0..rings).map(|_| ring.twin()).collect();
            let bench = Bench::new(QdiscSpec::Pfifo { limit: 1000 }, twins);
            ring.room.store(0, Ordering::Relaxed);
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
                ring.room.store(step, Ordering::Relaxed);
                bench.device.queues()[0].wake();
                bench.work(Time::ZERO);
                sent = (sent + step as u64).min(all);
            }
            let stats = bench.device.stats();
            assert_eq!((stats.tx_packets, stats.queued), (all, 0));
            assert_eq!((stats.dropped(), stats.qdisc().backlog), (0, 0));
            assert_eq!(stats.qdisc().packets, all, "INV-TX-17");
            assert_eq!(ring.notes().sequence, expected);
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
    fn enqueue(&mut self, packets: &mut PacketList, _: Time, dropped: &mut Dropped) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            if packet.mark() % 3 == 0 {
                dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
            } else {
                self.held.push_back(packet);
            }
        }
        self.stats.qlen = self.held.len() as u64;
        verdict
    }
    fn dequeue(&mut self, _: usize, _: Time, out: &mut PacketList, dropped: &mut Dropped) -> Next {
        while let Some(packet) = self.held.pop_front() {
            if packet.mark() % 3 == 1 {
                dropped.push(packet, DropReason::QdiscLimit);
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
    fn stats(&self) -> QdiscStats {
        self.stats
    }
}

/// INV-TX-18: what is dropped in a run, at enqueue, at dequeue or because it does not fit the device, is freed after the driver has had what it gets: nobody's
/// packet waits for another's to be freed.
#[test]
fn inv_tx_18_drops_are_freed_after_the_driver_was_served() {
    let ring = NotingRing::new();
    let bench = Bench::new(QdiscSpec::default(), vec![ring.twin()]);
    let thirds = CustomSpec::new("thirds", |_| Box::new(Thirds::default()));
    let thirds = QdiscSpec::Custom(thirds);
    bench.device.set_qdisc(&thirds, Time::ZERO).unwrap();
    bench.work(Time::ZERO);
    *ring.pool.lock().unwrap() = Some(bench.pool.clone());
    let mut list: PacketList = (0..30).map(|m| bench.packet(0, m)).collect();
    // Two of the last third are too long for the device.
    for mark in [32, 35] {
        list.push_back(frame(&bench.pool, 1, 2, 1600, mark));
    }
    bench.device.transmit(list, Time::ZERO);
    let notes = ring.notes();
    assert_eq!(notes.free, [BUFFERS - 32], "none was freed before");
    assert_eq!(notes.marks, (0..10).map(|n| 3 * n + 2).collect::<Vec<_>>());
    let stats = bench.device.stats();
    assert_eq!(
        stats.drops,
        [(DropReason::QdiscLimit, 20), (DropReason::Mtu, 2)]
    );
    assert_eq!(bench.pool.stats().free, BUFFERS, "and all afterwards");
}
