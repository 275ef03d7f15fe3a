//! `--svg`: rate, delay and drops of each class over time, and the distribution of its sojourn,
//! on one page.

use std::fmt::Write as _;

use softnet_tc::sim::{ClassReport, Report};

use super::expect::escaped;
use super::series::{Point, Series};
use crate::classes;

const WIDTH: f64 = 1120.0;
/// Height of what belongs to one policy.
const HEIGHT: f64 = 700.0;
/// A plot, without its labels.
const PLOT: (f64, f64) = (440.0, 220.0);
/// Left and upper edges of the four plots.
const LEFT: [f64; 2] = [90.0, 640.0];
const TOP: [f64; 2] = [110.0, 410.0];
/// Colours that everybody can tell apart (Okabe and Ito, and two more); the root is grey.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933",
];
const GREY: &str = "#888888";

/// Scale of an axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Axis {
    /// From zero to a round number.
    fn linear(most: f64) -> Axis {
        let step = step(most);
        Axis {
            low: 0.0,
            high: (most / step).ceil().max(1.0) * step,
            is_log: false,
        }
    }

    /// From a time to a time, in seconds.
    fn span(low: f64, high: f64) -> Axis {
        Axis {
            low,
            high: high.max(low + 1e-9),
            is_log: false,
        }
    }

    /// Powers of ten around times in nanoseconds, but not below a microsecond.
    fn decades(times: impl Iterator<Item = f64>) -> Axis {
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
    fn part(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        };
        part.clamp(0.0, 1.0)
    }

    /// The label of a time in nanoseconds: shorter ones than the lowest are drawn there, too.
    fn time(&self, least: f64) -> impl Fn(f64) -> String {
        let low = self.low;
        move |nanos| match nanos <= low && least < low {
            true => format!("≤ {}", time(nanos)),
            false => time(nanos),
        }
    }

    /// Values that have a label.
    fn ticks(&self) -> Vec<f64> {
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
fn short(value: f64, unit: &str) -> String {
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

/// A class that is drawn.
struct Line<'a> {
    report: &'a ClassReport,
    points: &'a [Point],
    colour: &'static str,
}

/// The root, and the classes that sent or dropped most.
fn lines<'a>(report: &'a Report, series: &'a Series) -> Vec<Line<'a>> {
    let weight = |class: &ClassReport| (class.stats.bytes, class.drops.len());
    let mut below: Vec<&ClassReport> = report.classes.iter().skip(1).collect();
    below.retain(|class| weight(class) != (0, 0));
    below.sort_by_key(|class| std::cmp::Reverse(weight(class)));
    below.truncate(COLOURS.len());
    below.sort_by_key(|class| class.class);
    let root = report.classes.first().into_iter();
    let coloured = root
        .map(|root| (root, GREY))
        .chain(below.into_iter().zip(COLOURS));
    coloured
        .map(|(report, colour)| Line {
            report,
            points: series.of(report.class),
            colour,
        })
        .collect()
}

/// A plot on the page.
struct Plot<'a> {
    text: &'a mut String,
    at: (f64, f64),
    x: Axis,
    y: Axis,
}

impl Plot<'_> {
    /// Draws title, grid and labels.
    fn frame(&mut self, title: &str, x: impl Fn(f64) -> String, y: impl Fn(f64) -> String) {
        let ((left, top), (wide, high)) = (self.at, PLOT);
        let _ = writeln!(
            self.text,
            "<text x=\"{left}\" y=\"{:.1}\" font-weight=\"bold\">{title}</text>",
            top - 10.0
        );
        for tick in self.y.ticks() {
            let at = top + high * (1.0 - self.y.part(tick));
            let _ = writeln!(
                self.text,
                "<path d=\"M{left} {at:.1}h{wide}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                at + 4.0,
                y(tick)
            );
        }
        for tick in self.x.ticks() {
            let at = left + wide * self.x.part(tick);
            let _ = writeln!(
                self.text,
                "<path d=\"M{at:.1} {top}v{high}\" stroke=\"#f2f2f2\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                top + high + 18.0,
                x(tick)
            );
        }
        let _ = writeln!(
            self.text,
            "<path d=\"M{left} {top}v{high}h{wide}\" fill=\"none\" stroke=\"#333\"/>"
        );
    }

    /// Draws a line; `None` interrupts it.
    fn line(&mut self, colour: &str, points: impl Iterator<Item = Option<(f64, f64)>>) {
        let ((left, top), (wide, high)) = (self.at, PLOT);
        let mut path = String::new();
        let mut pen = 'M';
        for point in points {
            let Some((x, y)) = point else {
                pen = 'M';
                continue;
            };
            let x = left + wide * self.x.part(x);
            let y = top + high * (1.0 - self.y.part(y));
            let _ = write!(path, "{pen}{x:.1} {y:.1}");
            pen = 'L';
        }
        let wide = if colour == GREY { 2.5 } else { 1.4 };
        let _ = writeln!(
            self.text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{wide}\" \
             stroke-linecap=\"round\" stroke-linejoin=\"round\"/>"
        );
    }
}

