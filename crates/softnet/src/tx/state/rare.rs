//! Rare work on a queue's state: a tap that is shown every packet, what actions of filters send to
//! other links, changes by the control path, and a panic.

use super::QueueState;
use crate::mem::PacketList;
use crate::offload::Features;
use crate::qdisc::{Qdisc, Verdict};
use crate::stats::DropReason;
use crate::time::Time;
use crate::tx::egress::Outlet;
use crate::tx::ring::TxRing;

impl<R: TxRing, Q: Qdisc> QueueState<R, Q> {
    /// As [`offer`](QueueState::offer), one by one, so that the class of what is dropped is known.
    #[cold]
    #[inline(never)]
    pub(super) fn offer_each(&mut self, packets: &mut PacketList, now: Time) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            self.show_unplaced();
            self.offered.push_back(packet);
            let enqueued = self.qdisc.enqueue(&mut self.offered, self.cx.at(now));
            verdict = verdict.max(enqueued);
            self.show(now);
            self.reinject();
        }
        verdict
    }

    #[cold]
    pub(super) fn carry_out(&mut self, outlet: &dyn Outlet) {
        let mut elsewhere = std::mem::take(&mut self.cx.elsewhere);
        outlet.deliver(&mut elsewhere, self.cx.now);
        self.cx.elsewhere = elsewhere;
    }

    #[cold]
    pub(super) fn lose_elsewhere(&mut self) {
        let copied = self.cx.elsewhere.take_copied();
        let lists = self.cx.elsewhere.drain().map(|(_, list)| list);
        let lost: u64 = lists.map(|list| list.wire_packets()).sum();
        (self.cx.dropped).note(DropReason::NoForward, lost.saturating_sub(copied));
    }

    /// Leaves nothing behind of what the qdisc wants to have enqueued at the root.
    pub(in crate::tx) fn settle_reinjected(&mut self) {
        if self.active {
            self.reinject();
        } else {
            let packets = self.cx.reinject.take();
            self.cx.dropped.append(packets, DropReason::QdiscReset);
        }
    }

    /// Takes everything that was dequeued and waits, in the order in which it would have left.
    pub(in crate::tx) fn take_dequeued(&mut self) -> PacketList {
        let mut all = self.rings.take_requeued();
        all.append(&mut self.unfit);
        all.append(&mut self.cx.reinject);
        all
    }

    /// A driver or a qdisc has panicked. What is on its way is dropped, to be counted by the next
    /// owner, and the queue is out of use until it is taken
    /// [down](crate::tx::TxQueue::set_active) and up again. The qdisc is left alone: what it holds
    /// stays queued until then.
    pub(in crate::tx) fn abandon(&mut self) {
        self.active = false;
        self.steady = false;
        let mut gone = self.rings.abandon(&mut self.cx.dropped);
        for list in [
            &mut self.batch,
            &mut self.one,
            &mut self.unfit,
            &mut self.offered,
            &mut self.cx.reinject,
            &mut self.adopted.take(),
        ] {
            gone.append(list);
        }
        self.cx.dropped.append(gone, DropReason::QdiscReset);
    }

    /// Changes the qdisc's place in the path: the new one counts from nothing. Returns the old one,
    /// to be dropped when the queue is given up.
    #[must_use]
    pub(in crate::tx) fn set_qdisc(&mut self, qdisc: Q) -> Q {
        self.rings.noqueue = qdisc.is_noqueue();
        self.rings.requeues = 0;
        std::mem::replace(&mut self.qdisc, qdisc)
    }

    /// Other features from now on. What was requeued was made fit for the old ones, and is made
    /// fit again before the driver sees it.
    pub(in crate::tx) fn set_features(&mut self, features: Features) {
        self.features = features;
        self.unfit = self.take_dequeued();
    }

    /// Other rings from now on. What was requeued goes to them first. Returns the old ones, to be
    /// dropped when the queue is given up.
    #[must_use]
    pub(in crate::tx) fn replace_rings(&mut self, rings: Vec<R>) -> Vec<R> {
        self.unfit = self.take_dequeued();
        let old = self.rings.take();
        self.rings.extend(rings);
        old
    }
}
