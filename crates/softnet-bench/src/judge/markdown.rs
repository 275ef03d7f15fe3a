//! The page: what was measured on what, the goals, the tables.

use std::fmt::Write as _;

use serde_json::Value;

use super::goals::{Against, Bound, Goal};
use super::interval::{Estimate, ROUNDS};
use super::results::Results;
use super::tables::{self, LONGER, cell_name, figure};
use super::verdict::{Outcome, Verdict};
use crate::report::{AGAIN, OURS, text};
use crate::speed::{PASS_BOUND, STEAL_BOUND, WORK_BOUND};

/// Descriptions of the variants and notes for reading the figures: by hand, without figures.
const PREFACES: &[(&str, &str)] = &[
    ("tx-adopt", include_str!("prefaces/tx-adopt.md")),
    ("nolock-qdisc", include_str!("prefaces/nolock-qdisc.md")),
    ("bulk-free", include_str!("prefaces/bulk-free.md")),
    ("defer-free", include_str!("prefaces/defer-free.md")),
    ("backlog", include_str!("prefaces/backlog.md")),
    ("switch", include_str!("prefaces/switch.md")),
    ("control", include_str!("prefaces/control.md")),
    ("all-cores", include_str!("prefaces/all-cores.md")),
    ("vhost-user", include_str!("prefaces/vhost-user.md")),
    ("sim-check", include_str!("prefaces/sim-check.md")),
];

/// The whole page.
pub(super) fn render(results: &Results, verdicts: &[Verdict], pictures: &[String]) -> String {
    let mut page = heading(results);
    let preface = PREFACES
        .iter()
        .find(|(name, _)| *name == results.experiment);
    if let Some((_, preface)) = preface {
        let _ = write!(page, "\n{}\n", preface.trim());
    }
    notes(&mut page, results);
    if !verdicts.is_empty() {
        judged(&mut page, verdicts, results.longer);
    }
    if !pictures.is_empty() {
        page.push_str("\n## Pictures\n\n");
        for picture in pictures {
            let _ = writeln!(page, "![{picture}]({picture})");
        }
    }
    page.push_str("\n## Figures\n");
    for field in tables::FIELDS {
        let Some(table) = tables::table(results, field) else {
            continue;
        };
        let _ = write!(page, "\n### {} (`{}`)\n\n", field.title, field.name);
        if let Some((middle, most)) = tables::noise(results, field) {
            let [middle, most] = [middle, most].map(|apart| figure((apart - 1.0) * 100.0));
            let _ = write!(
                page,
                "Noise: `{OURS}` and `{AGAIN}` are {middle} % apart in the middle, {most} % \
                 where most.\n\n"
            );
        }
        page.push_str(&table);
    }
    page
}

