//! Scenarios in which Linux's transmit path once failed (BUG-TX-n), on a device whose driver and
//! worker are the test. What a driver sees is in [`driver`](super::driver), what several rings
//! need in [`requeue`](super::requeue).
//!
//! One half of some of these bugs cannot exist here; the tests are about the other:
//! - BUG-TX-7: no packet can be used after a reset freed it, because only the queue's owner
//!   reaches the qdisc. Tested is what becomes of the packets.
//! - BUG-TX-12, BUG-TX-22: a packet is an owned value, so none is freed twice. Tested is that none
//!   is forgotten or counted twice.
//! - BUG-TX-27: there is no `noop_qdisc` that all devices share, and no owner to initialise.
//!   Tested is a thread's memory of the devices that it was in.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::transmit::stack;
use super::*;
use softnet::stats::DropReason;
use softnet::wire::{Gso, GsoKind};
use softnet_engine::forward::{Actions, Mirred, MirredDir, MirredMode};
use softnet_tc::{DeviceTree, Handle, LinkCost, LinkLayer, PrioSpec, QdiscEnv, TreeSpec};

/// BUG-TX-2: while the driver is full nobody is asked to run the queue, however many send and
/// however they meet; one wake-up is one run.
#[test]
fn bug_tx_2_a_stopped_queue_asks_for_no_runs() {
    let each: u32 = if cfg!(miri) { 10 } else { 400 };
    for qdisc in [
        QdiscSpec::Pfifo { limit: 4000 },
        QdiscSpec::PfifoFast { limit: 4000 },
    ] {
        let bench = scripted(qdisc, 1);
        bench.set_capacity(0);
        let mut runs = 0;
        let packets = |sender, n| bench.packet(0, sender << 24 | n).into();
        let serve = |_| runs += bench.work(Time::ZERO).runs;
        let offered = bench.storm(4, each, packets, serve, || {});
        // A run that has enqueued all that it may hands over, if more came meanwhile.
        let most = offered / (4 * RUN_QUOTA as u64);
        runs += bench.work(Time::ZERO).runs;
        assert!(runs <= most, "{runs}");
        let calls = || bench.scripts[0].calls().len();
        assert_eq!(calls(), 1);
        bench.check(offered);
        // Refused again: the worker runs once and leaves it at that.
        assert_eq!(bench.wake(Time::ZERO).runs, 1);
        assert_eq!(calls(), 2);
        bench.finish(offered);
        assert_eq!(bench.sent(), [4 * each as usize]);
    }
}

/// BUG-TX-7 (`ethtool -L` in a loop while UDP flows): queues are taken out of use and brought back
/// while threads send, run and stall them. Only its owner empties a queue, so every packet is sent
/// once or dropped with a reason. What a sender pushes that still had the old number of queues may
/// leave late, or through the first ring: for each change one call, and once what the worker takes
/// out of a queue that is out of use.
#[test]
fn bug_tx_7_queues_come_and_go_while_packets_flow() {
    const SENDERS: u32 = 3;
    let each = if cfg!(miri) { 30 } else { 20_000 };
    let bench = scripted(QdiscSpec::default(), 4);
    let mut changes = 0;
    let packets = |sender: u32, n: u32| bench.packet(sender as u16 + 1, sender << 24 | n).into();
    let serve = |turn: usize| {
        bench.scripts[turn % 4].set_capacity(turn % 60);
        bench.device.queues()[turn % 4].wake();
        bench.work(Time::ZERO);
    };
    let change = || {
        let one = QdiscSpec::Pfifo { limit: 900 };
        bench.set(if changes % 2 == 0 {
            &one
        } else {
            &QdiscSpec::Default
        });
        changes += 1;
    };
    let offered = bench.storm(SENDERS, each, packets, serve, change);
    bench.finish(offered);
    let mut seen = BTreeSet::new();
    let mut late = 0;
    for ring in 0..4 {
        let mut last = None;
        for mark in bench.marks(ring) {
            assert!(seen.insert(mark), "{mark:#x} was sent twice");
            if ring as u32 == (mark >> 24) + 1 {
                late += u32::from(last.replace(mark).is_some_and(|last| last > mark));
            } else {
                assert_eq!(ring, 0, "pushed to the queue of all, then one of four");
                late += 1;
            }
        }
    }
    assert!(late <= 2 * SENDERS * changes, "{late}, {changes} changes");
}

