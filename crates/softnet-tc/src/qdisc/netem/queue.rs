//! Packets by the time at which they are sent.
//!
//! Packets that come in the order of their times, as all do without jitter, are a queue: a step
//! for each. A packet that is to leave before the newest of them goes into a heap. (The kernel
//! has a list and a tree for that, `tfifo_enqueue`.) Of packets of the same time the queue's leave
//! first, then those that came first.
//!
//! Neither allocates for a packet: both grow by doubling, to what was waiting at most.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use softnet::mem::Packet;

/// A packet before the newest of the queue.
#[derive(Debug)]
struct Early {
    time: u64,
    sequence: u64,
    packet: Packet,
}

impl Early {
    fn key(&self) -> (u64, u64) {
        (self.time, self.sequence)
    }
}

impl PartialEq for Early {
    fn eq(&self, other: &Early) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Early {}

impl PartialOrd for Early {
    fn partial_cmp(&self, other: &Early) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest.
impl Ord for Early {
    fn cmp(&self, other: &Early) -> Ordering {
        other.key().cmp(&self.key())
    }
}

#[derive(Debug, Default)]
pub(super) struct TimeQueue {
    in_order: VecDeque<(u64, Packet)>,
    early: BinaryHeap<Early>,
    sequence: u64,
}

impl TimeQueue {
    #[inline]
    pub(super) fn push(&mut self, time: u64, packet: Packet) {
        if self.last().is_none_or(|last| time >= last) {
            self.in_order.push_back((time, packet));
        } else {
            let sequence = self.sequence;
            self.sequence += 1;
            let early = Early {
                time,
                sequence,
                packet,
            };
            self.early.push(early);
        }
    }

    /// The latest time. What is in the heap came before the newest of the queue, and leaves before
    /// it.
    #[inline]
    pub(super) fn last(&self) -> Option<u64> {
        self.in_order.back().map(|&(time, _)| time)
    }

    /// The packet that leaves next, and its time.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, &Packet)> {
        let first = self.in_order.front().map(|(time, packet)| (*time, packet));
        match (self.early.peek(), first) {
            (Some(early), Some((time, _))) if early.time >= time => first,
            (Some(early), _) => Some((early.time, &early.packet)),
            (None, first) => first,
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Packet> {
        let first = self.in_order.front().map(|&(time, _)| time);
        match (self.early.peek(), first) {
            (Some(early), Some(time)) if early.time >= time => {}
            (Some(_), _) => return self.early.pop().map(|early| early.packet),
            (None, _) => {}
        }
        self.in_order.pop_front().map(|(_, packet)| packet)
    }
}
