//! What the file means: names that may be used, ports that exist, numbers in range. Finds the
//! first problem.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::thread;

use softnet::tx::MAX_CPUS;
use softnet::wire::EthernetAddress;
use softnet_engine::rx::SteeringSpec;
use softnet_io::InterfaceAddress;
use softnet_io::vhost_user::{MAX_QUEUES, SocketSpec};
use softnet_tc::QdiscSpec;
use toml::Spanned;

use super::error::Problem;
use super::file::{BridgeTable, EngineTable, File, PortTable};
use super::model::{BridgeConfig, Config, Driver, PortConfig};
use super::qdisc::Device;
use super::range::{MTU_DEFAULT, number};
use super::source::Source;
use super::{control, egress, link, policy, rate_group, receive, security, tree};

/// Drivers that the format names and this version does not have.
const LATER_DRIVERS: &[&str] = &["af_packet", "af_xdp", "pcap"];
const DRIVERS: &str = "tap, vhost_user or null";
/// Longest interface name (`IFNAMSIZ` less the terminating zero).
const NAME_MAX: usize = 15;
const WORKERS_MAX: i64 = 1024;
const BUFFERS_DEFAULT: usize = 65_536;
/// A pool smaller than one poll of one worker would drop on every burst.
const BUFFERS_MIN: i64 = 256;
const BUFFERS_MAX: i64 = 16_777_216;
/// The smallest MTU IPv4 allows (RFC 791), and the longest IP packet.
const MTU_RANGE: (i64, i64) = (68, 65_521);

/// Checks the tables of one file.
pub(super) fn check(source: &Source<'_>, file: &File) -> Result<Config, Problem> {
    let (workers, buffers) = engine(&file.engine)?;
    let mut names = Names::default();
    let rate_groups = rate_group::rate_groups(&file.rate_group)?;
    let mut ports = Vec::with_capacity(file.port.len());
    for table in &file.port {
        names.add(source, "port", &table.name)?;
        let mut port = port(source, table)?;
        port.steering = receive::steering(table, workers)?;
        port.rate_group = rate_group::of_port(table, &rate_groups)?;
        ports.push(port);
    }
    for (index, table) in file.port.iter().enumerate() {
        ports[index].actions = egress::actions(table, &ports)?;
    }
    let mut members = HashMap::new();
    let mut bridges = Vec::with_capacity(file.bridge.len());
    for table in &file.bridge {
        names.add(source, "bridge", &table.name)?;
        bridges.push(bridge(table, &ports, &mut members)?);
    }
    for (index, table) in file.port.iter().enumerate() {
        if !members.contains_key(&index) {
            security::check_alone(table)?;
        }
    }
    Ok(Config {
        file: source.file.to_owned(),
        workers,
        cpus: cpus(&file.engine, workers)?,
        buffers,
        settings: receive::engine(&file.engine)?,
        control: control::control(&file.engine)?,
        ports,
        rate_groups,
        bridges,
    })
}

fn engine(table: &EngineTable) -> Result<(usize, usize), Problem> {
    let workers = match &table.workers {
        Some(value) => number("engine.workers", value, (1, WORKERS_MAX))?,
        None => match &table.cpus {
            Some(cpus) => cpus.get_ref().len().clamp(1, WORKERS_MAX as usize),
            None => thread::available_parallelism().map_or(1, usize::from),
        },
    };
    let buffers = match &table.buffers {
        Some(value) => number("engine.buffers", value, (BUFFERS_MIN, BUFFERS_MAX))?,
        None => BUFFERS_DEFAULT,
    };
    Ok((workers, buffers))
}

/// The CPU of each worker.
fn cpus(table: &EngineTable, workers: usize) -> Result<Vec<usize>, Problem> {
    let Some(list) = &table.cpus else {
        return Ok(Vec::new());
    };
    let cpus = list.get_ref();
    if cpus.len() != workers {
        let text = format!(
            "there are {} CPUs for {workers} workers; give one for each",
            cpus.len()
        );
        return Err(Problem::new(list.span(), "engine.cpus", text));
    }
    cpus.iter()
        .map(|cpu| number("engine.cpus", cpu, (0, MAX_CPUS as i64 - 1)))
        .collect()
}

