//! The configuration file: TOML to a checked [`Config`]. Touches nothing but the file: names are
//! not looked up, devices not opened.
//!
//! Every error of a file is found, and each is one line with the file, line, column and key.
//! [`table`] takes keys out of tables by name; [`key`] describes each key once, in the [`form`]
//! that its value has; [`check`] reads all tables, [`model`] is the result, [`units`] tc's units.

mod address;
mod allow;
mod block;
mod bridge;
mod check;
mod class;
mod control;
mod device;
mod egress;
mod ematch;
mod engine;
mod error;
mod expect;
mod expectation;
mod extras;
mod fdb;
mod filter;
mod flower;
mod form;
mod include;
mod key;
mod link;
mod member;
mod model;
mod mqprio;
mod netem;
mod passed_file;
mod port;
mod qdisc;
mod rate_group;
mod red;
mod schema;
mod source;
mod table;
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

pub(crate) use allow::Allow;
pub(crate) use block::of_port as blocks_of;
pub(crate) use error::ConfigError;
pub(crate) use expectation::{Expectation, Figure, Rank, time};
use include::Text;
pub(crate) use include::Watch;
pub(crate) use model::{Config, ControlConfig};
pub(crate) use passed_file::STORED;
pub(crate) use schema::{has_list, schema};
use source::Source;
use table::Table;
pub(crate) use table::nearest;
pub(crate) use warning::Warning;
pub(crate) use write::{write, write_port};

/// Reads and checks a file. Where it does not say how many workers there are, there are `workers`;
/// without that, one for each CPU of this process.
pub(crate) fn load(
    path: &Path,
    workers: Option<usize>,
) -> Result<(Config, Vec<Warning>), ConfigError> {
    checked_text(path, include::gather(path)?, workers)
}

/// As [`load`], with a watch on the files that were read.
pub(crate) fn load_watched(path: &Path) -> Result<(Config, Watch), ConfigError> {
    let text = include::gather(path)?;
    let watch = text.watch.clone();
    checked_text(path, text, None).map(|(config, _)| (config, watch))
}

fn checked_text(
    path: &Path,
    text: Text,
    workers: Option<usize>,
) -> Result<(Config, Vec<Warning>), ConfigError> {
    let Text { text, parts, .. } = text;
    let file = path.display().to_string();
    let read = Source::read_parts(&file, &text, &parts, |root| whole(root, workers));
    read.map(|(mut config, warnings)| {
        config.hash = include::hash(&text);
        (config, warnings)
    })
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
    Source::read(file, text, |root| whole(root, workers))
}

fn whole(root: &Table<'_>, workers: Option<usize>) -> (Config, Vec<Warning>) {
    let config = check::config(root, workers);
    let warnings = match root.source.errors() {
        0 => warning::of_file(root, &config),
        _ => Vec::new(),
    };
    (config, warnings)
}

/// Checks the text of a file with a tree.
pub(crate) fn checked_tree(
    file: &str,
    text: &str,
) -> Result<(QdiscSpec, Vec<Warning>), ConfigError> {
    Source::read(file, text, |root| {
        root.known(&["qdisc", "class", "filter"], |key| match key {
            "engine" | "port" | "bridge" => {
                " (this is to be a tree of qdiscs; a configuration with ports is for `softnet run`)"
            }
            _ => "",
        });
        let spec = tree::spec(root, softnet_tc::LinkDefaults::default(), false);
        let spec = spec.unwrap_or_default();
        let warnings = match root.source.errors() {
            0 => warning::of_tree(root, &spec),
            _ => Vec::new(),
        };
        (spec, warnings)
    })
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
mod all_errors_tests;
#[cfg(test)]
mod engine_tests;
#[cfg(test)]
pub(crate) mod fuzz_tests;
#[cfg(test)]
mod port_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;
