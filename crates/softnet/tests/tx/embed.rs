//! Services to drivers, qdiscs and senders of an embedding program: wakers, the time of the push,
//! features that change, completions freed in bulk, back-pressure.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use softnet::qdisc::{Cx, Next, Pfifo, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::testing::{large_pool, large_tcp};
use softnet_tc::CustomSpec;

/// Marks and timestamps, in nanoseconds.
type Noted = Arc<Mutex<Vec<(u32, u64)>>>;

/// A FIFO that wants the enqueue time, and notes marks and timestamps.
#[derive(Debug)]
struct Timed(Pfifo, Noted);

impl Qdisc for Timed {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let times = packets.iter().map(|p| (p.mark(), p.timestamp().nanos()));
        self.1.lock().unwrap().extend(times);
        self.0.enqueue(packets, cx)
    }
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.0.dequeue(budget, out, cx)
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.0.drain(out);
    }
    fn wants_enqueue_time(&self) -> bool {
        true
    }
    fn stats(&self) -> &QdiscStats {
        self.0.stats()
    }
}

/// Such a FIFO, and what it notes.
pub(crate) fn timed() -> (QdiscSpec, Noted) {
    let times = Noted::default();
    let seen = times.clone();
    let timed = CustomSpec::new("timed", move |_| {
        Box::new(Timed(Pfifo::new(1000), seen.clone()))
    });
    (QdiscSpec::Custom(timed), times)
}

/// A departure time, which a program has noted, is not lost to the time of the push. The time of
/// an arrival is, also where the thread that noted it read the clock later.
#[test]
fn a_departure_time_stays() {
    let (spec, times) = timed();
    let bench = scripted(spec, 1);
    let mut later = bench.packet(0, 1);
    later.set_departure_time(Time(90));
    let mut packets = PacketList::from(later);
    packets.push_back(bench.packet(0, 2));
    let mut arrived = bench.packet(0, 3);
    arrived.set_timestamp(Time(60));
    packets.push_back(arrived);
    bench.device.transmit(packets, Time(50));
    assert_eq!(*times.lock().unwrap(), [(1, 90), (2, 50), (3, 50)]);
}

/// A qdisc that asks for it sees the time of the push, also of a packet that its owner, which
/// began earlier, adopts; and the time of the change for what waited when it was installed.
#[test]
fn the_enqueue_time_is_that_of_the_push() {
    let (spec, times) = timed();
    let bench = scripted(QdiscSpec::Pfifo { limit: 1000 }, 1);
    bench.set_capacity(1);
    bench.send(0..2);
    bench.send([2]);
    let device = bench.device.clone();
    device.set_qdisc(&spec, Time(10)).expect("a qdisc");
    assert_eq!(
        *times.lock().unwrap(),
        [(2, 10)],
        "1 is requeued, and has left the qdisc"
    );
    bench.resume(Time(20));
    let adopted = bench.packet(0, 4);
    let mut adopted = Some(adopted);
    let other = device.clone();
    bench.scripts[0].on_next_call(move || {
        let packet = adopted.take().expect("called once");
        other.transmit(packet.into(), Time(70));
    });
    device.transmit(bench.packet(0, 3).into(), Time(50));
    bench.work(Time(90));
    assert_eq!(*times.lock().unwrap(), [(2, 10), (3, 50), (4, 70)]);
    bench.set(&QdiscSpec::Pfifo { limit: 1000 });
    bench.check(5);
}

/// A ring that has nothing but its waker.
#[derive(Default, Clone)]
struct Bound {
    waker: Arc<Mutex<Option<RingWaker>>>,
    capacity: Arc<AtomicUsize>,
    sent: Arc<Mutex<Vec<u32>>>,
}

impl TxRing for Bound {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        while !packets.is_empty() {
            let less = |n: usize| n.checked_sub(1);
            let relaxed = Ordering::Relaxed;
            if self.capacity.fetch_update(relaxed, relaxed, less).is_err() {
                return Xmit::Busy;
            }
            let packet = packets.pop_front().expect("not empty");
            sent.packets += 1;
            sent.bytes += packet.wire_len();
            self.sent.lock().unwrap().push(packet.mark());
        }
        Xmit::Complete
    }
    fn bind(&mut self, waker: RingWaker) {
        let before = self.waker.lock().unwrap().replace(waker);
        assert!(before.is_none(), "bound once");
    }
}

