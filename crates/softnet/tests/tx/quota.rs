//! The buffers that a queue may hold.

use super::*;
use softnet::stats::DropReason;
use softnet::testing::{large_pool, large_tcp};
use softnet_tc::{PrioSpec, TreeSpec};

/// Hardly sends, and may hold more than all buffers do.
fn shaper() -> QdiscSpec {
    shaped(1, 2000, 1 << 40)
}

/// Qdiscs that keep packets, each in another place.
fn holding() -> [QdiscSpec; 5] {
    let mut tree = TreeSpec::new();
    tree.add("root".parse().unwrap(), "1:".parse().unwrap(), shaper())
        .unwrap();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    tree.add("1:1".parse().unwrap(), "2:".parse().unwrap(), prio)
        .unwrap();
    for band in ["2:1", "2:2", "2:3"] {
        let bfifo = QdiscSpec::Bfifo { limit: 1 << 40 };
        tree.add(band.parse().unwrap(), "".parse().unwrap_or_default(), bfifo)
            .unwrap();
    }
    [
        shaper(),
        QdiscSpec::Tree(tree),
        QdiscSpec::Pfifo { limit: u32::MAX },
        QdiscSpec::PfifoFast { limit: u32::MAX },
        QdiscSpec::Bfifo { limit: 1 << 40 },
    ]
}

/// A byte limit of some megabytes is more small packets than there are buffers: the queue of one
/// port took all of them.
#[test]
fn a_queue_never_takes_all_buffers() {
    for qdisc in holding() {
        let bench = scripted(qdisc.clone(), 1);
        bench.set_capacity(0);
        let share = BUFFERS as u64 / 4;
        bench.device.set_buffer_quota(share * 2048);
        for n in 0..2 * BUFFERS as u32 {
            let _ = bench.send([n]);
            let used = BUFFERS - bench.pool.stats().free;
            assert!(used as u64 <= share + 64, "{used} buffers: {qdisc:?}");
        }
        let stats = bench.device.stats();
        let [(DropReason::BufferQuota, dropped)] = stats.drops[..] else {
            panic!("{:?}: {qdisc:?}", stats.drops);
        };
        assert_eq!(
            stats.queued + stats.tx_packets + dropped,
            2 * BUFFERS as u64
        );
        assert!(stats.queued >= share - 64, "{}: {qdisc:?}", stats.queued);
        assert_eq!(stats.qdisc().memory, stats.queued * 2048);
        // When the driver has capacity again, it takes more.
        bench.set_capacity(usize::MAX);
        bench.device.queues()[0].wake();
        bench.set(&QdiscSpec::default());
        bench.work(Time::ZERO);
        assert_eq!(bench.device.stats().qdisc().memory, 0);
        bench.check(2 * BUFFERS as u64);
    }
}

/// Buffers of 64 KiB count as such, whatever they hold, until the frame has left, in one piece or
/// many.
#[test]
fn large_frames_count_as_the_buffers_that_hold_them() {
    let large = large_pool(64);
    let bench = scripted(shaper(), 1);
    bench.device.set_buffer_quota(8 * 65_536);
    for n in 0..64 {
        // More than the bucket: one of them is being segmented all the time.
        let _ = bench
            .device
            .transmit(large_tcp(&large, 2100, 1000, n).into(), Time::ZERO);
        let used = 64 - large.stats().free;
        assert!(used <= 8, "{used}");
    }
    let stats = bench.device.stats();
    assert_eq!(64 - large.stats().free, 8);
    assert_eq!(stats.qdisc().memory, 8 * large.memory() / 64);
    assert_eq!(stats.drops, [(DropReason::BufferQuota, 56 * 3)]);
    // Small packets do not get in either: the quota is for both.
    let _ = bench.send(0..200);
    assert_eq!(bench.device.stats().qdisc().qlen, 8);
}

/// Where each queue has its own qdisc, they share the port's quota, also after the qdisc changed.
#[test]
fn queues_of_one_port_share_its_quota() {
    for change in [false, true] {
        let fast = QdiscSpec::PfifoFast { limit: u32::MAX };
        let first = if change { shaper() } else { fast.clone() };
        let bench = scripted(first, 4);
        bench.set_capacity(0);
        bench.device.set_buffer_quota(400 * 2048);
        if change {
            bench.set(&fast);
            bench.work(Time::ZERO);
        }
        for n in 0..1000 {
            let _ = bench.send_to(|n| (n % 4) as u16, n..n + 1, Time::ZERO);
        }
        let used = BUFFERS - bench.pool.stats().free;
        assert!((350..=400).contains(&used), "{used}");
    }
}

/// One packet always gets in where none waits, so that a large frame passes however many ports
/// share the buffers.
#[test]
fn an_empty_queue_takes_a_packet_of_any_size() {
    let large = large_pool(4);
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.device.set_buffer_quota(1);
    let frames: PacketList = (0..2).map(|n| large_tcp(&large, 2100, 1000, n)).collect();
    let _ = bench.device.transmit(frames, Time::ZERO);
    assert_eq!(bench.device.stats().queued, 3);
}
