//! One result of several processes: what each `--once` printed is a round, whatever else the others
//! measured.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::error::BenchError;
use crate::report::{NOTES, SAMPLES, SKIPPED, add_figures};
use crate::speed::Seen;

/// Figures of the machine of which the worst counts.
const MOST: [&str; 3] = ["load", "busy_percent", "steal_percent"];
/// Facts of the machine that have to be the same everywhere.
const SAME: [&str; 3] = ["revision", "daemon", "cpu"];

/// Reads and merges.
///
/// # Errors
/// If a file is no result, or they are of different experiments, programs or machines.
pub(crate) fn read(files: &[PathBuf]) -> Result<Value, BenchError> {
    let parts: Result<Vec<Value>, _> = files.iter().map(|file| read_one(file)).collect();
    merge(&parts?).map_err(apart)
}

/// Why results do not make one.
pub(crate) fn apart(why: String) -> BenchError {
    BenchError::Usage(format!("these do not belong together: {why}"))
}

/// Checks that two are of one experiment, and of the same programs on one machine.
///
/// # Errors
/// What differs.
pub(crate) fn belong(part: &Value, merged: &Value) -> Result<(), String> {
    let same = |name: &str| part["machine"][name] == merged["machine"][name];
    if part["experiment"] != merged["experiment"] || part["seconds"] != merged["seconds"] {
        return Err("they are of different experiments".to_owned());
    }
    match SAME.into_iter().find(|name| !same(name)) {
        Some(name) => Err(format!("they differ in {name}")),
        None => Ok(()),
    }
}

/// Adds what was seen of the machine meanwhile.
pub(crate) fn add_conditions(merged: &mut Value, part: &Value) {
    let mut seen = Seen::parse(&merged["speed"]);
    seen.add(&Seen::parse(&part["speed"]));
    merged["speed"] = seen.to_json();
    for name in MOST {
        let most = [&*merged, part].map(|of| of["machine"][name].as_f64());
        if let Some(most) = most.into_iter().flatten().reduce(f64::max) {
            merged["machine"][name] = json!(most);
        }
    }
}

/// Reads what an experiment printed.
///
/// # Errors
/// If it is no such thing.
pub(crate) fn read_one(file: &std::path::Path) -> Result<Value, BenchError> {
    let name = file.display();
    let text =
        std::fs::read_to_string(file).map_err(|e| BenchError::io(format!("reading {name}"), e))?;
    let value = serde_json::from_str(&text).ok();
    value
        .filter(|value: &Value| value["rows"].is_array())
        .ok_or_else(|| {
            BenchError::Usage(format!(
                "{name} is not what an experiment prints with --json"
            ))
        })
}

/// A row of some of the parts.
struct Row {
    /// Variant, parameters, and texts.
    identity: Map<String, Value>,
    samples: Vec<(String, Vec<f64>)>,
}

fn merge(parts: &[Value]) -> Result<Value, String> {
    let mut merged = parts.first().cloned().ok_or("there is none")?;
    let mut rows: Vec<Row> = Vec::new();
    // Each part adds its own.
    merged["speed"] = Value::Null;
    let mut round = 0;
    for part in parts {
        belong(part, &merged)?;
        for row in part["rows"].as_array().into_iter().flatten() {
            add(&mut rows, row, round);
        }
        round += part["rounds"].as_u64().unwrap_or(1) as usize;
        add_conditions(&mut merged, part);
    }
    merged["rows"] = rows.into_iter().map(|row| row.into_json(round)).collect();
    merged["rounds"] = json!(round);
    Ok(merged)
}