fn port(source: &Source<'_>, table: &PortTable) -> Result<PortConfig, Problem> {
    let driver = driver(table)?;
    let (queues, map) = egress::queues(table)?;
    if let (Driver::VhostUser(_), MAX_QUEUES.., Some(value)) = (&driver, queues - 1, &table.queues)
    {
        let text = format!("driver \"vhost_user\" has 1 to {MAX_QUEUES} queues");
        return Err(Problem::new(value.span(), "port.queues", text));
    }
    let mtu = mtu("port.mtu", table.mtu.as_ref())?;
    let link = link::link(
        "port",
        table.txqueuelen.as_ref(),
        table.alias.as_ref(),
        table.group.as_ref(),
        table.up.as_ref(),
    )?;
    let device = Device {
        mtu,
        tx_queue_len: link.tx_queue_len,
    };
    let qdisc = match &table.qdisc {
        Some(qdiscs) => {
            let spec = tree::spec("port.", qdiscs, &table.class, &table.filter, device)?;
            let check = spec.check_for(queues);
            check.map_err(|e| Problem::new(qdiscs.span(), "port.qdisc", e.to_string()))?;
            spec
        }
        None => {
            let class = table.class.first().map(|class| (class, "port.class"));
            let filter = table.filter.first().map(|filter| (filter, "port.filter"));
            if let Some((first, key)) = class.or(filter) {
                let text = "there is no qdisc that it could belong to; add one";
                return Err(Problem::new(first.span(), key, text));
            }
            QdiscSpec::default()
        }
    };
    let name = table.name.get_ref().clone();
    let place = source.place(table.name.span().start);
    Ok(PortConfig {
        place,
        name,
        driver,
        queues,
        map,
        // When all ports are known.
        actions: Vec::new(),
        steering: SteeringSpec::default(),
        mtu,
        link,
        qdisc,
        parallel: table
            .parallel
            .as_ref()
            .is_some_and(|parallel| *parallel.get_ref()),
        policy: policy::policy(table)?,
        isolated: table.isolated.as_ref().is_some_and(|on| *on.get_ref()),
        locked: table.locked.as_ref().is_some_and(|on| *on.get_ref()),
        security: security::security(table)?,
        // When all groups are known.
        rate_group: None,
    })
}

fn driver(table: &PortTable) -> Result<Driver, Problem> {
    let name = table.driver.get_ref().as_str();
    match name {
        "tap" => {
            refuse(table, SOCKET)?;
            Ok(Driver::Tap {
                netns: table.netns.as_ref().map(netns).transpose()?,
                addresses: table
                    .address
                    .iter()
                    .map(address)
                    .collect::<Result<_, _>>()?,
                mac: table.mac.as_ref().map(|m| mac("port.mac", m)).transpose()?,
            })
        }
        "vhost_user" => {
            refuse(table, KERNEL)?;
            let key = "port.socket";
            let socket = control::path(key, table.socket.as_ref())?;
            let (mode, group) = control::access(
                "port",
                table.socket_mode.as_ref(),
                table.socket_group.as_ref(),
            )?;
            Ok(Driver::VhostUser(SocketSpec {
                path: socket.ok_or_else(|| {
                    let text = "driver \"vhost_user\" needs the path of a socket; add one";
                    Problem::new(table.driver.span(), key, text)
                })?,
                server: table.server.as_ref().is_none_or(|server| *server.get_ref()),
                mode,
                group,
            }))
        }
        "null" => {
            refuse(table, KERNEL)?;
            refuse(table, SOCKET)?;
            Ok(Driver::Null)
        }
        later if LATER_DRIVERS.contains(&later) => Err(Problem::new(
            table.driver.span(),
            "port.driver",
            format!("driver {later:?} is not available in this version; use {DRIVERS}"),
        )),
        unknown => Err(Problem::new(
            table.driver.span(),
            "port.driver",
            format!("there is no driver {unknown:?}; use {DRIVERS}"),
        )),
    }
}

/// Keys that not every driver has, and what such a driver makes.
type Only = (
    &'static [(&'static str, fn(&PortTable) -> Option<Range<usize>>)],
    &'static str,
);

const KERNEL: Only = (
    &[
        ("netns", |table| table.netns.as_ref().map(Spanned::span)),
        ("address", |table| table.address.first().map(Spanned::span)),
        ("mac", |table| table.mac.as_ref().map(Spanned::span)),
    ],
    "network device",
);
const SOCKET: Only = (
    &[
        ("socket", |table| table.socket.as_ref().map(Spanned::span)),
        ("server", |table| table.server.as_ref().map(Spanned::span)),
        ("socket_mode", |table| {
            table.socket_mode.as_ref().map(Spanned::span)
        }),
        ("socket_group", |table| {
            table.socket_group.as_ref().map(Spanned::span)
        }),
    ],
    "socket",
);

/// Refuses keys that the port's driver does not have.
fn refuse(table: &PortTable, (keys, what): Only) -> Result<(), Problem> {
    let mut given = keys
        .iter()
        .filter_map(|(key, span)| Some((key, span(table)?)));
    given.next().map_or(Ok(()), |(key, span)| {
        let driver = table.driver.get_ref();
        let text = format!("driver {driver:?} makes no {what} that could have it; remove it");
        Err(Problem::new(span, format!("port.{key}"), text))
    })
}

