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
pub(crate) mod units;
mod words;
mod write;
mod write_filter;
mod write_tree;

use std::path::Path;

use softnet_tc::QdiscSpec;

pub(crate) use error::{ConfigError, Place};
pub(crate) use model::{
    ActionConfig, BridgeConfig, Config, ControlConfig, Driver, LinkConfig, PortConfig,
    RateGroupConfig,
};
use source::Source;
pub(crate) use write::write;

/// Reads and checks a file.
pub(crate) fn load(path: &Path) -> Result<Config, ConfigError> {
    let file = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|why| ConfigError::unreadable(&file, &why))?;
    parse(&file, &text)
}

/// Reads and checks a file that has a tree of qdiscs: `qdisc` and `filter` as a port has
/// them.
pub(crate) fn load_tree(path: &Path) -> Result<QdiscSpec, ConfigError> {
    let file = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|why| ConfigError::unreadable(&file, &why))?;
    parse_tree(&file, &text)
}

/// Checks the text of such a file called `file`.
pub(crate) fn parse_tree(file: &str, text: &str) -> Result<QdiscSpec, ConfigError> {
    let source = Source { file, text };
    let tables: file::TreeFile =
        toml::from_str(text).map_err(|error| source.toml_error(&error))?;
    tree::spec(
        "",
        &tables.qdisc,
        &tables.class,
        &tables.filter,
        qdisc::Device::default(),
    )
    .map_err(|problem| source.error(problem))
}

/// Checks the text of a file called `file`.
pub(crate) fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
    let source = Source { file, text };
    let tables: file::File = toml::from_str(text).map_err(|error| source.toml_error(&error))?;
    check::check(&source, &tables).map_err(|problem| source.error(problem))
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;
