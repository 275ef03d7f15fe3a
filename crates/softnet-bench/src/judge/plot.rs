//! Pictures: a file for each kind, with a panel for each set of the other parameters and a line
//! for each variant.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::results::{Params, Results, Row, param};
use crate::error::BenchError;
use crate::numbers::median;

/// Size of a panel.
const PANEL: (u32, u32) = (460, 340);
/// The legend: start and height of its rows, and the width of a line and a character.
const LEGEND: (i32, i32) = (60, 14);
const SWATCH: i32 = 14;
const CHARACTER: i32 = 6;
/// Points of a line that are marked, at most.
const MARKED: usize = 12;
/// Panels beside each other.
const ACROSS: usize = 3;

/// A figure over a parameter or another field.
struct Curve {
    experiment: &'static str,
    file: &'static str,
    /// A parameter or a field.
    x: &'static str,
    y: &'static str,
    y_title: &'static str,
    /// Values of `y` are divided by it.
    unit: f64,
    log_y: bool,
    /// Parameters by which panels differ not.
    along: &'static [&'static str],
    /// Rows with such a parameter are left to another picture.
    without: &'static [&'static str],
}

const CURVES: &[Curve] = &[
    Curve {
        experiment: "tx-adopt",
        file: "throughput",
        x: "threads",
        y: "mpps",
        y_title: "million packets/s",
        unit: 1.0,
        log_y: false,
        along: &["threads"],
        without: &["load"],
    },
    Curve {
        experiment: "tx-adopt",
        file: "latency",
        x: "offered_mpps",
        y: "latency_p999_ns",
        y_title: "latency 99.9 %, µs",
        unit: 1e3,
        log_y: true,
        along: &["load"],
        without: &[],
    },
    Curve {
        experiment: "nolock-qdisc",
        file: "throughput",
        x: "threads",
        y: "mpps",
        y_title: "million packets/s",
        unit: 1.0,
        log_y: false,
        along: &["threads"],
        without: &["load"],
    },
    Curve {
        experiment: "nolock-qdisc",
        file: "web",
        x: "connections",
        y: "rps",
        y_title: "thousand requests/s",
        unit: 1e3,
        log_y: false,
        along: &["connections"],
        without: &[],
    },
    Curve {
        experiment: "bulk-free",
        file: "cost",
        x: "bulk",
        y: "ns_per_packet",
        y_title: "ns per packet",
        unit: 1.0,
        log_y: true,
        along: &["bulk"],
        without: &[],
    },
    Curve {
        experiment: "defer-free",
        file: "cost",
        x: "bulk",
        y: "ns_per_packet",
        y_title: "ns per packet",
        unit: 1.0,
        log_y: true,
        along: &["bulk"],
        without: &[],
    },
    Curve {
        experiment: "backlog",
        file: "transactions",
        x: "flows",
        y: "tps",
        y_title: "thousand transactions/s",
        unit: 1e3,
        log_y: true,
        along: &["flows"],
        without: &[],
    },
    Curve {
        experiment: "all-cores",
        file: "throughput",
        x: "threads",
        y: "mpps",
        y_title: "million packets/s",
        unit: 1.0,
        log_y: false,
        along: &["threads", "queues"],
        without: &[],
    },
    Curve {
        experiment: "all-cores",
        file: "rate",
        x: "rate_mbps",
        y: "rate_error_percent",
        y_title: "error of the rate, %",
        unit: 1.0,
        log_y: false,
        along: &["rate_mbps"],
        without: &["leaf"],
    },
];

/// Histograms whose distributions are drawn, and the most panels of one file.
const DISTRIBUTIONS: &[(&str, &str)] = &[
    ("call_ns_log2", "call, ns"),
    ("sojourn_ns_log2", "sojourn, ns"),
    ("latency_ns_log2", "latency from the due time, ns"),
];

/// A line of a panel.
struct Line {
    variant: String,
    points: Vec<(f64, f64)>,
}

struct Panel {
    title: String,
    x_title: String,
    y_title: String,
    log: (bool, bool),
    /// Labels at the places 0, 1, … of an axis without numbers.
    places: Vec<String>,
    lines: Vec<Line>,
}

