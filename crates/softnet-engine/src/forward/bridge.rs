//! A bridge: which way a frame goes by its addresses, and what a member of it is told to do.

use std::sync::Arc;
use std::time::Duration;

use super::fdb::{Fdb, Station};
use super::multicast::{PortMulticast, Snooping};
use super::vlans::PortVlans;
use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::wire::EthernetAddress;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Out of this port.
    To(u16),
    /// Out of every port of the bridge but the one it came from.
    Flood,
    /// To a group, whose members are known or not.
    Multicast,
    /// Nowhere.
    Drop(DropReason),
}

/// A learning switch (IEEE 802.1D 7.7 to 7.9, without spanning tree). Control frames for bridges
/// end here. Shared by all workers.
#[derive(Debug)]
pub struct Bridge {
    fdb: Fdb,
    snooping: Snooping,
}

impl Bridge {
    /// A bridge that learns about `addresses` addresses and forgets them after `ageing`.
    pub fn new(addresses: usize, ageing: Duration) -> Bridge {
        Bridge {
            fdb: Fdb::new(addresses, ageing),
            snooping: Snooping::new(),
        }
    }

    /// As this one, with room for another number of addresses, which it knows as this one does.
    ///
    /// # Errors
    /// The first address whose static entry has no place.
    pub(crate) fn resized(
        &self,
        addresses: usize,
        ageing: Duration,
        now: Time,
    ) -> Result<Bridge, EthernetAddress> {
        let bridge = Bridge::new(addresses, ageing);
        bridge.fdb.take_over(&self.fdb, now)?;
        Ok(bridge)
    }

    /// The addresses it knows.
    pub(crate) fn fdb(&self) -> &Fdb {
        &self.fdb
    }

    /// The groups it knows.
    pub(crate) fn snooping(&self) -> &Snooping {
        &self.snooping
    }

    /// Learns where the packet came from, if `learn` says so (its port's link is up), and decides
    /// where it goes. Of a bridge without VLANs and addresses of its own.
    pub fn decide(&self, packet: &Packet, from: u16, now: Time, learn: bool) -> Verdict {
        let (to, source) = match addresses(packet) {
            Ok(addresses) => addresses,
            Err(reason) => return Verdict::Drop(reason),
        };
        if learn {
            self.fdb.learn(source, from, now);
        }
        if to.is_multicast() {
            return if to.is_link_local() {
                Verdict::Drop(DropReason::LinkLocal)
            } else if to.is_broadcast() {
                Verdict::Flood
            } else {
                Verdict::Multicast
            };
        }
        match self.fdb.lookup(to, now) {
            Some(port) if port == from => Verdict::Drop(DropReason::Sameport),
            Some(port) => Verdict::To(port),
            None => Verdict::Flood,
        }
    }

    /// As [`decide`](Bridge::decide), for any bridge and a frame of this VLAN (0: none). A packet
    /// may be told to leave where it came from.
    pub(super) fn decide_in(
        &self,
        vlan: u16,
        packet: &Packet,
        from: u16,
        now: Time,
        source_rules: SourceRules,
    ) -> Result<Destination, DropReason> {
        let (to, source) = addresses(packet)?;
        let station = |address| Station { vlan, address };
        if source_rules.locked && !self.fdb.has(station(source), from, now) {
            return Err(DropReason::MacSpoof);
        }
        if source_rules.learn {
            self.fdb.learn_in(station(source), from, now);
        }
        if to.is_broadcast() {
            return Ok(Destination::Broadcast);
        }
        if to.is_multicast() {
            return if to.is_link_local() {
                Err(DropReason::LinkLocal)
            } else {
                Ok(Destination::Multicast)
            };
        }
        match self.fdb.find(station(to), now) {
            Some(hit) if hit.local => Err(DropReason::NoForward),
            Some(hit) => Ok(Destination::Port(hit.port)),
            None => Ok(Destination::Unknown),
        }
    }
}

/// Destination and source, which must be a station's.
#[inline(always)]
pub(super) fn addresses(
    packet: &Packet,
) -> Result<(EthernetAddress, EthernetAddress), DropReason> {
    let (to, source) = packet.ethernet()?;
    if source.is_multicast() || source.is_zero() {
        return Err(DropReason::BadSource);
    }
    Ok((to, source))
}

