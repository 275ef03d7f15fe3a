//! `softnet check`: whether files are valid, and what is to be warned of.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::print;
use crate::config::{self, Warning};
use crate::failure::{Exit, Failure};
use crate::report;

/// Checks all files. Fails with the worst of them: an error before a warning.
pub(crate) fn text(files: &[PathBuf], strict: bool) -> Result<(), Failure> {
    let mut worst: Option<Failure> = None;
    for file in files {
        let failure = match config::load(file, None) {
            Err(error) => Failure::new(Exit::Config, error.to_string()),
            Ok((config, warnings)) => {
                warnings.iter().for_each(report::note);
                print(&format!("{}: valid: {}\n", config.file, config.summary()))?;
                if !strict || warnings.is_empty() {
                    continue;
                }
                let text = format!("{}: warnings: {}", config.file, warnings.len());
                Failure::new(Exit::Warnings, text)
            }
        };
        let is_worse = worst
            .as_ref()
            .is_none_or(|worst| failure.exit == Exit::Config || worst.exit != Exit::Config);
        let lesser = match is_worse {
            true => worst.replace(failure),
            false => Some(failure),
        };
        lesser.iter().for_each(report::note);
    }
    worst.map_or(Ok(()), Err)
}

/// As [`text`], as one object; the exit code says the worst.
pub(crate) fn json(files: &[PathBuf], strict: bool) -> Result<(), Failure> {
    let mut worst = None;
    let mut checked = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let (errors, warnings) = match config::load(file, None) {
            Ok((_, warnings)) => (Vec::new(), warnings.iter().map(Warning::json).collect()),
            Err(error) => (error.json(), Vec::new()),
        };
        if !errors.is_empty() {
            worst = Some(Exit::Config);
        } else if strict && !warnings.is_empty() {
            worst = worst.or(Some(Exit::Warnings));
        }
        checked.push(json!({
            "file": name, "valid": errors.is_empty(), "errors": errors, "warnings": warnings,
        }));
    }
    print(&format!("{:#}\n", json!({ "files": checked })))?;
    let told = |exit| Failure::new(exit, "not all files are as they should be; see the output");
    worst.map_or(Ok(()), |exit| Err(told(exit)))
}