fn netns(value: &Spanned<String>) -> Result<String, Problem> {
    let name = value.get_ref();
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        let text = format!(
            "{name:?} cannot name a network namespace; use a name that `ip netns list` shows"
        );
        return Err(Problem::new(value.span(), "port.netns", text));
    }
    Ok(name.clone())
}

fn address(value: &Spanned<String>) -> Result<InterfaceAddress, Problem> {
    let text = value.get_ref();
    let problem = |what: &str| {
        let text = format!("{text:?} {what}; write it like \"10.9.0.1/24\" or \"fd00::1/64\"");
        Problem::new(value.span(), "port.address", text)
    };
    let (ip, prefix) = text
        .split_once('/')
        .ok_or_else(|| problem("has no prefix length"))?;
    let ip: IpAddr = ip.parse().map_err(|_| problem("is not an IP address"))?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let address = (!prefix.starts_with('+'))
        .then(|| prefix.parse().ok())
        .flatten()
        .and_then(|prefix| InterfaceAddress::new(ip, prefix).ok())
        .ok_or_else(|| problem(&format!("has a prefix length that is not 0 to {longest}")))?;
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(problem("is not an address that an interface can have"));
    }
    Ok(address)
}

fn mtu(key: &str, value: Option<&Spanned<i64>>) -> Result<u32, Problem> {
    match value {
        Some(value) => number(key, value, MTU_RANGE),
        None => Ok(MTU_DEFAULT),
    }
}

/// A station's address.
pub(super) fn mac(key: &str, value: &Spanned<String>) -> Result<EthernetAddress, Problem> {
    let text = value.get_ref();
    let problem = |what: &str| {
        Problem::new(
            value.span(),
            key,
            format!("{text:?} {what}; write it like \"02:00:00:00:00:01\""),
        )
    };
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = parts
            .next()
            .filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|part| u8::from_str_radix(part, 16).ok())
            .ok_or_else(|| problem("is not an Ethernet address"))?;
    }
    if parts.next().is_some() {
        return Err(problem("is not an Ethernet address"));
    }
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(problem(
            "is a group or zero address, which an interface cannot have",
        ));
    }
    Ok(EthernetAddress(mac))
}

fn bridge(
    table: &BridgeTable,
    ports: &[PortConfig],
    members: &mut HashMap<usize, String>,
) -> Result<BridgeConfig, Problem> {
    let bridge = table.name.get_ref();
    let mut indices = Vec::with_capacity(table.ports.len());
    for value in &table.ports {
        let name = value.get_ref();
        let problem = |text| Problem::new(value.span(), "bridge.ports", text);
        let index = ports
            .iter()
            .position(|port| port.name == *name)
            .ok_or_else(|| {
                problem(format!(
                    "there is no port {name:?}; add a [[port]] of that name or correct it"
                ))
            })?;
        if let Some(other) = members.insert(index, bridge.clone()) {
            let text = if other == *bridge {
                format!("port {name:?} is listed twice; remove one")
            } else {
                format!(
                    "port {name:?} is in bridge {other:?} already; a port can be in one bridge"
                )
            };
            return Err(problem(text));
        }
        indices.push(index);
    }
    Ok(BridgeConfig {
        name: bridge.clone(),
        ports: indices,
        mac: table
            .mac
            .as_ref()
            .map(|m| mac("bridge.mac", m))
            .transpose()?,
        mtu: mtu("bridge.mtu", table.mtu.as_ref())?,
        link: link::link(
            "bridge",
            table.txqueuelen.as_ref(),
            table.alias.as_ref(),
            table.group.as_ref(),
            table.up.as_ref(),
        )?,
    })
}

/// Names in use. Ports and bridges share one space of names, as interfaces do in Linux.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, (&'static str, Range<usize>)>);

impl<'a> Names<'a> {
    fn add(
        &mut self,
        source: &Source<'_>,
        kind: &'static str,
        value: &'a Spanned<String>,
    ) -> Result<(), Problem> {
        let name = value.get_ref().as_str();
        let problem = |text| Problem::new(value.span(), format!("{kind}.name"), text);
        let why = if name.is_empty() {
            Some("is empty")
        } else if name.len() > NAME_MAX {
            Some("is longer than 15 bytes")
        } else if name == "." || name == ".." {
            Some("is reserved")
        } else if name.contains(['/', ':', '%', '\0']) || name.contains(char::is_whitespace) {
            Some("contains a character that Linux does not allow there (/, :, %, white space)")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(problem(format!(
                "{name:?} {why}; choose a valid interface name"
            )));
        }
        if let Some((first_kind, first)) = self.0.insert(name, (kind, value.span())) {
            let line = source.place(first.start).line;
            return Err(problem(format!(
                "{name:?} is the name of the {first_kind} in line {line} already; choose another"
            )));
        }
        Ok(())
    }
}
