//! Conclusions of a sender from what was acknowledged: round-trip times, what is lost, and by how
//! much the window is reduced.

use softnet::time::Time;

use super::congestion::Acked;
use super::reduction::Reduction;
use super::{Sender, State};

/// The longest round trip that is counted with, ns: sums of several fit in 64 bits.
const RTT_MAX: u64 = 1 << 60;
/// Segments that arrived beyond a hole until what was sent before them is lost.
const DUPLICATES: usize = 3;

impl Sender {
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
    pub(super) fn tolerance(&self) -> u64 {
        let is_certain = self.beyond >= DUPLICATES || self.recovery.is_some();
        match is_certain && !self.reordered {
            true => 0,
            false => self.min_rtt.min(self.srtt) / 4,
        }
    }

    /// Notes which segments are lost, and returns how many: those that were sent before one that
    /// arrived, and should have.
    pub(super) fn detect(&mut self, now: Time, flight: u32) -> u32 {
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
    pub(super) fn reduce(&mut self, delivered: u32, goes_well: bool) {
        let (flight, target) = (self.flight, self.congestion.window());
        if let Some(reduction) = &mut self.reduction {
            reduction.deliver(delivered, goes_well, flight, target);
        }
    }
}
