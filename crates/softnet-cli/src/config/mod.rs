//! The configuration file: TOML to a checked [`Config`]. Touches nothing but the file: names are
//! not looked up, devices not opened.
//!
//! Every error is one line with the file, line, column and key. [`file`] is the shape, [`check`]
//! what it means, [`units`] tc's units.

mod check;
mod egress;
mod ematch;
mod error;
mod file;
mod filter;
mod options;
mod policy;
mod qdisc;
mod receive;
mod tree;
pub(crate) mod units;

use std::path::Path;

use softnet::tx::{QueueMap, TxPolicy};
use softnet::wire::EthernetAddress;
use softnet_engine::EngineConfig;
use softnet_engine::forward::{MirredDir, MirredMode};
use softnet_engine::rx::SteeringSpec;
use softnet_io::InterfaceAddress;
use softnet_tc::QdiscSpec;

use error::Problem;
pub(crate) use error::{ConfigError, Place};

/// A valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The file's name, for messages.
    pub file: String,
    /// Worker threads.
    pub workers: usize,
    /// The CPU of each worker; none: wherever the system puts them.
    pub cpus: Vec<usize>,
    /// Packet buffers.
    pub buffers: usize,
    /// Settings of the engine.
    pub settings: EngineConfig,
    /// Ports, names unique.
    pub ports: Vec<PortConfig>,
    /// Bridges, names unique.
    pub bridges: Vec<BridgeConfig>,
}

impl Config {
    /// `2 ports, 1 bridge, 4 workers, 65536 buffers`.
    pub(crate) fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        [
            count(self.ports.len(), "port"),
            count(self.bridges.len(), "bridge"),
            count(self.workers, "worker"),
            count(self.buffers, "buffer"),
        ]
        .join(", ")
    }
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortConfig {
    /// Where the port is named in the file.
    pub place: Place,
    /// A valid interface name.
    pub name: String,
    /// How it is opened.
    pub driver: Driver,
    /// Queue pairs.
    pub queues: usize,
    /// How they are shared out.
    pub map: QueueMap,
    /// What is done with what leaves the port, in order.
    pub actions: Vec<ActionConfig>,
    /// How what it receives is shared out to workers.
    pub steering: SteeringSpec,
    /// Longest IP packet.
    pub mtu: u32,
    /// Qdisc of every transmit queue.
    pub qdisc: QdiscSpec,
    /// Who runs the transmit queues, and what they take at once.
    pub policy: TxPolicy,
}

/// An action on what leaves a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActionConfig {
    /// The packet itself, or a copy.
    pub mode: MirredMode,
    /// The side of the target.
    pub dir: MirredDir,
    /// Index into [`Config::ports`].
    pub to: usize,
}

/// What is behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A kernel TAP device, made when the port is opened.
    Tap {
        /// Name of the network namespace the device is put into; ours if none.
        netns: Option<String>,
        /// The interface's addresses.
        addresses: Vec<InterfaceAddress>,
        /// The device's Ethernet address; the kernel's choice if none.
        mac: Option<EthernetAddress>,
    },
    /// Swallows what is sent, receives nothing.
    Null,
}

/// One switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgeConfig {
    /// Its name.
    pub name: String,
    /// Indices into [`Config::ports`].
    pub ports: Vec<usize>,
}

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
    tree::spec("", &tables.qdisc, &tables.filter, check::MTU_DEFAULT)
        .map_err(|problem| source.error(problem))
}

/// Checks the text of a file called `file`.
pub(crate) fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
    let source = Source { file, text };
    let tables: file::File = toml::from_str(text).map_err(|error| source.toml_error(&error))?;
    check::check(&source, &tables).map_err(|problem| source.error(problem))
}

