//! A TCP sender and its receiver in virtual time: SACK (RFC 6675), loss detection by time (RACK,
//! RFC 8985), delayed acknowledgments (RFC 5681), a retransmission timer (RFC 6298), ECN (RFC
//! 3168) with exact counts of marks where the algorithm wants them. The way back loses nothing and
//! keeps order.
//!
//! Segments are numbered and of one size. Whoever drives a sender asks what it sends
//! ([`Sender::send`]) and tells it what was acknowledged.

mod congestion;

pub use congestion::Algorithm;

use std::collections::VecDeque;

use softnet::time::Time;

use super::times::Times;
use congestion::{Acked, Congestion};

/// Bytes of a segment's data.
pub const MSS: u64 = 1448;
/// Longest time for which an acknowledgment waits for a second segment, ns.
const DELAYED: u64 = 40_000_000;
/// Least time until a retransmission, ns, as in Linux.
const RTO_MIN: u64 = 200_000_000;
/// Longest, ns.
const RTO_MAX: u64 = 120_000_000_000;
/// Receive window that Linux grows to, bytes: what a sender may have in flight whatever its own
/// window.
pub const RECEIVE_WINDOW: u64 = 6 << 20;

/// State of a segment that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Lost,
    Delivered,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    sent: Time,
    state: State,
    /// Sent more than once: it has no round-trip time (Karn).
    again: bool,
    /// Segments delivered, and when the last was, as this one was sent.
    delivered: (u64, Time),
}

/// A sender.
#[derive(Debug)]
pub struct Sender {
    congestion: Congestion,
    /// Marks count as losses once a round trip.
    classic_ecn: bool,
    /// Segments from the first that is not acknowledged.
    segments: VecDeque<Segment>,
    first: u64,
    /// Segments that there are to send in all.
    all: u64,
    /// Bytes that the receiver has room for.
    receive_window: u64,
    flight: u32,
    /// Segments to send again.
    lost: VecDeque<u64>,
    /// Recovery lasts until this segment is acknowledged.
    recovery: Option<u64>,
    /// A reduction for marks holds until this one is.
    marked_until: u64,
    /// A round ends when this one is.
    round_until: u64,
    srtt: u64,
    rttvar: u64,
    min_rtt: u64,
    backoff: u32,
    /// Newest transmission that is known to have arrived.
    newest: Time,
    delivered: (u64, Time),
    /// Time of the next paced segment.
    paced: Time,
    /// Counters for the report.
    pub stats: SenderStats,
}

/// Counters of a sender.
#[derive(Clone, Debug, Default)]
pub struct SenderStats {
    /// Segments sent, those sent again among them.
    pub sent: u64,
    /// Segments sent again.
    pub again: u64,
    /// Retransmission timers that fired.
    pub timeouts: u64,
    /// Segments delivered.
    pub delivered: u64,
    /// Segments that arrived with a mark.
    pub marked: u64,
    /// Round-trip times, ns.
    pub rtts: Times,
}

impl Sender {
    /// A sender of so many segments.
    pub fn new(algorithm: Algorithm, all: u64, ecn: bool) -> Sender {
        Sender {
            congestion: Congestion::new(algorithm),
            classic_ecn: ecn && algorithm != Algorithm::Dctcp,
            segments: VecDeque::new(),
            first: 0,
            all,
            receive_window: RECEIVE_WINDOW,
            flight: 0,
            lost: VecDeque::new(),
            recovery: None,
            marked_until: 0,
            round_until: 0,
            srtt: 0,
            rttvar: 0,
            min_rtt: u64::MAX,
            backoff: 0,
            newest: Time::ZERO,
            delivered: (0, Time::ZERO),
            paced: Time::ZERO,
            stats: SenderStats::default(),
        }
    }

    /// Has the receiver room for so many bytes.
    pub fn set_receive_window(&mut self, bytes: u64) {
        self.receive_window = bytes;
    }

    /// There are so many more segments to send, after a pause: the window begins as at first (RFC
    /// 5681, 4.1).
    pub fn more(&mut self, segments: u64) {
        self.all = self.all.saturating_add(segments);
        self.congestion.restart();
    }

