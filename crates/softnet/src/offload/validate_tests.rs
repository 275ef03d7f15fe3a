//! `validate`: what it does at the edges of pool and limit.

use super::testing::{Frame, chained, packet, pool};
use super::*;
use crate::mem::{AccountedLen, PacketList};
use crate::stats::{DropReason, Dropped};

/// A large frame that could not be segmented used to count as if buffers had been taken for all
/// its wire packets, more than one call takes: the subtraction overflowed at the next large
/// frame.
#[test]
fn large_frames_that_cannot_be_segmented_take_no_buffers() {
    let frame = Frame::tcp(false, 3000);
    let mut packets = PacketList::new();
    for _ in 0..2 {
        let mut large = packet(&frame.bytes());
        large.apply(&frame.vnet_header(8)).unwrap();
        assert_eq!(large.wire_packets(), 375);
        packets.push_back(large);
    }
    let empty = pool(1, 2048);
    let _last = empty.alloc().unwrap();
    let mut dropped = Dropped::new();
    let features = Features::default();
    let rest = validate(&mut packets, usize::MAX, &features, &empty, &mut dropped);
    assert!(rest.is_empty() && packets.is_empty());
    assert_eq!(dropped.wire_packets(), 2 * 375);
    assert_eq!(dropped.counts()[DropReason::NoBuffer as usize], 2 * 375);
}

/// A device that knows nothing of CWR would leave it in every wire packet.
#[test]
fn a_device_without_ecn_gets_no_large_frame_with_cwr() {
    let frame = Frame::tcp(false, 3000);
    let mut bytes = frame.bytes();
    let flags = frame.transport_offset() + 13;
    bytes[flags] |= 0x80;
    let mut header = frame.vnet_header(1000);
    header.gso_type |= 0x80;
    for ecn in [false, true] {
        let mut large = packet(&bytes);
        large.apply(&header).unwrap();
        let mut packets = PacketList::from(large);
        let features = Features {
            checksum: true,
            tso4: true,
            tso6: true,
            ecn,
            ..Features::default()
        };
        let pool = pool(8, 2048);
        let mut dropped = Dropped::new();
        validate(&mut packets, usize::MAX, &features, &pool, &mut dropped);
        let cwr: Vec<bool> = packets
            .iter()
            .map(|packet| packet.data()[flags] & 0x80 != 0)
            .collect();
        let expected: &[bool] = if ecn { &[true] } else { &[true, false, false] };
        assert_eq!(cwr, expected);
        assert_eq!(dropped.wire_packets(), 0);
    }
}

/// A device that takes one segment gets whole frames: copied, segmented where they are large, and
/// dropped only where no buffer is long enough.
#[test]
fn a_device_without_scatter_gather_gets_each_frame_in_one_segment() {
    let frame = Frame::tcp(false, 3000);
    let bytes = frame.bytes();
    let mut large = chained(&bytes, &[100, 1000]);
    large.apply(&frame.vnet_header(1000)).unwrap();
    let mut plain = chained(&[7; 1500], &[14, 700]);
    plain.set_mark(5);
    plain.set_accounted(Some(AccountedLen { each: 9, last: 9 }));
    let packets = [plain, large, chained(&[8; 9000], &[5000])];
    let features = Features {
        checksum: true,
        tso4: true,
        mtu: 9000,
        ..Features::default()
    };
    let mut packets = PacketList::from_iter(packets);
    let pool = pool(16, 2048);
    let mut dropped = Dropped::new();
    validate(&mut packets, usize::MAX, &features, &pool, &mut dropped);
    assert!(packets.iter().all(|packet| packet.segments().count() == 1));
    let lens: Vec<usize> = packets.iter().map(|packet| packet.data().len()).collect();
    assert_eq!(lens, [1500, 1066, 1066, 1066]);
    let first = packets.front().unwrap();
    assert_eq!(
        (first.data(), first.mark(), first.wire_len()),
        (&[7; 1500][..], 5, 9)
    );
    assert_eq!(dropped.counts()[DropReason::TooLong as usize], 1);
    assert_eq!(dropped.wire_packets(), 1);

    // With a full buffer there is no headroom, and without buffers there is no packet.
    for (len, buffers, reason) in [(1984, 1, None), (60, 0, Some(DropReason::NoBuffer))] {
        let mut packets = PacketList::from(chained(&vec![3; len], &[20]));
        let pool = super::testing::pool(1, 2048);
        let _held = (buffers == 0).then(|| pool.alloc().unwrap());
        let mut dropped = Dropped::new();
        validate(&mut packets, usize::MAX, &features, &pool, &mut dropped);
        let whole = packets.iter().all(|packet| packet.data() == vec![3; len]);
        assert!(whole && packets.len() == buffers);
        let counted = reason.map_or(0, |reason| dropped.counts()[reason as usize]);
        assert_eq!(counted as usize, 1 - buffers);
    }
}