/// The text, to find places in.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn place(&self, offset: usize) -> Place {
        Place::at(self.text, offset)
    }

    fn error(&self, problem: Problem) -> ConfigError {
        ConfigError {
            file: self.file.to_owned(),
            place: Some(self.place(problem.span.start)),
            key: Some(problem.key),
            problem: problem.text,
        }
    }

    /// An error of the TOML parser or of serde, in our words.
    fn toml_error(&self, error: &toml::de::Error) -> ConfigError {
        let start = error.span().map(|span| span.start);
        let message = error.message();
        let path = start.and_then(|start| key_path(self.text, start));
        let within = |key: &str| match &path {
            Some(path) => format!("{path}.{key}"),
            None => key.to_owned(),
        };
        let quoted = || message.split('`').nth(1).unwrap_or_default();
        let (key, problem) = if message.starts_with("unknown field") {
            let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            let key = path.clone().unwrap_or_else(|| quoted().to_owned());
            let known = known.join(", ");
            let elsewhere = elsewhere(&key, &known);
            (
                Some(key),
                format!("is unknown; known here: {known}{elsewhere}"),
            )
        } else if message.starts_with("missing field") {
            (Some(within(quoted())), "is missing; add it".to_owned())
        } else if path.is_some() {
            (path.clone(), wrong_type(message))
        } else {
            (None, format!("not valid TOML: {message}"))
        };
        let place = start.map(|start| self.place(start));
        ConfigError {
            file: self.file.to_owned(),
            place,
            key,
            problem,
        }
    }
}

/// Where a key of the other kind of file belongs.
fn elsewhere(key: &str, known: &str) -> &'static str {
    match (key, known) {
        ("qdisc" | "filter", "engine, port, bridge") => {
            " (qdiscs and filters belong to a port: [[port.qdisc]], [[port.filter]]; by \
             themselves they are a tree for `softnet sim`)"
        }
        ("engine" | "port" | "bridge", "qdisc, filter") => {
            " (this is to be a tree of qdiscs; a configuration with ports is for `softnet run`)"
        }
        _ => "",
    }
}

/// serde's `invalid type: string "two", expected i64` in words of TOML.
fn wrong_type(message: &str) -> String {
    let parts = message.strip_prefix("invalid type: ");
    let Some((found, expected)) = parts.and_then(|m| m.split_once(", expected ")) else {
        return format!("{message}; correct the value");
    };
    let found = found.replace('`', "");
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the string {text}"),
        Some(("integer", number)) => format!("the number {number}"),
        Some(("floating", rest)) => {
            let number = rest.strip_prefix("point ").unwrap_or(rest);
            format!("the number {number}")
        }
        Some(("boolean", value)) => value.to_owned(),
        _ if found == "sequence" => "a list".to_owned(),
        _ if found == "map" => "a table".to_owned(),
        _ => found,
    };
    let expected = match expected {
        "i64" => "a whole number",
        "a string" => "a string in quotes",
        "a sequence" => "a list: [...]",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    format!("is {found}; use {expected}")
}

/// The dotted path of the innermost key whose name or value contains byte `offset`, if the text is
/// TOML at all.
fn key_path(text: &str, offset: usize) -> Option<String> {
    use toml::de::{DeTable, DeValue};

    fn in_table(table: &DeTable<'_>, offset: usize, path: &mut Vec<String>) -> bool {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            if in_value(value.get_ref(), offset, path)
                || key.span().contains(&offset)
                || value.span().contains(&offset)
            {
                return true;
            }
            path.pop();
        }
        false
    }

    fn in_value(value: &DeValue<'_>, offset: usize, path: &mut Vec<String>) -> bool {
        match value {
            DeValue::Table(table) => in_table(table, offset, path),
            DeValue::Array(items) => items
                .iter()
                .any(|item| in_value(item.get_ref(), offset, path)),
            _ => false,
        }
    }

    let table = DeTable::parse(text).ok()?;
    let mut path = Vec::new();
    in_table(table.get_ref(), offset, &mut path).then(|| path.join("."))
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