/// Draws what there is; the names of the files.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn draw(results: &Results, directory: &Path) -> Result<Vec<String>, BenchError> {
    std::fs::create_dir_all(directory)
        .map_err(|e| BenchError::io(format!("making {}", directory.display()), e))?;
    let mut pictures: Vec<(String, Vec<Panel>)> = Vec::new();
    let own = CURVES.iter().filter(|c| c.experiment == results.experiment);
    for curve in own {
        pictures.push((curve.file.to_owned(), curve.panels(results)));
    }
    for (field, title) in DISTRIBUTIONS {
        let file = format!("cdf-{}", field.trim_end_matches("_ns_log2"));
        pictures.push((file, distributions(results, field, title)));
    }
    let (mut drawn, colours) = (Vec::new(), colours(results));
    for (name, panels) in pictures {
        if panels.is_empty() {
            continue;
        }
        let file = format!("{}-{name}.svg", results.experiment);
        let path = directory.join(&file);
        picture(&path, &panels, &colours).map_err(|e| {
            let why = std::io::Error::other(e.to_string());
            BenchError::io(format!("drawing {}", path.display()), why)
        })?;
        drawn.push(file);
    }
    Ok(drawn)
}

/// The parameters by which panels differ.
fn others(params: &Params, along: &[&str]) -> Params {
    let other = |(name, _): &&(String, String)| !along.contains(&name.as_str());
    params.iter().filter(other).cloned().collect()
}

impl Curve {
    /// Each value of a parameter has its place on the axis.
    fn places(&self, results: &Results) -> Vec<String> {
        let mut values = results.each(|row| {
            let value: f64 = param(&row.params, self.x).parse().ok()?;
            let other = |name: &&str| param(&row.params, name) != "-";
            let shown = !self.without.iter().any(other);
            (shown && row.samples.contains_key(self.y)).then_some(value)
        });
        values.sort_by(f64::total_cmp);
        values.iter().map(f64::to_string).collect()
    }

    fn panels(&self, results: &Results) -> Vec<Panel> {
        let places = self.places(results);
        let x = |row: &Row| match row.samples.get(self.x) {
            Some(samples) => Some(median(samples)),
            None => {
                let place = places
                    .iter()
                    .position(|x| x == param(&row.params, self.x))?;
                Some(place as f64)
            }
        };
        let point = |row: &Row| {
            let y = median(row.samples.get(self.y)?) / self.unit;
            let other = |name: &&str| param(&row.params, name) != "-";
            let shown = (y > 0.0 || !self.log_y) && !self.without.iter().any(other);
            x(row).filter(|_| shown).map(|x| (x, y))
        };
        let sets = results.each(|row| point(row).map(|_| others(&row.params, self.along)));
        let panel = |set: Params| {
            let here = |row: &Row| others(&row.params, self.along) == set;
            let variants = results.each(|row| here(row).then_some(&row.variant));
            let line = |variant: &String| {
                let own = |row: &&Row| row.variant == *variant && here(row);
                let mut points: Vec<_> =
                    results.rows.iter().filter(own).filter_map(point).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Line {
                    variant: variant.clone(),
                    points,
                }
            };
            Panel {
                title: super::tables::cell_name(&set),
                x_title: self.x.to_owned(),
                y_title: self.y_title.to_owned(),
                log: (false, self.log_y),
                places: places.clone(),
                lines: variants
                    .into_iter()
                    .map(line)
                    .filter(|l| !l.points.is_empty())
                    .collect(),
            }
        };
        sets.into_iter()
            .map(panel)
            // One point is no curve.
            .filter(|panel| panel.lines.iter().any(|line| line.points.len() > 1))
            .collect()
    }
}

