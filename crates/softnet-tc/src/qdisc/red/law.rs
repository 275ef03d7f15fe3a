//! RED (Floyd and Jacobson, 1993): the average of a queue's length, and what is done with a packet
//! that comes. In the fixed-point arithmetic of the kernel (`include/net/red.h`), so that the same
//! packets have the same average; the queue of `red` and each of those of `sfq` has one.

use softnet::time::Time;

use crate::qdisc::draws::Draws;
use crate::qdisc::option::parameters;

parameters! {
    /// Thresholds and weights of RED, in the units of the kernel's interface.
    pub struct RedCurve {
        /// Average length, in bytes, below which no packet is marked.
        pub min: u32 = 0,
        /// Average length, in bytes, from which on every packet is marked.
        pub max: u32 = 0,
        /// The weight of a packet in the average is `2^-wlog`.
        pub wlog: u8 = 0,
        /// The probability at `max` is `(max - min) / 2^plog`, where `max_p` is 0.
        pub plog: u8 = 0,
        /// Idle time is counted in units of `2^cell_log` microseconds.
        pub cell_log: u8 = 0,
        /// The probability at `max`, times `2^32`.
        pub max_p: u32 = 0,
    }
}

impl RedCurve {
    /// `red_check_params`: what does not fit the arithmetic.
    pub(crate) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let is_wide = |bytes: u32| 32 - bytes.leading_zeros() + u32::from(self.wlog) >= 32;
        if is_wide(self.min) {
            return Some(("min", "does not fit 32 bits with the weight of the average"));
        }
        if is_wide(self.max) {
            return Some(("max", "does not fit 32 bits with the weight of the average"));
        }
        if self.cell_log >= 32 {
            return Some(("idle_table", "must have cells of at most 2^31 us"));
        }
        (self.max < self.min).then_some(("max", "must be at least min"))
    }
}

/// A percent of `2^32`.
const PERCENT: u32 = ((1_u64 << 32) / 100) as u32;
/// Slots of a table of idle time.
pub(crate) const STAB: usize = 256;

/// A decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is let in.
    Pass,
    /// It is marked or dropped by chance.
    Early,
    /// It is marked or dropped: the average is at `max`.
    Forced,
}

/// RED for one kind of queue: the curve, made ready.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    curve: RedCurve,
    /// `min` and `max` in units of the average.
    min: u64,
    max: u64,
    delta: u32,
    /// The probability at `max`, times `2^32`: `adaptive` changes it.
    max_p: u32,
    /// `max_p` for each byte between the thresholds.
    slope: u32,
}

/// The average of one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average {
    /// Bytes, times `2^wlog`.
    pub(crate) value: u64,
    /// Packets since the last that was marked by chance.
    count: i32,
    drawn: u32,
}

impl Default for Average {
    fn default() -> Average {
        Average {
            value: 0,
            count: -1,
            drawn: 0,
        }
    }
}

impl Law {
    /// A curve that has been checked.
    pub(crate) fn new(curve: &RedCurve) -> Law {
        let delta = curve.max.saturating_sub(curve.min).max(1);
        let max_p = match curve.max_p {
            0 => u32::MAX
                .checked_shr(curve.plog.into())
                .unwrap_or(u32::MAX)
                .wrapping_mul(delta),
            given => given,
        };
        Law {
            min: u64::from(curve.min) << curve.wlog,
            max: u64::from(curve.max) << curve.wlog,
            delta,
            max_p,
            slope: (max_p / delta).max(1),
            curve: curve.clone(),
        }
    }

    /// The probability at `max` now, times `2^32`.
    pub(crate) fn max_p(&self) -> u32 {
        self.max_p
    }

    /// A packet came to a queue of so many bytes that was not idle.
    #[inline]
    pub(crate) fn count(&self, average: &mut Average, backlog: u64) {
        let old = average.value >> self.curve.wlog;
        let backlog = backlog.min(u32::MAX.into());
        average.value = average.value.wrapping_add(backlog.wrapping_sub(old));
    }

    /// The average after the queue was idle for so many nanoseconds: as if small packets had come
    /// meanwhile. `stab` says how many times it halves in each time.
    pub(crate) fn after_idle(&self, average: &Average, nanos: u64, stab: &[u8; STAB]) -> u64 {
        let micros = (nanos / 1000).min(255_u64 << self.curve.cell_log);
        let shift = stab[(micros >> self.curve.cell_log) as usize % STAB];
        let value = average.value;
        if shift != 0 {
            return value >> shift;
        }
        // The first part of the exponential is about linear.
        let less = (u128::from(value) * u128::from(micros)) >> self.curve.cell_log;
        match u64::try_from(less) {
            Ok(less) if less < value >> 1 => value - less,
            _ => value >> 1,
        }
    }

