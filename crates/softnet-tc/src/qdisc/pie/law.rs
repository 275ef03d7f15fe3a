//! PIE's control law (RFC 8033): from how long packets wait, the probability with which those that
//! come are dropped. In the fixed-point arithmetic of the kernel: times in units of 64 ns,
//! probabilities in 56 bits. One [`Pie`] for each queue; the queues of a qdisc share a [`Law`].
//!
//! The probability is updated every `tupdate`, counted from the first call, when the next call
//! comes ([`periods`](crate::qdisc::periods)). It stays at 1 at most. (The kernel's may pass it.)

use std::time::Duration;

use softnet::time::Time;

use crate::qdisc::aqm::{ETHERNET_LEN, nanos};
use crate::qdisc::draws::Draws;
use crate::qdisc::option::parameters;
use crate::qdisc::periods::{Periods, steps};
use crate::qdisc::spec::QdiscEnv;

parameters! {
    /// PIE's parameters, as in tc-pie(8). Defaults are the kernel's.
    pub struct PieLawSpec {
        /// The delay that is aimed at.
        pub target: Duration = Duration::from_millis(15),
        /// Time between two updates of the probability; 0: it is never updated.
        pub tupdate: Duration = Duration::from_millis(15),
        /// Gain for the distance from the target, in 1/16 Hz.
        pub alpha: u32 = 2,
        /// Gain for the change of the delay, in 1/16 Hz.
        pub beta: u32 = 20,
        /// Marks ECN-capable packets instead of dropping them while the probability is low.
        pub ecn: bool = false,
        /// Makes smaller packets less likely to be dropped.
        pub bytemode: bool = false,
        /// Estimates the delay from the rate at which packets leave, in place of their times.
        pub dq_rate_estimator: bool = false,
    }
}

/// A probability of 1.
pub(crate) const ONE: u64 = u64::MAX >> 8;
/// Units of 64 ns in a second.
const TICKS: u64 = 1_000_000_000 >> 6;
/// The delay above which the probability rises faster.
const HIGH: u64 = TICKS / 4;
/// Time of a burst that is let through, when the queue was empty for long.
const BURST: u64 = TICKS * 150 / 1000;
/// Bytes from which the rate at which packets leave is measured.
const THRESHOLD: u64 = 16_384;
/// Bits behind the point of that rate.
const SCALE: u32 = 8;

/// Parameters and times that the queues of one qdisc share.
#[derive(Debug)]
pub(crate) struct Law {
    pub(crate) spec: PieLawSpec,
    target: u64,
    alpha: u64,
    beta: u64,
    /// Bytes of a packet of the device's MTU.
    mtu: u64,
    periods: Periods,
    /// The latest time of a call, and updates that are due by then.
    now: Time,
    due: u64,
    draws: Draws,
}

/// The state of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Pie {
    /// The probability, of [`ONE`].
    pub(crate) prob: u64,
    /// Probabilities since the last drop: so that drops come neither at once nor far apart.
    sum: u64,
    /// Times in units of 64 ns.
    pub(crate) delay: u64,
    delay_old: u64,
    burst: u64,
    /// When a packet left last, or the measurement of the rate began.
    left_at: Option<u64>,
    /// Bytes that left in this measurement.
    left: Option<u64>,
    rate: u64,
    updates: u64,
}

impl Default for Pie {
    fn default() -> Pie {
        Pie {
            prob: 0,
            sum: 0,
            delay: 0,
            delay_old: 0,
            burst: BURST,
            left_at: None,
            left: None,
            rate: 0,
            updates: 0,
        }
    }
}

fn ticks(nanos: u64) -> u64 {
    nanos >> 6
}

impl Law {
    pub(crate) fn new(spec: &PieLawSpec, env: &QdiscEnv) -> Law {
        let mut law = Law {
            spec: spec.clone(),
            target: 0,
            alpha: 0,
            beta: 0,
            mtu: u64::from(env.mtu) + u64::from(ETHERNET_LEN),
            periods: Periods::default(),
            now: Time::ZERO,
            due: 0,
            draws: Draws::new(env.seed),
        };
        law.change(spec);
        law
    }

