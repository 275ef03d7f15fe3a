//! Timers of a sender: it waits for acknowledgments, probes the end of what is in flight (RFC 8985,
//! 7), sends all of it again (RFC 6298), and gives up.

use softnet::time::Time;

use super::{Sender, State};

/// Least time until a retransmission, ns, as in Linux.
const RTO_MIN: u64 = 200_000_000;
/// Longest, ns.
const RTO_MAX: u64 = 120_000_000_000;
/// Retransmission timers that fire in turn, with nothing acknowledged, before a connection is given
/// up, as in Linux: some 20 minutes.
pub(super) const RETRIES: u32 = 15;

impl Sender {
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

    pub(super) fn is_in_flight(&self, &(sent, number): &(Time, u64)) -> bool {
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
}
