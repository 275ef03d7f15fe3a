//! Frames as packets, for the tests of this module.

use crate::mem::{Packet, Pool, PoolConfig};

#[allow(dead_code, reason = "the tests of softnet-wire use the rest")]
#[path = "../../../softnet-wire/tests/wire/frames.rs"]
pub(super) mod frames;

pub(super) use frames::{
    Frame, Transport, damage, damaged, frames, large_frames, verified_payload, vnet_header,
};

pub(super) fn pool(buffers: usize, buffer_size: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size,
    })
    .expect("a small pool")
}

/// The frame as a packet of one segment, in a pool of its own.
pub(super) fn packet(bytes: &[u8]) -> Packet {
    let mut packet = pool(1, 65_536).alloc().expect("the pool is fresh");
    packet.reserve(0);
    if !packet.append(bytes) {
        // Longer than the largest buffer.
        return chained(bytes, &[60_000]);
    }
    packet
}

/// The frame as a packet whose segments end at `cuts`, which must ascend.
pub(super) fn chained(bytes: &[u8], cuts: &[usize]) -> Packet {
    let pool = pool(cuts.len() + 1, 65_536);
    let part = |from: usize, to: usize| {
        let mut packet = pool.alloc().expect("the pool has a buffer for each part");
        packet.reserve(0);
        assert!(packet.append(&bytes[from..to]), "a part fits a buffer");
        packet
    };
    let mut ends = cuts
        .iter()
        .map(|&c| c.min(bytes.len()))
        .chain([bytes.len()]);
    let mut from = ends.next().unwrap_or(0);
    let mut packet = part(0, from);
    for to in ends {
        packet.append_segment(part(from, to));
        from = to;
    }
    packet
}

/// All bytes of a packet.
pub(super) fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}
