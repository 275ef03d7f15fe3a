//! Takes received packets to the transmit side: asks the port's bridge, groups what goes the same
//! way, copies what goes several ways.
//!
//! A bridge is a learning switch (IEEE 802.1D 7.7 to 7.9, without VLANs and spanning tree): unicast
//! goes to the port where the address was seen, everything else to all other ports. A port never
//! gets its own frame back, and control frames for bridges end here.

use std::sync::Arc;
use std::time::Duration;

use super::Fdb;
use crate::Device;
use crate::link::LinkCell;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::{DropCounters, DropReason};
use softnet::sync::PerCpu;
use softnet::time::Time;
use softnet::tx::TxRing;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Out of this port.
    To(u16),
    /// Out of every port of the bridge but the one it came from.
    Flood,
    /// Nowhere.
    Drop(DropReason),
}

/// A learning switch (IEEE 802.1D 7.7 to 7.9, without VLANs and spanning tree). A port never gets
/// its own frame back; control frames for bridges end here. Shared by all workers.
#[derive(Debug)]
pub struct Bridge {
    fdb: Fdb,
}

impl Bridge {
    /// A bridge that learns about `addresses` addresses and forgets them after `ageing`.
    pub fn new(addresses: usize, ageing: Duration) -> Bridge {
        Bridge {
            fdb: Fdb::new(addresses, ageing),
        }
    }

    /// The addresses it knows.
    pub(crate) fn fdb(&self) -> &Fdb {
        &self.fdb
    }

    /// Learns where the packet came from, if `learn` says so (its port's link is up), and decides
    /// where it goes.
    pub fn decide(&self, packet: &Packet, from: u16, now: Time, learn: bool) -> Verdict {
        let (to, source) = match packet.ethernet() {
            Ok(addresses) => addresses,
            Err(reason) => return Verdict::Drop(reason),
        };
        if source.is_multicast() || source.0 == [0; 6] {
            return Verdict::Drop(DropReason::BadSource);
        }
        if learn {
            self.fdb.learn(source, from, now);
        }
        if to.is_multicast() {
            return if to.is_link_local() {
                Verdict::Drop(DropReason::LinkLocal)
            } else {
                Verdict::Flood
            };
        }
        match self.fdb.lookup(to, now) {
            Some(port) if port == from => Verdict::Drop(DropReason::Sameport),
            Some(port) => Verdict::To(port),
            None => Verdict::Flood,
        }
    }
}

/// A bridge with its ports.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) ports: Vec<u16>,
}

/// A port.
#[derive(Debug)]
pub(crate) struct Entry<R> {
    pub(crate) device: Arc<Device<R>>,
    pub(crate) bridge: Option<Arc<Members>>,
    pub(crate) link: Arc<LinkCell>,
}

/// Ports and bridges as they are at one time.
#[derive(Debug)]
pub(crate) struct Forwarder<R> {
    /// By port number.
    pub(crate) ports: Vec<Option<Entry<R>>>,
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
struct Batch<'a, R> {
    forwarder: &'a Forwarder<R>,
    to: u16,
    packets: PacketList,
    now: Time,
}

impl<R: TxRing> Batch<'_, R> {
    fn send(&mut self, to: u16, packet: Packet) {
        if to != self.to {
            self.flush();
            self.to = to;
        }
        self.packets.push_back(packet);
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
    /// is transmitted or dropped with a reason. Returns the port that the last ones went to.
    pub(crate) fn forward(
        &self,
        source: &Device<R>,
        from: u16,
        mut packets: PacketList,
        now: Time,
    ) -> Option<u16> {
        let port = self.entry(from);
        let members = port.and_then(|port| Some((port.bridge.as_deref()?, port.link.is_up())));
        let Some((Members { bridge, ports }, learn)) = members else {
            source
                .drops()
                .add(DropReason::NoForward, packets.wire_packets());
            return None;
        };
        let mut batch = Batch {
            forwarder: self,
            to: from,
            packets: PacketList::new(),
            now,
        };
        while let Some(packet) = packets.pop_front() {
            let verdict = match bridge.decide(&packet, from, now, learn) {
                // The table may still name a port that is no longer part of the bridge.
                Verdict::To(port) if !ports.contains(&port) => Verdict::Flood,
                verdict => verdict,
            };
            match verdict {
                Verdict::To(port) => batch.send(port, packet),
                Verdict::Drop(reason) => source.drops().add(reason, packet.wire_packets()),
                Verdict::Flood => flood(&mut batch, source, ports, from, packet),
            }
        }
        batch.flush();
        (batch.to != from).then_some(batch.to)
    }
}

impl<R> Forwarder<R> {
    fn entry(&self, port: u16) -> Option<&Entry<R>> {
        self.ports.get(usize::from(port))?.as_ref()
    }

    /// The device of a port.
    pub(crate) fn device(&self, port: u16) -> Option<&Device<R>> {
        Some(&self.entry(port)?.device)
    }

    /// A port's link went down: its bridge forgets the addresses behind it, unless the port has
    /// another link by now. A worker that is just forwarding what the port received may still
    /// learn one; it ages, or is learnt elsewhere.
    pub(crate) fn link_down(&self, port: u16, link: &Arc<LinkCell>) {
        if let Some(entry) = self.entry(port)
            && Arc::ptr_eq(&entry.link, link)
            && let Some(members) = &entry.bridge
        {
            members.bridge.fdb().forget_port(port);
        }
    }

    /// Drops packets of a port that was removed.
    pub(crate) fn drop_orphans(&self, packets: PacketList) {
        self.orphans
            .add(DropReason::NoForward, packets.wire_packets());
    }
}

/// Sends copies to all ports but `from`, and the packet itself to the last.
fn flood<R: TxRing>(
    batch: &mut Batch<'_, R>,
    source: &Device<R>,
    ports: &[u16],
    from: u16,
    packet: Packet,
) {
    let mut others = ports
        .iter()
        .copied()
        .filter(|&port| port != from)
        .peekable();
    let wire_packets = packet.wire_packets();
    let mut packet = Some(packet);
    while let Some(port) = others.next() {
        if others.peek().is_none() {
            packet
                .take()
                .into_iter()
                .for_each(|last| batch.send(port, last));
            return;
        }
        batch.forwarder.copied.add(0, wire_packets);
        let pool = &batch.forwarder.pool;
        match packet.as_mut().and_then(|packet| copy(packet, pool)) {
            Some(copy) => batch.send(port, copy),
            None => source.drops().add(DropReason::NoBuffer, wire_packets),
        }
    }
    // No other port.
    source.drops().add(DropReason::NoForward, wire_packets);
}
