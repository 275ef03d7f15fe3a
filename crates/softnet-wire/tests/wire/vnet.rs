//! Virtio-net headers that lie: each is refused with its reason, by name.

use softnet_wire::WireError::{BadChecksumOffload, BadGso, BadHeader, Runt};
use softnet_wire::{Checksum, Offload, VnetHeader, WireError};

use super::frames::{Frame, Transport, vnet_header};

const NEEDS_CSUM: u8 = 1;

fn apply(header: VnetHeader, bytes: &[u8]) -> Result<Offload, WireError> {
    let mut data = bytes.to_vec();
    let result = header.offload(&mut data, bytes.len());
    assert!(
        result.is_ok() || data == bytes,
        "a refused frame was changed"
    );
    result
}

/// The number of wire packets instead.
fn segments(header: VnetHeader, bytes: &[u8]) -> Result<u16, WireError> {
    apply(header, bytes).map(|offload| offload.gso.map_or(1, |gso| gso.segments))
}

#[test]
fn runt_with_offload() {
    let frame = Frame::default();
    for len in 0..14 {
        assert_eq!(
            apply(vnet_header(NEEDS_CSUM, frame.checksum()), &vec![0; len]).unwrap_err(),
            Runt
        );
    }
}

#[test]
fn gso_size_zero() {
    for frame in [
        Frame::tcp(false, 3000),
        Frame::tcp(true, 3000),
        Frame::udp(false, 3000),
    ] {
        assert_eq!(
            apply(frame.vnet_header(0), &frame.bytes()).unwrap_err(),
            BadGso
        );
    }
}

#[test]
fn gso_type_of_another_protocol() {
    for frame in [
        Frame::tcp(false, 3000),
        Frame::tcp(true, 3000),
        Frame::udp(false, 3000),
        Frame::udp(true, 3000),
    ] {
        for gso_type in (0..=255).filter(|&t| t != 0) {
            let right = match (&frame.transport, frame.v6) {
                (Transport::Tcp { .. }, false) => [1, 0x81].contains(&gso_type),
                (Transport::Tcp { .. }, true) => [4, 0x84].contains(&gso_type),
                _ => gso_type == 5,
            };
            let header = VnetHeader {
                gso_type,
                ..frame.vnet_header(1000)
            };
            let result = segments(header, &frame.bytes());
            assert_eq!(
                result,
                if right { Ok(3) } else { Err(BadGso) },
                "type {gso_type:#x}"
            );
        }
    }
}

#[test]
fn udp_fragmentation_offload_is_refused() {
    let frame = Frame::udp(false, 3000);
    let header = VnetHeader {
        gso_type: 3,
        ..frame.vnet_header(1000)
    };
    assert_eq!(apply(header, &frame.bytes()).unwrap_err(), BadGso);
}

#[test]
fn gso_of_what_is_not_ip_not_tcp_or_cut_off() {
    let frame = Frame::tcp(false, 3000);
    let mut arp = frame.bytes();
    arp[13] = 0x06;
    let without_csum = VnetHeader {
        flags: 0,
        ..frame.vnet_header(1000)
    };
    assert_eq!(apply(without_csum, &arp).unwrap_err(), BadGso);
    let icmp = Frame {
        transport: Transport::Icmp,
        ..frame.clone()
    };
    assert_eq!(apply(without_csum, &icmp.bytes()).unwrap_err(), BadGso);
    let without_hint = VnetHeader {
        hdr_len: 0.into(),
        ..without_csum
    };
    assert_eq!(
        apply(without_hint, &frame.bytes()[..60]).unwrap_err(),
        BadHeader
    );
}

#[test]
fn hdr_len_beyond_the_frame() {
    let frame = Frame::tcp(false, 3000);
    let len = frame.bytes().len() as u16;
    for (hdr_len, result) in [
        (len, Ok(3)),
        (len + 1, Err(BadGso)),
        (u16::MAX, Err(BadGso)),
        (0, Ok(3)),
    ] {
        let header = VnetHeader {
            hdr_len: hdr_len.into(),
            ..frame.vnet_header(1000)
        };
        assert_eq!(segments(header, &frame.bytes()), result, "{hdr_len}");
    }
}

#[test]
fn a_lying_hdr_len_inside_the_frame_is_not_believed() {
    let frame = Frame::tcp(true, 3000);
    let header = VnetHeader {
        hdr_len: 14.into(),
        ..frame.vnet_header(1000)
    };
    let gso = apply(header, &frame.bytes()).unwrap().gso.unwrap();
    assert_eq!(usize::from(gso.header_len), frame.header_len());
}

#[test]
fn gso_of_a_fragment() {
    let frame = Frame::tcp(false, 3000);
    let mut bytes = frame.bytes();
    bytes[20] |= 0x20;
    assert_eq!(
        apply(frame.vnet_header(1000), &bytes).unwrap_err(),
        BadChecksumOffload
    );
    let without_csum = VnetHeader {
        flags: 0,
        ..frame.vnet_header(1000)
    };
    assert_eq!(apply(without_csum, &bytes).unwrap_err(), BadGso);
}

#[test]
fn gso_with_bytes_behind_the_ip_packet() {
    for frame in [Frame::tcp(false, 3000), Frame::udp(true, 3000)] {
        let padded = Frame {
            padding: 1,
            ..frame
        };
        assert_eq!(
            apply(padded.vnet_header(1000), &padded.bytes()).unwrap_err(),
            BadGso
        );
    }
}

