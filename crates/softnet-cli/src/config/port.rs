//! `[[port]]`: the keys of a port, its queues, and what it may send.

use std::collections::BTreeMap;

use softnet::tx::ServedBy;
use softnet_engine::forward::{MAX_MACS, StormLimits};
use softnet_engine::rx::Rfs;
use softnet_engine::{MemberSpec, PortSpec, Settings};
use softnet_io::pcap::Pace;
use softnet_io::vhost_user::MAX_QUEUES;
use softnet_io::{
    ALL_MTUS, AfPacketSpec, AfXdpSpec, DeviceSpec, ETHERNET_MTUS, StreamSpec, TapSpec, Uplink,
    af_xdp,
};
use softnet_tc::Unset::{Required, Value, Words};
use softnet_tc::rate::GroupSpec;
use softnet_tc::{LinkDefaults, QdiscSpec};

use super::address::{INTERFACE, INTERFACE_NAME, MAC, NETNS, PREFIX, ROUTE, ROUTER};
use super::control::{FILE, GROUP, MODE, PATH, default_mode};
use super::device::{
    self, ETH_P_8021AD, ETH_P_8021Q, blank, guest, interface, pcap, socket, tap, vlan,
};
use super::form::{Flag, List, Maybe, NotEmpty, Number, Size, Text, Word, ints};
use super::key::{self, Key, keys, names};
use super::link::{self, LINK, Names};
use super::member::MEMBER;
use super::passed_file::PassedFile;
use super::table::Table;
use super::vlans::{self, VLANS};
use super::write::Writer;
use super::{egress, tree, write_tree};

pub(super) type Port = PortSpec<DeviceSpec>;

const MEMORY_MIN: u64 = 1 << 20;
const MEMORY_MAX: u64 = 1 << 50;

