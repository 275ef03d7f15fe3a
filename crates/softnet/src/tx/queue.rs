//! One transmit queue: adoption list, run state, discipline, requeue lists, driver rings.
//!
//! A sender takes the run if nobody has it, and else leaves its packets, in the same atomic step, to the thread that has it. The runner enqueues what was left
//! to it, dequeues batches of at most its remaining quota, and hands them to the driver; what finds the discipline empty goes past it. What the driver does not
//! take is requeued and leaves before anything dequeued later for the same ring (INV-TX-4). A run ends when the quota is used up (the worker goes on), when nothing may leave now
//! (the worker's timer goes on), when the driver is full ([`wake`](TxQueue::wake) goes on) or when all is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::Features;
use super::notifier::{Event, Notifier};
use super::policy::TxPolicy;
use super::quota::Quota;
use super::ring::TxRing;
use super::room::Room;
use super::runner::{Budget, Left, Runner};
use super::watch::Watch;
use crate::mem::{PacketList, PacketRun, PacketRunner, Pool};
use crate::qdisc::{Qdisc, QdiscStats, Verdict};
use crate::stats::{DropCounters, Published};
use crate::sync::preempt;
use crate::time::Time;

/// Position of the length in frames among the published numbers.
const QLEN: usize = 5;

/// What became of the caller's own packets in a transmit call (`NET_XMIT_*`, INV-TX-9). The packets
/// are consumed in any case, and what the driver refuses later is in the device's counters only.
/// Ordered: of several, the last is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum XmitResult {
    /// Accepted: sent, queued, stolen by an action, or left to the queue's owner.
    Success,
    /// Accepted, but the sender had better slow down: another packet was dropped for one of these,
    /// or much is waiting and the sender does not [yield](super::TxPolicy::yields).
    Congestion,
    /// At least one was dropped: by the qdisc, or because too many packets wait for adoption.
    Drop,
}

impl From<Verdict> for XmitResult {
    fn from(verdict: Verdict) -> XmitResult {
        match verdict {
            Verdict::Queued | Verdict::Stolen => XmitResult::Success,
            Verdict::Congestion => XmitResult::Congestion,
            Verdict::Dropped => XmitResult::Drop,
        }
    }
}

/// Numbers of a queue. Frames or wire packets as said in [`QdiscStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// The discipline's numbers; `requeues`, `qlen`, `backlog` and `queued` include the requeue lists.
    pub qdisc: QdiscStats,
    /// Wire packets handed to the device.
    pub tx_packets: u64,
    /// Their wire bytes.
    pub tx_bytes: u64,
}

/// One transmit queue: adoption list, run state, discipline, requeue lists, driver rings.
///
/// A sender takes the run if nobody has it, and else leaves its packets to the thread that has it, which enqueues them, dequeues batches and hands them to
/// the driver. Nobody waits for anybody. What a bounded run leaves is done by the next sender or by the queue's worker, whichever comes first.
#[derive(Debug)]
pub struct TxQueue<R, Q> {
    /// What waits to be adopted, and what the runner alone touches.
    pub(super) run: PacketRun<Runner<R, Q>>,
    /// Written by the runner, read by anyone.
    pub(super) published: CachePadded<Published<11>>,
    aside: CachePadded<Aside>,
    // From here on nothing is written while packets flow: every sender reads these lines.
    pub(super) policy: TxPolicy,
    features: Features,
    pub(super) drops: Arc<DropCounters>,
    pool: Pool,
    pub(super) notifier: Arc<Notifier>,
    pub(super) token: usize,
    quota: Quota,
    /// The device is down: what is left to the worker now, the sender drops itself.
    pub(super) down: AtomicBool,
}

/// What is written now and then, by the runner, the driver and waiting senders: on lines of its own.
#[derive(Debug)]
struct Aside {
    /// The time for which the worker has been asked to come back; `u64::MAX` if it has not. Written by the runner only.
    armed: AtomicU64,
    /// The driver may have room again; set by [`wake`](TxQueue::wake), cleared by the runner before it tries.
    woken: Event,
    room: Room,
    watch: Watch,
}

/// Where a queue's packets and what it leaves undone go.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub(super) policy: TxPolicy,
    pub(super) features: Features,
    pub(super) drops: Arc<DropCounters>,
    pub(super) pool: Pool,
    /// The bell of the worker that does what bounded runs leave.
    pub(super) notifier: Arc<Notifier>,
    /// The number by which that worker knows the queue.
    pub(super) token: usize,
}

