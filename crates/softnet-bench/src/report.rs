//! The report: rows of medians.
//!
//! A row is a variant with its parameters; its fields are medians over the rounds, with
//! `<field>_min` and `<field>_max` beside them where there were several, and `samples`, the figure
//! of each round, null where it has none.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::numbers::{median, significant};
use crate::speed::{Seen, Watch};

/// The variant that the others are compared with.
pub(crate) const OURS: &str = "softnet";
/// [`OURS`] measured once more in the same rounds: how far two of the same are apart.
pub(crate) const AGAIN: &str = "softnet-again";
/// Texts that a row may carry beside its parameters: a peer's version, how it is set up.
pub(crate) const NOTES: [&str; 2] = ["version", "setting"];
/// The figures of all rounds, by field.
pub(crate) const SAMPLES: &str = "samples";
/// Seconds for which a figure of the row was measured in each round.
pub(crate) const WINDOW: &str = "window_s";
/// Why a row has no figures.
pub(crate) const SKIPPED: &str = "skipped";
/// Significant digits of a number in the report.
const DIGITS: i32 = 5;

/// A parameter of a row, such as `("mss", 400)`.
pub(crate) type Param = (&'static str, Value);
/// A figure of a row, such as `("tcp_gbps", 9.4)`.
pub(crate) type Field = (&'static str, f64);

/// A parameter's value as the command line has it.
pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[derive(Debug, Clone)]
struct Row {
    variant: &'static str,
    params: Vec<Param>,
    window: Duration,
    samples: Vec<(&'static str, Vec<f64>)>,
    skipped: Option<String>,
}

/// Collects what the turns measure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collector {
    rows: Vec<Row>,
    /// The round, from 0 on, and the window of what is measured in it.
    round: usize,
    window: Duration,
    /// Turns that were not taken, and the time that they would have taken.
    planned: (usize, Duration),
    speed: Seen,
    /// Variant, name and text.
    notes: Vec<(&'static str, &'static str, String)>,
    /// In the order in which their rows are to stand.
    variants: Vec<&'static str>,
    /// True: figures of [`OURS`] count as [`AGAIN`]'s.
    again: bool,
}

impl Collector {
    /// Rows stand in the order of these variants, whoever has the first turn.
    pub(crate) fn expect(&mut self, variants: impl Iterator<Item = &'static str>) {
        for variant in variants {
            if !self.variants.contains(&variant) {
                self.variants.push(variant);
            }
        }
    }

    /// Begins a round.
    pub(crate) fn start_round(&mut self, round: usize, window: Duration) {
        (self.round, self.window) = (round, window);
    }

    /// Sets the window of rows that are measured for longer than others.
    pub(crate) fn lasting(&mut self, window: Duration) -> &mut Collector {
        self.window = window;
        self
    }

    /// Adds turns to the plan.
    pub(crate) fn plan(&mut self, turns: usize, each: Duration) {
        self.planned.0 += turns;
        self.planned.1 += each * turns as u32;
    }

    /// Adds what was seen of the machine's speed.
    pub(crate) fn watched(&mut self, watch: &Watch) {
        self.speed.add(watch.seen());
    }

    /// Makes the figures of [`OURS`] that follow count as [`AGAIN`]'s, or no more.
    pub(crate) fn count_again(&mut self, again: bool) {
        self.again = again;
    }

    /// The median of a field by now.
    pub(crate) fn median(&self, variant: &str, params: &[Param], field: &str) -> Option<f64> {
        let same = |row: &&Row| row.variant == variant && row.params == params;
        self.rows
            .iter()
            .filter(same)
            .find_map(|row| row.median(field))
    }

    /// Adds one turn's figures to the row of this variant, these parameters and these fields.
    pub(crate) fn add(&mut self, variant: &'static str, params: &[Param], fields: &[Field]) {
        let first = fields.first().map(|(name, _)| *name);
        let round = self.round;
        let row = self.row(variant, params, first);
        for &(name, value) in fields {
            let at = row.samples.iter().position(|(n, _)| *n == name);
            let at = at.unwrap_or_else(|| {
                row.samples.push((name, Vec::new()));
                row.samples.len() - 1
            });
            let samples = &mut row.samples[at].1;
            // Rounds in which there was no such figure.
            samples.resize(samples.len().max(round), f64::NAN);
            samples.push(value);
        }
    }

    /// Adds a text to all rows of this variant: one of [`NOTES`].
    pub(crate) fn note(&mut self, variant: &'static str, name: &'static str, text: &str) {
        let mut notes = self.notes.iter();
        if !notes.any(|note| (note.0, note.1) == (variant, name)) {
            self.notes.push((variant, name, text.to_owned()));
        }
    }

    /// Says why there are no figures for this variant and these parameters.
    pub(crate) fn skip(&mut self, variant: &'static str, params: &[Param], why: &str) {
        self.row(variant, params, None).skipped = Some(why.to_owned());
    }

    /// The row of these fields, which its first one stands for.
    fn row(
        &mut self,
        variant: &'static str,
        params: &[Param],
        first: Option<&'static str>,
    ) -> &mut Row {
        let variant = if self.again && variant == OURS {
            AGAIN
        } else {
            variant
        };
        let same = |row: &Row| {
            row.variant == variant
                && row.params == params
                && row.samples.first().map(|(name, _)| *name) == first
        };
        let at = self.rows.iter().position(same).unwrap_or_else(|| {
            self.rows.push(Row {
                variant,
                params: params.to_vec(),
                window: self.window,
                samples: first.map(|name| (name, Vec::new())).into_iter().collect(),
                skipped: None,
            });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// The report.
    pub(crate) fn report(&self, experiment: &str) -> Value {
        let rows: Vec<Value> = self
            .in_order()
            .into_iter()
            .map(|row| row.to_json(&self.notes))
            .collect();
        let mut report = json!({ "experiment": experiment, "rows": rows });
        if self.planned.0 > 0 {
            report["plan"] = json!([self.planned.0, self.planned.1.as_secs_f64()]);
        }
        if self.speed.rounds > 0 {
            report["speed"] = self.speed.to_json();
        }
        report
    }

    /// The rows, those with the same parameters next to each other, as variants are expected.
    fn in_order(&self) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        let rank = |row: &Row| {
            let params = self
                .rows
                .iter()
                .position(|first| first.params == row.params);
            let (name, again) = match row.variant {
                AGAIN => (OURS, 1),
                other => (other, 0),
            };
            let variant = self.variants.iter().position(|expected| *expected == name);
            (params, variant.unwrap_or(usize::MAX), again)
        };
        rows.sort_by_cached_key(|row| rank(row));
        rows
    }
}

impl Row {
    fn median(&self, field: &str) -> Option<f64> {
        self.samples
            .iter()
            .find(|(name, _)| *name == field)
            .map(|(_, samples)| median(samples))
    }

    fn to_json(&self, notes: &[(&str, &str, String)]) -> Value {
        let mut row = Map::new();
        row.insert("variant".to_owned(), json!(self.variant));
        for (name, value) in &self.params {
            row.insert((*name).to_owned(), value.clone());
        }
        for (_, name, text) in notes.iter().filter(|note| note.0 == self.variant) {
            row.insert((*name).to_owned(), json!(text));
        }
        add_figures(&mut row, &self.samples);
        if !self.window.is_zero() && row.contains_key(SAMPLES) {
            row.insert(WINDOW.to_owned(), json!(self.window.as_secs_f64()));
        }
        if let Some(why) = &self.skipped {
            row.insert(SKIPPED.to_owned(), json!(why));
        }
        Value::Object(row)
    }
}

/// Adds medians, ranges and samples to a row.
pub(crate) fn add_figures<S: AsRef<str>>(row: &mut Map<String, Value>, fields: &[(S, Vec<f64>)]) {
    for (name, samples) in fields {
        let name = name.as_ref();
        row.insert(name.to_owned(), number(median(samples)));
        if samples.len() > 1 {
            let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let max = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.insert(format!("{name}_min"), number(min));
            row.insert(format!("{name}_max"), number(max));
        }
    }
    if fields.iter().any(|(_, samples)| !samples.is_empty()) {
        let rounds = fields.iter().map(|(_, samples)| samples.len()).max();
        let samples = fields.iter().map(|(name, samples)| {
            let figures = samples.iter().map(|value| number(*value));
            let all = figures.chain(std::iter::repeat(Value::Null));
            let all = all.take(rounds.unwrap_or(0)).collect();
            (name.as_ref().to_owned(), Value::Array(all))
        });
        row.insert(SAMPLES.to_owned(), Value::Object(samples.collect()));
    }
}

/// A report as text: one line for each row, so that two of them can be compared line by line.
pub(crate) fn lines(report: &Value) -> String {
    let Some(fields) = report.as_object() else {
        return format!("{report}\n");
    };
    let mut text = String::from("{");
    for (i, (name, value)) in fields.iter().enumerate() {
        text.push_str(if i == 0 { "\n" } else { ",\n" });
        match value {
            Value::Array(rows) => {
                let rows: Vec<_> = rows.iter().map(|row| format!("\n  {row}")).collect();
                text.push_str(&format!("{}:[{}\n]", json!(name), rows.join(",")));
            }
            Value::Object(map) => {
                let line =
                    |(name, value): (&String, &Value)| format!("\n  {}: {value}", json!(name));
                let rows: Vec<_> = map.iter().map(line).collect();
                text.push_str(&format!("{}: {{{}\n}}", json!(name), rows.join(",")));
            }
            other => text.push_str(&format!("{}: {other}", json!(name))),
        }
    }
    text.push_str("\n}\n");
    text
}

/// A JSON number without digits that mean nothing; whole numbers without a fraction; `null` for
/// what is no number.
fn number(value: f64) -> Value {
    let value = significant(value, DIGITS);
    if value.fract() == 0.0 && value.abs() < 1e15 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_medians_with_their_range() {
        let mut results = Collector::default();
        for value in [3.0, 1.0, 2.5] {
            results.add("softnet", &[("mss", json!(400))], &[("tcp_gbps", value)]);
        }
        let report = results.report("switch");
        let expected = json!([{
            "variant": "softnet", "mss": 400, "tcp_gbps": 2.5, "tcp_gbps_min": 1, "tcp_gbps_max": 3,
            "samples": {"tcp_gbps": [3, 1, 2.5]},
        }]);
        assert_eq!(report["rows"], expected);
    }

    #[test]
    fn lines_are_the_same_json() {
        let report = json!({
            "experiment": "x", "rounds": 7,
            "rows": [{"variant": "a", "mpps": 1.5}, {}], "machine": {"a/b": 2}
        });
        let text = lines(&report);
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(report));
        assert_eq!(text.lines().count(), 11);
    }

    #[test]
    fn a_single_sample_has_no_range() {
        let mut results = Collector::default();
        results.add("ovs", &[], &[("mpps", 0.165)]);
        assert_eq!(
            results.report("x")["rows"],
            json!([{"variant": "ovs", "mpps": 0.165, "samples": {"mpps": [0.165]}}])
        );
    }

    #[test]
    fn rows_with_the_same_parameters_but_other_fields_are_apart() {
        let mut results = Collector::default();
        results.add("ovs", &[], &[("tcp_gbps", 1.0)]);
        results.add("ovs", &[], &[("ping_mean_us", 300.0)]);
        let rows = json!([
            {"variant": "ovs", "tcp_gbps": 1, "samples": {"tcp_gbps": [1]}},
            {"variant": "ovs", "ping_mean_us": 300,
             "samples": {"ping_mean_us": [300]}},
        ]);
        assert_eq!(results.report("x")["rows"], rows);
    }

    #[test]
    fn notes_are_in_every_row_of_their_variant() {
        let mut results = Collector::default();
        results.note("ovs", "version", "4.0.0");
        results.note("ovs", "version", "4.0.0");
        for variant in [OURS, "ovs"] {
            results.add(variant, &[("mss", json!(400))], &[("tcp_gbps", 2.0)]);
        }
        results.skip("ovs", &[("rate", json!("1gbit"))], "no shaper");
        let report = results.report("switch");
        let version = |row: usize| report["rows"][row]["version"].as_str();
        assert_eq!([0, 1, 2].map(version), [None, Some("4.0.0"), Some("4.0.0")]);
    }
}
