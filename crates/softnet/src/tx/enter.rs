//! How senders get at a queue: they become its owner, or leave their packets to the owner or to the worker.

use super::policy::{RUN_QUOTA, ServedBy};
use super::queue::{TxQueue, XmitResult};
use super::ring::TxRing;
use super::runner::Budget;
use crate::packet::{Entry, PacketList};
use crate::stats::DropReason;
use crate::time::Time;

impl<R: TxRing> TxQueue<R> {
    /// Sends `packets` through the qdisc. Never blocks and never waits for another thread; sends at
    /// most [`RUN_QUOTA`] packets, its own or others', on the caller's time.
    #[inline(never)]
    pub fn transmit(&self, mut packets: PacketList, now: Time) -> XmitResult {
        self.transmit_list(&mut packets, now)
    }

    /// As [`transmit`](TxQueue::transmit). What is still in the list afterwards was refused, and counted as dropped.
    #[inline]
    pub(super) fn transmit_list(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        let single = packets.len() == 1;
        let entry = match self.policy.served_by {
            ServedBy::Senders => self.run.enter(packets, self.max_burst(packets)),
            ServedBy::Worker => return self.leave_to_worker(packets),
        };
        let runner = match entry {
            Entry::Runs(runner) => runner,
            Entry::Left => return XmitResult::Success,
            Entry::Full => return self.refuse(packets),
        };
        // The only packet that was adopted is the caller's own (INV-TX-9).
        let own = single && packets.len() == 1;
        let budget = Budget::new(RUN_QUOTA, now);
        match self.serve(runner, packets, budget, Some(now)).0 {
            0 => XmitResult::Success,
            1 if own => XmitResult::Drop,
            _ => XmitResult::Congestion,
        }
    }

    /// Packets that may wait for the owner of the queue.
    #[inline]
    fn max_burst(&self, packets: &PacketList) -> usize {
        self.quota().max_burst(packets, self.policy.max_burst)
    }

    fn leave_to_worker(&self, packets: &mut PacketList) -> XmitResult {
        if !self.run.leave(packets, self.max_burst(packets)) {
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
