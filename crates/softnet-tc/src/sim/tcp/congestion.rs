//! Congestion control of a simulated sender: Reno (RFC 5681), Cubic (RFC 9438), DCTCP (RFC 8257)
//! and BBR version 1 (Cardwell and others, 2016). Windows are in segments, times in nanoseconds.

use std::collections::VecDeque;

use softnet::time::Time;

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 5681, with the window of RFC 6928.
    Reno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257; on loss as Reno.
    Dctcp,
    /// Bottleneck bandwidth and round-trip propagation time, version 1.
    Bbr,
}

impl Algorithm {
    /// By its name in Linux.
    pub fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "reno" => Algorithm::Reno,
            "cubic" => Algorithm::Cubic,
            "dctcp" => Algorithm::Dctcp,
            "bbr" => Algorithm::Bbr,
            _ => return None,
        })
    }
}

/// First window (RFC 6928).
const INITIAL: f64 = 10.0;
/// Least window.
const LEAST: f64 = 2.0;
/// Part of its window that Cubic keeps.
const KEPT: f64 = 0.7;
/// Segments by which the window of a Reno that keeps as much grows in a round trip, at the same
/// rate as that of one that keeps half.
const ALPHA: f64 = 3.0 * (1.0 - KEPT) / (1.0 + KEPT);

/// News of an acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub now: Time,
    /// Segments newly delivered.
    pub segments: u32,
    /// Segments among them that were marked.
    pub marked: u32,
    /// Round-trip time of the newest, or the average, ns; none before one was measured.
    pub rtt: Option<u64>,
    /// Segments in flight before.
    pub flight: u32,
    /// Delivery rate of the newest, segments per second.
    pub rate: f64,
    /// True once a round trip.
    pub is_round: bool,
    /// Loss recovery is in progress, or a hole is not filled.
    pub in_recovery: bool,
}

/// State of one sender.
#[derive(Debug)]
pub(super) struct Congestion {
    algorithm: Algorithm,
    window: f64,
    threshold: f64,
    cubic: Cubic,
    hystart: HyStart,
    dctcp: Dctcp,
    bbr: Bbr,
}

/// The end of Cubic's slow start before a queue is full: by acknowledgments that come for half of
/// a round trip, or by a longer round trip (Ha and Rhee, "Taming the elephants", 2011), with
/// Linux's figures.
#[derive(Debug)]
struct HyStart {
    /// Least round-trip time ever, and of the round, ns.
    least: u64,
    of_round: u64,
    samples: u32,
    /// Start of the round, and the last acknowledgment that came close to the one before.
    start: Time,
    last: Time,
    /// It ended a slow start. That of a restart is left alone then, as in Linux.
    has_ended: bool,
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

#[derive(Debug, Default)]
struct Cubic {
    /// Window before the last reduction; 0 before the first, and after a timeout.
    most: f64,
    /// Start of the current epoch.
    epoch: Option<Time>,
    /// Window around which it is flat in the current epoch: `most`, or where it began.
    plateau: f64,
    /// Time in which the window grows back to `plateau`, s.
    k: f64,
    /// Window that Reno would have (RFC 9438, 4.3).
    estimate: f64,
}

#[derive(Debug)]
struct Dctcp {
    /// Share of marked segments, averaged.
    alpha: f64,
    acked: u32,
    marked: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BbrState {
    Startup,
    Drain,
    /// Phase of the gain cycle and when it began.
    Probe(usize, Time),
    /// Until when the window stays at 4, and the state that follows.
    ProbeRtt(Time),
}

#[derive(Debug)]
struct Bbr {
    state: BbrState,
    /// Greatest delivery rates of the last ten rounds.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    /// Rate when the pipe last seemed not full, and rounds since.
    full: (f64, u32),
    /// Least round-trip time and when it was seen.
    min_rtt: (u64, Time),
}

/// Part of its rate at which BBR sends, so that queues become shorter.
const PACED: f64 = 0.99;
/// Gain of startup: 2/ln 2.
const STARTUP_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

impl Congestion {
    pub(super) fn new(algorithm: Algorithm) -> Congestion {
        Congestion {
            algorithm,
            window: INITIAL,
            threshold: f64::INFINITY,
            cubic: Cubic::default(),
            hystart: HyStart::default(),
            dctcp: Dctcp {
                alpha: 1.0,
                acked: 0,
                marked: 0,
            },
            bbr: Bbr {
                state: BbrState::Startup,
                rates: VecDeque::new(),
                round: 0,
                full: (0.0, 0),
                min_rtt: (u64::MAX, Time::ZERO),
            },
        }
    }