/// BUG-TX-10: a length in two places, one counting what the other takes away. However packets are
/// refused, requeued and taken elsewhere while somebody reads, no figure is ever more than there
/// can be, and all are exact at rest (INV-TX-6).
#[test]
fn bug_tx_10_lengths_never_wrap() {
    let each = if cfg!(miri) { 30 } else { 20_000 };
    for (qdisc, rings) in [
        (QdiscSpec::default(), 1),
        (QdiscSpec::Pfifo { limit: 500 }, 2),
    ] {
        let bench = scripted(qdisc, rings);
        let (mut qlen, mut backlog, mut queued) = (0, 0, 0);
        let packets = |sender: u32, n: u32| bench.packet((n % 2) as u16, sender << 24 | n).into();
        let serve = |turn: usize| {
            bench.scripts[turn % rings].set_capacity(turn % 30);
            bench.wake(Time::ZERO);
        };
        let read = || {
            let q = bench.device.stats().qdisc();
            qlen = q.qlen.max(qlen);
            backlog = q.backlog.max(backlog);
            queued = q.queued.max(queued);
        };
        let offered = bench.storm(3, each, packets, serve, read);
        // What a reader adds up meanwhile may count a packet in flight twice.
        let most = 2 * BUFFERS as u64;
        assert!(qlen <= most && queued <= most, "{qlen} {queued}");
        assert!(backlog <= 100 * most, "{backlog}");
        bench.check(offered);
        bench.finish(offered);
        bench.assert_order();
    }
}

/// BUG-TX-13, INV-TX-8: below a qdisc without a limit of its own (`prio`, as the kernel's `htb`
/// and eleven others) nothing is refused while others run the queue until `max_burst` packets
/// wait, and then everything.
#[test]
fn bug_tx_13_the_burst_limit_is_not_the_qdiscs() {
    const MOST: u32 = 100;
    let limited = policy(TxPolicy {
        max_burst: MOST as usize,
        ..TxPolicy::default()
    });
    let prio = QdiscSpec::Prio(PrioSpec::default());
    let bench = Arc::new(configured(limited, prio, 1).unwrap());
    let results = Arc::new(Mutex::new(Vec::new()));
    let (sender, seen) = (bench.clone(), results.clone());
    // Who sends now meets an owner: the run that calls the driver.
    bench.scripts[0].on_next_call(move || {
        for mark in 1..=MOST + 20 {
            let result = sender.send([mark]);
            seen.lock().unwrap().push(result);
        }
    });
    assert_eq!(bench.send(0..1), XmitResult::Success);
    let results = results.lock().unwrap();
    let (left, refused) = results.split_at(MOST as usize);
    assert!(left.iter().all(|&r| r == XmitResult::Success));
    assert!(refused.iter().all(|&r| r == XmitResult::Drop));
    bench.work(Time::ZERO);
    assert_eq!(bench.marks(0), (0..=MOST).collect::<Vec<_>>());
    assert_eq!(bench.device.stats().drops, [(DropReason::QdiscBurst, 20)]);
    let total = bench.device.stats().qdisc();
    assert_eq!(total.drops, 0, "none of the qdisc's");
    bench.check(u64::from(MOST) + 21);
}

/// BUG-TX-17: metadata of large frames that lie. Lengths are bounded and symmetrical, a shaper
/// neither stands still nor lets them pass for nothing, and what cannot be segmented is dropped
/// with a reason.
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
        let bench = scripted(qdisc, 1);
        bench.set_capacity(0);
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
                bench.send(0..1);
            }
        }
        bench.set_capacity(usize::MAX);
        // The honest ones pay for overhead and cells: 76,000 bytes each.
        for milli in 0..20 {
            bench.wake(Time(milli * 1_000_000));
        }
        let stats = bench.device.stats();
        assert_eq!(stats.tx_packets, 18, "the honest ones: {stats:?}");
        assert_eq!(bench.marks(0), [0; 18]);
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

