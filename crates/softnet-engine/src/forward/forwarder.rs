//! Takes received packets to the transmit side: asks the port's bridge, groups what goes the same way, copies what goes several ways.

use std::sync::Arc;

use super::{Bridge, Verdict};
use crate::Device;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::DropReason;
use softnet::sync::PerCpu;
use softnet::time::Time;
use softnet::tx::TxRing;

/// Ports and bridges as they are at one time. Built by the control path, shared by the workers, never changed.
#[derive(Debug)]
pub struct Tables<R> {
    /// Devices by port number.
    pub devices: Vec<Option<Arc<Device<R>>>>,
    /// Bridges with their ports.
    pub bridges: Vec<(Arc<Bridge>, Vec<u16>)>,
    /// For each port, the index of its bridge.
    pub bridge_of: Vec<Option<usize>>,
    /// Buffers for copies of flooded packets.
    pub pool: Pool,
    /// Counts wire packets that copying has added.
    pub copied: Arc<PerCpu<1>>,
}

/// A worker's view of the tables.
#[derive(Debug)]
pub struct Forwarder<R> {
    tables: Option<Arc<Tables<R>>>,
}

impl<R> Default for Forwarder<R> {
    /// Forwards nothing.
    fn default() -> Self {
        Forwarder { tables: None }
    }
}

impl<R> From<Arc<Tables<R>>> for Forwarder<R> {
    fn from(tables: Arc<Tables<R>>) -> Self {
        Forwarder {
            tables: Some(tables),
        }
    }
}

/// Flooded frames from this length on share their data; shorter ones are copied, which costs less than two threads counting holders.
const SHARE: usize = 256;

/// Packets for one port, collected until one for another port comes.
struct Batch<'a, R> {
    tables: &'a Tables<R>,
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
        if let Some(Some(device)) = self.tables.devices.get(usize::from(self.to)) {
            device.transmit(self.packets.take(), self.now);
        }
    }
}

impl<R: TxRing> Forwarder<R> {
    /// Forwards packets that device `source`, port number `from`, received, in order. Every packet is transmitted or dropped with a
    /// reason. Returns the port that the last ones went to.
    pub fn forward(
        &self,
        source: &Device<R>,
        from: u16,
        mut packets: PacketList,
        now: Time,
    ) -> Option<u16> {
        let Some((tables, bridge, ports)) = self.bridge(from) else {
            source
                .drops()
                .add(DropReason::NoForward, packets.wire_packets());
            return None;
        };
        let mut batch = Batch {
            tables,
            to: from,
            packets: PacketList::new(),
            now,
        };
        while let Some(packet) = packets.pop_front() {
            let verdict = match bridge.decide(&packet, from, now) {
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
    /// The device of a port.
    pub fn device(&self, port: u16) -> Option<&Device<R>> {
        self.tables
            .as_deref()?
            .devices
            .get(usize::from(port))?
            .as_deref()
    }

    /// The bridge of a port, with its ports.
    fn bridge(&self, port: u16) -> Option<(&Tables<R>, &Bridge, &[u16])> {
        let tables = self.tables.as_deref()?;
        let index = (*tables.bridge_of.get(usize::from(port))?)?;
        let (bridge, ports) = tables.bridges.get(index)?;
        Some((tables, bridge, ports))
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
        batch.tables.copied.add(0, wire_packets);
        let pool = &batch.tables.pool;
        let copy = packet.as_mut().and_then(|p| {
            if p.len() < SHARE {
                p.copy(pool)
            } else {
                p.share(pool)
            }
        });
        match copy {
            Some(copy) => batch.send(port, copy),
            None => source.drops().add(DropReason::NoBuffer, wire_packets),
        }
    }
    // No other port.
    source.drops().add(DropReason::NoForward, wire_packets);
}
