//! Pings over time as an SVG picture: a line for each qdisc, times on a logarithmic axis.

use std::fmt::Write as _;
use std::time::Duration;

/// Time at which a ping was sent, from the start, and its round trip.
pub(super) type Point = (Duration, Duration);

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
/// Around the lines: left, top, right and bottom.
const MARGINS: [f64; 4] = [92.0, 40.0, 90.0, 48.0];
const COLOURS: [&str; 3] = ["#c0392b", "#1f618d", "#1e8449"];

/// Draws the pings of each, which took `length`.
pub(super) fn draw(title: &str, traces: &[(&str, Vec<Point>)], length: Duration) -> String {
    let [left, top, right, bottom] = MARGINS;
    let (wide, high) = (WIDTH - left - right, HEIGHT - top - bottom);
    let (low, up) = decades(traces);
    let x = |at: Duration| left + wide * (at.as_secs_f64() / length.as_secs_f64()).min(1.0);
    let y = |ms: f64| top + high * (f64::from(up) - ms.log10()) / f64::from(up - low);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
    for decade in low..=up {
        let (ms, at) = (10f64.powi(decade), y(10f64.powi(decade)));
        let _ = write!(
            text,
            "<path d=\"M{left} {at:.1}h{wide}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>\n",
            left - 8.0,
            at + 4.0
        );
    }
    for part in 0..=4 {
        let at = length * part / 4;
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(at),
            top + high + 18.0,
            (at.as_secs_f64() * 100.0).round() / 100.0
        );
    }
    let _ = write!(
        text,
        "<path d=\"M{left} {top}v{high}h{wide}\" fill=\"none\" stroke=\"#333\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">seconds of TCP</text>\n\
         <text x=\"16\" y=\"{:.1}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 16 {:.1})\">round trip</text>\n",
        left + wide / 2.0,
        HEIGHT - 10.0,
        top + high / 2.0,
        top + high / 2.0
    );
    for ((name, trace), colour) in traces.iter().zip(COLOURS) {
        let mut points = trace.clone();
        points.sort_by_key(|(at, _)| *at);
        let line: Vec<String> = points
            .iter()
            .map(|&(at, time)| format!("{:.1},{:.1}", x(at), y(milliseconds(time))))
            .collect();
        let last = points.last().map_or(1.0, |&(_, time)| milliseconds(time));
        let _ = write!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>\n",
            line.join(" "),
            left + wide + 8.0,
            y(last) + 4.0
        );
    }
    text.push_str("</svg>\n");
    text
}

fn milliseconds(time: Duration) -> f64 {
    // Zero has no logarithm.
    time.as_secs_f64().max(1e-6) * 1e3
}

/// The powers of ten, in milliseconds, between which all round trips are.
fn decades(traces: &[(&str, Vec<Point>)]) -> (i32, i32) {
    let times = traces.iter().flat_map(|(_, trace)| trace);
    let logs = times.map(|&(_, time)| milliseconds(time).log10());
    let (low, up) = logs.fold((0.0, 1.0), |(low, up): (f64, f64), log| {
        (low.min(log), up.max(log))
    });
    (low.floor() as i32, up.ceil() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_where_the_axes_say() {
        let point = |at, time| (Duration::from_millis(at), Duration::from_millis(time));
        // Answered in another order than sent.
        let long = vec![point(1000, 100), point(0, 10)];
        let traces = [("pfifo", long), ("fq_codel", vec![point(2000, 1)])];
        let text = draw("Pings", &traces, Duration::from_secs(2));
        // From 1 ms at the bottom to 100 ms at the top.
        assert!(text.contains("points=\"92.0,196.0 381.0,40.0\""), "{text}");
        assert!(text.contains("points=\"670.0,352.0\""), "{text}");
        for label in [
            ">1 ms<",
            ">10 ms<",
            ">100 ms<",
            ">0.5<",
            ">2<",
            ">pfifo<",
            ">fq_codel<",
        ] {
            assert_eq!(text.matches(label).count(), 1, "{label}: {text}");
        }
    }

    #[test]
    fn no_ping_at_all_is_an_empty_picture() {
        let text = draw("Pings", &[("pfifo", Vec::new())], Duration::from_secs(1));
        assert!(
            text.contains("points=\"\"") && text.ends_with("</svg>\n"),
            "{text}"
        );
    }
}
