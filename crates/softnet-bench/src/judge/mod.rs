//! `softnet-bench report`: what an experiment printed with `--json` becomes Markdown with the
//! goals judged over all their cells, and pictures. Nothing here chooses what to show by what came
//! out.

use std::path::Path;

use serde_json::Value;

use crate::error::BenchError;

mod goals;
mod interval;
mod markdown;
mod plot;
mod results;
mod tables;
mod verdict;

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
    Ok(render(&results, &drawn))
}

/// The Markdown of a report that was just made.
///
/// # Errors
/// If the report is none.
pub(crate) fn page(report: &Value) -> Result<String, BenchError> {
    let results = Results::parse(report);
    let results = results.ok_or_else(|| BenchError::Measure("a row has no variant".into()))?;
    Ok(render(&results, &[]))
}

fn render(results: &Results, drawn: &[String]) -> String {
    let goals = goals::GOALS.iter();
    let verdicts: Vec<_> = goals
        .filter(|goal| goal.experiment == results.experiment)
        .map(|goal| Verdict::of(goal, results))
        .collect();
    markdown::render(results, &verdicts, drawn)
}
