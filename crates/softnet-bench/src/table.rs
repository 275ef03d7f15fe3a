//! A report as text: one table for each set of fields, bars for histograms, then the ratios.

use serde_json::{Map, Value};

use crate::numbers::significant;
use crate::report::{NOTES, SAMPLES};

/// The longest bar of a histogram, in characters.
const BAR: u64 = 50;

type Object = Map<String, Value>;

/// The whole report.
pub(crate) fn render(report: &Value) -> String {
    let mut text = heading(report);
    let rows: Vec<&Object> = report["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .collect();
    for group in groups(&rows) {
        text.push('\n');
        text.push_str(&table(&group));
        for row in &group {
            for (name, value) in row.iter().filter(|(name, _)| name.ends_with("_log2")) {
                let counts: Vec<u64> = value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_u64)
                    .collect();
                text.push_str(&bars(&format!("{} {}", label(row), name), &counts));
            }
        }
    }
    let skipped: Vec<_> = rows
        .iter()
        .filter(|row| row.contains_key("skipped"))
        .collect();
    if !skipped.is_empty() {
        text.push('\n');
    }
    for row in skipped {
        text.push_str(&format!(
            "{}: skipped: {}\n",
            label(row),
            cell(&row["skipped"])
        ));
    }
    text.push_str(&notes(&rows));
    if let Some(ratios) = report["ratios"]
        .as_object()
        .filter(|ratios| !ratios.is_empty())
    {
        text.push_str("\nsoftnet's figure over the variant's:\n");
        let width = ratios
            .keys()
            .map(|key| key.chars().count())
            .max()
            .unwrap_or(0);
        for (key, ratio) in ratios {
            text.push_str(&format!("  {key:width$}  {}\n", cell(ratio)));
        }
    }
    text
}

fn heading(report: &Value) -> String {
    let machine = &report["machine"];
    let mut text = cell(&report["experiment"]).to_string();
    if machine.is_object() {
        text.push_str(&format!(
            ": {}, {} CPUs, Linux {}, {}",
            cell(&machine["cpu"]),
            cell(&machine["cpus"]),
            cell(&machine["kernel"]),
            cell(&machine["date"]),
        ));
        if let Some(peers) = machine["peers"].as_object() {
            for (name, version) in peers {
                text.push_str(&format!(", {name} {}", cell(version)));
            }
        }
    }
    text.push('\n');
    text
}

/// One line for each variant that has notes.
fn notes(rows: &[&Object]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        let note = |name: &&str| Some(format!("{name} {}", cell(row.get(*name)?)));
        let found: Vec<_> = NOTES.iter().filter_map(note).collect();
        let line = format!("{}: {}\n", cell(&row["variant"]), found.join(", "));
        if !found.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    if !lines.is_empty() {
        lines.insert(0, "\n".to_owned());
    }
    lines.concat()
}

/// True if a field is shown beside another one, or apart from the table.
fn is_column(row: &Object, name: &str) -> bool {
    let range = ["_min", "_max"].iter().any(|suffix| {
        name.strip_suffix(suffix)
            .is_some_and(|median| row.contains_key(median))
    });
    !range && !name.ends_with("_log2") && !NOTES.contains(&name) && name != SAMPLES
}

fn columns(row: &Object) -> Vec<&str> {
    row.keys()
        .map(String::as_str)
        .filter(|name| is_column(row, name))
        .collect()
}

