//! Links, bridges and entries of forwarding databases as they are: what an engine shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::spec::{ActionSpec, BridgeOptions, PortOptions, Settings};
use crate::forward::{BridgePortOptions, FdbState, PortVlans};
use softnet::wire::EthernetAddress;

/// A link as it is.
#[derive(Clone, Debug)]
pub struct LinkInfo<S> {
    /// Number, from 1, never used again in its engine (`ifindex`).
    pub index: u32,
    /// Settings. There is an address.
    pub settings: Settings,
    /// The device is there. Always true of a bridge.
    pub open: bool,
    /// Port or bridge.
    pub kind: LinkKind<S>,
    /// Number of the bridge that it is part of.
    pub master: Option<u32>,
    /// Number as a port of that bridge, from 1; 0 without a bridge.
    pub port_number: u16,
    /// The default qdisc is there: from when the link is first taken up, and not after its
    /// root was deleted while it was down, until it is taken up (`dev_activate`).
    pub has_default: bool,
    /// Number that packets carry, of a port.
    pub(super) number: u16,
    /// See [`queues`](LinkInfo::queues).
    pub(super) queues: usize,
}

/// Port or bridge.
#[derive(Clone, Debug)]
pub enum LinkKind<S> {
    /// A port.
    Port {
        /// Device and queues.
        options: Box<PortOptions<S>>,
        /// Actions on what leaves it, in order; the target is the number of its link.
        actions: Vec<ActionSpec<u32>>,
    },
    /// A bridge.
    Bridge,
}

/// Links by number: those of one moment.
pub type Links<S> = Arc<BTreeMap<u32, Arc<LinkInfo<S>>>>;

impl<S> LinkInfo<S> {
    /// Device and queues, if it is a port.
    pub fn options(&self) -> Option<&PortOptions<S>> {
        match &self.kind {
            LinkKind::Port { options, .. } => Some(options),
            LinkKind::Bridge => None,
        }
    }

    pub(super) fn options_mut(&mut self) -> Option<&mut PortOptions<S>> {
        match &mut self.kind {
            LinkKind::Port { options, .. } => Some(options),
            LinkKind::Bridge => None,
        }
    }

    /// Actions on what leaves it; a bridge has none.
    pub fn actions(&self) -> &[ActionSpec<u32>] {
        match &self.kind {
            LinkKind::Port { actions, .. } => actions,
            LinkKind::Bridge => &[],
        }
    }

    /// The driver behind it, if it is a port.
    pub fn device(&self) -> Option<&S> {
        self.options().map(|options| &options.device)
    }

    /// Transmit queues that the device has (or had last); 1 of a bridge. The device may have been
    /// opened with others than the [options](super::PortOptions::queues) ask for.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Ethernet address.
    pub fn address(&self) -> EthernetAddress {
        self.settings.address.unwrap_or_default()
    }

    /// It is a bridge, not a port.
    pub fn is_bridge(&self) -> bool {
        matches!(self.kind, LinkKind::Bridge)
    }
}

/// A bridge as it is.
#[derive(Clone, Debug)]
pub struct BridgeInfo {
    /// Options.
    pub options: BridgeOptions,
    /// Numbers of the links that are its ports, in the order in which they joined.
    pub ports: Vec<u32>,
    /// VLANs of its own. They say nothing about what passes between ports: behind a bridge of
    /// Softnet there is no host.
    pub vlans: PortVlans,
}

/// A port as a member of its bridge.
#[derive(Clone, Debug)]
pub struct BridgePort {
    /// Number of the bridge's link.
    pub bridge: u32,
    /// Options of the port.
    pub options: BridgePortOptions,
    /// VLANs of the port.
    pub vlans: Arc<PortVlans>,
    /// Multicast groups that it is a member of.
    pub groups: u32,
}

/// An entry of a bridge's forwarding database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// The station's address.
    pub address: EthernetAddress,
    /// VLAN of the station, in a bridge that filters VLANs.
    pub vlan: Option<u16>,
    /// Number of the link of the port that it is behind.
    pub port: u32,
    /// State, which says how long the entry lasts.
    pub state: FdbState,
    /// Learning does not move it to another port.
    pub sticky: bool,
    /// Time since a frame was last sent there, in whole seconds.
    pub used: Duration,
    /// Time since it was made or last confirmed, in whole seconds.
    pub updated: Duration,
}
