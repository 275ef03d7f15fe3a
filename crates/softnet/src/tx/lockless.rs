//! The way of a queue whose discipline senders fill themselves: `pfifo_fast` in its [shared-reference form](PfifoFastRings).
//!
//! A sender that finds the queue idle has the run, as with any discipline, and its packets leave at once where nothing is queued. One that does not
//! get the run puts its packets into the bands, and then takes the run or makes the runner go round once more (MISSED): nothing is stuck (INV-TX-2),
//! and nothing passes a packet that was queued before (INV-TX-3, BUG-TX-8), because a bypass looks at the bands while it has the run.
//!
//! # Coming and going
//! The rings are the queue's own and stay with it; a discipline that replaces this one closes them. A sender that finds them closed uses the adoption list, and
//! may leave packets there when the rings are open again. These go behind what the old discipline held and *ahead* of the rings. A sender uses the
//! rings only if it finds the adoption list empty: then whoever took its earlier packets off has put them ahead before it looks into the rings again.

use super::policy::{RUN_QUOTA, ServedBy};
use super::queue::{TxQueue, XmitResult};
use super::ring::TxRing;
use super::runner::{Budget, Runner};
use crate::packet::PacketList;
use crate::qdisc::{AnyQdisc, PfifoFastRings, Qdisc as _};
use crate::stats::DropReason;
use crate::sync::MAX_LIMIT;
use crate::time::Time;

impl<R: TxRing> TxQueue<R> {
    /// As [`transmit`](TxQueue::transmit). The result says exactly what became of these packets.
    #[inline]
    pub(super) fn transmit_lockless(
        &self,
        rings: &PfifoFastRings,
        mut packets: PacketList,
        now: Time,
    ) -> XmitResult {
        let offered = packets.len();
        let by_worker = self.policy.served_by == ServedBy::Worker;
        if !by_worker && let Some((mut runner, mut left)) = self.run.try_begin() {
            if !left.is_empty() {
                runner.put_ahead(&mut left);
                left.append(&mut packets);
                packets = left;
            }
            let budget = Budget::new(RUN_QUOTA, now);
            let (dropped, _) = self.serve(runner, &mut packets, budget, Some(now));
            return match dropped {
                0 => XmitResult::Success,
                1 if offered == 1 => XmitResult::Drop,
                _ => XmitResult::Congestion,
            };
        }
        self.fill(rings, packets, offered, now)
    }

    /// What a sender does that does not get the run at once.
    #[inline(never)]
    fn fill(
        &self,
        rings: &PfifoFastRings,
        packets: PacketList,
        offered: usize,
        now: Time,
    ) -> XmitResult {
        if !self.run.is_empty() {
            return self.transmit_adopted(packets, now);
        }
        let refused = rings.enqueue(packets).unwrap_or_default();
        let dropped = refused.full.len();
        if dropped > 0 {
            self.drops
                .add(DropReason::QdiscLimit, refused.full.wire_packets());
            drop(refused.full);
        }
        if !refused.closed.is_empty() {
            return self.transmit_adopted(refused.closed, now);
        }
        if dropped < offered {
            if self.policy.served_by == ServedBy::Worker {
                self.doorbell.ring(self.token);
            } else if let Some((mut runner, mut left)) = self.run.begin_or_note() {
                runner.put_ahead(&mut left);
                let budget = Budget::new(RUN_QUOTA, now);
                self.serve(runner, &mut left, budget, Some(now));
            }
        }
        match dropped {
            0 => XmitResult::Success,
            n if n == offered => XmitResult::Drop,
            _ => XmitResult::Congestion,
        }
    }

    /// Changes the limit of `pfifo_fast`, in either form, while packets flow (`txqueuelen`): what does not fit any more is dropped as
    /// [`DropReason::QdiscLimit`]. Does nothing with another discipline. Waits for a running thread: control path only.
    pub fn set_tx_queue_len(&self, limit: u32) {
        let (mut guard, left) = self.run.begin_slow();
        let Runner { qdisc, dropped, .. } = &mut *guard;
        match qdisc {
            AnyQdisc::PfifoFast(plain) => plain.resize(limit, dropped),
            AnyQdisc::PfifoFastLockless(lockless) => {
                lockless.resize(limit.min(MAX_LIMIT), dropped);
            }
            _ => {}
        }
        self.leave(guard, left);
    }
}

impl<R: TxRing> Runner<R> {
    /// Whether senders fill the discipline.
    #[inline]
    pub(super) fn is_lockless(&self) -> bool {
        matches!(self.qdisc, AnyQdisc::PfifoFastLockless(_))
    }

    /// What waited on the adoption list goes ahead of the rings, where they are open.
    #[inline]
    pub(super) fn put_ahead(&mut self, left: &mut PacketList) {
        if !left.is_empty()
            && self.active
            && let AnyQdisc::PfifoFastLockless(lockless) = &mut self.qdisc
        {
            lockless.put_first(left.take(), &mut self.dropped);
        }
    }

    /// Puts `qdisc` in place of the discipline, in the lockless form if the queue has one. `moved`, what was queued, is in it (or dropped, for its limit)
    /// before any sender can add to it.
    pub(super) fn replace_qdisc(&mut self, qdisc: AnyQdisc, mut moved: PacketList, now: Time) {
        let old = std::mem::replace(&mut self.qdisc, qdisc);
        if let AnyQdisc::PfifoFastLockless(mut lockless) = old {
            // Besides what was drained before: what came meanwhile.
            lockless.close(&mut moved);
            self.spare = Some(lockless);
        }
        if let AnyQdisc::PfifoFast(plain) = &self.qdisc
            && plain.limit() <= MAX_LIMIT
            && let Some(mut lockless) = self.spare.take()
        {
            lockless.open(plain.limit(), moved, &mut self.dropped);
            self.qdisc = AnyQdisc::PfifoFastLockless(lockless);
        } else {
            self.qdisc.enqueue(&mut moved, now, &mut self.dropped);
        }
    }

    /// What a queue that is down has in its rings, which stay open.
    pub(super) fn drop_from_rings(&mut self) {
        if let AnyQdisc::PfifoFastLockless(lockless) = &mut self.qdisc {
            let mut gone = PacketList::new();
            lockless.drain(&mut gone);
            self.dropped.append(gone, DropReason::DeviceDown);
        }
    }
}