    /// Segments that may be in flight.
    pub(super) fn window(&self) -> u32 {
        self.window.max(1.0) as u32
    }

    /// Time between two segments, ns, for a sender that paces.
    pub(super) fn pacing(&self) -> Option<u64> {
        if self.algorithm != Algorithm::Bbr {
            return None;
        }
        let rate = self.bbr.rate();
        let gain = match self.bbr.state {
            BbrState::Startup => STARTUP_GAIN,
            BbrState::Drain => 1.0 / STARTUP_GAIN,
            BbrState::Probe(phase, _) => CYCLE[phase],
            BbrState::ProbeRtt(_) => 1.0,
        };
        (rate > 0.0).then(|| (1e9 / (rate * gain * PACED)) as u64)
    }

    /// Segments were delivered.
    pub(super) fn acked(&mut self, acked: Acked) {
        match self.algorithm {
            Algorithm::Bbr => self.bbr_acked(acked),
            Algorithm::Dctcp => {
                self.dctcp.acked += acked.segments;
                self.dctcp.marked += acked.marked;
                if acked.is_round && self.dctcp.acked > 0 {
                    let share = f64::from(self.dctcp.marked) / f64::from(self.dctcp.acked);
                    self.dctcp.alpha += (share - self.dctcp.alpha) / 16.0;
                    if self.dctcp.marked > 0 && !acked.in_recovery {
                        self.window = (self.window * (1.0 - self.dctcp.alpha / 2.0)).max(LEAST);
                        self.threshold = self.window;
                    }
                    (self.dctcp.acked, self.dctcp.marked) = (0, 0);
                }
                self.grow(acked);
            }
            Algorithm::Cubic => {
                let ends = self.hystart.ends(self.window, acked);
                if ends && self.window < self.threshold {
                    (self.threshold, self.hystart.has_ended) = (self.window, true);
                }
                self.grow(acked);
            }
            Algorithm::Reno => self.grow(acked),
        }
    }

    /// Growth by what was delivered, if the window was used.
    fn grow(&mut self, acked: Acked) {
        let is_used = f64::from(acked.flight + acked.segments) >= self.window * 0.5;
        if acked.in_recovery || !is_used {
            return;
        }
        let segments = f64::from(acked.segments);
        if self.window < self.threshold {
            self.window = (self.window + segments).min(self.threshold.max(self.window));
            return;
        }
        match self.algorithm {
            Algorithm::Cubic => {
                let (now, least) = (acked.now, self.hystart.least);
                self.cubic.grow(&mut self.window, segments, now, least);
            }
            _ => self.window += segments / self.window,
        }
    }

    /// A round trip in which segments were lost, or marked where marks count as losses.
    pub(super) fn congested(&mut self, flight: u32) {
        match self.algorithm {
            // BBR keeps its model.
            Algorithm::Bbr => {}
            Algorithm::Cubic => {
                let cubic = &mut self.cubic;
                // Fast convergence (RFC 9438, 4.7).
                cubic.most = match self.window < cubic.most {
                    true => self.window * (1.0 + KEPT) / 2.0,
                    false => self.window,
                };
                cubic.epoch = None;
                self.window = (self.window * KEPT).max(LEAST);
                self.threshold = self.window;
            }
            Algorithm::Reno | Algorithm::Dctcp => {
                self.threshold = (f64::from(flight) / 2.0).max(LEAST);
                self.window = self.threshold;
            }
        }
    }

    /// It reduces its window for losses.
    pub(super) fn is_reduced(&self) -> bool {
        self.algorithm != Algorithm::Bbr
    }

    /// Nothing was sent for a while. BBR knows its path still.
    pub(super) fn restart(&mut self) {
        if self.algorithm != Algorithm::Bbr {
            self.window = self.window.min(INITIAL);
            self.cubic.epoch = None;
        }
    }

