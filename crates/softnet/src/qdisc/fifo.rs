//! First in, first out.

use std::collections::VecDeque;

#[cfg(doc)]
use super::Qdisc;
use super::{Next, Peek, QdiscStats};
use crate::mem::{Packet, PacketList};

/// Packets ahead of the dequeued one of which headers are prefetched.
const PREFETCH: usize = 8;

/// Packets in order: what the FIFO-like qdiscs are built from. Counts in the statistics of the
/// qdisc that it belongs to.
///
/// An array of handles and not a linked list: the thread that dequeues is often not on the CPU of
/// the one that enqueued, and an array says which header lines are needed next, so that they can
/// be prefetched.
#[derive(Debug, Default)]
pub struct Fifo(VecDeque<Packet>);

impl Fifo {
    /// Queues a packet.
    #[inline]
    pub fn push(&mut self, packet: Packet, stats: &mut QdiscStats) {
        stats.count_queued(&packet);
        self.0.push_back(packet);
    }

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        let packet = self.0.pop_front()?;
        if let Some(later) = self.0.get(PREFETCH) {
            later.prefetch();
        }
        Some(packet)
    }

    /// Takes the oldest packet, to send it.
    #[inline]
    pub fn pop(&mut self, stats: &mut QdiscStats) -> Option<Packet> {
        let packet = self.next()?;
        stats.count_dequeued(&packet);
        Some(packet)
    }

    /// Takes the oldest packets, to send them: the first one, and others as long as `more` says so
    /// of what was taken and the last one of it. Returns what was taken, as counted in the queue.
    #[inline]
    pub fn pop_while(
        &mut self,
        out: &mut PacketList,
        stats: &mut QdiscStats,
        mut more: impl FnMut(&QdiscStats, &Packet) -> bool,
    ) -> QdiscStats {
        let mut taken = QdiscStats::default();
        while let Some(packet) = self.next() {
            taken.count_queued(&packet);
            let more = more(&taken, &packet);
            out.push_back(packet);
            if !more {
                break;
            }
        }
        stats.count_taken(&taken);
        taken
    }

    /// As [`pop_while`](Fifo::pop_while), where what is next decides: packets, as long as `more`
    /// says so of what was taken and of the wire bytes of the next one, from the first one on.
    /// Returns also the wire bytes of the packet that is the oldest then.
    #[inline]
    pub fn pop_run(
        &mut self,
        out: &mut PacketList,
        stats: &mut QdiscStats,
        mut more: impl FnMut(&QdiscStats, u64) -> bool,
    ) -> (QdiscStats, Option<u64>) {
        let mut taken = QdiscStats::default();
        let mut next = self.front().map(Packet::wire_len);
        while let Some(bytes) = next
            && more(&taken, bytes)
            && let Some(packet) = self.next()
        {
            taken.count_queued(&packet);
            out.push_back(packet);
            next = self.front().map(Packet::wire_len);
        }
        stats.count_taken(&taken);
        (taken, next)
    }

    /// Takes the oldest packet, to drop it.
    pub fn pop_dropped(&mut self, stats: &mut QdiscStats) -> Option<Packet> {
        let packet = self.next()?;
        stats.count_dropped(&packet);
        Some(packet)
    }

    /// The oldest packet.
    #[inline]
    pub fn front(&self) -> Option<&Packet> {
        self.0.front()
    }

    /// As [`Qdisc::peek`].
    #[inline]
    pub fn peek(&self) -> Peek {
        self.front().map_or(Peek::Idle, |p| Peek::Packet(p.into()))
    }

    /// Frames queued.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the newest packet, to drop it.
    pub(super) fn pop_newest(&mut self, stats: &mut QdiscStats) -> Option<Packet> {
        let packet = self.0.pop_back()?;
        stats.count_dropped(&packet);
        Some(packet)
    }

    /// As [`Qdisc::drain`].
    pub fn drain(&mut self, out: &mut PacketList, stats: &mut QdiscStats) {
        for packet in self.0.drain(..) {
            stats.count_removed(&packet);
            out.push_back(packet);
        }
    }

    /// As [`Qdisc::dequeue`].
    pub fn dequeue(
        &mut self,
        budget: usize,
        out: &mut PacketList,
        stats: &mut QdiscStats,
    ) -> Next {
        if budget > 0 {
            self.pop_while(out, stats, |taken, _| taken.queued < budget as u64);
        }
        if self.is_empty() {
            Next::Idle
        } else {
            Next::Ready
        }
    }
}
