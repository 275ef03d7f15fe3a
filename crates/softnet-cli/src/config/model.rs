//! A checked configuration.

use std::path::PathBuf;

use softnet::tx::{QueueMap, TxPolicy};
use softnet::wire::EthernetAddress;
use softnet_engine::EngineConfig;
use softnet_engine::forward::{MirredDir, MirredMode, PortSecurity};
use softnet_engine::rx::SteeringSpec;
use softnet_io::InterfaceAddress;
use softnet_io::vhost_user::SocketSpec;
use softnet_tc::QdiscSpec;
use softnet_tc::rate::GroupSpec;

use super::error::Place;

/// A valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The file's name, for messages.
    pub file: String,
    /// Worker threads.
    pub workers: usize,
    /// The CPU of each worker; none: wherever the system puts them.
    pub cpus: Vec<usize>,
    /// Packet buffers.
    pub buffers: usize,
    /// Settings of the engine.
    pub settings: EngineConfig,
    /// Where the daemon listens.
    pub control: ControlConfig,
    /// Ports, names unique.
    pub ports: Vec<PortConfig>,
    /// Rates that ports share, names unique.
    pub rate_groups: Vec<RateGroupConfig>,
    /// Bridges, names unique.
    pub bridges: Vec<BridgeConfig>,
}

impl Config {
    /// `2 ports, 1 bridge, 4 workers, 65536 buffers`.
    pub(crate) fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        [
            count(self.ports.len(), "port"),
            count(self.bridges.len(), "bridge"),
            count(self.workers, "worker"),
            count(self.buffers, "buffer"),
        ]
        .join(", ")
    }
}

/// Where the daemon listens for requests, and who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlConfig {
    /// The socket's path; the default one if none.
    pub socket: Option<PathBuf>,
    /// Its mode.
    pub mode: u32,
    /// Its group, by name or number, whose members may change things.
    pub group: Option<String>,
    /// A second socket, on which nothing can be changed.
    pub monitor: Option<PathBuf>,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortConfig {
    /// Where the port is named in the file.
    pub place: Place,
    /// A valid interface name.
    pub name: String,
    /// How it is opened.
    pub driver: Driver,
    /// Queue pairs.
    pub queues: usize,
    /// How they are shared out.
    pub map: QueueMap,
    /// What is done with what leaves the port, in order.
    pub actions: Vec<ActionConfig>,
    /// How what it receives is shared out to workers.
    pub steering: SteeringSpec,
    /// Longest IP packet.
    pub mtu: u32,
    /// What else is set of its link.
    pub link: LinkConfig,
    /// Its tree of qdiscs.
    pub qdisc: QdiscSpec,
    /// Whether the tree has an instance at each transmit queue.
    pub parallel: bool,
    /// Who runs the transmit queues, and what they take at once.
    pub policy: TxPolicy,
    /// No frame passes between it and another isolated port of its bridge.
    pub isolated: bool,
    /// Frames are taken only from stations that its bridge knows there.
    pub locked: bool,
    /// What it may send into its bridge.
    pub security: PortSecurity,
    /// The group whose rates it shares.
    pub rate_group: Option<String>,
}

/// Rates that ports share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateGroupConfig {
    /// Its name.
    pub name: String,
    /// What it lets pass each way.
    pub spec: GroupSpec,
}

/// What is set of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkConfig {
    /// Frames that a queue holds where its qdisc is told nothing else.
    pub tx_queue_len: u32,
    /// A text for people.
    pub alias: String,
    /// The group it belongs to.
    pub group: u32,
    /// Whether it is taken up.
    pub up: bool,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            tx_queue_len: 1000,
            alias: String::new(),
            group: 0,
            up: true,
        }
    }
}

/// An action on what leaves a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActionConfig {
    /// The packet itself, or a copy.
    pub mode: MirredMode,
    /// The side of the target.
    pub dir: MirredDir,
    /// Index into [`Config::ports`].
    pub to: usize,
}

/// What is behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A kernel TAP device, made when the port is opened.
    Tap {
        /// Name of the network namespace the device is put into; ours if none.
        netns: Option<String>,
        /// The interface's addresses.
        addresses: Vec<InterfaceAddress>,
        /// The device's Ethernet address; the kernel's choice if none.
        mac: Option<EthernetAddress>,
    },
    /// A virtual machine's network device.
    VhostUser(SocketSpec),
    /// Swallows what is sent, receives nothing.
    Null,
}

/// One switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgeConfig {
    /// Its name.
    pub name: String,
    /// Indices into [`Config::ports`].
    pub ports: Vec<usize>,
    /// Its Ethernet address; a random one if none.
    pub mac: Option<EthernetAddress>,
    /// Longest IP packet.
    pub mtu: u32,
    /// What else is set of its link.
    pub link: LinkConfig,
}