pub(super) static PORT: &[Key<Port>] = keys! { Port =>
    /// name of the port, and of the network device that it makes; 1 to 15 bytes, unique among ports
    /// and bridges
    "name": Required("it", "\"p\""), "\"a/b\"";
    /// `"tap"` makes a kernel TAP device; `"vhost_user"` is the network device of a virtual machine
    /// ([how, and its limits](../crates/softnet-io/src/vhost_user/README.md)); `"af_packet"` uses
    /// an interface that is there, a NIC or one end of a veth, which stays the kernel's and as it
    /// is ([ways to the Internet](uplink.md)); `"af_xdp"` takes such an interface's frames for
    /// itself, before the kernel's stack ([how](uplink.md#a-nic-by-af_xdp)); `"stream"` and `"dgram"` exchange frames with a
    /// process through a Unix socket (QEMU's `-netdev stream` and `dgram`, passt, gvproxy), a
    /// stream with four bytes of length in front of each; `"pcap"` receives the packets of a file,
    /// and writes one; `"null"` discards what is sent and receives nothing; `"ifb"` sends what
    /// filters redirect to it, as its qdiscs say, and gives it back where it came from; `"vlan"`
    /// is a VLAN of another port
    "driver": Required("it", "\"tap\""), "\"tun\"";
    /// name of the port whose VLAN it is, which is described before (`vlan`; required there)
    "link": Words("none"), "\"\"", needs "parent"
        => Text(parent, |text| Some(text.clone())), |p| vlan(p).map(|(parent, _)| parent);
    /// number of the VLAN, 1 to 4094 (`vlan`; required there)
    "id": Words("none"), "4095", needs "parent"
        => Number(1, 4094), |p| vlan(p).map(|(_, tag)| &mut tag.id);
    /// protocol of the VLAN's tags (`vlan`)
    "protocol": Value, "\"802.1x\"", needs "parent"
        => Word(&[("802.1q", ETH_P_8021Q), ("802.1ad", ETH_P_8021AD)], |other| {
            format!("there are no VLANs of {other:?}; use 802.1q or 802.1ad")
        }),
        |p| vlan(p).map(|(_, tag)| &mut tag.proto);
    /// path of the Unix socket to the virtual machine's front end or the other process
    /// (`vhost_user`, `stream`, `dgram`; required there)
    "socket": Words("none"), "\"\"", needs "socket"
        => PATH, |p| socket(p).map(|socket| &mut socket.path);
    /// whether Softnet makes the socket and the other side connects to it; `false`: the other way
    /// round, and Softnet tries again until the other side is there (`vhost_user`, `stream`,
    /// `dgram`)
    "server": Value, "\"no\"", needs "socket"
        => Flag, |p| socket(p).map(|socket| &mut socket.server);
    /// who may connect to the socket that Softnet makes (`vhost_user`, `stream`, `dgram`)
    "socket_mode": Words("`\"0600\"`; `\"0660\"` with a group"), "\"rw\"", needs "socket"
        => MODE, |p| socket(p).map(|socket| &mut socket.mode);
    /// group of that socket, by name or number (`vhost_user`, `stream`, `dgram`)
    "socket_group": Words("that of the process"), "\"\"", needs "socket"
        => Maybe(GROUP), |p| socket(p).map(|socket| &mut socket.group);
    /// a program that is started and is the other process: `"passt"`, a way to the Internet for one
    /// station ([how](uplink.md#passt-without-root)); there is no `socket` then (`stream`)
    "uplink": Words("none"), "\"slirp\"", needs "stream"
        => Maybe(UPLINK), |p| match &mut p.options.device {
            DeviceSpec::Stream(StreamSpec { uplink, .. }) => Some(uplink),
            _ => None,
        };
    /// the most memory that the virtual machine may share, with unit, 1 MiB to 1 PiB
    /// (`vhost_user`). Give it what the machine has: memory that its front end has not touched is
    /// charged to Softnet when a packet touches it, so let the front end touch all of it first
    /// (`prealloc=on` of QEMU's memory backend), or use huge pages
    "memory": Value, "\"1k\"", needs "socket"
        => Size(MEMORY_MIN, MEMORY_MAX, "1 MiB to 1 PiB"),
           |p| guest(p).map(|guest| &mut guest.guest.memory.bytes);
    /// `"hugetlb"` takes only memory in huge pages (`memory-backend-memfd,hugetlb=on`): it is the
    /// front end's from the start, and no access to it waits for a swap device. For front ends that
    /// are not trusted. `"any"`: that, or any memory file (`vhost_user`)
    "memory_kind": Value, "\"disk\"", needs "socket"
        => Word(&[("any", false), ("hugetlb", true)], |other| {
            format!("there is no kind of memory {other:?}; use any or hugetlb")
        }),
        |p| guest(p).map(|guest| &mut guest.guest.memory.hugetlb);
    /// whether large frames and frames with missing checksums are offered to the virtual machine to
    /// receive. `false` for one that switches them off later, of which Softnet never hears: an XDP
    /// program, or Windows without RSC (`vhost_user`)
    "guest_offloads": Value, "1", needs "socket"
        => Flag, |p| guest(p).map(|guest| &mut guest.guest.offloads);
    /// name of the kernel's interface: the one that is used (`af_packet`, `af_xdp`) or made (`tap`)
    "interface": Words("the name of the port"), "\"a/b\"", needs "network device"
        => INTERFACE_NAME, |p| interface(p);
    /// whether the device exists already, made by somebody else (`ip tuntap add`), and stays as it
    /// is: its address, MTU and state are its own, and it goes on when Softnet ends if it is
    /// persistent (`tap`)
    "attach": Value, "1", needs "TAP device"
        => Flag, |p| tap(p).map(|tap| &mut tap.attach);
    /// file that Softnet was started with and that is a queue of a TAP device, opened with
    /// `IFF_TAP`, `IFF_NO_PI` and `IFF_VNET_HDR`: its number, or the name that systemd gave it
    /// (`$LISTEN_FDNAMES`); as with `attach` (`tap`)
    "fd": Words("none"), "2", needs "TAP device"
        => Maybe(PassedFile), |p| tap(p).map(|tap| &mut tap.file);
    /// file whose packets are received: pcap or pcapng, of Ethernet, Linux cooked captures or raw
    /// IP, also compressed by gzip; `"-"` is standard input (`pcap`)
    "read": Words("none; nothing is received"), "\"\"", needs "file"
        => Maybe(FILE), |p| pcap(p).map(|pcap| &mut pcap.read);
    /// pcap file of what is sent; a file that is there is replaced (`pcap`)
    "write": Words("none; what is sent is discarded"), "\"\"", needs "file"
        => Maybe(FILE), |p| pcap(p).map(|pcap| &mut pcap.write);
    /// when packets of the file are received: `"captured"`, as far apart as they were captured, or
    /// `"fast"`, one after the other (`pcap`)
    "pace": Value, "\"slow\"", needs "file"
        => Word(&[("captured", Pace::Captured), ("fast", Pace::Fast)], |other| {
            format!("there is no pace {other:?}; use captured or fast")
        }),
        |p| pcap(p).map(|pcap| &mut pcap.pace);
    /// network namespace that the device is put into (`tap`), or that it is in (`af_packet`,
    /// `af_xdp`): a name that `ip netns list` shows, the path of a file that stands for it, or
    /// `{ pid = N }` for that of a process, such as a container's
    "netns": Words("the one that Softnet runs in"), "\"a/b\"", needs "network device"
        => Maybe(NETNS), |p| match &mut p.options.device {
            DeviceSpec::Tap(TapSpec { netns, .. })
            | DeviceSpec::AfPacket(AfPacketSpec { netns, .. })
            | DeviceSpec::AfXdp(AfXdpSpec { netns, .. }) => Some(netns),
            _ => None,
        };
    /// list of IP addresses of the device, with prefix length (`tap`)
    "address": Words("`[]`"), "[\"10.0.0.1\"]", needs "network device"
        => List(INTERFACE), |p| match &mut p.options.device {
            DeviceSpec::Tap(TapSpec { addresses, .. }) => Some(addresses),
            _ => None,
        };
    /// list of routers, each the next hop of the default route of its family in the device's
    /// namespace (`tap`)
    "gateway": Words("`[]`"), "[\"10.0.0.1/24\"]", needs "network device"
        => List(ROUTER), |p| match &mut p.options.device {
            DeviceSpec::Tap(TapSpec { gateways, .. }) => Some(gateways),
            _ => None,
        };
    /// list of other routes through the device: `"10.1.0.0/16 via 10.9.0.7"`, or `"10.1.0.0/16"`
    /// for a network that is reached directly (`tap`)
    "routes": Words("`[]`"), "[\"10.0.0.1\"]", needs "network device"
        => List(ROUTE), |p| match &mut p.options.device {
            DeviceSpec::Tap(TapSpec { routes, .. }) => Some(routes),
            _ => None,
        };
    /// Ethernet address of the link, as `ip link` shows it; with `tap` the device's, too
    "mac": Words("random"), "\"01:00:5e:00:00:01\""
        => Maybe(MAC), |p| Some(&mut p.settings.address);
    /// number of queue pairs, 1 to 256 (`vhost_user`: 128; `af_xdp`: those of the interface, up to
    /// 128; `stream`, `dgram`, `pcap`: 1); or with `num_tc` the queues of each traffic class as
    /// `"COUNT@OFFSET"`
    "queues": Words("`1`"), "257";
    /// number of traffic classes, 1 to 16 (tc-mqprio)
    "num_tc": Words("no classes"), "2";
    /// list with the traffic class of each priority 0 to 15; those left out belong to class 0
    "map": Words("class 0 for all"), "[1]";
    /// whether the tree of qdiscs runs at all transmit queues at once
    /// ([One tree at all queues](#one-tree-at-all-queues))
    "parallel": Value, "1"
        => Flag, |p| Some(&mut p.options.parallel);
    /// list of workers that process what the port receives, chosen by flow
    "rps": Words("`[]`: the worker that polls the port"), "[7]";
    /// `"follow"` moves a flow to the worker that reads its other direction at a port with
    /// `"record"`
    "rfs": Value, "\"on\""
        => Word(
            &[("off", Rfs::Off), ("follow", Rfs::Follow), ("record", Rfs::Record)],
            |other| format!(
                "{other:?} is not a way to steer flows; use \"follow\" (to the worker that reads \
                 the other direction), \"record\" (this port's workers read it) or \"off\""
            ),
        ),
        |p| Some(&mut p.options.steering.rfs);
    /// who runs the transmit queues: `"senders"`, the one that finds a queue idle, or `"worker"`,
    /// the queue's worker alone
    "served_by": Value, "\"nobody\""
        => Word(
            &[("senders", ServedBy::Senders), ("worker", ServedBy::Worker)],
            |other| format!(
                "{other:?} cannot run a transmit queue; use \"senders\" (the one that finds it \
                 idle) or \"worker\" (its worker alone)"
            ),
        ),
        |p| Some(&mut p.options.policy.served_by);
    /// packets that may wait for a queue's owner before the qdisc sees them, 1 to 65535
    /// (`net.core.qdisc_max_burst`)
    "burst": Value, "0"
        => Number(1, u16::MAX as i64), |p| Some(&mut p.options.policy.max_burst);
    /// the qdisc that packets leave through, as a table; or a list of tables (`[[port.qdisc]]`),
    /// which is a tree
    "qdisc": Words("the engine's `default_qdisc` at each queue"), "\"tbf\"";
    /// list of tables (`[[port.class]]`): classes of the tree's qdiscs
    "class": Words("`[]`"), "[{ classid = \"1:1\", rate = \"1mbit\" }]";
    /// list of tables (`[[port.filter]]`) that put packets into the tree's classes
    "filter": Words("`[]`"), "[{ flowid = \"1:1\" }]";
    /// list of the Ethernet addresses that it may send with
    /// ([tenants](#tenants-who-do-not-trust-each-other))
    "allowed_macs": Words("any"), "[]"
        => NotEmpty(MAC), |p| Some(&mut p.options.security.allowed_macs);
    /// list of the IP addresses and networks that it may send with
    /// ([tenants](#tenants-who-do-not-trust-each-other))
    "allowed_ips": Words("any"), "[\"10.0.0.5/24\"]"
        => NotEmpty(PREFIX), |p| Some(&mut p.options.security.allowed_ips);
    /// source addresses that it may have at a time, 1 to 256. An address counts until it was not
    /// seen for 300 seconds, or the link goes down
    "max_macs": Words("any number"), "0"
        => Maybe(Number(1, MAX_MACS as i64)), |p| Some(&mut p.options.security.max_macs);
    /// a table ([`storm`](#storm))
    "storm": Words("`{}`"), "1000";
    /// the name of the [group](#rate_group) whose rates it shares
    "rate_group": Words("none"), "\"x\""
        => Maybe(Text(|text| Ok(text.to_owned()), |name| Some(name.clone()))),
           |p| Some(&mut p.options.rate_group);
    /// a table, or a list of tables ([`mirror`](#mirror))
    "mirror": Words("`[]`"), "{ to = \"x\" }";
    /// a table ([`redirect`](#redirect))
    "redirect": Words("nowhere"), "{ to = \"x\" }";
    /// longest IP packet in bytes, 68 (RFC 791) to 65521; up to 2147483647 with `null` and `ifb`
    "mtu": Value, "-1"
        => Number(ALL_MTUS.0 as i64, ALL_MTUS.1 as i64), |p| Some(&mut p.settings.mtu);
};

