//! A [`Config`] as a file that is read as the same.
//!
//! The format's own serializer writes the values. Tables are put in order here: a class comes
//! after what it is below, as the reader wants it.

use softnet::tx::{QueueMap, ServedBy, TxPolicy};
use softnet_engine::forward::{MirredDir, MirredMode};
use softnet_engine::rx::Rfs;
use softnet_io::vhost_user::SocketSpec;
use toml::Value;

use super::model::{
    ActionConfig, BridgeConfig, Config, Driver, LinkConfig, PortConfig, RateGroupConfig,
};
use super::range::MTU_DEFAULT;
use super::write_tree;

/// Tables with their keys.
#[derive(Debug, Default)]
pub(super) struct Writer {
    text: String,
    /// What the format cannot express, a line each.
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

    /// As [`put`](Writer::put), unless it is the default.
    fn unless<T: PartialEq + Into<Value>>(&mut self, key: &str, value: T, default: &T) {
        if value != *default {
            self.put(key, value);
        }
    }
}

/// A number. TOML has none above 2^63.
pub(super) fn int(number: impl TryInto<i64>) -> Value {
    Value::Integer(number.try_into().unwrap_or(i64::MAX))
}

/// The file.
pub(crate) fn write(config: &Config) -> String {
    let mut w = Writer::default();
    engine(&mut w, config);
    for port in &config.ports {
        self::port(&mut w, config, port);
    }
    for group in &config.rate_groups {
        rate_group(&mut w, group);
    }
    for bridge in &config.bridges {
        self::bridge(&mut w, config, bridge);
    }
    let remarks = w
        .remarks
        .iter()
        .map(|remark| format!("# {}\n", remark.replace('\n', " ")));
    remarks.collect::<String>() + &w.text
}

/// The file of a tree by itself.
#[cfg(test)]
pub(super) fn write_tree(qdisc: &softnet_tc::QdiscSpec) -> String {
    let mut w = Writer::default();
    write_tree::qdisc(&mut w, "", qdisc);
    assert!(w.remarks.is_empty(), "{:?}", w.remarks);
    w.text
}

fn engine(w: &mut Writer, config: &Config) {
    w.table("[engine]");
    w.put("workers", int(config.workers));
    w.put("buffers", int(config.buffers));
    if !config.cpus.is_empty() {
        w.put("cpus", ints(&config.cpus));
    }
    w.put("max_backlog", int(config.settings.max_backlog));
    w.put(
        "busy_poll",
        format!("{}ns", config.settings.busy_poll.as_nanos()),
    );
    let control = &config.control;
    for (key, path) in [
        ("socket", &control.socket),
        ("monitor_socket", &control.monitor),
    ] {
        match path.as_ref().map(|path| path.to_str().ok_or(path)) {
            Some(Ok(path)) => w.put(key, path),
            Some(Err(path)) => w
                .remarks
                .push(format!("{key} is no text: {}", path.display())),
            None => {}
        }
    }
    w.put("socket_mode", format!("{:04o}", control.mode));
    if let Some(group) = &control.group {
        w.put("socket_group", group.as_str());
    }
}

fn vhost_user(w: &mut Writer, spec: &SocketSpec) {
    w.put("driver", "vhost_user");
    match spec.path.to_str() {
        Some(path) => w.put("socket", path),
        None => {
            let path = spec.path.display();
            w.remarks.push(format!("socket is no text: {path}"));
        }
    }
    if !spec.server {
        w.put("server", false);
    }
    let default = if spec.group.is_some() { 0o660 } else { 0o600 };
    if spec.mode != default {
        w.put("socket_mode", format!("{:04o}", spec.mode));
    }
    if let Some(group) = &spec.group {
        w.put("socket_group", group.as_str());
    }
}

fn port(w: &mut Writer, config: &Config, port: &PortConfig) {
    w.table("[[port]]");
    w.put("name", port.name.as_str());
    match &port.driver {
        Driver::Null => w.put("driver", "null"),
        Driver::VhostUser(socket) => vhost_user(w, socket),
        Driver::Tap {
            netns,
            addresses,
            mac,
        } => {
            w.put("driver", "tap");
            if let Some(netns) = netns {
                w.put("netns", netns.as_str());
            }
            if !addresses.is_empty() {
                w.put("address", texts(addresses));
            }
            if let Some(mac) = mac {
                w.put("mac", mac.to_string());
            }
        }
    }
    w.unless("mtu", i64::from(port.mtu), &MTU_DEFAULT.into());
    link(w, &port.link);
    queues(w, port.queues, &port.map);
    w.unless("parallel", port.parallel, &false);
    if !port.steering.rps.is_empty() {
        w.put("rps", ints(&port.steering.rps));
    }
    match port.steering.rfs {
        Rfs::Off => {}
        Rfs::Follow => w.put("rfs", "follow"),
        Rfs::Record => w.put("rfs", "record"),
    }
    let default = TxPolicy::default();
    if port.policy.served_by == ServedBy::Worker {
        w.put("served_by", "worker");
    }
    if port.policy.max_burst != default.max_burst {
        w.put("burst", int(port.policy.max_burst));
    }
    security(w, port);
    if let Some(group) = &port.rate_group {
        w.put("rate_group", group.as_str());
    }
    let of = |mode| {
        port.actions
            .iter()
            .filter(move |action| action.mode == mode)
    };
    let mirrors: Vec<Value> = of(MirredMode::Mirror).map(|a| action(config, a)).collect();
    if !mirrors.is_empty() {
        w.put("mirror", mirrors);
    }
    if let Some(redirect) = of(MirredMode::Redirect).next() {
        w.put("redirect", action(config, redirect));
    }
    write_tree::qdisc(w, "port.", &port.qdisc);
}

