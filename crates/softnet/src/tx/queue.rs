//! One transmit queue, and the loop of its owner.
//!
//! The owner enqueues what it adopted, dequeues batches of at most its remaining budget, and
//! hands them to the driver; what finds the qdisc empty goes past it. What the driver does not
//! take is requeued, and leaves before anything dequeued later for the same ring (INV-TX-4). The
//! owner gives the queue up when its budget is used up (the worker goes on), when nothing may
//! leave now (the worker's timer goes on), when the driver is full (its [waker](super::RingWaker)
//! goes on), or when all is sent.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::adopted::ADOPTIONS;
use super::budget::{Budget, RunOutcome};
use super::policy::{RUN_QUOTA, TxPolicy};
use super::quota::Quota;
use super::ring::TxRing;
use super::state::QueueState;
use super::status::{QueueStats, Status};
use super::waker::RingWaker;
use crate::mem::{AdoptionQueue, PacketList, Pool, QueueOwner};
use crate::offload::Features;
use crate::qdisc::{Qdisc, Verdict};
use crate::stats::{DropCounters, DropReason};
use crate::sync::{Capacity, Down, Tell, WorkerTimer, preempt};
use crate::time::{Clock, Time};

/// One transmit queue: adoption list, owner, qdisc, requeue lists, driver rings.
///
/// A sender either becomes the queue's owner or, in the same compare-and-swap, pushes its packets
/// for the owner, which enqueues them, dequeues batches and hands them to the driver. No thread
/// waits for another. What a bounded owner leaves is done by the next sender or by the queue's
/// worker, whichever comes first.
#[derive(Debug)]
pub struct TxQueue<R, Q> {
    /// What waits to be adopted, and what the owner alone touches.
    pub(super) list: AdoptionQueue<QueueState<R, Q>>,
    pub(super) status: Status,
    pub(super) cold: CachePadded<Cold>,
    // From here on nothing is written while packets flow: every sender reads these lines.
    pub(super) policy: TxPolicy,
    pub(super) drops: Arc<DropCounters>,
    pub(super) waker: RingWaker,
    pub(super) quota: Quota,
    /// The device is down: a sender drops what it pushed for the worker itself.
    pub(super) down: Down,
    /// The qdisc reads the time of the push; see [`Qdisc::wants_enqueue_time`].
    pub(super) stamps: AtomicBool,
}

/// What is written now and then, by the owner and by senders that wait: on lines of its own.
#[derive(Debug)]
pub(super) struct Cold {
    timer: WorkerTimer,
    pub(super) capacity: Capacity,
    /// Times calls; see [`Device::measure`](super::Device::measure).
    pub(super) clock: OnceLock<Clock>,
}

/// What a queue is made of, besides qdisc and rings.
#[derive(Clone, Debug)]
pub(super) struct QueueConfig {
    pub(super) policy: TxPolicy,
    pub(super) features: Features,
    pub(super) drops: Arc<DropCounters>,
    pub(super) pool: Pool,
    pub(super) waker: RingWaker,
}

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