    /// Takes other parameters. Updates are counted anew: each queue's are to be
    /// [forgotten](Pie::restart).
    pub(crate) fn change(&mut self, spec: &PieLawSpec) {
        let gain = |gain: u32| (u64::from(gain) * (ONE / TICKS)) >> 4;
        self.spec = spec.clone();
        self.target = ticks(nanos(spec.target));
        (self.alpha, self.beta) = (gain(spec.alpha), gain(spec.beta));
        (self.periods, self.due) = (Periods::new(nanos(spec.tupdate)), 0);
    }

    /// A call comes.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.due = self.periods.due(self.now);
    }

    /// True if a packet may be marked instead of dropped at this probability, where up to `most`
    /// percent may.
    pub(crate) fn marks(&self, pie: &Pie, most: u32) -> bool {
        self.spec.ecn && pie.prob <= (ONE / 100).saturating_mul(most.into())
    }

    /// The estimated rate of a queue, in bytes a second.
    pub(crate) fn rate(&self, pie: &Pie) -> u64 {
        if self.spec.dq_rate_estimator {
            pie.rate.saturating_mul(TICKS) >> SCALE
        } else {
            0
        }
    }

    /// The estimated change of the probability.
    fn delta(&self, pie: &Pie, delay: u64, old: u64) -> i128 {
        let (mut alpha, mut beta) = (self.alpha, self.beta);
        // The gains are lower while drops are rare (RFC 8033 5.2, auto-tuning).
        if pie.prob < ONE / 10 {
            (alpha, beta) = (alpha >> 1, beta >> 1);
            let mut power = 100;
            while power <= 1_000_000 && pie.prob < ONE / power {
                (alpha, beta) = (alpha >> 2, beta >> 2);
                power *= 10;
            }
        }
        let times = |gain: u64, a: u64, b: u64| i128::from(gain) * (i128::from(a) - i128::from(b));
        let mut delta = times(alpha, delay, self.target) + times(beta, delay, old);
        // At most 2 % at once.
        if delta > i128::from(ONE / 50) && pie.prob >= ONE / 10 {
            delta = i128::from(ONE / 100) * 2;
        }
        if delay > HIGH {
            delta += i128::from(ONE / 50);
        }
        delta
    }
}

impl Pie {
    /// Nothing waits any more, and what was measured is worth nothing.
    pub(crate) fn reset(&mut self) {
        *self = Pie {
            updates: self.updates,
            ..Pie::default()
        };
    }

    /// Updates are counted anew.
    pub(crate) fn restart(&mut self) {
        self.updates = 0;
    }

    /// Makes the updates that are due; the queue has had so many bytes since the last.
    #[inline]
    pub(crate) fn catch_up(&mut self, law: &Law, backlog: u64) {
        if self.updates < law.due {
            self.update_many(law, backlog);
        }
    }

    #[cold]
    fn update_many(&mut self, law: &Law, backlog: u64) {
        for step in steps(law.due - std::mem::replace(&mut self.updates, law.due)) {
            let before = (self.prob, self.delay, self.delay_old, self.burst);
            self.update(law, backlog, step);
            // The next ones would change nothing more.
            if (self.prob, self.delay, self.delay_old, self.burst) == before {
                break;
            }
        }
    }

