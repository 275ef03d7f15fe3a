//! Hosts on one switch: each is an anonymous network namespace with one interface `eth0`, whose
//! other end is a port of an engine in this process.

use std::fs::{self, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::time::Duration;

use softnet::mem::{Pool, PoolConfig, PoolStats};
use softnet::stats::DropReason;
use softnet::time::Clock;
use softnet::tx::{DeviceStats, Features};
use softnet::wire::EthernetAddress;
use softnet_engine::{Engine, EngineStats, OpenPort, Opened, OwnQueues, PortSpec, Settings};
use softnet_io::vhost_user::SocketSpec;
use softnet_io::{
    AfPacket, AfPacketSpec, AfXdp, AfXdpSpec, Buffers, InterfaceAddress, Links, Netns, Poller,
    PortRx, PortTx, Tap, TapConfig, VhostUser,
};
use softnet_tc::QdiscSpec;

use crate::{counters, skip, wait_for};

/// Time in which queued packets may still leave at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// The network to build.
#[derive(Clone, Debug)]
pub struct LanConfig {
    /// The hosts; the first is number 0.
    pub hosts: Vec<HostConfig>,
    /// The last byte of the first host's addresses, not 0.
    pub first: u8,
    /// Worker threads.
    pub workers: usize,
    /// The CPU that they stay on; none: any.
    pub cpu: Option<usize>,
    /// Small buffers.
    pub buffers: usize,
    /// Large buffers; none means that there is no such pool.
    pub large: usize,
}

impl Default for LanConfig {
    /// Two hosts, one worker, buffers for all that can queue up.
    fn default() -> Self {
        LanConfig {
            hosts: vec![HostConfig::default(); 2],
            first: 1,
            workers: 1,
            cpu: None,
            buffers: 8192,
            large: 256,
        }
    }
}

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

/// The switch's end of a host's veth: `port` and the host's number.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The namespace of that end.
    pub netns: Netns,
    /// The interface.
    pub interface: String,
}

impl Wire {
    /// `ip` with these arguments, separated by blanks, at that end.
    pub fn ip(&self, arguments: &str) {
        let run = || {
            Command::new("ip")
                .args(arguments.split_whitespace())
                .output()
        };
        let output = self.netns.run(run).expect("entering our namespace");
        let output = output.expect("ip");
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }

    /// True if there is an interface of this name at that end.
    pub fn exists(&self, name: &str) -> bool {
        let look = || Links::open().expect("a netlink socket").index(name).is_ok();
        self.netns.run(look).expect("entering our namespace")
    }

    /// A veth to `host`, whose end is `eth0` there.
    fn to(host: &Netns, number: u8, config: &HostConfig) -> Wire {
        let wire = Wire {
            netns: Netns::anonymous().expect("a namespace"),
            interface: format!("port{number}"),
        };
        wire.connect(host, config);
        wire
    }

    fn connect(&self, host: &Netns, config: &HostConfig) {
        let Wire { interface, .. } = self;
        let path = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            host.as_fd().as_raw_fd()
        );
        let (queues, mtu) = (config.queues, config.mtu);
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        self.ip(&format!(
            "link add {interface} mtu {mtu} {queues} type veth \
             peer name eth0 mtu {mtu} {queues} netns {path}"
        ));
        self.ip(&format!("link set {interface} up"));
    }

    fn open(
        &self,
        via: Via,
        queues: usize,
        mtu: u32,
        buffers: &Buffers,
    ) -> Opened<PortRx, PortTx> {
        fn any<Q: Into<PortRx>, R: Into<PortTx>>(
            rx: Vec<Q>,
            tx: Vec<R>,
            features: Features,
        ) -> Opened<PortRx, PortTx> {
            Opened {
                rx: rx.into_iter().map(Into::into).collect(),
                tx: tx.into_iter().map(Into::into).collect(),
                features,
            }
        }
        let open = || match via {
            Via::AfXdp => {
                let spec = AfXdpSpec::new(&self.interface);
                let opened = AfXdp::open(&spec, queues, mtu, buffers).expect("XDP sockets");
                any(opened.rx, opened.tx, opened.features)
            }
            _ => {
                let spec = AfPacketSpec::new(&self.interface);
                let opened = AfPacket::open(&spec, queues, mtu, buffers).expect("packet sockets");
                any(opened.rx, opened.tx, opened.features)
            }
        };
        self.netns.run(open).expect("our namespace")
    }
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
    how: HostConfig,
    config: TapConfig,
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

