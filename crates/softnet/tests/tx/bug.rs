//! Scenarios in which Linux's transmit path once failed (BUG-TX-n), on a device whose driver and worker are the test. What a driver sees is in
//! [`driver_tests`](super::driver_tests), what several rings need in [`requeue_tests`](super::requeue_tests).
//!
//! Of some of these bugs one half cannot exist here, and the tests are about the other:
//! - BUG-TX-7: no packet can be used after a reset freed it, because only the thread that has the run reaches the discipline; left is what becomes of the packets.
//! - BUG-TX-12, BUG-TX-22: a packet is an owned value, so none is freed twice; left are those that are forgotten, and those that are counted twice.
//! - BUG-TX-27: there is no `noop_qdisc` that all devices share, and no owner to initialise; left is the memory of a thread of where it has been.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::bench::{BUFFERS, Bench, Hook, HookedRing};
use super::*;
use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::testing::{Done, RecordingRing, frame, wait_for_buffers};
use softnet::time::Time;
use softnet::wire::{Gso, GsoKind};
use softnet_engine::forward::{Actions, Mirred, MirredDir, MirredMode};
use softnet_tc::{Handle, LinkCost, LinkLayer, PrioSpec, QdiscSpec, TbfSpec, TreeSpec};

fn pinned(packets: PacketList, ring: u16) -> PacketList {
    let pin = |mut packet: softnet::mem::Packet| {
        packet.set_queue(Some(ring));
        packet
    };
    packets.into_iter().map(pin).collect()
}