    /// True if all that there is to send was acknowledged.
    pub fn is_idle(&self) -> bool {
        self.first >= self.all
    }

    /// Number of the next segment that was never sent.
    fn next(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// Number of the first segment that is not acknowledged: all before are.
    pub fn acknowledged_up_to(&self) -> u64 {
        self.first
    }

    /// Nothing more is sent for the first time.
    pub fn end(&mut self) {
        self.all = self.all.min(self.next());
    }

    /// The number of a segment to send now; none if window or pacing forbid it.
    pub fn send(&mut self, now: Time) -> Option<u64> {
        if self.flight >= self.congestion.window() || now < self.paced {
            return None;
        }
        while let Some(&number) = self.lost.front() {
            self.lost.pop_front();
            let delivered = self.delivered;
            let Some(segment) = self.segment(number) else {
                continue;
            };
            if segment.state != State::Lost {
                continue;
            }
            *segment = Segment {
                sent: now,
                state: State::InFlight,
                again: true,
                delivered,
            };
            self.stats.again += 1;
            return Some(self.sent(number, now));
        }
        let number = self.next();
        // One segment fits any window.
        let unacknowledged = number - self.first;
        let window = unacknowledged == 0 || (unacknowledged + 1) * MSS <= self.receive_window;
        if number >= self.all || !window {
            return None;
        }
        if self.flight == 0 {
            self.delivered.1 = now;
        }
        self.segments.push_back(Segment {
            sent: now,
            state: State::InFlight,
            again: false,
            delivered: self.delivered,
        });
        Some(self.sent(number, now))
    }

    fn sent(&mut self, number: u64, now: Time) -> u64 {
        self.flight += 1;
        self.stats.sent += 1;
        if let Some(gap) = self.congestion.pacing() {
            self.paced = now.plus_nanos(gap);
        }
        number
    }

    fn segment(&mut self, number: u64) -> Option<&mut Segment> {
        let place = number.checked_sub(self.first)?;
        self.segments.get_mut(usize::try_from(place).ok()?)
    }

    /// Time at which it wants to send though nothing is acknowledged.
    pub fn paced_at(&self) -> Option<Time> {
        let more = !self.lost.is_empty() || self.next() < self.all;
        (more && self.flight < self.congestion.window()).then_some(self.paced)
    }

    /// Time at which its retransmission timer fires.
    pub fn timeout_at(&self) -> Option<Time> {
        let oldest = self.segments.iter().filter(|s| s.state == State::InFlight);
        let oldest = oldest.map(|segment| segment.sent).min()?;
        Some(oldest.plus_nanos(self.rto()))
    }

    fn rto(&self) -> u64 {
        let rto = match self.srtt {
            0 => 1_000_000_000,
            srtt => (srtt + 4 * self.rttvar).max(srtt + RTO_MIN),
        };
        rto.saturating_mul(1 << self.backoff.min(16)).min(RTO_MAX)
    }

    /// The retransmission timer fired.
    pub fn timed_out(&mut self) {
        self.stats.timeouts += 1;
        self.backoff += 1;
        self.congestion.timed_out(self.flight);
        self.recovery = None;
        self.lost.clear();
        for (place, segment) in self.segments.iter_mut().enumerate() {
            if segment.state != State::Delivered {
                segment.state = State::Lost;
                self.lost.push_back(self.first + place as u64);
            }
        }
        self.flight = 0;
        self.paced = Time::ZERO;
    }

    /// These segments arrived; of them so many had a mark.
    pub fn acknowledged(&mut self, now: Time, numbers: &[u64], marked: u32) {
        let flight = self.flight;
        let (mut segments, mut rtt, mut rate) = (0, None, f64::INFINITY);
        for &number in numbers {
            let Some(segment) = self.segment(number) else {
                continue;
            };
            if segment.state == State::Delivered {
                continue;
            }
            let was = *segment;
            segment.state = State::Delivered;
            segments += 1;
            self.flight -= u32::from(was.state == State::InFlight);
            self.delivered = (self.delivered.0 + 1, now);
            self.stats.delivered += 1;
            self.newest = self.newest.max(was.sent);
            if !was.again {
                rtt = Some(now.since(was.sent).as_nanos() as u64);
            }
            let time = now.since(was.delivered.1).as_secs_f64();
            if time > 0.0 {
                rate = (self.delivered.0 - was.delivered.0) as f64 / time;
            }
        }
        if segments == 0 {
            return;
        }
        self.backoff = 0;
        self.stats.marked += u64::from(marked);
        if let Some(rtt) = rtt {
            self.measured(rtt);
        }
        while self
            .segments
            .front()
            .is_some_and(|s| s.state == State::Delivered)
        {
            self.segments.pop_front();
            self.first += 1;
        }
        if self.recovery.is_some_and(|until| self.first >= until) {
            self.recovery = None;
        }
        self.detect(now, flight);
        let is_round = self.first >= self.round_until;
        if is_round {
            self.round_until = self.next();
        }
        if marked > 0 && self.classic_ecn && self.first >= self.marked_until {
            self.marked_until = self.next();
            self.congestion.congested(now, flight);
        }
        self.congestion.acked(Acked {
            now,
            segments,
            marked,
            rtt: rtt.unwrap_or(self.srtt),
            flight: self.flight,
            rate,
            is_round,
            in_recovery: self.recovery.is_some(),
        });
    }

    /// RFC 6298.
    fn measured(&mut self, rtt: u64) {
        self.stats.rtts.record(rtt);
        self.min_rtt = self.min_rtt.min(rtt);
        if self.srtt == 0 {
            (self.srtt, self.rttvar) = (rtt, rtt / 2);
        } else {
            self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
            self.srtt = (7 * self.srtt + rtt) / 8;
        }
    }

    /// Segments sent a quarter of the least round-trip time before one that arrived are lost
    /// (RFC 8985, 6.2).
    fn detect(&mut self, now: Time, flight: u32) {
        let window = self.min_rtt.min(1 << 40) / 4;
        let mut lost = 0;
        for (place, segment) in self.segments.iter_mut().enumerate() {
            let late = segment.sent.plus_nanos(window) < self.newest;
            if segment.state == State::InFlight && late {
                segment.state = State::Lost;
                self.lost.push_back(self.first + place as u64);
                lost += 1;
            }
        }
        self.flight -= lost;
        if lost > 0 && self.recovery.is_none() {
            self.recovery = Some(self.next());
            self.congestion.congested(now, flight);
        }
    }
}

/// A receiver: which segments an acknowledgment tells of, and when.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Next segment in order.
    next: u64,
    /// Arrived, not acknowledged.
    waiting: Vec<u64>,
    marked: u32,
    /// Time until which the oldest of them may wait.
    due: Option<Time>,
}

/// An acknowledgment: the segments that it tells of, and how many of them had a mark.
pub type Acknowledgment = (Vec<u64>, u32);

impl Receiver {
    /// A segment arrives. Returned is the acknowledgment that it causes at once: for every second
    /// segment, what is out of order, and a change of marks.
    pub fn arrived(&mut self, now: Time, number: u64, is_marked: bool) -> Option<Acknowledgment> {
        let in_order = number == self.next;
        if in_order {
            self.next += 1;
        } else {
            self.next = self.next.max(number + 1);
        }
        self.waiting.push(number);
        self.marked += u32::from(is_marked);
        if self.waiting.len() >= 2 || !in_order || is_marked {
            return self.acknowledge();
        }
        self.due = Some(now.plus_nanos(DELAYED));
        None
    }

    /// Time at which it acknowledges though nothing arrives.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Acknowledgment of everything that has none yet.
    pub fn acknowledge(&mut self) -> Option<Acknowledgment> {
        self.due = None;
        let marked = std::mem::take(&mut self.marked);
        let waiting = std::mem::take(&mut self.waiting);
        (!waiting.is_empty()).then_some((waiting, marked))
    }
}

#[cfg(test)]
mod tests;
