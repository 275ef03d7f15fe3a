//! The shape of the file: what serde reads, with the place of every value. Numbers are read wide
//! and checked later, so that the error can say which numbers are allowed.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::vlans::List;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) engine: EngineTable,
    #[serde(default)]
    pub(super) port: Vec<PortTable>,
    #[serde(default)]
    pub(super) rate_group: Vec<RateGroupTable>,
    #[serde(default)]
    pub(super) bridge: Vec<BridgeTable>,
    #[serde(default)]
    pub(super) fdb: Vec<FdbTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FdbTable {
    pub(super) address: Spanned<String>,
    pub(super) port: Spanned<String>,
    pub(super) vlan: Option<Spanned<i64>>,
    pub(super) state: Option<Spanned<String>>,
    pub(super) sticky: Option<Spanned<bool>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateGroupTable {
    pub(super) name: Spanned<String>,
    pub(super) rate: Option<Spanned<String>>,
    pub(super) burst: Option<Spanned<String>>,
    pub(super) pps: Option<Spanned<i64>>,
    pub(super) pps_burst: Option<Spanned<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineTable {
    pub(super) workers: Option<Spanned<i64>>,
    pub(super) buffers: Option<Spanned<i64>>,
    pub(super) max_backlog: Option<Spanned<i64>>,
    pub(super) busy_poll: Option<Spanned<String>>,
    pub(super) cpus: Option<Spanned<Vec<Spanned<i64>>>>,
    pub(super) socket: Option<Spanned<String>>,
    pub(super) socket_mode: Option<Spanned<String>>,
    pub(super) socket_group: Option<Spanned<String>>,
    pub(super) monitor_socket: Option<Spanned<String>>,
    pub(super) monitor_group: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortTable {
    pub(super) name: Spanned<String>,
    pub(super) driver: Spanned<String>,
    pub(super) netns: Option<Spanned<String>>,
    pub(super) socket: Option<Spanned<String>>,
    pub(super) server: Option<Spanned<bool>>,
    pub(super) socket_mode: Option<Spanned<String>>,
    pub(super) socket_group: Option<Spanned<String>>,
    pub(super) memory: Option<Spanned<String>>,
    pub(super) memory_kind: Option<Spanned<String>>,
    pub(super) guest_offloads: Option<Spanned<bool>>,
    #[serde(default)]
    pub(super) address: Vec<Spanned<String>>,
    pub(super) queues: Option<Spanned<Queues>>,
    pub(super) num_tc: Option<Spanned<i64>>,
    pub(super) map: Option<Spanned<Vec<Spanned<i64>>>>,
    #[serde(default)]
    pub(super) rps: Vec<Spanned<i64>>,
    pub(super) rfs: Option<Spanned<String>>,
    pub(super) mirror: Option<Mirreds>,
    pub(super) redirect: Option<MirredTable>,
    pub(super) mtu: Option<Spanned<i64>>,
    pub(super) mac: Option<Spanned<String>>,
    pub(super) txqueuelen: Option<Spanned<i64>>,
    pub(super) alias: Option<Spanned<String>>,
    pub(super) group: Option<Spanned<i64>>,
    pub(super) up: Option<Spanned<bool>>,
    pub(super) isolated: Option<Spanned<bool>>,
    pub(super) locked: Option<Spanned<bool>>,
    pub(super) learning: Option<Spanned<bool>>,
    pub(super) flood: Option<Spanned<bool>>,
    pub(super) mcast_flood: Option<Spanned<bool>>,
    pub(super) bcast_flood: Option<Spanned<bool>>,
    pub(super) hairpin: Option<Spanned<bool>>,
    pub(super) pvid: Option<Spanned<i64>>,
    pub(super) vlans: Option<List>,
    pub(super) untagged: Option<List>,
    pub(super) allowed_macs: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) allowed_ips: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) max_macs: Option<Spanned<i64>>,
    pub(super) storm: Option<StormTable>,
    pub(super) parallel: Option<Spanned<bool>>,
    pub(super) rate_group: Option<Spanned<String>>,
    pub(super) qdisc: Option<Spanned<Qdiscs>>,
    pub(super) served_by: Option<Spanned<String>>,
    pub(super) burst: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) class: Vec<Spanned<OptionTable>>,
    #[serde(default)]
    pub(super) filter: Vec<Spanned<OptionTable>>,
}

/// A file with a tree of qdiscs and nothing else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TreeFile {
    pub(super) qdisc: Spanned<Qdiscs>,
    #[serde(default)]
    pub(super) class: Vec<Spanned<OptionTable>>,
    #[serde(default)]
    pub(super) filter: Vec<Spanned<OptionTable>>,
}

/// Which keys are allowed depends on `kind`, so they are checked by [`super::qdisc`],
/// [`super::htb`] and [`super::filter`].
pub(super) type OptionTable = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

/// One qdisc (`qdisc = { … }`), or several (`[[qdisc]]`).
#[derive(Debug)]
pub(super) enum Qdiscs {
    One(OptionTable),
    Many(Vec<Spanned<OptionTable>>),
}

impl<'de> Deserialize<'de> for Qdiscs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Qdiscs, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Qdiscs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table like { kind = \"pfifo\" }, or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Qdiscs, A::Error> {
                OptionTable::deserialize(MapAccessDeserializer::new(map)).map(Qdiscs::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Qdiscs, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Qdiscs::Many)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `queues = 4`, or the ranges of traffic classes: `queues = ["1@0", "3@1"]`.
#[derive(Debug)]
pub(super) enum Queues {
    Number(i64),
    Ranges(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Queues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Queues, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Queues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a list of count@offset")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Queues, E> {
                Ok(Queues::Number(number))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Queues, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Queues::Ranges)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `{ to = "mon", dir = "egress" }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MirredTable {
    pub(super) to: Spanned<String>,
    pub(super) dir: Option<Spanned<String>>,
}

/// `{ broadcast = 1000 }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StormTable {
    pub(super) broadcast: Option<Spanned<i64>>,
    pub(super) multicast: Option<Spanned<i64>>,
    pub(super) unknown_unicast: Option<Spanned<i64>>,
}

/// One table, or a list of them.
#[derive(Debug)]
pub(super) struct Mirreds(pub(super) Vec<MirredTable>);

impl<'de> Deserialize<'de> for Mirreds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Mirreds, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Mirreds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table or a list of tables")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Mirreds, A::Error> {
                let one = MirredTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Mirreds(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Mirreds, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Mirreds)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BridgeTable {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) ports: Vec<Spanned<String>>,
    pub(super) mtu: Option<Spanned<i64>>,
    pub(super) mac: Option<Spanned<String>>,
    pub(super) txqueuelen: Option<Spanned<i64>>,
    pub(super) alias: Option<Spanned<String>>,
    pub(super) group: Option<Spanned<i64>>,
    pub(super) up: Option<Spanned<bool>>,
    pub(super) vlan_filtering: Option<Spanned<bool>>,
    pub(super) vlan_default_pvid: Option<Spanned<i64>>,
    pub(super) ageing_time: Option<Spanned<String>>,
    pub(super) pvid: Option<Spanned<i64>>,
    pub(super) vlans: Option<List>,
    pub(super) untagged: Option<List>,
}
