//! `Packet::apply`: round trips, and what it accepts. Lies by name are tested in `softnet-wire`.

use proptest::prelude::*;

use super::fuzz_tests::vnet::finish;
use super::testing::{
    Frame, Transport, chained, damage, damaged, frames, large_frames, packet, verified_payload,
    vnet_header,
};
use super::*;
use crate::mem::Packet;
use crate::stats::DropReason;
use crate::stats::DropReason::BadHeader;
use crate::wire::{Checksum, VNET_HDR_LEN, VnetHeader};

/// Reasons for which a header is refused.
const REFUSALS: [DropReason; 4] = [
    DropReason::Runt,
    DropReason::BadHeader,
    DropReason::BadGso,
    DropReason::BadChecksumOffload,
];
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

fn apply(header: VnetHeader, bytes: &[u8]) -> Result<Packet, DropReason> {
    let mut packet = packet(bytes);
    packet.apply(&header).map(|()| packet)
}

/// Headers with fields near what might pass.
fn headers() -> impl Strategy<Value = VnetHeader> {
    let number = || prop_oneof![0..100_u16, 0..2000_u16, any::<u16>()];
    let gso_type = prop_oneof![
        Just(0),
        Just(1),
        Just(4),
        Just(5),
        Just(0x81),
        Just(3),
        any::<u8>()
    ];
    let offset = prop_oneof![Just(16), Just(6), Just(2), number()];
    (0..8_u8, gso_type, number(), number(), number(), offset).prop_map(
        |(flags, gso_type, hdr_len, size, start, offset)| VnetHeader {
            gso_type,
            hdr_len: hdr_len.into(),
            gso_size: size.into(),
            ..vnet_header(flags, Checksum { start, offset })
        },
    )
}

