//! `pfifo`, `bfifo` and `pfifo_head_drop`: first in, first out, limited in packets or in bytes (tc-bfifo(8)).

use std::collections::VecDeque;

use super::{Next, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use crate::mem::{Packet, PacketList};
use crate::stats::{DropReason, Dropped};
use crate::time::Time;

/// How far ahead of the dequeued packet header lines are asked for.
const AHEAD: usize = 8;

/// A FIFO that knows its wire bytes and packets: the common piece of the simple disciplines.
///
/// An array of handles and not a linked list: who dequeues is often not on the CPU of who enqueued, and an array says which header lines are
/// needed next, so that they can be asked for all at once.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    queue: VecDeque<Packet>,
    backlog: u64,
    queued: u64,
    memory: u64,
}

impl Fifo {
    pub(super) fn push(&mut self, packet: Packet) {
        self.backlog += packet.wire_len();
        self.queued += packet.wire_packets();
        self.memory += packet.memory();
        self.queue.push_back(packet);
    }

    /// Takes the first packet, and counts it as sent in `stats`.
    pub(super) fn pop(&mut self, stats: &mut QdiscStats) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        if let Some(later) = self.queue.get(AHEAD) {
            later.prefetch();
        }
        let (bytes, packets) = (packet.wire_len(), packet.wire_packets());
        self.backlog -= bytes;
        self.queued -= packets;
        self.memory -= packet.memory();
        stats.bytes += bytes;
        stats.packets += packets;
        Some(packet)
    }

    pub(super) fn front(&self) -> Option<&Packet> {
        self.queue.front()
    }

    /// What [`Qdisc::peek`] says of this queue.
    pub(super) fn peek(&self) -> Peek {
        self.front().map_or(Peek::Idle, |p| Peek::Packet(p.into()))
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn backlog(&self) -> u64 {
        self.backlog
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Keeps the first `n` packets and returns the others.
    pub(super) fn cut(&mut self, n: usize) -> PacketList {
        if self.queue.len() <= n {
            return PacketList::new();
        }
        let rest: PacketList = self.queue.drain(n..).collect();
        self.backlog -= rest.iter().map(Packet::wire_len).sum::<u64>();
        self.queued -= rest.wire_packets();
        self.memory -= rest.iter().map(Packet::memory).sum::<u64>();
        rest
    }

    pub(super) fn drain(&mut self, out: &mut PacketList) {
        (self.backlog, self.queued, self.memory) = (0, 0, 0);
        out.extend(self.queue.drain(..));
    }

    /// Adds this queue's length to `stats`.
    pub(super) fn add_length(&self, stats: &mut QdiscStats) {
        stats.qlen += self.queue.len() as u64;
        stats.backlog += self.backlog;
        stats.queued += self.queued;
        stats.memory += self.memory;
    }

    pub(super) fn dequeue(
        &mut self,
        budget: usize,
        out: &mut PacketList,
        stats: &mut QdiscStats,
    ) -> Next {
        let end = stats.packets + budget as u64;
        while stats.packets < end {
            match self.pop(stats) {
                Some(packet) => out.push_back(packet),
                None => return Next::Idle,
            }
        }
        if self.is_empty() {
            Next::Idle
        } else {
            Next::Ready
        }
    }
}

/// What limits a plain FIFO.
trait Limit: Send + std::fmt::Debug {
    fn admits(&self, queue: &Fifo, packet: &Packet) -> bool;

    /// Whether an empty queue admits all of them.
    fn admits_all(&self, packets: &PacketList, sum: WireSum) -> bool;
}

/// Packets (frames).
#[derive(Debug)]
pub struct Frames(u32);

/// Bytes on the wire.
#[derive(Debug)]
pub struct Bytes(u64);

impl Limit for Frames {
    fn admits(&self, queue: &Fifo, _: &Packet) -> bool {
        queue.len() < self.0 as usize
    }

    #[inline]
    fn admits_all(&self, packets: &PacketList, _: WireSum) -> bool {
        packets.len() <= self.0 as usize
    }
}

impl Limit for Bytes {
    fn admits(&self, queue: &Fifo, packet: &Packet) -> bool {
        // Both are far below 2^63 (BUG-TX-28 was a 32-bit sum).
        queue.backlog() + packet.wire_len() <= self.0
    }

    #[inline]
    fn admits_all(&self, _: &PacketList, sum: WireSum) -> bool {
        sum.bytes <= self.0
    }
}

/// A FIFO with a limit; see [`Pfifo`] and [`Bfifo`].
#[derive(Debug)]
pub struct LimitedFifo<L> {
    queue: Fifo,
    limit: L,
    stats: QdiscStats,
}

/// FIFO limited in packets. A limit of 0 drops everything.
pub type Pfifo = LimitedFifo<Frames>;
/// FIFO limited in bytes.
pub type Bfifo = LimitedFifo<Bytes>;

impl Pfifo {
    /// An empty queue for at most `limit` frames.
    pub fn new(limit: u32) -> Pfifo {
        LimitedFifo {
            queue: Fifo::default(),
            limit: Frames(limit),
            stats: QdiscStats::default(),
        }
    }

    /// Changes the limit. What is queued stays, as in the kernel; the limit holds for what comes.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = Frames(limit);
    }
}