/// The part of the values that do not exceed each power of two, for each set of parameters.
fn distributions(results: &Results, field: &str, title: &str) -> Vec<Panel> {
    let counts = |row: &'_ Row| {
        row.histograms
            .get(field)
            .filter(|c| c.iter().any(|n| *n > 0))
            .cloned()
    };
    // Of chains, of many queues and of calls at a given load the table has the percentiles.
    let plain = |row: &Row| {
        let own = field != "call_ns_log2" || param(&row.params, "load") == "-";
        own && ["1", "-"].contains(&param(&row.params, "bulk"))
            && param(&row.params, "queues") == "-"
    };
    let sets = results.each(|row| {
        let shown = plain(row) && counts(row).is_some();
        shown.then(|| row.params.clone())
    });
    let panel = |set: Params| {
        let line = |row: &Row| {
            let counts = counts(row)?;
            let total: u64 = counts.iter().sum();
            let mut seen = 0;
            let points = counts.iter().enumerate().map(|(power, count)| {
                seen += count;
                (2_f64.powi(power as i32 + 1), seen as f64 / total as f64)
            });
            Some(Line {
                variant: row.variant.clone(),
                points: points.filter(|(_, part)| *part > 0.0).collect(),
            })
        };
        let here = results.rows.iter().filter(|row| row.params == set);
        Panel {
            title: super::tables::cell_name(&set),
            x_title: title.to_owned(),
            y_title: "part of the values".to_owned(),
            log: (true, false),
            places: Vec::new(),
            lines: here.filter_map(line).collect(),
        }
    };
    sets.into_iter().map(panel).collect()
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn picture(path: &Path, panels: &[Panel], colours: &[(String, RGBColor)]) -> Drawn {
    let across = panels.len().min(ACROSS);
    let down = panels.len().div_ceil(across);
    let size = (PANEL.0 * across as u32, PANEL.1 * down as u32);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    for (panel, area) in panels.iter().zip(area.split_evenly((down, across))) {
        self::panel(&area, panel, colours)?;
    }
    area.present()
}

/// Every variant has one colour in all pictures.
fn colours(results: &Results) -> Vec<(String, RGBColor)> {
    let names = results.each(|row| Some(&row.variant));
    let colour = |(index, name): (usize, &String)| {
        let (r, g, b) = Palette99::pick(index).to_rgba().rgb();
        (name.clone(), RGBColor(r, g, b))
    };
    names.into_iter().enumerate().map(colour).collect()
}

/// From the least to the greatest, with some room.
fn range(values: impl Iterator<Item = f64>, log: bool) -> std::ops::Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if log {
        low / 1.3..high * 1.3
    } else {
        0.0..high * 1.08
    }
}

