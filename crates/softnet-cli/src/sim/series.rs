//! Rates, delays and drops of classes over time, in at most so many points as a picture has.

use std::collections::BTreeMap;

use softnet::time::Time;
use softnet_tc::Handle;
use softnet_tc::sim::Window;

use super::expect::LEAST_WINDOW;

/// Points of a series. Beyond that, two become one.
const POINTS: usize = 600;

/// Part of the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point {
    pub(super) from: Time,
    pub(super) until: Time,
    /// Bits that left.
    pub(super) bits: f64,
    /// The longest 99th percentile of the sojourn in a window, ns; 0 if nothing left.
    pub(super) delay: u64,
    /// Packets dropped.
    pub(super) drops: u64,
}

impl Point {
    fn seconds(&self) -> f64 {
        self.until.since(self.from).as_secs_f64().max(1e-9)
    }

    /// The middle of it, in seconds.
    pub(super) fn middle(&self) -> f64 {
        (self.from.0 as f64 + self.until.0 as f64) / 2e9
    }

    /// Bits per second.
    pub(super) fn rate(&self) -> f64 {
        self.bits / self.seconds()
    }

    /// Packets dropped per second.
    pub(super) fn drop_rate(&self) -> f64 {
        self.drops as f64 / self.seconds()
    }

    fn with(self, next: Point) -> Point {
        Point {
            from: self.from,
            until: next.until,
            bits: self.bits + next.bits,
            delay: self.delay.max(next.delay),
            drops: self.drops + next.drops,
        }
    }
}

/// The points of each class.
#[derive(Debug, Default)]
pub(super) struct Series(BTreeMap<Handle, Vec<Point>>);

impl Series {
    /// Adds a window. The last one may be of a nanosecond, and is then part of the one before.
    pub(super) fn add(&mut self, window: &Window) {
        let is_part = window.until.since(window.from).as_nanos() < LEAST_WINDOW.into();
        for class in &window.classes {
            let point = Point {
                from: window.from,
                until: window.until,
                bits: class.stats.bytes as f64 * 8.0,
                delay: class.sojourn.p99,
                drops: class.drops.iter().map(|&(_, n)| n).sum(),
            };
            self.push(class.class, point, is_part);
        }
    }

    fn push(&mut self, class: Handle, point: Point, is_part: bool) {
        let points = self.0.entry(class).or_default();
        match points.last_mut() {
            Some(last) if is_part => *last = last.with(point),
            _ => points.push(point),
        }
        if points.len() > POINTS {
            let pairs = points.chunks(2).map(|two| two.iter().copied());
            *points = pairs.filter_map(|two| two.reduce(Point::with)).collect();
        }
    }

    /// The points of a class.
    pub(super) fn of(&self, class: Handle) -> &[Point] {
        self.0.get(&class).map_or(&[], Vec::as_slice)
    }

    /// The end of the last point, in seconds.
    pub(super) fn end(&self) -> f64 {
        let ends = self.0.values().filter_map(|points| points.last());
        ends.map(|point| point.until.0 as f64 / 1e9)
            .fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_join_where_there_are_too_many() {
        let mut series = Series::default();
        let second = 1_000_000_000;
        for n in 0..=POINTS as u64 {
            let point = Point {
                from: Time(n * second),
                until: Time((n + 1) * second),
                bits: 8.0,
                delay: n,
                drops: 1,
            };
            series.push(Handle::ROOT, point, false);
        }
        let points = series.of(Handle::ROOT);
        assert_eq!(points.len(), POINTS / 2 + 1);
        assert_eq!((points[0].rate(), points[0].drop_rate()), (8.0, 1.0));
        assert_eq!((points[1].delay, points[1].middle()), (3, 3.0));
        assert_eq!(points.iter().map(|point| point.drops).sum::<u64>(), 601);
        assert_eq!(series.end(), 601.0);
        assert!(series.of(Handle::NONE).is_empty());
        let rest = Point {
            from: Time(601 * second),
            until: Time(601 * second + 1),
            bits: 8.0,
            ..Point::default()
        };
        series.push(Handle::ROOT, rest, true);
        let rates = series.of(Handle::ROOT).iter().map(Point::rate);
        assert!(rates.fold(0.0, f64::max) < 17.0);
    }
}
