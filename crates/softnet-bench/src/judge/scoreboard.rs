//! One page with the verdicts of all others.

use std::fmt::Write as _;

use super::results::Results;
use super::verdict::{Outcome, Verdict};
use crate::report::text;

/// The page.
pub(super) fn render(all: &[Results]) -> String {
    let mut page = String::from(
        "# Results\n\nMade by `softnet-bench scoreboard`. A cell of a goal is *met* or *missed* if \
         the whole interval is on that side of the bound, and *undecided* if it holds both sides; \
         a \
         cell without a figure is missed. A goal is met if all of its cells are.\n\n\
         | page | revision | goals met | cells met | missed | undecided |\n\
         |---|---|---|---|---|---|\n",
    );
    let (mut goals, mut goals_met, mut sums) = (0, 0, [0; 3]);
    for results in all {
        let verdicts = super::verdicts(results);
        if verdicts.is_empty() {
            continue;
        }
        let whole = |verdict: &&Verdict| verdict.count(Outcome::Met) == verdict.cells.len();
        let met = verdicts.iter().filter(whole).count();
        let count = |outcome| -> usize { verdicts.iter().map(|v| v.count(outcome)).sum() };
        let counts = Outcome::ALL.map(count);
        let name = &results.experiment;
        let revision = results
            .machine
            .get("revision")
            .map_or_else(|| "?".to_owned(), text);
        let mark = if is_older(results) { " (older)" } else { "" };
        let _ = writeln!(
            page,
            "| [{name}]({name}.md){mark} | {revision} | {met} of {} | {} | {} | {} |",
            verdicts.len(),
            counts[0],
            counts[1],
            counts[2]
        );
        goals += verdicts.len();
        goals_met += met;
        sums = std::array::from_fn(|n| sums[n] + counts[n]);
    }
    let _ = writeln!(
        page,
        "| all | | {goals_met} of {goals} | {} | {} | {} |",
        sums[0], sums[1], sums[2]
    );
    if all.iter().any(is_older) {
        page.push_str(
            "\n*(older)*: the page was measured before windows, rounds and the machine's speed \
             were \
             as they are now, and made by the generator of its time; goals have got other cells \
             since. Its verdicts here are those of today's rules. It counts until it is measured \
             anew.\n",
        );
    }
    page.push_str(
        "\n[docs/experiments.md](../experiments.md) says what each experiment is about and how to \
         read a page. `make.sh` measures the pages anew, `make.sh sweeps` all cells and variants \
         that no goal is about.\n",
    );
    page
}

/// True for a page of before the machine's speed was watched.
fn is_older(results: &Results) -> bool {
    results.speed.rounds == 0
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::super::goals::GOALS;
    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
    }

    /// The results in the repository.
    fn files() -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder()).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let json = |path: &PathBuf| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        };
        let mut files: Vec<_> = paths.filter(json).collect();
        files.sort();
        files
    }

    fn page(name: &str) -> String {
        std::fs::read_to_string(folder().join(name)).expect("a page")
    }

    #[test]
    fn the_scoreboard_is_that_of_the_results() {
        let made = super::super::scoreboard(&files()).expect("results");
        assert!(
            made == page("README.md"),
            "run: softnet-bench scoreboard docs/results/*.json > docs/results/README.md"
        );
    }

    #[test]
    fn pages_are_what_the_generator_makes_of_their_results() {
        for file in files() {
            let results = Results::read(&file).expect("a result");
            if !is_older(&results) {
                let pictures = std::env::temp_dir().join(format!("pages-{}", std::process::id()));
                std::fs::create_dir_all(&pictures).expect("a folder");
                let made = super::super::judge(&file, Some(&pictures)).expect("a result");
                std::fs::remove_dir_all(&pictures).expect("it was made");
                let page = page(&format!("{}.md", results.experiment));
                assert!(made == page, "{} is not of its results", file.display());
            }
        }
    }

    /// A goal that leaves a parameter open would take whatever rows there are, and improve if one
    /// were removed.
    #[test]
    fn goals_name_their_cells() {
        for results in files()
            .iter()
            .map(|file| Results::read(file).expect("a result"))
        {
            for verdict in super::super::verdicts(&results) {
                let named: usize = verdict
                    .goal
                    .at
                    .iter()
                    .map(|(_, values)| values.len())
                    .product();
                let what = (verdict.goal.metric, &verdict.goal.note);
                assert_eq!(
                    verdict.cells.len(),
                    named,
                    "{} {what:?}",
                    results.experiment
                );
            }
        }
        assert!(
            GOALS
                .iter()
                .all(|goal| goal.at.iter().all(|(_, values)| !values.is_empty()))
        );
    }
}
