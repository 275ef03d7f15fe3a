//! `pfifo` and `bfifo`: first in, first out, limited in packets or in bytes (tc-bfifo(8)).

use std::collections::VecDeque;

use super::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use crate::mem::{Packet, PacketList};
use crate::stats::DropReason;
use crate::time::Time;

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

/// A FIFO with a limit, in bytes on the wire or in packets (frames); see [`Pfifo`] and [`Bfifo`].
#[derive(Debug)]
pub struct LimitedFifo<const BYTES: bool> {
    queue: Fifo,
    limit: u64,
    stats: QdiscStats,
}

/// FIFO limited in packets. A limit of 0 drops everything.
pub type Pfifo = LimitedFifo<false>;
/// FIFO limited in bytes.
pub type Bfifo = LimitedFifo<true>;

impl Pfifo {
    /// An empty queue for at most `limit` frames.
    pub fn new(limit: u32) -> Pfifo {
        LimitedFifo::limited(limit.into())
    }

    /// Changes the limit. What is queued stays, as in the kernel; the limit holds for what comes.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.into();
    }
}

impl Bfifo {
    /// An empty queue for at most `limit` wire bytes.
    pub fn new(limit: u64) -> Bfifo {
        LimitedFifo::limited(limit)
    }

    /// Changes the limit. What is queued stays, as in the kernel; the limit holds for what comes.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }
}

impl<const BYTES: bool> LimitedFifo<BYTES> {
    fn limited(limit: u64) -> Self {
        LimitedFifo {
            queue: Fifo::default(),
            limit,
            stats: QdiscStats::default(),
        }
    }

    /// As [`Fifo::pop_while`].
    #[inline]
    pub fn pop_while(
        &mut self,
        out: &mut PacketList,
        more: impl FnMut(&QdiscStats, &Packet) -> bool,
    ) -> QdiscStats {
        self.queue.pop_while(out, &mut self.stats, more)
    }

    /// As [`Fifo::pop_run`].
    #[inline]
    pub fn pop_run(
        &mut self,
        out: &mut PacketList,
        more: impl FnMut(&QdiscStats, u64) -> bool,
    ) -> (QdiscStats, Option<u64>) {
        self.queue.pop_run(out, &mut self.stats, more)
    }

    /// Asks for the header of the oldest packet, which will leave soon.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(first) = self.queue.front() {
            first.prefetch();
        }
    }

    /// Queues a packet, and those at the front of a list that are of its kind, as long as there is
    /// space for them. Returns what was queued. `same` must not panic: what was queued is counted
    /// afterwards.
    ///
    /// # Errors
    /// Returns the first one if there is no space for it.
    // So that a call without other packets has no loop.
    #[inline(always)]
    pub fn push_run(
        &mut self,
        first: Packet,
        others: &mut PacketList,
        same: impl Fn(&Packet) -> bool,
    ) -> Result<QdiscStats, Packet> {
        let mut added = QdiscStats::default();
        self.push(first, &mut added)?;
        while others.front().is_some_and(&same)
            && let Some(packet) = others.pop_front()
        {
            if let Err(packet) = self.push(packet, &mut added) {
                others.push_front(packet);
                break;
            }
        }
        self.stats.count_added(&added);
        Ok(added)
    }

    /// Queues a packet if there is space for it beside what was added, and counts it there.
    #[inline]
    fn push(&mut self, packet: Packet, added: &mut QdiscStats) -> Result<(), Packet> {
        if !self.admits(1, added.backlog + packet.wire_len()) {
            return Err(packet);
        }
        self.queue.push(packet, added);
        Ok(())
    }

    /// True if there is space for so many frames more than are queued, and so many bytes more than
    /// are counted.
    #[inline]
    fn admits(&self, frames: usize, bytes: u64) -> bool {
        // The sums are far below 2^63 (BUG-TX-28 was a 32-bit sum).
        if BYTES {
            self.stats.backlog + bytes <= self.limit
        } else {
            (self.queue.len() + frames) as u64 <= self.limit
        }
    }
}