fn colour_of(colours: &[(String, RGBColor)], variant: &str) -> RGBColor {
    let found = colours.iter().find(|(name, _)| name == variant);
    found.map_or(BLACK, |(_, colour)| *colour)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Names the lines in rows above the axes, where no data is; the rest of the area.
fn legend<'a>(
    area: &Area<'a>,
    lines: &[Line],
    colours: &[(String, RGBColor)],
) -> Result<Area<'a>, DrawingAreaErrorKind<std::io::Error>> {
    let (left, height) = LEGEND;
    let width = area.dim_in_pixel().0 as i32;
    let (mut x, mut y) = (left, height / 2);
    let mut places = Vec::new();
    for line in lines {
        let needed = 2 * SWATCH + CHARACTER * line.variant.chars().count() as i32;
        if x > left && x + needed > width {
            (x, y) = (left, y + height);
        }
        places.push((x, y));
        x += needed;
    }
    let (rows, rest) = area.split_vertically(y + height / 2);
    for (line, (x, y)) in lines.iter().zip(places) {
        let stroke = colour_of(colours, &line.variant).stroke_width(2);
        rows.draw(&PathElement::new([(x, y), (x + SWATCH, y)], stroke))?;
        let name = line.variant.clone();
        let at = (x + SWATCH + 4, y - height / 2 + 2);
        rows.draw(&Text::new(name, at, ("sans-serif", 10)))?;
    }
    Ok(rest)
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    panel: &Panel,
    colours: &[(String, RGBColor)],
) -> Drawn {
    let points = || {
        panel
            .lines
            .iter()
            .flat_map(|line| line.points.iter().copied())
    };
    let (log_x, log_y) = panel.log;
    let y = range(points().map(|(_, y)| y), log_y);
    let x = match panel.places.len() {
        0 => range(points().map(|(x, _)| x), log_x),
        places => -0.4..places as f64 - 0.6,
    };
    let area = area.titled(&panel.title, ("sans-serif", 13))?;
    let area = legend(&area, &panel.lines, colours)?;
    let mut builder = ChartBuilder::on(&area);
    builder
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(60);
    let place = |x: &f64| match panel.places.is_empty() {
        true => format!("{x}"),
        false => {
            let whole = (x.round() - x).abs() < 1e-6;
            let place = panel.places.get(x.round().max(0.0) as usize);
            place.filter(|_| whole).cloned().unwrap_or_default()
        }
    };
    // The kinds of axes are types.
    macro_rules! chart {
        ($x:expr, $y:expr) => {{
            let mut chart = builder.build_cartesian_2d($x, $y)?;
            chart
                .configure_mesh()
                .x_desc(&panel.x_title)
                .y_desc(&panel.y_title)
                .label_style(("sans-serif", 11))
                .axis_desc_style(("sans-serif", 12))
                .light_line_style(WHITE)
                .x_labels(10)
                .x_label_formatter(&place)
                .y_labels(6)
                .draw()?;
            for line in &panel.lines {
                let colour = colour_of(colours, &line.variant);
                let points = line.points.iter().copied();
                let size = if points.len() > MARKED { 0 } else { 2 };
                let series = LineSeries::new(points, colour.stroke_width(2));
                chart.draw_series(series.point_size(size))?;
            }
        }};
    }
    match (log_x, log_y) {
        (true, _) => chart!(x.log_scale(), y),
        (_, true) => chart!(x, y.log_scale()),
        (_, false) => chart!(x, y),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::Collector;

    #[test]
    fn curves_and_distributions_are_drawn_with_every_variant() {
        let mut results = Collector::default();
        for variant in ["softnet", "mutex"] {
            for threads in [1, 2, 8] {
                let params = [("threads", json!(threads)), ("qdisc", json!("pfifo"))];
                results.add(variant, &params, &[("mpps", 10.0 / f64::from(threads))]);
                results.add_histogram(variant, &params, "mpps", "call_ns_log2", &[0, 5, 9, 1]);
            }
        }
        let read = Results::parse(&results.report("tx-adopt")).expect("it is a report");
        let directory =
            std::env::temp_dir().join(format!("softnet-bench-plot-{}", std::process::id()));
        let drawn = draw(&read, &directory).expect("the temporary directory is writable");
        assert_eq!(drawn, ["tx-adopt-throughput.svg", "tx-adopt-cdf-call.svg"]);
        for file in drawn {
            let svg = std::fs::read_to_string(directory.join(file)).expect("it was drawn");
            assert!(svg.starts_with("<svg") && svg.contains("polyline"));
            assert!(svg.contains("mutex") && svg.contains("softnet"));
            // The legend is above all data, so that it hides none.
            let number = |text: &str| text.parse::<f64>().expect("a number");
            let attribute = |element: &str, name: &str| {
                let rest = element.split_once(name).expect("the attribute").1;
                rest.split('"').next().expect("its value").to_owned()
            };
            let texts = svg.split("<text ").skip(1);
            let legend = texts.filter(|text| text.contains("\nmutex\n"));
            let lowest = legend.map(|text| number(&attribute(text, " y=\"")));
            let lowest = lowest.reduce(f64::max).expect("a legend");
            for line in svg.split("<polyline ").skip(1) {
                let points = attribute(line, "points=\"");
                let ys: Vec<_> = points
                    .split_whitespace()
                    .map(|p| p.split_once(','))
                    .collect();
                // Axes and the legend have two points.
                let data = ys.len() > 2;
                let high = |y: Option<(&str, &str)>| number(y.expect("x,y").1) > lowest;
                assert!(!data || ys.into_iter().all(high), "{points}");
            }
        }
        std::fs::remove_dir_all(&directory).expect("it was made above");
    }
}