/// A driver knows its waker alone, also where one qdisc feeds all rings, and after the qdiscs have
/// changed to one for each ring and back.
#[test]
fn a_ring_wakes_the_queue_that_feeds_it() {
    let rings = [Bound::default(), Bound::default()];
    let bench = with_rings(QdiscSpec::default(), rings.to_vec());
    let mut mark = 0;
    for qdisc in [
        QdiscSpec::default(),
        QdiscSpec::Pfifo { limit: 100 },
        QdiscSpec::default(),
    ] {
        bench.set(&qdisc);
        bench.work(Time::ZERO);
        for ring in &rings {
            let index = u16::from(!Arc::ptr_eq(&ring.sent, &rings[0].sent));
            bench.send_to(|_| index, [mark], Time::ZERO);
            bench.work(Time::ZERO);
            assert!(ring.sent.lock().unwrap().last() != Some(&mark), "full");
            ring.capacity.store(1, Ordering::Relaxed);
            let waker = ring.waker.lock().unwrap().clone();
            waker.expect("bound").wake();
            bench.work(Time::ZERO);
            assert_eq!(ring.sent.lock().unwrap().last(), Some(&mark));
            mark += 1;
        }
    }
    bench.check(mark.into());
}

/// A guest reconnects with other features: what was requeued for the old ones is segmented, or
/// dropped where the MTU has shrunk, before the driver sees it, and before what came later.
#[test]
fn other_features_make_what_waits_fit_again() {
    let pool = large_pool(256);
    let large = Features {
        checksum: true,
        tso4: true,
        mtu: 1500,
        ..Features::default()
    };
    let qdiscs = QdiscSpec::default().instances(1, &pool).expect("a qdisc");
    let bench = Bench::scripted(features(large), qdiscs, &pool);
    bench.set_capacity(0);
    bench
        .device
        .transmit(large_tcp(&pool, 5000, 1000, 1).into(), Time::ZERO);
    bench
        .device
        .transmit(frame(&pool, 1, 2, 1400, 2).into(), Time::ZERO);
    bench
        .device
        .transmit(frame(&pool, 1, 2, 100, 3).into(), Time::ZERO);
    assert_eq!(bench.device.stats().qdisc().requeues, 1);
    bench
        .device
        .set_features(Features {
            mtu: 1200,
            ..Features::default()
        })
        .unwrap();
    assert_eq!(
        bench.device.stats().queued,
        7,
        "five segments and two packets"
    );
    bench.resume(Time::ZERO);
    let sent = bench.scripts[0].sent().clone();
    let expected = [1, 1, 1, 1, 1].map(|mark| (mark, 1054));
    assert_eq!(sent[..5], expected);
    assert_eq!(sent[5..], [(3, 100)]);
    let stats = bench.device.stats();
    assert_eq!(stats.drops, [(DropReason::Mtu, 1)]);
    assert_eq!((stats.queued, stats.tx_packets), (0, 6));
}

/// A driver that holds its packets until the test says that its device is done.
struct Holding {
    packets: Arc<Mutex<PacketList>>,
    done: Arc<AtomicBool>,
}

impl TxRing for Holding {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        sent.packets += packets.len() as u64;
        sent.bytes += packets.bytes();
        self.packets.lock().unwrap().append(packets);
        Xmit::Complete
    }

    fn available(&mut self, _now: Time) -> Option<u64> {
        let mut packets = self.packets.lock().unwrap();
        if self.done.swap(false, Ordering::Relaxed) {
            drop(packets.take());
        }
        Some(3001_u64.saturating_sub(packets.bytes()))
    }
}

/// Completed packets are freed when the queue's owner asks the driver, all at once.
#[test]
fn completions_are_freed_in_bulk() {
    let done = Arc::new(AtomicBool::new(false));
    let ring = Holding {
        packets: Arc::default(),
        done: done.clone(),
    };
    let bench = with_rings(QdiscSpec::default(), vec![ring]);
    bench.send(0..60);
    assert_eq!(
        bench.device.stats().tx_packets,
        31,
        "3000 bytes and one packet"
    );
    assert_eq!(bench.pool.stats().free, BUFFERS - 60);
    done.store(true, Ordering::Relaxed);
    bench.wake(Time(1_000_000));
    assert_eq!(bench.pool.stats().free, BUFFERS - 29);
    done.store(true, Ordering::Relaxed);
    bench.wake(Time(2_000_000));
    bench.check(60);
}

