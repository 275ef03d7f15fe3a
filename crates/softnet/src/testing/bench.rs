//! A device whose driver and worker are the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Done, NoWake, Script, ScriptedRing, frame, wait_for_buffers};
use crate::mem::{Packet, PacketList, Pool};
use crate::qdisc::Qdisc;
use crate::time::Time;
use crate::tx::{
    Device, DeviceConfig, Features, Notifier, Qdiscs, RUN_QUOTA, TxPolicy, TxQueue, TxRing,
    XmitResult,
};

/// The default configuration of a device.
pub fn config(name: &str) -> DeviceConfig {
    DeviceConfig {
        name: name.into(),
        features: Features::default(),
        policy: TxPolicy::default(),
    }
}

/// Result of [`Bench::work`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Runs of a queue.
    pub runs: u64,
    /// The timer of the last run.
    pub timer: Option<Time>,
}

/// A device whose worker is the test. Packets are 100 bytes long.
#[derive(Debug)]
pub struct Bench<Q: Qdisc, R: TxRing = ScriptedRing> {
    /// The device; event `n + 1` is queue `n`'s.
    pub device: Arc<Device<R, Q>>,
    /// A script for each ring; empty for other rings than [`ScriptedRing`].
    pub scripts: Vec<Arc<Script>>,
    /// The worker's.
    pub notifier: Arc<Notifier>,
    /// The pool of what is sent.
    pub pool: Pool,
}

impl<Q: Qdisc> Bench<Q> {
    /// A device with scripted rings, one for each qdisc.
    pub fn scripted(config: DeviceConfig, qdiscs: Qdiscs<Q>, pool: &Pool) -> Bench<Q> {
        let (rings, scripts) = ScriptedRing::many(qdiscs.instances.len());
        Bench {
            scripts,
            ..Bench::new(config, rings, qdiscs, pool)
        }
    }

    /// Limits the capacity of every ring.
    pub fn set_capacity(&self, packets: usize) {
        for script in &self.scripts {
            script.set_capacity(packets);
        }
    }

    /// Ends the limits of the rings' capacity, which then wake their queues; works.
    pub fn resume(&self, now: Time) -> Work {
        self.set_capacity(usize::MAX);
        self.wake(now)
    }

    /// As [`resume`](Bench::resume); nothing waits afterwards, and `offered` packets are
    /// accounted for.
    pub fn finish(&self, offered: u64) {
        self.resume(Time::ZERO);
        self.check(offered);
        assert_eq!(self.device.stats().queued, 0, "INV-TX-2");
    }

    /// Marks that a ring sent.
    pub fn marks(&self, ring: usize) -> Vec<u32> {
        self.scripts[ring].marks()
    }

    /// Packets that each ring sent.
    pub fn sent(&self) -> Vec<usize> {
        self.scripts.iter().map(|s| s.sent().len()).collect()
    }

    /// INV-TX-3: on each ring the packets of each sender of [`storm`](Bench::storm) left in order.
    pub fn assert_order(&self) {
        for script in &self.scripts {
            let marks = script.marks();
            let mut last = std::collections::BTreeMap::new();
            for mark in marks {
                let before = last.insert(mark >> 24, mark);
                assert!(before < Some(mark), "INV-TX-3: {mark:#x} after {before:x?}");
            }
        }
    }
}

impl<Q: Qdisc, R: TxRing> Bench<Q, R> {
    /// A device with these rings.
    pub fn new(
        config: DeviceConfig,
        rings: Vec<R>,
        qdiscs: Qdiscs<Q>,
        pool: &Pool,
    ) -> Bench<Q, R> {
        let notifier = Arc::new(Notifier::new(rings.len() + 1, Arc::new(NoWake)));
        let workers: Vec<_> = (1..=rings.len()).map(|n| (notifier.clone(), n)).collect();
        let device = Device::new(config, rings, qdiscs, pool, &workers);
        Bench {
            device: Arc::new(device),
            scripts: Vec::new(),
            notifier,
            pool: pool.clone(),
        }
    }

