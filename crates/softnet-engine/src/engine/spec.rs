//! Links as a configuration describes them: pure data, which [`apply`](super::Engine::apply) makes
//! true, and [`spec`](super::Engine::spec) reads back.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::forward::{
    AGEING, BridgePortOptions, FdbState, MirredDir, MirredMode, MulticastOptions, PortSecurity,
    PortVlans,
};
use crate::rx::SteeringSpec;
use softnet::tx::{QueueMap, TxPolicy};
use softnet::wire::EthernetAddress;
use softnet_tc::rate::GroupSpec;
use softnet_tc::{FilterList, QdiscSpec};

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
    /// Filters that hooks of ports share, by the number of the block; of each that a hook has.
    pub blocks: BTreeMap<u32, FilterList>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortSpec<D> {
    /// Settings of its link.
    pub settings: Settings,
    /// Device and queues.
    pub options: PortOptions<D>,
    /// Qdisc; the default one is that of its driver.
    pub qdisc: QdiscSpec,
    /// The name of its bridge.
    pub master: Option<String>,
    /// Part that it has in the bridge.
    pub member: MemberSpec,
    /// Actions on what leaves the port, in order.
    pub actions: Vec<ActionSpec>,
}

/// A bridge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BridgeSpec {
    /// Settings of its link.
    pub settings: Settings,
    /// Options.
    pub options: BridgeOptions,
    /// VLANs of its own. None: the default pvid, if there is one.
    pub vlans: Option<PortVlans>,
}

/// A port as a member of its bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSpec {
    /// Options of the bridge for the port.
    pub options: BridgePortOptions,
    /// The port's VLANs. None: the bridge's default pvid, if there is one.
    pub vlans: Option<PortVlans>,
    /// Stations behind the port that are not learnt. One without a VLAN is in no VLAN, and in no
    /// other.
    pub stations: Vec<FdbSpec>,
}

/// Settings of a link, which `ip link set` changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name, unique in the engine.
    pub name: String,
    /// Ethernet address. None: the one that the link has, and a random one of a new link.
    pub address: Option<EthernetAddress>,
    /// Longest IP packet in bytes.
    pub mtu: u32,
    /// Frames that a queue holds where its qdisc is told nothing else.
    pub tx_queue_len: u32,
    /// The group it belongs to.
    pub group: u32,
    /// A text for people.
    pub alias: String,
    /// Taken up by its administrator.
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

impl<D: Default> PortSpec<D> {
    /// A port with default settings and a name.
    pub fn new(name: impl Into<String>) -> PortSpec<D> {
        PortSpec {
            settings: Settings::new(name),
            ..PortSpec::default()
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

    /// Reason for which the kernel would not give a link this name (`dev_valid_name`; a `%` asks it
    /// for a number, `dev_prep_valid_name`); follows the name.
    pub fn wrong_name(name: &str) -> Option<&'static str> {
        // 0xa0 is white space to the kernel, whatever character it is a part of.
        let is_wrong =
            |&byte: &u8| matches!(byte, 0 | b'\t'..=b'\r' | b' ' | b'%' | b'/' | b':' | 0xa0);
        match name.as_bytes() {
            [] => Some("is empty"),
            b"." | b".." => Some("is reserved"),
            bytes if bytes.len() > NAME_MAX => Some("is longer than 15 bytes"),
            bytes if bytes.iter().any(is_wrong) => {
                Some("contains a character that Linux does not allow there (/, :, %, white space)")
            }
            _ => None,
        }
    }
}

/// Device and queues of a port, and the handling of packets beside its tree.
#[derive(Clone, Debug, PartialEq)]
pub struct PortOptions<D> {
    /// Driver, with parameters.
    pub device: D,
    /// Queues each way.
    pub queues: usize,
    /// Policy of its transmit queues: who runs them, and what they take at once.
    pub policy: TxPolicy,
    /// Map by which its transmit queues are shared out among traffic classes, workers and receive
    /// queues. The classes of an `mqprio` are in force instead of these as long as its tree has
    /// one.
    pub map: QueueMap,
    /// Steering of received packets to workers.
    pub steering: SteeringSpec,
    /// The group whose rates it shares.
    pub rate_group: Option<String>,
    /// Limits of what it may send into a bridge.
    pub security: PortSecurity,
    /// The tree has an instance at each transmit queue.
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

/// An action on what leaves a port, to a link's name, or to its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionSpec<T = String> {
    /// The packet itself, or a copy.
    pub mode: MirredMode,
    /// The side of the target.
    pub dir: MirredDir,
    /// The target, a port.
    pub to: T,
}

/// Options of a bridge (`ip link set … type bridge`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeOptions {
    /// Time for which a learnt address is known. It counts in seconds, rounded up. Zero:
    /// nothing is learnt.
    pub ageing_time: Duration,
    /// Frames pass only between ports of their VLAN.
    pub vlan_filtering: bool,
    /// The VLAN that is added to a port that joins, as its pvid and untagged; also to the bridge.
    pub default_pvid: Option<u16>,
    /// Multicast snooping.
    pub multicast: MulticastOptions,
    /// Addresses that it can know, about: one of [`FDB_SIZES`]. Its table takes 64 to 128 bytes for
    /// each.
    pub fdb_max_learned: u32,
}

/// Numbers of addresses that a bridge can be told to know.
pub const FDB_SIZES: RangeInclusive<u32> = 1..=1 << 20;

impl Default for BridgeOptions {
    fn default() -> Self {
        BridgeOptions {
            ageing_time: AGEING,
            vlan_filtering: false,
            default_pvid: Some(1),
            multicast: MulticastOptions::default(),
            fdb_max_learned: 8192,
        }
    }
}

/// An entry to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbSpec {
    /// The station's address.
    pub address: EthernetAddress,
    /// VLAN of the station. None: no VLAN, and each VLAN of the port.
    pub vlan: Option<u16>,
    /// State, which says how long the entry lasts.
    pub state: FdbState,
    /// Learning does not move it to another port.
    pub sticky: bool,
}

/// The VLANs, if they are not those that a bridge with these options gives.
pub(super) fn vlans_beside(options: &BridgeOptions, vlans: &PortVlans) -> Option<PortVlans> {
    let default = PortVlans::with_default(options.default_pvid);
    (*vlans != default).then(|| vlans.clone())
}