    /// Says what is done with a packet.
    #[inline]
    pub(crate) fn decide(&self, average: &mut Average, draws: &mut Draws) -> Action {
        if average.value < self.min {
            average.count = -1;
            return Action::Pass;
        }
        if average.value >= self.max {
            average.count = -1;
            return Action::Forced;
        }
        average.count = average.count.saturating_add(1);
        if average.count == 0 {
            average.drawn = draws.u32() / self.slope;
            return Action::Pass;
        }
        let above = (average.value - self.min) >> self.curve.wlog;
        if above.saturating_mul(average.count as u64) < average.drawn.into() {
            return Action::Pass;
        }
        average.count = 0;
        average.drawn = draws.u32() / self.slope;
        Action::Early
    }

    /// Adaptive RED (Floyd, Gummadi and Shenker, 2001): brings the average, `value`, into the
    /// middle between the thresholds. To be called every half second.
    pub(crate) fn adapt(&mut self, value: u64) {
        let average = value >> self.curve.wlog;
        let fifth = u64::from(self.delta / 5);
        let min = u64::from(self.curve.min);
        if average > min + 3 * fifth && self.max_p <= 50 * PERCENT {
            self.max_p += PERCENT.min(self.max_p / 4);
        } else if average < min + 2 * fifth && self.max_p >= PERCENT {
            self.max_p = self.max_p / 10 * 9;
        }
        // Rounded to the nearest.
        let slope = (u64::from(self.max_p) + u64::from(self.delta / 2)) / u64::from(self.delta);
        self.slope = (slope as u32).max(1);
    }

    /// Nanoseconds after which a longer idle time makes no difference.
    pub(crate) fn longest_idle(&self) -> u64 {
        (255_u64 << self.curve.cell_log) * 1000
    }
}

/// When a queue became idle.
pub(crate) type IdleSince = Option<Time>;

/// The weight of a packet in the average for bursts of so many packets, as `tc` computes it
/// (`tc_red_eval_ewma`): `-log2` of it.
pub fn red_weight(min: u32, burst: u32, avpkt: u32) -> Option<u8> {
    let least = f64::from(burst) + 1.0 - f64::from(min) / f64::from(avpkt.max(1));
    if least < 1.0 {
        return None;
    }
    (1..32_u8).find(|&log| {
        let weight = 0.5_f64.powi(log.into());
        least <= (1.0 - (1.0 - weight).powi(burst.min(i32::MAX as u32) as i32)) / weight
    })
}

/// The power of 2 of the probability at `max` for each byte, as `tc` computes it
/// (`tc_red_eval_P`).
pub fn red_probability_log(min: u32, max: u32, probability: f64) -> Option<u8> {
    let delta = max.checked_sub(min)?;
    if delta == 0 {
        return Some(0);
    }
    let per_byte = probability / f64::from(delta);
    (0..32_u8).find(|&log| per_byte * 2_f64.powi(log.into()) > 1.0)
}

/// The table of idle times for packets of so many bytes at a rate in bytes a second, as `tc`
/// computes it (`tc_red_eval_idle_damping`), and the logarithm of its cells.
pub fn red_idle_table(wlog: u8, avpkt: u32, bandwidth: u64) -> Option<(u8, [u8; STAB])> {
    // A packet's time in ticks of 64 ns, as tc has it.
    let time = 1e6 * (f64::from(avpkt) / bandwidth.max(1) as f64);
    let ticks = (time as u32 as f64 * 15.625) as u32;
    let decay = -(1.0 - 1.0 / f64::from(1_u32.checked_shl(wlog.into())?)).ln() / f64::from(ticks);
    let longest = 31.0 / decay;
    let log = (0..32_u8).find(|&log| longest / 2_f64.powi(log.into()) < 512.0)?;
    let mut table = [0; STAB];
    for (index, shift) in table.iter_mut().enumerate().skip(1) {
        let halves = index as f64 * 2_f64.powi(log.into()) * decay;
        *shift = halves.min(31.0) as u8;
    }
    table[STAB - 1] = 31;
    Some((log, table))
}
