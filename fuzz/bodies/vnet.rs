//! Virtio-net headers that lie: each is refused, or the software path finishes what it asks for.
//!
//! Input: the header (12 bytes), the length of the first segment (2, little-endian), the frame.

use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::offload::segment;
use softnet::stats::DropReason;
use softnet::wire::{VNET_HDR_LEN, VnetHeader};

/// The longest first segment; further ones are as long.
const SEGMENT: usize = 60_000;

pub(crate) fn run(input: &[u8]) {
    let Some((header, rest)) = input.split_first_chunk::<VNET_HDR_LEN>() else {
        return;
    };
    let Some((cut, frame)) = rest.split_first_chunk() else {
        return;
    };
    let header = VnetHeader::from_bytes(header);
    assert_eq!(header.to_bytes(), input[..VNET_HDR_LEN]);
    let first = frame
        .len()
        .min(u16::from_le_bytes(*cut).into())
        .min(SEGMENT);
    let mut data = frame[..first].to_vec();
    let offload = header.offload(&mut data, frame.len());
    assert!(offload.is_ok() || data == frame[..first], "changed");

    let large = pool(4 + frame.len() / SEGMENT, 65_536);
    let mut packet = packet(&frame[..first], &large);
    for part in frame[first..].chunks(SEGMENT) {
        packet.append_segment(self::packet(part, &large));
    }
    match (packet.apply(&header), offload) {
        (Ok(()), Ok(offload)) => {
            assert_eq!(packet.checksum(), offload.checksum);
            assert_eq!(packet.checksum_verified(), offload.checksum_verified);
            assert_eq!(packet.gso(), offload.gso);
            finish(packet);
        }
        (Err(reason), Err(error)) => assert_eq!(reason, DropReason::from(error)),
        (found, expected) => panic!("{found:?}, not {expected:?}"),
    }
}

fn pool(buffers: usize, buffer_size: usize) -> Pool {
    let config = PoolConfig {
        buffers,
        buffer_size,
    };
    Pool::new(config).expect("a small pool")
}

fn packet(bytes: &[u8], pool: &Pool) -> Packet {
    let mut packet = pool.alloc().expect("a buffer for each segment");
    packet.reserve(0);
    assert!(packet.append(bytes));
    packet
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Puts accepted metadata to the test: what is let through, the software path finishes. Gives the
/// bytes of the wire packets.
pub(crate) fn finish(packet: Packet) -> Vec<Vec<u8>> {
    let before = bytes(&packet);
    let gso = packet.gso();
    let (packets, wire_len) = (packet.wire_packets(), packet.wire_len());
    // Buffers hold 256 bytes, further ones of a chain 448.
    let (header_len, size) = gso.map_or((0, 0), |gso| (gso.header_len.into(), gso.size.into()));
    let chunk = if size > 448 { 4 } else { 64 };
    let pool = pool(chunk * (2 + (header_len + size) / 448), 512);
    let mut wire = Vec::new();
    let mut rest = Some(packet);
    while let Some(packet) = rest {
        let mut out = PacketList::new();
        rest = segment(packet, chunk, &pool, &mut out).expect("what is accepted can be finished");
        for packet in out {
            assert!(packet.checksum().is_none() && packet.gso().is_none());
            wire.push(bytes(&packet));
        }
    }
    assert_eq!(wire.len() as u64, packets);
    assert_eq!(wire.iter().map(Vec::len).sum::<usize>() as u64, wire_len);
    if gso.is_some() {
        let payloads: Vec<u8> = wire
            .iter()
            .flat_map(|b| &b[header_len..])
            .copied()
            .collect();
        assert_eq!(payloads, before[header_len..]);
    } else {
        assert_eq!(wire[0].len(), before.len());
    }
    assert_eq!(pool.stats().free, pool.stats().buffers);
    wire
}
