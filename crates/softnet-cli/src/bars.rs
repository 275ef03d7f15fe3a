//! Bar charts of distributions, as bpftrace prints `hist()`.

use std::fmt::Write as _;

use softnet::stats::Counts;

/// Characters of the longest bar.
const BAR: usize = 52;
/// Empty buckets next to each other that are printed.
const GAP: usize = 3;

/// A bound: `512`, `1K`, `64M`.
fn bound(value: u128) -> String {
    let unit = (value.max(1).ilog2() / 10) as usize;
    match ["", "K", "M", "G", "T", "P", "E"].get(unit) {
        Some(suffix) if value.is_multiple_of(1 << (10 * unit)) => {
            format!("{}{suffix}", value >> (10 * unit))
        }
        _ => value.to_string(),
    }
}

/// One line for each bucket from the first to the last occupied one, but one for all of a longer
/// gap; nothing if there are no values.
pub(crate) fn bars(counts: &Counts) -> String {
    let rows: Vec<_> = counts.rows().collect();
    let most = rows.iter().map(|row| row.2).max().unwrap_or(1);
    let mut text = String::new();
    // Neighbours that are empty, or one that is not.
    for rows in rows.chunk_by(|a, b| a.2 == 0 && b.2 == 0) {
        if rows.len() > GAP {
            text.push_str("...\n");
            continue;
        }
        for &(from, width, count) in rows {
            let label = if width == 1 && from < 2 {
                format!("[{from}]")
            } else {
                let end = u128::from(from) + u128::from(width);
                format!("[{}, {})", bound(u128::from(from)), bound(end))
            };
            let bar = (u128::from(count) * BAR as u128 / u128::from(most)) as usize;
            let bar = "@".repeat(bar);
            let _ = writeln!(text, "{label:<16}{count:>8} |{bar:<BAR$}|");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Counts {
        let mut counts = Counts::default();
        values.iter().for_each(|&v| counts.record(v));
        counts
    }

    /// The text is bpftrace's for the same values.
    #[test]
    fn prints_as_bpftrace_does() {
        let mut counts = of(&[0, 1, 1, 2, 3, 9, 1500]);
        (0..52).for_each(|_| counts.record(200));
        let bar = |n: usize| format!("|{:<52}|\n", "@".repeat(n));
        let line = |label: &str, n: usize| format!("{label:<16}{n:>8} {}", bar(n));
        let expected = [
            line("[0]", 1),
            line("[1]", 2),
            line("[2, 4)", 2),
            line("[4, 8)", 0),
            line("[8, 16)", 1),
            line("[16, 32)", 0),
            line("[32, 64)", 0),
            line("[64, 128)", 0),
            line("[128, 256)", 52),
            line("[256, 512)", 0),
            line("[512, 1K)", 0),
            line("[1K, 2K)", 1),
        ];
        assert_eq!(bars(&counts), expected.concat());
        let last = bars(&of(&[u64::MAX]));
        assert!(last.starts_with("[8E, 16E)"), "{last}");
        assert_eq!(bars(&of(&[])), "");
    }

    /// However far apart the values are, there are few lines.
    #[test]
    fn a_long_gap_is_one_line() {
        let text = bars(&of(&[0, 0, 1 << 20, 1 << 25, u64::MAX]));
        let labels: Vec<_> = text.lines().map(|line| line.split("  ").next()).collect();
        let expected = [
            "[0]",
            "...",
            "[1M, 2M)",
            "...",
            "[32M, 64M)",
            "...",
            "[8E, 16E)",
        ];
        assert_eq!(labels, expected.map(Some));
    }
}
