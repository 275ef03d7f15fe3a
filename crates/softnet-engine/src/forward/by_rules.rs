//! Forwarding in a bridge that filters VLANs (IEEE 802.1Q 8.6), whose ports have options, or where
//! addresses end, and from a port that is [guarded](super::guard).
//!
//! A frame is of a VLAN from its arrival on: that of its tag, or the port's own. It leaves tagged
//! or not as each port says. To several ports it goes first in the form in which it came; then it
//! is changed once for the others. So at most one of the copies has data of its own for that.

use std::ops::Range;

use super::bridge::{Destination, Members, Rules, SourceRules};
use super::forwarder::{Batch, copy};
use super::guard::Guard;
use super::multicast::{Scope, Takers};
use super::pending::{Begun, Pending};
use super::vlan_tag;
use super::vlans::PortVlans;
use crate::Device;
use softnet::mem::{Packet, Pool};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::TxRing;

/// A packet with its VLAN.
struct Frame {
    packet: Packet,
    /// 0 of a bridge that does not filter.
    vlan: u16,
    tagged: bool,
}

/// Members that a frame may go to.
#[derive(Clone)]
enum Candidates<'a> {
    All(Range<usize>),
    Some(Takers<'a>, &'a Members),
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        match self {
            Candidates::All(places) => places.next(),
            // A port that has just left is no member.
            Candidates::Some(takers, members) => takers.find_map(|port| members.index(port)),
        }
    }
}

/// The way through a bridge for what one member received.
struct Forwarding<'a, R> {
    batch: Batch<'a, R>,
    source: &'a Device<R>,
    /// The member.
    from: usize,
    sources: SourceRules,
    guard: Option<&'a Guard>,
    members: &'a Members,
    rules: &'a Rules,
    pool: &'a Pool,
}

/// As [`forward`](super::Forwarder::forward). A frame goes to all its ports at once, or waits.
pub(super) fn forward_by_rules<R: TxRing>(
    batch: Batch<'_, R>,
    source: &Device<R>,
    (members, guard): (&Members, Option<&Guard>),
    port: u16,
    pending: &mut Pending,
    link_up: bool,
) -> Option<u16> {
    let Some(from) = members.index(port) else {
        let lost = std::mem::take(pending).packets;
        source.drops().lose(DropReason::NoForward, &lost);
        return None;
    };
    let rules = &members.rules;
    let options = &rules.members[from].options;
    let now = batch.now();
    let pool = &batch.forwarder().pool;
    let mut forwarding = Forwarding {
        batch,
        source,
        from,
        sources: SourceRules {
            learn: link_up && options.learning,
            locked: options.locked,
        },
        guard,
        members,
        rules,
        pool,
    };
    let tapped = source.drops().tap().is_some();
    while let Some(packet) = pending.packets.pop_front() {
        let wire_packets = packet.wire_packets();
        // What is refused is freed where that is found.
        let shown = tapped.then(|| packet.copy(pool)).flatten();
        let begun = pending.begun.take();
        match forwarding.forward(packet, begun, port, now) {
            Ok(None) => {}
            Ok(Some(packet)) => {
                pending.put_back(packet, Begun::default());
                break;
            }
            Err(reason) => match shown {
                Some(packet) => source.drops().lose(reason, Some(&packet)),
                None => source.drops().add(reason, wire_packets),
            },
        }
    }
    forwarding.batch.end(port)
}

