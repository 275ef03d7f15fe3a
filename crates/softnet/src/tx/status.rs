//! Status of a queue: its counters, since when its driver has been full, and, sampled, how many
//! packets leave at once and how long they waited. Written by the queue's owner, read by any
//! thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::device_stats::Distributions;
use super::ring::Sent;
use crate::mem::PacketList;
use crate::qdisc::{Cx, QdiscStat, QdiscStats, WireSum};
use crate::stats::{Histogram, Published};
use crate::time::Time;

/// Statistics of a queue. Frames or wire packets as said in [`QdiscStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// The qdisc's statistics; `requeues`, `qlen`, `backlog` and `queued` include the requeue
    /// lists.
    pub qdisc: QdiscStats,
    /// Wire packets handed to the device.
    pub tx_packets: u64,
    /// Their wire bytes.
    pub tx_bytes: u64,
}

/// Published state of a queue.
#[derive(Debug, Default)]
pub(super) struct Status {
    counters: CachePadded<Counters>,
    rare: CachePadded<Rare>,
}

/// Written by every run.
#[derive(Debug, Default)]
struct Counters {
    qdisc: Published<{ QdiscStats::WORDS }>,
    /// Wire packets and bytes handed to the device.
    sent: Published<2>,
}

/// Written rarely.
#[derive(Debug, Default)]
struct Rare {
    /// When the ring that has been full for longest refused packets and had taken none since, and
    /// 1; 0 if none is full.
    stopped: AtomicU64,
    /// See [`DeviceStats::panics`](super::DeviceStats).
    panics: AtomicU64,
    /// Wire packets that the qdisc has added by copying.
    copied: AtomicU64,
    sojourn: Histogram,
    batch: Histogram,
    calls: Histogram,
}

impl Status {
    /// Publishes all counters.
    pub(super) fn publish(&self, q: &QdiscStats, sent: &Sent) {
        self.counters.qdisc.set(q.words());
        self.counters.sent.set([sent.packets, sent.bytes]);
    }

    /// Publishes the only counters that change when packets pass an empty qdisc.
    #[inline]
    pub(super) fn publish_sent(&self, left: WireSum, sent: &Sent) {
        self.counters
            .qdisc
            .put(QdiscStat::bytes as usize, left.bytes);
        self.counters
            .qdisc
            .put(QdiscStat::packets as usize, left.packets);
        self.counters.sent.set([sent.packets, sent.bytes]);
    }

    pub(super) fn stats(&self) -> QueueStats {
        let [tx_packets, tx_bytes] = self.counters.sent.get();
        QueueStats {
            qdisc: QdiscStats::from_words(self.counters.qdisc.get()),
            tx_packets,
            tx_bytes,
        }
    }

    /// Frames queued, requeued ones included.
    pub(super) fn qlen(&self) -> usize {
        self.counters.qdisc.get_one(QdiscStat::qlen as usize) as usize
    }

    /// Since when a ring has been full that has taken nothing since (BUG-TX-23: one that takes
    /// some between two refusals is not stuck). None: no ring is full.
    #[inline]
    pub(super) fn stopped_since(&self, since: Option<Time>) {
        let stopped = since.map_or(0, |time| time.nanos().saturating_add(1));
        if self.rare.stopped.load(Ordering::Relaxed) != stopped {
            self.rare.stopped.store(stopped, Ordering::Relaxed);
        }
    }

    /// True if a ring has taken nothing for at least `timeout`.
    pub(super) fn is_stuck(&self, now: Time, timeout: Duration) -> bool {
        let stopped = self.rare.stopped.load(Ordering::Relaxed);
        stopped != 0 && now.since(Time(stopped - 1)) >= timeout
    }

    pub(super) fn count_panic(&self) {
        self.rare.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn panics(&self) -> u64 {
        self.rare.panics.load(Ordering::Relaxed)
    }

    /// Counts what a call's qdisc has added by copying, and forgets it.
    #[inline]
    pub(super) fn count_copied(&self, cx: &mut Cx) {
        let copied = std::mem::take(&mut cx.copied);
        if copied > 0 {
            self.rare.copied.fetch_add(copied, Ordering::Relaxed);
        }
    }

    pub(super) fn copied(&self) -> u64 {
        self.rare.copied.load(Ordering::Relaxed)
    }

    /// Records a batch on its way to the driver: its length, and the time since its first packet's
    /// timestamp, if that has one.
    #[cold]
    pub(super) fn sample(&self, batch: &PacketList, now: Time) {
        self.rare.batch.record(batch.len() as u64);
        match batch.front().map(|first| first.timestamp()) {
            None | Some(Time::ZERO) => {}
            Some(here) => {
                let nanos = now.nanos().saturating_sub(here.nanos());
                self.rare.sojourn.record(nanos);
            }
        }
    }

    /// Records how long a sender's call took. That sender owns the queue no more, so two may come
    /// at once: one in many is lost then.
    pub(super) fn sample_call(&self, nanos: u64) {
        self.rare.calls.record(nanos);
    }

    /// Adds what was measured here.
    pub(super) fn sum_up(&self, to: &mut Distributions) {
        to.call_ns.merge(&self.rare.calls.counts());
        to.sojourn_ns.merge(&self.rare.sojourn.counts());
        to.batch.merge(&self.rare.batch.counts());
    }
}
