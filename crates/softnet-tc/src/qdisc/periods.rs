//! Updates that are due at fixed times, made when a call comes: a control law runs every period
//! without a timer.
//!
//! Between two calls a queue does not change, so that the updates that were missed see what a timer
//! would have seen. At most [`EXACT`] of them are made one by one, which is more than a control law
//! takes to settle; those behind them, which a queue that stood still for long has missed, are made
//! together.

use softnet::time::Time;

/// Updates that one call makes one by one.
pub(crate) const EXACT: u64 = 2048;

/// Times at which updates are due: every `period` from the first call on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Periods {
    /// In nanoseconds; 0: no updates.
    period: u64,
    first: Option<Time>,
}

impl Periods {
    pub(crate) fn new(period: u64) -> Periods {
        Periods {
            period,
            first: None,
        }
    }

    pub(crate) fn period(&self) -> u64 {
        self.period
    }

    /// Updates that are due until now, since the first call.
    #[inline]
    pub(crate) fn due(&mut self, now: Time) -> u64 {
        if self.period == 0 {
            return 0;
        }
        let first = *self.first.get_or_insert(now);
        now.nanos().saturating_sub(first.nanos()) / self.period
    }

    /// The time of an update.
    pub(crate) fn time(&self, update: u64) -> Time {
        let first = self.first.unwrap_or(Time::ZERO);
        first.plus_nanos(self.period.saturating_mul(update))
    }
}

/// Numbers of updates, of those that were `missed`, that are made together at each step.
pub(crate) fn steps(missed: u64) -> impl Iterator<Item = u64> {
    let rest = missed.saturating_sub(EXACT);
    let ones = std::iter::repeat_n(1, missed.min(EXACT) as usize);
    ones.chain((rest > 0).then_some(rest))
}
