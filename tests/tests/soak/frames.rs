//! Frames whose bytes can be checked where they arrive.

use softnet::wire::VnetHeader;
use softnet_tests::guest::HEADER;

use crate::MACHINES;

/// An EtherType for experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const MAGIC: [u8; 4] = *b"soak";
/// The shortest checked frame: Ethernet header, magic and number.
const LEAST: usize = 22;

pub(crate) type Mac = [u8; 6];
pub(crate) const BROADCAST: Mac = [0xff; 6];

/// The address of a machine.
pub(crate) fn mac(machine: u8) -> Mac {
    [2, 0, 0, 0, 1, machine]
}

/// A frame of this number, at least 22 bytes long.
pub(crate) fn frame(to: Mac, from: Mac, number: u32, len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &ETHERTYPE, &MAGIC, &number.to_be_bytes()].concat();
    let len = len.max(LEAST);
    frame.extend((frame.len()..len).map(|at| (at as u8).wrapping_mul(number as u8 | 1)));
    frame
}

/// The number of a frame; `None` if it is none of ours. The bytes must be those that were sent,
/// or zeroes if the sender may have taken its memory away meanwhile.
pub(crate) fn number(frame: &[u8]) -> Option<u32> {
    if frame.len() < LEAST || frame[12..14] != ETHERTYPE || frame[14..18] != MAGIC {
        return None;
    }
    let number = u32::from_be_bytes(frame[18..22].try_into().expect("four bytes"));
    let from: Mac = frame[6..12].try_into().expect("an address");
    let truncates = MACHINES
        .iter()
        .zip(0..)
        .any(|(machine, n)| !machine.1 && mac(n) == from);
    let same = |(at, byte): (usize, &u8)| {
        *byte == (at as u8).wrapping_mul(number as u8 | 1) || truncates && *byte == 0
    };
    assert!(
        frame.iter().enumerate().skip(LEAST).all(same),
        "frame {number} came with other bytes: {frame:x?}"
    );
    Some(number)
}

/// A large TCP segment of IPv4, `payload` bytes long, with the header that leaves it to the other
/// side.
pub(crate) fn large(to: Mac, from: Mac, payload: usize) -> ([u8; HEADER], Vec<u8>) {
    const SEGMENT: u16 = 1400;
    let ip_len = (40 + payload) as u16;
    let mut frame = [&to[..], &from, &[8, 0, 0x45, 0]].concat();
    frame.extend(ip_len.to_be_bytes());
    // Do not fragment, time to live, TCP, a checksum that follows.
    frame.extend([
        0, 0, 0x40, 0, 64, 6, 0, 0, 10, 9, 9, from[5], 10, 9, 9, to[5],
    ]);
    let sum = softnet::wire::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    // Ports, numbers, a header of 20 bytes with ACK, a window.
    frame.extend([
        0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0,
    ]);
    frame.resize(54 + payload, 0x5a);
    let header = VnetHeader {
        flags: 1,
        gso_type: 1,
        hdr_len: 54.into(),
        gso_size: SEGMENT.into(),
        csum_start: 34.into(),
        csum_offset: 16.into(),
        num_buffers: 0.into(),
    };
    (header.to_bytes(), frame)
}