/// Draws policies, each with its name, what came of it and its points.
pub(super) fn draw(policies: &[(String, &Report, &Series)]) -> String {
    let high = HEIGHT * policies.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {high}\" \
         width=\"{WIDTH}\" height=\"{high}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, (name, report, series)) in policies.iter().enumerate() {
        let _ = writeln!(
            text,
            "<g transform=\"translate(0 {})\">",
            HEIGHT * number as f64
        );
        policy(&mut text, name, report, series);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn policy(text: &mut String, name: &str, report: &Report, series: &Series) {
    let lines = lines(report, series);
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"32\" font-size=\"17\">{}</text>",
        LEFT[0],
        escaped(name)
    );
    legend(text, &lines);
    let all = || lines.iter().flat_map(|line| line.points);
    let over_time = Axis::span(0.0, series.end());
    let seconds = |s: f64| short(s, "s");
    let mut rates = Plot {
        text,
        at: (LEFT[0], TOP[0]),
        x: over_time,
        y: Axis::linear(all().map(Point::rate).fold(1.0, f64::max)),
    };
    rates.frame("Rate", seconds, |v| short(v, "bit/s"));
    for line in &lines {
        let points = line.points.iter().map(|p| Some((p.middle(), p.rate())));
        rates.line(line.colour, points);
    }
    let sent = all().filter(|p| p.rate() > 0.0);
    let delays = sent.map(|p| p.delay as f64);
    let y = Axis::decades(delays.clone().filter(|&delay| delay > 0.0));
    let label = y.time(delays.fold(f64::INFINITY, f64::min));
    let mut delay = Plot {
        text,
        at: (LEFT[1], TOP[0]),
        x: over_time,
        y,
    };
    delay.frame("Sojourn, 99 of 100", seconds, label);
    for line in &lines {
        let points = line.points.iter();
        let points = points.map(|p| (p.rate() > 0.0).then(|| (p.middle(), p.delay as f64)));
        delay.line(line.colour, points);
    }
    let mut drops = Plot {
        text,
        at: (LEFT[0], TOP[1]),
        x: over_time,
        y: Axis::linear(all().map(Point::drop_rate).fold(1.0, f64::max)),
    };
    drops.frame("Drops in a second", seconds, |v| short(v, ""));
    for line in &lines {
        let points = line.points.iter();
        drops.line(
            line.colour,
            points.map(|p| Some((p.middle(), p.drop_rate()))),
        );
    }
    let buckets = || lines.iter().flat_map(|line| line.report.times.buckets());
    let times = || buckets().map(|(time, _)| time as f64);
    let x = Axis::decades(times());
    let label = x.time(times().fold(f64::INFINITY, f64::min));
    let mut shares = Plot {
        text,
        at: (LEFT[1], TOP[1]),
        x,
        y: Axis::span(0.0, 1.0),
    };
    shares.frame("Share of the packets that stay no longer", label, |v| {
        format!("{:.0} %", v * 100.0)
    });
    for line in &lines {
        let frames = line.report.sojourn.frames.max(1) as f64;
        let mut seen = 0;
        let steps = line.report.times.buckets().flat_map(|(time, n)| {
            let before = seen as f64 / frames;
            seen += n;
            let time = time as f64;
            [Some((time, before)), Some((time, seen as f64 / frames))]
        });
        shares.line(line.colour, steps);
    }
}

fn legend(text: &mut String, lines: &[Line<'_>]) {
    // Five columns.
    for (number, line) in lines.iter().enumerate() {
        let x = LEFT[0] + 198.0 * (number % 5) as f64;
        let y = 56.0 + 18.0 * (number / 5) as f64;
        let class = line.report.class.to_string();
        let qdisc = match line.report.kind {
            "none" => String::new(),
            kind => format!(" ({})", classes::name(kind, line.report.qdisc)),
        };
        let _ = writeln!(
            text,
            "<path d=\"M{x} {y}h18\" stroke=\"{}\" stroke-width=\"3\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            line.colour,
            x + 24.0,
            y + 4.0,
            escaped(&(class + &qdisc))
        );
    }
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
