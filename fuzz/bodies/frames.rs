//! Frames out of bytes that somebody else made: of a stream, and of files of packets.
//!
//! The input of `stream` is the size of the pieces in which the rest arrives (2 bytes,
//! little-endian), and the rest. That of `packet_file` is a file.

use softnet_io::pcap::PacketFile;
use softnet_io::stream::Deframer;
use softnet_wire::MAX_FRAME;

/// Whatever is sent, in whatever pieces: frames are those that a plain reading finds, up to a
/// length that lies.
pub(crate) fn stream(input: &[u8]) {
    let Some((piece, mut rest)) = input.split_first_chunk() else {
        return;
    };
    let piece = usize::from(u16::from_le_bytes(*piece)).max(1);
    let mut expected = rest;
    let mut deframer = Deframer::default();
    while !rest.is_empty() {
        let room = deframer.room();
        assert!(!room.is_empty(), "no room with frames taken");
        let n = piece.min(rest.len()).min(room.len());
        room[..n].copy_from_slice(&rest[..n]);
        deframer.received(n);
        rest = &rest[n..];
        loop {
            let length = expected
                .first_chunk()
                .map(|l| u32::from_be_bytes(*l) as usize);
            match deframer.take() {
                Ok(Some(frame)) => {
                    let length = length.expect("a length");
                    assert_eq!(frame, &expected[4..4 + length]);
                    expected = &expected[4 + length..];
                }
                Ok(None) => {
                    let there = expected.len() - rest.len();
                    assert!(there < 4 || there - 4 < length.expect("a length"));
                    break;
                }
                Err(error) => {
                    assert_eq!(Some(error.0 as usize), length);
                    assert!(error.0 as usize > MAX_FRAME);
                    return;
                }
            }
        }
    }
}

/// Whatever is in a file: packets within bounds, then the end or a reason.
pub(crate) fn packet_file(input: &[u8]) {
    let Ok(mut file) = PacketFile::new(input) else {
        return;
    };
    // A packet takes 12 bytes at least.
    for count in 0..=input.len() {
        match file.next_frame() {
            Ok(Some(frame)) => {
                assert!(frame.data.len() <= 262_144 && frame.data.len() <= frame.len as usize);
                assert_eq!(file.count(), count as u64 + 1);
            }
            Ok(None) => return,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
    panic!("more packets than bytes");
}
