//! A [`Config`] as a file that is read as the same.
//!
//! The format's own serializer writes the values. Tables are put in order here: a class comes
//! after what it is below, as the reader wants it.

use std::time::Duration;

use softnet::tx::{QueueMap, ServedBy, TxPolicy};
use softnet::wire::EthernetAddress;
use softnet_engine::forward::{
    BridgePortOptions, FdbState, MirredDir, MirredMode, PortSecurity, PortVlans, VlanFlags,
};
use softnet_engine::rx::Rfs;
use softnet_engine::{ActionSpec, BridgeSpec, MemberSpec, PortOptions, PortSpec, Settings, Spec};
use softnet_engine::{BridgeOptions, FdbSpec};
use softnet_io::DeviceSpec;
use softnet_io::vhost_user::{GuestSpec, VhostUserSpec};
use softnet_tc::rate::GroupSpec;
use toml::Value;

use super::model::Config;
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
    let Spec {
        ports,
        bridges,
        rate_groups,
    } = &config.links;
    for port in ports {
        self::port(&mut w, port);
    }
    for (name, group) in rate_groups {
        rate_group(&mut w, name, group);
    }
    for bridge in bridges {
        self::bridge(&mut w, ports, bridge);
    }
    for port in ports {
        for station in &port.member.stations {
            self::station(&mut w, &port.settings.name, station);
        }
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
    if let Some(group) = &control.monitor_group {
        w.put("monitor_group", group.as_str());
    }
}

fn vhost_user(
    w: &mut Writer,
    VhostUserSpec {
        socket: spec,
        guest,
    }: &VhostUserSpec,
) {
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
    let GuestSpec { memory, offloads } = guest;
    if memory.bytes != GuestSpec::default().memory.bytes {
        w.put("memory", memory.bytes.to_string());
    }
    if memory.hugetlb {
        w.put("memory_kind", "hugetlb");
    }
    if !offloads {
        w.put("guest_offloads", false);
    }
}

/// The driver's keys, and the address of its link.
fn device(w: &mut Writer, device: &DeviceSpec, address: Option<EthernetAddress>) {
    match device {
        DeviceSpec::Null => w.put("driver", "null"),
        DeviceSpec::VhostUser(spec) => vhost_user(w, spec),
        DeviceSpec::Tap {
            // The port's name.
            interface: _,
            netns,
            addresses,
        } => {
            w.put("driver", "tap");
            if let Some(netns) = netns {
                w.put("netns", netns.as_str());
            }
            if !addresses.is_empty() {
                w.put("address", texts(addresses));
            }
            if let Some(mac) = address {
                w.put("mac", mac.to_string());
            }
        }
    }
}

fn port(w: &mut Writer, port: &PortSpec<DeviceSpec>) {
    let PortSpec {
        settings,
        options,
        qdisc,
        // The bridge names it.
        master: _,
        member,
        actions,
    } = port;
    let PortOptions {
        device,
        queues,
        policy,
        map,
        steering,
        rate_group,
        security,
        parallel,
    } = options;
    w.table("[[port]]");
    w.put("name", settings.name.as_str());
    self::device(w, device, settings.address);
    link(w, settings);
    self::queues(w, *queues, map);
    w.unless("parallel", *parallel, &false);
    if !steering.rps.is_empty() {
        w.put("rps", ints(&steering.rps));
    }
    match steering.rfs {
        Rfs::Off => {}
        Rfs::Follow => w.put("rfs", "follow"),
        Rfs::Record => w.put("rfs", "record"),
    }
    let default = TxPolicy::default();
    if policy.served_by == ServedBy::Worker {
        w.put("served_by", "worker");
    }
    if policy.max_burst != default.max_burst {
        w.put("burst", int(policy.max_burst));
    }
    self::member(w, member);
    self::security(w, security);
    if let Some(group) = rate_group {
        w.put("rate_group", group.as_str());
    }
    let of = |mode| actions.iter().filter(move |action| action.mode == mode);
    let mirrors: Vec<Value> = of(MirredMode::Mirror).map(action).collect();
    if !mirrors.is_empty() {
        w.put("mirror", mirrors);
    }
    if let Some(redirect) = of(MirredMode::Redirect).next() {
        w.put("redirect", action(redirect));
    }
    write_tree::qdisc(w, "port.", qdisc);
}

fn rate_group(w: &mut Writer, name: &str, group: &GroupSpec) {
    w.table("[[rate_group]]");
    w.put("name", name);
    if let Some(bytes) = &group.bytes {
        w.put("rate", format!("{}bit", bytes.rate.saturating_mul(8)));
        w.put("burst", format!("{}b", bytes.burst));
    }
    if let Some(packets) = &group.packets {
        w.put("pps", int(packets.rate));
        w.put("pps_burst", int(packets.burst));
    }
}

/// All but the stations, which have tables.
fn member(w: &mut Writer, member: &MemberSpec) {
    let MemberSpec {
        options,
        vlans,
        stations: _,
    } = member;
    let BridgePortOptions {
        isolated,
        locked,
        learning,
        flood,
        mcast_flood,
        bcast_flood,
        hairpin,
    } = *options;
    let default = BridgePortOptions::default();
    w.unless("isolated", isolated, &default.isolated);
    w.unless("locked", locked, &default.locked);
    w.unless("learning", learning, &default.learning);
    w.unless("flood", flood, &default.flood);
    w.unless("mcast_flood", mcast_flood, &default.mcast_flood);
    w.unless("bcast_flood", bcast_flood, &default.bcast_flood);
    w.unless("hairpin", hairpin, &default.hairpin);
    self::vlans(w, vlans.as_ref());
}

