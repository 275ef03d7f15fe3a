//! Statistics of a qdisc, as `tc -s` shows them, and the few ways in which they change.

use super::WireSum;
use crate::mem::Packet;

/// Statistics of a qdisc, named as `tc -s` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Wire bytes that left.
    pub bytes: u64,
    /// Wire packets that left.
    pub packets: u64,
    /// Frames refused.
    pub drops: u64,
    /// Times that a packet had to wait for its rate.
    pub overlimits: u64,
    /// Frames that the driver gave back.
    pub requeues: u64,
    /// Frames queued.
    pub qlen: u64,
    /// Wire bytes queued.
    pub backlog: u64,
    /// Wire packets queued (not shown by tc; closes the conservation sum).
    pub queued: u64,
    /// Bytes of the buffers that hold what is queued (not shown by tc). A qdisc from outside this
    /// crate may leave it 0: then its frames count as one small buffer each.
    pub memory: u64,
}

impl QdiscStats {
    /// Counts packets that leave without having been queued.
    #[inline]
    pub fn count_sent(&mut self, sum: WireSum) {
        self.bytes += sum.bytes;
        self.packets += sum.packets;
    }

    /// Counts a packet that is queued.
    #[inline]
    pub fn count_queued(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.qlen += 1;
        self.backlog += bytes;
        self.queued += packets;
        self.memory += packet.memory();
    }

    /// Counts a packet that was queued and leaves.
    #[inline]
    pub fn count_dequeued(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.bytes += bytes;
        self.packets += packets;
        self.unqueue(packet, bytes, packets);
    }

    /// Counts a packet that was queued and is dropped.
    pub fn count_dropped(&mut self, packet: &Packet) {
        self.drops += 1;
        self.count_removed(packet);
    }

    /// Counts a packet that was queued and is taken away, neither sent nor dropped.
    pub fn count_removed(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.unqueue(packet, bytes, packets);
    }

    /// Counts a packet that was counted as sent as queued again.
    pub fn count_returned(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.bytes -= bytes;
        self.packets -= packets;
        self.count_queued(packet);
    }

    /// Counts everything that was queued as taken away.
    pub fn count_drained(&mut self) {
        (self.qlen, self.backlog, self.queued, self.memory) = (0, 0, 0, 0);
    }

    #[inline]
    fn unqueue(&mut self, packet: &Packet, bytes: u64, packets: u64) {
        self.qlen -= 1;
        self.backlog -= bytes;
        self.queued -= packets;
        self.memory -= packet.memory();
    }
}

impl std::iter::Sum for QdiscStats {
    fn sum<I: Iterator<Item = QdiscStats>>(all: I) -> QdiscStats {
        all.fold(QdiscStats::default(), |sum, one| QdiscStats {
            bytes: sum.bytes + one.bytes,
            packets: sum.packets + one.packets,
            drops: sum.drops + one.drops,
            overlimits: sum.overlimits + one.overlimits,
            requeues: sum.requeues + one.requeues,
            qlen: sum.qlen + one.qlen,
            backlog: sum.backlog + one.backlog,
            queued: sum.queued + one.queued,
            memory: sum.memory + one.memory,
        })
    }
}
