//! The common part of the kernel's two locked transmit paths: a qdisc under the root lock, a driver
//! under its own, and the run loop, which gives the root lock up while the driver works.
//!
//! A run that has used up its quota goes on as the kernel's softirq does: by the same thread when
//! it is done with its own packet, up to [`RESTARTS`] times, then by a thread of its own
//! (`ksoftirqd`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{Parker, Unparker};
use parking_lot::Mutex;
use softnet::mem::{PacketList, Pool};
use softnet::offload::validate;
use softnet::qdisc::{Cx, Qdisc as _, WireSum};
use softnet::stats::{DropCounters, Dropped};
use softnet::time::Time;
use softnet::tx::{Features, Sent, TxRing as _, Xmit};
use softnet_tc::AnyQdisc;

use super::ticket::{self, Ticket, TicketGuard};
use crate::tx_adopt::{Sink, Ticks};

/// `dev_tx_weight`.
const QUOTA: usize = 64;
/// `MAX_SOFTIRQ_RESTART`.
pub(super) const RESTARTS: usize = 10;
/// Interval at which the thread looks whether it is to stop.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// State that the root lock guards.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) qdisc: AnyQdisc,
    /// Packets that the driver did not take; they leave first.
    requeued: PacketList,
    /// Dropped packets are freed without the lock.
    cx: Cx,
}

#[derive(Debug)]
struct Hard {
    sink: Sink,
    sent: Sent,
    dropped: Dropped,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Linux {
    pub(super) root: CachePadded<Ticket<Root>>,
    /// Some thread runs the qdisc. Changed under the root lock, read without.
    running: CachePadded<AtomicBool>,
    /// There is more to do for the softirq.
    scheduled: AtomicBool,
    hard: CachePadded<Ticket<Hard>>,
    pub(super) drops: DropCounters,
    pub(super) ticks: Ticks,
    features: Features,
    pool: Pool,
    parker: Mutex<Parker>,
    unparker: Unparker,
}

impl Root {
    /// True if packets may pass without being queued (`TCQ_F_CAN_BYPASS`), by the same rule as
    /// Softnet's.
    fn pass(&mut self, packets: &PacketList, now: Time) -> bool {
        let sum = WireSum::from(packets);
        self.requeued.is_empty() && self.qdisc.try_pass(packets, sum, self.cx.at(now))
    }
}

type RootGuard<'a> = TicketGuard<'a, Root>;

impl Linux {
    pub(super) fn new(qdisc: AnyQdisc, sink: Sink, ticks: Ticks, pool: Pool) -> Linux {
        let parker = Parker::new();
        Linux {
            root: CachePadded::new(Ticket::new(Root {
                qdisc,
                requeued: PacketList::new(),
                cx: Cx::new(&pool),
            })),
            running: CachePadded::new(AtomicBool::new(false)),
            scheduled: AtomicBool::new(false),
            hard: CachePadded::new(Ticket::new(Hard {
                sink,
                sent: Sent::default(),
                dropped: Dropped::new(),
            })),
            drops: DropCounters::new(),
            ticks,
            features: Features::default(),
            pool,
            unparker: parker.unparker().clone(),
            parker: Mutex::new(parker),
        }
    }

    /// True if some thread runs the qdisc; a hint without the root lock.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn lock_root(&self, waited: &mut u64) -> RootGuard<'_> {
        ticket::lock(&self.root, &self.ticks, waited)
    }