/// How a round through the qdisc ended.
enum Round<'a, R, Q> {
    /// The queue is given up. It wants to be run again at this time; [`Time::MAX`]: it does not.
    /// (Not an `Option`: its copies stall the processor.)
    Over(Time),
    /// Packets or events came meanwhile: the run goes on.
    Again(PacketRunner<'a, Runner<R, Q>>),
}

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// A queue that feeds `rings`.
    pub(super) fn new(rings: Vec<R>, qdisc: Q, around: Surroundings) -> Self {
        let Surroundings {
            policy,
            features,
            drops,
            pool,
            notifier,
            token,
        } = around;
        TxQueue {
            run: PacketRun::new(Runner::new(qdisc, rings, &pool), policy.max_burst),
            published: CachePadded::default(),
            aside: CachePadded::new(Aside {
                armed: AtomicU64::new(u64::MAX),
                woken: Event::default(),
                room: Room::default(),
                watch: Watch::default(),
            }),
            policy,
            features,
            drops,
            pool,
            notifier,
            token,
            quota: Quota::default(),
            down: AtomicBool::new(false),
        }
    }

    /// How many buffers the queue may hold.
    #[inline]
    pub(super) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Runs the queue until nothing is left or the budget is used up: first `left`, what others left
    /// to it, then `own`. Returns what became of `own`, and when the queue wants to be run again
    /// ([`Time::MAX`]: it does not).
    ///
    /// The worker's timer is armed inside the run, so that `armed` has one writer at a time: by this
    /// function if `arm` says that the owner is a sender (at that time), else by the worker itself.
    #[inline(always)]
    pub(super) fn serve(
        &self,
        mut runner: PacketRunner<'_, Runner<R, Q>>,
        left: &mut PacketList,
        own: &mut PacketList,
        mut budget: Budget,
        arm: Option<Time>,
    ) -> (Verdict, Time) {
        // The common case, without a call: nobody else is there, and nothing is queued.
        let passed = left.is_empty() && runner.run_through(self, own, &mut budget);
        if passed {
            match self.end(runner) {
                Ok(()) => return (Verdict::Queued, Time::MAX),
                Err(again) => runner = again,
            }
        }
        self.serve_on(runner, left, own, budget, arm, passed)
    }

    /// The rest of [`serve`](TxQueue::serve). `again`: others left something meanwhile.
    #[inline(never)]
    fn serve_on(
        &self,
        mut runner: PacketRunner<'_, Runner<R, Q>>,
        left: &mut PacketList,
        own: &mut PacketList,
        mut budget: Budget,
        arm: Option<Time>,
        mut again: bool,
    ) -> (Verdict, Time) {
        let mut verdict = Verdict::Queued;
        let mut missed = false;
        loop {
            if again {
                match runner.take(budget.adoptions) {
                    Some(more) => (*left, missed) = more,
                    None => {
                        self.hand_over(runner);
                        return (verdict, Time::MAX);
                    }
                }
                // Events cost a round each.
                budget.charge(u64::from(missed));
            }
            again = true;
            budget.adopt(left.len());
            let mut pass = |list: &mut PacketList| {
                list.is_empty() || runner.run_others_through(self, list, &mut budget)
            };
            let some = !left.is_empty() || !own.is_empty();
            let passed = some && pass(left) && pass(own);
            if passed {
                match self.end(runner) {
                    Ok(()) => return (verdict, Time::MAX),
                    Err(again) => runner = again,
                }
            } else {
                verdict = verdict.max(runner.enqueue(self, left, own, budget.start));
                match self.serve_queue(runner, &mut budget, arm, missed, &mut verdict) {
                    Round::Over(timer) => return (verdict, timer),
                    Round::Again(again) => runner = again,
                }
            }
        }
    }

    /// Ends a run that has let everything pass.
    #[inline]
    fn end<'a>(
        &self,
        runner: PacketRunner<'a, Runner<R, Q>>,
    ) -> Result<(), PacketRunner<'a, Runner<R, Q>>> {
        // Whoever emptied the qdisc may have left a time behind for which the worker, if that is who
        // runs here, does not come back.
        if self.aside.armed.load(Ordering::Relaxed) != u64::MAX {
            self.aside.armed.store(u64::MAX, Ordering::Relaxed);
        }
        runner.end()?;
        self.aside.room.published();
        Ok(())
    }

    /// Gives the queue up with what waits: more than this run may enqueue. The worker goes on.
    #[cold]
    fn hand_over(&self, runner: PacketRunner<'_, Runner<R, Q>>) {
        let _ = runner.leave();
        preempt::point();
        self.notifier.notify(self.token);
        self.aside.room.published();
    }

    /// One round of [`serve`](TxQueue::serve) through the discipline: the run goes on if packets were left to it meanwhile.
    #[inline(never)]
    fn serve_queue<'a>(
        &self,
        mut runner: PacketRunner<'a, Runner<R, Q>>,
        budget: &mut Budget,
        arm: Option<Time>,
        missed: bool,
        verdict: &mut Verdict,
    ) -> Round<'a, R, Q> {
        preempt::point();
        let left = runner.run(self, budget);
        preempt::point();
        runner.watched(&self.aside.watch, left, budget.start);
        let due = if left == Left::More {
            runner.qdisc.stats().qlen as u32
        } else {
            0
        };
        if runner.qdisc.is_noqueue() && runner.cx.dropped.wire_packets() != 0 {
            // Nothing is kept there, so the driver's answer is the sender's.
            *verdict = Verdict::Dropped;
        }
        runner.publish(&self.published);
        runner.cx.dropped.settle(&self.drops);
        let timer = if let Left::Until(time) = left {
            time
        } else {
            Time::MAX
        };
        // A worker that was turned away meanwhile has forgotten its timer, which may have fired at a
        // time that this sender has not seen yet. It comes back, and goes on by its own clock.
        let timed_out = missed && arm.is_some() && timer != Time::MAX;
        match arm {
            Some(now) if timer != Time::MAX && !missed => self.arm(timer, now),
            _ => self.aside.armed.store(timer.nanos(), Ordering::Relaxed),
        }
        runner.set_backlog(due);
        let goes_on = timed_out || left == Left::More;
        if goes_on || budget.packets == 0 {
            if runner.leave() || goes_on {
                preempt::point();
                self.notifier.notify(self.token);
            }
        } else if let Err(again) = runner.end() {
            return Round::Again(again);
        }
        self.aside.room.published();
        Round::Over(timer)
    }

    /// Asks the worker to come back at `time`, unless it will do so anyway.
    fn arm(&self, time: Time, now: Time) {
        let armed = self.aside.armed.load(Ordering::Relaxed);
        if armed > time.nanos() || armed <= now.nanos() {
            self.aside.armed.store(time.nanos(), Ordering::Relaxed);
            self.notifier.notify(self.token);
        }
    }

    /// The worker's turn: runs the queue for at most `quota` packets, and says when it wants to be run again at the latest.
    pub fn run_from_worker(&self, quota: usize, now: Time) -> Option<Time> {
        // If another thread runs, it goes round once more, and then arms or rings as it finds things.
        let (runner, mut left) = self.run.begin_or_miss()?;
        let budget = Budget::new(quota, self.policy.max_burst, now);
        let (_, timer) = self.serve(runner, &mut left, &mut PacketList::new(), budget, None);
        (timer != Time::MAX).then_some(timer)
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.aside.watch
    }

    pub(super) fn take_woken(&self) -> bool {
        self.aside.woken.take()
    }

    pub(super) fn features(&self) -> &Features {
        &self.features
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The driver has room again (or may have). The driver calls it on the queue with its ring's number, also where another queue feeds that ring. May be called
    /// from any thread, also while the queue runs: then it goes round once more, so that a wake-up between the driver's refusal and the queue's stop is not lost (BUG-TX-24).
    pub fn wake(&self) {
        self.aside.woken.raise(&self.notifier, self.token);
    }

    /// The queue's numbers.
    pub fn stats(&self) -> QueueStats {
        let [
            bytes,
            packets,
            drops,
            overlimits,
            requeues,
            qlen,
            backlog,
            queued,
            tx_packets,
            tx_bytes,
            memory,
        ] = self.published.get();
        let qdisc = QdiscStats {
            bytes,
            packets,
            drops,
            overlimits,
            requeues,
            qlen,
            backlog,
            queued,
            memory,
        };
        QueueStats {
            qdisc,
            tx_packets,
            tx_bytes,
        }
    }

    /// Frames that wait: on the adoption list, in the discipline, and for the driver. A recent value while threads send.
    pub fn waiting(&self) -> usize {
        self.run.len() + self.published.get()[QLEN] as usize
    }

    /// Waits until fewer than `limit` frames [`wait`](TxQueue::waiting) in this queue, for at most `timeout`; false if they are as many then. A sender that
    /// calls this before it transmits, with a limit below the discipline's, is slowed down instead of losing packets. Blocks; senders that do not call
    /// it are not affected.
    pub fn wait_for_room(&self, limit: usize, timeout: Duration) -> bool {
        self.aside.room.wait(timeout, || self.waiting() < limit)
    }

    /// Whether nothing waits, on the adoption list or in the discipline. Exact when no sender is active.
    pub fn is_empty(&self) -> bool {
        self.run.is_idle() && self.published.get()[QLEN] == 0
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

    /// What different threads write lies on different lines, and what every sender reads on lines that nobody writes.
    #[test]
    fn what_is_written_apart_lies_apart() {
        let written = [
            (
                offset_of!(Queue, run),
                size_of::<PacketRun<Runner<ScriptedRing, crate::qdisc::PfifoFast>>>(),
            ),
            (
                offset_of!(Queue, published),
                size_of::<CachePadded<Published<11>>>(),
            ),
            (offset_of!(Queue, aside), size_of::<CachePadded<Aside>>()),
        ]
        .map(|(start, size)| line(start)..line(start + size - 1) + 1);
        let read = [
            offset_of!(Queue, policy),
            offset_of!(Queue, features),
            offset_of!(Queue, drops),
            offset_of!(Queue, pool),
            offset_of!(Queue, notifier),
            offset_of!(Queue, token),
        ];
        for (n, lines) in written.iter().enumerate() {
            assert!(read.iter().all(|&field| !lines.contains(&line(field))));
            let others = written[n + 1..].iter();
            others.for_each(|o| assert!(o.start >= lines.end || o.end <= lines.start));
        }
    }
}
