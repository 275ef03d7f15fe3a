//! Cubic (RFC 9438) and the end of its slow start, with Linux's figures and in whole segments, as
//! Linux counts: with the few segments of a fair queue, a part of one more is a longer queue.

use softnet::time::Time;

use super::super::MSS;
use super::Acked;

/// Part of its window that Cubic keeps, as in Linux.
const KEPT: f64 = 717.0 / 1024.0;
/// Time for which a pace of growth holds unless the window changes: Linux finds it 32 times a
/// second, ns.
const HOLDS: u128 = 1_000_000_000 / 32;
/// Bytes of four of the largest bursts, and the time that they may take at most, ns.
const BURSTS: f64 = 4.0 * 65_536.0;
const BURSTS_MAX: f64 = 1e6;

/// Share of a window that is left after a reduction.
pub(super) fn kept(window: f64) -> f64 {
    (window * KEPT).floor()
}

/// The end of Cubic's slow start before a queue is full: by acknowledgments that come for half of
/// a round trip, or by a longer round trip (Ha and Rhee, "Taming the elephants", 2011).
#[derive(Debug)]
pub(super) struct HyStart {
    /// Least round-trip time ever, and of the round, ns.
    pub(super) least: u64,
    of_round: u64,
    samples: u32,
    /// Start of the round, and the last acknowledgment that came close to the one before.
    start: Time,
    last: Time,
    /// It ended a slow start. That of a restart is left alone then, as in Linux.
    pub(super) has_ended: bool,
}

impl Default for HyStart {
    fn default() -> HyStart {
        HyStart {
            least: u64::MAX,
            of_round: u64::MAX,
            samples: 0,
            start: Time::ZERO,
            last: Time::ZERO,
            has_ended: false,
        }
    }
}

impl HyStart {
    /// The window is as long as the way (`hystart_update`).
    pub(super) fn ends(&mut self, window: f64, acked: Acked) -> bool {
        const CLOSE: u64 = 2_000_000;
        let since = |time: Time| acked.now.since(time).as_nanos() as u64;
        if acked.is_round {
            (self.start, self.last) = (acked.now, acked.now);
            (self.of_round, self.samples) = (u64::MAX, 0);
        }
        let Some(rtt) = acked.rtt else {
            return false;
        };
        self.least = self.least.min(rtt);
        if self.has_ended || window < 16.0 {
            return false;
        }
        if since(self.last) <= CLOSE {
            self.last = acked.now;
            // Acknowledgments may be late by bursts at twice the rate, which pacing would allow
            // (`hystart_ack_delay`).
            let bursts = BURSTS * rtt as f64 / (2.0 * window * MSS as f64);
            let way = self.least.saturating_add(bursts.min(BURSTS_MAX) as u64);
            if since(self.start) > way / 2 {
                return true;
            }
        }
        self.of_round = self.of_round.min(rtt);
        self.samples += 1;
        let longer = (self.least / 8).clamp(4_000_000, 16_000_000);
        self.samples > 8 && self.of_round > self.least + longer
    }
}

/// Growth beyond slow start.
#[derive(Debug, Default)]
pub(super) struct Cubic {
    /// Window before the last reduction; 0 before the first, and after a timeout.
    most: f64,
    /// Start of the current epoch.
    pub(super) epoch: Option<Time>,
    /// Window around which it is flat in the current epoch: `most`, or where it began.
    plateau: f64,
    /// Time in which the window grows back to `plateau`, s.
    k: f64,
    /// Window that Reno would have (RFC 9438, 4.3), and segments delivered since that grew.
    estimate: f64,
    acked: f64,
    /// Segments delivered for each by which the window grows, and those of them that were.
    each: f64,
    counted: f64,
    /// When `each` was found, and for which window.
    found: (Time, f64),
}

impl Cubic {
    /// The window of a round trip with losses is reduced: to what is returned.
    pub(super) fn reduced(&mut self, window: f64) -> f64 {
        // Fast convergence (RFC 9438, 4.7).
        self.most = match window < self.most {
            true => (window * (1.0 + KEPT) / 2.0).floor(),
            false => window,
        };
        self.epoch = None;
        kept(window)
    }

    /// Segments were delivered (`bictcp_update`, `tcp_cong_avoid_ai`); `least` is the least
    /// round-trip time.
    pub(super) fn grow(&mut self, window: &mut f64, segments: f64, now: Time, least: u64) {
        self.acked += segments;
        let (found, of) = self.found;
        if of != *window || now.since(found).as_nanos() > HOLDS {
            self.found = (now, *window);
            self.find(*window, segments, now, least);
        }
        // Counted at a slower pace.
        if self.counted >= self.each {
            self.counted = 0.0;
            *window += 1.0;
        }
        self.counted += segments;
        let more = (self.counted / self.each).floor();
        self.counted -= more * self.each;
        *window += more;
    }

    /// RFC 9438, section 4, with what Linux does otherwise: the round trip that the window is ahead
    /// by is the `least` one, and Reno's window grows by the same alpha beyond the last one, too.
    fn find(&mut self, window: f64, segments: f64, now: Time, least: u64) {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.epoch = Some(now);
                (self.estimate, self.acked) = (window, segments);
                self.plateau = self.most.max(window);
                // C = 0.4 segments a cubed second.
                self.k = ((self.plateau - window) / 0.4).cbrt();
                now
            }
        };
        let ahead = if least == u64::MAX { 0 } else { least };
        let time = now.since(epoch).as_secs_f64() + ahead as f64 / 1e9;
        let target = self.plateau + (0.4 * (time - self.k).powi(3)).trunc();
        self.each = match target > window {
            true => (window / (target - window)).floor(),
            false => 100.0 * window,
        };
        // Where slow start ended before anything was lost, nobody knows how much there is: by 5 %
        // a round trip at least.
        if self.most == 0.0 {
            self.each = self.each.min(20.0);
        }
        // Reno's region (4.3): alpha is 8 / 15.
        let delta = (window * 15.0 / 8.0).floor();
        while self.acked > delta {
            self.acked -= delta;
            self.estimate += 1.0;
        }
        if self.estimate > window {
            let each = (window / (self.estimate - window)).floor();
            self.each = self.each.min(each);
        }
        self.each = self.each.max(2.0);
    }
}