/// How an owner's round through the qdisc ended.
enum Round<'a, R, Q> {
    /// The queue is given up. It wants to be served again at this time; [`Time::MAX`]: it does
    /// not. (Not an `Option`: its copies stall the processor.)
    Over(Time),
    /// Packets or events came meanwhile: the owner goes on.
    Again(QueueOwner<'a, QueueState<R, Q>>),
}

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// A queue that feeds `rings`.
    pub(super) fn new(rings: Vec<R>, qdisc: Q, config: QueueConfig) -> Self {
        let max_burst = config.policy.max_burst;
        let stamps = qdisc.wants_enqueue_time();
        let state = QueueState::new(qdisc, rings, config.features, &config.pool);
        TxQueue {
            list: AdoptionQueue::new(state, max_burst).when_abandoned(QueueState::abandon),
            status: Status::default(),
            cold: CachePadded::new(Cold {
                timer: WorkerTimer::new(),
                capacity: Capacity::default(),
                clock: OnceLock::new(),
            }),
            policy: config.policy,
            drops: config.drops,
            waker: config.waker,
            quota: Quota::default(),
            down: Down::default(),
            stamps: AtomicBool::new(stamps),
        }
    }

    /// Serves the queue until nothing is left or the budget is used up: first `backlog`, what
    /// others pushed, then `own`. Returns what became of `own`, and when the queue wants to be
    /// served again ([`Time::MAX`]: it does not).
    ///
    /// The worker's [timer](WorkerTimer) is armed while the queue is owned; `arm` is the time of an
    /// owner that is a sender.
    #[inline(always)]
    pub(super) fn serve(
        &self,
        owner: QueueOwner<'_, QueueState<R, Q>>,
        backlog: PacketList,
        own: &mut PacketList,
        mut budget: Budget,
        arm: Option<Time>,
    ) -> (Verdict, Time) {
        let call = Call {
            queue: self,
            backlog: PacketList::new(),
            own: &mut *own,
        };
        // Dropped before the call.
        let mut owner = owner;
        // The common case, without a call: no other thread is there, and nothing is queued.
        let passed = backlog.is_empty() && owner.pass(&self.status, call.own, &mut budget);
        call.end();
        if passed {
            match self.end(owner) {
                Ok(()) => return (Verdict::Queued, Time::MAX),
                Err(again) => owner = again,
            }
        }
        self.serve_on(owner, backlog, own, budget, arm, passed)
    }

    /// The rest of [`serve`](TxQueue::serve). `again`: others pushed something meanwhile.
    #[inline(never)]
    fn serve_on(
        &self,
        owner: QueueOwner<'_, QueueState<R, Q>>,
        backlog: PacketList,
        own: &mut PacketList,
        budget: Budget,
        arm: Option<Time>,
        again: bool,
    ) -> (Verdict, Time) {
        let mut call = Call {
            queue: self,
            backlog,
            own,
        };
        let served = self.serve_call(owner, &mut call.backlog, call.own, budget, arm, again);
        call.end();
        served
    }

    #[inline(always)]
    fn serve_call(
        &self,
        mut owner: QueueOwner<'_, QueueState<R, Q>>,
        backlog: &mut PacketList,
        own: &mut PacketList,
        mut budget: Budget,
        arm: Option<Time>,
        mut again: bool,
    ) -> (Verdict, Time) {
        let mut verdict = Verdict::Queued;
        let mut missed = false;
        loop {
            // Later rounds have nothing of the caller.
            let mine = !again;
            if again {
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
            again = true;
            let mut pass = |list: &mut PacketList| {
                list.is_empty() || owner.pass_backlog(&self.status, list, &mut budget)
            };
            let some = !backlog.is_empty() || !own.is_empty();
            let passed = some && pass(backlog) && pass(own);
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

    /// A driver or a qdisc has panicked in a call that had these packets.
    #[cold]
    #[inline(never)]
    fn reset(&self, mut backlog: PacketList, own: &mut PacketList) {
        backlog.append(own);
        let lost = backlog.wire_packets();
        self.drops.add(DropReason::QdiscReset, lost);
        // Calls neither driver nor qdisc: it counts what the state has dropped, and drops what
        // others have pushed. (An owner that has come meanwhile does that.)
        let _ = self.run_from_worker(RUN_QUOTA, Time::ZERO);
    }

    /// Gives up a queue of which everything has passed.
    #[inline]
    fn end<'a>(
        &self,
        owner: QueueOwner<'a, QueueState<R, Q>>,
    ) -> Result<(), QueueOwner<'a, QueueState<R, Q>>> {
        self.cold.timer.clear();
        owner.end()?;
        self.published();
        Ok(())
    }

    /// Gives the queue up with more packets than this owner may enqueue. The worker goes on.
    #[cold]
    fn leave_to_worker(&self, owner: QueueOwner<'_, QueueState<R, Q>>) {
        let _ = owner.leave();
        preempt::point();
        self.waker.notify();
        self.published();
    }

    /// Without a queue the driver's answer is the sender's, so what others pushed is sent alone.
    /// Returns how many of the wire packets that were dropped are not the caller's ([`u64::MAX`]:
    /// all, as its packets wait).
    #[cold]
    fn serve_others_first(
        &self,
        owner: &mut QueueOwner<'_, QueueState<R, Q>>,
        backlog: &mut PacketList,
        own: &PacketList,
        budget: &mut Budget,
    ) -> u64 {
        if own.is_empty() {
            // The driver has them, and what it dropped: the others' come after.
            return 0;
        }
        if !backlog.is_empty() || !owner.adopted.is_empty() {
            let limit = self.quota.limit();
            owner.enqueue(backlog, &mut PacketList::new(), limit, budget);
            owner.run(&self.status, budget);
        }
        if owner.adopted.is_empty() {
            owner.cx.dropped.wire_packets()
        } else {
            u64::MAX
        }
    }

    /// One round of [`serve`](TxQueue::serve) through the qdisc. `others`: see
    /// [`serve_others_first`](TxQueue::serve_others_first).
    #[inline(never)]
    fn serve_queued<'a>(
        &self,
        mut owner: QueueOwner<'a, QueueState<R, Q>>,
        budget: &mut Budget,
        arm: Option<Time>,
        missed: bool,
        (others, verdict): (u64, &mut Verdict),
    ) -> Round<'a, R, Q> {
        preempt::point();
        if owner.rings.is_held_up() && self.waker.take() {
            owner.rings.unblock();
        }
        let outcome = owner.run(&self.status, budget);
        preempt::point();
        let adopted = owner.adopted.len();
        let more = outcome == RunOutcome::More || adopted != 0;
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
        owner.cx.dropped.settle(&self.drops);
        let timer = if let RunOutcome::Until(time) = outcome {
            time
        } else {
            Time::MAX
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
        let (_, timer) = self.serve(owner, backlog, &mut PacketList::new(), budget, None);
        (timer != Time::MAX).then_some(timer)
    }

    /// The ownership where half of the burst limit waits behind a claim of a thread that has lost
    /// its CPU.
    #[cold]
    pub(super) fn overdue(&self) -> Option<(QueueOwner<'_, QueueState<R, Q>>, PacketList)> {
        self.list.begin_overdue((self.policy.max_burst / 2).max(1))
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

    /// Waits until fewer than `limit` frames [`wait`](TxQueue::waiting) in this queue, for at
    /// most `timeout`; false if they are as many then. A sender that calls this before it
    /// transmits, with a limit below the qdisc's, is slowed down instead of losing packets.
    /// Blocks; senders that do not call it are not affected.
    pub fn wait_for_capacity(&self, limit: usize, timeout: Duration) -> bool {
        let waiting = || self.waiting();
        self.cold.capacity.wait(timeout, limit, waiting)
    }

    /// To be called by an owner that has given the queue up: wakes a few of those that wait for
    /// capacity, if there is some.
    #[inline(always)]
    pub(super) fn published(&self) {
        self.cold.capacity.published(|| self.waiting());
    }

    /// Whether nothing waits, on the adoption list or in the qdisc. Exact when no sender is
    /// active.
    pub fn is_empty(&self) -> bool {
        self.list.is_idle() && self.status.qlen() == 0
    }
}

