//! Links without a device of their own: `ifb`, `vlan` and `lo`.
//!
//! Whatever such a link sends its ring gives back: to the backlog of the worker that serves the
//! link, marked with the place where it goes on ([`Turn`]). So nothing recurses, a shaper on such a
//! link is one as on any other, and a loop through them is bounded by [`MAX_HOPS`].
//!
//! - An `ifb` gives back what was redirected to it where it came from, behind the hook there
//!   (`ifb_ri_tasklet`). Everything else it drops, copies among it.
//! - What a VLAN link sends leaves its parent with a tag; frames with that tag that its parent
//!   receives, behind the parent's hook and before its bridge, arrive at the VLAN link without it
//!   (`vlan_do_receive`).
//! - What is sent to `lo` arrives there.

use std::sync::Arc;

use softnet::mem::{PacketList, Turn};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::{Ingress, Notifier, TxRing};
use softnet_tc::Side;

use super::forwarder::Forwarder;
use super::hook::Hooks;
use super::vlan_tag;
use crate::Device;
use crate::rx::Backlog;

/// Links without a device that a packet may pass, one after the other.
pub(crate) const MAX_HOPS: u8 = 8;

/// The tag of a VLAN's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VlanTag {
    /// EtherType: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub proto: u16,
    /// Number of the VLAN, 1 to 4094.
    pub id: u16,
}

/// A link without a device, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Virtual {
    /// A packet that is redirected there passes its tree, and goes on where it came from.
    Ifb,
    /// A packet that is sent arrives.
    Loopback,
    /// A VLAN of another link.
    Vlan {
        /// Name of that link.
        parent: String,
        /// The tag of its frames.
        tag: VlanTag,
    },
}

/// A port's part in forwarding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has a device.
    #[default]
    Device,
    Ifb,
    Loopback,
    /// The number of the parent's port, and the tag.
    Vlan(u16, VlanTag),
}

/// The way of frames that a port received, before its bridge sees them.
#[derive(Debug)]
pub(crate) struct Arrival<R> {
    pub(crate) hooks: Option<Arc<Hooks<R>>>,
    /// The ports of its VLANs, by tag.
    pub(crate) vlans: Vec<(VlanTag, u16)>,
}

/// The way of what a link without a device sends.
#[derive(Debug)]
pub(crate) struct GiveBack {
    pub(crate) role: Role,
    /// Number of the link's port.
    pub(crate) port: u16,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) notifier: Arc<Notifier>,
}

impl Ingress for GiveBack {
    fn receive_later(&self, packets: &mut PacketList) {
        packets.for_each_mut(|packet| {
            packet.add_hop();
            match (self.role, packet.turn()) {
                (Role::Ifb, Turn::Ingress | Turn::Egress) => return,
                (Role::Loopback, _) => packet.set_turn(Turn::None),
                _ => packet.set_turn(Turn::Lower),
            }
            packet.set_port(self.port);
        });
        *packets = self.backlog.push(packets.take());
        self.notifier.wake();
    }
}

impl<R: TxRing> Forwarder<R> {
    /// Has a port's hook and VLANs take out of `packets`, which it received, what is theirs.
    #[inline]
    pub(crate) fn arrive(&self, port: u16, packets: &mut PacketList, now: Time) {
        let entry = self.ports.get(usize::from(port)).and_then(Option::as_ref);
        if let Some(entry) = entry
            && let Some(arrival) = &entry.arrival
        {
            arrival.take(self, &entry.device, packets, now);
        }
    }

    /// Takes packets that a link without a device gave back on their way. True: they are as those
    /// that their port received, behind its hook.
    #[cold]
    pub(crate) fn go_on(
        &self,
        port: u16,
        turn: Turn,
        packets: &mut PacketList,
        now: Time,
    ) -> bool {
        let entry = self.ports.get(usize::from(port)).and_then(Option::as_ref);
        let Some(entry) = entry else {
            self.drop_orphans(packets.take());
            return false;
        };
        let drops = entry.device.drops();
        let (mut on, mut over) = (PacketList::new(), 0);
        for mut packet in packets.take() {
            packet.set_turn(Turn::None);
            match packet.hops() > MAX_HOPS {
                true => over += packet.wire_packets(),
                false => on.push_back(packet),
            }
        }
        if over > 0 {
            drops.add(DropReason::RecursionLimit, over);
        }
        match (turn, entry.role) {
            (Turn::None, _) => *packets = on,
            (Turn::Ingress, _) => {
                *packets = on;
                return true;
            }
            (Turn::Egress, _) => drop(entry.device.transmit_past_egress(on, now)),
            (Turn::Lower, Role::Vlan(parent, tag)) => {
                let mut tagged = PacketList::new();
                for mut packet in on {
                    let pushed = match packet.make_unique(&self.pool) {
                        true => vlan_tag::push_of(&mut packet, tag),
                        false => Err(DropReason::NoBuffer),
                    };
                    match pushed {
                        Ok(()) => tagged.push_back(packet),
                        Err(reason) => drops.lose(reason, Some(&packet)),
                    }
                }
                match self.device(parent) {
                    Some(device) => drop(device.transmit(tagged, now)),
                    None => self.drop_orphans(tagged),
                }
            }
            (Turn::Lower, _) => drops.lose(DropReason::NoForward, &on),
        }
        false
    }
}

impl<R: TxRing> Arrival<R> {
    fn take(
        &self,
        forwarder: &Forwarder<R>,
        device: &Device<R>,
        packets: &mut PacketList,
        now: Time,
    ) {
        if let Some(hooks) = &self.hooks
            && hooks.is_active(Side::Ingress)
        {
            hooks.run(Side::Ingress, device, packets, now);
        }
        if !self.vlans.is_empty() {
            self.take_vlans(forwarder, device, packets);
        }
    }

    /// Frames of VLANs arrive at the VLANs' links.
    fn take_vlans(&self, forwarder: &Forwarder<R>, device: &Device<R>, packets: &mut PacketList) {
        let mut run = PacketList::new();
        let mut to = None;
        for mut packet in packets.take() {
            let tag = vlan_tag::tag_of(&packet);
            let found = tag.and_then(|tag| {
                let place = self.vlans.binary_search_by_key(&tag, |&(tag, _)| tag);
                place.ok().map(|place| self.vlans[place].1)
            });
            if found != to {
                forwarder.receive_at(to, &mut run);
                to = found;
            }
            if found.is_none() {
                packets.push_back(packet);
                continue;
            }
            let popped = match packet.make_unique(&forwarder.pool) {
                true => vlan_tag::pop(&mut packet),
                false => Err(DropReason::NoBuffer),
            };
            match popped {
                Ok(()) => run.push_back(packet),
                Err(reason) => device.drops().lose(reason, Some(&packet)),
            }
        }
        forwarder.receive_at(to, &mut run);
    }
}

impl<R: TxRing> Forwarder<R> {
    /// Frames of a VLAN arrive at its link.
    fn receive_at(&self, port: Option<u16>, packets: &mut PacketList) {
        let packets = packets.take();
        if packets.is_empty() {
            return;
        }
        match port.and_then(|port| self.device(port)) {
            Some(device) => {
                let (count, bytes) = packets.iter().fold((0, 0), |(count, bytes), packet| {
                    let (len, wire) = packet.wire();
                    (count + wire, bytes + len)
                });
                device.count_received(count, bytes);
                device.receive_later(packets);
            }
            None => self.drop_orphans(packets),
        }
    }
}