/// Rows with the same columns, in order of appearance; skipped ones are no part of it.
fn groups<'a>(rows: &[&'a Object]) -> Vec<Vec<&'a Object>> {
    let mut groups: Vec<Vec<&Object>> = Vec::new();
    for row in rows.iter().filter(|row| !row.contains_key("skipped")) {
        match groups
            .iter_mut()
            .find(|group| columns(group[0]) == columns(row))
        {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn table(rows: &[&Object]) -> String {
    let names = columns(rows[0]);
    let mut lines = vec![
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>(),
    ];
    for row in rows {
        lines.push(names.iter().map(|name| with_range(row, name)).collect());
    }
    let widths: Vec<usize> = (0..names.len())
        .map(|i| {
            lines
                .iter()
                .map(|line| line[i].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut out = String::new();
        for (i, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Names to the left, figures to the right.
            out.push_str(&if i == 0 {
                format!("{cell:width$}")
            } else {
                format!("  {cell:>width$}")
            });
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

fn with_range(row: &Object, name: &str) -> String {
    let value = cell(&row[name]);
    match (
        row.get(&format!("{name}_min")),
        row.get(&format!("{name}_max")),
    ) {
        (Some(min), Some(max)) => format!("{value} ({}..{})", cell(min), cell(max)),
        _ => value,
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => n
            .as_f64()
            .map_or_else(String::new, |f| significant(f, 4).to_string()),
        other => other.to_string(),
    }
}

/// The variant; of a row without figures, its parameters too.
fn label(row: &Object) -> String {
    let mut text = cell(row.get("variant").unwrap_or(&Value::Null));
    if row.contains_key("skipped") {
        for (name, value) in row
            .iter()
            .filter(|(name, _)| !["variant", "skipped"].contains(&name.as_str()))
            .filter(|(name, _)| !NOTES.contains(&name.as_str()))
        {
            text.push_str(&format!(" {name}={}", cell(value)));
        }
    }
    text
}

/// One line for each power of two between the first and the last that has a count.
fn bars(title: &str, counts: &[u64]) -> String {
    let Some(first) = counts.iter().position(|&count| count > 0) else {
        return String::new();
    };
    let last = counts.iter().rposition(|&count| count > 0).unwrap_or(first);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let total: u64 = counts.iter().sum();
    let mut text = format!("\n{title} ({total} samples)\n");
    for (exponent, &count) in counts.iter().enumerate().take(last + 1).skip(first) {
        // At least one character for whatever is there.
        let length = if count == 0 {
            0
        } else {
            (count * BAR / most).max(1)
        };
        let from = if exponent == 0 { 0 } else { 1u128 << exponent };
        let range = format!("{from}..{}", 1u128 << (exponent + 1));
        let line = format!("{range:>24} {count:>9} {}", "#".repeat(length as usize));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_line_up_and_ranges_are_beside_their_median() {
        let report = json!({
            "experiment": "switch",
            "rows": [
                {"variant": "softnet", "tcp_gbps": 12.5, "tcp_gbps_min": 11, "tcp_gbps_max": 13.25},
                {"variant": "kernel-bridge", "version": "6.18", "setting": "GRO", "tcp_gbps": 9},
                {"variant": "ovs", "qdisc": "tbf", "skipped": "`ovs-vswitchd` is not installed"},
                {"variant": "ovs", "ping_mean_us": 348.123},
            ],
            "ratios": {"tcp_gbps/kernel-bridge": 1.3889},
        });
        let expected = "\
switch

variant                tcp_gbps
softnet        12.5 (11..13.25)
kernel-bridge                 9

variant  ping_mean_us
ovs             348.1

ovs qdisc=tbf: skipped: `ovs-vswitchd` is not installed

kernel-bridge: version 6.18, setting GRO

softnet's figure over the variant's:
  tcp_gbps/kernel-bridge  1.389
";
        assert_eq!(render(&report), expected);
    }

    #[test]
    fn bars_are_relative_to_the_longest_and_never_empty_for_a_count() {
        let text = bars("ovs ping_us_log2", &[0, 0, 1, 0, 1000]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "ovs ping_us_log2 (1001 samples)");
        assert_eq!(lines[2].trim(), "4..8         1 #");
        assert_eq!(lines[3].trim(), "8..16         0");
        assert_eq!(
            lines[4].trim(),
            format!("16..32      1000 {}", "#".repeat(50))
        );
        assert_eq!(lines.len(), 5);
        assert_eq!(bars("none", &[0, 0]), "");
    }

    #[test]
    fn a_bar_for_the_last_power_of_two_does_not_overflow() {
        let mut counts = vec![0; 64];
        counts[63] = 1;
        assert!(bars("x", &counts).contains("18446744073709551616"));
    }
}