pub(super) static STORM: &[Key<StormLimits>] = keys! { StormLimits =>
    /// to all stations
    "broadcast": Words("any number"), "-1" => LIMIT, |s| Some(&mut s.broadcast);
    /// to groups, those of IPv6 neighbour discovery among them
    "multicast": Words("any number"), "-1" => LIMIT, |s| Some(&mut s.multicast);
    /// to stations that the bridge does not know
    "unknown_unicast": Words("any number"), "-1" => LIMIT, |s| Some(&mut s.unknown_unicast);
};

const LIMIT: Maybe<Number> = Maybe(Number(0, u32::MAX as i64));

const UPLINK: Word<Uplink> = Word(&[("passt", Uplink::Passt)], |other| {
    format!("there is no uplink {other:?}; use passt")
});

fn parent(text: &str) -> Result<String, String> {
    match Settings::wrong_name(text) {
        Some(why) => Err(format!("{text:?} {why}; name a port")),
        None => Ok(text.to_owned()),
    }
}

/// All keys of the table.
pub(super) fn key_names() -> Vec<&'static str> {
    let of_member = names(MEMBER).chain(names(VLANS));
    names(PORT).chain(names(LINK)).chain(of_member).collect()
}

/// Key of a thing that has no effect of its own here.
fn hint(key: &str) -> &'static str {
    match key {
        "xps" | "xps_rxqs" => {
            " (each worker sends through its own queue, and a flow keeps its queue while packets \
             of it wait; delete the key)"
        }
        _ => "",
    }
}