/// BUG-TX-2: while the driver is full nobody is asked to run the queue, however many send and however they meet; one wake-up is one run.
#[test]
fn bug_tx_2_a_stopped_queue_asks_for_no_runs() {
    let each: u32 = if cfg!(miri) { 10 } else { 400 };
    for qdisc in [
        QdiscSpec::Pfifo { limit: 4000 },
        QdiscSpec::PfifoFast { limit: 4000 },
    ] {
        let (ring, record) = RecordingRing::new();
        let bench = Bench::new(qdisc, vec![ring]);
        record.room.store(0, Ordering::Relaxed);
        let (done, runs) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (bench, done, runs) = (&bench, &done, &runs);
            for sender in 0..4 {
                scope.spawn(move || {
                    let _done = Done(done);
                    for n in 0..each {
                        bench.device.transmit(
                            pinned(bench.packet(0, sender << 24 | n).into(), 0),
                            Time::ZERO,
                        );
                    }
                });
            }
            scope.spawn(move || {
                while done.load(Ordering::Acquire) < 4 {
                    runs.fetch_add(bench.work(Time::ZERO), Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
        });
        // A run that has enqueued all that it may hands over, if more came meanwhile.
        let most = u64::from(4 * each) / (4 * RUN_QUOTA as u64);
        let runs = runs.into_inner() + bench.work(Time::ZERO);
        assert!(runs <= most, "{runs}");
        assert_eq!(record.calls.load(Ordering::Relaxed), 1);
        bench.check(u64::from(4 * each));
        // Refused again: the worker runs once and leaves it at that.
        bench.device.queues()[0].wake();
        assert_eq!(bench.work(Time::ZERO), 1);
        assert_eq!(record.calls.load(Ordering::Relaxed), 2);
        record.room.store(usize::MAX, Ordering::Relaxed);
        bench.device.queues()[0].wake();
        bench.work(Time::ZERO);
        assert_eq!(record.marks().len(), 4 * each as usize);
        bench.check(u64::from(4 * each));
    }
}

/// BUG-TX-7 (`ethtool -L` in a loop while UDP flows): queues are taken out of use and brought back while threads send, run and stall them. A queue is emptied only
/// by who runs it, so every packet is sent once or dropped with a reason. What a sender pushes that still had the old number of queues may leave late, or through
/// the first ring: for each change one call, and once what the worker takes out of a queue that is out of use.
#[test]
fn bug_tx_7_queues_come_and_go_while_packets_flow() {
    const SENDERS: u32 = 3;
    let each: u32 = if cfg!(miri) { 30 } else { 20_000 };
    let (rings, records): (Vec<_>, Vec<_>) = (0..4).map(|_| RecordingRing::new()).unzip();
    let bench = Bench::new(QdiscSpec::default(), rings);
    let (offered, done, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let changes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (bench, records) = (&bench, &records);
        let (offered, done, over, changes) = (&offered, &done, &over, &changes);
        for sender in 0..SENDERS {
            scope.spawn(move || {
                let _done = Done(done);
                for n in 0..each {
                    wait_for_buffers(&bench.pool, 512);
                    let packet = bench.packet(sender as u16 + 1, sender << 24 | n);
                    offered.fetch_add(1, Ordering::Relaxed);
                    bench.device.transmit(packet.into(), Time::ZERO);
                }
            });
        }
        scope.spawn(move || {
            let _over = Done(over);
            let mut turn = 0;
            while done.load(Ordering::Acquire) < u64::from(SENDERS) {
                turn += 1;
                records[turn % 4].room.store(turn % 60, Ordering::Relaxed);
                bench.device.queues()[turn % 4].wake();
                bench.work(Time::ZERO);
                std::thread::yield_now();
            }
        });
        while over.load(Ordering::Acquire) == 0 {
            for spec in [QdiscSpec::Pfifo { limit: 900 }, QdiscSpec::default()] {
                bench.device.set_qdisc(&spec, Time::ZERO).unwrap();
                changes.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        }
    });
    for record in &records {
        record.room.store(usize::MAX, Ordering::Relaxed);
    }
    bench.device.queues().iter().for_each(TxQueue::wake);
    bench.work(Time::ZERO);
    bench.check(offered.into_inner());
    assert_eq!(bench.device.stats().queued, 0);
    let mut seen = BTreeSet::new();
    let mut late = 0;
    for (ring, record) in records.iter().enumerate() {
        let mut last = None;
        for mark in record.marks() {
            assert!(seen.insert(mark), "{mark:#x} was sent twice");
            if ring as u32 == (mark >> 24) + 1 {
                late += u64::from(last.replace(mark).is_some_and(|last| last > mark));
            } else {
                assert_eq!(
                    ring, 0,
                    "pushed to the queue of all, which was one of four by then"
                );
                late += 1;
            }
        }
    }
    let changes = changes.into_inner();
    assert!(
        late <= 2 * u64::from(SENDERS) * changes,
        "{late}, {changes} changes"
    );
}

/// BUG-TX-10: a length in two places, one counting what the other takes away. However packets are refused, put back and taken elsewhere while somebody reads, no
/// number is ever more than there can be, and all are exact at rest (INV-TX-6).
#[test]
fn bug_tx_10_lengths_never_wrap() {
    const SENDERS: u32 = 3;
    let each: u32 = if cfg!(miri) { 30 } else { 20_000 };
    for (qdisc, rings) in [
        (QdiscSpec::default(), 1),
        (QdiscSpec::Pfifo { limit: 500 }, 2),
    ] {
        let (rings, records): (Vec<_>, Vec<_>) = (0..rings).map(|_| RecordingRing::new()).unzip();
        let bench = Bench::new(qdisc, rings);
        let (offered, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let worst = Mutex::new((0, 0, 0));
        std::thread::scope(|scope| {
            let (bench, records, offered, done) = (&bench, &records, &offered, &done);
            for sender in 0..SENDERS {
                scope.spawn(move || {
                    let _done = Done(done);
                    for n in 0..each {
                        wait_for_buffers(&bench.pool, 512);
                        let packet = bench.packet((n % 2) as u16, sender << 24 | n);
                        offered.fetch_add(1, Ordering::Relaxed);
                        bench.device.transmit(packet.into(), Time::ZERO);
                    }
                });
            }
            scope.spawn(move || {
                let mut turn = 0;
                while done.load(Ordering::Acquire) < u64::from(SENDERS) {
                    turn += 1;
                    let record = &records[turn % records.len()];
                    record.room.store(turn % 30, Ordering::Relaxed);
                    bench.device.queues()[0].wake();
                    bench.work(Time::ZERO);
                    std::thread::yield_now();
                }
            });
            let worst = &worst;
            scope.spawn(move || {
                while done.load(Ordering::Acquire) < u64::from(SENDERS) {
                    let q = bench.device.stats().qdisc();
                    let mut worst = worst.lock().unwrap();
                    worst.0 = worst.0.max(q.qlen);
                    worst.1 = worst.1.max(q.backlog);
                    worst.2 = worst.2.max(q.queued);
                    drop(worst);
                    std::thread::yield_now();
                }
            });
        });
        let (qlen, backlog, queued) = worst.into_inner().unwrap();
        // What a reader adds up meanwhile may count a packet on its way twice.
        let most = 2 * BUFFERS as u64;
        assert!(qlen <= most && queued <= most, "{qlen} {queued}");
        assert!(backlog <= 100 * most, "{backlog}");
        bench.check(offered.load(Ordering::Relaxed));
        for record in &records {
            record.room.store(usize::MAX, Ordering::Relaxed);
        }
        bench.device.queues()[0].wake();
        bench.work(Time::ZERO);
        bench.check(offered.into_inner());
        assert_eq!(bench.device.stats().queued, 0);
        for record in &records {
            for sender in 0..SENDERS {
                let marks = record.marks();
                let own = marks.iter().filter(|&&m| m >> 24 == sender);
                assert!(own.is_sorted_by(|a, b| a < b), "INV-TX-3");
            }
        }
    }
}

/// BUG-TX-13, INV-TX-8: below a discipline without a limit of its own (`prio`, as the kernel's `htb` and eleven others) nothing is refused while others run the queue
/// until `max_burst` packets wait, and then everything.
#[test]
fn bug_tx_13_the_burst_limit_is_not_the_disciplines() {
    const MOST: u32 = 100;
    let (ring, record) = RecordingRing::new();
    let hook = Hook::default();
    let ring = HookedRing {
        ring,
        hook: hook.clone(),
    };
    let policy = TxPolicy {
        max_burst: MOST as usize,
        ..TxPolicy::default()
    };
    let prio = QdiscSpec::Prio(PrioSpec::default());
    let bench = Arc::new(Bench::with(prio, vec![ring], policy));
    let results = Arc::new(Mutex::new(Vec::new()));
    let (sender, seen) = (bench.clone(), results.clone());
    // Whoever sends now meets a run that goes on: it is this very one.
    *hook.lock().unwrap() = Some(Box::new(move || {
        for mark in 1..=MOST + 20 {
            let result = sender.send(mark..mark + 1, |_| 0, Time::ZERO);
            seen.lock().unwrap().push(result);
        }
    }));
    assert_eq!(bench.send(0..1, |_| 0, Time::ZERO), XmitResult::Success);
    let results = results.lock().unwrap();
    let (left, refused) = results.split_at(MOST as usize);
    assert!(left.iter().all(|&r| r == XmitResult::Success));
    assert!(refused.iter().all(|&r| r == XmitResult::Drop));
    bench.work(Time::ZERO);
    assert_eq!(record.marks(), (0..=MOST).collect::<Vec<_>>());
    assert_eq!(bench.device.stats().drops, [(DropReason::QdiscBurst, 20)]);
    assert_eq!(
        bench.device.stats().qdisc().drops,
        0,
        "none of the discipline's"
    );
    bench.check(u64::from(MOST) + 21);
}

/// BUG-TX-17: metadata of large frames that lie. Lengths are bounded and symmetrical, a shaper neither stands still nor lets them pass for nothing, and what
/// cannot be cut is dropped with a reason.
#[test]
fn bug_tx_17_lengths_of_frames_that_lie_are_bounded() {
    let lies = [
        (0, 0, 0),
        (0, 1, 54),
        (1, u16::MAX, u16::MAX),
        (u16::MAX, u16::MAX, u16::MAX),
        (100, 3, 101),
        (100, 0, u16::MAX),
    ];
    let cost = LinkCost {
        overhead: u16::MAX,
        mpu: u16::MAX,
        linklayer: LinkLayer::Atm,
    };
    let tbf = TbfSpec {
        rate: 1_000_000_000,
        burst: 1_000_000,
        limit: 1 << 40,
        link: cost,
        ..TbfSpec::default()
    };
    for qdisc in [QdiscSpec::Pfifo { limit: 1000 }, QdiscSpec::Tbf(tbf)] {
        let (ring, record) = RecordingRing::new();
        let bench = Bench::new(qdisc, vec![ring]);
        record.room.store(0, Ordering::Relaxed);
        let mut offered = 0;
        for kind in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp] {
            for (size, segments, header_len) in lies {
                let mut large = frame(&bench.pool, 1, 2, 100, 7);
                large.set_gso(Some(Gso {
                    kind,
                    ecn: false,
                    size,
                    segments,
                    header_len,
                }));
                assert!((1..=65_535).contains(&large.wire_packets()));
                assert!((100..1 << 33).contains(&large.wire_len()));
                offered += large.wire_packets();
                bench.device.transmit(large.into(), Time::ZERO);
                offered += 1;
                bench.send(0..1, |_| 0, Time::ZERO);
            }
        }
        record.room.store(usize::MAX, Ordering::Relaxed);
        // The honest ones pay for overhead and cells: 76,000 bytes each.
        for milli in 0..20 {
            bench.device.queues()[0].wake();
            bench.work(Time(milli * 1_000_000));
        }
        let stats = bench.device.stats();
        assert_eq!(stats.tx_packets, 18, "the honest ones: {stats:?}");
        assert_eq!(record.marks(), [0; 18]);
        assert_eq!(stats.dropped(), offered - 18);
        let reasons = [
            DropReason::BadGso,
            DropReason::BadHeader,
            DropReason::TooLong,
            DropReason::Mtu,
        ];
        assert!(
            stats.drops.iter().all(|d| reasons.contains(&d.0)),
            "{stats:?}"
        );
        bench.check(offered);
    }
}

/// BUG-TX-22: what a discipline drops at the bottom of a tree is dropped once: counted once at each level and once at the device, and its buffer is free once.
#[test]
fn bug_tx_22_what_a_child_dropped_is_dropped_once() {
    let handle = |text: &str| -> Handle { text.parse().unwrap() };
    let tbf = |limit| {
        QdiscSpec::Tbf(TbfSpec {
            rate: 1000,
            burst: 200,
            limit,
            ..TbfSpec::default()
        })
    };
    let mut tree = TreeSpec::new();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    tree.add(Handle::ROOT, handle("1:"), prio).unwrap();
    tree.add(handle("1:2"), handle("2:"), tbf(1 << 20)).unwrap();
    tree.add(handle("2:1"), handle("3:"), QdiscSpec::Pfifo { limit: 3 })
        .unwrap();
    let (ring, record) = RecordingRing::new();
    let bench = Bench::new(QdiscSpec::Tree(tree), vec![ring]);
    let shared = bench.packet(0, 100).share(&bench.pool).unwrap();
    let mut list: PacketList = (0..20).map(|m| bench.packet(0, m)).collect();
    list.push_back(shared);
    bench.device.transmit(list, Time::ZERO);
    // Three fit, two of them leave at once; one by one, one more gets in.
    for mark in 20..30 {
        let result = bench.send(mark..mark + 1, |_| 0, Time::ZERO);
        let fits = mark < 22;
        let expected = if fits {
            XmitResult::Success
        } else {
            XmitResult::Drop
        };
        assert_eq!(result, expected, "{mark}");
    }
    let stats = bench.device.stats();
    assert_eq!(record.marks(), [0, 1]);
    assert_eq!((stats.queued, stats.dropped()), (3, 26));
    assert_eq!(stats.drops, [(DropReason::QdiscLimit, 26)]);
    bench.device.with_qdisc(0, |qdisc, _| {
        let tree = qdisc.tree_mut().unwrap();
        for class in tree.classes().iter().filter(|c| c.stats.drops > 0) {
            assert_eq!((class.stats.drops, class.stats.qlen), (26, 3), "{class:?}");
        }
    });
    bench.check(31);
}

/// A driver that sends on through another device.
struct OnwardRing {
    onward: Arc<OnceLock<Weak<Device<OnwardRing>>>>,
    sent: Arc<AtomicUsize>,
}

impl TxRing for OnwardRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        self.sent.fetch_add(packets.len(), Ordering::Relaxed);
        for packet in packets.take() {
            sent.packets += 1;
            sent.bytes += packet.wire_len();
            if let Some(next) = self.onward.get().and_then(Weak::upgrade) {
                next.transmit(packet.into(), Time::ZERO);
            }
        }
        Xmit::Complete
    }
}