/// Devices that a test opens.
type Devices = OwnQueues<PortRx, PortTx>;

/// A running switch with its hosts.
#[derive(Debug)]
pub struct Lan {
    /// The engine under test.
    pub engine: Engine<Devices>,
    /// The bridge of all ports.
    pub bridge: u32,
    /// By number.
    pub hosts: Vec<Host>,
    buffers: Buffers,
}

impl Lan {
    /// Two hosts, one with and one without offload, or whatever is asked for. `None`, and the
    /// reason printed, where the test cannot run.
    pub fn pair(offload: [bool; 2], mtu: u32) -> Option<Lan> {
        let hosts = offload.map(|offload| HostConfig {
            offload,
            mtu,
            ..HostConfig::default()
        });
        Lan::build(LanConfig {
            hosts: hosts.into(),
            ..LanConfig::default()
        })
    }

    /// Packets are forwarded when this returns. `None`, and the reason printed, where the test
    /// cannot run.
    pub fn build(config: LanConfig) -> Option<Lan> {
        let tun = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun");
        if let Err(e) = tun {
            skip(&format!("needs /dev/net/tun: {e}"));
            return None;
        }
        if let Err(e) = Netns::anonymous() {
            skip(&format!("needs network namespaces: {e}"));
            return None;
        }
        let pool = |buffers, buffer_size| {
            Pool::new(PoolConfig {
                buffers,
                buffer_size,
            })
            .expect("a pool")
        };
        let buffers = Buffers {
            small: pool(config.buffers, 2048),
            large: (config.large > 0).then(|| pool(config.large, 65_536)),
        };
        let poller = |_| {
            let poller = Poller::new().expect("a poller");
            match config.cpu {
                Some(cpu) => poller.on_cpu(cpu),
                None => poller,
            }
        };
        let pollers = (0..config.workers).map(poller);
        let pool = buffers.small.clone();
        let devices = Devices::default();
        let engine = Engine::start(pollers.collect(), pool, Clock::monotonic(), devices);
        let engine = engine.expect("an engine");
        let bridge = engine.add_bridge(Settings::new("br0")).expect("a bridge");
        let (mut hosts, ports): (Vec<Host>, Vec<OpenPort<Devices>>) = (config.first..)
            .zip(&config.hosts)
            .map(|(number, host)| join(&buffers, number, host))
            .unzip();
        // All at once: what the kernels send by themselves would be dropped for want of a bridge.
        let ports = engine.add_opened(ports).expect("ports");
        for (host, port) in hosts.iter_mut().zip(ports) {
            host.port = port;
        }
        hosts.iter().for_each(Host::await_addresses);
        Some(Lan {
            engine,
            bridge,
            hosts,
            buffers,
        })
    }

    /// Gives a host whose interface was removed a new one with the same addresses, which it takes
    /// packets for when this returns.
    pub fn reopen(&self, host: usize) {
        let host = &self.hosts[host];
        let (rx, tx) = match &host.wire {
            Some(wire) => {
                let HostConfig {
                    queues, mtu, via, ..
                } = host.how;
                let Opened { rx, tx, .. } = wire.open(via, queues, mtu, &self.buffers);
                (rx, tx)
            }
            None => {
                let tap = Tap::open(&host.config, &self.buffers).expect("the interface again");
                queues(tap.rx, tap.tx)
            }
        };
        self.engine.replace(host.port, rx, tx).expect("queues");
        host.await_addresses();
    }

    /// Replaces what queues packets to a host.
    pub fn set_qdisc(&self, host: usize, qdisc: &QdiscSpec) {
        self.engine
            .set_qdisc(self.hosts[host].port, qdisc)
            .expect("a qdisc");
    }

    /// A port's numbers.
    pub fn port(&self, host: usize) -> DeviceStats {
        self.engine.stats().ports[host].device.clone()
    }

