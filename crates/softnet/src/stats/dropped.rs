//! Packets on their way to be freed. A qdisc collects what it drops here; the caller
//! counts and frees it in bulk, after its own work is done (INV-TX-18: nothing is freed in the
//! middle of a run).

use super::{DropCounters, DropReason, Tap};
use crate::mem::{Packet, PacketList};

/// Dropped packets with their reasons, to be [settled](Dropped::settle).
#[derive(Debug)]
pub struct Dropped {
    packets: PacketList,
    /// Dropped, and shown to a tap already.
    shown: PacketList,
    counts: [u32; DropReason::ALL.len()],
    wire: u64,
}

impl Default for Dropped {
    fn default() -> Self {
        Dropped {
            packets: PacketList::new(),
            shown: PacketList::new(),
            counts: [0; DropReason::ALL.len()],
            wire: 0,
        }
    }
}

impl Dropped {
    /// Nothing dropped yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet.
    pub fn push(&mut self, mut packet: Packet, reason: DropReason) {
        self.note(reason, packet.wire_packets());
        packet.set_drop_reason(reason);
        self.packets.push_back(packet);
    }

    /// Adds all packets of a list.
    pub fn append(&mut self, mut packets: PacketList, reason: DropReason) {
        self.note(reason, packets.wire_packets());
        packets.for_each_mut(|packet| packet.set_drop_reason(reason));
        self.packets.append(&mut packets);
    }

    /// Counts wire packets that were freed already.
    pub fn note(&mut self, reason: DropReason, wire_packets: u64) {
        let count = &mut self.counts[reason as usize];
        *count = count.saturating_add(u32::try_from(wire_packets).unwrap_or(u32::MAX));
        self.wire += wire_packets;
    }

    /// Wire packets collected.
    pub fn wire_packets(&self) -> u64 {
        self.wire
    }

    /// The packets collected and not yet settled, in the order in which they were dropped.
    pub fn packets(&self) -> &PacketList {
        &self.packets
    }

    /// Wire packets collected for each reason, in the order of [`DropReason::ALL`].
    pub fn counts(&self) -> &[u32; DropReason::ALL.len()] {
        &self.counts
    }

    /// Has `show` look at the packets that were not shown yet.
    pub(crate) fn show(&mut self, mut show: impl FnMut(&Packet, DropReason)) {
        for packet in &self.packets {
            show(packet, packet.drop_reason());
        }
        self.shown.append(&mut self.packets);
    }

    /// Shows `tap` what it was not shown yet.
    #[cold]
    fn show_rest(&mut self, tap: &dyn Tap) {
        self.show(|packet, reason| tap.dropped(packet, None, reason));
        tap.unseen(self.wire.saturating_sub(self.shown.wire_packets()));
    }

    /// Counts everything in `counters` and frees it.
    pub fn settle(&mut self, counters: &DropCounters) {
        if self.wire == 0 {
            return;
        }
        if let Some(tap) = counters.tap() {
            self.show_rest(&*tap);
        }
        for (&reason, count) in DropReason::ALL.iter().zip(&mut self.counts) {
            if *count != 0 {
                counters.count(reason, u64::from(std::mem::take(count)));
            }
        }
        self.wire = 0;
        drop(self.packets.take());
        drop(self.shown.take());
    }
}