    /// A packet for a ring.
    pub fn packet(&self, ring: u16, mark: u32) -> Packet {
        let mut packet = frame(&self.pool, 1, 2, 100, mark);
        packet.set_queue(Some(ring));
        packet
    }

    /// Sends packets with these marks to the first ring, in one call.
    pub fn send(&self, marks: impl IntoIterator<Item = u32>) -> XmitResult {
        self.send_to(|_| 0, marks, Time::ZERO)
    }

    /// Sends packets with these marks in one call, each to the ring that `ring` says.
    pub fn send_to(
        &self,
        ring: impl Fn(u32) -> u16,
        marks: impl IntoIterator<Item = u32>,
        now: Time,
    ) -> XmitResult {
        let packet = |mark| self.packet(ring(mark), mark);
        let list = marks.into_iter().map(packet).collect();
        self.device.transmit(list, now)
    }

    /// The worker's work: runs each queue that has an event.
    pub fn work(&self, now: Time) -> Work {
        let mut work = Work::default();
        loop {
            let mut events = Vec::new();
            if !self.notifier.take(|event| events.push(event)) {
                return work;
            }
            for event in events {
                work.runs += 1;
                assert!(work.runs < 1_000_000, "asked to run for ever");
                work.timer = self.device.run_from_worker(event - 1, RUN_QUOTA, now);
            }
        }
    }

    /// The driver wakes every queue; works.
    pub fn wake(&self, now: Time) -> Work {
        self.device.queues().iter().for_each(TxQueue::wake);
        self.work(now)
    }

    /// `senders` threads send `each` packets each. `packets` makes a sender's packets from its
    /// number `n` on, marked `sender << 24 | n`. Another thread calls `serve`, with the number of
    /// the call, and this one `meanwhile`, until all is sent. Returns the packets offered.
    pub fn storm(
        &self,
        senders: u32,
        each: u32,
        packets: impl Fn(u32, u32) -> PacketList + Sync,
        mut serve: impl FnMut(usize) + Send,
        mut meanwhile: impl FnMut(),
    ) -> u64
    where
        Q: Send,
    {
        let (offered, done, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let most = self.pool.stats().buffers / 4;
        std::thread::scope(|scope| {
            let (offered, done, over, packets) = (&offered, &done, &over, &packets);
            for sender in 0..senders {
                scope.spawn(move || {
                    let _done = Done(done);
                    let mut n = 0;
                    while n < each {
                        // A pool that is in use everywhere is back-pressure, not an error.
                        wait_for_buffers(&self.pool, most);
                        let list = packets(sender, n);
                        n += list.len() as u32;
                        offered.fetch_add(list.len() as u64, Ordering::Relaxed);
                        self.device.transmit(list, Time::ZERO);
                    }
                });
            }
            scope.spawn(move || {
                let _over = Done(over);
                let mut turn = 0;
                while done.load(Ordering::Acquire) < u64::from(senders) {
                    turn += 1;
                    serve(turn);
                    std::thread::yield_now();
                }
            });
            while over.load(Ordering::Acquire) == 0 {
                meanwhile();
                std::thread::yield_now();
            }
        });
        offered.into_inner()
    }

    /// INV-TX-1 and INV-TX-6 at rest: all of `offered` is accounted for, and the lengths are those
    /// of what is queued.
    pub fn check(&self, offered: u64) {
        let stats = self.device.stats();
        let total = stats.qdisc();
        let accounted = stats.tx_packets + stats.dropped() + stats.queued;
        assert_eq!(offered, accounted, "{stats:?}");
        assert_eq!(
            (total.qlen, total.backlog),
            (stats.queued, stats.queued * 100)
        );
        let pool = self.pool.stats();
        assert_eq!(
            pool.free as u64 + total.qlen,
            pool.buffers as u64,
            "{pool:?}"
        );
        assert_eq!(self.device.is_empty(), total.qlen == 0);
    }
}
