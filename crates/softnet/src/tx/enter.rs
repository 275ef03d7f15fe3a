//! How senders get at a queue: they become its owner, or leave their packets to the owner or to
//! the worker.

use super::policy::{CROWDED, RUN_QUOTA, ServedBy};
use super::queue::{TxQueue, XmitResult};
use super::ring::TxRing;
use super::runner::{Budget, Runner};
use crate::packet::{Entry, PacketList};
use crate::stats::DropReason;
use crate::time::Time;

impl<R: TxRing> TxQueue<R> {
    /// Sends `packets` through the qdisc. Never waits for another thread. What a call may cost: it
    /// sends at most [`RUN_QUOTA`] wire packets, its own or others'; it enqueues (or, where the
    /// device is down, drops) at most [`max_burst`](super::TxPolicy::max_burst) packets of others;
    /// and it yields the CPU at most once, if [`yields`](super::TxPolicy::yields).
    #[inline(never)]
    pub fn transmit(&self, mut packets: PacketList, now: Time) -> XmitResult {
        self.transmit_list(&mut packets, now)
    }

    /// As [`transmit`](TxQueue::transmit). What is still in the list afterwards was refused, and
    /// counted as dropped.
    #[inline]
    pub(super) fn transmit_list(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        let (runner, mut left) = match self.policy.served_by {
            ServedBy::Senders => match self.enter(packets) {
                Entry::Runs(runner, left) => (runner, left),
                Entry::Left(before) => return self.left(before),
                Entry::Full => return self.refuse(packets),
            },
            ServedBy::Worker => return self.leave_to_worker(packets),
        };
        let budget = Budget::new(RUN_QUOTA, self.policy.max_burst, now);
        let (verdict, _) = self.serve(runner, &mut left, packets, budget, Some(now));
        verdict.into()
    }

    #[inline]
    fn enter(&self, packets: &mut PacketList) -> Entry<'_, Runner<R>> {
        let entry = self.run.enter(packets, self.max_burst(packets));
        if matches!(entry, Entry::Full) && self.policy.yields {
            // The owner is preempted, or this thread would not have come so far.
            std::thread::yield_now();
            return self.run.enter(packets, self.max_burst(packets));
        }
        entry
    }

    /// Packets that may wait for the owner of the queue.
    #[inline]
    fn max_burst(&self, packets: &PacketList) -> usize {
        self.quota().max_burst(packets, self.policy.max_burst)
    }

    fn leave_to_worker(&self, packets: &mut PacketList) -> XmitResult {
        let Some(before) = self.run.leave(packets, self.max_burst(packets)) else {
            return self.refuse(packets);
        };
        self.doorbell.ring(self.token);
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
