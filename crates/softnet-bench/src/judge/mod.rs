//! `softnet-bench report`: what an experiment printed with `--json` becomes Markdown with the
//! goals judged over all their cells, and pictures. Nothing here chooses what to show by what came
//! out.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::BenchError;
use crate::report::{AGAIN, OURS, Param};

mod goals;
mod interval;
mod longer;
mod markdown;
mod plot;
mod results;
mod scoreboard;
mod tables;
mod verdict;

pub(crate) use longer::Longer;
use results::Results;
use verdict::Verdict;

/// The Markdown; pictures go to `plots`.
///
/// # Errors
/// If the file is no report, or a picture cannot be written.
pub(crate) fn judge(file: &Path, plots: Option<&Path>) -> Result<String, BenchError> {
    let results = Results::read(file)?;
    let drawn = match plots {
        Some(directory) => plot::draw(&results, directory)?,
        None => Vec::new(),
    };
    Ok(markdown::render(&results, &verdicts(&results), &drawn))
}

/// The Markdown of a report that was just made.
///
/// # Errors
/// If the report is none.
pub(crate) fn page(report: &Value) -> Result<String, BenchError> {
    let results = Results::parse(report);
    let results = results.ok_or_else(|| BenchError::Measure("a row has no variant".into()))?;
    Ok(markdown::render(&results, &verdicts(&results), &[]))
}

/// The page with the verdicts of all results.
///
/// # Errors
/// If a file is no report.
pub(crate) fn scoreboard(files: &[PathBuf]) -> Result<String, BenchError> {
    let all: Result<Vec<_>, _> = files.iter().map(|file| Results::read(file)).collect();
    Ok(scoreboard::render(&all?))
}

fn verdicts(results: &Results) -> Vec<Verdict> {
    let goals = goals::GOALS.iter();
    goals
        .filter(|goal| goal.experiment == results.experiment)
        .map(|goal| Verdict::of(goal, results))
        .collect()
}

/// True if a goal of the experiment is about this variant in the cell with these parameters, or
/// one of `several` that have these and others.
pub(crate) fn needs(experiment: &str, variant: &str, params: &[Param], several: bool) -> bool {
    let variant = if variant == AGAIN { OURS } else { variant };
    let goals = goals::GOALS.iter();
    goals
        .filter(|goal| goal.experiment == experiment)
        .any(|goal| verdict::needs(goal, variant, params, several))
}
