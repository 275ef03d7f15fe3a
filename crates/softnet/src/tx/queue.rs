//! One transmit queue: how senders get at it, and the loop of its owner.
//!
//! A sender becomes the owner, or pushes its packets for the owner or the worker.
//!
//! The owner enqueues what it adopted, dequeues batches of at most its remaining budget, and
//! hands them to the driver; what finds the qdisc empty goes past it. What the driver does not
//! take is requeued, and leaves before anything dequeued later for the same ring (INV-TX-4). The
//! owner gives the queue up when its budget is used up (the worker goes on), when nothing may
//! leave now (the worker's timer goes on), when the driver is full (its [waker](super::RingWaker)
//! goes on), or when all is sent.

mod rare;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use super::adopted::ADOPTIONS;
use super::budget::Budget;
use super::device::DeviceConfig;
use super::egress::Outlet;
use super::patience::Patience;
use super::policy::{CROWDED, RUN_QUOTA, ServedBy, TxPolicy};
use super::quota::Quota;
use super::ring::TxRing;
use super::state::QueueState;
use super::status::{QueueStats, Status};
use super::waker::RingWaker;
use super::xmit_result::XmitResult;
use crate::mem::{PacketList, Pool};
use crate::probes;
use crate::qdisc::{Next, Qdisc, Verdict};
use crate::stats::DropCounters;
use crate::sync::{
    Capacity, Down, Entry, Left, ListOwner, OwnedList, Tell, WorkerTimer, is_owner_here, preempt,
};
use crate::time::{Clock, Time};

/// One transmit queue: adoption list, owner, qdisc, requeue lists, driver rings.
///
/// A sender either becomes the queue's owner or, in the same compare-and-swap, pushes its packets
/// for the owner, which enqueues them, dequeues batches and hands them to the driver. A list looks
/// for the ownership first, for a time that its length bounds. What a bounded owner leaves is done
/// by the next sender or by the queue's worker, whichever comes first.
#[derive(Debug)]
pub struct TxQueue<R, Q> {
    /// Packets that wait to be adopted, and what the owner alone touches.
    pub(super) list: OwnedList<PacketList, QueueState<R, Q>>,
    pub(super) status: Status,
    pub(super) cold: CachePadded<Cold>,
    // From here on nothing is written while packets flow: every sender reads these lines.
    pub(super) policy: TxPolicy,
    pub(super) drops: Arc<DropCounters>,
    pub(super) waker: RingWaker,
    pub(super) quota: Quota,
    patience: Patience,
    /// The device is down: a sender drops what it pushed for the worker itself.
    pub(super) down: Down,
    /// The qdisc reads the time of the push; see [`Qdisc::wants_enqueue_time`].
    pub(super) stamps: AtomicBool,
}

/// Fields written now and then, by the owner and by senders that wait: on lines of its own.
#[derive(Debug)]
pub(super) struct Cold {
    timer: WorkerTimer,
    pub(super) capacity: Capacity,
    /// Times calls; see [`Device::measure`](super::Device::measure).
    pub(super) clock: OnceLock<Clock>,
    /// Carries out what actions of filters send to other links.
    pub(super) outlet: OnceLock<Arc<dyn Outlet>>,
}

/// The ownership of a queue.
pub(super) type Owner<'a, R, Q> = ListOwner<'a, PacketList, QueueState<R, Q>>;

/// The packets of an owner's call. Dropped only by a panic of the driver or the qdisc, after the
/// [state](QueueState::abandon) of the queue, which is out of use then.
struct Call<'a, R: TxRing, Q: Qdisc> {
    queue: &'a TxQueue<R, Q>,
    backlog: PacketList,
    own: &'a mut PacketList,
}

impl<R: TxRing, Q: Qdisc> Call<'_, R, Q> {
    /// The call has come to its end.
    #[inline(always)]
    fn end(mut self) {
        let backlog = self.backlog.take();
        std::mem::forget(self);
        drop(backlog);
    }
}

impl<R: TxRing, Q: Qdisc> Drop for Call<'_, R, Q> {
    // Inlined, so that nothing of it needs memory where nothing panics.
    #[inline(always)]
    fn drop(&mut self) {
        self.queue.reset(self.backlog.take(), self.own);
    }
}

