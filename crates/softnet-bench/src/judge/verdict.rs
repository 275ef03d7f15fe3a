//! Goals judged over all their cells. A cell that was not measured is not met, and is said.

use super::goals::{Against, Bound, Goal};
use super::interval::Estimate;
use super::results::{Params, Results, param};

/// One cell of a goal.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) params: Params,
    /// The figure that is judged, or the reason why there is none.
    pub(super) figure: Result<Estimate, String>,
}

/// A goal and what came out.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) goal: &'static Goal,
    pub(super) cells: Vec<Cell>,
}

impl Verdict {
    pub(super) fn of(goal: &'static Goal, results: &Results) -> Verdict {
        let mut cells = Vec::new();
        for wanted in combinations(goal.at) {
            let same = |params: &Params| {
                wanted
                    .iter()
                    .all(|(name, value)| param(params, name) == *value)
            };
            let mut found = results.each(|row| {
                let judged = row.samples.contains_key(goal.metric);
                (judged && same(&row.params)).then(|| row.params.clone())
            });
            if found.is_empty() {
                let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
                found.push(wanted.iter().map(own).collect());
            }
            cells.extend(found.into_iter().map(|params| Cell {
                figure: figure(goal, results, &params),
                params,
            }));
        }
        Verdict { goal, cells }
    }

    fn meets(&self, value: f64) -> bool {
        match self.goal.bound {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        }
    }

    /// True if the cell's median meets the goal.
    pub(super) fn met(&self, cell: &Cell) -> bool {
        cell.figure.as_ref().is_ok_and(|it| self.meets(it.median))
    }

    /// True if the whole interval meets it.
    pub(super) fn surely_met(&self, cell: &Cell) -> bool {
        let both = |it: &Estimate| self.meets(it.low) && self.meets(it.high);
        cell.figure.as_ref().is_ok_and(both)
    }

    /// The measured cell that is furthest from the goal, or nearest to missing it.
    pub(super) fn worst(&self) -> Option<(&Cell, Estimate)> {
        let measured = self.cells.iter().filter_map(|cell| {
            let figure = *cell.figure.as_ref().ok()?;
            Some((cell, figure))
        });
        let badness = |(_, it): &(&Cell, Estimate)| match self.goal.bound {
            Bound::AtLeast(_) => -it.median,
            Bound::AtMost(_) => it.median,
        };
        measured.max_by(|a, b| badness(a).total_cmp(&badness(b)))
    }
}

