//! A TCP sender and its receiver in virtual time: SACK (RFC 6675), loss detection by time and
//! probes of the tail (RACK-TLP, RFC 8985), reductions in proportion (PRR, RFC 6937), delayed
//! acknowledgments (RFC 5681), receive windows that grow, a retransmission timer (RFC 6298), ECN
//! (RFC 3168) with exact counts of marks where the algorithm wants them.
//!
//! Segments are numbered and of one size. Whoever drives a sender asks what it sends
//! ([`Sender::send`]) and tells it what was acknowledged. What a sender makes of that is in
//! `acknowledged`, what it does when nothing comes in `timers`.

mod acknowledged;
mod congestion;
mod receiver;
mod reduction;
mod timers;

pub use congestion::Algorithm;
pub use receiver::{Acknowledgment, Receiver};

use std::collections::VecDeque;

use softnet::time::Time;

use super::times::Times;
use congestion::Congestion;
use reduction::Reduction;

/// Bytes of a segment's data.
pub const MSS: u64 = 1448;
/// Receive window that Linux grows to, bytes: what a sender may have in flight whatever its own
/// window. A sender has it until it is told of another.
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
    /// It was lost at least once.
    was_lost: bool,
    /// Segments delivered, and when the last was, as this one was sent.
    delivered: (u64, Time),
    /// When the newest of those was sent.
    behind: Time,
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
    /// Segments that were lost, and have not arrived since.
    missing: u32,
    /// Transmissions in their order; those that are in flight no longer, too, if one before is.
    order: VecDeque<(Time, u64)>,
    /// Segments that arrived beyond a hole.
    beyond: usize,
    /// Number beyond the last one that arrived, and whether one arrived later than others that
    /// were sent after it.
    last: u64,
    reordered: bool,
    /// Losses and marks reduce the window no further before this segment is acknowledged.
    recovery: Option<u64>,
    reduction: Option<Reduction>,
    /// The end of what is in flight was probed since something was acknowledged.
    probed: bool,
    /// A segment that a probe sent again, until it is known whether it was lost.
    probe: Option<u64>,
    /// When something was acknowledged or sent for the first time.
    progress: Time,
    /// A round ends when this one is.
    round_until: u64,
    srtt: u64,
    rttvar: u64,
    min_rtt: u64,
    backoff: u32,
    /// Newest transmission that is known to have arrived, its segment and its round-trip time.
    newest: (Time, u64),
    newest_rtt: u64,
    delivered: (u64, Time),
    /// When the newest of those delivered was sent; or, with nothing in flight, the next one.
    behind: Time,
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
            // BBR heeds none.
            classic_ecn: ecn && !matches!(algorithm, Algorithm::Dctcp | Algorithm::Bbr),
            segments: VecDeque::new(),
            first: 0,
            all,
            receive_window: RECEIVE_WINDOW,
            flight: 0,
            lost: VecDeque::new(),
            missing: 0,
            order: VecDeque::new(),
            beyond: 0,
            last: 0,
            reordered: false,
            recovery: None,
            reduction: None,
            probed: false,
            probe: None,
            progress: Time::ZERO,
            round_until: 0,
            srtt: 0,
            rttvar: 0,
            min_rtt: u64::MAX,
            backoff: 0,
            newest: (Time::ZERO, 0),
            newest_rtt: 0,
            delivered: (0, Time::ZERO),
            behind: Time::ZERO,
            paced: Time::ZERO,
            stats: SenderStats::default(),
        }
    }

    /// Average round-trip time, ns; 0 before one was measured.
    pub fn round_trip(&self) -> u64 {
        self.srtt
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

    /// Segments that may be in flight.
    fn window(&self) -> u32 {
        let reduced = self.reduction.map(|reduction| reduction.window);
        reduced.unwrap_or_else(|| self.congestion.window())
    }

    /// The number of a segment to send now; none if window or pacing forbid it.
    pub fn send(&mut self, now: Time) -> Option<u64> {
        if self.flight >= self.window() || now < self.paced {
            return None;
        }
        while let Some(&number) = self.lost.front() {
            self.lost.pop_front();
            let (delivered, behind) = (self.delivered, self.behind);
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
                was_lost: true,
                delivered,
                behind,
            };
            self.stats.again += 1;
            return Some(self.sent(number, now));
        }
        self.send_next(now)
    }

    /// Number of a segment to send for the first time; none if there is none, or no room for it.
    fn send_next(&mut self, now: Time) -> Option<u64> {
        let number = self.next();
        // One segment fits any window.
        let unacknowledged = number - self.first;
        let window = unacknowledged == 0 || (unacknowledged + 1) * MSS <= self.receive_window;
        if number >= self.all || !window {
            return None;
        }
        if self.flight == 0 {
            (self.delivered.1, self.behind) = (now, now);
        }
        self.segments.push_back(Segment {
            sent: now,
            state: State::InFlight,
            again: false,
            was_lost: false,
            delivered: self.delivered,
            behind: self.behind,
        });
        Some(self.sent(number, now))
    }

    fn sent(&mut self, number: u64, now: Time) -> u64 {
        self.flight += 1;
        self.transmitted(number, now);
        if let Some(reduction) = &mut self.reduction {
            reduction.sent += 1;
        }
        if let Some(gap) = self.congestion.pacing() {
            self.paced = now.plus_nanos(gap);
        }
        number
    }

    fn transmitted(&mut self, number: u64, now: Time) {
        self.stats.sent += 1;
        self.progress = now;
        self.order.push_back((now, number));
    }

    fn segment(&mut self, number: u64) -> Option<&mut Segment> {
        let place = number.checked_sub(self.first)?;
        self.segments.get_mut(usize::try_from(place).ok()?)
    }
}

#[cfg(test)]
mod tests;
