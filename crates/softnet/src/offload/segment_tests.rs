//! `segment` and `fill_checksum`, with etherparse as judge of the wire packets.

use proptest::prelude::*;

use super::testing::{
    Frame, Transport, bytes_of, chained, large_frames, packet, pool, verified_payload,
};
use super::*;
use crate::mem::{AccountedLen, Packet, PacketList, Pool};
use crate::stats::DropReason;
use crate::time::Time;
use crate::wire::{Checksum, Gso, GsoKind};

/// Marks the packet as a large one, as a driver would by its virtio-net header.
fn mark(packet: &mut Packet, frame: &Frame, size: u16) {
    let kind = frame.kind();
    let segments = frame.payload.len().div_ceil(usize::from(size)) as u16;
    let header_len = frame.header_len() as u16;
    packet.set_gso(Some(Gso {
        kind,
        ecn: false,
        size,
        segments,
        header_len,
    }));
    packet.set_checksum(Some(frame.checksum()));
}

/// Cuts the frame; checks what holds for all frames; gives the wire packets' bytes.
fn cut(frame: &Frame, mut packet: Packet, size: u16, pool: &Pool) -> Vec<Vec<u8>> {
    mark(&mut packet, frame, size);
    let expected = packet.gso().unwrap();
    let wire_len = packet.wire_len();
    let mut out = PacketList::new();
    segment(packet, usize::MAX, pool, &mut out).unwrap();
    assert_eq!(out.len(), usize::from(expected.segments));
    assert_eq!(out.bytes(), wire_len);
    let wire: Vec<Vec<u8>> = out.iter().map(bytes_of).collect();
    assert!(
        out.iter()
            .all(|p| p.gso().is_none() && p.checksum().is_none())
    );
    drop(out);
    assert_eq!(pool.stats().free, pool.stats().buffers);

    let (last, full) = wire.split_last().unwrap();
    let payloads: Vec<Vec<u8>> = wire.iter().map(|bytes| verified_payload(bytes)).collect();
    assert!(
        payloads[..full.len()]
            .iter()
            .all(|p| p.len() == usize::from(size))
    );
    assert!((1..=usize::from(size)).contains(&(last.len() - frame.header_len())));
    assert_eq!(payloads.concat(), frame.payload);
    check_headers(frame, &wire, size);
    wire
}

/// All header bytes are as in the frame but those that must differ.
fn check_headers(frame: &Frame, wire: &[Vec<u8>], size: u16) {
    let original = frame.bytes();
    let (network, transport) = (frame.network_offset(), frame.transport_offset());
    for (index, bytes) in wire.iter().enumerate() {
        let mut expected = original[..frame.header_len()].to_vec();
        let mut keep =
            |at: usize, n: usize| expected[at..at + n].copy_from_slice(&bytes[at..at + n]);
        // Lengths and checksums: verified by etherparse.
        if frame.v6 {
            keep(network + 4, 2);
        } else {
            keep(network + 2, 2);
            keep(network + 10, 2);
        }
        if let Transport::Tcp { flags, .. } = frame.transport {
            keep(transport + 16, 2);
            let seq = frame.seq.wrapping_add(index as u32 * u32::from(size));
            expected[transport + 4..transport + 8].copy_from_slice(&seq.to_be_bytes());
            let cwr = if index == 0 { 0 } else { 0x80 };
            let fin_psh = if index + 1 == wire.len() { 0 } else { 0x09 };
            expected[transport + 13] = flags & !cwr & !fin_psh;
        } else {
            keep(transport + 4, 4);
        }
        if !frame.v6 {
            let id = frame.id.wrapping_add(index as u16);
            expected[network + 4..network + 6].copy_from_slice(&id.to_be_bytes());
        }
        assert_eq!(
            expected,
            bytes[..frame.header_len()],
            "headers of wire packet {index}"
        );
    }
}

