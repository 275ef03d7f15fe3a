//! Scales of axes, and the numbers at them.

/// Scale of an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Axis {
    /// From zero to a round number.
    pub(super) fn linear(most: f64) -> Axis {
        let step = step(most);
        Axis {
            low: 0.0,
            high: (most / step).ceil().max(1.0) * step,
            is_log: false,
        }
    }

    /// From a time to a time, in seconds.
    pub(super) fn span(low: f64, high: f64) -> Axis {
        Axis {
            low,
            high: high.max(low + 1e-9),
            is_log: false,
        }
    }

    /// Powers of ten around times in nanoseconds, but not below a microsecond.
    pub(super) fn decades(times: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = times.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), time| {
            let time = time.max(1e3);
            (low.min(time), high.max(time))
        });
        let (low, high) = match high > 0.0 {
            true => (low.log10().floor(), high.log10().ceil()),
            false => (3.0, 6.0),
        };
        Axis {
            low: 10f64.powf(low),
            high: 10f64.powf(high.max(low + 1.0)),
            is_log: true,
        }
    }

    /// Place of a value, from 0 to 1.
    pub(super) fn part(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        };
        part.clamp(0.0, 1.0)
    }

    /// The label of a time in nanoseconds: shorter ones than the lowest are drawn there, too.
    pub(super) fn time(&self, least: f64) -> impl Fn(f64) -> String {
        let low = self.low;
        move |nanos| match nanos <= low && least < low {
            true => format!("≤ {}", time(nanos)),
            false => time(nanos),
        }
    }

    /// Values that have a label.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|n| self.low * 10f64.powi(n)).collect();
        }
        let step = step(self.high - self.low);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// A step of 1, 2 or 5 times a power of ten, of which four to ten make the span.
fn step(span: f64) -> f64 {
    let rough = span.max(1e-9) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps
        .into_iter()
        .find(|&s| s >= rough * 0.99)
        .unwrap_or(power)
}

/// A number with a prefix of its unit.
pub(super) fn short(value: f64, unit: &str) -> String {
    let (scale, prefix) = match value {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let number = (value / scale * 100.0).round() / 100.0;
    match unit {
        "" => format!("{number}{prefix}"),
        unit => format!("{number} {prefix}{unit}"),
    }
}

/// A time in nanoseconds.
fn time(nanos: f64) -> String {
    let (scale, unit) = match nanos {
        t if t >= 1e9 => (1e9, "s"),
        t if t >= 1e6 => (1e6, "ms"),
        t if t >= 1e3 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    format!("{} {unit}", (nanos / scale * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_in_round_numbers() {
        let axis = Axis::linear(47e6);
        assert_eq!((axis.low, axis.high), (0.0, 50e6));
        assert_eq!(axis.ticks().len(), 6);
        assert_eq!(axis.part(25e6), 0.5);
        let axis = Axis::decades([2e6, 3e8].into_iter());
        let labels: Vec<String> = axis.ticks().into_iter().map(time).collect();
        assert_eq!(labels, ["1 ms", "10 ms", "100 ms", "1 s"]);
        assert!((axis.part(1e7) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(axis.part(0.0), 0.0);
        let label = |least: f64, at: f64| axis.time(least)(at);
        assert_eq!(label(0.0, 1e6), "≤ 1 ms");
        assert_eq!(
            (label(2e6, 1e6), label(0.0, 1e7)),
            ("1 ms".into(), "10 ms".into())
        );
        assert_eq!(Axis::decades(std::iter::empty()).ticks().len(), 4);
        assert_eq!(
            Axis::span(0.0, 10.0).ticks(),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(12.5e6, "bit/s"), "12.5 Mbit/s");
        assert_eq!(
            (short(0.0, ""), short(2500.0, "")),
            ("0".into(), "2.5k".into())
        );
        assert_eq!((time(1e3), time(2.5e8)), ("1 µs".into(), "250 ms".into()));
    }
}
