//! The page: what was measured on what, the goals, the tables.

use std::fmt::Write as _;

use serde_json::Value;

use super::goals::{Against, Bound, Goal, WHOSE};
use super::interval::{Estimate, confidence};
use super::results::Results;
use super::tables::{self, cell_name, figure};
use super::verdict::Verdict;
use crate::report::{AGAIN, text};

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
        judged(&mut page, verdicts);
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
                "Noise: `{WHOSE}` and `{AGAIN}` are {middle} % apart in the middle, {most} % \
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
        ..
    } = results;
    let known = |name: &str| machine.get(name).map_or_else(|| "?".to_owned(), text);
    let mut page = format!(
        "# {experiment}\n\nMade by `softnet-bench report` from `{experiment}.json`: \
         `softnet-bench {experiment} --seconds {seconds} --rounds {rounds} --json`, revision {}.\n\
         {}, {} CPUs, {} GiB, Linux {}, {}, load {} before the run.",
        known("revision"),
        known("cpu"),
        known("cpus"),
        known("memory_gib"),
        known("kernel"),
        known("date"),
        known("load"),
    );
    if let Some(peers) = machine.get("peers").and_then(Value::as_object) {
        for (name, version) in peers {
            let _ = write!(page, " {name} {}.", text(version));
        }
    }
    let sure = confidence(usize::try_from(*rounds).unwrap_or(1));
    let _ = write!(
        page,
        "\nThe variants take turns in a new random order in each of {rounds} rounds. Medians; in \
         brackets what holds the true median with {} % \
         confidence, by order statistics. `{AGAIN}` is `{WHOSE}` once more: what these two differ \
         by is noise.\n",
        figure(sure)
    );
    if machine.get("dirty") == Some(&Value::Bool(true)) || !machine.contains_key("revision") {
        page.push_str(
            "\n**Not a result:** the program was not built from a revision, but from a \
             tree with changes.\n",
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
    let those = |others: &[(&str, &str)]| {
        let shown = others.iter().filter(|(_, value)| *value != "-");
        let others: Vec<_> = shown.map(|(n, v)| format!("{n} {v}")).collect();
        others.join(", ")
    };
    match goal.against {
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
        Against::Nothing(unit, _) => format!("{words} {value} {unit}"),
        Against::LessThan(variant, unit) => {
            format!("{words} {value} {unit} less than `{variant}`")
        }
        Against::MoreThan(others, unit) => {
            format!(
                "{words} {value} {unit} more than that with {}",
                those(others)
            )
        }
    }
}

fn interval(it: Estimate) -> String {
    format!(
        "{} ({}–{})",
        figure(it.median),
        figure(it.low),
        figure(it.high)
    )
}

fn judged(page: &mut String, verdicts: &[Verdict]) {
    page.push_str(
        "\n## Goals\n\nOf all cells that a goal is about; one that was not measured is not met. \
         *Surely*: the whole interval meets it.\n\n\
         | field | goal | where | met | surely | worst cell |\n|---|---|---|---|---|---|\n",
    );
    for verdict in verdicts {
        let goal = verdict.goal;
        let count = |is: &dyn Fn(&super::verdict::Cell) -> bool| {
            verdict.cells.iter().filter(|cell| is(cell)).count()
        };
        let met = count(&|cell| verdict.met(cell));
        let all = verdict.cells.len();
        let at: Vec<_> = goal
            .at
            .iter()
            .filter(|(_, values)| *values != ["-"])
            .map(|(name, values)| format!("{name} {}", values.join("/")))
            .collect();
        let mut note = if goal.note.is_empty() {
            String::new()
        } else {
            format!(" ({})", goal.note)
        };
        if goal.of != WHOSE {
            note.insert_str(0, &format!(" for `{}`", goal.of));
        }
        let worst = verdict.worst().map_or_else(
            || "nothing measured".to_owned(),
            |(cell, it)| format!("{}: {}", interval(it), cell_name(&cell.params)),
        );
        let _ = writeln!(
            page,
            "| `{}` | {}{note} | {} | {}{met} of {all}{} | {} | {worst} |",
            goal.metric,
            bound(goal),
            at.join(", "),
            if met == all { "" } else { "**" },
            if met == all { "" } else { "**" },
            count(&|cell| verdict.surely_met(cell)),
        );
    }
    for verdict in verdicts {
        let missed: Vec<_> = verdict
            .cells
            .iter()
            .filter(|cell| !verdict.met(cell))
            .collect();
        if missed.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "\nMissed: `{}` {}:\n\n",
            verdict.goal.metric,
            bound(verdict.goal)
        );
        for cell in missed {
            let shown = match &cell.figure {
                Ok(it) => interval(*it),
                Err(why) => format!("no figure ({why})"),
            };
            let _ = writeln!(page, "- {}: {shown}", cell_name(&cell.params));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::goals::GOALS;
    use super::*;
    use crate::report::Collector;

    fn page(dirty: bool) -> String {
        let mut results = Collector::default();
        for (variant, mpps) in [("softnet", 30.0), (AGAIN, 31.0), ("mutex", 20.0)] {
            let params = [
                ("threads", json!(2)),
                ("qdisc", json!("pfifo")),
                ("driver", json!("null")),
                ("bulk", json!(1)),
            ];
            results.add(variant, &params, &[("mpps", mpps)]);
        }
        let mut report = results.report("tx-adopt");
        report["machine"] = json!({"revision": "abc", "dirty": dirty});
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
        let page = page(false);
        assert!(page.contains("| **1 of 8** | 1 |"), "{page}");
        assert!(
            page.contains("threads 8, qdisc fq, driver copy, bulk 1, queues -, load -: no figure"),
            "{page}"
        );
        assert!(page.contains("![tx-adopt-x.svg](tx-adopt-x.svg)"));
        assert!(page.contains("3.33 % apart"), "{page}");
    }

    #[test]
    fn figures_of_a_tree_with_changes_are_marked() {
        assert!(page(true).contains("Not a result"));
        assert!(!page(false).contains("Not a result"));
    }
}