proptest! {
    #[test]
    fn wire_packets_are_right(
        frame in large_frames(3000),
        size: prop::sample::Index,
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        small_buffers: bool,
    ) {
        // Sizes that leave anything from one byte to all but one for the last wire packet.
        let least = usize::from(frame.least_size());
        prop_assume!(least < frame.payload.len());
        let size = least + size.index(frame.payload.len() - least);
        let bytes = frame.bytes();
        let header_len = frame.header_len();
        let mut cuts: Vec<usize> =
            cuts.drain(..).map(|c| header_len + c.index(bytes.len() - header_len + 1)).collect();
        cuts.sort_unstable();
        // In small buffers, a wire packet is a chain.
        let pool = if small_buffers { pool(4000, 576) } else { pool(3000, 4096) };
        cut(&frame, chained(&bytes, &cuts), size as u16, &pool);
    }

    /// In chunks, whatever their length and whether the frame is shared: the same wire packets,
    /// and at each step what was made and what is left are as many packets and bytes as the frame
    /// stood for, also if they count as other than their length.
    #[test]
    fn chunks_are_the_same_wire_packets(
        frame in large_frames(3000),
        size: prop::sample::Index,
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        limits in prop::collection::vec(1..20_usize, 1..8),
        shared: bool,
        accounted: bool,
    ) {
        let least = usize::from(frame.least_size());
        prop_assume!(least < frame.payload.len());
        let size = (least + size.index(frame.payload.len() - least)) as u16;
        let bytes = frame.bytes();
        let header_len = frame.header_len();
        let mut cuts: Vec<usize> =
            cuts.drain(..).map(|c| header_len + c.index(bytes.len() - header_len + 1)).collect();
        cuts.sort_unstable();
        let pool = pool(800, 2048);
        let whole = cut(&frame, chained(&bytes, &cuts), size, &pool);
        let mut large = chained(&bytes, &cuts);
        mark(&mut large, &frame, size);
        if accounted {
            large.set_accounted(Some(AccountedLen { each: 106, last: 53 }));
        }
        let (packets, wire_len) = (large.wire_packets(), large.wire_len());
        let wire_bytes = |made: &PacketList| made.iter().map(Packet::wire_len).sum::<u64>();
        let other = shared.then(|| large.share(&pool).unwrap());
        let mut made = PacketList::new();
        let mut rest = Some(large);
        for limit in limits.iter().cycle() {
            let Some(large) = rest else { break };
            let before = made.len();
            rest = segment(large, *limit, &pool, &mut made).unwrap();
            prop_assert!((1..=*limit).contains(&(made.len() - before)));
            let left = rest.as_ref().map_or((0, 0), |r| (r.wire_packets(), r.wire_len()));
            prop_assert_eq!(left, (packets - made.len() as u64, wire_len - wire_bytes(&made)));
        }
        let (mut lens, bytes): (Vec<u64>, u64) =
            (made.iter().map(Packet::wire_len).collect(), made.bytes());
        if accounted {
            prop_assert_eq!(lens.pop(), Some(53));
            prop_assert!(lens.iter().all(|&len| len == 106));
        } else {
            prop_assert_eq!(lens.iter().sum::<u64>(), bytes);
        }
        prop_assert_eq!(made.iter().map(bytes_of).collect::<Vec<_>>(), whole);
        drop((made, other));
        prop_assert_eq!(pool.stats().free, pool.stats().buffers);
    }

    #[test]
    fn fill_checksum_is_right(
        frame in large_frames(3000),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        padding in 0..9_usize,
    ) {
        let frame = Frame { padding, ..frame };
        let bytes = frame.bytes();
        let header_len = frame.header_len();
        let mut cuts: Vec<usize> =
            cuts.drain(..).map(|c| header_len + c.index(bytes.len() - header_len + 1)).collect();
        cuts.sort_unstable();
        let mut packet = chained(&bytes, &cuts);
        packet.set_checksum(Some(frame.checksum()));
        fill_checksum(&mut packet).unwrap();
        prop_assert_eq!(packet.checksum(), None);
        prop_assert_eq!(verified_payload(&bytes_of(&packet)), frame.payload);
        // Without the mark, nothing changes.
        let before = bytes_of(&packet);
        fill_checksum(&mut packet).unwrap();
        prop_assert_eq!(bytes_of(&packet), before);
    }
}

#[test]
fn the_largest_frames() {
    // 65,535 bytes of IP; sizes of Ethernet, of a jumbo frame and of about the most datagrams.
    for (v6, vlans) in [(false, 0), (true, 2)] {
        let room = 65_535 - if v6 { 0 } else { 20 };
        let mut tcp = Frame::tcp(v6, room - 32);
        let mut udp = Frame::udp(v6, room - 8);
        (tcp.vlans, udp.vlans) = (vlans, vlans);
        for size in [512, 1448, 8948] {
            let pool = pool(400, 2048);
            for frame in [&tcp, &udp] {
                cut(
                    frame,
                    chained(&frame.bytes(), &[1790, 9000, 60_001]),
                    size,
                    &pool,
                );
            }
        }
    }
}

