//! Large frames for drivers that do not segment: segmented in chunks, within the quota of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use softnet::offload::segment;
use softnet::stats::DropReason;
use softnet::testing::{large_pool, large_tcp};

const LATER: Time = Time(1 << 40);

/// The most segments that 64 KiB of TCP make.
fn largest(large: &Pool, mark: u32) -> Packet {
    let packet = large_tcp(large, 65_000, 8, mark);
    assert_eq!(packet.wire_packets(), 8125);
    packet
}

/// One frame of 8,125 segments stretched a run to as many: other workers and ports waited for the
/// queue, and it took all buffers of the pool.
#[test]
fn a_run_cuts_no_more_than_its_quota_and_takes_no_more_buffers() {
    let tbf = shaped(1_000_000_000, 10_000, 10_000_000);
    let pfifo = QdiscSpec::Pfifo { limit: 100 };
    for qdisc in [QdiscSpec::Noqueue, QdiscSpec::default(), pfifo, tbf] {
        let large = large_pool(8);
        let bench = scripted(qdisc, 1);
        let most = Arc::new(AtomicUsize::new(0));
        let (seen, pool) = (most.clone(), bench.pool.clone());
        bench.scripts[0].on_call(move || {
            seen.fetch_max(BUFFERS - pool.stats().free, Ordering::Relaxed);
        });
        let _ = bench.device.transmit(largest(&large, 0).into(), Time::ZERO);
        let mut sent = bench.device.stats().tx_packets;
        assert!(sent <= RUN_QUOTA as u64, "the sender's call sent {sent}");
        let mut now = Time::ZERO;
        for run in 1.. {
            now = now.plus_nanos(1_000_000);
            let _ = bench.device.run_from_worker(0, RUN_QUOTA, now);
            let stats = bench.device.stats();
            let more = stats.tx_packets - sent;
            assert!(more <= RUN_QUOTA as u64, "run {run} sent {more}");
            sent = stats.tx_packets;
            assert_eq!(sent + stats.queued, 8125);
            if stats.queued == 0 {
                break;
            }
        }
        let used = most.load(Ordering::Relaxed);
        assert!(used <= 64, "{used} buffers at once");
        assert!(
            bench.scripts[0]
                .calls()
                .iter()
                .all(|call| call.offered <= 64)
        );
        assert_eq!(bench.device.stats().dropped(), 0);
        assert_eq!((bench.pool.stats().free, large.stats().free), (BUFFERS, 8));
    }
}

/// The refused part of a chunk leaves first, then the rest of the frame, then what came later; all
/// of it is counted as queued meanwhile.
#[test]
fn a_driver_that_is_full_in_the_middle_of_a_frame() {
    let large = large_pool(8);
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(10);
    let _ = bench
        .device
        .transmit(large_tcp(&large, 200 * 100, 100, 1).into(), Time::ZERO);
    bench.work(Time::ZERO);
    let _ = bench.send([2]);
    let stats = bench.device.stats();
    assert_eq!((stats.tx_packets, stats.queued), (10, 191));
    // 54 that the driver gave back, the frame, and the packet behind it.
    let total = stats.qdisc();
    assert_eq!((total.qlen, total.requeues), (54 + 1 + 1, 54));
    assert_eq!(total.backlog, 190 * 154 + 100);
    bench.resume(Time::ZERO);
    assert_eq!(bench.marks(0), [vec![1; 200], vec![2]].concat());
    bench.check(201);
}

/// A half-segmented frame survives a change of the qdisc, and is counted where the device goes
/// down.
#[test]
fn a_half_segmented_frame_is_neither_lost_nor_sent_twice() {
    for down in [false, true] {
        let large = large_pool(8);
        let bench = scripted(QdiscSpec::default(), 1);
        let _ = bench.device.transmit(largest(&large, 1).into(), Time::ZERO);
        assert_eq!(bench.device.stats().queued, 8125 - 64);
        if down {
            bench.device.deactivate().unwrap();
            let drops = bench.device.stats().drops;
            assert_eq!(drops, [(DropReason::QdiscReset, 8125 - 64)]);
        } else {
            let pfifo = QdiscSpec::Pfifo { limit: 10 };
            bench.set(&pfifo);
            bench.work(Time::ZERO);
            assert_eq!(bench.scripts[0].sent().len(), 8125);
        }
        let stats = bench.device.stats();
        assert_eq!(stats.tx_packets + stats.dropped(), 8125);
        assert_eq!((stats.queued, large.stats().free), (0, 8));
    }
}

