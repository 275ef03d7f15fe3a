//! Takes received packets to the transmit side: asks the port's bridge, groups what goes the same
//! way, copies what goes several ways.
//!
//! Unicast goes to the port where the address was seen, everything else to all other ports; a port
//! never gets its own frame back. A bridge that is told to do otherwise, or a port that is guarded,
//! forwards by rules (`by_rules`).

use std::sync::Arc;

use super::bridge::{Members, Verdict};
use super::guard::Guard;
use super::multicast::Scope;
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
}

/// Ports and bridges as they are at one time.
#[derive(Debug)]
pub(crate) struct Forwarder<R> {
    /// By port number.
    pub(crate) ports: Vec<Option<Entry<R>>>,
    /// The bridges that are up.
    pub(crate) bridges: Vec<Arc<Members>>,
    /// Buffers for copies of flooded packets.
    pub(crate) pool: Pool,
    /// Counts wire packets that copying has added.
    pub(crate) copied: Arc<PerCpu<1>>,
    /// Counts what was dropped because its port is no longer there.
    pub(crate) orphans: Arc<DropCounters>,
}

/// Copies that a call may flood before the rest of its packets waits for a later one: as many as a
/// round of its worker has wire packets to handle.
const FLOOD: usize = 256;

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
    /// Copies that were flooded.
    flooded: usize,
    now: Time,
}

impl<'a, R: TxRing> Batch<'a, R> {
    pub(super) fn new(forwarder: &'a Forwarder<R>, to: u16, now: Time) -> Self {
        Batch {
            forwarder,
            to,
            packets: PacketList::new(),
            flooded: 0,
            now,
        }
    }

    /// Notes that a packet goes to so many ports.
    pub(super) fn count_flooded(&mut self, copies: usize) {
        self.flooded += copies;
    }

    /// So much was flooded that the rest of the packets has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.flooded >= FLOOD
    }

    /// The port of the last packets.
    pub(super) fn port(&self) -> u16 {
        self.to
    }

    /// Counts wire packets that are copied.
    pub(super) fn count_copied(&self, wire_packets: u64) {
        self.forwarder.copied.add(0, wire_packets);
    }

    pub(super) fn send(&mut self, to: u16, packet: Packet) {
        self.turn(to);
        self.packets.push_back(packet);
    }

    fn send_list(&mut self, to: u16, mut packets: PacketList) {
        self.turn(to);
        self.packets.append(&mut packets);
    }

    /// What comes next is for this port.
    #[inline]
    fn turn(&mut self, to: u16) {
        if to != self.to {
            self.flush();
            self.to = to;
        }
    }

    pub(super) fn flush(&mut self) {
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
    /// is transmitted or dropped with a reason, but for those that follow on [`FLOOD`] copies: they
    /// stay in `packets`, and are to be forwarded before what the same queue receives next. So a
    /// call makes at most `FLOOD` copies less one, and those of one packet. Returns the port that
    /// the last ones went to.
    pub(crate) fn forward(
        &self,
        source: &Device<R>,
        from: u16,
        packets: &mut PacketList,
        now: Time,
    ) -> Option<u16> {
        let port = self.entry(from);
        let bridged = port.and_then(|port| Some((port, port.bridge.as_deref()?)));
        let Some((port, members)) = bridged else {
            source
                .drops()
                .add(DropReason::NoForward, packets.take().wire_packets());
            return None;
        };
        let learn = port.link.is_up();
        let Members { bridge, ports, .. } = members;
        let guard = port.guard.as_deref();
        if members.ruled || guard.is_some() {
            return self.forward_by_rules(source, (members, guard), from, packets, now, learn);
        }
        let mut batch = Batch::new(self, from, now);
        while let Some(packet) = packets.front() {
            let verdict = bridge.decide(packet, from, now, learn);
            // Most packets follow others of their flow.
            let same = packets.iter().take_while(|other| same_way(packet, other));
            let mut run = PacketList::new();
            packets.split_front(same.count().max(1), &mut run);
            match verdict {
                Verdict::To(port) if members.index(port).is_some() => batch.send_list(port, run),
                // A static entry of a port that is down, or the port has just left.
                Verdict::To(_) => {
                    let lost = run.wire_packets();
                    source.drops().add(DropReason::NoForward, lost);
                }
                Verdict::Drop(reason) => source.drops().add(reason, run.wire_packets()),
                Verdict::Flood => {
                    let others = ports.iter().copied().filter(|&port| port != from);
                    while !batch.is_full()
                        && let Some(packet) = run.pop_front()
                    {
                        flood(&mut batch, source, others.clone(), packet);
                    }
                    if batch.is_full() {
                        run.append(packets);
                        *packets = run;
                        break;
                    }
                }
                Verdict::Multicast => {
                    while !batch.is_full()
                        && let Some(packet) = run.pop_front()
                    {
                        multicast(&mut batch, source, members, from, packet);
                    }
                    if batch.is_full() {
                        run.append(packets);
                        *packets = run;
                        break;
                    }
                }
            }
        }
        batch.flush();
        (batch.to != from).then_some(batch.to)
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
        self.orphans
            .add(DropReason::NoForward, packets.wire_packets());
    }
}

/// Whether a bridge decides alike about two packets that arrive together: their addresses are the
/// same. Not known of frames that are too short to have any.
#[inline]
fn same_way(packet: &Packet, other: &Packet) -> bool {
    match (packet.data().get(..14), other.data().get(..14)) {
        (Some(one), Some(other)) => one[..12] == other[..12],
        _ => false,
    }
}

/// Sends a packet to a group, of a bridge without VLANs.
#[cold]
fn multicast<R: TxRing>(
    batch: &mut Batch<'_, R>,
    source: &Device<R>,
    members: &Members,
    from: u16,
    packet: Packet,
) {
    let is_other = |port: &u16| *port != from;
    match members.bridge.snooping().scope(&packet, 0, from, batch.now) {
        Ok(Scope::All) => {
            let others = members.ports.iter().copied().filter(is_other);
            flood(batch, source, others, packet);
        }
        Ok(Scope::Only(only)) => {
            let is_member = |port: &u16| members.index(*port).is_some();
            let takers = only.takers().filter(is_other).filter(is_member);
            flood(batch, source, takers, packet);
        }
        Err(reason) => source.drops().add(reason, packet.wire_packets()),
    }
}

/// Sends copies to ports, and the packet itself to the last.
fn flood<R: TxRing>(
    batch: &mut Batch<'_, R>,
    source: &Device<R>,
    others: impl Iterator<Item = u16>,
    packet: Packet,
) {
    let mut others = others.peekable();
    let wire_packets = packet.wire_packets();
    let mut packet = Some(packet);
    while let Some(port) = others.next() {
        batch.count_flooded(1);
        if others.peek().is_none() {
            packet
                .take()
                .into_iter()
                .for_each(|last| batch.send(port, last));
            return;
        }
        batch.count_copied(wire_packets);
        let pool = &batch.forwarder.pool;
        match packet.as_mut().and_then(|packet| copy(packet, pool)) {
            Some(copy) => batch.send(port, copy),
            None => source.drops().add(DropReason::NoBuffer, wire_packets),
        }
    }
    // No other port.
    source.drops().add(DropReason::NoForward, wire_packets);
}
