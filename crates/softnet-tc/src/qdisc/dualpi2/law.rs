//! PI2, the control law of `dualpi2` (RFC 9332, Appendix A): from how long packets wait, the
//! probability `p'`. Classic packets are dropped or marked with its square, low-latency ones with
//! `k` times itself. In the fixed-point arithmetic of the kernel: probabilities in 32 bits.

use softnet::time::Time;

use super::spec::DualPi2Spec;
use crate::qdisc::aqm::nanos;
use crate::qdisc::periods::{Periods, steps};

/// A probability of 1.
pub(crate) const ONE: u32 = u32::MAX;
const SECOND: u64 = 1_000_000_000;

/// A gain in 1/256 Hz, in units of the arithmetic: probability for 64 ns.
fn scaled(gain: u32) -> u32 {
    (((u64::from(gain) * u64::from(ONE)) >> 2) / SECOND) as u32
}

/// A gain as the kernel shows it, which keeps it in those units.
pub fn dualpi2_shown_gain(gain: u32) -> u32 {
    let shown = ((u128::from(scaled(gain)) * u128::from(SECOND)) << 2) / u128::from(ONE);
    shown as u32
}

/// PI2.
#[derive(Debug)]
pub(super) struct Law {
    /// Nanoseconds.
    target: u64,
    alpha: u32,
    beta: u32,
    /// The highest probability: without drops on overload, that of marking all.
    most: u32,
    periods: Periods,
    updates: u64,
    /// `p'`, of [`ONE`].
    pub(super) prob: u32,
    last_delay: u64,
}

impl Law {
    pub(super) fn new(spec: &DualPi2Spec) -> Law {
        let mut law = Law {
            target: 0,
            alpha: 0,
            beta: 0,
            most: ONE,
            periods: Periods::default(),
            updates: 0,
            prob: 0,
            last_delay: 0,
        };
        law.change(spec);
        law
    }

    pub(super) fn change(&mut self, spec: &DualPi2Spec) {
        self.target = nanos(spec.target);
        (self.alpha, self.beta) = (scaled(spec.alpha), scaled(spec.beta));
        self.most = if spec.drop_on_overload {
            ONE
        } else {
            ONE / u32::from(spec.coupling_factor.max(1))
        };
        let period = nanos(spec.tupdate);
        if period != self.periods.period() {
            (self.periods, self.updates) = (Periods::new(period), 0);
        }
    }

    /// Makes the updates that are due. `oldest` is when the packets came that have been first in
    /// their queues since the last call.
    #[inline]
    pub(super) fn catch_up(&mut self, now: Time, oldest: Option<Time>) {
        let due = self.periods.due(now);
        if due > self.updates {
            self.update_many(due, oldest);
        }
    }

    #[cold]
    fn update_many(&mut self, due: u64, oldest: Option<Time>) {
        for step in steps(due - self.updates) {
            self.updates += step;
            let time = self.periods.time(self.updates).nanos();
            let delay = oldest.map_or(0, |came| time.saturating_sub(came.nanos()));
            let before = (self.prob, self.last_delay);
            self.update(delay, step);
            // An empty queue: the next ones would change nothing more.
            if oldest.is_none() && (self.prob, self.last_delay) == before {
                self.updates = due;
                return;
            }
        }
    }

    /// So many updates together, with the delay at the last of them.
    fn update(&mut self, delay: u64, times: u64) {
        let part = |a: u64, b: u64, gain: u32| (i128::from(a) - i128::from(b)) * i128::from(gain);
        let far = part(delay, self.target, self.alpha) * i128::from(times);
        let delta = far + part(delay, self.last_delay, self.beta);
        self.last_delay = delay;
        // Towards zero, as in the kernel.
        let prob = i128::from(self.prob) + delta / 64;
        self.prob = prob.clamp(0, self.most.into()) as u32;
    }

    /// Nothing waits any more.
    pub(super) fn reset(&mut self) {
        (self.prob, self.last_delay) = (0, 0);
    }
}

#[cfg(all(test, not(any(loom, miri))))]
impl Law {
    pub(super) fn set(&mut self, prob: u32, last_delay: u64) {
        (self.prob, self.last_delay) = (prob, last_delay);
    }

    pub(super) fn update_once(&mut self, delay: u64) {
        self.update(delay, 1);
    }
}
