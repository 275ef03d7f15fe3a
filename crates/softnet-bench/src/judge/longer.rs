//! Undecided cells are measured longer: choice of the cells, and new figures in the place of those
//! in the result.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::results::{Params, Results, Row, param};
use super::tables::cell_name;
use super::verdict::{Outcome, Verdict};
use crate::error::{BenchError, chain};
use crate::merge;
use crate::report::{AGAIN, Param, text};

/// A result, and the cells of it that are to be measured anew.
#[derive(Debug)]
pub(crate) struct Longer {
    result: Value,
    cells: Vec<Params>,
}

impl Longer {
    /// Reads what an experiment printed, as a parser of the command line does.
    ///
    /// # Errors
    /// Why it is no such thing.
    pub(crate) fn read(file: &str) -> Result<Arc<Longer>, String> {
        let result = merge::read_one(Path::new(file)).map_err(|error| chain(&error))?;
        let results = Results::parse(&result).ok_or("it has rows that are none")?;
        let cells = chosen(&results, &super::verdicts(&results));
        Ok(Arc::new(Longer { result, cells }))
    }

    /// # Errors
    /// If it is of another experiment, or of other programs than those of `revision`.
    pub(crate) fn check(
        &self,
        experiment: &str,
        revision: Option<&str>,
    ) -> Result<(), BenchError> {
        let own = text(&self.result["experiment"]);
        let measured = self.result["machine"]["revision"].as_str();
        let problem = if experiment == "merge" {
            return Ok(());
        } else if experiment != own {
            format!("--longer of {experiment}: the result is of {own}")
        } else if measured != revision {
            let [measured, now] = [measured, revision].map(|it| it.unwrap_or("unknown"));
            format!(
                "{own} was measured at revision {measured}, these programs are of {now}: measure \
                 it anew before what is undecided is measured longer"
            )
        } else {
            return Ok(());
        };
        Err(BenchError::Usage(problem))
    }

    /// Rounds of the result: a window is as long as in these.
    pub(crate) fn rounds(&self) -> usize {
        self.result["rounds"].as_u64().unwrap_or(1).max(1) as usize
    }

    /// True if turns with these parameters, or of `several` cells that have these and others, are
    /// those of a cell that is to be measured.
    pub(crate) fn has(&self, params: &[Param], several: bool) -> bool {
        self.cells.iter().any(|cell| {
            let same = |(name, value): &Param| param(cell, name) == text(value);
            (several || cell.len() == params.len()) && params.iter().all(same)
        })
    }

    /// The result with the rows of `fresh` instead of its own in the cells that were to be
    /// measured. What else `fresh` has does not count.
    ///
    /// # Errors
    /// If the two are not of the same programs, or a row was not measured.
    pub(crate) fn replace(&self, fresh: &Value) -> Result<Value, String> {
        merge::belong(fresh, &self.result)?;
        let fresh_rows = rows(fresh);
        let (mut all, mut done) = (Vec::new(), Vec::new());
        for (row, value) in rows(&self.result) {
            if !self.cells.contains(&row.params) {
                all.push(value.clone());
                continue;
            }
            let cell = fresh_rows
                .iter()
                .filter(|(new, _)| new.params == row.params);
            let measured =
                |(new, _): &(Row, &Value)| new.variant == row.variant && !new.samples.is_empty();
            // A variant without another beside it is not measured twice.
            let needed = !row.samples.is_empty() && row.variant != AGAIN;
            if needed && !cell.clone().any(measured) {
                let at = cell_name(&row.params);
                return Err(format!("{} was not measured at {at}", row.variant));
            }
            if !done.contains(&row.params) {
                all.extend(cell.map(|(_, value)| (*value).clone()));
                done.push(row.params);
            }
        }
        let mut result = self.result.clone();
        result["rows"] = Value::Array(all);
        result["longer"] = fresh["rounds"].clone();
        merge::add_conditions(&mut result, fresh);
        Ok(result)
    }
}

/// The rows that can be read, and as they are.
fn rows(report: &Value) -> Vec<(Row, &Value)> {
    let rows = report["rows"].as_array().into_iter().flatten();
    rows.filter_map(|row| Some((Row::parse(row)?, row)))
        .collect()
}

