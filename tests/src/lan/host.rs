//! A host: its namespace, its addresses, and the way that joins it to the switch.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use softnet::wire::EthernetAddress;
use softnet_engine::{OpenPort, PortSpec, Settings};
use softnet_io::{Buffers, InterfaceAddress, Links, Netns, Tap, TapConfig};
use softnet_tc::QdiscSpec;

use super::{Devices, Wire, any};
use crate::wait_for;

/// One host and its port.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// True if large frames and frames with a missing checksum may cross.
    pub offload: bool,
    /// Longest IP packet in bytes.
    pub mtu: u32,
    /// Queues each way.
    pub queues: usize,
    /// The qdisc that queues packets to the host.
    pub qdisc: QdiscSpec,
    /// The way that joins the host to the switch.
    pub via: Via,
}

/// A way to join a host to a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// The host's interface is a TAP device.
    #[default]
    Tap,
    /// The host's interface is one end of a veth, the other is a port of this driver.
    AfPacket,
    /// The same, of this driver. Checksums and VLAN tags of the host's are in its frames, as they
    /// are on a cable.
    AfXdp,
}

impl Default for HostConfig {
    /// Offload, MTU 1500, one queue, the default qdisc.
    fn default() -> Self {
        HostConfig {
            offload: true,
            mtu: 1500,
            queues: 1,
            qdisc: QdiscSpec::default(),
            via: Via::default(),
        }
    }
}

/// A host on the switch.
#[derive(Debug)]
pub struct Host {
    /// The host's namespace.
    pub netns: Netns,
    /// The host's IPv4 address, in a /24 with all others.
    pub v4: Ipv4Addr,
    /// The host's IPv6 address, in a /64 with all others.
    pub v6: Ipv6Addr,
    /// The host's Ethernet address.
    pub mac: [u8; 6],
    /// The host's port.
    pub port: u32,
    /// The switch's end, if the host's interface is one end of a veth.
    pub wire: Option<Wire>,
    pub(super) how: HostConfig,
    pub(super) config: TapConfig,
}

impl Host {
    /// Runs `f` on a thread in the host.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.netns.run(f).expect("entering our namespace")
    }

    /// The host's address of one family.
    pub fn ip(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }

    /// The index of the host's interface.
    pub fn index(&self) -> u32 {
        self.links(|links| links.index("eth0").expect("the interface"))
    }

    /// Waits until the host takes packets for its addresses. The kernel adds an IPv6 address's
    /// route some time after the address, and drops until then what comes for it.
    pub fn await_addresses(&self) {
        let route: String = self.v6.octets().map(|b| format!("{b:02x}")).concat();
        // Prefix length 128, in hexadecimal.
        let route = format!("{route} 80 ");
        wait_for("the IPv6 address to be usable", || {
            let table = self.run(|| fs::read_to_string("/proc/thread-self/net/ipv6_route"));
            let table = table.expect("the IPv6 routes");
            table.lines().any(|line| line.starts_with(&route))
        });
    }

    /// Gives the host's end of a veth its addresses and takes it up.
    fn configure(&self) {
        if self.how.via == Via::AfXdp {
            let options = ["-K", "eth0", "tx", "off", "txvlan", "off"];
            let run = || Command::new("ethtool").args(options).output();
            let output = self.run(run).expect("ethtool");
            assert!(output.status.success(), "{output:?}");
        }
        self.links(|links| {
            let index = links.index("eth0").expect("the interface");
            links.set_mac(index, self.mac).expect("an address");
            for &address in &self.config.addresses {
                links.add_address(index, address).expect("an address");
            }
            links.set_up(index, true).expect("taking it up");
        });
    }

    /// The veth of a host whose interface was deleted, made anew.
    pub fn connect_again(&self) {
        let wire = self.wire.as_ref().expect("a veth");
        wire.connect(&self.netns, &self.how);
        self.configure();
    }

    /// Calls of `f` in the host's namespace, for changes that `ip link` makes.
    pub fn links<T: Send>(&self, f: impl FnOnce(&mut Links) -> T + Send) -> T {
        self.run(|| f(&mut Links::open().expect("a netlink socket")))
    }
}

/// Makes host `number`, which has no port yet, and what becomes its port.
pub(super) fn join(buffers: &Buffers, number: u8, host: &HostConfig) -> (Host, OpenPort<Devices>) {
    let netns = Netns::anonymous().expect("a namespace");
    let v4 = Ipv4Addr::new(10, 9, 0, number);
    let v6 = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number.into());
    let mac = [2, 0, 0, 0, 0, number];
    let address = |ip, prefix| InterfaceAddress::new(ip, prefix).expect("an address");
    let config = TapConfig {
        queues: host.queues,
        mtu: host.mtu,
        mac: Some(EthernetAddress(mac)),
        addresses: vec![address(v4.into(), 24), address(v6.into(), 64)],
        netns: Some(netns.clone()),
        offload: host.offload,
        ..TapConfig::new("eth0")
    };
    let wire = (host.via != Via::Tap).then(|| Wire::to(&netns, number, host));
    let device = match &wire {
        Some(wire) => wire.open(host.via, host.queues, host.mtu, buffers),
        None => {
            let tap = Tap::open(&config, buffers).expect("a TAP device");
            any(tap.rx, tap.tx, tap.features)
        }
    };
    let port = PortSpec {
        settings: Settings {
            mtu: host.mtu,
            ..Settings::new(format!("port{number}"))
        },
        qdisc: host.qdisc.clone(),
        master: Some("br0".into()),
        ..PortSpec::default()
    };
    let host = Host {
        netns,
        v4,
        v6,
        mac,
        port: 0,
        how: host.clone(),
        wire,
        config,
    };
    if host.wire.is_some() {
        host.configure();
    }
    (host, (port, Some(device)))
}
