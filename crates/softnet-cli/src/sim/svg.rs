//! `--svg`: rate, delay and drops of each class over time, and the distribution of its sojourn,
//! on one page.

mod axis;

use std::fmt::Write as _;

use softnet_tc::sim::{ClassReport, Report};

use super::expect::escaped;
use super::series::{Point, Series};
use crate::classes;
use axis::{Axis, short};

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

/// A policy that is drawn.
struct Drawn<'a> {
    name: &'a str,
    lines: Vec<Line<'a>>,
    /// The end of its last point, in seconds.
    end: f64,
}

/// Axes of the plots. All policies have the same, so that people can compare them by eye.
struct Scales {
    seconds: Axis,
    rate: Axis,
    delay: Axis,
    drops: Axis,
    sojourn: Axis,
    /// The shortest delay and the shortest sojourn, ns.
    least: [f64; 2],
}

impl Scales {
    fn of(drawn: &[Drawn<'_>]) -> Scales {
        let lines = || drawn.iter().flat_map(|policy| policy.lines.iter());
        let points = || lines().flat_map(|line| line.points);
        let sent = || points().filter(|p| p.rate() > 0.0);
        let delays = || sent().map(|p| p.delay as f64);
        let buckets = || lines().flat_map(|line| line.report.times.buckets());
        let sojourns = || buckets().map(|(time, _)| time as f64);
        Scales {
            seconds: Axis::span(0.0, drawn.iter().map(|of| of.end).fold(0.0, f64::max)),
            rate: Axis::linear(points().map(Point::rate).fold(1.0, f64::max)),
            delay: Axis::decades(delays().filter(|&delay| delay > 0.0)),
            drops: Axis::linear(points().map(Point::drop_rate).fold(1.0, f64::max)),
            sojourn: Axis::decades(sojourns()),
            least: [
                delays().fold(f64::INFINITY, f64::min),
                sojourns().fold(f64::INFINITY, f64::min),
            ],
        }
    }
}

/// Draws policies, each with its name, what came of it and its points.
pub(super) fn draw(policies: &[(String, &Report, &Series)]) -> String {
    let drawn = policies.iter().map(|(name, report, series)| Drawn {
        name,
        lines: lines(report, series),
        end: series.end(),
    });
    let drawn: Vec<Drawn<'_>> = drawn.collect();
    let scales = Scales::of(&drawn);
    let high = HEIGHT * drawn.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {high}\" \
         width=\"{WIDTH}\" height=\"{high}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, drawn) in drawn.iter().enumerate() {
        let _ = writeln!(
            text,
            "<g transform=\"translate(0 {})\">",
            HEIGHT * number as f64
        );
        policy(&mut text, drawn, &scales);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn policy(text: &mut String, drawn: &Drawn<'_>, scales: &Scales) {
    let lines = &drawn.lines;
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"32\" font-size=\"17\">{}</text>",
        LEFT[0],
        escaped(drawn.name)
    );
    legend(text, lines);
    let seconds = |s: f64| short(s, "s");
    let mut rates = Plot {
        text,
        at: (LEFT[0], TOP[0]),
        x: scales.seconds,
        y: scales.rate,
    };
    rates.frame("Rate", seconds, |v| short(v, "bit/s"));
    for line in lines {
        let points = line.points.iter().map(|p| Some((p.middle(), p.rate())));
        rates.line(line.colour, points);
    }
    let mut delay = Plot {
        text,
        at: (LEFT[1], TOP[0]),
        x: scales.seconds,
        y: scales.delay,
    };
    let label = scales.delay.time(scales.least[0]);
    delay.frame("Sojourn, 99 of 100", seconds, label);
    for line in lines {
        let points = line.points.iter();
        let points = points.map(|p| (p.rate() > 0.0).then(|| (p.middle(), p.delay as f64)));
        delay.line(line.colour, points);
    }
    let mut drops = Plot {
        text,
        at: (LEFT[0], TOP[1]),
        x: scales.seconds,
        y: scales.drops,
    };
    drops.frame("Drops in a second", seconds, |v| short(v, ""));
    for line in lines {
        let points = line.points.iter();
        drops.line(
            line.colour,
            points.map(|p| Some((p.middle(), p.drop_rate()))),
        );
    }
    let mut shares = Plot {
        text,
        at: (LEFT[1], TOP[1]),
        x: scales.sojourn,
        y: Axis::span(0.0, 1.0),
    };
    let label = scales.sojourn.time(scales.least[1]);
    shares.frame("Share of the packets that stay no longer", label, |v| {
        format!("{:.0} %", v * 100.0)
    });
    for line in lines {
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
