//! The configuration file: TOML to a checked [`Config`]. Touches nothing but the file: names are
//! not looked up, devices not opened.
//!
//! Every error is one line with the file, line, column and key. [`file`] is the shape, [`check`]
//! what it means, [`model`] the result, [`units`] tc's units.

mod check;
mod control;
mod egress;
mod ematch;
mod error;
mod extras;
mod file;
mod filter;
mod flower;
mod htb;
mod link;
mod model;
mod mqprio;
mod options;
mod policy;
mod qdisc;
mod range;
mod rate_group;
mod receive;
mod security;
mod source;
mod tree;
pub(crate) use softnet_tc::units;
mod vlans;
mod warning;
mod words;
mod write;
mod write_filter;
mod write_tree;

use std::path::Path;

use softnet_tc::QdiscSpec;

pub(crate) use error::ConfigError;
pub(crate) use model::{Config, ControlConfig};
use source::Source;
pub(crate) use warning::Warning;
pub(crate) use write::write;

/// Reads and checks a file. Where it does not say how many workers there are, there are `workers`;
/// without that, one for each CPU of this process.
pub(crate) fn load(
    path: &Path,
    workers: Option<usize>,
) -> Result<(Config, Vec<Warning>), ConfigError> {
    let (file, text) = read(path)?;
    checked(&file, &text, workers)
}

/// Reads and checks a file that has a tree of qdiscs: `qdisc` and `filter` as a port has
/// them.
pub(crate) fn load_tree(path: &Path) -> Result<(QdiscSpec, Vec<Warning>), ConfigError> {
    let (file, text) = read(path)?;
    checked_tree(&file, &text)
}

/// The file's name and text.
fn read(path: &Path) -> Result<(String, String), ConfigError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((file, text)),
        Err(why) => Err(ConfigError::unreadable(&file, &why)),
    }
}

/// Checks the text of a file called `file`.
pub(crate) fn checked(
    file: &str,
    text: &str,
    workers: Option<usize>,
) -> Result<(Config, Vec<Warning>), ConfigError> {
    let source = Source { file, text };
    let tables: file::File = toml::from_str(text).map_err(|error| source.toml_error(&error))?;
    let config =
        check::check(&source, &tables, workers).map_err(|problem| source.error(problem))?;
    let warnings = warning::of_file(&source, &tables, &config);
    Ok((config, warnings))
}

/// Checks the text of a file with a tree.
pub(crate) fn checked_tree(
    file: &str,
    text: &str,
) -> Result<(QdiscSpec, Vec<Warning>), ConfigError> {
    let source = Source { file, text };
    let tables: file::TreeFile =
        toml::from_str(text).map_err(|error| source.toml_error(&error))?;
    let spec = tree::spec(
        "",
        &tables.qdisc,
        &tables.class,
        &tables.filter,
        softnet_tc::LinkDefaults::default(),
    )
    .map_err(|problem| source.error(problem))?;
    let warnings = warning::of_tree(&source, &tables, &spec);
    Ok((spec, warnings))
}

#[cfg(test)]
pub(crate) fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
    checked(file, text, None).map(|(config, _)| config)
}

#[cfg(test)]
fn parse_tree(file: &str, text: &str) -> Result<QdiscSpec, ConfigError> {
    checked_tree(file, text).map(|(spec, _)| spec)
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;
