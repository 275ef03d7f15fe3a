//! Sums over packets that wait beside a qdisc.

use crate::mem::Packet;

/// Frames, wire bytes, wire packets, and bytes of the buffers that hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) frames: usize,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) memory: u64,
}

impl Counts {
    pub(super) fn of<'a>(packets: impl IntoIterator<Item = &'a Packet>) -> Counts {
        let mut sum = Counts::default();
        for packet in packets {
            let (bytes, packets) = packet.wire();
            sum.add(Counts {
                frames: 1,
                bytes,
                packets,
                memory: packet.memory(),
            });
        }
        sum
    }

    pub(super) fn add(&mut self, more: Counts) {
        self.frames += more.frames;
        self.bytes += more.bytes;
        self.packets += more.packets;
        self.memory += more.memory;
    }

    pub(super) fn subtract(&mut self, part: Counts) {
        self.frames -= part.frames;
        self.bytes -= part.bytes;
        self.packets -= part.packets;
        self.memory -= part.memory;
    }
}