impl<const BYTES: bool> Qdisc for LimitedFifo<BYTES> {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let (mut verdict, mut added) = (Verdict::Queued, QdiscStats::default());
        while let Some(packet) = packets.pop_front() {
            if let Err(packet) = self.push(packet, &mut added) {
                self.stats.drops += 1;
                cx.dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
            }
        }
        self.stats.count_added(&added);
        verdict
    }

    #[inline]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, _: &mut Cx) -> bool {
        let passes = self.queue.is_empty() && self.admits(packets.len(), sum.bytes);
        if passes {
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, _: &mut Cx) -> Next {
        self.queue.dequeue(budget, out, &mut self.stats)
    }

    #[inline]
    fn peek(&self, _: Time) -> Peek {
        self.queue.peek()
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out, &mut self.stats);
    }

    #[inline]
    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{frame, pool};

    /// Queues one packet; false: there was no space.
    fn push<const BYTES: bool>(queue: &mut LimitedFifo<BYTES>, packet: Packet) -> bool {
        let pushed = queue.push_run(packet, &mut PacketList::new(), |_| false);
        pushed.is_ok()
    }

    /// A run ends at a packet of another kind and at the limit, and what was queued is counted.
    #[test]
    fn a_run_is_queued_as_far_as_there_is_space() {
        let pool = pool(8);
        let mut queue = Bfifo::new(500);
        let mut others = PacketList::new();
        for (mark, len) in [(1, 100), (1, 100), (2, 100), (1, 200)] {
            others.push_back(frame(&pool, 1, 2, len, mark));
        }
        let same = |packet: &Packet| packet.mark() == 1;
        let first = frame(&pool, 1, 2, 100, 7);
        let added = queue.push_run(first, &mut others, same).unwrap();
        assert_eq!((added.qlen, added.queued, added.backlog), (3, 3, 300));
        assert_eq!((*queue.stats(), others.len()), (added, 2));
        let first = others.pop_front().unwrap();
        let added = queue.push_run(first, &mut others, same).unwrap();
        assert_eq!((added.qlen, others.len()), (1, 1));
        let stats = *queue.stats();
        assert_eq!((stats.qlen, stats.queued, stats.backlog), (4, 4, 400));
        let refused = others.pop_front().unwrap();
        let refused = queue.push_run(refused, &mut others, same);
        assert_eq!(refused.map_err(|packet| packet.len()), Err(200));
        assert_eq!((*queue.stats(), stats.drops), (stats, 0));
    }

    /// Packets leave while the next one is allowed, and count once as what they are together.
    #[test]
    fn a_run_ends_before_what_is_not_allowed() {
        let pool = pool(8);
        let mut queue = Pfifo::new(8);
        queue.prefetch();
        for (mark, len) in [(0, 100), (1, 200), (2, 300), (3, 60)] {
            assert!(push(&mut queue, frame(&pool, 1, 2, len, mark)));
        }
        let mut out = PacketList::new();
        let (taken, next) = queue.pop_run(&mut out, |_, _| false);
        assert_eq!((taken, next), (QdiscStats::default(), Some(100)));
        let within = |most: u64| move |taken: &QdiscStats, next: u64| taken.backlog + next <= most;
        queue.prefetch();
        let (taken, next) = queue.pop_run(&mut out, within(599));
        assert_eq!((taken.qlen, taken.backlog, next), (2, 300, Some(300)));
        let stats = *queue.stats();
        assert_eq!((stats.packets, stats.bytes), (2, 300));
        assert_eq!((stats.qlen, stats.queued, stats.backlog), (2, 2, 360));
        let (taken, next) = queue.pop_run(&mut out, within(360));
        assert_eq!((taken.qlen, taken.backlog, next), (2, 360, None));
        assert_eq!((queue.stats().qlen, queue.stats().memory), (0, 0));
        assert_eq!(queue.pop_run(&mut out, |_, _| true).1, None);
        let marks: Vec<u32> = out.iter().map(Packet::mark).collect();
        assert_eq!(marks, [0, 1, 2, 3]);
    }

    /// BUG-TX-28: in 32 bits this limit would be one byte.
    #[test]
    fn bug_tx_28_a_limit_above_4_gib_is_one() {
        let pool = pool(2);
        let mut queue = Bfifo::new((1 << 32) + 1);
        assert!(push(&mut queue, frame(&pool, 1, 2, 60, 0)));
        let mut none = Bfifo::new(1);
        assert!(!push(&mut none, frame(&pool, 1, 2, 60, 0)));
    }
}
