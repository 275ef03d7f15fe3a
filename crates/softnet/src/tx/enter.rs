//! How senders get at a queue: they become its owner, or push their packets for the owner or the
//! worker.

use std::sync::atomic::Ordering;

use super::policy::{CROWDED, RUN_QUOTA, ServedBy};
use super::queue::TxQueue;
use super::ring::TxRing;
use super::state::QueueState;
use crate::mem::{Entry, PacketList, QueueOwner};
use crate::qdisc::{Qdisc, Verdict};
use crate::stats::DropReason;
use crate::time::{Clock, Time};

/// What became of the caller's own packets in a transmit call (`NET_XMIT_*`, INV-TX-9). The
/// packets are consumed in any case, and what the driver refuses later is in the device's
/// counters only. Ordered: of several, the last is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum XmitResult {
    /// Accepted: sent, queued, stolen by an action, or pushed for the queue's owner.
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

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// Sends `packets` through the qdisc. Never waits for another thread. What a call may cost:
    /// it sends at most [`RUN_QUOTA`] wire packets, its own or others', before each of which the
    /// qdisc may drop some ([`Qdisc::dequeue`]; `codel` 16); it enqueues (or, where the device is
    /// down, drops) at most 256 packets of others, or as many as came since the last owner if that
    /// left some of them (both times at most [`max_burst`](super::TxPolicy::max_burst), or one
    /// list that is longer); and it yields the CPU at most twice, if
    /// [`yields`](super::TxPolicy::yields): once where the list is full, once where much is due.
    #[inline(never)]
    pub fn transmit(&self, mut packets: PacketList, now: Time) -> XmitResult {
        self.transmit_list(&mut packets, now)
    }

    /// As [`transmit`](TxQueue::transmit). What is still in the list afterwards was refused, and
    /// counted as dropped.
    #[inline]
    pub(super) fn transmit_list(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        // Relaxed: a sender that reads the old value is one that came before the change.
        if self.stamps.load(Ordering::Relaxed) {
            stamp(packets, now);
        }
        match self.policy.served_by {
            ServedBy::Senders => match self.enter(packets) {
                Entry::Acquired(owner, backlog) => self.own(owner, backlog, packets, now),
                Entry::Queued(before) => self.queued(before, now),
                Entry::Full => self.retry(packets, now),
            },
            ServedBy::Worker => self.push_for_worker(packets, now),
        }
    }

    #[inline(always)]
    fn enter(&self, packets: &mut PacketList) -> Entry<'_, QueueState<R, Q>> {
        self.list.enter(packets, |packets| self.max_burst(packets))
    }

    /// Serves the queue as its owner.
    #[inline(always)]
    fn own(
        &self,
        owner: QueueOwner<'_, QueueState<R, Q>>,
        backlog: PacketList,
        packets: &mut PacketList,
        now: Time,
    ) -> XmitResult {
        if owner.sampler.is_next() {
            return self.own_timed(owner, backlog, packets, now);
        }
        let budget = self.budget(RUN_QUOTA, now);
        let (verdict, _) = self.serve(owner, backlog, packets, budget, Some(now));
        verdict.into()
    }

    #[cold]
    #[inline(never)]
    fn own_timed(
        &self,
        owner: QueueOwner<'_, QueueState<R, Q>>,
        backlog: PacketList,
        packets: &mut PacketList,
        now: Time,
    ) -> XmitResult {
        let clock = self.cold.clock.get();
        let start = clock.map(Clock::now);
        let budget = self.budget(RUN_QUOTA, now);
        let (verdict, _) = self.serve(owner, backlog, packets, budget, Some(now));
        if let (Some(clock), Some(start)) = (clock, start) {
            let nanos = clock.now().nanos().saturating_sub(start.nanos());
            self.status.sample_call(nanos);
        }
        verdict.into()
    }

    /// The list is full: the owner is preempted, or this thread would not have come so far.
    #[cold]
    #[inline(never)]
    fn retry(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        if self.policy.yields {
            std::thread::yield_now();
        }
        match self.enter(packets) {
            Entry::Acquired(owner, backlog) => self.own(owner, backlog, packets, now),
            Entry::Queued(before) => self.queued(before, now),
            // Nobody owns the queue, and the claimer stands still.
            Entry::Full => match self.list.begin_overdue(1) {
                Some((owner, backlog)) => self.own(owner, backlog, packets, now),
                None => self.refuse(packets),
            },
        }
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
                std::thread::yield_now();
                before = self.list.push(packets, limit);
            }
        }
        let Some(before) = before else {
            return self.refuse(packets);
        };
        self.waker.notify();
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

    #[cold]
    fn crowded(&self, now: Time) -> XmitResult {
        if self.policy.served_by == ServedBy::Senders
            && let Some((owner, backlog)) = self.overdue()
        {
            return self.own(owner, backlog, &mut PacketList::new(), now);
        }
        if !self.policy.yields {
            return XmitResult::Congestion;
        }
        std::thread::yield_now();
        XmitResult::Success
    }

    #[cold]
    fn refuse(&self, refused: &mut PacketList) -> XmitResult {
        let refused = refused.take();
        self.drops
            .add(DropReason::QdiscBurst, refused.wire_packets());
        XmitResult::Drop
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::super::notifier::Notifier;
    use super::super::policy::TxPolicy;
    use super::super::queue::QueueConfig;
    use super::super::waker::RingWaker;
    use super::*;
    use crate::offload::Features;
    use crate::qdisc::PfifoFast;
    use crate::stats::DropCounters;
    use crate::testing::{NoWake, ScriptedRing, frame, pool};

    /// A thread of the control path that has claimed a queue and has no CPU costs no packet: a
    /// sender, or the worker, takes its turn before the list is full.
    #[test]
    fn a_claimer_that_stands_still_costs_no_packet() {
        let (packets, bursts): (u32, &[usize]) = if cfg!(miri) {
            (20, &[4])
        } else {
            (1000, &[1, 4, 300])
        };
        let pool = pool(packets as usize + 100);
        for served_by in [ServedBy::Senders, ServedBy::Worker] {
            for &max_burst in bursts {
                let (ring, script) = ScriptedRing::new();
                let notifier = Arc::new(Notifier::new(1, Arc::new(NoWake)));
                let config = QueueConfig {
                    policy: TxPolicy {
                        max_burst,
                        served_by,
                        ..TxPolicy::default()
                    },
                    features: Features::default(),
                    drops: Arc::new(DropCounters::new()),
                    pool: pool.clone(),
                    waker: RingWaker::new(notifier.clone(), 0),
                };
                let drops = config.drops.clone();
                let queue = TxQueue::new(vec![ring], PfifoFast::new(4096), config);
                queue.list.claim();
                for mark in 0..packets {
                    let packet = frame(&pool, 1, 2, 100, mark);
                    let result = queue.transmit(packet.into(), Time::ZERO);
                    assert_eq!(
                        result,
                        XmitResult::Success,
                        "{served_by:?} {max_burst} {mark}"
                    );
                    if served_by == ServedBy::Worker {
                        queue.run_from_worker(RUN_QUOTA, Time::ZERO);
                    }
                }
                assert!(!script.sent().is_empty());
                // The claimer has the CPU again.
                drop(queue.control());
                while notifier.take(|_| ()) {
                    queue.run_from_worker(RUN_QUOTA, Time::ZERO);
                }
                assert!(script.marks().into_iter().eq(0..packets));
                assert_eq!(drops.nonzero(), []);
            }
        }
    }
}
