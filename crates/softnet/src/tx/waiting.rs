//! Packets that wait beside the discipline because the driver gave them back, with their wire counts.

use crate::packet::PacketList;

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
        let (bytes, packets) = wire(more);
        self.bytes += bytes;
        self.packets += packets;
        self.list.append(more);
    }

    /// Takes everything.
    pub(super) fn take(&mut self) -> PacketList {
        (self.bytes, self.packets) = (0, 0);
        self.list.take()
    }
}

/// Wire bytes and packets.
fn wire(list: &PacketList) -> (u64, u64) {
    list.iter().fold((0, 0), |(bytes, packets), packet| {
        let (b, p) = packet.wire();
        (bytes + b, packets + p)
    })
}
