//! How senders get at a queue: they take its run, or leave their packets to the thread that has it, in a lane, or to the worker.

use super::lane::{lane_of, note_out};
use super::policy::{LANE_QUOTA, RUN_QUOTA, ServedBy};
use super::queue::{TxQueue, XmitResult};
use super::ring::TxRing;
use super::runner::{Budget, Runner};
use crate::packet::{Entry, PacketList};
use crate::stats::DropReason;
use crate::time::Time;

impl<R: TxRing> TxQueue<R> {
    /// Sends `packets` through the discipline. Never blocks and never waits for another thread; sends at most [`RUN_QUOTA`]
    /// packets, its own or others', on the caller's time; of its own lane's ([`ServedBy::SendersByCpu`]) at most 8 times as many.
    #[inline(never)]
    pub fn transmit(&self, mut packets: PacketList, now: Time) -> XmitResult {
        self.transmit_list(&mut packets, now)
    }

    /// As [`transmit`](TxQueue::transmit). What is still in the list afterwards was refused, and counted as dropped.
    #[inline]
    pub(super) fn transmit_list(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        match &self.rings {
            Some(rings) => self.transmit_lockless(rings, packets, now),
            None => self.transmit_adopted(packets, now),
        }
    }

    /// The way of all disciplines but those that senders fill themselves.
    #[inline]
    pub(super) fn transmit_adopted(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        let single = packets.len() == 1;
        let entry = match self.policy.served_by {
            ServedBy::Senders => self.run.enter(packets, self.policy.max_burst),
            ServedBy::SendersByCpu => self.enter_by_lane(packets),
            ServedBy::Worker => return self.leave_to_worker(packets),
        };
        let (runner, own, quota) = match entry {
            // The only packet that was adopted is the caller's own (INV-TX-9).
            Entry::Runs(runner) => (runner, single && packets.len() == 1, RUN_QUOTA),
            // What became of the caller's packets was said when they were left.
            Entry::TakesOver(runner) => {
                let quota = packets.len().clamp(RUN_QUOTA, LANE_QUOTA);
                (runner, false, quota)
            }
            Entry::Left => return XmitResult::Success,
            Entry::Full => return self.refuse(packets),
        };
        let budget = Budget::new(quota, now);
        match self.serve(runner, packets, budget, Some(now)).0 {
            0 => XmitResult::Success,
            1 if own => XmitResult::Drop,
            _ => XmitResult::Congestion,
        }
    }

    /// How senders enter that keep to their CPU's lane.
    #[inline(never)]
    fn enter_by_lane(&self, packets: &mut PacketList) -> Entry<'_, Runner<R>> {
        let lane = lane_of(&self.run);
        let limit = self.policy.max_burst;
        let entry = self.run.enter_by_lane(packets, limit, lane);
        match &entry {
            Entry::Runs(_) | Entry::TakesOver(_) => note_out(true),
            Entry::Left => note_out(false),
            Entry::Full => {}
        }
        entry
    }

    fn leave_to_worker(&self, packets: &mut PacketList) -> XmitResult {
        if !self.run.leave(packets, self.policy.max_burst) {
            return self.refuse(packets);
        }
        self.doorbell.ring(self.token);
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