fn heading(results: &Results) -> String {
    let Results {
        experiment,
        machine,
        seconds,
        rounds,
        longer,
        speed,
        ..
    } = results;
    let known = |name: &str| machine.get(name).map_or_else(|| "unknown".to_owned(), text);
    let judged = if results.judged { " --judged" } else { "" };
    let cpus = results.cpus.map(|n| format!(" --cpus {n}"));
    let cpus = cpus.unwrap_or_default();
    let mut page = format!(
        "# {experiment}\n\nMade by `softnet-bench report` from `{experiment}.json`: \
         `softnet-bench {experiment}{judged}{cpus} --seconds {seconds} --rounds {rounds} --json`.\n\
         \n- Programs: `softnet-bench` of revision {}, daemon `softnet` {}",
        known("revision"),
        known("daemon"),
    );
    for (name, version) in machine
        .get("peers")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let _ = write!(page, ", {name} {}", text(version));
    }
    let weaknesses = |which: &str| {
        let names = machine
            .get("mitigations")
            .and_then(|all| all[which].as_array());
        let names: Vec<_> = names.into_iter().flatten().map(text).collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let _ = write!(
        page,
        ".\n- Machine: {}, {} CPUs, {} GiB, hypervisor {}, Linux {}. Huge pages: {}. Timer slack: \
         {} µs. Mitigations: {}; weaknesses left open: {}.\n\
         - Before each run the machine was at most {} % busy, its load at most {}. The host took \
         at \
         most {} % of the CPU time of a run. First run: {}.\n",
        known("cpu"),
        known("cpus"),
        known("memory_gib"),
        known("hypervisor"),
        known("kernel"),
        known("huge_pages"),
        known("timer_slack_us"),
        weaknesses("on"),
        weaknesses("off"),
        known("busy_percent"),
        known("load"),
        known("steal_percent"),
        known("date"),
    );
    if let (Some(work), Some(pass)) = (speed.work_ns, speed.pass_ns) {
        let _ = writeln!(
            page,
            "- Speed: beside each turn runs a fixed piece of work. A thousand steps of it took {} \
             to \
             {} ns, handing a cache line from the first CPU to the second {} to {} ns (tens if \
             they \
             share a core or its cache, a hundred and more if they do not). Of {} rounds of a \
             cell, those in which that changed by more than \
             {} or {} times, or the host took more than {} % of the CPU time, were measured \
             again, at most twice: {} times; {} rounds stayed unsteady.",
            figure(work.0),
            figure(work.1),
            figure(pass.0),
            figure(pass.1),
            speed.rounds,
            WORK_BOUND,
            PASS_BOUND,
            STEAL_BOUND * 100.0,
            speed.again,
            speed.unsteady,
        );
    } else {
        page.push_str("- Speed: the machine's speed was not watched.\n");
    }
    let _ = writeln!(
        page,
        "- Rounds: {rounds}, each with all variants of a cell in random order. *Window* is the \
         time \
         for which a figure is measured in one round. Figures are medians over the rounds; in \
         brackets an interval that holds the true median with at least 95 % confidence, by order \
         statistics, if there are {ROUNDS} rounds or more, else all that was seen. `{AGAIN}` is \
         `{OURS}` once more: what these two differ by is noise.",
    );
    if let Some(longer) = longer {
        let _ = writeln!(
            page,
            "- Longer: cells that were undecided then, and those that goals compare them with, \
             were measured anew in {longer} rounds with the same windows. Only these rounds \
             count there; figures of them are marked{LONGER}.",
        );
    }
    if !machine.contains_key("revision") || machine.get("dirty") == Some(&Value::Bool(true)) {
        page.push_str(
            "\n**Not a result:** the program does not know its revision. `docs/results/make.sh` \
             builds one that does, of a tree without changes.\n",
        );
    }
    page
}

/// Versions and settings of peers, and what was not measured.
fn notes(page: &mut String, results: &Results) {
    let noted = results.each(|row| {
        let notes = row.notes.join(", ");
        (!notes.is_empty()).then(|| format!("- `{}`: {notes}\n", row.variant))
    });
    let skipped = results.each(|row| {
        let why = row.skipped.as_ref()?;
        Some(format!(
            "- `{}` skipped ({}): {why}\n",
            row.variant,
            cell_name(&row.params)
        ))
    });
    if !noted.is_empty() || !skipped.is_empty() {
        let _ = write!(page, "\n{}{}", noted.concat(), skipped.concat());
    }
}

fn bound(goal: &Goal) -> String {
    let (words, value) = match goal.bound {
        Bound::AtLeast(value) => ("at least", value),
        Bound::AtMost(value) => ("at most", value),
    };
    let value = figure(value);
    let words = match goal.of {
        OURS => words.to_owned(),
        other => format!("of `{other}` {words}"),
    };
    let those = |others: &[(&str, &str)]| {
        let shown = others.iter().filter(|(_, value)| *value != "-");
        let others: Vec<_> = shown.map(|(n, v)| format!("{n} {v}")).collect();
        others.join(", ")
    };
    match &goal.against {
        Against::Variant(variant) => format!("{words} {value} times `{variant}`"),
        Against::Least(variants) => {
            format!(
                "{words} {value} times the least of `{}`",
                variants.join("`, `")
            )
        }
        Against::Same(others) => {
            format!("{words} {value} times that with {}", those(others))
        }
        Against::Nothing(unit) => format!("{words} {value} {unit}"),
        Against::Beyond(variant, floor) => {
            format!("{words} {value} times `{variant}`, each less `{floor}`")
        }
        Against::MoreThan(others, unit) => {
            format!(
                "{words} {value} {unit} more than that with {}",
                those(others)
            )
        }
    }
}

