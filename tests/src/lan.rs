//! Hosts on one switch: each is an anonymous network namespace with one interface `eth0`, whose
//! other end is a port of an engine in this process.

mod host;
mod wire;

use std::fs::OpenOptions;
use std::time::Duration;

use softnet::mem::{Pool, PoolConfig, PoolStats};
use softnet::stats::DropReason;
use softnet::time::Clock;
use softnet::tx::{DeviceStats, Features};
use softnet_engine::{Engine, EngineStats, OpenPort, Opened, OwnQueues, PortSpec, Settings};
use softnet_io::vhost_user::SocketSpec;
use softnet_io::{Buffers, Netns, Poller, PortRx, PortTx, Tap, VhostUser};
use softnet_tc::QdiscSpec;

use crate::{counters, skip, wait_for};
use host::join;
pub use host::{Host, HostConfig, Via};
pub use wire::Wire;

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
        let Opened { rx, tx, .. } = match &host.wire {
            Some(wire) => {
                let HostConfig {
                    queues, mtu, via, ..
                } = host.how;
                wire.open(via, queues, mtu, &self.buffers)
            }
            None => {
                let tap = Tap::open(&host.config, &self.buffers).expect("the interface again");
                any(tap.rx, tap.tx, tap.features)
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
        self.join(name, any(opened.rx, opened.tx, opened.features))
    }

    /// Adds a port of a driver that opens with these buffers to the bridge.
    pub fn add_port<Q, R>(&self, name: &str, open: impl FnOnce(&Buffers) -> Opened<Q, R>) -> u32
    where
        PortRx: From<Q>,
        PortTx: From<R>,
    {
        let opened = open(&self.buffers);
        self.join(name, any(opened.rx, opened.tx, opened.features))
    }

    fn join(&self, name: &str, device: Opened<PortRx, PortTx>) -> u32 {
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

/// Queues of a driver as those of any.
fn any<Q, R>(rx: Vec<Q>, tx: Vec<R>, features: Features) -> Opened<PortRx, PortTx>
where
    PortRx: From<Q>,
    PortTx: From<R>,
{
    Opened {
        rx: rx.into_iter().map(PortRx::from).collect(),
        tx: tx.into_iter().map(PortTx::from).collect(),
        features,
    }
}
