//! Links as a configuration describes them: pure data, which [`apply`](super::Control::apply) makes
//! true, and [`spec`](super::Control::spec) reads back.

use std::collections::BTreeMap;

use crate::engine::{BridgeOptions, FdbSpec};
use crate::forward::{BridgePortOptions, MirredDir, MirredMode, PortSecurity, PortVlans};
use crate::rx::SteeringSpec;
use softnet::tx::{QueueMap, TxPolicy};
use softnet::wire::EthernetAddress;
use softnet_tc::QdiscSpec;
use softnet_tc::rate::GroupSpec;

/// Longest name of a link in bytes (`IFNAMSIZ` without its terminator).
pub const NAME_MAX: usize = 15;
/// Longest alias of a link in bytes (`IFALIASZ` without its terminator).
pub const ALIAS_MAX: usize = 255;

/// All links of an engine, and the rates that ports share. `D` is a driver with its parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec<D> {
    /// The ports, names unique.
    pub ports: Vec<PortSpec<D>>,
    /// The bridges, names unique among all links.
    pub bridges: Vec<BridgeSpec>,
    /// Rates that ports share, by the group's name.
    pub rate_groups: BTreeMap<String, GroupSpec>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortSpec<D> {
    /// Settings of its link.
    pub settings: Settings,
    /// Device and queues.
    pub options: PortOptions<D>,
    /// Its qdisc; the default one is that of its driver.
    pub qdisc: QdiscSpec,
    /// The name of its bridge.
    pub master: Option<String>,
    /// What the bridge knows of the port.
    pub member: MemberSpec,
    /// Actions on what leaves the port, in order.
    pub actions: Vec<ActionSpec>,
}

/// A bridge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BridgeSpec {
    /// Settings of its link.
    pub settings: Settings,
    /// Its options.
    pub options: BridgeOptions,
    /// Its own VLANs. None: the default pvid, if there is one.
    pub vlans: Option<PortVlans>,
}

/// A port as a member of its bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSpec {
    /// What the bridge does at the port.
    pub options: BridgePortOptions,
    /// The port's VLANs. None: the bridge's default pvid, if there is one.
    pub vlans: Option<PortVlans>,
    /// Stations behind the port that are not learnt. One without a VLAN is in no VLAN, and in no
    /// other.
    pub stations: Vec<FdbSpec>,
}

/// What `ip link set` changes of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name, unique in the engine.
    pub name: String,
    /// Its Ethernet address. None: the one that the link has, and a random one of a new link.
    pub address: Option<EthernetAddress>,
    /// Longest IP packet in bytes.
    pub mtu: u32,
    /// Frames that a queue holds where its qdisc is told nothing else.
    pub tx_queue_len: u32,
    /// The group it belongs to.
    pub group: u32,
    /// A text for people.
    pub alias: String,
    /// Whether it is taken up by its administrator.
    pub up: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: String::new(),
            address: None,
            mtu: 1500,
            tx_queue_len: 1000,
            group: 0,
            alias: String::new(),
            up: true,
        }
    }
}

impl Settings {
    /// The default settings with a name.
    pub fn new(name: impl Into<String>) -> Settings {
        Settings {
            name: name.into(),
            ..Settings::default()
        }
    }

    /// Whether the kernel would take this name (`dev_valid_name`).
    pub fn has_valid_name(&self) -> bool {
        let name = self.name.as_bytes();
        let bad = |&c: &u8| c == b'/' || c == b':' || c.is_ascii_whitespace() || c == 0x0b;
        (1..=NAME_MAX).contains(&name.len())
            && !matches!(name, b"." | b"..")
            && !name.iter().any(bad)
    }
}

/// Device and queues of a port, and what it does with packets beside its tree.
#[derive(Clone, Debug, PartialEq)]
pub struct PortOptions<D> {
    /// Its driver, with parameters.
    pub device: D,
    /// Queues each way.
    pub queues: usize,
    /// Who runs its transmit queues, and what they take at once.
    pub policy: TxPolicy,
    /// How its transmit queues are shared out. The classes of an `mqprio` are in force instead of
    /// these as long as its tree has one.
    pub map: QueueMap,
    /// How what it receives is shared out.
    pub steering: SteeringSpec,
    /// The group whose rates it shares.
    pub rate_group: Option<String>,
    /// What it may send into a bridge.
    pub security: PortSecurity,
    /// Whether its tree has an instance at each transmit queue.
    pub parallel: bool,
}

impl<D: Default> Default for PortOptions<D> {
    fn default() -> Self {
        PortOptions {
            device: D::default(),
            queues: 1,
            policy: TxPolicy::default(),
            map: QueueMap::default(),
            steering: SteeringSpec::default(),
            rate_group: None,
            security: PortSecurity::default(),
            parallel: false,
        }
    }
}

/// An action on what leaves a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionSpec {
    /// The packet itself, or a copy.
    pub mode: MirredMode,
    /// The side of the target.
    pub dir: MirredDir,
    /// The name of the target, a port.
    pub to: String,
}
