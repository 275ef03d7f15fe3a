//! Links: ports and bridges as `ip link` shows them.

use super::{PortOptions, Settings};
use crate::engine::{BridgeId, PortId};
use crate::forward::{MirredDir, MirredMode};
use softnet::wire::EthernetAddress;

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
        /// Its device and queues.
        options: Box<PortOptions<S>>,
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
    /// What can be set of it. There is an address.
    pub settings: Settings,
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

    /// Device and queues, if it is a port.
    pub fn options(&self) -> Option<&PortOptions<S>> {
        match &self.kind {
            LinkKind::Port { options, .. } => Some(options),
            LinkKind::Bridge(_) => None,
        }
    }

    /// The driver behind it, if it is a port.
    pub fn device(&self) -> Option<&S> {
        self.options().map(|options| &options.device)
    }

    /// Transmit queues; 1 of a bridge.
    pub fn queues(&self) -> usize {
        self.options().map_or(1, |options| options.queues)
    }

    /// Its Ethernet address.
    pub fn address(&self) -> EthernetAddress {
        self.settings.address.unwrap_or_default()
    }

    /// The engine's bridge, if it is one.
    pub fn bridge(&self) -> Option<BridgeId> {
        match self.kind {
            LinkKind::Port { .. } => None,
            LinkKind::Bridge(id) => Some(id),
        }
    }
}