/// A half-segmented frame goes along where rings and packets are shared out anew, and is continued
/// where it was.
#[test]
fn a_half_segmented_frame_moves_to_another_queue() {
    let large = large_pool(8);
    let bench = scripted(QdiscSpec::Pfifo { limit: 10 }, 2);
    let mut frame = largest(&large, 1);
    frame.set_queue(Some(1));
    let _ = bench.device.transmit(frame.into(), Time::ZERO);
    assert_eq!(bench.device.stats().queued, 8125 - 64);
    bench.set(&QdiscSpec::default());
    assert_eq!(bench.device.stats().queued, 8125 - 64);
    bench.work(Time::ZERO);
    let sent = |n: usize| bench.scripts[n].sent().len();
    assert_eq!((sent(0), sent(1)), (0, 8125));
    let stats = bench.device.stats();
    assert_eq!(
        (stats.queued, stats.dropped(), large.stats().free),
        (0, 0, 8)
    );
}

/// A pool that has no buffer in the middle of a frame costs the rest of that frame, counted, and
/// nothing else.
#[test]
fn no_buffer_in_the_middle_of_a_frame() {
    let large = large_pool(8);
    let bench = scripted(QdiscSpec::default(), 1);
    let _ = bench.device.transmit(largest(&large, 1).into(), Time::ZERO);
    let mut all = PacketList::new();
    bench.pool.alloc_bulk(BUFFERS, &mut all);
    bench.work(Time::ZERO);
    let drops = bench.device.stats().drops;
    assert_eq!(drops, [(DropReason::NoBuffer, 8125 - 64)]);
    assert_eq!(large.stats().free, 8);
    drop(all);
    let _ = bench
        .device
        .transmit(large_tcp(&large, 600, 100, 1).into(), Time::ZERO);
    assert_eq!(bench.device.stats().tx_packets, 64 + 6);
}

/// A device whose driver takes large TCP frames.
fn tso(qdisc: QdiscSpec) -> Bench {
    let tso = features(Features {
        scatter_gather: true,
        tso4: true,
        checksum: true,
        ..Features::default()
    });
    configured(tso, qdisc, 1).unwrap()
}

/// Frames that the driver takes in one piece are charged as what they stand for, too.
#[test]
fn a_run_is_charged_in_wire_packets() {
    let large = large_pool(16);
    let bench = tso(QdiscSpec::default());
    let frames: PacketList = (0..10)
        .map(|n| large_tcp(&large, 45 * 1400, 1400, n))
        .collect();
    let _ = bench.device.transmit(frames, Time::ZERO);
    let sent = || bench.scripts[0].sent().len();
    assert_eq!(sent(), 2, "45 and 90 of 64");
    let _ = bench.device.run_from_worker(0, RUN_QUOTA, Time::ZERO);
    assert_eq!(sent(), 4);
    bench.work(LATER);
    assert_eq!(sent(), 10);
    assert_eq!(bench.device.stats().tx_packets, 450);
}

/// Segments that lie together leave as one where the driver takes large TCP frames, also one that
/// takes no large UDP frames, whether they pass the qdisc by or not.
#[test]
fn segments_merge_for_a_driver_without_uso() {
    let large = large_pool(8);
    let tbf = shaped(1_000_000_000, 10_000, 10_000_000);
    for qdisc in [QdiscSpec::default(), tbf] {
        let bench = tso(qdisc);
        let mut segments = PacketList::new();
        let frame = large_tcp(&large, 3 * 1000, 1000, 7);
        let len = frame.len();
        assert!(
            segment(frame, 64, &bench.pool, &mut segments)
                .unwrap()
                .is_none()
        );
        assert_eq!(segments.len(), 3);
        // The frame came without the seed of its checksum.
        segments.for_each_mut(|packet| packet.set_checksum_verified(true));
        let _ = bench.device.transmit(segments, Time::ZERO);
        assert_eq!(*bench.scripts[0].sent(), [(7, len)]);
        assert_eq!(bench.device.stats().tx_packets, 3);
    }
}
