//! Takes received packets to the transmit side: asks the port's bridge, groups what goes the same
//! way, copies what goes several ways.
//!
//! Unicast goes to the port where the address was seen, everything else to all other ports; a port
//! never gets its own frame back. A bridge that is told to do otherwise, or a port that is guarded,
//! forwards by rules (`by_rules`).

use std::sync::Arc;

use super::bridge::{Members, Verdict};
use super::by_rules::forward_by_rules;
use super::elsewhere::LinkTable;
use super::flood::flood_lists;
use super::guard::Guard;
use super::multicast::Scope;
use super::pending::{Begun, Pending};
use super::virtual_link::{Arrival, Role};
use crate::Device;
use crate::link::LinkCell;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::{DropCounters, DropReason};
use softnet::sync::PerCpu;
use softnet::time::Time;
use softnet::tx::TxRing;

/// A port.
#[derive(Debug)]
pub(crate) struct Entry<R> {
    pub(crate) device: Arc<Device<R>>,
    pub(crate) bridge: Option<Arc<Members>>,
    pub(crate) link: Arc<LinkCell>,
    /// The check of what it received; `None`: all may pass.
    pub(crate) guard: Option<Arc<Guard>>,
    pub(crate) role: Role,
    /// Takes its part of what it received, before its bridge does.
    pub(crate) arrival: Option<Box<Arrival<R>>>,
}

/// Ports and bridges as they are at one time.
#[derive(Debug)]
pub(crate) struct Forwarder<R> {
    /// By port number.
    pub(crate) ports: Vec<Option<Entry<R>>>,
    /// The links that actions may send to.
    pub(crate) links: Arc<LinkTable<R>>,
    /// The bridges that are up.
    pub(crate) bridges: Vec<Arc<Members>>,
    /// Buffers for copies of flooded packets.
    pub(crate) pool: Pool,
    /// Counts wire packets that copying has added.
    pub(crate) copied: Arc<PerCpu<1>>,
    /// Counts what was dropped because its port is no longer there.
    pub(crate) orphans: Arc<DropCounters>,
}

/// Copies from this length on share their data; shorter ones are copied, which costs less than two
/// threads counting references.
const SHARE: usize = 256;

/// A copy of a packet for another device. None if no buffer is left.
pub(super) fn copy(packet: &mut Packet, pool: &Pool) -> Option<Packet> {
    if packet.len() < SHARE {
        packet.copy(pool)
    } else {
        packet.share(pool)
    }
}

/// Packets for one port, collected until one for another port comes.
pub(super) struct Batch<'a, R> {
    forwarder: &'a Forwarder<R>,
    to: u16,
    packets: PacketList,
    /// Copies that may be made.
    copies: &'a mut usize,
    now: Time,
}

impl<'a, R: TxRing> Batch<'a, R> {
    pub(super) fn new(
        forwarder: &'a Forwarder<R>,
        to: u16,
        copies: &'a mut usize,
        now: Time,
    ) -> Self {
        Batch {
            forwarder,
            to,
            packets: PacketList::new(),
            copies,
            now,
        }
    }

    /// Copies that may be made.
    pub(super) fn copies(&mut self) -> &mut usize {
        self.copies
    }

    /// The ports and bridges that it forwards by.
    pub(super) fn forwarder(&self) -> &'a Forwarder<R> {
        self.forwarder
    }

    /// The time.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Counts wire packets that are copied.
    pub(super) fn count_copied(&self, wire_packets: u64) {
        self.forwarder.copied.add(0, wire_packets);
    }

    pub(super) fn send(&mut self, to: u16, packet: Packet) {
        self.turn(to);
        self.packets.push_back(packet);
    }

    pub(super) fn send_list(&mut self, to: u16, mut packets: PacketList) {
        self.turn(to);
        self.packets.append(&mut packets);
    }

    /// The next packets are for this port.
    #[inline]
    fn turn(&mut self, to: u16) {
        if to != self.to {
            self.flush();
            self.to = to;
        }
    }

    /// Sends what is left. The port of the last packets, unless it is this one.
    pub(super) fn end(mut self, from: u16) -> Option<u16> {
        self.flush();
        (self.to != from).then_some(self.to)
    }

    fn flush(&mut self) {
        if self.packets.is_empty() {
            return;
        }
        let packets = self.packets.take();
        match self.forwarder.device(self.to) {
            Some(device) => drop(device.transmit(packets, self.now)),
            None => self.forwarder.drop_orphans(packets),
        }
    }
}