    /// `__dev_xmit_skb` from the point where the root lock is held: queues `packets` and runs the
    /// qdisc if nobody does. `before_run` is called once the packets are queued. Returns with the
    /// lock given up and dropped packets freed.
    pub(super) fn enqueue_and_run<'a>(
        &'a self,
        mut root: RootGuard<'a>,
        mut packets: PacketList,
        now: Time,
        waited: &mut u64,
        before_run: impl FnOnce(),
    ) {
        let runs = !self.is_running();
        if runs && root.pass(&packets, now) {
            self.running.store(true, Ordering::Relaxed);
            let (complete, guard) = self.direct_xmit(root, packets, true, waited);
            root = guard;
            before_run();
            if complete {
                root = self.run(root, now, waited);
            } else {
                // The driver that is full has capacity again at once.
                self.scheduled.store(true, Ordering::Relaxed);
            }
            self.running.store(false, Ordering::Relaxed);
        } else {
            let state = &mut *root;
            state.qdisc.enqueue(&mut packets, state.cx.at(now));
            if runs {
                self.running.store(true, Ordering::Relaxed);
                before_run();
                root = self.run(root, now, waited);
                self.running.store(false, Ordering::Relaxed);
            } else {
                before_run();
            }
        }
        self.unlock(root);
    }

    /// Gives the root lock up, then frees what was dropped.
    fn unlock(&self, mut root: RootGuard<'_>) {
        let dropped =
            (root.cx.dropped.wire_packets() > 0).then(|| std::mem::take(&mut root.cx.dropped));
        drop(root);
        if let Some(mut dropped) = dropped {
            dropped.settle(&self.drops);
        }
    }

    /// `__qdisc_run`. The root lock is given up and taken again for each batch.
    fn run<'a>(&'a self, mut root: RootGuard<'a>, now: Time, waited: &mut u64) -> RootGuard<'a> {
        let mut quota = QUOTA;
        loop {
            let state = &mut *root;
            let mut batch = state.requeued.take();
            let fresh = batch.is_empty();
            if fresh {
                // How soon more may leave does not matter: the qdiscs compared here never wait.
                let _ = state.qdisc.dequeue(quota, &mut batch, state.cx.at(now));
            }
            if batch.is_empty() {
                return root;
            }
            let sent = batch.len();
            let (complete, guard) = self.direct_xmit(root, batch, fresh, waited);
            root = guard;
            quota = quota.saturating_sub(sent);
            if !complete || quota == 0 {
                self.scheduled.store(true, Ordering::Relaxed);
                return root;
            }
        }
    }

    /// `sch_direct_xmit`: hands a batch to the driver, without the root lock. False if the driver
    /// did not take all.
    fn direct_xmit<'a>(
        &'a self,
        root: RootGuard<'a>,
        mut batch: PacketList,
        fresh: bool,
        waited: &mut u64,
    ) -> (bool, RootGuard<'a>) {
        drop(root);
        let mut hard = ticket::lock(&self.hard, &self.ticks, waited);
        let Hard {
            sink,
            sent,
            dropped,
        } = &mut *hard;
        if fresh {
            // All of it, as the kernel does.
            let mut rest = batch.take();
            while !rest.is_empty() {
                let mut some = rest;
                rest = validate(&mut some, usize::MAX, &self.features, &self.pool, dropped);
                batch.append(&mut some);
            }
        }
        let result = sink.xmit(&mut batch, sent);
        dropped.settle(&self.drops);
        drop(hard);
        let mut root = self.lock_root(waited);
        if result == Xmit::Busy && !batch.is_empty() {
            root.requeued.append(&mut batch);
            return (false, root);
        }
        (true, root)
    }

    /// The softirq at the end of a sender's call, as in `local_bh_enable`.
    pub(super) fn softirq(&self, now: Time, waited: &mut u64) {
        for _ in 0..RESTARTS {
            if !self.scheduled.load(Ordering::Relaxed)
                || !self.scheduled.swap(false, Ordering::Relaxed)
            {
                return;
            }
            self.action(now, waited);
        }
        if self.scheduled.load(Ordering::Relaxed) {
            self.unparker.unpark();
        }
    }

    /// `net_tx_action`.
    fn action(&self, now: Time, waited: &mut u64) {
        let mut root = self.lock_root(waited);
        if !self.is_running() {
            self.running.store(true, Ordering::Relaxed);
            root = self.run(root, now, waited);
            self.running.store(false, Ordering::Relaxed);
        }
        self.unlock(root);
    }

    /// `ksoftirqd`.
    pub(super) fn serve(&self, stop: &AtomicBool) {
        let parker = self.parker.lock();
        let mut waited = 0;
        while !stop.load(Ordering::Acquire) {
            while self.scheduled.swap(false, Ordering::Relaxed) {
                self.action(self.ticks.now(), &mut waited);
            }
            parker.park_timeout(LOOK);
        }
    }
}
