//! The way of a queue whose discipline senders fill themselves: `pfifo_fast` in its [shared-reference form](PfifoFastRings).
//!
//! A sender that finds the queue idle has the run, as with any discipline, and its packets leave at once where nothing is queued. One that does not
//! get the run puts its packets into the bands, and then takes the run or makes the runner go round once more (MISSED): nothing is stuck (INV-TX-2),
//! and nothing passes a packet that was queued before (INV-TX-3, BUG-TX-8), because a bypass looks at the bands while it has the run.
//!
//! # Coming and going
//! The rings are the queue's own and stay with it; a discipline that replaces this one closes them. A sender that finds them closed *crosses* to the adoption
//! list: it counts itself in `crossing`, looks once more, and counts itself out when its packets are on the list. Who opens the rings has the run; he
//! opens them, waits until nobody crosses, and then takes the list once more: its packets go behind what the old discipline held and ahead of the
//! rings. Count and look, and opening and the look at the count are SeqCst: either the sender sees the rings open, or the opener sees it cross. So
//! while the rings are open and somebody runs the queue, nothing is on the list, and no sender has packets in both (INV-TX-3). Senders wait for nobody in this; the
//! control path waits for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::policy::{RUN_QUOTA, ServedBy};
use super::queue::{TxQueue, XmitResult};
use super::ring::TxRing;
use super::runner::{Budget, Runner};
use crate::packet::{PacketList, PacketRunner};
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
        packets: &mut PacketList,
        now: Time,
    ) -> XmitResult {
        let offered = packets.len();
        let by_worker = self.policy.served_by == ServedBy::Worker;
        if !by_worker && let Some((runner, mut left)) = self.run.try_begin() {
            if !left.is_empty() {
                left.append(packets);
                *packets = left;
            }
            let budget = Budget::new(RUN_QUOTA, now);
            let (dropped, _) = self.serve(runner, packets, budget, Some(now));
            return match dropped {
                0 => XmitResult::Success,
                1 if offered == 1 => XmitResult::Drop,
                _ => XmitResult::Congestion,
            };
        }
        self.fill(rings, packets.take(), offered, now)
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
        let mut refused = rings.enqueue(packets).unwrap_or_default();
        if !refused.closed.is_empty() {
            let _crossing = Crossing::new(&self.crossing);
            let mut again = rings.enqueue(refused.closed).unwrap_or_default();
            if !again.closed.is_empty() {
                return self.transmit_adopted(&mut again.closed, now);
            }
            refused.full.append(&mut again.full);
        }
        let dropped = refused.full.len();
        if dropped > 0 {
            self.drops
                .add(DropReason::QdiscLimit, refused.full.wire_packets());
            drop(refused.full);
        }
        if dropped < offered {
            if self.policy.served_by == ServedBy::Worker {
                self.doorbell.ring(self.token);
            } else if let Some((runner, mut left)) = self.run.begin_or_note() {
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

/// Puts what crossing senders left on the list into rings that were just opened, ahead of all that is put there. Waits for crossing senders: control
/// path only.
pub(super) fn after_opening<R: TxRing>(
    runner: &mut PacketRunner<'_, Runner<R>>,
    crossing: &AtomicUsize,
) {
    while runner.is_lockless() && crossing.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    if runner.is_lockless() {
        let (late, _) = runner.take();
        let Runner { qdisc, dropped, .. } = &mut **runner;
        if let AnyQdisc::PfifoFastLockless(lockless) = qdisc {
            lockless.put_first(late, dropped);
        }
    }
}

/// A sender on its way to the adoption list.
struct Crossing<'a>(&'a AtomicUsize);

impl Crossing<'_> {
    fn new(count: &AtomicUsize) -> Crossing<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Crossing(count)
    }
}

impl Drop for Crossing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<R: TxRing> Runner<R> {
    /// Whether senders fill the discipline.
    #[inline]
    pub(super) fn is_lockless(&self) -> bool {
        matches!(self.qdisc, AnyQdisc::PfifoFastLockless(_))
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
