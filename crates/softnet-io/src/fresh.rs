//! Empty buffers at a receive queue's hand, and frames copied to them.

use softnet::mem::{HEADROOM, Packet, PacketList, Pool};

use crate::Buffers;

/// Small buffers taken from the pool at once, after twice as few the time before in one poll. What
/// is not used stays with the queue, as the buffers of a hardware ring do: a few, where few frames
/// come at a time.
const REFILL: usize = 16;
/// Bytes that cost as much as a packet to copy.
const FREE_BYTES: usize = 2048;

/// Buffers of a receive queue.
#[derive(Debug)]
pub(crate) struct Fresh {
    buffers: Buffers,
    /// Empty small buffers.
    empty: PacketList,
    /// Small buffers to take from the pool next.
    refill: usize,
}

impl Fresh {
    pub(crate) fn new(buffers: Buffers) -> Fresh {
        Fresh {
            buffers,
            empty: PacketList::new(),
            refill: 1,
        }
    }

    /// A poll begins.
    pub(crate) fn begin(&mut self) {
        self.refill = 1;
    }

    /// The pools that buffers come from.
    pub(crate) fn pools(&self) -> Vec<&Pool> {
        let Buffers { small, large } = &self.buffers;
        std::iter::once(small).chain(large).collect()
    }

    /// Bytes of a frame that one small buffer takes behind the usual headroom.
    pub(crate) fn payload_size(&self) -> usize {
        self.buffers.small.payload_size()
    }

    /// An empty small buffer, if the pool has one. `wanted`: how many are, this one included.
    pub(crate) fn small(&mut self, wanted: usize) -> Option<Packet> {
        if self.empty.is_empty() {
            let wanted = wanted.clamp(1, self.refill);
            self.refill = (2 * self.refill).min(REFILL);
            self.buffers.small.alloc_bulk(wanted, &mut self.empty);
        }
        self.empty.pop_front()
    }

    /// An empty large buffer without headroom, if the pool has one.
    pub(crate) fn large(&mut self) -> Option<Packet> {
        let mut packet = self.buffers.large.as_ref()?.alloc().ok()?;
        packet.reserve(0);
        Some(packet)
    }

    /// A packet of small buffers that holds `bytes`, of which the first `before` are a header that
    /// the caller takes off. `None` if the pool has too few.
    pub(crate) fn copy(&mut self, bytes: &[u8], before: usize, wanted: usize) -> Option<Packet> {
        if self.empty.is_empty() {
            // For a long frame, all that it takes.
            let long = bytes.len().div_ceil(self.payload_size() + before);
            let wanted = wanted.clamp(1, self.refill).max(long);
            self.refill = (2 * self.refill).min(REFILL);
            self.buffers.small.alloc_bulk(wanted, &mut self.empty);
        }
        let mut packet = self.empty.pop_front()?;
        packet.reserve(HEADROOM - before);
        let first = packet.tailroom_mut().len().min(bytes.len());
        let (start, rest) = bytes.split_at(first);
        let _ = packet.append(start);
        self.append(&mut packet, rest).then_some(packet)
    }

    /// Appends `rest` to a packet in small buffers of its own. False if the pool has too few: the
    /// packet is cut short then.
    pub(crate) fn append(&mut self, packet: &mut Packet, mut rest: &[u8]) -> bool {
        while !rest.is_empty() {
            if self.empty.is_empty() {
                let pool = &self.buffers.small;
                let needed = rest.len().div_ceil(pool.payload_size() + HEADROOM);
                pool.alloc_bulk(needed, &mut self.empty);
            }
            let Some(mut segment) = self.empty.pop_front() else {
                return false;
            };
            segment.reserve(0);
            let n = segment.tailroom_mut().len().min(rest.len());
            let _ = segment.append(&rest[..n]);
            packet.append_segment(segment);
            rest = &rest[n..];
        }
        true
    }
}

/// Budget of a poll that a packet uses: a long frame that stands for one packet costs its copying.
pub(crate) fn cost(packet: &Packet) -> usize {
    (packet.wire_packets() as usize).max(packet.len() / FREE_BYTES)
}