/// Each of `senders` threads sends so many packets, each when fewer than `limit` wait.
fn send_with_back_pressure<R: TxRing>(
    device: &Device<R, AnyQdisc>,
    pool: &Pool,
    sender: u32,
    packets: u32,
    limit: usize,
) {
    for n in 0..packets {
        let queue = &device.queues()[0];
        assert!(
            queue
                .wait_for_capacity(limit, Duration::from_secs(60))
                .unwrap()
        );
        let packet = frame(pool, 1, 2, 100, sender << 24 | n);
        let result = device.transmit(packet.into(), Time::ZERO);
        assert_ne!(result, XmitResult::Drop);
    }
}

/// A sender that waits for capacity loses nothing where a worker drains, whether senders own the
/// queue or the worker alone, and whatever the driver's capacity.
#[test]
fn back_pressure_loses_nothing_where_a_worker_drains() {
    const SENDERS: u32 = 4;
    let each = if cfg!(miri) { 5 } else { 500 };
    for served_by in [ServedBy::Senders, ServedBy::Worker] {
        let pool = pool(1024);
        let (ring, script) = ScriptedRing::new();
        let config = policy(TxPolicy {
            served_by,
            max_burst: 40,
            yields: false,
        });
        // Twice what they wait for, and more: the length that they see lacks what the queue's owner
        // has just taken over, so that as much may come in its place.
        let qdisc = QdiscSpec::Pfifo { limit: 80 };
        let out = start(config, qdisc, vec![ring], &pool, Clock::monotonic());
        let left = AtomicUsize::new(SENDERS as usize);
        std::thread::scope(|scope| {
            for sender in 0..SENDERS {
                let (device, pool, left) = (out.device(), &pool, &left);
                scope.spawn(move || {
                    // Every sender may find capacity at once.
                    send_with_back_pressure(device, pool, sender, each, 30);
                    left.fetch_sub(1, Ordering::Release);
                });
            }
            let (mut n, left) = (0, &left);
            while left.load(Ordering::Acquire) != 0 {
                n += 1;
                script.set_capacity(n % 7);
                out.device().queues()[0].wake();
                std::thread::yield_now();
            }
            script.set_capacity(usize::MAX);
            out.device().queues()[0].wake();
        });
        let device = out.device().clone();
        out.stop(Duration::from_secs(60));
        let stats = device.stats();
        let sent = u64::from(SENDERS * each);
        assert_eq!(
            (stats.tx_packets, stats.dropped(), stats.queued),
            (sent, 0, 0)
        );
        let marks = script.marks();
        for sender in 0..SENDERS {
            assert!(marks.iter().filter(|&&m| m >> 24 == sender).is_sorted());
        }
    }
}

/// The same without a worker: another sender, which does not wait, drains what they push.
#[test]
fn back_pressure_loses_nothing_where_other_senders_drain() {
    const SENDERS: u32 = 3;
    // More than the limit, together.
    let each = if cfg!(miri) { 5 } else { 2000 };
    // More than the one that does not wait adds while an owner of the queue is off its CPU.
    let limit = BUFFERS as u32 * 3 / 4;
    let bench = scripted(QdiscSpec::Pfifo { limit }, 1);
    let left = AtomicUsize::new(SENDERS as usize);
    let mut drained = 0_u64;
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (bench, left) = (&bench, &left);
            scope.spawn(move || {
                send_with_back_pressure(&bench.device, &bench.pool, sender, each, 30);
                left.fetch_sub(1, Ordering::Release);
            });
        }
        while left.load(Ordering::Acquire) != 0 {
            // Packets wait when no thread owns the queue: the next sender drains them.
            bench.set_capacity(5);
            if bench.pool.stats().free > BUFFERS / 2 {
                drained += 1;
                bench.device.queues()[0].wake();
                bench.send([SENDERS << 24 | drained as u32]);
            } else {
                // What came to an owner that was off its CPU: nobody else would drain it.
                bench.wake(Time::ZERO);
            }
            std::thread::yield_now();
        }
    });
    let offered = u64::from(SENDERS * each) + drained;
    bench.finish(offered);
    assert_eq!(bench.device.stats().dropped(), 0);
}