/// The cells that are undecided and were not measured longer before. With them those that a goal
/// compares with one of these, and so on: figures are compared round by round.
fn chosen(results: &Results, verdicts: &[Verdict]) -> Vec<Params> {
    let mut groups = Vec::new();
    for verdict in verdicts {
        for cell in &verdict.cells {
            let rounds = cell.figure.as_ref().ok().map(|it| it.rounds.1);
            let undecided = verdict.outcome(cell) == Outcome::Undecided;
            groups.push((
                undecided && rounds != results.longer,
                verdict.compared(cell),
            ));
        }
    }
    let mut chosen: Vec<Params> = Vec::new();
    loop {
        let before = chosen.len();
        for (first, cells) in &groups {
            if *first || cells.iter().any(|cell| chosen.contains(cell)) {
                for cell in cells {
                    if !chosen.contains(cell) {
                        chosen.push(cell.clone());
                    }
                }
            }
        }
        if chosen.len() == before {
            return chosen;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::goals::Goal;
    use super::super::markdown;
    use super::*;
    use crate::report::{Collector, OURS};

    const MUTEX: &str = "mpps >= 1.3 of mutex\n    at threads 1 2";
    const MORE: &str = "mpps >= 1 with threads 64\n    at threads 8 32";
    /// In one round on one side of all bounds, in the next on the other.
    const BOTH: [f64; 7] = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0];

    fn at(threads: usize) -> [Param; 1] {
        [("threads", json!(threads))]
    }

    fn report(figures: &[(&'static str, usize, &[f64])]) -> Value {
        let mut results = Collector::default();
        for (variant, threads, samples) in figures {
            for sample in *samples {
                results.add(variant, &at(*threads), &[("mpps", *sample)]);
            }
        }
        let mut report = results.report("x");
        report["rounds"] = json!(figures[0].2.len());
        report["machine"] = json!({"revision": "abc", "load": figures[0].2.len()});
        report
    }

    fn verdicts(results: &Results) -> Vec<Verdict> {
        let goal = |text| -> &'static Goal {
            Box::leak(Box::new(Goal::parse("x", text).expect("it is one")))
        };
        let verdicts = [MUTEX, MORE].map(|text| Verdict::of(goal(text), results));
        verdicts.into()
    }

    fn names(cells: &[Params]) -> Vec<String> {
        cells.iter().map(cell_name).collect()
    }

    #[test]
    fn what_is_undecided_is_chosen_with_all_that_goals_compare_it_with() {
        let report = report(&[
            (OURS, 1, &[2.0; 7]),
            ("mutex", 1, &[1.0; 7]),
            (OURS, 2, &BOTH),
            ("mutex", 2, &[1.0; 7]),
            (OURS, 8, &BOTH),
            (OURS, 32, &[3.0; 7]),
            (OURS, 64, &[1.5; 7]),
        ]);
        let mut results = Results::parse(&report).expect("it is a report");
        let verdicts = verdicts(&results);
        assert_eq!(
            names(&chosen(&results, &verdicts)),
            ["threads 2", "threads 8", "threads 64", "threads 32"]
        );
        // Nobody measures until it is decided.
        results.longer = Some(7);
        assert!(chosen(&results, &verdicts).is_empty());
    }

    #[test]
    fn decided_cells_cost_nothing() {
        let report = report(&[(OURS, 1, &[2.0; 7]), ("mutex", 1, &[1.0; 7])]);
        let results = Results::parse(&report).expect("it is a report");
        let cells = chosen(&results, &verdicts(&results));
        let longer = Longer {
            result: report,
            cells,
        };
        assert!(!longer.has(&[], true) && !longer.has(&at(1), false));
    }

    /// One cell is to be measured longer.
    fn two_threads() -> Longer {
        let result = report(&[
            (OURS, 1, &[2.0; 7]),
            ("mutex", 1, &[1.0; 7]),
            (OURS, 2, &BOTH),
            (AGAIN, 2, &BOTH),
            ("mutex", 2, &[1.0; 7]),
        ]);
        let cells = vec![vec![("threads".to_owned(), "2".to_owned())]];
        Longer { result, cells }
    }

    #[test]
    fn turns_of_a_cell_are_those_with_its_parameters() {
        let longer = two_threads();
        assert!(longer.has(&at(2), false) && longer.has(&at(2), true));
        assert!(longer.has(&[], true) && !longer.has(&[], false));
        let more = [&at(2)[..], &[("load", json!("50%"))]].concat();
        assert!(!longer.has(&at(1), true) && !longer.has(&more, true));
    }

    #[test]
    fn new_figures_replace_the_old_ones_and_have_an_interval_of_their_own() {
        let fifteen: Vec<_> = (1..=15).map(f64::from).collect();
        let fresh = report(&[
            (OURS, 2, &fifteen),
            ("mutex", 2, &[1.0; 15]),
            (OURS, 1, &[9.0; 15]),
        ]);
        let made = two_threads().replace(&fresh).expect("they belong together");
        assert_eq!((&made["rounds"], &made["longer"]), (&json!(7), &json!(15)));
        assert_eq!(made["machine"]["load"], json!(15.0));
        let results = Results::parse(&made).expect("it is a report");
        let lengths: Vec<_> = results
            .rows
            .iter()
            .map(|row| (row.variant.as_str(), row.samples["mpps"].len()))
            .collect();
        assert_eq!(
            lengths,
            [(OURS, 7), ("mutex", 7), (OURS, 15), ("mutex", 15)]
        );
        let verdicts = verdicts(&results);
        let figures = verdicts[0].cells.iter().flat_map(|cell| &cell.figure);
        let figures: Vec<_> = figures.map(|it| (it.low, it.high, it.rounds)).collect();
        assert_eq!(figures, [(2.0, 2.0, (7, 7)), (4.0, 12.0, (15, 15))]);
        let page = markdown::render(&results, &verdicts[..1], &[]);
        for text in [
            "- met: threads 1: 2 (2–2)\n",
            "- met: threads 2: 8 (4–12), 15 rounds\n",
            "| 1 | 2 (2–2) | 1 (1–1) |\n| 2 | 8 (4–12) † | 1 (1–1) † |\n",
            "measured anew in 15 rounds",
        ] {
            assert!(page.contains(text), "{page}");
        }
    }

    #[test]
    fn what_was_not_measured_or_by_other_programs_replaces_nothing() {
        let mut fresh = report(&[(OURS, 2, &[1.0; 15])]);
        let why = two_threads().replace(&fresh).err();
        assert_eq!(why.as_deref(), Some("mutex was not measured at threads 2"));
        fresh["machine"]["revision"] = json!("def");
        let why = two_threads().replace(&fresh).err();
        assert_eq!(why.as_deref(), Some("they differ in revision"));
    }

    #[test]
    fn a_result_of_another_revision_or_experiment_is_refused() {
        let check = |experiment, revision| {
            let checked = two_threads().check(experiment, Some(revision));
            checked.err().map(|error| error.to_string())
        };
        assert_eq!(check("x", "abc"), None);
        assert_eq!(check("merge", "def"), None);
        let why = check("x", "def").unwrap_or_default();
        assert!(
            why.contains("at revision abc, these programs are of def"),
            "{why}"
        );
        assert!(check("y", "abc").is_some());
    }
}
