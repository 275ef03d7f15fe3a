//! What the file means: names that may be used, ports that exist, numbers in range. Finds the
//! first problem.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use softnet::wire::EthernetAddress;
use softnet_engine::{BridgeOptions, BridgeSpec, PortOptions, PortSpec, Settings, Spec};
use softnet_io::vhost_user::memory::MemoryLimits;
use softnet_io::vhost_user::{GuestSpec, MAX_QUEUES, SocketSpec, VhostUserSpec};
use softnet_io::{DeviceSpec, InterfaceAddress};
use softnet_tc::{LinkDefaults, QdiscSpec};
use toml::Spanned;

use super::error::Problem;
use super::file::{BridgeTable, EngineTable, File, PortTable};
use super::model::Config;
use super::range::number;
use super::source::Source;
use super::units::{self, UnitError};
use super::{control, egress, link, policy, rate_group, receive, security, tree, vlans};

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

/// Checks the tables of one file. `workers` there are if it does not say.
pub(super) fn check(
    source: &Source<'_>,
    file: &File,
    workers: Option<usize>,
) -> Result<Config, Problem> {
    let (workers, buffers) = engine(&file.engine, workers)?;
    let mut names = Names::default();
    let rate_groups = rate_group::rate_groups(&file.rate_group)?;
    let mut ports = Vec::with_capacity(file.port.len());
    for table in &file.port {
        names.add(source, "port", &table.name)?;
        let mut port = port(table)?;
        port.options.steering = receive::steering(table, workers)?;
        port.options.rate_group = rate_group::of_port(table, &rate_groups)?;
        ports.push(port);
    }
    for (index, table) in file.port.iter().enumerate() {
        ports[index].actions = egress::actions(table, &ports)?;
    }
    let mut bridges = Vec::with_capacity(file.bridge.len());
    for table in &file.bridge {
        names.add(source, "bridge", &table.name)?;
        bridges.push(bridge(table, &mut ports)?);
    }
    for (table, port) in file.port.iter().zip(&ports) {
        if port.master.is_none() {
            security::check_alone(table)?;
        }
    }
    vlans::stations(&file.fdb, &mut ports, &bridges)?;
    let place = |table: &PortTable| source.place(table.name.span().start);
    Ok(Config {
        file: source.file.to_owned(),
        workers,
        cpus: cpus(&file.engine, workers)?,
        buffers,
        settings: receive::engine(&file.engine)?,
        control: control::control(&file.engine)?,
        links: Spec {
            ports,
            rate_groups,
            bridges,
        },
        places: file.port.iter().map(place).collect(),
    })
}