#[test]
fn one_byte_in_the_last_wire_packet() {
    let frame = Frame::tcp(false, 2001);
    let wire = cut(&frame, packet(&frame.bytes()), 1000, &pool(3, 2048));
    assert_eq!(
        wire.iter()
            .map(|b| b.len() - frame.header_len())
            .collect::<Vec<_>>(),
        [1000, 1000, 1]
    );
}

#[test]
fn tcp_flags_fin_psh_at_the_end_cwr_at_the_start() {
    let mut frame = Frame::tcp(true, 3000);
    frame.transport = Transport::Tcp {
        options: 0,
        flags: 0xff,
    };
    let wire = cut(&frame, packet(&frame.bytes()), 1000, &pool(3, 2048));
    let flags: Vec<u8> = wire
        .iter()
        .map(|b| b[frame.transport_offset() + 13])
        .collect();
    assert_eq!(flags, [0xf6, 0x76, 0x7f]);
}

/// With a pseudo-header sum that makes it so, a UDP checksum of zero is sent as 0xffff.
#[test]
fn udp_checksum_is_never_zero() {
    for value in 0..=u16::MAX {
        let mut frame = Frame {
            payload: value.to_be_bytes().to_vec(),
            ..Frame::default()
        };
        frame.payload.extend([0; 4]);
        let mut packet = packet(&frame.bytes());
        packet.set_checksum(Some(frame.checksum()));
        fill_checksum(&mut packet).unwrap();
        let at = frame.transport_offset() + 6;
        let found = [packet.data()[at], packet.data()[at + 1]];
        assert_ne!(found, [0, 0]);
        if found == [0xff, 0xff] {
            verified_payload(packet.data());
            // The same bytes at the front of a frame to be cut.
            frame.payload.push(1);
            let wire = cut(
                &frame,
                super::testing::packet(&frame.bytes()),
                6,
                &pool(2, 2048),
            );
            assert_eq!(wire[0][at..at + 2], [0xff, 0xff]);
            return;
        }
    }
    panic!("one of 65,536 values makes the checksum zero");
}

#[test]
fn metadata_goes_to_every_wire_packet() {
    let frame = Frame::udp(false, 3000);
    let mut packet = packet(&frame.bytes());
    mark(&mut packet, &frame, 1000);
    packet.set_priority(6);
    packet.set_mark(7);
    packet.set_flow_hash(8);
    packet.set_queue(Some(9));
    packet.set_port(10);
    packet.set_departure_time(Time(11));
    let mut out = PacketList::new();
    segment(packet, usize::MAX, &pool(3, 2048), &mut out).unwrap();
    assert_eq!(out.len(), 3);
    for p in out.iter() {
        let numbers = (
            p.priority(),
            p.mark(),
            p.flow_hash(),
            p.queue(),
            p.port(),
            p.departure_time(),
        );
        assert_eq!(numbers, (6, 7, Some(8), Some(9), 10, Some(Time(11))));
        assert_eq!((p.gso(), p.checksum(), p.is_chained()), (None, None, false));
        assert_eq!(p.wire_packets(), 1);
    }
}

#[test]
fn a_frame_that_is_not_large_gets_its_checksum() {
    let frame = Frame::tcp(true, 500);
    let mut packet = packet(&frame.bytes());
    packet.set_checksum(Some(frame.checksum()));
    let mut out = PacketList::new();
    segment(packet, usize::MAX, &pool(1, 2048), &mut out).unwrap();
    let only = out.pop_front().unwrap();
    assert_eq!((only.checksum(), out.len()), (None, 0));
    assert_eq!(verified_payload(only.data()), frame.payload);
}

/// Tries to cut a frame of three wire packets; both the packets in `out` before and the pool's
/// buffers must survive.
fn refused(frame: &Frame, pool: &Pool, change: impl FnOnce(&mut Packet)) -> DropReason {
    let mut large = packet(&frame.bytes());
    mark(&mut large, frame, 1000);
    change(&mut large);
    let packets = large.wire_packets();
    let mut out = PacketList::from(packet(&[0; 60]));
    let error = segment(large, usize::MAX, pool, &mut out).unwrap_err();
    assert_eq!((error.packets, out.len()), (packets, 1));
    assert_eq!(
        pool.stats().free,
        pool.stats().buffers,
        "all buffers are back"
    );
    error.reason
}

#[test]
fn pool_exhausted_while_cutting() {
    let frame = Frame::tcp(false, 3000);
    // No buffer for the third wire packet.
    assert_eq!(
        refused(&frame, &pool(2, 2048), |_| ()),
        DropReason::NoBuffer
    );
    // One for each, but not enough for the chains: 254 + 512 + 234 bytes of payload make three
    // buffers each.
    for buffers in 3..9 {
        assert_eq!(
            refused(&frame, &pool(buffers, 576), |_| ()),
            DropReason::NoBuffer
        );
    }
    cut(&frame, packet(&frame.bytes()), 1000, &pool(9, 576));
}

