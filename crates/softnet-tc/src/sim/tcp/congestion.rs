//! Congestion control of a simulated sender: Reno (RFC 5681), Cubic (RFC 9438), DCTCP (RFC 8257)
//! and BBR version 1 (Cardwell and others, 2016). Windows are in segments, times in nanoseconds.

mod cubic;

use std::collections::VecDeque;

use softnet::time::Time;

use cubic::{Cubic, HyStart};

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
    /// Segments that are still in flight.
    pub flight: u32,
    /// Delivery rate of the newest, segments per second.
    pub rate: f64,
    /// True once a round trip.
    pub is_round: bool,
    /// Loss recovery is in progress, or a hole is not filled.
    pub in_recovery: bool,
    /// Loss recovery goes on: not all that was in flight as it began has arrived.
    pub recovers: bool,
    /// Segments found lost by this acknowledgment.
    pub lost: u32,
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
    /// It recovers from losses, and, in the first round of that, the window.
    recovers: bool,
    conserved: Option<f64>,
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
                recovers: false,
                conserved: None,
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
                self.window = self.cubic.reduced(self.window).max(LEAST);
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
                Algorithm::Cubic => cubic::kept(self.window),
                _ => f64::from(flight) / 2.0,
            };
            self.threshold = kept.max(LEAST);
        }
        // The next window is where Cubic begins (RFC 9438, 4.8), and HyStart with it.
        self.cubic = Cubic::default();
        self.hystart = HyStart::default();
        self.window = 1.0;
        // A recovery by the timer has no such round.
        (self.bbr.recovers, self.bbr.conserved) = (true, None);
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
        let conserved = bbr.conserve(acked);
        self.window = match (bbr.state, conserved) {
            (BbrState::ProbeRtt(_), _) => 4.0,
            (_, Some(window)) => window,
            (BbrState::Startup | BbrState::Drain, _) => (STARTUP_GAIN * product).max(INITIAL),
            (BbrState::Probe(..), _) => (2.0 * product).max(4.0),
        };
    }
}

impl Bbr {
    fn rate(&self) -> f64 {
        self.rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max)
    }

    /// The window in the first round of a recovery, in which no more is sent than was delivered
    /// (`bbr_set_cwnd_to_recover_or_restore`). If the recovery goes on behind that, Linux's window
    /// grows by what is delivered until it is what it was; this one is so at once.
    fn conserve(&mut self, acked: Acked) -> Option<f64> {
        let begins = acked.recovers && !self.recovers;
        self.recovers = acked.recovers;
        let kept = f64::from(acked.flight + acked.segments);
        self.conserved = match self.conserved {
            _ if begins => Some(kept),
            Some(window) if acked.recovers && !acked.is_round => {
                Some(kept.max(window - f64::from(acked.lost)))
            }
            _ => None,
        };
        self.conserved
    }
}

#[cfg(test)]
mod tests;