/// End of an owner's round through the qdisc.
enum Round<'a, R, Q> {
    /// The queue is given up. It wants to be served again at this time; [`Time::MAX`]: it does
    /// not. (Not an `Option`: its copies stall the processor.)
    Over(Time),
    /// Packets or events came meanwhile: the owner goes on.
    Again(Owner<'a, R, Q>),
}

/// Attempt at the packets of the caller, before a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// Nothing was tried.
    No,
    /// There is nothing more to try: they may not pass, or have left and did not end well.
    Refused,
    /// They have left. Others pushed something meanwhile.
    Passed,
}

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// A queue that feeds `rings`. All queues of a device count drops together.
    pub(super) fn new(
        rings: Vec<R>,
        qdisc: Q,
        config: &DeviceConfig,
        (drops, pool): (Arc<DropCounters>, &Pool),
        waker: RingWaker,
    ) -> Self {
        let max_burst = config.policy.max_burst;
        let stamps = qdisc.wants_enqueue_time();
        let state = QueueState::new(qdisc, rings, config.features, pool);
        TxQueue {
            list: OwnedList::new(state, max_burst).when_abandoned(QueueState::abandon),
            status: Status::default(),
            cold: CachePadded::new(Cold {
                timer: WorkerTimer::new(),
                capacity: Capacity::default(),
                clock: OnceLock::new(),
                outlet: OnceLock::new(),
            }),
            policy: config.policy.clone(),
            drops,
            waker,
            quota: Quota::default(),
            patience: Patience::measured(),
            down: Down::default(),
            stamps: AtomicBool::new(stamps),
        }
    }

    /// As [`Device::transmit`](super::Device::transmit), through this queue whatever the packets are.
    #[inline(never)]
    pub fn transmit(&self, mut packets: PacketList, now: Time) -> XmitResult {
        self.transmit_list(&mut packets, now)
    }

    /// As [`transmit`](TxQueue::transmit). What is still in the list afterwards was refused, and
    /// counted as dropped.
    #[inline(always)]
    pub(super) fn transmit_list(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        // Relaxed: a sender that reads the old value is one that came before the change.
        if self.stamps.load(Ordering::Relaxed) {
            stamp(packets, now);
        }
        match self.policy.served_by {
            ServedBy::Senders => match self.patience.pauses(packets.len()) {
                0 => self.enter(packets, now),
                pauses => self.enter_within(packets, pauses, now),
            },
            ServedBy::Worker => self.push_for_worker(packets, now),
        }
    }

    /// Becomes the owner and serves the queue, or pushes `packets` for the owner.
    #[inline(always)]
    fn enter(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        match self.list.enter(packets, |packets| self.max_burst(packets)) {
            Entry::Acquired(owner, left) => self.own(owner, left, packets, now),
            Entry::Queued(before) => self.queued(before, now),
            Entry::Full => self.retry(packets, now),
        }
    }

    /// As [`enter`](TxQueue::enter), for a list that [looks](super::patience) for the ownership.
    #[inline(never)]
    fn enter_within(&self, packets: &mut PacketList, pauses: u32, now: Time) -> XmitResult {
        // A driver that sends would wait for itself, or make others wait.
        let pauses = if is_owner_here() { 1 } else { pauses };
        match self.list.begin_within(pauses) {
            Some((owner, left)) => self.own(owner, left, packets, now),
            None => self.enter(packets, now),
        }
    }

    /// Serves the queue as its owner.
    #[inline(always)]
    fn own(
        &self,
        owner: Owner<'_, R, Q>,
        left: Left,
        packets: &mut PacketList,
        now: Time,
    ) -> XmitResult {
        if owner.sampler.is_next() {
            return self.own_timed(owner, left, packets, now);
        }
        let budget = self.budget(RUN_QUOTA, now);
        let (verdict, _) = self.serve(owner, left, packets, budget, Some(now));
        verdict.into()
    }

    /// Packets that may wait for the owner of the queue.
    #[inline]
    fn max_burst(&self, packets: &PacketList) -> usize {
        self.quota.max_burst(packets, self.policy.max_burst)
    }

    fn push_for_worker(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        let limit = self.max_burst(packets);
        let mut before = self.list.push(packets, limit);
        if before.is_none() {
            // The sender that filled the list may be preempted before it notifies the worker.
            self.waker.notify();
            if self.policy.yields {
                self.yield_to_owner();
                before = self.list.push(packets, limit);
            }
        }
        let Some(before) = before else {
            return self.refuse(packets);
        };
        // The worker begins, or makes the owner go round, in the word that this push has changed.
        self.waker.notify_pushed();
        if self.down.is_set() && self.run_from_worker(RUN_QUOTA, now).is_some() {
            // The queue came up again meanwhile: the timer is the worker's.
            self.waker.notify();
        }
        self.queued(before, now)
    }

    /// The result of a sender that has pushed its packets behind `before` others. Where much is
    /// due, the owner may be preempted, and needs a CPU more than this thread does.
    #[inline]
    fn queued(&self, before: usize, now: Time) -> XmitResult {
        if before + self.list.backlog() < CROWDED {
            return XmitResult::Success;
        }
        self.crowded(now)
    }

    /// Serves the queue until nothing is left or the budget is used up: first what others left,
    /// then `own`. Returns what became of `own`, and when the queue wants to be served again
    /// ([`Time::MAX`]: it does not).
    ///
    /// The worker's [timer](WorkerTimer) is armed while the queue is owned; `arm` is the time of an
    /// owner that is a sender.
    #[inline(always)]
    fn serve(
        &self,
        owner: Owner<'_, R, Q>,
        left: Left,
        own: &mut PacketList,
        mut budget: Budget,
        arm: Option<Time>,
    ) -> (Verdict, Time) {
        probes::queue_run(self);
        let call = Call {
            queue: self,
            backlog: PacketList::new(),
            own: &mut *own,
        };
        // Dropped before the call.
        let mut owner = owner;
        // The common case, without a call: no other thread is there, and nothing is queued.
        let tried = match left.some() {
            true => Tried::No,
            false if owner.pass(&self.status, call.own, &mut budget) => Tried::Passed,
            false => Tried::Refused,
        };
        call.end();
        if tried == Tried::Passed {
            match self.end(owner) {
                Ok(()) => return (Verdict::Queued, Time::MAX),
                Err(again) => owner = again,
            }
        }
        let backlog = owner.take_left(left);
        self.serve_on(owner, backlog, own, budget, arm, tried)
    }

    /// The rest of [`serve`](TxQueue::serve).
    #[inline(never)]
    fn serve_on(
        &self,
        owner: Owner<'_, R, Q>,
        backlog: PacketList,
        own: &mut PacketList,
        budget: Budget,
        arm: Option<Time>,
        tried: Tried,
    ) -> (Verdict, Time) {
        let mut call = Call {
            queue: self,
            backlog,
            own,
        };
        let served = self.serve_call(owner, &mut call.backlog, call.own, budget, arm, tried);
        call.end();
        served
    }

    #[inline(always)]
    fn serve_call(
        &self,
        mut owner: Owner<'_, R, Q>,
        backlog: &mut PacketList,
        own: &mut PacketList,
        mut budget: Budget,
        arm: Option<Time>,
        mut tried: Tried,
    ) -> (Verdict, Time) {
        let mut verdict = Verdict::Queued;
        let mut missed = false;
        loop {
            // Later rounds have nothing of the caller.
            let mine = tried != Tried::Passed;
            if !mine {
                match owner.take(budget.adoptions) {
                    Some(more) => (*backlog, missed) = more,
                    None => {
                        self.leave_to_worker(owner);
                        return (verdict, Time::MAX);
                    }
                }
                // Events cost a round each.
                budget.charge(u64::from(missed));
            }
            probes::queue_adopt(self, backlog.len());
            let mut pass = |list: &mut PacketList| {
                list.is_empty() || owner.pass_backlog(&self.status, list, &mut budget)
            };
            let some = !backlog.is_empty() || !own.is_empty();
            let passed = tried != Tried::Refused && some && pass(backlog) && pass(own);
            tried = Tried::Passed;
            if passed {
                match self.end(owner) {
                    Ok(()) => return (verdict, Time::MAX),
                    Err(again) => owner = again,
                }
            } else {
                let limit = self.quota.limit();
                let mut others = u64::MAX;
                if mine && owner.rings.noqueue {
                    others = self.serve_others_first(&mut owner, backlog, own, &mut budget);
                }
                verdict = verdict.max(owner.enqueue(backlog, own, limit, &mut budget));
                match self.serve_queued(owner, &mut budget, arm, missed, (others, &mut verdict)) {
                    Round::Over(timer) => return (verdict, timer),
                    Round::Again(again) => owner = again,
                }
            }
        }
    }

    /// Gives up a queue of which everything has passed.
    #[inline]
    fn end<'a>(&self, owner: Owner<'a, R, Q>) -> Result<(), Owner<'a, R, Q>> {
        self.cold.timer.clear();
        owner.end()?;
        self.published();
        Ok(())
    }

    /// One round of [`serve`](TxQueue::serve) through the qdisc. `others`: see
    /// [`serve_others_first`](TxQueue::serve_others_first).
    #[inline(never)]
    fn serve_queued<'a>(
        &self,
        mut owner: Owner<'a, R, Q>,
        budget: &mut Budget,
        arm: Option<Time>,
        missed: bool,
        (others, verdict): (u64, &mut Verdict),
    ) -> Round<'a, R, Q> {
        preempt::point();
        if owner.rings.is_held_up() && self.waker.take() {
            owner.rings.unblock();
        }
        let next = owner.run(&self.status, budget);
        preempt::point();
        let adopted = owner.adopted.len();
        let more = next == Next::Ready || adopted != 0;
        let due = if more {
            adopted as u32 + owner.qdisc.stats().qlen as u32
        } else {
            0
        };
        if owner.rings.noqueue && owner.cx.dropped.wire_packets() > others {
            // INV-TX-9: nothing is kept there, so the driver's answer is the sender's.
            *verdict = Verdict::Dropped;
        }
        owner.publish(&self.status);
        self.status.count_copied(&mut owner.cx);
        owner.settle_elsewhere(&self.cold.outlet);
        owner.cx.dropped.settle(&self.drops);
        let timer = match next {
            Next::At(time) => time,
            Next::Idle | Next::Ready => Time::MAX,
        };
        let tell = self.cold.timer.leave(timer, arm, missed);
        if tell == Tell::Now {
            self.waker.notify();
        }
        owner.set_backlog(due);
        let goes_on = tell == Tell::After || more;
        if goes_on || budget.is_used_up() {
            if owner.leave() || goes_on {
                preempt::point();
                self.waker.notify();
            }
        } else if let Err(again) = owner.end() {
            return Round::Again(again);
        }
        self.published();
        Round::Over(timer)
    }

    /// Called by the queue's worker: serves the queue for at most `quota` packets, and returns
    /// when it wants to be served again at the latest.
    pub fn run_from_worker(&self, quota: usize, now: Time) -> Option<Time> {
        // If another thread is the owner, it goes round once more, and then arms or notifies as it
        // finds things.
        let (owner, backlog) = self.list.begin_or_miss().or_else(|| self.overdue())?;
        let budget = self.budget(quota, now);
        probes::queue_run(self);
        let own = &mut PacketList::new();
        let (_, timer) = self.serve_on(owner, backlog, own, budget, None, Tried::No);
        (timer != Time::MAX).then_some(timer)
    }

    /// The budget of an owner that sends at most `packets`.
    #[inline]
    pub(super) fn budget(&self, packets: usize, now: Time) -> Budget {
        Budget {
            packets,
            adoptions: ADOPTIONS,
            start: now,
        }
    }

    /// The driver has capacity again, or may have; see [`RingWaker::wake`]. For a ring, also one
    /// that another queue feeds, this is called on the queue with the ring's number.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// The queue's statistics.
    pub fn stats(&self) -> QueueStats {
        self.status.stats()
    }

    /// Frames that wait: on the adoption list, in the qdisc, and for the driver. A recent value
    /// while threads send.
    pub fn waiting(&self) -> usize {
        self.list.len() + self.status.qlen()
    }

    /// To be called by an owner that has given the queue up: wakes a few of those that wait for
    /// capacity, if there is some.
    #[inline(always)]
    pub(super) fn published(&self) {
        probes::queue_run_end(self);
        self.cold.capacity.published(|| self.waiting());
    }

    /// True if nothing waits, on the adoption list or in the qdisc. Exact when no sender is
    /// active.
    pub fn is_empty(&self) -> bool {
        self.list.is_idle() && self.status.qlen() == 0
    }
}

/// Notes when packets were pushed. A departure time stays.
#[cold]
pub(super) fn stamp(packets: &mut PacketList, now: Time) {
    packets.for_each_mut(|packet| {
        if packet.departure_time().is_none() {
            packet.set_timestamp(now);
        }
    });
}