/// Reads a port by itself, in an engine of `workers` workers, if that is known. Its bridge, its
/// stations and actions are added.
pub(super) fn read<'a>(
    table: &'a Table<'_>,
    workers: Option<usize>,
    rate_groups: &BTreeMap<String, GroupSpec>,
    names: &mut Names<'a>,
) -> Port {
    let before = table.source.errors();
    table.known(&key_names(), hint);
    let driver = device::driver(table);
    let mut port = driver.and_then(blank).unwrap_or_default();
    key::read(PORT, table, &mut port, driver);
    link::read(table, "port", names, &mut port.settings);
    key::read(MEMBER, table, &mut port.member.options, None);
    port.member.vlans = vlans::read(table);
    device::complete(table, &mut port);
    let (least, most) = driver.map_or(ETHERNET_MTUS, |_| port.options.device.mtus());
    if !(least..=most).contains(&port.settings.mtu)
        && let Some(item) = table.find("mtu")
    {
        item.number::<u32>(least.into(), most.into());
    }
    if let Some((queues, map)) = egress::queues(table) {
        (port.options.queues, port.options.map) = (queues, map);
        let most = match driver {
            Some("vhost_user") => MAX_QUEUES,
            Some("af_xdp") => af_xdp::MAX_QUEUES,
            _ => usize::MAX,
        };
        if let Some(driver) = driver
            && queues > most
        {
            table.problem::<()>(
                "queues",
                format!("driver {driver:?} has 1 to {most} queues"),
            );
        }
        if let Some(driver @ ("stream" | "dgram" | "pcap")) = driver
            && queues != 1
        {
            table.problem::<()>("queues", format!("driver {driver:?} has 1 queue"));
        }
    }
    rps(table, workers, &mut port);
    let security = &mut port.options.security;
    if table.has("max_macs") && table.has("allowed_macs") {
        let text = "says nothing beside allowed_macs; remove one of both";
        table.problem::<()>("max_macs", text);
    }
    if let Some(storm) = table.find("storm").and_then(|item| item.table("a table")) {
        storm.known(&key::names(STORM).collect::<Vec<_>>(), |_| "");
        key::read(STORM, &storm, &mut security.storm, None);
    }
    if let Some(name) = &port.options.rate_group
        && !rate_groups.contains_key(name)
    {
        let text = format!("there is no [[rate_group]] named {name:?}");
        table.problem::<()>("rate_group", text);
    }
    port.qdisc = qdisc(table, &port, before);
    port
}

