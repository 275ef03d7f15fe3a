//! Rate estimators (`estimator`, tc(8)): the average rate of a qdisc, class or action, from its
//! counters. The control path samples them; no owner of a queue ever does anything for it.
//!
//! The arithmetic is the kernel's (`gen_estimator.c`): an exponentially weighted moving average of
//! bytes and packets per second in 1/256, with a weight of `2^-ewma_log` for the latest sample.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use softnet::time::Time;

use crate::handle::Handle;

/// Why there is no such estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EstimatorError {
    /// The kernel takes neither other intervals nor other weights.
    #[error(
        "an estimator's interval is -2 (250 ms) to 3 (8 s), and the weight's logarithm 1 to 30"
    )]
    Range,
    /// No interval is that long.
    #[error("an estimator's interval is at most 8 s")]
    Interval,
    /// No weight has that average.
    #[error("an estimator's average must be longer than its interval, and not a million times so")]
    Average,
}

/// Parameters of an estimator (`struct tc_estimator`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimatorSpec {
    interval: i8,
    ewma_log: u8,
}

impl EstimatorSpec {
    /// A sample each `2^interval` seconds, with a weight of `2^-ewma_log`.
    ///
    /// # Errors
    /// If the kernel would not have it.
    pub fn new(interval: i8, ewma_log: u8) -> Result<EstimatorSpec, EstimatorError> {
        if !(-2..=3).contains(&interval) || !(1..=30).contains(&ewma_log) {
            return Err(EstimatorError::Range);
        }
        Ok(EstimatorSpec { interval, ewma_log })
    }

    /// As tc computes it: the least interval that is long enough, and the lowest weight with which
    /// the average's time constant is at most `average`.
    ///
    /// # Errors
    /// If there is none.
    pub fn from_times(
        interval: Duration,
        average: Duration,
    ) -> Result<EstimatorSpec, EstimatorError> {
        let (given, average) = (interval.as_micros(), average.as_micros() as f64);
        let interval = (-2..=3_i8).find(|exponent| given <= 250_000 << (exponent + 2));
        let interval = interval.ok_or(EstimatorError::Interval)?;
        let constant = |log: u8| given as f64 / -(1.0 - 0.5_f64.powi(log.into())).ln();
        let too_long = (1..=31).find(|&log| constant(log) > average);
        match too_long {
            Some(log @ 2..) => EstimatorSpec::new(interval, log - 1),
            _ => Err(EstimatorError::Average),
        }
    }

    /// The time between samples.
    pub fn period(self) -> Duration {
        Duration::from_millis(250 << self.interval_log())
    }

    /// The average that [`from_times`](EstimatorSpec::from_times) takes for this weight: the time
    /// constant is a little less than this power of 2 of the period.
    pub fn average(self) -> Duration {
        self.period() * (1_u32 << self.ewma_log)
    }

    fn interval_log(self) -> u32 {
        (i32::from(self.interval) + 2).unsigned_abs()
    }
}

/// Period and average in tc's words: `1s 8s`.
impl fmt::Display for EstimatorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |time: Duration| match time.subsec_millis() {
            0 => format!("{}s", time.as_secs()),
            _ => format!("{}ms", time.as_millis()),
        };
        write!(f, "{} {}", word(self.period()), word(self.average()))
    }
}

/// An estimated rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Wire bytes a second.
    pub bytes: u64,
    /// Wire packets a second.
    pub packets: u64,
}

/// The counters that are sampled: what left so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// One estimator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateEstimator {
    spec: EstimatorSpec,
    /// None: not sampled yet.
    last: Option<Sample>,
    /// In 1/256 a second.
    average: Rate,
    due: Time,
}

impl RateEstimator {
    pub(crate) fn new(spec: EstimatorSpec) -> RateEstimator {
        RateEstimator {
            spec,
            last: None,
            average: Rate::default(),
            due: Time::ZERO,
        }
    }

    /// With other parameters: it goes on from its average, as in the kernel.
    pub(crate) fn changed(self, spec: EstimatorSpec) -> RateEstimator {
        RateEstimator {
            average: self.average,
            ..RateEstimator::new(spec)
        }
    }

    /// The time of the next sample.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    /// Takes a sample that is due. The first one only says from where to count.
    pub(crate) fn sample(&mut self, sample: Sample, now: Time) {
        let period = u64::try_from(self.spec.period().as_nanos()).unwrap_or(u64::MAX);
        let Some(last) = self.last.replace(sample) else {
            self.due = now.plus_nanos(period);
            return;
        };
        // A period is a quarter of 2^interval_log seconds, and the average is in 1/256.
        let shift = 10 - self.spec.interval_log();
        let ewma = |average: &mut u64, now: u64, then: u64| {
            let rate = now.saturating_sub(then) << shift;
            *average -= *average >> self.spec.ewma_log;
            *average = average.saturating_add(rate >> self.spec.ewma_log);
        };
        ewma(&mut self.average.bytes, sample.bytes, last.bytes);
        ewma(&mut self.average.packets, sample.packets, last.packets);
        // After a delay the next sample is taken at once.
        self.due = self.due.plus_nanos(period).max(now.plus_nanos(1));
    }

    pub(crate) fn rate(&self) -> Rate {
        Rate {
            bytes: self.average.bytes >> 8,
            packets: self.average.packets >> 8,
        }
    }
}

/// The estimators of a tree, by the names of the qdiscs and classes.
#[derive(Debug, Default)]
pub(crate) struct Estimators {
    all: BTreeMap<Handle, RateEstimator>,
    /// When the first one is due.
    due: Option<Time>,
}

impl Estimators {
    /// Starts one. One with the name goes on from its average, as in the kernel.
    pub(crate) fn start(&mut self, name: Handle, spec: EstimatorSpec) {
        let old = self.all.get(&name);
        let fresh = old.map_or_else(|| RateEstimator::new(spec), |old| old.changed(spec));
        self.all.insert(name, fresh);
        self.due = Some(Time::ZERO);
    }

    pub(crate) fn stop(&mut self, name: Handle) {
        self.all.remove(&name);
        if self.all.is_empty() {
            self.due = None;
        }
    }

    /// When to call [`sample`](Estimators::sample) next; `None`: never, as it is.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Samples those that are due.
    pub(crate) fn sample(&mut self, now: Time, read: impl Fn(Handle) -> Option<Sample>) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for (&name, estimator) in &mut self.all {
            if estimator.due <= now
                && let Some(sample) = read(name)
            {
                estimator.sample(sample, now);
            }
        }
        self.due = self.all.values().map(|estimator| estimator.due).min();
    }

    pub(crate) fn rate(&self, name: Handle) -> Option<Rate> {
        self.all.get(&name).map(RateEstimator::rate)
    }
}