/// Adds a row of the part whose first round is `round`.
fn add(rows: &mut Vec<Row>, row: &Value, round: usize) {
    let Some(fields) = row.as_object() else {
        return;
    };
    let samples = fields.get(SAMPLES).and_then(Value::as_object);
    let figure = |name: &str| {
        let of = |suffix| name.strip_suffix(suffix).unwrap_or(name);
        let names = [name, of("_min"), of("_max")];
        samples.is_some_and(|samples| names.iter().any(|name| samples.contains_key(*name)))
    };
    let other =
        |(name, value): &(&String, &Value)| !figure(name) && *name != SAMPLES && !value.is_array();
    let identity = fields.iter().filter(other);
    let identity: Map<_, _> = identity.map(|(n, v)| (n.clone(), v.clone())).collect();
    let first = samples.and_then(|samples| samples.keys().next());
    let same = |row: &Row| row.is(&identity) && row.samples.first().map(|(name, _)| name) == first;
    let at = rows.iter().position(same).unwrap_or_else(|| {
        rows.push(Row {
            identity: identity.clone(),
            samples: Vec::new(),
        });
        rows.len() - 1
    });
    let row = &mut rows[at];
    for (name, values) in samples.into_iter().flatten() {
        let own = entry(&mut row.samples, name);
        own.resize(own.len().max(round), f64::NAN);
        let values = values.as_array().into_iter().flatten();
        own.extend(values.map(|value| value.as_f64().unwrap_or(f64::NAN)));
    }
}

fn entry<'a, T>(of: &'a mut Vec<(String, Vec<T>)>, name: &str) -> &'a mut Vec<T> {
    let at = of.iter().position(|(known, _)| known == name);
    let at = at.unwrap_or_else(|| {
        of.push((name.to_owned(), Vec::new()));
        of.len() - 1
    });
    &mut of[at].1
}

impl Row {
    /// True if only texts differ.
    fn is(&self, identity: &Map<String, Value>) -> bool {
        let text = |name: &str| NOTES.contains(&name) || name == SKIPPED;
        let plain = |fields: &Map<String, Value>| -> Map<String, Value> {
            let plain = fields.iter().filter(|(name, _)| !text(name));
            plain.map(|(n, v)| (n.clone(), v.clone())).collect()
        };
        plain(&self.identity) == plain(identity)
    }

    fn into_json(mut self, rounds: usize) -> Value {
        for (_, samples) in &mut self.samples {
            samples.resize(rounds.max(samples.len()), f64::NAN);
        }
        add_figures(&mut self.identity, &self.samples);
        Value::Object(self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(rows: Value, load: f64) -> Value {
        json!({
            "experiment": "x", "rows": rows, "seconds": 2.0, "rounds": 1,
            "machine": {"revision": "abc", "load": load},
            "speed": {
                "rounds": 3, "again": 1, "unsteady": 0, "work_ns": [load, 9], "pass_ns": [60, 60],
            },
        })
    }

    #[test]
    fn parts_become_rounds_that_stay_paired() {
        let row = |variant: &str, mpps: f64| {
            json!({"variant": variant, "threads": 2, "version": "1", "mpps": mpps,
                "samples": {"mpps": [mpps]}, "window_s": 0.25})
        };
        let parts = [
            part(json!([row("softnet", 3.0), row("mutex", 1.0)]), 0.5),
            part(json!([row("softnet", 1.0)]), 2.0),
            part(json!([row("mutex", 2.0), row("softnet", 2.0)]), 0.1),
        ];
        let merged = merge(&parts).expect("they belong together");
        let rows = &merged["rows"];
        assert_eq!(rows[0]["samples"], json!({"mpps": [3, 1, 2]}));
        assert_eq!(rows[1]["samples"], json!({"mpps": [1, null, 2]}));
        assert_eq!(
            [&rows[0]["mpps"], &rows[1]["mpps"]],
            [&json!(2), &json!(1.5)]
        );
        assert_eq!(rows[0]["mpps_max"], 3);
        assert_eq!(
            (&rows[0]["threads"], &rows[0]["window_s"]),
            (&json!(2), &json!(0.25))
        );
        assert_eq!(
            (&merged["rounds"], &merged["machine"]["load"]),
            (&json!(3), &json!(2.0))
        );
        assert_eq!(merged["speed"]["again"], 3);
        assert_eq!(merged["speed"]["work_ns"], json!([0.1, 9.0]));
    }

    #[test]
    fn parts_of_different_programs_are_refused() {
        let mut other = part(json!([]), 0.0);
        other["machine"]["revision"] = json!("def");
        assert!(merge(&[part(json!([]), 0.0), other]).is_err());
        assert!(merge(&[]).is_err());
    }
}
