//! The JSON that an experiment printed with `--json`, read back.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::BenchError;
use crate::merge;
use crate::numbers::median;
use crate::report::{NOTES, SAMPLES, SKIPPED, WINDOW, text};
use crate::speed::Seen;

/// Name and value, as the command line has them.
pub(super) type Params = Vec<(String, String)>;

/// One row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) variant: String,
    pub(super) params: Params,
    pub(super) notes: Vec<String>,
    /// Seconds for which each figure was measured in a round, if that is known.
    pub(super) window: Option<f64>,
    /// The figures of all rounds; NaN where there is none.
    pub(super) samples: BTreeMap<String, Vec<f64>>,
    pub(super) skipped: Option<String>,
}

/// The whole of it.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) experiment: String,
    pub(super) machine: Map<String, Value>,
    pub(super) seconds: f64,
    pub(super) rounds: u64,
    /// Rounds of the cells that were measured longer, if there are some.
    pub(super) longer: Option<usize>,
    /// True if only what goals are about was measured.
    pub(super) judged: bool,
    /// The number of CPUs that was asked for.
    pub(super) cpus: Option<u64>,
    pub(super) speed: Seen,
    pub(super) rows: Vec<Row>,
}

/// The value of a parameter; `-` if there is none.
pub(super) fn param<'a>(params: &'a Params, name: &str) -> &'a str {
    let same = |(n, _): &&(String, String)| n == name;
    params.iter().find(same).map_or("-", |(_, value)| value)
}

impl Results {
    /// # Errors
    /// If the file cannot be read or is no such thing.
    pub(super) fn read(file: &Path) -> Result<Results, BenchError> {
        let why = || BenchError::Usage(format!("{} has rows that are none", file.display()));
        Results::parse(&merge::read_one(file)?).ok_or_else(why)
    }

    pub(super) fn parse(value: &Value) -> Option<Results> {
        let rows = value["rows"].as_array()?.iter().map(Row::parse);
        Some(Results {
            experiment: value["experiment"].as_str()?.to_owned(),
            machine: value["machine"].as_object().cloned().unwrap_or_default(),
            seconds: value["seconds"].as_f64().unwrap_or(f64::NAN),
            rounds: value["rounds"].as_u64().unwrap_or(1),
            longer: value["longer"].as_u64().map(|rounds| rounds as usize),
            judged: value["judged"] == true,
            cpus: value["cpus"].as_u64(),
            speed: Seen::parse(&value["speed"]),
            rows: rows.collect::<Option<_>>()?,
        })
    }

    /// The figures of one field; a variant may have several rows with the same parameters and
    /// other fields.
    pub(super) fn samples(&self, variant: &str, params: &Params, field: &str) -> Option<&[f64]> {
        let same = |row: &&Row| row.variant == variant && row.params == *params;
        let mut rows = self.rows.iter().filter(same);
        rows.find_map(|row| row.samples.get(field).map(Vec::as_slice))
    }

    pub(super) fn median(&self, variant: &str, params: &Params, field: &str) -> Option<f64> {
        self.samples(variant, params, field).map(median)
    }

    /// Why there are no figures.
    pub(super) fn skipped(&self, variant: &str, params: &Params) -> Option<&str> {
        // A variant that is not there at all has a row with fewer parameters.
        let same = |row: &&Row| {
            row.variant == variant && row.params.iter().all(|pair| params.contains(pair))
        };
        let mut rows = self.rows.iter().filter(same);
        rows.find_map(|row| row.skipped.as_deref())
    }

    /// The values of `item` over all rows, each once, in order of appearance.
    pub(super) fn each<'a, T: PartialEq>(&'a self, item: impl Fn(&'a Row) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for item in self.rows.iter().filter_map(item) {
            if !found.contains(&item) {
                found.push(item);
            }
        }
        found
    }
}

impl Row {
    pub(super) fn parse(value: &Value) -> Option<Row> {
        let fields = value.as_object()?;
        let mut row = Row {
            variant: fields.get("variant")?.as_str()?.to_owned(),
            params: Vec::new(),
            notes: Vec::new(),
            samples: BTreeMap::new(),
            window: fields.get(WINDOW).and_then(Value::as_f64),
            skipped: fields.get(SKIPPED).map(text),
        };
        let samples = fields.get(SAMPLES).and_then(Value::as_object);
        for (name, values) in samples.into_iter().flatten() {
            let values = values.as_array()?.iter();
            let values = values.map(|value| value.as_f64().unwrap_or(f64::NAN));
            row.samples.insert(name.clone(), values.collect());
        }
        for (name, value) in fields {
            let bound = |suffix| name.strip_suffix(suffix);
            let figure = [bound("_min"), bound("_max"), Some(name.as_str())]
                .into_iter()
                .flatten()
                .any(|name| row.samples.contains_key(name));
            if figure || ["variant", SKIPPED, SAMPLES, WINDOW].contains(&name.as_str()) {
                continue;
            }
            if NOTES.contains(&name.as_str()) {
                row.notes.push(format!("{name} {}", text(value)));
            } else if !value.is_array() {
                // Results of before had histograms.
                row.params.push((name.clone(), text(value)));
            }
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::Collector;

    #[test]
    fn collector_output_is_read_back() {
        let mut results = Collector::default();
        let params = [("threads", json!(8)), ("qdisc", json!("fq"))];
        for value in [1.5, 2.5, 3.5] {
            results.add("softnet", &params, &[("mpps", value), ("drops", 0.0)]);
        }
        results.note("softnet", "setting", "plain");
        results.skip("dpdk", &[], "not installed");
        let mut report = results.report("tx-adopt");
        report["rounds"] = json!(3);
        let read = Results::parse(&report).expect("it is a report");
        let row = &read.rows[0];
        assert_eq!(row.params.len(), 2);
        assert_eq!(
            (param(&row.params, "threads"), param(&row.params, "load")),
            ("8", "-")
        );
        assert_eq!(
            read.samples("softnet", &row.params, "mpps"),
            Some(&[1.5, 2.5, 3.5][..])
        );
        assert_eq!(row.notes, ["setting plain"]);
        assert_eq!(read.skipped("dpdk", &row.params), Some("not installed"));
        assert_eq!(read.skipped("mutex", &row.params), None);
        assert!(Results::parse(&json!({"rows": []})).is_none());
    }
}