/// Treatment of source addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceRules {
    /// They are learnt.
    pub(super) learn: bool,
    /// The forwarding database must know them.
    pub(super) locked: bool,
}

/// Meaning of a frame's destination address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Port(u16),
    /// Nobody knows the station.
    Unknown,
    Multicast,
    Broadcast,
}

/// Options of a bridge's port (`bridge link set`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgePortOptions {
    /// No frame passes between two isolated ports.
    pub isolated: bool,
    /// Frames are taken only from stations of which the forwarding database says that they are
    /// behind this port. Nobody else is learnt here.
    pub locked: bool,
    /// Source addresses are learnt.
    pub learning: bool,
    /// Frames to unknown stations leave here.
    pub flood: bool,
    /// Frames to groups leave here.
    pub mcast_flood: bool,
    /// Broadcasts leave here.
    pub bcast_flood: bool,
    /// Frames may leave where they came from.
    pub hairpin: bool,
    /// Multicast snooping there.
    pub multicast: PortMulticast,
}

impl BridgePortOptions {
    /// True if frames are forwarded alike. Snooping is beside that.
    fn forwards_as(&self, other: &BridgePortOptions) -> bool {
        let multicast = self.multicast;
        *self
            == BridgePortOptions {
                multicast,
                ..*other
            }
    }
}

impl Default for BridgePortOptions {
    fn default() -> Self {
        BridgePortOptions {
            isolated: false,
            locked: false,
            learning: true,
            flood: true,
            mcast_flood: true,
            bcast_flood: true,
            hairpin: false,
            multicast: PortMulticast::default(),
        }
    }
}

/// The place of what is no member.
const NOWHERE: u16 = u16::MAX;

/// A bridge with its ports.
#[derive(Debug)]
pub(crate) struct Members {
    pub(super) bridge: Arc<Bridge>,
    pub(super) ports: Vec<u16>,
    /// The place of each port among `ports`, by its number; [`NOWHERE`] of others.
    places: Box<[u16]>,
    pub(super) rules: Rules,
    /// Not set: each port's options are the default ones, VLANs are not filtered, and no address
    /// ends at the bridge.
    pub(super) ruled: bool,
}

/// Rules of forwarding besides addresses.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) vlan_filtering: bool,
    /// Each port's, in the order of [`Members::ports`].
    pub(super) members: Vec<Member>,
}

/// A port as a part of its bridge.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    pub(crate) options: BridgePortOptions,
    pub(crate) vlans: Arc<PortVlans>,
}

impl Members {
    /// The members of a bridge, in the order of their ports, and what else forwarding heeds.
    pub(crate) fn new(
        bridge: Arc<Bridge>,
        ports: Vec<u16>,
        members: Vec<Member>,
        vlan_filtering: bool,
        local_addresses: bool,
    ) -> Members {
        let default = BridgePortOptions::default();
        let ruled = vlan_filtering
            || local_addresses
            || members
                .iter()
                .any(|member| !member.options.forwards_as(&default));
        let rules = Rules {
            vlan_filtering,
            members,
        };
        let numbers = ports.iter().max().map_or(0, |&most| usize::from(most) + 1);
        let mut places = vec![NOWHERE; numbers].into_boxed_slice();
        for (place, &port) in (0..).zip(&ports) {
            places[usize::from(port)] = place;
        }
        Members {
            bridge,
            ports,
            places,
            rules,
            ruled,
        }
    }

    /// A port's place among the members.
    pub(super) fn index(&self, port: u16) -> Option<usize> {
        let place = self.places.get(usize::from(port))?;
        (*place != NOWHERE).then_some(usize::from(*place))
    }
}

impl Rules {
    /// `Ok` if frames from one member may leave at another, or at itself.
    pub(super) fn allow(&self, from: usize, to: usize, vlan: u16) -> Result<(), DropReason> {
        let [ingress, egress] = [from, to].map(|member| &self.members[member]);
        if from == to && !egress.options.hairpin {
            Err(DropReason::Sameport)
        } else if self.vlan_filtering && !egress.vlans.contains(vlan) {
            Err(DropReason::VlanFilter)
        } else if ingress.options.isolated && egress.options.isolated {
            Err(DropReason::Isolated)
        } else {
            Ok(())
        }
    }
}