impl<R: TxRing> Forwarding<'_, R> {
    /// Forwards a frame, or returns it if it has to wait.
    fn forward(
        &mut self,
        packet: Packet,
        begun: Option<Begun>,
        port: u16,
        now: Time,
    ) -> Result<Option<Packet>, DropReason> {
        if begun.is_some_and(|begun| begun.next > 0) {
            // It has gone to some ports by other rules.
            return Err(DropReason::NoForward);
        }
        if let Some(guard) = self.guard {
            guard.check(&packet, now)?;
        }
        let member = &self.rules.members[self.from];
        let frame = if self.rules.vlan_filtering {
            Frame::of(packet, &member.vlans, self.pool)?
        } else {
            Frame {
                packet,
                vlan: 0,
                tagged: false,
            }
        };
        let bridge = &self.members.bridge;
        let mut sources = self.sources;
        sources.learn &= begun.is_none();
        let to = bridge.decide_in(frame.vlan, &frame.packet, port, now, sources)?;
        if let Destination::Port(port) = to {
            // A static entry of a port that is down, or the port has just left.
            let member = self.members.index(port).ok_or(DropReason::NoForward)?;
            self.rules.allow(self.from, member, frame.vlan)?;
            let tagged = self.rules.tags(member, &frame);
            let frame = frame.with_tag(tagged, self.pool)?;
            self.batch.send(port, frame.packet);
            return Ok(None);
        }
        if let Some(guard) = self.guard
            && begun.is_none()
        {
            guard.check_flood(to, frame.packet.wire_packets(), now)?;
        }
        if to != Destination::Multicast {
            return self.flood(to, frame, Candidates::All(0..self.members.ports.len()));
        }
        let snooping = bridge.snooping();
        match snooping.scope(&frame.packet, frame.vlan, port, begun.is_none(), now)? {
            Scope::All => self.flood(to, frame, Candidates::All(0..self.members.ports.len())),
            Scope::Only(only) => {
                let some = Candidates::Some(only.takers(), self.members);
                self.flood(to, frame, some)
            }
        }
    }

    /// Sends to all members that take such frames; members of a group do. Returns the packet if no
    /// copies may be made.
    fn flood(
        &mut self,
        to: Destination,
        mut frame: Frame,
        candidates: Candidates<'_>,
    ) -> Result<Option<Packet>, DropReason> {
        let (rules, ports, from) = (self.rules, &self.members.ports, self.from);
        let (vlan, wire_packets) = (frame.vlan, frame.packet.wire_packets());
        let known = matches!(candidates, Candidates::Some(..));
        let takes = |&member: &usize| {
            let options = &rules.members[member].options;
            let floods = match to {
                Destination::Multicast => known || options.mcast_flood,
                Destination::Broadcast => options.bcast_flood,
                Destination::Port(_) | Destination::Unknown => options.flood,
            };
            floods && rules.allow(from, member, vlan).is_ok()
        };
        let takers = candidates.filter(takes);
        let mut left = takers.clone().count();
        let copies = self.batch.copies();
        if left > 1 && *copies == 0 {
            return Ok(Some(frame.packet));
        }
        *copies = copies.saturating_sub(left.saturating_sub(1));
        for form in [frame.tagged, !frame.tagged] {
            for member in takers.clone() {
                if rules.tags(member, &frame) != form {
                    continue;
                }
                frame = frame.with_tag(form, self.pool)?;
                left -= 1;
                if left == 0 {
                    self.batch.send(ports[member], frame.packet);
                    return Ok(None);
                }
                self.batch.count_copied(wire_packets);
                match copy(&mut frame.packet, self.pool) {
                    Some(copy) => self.batch.send(ports[member], copy),
                    None => {
                        let drops = self.source.drops();
                        drops.lose(DropReason::NoBuffer, Some(&frame.packet));
                    }
                }
            }
        }
        Err(DropReason::NoForward)
    }
}

impl Rules {
    /// True if a frame is to leave a member with a tag; as it came, if VLANs are not filtered.
    fn tags(&self, member: usize, frame: &Frame) -> bool {
        if self.vlan_filtering {
            !self.members[member].vlans.is_untagged(frame.vlan)
        } else {
            frame.tagged
        }
    }
}

impl Frame {
    /// The frame that a port with these VLANs received (802.1Q 6.9.1). One whose tag has only a
    /// priority gets the port's VLAN there.
    fn of(mut packet: Packet, vlans: &PortVlans, pool: &Pool) -> Result<Frame, DropReason> {
        let tag = vlan_tag::vlan(&packet)?;
        let tagged = tag.is_some();
        let vlan = match tag.filter(|&vlan| vlan != 0) {
            Some(vlan) if vlans.contains(vlan) => vlan,
            Some(_) => return Err(DropReason::VlanFilter),
            None => vlans.pvid().ok_or(DropReason::VlanFilter)?,
        };
        if tag == Some(0) {
            if !packet.make_unique(pool) {
                return Err(DropReason::NoBuffer);
            }
            vlan_tag::set_vlan(&mut packet, vlan);
        }
        Ok(Frame {
            packet,
            vlan,
            tagged,
        })
    }

    /// The frame with or without its tag.
    fn with_tag(mut self, tagged: bool, pool: &Pool) -> Result<Frame, DropReason> {
        if self.tagged != tagged {
            if !self.packet.make_unique(pool) {
                return Err(DropReason::NoBuffer);
            }
            if tagged {
                vlan_tag::push(&mut self.packet, self.vlan)?;
            } else {
                vlan_tag::pop(&mut self.packet)?;
            }
            self.tagged = tagged;
        }
        Ok(self)
    }
}
