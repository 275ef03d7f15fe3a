//! A receiver: what it acknowledges, and when.

use std::collections::BTreeSet;

use softnet::time::Time;

/// Longest time for which an acknowledgment waits for a second segment, ns.
pub(super) const DELAYED: u64 = 40_000_000;
/// Segments that a receiver acknowledges one by one as a connection begins, as in Linux.
pub(super) const QUICK: u32 = 16;

/// A receiver: which segments an acknowledgment tells of, and when.
#[derive(Debug)]
pub struct Receiver {
    /// Next segment in order.
    next: u64,
    /// Arrived beyond it.
    beyond: BTreeSet<u64>,
    /// Segments to acknowledge one by one.
    quick: u32,
    /// Arrived, not acknowledged.
    waiting: Vec<u64>,
    marked: u32,
    /// Time until which the oldest of them may wait.
    due: Option<Time>,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver {
            next: 0,
            beyond: BTreeSet::new(),
            quick: QUICK,
            waiting: Vec::new(),
            marked: 0,
            due: None,
        }
    }
}

/// An acknowledgment: the segments that it tells of, and how many of them had a mark.
pub type Acknowledgment = (Vec<u64>, u32);

impl Receiver {
    /// A segment arrives. Returned is the acknowledgment that it causes at once: for every second
    /// segment, what is out of order, and a change of marks.
    pub fn arrived(&mut self, now: Time, number: u64, is_marked: bool) -> Option<Acknowledgment> {
        let in_order = number == self.next && self.beyond.is_empty();
        if number == self.next {
            self.next += 1;
            while self.beyond.remove(&self.next) {
                self.next += 1;
            }
        } else if number > self.next {
            self.beyond.insert(number);
        }
        self.waiting.push(number);
        self.marked += u32::from(is_marked);
        let is_quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        if self.waiting.len() >= 2 || !in_order || is_marked || is_quick {
            return self.acknowledge();
        }
        self.due = Some(now.plus_nanos(DELAYED));
        None
    }

    /// Time at which it acknowledges though nothing arrives.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Number of the next segment in order: all before it arrived.
    pub fn arrived_up_to(&self) -> u64 {
        self.next
    }

    /// Acknowledgment of everything that has none yet.
    pub fn acknowledge(&mut self) -> Option<Acknowledgment> {
        self.due = None;
        let marked = std::mem::take(&mut self.marked);
        let waiting = std::mem::take(&mut self.waiting);
        (!waiting.is_empty()).then_some((waiting, marked))
    }
}
