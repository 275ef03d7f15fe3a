//! Paths that a queue rarely takes: the list is full or much waits, a call is measured, the
//! driver has no queue before it, or something has panicked.

use super::{Owner, Tried, TxQueue};
use crate::mem::PacketList;
use crate::probes;
use crate::qdisc::Qdisc;
use crate::stats::DropReason;
use crate::sync::{Entry, Left, preempt};
use crate::time::{Clock, Time};
use crate::tx::budget::Budget;
use crate::tx::policy::{RUN_QUOTA, ServedBy};
use crate::tx::ring::TxRing;
use crate::tx::xmit_result::XmitResult;

impl<R: TxRing, Q: Qdisc> TxQueue<R, Q> {
    /// As [`own`](TxQueue::own), with what others pushed.
    #[cold]
    pub(super) fn own_others(
        &self,
        owner: Owner<'_, R, Q>,
        backlog: PacketList,
        packets: &mut PacketList,
        now: Time,
    ) -> XmitResult {
        probes::queue_run(self);
        let budget = self.budget(RUN_QUOTA, now);
        let (verdict, _) = self.serve_on(owner, backlog, packets, budget, Some(now), Tried::No);
        verdict.into()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn own_timed(
        &self,
        owner: Owner<'_, R, Q>,
        left: Left,
        packets: &mut PacketList,
        now: Time,
    ) -> XmitResult {
        let clock = self.cold.clock.get();
        let start = clock.map(Clock::now);
        let budget = self.budget(RUN_QUOTA, now);
        let (verdict, _) = self.serve(owner, left, packets, budget, Some(now));
        if let (Some(clock), Some(start)) = (clock, start) {
            let nanos = clock.now().nanos().saturating_sub(start.nanos());
            self.status.sample_call(nanos);
        }
        verdict.into()
    }

    /// The list is full: the owner is preempted, or this thread would not have come so far.
    #[cold]
    #[inline(never)]
    pub(super) fn retry(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        if self.policy.yields {
            self.yield_to_owner();
        }
        match self.list.enter(packets, |packets| self.max_burst(packets)) {
            Entry::Acquired(owner, left) => self.own(owner, left, packets, now),
            Entry::Queued(before) => self.queued(before, now),
            // Nobody owns the queue, and the claimer stands still.
            Entry::Full => match self.list.begin_overdue(1) {
                Some((owner, backlog)) => self.own_others(owner, backlog, packets, now),
                None => self.refuse(packets),
            },
        }
    }

    #[cold]
    pub(super) fn crowded(&self, now: Time) -> XmitResult {
        if self.policy.served_by == ServedBy::Senders
            && let Some((owner, backlog)) = self.overdue()
        {
            return self.own_others(owner, backlog, &mut PacketList::new(), now);
        }
        if !self.policy.yields {
            return XmitResult::Congestion;
        }
        self.yield_to_owner();
        XmitResult::Success
    }

    /// Gives the CPU away: the owner, or the worker that is to be it, may need one.
    pub(super) fn yield_to_owner(&self) {
        probes::owner_wait(self, self.list.len());
        std::thread::yield_now();
        probes::owner_waited(self);
    }

    #[cold]
    pub(super) fn refuse(&self, refused: &mut PacketList) -> XmitResult {
        let refused = refused.take();
        self.drops.lose(DropReason::QdiscBurst, &refused);
        XmitResult::Drop
    }

    /// The ownership where half of the burst limit waits behind a claim of a thread that has lost
    /// its CPU.
    #[cold]
    pub(super) fn overdue(&self) -> Option<(Owner<'_, R, Q>, PacketList)> {
        self.list.begin_overdue((self.policy.max_burst / 2).max(1))
    }

    /// Gives the queue up with more packets than this owner may enqueue. The worker goes on.
    #[cold]
    pub(super) fn leave_to_worker(&self, owner: Owner<'_, R, Q>) {
        let _ = owner.leave();
        preempt::point();
        self.waker.notify();
        self.published();
    }

    /// Without a queue the driver's answer is the sender's, so what others pushed is sent alone.
    /// Returns how many of the wire packets that were dropped are not the caller's ([`u64::MAX`]:
    /// all, as its packets wait).
    #[cold]
    pub(super) fn serve_others_first(
        &self,
        owner: &mut Owner<'_, R, Q>,
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

    /// A driver or a qdisc has panicked in a call that had these packets.
    #[cold]
    #[inline(never)]
    pub(super) fn reset(&self, mut backlog: PacketList, own: &mut PacketList) {
        self.status.count_panic();
        backlog.append(own);
        self.drops.lose(DropReason::QdiscReset, &backlog);
        // Calls neither driver nor qdisc: it counts what the state has dropped, and drops what
        // others have pushed. (An owner that has come meanwhile does that.)
        let _ = self.run_from_worker(RUN_QUOTA, Time::ZERO);
    }
}