fn interval(it: Estimate, longer: Option<usize>) -> String {
    let [median, low, high] = [it.median, it.low, it.high].map(figure);
    match it.rounds {
        (some, all) if some < all => format!("{median} ({low}–{high}), {some} of {all} rounds"),
        (_, all) if longer == Some(all) => format!("{median} ({low}–{high}), {all} rounds"),
        _ => format!("{median} ({low}–{high})"),
    }
}

/// The cells of a goal in words.
fn place(goal: &Goal) -> String {
    let named = goal.at.iter().filter(|(_, values)| values[..] != ["-"]);
    let named: Vec<_> = named
        .map(|(name, values)| format!("{name} {}", values.join("/")))
        .collect();
    named.join("; ")
}

fn judged(page: &mut String, verdicts: &[Verdict], longer: Option<usize>) {
    let _ = write!(
        page,
        "\n## Goals\n\nA cell is *met* if the whole interval meets the goal, *missed* if none of \
         it does or there is no figure, and else *undecided*; with fewer than {ROUNDS} rounds \
         that count it is always undecided.\n\n\
         | field | goal | where | met | missed | undecided |\n|---|---|---|---|---|---|\n",
    );
    for verdict in verdicts {
        let goal = verdict.goal;
        let note = match &*goal.note {
            "" => String::new(),
            note => format!(" ({note})"),
        };
        let [met, missed, undecided] = Outcome::ALL.map(|outcome| verdict.count(outcome));
        let _ = writeln!(
            page,
            "| `{}` | {}{note} | {} | {met} | {missed} | {undecided} |",
            goal.metric,
            bound(goal),
            place(goal),
        );
    }
    for verdict in verdicts {
        let _ = write!(
            page,
            "\n`{}` {}:\n\n",
            verdict.goal.metric,
            bound(verdict.goal)
        );
        for cell in &verdict.cells {
            let shown = match &cell.figure {
                Ok(it) => interval(*it, longer),
                Err(why) => format!("no figure ({why})"),
            };
            let outcome = verdict.outcome(cell).name();
            let _ = writeln!(page, "- {outcome}: {}: {shown}", cell_name(&cell.params));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::goals::GOALS;
    use super::*;
    use crate::report::Collector;

    fn page(revision: Option<&str>) -> String {
        let mut results = Collector::default();
        for (variant, mpps) in [("softnet", 30.0), (AGAIN, 31.0), ("mutex", 20.0)] {
            let params = [
                ("threads", json!(2)),
                ("qdisc", json!("pfifo")),
                ("driver", json!("null")),
                ("bulk", json!(1)),
            ];
            (0..ROUNDS).for_each(|_| results.add(variant, &params, &[("mpps", mpps)]));
        }
        let mut report = results.report("tx-adopt");
        report["machine"] = json!({"cpus": 2});
        if let Some(revision) = revision {
            report["machine"]["revision"] = json!(revision);
        }
        let results = Results::parse(&report).expect("it is a report");
        let verdicts: Vec<_> = GOALS
            .iter()
            .filter(|goal| goal.experiment == "tx-adopt")
            .map(|goal| Verdict::of(goal, &results))
            .collect();
        render(&results, &verdicts, &["tx-adopt-x.svg".to_owned()])
    }

    #[test]
    fn a_goal_counts_cells_that_were_not_measured() {
        let page = page(Some("abc"));
        assert!(page.contains("bulk 1 | 1 | 7 | 0 |"), "{page}");
        for line in [
            "- met: threads 2, qdisc pfifo, driver null, bulk 1: 1.5 (1.5–1.5)\n",
            "- missed: threads 8, qdisc fq, driver copy, bulk 1, load -: no figure",
        ] {
            assert!(page.contains(line), "{page}");
        }
        assert!(page.contains("![tx-adopt-x.svg](tx-adopt-x.svg)"));
        assert!(page.contains("3.33 % apart"), "{page}");
    }

    #[test]
    fn figures_of_an_unknown_revision_are_marked() {
        assert!(page(None).contains("Not a result"));
        assert!(!page(Some("abc")).contains("Not a result"));
    }
}
