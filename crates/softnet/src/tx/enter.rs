//! How senders get at a queue: they become its owner, or leave their packets to the owner or to
//! the worker.

use std::sync::atomic::Ordering;

use super::policy::{CROWDED, RUN_QUOTA, ServedBy};
use super::queue::{TxQueue, XmitResult};
use super::ring::TxRing;
use super::runner::{Budget, Runner};
use crate::mem::{Entry, PacketList, PacketRunner};
use crate::qdisc::Qdisc;
use crate::stats::DropReason;
use crate::time::Time;

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// Sends `packets` through the qdisc. Never waits for another thread. What a call may cost: it
    /// sends at most [`RUN_QUOTA`] wire packets, its own or others'; it enqueues (or, where the
    /// device is down, drops) at most [`max_burst`](super::TxPolicy::max_burst) packets of others, or
    /// one list of theirs that is longer; and it yields the CPU at most twice, if
    /// [`yields`](super::TxPolicy::yields): once where the list is full, once where much is due.
    #[inline(never)]
    pub fn transmit(&self, mut packets: PacketList, now: Time) -> XmitResult {
        self.transmit_list(&mut packets, now)
    }

    /// As [`transmit`](TxQueue::transmit). What is still in the list afterwards was refused, and
    /// counted as dropped.
    #[inline]
    pub(super) fn transmit_list(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        match self.policy.served_by {
            ServedBy::Senders => match self.run.enter(packets, |packets| self.max_burst(packets)) {
                Entry::Runs(runner, left) => self.own(runner, left, packets, now),
                Entry::Left(before) => self.left(before),
                Entry::Full => self.retry(packets, now),
            },
            ServedBy::Worker => self.leave_to_worker(packets, now),
        }
    }

    /// What a sender does that is the owner.
    #[inline(always)]
    fn own(
        &self,
        runner: PacketRunner<'_, Runner<R, Q>>,
        mut left: PacketList,
        packets: &mut PacketList,
        now: Time,
    ) -> XmitResult {
        let budget = Budget::new(RUN_QUOTA, self.policy.max_burst, now);
        let (verdict, _) = self.serve(runner, &mut left, packets, budget, Some(now));
        verdict.into()
    }

    /// The list is full: the owner is preempted, or this thread would not have come so far.
    #[cold]
    #[inline(never)]
    fn retry(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        if self.policy.yields {
            std::thread::yield_now();
        }
        match self.run.enter(packets, |packets| self.max_burst(packets)) {
            Entry::Runs(runner, left) => self.own(runner, left, packets, now),
            Entry::Left(before) => self.left(before),
            Entry::Full => self.refuse(packets),
        }
    }

    /// Packets that may wait for the owner of the queue.
    #[inline]
    fn max_burst(&self, packets: &PacketList) -> usize {
        self.quota().max_burst(packets, self.policy.max_burst)
    }

    fn leave_to_worker(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        let limit = self.max_burst(packets);
        let mut before = self.run.leave(packets, limit);
        if before.is_none() {
            // Who filled the list may be preempted before it notifies the worker.
            self.notifier.notify(self.token);
            if self.policy.yields {
                std::thread::yield_now();
                before = self.run.leave(packets, limit);
            }
        }
        let Some(before) = before else {
            return self.refuse(packets);
        };
        self.notifier.notify(self.token);
        // SeqCst, as the push and the control path's store: one of the two sees the other, so nothing
        // is left to a worker that may be gone.
        if self.down.load(Ordering::SeqCst) {
            let _ = self.run_from_worker(RUN_QUOTA, now);
        }
        self.left(before)
    }

    /// What a sender does that has left its packets behind `before` others. Where much is due, the
    /// owner may be preempted, and needs a CPU more than this thread does.
    #[inline]
    fn left(&self, before: usize) -> XmitResult {
        if before + self.run.backlog() < CROWDED {
            return XmitResult::Success;
        }
        self.crowded()
    }

    #[cold]
    fn crowded(&self) -> XmitResult {
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
