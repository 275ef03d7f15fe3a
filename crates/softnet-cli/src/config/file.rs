//! The shape of the file: what serde reads, with the place of every value. Numbers are read wide and checked later, so that the
//! error can say which numbers are allowed.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) engine: EngineTable,
    #[serde(default)]
    pub(super) port: Vec<PortTable>,
    #[serde(default)]
    pub(super) bridge: Vec<BridgeTable>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineTable {
    pub(super) workers: Option<Spanned<i64>>,
    pub(super) buffers: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortTable {
    pub(super) name: Spanned<String>,
    pub(super) driver: Spanned<String>,
    pub(super) netns: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) address: Vec<Spanned<String>>,
    pub(super) queues: Option<Spanned<i64>>,
    pub(super) mtu: Option<Spanned<i64>>,
    pub(super) mac: Option<Spanned<String>>,
    pub(super) qdisc: Option<Spanned<QdiscTable>>,
}

/// Which keys are allowed depends on `kind`, so they are checked by [`super::qdisc`].
pub(super) type QdiscTable = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BridgeTable {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) ports: Vec<Spanned<String>>,
}
