//! The lockless `pfifo_fast` in a transmit queue: INV-PF-1 to -5, the transmit invariants that its own way could break, and changes under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::packet::Packet;
use crate::pool::Pool;
use crate::qdisc::{QdiscSpec, TbfSpec};
use crate::rx::Doorbell;
use crate::stats::DropReason;
use crate::testing::{NoWake, Record, RecordingRing, frame, pool, wait_for_buffers};
use crate::time::Time;

const BUFFERS: usize = 4096;

struct Bench {
    device: Device<RecordingRing>,
    record: Arc<Record>,
    doorbell: Arc<Doorbell>,
    pool: Pool,
}

impl Bench {
    fn new(limit: u32) -> Bench {
        let pool = pool(BUFFERS);
        let (ring, record) = RecordingRing::new();
        let doorbell = Arc::new(Doorbell::new(1, Arc::new(NoWake)));
        let config = DeviceConfig {
            name: "t0".into(),
            features: Features::default(),
            qdisc: QdiscSpec::PfifoFast { limit },
            policy: TxPolicy {
                lockless: true,
                ..TxPolicy::default()
            },
        };
        let device = Device::new(config, vec![ring], &pool, &[(doorbell.clone(), 1)]).unwrap();
        Bench {
            device,
            record,
            doorbell,
            pool,
        }
    }

    fn packet(&self, priority: u32, mark: u32) -> Packet {
        let mut packet = frame(&self.pool, 1, 2, 100, mark);
        packet.set_priority(priority);
        packet
    }

    /// Sends packets of a priority, in one call.
    fn send(&self, priority: u32, marks: impl IntoIterator<Item = u32>) -> XmitResult {
        let list = marks.into_iter().map(|m| self.packet(priority, m));
        self.device.transmit(list.collect(), Time::ZERO)
    }

    fn queue(&self) -> &TxQueue<RecordingRing> {
        &self.device.queues()[0]
    }

    fn room(&self, packets: usize) {
        self.record.room.store(packets, Ordering::Relaxed);
        self.queue().wake();
        self.work();
    }

    fn work(&self) {
        loop {
            let mut rung = false;
            self.doorbell.take(|_| rung = true);
            if !rung {
                return;
            }
            let _ = self.queue().run_from_worker(RUN_QUOTA, Time::ZERO);
        }
    }

    /// INV-TX-1, INV-TX-6, INV-PF-4 at rest.
    fn check(&self, offered: u64) {
        let stats = self.device.stats();
        let q = stats.queues[0].qdisc;
        assert_eq!(
            offered,
            stats.tx_packets + stats.dropped() + stats.queued,
            "{stats:?}"
        );
        assert_eq!((q.qlen, q.backlog), (stats.queued, stats.queued * 100));
        assert_eq!(self.pool.stats().free as u64 + q.qlen, BUFFERS as u64);
        assert_eq!(self.queue().waiting() as u64, q.qlen);
    }
}

/// G10 without the shaper above: with the driver full, 12, 12 and 6 packets of three bands of 8.
#[test]
fn inv_pf_1_2_3_5_three_strict_bands_each_with_its_own_limit() {
    let bench = Bench::new(8);
    bench.room(0);
    let results: Vec<_> = (0..12).map(|n| bench.send(2, [200 + n])).collect();
    // The first one is the driver's, and waits to be sent again.
    let refused = results.iter().filter(|&&r| r == XmitResult::Drop).count();
    assert_eq!((results[0], refused), (XmitResult::Success, 3));
    assert_eq!(bench.send(0, 0..12), XmitResult::Congestion);
    assert_eq!(bench.send(6, 600..606), XmitResult::Success);
    // BUG-PF-8: a priority beyond 15 stays within the table.
    assert_eq!(bench.send(0xFFFF_FFF6, [606]), XmitResult::Success);
    bench.check(31);
    let q = bench.device.stats().queues[0].qdisc;
    assert_eq!((q.drops, q.packets, q.qlen), (7, 1, 24));
    bench.room(usize::MAX);
    let expected: Vec<u32> = [200]
        .into_iter()
        .chain(600..607)
        .chain(0..8)
        .chain(201..209)
        .collect();
    assert_eq!(bench.record.marks(), expected);
    bench.check(31);
    let q = bench.device.stats().queues[0].qdisc;
    assert_eq!((q.packets, q.bytes, q.drops, q.qlen), (24, 2400, 7, 0));
}

/// BUG-TX-8: a packet that finds the queue idle leaves at once, but not past one that is queued; nor do packets of one call past each other's bands.
#[test]
fn a_bypass_passes_nothing() {
    let bench = Bench::new(100);
    let mixed = [(2, 1), (6, 2), (0, 3)].map(|(priority, mark)| bench.packet(priority, mark));
    bench
        .device
        .transmit(mixed.into_iter().collect(), Time::ZERO);
    assert_eq!(bench.record.marks(), [2, 3, 1]);
    bench.room(1);
    bench.send(0, [4, 5]);
    bench.send(0, [6]);
    bench.room(1);
    bench.send(0, [7]);
    bench.room(usize::MAX);
    assert_eq!(bench.record.marks(), [2, 3, 1, 4, 5, 6, 7]);
    bench.check(7);
}

/// INV-TX-12: 64 packets on the sender's time, the rest on the worker's.
#[test]
fn inv_tx_12_the_quota_holds() {
    let bench = Bench::new(1000);
    assert_eq!(bench.send(0, 0..200), XmitResult::Success);
    assert_eq!(bench.record.marks().len(), 64);
    bench.work();
    assert_eq!(bench.record.marks(), (0..200).collect::<Vec<_>>());
    bench.check(200);
}

