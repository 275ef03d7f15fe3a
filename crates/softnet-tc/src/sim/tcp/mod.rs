//! A TCP sender and its receiver in virtual time: SACK (RFC 6675), loss detection by time and
//! probes of the tail (RACK-TLP, RFC 8985), reductions in proportion (PRR, RFC 6937), delayed
//! acknowledgments (RFC 5681), receive windows that grow, a retransmission timer (RFC 6298), ECN
//! (RFC 3168) with exact counts of marks where the algorithm wants them.
//!
//! Segments are numbered and of one size. Whoever drives a sender asks what it sends
//! ([`Sender::send`]) and tells it what was acknowledged.

mod congestion;
mod receiver;
mod reduction;

pub use congestion::Algorithm;
pub use receiver::{Acknowledgment, Receiver};

use std::collections::VecDeque;

use softnet::time::Time;

use super::times::Times;
use congestion::{Acked, Congestion};
use reduction::Reduction;

/// Bytes of a segment's data.
pub const MSS: u64 = 1448;
/// Least time until a retransmission, ns, as in Linux.
const RTO_MIN: u64 = 200_000_000;
/// Longest, ns.
const RTO_MAX: u64 = 120_000_000_000;
/// The longest round trip that is counted with, ns: sums of several fit in 64 bits.
const RTT_MAX: u64 = 1 << 60;
/// Retransmission timers that fire in turn, with nothing acknowledged, before a connection is given
/// up, as in Linux: some 20 minutes.
const RETRIES: u32 = 15;
/// Segments that arrived beyond a hole until what was sent before them is lost.
const DUPLICATES: usize = 3;
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

    /// Time at which it wants to send though nothing is acknowledged.
    pub fn paced_at(&self) -> Option<Time> {
        let more = !self.lost.is_empty() || self.next() < self.all;
        (more && self.flight < self.window()).then_some(self.paced)
    }

    /// Time at which a timer of its fires: for what seems to be lost, to probe the end of what is
    /// in flight, or to send all of it again.
    pub fn timeout_at(&self) -> Option<Time> {
        let &(oldest, number) = self.oldest()?;
        if (oldest, number) < self.newest {
            return Some(oldest.plus_nanos(self.newest_rtt + self.tolerance()));
        }
        let rto = oldest.plus_nanos(self.rto());
        Some(self.probe_at().map_or(rto, |at| at.min(rto)))
    }

    /// Time at which the end of what is in flight is probed (RFC 8985, 7.2).
    fn probe_at(&self) -> Option<Time> {
        let is_quiet = self.beyond == 0 && self.recovery.is_none() && !self.probed;
        // A lone segment may wait for a second one.
        let wait = if self.flight == 1 { RTO_MIN } else { 2_000_000 };
        (is_quiet && self.srtt > 0).then(|| self.progress.plus_nanos(2 * self.srtt + wait))
    }

    /// The oldest transmission in flight.
    fn oldest(&self) -> Option<&(Time, u64)> {
        self.order.iter().find(|of| self.is_in_flight(of))
    }

    fn is_in_flight(&self, &(sent, number): &(Time, u64)) -> bool {
        let place = number.checked_sub(self.first);
        let segment = place.and_then(|place| self.segments.get(place as usize));
        segment.is_some_and(|of| of.state == State::InFlight && of.sent == sent)
    }

    fn rto(&self) -> u64 {
        let rto = match self.srtt {
            0 => 1_000_000_000,
            srtt => (srtt + 4 * self.rttvar).max(srtt + RTO_MIN),
        };
        rto.saturating_mul(1 << self.backoff.min(16)).min(RTO_MAX)
    }

    /// The timer of [`timeout_at`](Sender::timeout_at) fired. Returned is a segment to send at
    /// once, to probe the end of what is in flight.
    pub fn timed_out(&mut self, now: Time) -> Option<u64> {
        let &oldest = self.oldest()?;
        if oldest < self.newest {
            let flight = self.flight;
            self.detect(now, flight);
            // As if one had been delivered: one is sent.
            self.reduce(1, false);
            return None;
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.probed = true;
            // RFC 8985, 7.3: what was never sent, or else the last segment again.
            if let Some(number) = self.send_next(now) {
                return Some(number);
            }
            let number = self.next().checked_sub(1)?;
            let segment = self.segment(number)?;
            (segment.sent, segment.again) = (now, true);
            self.stats.again += 1;
            self.probe = Some(number);
            self.transmitted(number, now);
            return Some(number);
        }
        self.expired();
        None
    }

    /// Nothing was acknowledged for so long that all is sent again, or that there is no hope.
    fn expired(&mut self) {
        self.stats.timeouts += 1;
        self.backoff += 1;
        if self.backoff > RETRIES {
            return self.give_up();
        }
        self.congestion.timed_out(self.flight, self.backoff > 1);
        (self.recovery, self.reduction, self.probe) = (Some(self.next()), None, None);
        self.order.clear();
        self.lost.clear();
        for (place, segment) in self.segments.iter_mut().enumerate() {
            if segment.state != State::Delivered {
                (segment.state, segment.was_lost) = (State::Lost, true);
                self.lost.push_back(self.first + place as u64);
            }
        }
        self.missing = self.lost.len() as u32;
        self.flight = 0;
        self.paced = Time::ZERO;
    }

    /// Nothing is sent any more. What comes of it yet is not told apart from what never was sent.
    fn give_up(&mut self) {
        self.all = self.first;
        self.segments.clear();
        self.order.clear();
        self.lost.clear();
        (self.flight, self.missing, self.beyond, self.backoff) = (0, 0, 0, 0);
        (self.recovery, self.reduction, self.probe) = (None, None, None);
    }

    /// These segments arrived; of them so many had a mark.
    pub fn acknowledged(&mut self, now: Time, numbers: &[u64], marked: u32) {
        let (flight, first) = (self.flight, self.first);
        let (mut segments, mut rtt, mut rate) = (0, None, f64::INFINITY);
        for &number in numbers {
            let segment = self.segment(number);
            let Some(segment) = segment.filter(|of| of.state != State::Delivered) else {
                // The probe arrived, and what it repeats: nothing was lost.
                self.probe = self.probe.filter(|&probe| probe != number);
                continue;
            };
            let was = *segment;
            segment.state = State::Delivered;
            segments += 1;
            self.flight -= u32::from(was.state == State::InFlight);
            self.missing -= u32::from(was.was_lost);
            self.delivered = (self.delivered.0 + 1, now);
            self.stats.delivered += 1;
            let waited = (now.since(was.sent).as_nanos() as u64).min(RTT_MAX);
            if (was.sent, number) >= self.newest && (!was.again || waited >= self.min_rtt) {
                (self.newest, self.newest_rtt) = ((was.sent, number), waited);
            }
            self.reordered |= !was.again && number + 1 < self.last;
            self.last = self.last.max(number + 1);
            self.beyond += 1;
            if !was.again {
                rtt = Some(waited);
            }
            self.behind = self.behind.max(was.sent);
            // No faster than they were sent: acknowledgments may have waited for one another. Sent
            // again, it may be what was sent before that arrived.
            let sent = was.sent.since(was.behind);
            let time = now.since(was.delivered.1).max(sent);
            let least = if was.again { self.min_rtt } else { 1 };
            if time.as_nanos() >= u128::from(least) {
                rate = (self.delivered.0 - was.delivered.0) as f64 / time.as_secs_f64();
            }
        }
        if segments == 0 {
            return;
        }
        (self.backoff, self.probed, self.progress) = (0, false, now);
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
            self.beyond -= 1;
        }
        if self.probe.is_some_and(|probe| self.first > probe + 1) {
            // RFC 8985, 7.4: the probe made good a loss that nothing else tells of.
            self.probe = None;
            self.congestion.congested(flight);
        }
        if self.recovery.is_some_and(|until| self.first >= until) {
            (self.recovery, self.reduction) = (None, None);
        }
        let is_advanced = self.first > first;
        let lost = self.detect(now, flight);
        // With the first segment that was sent since the last one began.
        let is_round = self.first > self.round_until;
        if is_round {
            self.round_until = self.next();
        }
        if marked > 0 && self.classic_ecn {
            self.congested(flight);
        }
        self.reduce(segments, is_advanced && lost == 0);
        self.congestion.acked(Acked {
            now,
            segments,
            marked,
            rtt: rtt.or_else(|| (self.srtt > 0).then_some(self.srtt)),
            flight: self.flight,
            rate,
            is_round,
            in_recovery: self.reduction.is_some() || !is_advanced,
            recovers: self.recovery.is_some(),
            lost,
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

    /// Nanoseconds by which a segment may come later than one that was sent after it (RFC 8985,
    /// 6.2): none once some came beyond a hole, unless the way is known to change their order.
    fn tolerance(&self) -> u64 {
        let is_certain = self.beyond >= DUPLICATES || self.recovery.is_some();
        match is_certain && !self.reordered {
            true => 0,
            false => self.min_rtt.min(self.srtt) / 4,
        }
    }

    /// Notes which segments are lost, and returns how many: those that were sent before one that
    /// arrived, and should have.
    fn detect(&mut self, now: Time, flight: u32) -> u32 {
        let patience = self.newest_rtt + self.tolerance();
        let mut lost = 0;
        while let Some(&of) = self.order.front() {
            if self.is_in_flight(&of) {
                let (sent, number) = of;
                if of >= self.newest || sent.plus_nanos(patience) > now {
                    break;
                }
                if let Some(segment) = self.segment(number) {
                    segment.state = State::Lost;
                    let is_first = !std::mem::replace(&mut segment.was_lost, true);
                    self.missing += u32::from(is_first);
                }
                self.lost.push_back(number);
                lost += 1;
            }
            self.order.pop_front();
        }
        self.flight -= lost;
        // Also for those of a recovery that has ended that were sent in it and lost: of the round
        // trip behind it (`tcp_time_to_recover`).
        if self.missing > 0 {
            self.congested(flight);
        }
        lost
    }

    /// Segments of a round trip were lost or marked: the window is reduced, once.
    fn congested(&mut self, flight: u32) {
        if self.recovery.is_some() {
            return;
        }
        (self.recovery, self.probe) = (Some(self.next()), None);
        self.congestion.congested(flight);
        let is_reduced = self.congestion.is_reduced();
        self.reduction = is_reduced.then(|| Reduction::new(flight));
    }

    /// So many segments were delivered while a reduction may be on its way; see
    /// [`Reduction::deliver`].
    fn reduce(&mut self, delivered: u32, goes_well: bool) {
        let (flight, target) = (self.flight, self.congestion.window());
        if let Some(reduction) = &mut self.reduction {
            reduction.deliver(delivered, goes_well, flight, target);
        }
    }
}

#[cfg(test)]
mod tests;