/// BUG-TX-27: what nobody has set yet, or somebody has left behind, is no loop: the first packets of a thread, through devices that it was in before in another order,
/// and packets for a device that is down.
#[test]
fn bug_tx_27_what_was_left_behind_is_no_loop() {
    // Devices without a queue, one upon the other.
    let stack = |ends: usize| -> Vec<Bench<OnwardRing>> {
        let links: Vec<Arc<OnceLock<_>>> = (0..ends).map(|_| Arc::default()).collect();
        let make = |onward: &Arc<OnceLock<_>>| OnwardRing {
            onward: onward.clone(),
            sent: Arc::default(),
        };
        let benches: Vec<_> = links
            .iter()
            .map(|link| Bench::new(QdiscSpec::Noqueue, vec![make(link)]))
            .collect();
        for (link, next) in links.iter().zip(&benches[1..]) {
            let _ = link.set(Arc::downgrade(&next.device));
        }
        benches
    };
    std::thread::spawn(move || {
        let benches = stack(4);
        for from in [0, 3, 1, 2, 0] {
            benches[from].send(0..1, |_| 0, Time::ZERO);
        }
        let sent: Vec<u64> = benches
            .iter()
            .map(|b| b.device.stats().tx_packets)
            .collect();
        assert_eq!(sent, [2, 3, 4, 5]);
        benches[3].device.deactivate();
        benches[0].send(0..1, |_| 0, Time::ZERO);
        let drops = benches[3].device.stats().drops;
        assert_eq!(drops, [(DropReason::DeviceDown, 1)]);
        assert!(benches[..3].iter().all(|b| b.device.stats().dropped() == 0));
    })
    .join()
    .unwrap();

    // Redirections, in one order and then in the other.
    std::thread::spawn(|| {
        let benches: Vec<_> = (0..3)
            .map(|_| {
                let (ring, record) = RecordingRing::new();
                (Bench::new(QdiscSpec::default(), vec![ring]), record)
            })
            .collect();
        let redirect = |from: usize, to: Option<usize>| {
            let action = |to: usize| {
                Mirred::new(
                    MirredMode::Redirect,
                    MirredDir::Egress,
                    &benches[to].0.device,
                )
            };
            let egress = to.map(|to| -> Box<dyn Egress<_, AnyQdisc>> {
                Box::new(Actions::new(vec![action(to)]))
            });
            benches[from].0.device.set_egress(egress);
        };
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            redirect(order[0], Some(order[1]));
            redirect(order[1], Some(order[2]));
            redirect(order[2], None);
            benches[order[0]].0.send(0..5, |_| 0, Time::ZERO);
        }
        let sent: Vec<usize> = benches.iter().map(|b| b.1.marks().len()).collect();
        assert_eq!(sent, [5, 0, 10]);
        assert!(benches.iter().all(|b| b.0.device.stats().dropped() == 0));
    })
    .join()
    .unwrap();
}
