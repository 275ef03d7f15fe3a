//! Fate of the packets of each flow and connection.

use softnet::time::Time;

use super::flow::{Direction, Flow};
use super::times::{Sojourn, Times};

/// Fate of a flow or connection.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// Name of the flow.
    pub name: String,
    /// Packets that it sent into the tree.
    pub sent: u64,
    /// Packets that left the tree.
    pub delivered: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Bytes of frames that left the tree.
    pub bytes: u64,
    /// Packets that left with a congestion mark.
    pub marked: u64,
    /// Bits per second that left from its start to its end; of a connection whose bytes are all
    /// delivered, to the last of them.
    pub rate: u64,
    /// Nanoseconds that the rate is over; of a window, those in which it was to send.
    pub nanos: u64,
    /// Time in the tree, ns.
    pub sojourn: Sojourn,
    /// Round-trip times of a connection or of pings, ns.
    pub rtt: Sojourn,
    /// Segments that a connection sent again.
    pub again: u64,
}

/// Counters of a flow's packets.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) delivered: u64,
    pub(super) dropped: u64,
    pub(super) bytes: u64,
    /// Bytes that left while it was to send.
    pub(super) in_time: u64,
    pub(super) marked: u64,
    pub(super) again: u64,
    pub(super) sojourns: Times,
    pub(super) rtts: Times,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.bytes += other.bytes;
        self.in_time += other.in_time;
        self.marked += other.marked;
        self.again += other.again;
        self.sojourns.merge(&other.sojourns);
        self.rtts.merge(&other.rtts);
    }

    fn clear(&mut self) {
        let (mut sojourns, mut rtts) = (
            std::mem::take(&mut self.sojourns),
            std::mem::take(&mut self.rtts),
        );
        sojourns.clear();
        rtts.clear();
        *self = Tally {
            sojourns,
            rtts,
            ..Tally::default()
        };
    }

    fn is_empty(&self) -> bool {
        self.sent == 0 && self.delivered == 0 && self.dropped == 0
    }
}

/// A flow whose packets are counted.
#[derive(Debug)]
pub(super) struct Seen {
    name: String,
    /// Time for which it is to send, ns.
    duration: u64,
    start: Time,
    /// Direction of its packets.
    pub(super) direction: Direction,
    /// Round-trip time without queues of packets that are answered at once.
    echo: Option<u64>,
    /// Counters since the window began, and before.
    pub(super) now: Tally,
    before: Tally,
    /// Departure of its last packet.
    last: Time,
    /// All that it had to send was delivered.
    pub(super) is_done: bool,
}

impl Seen {
    pub(super) fn new(name: &str, flow: &Flow) -> Seen {
        Seen {
            name: name.to_owned(),
            duration: flow.duration,
            start: flow.start,
            direction: flow.direction,
            echo: None,
            now: Tally::default(),
            before: Tally::default(),
            last: flow.start,
            is_done: false,
        }
    }

    /// Each packet is answered, and the answer is back so many nanoseconds after it left, without
    /// what it waited in the tree.
    pub(super) fn set_echo(&mut self, rtt: u64) {
        self.echo = Some(rtt);
    }

    /// The end of the time for which it is to send.
    fn end(&self) -> Time {
        self.start.plus_nanos(self.duration)
    }

    /// A packet left.
    pub(super) fn left(&mut self, at: Time, len: u64, is_marked: bool, sojourn: u64) {
        self.now.delivered += 1;
        self.now.bytes += len;
        if at <= self.end() {
            self.now.in_time += len;
        }
        self.now.marked += u64::from(is_marked);
        self.now.sojourns.record(sojourn);
        if let Some(rtt) = self.echo {
            self.now.rtts.record(sojourn.saturating_add(rtt));
        }
        self.last = at;
    }

    /// Report on the window; none if it was not to send then, and nothing of it was there.
    pub(super) fn in_window(&self, from: Time, until: Time) -> Option<FlowReport> {
        let (from, until) = (from.max(self.start), until.min(self.end()));
        if until <= from && self.now.is_empty() {
            return None;
        }
        let nanos = until.since(from).as_nanos() as u64;
        let dropped = self.now.dropped;
        Some(self.report(&self.now, dropped, nanos))
    }

    /// Report on all of it.
    pub(super) fn in_all(&mut self) -> FlowReport {
        self.turn();
        let end = match self.is_done {
            true => self.end().min(self.last),
            false => self.end(),
        };
        let nanos = end.since(self.start).as_nanos() as u64;
        let dropped = self.before.sent.saturating_sub(self.before.delivered);
        self.report(&self.before, dropped, nanos)
    }

    fn report(&self, of: &Tally, dropped: u64, nanos: u64) -> FlowReport {
        let bits = u128::from(of.in_time) * 8_000_000_000;
        FlowReport {
            name: self.name.clone(),
            sent: of.sent,
            delivered: of.delivered,
            dropped,
            bytes: of.bytes,
            marked: of.marked,
            rate: u64::try_from(bits / u128::from(nanos.max(1))).unwrap_or(u64::MAX),
            nanos,
            sojourn: of.sojourns.summary(),
            rtt: of.rtts.summary(),
            again: of.again,
        }
    }

    /// Begins another window.
    pub(super) fn turn(&mut self) {
        if !self.now.is_empty() || self.now.rtts.frames() != 0 {
            self.before.add(&self.now);
            self.now.clear();
        }
    }
}
