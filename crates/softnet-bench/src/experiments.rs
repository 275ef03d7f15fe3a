//! The table of experiments.

use serde_json::Value;

use crate::error::BenchError;
use crate::options::Options;
use crate::report::Collector;
use crate::{backlog, nolock_qdisc, tap_case, web_case};

/// One experiment.
pub(crate) struct Experiment {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// Measures and returns the report, without `machine`.
    pub(crate) run: fn(&Options) -> Result<Value, BenchError>,
}

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "switch",
        summary: "two hosts joined by Softnet, Open vSwitch in user space, or the kernel's bridge",
        run: crate::switch::run,
    },
    Experiment {
        name: "tx-adopt",
        summary: "many threads, one transmit queue: against locks, rings and the kernel",
        run: crate::tx_adopt::run,
    },
    Experiment {
        name: "nolock-qdisc",
        summary: "qdiscs that senders share without a lock, against the same under one; web \
                  requests between containers",
        run: all_nolock_qdisc,
    },
    Experiment {
        name: "bulk-free",
        summary: "packets allocated and freed on one thread, against DPDK and general allocators",
        run: crate::bulk_free::run,
    },
    Experiment {
        name: "defer-free",
        summary: "packets allocated on one thread and freed on another, against the same",
        run: crate::defer_free::run,
    },
    Experiment {
        name: "backlog",
        summary: "packets from worker to worker; many small requests and senders between hosts \
                  joined by Softnet and others",
        run: all_backlog,
    },
    Experiment {
        name: "control",
        summary: "tc against a loaded switch, and policies of 10,000 classes, beside the kernel's",
        run: crate::control::run,
    },
    Experiment {
        name: "all-cores",
        summary: "one policy for several queues, whose instances share its rates",
        run: crate::all_cores::run,
    },
    Experiment {
        name: "vhost-user",
        summary: "virtual machines' ports, against DPDK's own back end and Open vSwitch",
        run: crate::vhost_user::run,
    },
    Experiment {
        name: "sim-check",
        summary: "policies in `softnet sim`, and on ports with real TCP",
        run: crate::sim_check::run,
    },
];

fn all_nolock_qdisc(options: &Options) -> Result<Value, BenchError> {
    let name = "nolock-qdisc";
    let known = [nolock_qdisc::variants(), web_case::variants()].concat();
    options.check_variants(name, &known)?;
    let mut results = Collector::default();
    nolock_qdisc::rows(options, &mut results)?;
    web_case::rows(options, &mut results)?;
    Ok(results.report(name))
}

fn all_backlog(options: &Options) -> Result<Value, BenchError> {
    let name = "backlog";
    let known = [backlog::VARIANTS, &tap_case::variants()[..]].concat();
    options.check_variants(name, &known)?;
    let mut results = Collector::default();
    backlog::rows(options, &mut results)?;
    tap_case::rows(options, &mut results)?;
    Ok(results.report(name))
}

/// The experiments that `name` stands for.
pub(crate) fn choose(name: &str) -> Result<Vec<&'static Experiment>, BenchError> {
    let chosen: Vec<_> = EXPERIMENTS
        .iter()
        .filter(|e| name == "all" || e.name == name)
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = EXPERIMENTS.iter().map(|e| e.name).collect();
        return Err(BenchError::Usage(format!(
            "there is no experiment '{name}'; there are: {}, all",
            names.join(", ")
        )));
    }
    Ok(chosen)
}

/// The list for `--help`.
pub(crate) fn help() -> String {
    let mut text = String::from("Experiments:\n");
    for experiment in EXPERIMENTS {
        text.push_str(&format!(
            "  {:12} {}\n",
            experiment.name, experiment.summary
        ));
    }
    text.push_str("  all          every one of them, in this order");
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// Minutes that a run of all takes, but for rounds that are measured again.
    fn minutes(arguments: &str) -> f64 {
        let always = ["softnet-bench", "all", "--plan"];
        let arguments = always.into_iter().chain(arguments.split(' '));
        let options = Options::parse_from(arguments);
        let one = |experiment: &Experiment| {
            let planned = (experiment.run)(&options.of(experiment.name)).expect("a plan");
            planned["plan"][1].as_f64().unwrap_or(0.0) / 60.0
        };
        EXPERIMENTS.iter().map(one).sum()
    }

    /// As `docs/results/make.sh` does it.
    #[test]
    fn what_is_judged_takes_less_than_an_hour_and_all_two_at_most() {
        let (judged, all) = (minutes("--judged --rounds 7"), minutes("--rounds 3"));
        assert!(judged > 5.0 && judged <= 60.0, "{judged}");
        assert!(all > judged && all <= 120.0, "{all}");
    }

    /// As `docs/results/make.sh` says before it starts.
    #[test]
    fn what_is_undecided_takes_more_rounds_of_some_turns() {
        let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
        let (mut some, mut all) = (false, 0.0);
        for experiment in EXPERIMENTS {
            let name = experiment.name;
            let result = format!("{results}/{name}.json");
            let plan = |more: &[&str]| {
                let always = ["softnet-bench", name, "--plan", "--judged"];
                let options = Options::parse_from(always.iter().chain(more));
                let planned = (experiment.run)(&options).expect("a plan");
                (planned["plan"][1].as_f64().unwrap_or(0.0), options)
            };
            let (first, _) = plan(&["--rounds", "7"]);
            let (longer, options) = plan(&["--rounds", "15", "--longer", &result]);
            assert!(longer <= first * 15.0 / 7.0 + 0.1, "{name}: {longer}");
            let undecided = options.longer.is_some_and(|longer| longer.has(&[], true));
            assert!(undecided || longer == 0.0, "{name}: {longer}");
            (some, all) = (some || undecided, all + longer);
        }
        assert_eq!(all > 0.0, some);
    }

    #[test]
    fn all_selects_every_experiment() {
        assert_eq!(choose("all").map(|c| c.len()).ok(), Some(EXPERIMENTS.len()));
    }

    #[test]
    fn name_selects_one_experiment() {
        let names = choose("switch").map(|c| c.iter().map(|e| e.name).collect::<Vec<_>>());
        assert_eq!(names.ok(), Some(vec!["switch"]));
    }

    #[test]
    fn unknown_name_error_lists_experiments() {
        let error = choose("swich")
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        assert!(
            error.contains("'swich'") && error.contains("switch, tx-adopt"),
            "{error}"
        );
    }
}
