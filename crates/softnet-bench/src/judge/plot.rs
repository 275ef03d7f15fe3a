//! Pictures: a file for each kind, with a panel for each set of the other parameters and a line
//! for each variant.

use std::fmt::Write as _;
use std::path::Path;

use super::results::{Params, Results, Row, param};
use super::tables::{cell_name, figure};
use crate::error::BenchError;
use crate::numbers::median;

/// Size of a panel, and the space in it to the left of the axes and below.
const PANEL: (f64, f64) = (460.0, 340.0);
const MARGIN: (f64, f64) = (60.0, 40.0);
/// Panels beside each other.
const ACROSS: usize = 3;
/// Height of a line of text, and the width of a character of it.
const TEXT: (f64, f64) = (14.0, 6.0);
/// Labels of the vertical axis.
const LABELS: usize = 6;
const COLOURS: [&str; 12] = [
    "#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000",
    "#000075", "#f032e6", "#808080", "#42a5c6",
];

/// A figure over a parameter or another field.
struct Curve {
    /// Experiment, and file.
    of: (&'static str, &'static str),
    /// A parameter or a field, and a field.
    axes: (&'static str, &'static str),
    /// Title of the field; its values are divided by the unit; whether its axis is logarithmic.
    title: (&'static str, f64, bool),
    /// Parameters by which panels differ not.
    along: &'static [&'static str],
    /// Rows with such a parameter are left to another picture.
    without: &'static [&'static str],
}

#[rustfmt::skip] // A table.
const CURVES: &[Curve] = &[
    Curve { of: ("tx-adopt", "throughput"), axes: ("threads", "mpps"),
        title: ("million packets/s", 1.0, false), along: &["threads"], without: &["load"] },
    Curve { of: ("tx-adopt", "latency"), axes: ("offered_mpps", "latency_p999_ns"),
        title: ("latency 99.9 %, µs", 1e3, true), along: &["load"], without: &[] },
    Curve { of: ("nolock-qdisc", "throughput"), axes: ("threads", "mpps"),
        title: ("million packets/s", 1.0, false), along: &["threads"], without: &["load"] },
    Curve { of: ("nolock-qdisc", "web"), axes: ("connections", "rps"),
        title: ("thousand requests/s", 1e3, false), along: &["connections"], without: &[] },
    Curve { of: ("bulk-free", "cost"), axes: ("bulk", "ns_per_packet"),
        title: ("ns per packet", 1.0, true), along: &["bulk"], without: &[] },
    Curve { of: ("defer-free", "cost"), axes: ("bulk", "ns_per_packet"),
        title: ("ns per packet", 1.0, true), along: &["bulk"], without: &[] },
    Curve { of: ("backlog", "transactions"), axes: ("flows", "tps"),
        title: ("thousand transactions/s", 1e3, true), along: &["flows"], without: &[] },
    Curve { of: ("all-cores", "throughput"), axes: ("threads", "mpps"),
        title: ("million packets/s", 1.0, false), along: &["threads", "queues"], without: &[] },
    Curve { of: ("all-cores", "rate"), axes: ("rate_mbps", "rate_error_percent"),
        title: ("error of the rate, %", 1.0, false), along: &["rate_mbps"], without: &["leaf"] },
];

/// A variant's points.
type Line<'a> = (&'a str, Vec<(f64, f64)>);

struct Panel<'a> {
    title: String,
    /// Labels at the places 0, 1, … of an axis without numbers.
    places: Vec<String>,
    lines: Vec<Line<'a>>,
}

/// Draws what there is; the names of the files.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn draw(results: &Results, directory: &Path) -> Result<Vec<String>, BenchError> {
    let failed = |path: &Path| {
        let doing = format!("writing {}", path.display());
        |e| BenchError::io(doing, e)
    };
    std::fs::create_dir_all(directory).map_err(failed(directory))?;
    // Every variant has one colour in all pictures.
    let variants = results.each(|row| Some(row.variant.as_str()));
    let mut drawn = Vec::new();
    for curve in CURVES {
        let panels = curve.panels(results);
        if curve.of.0 != results.experiment || panels.is_empty() {
            continue;
        }
        let file = format!("{}-{}.svg", results.experiment, curve.of.1);
        let path = directory.join(&file);
        std::fs::write(&path, curve.picture(&panels, &variants)).map_err(failed(&path))?;
        drawn.push(file);
    }
    Ok(drawn)
}

