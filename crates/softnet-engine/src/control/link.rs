//! Links: ports and bridges as `ip link` shows them.

use crate::engine::{BridgeId, PortId};
use crate::forward::{BridgePortOptions, MirredDir, MirredMode, PortSecurity};
use crate::rx::SteeringSpec;
use softnet::tx::{QueueMap, TxPolicy};
use softnet::wire::EthernetAddress;
use softnet_tc::QdiscSpec;

/// Longest name of a link in bytes (`IFNAMSIZ` without its terminator).
pub const NAME_MAX: usize = 15;
/// Longest alias of a link in bytes (`IFALIASZ` without its terminator).
pub const ALIAS_MAX: usize = 255;

/// What `ip link set` changes of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name, unique in the engine.
    pub name: String,
    /// Its Ethernet address.
    pub address: EthernetAddress,
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

impl Settings {
    /// An Ethernet link that is up, with an MTU of 1500, a queue of 1000 frames and a random
    /// address.
    pub fn new(name: impl Into<String>) -> Settings {
        Settings {
            name: name.into(),
            address: super::random_address(),
            mtu: 1500,
            tx_queue_len: 1000,
            group: 0,
            alias: String::new(),
            up: true,
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

/// What a port is told beside its settings and its tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortOptions {
    /// Who runs its transmit queues, and what they take at once.
    pub policy: TxPolicy,
    /// How its transmit queues are shared out, where its tree says nothing of it.
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

/// A port to add.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPort<S> {
    /// Its settings.
    pub settings: Settings,
    /// Its driver.
    pub spec: S,
    /// Queues each way.
    pub queues: usize,
    /// Its qdisc; that of its driver if none.
    pub qdisc: Option<QdiscSpec>,
    /// The number of the bridge that it is part of.
    pub master: Option<u32>,
    /// What the bridge does at it.
    pub member: BridgePortOptions,
    /// What it is told beside.
    pub options: PortOptions,
    /// On what leaves it, in order: what, and the name of the target, which may be added by the
    /// same call.
    pub actions: Vec<(MirredMode, MirredDir, String)>,
}

/// An action on what leaves a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The packet itself, or a copy.
    pub mode: MirredMode,
    /// The side of the target.
    pub dir: MirredDir,
    /// The number of the target, a port.
    pub to: u32,
}

/// What a link is.
#[derive(Clone, Debug)]
pub enum LinkKind<S> {
    /// A port of the engine.
    Port {
        /// The engine's name for it.
        id: PortId,
        /// Its driver.
        spec: S,
        /// What it was told beside its settings and its tree.
        options: Box<PortOptions>,
        /// On what leaves it.
        actions: Vec<Action>,
    },
    /// A bridge of the engine.
    Bridge(BridgeId),
}

/// A link.
#[derive(Clone, Debug)]
pub struct Link<S> {
    /// Its number, never used again (`ifindex`).
    pub index: u32,
    /// What can be set of it.
    pub settings: Settings,
    /// Transmit queues.
    pub queues: usize,
    /// Whether its device is there. Always true of a bridge.
    pub open: bool,
    /// What it is.
    pub kind: LinkKind<S>,
    /// The number of the bridge that it is part of.
    pub master: Option<u32>,
    /// Its number there, from 1; 0 without a bridge.
    pub port_number: u16,
    /// Whether its default qdisc is there: from when the link is first taken up, and not after its
    /// root was deleted while it was down, until it is taken up (`dev_activate`).
    pub has_default: bool,
}

impl<S> Link<S> {
    /// The engine's port, if it is one.
    pub fn port(&self) -> Option<PortId> {
        match self.kind {
            LinkKind::Port { id, .. } => Some(id),
            LinkKind::Bridge(_) => None,
        }
    }

    /// The engine's bridge, if it is one.
    pub fn bridge(&self) -> Option<BridgeId> {
        match self.kind {
            LinkKind::Port { .. } => None,
            LinkKind::Bridge(id) => Some(id),
        }
    }
}
