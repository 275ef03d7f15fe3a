//! The goals, as [goals.txt](../../../src/judge/goals.txt) has them.

use std::sync::LazyLock;

use crate::report::OURS;

/// The reference of a figure.
#[derive(Debug, Clone)]
pub(super) enum Against {
    /// Another variant with the same parameters; the figure is the ratio.
    Variant(&'static str),
    /// In each round the one of these that has the least.
    Least(Vec<&'static str>),
    /// The same variant with other values of these parameters; `-`: without the parameter.
    Same(Params),
    /// Nothing: the figure itself, in this unit.
    Nothing(&'static str),
    /// Another variant, each less what a third has, which is the generator's own: the ratio.
    Beyond(&'static str, &'static str),
    /// As [`Against::Same`]; the figure is how much more ours is, in this unit.
    MoreThan(Params, &'static str),
}

/// Names and values.
type Params = Vec<(&'static str, &'static str)>;

/// The bound for the figure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A goal, for all cells at once.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) experiment: &'static str,
    /// The variant that is judged.
    pub(super) of: &'static str,
    pub(super) metric: &'static str,
    pub(super) against: Against,
    pub(super) bound: Bound,
    /// Names of parameters, and values: each combination is a cell.
    pub(super) at: Vec<(&'static str, Vec<&'static str>)>,
    /// In words, if there is something to say.
    pub(super) note: String,
}

/// All of them.
pub(super) static GOALS: LazyLock<Vec<Goal>> = LazyLock::new(|| {
    let mut experiment = "";
    let mut goals = Vec::new();
    for paragraph in TEXT.split("\n\n") {
        match paragraph.strip_prefix('[') {
            Some(name) => experiment = name.trim_end_matches(['\n', ']']),
            None => goals.extend(Goal::parse(experiment, paragraph)),
        }
    }
    goals
});

const TEXT: &str = include_str!("goals.txt");

impl Goal {
    /// Reads a paragraph; none of a comment.
    pub(super) fn parse(experiment: &'static str, text: &'static str) -> Option<Goal> {
        let (what, cells) = text.split_once("\n    at ")?;
        let (cells, note) = cells.split_once("--").unwrap_or((cells, ""));
        let (of, what) = what.split_once(": ").unwrap_or((OURS, what));
        let mut words = what.splitn(4, ' ');
        let (metric, sign) = (words.next()?, words.next()?);
        let bound = words.next()?.parse().ok()?;
        let (kind, rest) = words.next()?.split_once(' ')?;
        let params = |text: &'static str| {
            let pairs = text.split(", ").map(|pair| pair.split_once(' '));
            pairs.collect::<Option<Params>>()
        };
        let names: Vec<_> = rest.split(' ').collect();
        let cell = |text: &'static str| {
            let mut words = text.split_whitespace();
            Some((words.next()?, words.collect()))
        };
        Some(Goal {
            experiment,
            of,
            metric,
            against: match (kind, &names[..]) {
                ("of", ["least", variants @ ..]) => Against::Least(variants.to_vec()),
                ("of", [variant, "less", floor]) => Against::Beyond(variant, floor),
                ("of", [variant]) => Against::Variant(variant),
                ("with", _) => Against::Same(params(rest)?),
                ("above", _) => {
                    let (unit, others) = rest.split_once(' ')?;
                    Against::MoreThan(params(others)?, unit)
                }
                ("unit", _) => Against::Nothing(rest),
                _ => return None,
            },
            bound: match sign {
                ">=" => Bound::AtLeast(bound),
                "<=" => Bound::AtMost(bound),
                _ => return None,
            },
            at: cells.split(';').map(cell).collect::<Option<_>>()?,
            note: note.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::Results;
    use super::super::verdict::Verdict;
    use super::*;
    use crate::report::{Collector, Param};
    use crate::{all_cores, nolock_qdisc, sim_check, vhost_user};

    /// Judges all goals of an experiment with figures for every variant in every cell.
    fn every_cell_is_measured(experiment: &str, measured: &[Vec<Param>], fields: &[&'static str]) {
        let mut results = Collector::default();
        let variants = [
            OURS,
            "locked",
            "rings",
            "mutex",
            "busylock",
            "dpdk-sched",
            "private",
            "dpdk-vhost",
            "equal-load",
            "no-defer",
            "ovs",
            "ovs-tso",
            "kernel-bridge",
            "spin-adopt",
            "adopt",
            "unloaded",
        ];
        for params in measured {
            for variant in variants {
                let fields: Vec<_> = fields.iter().map(|name| (*name, 1.0)).collect();
                results.add(variant, params, &fields);
            }
        }
        let results = Results::parse(&results.report(experiment)).expect("a report");
        let own = |goal: &&Goal| goal.experiment == experiment && fields.contains(&goal.metric);
        assert!(GOALS.iter().any(|goal| own(&goal)));
        for goal in GOALS.iter().filter(own) {
            let verdict = Verdict::of(goal, &results);
            let figures = verdict.cells.iter().map(|cell| &cell.figure);
            figures.for_each(|figure| assert!(figure.is_ok(), "{}: {figure:?}", goal.note));
        }
    }

    #[test]
    fn every_paragraph_is_a_section_or_a_goal() {
        let paragraphs = TEXT.split("\n\n");
        let goals = paragraphs.filter(|text| !text.starts_with(['#', '[']));
        let wrong: Vec<_> = goals
            .filter(|text| Goal::parse("x", text).is_none())
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let known: Vec<_> = crate::experiments::EXPERIMENTS
            .iter()
            .map(|e| e.name)
            .collect();
        assert!(GOALS.iter().all(|goal| known.contains(&goal.experiment)));
        assert!(GOALS.len() > 100, "{}", GOALS.len());
    }

    /// A goal asked for one queue below `mq`, which no variant has: it was never met, whatever was
    /// measured.
    #[test]
    fn every_cell_that_nolock_goals_are_about_is_measured() {
        let fields = ["mpps", "p999_ns", "ns_per_packet"];
        every_cell_is_measured("nolock-qdisc", &nolock_qdisc::measured(), &fields);
    }

    #[test]
    fn every_cell_that_goals_of_all_cores_are_about_is_measured() {
        let fields = [
            "mpps",
            "sojourn_p50_ns",
            "sojourn_p99_ns",
            "rate_error_beyond_frame_percent",
            "skew_percent",
            "rate_percent",
            "fairness_percent",
            "tcp_gbps",
        ];
        every_cell_is_measured("all-cores", &all_cores::measured(), &fields);
    }

    #[test]
    fn every_cell_that_goals_of_vhost_user_are_about_is_measured() {
        let fields = ["mpps", "p50_ns"];
        every_cell_is_measured("vhost-user", &vhost_user::measured(), &fields);
    }

    #[test]
    fn every_cell_that_goals_of_sim_check_are_about_is_measured() {
        let fields = [
            "sim_error_percent",
            "sojourn_p50_apart",
            "sojourn_p99_apart",
        ];
        every_cell_is_measured("sim-check", &sim_check::measured(), &fields);
    }
}