#[test]
fn gso_udp_length_of_something_else() {
    let frame = Frame::udp(false, 3000);
    let mut bytes = frame.bytes();
    let at = frame.transport_offset() + 4;
    bytes[at..at + 2].copy_from_slice(&1008_u16.to_be_bytes());
    assert_eq!(apply(frame.vnet_header(1000), &bytes).unwrap_err(), BadGso);
}

#[test]
fn gso_udp_must_need_a_checksum() {
    let frame = Frame::udp(false, 3000);
    let header = VnetHeader {
        flags: 0,
        ..frame.vnet_header(1000)
    };
    assert_eq!(apply(header, &frame.bytes()).unwrap_err(), BadGso);
}

#[test]
fn checksum_field_beyond_the_frame() {
    let frame = Frame::tcp(false, 0);
    let len = frame.bytes().len() as u16;
    // GRE, where any place behind the IP header may hold an inner header.
    let mut bytes = frame.bytes();
    bytes[14 + 9] = 47;
    for (start, offset, fits) in [
        (len - 2, 0, true),
        (34, len - 34 - 2, true),
        (len - 1, 0, false),
        (len - 2, 2, false),
        (len, 0, false),
        (u16::MAX, u16::MAX, false),
        (34, u16::MAX - 1, false),
        // In 16 bits, this would be the checksum's place.
        (u16::MAX - 1, 36 + 16, false),
    ] {
        let lie = vnet_header(NEEDS_CSUM, Checksum { start, offset });
        let result = apply(lie, &bytes).map(|_| ());
        assert_eq!(
            result,
            if fits {
                Ok(())
            } else {
                Err(BadChecksumOffload)
            },
            "{start}+{offset}"
        );
    }
}

#[test]
fn checksum_field_in_the_headers_below_or_at_a_wrong_place() {
    for frame in [
        Frame::tcp(false, 100),
        Frame::tcp(true, 100),
        Frame::udp(false, 100),
        Frame::udp(true, 100),
    ] {
        let place = frame.checksum();
        let inner = frame.header_len() as u16;
        for (start, offset) in [
            (0, 0),
            (12, 0),
            (14, 10),
            (place.start - 2, place.offset + 2),
            (inner - 2, 16),
            (inner - 4, 6),
        ] {
            let lie = vnet_header(NEEDS_CSUM, Checksum { start, offset });
            assert_eq!(
                apply(lie, &frame.bytes()).unwrap_err(),
                BadChecksumOffload,
                "{start}+{offset}"
            );
        }
        for offset in (0..40).filter(|&o| o != place.offset) {
            let lie = vnet_header(NEEDS_CSUM, Checksum { offset, ..place });
            assert_eq!(
                apply(lie, &frame.bytes()).unwrap_err(),
                BadChecksumOffload,
                "{offset}"
            );
        }
    }
}

#[test]
fn checksum_field_in_padding_or_at_an_odd_offset() {
    let frame = Frame {
        padding: 20,
        ..Frame::default()
    };
    let end = (frame.bytes().len() - 20) as u16;
    for (start, offset) in [(end, 0), (end - 1, 0), (frame.header_len() as u16, 1)] {
        let lie = vnet_header(NEEDS_CSUM, Checksum { start, offset });
        assert_eq!(apply(lie, &frame.bytes()).unwrap_err(), BadChecksumOffload);
    }
}

#[test]
fn checksum_of_a_fragment() {
    let frame = Frame::udp(false, 100);
    let mut bytes = frame.bytes();
    bytes[21] = 1;
    assert_eq!(
        apply(vnet_header(NEEDS_CSUM, frame.checksum()), &bytes).unwrap_err(),
        BadChecksumOffload
    );
}

/// Written later, it would replace an address that was checked before.
#[test]
fn checksum_in_arp() {
    for tags in [
        &[][..],
        &[0x81, 0, 0, 7],
        &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7],
    ] {
        let request = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
        let bytes = [&[2; 12], tags, &request, &[2; 20]].concat();
        let arp = (14 + tags.len()) as u16;
        for (start, offset) in [(arp, 14), (arp, 16), (arp + 8, 0), (arp + 26, 0)] {
            let lie = vnet_header(NEEDS_CSUM, Checksum { start, offset });
            assert_eq!(apply(lie, &bytes).unwrap_err(), BadChecksumOffload);
        }
    }
}

#[test]
fn checksum_field_outside_the_first_segment() {
    let frame = Frame::tcp(false, 100);
    let mut bytes = frame.bytes();
    let (first, len) = (frame.header_len() - 1, bytes.len());
    let result = vnet_header(NEEDS_CSUM, frame.checksum()).offload(&mut bytes[..first], len);
    assert_eq!(result, Err(BadHeader));
}

#[test]
fn large_frame_with_a_checksum_elsewhere() {
    // In the payload of UDP, as in a tunnel: fine for a frame, not for one to be cut.
    let frame = Frame::udp(false, 3000);
    let start = frame.header_len() as u16 + 50;
    let place = Checksum { start, offset: 16 };
    assert!(apply(vnet_header(NEEDS_CSUM, place), &frame.bytes()).is_ok());
    assert_eq!(
        apply(
            VnetHeader {
                gso_type: 5,
                gso_size: 1000.into(),
                ..vnet_header(NEEDS_CSUM, place)
            },
            &frame.bytes()
        )
        .unwrap_err(),
        BadChecksumOffload
    );
}