    /// The retransmission timer fired; `again`: for what was sent again by it, of which the
    /// threshold knows already (RFC 5681, 3.1).
    pub(super) fn timed_out(&mut self, flight: u32, again: bool) {
        if !again {
            let kept = match self.algorithm {
                Algorithm::Cubic => self.window * KEPT,
                _ => f64::from(flight) / 2.0,
            };
            self.threshold = kept.max(LEAST);
        }
        // The next window is where Cubic begins (RFC 9438, 4.8), and HyStart with it.
        self.cubic = Cubic::default();
        self.hystart = HyStart::default();
        self.window = 1.0;
    }

    fn bbr_acked(&mut self, acked: Acked) {
        let bbr = &mut self.bbr;
        if acked.is_round {
            bbr.round += 1;
        }
        if acked.rate.is_finite() {
            let round = bbr.round;
            bbr.rates
                .retain(|&(at, rate)| at + 10 > round && rate > acked.rate);
            bbr.rates.push_back((round, acked.rate));
        }
        let (least, seen) = bbr.min_rtt;
        let expired = acked.now.since(seen).as_nanos() > 10_000_000_000;
        if let Some(rtt) = acked.rtt
            && (rtt <= least || expired)
        {
            bbr.min_rtt = (rtt, acked.now);
        }
        let rate = bbr.rate();
        let product = match bbr.min_rtt.0 {
            // Not known yet.
            u64::MAX => 1.0,
            least => (rate * least as f64 / 1e9).max(1.0),
        };
        match bbr.state {
            BbrState::Startup => {
                if acked.is_round {
                    if rate > bbr.full.0 * 1.25 {
                        bbr.full = (rate, 0);
                    } else {
                        bbr.full.1 += 1;
                    }
                    if bbr.full.1 >= 3 {
                        bbr.state = BbrState::Drain;
                    }
                }
            }
            BbrState::Drain => {
                if f64::from(acked.flight) <= product {
                    bbr.state = BbrState::Probe(2, acked.now);
                }
            }
            BbrState::Probe(phase, since) => {
                if acked.now.since(since).as_nanos() as u64 > bbr.min_rtt.0 {
                    bbr.state = BbrState::Probe((phase + 1) % CYCLE.len(), acked.now);
                }
                if expired {
                    bbr.state = BbrState::ProbeRtt(acked.now.plus_nanos(200_000_000));
                }
            }
            BbrState::ProbeRtt(until) => {
                if acked.now >= until {
                    bbr.state = BbrState::Probe(2, acked.now);
                }
            }
        }
        self.window = match bbr.state {
            BbrState::Startup | BbrState::Drain => (STARTUP_GAIN * product).max(INITIAL),
            BbrState::Probe(..) => (2.0 * product).max(4.0),
            BbrState::ProbeRtt(_) => 4.0,
        };
    }
}

impl HyStart {
    /// The window is as long as the way.
    fn ends(&mut self, window: f64, acked: Acked) -> bool {
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
            if since(self.start) > self.least / 2 {
                return true;
            }
        }
        self.of_round = self.of_round.min(rtt);
        self.samples += 1;
        let longer = (self.least / 8).clamp(4_000_000, 16_000_000);
        self.samples > 8 && self.of_round > self.least + longer
    }
}

impl Cubic {
    /// RFC 9438, section 4, with what Linux does otherwise: the round trip that the window is ahead
    /// by is the `least` one, and Reno's window grows by the same alpha beyond the last one, too.
    fn grow(&mut self, window: &mut f64, segments: f64, now: Time, least: u64) {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.epoch = Some(now);
                self.estimate = *window;
                self.plateau = self.most.max(*window);
                // C = 0.4 segments a cubed second.
                self.k = ((self.plateau - *window) / 0.4).cbrt();
                now
            }
        };
        let ahead = if least == u64::MAX { 0 } else { least };
        let time = now.since(epoch).as_secs_f64() + ahead as f64 / 1e9;
        let target = 0.4 * (time - self.k).powi(3) + self.plateau;
        let target = target.clamp(*window, 1.5 * *window);
        // Reno's region (4.3).
        self.estimate += ALPHA * segments / *window;
        let before = *window;
        if target < self.estimate {
            *window = window.max(self.estimate);
        } else {
            *window += segments * (target - *window) / *window;
        }
        // Where slow start ended before anything was lost, nobody knows how much there is: by 5 %
        // a round trip at least, as in Linux.
        if self.most == 0.0 {
            *window = window.max(before + segments / 20.0);
        }
    }
}

impl Bbr {
    fn rate(&self) -> f64 {
        self.rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests;