fn rate_group(w: &mut Writer, group: &RateGroupConfig) {
    w.table("[[rate_group]]");
    w.put("name", group.name.as_str());
    if let Some(bytes) = &group.spec.bytes {
        w.put("rate", format!("{}bit", bytes.rate.saturating_mul(8)));
        w.put("burst", format!("{}b", bytes.burst));
    }
    if let Some(packets) = &group.spec.packets {
        w.put("pps", int(packets.rate));
        w.put("pps_burst", int(packets.burst));
    }
}

fn security(w: &mut Writer, port: &PortConfig) {
    w.unless("isolated", port.isolated, &false);
    w.unless("locked", port.locked, &false);
    let security = &port.security;
    if !security.allowed_macs.is_empty() {
        w.put("allowed_macs", texts(&security.allowed_macs));
    }
    if !security.allowed_ips.is_empty() {
        w.put("allowed_ips", texts(&security.allowed_ips));
    }
    if let Some(max) = security.max_macs {
        w.put("max_macs", int(max));
    }
    let storm = &security.storm;
    let limits = [
        ("broadcast", storm.broadcast),
        ("multicast", storm.multicast),
        ("unknown_unicast", storm.unknown_unicast),
    ];
    let limit = |(key, limit): (&str, Option<u32>)| Some((key.to_owned(), int(limit?)));
    let limits: toml::Table = limits.into_iter().filter_map(limit).collect();
    if !limits.is_empty() {
        w.put("storm", limits);
    }
}

fn action(config: &Config, action: &ActionConfig) -> Value {
    let dir = match action.dir {
        MirredDir::Egress => "egress",
        MirredDir::Ingress => "ingress",
    };
    let to = config.ports[action.to].name.clone();
    let keys = [("to".to_owned(), to.into()), ("dir".to_owned(), dir.into())];
    Value::Table(keys.into_iter().collect())
}

fn queues(w: &mut Writer, queues: usize, map: &QueueMap) {
    if map.classes.is_empty() {
        w.unless("queues", int(queues), &int(1));
    } else {
        traffic_classes(w, map);
        let last = map
            .classes
            .iter()
            .map(|class| usize::from(class.offset + class.count));
        if last.max() != Some(queues) {
            w.remarks.push(format!(
                "{queues} queues, of which the last belong to no class"
            ));
        }
    }
    for (key, sets) in [("xps", &map.xps_cpus), ("xps_rxqs", &map.xps_rxqs)] {
        let set = |set: &Vec<usize>| {
            let numbers: Vec<String> = set.iter().map(ToString::to_string).collect();
            numbers.join(",")
        };
        if !sets.is_empty() {
            w.put(key, sets.iter().map(set).collect::<Vec<_>>());
        }
    }
}

/// `num_tc`, `map` and `queues`, as of a port or of `mqprio`.
pub(super) fn traffic_classes(w: &mut Writer, map: &QueueMap) {
    w.put("num_tc", int(map.classes.len()));
    w.put("map", ints(&map.prio_tc_map));
    let range = |class: &softnet::tx::TcQueues| format!("{}@{}", class.count, class.offset);
    w.put("queues", map.classes.iter().map(range).collect::<Vec<_>>());
}

fn link(w: &mut Writer, link: &LinkConfig) {
    let default = LinkConfig::default();
    w.unless(
        "txqueuelen",
        i64::from(link.tx_queue_len),
        &default.tx_queue_len.into(),
    );
    w.unless("alias", link.alias.clone(), &default.alias);
    w.unless("group", i64::from(link.group), &default.group.into());
    w.unless("up", link.up, &default.up);
}

fn bridge(w: &mut Writer, config: &Config, bridge: &BridgeConfig) {
    w.table("[[bridge]]");
    w.put("name", bridge.name.as_str());
    if let Some(mac) = bridge.mac {
        w.put("mac", mac.to_string());
    }
    w.unless("mtu", i64::from(bridge.mtu), &MTU_DEFAULT.into());
    link(w, &bridge.link);
    let names = bridge
        .ports
        .iter()
        .map(|&port| config.ports[port].name.clone());
    w.put("ports", names.collect::<Vec<_>>());
}

fn texts(values: &[impl ToString]) -> Value {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.into()
}

pub(super) fn ints<T: Copy + TryInto<i64>>(values: &[T]) -> Value {
    Value::Array(values.iter().map(|&value| int(value)).collect())
}