fn rps(table: &Table<'_>, workers: Option<usize>, port: &mut Port) {
    let items = table.find("rps").and_then(|item| item.list());
    for item in items.into_iter().flatten() {
        let Some(number) = item.integer() else {
            continue;
        };
        let worker = usize::try_from(number).ok();
        match worker.filter(|&worker| workers.is_none_or(|all| worker < all)) {
            Some(worker) => port.options.steering.rps.push(worker),
            None => {
                let known = match workers {
                    Some(1) => "the only one is 0".to_owned(),
                    Some(all) => format!("they are numbered 0 to {}", all - 1),
                    None => "they are numbered from 0".to_owned(),
                };
                item.problem::<()>(format!("there is no worker {}; {known}", item.written()));
            }
        }
    }
}

/// The port's qdisc. Whether it fits the port is not asked where the port has had errors since
/// there were `before`.
fn qdisc(table: &Table<'_>, port: &Port, before: usize) -> QdiscSpec {
    let device = LinkDefaults {
        mtu: port.settings.mtu,
        tx_queue_len: port.settings.tx_queue_len,
        queues: u16::try_from(port.options.queues).unwrap_or(u16::MAX),
    };
    if !table.has("qdisc") {
        let mut is_default = true;
        for key in ["class", "filter"] {
            if let Some(first) = table.tables(key).first() {
                let text = "there is no qdisc that it could belong to; add one";
                table.problem_at::<()>(first.span.clone(), key, text);
                is_default = false;
            }
        }
        if is_default {
            return QdiscSpec::default();
        }
    }
    let has_speed = matches!(
        port.options.device,
        DeviceSpec::AfPacket(_) | DeviceSpec::AfXdp(_)
    );
    let spec = tree::spec(table, device, has_speed);
    if let Some(spec) = &spec
        && table.source.errors() == before
        && let Err(error) = spec.check_for(port.options.queues)
    {
        table.problem::<()>("qdisc", error.to_string());
    }
    spec.unwrap_or_default()
}