impl<R: TxRing> Forwarder<R> {
    /// Forwards packets that device `source`, port number `from`, received, in order. Every packet
    /// is transmitted or dropped with a reason, but for those from the first on of which more than
    /// `copies` copies would have to be made: they stay in `pending`, and are to be forwarded
    /// before what the same queue receives next. `copies` becomes what is left of it. What goes to
    /// one port does not need a copy. Returns the port that the last ones went to.
    pub(crate) fn forward(
        &self,
        source: &Device<R>,
        from: u16,
        pending: &mut Pending,
        copies: &mut usize,
        now: Time,
    ) -> Option<u16> {
        let port = self.entry(from);
        let bridged = port.and_then(|port| Some((port, port.bridge.as_deref()?)));
        let Some((port, members)) = bridged else {
            let lost = std::mem::take(pending).packets;
            source.drops().lose(DropReason::NoForward, &lost);
            return None;
        };
        let learn = port.link.is_up();
        let bridge = &members.bridge;
        let guard = port.guard.as_deref();
        let mut batch = Batch::new(self, from, copies, now);
        if members.ruled || guard.is_some() {
            return forward_by_rules(batch, source, (members, guard), from, pending, learn);
        }
        while let Some(packet) = pending.packets.front() {
            let begun = pending.begun.take();
            let verdict = match begun {
                Some(Begun { next: 1.. }) => again(packet),
                _ => bridge.decide(packet, from, now, learn && begun.is_none()),
            };
            // Most packets follow others of their flow.
            let same = pending.packets.iter();
            let same = match begun {
                None => same.take_while(|other| same_way(packet, other)).count(),
                Some(_) => 1,
            };
            let mut run = PacketList::new();
            pending.packets.split_front(same.max(1), &mut run);
            match verdict {
                Verdict::To(port) if members.index(port).is_some() => batch.send_list(port, run),
                // A static entry of a port that is down, or the port has just left.
                Verdict::To(_) => source.drops().lose(DropReason::NoForward, &run),
                Verdict::Drop(reason) => source.drops().lose(reason, &run),
                Verdict::Flood | Verdict::Multicast => {
                    let snooped = verdict == Verdict::Multicast;
                    if !snooped && begun.is_none() {
                        flood_lists(&mut batch, source, members, from, &mut run);
                    }
                    while let Some(packet) = run.pop_front() {
                        let left =
                            flood(&mut batch, source, (members, snooped), from, begun, packet);
                        if let Some((packet, begun)) = left {
                            run.append(&mut pending.packets);
                            pending.packets = run;
                            pending.put_back(packet, begun);
                            return batch.end(from);
                        }
                    }
                }
            }
        }
        batch.end(from)
    }
}

impl<R: TxRing> Forwarder<R> {
    /// Does what bridges have to do by themselves by now.
    pub(crate) fn tend(&self, now: Time) {
        for members in &self.bridges {
            for (port, frame) in members.bridge.snooping().tend(now) {
                if members.index(port).is_some() {
                    self.originate(port, &frame, now);
                }
            }
        }
    }

    /// Sends a frame that the bridge has made; it counts as copied. Where no buffer is left, or it
    /// does not fit one, there is none.
    fn originate(&self, port: u16, frame: &[u8], now: Time) {
        let (Some(device), Ok(mut packet)) = (self.device(port), self.pool.alloc()) else {
            return;
        };
        if packet.append(frame) {
            self.copied.add(0, 1);
            let mut packets = PacketList::new();
            packets.push_back(packet);
            device.transmit(packets, now);
        }
    }
}

impl<R> Forwarder<R> {
    /// When [`tend`](Forwarder::tend) has something to do.
    pub(crate) fn due(&self) -> Time {
        let due = self
            .bridges
            .iter()
            .map(|members| members.bridge.snooping().due());
        due.min().unwrap_or(Time::MAX)
    }