proptest! {
    #[test]
    fn bytes_round_trip(bytes: [u8; VNET_HDR_LEN]) {
        prop_assert_eq!(VnetHeader::from_bytes(&bytes).to_bytes(), bytes);
    }

    #[test]
    fn arbitrary_headers_are_finished_or_refused_without_a_change(
        header in headers(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut packet = packet(&bytes);
        match packet.apply(&header) {
            Ok(()) => drop(finish(packet)),
            Err(reason) => {
                prop_assert!(REFUSALS.contains(&reason), "{reason:?}");
                prop_assert_eq!(packet.data(), bytes);
                prop_assert_eq!((packet.gso(), packet.checksum()), (None, None));
                prop_assert!(!packet.checksum_verified());
            }
        }
    }

    /// An honest header, a damaged frame, and the other way round.
    #[test]
    fn what_is_accepted_can_be_finished(
        frame in frames(2000),
        damage in damage(),
        size in 1..2000_u16,
        wrong in prop::option::of(headers()),
        field in 0..6_usize,
        cut: prop::sample::Index,
    ) {
        let bytes = damaged(frame.bytes(), damage);
        let mut header = frame.vnet_header(size);
        if let Some(wrong) = wrong {
            match field {
                0 => header.flags = wrong.flags,
                1 => header.gso_type = wrong.gso_type,
                2 => header.hdr_len = wrong.hdr_len,
                3 => header.gso_size = wrong.gso_size,
                4 => header.csum_start = wrong.csum_start,
                _ => header.csum_offset = wrong.csum_offset,
            }
        }
        let mut parts = chained(&bytes, &[cut.index(bytes.len() + 1)]);
        if parts.apply(&header).is_ok() {
            finish(parts);
        }
        if let Ok(packet) = apply(header, &bytes) {
            finish(packet);
        }
    }

    /// From header to metadata and back, to wire packets with right checksums.
    #[test]
    fn honest_headers(frame in large_frames(3000), size in 1..3000_u16, ecn: bool) {
        let size = size.max(frame.least_size());
        let tcp = matches!(frame.transport, Transport::Tcp { .. });
        let mut header = frame.vnet_header(size);
        if ecn && tcp {
            header.gso_type |= 0x80;
        }
        let packet = apply(header, &frame.bytes()).unwrap();
        let segments = frame.payload.len().div_ceil(usize::from(size));
        if segments > 1 {
            let gso = packet.gso().unwrap();
            prop_assert_eq!(usize::from(gso.segments), segments);
            prop_assert_eq!(usize::from(gso.header_len), frame.header_len());
            prop_assert_eq!((gso.size, gso.ecn), (size, ecn && tcp));
            prop_assert_eq!(VnetHeader { num_buffers: 0.into(), ..packet.vnet_header() }, header);
        } else {
            prop_assert_eq!(packet.gso(), None);
        }
        prop_assert_eq!(packet.checksum(), Some(frame.checksum()));
        let payload: Vec<u8> = finish(packet).iter().flat_map(|b| verified_payload(b)).collect();
        prop_assert_eq!(payload, frame.payload);
    }
}

#[test]
fn fields_lie_where_virtio_has_them() {
    let header = VnetHeader::from_bytes(&[1, 0x84, 0x42, 0, 0xa8, 0x05, 0x22, 0, 0x10, 0, 1, 0]);
    assert_eq!(
        (header.flags, header.gso_type, header.hdr_len.get()),
        (1, 0x84, 66)
    );
    assert_eq!((header.gso_size.get(), header.csum_start.get()), (1448, 34));
    assert_eq!(
        (header.csum_offset.get(), header.num_buffers.get()),
        (16, 1)
    );
}

#[test]
fn no_offload_asks_for_nothing() {
    // Nothing is looked at, not even whether it is a frame.
    let packet = apply(VnetHeader::default(), &[1, 2, 3]).unwrap();
    assert_eq!(
        (packet.gso(), packet.checksum(), packet.checksum_verified()),
        (None, None, false)
    );
    let header = packet.vnet_header();
    assert_eq!(header.to_bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
}

#[test]
fn data_valid_travels() {
    let header = VnetHeader {
        flags: DATA_VALID,
        ..VnetHeader::default()
    };
    let packet = apply(header, &Frame::default().bytes()).unwrap();
    assert!(packet.checksum_verified());
    assert_eq!(packet.vnet_header().flags, DATA_VALID);
    // A checksum that is still to be filled in was not verified.
    let frame = Frame::default();
    let both = vnet_header(NEEDS_CSUM | DATA_VALID, frame.checksum());
    assert!(!apply(both, &frame.bytes()).unwrap().checksum_verified());
}

#[test]
fn unknown_flags_are_ignored() {
    // virtio 1.2 5.1.6.2: bits that the device does not know.
    let packet = apply(
        VnetHeader {
            flags: 0xfc,
            ..VnetHeader::default()
        },
        &[0; 14],
    )
    .unwrap();
    assert_eq!(packet.checksum(), None);
}

#[test]
fn gso_tcp_with_a_complete_checksum_gets_new_ones() {
    for v6 in [false, true] {
        let frame = Frame::tcp(v6, 3000);
        let mut complete = packet(&frame.bytes());
        complete.set_checksum(Some(frame.checksum()));
        fill_checksum(&mut complete).unwrap();
        for flags in [0, DATA_VALID] {
            let header = VnetHeader {
                flags,
                ..frame.vnet_header(1000)
            };
            let packet = apply(header, complete.data()).unwrap();
            assert_eq!(packet.checksum(), Some(frame.checksum()));
            // The same bytes as from a sender that left the checksum out.
            assert_eq!(packet.data(), frame.bytes());
            let payload: Vec<u8> = finish(packet)
                .iter()
                .flat_map(|b| verified_payload(b))
                .collect();
            assert_eq!(payload, frame.payload);
        }
    }
}

#[test]
fn gso_that_fits_one_wire_packet_is_none() {
    let frame = Frame::tcp(false, 1000);
    for size in [1000, 1001, u16::MAX] {
        let packet = apply(frame.vnet_header(size), &frame.bytes()).unwrap();
        assert_eq!((packet.gso(), packet.wire_packets()), (None, 1));
        assert_eq!(verified_payload(&finish(packet)[0]), frame.payload);
    }
    assert_eq!(
        apply(frame.vnet_header(999), &frame.bytes())
            .unwrap()
            .wire_packets(),
        2
    );
    // No payload at all.
    let empty = Frame::tcp(false, 0);
    assert_eq!(
        apply(empty.vnet_header(1), &empty.bytes()).unwrap().gso(),
        None
    );
}

/// The smallest wire packets that an honest stack asks for pass, however many they are; smaller
/// ones have a drop reason of their own.
#[test]
fn no_smaller_wire_packets_than_any_honest_stack_makes() {
    for v6 in [false, true] {
        let frame = Frame::tcp(v6, 65_000);
        let packet = apply(frame.vnet_header(8), &frame.bytes()).unwrap();
        assert_eq!(packet.wire_packets(), 8125);
        for size in 1..8 {
            let refused = apply(frame.vnet_header(size), &frame.bytes()).unwrap_err();
            assert_eq!(refused, DropReason::GsoSize, "{size}");
        }
        let frame = Frame::udp(v6, 128 * 500);
        let packet = apply(frame.vnet_header(500), &frame.bytes()).unwrap();
        assert_eq!(packet.wire_packets(), 128);
        for size in [1, 8, 88, 499] {
            let refused = apply(frame.vnet_header(size), &frame.bytes()).unwrap_err();
            assert_eq!(refused, DropReason::GsoSize, "{size}");
        }
    }
}

#[test]
fn checksum_of_an_inner_packet_in_a_udp_tunnel() {
    // VXLAN over a TAP device: Linux leaves the inner checksum to us.
    let inner = Frame::tcp(true, 200);
    let mut outer = Frame {
        payload: vec![8, 0, 0, 0, 0, 0, 1, 0],
        ..Frame::default()
    };
    outer.payload.extend(inner.bytes());
    let at = outer.header_len() + 8;
    let place = Checksum {
        start: at as u16 + inner.checksum().start,
        ..inner.checksum()
    };
    let packet = apply(vnet_header(NEEDS_CSUM, place), &outer.bytes()).unwrap();
    assert_eq!(verified_payload(&finish(packet)[0][at..]), inner.payload);
}

#[test]
fn vlan_tags_in_front() {
    for vlans in 1..=4 {
        let frame = Frame {
            vlans,
            ..Frame::tcp(false, 3000)
        };
        let packet = apply(frame.vnet_header(1000), &frame.bytes()).unwrap();
        assert_eq!(packet.wire_packets(), 3);
        for wire in finish(packet) {
            // etherparse reads three tags at most; look behind them all.
            verified_payload(&[&wire[..12], &wire[12 + 4 * vlans..]].concat());
        }
    }
    let frame = Frame {
        vlans: 5,
        ..Frame::tcp(false, 3000)
    };
    assert_eq!(
        apply(frame.vnet_header(1000), &frame.bytes()).unwrap_err(),
        BadHeader
    );
}

#[test]
fn a_refused_frame_is_left_unmarked() {
    let frame = Frame::tcp(false, 3000);
    let mut large = packet(&frame.bytes());
    let wrong = VnetHeader {
        gso_type: 4,
        ..frame.vnet_header(1000)
    };
    assert!(large.apply(&wrong).is_err());
    assert_eq!(
        (large.gso(), large.checksum(), large.checksum_verified()),
        (None, None, false)
    );
    assert_eq!(large.data(), frame.bytes());
}