/// BUG-TX-22: what a qdisc drops at the bottom of a tree is counted once at each level and once at
/// the device, and its buffer is freed once.
#[test]
fn bug_tx_22_what_a_child_dropped_is_dropped_once() {
    let handle = |text: &str| -> Handle { text.parse().unwrap() };
    let mut tree = TreeSpec::new();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    tree.add(Handle::ROOT, handle("1:"), prio).unwrap();
    tree.add(handle("1:2"), handle("2:"), shaped(1000, 200, 1 << 20))
        .unwrap();
    tree.add(handle("2:1"), handle("3:"), QdiscSpec::Pfifo { limit: 3 })
        .unwrap();
    let bench = scripted(QdiscSpec::default(), 1);
    let env = QdiscEnv::new(&bench.pool);
    let (tree, roots) = DeviceTree::new(tree, 1, &env).unwrap();
    bench
        .device
        .set_qdiscs(roots, &Clock::virtual_at(Time::ZERO))
        .unwrap();
    let shared = bench.packet(0, 100).share(&bench.pool).unwrap();
    let mut list: PacketList = (0..20).map(|m| bench.packet(0, m)).collect();
    list.push_back(shared);
    bench.device.transmit(list, Time::ZERO);
    // Three fit, two of them leave at once; one by one, one more gets in.
    for mark in 20..30 {
        let fits = bench.send([mark]) == XmitResult::Success;
        assert_eq!(fits, mark < 22, "{mark}");
    }
    let stats = bench.device.stats();
    assert_eq!(bench.marks(0), [0, 1]);
    assert_eq!((stats.queued, stats.dropped()), (3, 26));
    assert_eq!(stats.drops, [(DropReason::QdiscLimit, 26)]);
    let classes = tree.classes(&[stats.qdisc()]);
    let dropped: Vec<_> = classes.iter().filter(|c| c.stats.drops > 0).collect();
    assert_eq!(dropped.len(), 3, "root, 1:2 and 2:1");
    for class in dropped {
        assert_eq!((class.stats.drops, class.stats.qlen), (26, 3), "{class:?}");
    }
    bench.check(31);
}

/// BUG-TX-27: what nobody has set yet, or somebody has left behind, is no loop: the first packets
/// of a thread, through devices that it was in before in another order, and packets for a device
/// that is down.
#[test]
fn bug_tx_27_what_was_left_behind_is_no_loop() {
    std::thread::spawn(move || {
        let benches = stack(4);
        for from in [0, 3, 1, 2, 0] {
            benches[from].send([0]);
        }
        let sent = |b: &Bench| b.device.stats().tx_packets;
        assert!(benches.iter().map(sent).eq([2, 3, 4, 5]));
        benches[3].device.deactivate().unwrap();
        benches[0].send([0]);
        let drops = benches[3].device.stats().drops;
        assert_eq!(drops, [(DropReason::DeviceDown, 1)]);
        assert!(benches[..3].iter().all(|b| b.device.stats().dropped() == 0));
    })
    .join()
    .unwrap();

    // Redirections, in one order and then in the other.
    std::thread::spawn(|| {
        let benches = [(); 3].map(|()| scripted(QdiscSpec::default(), 1));
        let redirect = |from: usize, to: Option<usize>| {
            let egress = to.map(|to| -> Box<dyn Egress<_, AnyQdisc>> {
                let to = Arc::downgrade(&benches[to].device);
                let action = Mirred::new(MirredMode::Redirect, MirredDir::Egress, 0, to);
                Box::new(Actions::new(vec![action]))
            });
            benches[from].device.set_egress(egress);
        };
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            redirect(order[0], Some(order[1]));
            redirect(order[1], Some(order[2]));
            redirect(order[2], None);
            benches[order[0]].send(0..5);
        }
        assert!(benches.iter().map(|b| b.sent()[0]).eq([5, 0, 10]));
        assert!(benches.iter().all(|b| b.device.stats().dropped() == 0));
    })
    .join()
    .unwrap();
}
