//! The tables of a file, and what they say of each other: names that are used, ports that there
//! are.

use std::collections::HashMap;

use super::link::Names;
use super::model::Config;
use super::port::Port;
use super::table::Table;
use super::{block, bridge, engine, expect, fdb, member, port, rate_group};

const TABLES: &[&str] = &[
    "include",
    "engine",
    "port",
    "block",
    "rate_group",
    "bridge",
    "fdb",
    "expect",
];

/// Reads all of a file. `workers` there are if it does not say.
pub(super) fn config(root: &Table<'_>, workers: Option<usize>) -> Config {
    root.known(TABLES, |key| match key {
        "qdisc" | "class" | "filter" => {
            " (qdiscs, classes and filters belong to a port: [[port.qdisc]], [[port.class]], \
             [[port.filter]]; by themselves they are a tree for `softnet sim`)"
        }
        _ => "",
    });
    if let Some(list) = root.find("include").and_then(|item| item.list()) {
        list.into_iter().for_each(|item| _ = item.text());
    }
    let source = root.source;
    let mut config = Config {
        file: source.file.to_owned(),
        ..Config::default()
    };
    let engine = root.find("engine").and_then(|item| item.table("a table"));
    let workers = engine::read(engine.as_ref(), workers, &mut config);
    let tables = ["rate_group", "port", "bridge", "fdb", "block"].map(|key| root.tables(key));
    let [groups, tables, bridges, stations, blocks] = &tables;
    let rate_groups = rate_group::read(groups);
    let mut names = Names::default();
    let read = |table| port::read(table, workers, &rate_groups, &mut names);
    let mut ports: Vec<Port> = tables.iter().map(read).collect();
    let named: Vec<String> = ports.iter().map(|p| p.settings.name.clone()).collect();
    let index: HashMap<&str, usize> = named.iter().map(String::as_str).zip(0..).collect();
    for (table, port) in tables.iter().zip(&mut ports) {
        port.actions = super::egress::actions(table, &|name| index.contains_key(name));
    }
    let before = source.errors();
    let read = |table| bridge::read(table, &mut names, &index, &mut ports);
    let read: Vec<_> = bridges.iter().map(read).collect();
    let all = source.errors() == before;
    if all {
        let alone = tables.iter().zip(&ports);
        let alone = alone.filter(|(_, port)| port.master.is_none());
        alone.for_each(|(table, port)| member::check_alone(table, port));
    }
    config.expected = expect::read(&root.tables("expect"), &index);
    fdb::read(stations, &mut ports, &index, &read, all);
    let place = |table: &Table<'_>| source.place(table.span_of("name").start);
    config.places = tables.iter().map(place).collect();
    config.links.ports = ports;
    config.links.bridges = read;
    config.links.rate_groups = rate_groups;
    config.links.blocks = block::read(blocks, &config.links);
    config
}