    /// So many updates of the probability together (RFC 8033 4.2).
    fn update(&mut self, law: &Law, backlog: u64, times: u64) {
        let (delay, old) = if law.spec.dq_rate_estimator {
            self.delay_old = self.delay;
            let delay = (backlog << SCALE).checked_div(self.rate).unwrap_or(0);
            (delay, self.delay)
        } else {
            (self.delay, self.delay_old)
        };
        let delta = law.delta(self, delay, old).saturating_mul(times.into());
        let prob = i128::from(self.prob).saturating_add(delta);
        self.prob = prob.clamp(0, ONE.into()) as u64;
        // A queue that is so short that its delay cannot be told is not an empty one.
        if delay == 0 && old == 0 && backlog == 0 {
            // Of more than a few thousand at once nothing would be left.
            self.prob = if times > 1 {
                0
            } else {
                self.prob - self.prob / 64
            };
        }
        self.delay = delay;
        let is_low = |delay| delay < law.target / 2;
        let is_measured = !law.spec.dq_rate_estimator || self.rate > 0;
        if is_low(self.delay) && is_low(self.delay_old) && self.prob == 0 && is_measured {
            // Calm again: the next burst is let through.
            (self.burst, self.sum, self.rate) = (BURST, 0, 0);
            (self.left_at, self.left) = (None, None);
        }
        if !law.spec.dq_rate_estimator {
            self.delay_old = delay;
        }
    }

    /// True if a packet of so many bytes is to be dropped as it comes (RFC 8033 4.1, with the
    /// derandomization of 5.4).
    #[inline]
    pub(crate) fn drops(&mut self, law: &mut Law, backlog: u64, bytes: u64) -> bool {
        let is_calm = self.delay < law.target / 2 && self.prob < ONE / 5;
        if self.burst > 0 || is_calm || backlog < 2 * law.mtu {
            return false;
        }
        let mut prob = self.prob;
        if law.spec.bytemode && bytes <= law.mtu {
            prob = bytes * (prob / law.mtu);
        }
        self.sum = if prob == 0 { 0 } else { self.sum + prob };
        if self.sum < ONE / 100 * 85 {
            return false;
        }
        if self.sum >= ONE / 2 * 17 || law.draws.u64() >> 8 < prob {
            self.sum = 0;
            return true;
        }
        false
    }

    /// A packet was dropped.
    pub(crate) fn dropped(&mut self) {
        self.sum = 0;
    }

    /// A packet left that came at this time, and so many bytes are left.
    #[inline]
    pub(crate) fn left(&mut self, law: &Law, bytes: u64, came: Time, backlog: u64) {
        let now = ticks(law.now.nanos());
        let elapsed;
        if law.spec.dq_rate_estimator {
            match self.measure(now, bytes, backlog) {
                Some(time) => elapsed = time,
                None => return,
            }
        } else {
            self.delay = if backlog == 0 {
                0
            } else {
                now.saturating_sub(ticks(came.nanos()))
            };
            let before = self.left_at.replace(now);
            elapsed = before.map_or(0, |before| now.saturating_sub(before));
        }
        self.burst = self.burst.saturating_sub(elapsed);
    }

    /// Measures the rate at which packets leave (RFC 8033 5.3), in cycles of [`THRESHOLD`] bytes.
    /// The result is the time of a cycle that ended.
    fn measure(&mut self, now: u64, bytes: u64, backlog: u64) -> Option<u64> {
        if backlog >= THRESHOLD && self.left.is_none() {
            (self.left_at, self.left) = (Some(now), Some(0));
        }
        let left = self.left.as_mut()?;
        *left += bytes;
        if *left < THRESHOLD {
            return None;
        }
        let time = now.saturating_sub(self.left_at?);
        let rate = (*left << SCALE).checked_div(time)?;
        self.rate = if self.rate == 0 {
            rate
        } else {
            self.rate - (self.rate >> 3) + (rate >> 3)
        };
        self.left = (backlog >= THRESHOLD).then_some(0);
        if self.left.is_some() {
            self.left_at = Some(now);
        }
        Some(time)
    }

    /// The delay, in nanoseconds.
    pub(crate) fn delay_nanos(&self) -> u64 {
        self.delay << 6
    }
}

#[cfg(all(test, not(any(loom, miri))))]
impl Pie {
    pub(super) fn set_delays(&mut self, delay: u64, old: u64) {
        (self.delay, self.delay_old) = (delay, old);
    }

    pub(super) fn update_once(&mut self, law: &Law, backlog: u64) {
        self.update(law, backlog, 1);
    }

    pub(super) fn end_burst(&mut self) {
        self.burst = 0;
    }
}
