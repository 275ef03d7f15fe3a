//! Pings over time as a picture of characters: a panel for each qdisc, side by side.

use std::fmt::Write as _;
use std::time::Duration;

use super::traffic::trace::Trace;

/// Characters of a panel.
const WIDTH: usize = 22;
const HEIGHT: usize = 8;
/// Parts of a character, from the bottom.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the traces, which took `length` each, in one scale. The bar of a moment is the longest of
/// its round trips.
pub(super) fn draw(panels: &[(&str, &Trace)], length: Duration) -> String {
    let columns: Vec<Vec<f64>> = panels
        .iter()
        .map(|(_, trace)| longest(trace, length))
        .collect();
    let most = columns.iter().flatten().copied().fold(0.0, f64::max);
    let top = nice(most);
    let mut text = String::new();
    for row in (0..HEIGHT).rev() {
        let label = match row {
            _ if row == HEIGHT - 1 => format!("{top} ms"),
            _ if row == HEIGHT / 2 - 1 => format!("{}", top / 2.0),
            0 => "0".to_owned(),
            _ => String::new(),
        };
        let mut line = format!("{label:>10} ");
        for panel in &columns {
            line.push(if label.is_empty() { '│' } else { '┤' });
            line.extend(panel.iter().map(|&value| bar(value / top, row)));
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let axis = vec!["─".repeat(WIDTH); panels.len()].join("┴");
    let _ = writeln!(text, "{:11}└{axis}", "");
    let seconds = length.as_secs_f64();
    let mut line = format!("{:11}", "");
    for (name, _) in panels {
        let end = format!("{seconds:.1} s ");
        let middle = WIDTH - end.len();
        let _ = write!(line, "0{name:^middle$}{end}");
    }
    let _ = writeln!(text, "{}", line.trim_end());
    text
}

/// The longest round trip of each column, in milliseconds.
fn longest(trace: &Trace, length: Duration) -> Vec<f64> {
    let mut columns = vec![0.0; WIDTH];
    for point in &trace.points {
        let part = point.at.as_secs_f64() / length.as_secs_f64();
        let column = &mut columns[((part * WIDTH as f64) as usize).min(WIDTH - 1)];
        *column = f64::max(*column, point.time.as_secs_f64() * 1e3);
    }
    columns
}

/// The part of a bar that is in this row. What is not nothing is seen.
fn bar(part: f64, row: usize) -> char {
    let eighths = (part * (HEIGHT * 8) as f64).round() as usize;
    let eighths = eighths.max(usize::from(part > 0.0));
    BARS[eighths.saturating_sub(row * 8).min(8)]
}

/// The next of 1, 2 and 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|&s| s >= value).unwrap_or(steps[3])
}

#[cfg(test)]
mod tests {
    use super::super::traffic::trace::Point;
    use super::*;

    fn trace(times: &[(u64, u64)]) -> Trace {
        let ms = Duration::from_millis;
        let points = times.iter().map(|&(at, time)| Point {
            at: ms(at),
            time: ms(time),
        });
        Trace::new(points.collect(), Vec::new())
    }

    #[test]
    fn bars_are_as_long_as_pings_took() {
        let (long, short) = (
            trace(&[(0, 200), (1000, 100), (3000, 50)]),
            trace(&[(1500, 1)]),
        );
        let text = draw(
            &[("pfifo", &long), ("fq_codel", &short)],
            Duration::from_secs(3),
        );
        let axis = "─".repeat(WIDTH);
        let expected = format!(
            "    200 ms ┤█                     ┤
           │█                     │
           │█                     │
           │█                     │
       100 ┤█      █              ┤
           │█      █              │
           │█      █             █│
         0 ┤█      █             █┤           ▁
           └{axis}┴{axis}
           0     pfifo      3.0 s 0    fq_codel    3.0 s
"
        );
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn no_ping_at_all_is_an_empty_picture() {
        let text = draw(&[("pfifo", &Trace::default())], Duration::from_secs(1));
        assert_eq!(text.lines().count(), HEIGHT + 2, "{text}");
    }

    #[test]
    fn scales_end_in_round_numbers() {
        for (value, top) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (3.0, 5.0),
            (243.0, 500.0),
            (9e3, 1e4),
        ] {
            assert_eq!(nice(value), top);
        }
    }
}
