//! A receiver: what it acknowledges, and when, and the room that it offers.

use std::collections::BTreeSet;

use softnet::time::Time;

use super::{MSS, RECEIVE_WINDOW};

/// Longest time for which an acknowledgment waits for a second segment, ns.
pub(super) const DELAYED: u64 = 40_000_000;
/// Segments that a receiver acknowledges one by one as a connection begins, as in Linux.
pub(super) const QUICK: u32 = 16;
/// Segments that it offers room for at first, and may while it knows nothing of its path: half of
/// 128 KiB (`tcp_rmem`), and what fits there as segments turn out to take 2304 bytes each.
pub(super) const ROOM: u64 = 65_536 / MSS;
pub(super) const ROOM_BOUND: u64 = 131_072 / 2304;

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
    /// Bytes beyond those in order that it has room for, and how that grows, if it does.
    window: u64,
    room: Option<Room>,
}

/// Room that grows with what arrives, in segments, as Linux's does whose reader is never late.
#[derive(Debug)]
struct Room {
    offered: u64,
    /// Bytes that may be offered for now.
    bound: u64,
    /// Segments that came in order in the best round trip.
    best: u64,
    /// The current round trip: its first segment, and when it began.
    first: u64,
    since: Time,
}

impl Room {
    /// A segment came. True if more is offered (`tcp_grow_window`).
    fn grow(&mut self) -> bool {
        let before = self.offered;
        self.offered = (before + 2).min(self.bound);
        self.offered > before
    }

    /// All segments before `next` came; after a round trip, what may be offered follows from how
    /// many (`tcp_rcv_space_adjust`): two round trips' worth, as it is one late, and twice the
    /// growth, since in slow start a sender doubles its rate.
    fn measure(&mut self, now: Time, next: u64, round_trip: u64) {
        if round_trip == 0 || now.since(self.since).as_nanos() < u128::from(round_trip) {
            return;
        }
        let came = next - self.first;
        if came > self.best {
            let grown = (2 * came).saturating_mul(came - self.best) / self.best;
            let bound = (2 * came).saturating_add(grown.saturating_mul(2));
            self.bound = bound.clamp(self.bound, RECEIVE_WINDOW / MSS);
            self.best = came;
        }
        (self.first, self.since) = (next, now);
    }
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
            window: ROOM * MSS,
            room: Some(Room {
                offered: ROOM,
                bound: ROOM_BOUND,
                // The first window of a sender.
                best: 10,
                first: 0,
                since: Time::ZERO,
            }),
        }
    }
}

/// An acknowledgment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Acknowledgment {
    /// Segments that it tells of.
    pub numbers: Vec<u64>,
    /// Number of them that had a mark.
    pub marked: u32,
    /// Bytes beyond the segments in order that the receiver has room for.
    pub window: u64,
}

impl Receiver {
    /// One that always has room for so many bytes.
    pub fn with_window(bytes: u64) -> Receiver {
        Receiver {
            window: bytes,
            room: None,
            ..Receiver::default()
        }
    }

    /// Bytes beyond the segments in order that it has room for.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// A segment arrives. Timestamps tell of a `round_trip`, ns; 0 if none was measured. Returned
    /// is the acknowledgment that it causes at once: for every second segment, what is out of
    /// order, a change of marks, and, as in Linux, what room grows with.
    pub fn arrived(
        &mut self,
        now: Time,
        number: u64,
        is_marked: bool,
        round_trip: u64,
    ) -> Option<Acknowledgment> {
        let in_order = number == self.next && self.beyond.is_empty();
        let mut is_new = number == self.next;
        if is_new {
            self.next += 1;
            while self.beyond.remove(&self.next) {
                self.next += 1;
            }
        } else if number > self.next {
            is_new = self.beyond.insert(number);
        }
        if let Some(room) = self.room.as_mut().filter(|_| is_new) {
            if room.grow() {
                self.window = room.offered * MSS;
                self.quick |= 1;
            }
            room.measure(now, self.next, round_trip);
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
        let numbers = std::mem::take(&mut self.waiting);
        (!numbers.is_empty()).then_some(Acknowledgment {
            numbers,
            marked,
            window: self.window,
        })
    }
}
