//! A [`Config`] as a file that is read as the same.
//!
//! The format's own serializer writes the values. Tables are put in order here: a class comes
//! after what it is below, as the reader wants it.

use std::path::Path;

use softnet_engine::Spec;
use toml::Value;

use super::model::Config;
use super::{block, bridge, engine, fdb, port, rate_group};

/// Tables with their keys.
#[derive(Debug, Default)]
pub(super) struct Writer {
    text: String,
    /// Lines about what the format cannot express, without control characters.
    pub(super) remarks: Vec<String>,
}

impl Writer {
    /// Starts a table, `[…]` or `[[…]]`.
    pub(super) fn table(&mut self, head: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text += &format!("{head}\n");
    }

    /// A key, which is one of the format's, and its value.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        self.text += &format!("{key} = {value}\n");
    }

    /// Remarks on a path of a socket that is no text, and so is left out.
    pub(super) fn check_path(&mut self, path: Option<&Path>) {
        if let Some(path) = path
            && path.to_str().is_none()
        {
            self.remarks.push(format!("socket is no text: {path:?}"));
        }
    }
}

/// The file.
pub(crate) fn write(config: &Config) -> String {
    let mut w = Writer::default();
    engine::write(&mut w, config);
    let Spec {
        ports,
        bridges,
        rate_groups,
        blocks,
    } = &config.links;
    ports.iter().for_each(|port| port::write(&mut w, port));
    for (&index, list) in blocks {
        block::write(&mut w, index, list);
    }
    for (name, group) in rate_groups {
        rate_group::write(&mut w, name, group);
    }
    for bridge in bridges {
        bridge::write(&mut w, bridge, ports);
    }
    ports.iter().for_each(|port| fdb::write(&mut w, port));
    let remarks = w.remarks.iter().map(|remark| format!("# {remark}\n"));
    remarks.collect::<String>() + &w.text
}

/// The tables of a port by itself.
pub(crate) fn write_port(port: &super::port::Port) -> String {
    let mut w = Writer::default();
    port::write(&mut w, port);
    w.text
}

/// The file of a tree by itself.
#[cfg(test)]
pub(super) fn write_tree(qdisc: &softnet_tc::QdiscSpec) -> String {
    let mut w = Writer::default();
    super::write_tree::qdisc(&mut w, "", qdisc);
    assert!(w.remarks.is_empty(), "{:?}", w.remarks);
    w.text
}