impl Bfifo {
    /// An empty queue for at most `limit` wire bytes.
    pub fn new(limit: u64) -> Bfifo {
        LimitedFifo {
            queue: Fifo::default(),
            limit: Bytes(limit),
            stats: QdiscStats::default(),
        }
    }

    /// Changes the limit. What is queued stays, as in the kernel; the limit holds for what comes.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = Bytes(limit);
    }
}

#[allow(private_bounds, reason = "the two limits above are the only ones")]
impl<L: Limit> Qdisc for LimitedFifo<L> {
    fn enqueue(&mut self, packets: &mut PacketList, _: Time, dropped: &mut Dropped) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            if self.limit.admits(&self.queue, &packet) {
                self.queue.push(packet);
            } else {
                self.stats.drops += 1;
                dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
            }
        }
        verdict
    }

    #[inline]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, _: Time) -> bool {
        let passes = self.queue.is_empty() && self.limit.admits_all(packets, sum);
        if passes {
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(
        &mut self,
        budget: usize,
        _now: Time,
        out: &mut PacketList,
        _: &mut Dropped,
    ) -> Next {
        self.queue.dequeue(budget, out, &mut self.stats)
    }

    fn peek(&self, _now: Time) -> Peek {
        self.queue.peek()
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out);
    }

    fn stats(&self) -> QdiscStats {
        let mut stats = self.stats;
        self.queue.add_length(&mut stats);
        stats
    }
}

/// `pfifo_head_drop`: a FIFO limited in packets that makes room for a new one by dropping its oldest. A limit of 0 drops everything.
#[derive(Debug)]
pub struct PfifoHeadDrop {
    queue: Fifo,
    limit: u32,
    stats: QdiscStats,
}

impl PfifoHeadDrop {
    /// An empty queue for at most `limit` frames.
    pub fn new(limit: u32) -> PfifoHeadDrop {
        PfifoHeadDrop {
            queue: Fifo::default(),
            limit,
            stats: QdiscStats::default(),
        }
    }

    /// Changes the limit. What is queued stays; from then on each packet that comes replaces the
    /// oldest.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }
}

impl Qdisc for PfifoHeadDrop {
    fn enqueue(&mut self, packets: &mut PacketList, _: Time, dropped: &mut Dropped) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            if self.limit == 0 {
                self.stats.drops += 1;
                dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
                continue;
            }
            // One for one, as in the kernel: a queue above a limit that was lowered stays that
            // long.
            if self.queue.len() >= self.limit as usize
                // What is dropped has not been sent.
                && let Some(oldest) = self.queue.pop(&mut QdiscStats::default())
            {
                self.stats.drops += 1;
                dropped.push(oldest, DropReason::QdiscLimit);
                verdict = verdict.max(Verdict::Congestion);
            }
            self.queue.push(packet);
        }
        verdict
    }

    fn dequeue(
        &mut self,
        budget: usize,
        _now: Time,
        out: &mut PacketList,
        _: &mut Dropped,
    ) -> Next {
        self.queue.dequeue(budget, out, &mut self.stats)
    }

    fn peek(&self, _now: Time) -> Peek {
        self.queue.peek()
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out);
    }

    fn stats(&self) -> QdiscStats {
        let mut stats = self.stats;
        self.queue.add_length(&mut stats);
        stats
    }
}