    /// Drops of a port for one reason.
    pub fn dropped(&self, host: usize, reason: DropReason) -> u64 {
        let drops = self.port(host).drops;
        drops.iter().find(|d| d.0 == reason).map_or(0, |&(_, n)| n)
    }

    /// Adds a virtual machine's port to the bridge.
    pub fn add_machine(&self, name: &str, socket: &SocketSpec, queues: usize) -> u32 {
        let opened = VhostUser::open(&socket.clone().into(), queues, 1500, &self.buffers)
            .expect("a socket");
        let device = Opened {
            rx: opened.rx.into_iter().map(PortRx::from).collect(),
            tx: opened.tx.into_iter().map(PortTx::from).collect(),
            features: opened.features,
        };
        let port = PortSpec {
            master: Some("br0".into()),
            ..PortSpec::new(name)
        };
        self.engine.add_port_with(port, device).expect("a port")
    }

    /// Adds a port of a driver that opens with these buffers to the bridge.
    pub fn add_port<Q, R>(&self, name: &str, open: impl FnOnce(&Buffers) -> Opened<Q, R>) -> u32
    where
        PortRx: From<Q>,
        PortTx: From<R>,
    {
        let opened = open(&self.buffers);
        let device = Opened {
            rx: opened.rx.into_iter().map(PortRx::from).collect(),
            tx: opened.tx.into_iter().map(PortTx::from).collect(),
            features: opened.features,
        };
        let port = PortSpec {
            master: Some("br0".into()),
            ..PortSpec::new(name)
        };
        self.engine.add_port_with(port, device).expect("a port")
    }

    /// The counters of the pool of small buffers.
    pub fn pool(&self) -> PoolStats {
        self.buffers.small.stats()
    }

    /// The pool of small buffers.
    pub fn small_buffers(&self) -> &Pool {
        &self.buffers.small
    }

    /// Waits until no packet is queued anywhere.
    pub fn settle(&self) {
        wait_for("the queues to run dry", || {
            let stats = self.engine.stats();
            stats.ports.iter().all(|port| port.device.queued == 0)
        });
    }

    /// Waits until the workers have counted every frame that they read. Frames may still wait in a
    /// device's ring: a test that sent some waits first for what follows them.
    pub fn all_reads_counted(&self) {
        wait_for("the workers to have counted every frame read", || {
            // The kernel counts a frame when it is read.
            let sent: u64 = self
                .hosts
                .iter()
                .map(|host| counters::interface(host).tx_packets)
                .sum();
            let workers = self.engine.stats().workers;
            sent == workers.iter().map(|w| w.processed).sum::<u64>()
        });
    }

    /// Stops the engine. Asserts that every packet is accounted for, that none is queued and that
    /// all buffers were freed; returns the final numbers.
    pub fn stop(self) -> EngineStats {
        self.stop_within(DRAIN)
    }

    /// The same, with so much time for queued packets to leave.
    pub fn stop_within(self, drain: Duration) -> EngineStats {
        let Lan {
            engine,
            hosts,
            buffers,
            ..
        } = self;
        let stats = engine.stop(drain);
        drop(hosts);
        let sum = stats.conservation();
        eprintln!("{sum:?} {:?}", stats.drops());
        assert!(sum.holds(), "packets are unaccounted for: {stats:#?}");
        assert_eq!(sum.queued, 0, "packets are left in a queue: {stats:#?}");
        for pool in [Some(&buffers.small), buffers.large.as_ref()]
            .into_iter()
            .flatten()
        {
            // A virtual machine's port is closed by a thread of its own.
            wait_for("all buffers to be freed", || {
                let pool = pool.stats();
                pool.free == pool.buffers
            });
        }
        stats
    }
}

fn queues(rx: Vec<softnet_io::TapRx>, tx: Vec<softnet_io::TapTx>) -> (Vec<PortRx>, Vec<PortTx>) {
    let rx = rx.into_iter().map(PortRx::from).collect();
    (rx, tx.into_iter().map(PortTx::from).collect())
}

/// Makes host `number`, which has no port yet, and what becomes its port.
fn join(buffers: &Buffers, number: u8, host: &HostConfig) -> (Host, OpenPort<Devices>) {
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
            let features = tap.features;
            let (rx, tx) = queues(tap.rx, tap.tx);
            Opened { rx, tx, features }
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
