//! Packets that wait beside the discipline, with their wire counts: those the driver gave back, and those adopted but not enqueued yet.

use crate::packet::{Packet, PacketList};

/// Packets that wait beside the discipline, with their wire counts.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    list: PacketList,
    bytes: u64,
    packets: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Frames.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Wire bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Wire packets.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Moves all of `more` to the end.
    pub(super) fn append(&mut self, more: &mut PacketList) {
        self.bytes += bytes(more);
        self.packets += more.wire_packets();
        self.list.append(more);
    }

    /// Takes everything.
    pub(super) fn take(&mut self) -> PacketList {
        (self.bytes, self.packets) = (0, 0);
        self.list.take()
    }

    /// Takes the first `n`, or all.
    pub(super) fn take_front(&mut self, n: usize) -> PacketList {
        let mut front = PacketList::new();
        self.list.split_front(n, &mut front);
        self.bytes -= bytes(&front);
        self.packets -= front.wire_packets();
        front
    }
}

fn bytes(list: &PacketList) -> u64 {
    list.iter().map(Packet::wire_len).sum()
}