impl Curve {
    fn shows(&self, row: &Row) -> bool {
        let other = |name: &&str| param(&row.params, name) != "-";
        row.samples.contains_key(self.axes.1) && !self.without.iter().any(other)
    }

    /// Each value of a parameter has its place on the axis.
    fn places(&self, results: &Results) -> Vec<String> {
        let value = |row: &Row| param(&row.params, self.axes.0).parse::<f64>().ok();
        let mut values = results.each(|row| value(row).filter(|_| self.shows(row)));
        values.sort_by(f64::total_cmp);
        values.iter().map(f64::to_string).collect()
    }

    fn panels<'a>(&self, results: &'a Results) -> Vec<Panel<'a>> {
        let places = self.places(results);
        let point = |row: &Row| {
            let x = match row.samples.get(self.axes.0) {
                Some(samples) => median(samples),
                None => {
                    let at = param(&row.params, self.axes.0);
                    places.iter().position(|place| place == at)? as f64
                }
            };
            let y = median(row.samples.get(self.axes.1)?) / self.title.1;
            let shown = self.shows(row) && y.is_finite() && (y > 0.0 || !self.title.2);
            shown.then_some((x, y))
        };
        let others = |row: &Row| -> Params {
            let other = |(name, _): &&(String, String)| !self.along.contains(&name.as_str());
            row.params.iter().filter(other).cloned().collect()
        };
        let panel = |set: Params| {
            let variants = results.each(|row| (others(row) == set).then_some(&row.variant));
            let line = |variant: &'a String| {
                let own = |row: &&Row| row.variant == *variant && others(row) == set;
                let mut points: Vec<_> =
                    results.rows.iter().filter(own).filter_map(point).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                (variant.as_str(), points)
            };
            let lines = variants.into_iter().map(line);
            Panel {
                title: cell_name(&set),
                places: places.clone(),
                lines: lines.filter(|line| !line.1.is_empty()).collect(),
            }
        };
        let sets = results.each(|row| point(row).map(|_| others(row)));
        let panels = sets.into_iter().map(panel);
        // One point is no curve.
        panels
            .filter(|panel| panel.lines.iter().any(|line| line.1.len() > 1))
            .collect()
    }

    fn picture(&self, panels: &[Panel<'_>], variants: &[&str]) -> String {
        let across = panels.len().min(ACROSS);
        let (width, height) = (
            PANEL.0 * across as f64,
            PANEL.1 * panels.len().div_ceil(across) as f64,
        );
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
        );
        for (number, panel) in panels.iter().enumerate() {
            let at = [number % across, number / across].map(|n| n as f64);
            let _ = writeln!(
                svg,
                "<g transform=\"translate({},{})\">",
                at[0] * PANEL.0,
                at[1] * PANEL.1
            );
            self.panel(&mut svg, panel, variants);
            svg.push_str("</g>\n");
        }
        svg + "</svg>\n"
    }

    fn panel(&self, svg: &mut String, panel: &Panel<'_>, variants: &[&str]) {
        let text = |svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str| {
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
            );
        };
        text(svg, (PANEL.0 / 2.0, TEXT.0), "middle", &panel.title);
        // Names of the lines in rows above the axes, where no data is.
        let (mut x, mut y) = (MARGIN.0, 2.0 * TEXT.0);
        let colour = |name: &str| {
            let at = variants.iter().position(|variant| *variant == name);
            COLOURS[at.unwrap_or(0) % COLOURS.len()]
        };
        for (name, _) in &panel.lines {
            let needed = 2.0 * TEXT.0 + TEXT.1 * name.len() as f64;
            if x > MARGIN.0 && x + needed > PANEL.0 {
                (x, y) = (MARGIN.0, y + TEXT.0);
            }
            let fill = colour(name);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"3\" fill=\"{fill}\"/>",
                y - 5.0
            );
            text(svg, (x + TEXT.0, y), "start", name);
            x += needed;
        }
        let (top, bottom) = (y + TEXT.0, PANEL.1 - MARGIN.1);
        let (left, right) = (MARGIN.0, PANEL.0 - 10.0);
        let points = || panel.lines.iter().flat_map(|line| &line.1);
        let range = |of: fn(&(f64, f64)) -> f64| {
            let low = points().map(of).fold(f64::INFINITY, f64::min);
            (low, points().map(of).fold(f64::NEG_INFINITY, f64::max))
        };
        let scale = |y: f64| if self.title.2 { y.ln() } else { y };
        let (low, high) = match (range(|point| point.1), self.title.2) {
            ((low, high), true) => (low / 1.3, high * 1.3),
            ((_, high), false) => (0.0, high.max(1e-9) * 1.08),
        };
        let (first, last) = match panel.places.len() {
            0 => (0.0, range(|point| point.0).1 * 1.08),
            places => (-0.4, places as f64 - 0.6),
        };
        let across = |x: f64| left + (x - first) / (last - first).max(1e-9) * (right - left);
        let up = |part: f64| bottom - part * (bottom - top);
        let part = |y: f64| (scale(y) - scale(low)) / (scale(high) - scale(low));
        let _ = writeln!(
            svg,
            "<path d=\"M{left},{top:.1}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>"
        );
        for label in 0..LABELS {
            let at = label as f64 / (LABELS - 1) as f64;
            let value = scale(low) + at * (scale(high) - scale(low));
            let value = if self.title.2 { value.exp() } else { value };
            text(svg, (left - 4.0, up(at) + 4.0), "end", &figure(value));
        }
        let mut label = |x: f64, name: &str| {
            text(svg, (across(x), bottom + TEXT.0), "middle", name);
        };
        match &panel.places[..] {
            [] => [first, last / 2.0, last]
                .iter()
                .for_each(|&x| label(x, &figure(x))),
            places => (0..)
                .zip(places)
                .for_each(|(x, name)| label(f64::from(x), name)),
        }
        let below = ((left + right) / 2.0, PANEL.1 - TEXT.0 / 2.0);
        text(svg, below, "middle", self.axes.0);
        text(svg, (4.0, top - 4.0), "start", self.title.0);
        for (name, points) in &panel.lines {
            let stroke = colour(name);
            let at: Vec<_> = points
                .iter()
                .map(|&(x, y)| format!("{:.1},{:.1}", across(x), up(part(y))))
                .collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\"/>",
                at.join(" ")
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::Collector;

    #[test]
    fn curves_are_drawn_with_every_variant() {
        let mut results = Collector::default();
        for variant in ["softnet", "mutex"] {
            for threads in [1, 2, 8] {
                let params = [("threads", json!(threads)), ("qdisc", json!("pfifo"))];
                results.add(variant, &params, &[("mpps", 10.0 / f64::from(threads))]);
            }
        }
        let read = Results::parse(&results.report("tx-adopt")).expect("it is a report");
        let directory =
            std::env::temp_dir().join(format!("softnet-bench-plot-{}", std::process::id()));
        let drawn = draw(&read, &directory).expect("the temporary directory is writable");
        assert_eq!(drawn, ["tx-adopt-throughput.svg"]);
        let svg = std::fs::read_to_string(directory.join(&drawn[0])).expect("it was drawn");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        let heights = |mark: &str| -> Vec<f64> {
            let lines = svg.lines().filter(|line| line.contains(mark));
            let points = lines.flat_map(|line| line.split('"').nth(1).map(str::split_whitespace));
            let y = |point: &str| point.split_once(',')?.1.parse().ok();
            points.flatten().filter_map(y).collect()
        };
        // 10, 5 and 1.25 of 10.8, each the same for both.
        let drawn = heights("<polyline");
        assert_eq!(drawn.len(), 6);
        assert_eq!(drawn[..3], drawn[3..]);
        assert!(drawn[0] < drawn[1] && drawn[1] < drawn[2]);
        // The legend is above all data, so that it hides none.
        for name in ["softnet", "mutex"] {
            let entry = format!(">{name}</text>");
            let line = svg.lines().find(|line| line.ends_with(&entry)).expect(name);
            let y: f64 = line
                .split('"')
                .nth(3)
                .and_then(|y| y.parse().ok())
                .expect(name);
            assert!(drawn.iter().all(|point| *point > y), "{line}");
        }
        std::fs::remove_dir_all(&directory).expect("it was made above");
    }
}
