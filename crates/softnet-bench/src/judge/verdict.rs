//! Goals judged over all their cells. A cell that was not measured is missed, and is said.

use super::goals::{Against, Bound, Goal};
use super::interval::Estimate;
use super::results::{Params, Results, param};
use crate::report::{Param, text};

/// The judgement of a cell: which side of the bound the whole interval is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Met,
    Missed,
    /// It holds both sides, or there are too few rounds.
    Undecided,
}

impl Outcome {
    pub(super) const ALL: [Outcome; 3] = [Outcome::Met, Outcome::Missed, Outcome::Undecided];

    pub(super) fn name(self) -> &'static str {
        match self {
            Outcome::Met => "met",
            Outcome::Missed => "missed",
            Outcome::Undecided => "undecided",
        }
    }
}

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
        for wanted in combinations(&goal.at) {
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

    pub(super) fn outcome(&self, cell: &Cell) -> Outcome {
        let Ok(it) = &cell.figure else {
            return Outcome::Missed;
        };
        match [it.low, it.high].map(|end| self.meets(end)) {
            [true, true] if it.decides() => Outcome::Met,
            [false, false] if it.decides() => Outcome::Missed,
            _ => Outcome::Undecided,
        }
    }

    /// The cells, by their parameters, whose figures make that of a cell.
    pub(super) fn compared(&self, cell: &Cell) -> Vec<Params> {
        let mut cells = vec![cell.params.clone()];
        if let Against::Same(others) | Against::MoreThan(others, _) = &self.goal.against {
            cells.push(with(&cell.params, others));
        }
        cells
    }

    /// The number of cells with this outcome.
    pub(super) fn count(&self, outcome: Outcome) -> usize {
        let cells = self.cells.iter();
        cells.filter(|cell| self.outcome(cell) == outcome).count()
    }
}

/// True if the goal is about this variant at these parameters. `several`: there may be others.
pub(super) fn needs(goal: &Goal, variant: &str, params: &[Param], several: bool) -> bool {
    let value = |name: &str| {
        params
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| text(v))
    };
    let fits = |others: &[(&str, &str)]| {
        combinations(&goal.at).iter().any(|wanted| {
            wanted.iter().all(|(name, wanted)| {
                let other = others.iter().find(|(other, _)| other == name);
                let wanted = other.map_or(*wanted, |(_, value)| *value);
                value(name).map_or(several || wanted == "-", |value| value == wanted)
            })
        })
    };
    let besides = match &goal.against {
        Against::Variant(other) => variant == *other,
        Against::Beyond(other, floor) => [*other, *floor].contains(&variant),
        Against::Least(others) => others.contains(&variant),
        Against::Same(others) | Against::MoreThan(others, _) => {
            return variant == goal.of && (fits(&[]) || fits(others));
        }
        Against::Nothing(..) => false,
    };
    (besides || variant == goal.of) && fits(&[])
}