    fn entry(&self, port: u16) -> Option<&Entry<R>> {
        self.ports.get(usize::from(port))?.as_ref()
    }

    /// The device of a port.
    pub(crate) fn device(&self, port: u16) -> Option<&Device<R>> {
        Some(&self.entry(port)?.device)
    }

    /// A port's link came up or went down. Its bridge then asks the hosts behind it for their
    /// groups, or forgets groups and addresses behind it, unless the port has
    /// another link by now. A worker that is just forwarding what the port received may still
    /// learn one; it ages, or is learnt elsewhere.
    pub(crate) fn link_changed(&self, port: u16, link: &Arc<LinkCell>, up: bool, now: Time) {
        if let Some(entry) = self.entry(port)
            && Arc::ptr_eq(&entry.link, link)
            && let Some(members) = &entry.bridge
        {
            members.bridge.snooping().link(port, up, now);
            if up {
                return;
            }
            members.bridge.fdb().forget_learnt(port);
            entry.guard.iter().for_each(|guard| guard.forget());
        }
    }

    /// Drops packets of a port that was removed.
    pub(crate) fn drop_orphans(&self, packets: PacketList) {
        self.orphans.lose(DropReason::NoForward, &packets);
    }
}

/// True if a bridge decides alike about two packets that arrive together: their addresses are the
/// same. Not known of frames that are too short to have any.
#[inline]
fn same_way(packet: &Packet, other: &Packet) -> bool {
    match (packet.data().get(..14), other.data().get(..14)) {
        (Some(one), Some(other)) => one[..12] == other[..12],
        _ => false,
    }
}

/// Verdict on a packet that has gone to some ports.
#[cold]
fn again(packet: &Packet) -> Verdict {
    match packet.ethernet() {
        Ok((to, _)) if to.is_multicast() && !to.is_broadcast() => Verdict::Multicast,
        _ => Verdict::Flood,
    }
}

/// Sends a packet to all members of a bridge without VLANs, or if it is snooped to those of its
/// group. Returns it if it has to wait.
#[cold]
fn flood<R: TxRing>(
    batch: &mut Batch<'_, R>,
    source: &Device<R>,
    (members, snooped): (&Members, bool),
    from: u16,
    begun: Option<Begun>,
    packet: Packet,
) -> Option<(Packet, Begun)> {
    let next = begun.unwrap_or_default().next;
    let is_other = |port: &u16| *port != from && *port >= next;
    let scope = match snooped {
        true => {
            let snooping = members.bridge.snooping();
            snooping.scope(&packet, 0, from, begun.is_none(), batch.now)
        }
        false => Ok(Scope::All),
    };
    match scope {
        Ok(Scope::All) => {
            let others = members.ports.iter().copied().filter(is_other);
            copy_to(batch, source, others, packet)
        }
        Ok(Scope::Only(only)) => {
            let is_member = |port: &u16| members.index(*port).is_some();
            let takers = only.takers().filter(is_other).filter(is_member);
            copy_to(batch, source, takers, packet)
        }
        Err(reason) => {
            source.drops().lose(reason, Some(&packet));
            None
        }
    }
}

/// Sends copies to ports, in order, and the packet itself to the last. Returns it if that takes
/// more copies than may be made.
fn copy_to<R: TxRing>(
    batch: &mut Batch<'_, R>,
    source: &Device<R>,
    others: impl Iterator<Item = u16>,
    mut packet: Packet,
) -> Option<(Packet, Begun)> {
    let mut others = others.peekable();
    let wire_packets = packet.wire_packets();
    while let Some(port) = others.next() {
        if others.peek().is_none() {
            batch.send(port, packet);
            return None;
        }
        if *batch.copies == 0 {
            return Some((packet, Begun { next: port }));
        }
        *batch.copies -= 1;
        batch.count_copied(wire_packets);
        match copy(&mut packet, &batch.forwarder.pool) {
            Some(copy) => batch.send(port, copy),
            None => source.drops().lose(DropReason::NoBuffer, Some(&packet)),
        }
    }
    // No other port.
    source.drops().lose(DropReason::NoForward, Some(&packet));
    None
}