fn vlans(w: &mut Writer, vlans: Option<&PortVlans>) {
    let Some(vlans) = vlans else {
        return;
    };
    let pvid = vlans.pvid();
    if let Some(pvid) = pvid {
        w.put("pvid", int(pvid));
    }
    let numbers = |of: &dyn Fn(u16) -> bool| {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for (vlan, _) in vlans.iter().filter(|&(vlan, _)| of(vlan)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == vlan => *last = vlan,
                _ => ranges.push((vlan, vlan)),
            }
        }
        let value = |&(first, last): &(u16, u16)| match first == last {
            true => int(first),
            false => format!("{first}-{last}").into(),
        };
        Value::Array(ranges.iter().map(value).collect())
    };
    w.put("vlans", numbers(&|vlan| Some(vlan) != pvid));
    let is_default = |(vlan, flags): (u16, VlanFlags)| flags.untagged == (pvid == Some(vlan));
    if !vlans.iter().all(is_default) {
        w.put("untagged", numbers(&|vlan| vlans.is_untagged(vlan)));
    }
}

fn station(w: &mut Writer, port: &str, station: &FdbSpec) {
    let FdbSpec {
        address,
        vlan,
        state,
        sticky,
    } = station;
    w.table("[[fdb]]");
    w.put("address", address.to_string());
    w.put("port", port);
    if let Some(vlan) = vlan {
        w.put("vlan", int(*vlan));
    }
    if *state == FdbState::Permanent {
        w.put("state", "permanent");
    }
    w.unless("sticky", *sticky, &false);
}

fn security(w: &mut Writer, security: &PortSecurity) {
    let PortSecurity {
        allowed_macs,
        allowed_ips,
        max_macs,
        storm,
    } = security;
    if !allowed_macs.is_empty() {
        w.put("allowed_macs", texts(allowed_macs));
    }
    if !allowed_ips.is_empty() {
        w.put("allowed_ips", texts(allowed_ips));
    }
    if let Some(max) = max_macs {
        w.put("max_macs", int(*max));
    }
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

fn action(action: &ActionSpec) -> Value {
    let dir = match action.dir {
        MirredDir::Egress => "egress",
        MirredDir::Ingress => "ingress",
    };
    let to = action.to.as_str();
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
}

/// `num_tc`, `map` and `queues`, as of a port or of `mqprio`.
pub(super) fn traffic_classes(w: &mut Writer, map: &QueueMap) {
    w.put("num_tc", int(map.classes.len()));
    w.put("map", ints(&map.prio_tc_map));
    let range = |class: &softnet::tx::TcQueues| format!("{}@{}", class.count, class.offset);
    w.put("queues", map.classes.iter().map(range).collect::<Vec<_>>());
}

/// All but name and address.
fn link(w: &mut Writer, settings: &Settings) {
    let Settings {
        name: _,
        address: _,
        mtu,
        tx_queue_len,
        group,
        alias,
        up,
    } = settings;
    let default = Settings::default();
    w.unless("mtu", i64::from(*mtu), &default.mtu.into());
    w.unless(
        "txqueuelen",
        i64::from(*tx_queue_len),
        &default.tx_queue_len.into(),
    );
    w.unless("alias", alias.clone(), &default.alias);
    w.unless("group", i64::from(*group), &default.group.into());
    w.unless("up", *up, &default.up);
}

fn bridge(w: &mut Writer, ports: &[PortSpec<DeviceSpec>], bridge: &BridgeSpec) {
    let BridgeSpec {
        settings,
        options,
        vlans,
    } = bridge;
    let BridgeOptions {
        ageing_time,
        vlan_filtering,
        default_pvid,
    } = options;
    let name = settings.name.as_str();
    w.table("[[bridge]]");
    w.put("name", name);
    if let Some(mac) = settings.address {
        w.put("mac", mac.to_string());
    }
    link(w, settings);
    let default = BridgeOptions::default();
    w.unless("vlan_filtering", *vlan_filtering, &default.vlan_filtering);
    let pvid = |vlan: &Option<u16>| i64::from(vlan.unwrap_or(0));
    let default_vlan = pvid(&default.default_pvid);
    w.unless("vlan_default_pvid", pvid(default_pvid), &default_vlan);
    let time = |time: &Duration| match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    };
    w.unless(
        "ageing_time",
        time(ageing_time),
        &time(&default.ageing_time),
    );
    self::vlans(w, vlans.as_ref());
    let members = ports
        .iter()
        .filter(|port| port.master.as_deref() == Some(name));
    let names = members.map(|port| port.settings.name.clone());
    w.put("ports", names.collect::<Vec<_>>());
}

fn texts(values: &[impl ToString]) -> Value {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.into()
}

pub(super) fn ints<T: Copy + TryInto<i64>>(values: &[T]) -> Value {
    Value::Array(values.iter().map(|&value| int(value)).collect())
}