#[test]
fn headers_longer_than_a_buffer() {
    let mut frame = Frame {
        vlans: 4,
        options: 3,
        ..Frame::tcp(true, 3000)
    };
    frame.transport = Transport::Tcp {
        options: 10,
        flags: 0,
    };
    assert_eq!(frame.header_len(), 178);
    // Lengthen the hop-by-hop header by 80 bytes, to 2 more than the 256 that fit.
    let mut bytes = frame.bytes();
    let at = frame.network_offset() + 40;
    bytes[at + 1] += 10;
    bytes.splice(at + 8..at + 8, [0; 80]);
    let len = (bytes.len() - at) as u16;
    bytes[at - 36..at - 34].copy_from_slice(&len.to_be_bytes());
    let mut large = packet(&bytes);
    large.set_gso(Some(Gso {
        kind: GsoKind::TcpV6,
        ecn: false,
        size: 1000,
        segments: 3,
        header_len: 258,
    }));
    let pool = pool(10, 512);
    let error = segment(large, usize::MAX, &pool, &mut PacketList::new()).unwrap_err();
    assert_eq!((error.reason, error.packets), (DropReason::TooLong, 3));
    assert_eq!(pool.stats().free, 10);
}

#[test]
fn metadata_that_does_not_fit_the_frame_is_refused() {
    let frame = Frame::tcp(false, 3000);
    let pool = pool(10, 2048);
    let gso = Gso {
        kind: GsoKind::TcpV4,
        ecn: false,
        size: 1000,
        segments: 3,
        header_len: frame.header_len() as u16,
    };
    for wrong in [
        Gso {
            kind: GsoKind::TcpV6,
            ..gso
        },
        Gso {
            kind: GsoKind::Udp,
            ..gso
        },
        Gso { size: 0, ..gso },
        Gso { size: 999, ..gso },
        Gso { segments: 2, ..gso },
        Gso {
            header_len: gso.header_len + 4,
            ..gso
        },
        Gso {
            header_len: 0,
            ..gso
        },
        Gso {
            size: 5000,
            segments: 1,
            ..gso
        },
    ] {
        assert_eq!(
            refused(&frame, &pool, |p| p.set_gso(Some(wrong))),
            DropReason::BadGso
        );
    }
    let place = frame.checksum();
    for wrong in [
        Checksum { offset: 6, ..place },
        Checksum { start: 14, ..place },
    ] {
        let reason = refused(&frame, &pool, |p| p.set_checksum(Some(wrong)));
        assert_eq!(reason, DropReason::BadChecksumOffload);
    }
    assert_eq!(
        refused(&frame, &pool, |p| p.data_mut()[14] = 0x15),
        DropReason::BadHeader
    );
}

#[test]
fn fill_checksum_refuses_what_it_cannot_do() {
    let frame = Frame::tcp(false, 100);
    let mut parts = chained(&frame.bytes(), &[40]);
    parts.set_checksum(Some(frame.checksum()));
    assert_eq!(
        fill_checksum(&mut parts),
        Err(DropReason::BadChecksumOffload)
    );
    let mut outside = packet(&frame.bytes());
    outside.set_checksum(Some(Checksum {
        start: u16::MAX,
        offset: u16::MAX,
    }));
    assert_eq!(
        fill_checksum(&mut outside),
        Err(DropReason::BadChecksumOffload)
    );
    let mut large = packet(&frame.bytes());
    mark(&mut large, &frame, 10);
    assert_eq!(fill_checksum(&mut large), Err(DropReason::BadGso));
}

#[test]
fn a_large_frame_without_the_checksum_mark_gets_checksums_too() {
    let frame = Frame::tcp(false, 3000);
    let mut large = packet(&frame.bytes());
    mark(&mut large, &frame, 1000);
    large.set_checksum(None);
    let at = frame.transport_offset() + 16;
    large.data_mut()[at..at + 2].copy_from_slice(&[0xab, 0xcd]);
    let mut out = PacketList::new();
    segment(large, usize::MAX, &pool(3, 2048), &mut out).unwrap();
    let payload: Vec<u8> = out
        .iter()
        .flat_map(|p| verified_payload(p.data()))
        .collect();
    assert_eq!(payload, frame.payload);
}
