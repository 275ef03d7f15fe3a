//! Size of frames on the wire: the wire packets and bytes that they stand for.

use crate::mem::{Packet, PacketList};

/// A frame's size on the wire: one packet, or the packets that a large frame stands for. As it
/// [counts](Packet::set_accounted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSize {
    /// Wire packets, at least 1.
    pub packets: u64,
    /// Wire bytes of all of them.
    pub bytes: u64,
    /// Wire bytes of each but the last.
    pub each: u64,
}

/// Size of all frames of a list on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireSum {
    /// Wire packets.
    pub packets: u64,
    /// Their wire bytes.
    pub bytes: u64,
}

impl From<&PacketList> for WireSum {
    fn from(packets: &PacketList) -> WireSum {
        let mut sum = WireSum::default();
        packets.iter().for_each(|packet| sum.add(packet));
        sum
    }
}

impl WireSum {
    /// Adds a frame.
    #[inline]
    pub fn add(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.packets += packets;
        self.bytes += bytes;
    }
}

impl From<&Packet> for WireSize {
    #[inline]
    fn from(packet: &Packet) -> WireSize {
        let bytes = packet.wire_len();
        match packet.gso() {
            None => WireSize {
                packets: 1,
                bytes,
                each: bytes,
            },
            Some(gso) => WireSize {
                packets: u64::from(gso.segments),
                bytes,
                each: match packet.accounted() {
                    None => u64::from(gso.header_len) + u64::from(gso.size),
                    Some(len) => len.each.into(),
                },
            },
        }
    }
}

impl WireSize {
    /// That of the first wire packet.
    pub fn first(self) -> WireSize {
        let each = self.each.min(self.bytes);
        WireSize {
            packets: 1,
            bytes: each,
            each,
        }
    }
}