/// Every combination of the values.
fn combinations(
    at: &[(&'static str, &'static [&'static str])],
) -> Vec<Vec<(&'static str, &'static str)>> {
    at.iter().fold(vec![Vec::new()], |before, (name, values)| {
        let with = |value| {
            before
                .iter()
                .map(move |some| [&some[..], &[(*name, value)]].concat())
        };
        values.iter().copied().flat_map(with).collect()
    })
}

/// The parameters with other values of some; `-`: without it.
fn with(params: &Params, others: &[(&str, &str)]) -> Params {
    let change = |(name, value): &(String, String)| {
        let other = others.iter().find(|(other, _)| other == name);
        let value = other.map_or(value.as_str(), |(_, value)| *value);
        (value != "-").then(|| (name.clone(), value.to_owned()))
    };
    params.iter().filter_map(change).collect()
}

fn figure(goal: &Goal, results: &Results, params: &Params) -> Result<Estimate, String> {
    let samples = |variant: &str, params: &Params| {
        results
            .samples(variant, params, goal.metric)
            .filter(|samples| !samples.is_empty())
            .ok_or_else(|| match results.skipped(variant, params) {
                Some(why) => format!("{variant}: {why}"),
                None => format!("{variant}: not measured"),
            })
    };
    let ours = samples(goal.of, params)?;
    let nothing = || "no rounds".to_owned();
    match goal.against {
        Against::Variant(variant) => Estimate::of_ratios(ours, samples(variant, params)?),
        Against::Least(variants) => {
            // Those that are there; at least one has to be.
            let theirs: Vec<_> = variants.iter().map(|name| samples(name, params)).collect();
            let missing = theirs.iter().find_map(|found| found.clone().err());
            let found: Vec<_> = theirs.into_iter().flatten().collect();
            if found.is_empty() {
                return Err(missing.unwrap_or_else(nothing));
            }
            let least = |round: usize| {
                let figures = found.iter().filter_map(|samples| samples.get(round));
                figures.copied().fold(f64::INFINITY, f64::min)
            };
            let least: Vec<_> = (0..ours.len()).map(least).collect();
            Estimate::of_ratios(ours, &least)
        }
        Against::Same(others) => {
            Estimate::of_ratios(ours, samples(goal.of, &with(params, others))?)
        }
        Against::Nothing(_, unit) => {
            let scaled: Vec<_> = ours.iter().map(|value| value / unit).collect();
            Estimate::of(&scaled)
        }
        Against::LessThan(variant, _) => {
            let theirs = samples(variant, params)?;
            let less: Vec<_> = theirs.iter().zip(ours).map(|(t, o)| t - o).collect();
            Estimate::of(&less)
        }
        Against::MoreThan(others, _) => {
            let theirs = samples(goal.of, &with(params, others))?;
            let more: Vec<_> = theirs.iter().zip(ours).map(|(t, o)| o - t).collect();
            Estimate::of(&more)
        }
    }
    .ok_or_else(nothing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::Collector;

    static GOAL: Goal = Goal {
        experiment: "x",
        of: "softnet",
        metric: "mpps",
        against: Against::Variant("mutex"),
        bound: Bound::AtLeast(1.3),
        at: &[("threads", &["2", "8", "64"]), ("load", &["-"])],
        note: "",
    };

    fn results(figures: &[(&'static str, usize, &[f64])]) -> Results {
        let mut results = Collector::default();
        for (variant, threads, samples) in figures {
            for sample in *samples {
                results.add(
                    variant,
                    &[("threads", json!(threads))],
                    &[("mpps", *sample)],
                );
            }
        }
        results.skip("mutex", &[("threads", json!(64))], "too many");
        Results::parse(&results.report("x")).expect("it is a report")
    }

    #[test]
    fn a_cell_without_figures_is_not_met_and_says_why() {
        let results = results(&[
            ("softnet", 2, &[3.0, 3.0]),
            ("mutex", 2, &[2.0, 1.0]),
            ("softnet", 64, &[9.0]),
        ]);
        let verdict = Verdict::of(&GOAL, &results);
        assert_eq!(verdict.cells.len(), 3);
        let met: Vec<_> = verdict.cells.iter().map(|cell| verdict.met(cell)).collect();
        assert_eq!(met, [true, false, false]);
        let why = |cell: usize| verdict.cells[cell].figure.clone().err();
        assert_eq!(why(1).as_deref(), Some("softnet: not measured"));
        assert_eq!(why(2).as_deref(), Some("mutex: too many"));
        assert!(verdict.surely_met(&verdict.cells[0]));
    }

    #[test]
    fn the_worst_cell_is_named_and_a_wide_interval_is_not_sure() {
        let results = results(&[
            ("softnet", 2, &[4.0, 1.0, 4.0]),
            ("mutex", 2, &[2.0, 2.0, 2.0]),
            ("softnet", 8, &[1.0, 1.0, 1.0]),
            ("mutex", 8, &[2.0, 2.0, 2.0]),
        ]);
        let verdict = Verdict::of(&GOAL, &results);
        assert!(verdict.met(&verdict.cells[0]) && !verdict.surely_met(&verdict.cells[0]));
        let worst = verdict
            .worst()
            .map(|(cell, it)| (param(&cell.params, "threads"), it.median));
        assert_eq!(worst, Some(("8", 0.5)));
    }

    #[test]
    fn the_same_variant_can_be_compared_with_itself_elsewhere() {
        static MORE: Goal = Goal {
            against: Against::Same(&[("threads", "2")]),
            at: &[("threads", &["8"])],
            ..GOAL
        };
        let results = results(&[("softnet", 2, &[2.0]), ("softnet", 8, &[5.0])]);
        let verdict = Verdict::of(&MORE, &results);
        let figure = verdict.cells[0].figure.clone();
        assert_eq!(figure.map(|it| it.median), Ok(2.5));
    }

    #[test]
    fn the_best_of_several_is_chosen_round_by_round() {
        static BEST: Goal = Goal {
            against: Against::Least(&["a", "b", "gone"]),
            bound: Bound::AtMost(0.5),
            at: &[("threads", &["2"])],
            ..GOAL
        };
        let results = results(&[
            ("softnet", 2, &[1.0, 1.0]),
            ("a", 2, &[2.0, 8.0]),
            ("b", 2, &[8.0, 4.0]),
        ]);
        let verdict = Verdict::of(&BEST, &results);
        let figure = verdict.cells[0].figure.clone();
        assert_eq!(figure.map(|it| (it.low, it.high)), Ok((0.25, 0.5)));
    }
}