fn engine(table: &EngineTable, workers: Option<usize>) -> Result<(usize, usize), Problem> {
    let workers = match &table.workers {
        Some(value) => number("engine.workers", value, (1, WORKERS_MAX))?,
        None => match &table.cpus {
            Some(cpus) => cpus.get_ref().len().clamp(1, WORKERS_MAX as usize),
            None => {
                workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
            }
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
        .map(|cpu| number("engine.cpus", cpu, (0, 1023)))
        .collect()
}

/// A port by itself: what it has to do with others, and with workers, is added.
fn port(table: &PortTable) -> Result<PortSpec<DeviceSpec>, Problem> {
    let device = device(table)?;
    let (queues, map) = egress::queues(table)?;
    if let (DeviceSpec::VhostUser(_), MAX_QUEUES.., Some(value)) =
        (&device, queues - 1, &table.queues)
    {
        let text = format!("driver \"vhost_user\" has 1 to {MAX_QUEUES} queues");
        return Err(Problem::new(value.span(), "port.queues", text));
    }
    let settings = link::settings(
        "port",
        Settings {
            name: table.name.get_ref().clone(),
            address: address(table.mac.as_ref(), "port.mac")?,
            mtu: mtu("port.mtu", table.mtu.as_ref())?,
            ..Settings::default()
        },
        table.txqueuelen.as_ref(),
        table.alias.as_ref(),
        table.group.as_ref(),
        table.up.as_ref(),
    )?;
    let parallel = table.parallel.as_ref();
    Ok(PortSpec {
        qdisc: qdisc(table, queues, &settings)?,
        settings,
        options: PortOptions {
            device,
            queues,
            policy: policy::policy(table)?,
            map,
            security: security::security(table)?,
            parallel: parallel.is_some_and(|parallel| *parallel.get_ref()),
            ..PortOptions::default()
        },
        member: security::member(table)?,
        ..PortSpec::default()
    })
}

fn qdisc(table: &PortTable, queues: usize, settings: &Settings) -> Result<QdiscSpec, Problem> {
    let device = LinkDefaults {
        mtu: settings.mtu,
        tx_queue_len: settings.tx_queue_len,
    };
    let Some(qdiscs) = &table.qdisc else {
        let class = table.class.first().map(|class| (class, "port.class"));
        let filter = table.filter.first().map(|filter| (filter, "port.filter"));
        if let Some((first, key)) = class.or(filter) {
            let text = "there is no qdisc that it could belong to; add one";
            return Err(Problem::new(first.span(), key, text));
        }
        return Ok(QdiscSpec::default());
    };
    let spec = tree::spec("port.", qdiscs, &table.class, &table.filter, device)?;
    let check = spec.check_for(queues);
    check.map_err(|e| Problem::new(qdiscs.span(), "port.qdisc", e.to_string()))?;
    Ok(spec)
}

fn device(table: &PortTable) -> Result<DeviceSpec, Problem> {
    let name = table.driver.get_ref().as_str();
    match name {
        "tap" => {
            refuse(table, SOCKET)?;
            let addresses = table.address.iter().map(interface_address);
            Ok(DeviceSpec::Tap {
                interface: table.name.get_ref().clone(),
                netns: table.netns.as_ref().map(netns).transpose()?,
                addresses: addresses.collect::<Result<_, _>>()?,
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
            let socket = SocketSpec {
                path: socket.ok_or_else(|| {
                    let text = "driver \"vhost_user\" needs the path of a socket; add one";
                    Problem::new(table.driver.span(), key, text)
                })?,
                server: table.server.as_ref().is_none_or(|server| *server.get_ref()),
                mode,
                group,
            };
            let guest = guest(table)?;
            Ok(DeviceSpec::VhostUser(VhostUserSpec { socket, guest }))
        }
        "null" => {
            refuse(table, KERNEL)?;
            refuse(table, SOCKET)?;
            Ok(DeviceSpec::Null)
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

/// What a port lets its guest do.
fn guest(table: &PortTable) -> Result<GuestSpec, Problem> {
    const LEAST: u64 = 1 << 20;
    let default = GuestSpec::default();
    let bytes = match &table.memory {
        None => default.memory.bytes,
        Some(memory) => {
            let key = "port.memory";
            let bad = |error: UnitError| Problem::new(memory.span(), key, error.to_string());
            let bytes = units::size(memory.get_ref()).map_err(bad)?;
            if !(LEAST..=1 << 50).contains(&bytes) {
                let text = "is out of range; use 1 MiB to 1 PiB";
                return Err(Problem::new(memory.span(), key, text));
            }
            bytes
        }
    };
    let hugetlb = match &table.memory_kind {
        None => default.memory.hugetlb,
        Some(kind) => match kind.get_ref().as_str() {
            "any" => false,
            "hugetlb" => true,
            other => {
                let text = format!("there is no kind of memory {other:?}; use any or hugetlb");
                return Err(Problem::new(kind.span(), "port.memory_kind", text));
            }
        },
    };
    let offloads = table.guest_offloads.as_ref();
    Ok(GuestSpec {
        memory: MemoryLimits { bytes, hugetlb },
        offloads: offloads.map_or(default.offloads, |on| *on.get_ref()),
    })
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
        ("memory", |table| table.memory.as_ref().map(Spanned::span)),
        ("memory_kind", |table| {
            table.memory_kind.as_ref().map(Spanned::span)
        }),
        ("guest_offloads", |table| {
            table.guest_offloads.as_ref().map(Spanned::span)
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

fn interface_address(value: &Spanned<String>) -> Result<InterfaceAddress, Problem> {
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
        None => Ok(Settings::default().mtu),
    }
}

/// The Ethernet address of a link.
fn address(
    value: Option<&Spanned<String>>,
    key: &str,
) -> Result<Option<EthernetAddress>, Problem> {
    value.map(|value| mac(key, value)).transpose()
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

/// A bridge. Its ports are told.
fn bridge(table: &BridgeTable, ports: &mut [PortSpec<DeviceSpec>]) -> Result<BridgeSpec, Problem> {
    let bridge = table.name.get_ref();
    for value in &table.ports {
        let name = value.get_ref();
        let problem = |text| Problem::new(value.span(), "bridge.ports", text);
        let port = ports.iter_mut().find(|port| port.settings.name == *name);
        let port = port.ok_or_else(|| {
            problem(format!(
                "there is no port {name:?}; add a [[port]] of that name or correct it"
            ))
        })?;
        if let Some(other) = port.master.replace(bridge.clone()) {
            let text = if other == *bridge {
                format!("port {name:?} is listed twice; remove one")
            } else {
                format!(
                    "port {name:?} is in bridge {other:?} already; a port can be in one bridge"
                )
            };
            return Err(problem(text));
        }
    }
    let settings = link::settings(
        "bridge",
        Settings {
            name: bridge.clone(),
            address: address(table.mac.as_ref(), "bridge.mac")?,
            mtu: mtu("bridge.mtu", table.mtu.as_ref())?,
            ..Settings::default()
        },
        table.txqueuelen.as_ref(),
        table.alias.as_ref(),
        table.group.as_ref(),
        table.up.as_ref(),
    )?;
    Ok(BridgeSpec {
        settings,
        options: bridge_options(table)?,
        vlans: vlans::vlans(
            "bridge",
            table.pvid.as_ref(),
            table.vlans.as_ref(),
            table.untagged.as_ref(),
        )?,
    })
}

fn bridge_options(table: &BridgeTable) -> Result<BridgeOptions, Problem> {
    /// `ip` gives it in hundredths of a second, in 32 bits.
    const AGEING_MAX: Duration = Duration::from_secs(u32::MAX as u64 / 100);
    let mut options = BridgeOptions::default();
    let BridgeOptions {
        ageing_time,
        vlan_filtering,
        default_pvid,
    } = &mut options;
    if let Some(value) = &table.ageing_time {
        let problem = |text| Problem::new(value.span(), "bridge.ageing_time", text);
        let text = value.get_ref();
        let time = units::time(text).map_err(|error| problem(error.to_string()))?;
        *ageing_time = Duration::from_nanos(time);
        if *ageing_time > AGEING_MAX {
            let most = AGEING_MAX.as_secs();
            return Err(problem(format!(
                "{text:?} is out of range; use 0s to {most}s"
            )));
        }
    }
    if let Some(value) = &table.vlan_filtering {
        *vlan_filtering = *value.get_ref();
    }
    if let Some(value) = &table.vlan_default_pvid {
        let vlan = number("bridge.vlan_default_pvid", value, (0, 4094))?;
        *default_pvid = (vlan != 0).then_some(vlan);
    }
    Ok(options)
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