/// `txqueuelen` while packets are queued: the oldest of each band stay (G8), the others are dropped and, unlike in the kernel, counted.
#[test]
fn inv_ring_2_a_resize_keeps_the_oldest() {
    let bench = Bench::new(10);
    bench.room(0);
    for (priority, first) in [(2, 200), (0, 0), (6, 600)] {
        bench.send(priority, first..first + 10);
    }
    bench.queue().set_tx_queue_len(4);
    bench.check(30);
    // What the driver gave back is no longer in a band.
    let stats = bench.device.stats();
    assert_eq!(
        (stats.queued, stats.drops),
        (18, vec![(DropReason::QdiscLimit, 12)])
    );
    assert_eq!(bench.send(0, [10]), XmitResult::Drop);
    bench.queue().set_tx_queue_len(5);
    assert_eq!(bench.send(0, [11, 12]), XmitResult::Congestion);
    bench.queue().set_tx_queue_len(0);
    bench.check(33);
    bench.room(usize::MAX);
    assert_eq!(bench.record.marks(), (200..210).collect::<Vec<_>>());
    assert_eq!(
        bench.send(0, [13]),
        XmitResult::Drop,
        "a band of 0 takes nothing"
    );
    bench.check(34);
}

/// Another discipline takes over what is queued, and gives it back; a device that is down drops with a reason (BUG-TX-5, BUG-TX-6).
#[test]
fn disciplines_come_and_go() {
    let bench = Bench::new(100);
    bench.room(0);
    bench.send(0, [0]);
    bench.send(2, [3]);
    bench.send(0, [1, 2]);
    let tbf = TbfSpec {
        rate: 1_000_000_000,
        burst: 1_000_000,
        limit: 1_000_000,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    bench
        .device
        .set_qdisc(&QdiscSpec::Tbf(tbf), Time::ZERO)
        .unwrap();
    bench.check(4);
    bench.send(0, [4]);
    bench
        .device
        .set_qdisc(&QdiscSpec::PfifoFast { limit: 3 }, Time::ZERO)
        .unwrap();
    bench.check(5);
    bench.send(6, [5]);
    bench.room(usize::MAX);
    assert_eq!(bench.record.marks(), [0, 5, 1, 2, 4, 3]);
    bench.check(6);
    bench.room(0);
    bench.send(0, 10..13);
    bench.queue().set_active(false);
    assert_eq!(bench.send(0, [20]), XmitResult::Drop);
    bench.check(10);
    let drops = bench.device.stats().drops;
    assert_eq!(
        drops,
        [(DropReason::QdiscReset, 3), (DropReason::DeviceDown, 1)]
    );
    bench.queue().set_active(true);
    bench.room(usize::MAX);
    assert_eq!(bench.send(0, [21]), XmitResult::Success);
    bench.check(11);
}

/// INV-PF-2, INV-PF-4, INV-RING-2, INV-TX-1 to -3 on real threads: senders of several priorities, a driver that stalls, a worker, and somebody who changes
/// the limit and the discipline all the while.
#[test]
fn nothing_is_lost_or_reordered_while_everything_changes() {
    const SENDERS: u32 = 4;
    let each: u32 = if cfg!(miri) { 25 } else { 8_000 };
    let bench = Bench::new(64);
    let over = AtomicBool::new(false);
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let (bench, refused) = (&bench, &refused);
                scope.spawn(move || {
                    let mut n = 0;
                    while n < each {
                        wait_for_buffers(&bench.pool, 1024);
                        let burst = (1 + n % 3).min(each - n);
                        // Order holds within a band.
                        let band = n / 100 % 3;
                        let tag = sender << 24 | band << 20;
                        if bench.send([0, 2, 6][band as usize], (n..n + burst).map(|k| tag | k))
                            == XmitResult::Drop
                        {
                            refused.fetch_add(u64::from(burst), Ordering::Relaxed);
                        }
                        n += burst;
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut turn = 0;
            while !over.load(Ordering::Acquire) {
                turn += 1;
                bench
                    .record
                    .room
                    .store(if turn % 3 == 0 { 5 } else { 500 }, Ordering::Relaxed);
                bench.queue().wake();
                bench.work();
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let mut turn = 0;
            while !over.load(Ordering::Acquire) {
                turn += 1;
                let spec = match turn % 5 {
                    0 => QdiscSpec::Pfifo { limit: 100 },
                    1 => QdiscSpec::PfifoFast { limit: 100 },
                    n => {
                        bench.queue().set_tx_queue_len([7, 200, 64][n - 2]);
                        continue;
                    }
                };
                bench.device.set_qdisc(&spec, Time::ZERO).unwrap();
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = senders.into_iter().map(|s| s.join()).collect();
        over.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok));
    });
    bench
        .device
        .set_qdisc(&QdiscSpec::PfifoFast { limit: 2000 }, Time::ZERO)
        .unwrap();
    bench.room(usize::MAX);
    bench.work();
    let stats = bench.device.stats();
    let offered = u64::from(SENDERS * each);
    assert_eq!(
        (stats.tx_packets + stats.dropped(), stats.queued),
        (offered, 0),
        "{stats:?}"
    );
    assert!(stats.dropped() >= refused.load(Ordering::Relaxed));
    bench.check(offered);
    // Within a band; a `pfifo` in between keeps the order of all.
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    for mark in bench.record.marks() {
        let (stream, n) = (mark >> 20, mark & 0xF_FFFF);
        let before = last.insert(stream, n);
        assert!(
            before.is_none_or(|b| b < n),
            "{stream}: {n} after {before:?}"
        );
    }
}