#[cfg(test)]
mod layout {
    use std::mem::{offset_of, size_of};

    use super::*;
    use crate::testing::ScriptedRing;

    type Queue = TxQueue<ScriptedRing, crate::qdisc::PfifoFast>;

    /// The pair of lines that processors fetch together.
    fn line(offset: usize) -> usize {
        offset / size_of::<CachePadded<u8>>()
    }

    /// What different threads write lies on different lines, and what every sender reads on lines
    /// that nobody writes.
    #[test]
    fn what_is_written_apart_lies_apart() {
        let state = size_of::<AdoptionQueue<QueueState<ScriptedRing, crate::qdisc::PfifoFast>>>();
        let written = [
            (offset_of!(Queue, list), state),
            (offset_of!(Queue, status), size_of::<Status>()),
            (offset_of!(Queue, cold), size_of::<CachePadded<Cold>>()),
        ]
        .map(|(start, size)| line(start)..line(start + size - 1) + 1);
        let read = [
            offset_of!(Queue, policy),
            offset_of!(Queue, drops),
            offset_of!(Queue, waker),
            offset_of!(Queue, quota),
            offset_of!(Queue, down),
            offset_of!(Queue, stamps),
        ];
        for (n, lines) in written.iter().enumerate() {
            assert!(read.iter().all(|&field| !lines.contains(&line(field))));
            let others = written[n + 1..].iter();
            others.for_each(|o| assert!(o.start >= lines.end || o.end <= lines.start));
        }
    }
}