pub(super) fn write(w: &mut Writer, port: &Port) {
    let PortSpec {
        settings,
        options,
        qdisc,
        // The bridge names it.
        master: _,
        // Stations have tables.
        member:
            MemberSpec {
                options: member,
                vlans,
                stations: _,
            },
        actions,
    } = port;
    w.table("[[port]]");
    w.put("name", settings.name.as_str());
    let driver = device::driver_of(&options.device);
    w.put("driver", driver);
    let mut default = blank(driver).unwrap_or_default();
    let mut of = port.clone();
    if let (Some(default), Some(socket)) = (socket(&mut default), socket(&mut of)) {
        w.check_path(Some(&socket.path));
        default.mode = default_mode(socket.group.as_ref());
    }
    if let Some(pcap) = pcap(&mut of) {
        for path in [&pcap.read, &pcap.write].into_iter().flatten() {
            w.check_path(Some(path));
        }
    }
    if let Some(interface) = interface(&mut default) {
        interface.clone_from(&settings.name);
    }
    key::write(w, PORT, port, Some(&default));
    key::write(w, LINK, settings, Some(&default.settings));
    egress::write_queues(w, options.queues, &options.map);
    if !options.steering.rps.is_empty() {
        w.put("rps", ints(&options.steering.rps));
    }
    key::write(w, MEMBER, member, Some(&default.member.options));
    vlans::write(w, vlans.as_ref());
    let storm: toml::Table = key::values(STORM, &options.security.storm, None).collect();
    if !storm.is_empty() {
        w.put("storm", storm);
    }
    egress::write_actions(w, actions);
    write_tree::qdisc(w, "port.", qdisc);
}