/// Every combination of the values.
fn combinations(
    at: &[(&'static str, Vec<&'static str>)],
) -> Vec<Vec<(&'static str, &'static str)>> {
    at.iter().fold(vec![Vec::new()], |before, (names, values)| {
        let with = |value: &'static str| {
            let tied: Vec<_> = names.split(',').zip(value.split(',')).collect();
            before
                .iter()
                .map(move |some| [&some[..], &tied[..]].concat())
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
    let nothing = || "no rounds in which both were measured".to_owned();
    match &goal.against {
        Against::Variant(variant) => Estimate::of_ratios(ours, samples(variant, params)?),
        Against::Least(variants) => {
            // Those that are there; at least one has to be.
            let theirs: Vec<_> = variants.iter().map(|name| samples(name, params)).collect();
            let missing = theirs.iter().find_map(|found| found.clone().err());
            let found: Vec<_> = theirs.into_iter().flatten().collect();
            if found.is_empty() {
                return Err(missing.unwrap_or_else(nothing));
            }
            if found.iter().any(|samples| samples.len() != ours.len()) {
                return Err(nothing());
            }
            let least = |round| {
                let figures = found.iter().map(|samples| samples[round]);
                figures.fold(f64::NAN, f64::min)
            };
            let least: Vec<_> = (0..ours.len()).map(least).collect();
            Estimate::of_ratios(ours, &least)
        }
        Against::Same(others) => {
            Estimate::of_ratios(ours, samples(goal.of, &with(params, others))?)
        }
        Against::Nothing(_) => Estimate::of(ours),
        Against::Beyond(variant, floor) => {
            let (theirs, floor) = (samples(variant, params)?, samples(floor, params)?);
            if [theirs.len(), floor.len()] != [ours.len(); 2] {
                return Err(nothing());
            }
            let beyond = |of: &[f64]| -> Vec<f64> {
                let each = of.iter().zip(floor);
                // Histograms tell no less apart.
                each.map(|(of, floor)| (of - floor).max(floor / 16.0))
                    .collect()
            };
            Estimate::of_ratios(&beyond(ours), &beyond(theirs))
        }
        Against::MoreThan(others, _) => {
            let theirs = samples(goal.of, &with(params, others))?;
            Estimate::of_pairs(ours, theirs, |ours, theirs| ours - theirs)
        }
    }
    .ok_or_else(nothing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::Collector;

    const GOAL: &str = "mpps >= 1.3 of mutex\n    at threads 2 8 64; load -";

    fn goal(text: &'static str) -> &'static Goal {
        Box::leak(Box::new(Goal::parse("x", text).expect("it is one")))
    }

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
            ("softnet", 2, &[3.0; 6]),
            ("mutex", 2, &[2.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
            ("softnet", 64, &[9.0; 6]),
        ]);
        let verdict = Verdict::of(goal(GOAL), &results);
        assert_eq!(verdict.cells.len(), 3);
        let outcomes: Vec<_> = verdict.cells.iter().map(|c| verdict.outcome(c)).collect();
        assert_eq!(outcomes, [Outcome::Met, Outcome::Missed, Outcome::Missed]);
        let why = |cell: usize| verdict.cells[cell].figure.clone().err();
        assert_eq!(why(1).as_deref(), Some("softnet: not measured"));
        assert_eq!(why(2).as_deref(), Some("mutex: too many"));
        assert_eq!(
            Outcome::ALL.map(|outcome| verdict.count(outcome)),
            [1, 2, 0]
        );
    }

    #[test]
    fn an_interval_that_holds_both_sides_or_of_few_rounds_decides_nothing() {
        let of = |ours: &[f64]| {
            let theirs = vec![1.0; ours.len()];
            let results = results(&[("softnet", 2, ours), ("mutex", 2, &theirs)]);
            let verdict = Verdict::of(goal(GOAL), &results);
            verdict.outcome(&verdict.cells[0])
        };
        assert_eq!(of(&[2.0; 6]), Outcome::Met);
        assert_eq!(of(&[2.0; 5]), Outcome::Undecided);
        assert_eq!(of(&[2.0, 2.0, 2.0, 2.0, 2.0, 1.0]), Outcome::Undecided);
        assert_eq!(of(&[1.0; 6]), Outcome::Missed);
    }

    #[test]
    fn a_goal_needs_its_variants_in_its_cells_and_what_it_is_compared_with() {
        let own = goal(GOAL);
        let more = "mpps >= 1.3 with threads 1, load 50%\n    at threads,load 8,- 64,80%";
        let more = goal(more);
        let at = |threads: usize, load: Option<&str>| {
            let load = load.map(|load| ("load", json!(load)));
            Vec::from_iter([("threads", json!(threads))].into_iter().chain(load))
        };
        for (goal, variant, params, several, needed) in [
            (own, "mutex", at(2, None), false, true),
            (own, "mutex", at(2, Some("50%")), false, false),
            (own, "busylock", at(2, None), false, false),
            (own, "softnet", at(1, None), false, false),
            (own, "softnet", vec![], false, false),
            (own, "softnet", vec![], true, true),
            (more, "softnet", at(64, Some("80%")), false, true),
            (more, "softnet", at(8, Some("80%")), false, false),
            (more, "softnet", at(1, Some("50%")), false, true),
        ] {
            assert_eq!(
                needs(goal, variant, &params, several),
                needed,
                "{variant} {params:?}"
            );
        }
    }

    #[test]
    fn what_the_generator_has_itself_does_not_count() {
        let goal = goal("other: mpps <= 1.2 of mutex less private\n    at threads 2");
        let results = results(&[
            ("other", 2, &[30.0, 16.1]),
            ("mutex", 2, &[20.0, 12.0]),
            ("private", 2, &[10.0, 16.0]),
        ]);
        let verdict = Verdict::of(goal, &results);
        let figure = verdict.cells[0].figure.clone();
        assert_eq!(figure.map(|it| (it.low, it.high)), Ok((1.0, 2.0)));
        let at = [("threads", json!(2))];
        assert!(
            ["other", "mutex", "private"]
                .iter()
                .all(|name| needs(goal, name, &at, false))
        );
        assert!(!needs(goal, "softnet", &at, false));
    }

    #[test]
    fn the_same_variant_can_be_compared_with_itself_elsewhere() {
        let goal = goal("mpps >= 1.3 with threads 2\n    at threads 8");
        let results = results(&[("softnet", 2, &[2.0]), ("softnet", 8, &[5.0])]);
        let verdict = Verdict::of(goal, &results);
        let figure = verdict.cells[0].figure.clone();
        assert_eq!(figure.map(|it| it.median), Ok(2.5));
    }

    #[test]
    fn the_best_of_several_is_chosen_round_by_round() {
        let goal = goal("mpps <= 0.5 of least a b gone\n    at threads 2");
        let results = results(&[
            ("softnet", 2, &[1.0, 1.0]),
            ("a", 2, &[2.0, 8.0]),
            ("b", 2, &[8.0, 4.0]),
        ]);
        let verdict = Verdict::of(goal, &results);
        let figure = verdict.cells[0].figure.clone();
        assert_eq!(figure.map(|it| (it.low, it.high)), Ok((0.25, 0.5)));
    }
}
