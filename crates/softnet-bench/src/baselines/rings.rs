//! Baseline `rings`: a user-space port of the kernel's `pfifo_fast` without a lock. Senders put
//! packets into a ring for each band; whoever gets the run takes them out and sends them. A sender
//! that does not get it says so (MISSED) and leaves.
//!
//! The rings are crossbeam's, which have no lock of the producers either. The kernel's counters
//! are left out.
//!
//! Conservation: a sender's packet is in a ring before it tries for the run. If it fails, it sets
//! `missed` and tries once more; a runner clears `missed` and then looks at the rings, and looks
//! at `missed` after it has given the run up. All of it is SeqCst. So either the second try gets
//! the run, or the runner, which had it then, sees `missed` afterwards and runs again.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{Parker, Unparker};
use parking_lot::Mutex;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::offload::validate;
use softnet::qdisc::PRIO_TO_BAND;
use softnet::stats::{DropCounters, DropReason, Dropped};
use softnet::time::Time;
use softnet::tx::{Features, RUN_QUOTA, Sent, TxRing as _};

use super::linux::{LOOK, RESTARTS};
use crate::tx_adopt::{Path, Sink};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Rings {
    bands: [ArrayQueue<Packet>; 3],
    /// Somebody has the run (the kernel's `seqlock`).
    running: CachePadded<AtomicBool>,
    /// A sender did not get the run, or a runner left something.
    missed: CachePadded<AtomicBool>,
    /// Locked by whoever has the run, so never waited for.
    hard: Mutex<Hard>,
    drops: DropCounters,
    features: Features,
    pool: Pool,
    parker: Mutex<Parker>,
    unparker: Unparker,
}

#[derive(Debug)]
struct Hard {
    sink: Sink,
    sent: Sent,
    dropped: Dropped,
}

impl Rings {
    /// Room for `limit` packets in each band.
    pub(crate) fn new(limit: usize, sink: Sink, pool: Pool) -> Rings {
        let parker = Parker::new();
        Rings {
            bands: std::array::from_fn(|_| ArrayQueue::new(limit)),
            running: CachePadded::default(),
            missed: CachePadded::default(),
            hard: Mutex::new(Hard {
                sink,
                sent: Sent::default(),
                dropped: Dropped::new(),
            }),
            drops: DropCounters::new(),
            features: Features::default(),
            pool,
            unparker: parker.unparker().clone(),
            parker: Mutex::new(parker),
        }
    }

    fn enqueue(&self, packets: PacketList) -> u64 {
        let mut refused = 0;
        for packet in packets {
            let band = usize::from(PRIO_TO_BAND[(packet.priority() & 15) as usize]);
            if let Err(packet) = self.bands[band].push(packet) {
                refused += packet.wire_packets();
            }
        }
        if refused > 0 {
            self.drops.add(DropReason::QdiscLimit, refused);
        }
        refused
    }

    fn try_run(&self) -> bool {
        !self.running.swap(true, Ordering::SeqCst)
    }

    /// `qdisc_run_begin`.
    fn begin(&self) -> bool {
        self.try_run() || (!self.missed.swap(true, Ordering::SeqCst) && self.try_run())
    }

    /// `qdisc_run_end`; true if somebody has to run again.
    fn end(&self) -> bool {
        self.running.store(false, Ordering::SeqCst);
        self.missed.load(Ordering::SeqCst)
    }

    fn send(&self, mut batch: PacketList) {
        let mut hard = self.hard.lock();
        let Hard {
            sink,
            sent,
            dropped,
        } = &mut *hard;
        let (features, pool) = (&self.features, &self.pool);
        validate(&mut batch, usize::MAX, features, pool, dropped);
        sink.xmit(&mut batch, sent);
        dropped.settle(&self.drops);
    }

    /// `pfifo_fast_dequeue`: the lowest band that has one first.
    fn dequeue(&self, budget: usize) -> PacketList {
        let mut batch = PacketList::new();
        for band in &self.bands {
            while batch.len() < budget
                && let Some(packet) = band.pop()
            {
                batch.push_back(packet);
            }
        }
        batch
    }

    /// `__qdisc_run`.
    fn run(&self) {
        let mut quota = RUN_QUOTA;
        while quota > 0 {
            let mut batch = self.dequeue(quota);
            if batch.is_empty() {
                if !self.missed.swap(false, Ordering::SeqCst) {
                    return;
                }
                batch = self.dequeue(quota);
            }
            if batch.is_empty() {
                return;
            }
            quota -= batch.len();
            self.send(batch);
        }
        self.missed.store(true, Ordering::SeqCst);
    }

    /// The softirq: runs as long as there is something, so often at most; true if there still is.
    fn again(&self, times: usize) -> bool {
        for _ in 0..times {
            if !self.try_run() {
                return false;
            }
            self.run();
            if !self.end() {
                return false;
            }
        }
        true
    }
}

impl Path for Rings {
    const SERVED: bool = true;

    fn transmit(&self, packets: PacketList, _: Time, _: &mut u64) -> u64 {
        // Nothing was missed: the rings are empty, or a runner is at them.
        let refused = if !self.missed.load(Ordering::SeqCst) && self.try_run() {
            if self.bands.iter().all(ArrayQueue::is_empty) {
                self.send(packets);
                self.run();
                0
            } else {
                let refused = self.enqueue(packets);
                self.run();
                refused
            }
        } else {
            let refused = self.enqueue(packets);
            if !self.begin() {
                return refused;
            }
            self.run();
            refused
        };
        if self.end() && self.again(RESTARTS) {
            self.unparker.unpark();
        }
        refused
    }

    fn serve(&self, stop: &AtomicBool) {
        let parker = self.parker.lock();
        while !stop.load(Ordering::Acquire) {
            if !self.missed.load(Ordering::SeqCst) || !self.again(usize::MAX) {
                parker.park_timeout(LOOK);
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.drops.total()
    }
}
