//! `merge` as the inverse of `segment`.

use proptest::prelude::*;

use super::testing::{Frame, Transport, bytes_of, large_frames, packet, pool};
use super::*;
use crate::pool::Pool;

/// The wire packets that a large UDP frame with `frame`'s headers and payload is cut into.
fn datagrams(frame: &Frame, size: u16, pool: &Pool) -> PacketList {
    let mut large = packet(&frame.bytes());
    large.set_checksum(Some(frame.checksum()));
    let segments = frame.payload.len().div_ceil(usize::from(size)) as u16;
    large.set_gso((segments > 1).then(|| Gso {
        kind: GsoKind::Udp,
        ecn: false,
        size,
        segments,
        header_len: frame.header_len() as u16,
    }));
    let mut out = PacketList::new();
    segment(large, pool, &mut out).unwrap();
    out
}

/// A frame that fits one buffer.
fn small(pool: &Pool, bytes: &[u8]) -> Packet {
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(bytes));
    packet
}

fn bytes(list: &PacketList) -> Vec<Vec<u8>> {
    list.iter().map(bytes_of).collect()
}

/// What leaves when every large frame is cut again.
fn cut_again(list: PacketList, pool: &Pool) -> Vec<Vec<u8>> {
    let mut out = PacketList::new();
    for packet in list {
        segment(packet, pool, &mut out).unwrap();
    }
    bytes(&out)
}

proptest! {
    /// Segment, merge, segment: every byte is the same, whatever the frame.
    #[test]
    fn merging_is_undone_by_segmenting(frame in large_frames(4000), size in 1_u16..1600) {
        let frame = Frame { transport: Transport::Udp, ..frame };
        let size = size.max(frame.payload.len().div_ceil(200) as u16);
        let pool = pool(800, 2048);
        let mut list = datagrams(&frame, size, &pool);
        let (wire, wire_len) = (bytes(&list), list.bytes());
        merge(&mut list);
        prop_assert_eq!(list.wire_packets(), wire.len() as u64);
        prop_assert_eq!(list.iter().map(Packet::wire_len).sum::<u64>(), wire_len);
        if frame.options == 0 && wire.len() > 1 {
            prop_assert!(list.len() < wire.len(), "nothing was merged");
        }
        prop_assert_eq!(cut_again(list, &pool), wire);
        prop_assert_eq!(pool.stats().free, pool.stats().buffers);
    }

    /// Flows that are mixed, with packets of all kinds between: each flow's packets stay in order, and none is lost or changed.
    #[test]
    fn mixed_flows_keep_their_order(
        frames in proptest::collection::vec(large_frames(300), 1..30),
        flows in proptest::collection::vec(0..11_u16, 30),
    ) {
        let pool = pool(200, 2048);
        let mut list = PacketList::new();
        for ((n, frame), flow) in frames.iter().enumerate().zip(flows) {
            let payload = frame.payload[..frame.payload.len().min(40)].to_vec();
            let plain = Frame { ports: (flow, 7), id: n as u16, payload, ..Frame::default() };
            let frame = if flow < 10 { &plain } else { frame };
            let mut p = small(&pool, &frame.bytes());
            if matches!(frame.transport, Transport::Udp) {
                p.set_checksum(Some(frame.checksum()));
                fill_checksum(&mut p).unwrap();
            }
            list.push_back(p);
        }
        let mut before = bytes(&list);
        merge(&mut list);
        let mut after = cut_again(list, &pool);
        // IPv4 identifications of datagrams that are never fragmented may change: compare without them and the header's checksum.
        for frame in before.iter_mut().chain(&mut after).filter(|f| f[12..15] == [8, 0, 0x45]) {
            frame[18..20].fill(0);
            frame[24..26].fill(0);
        }
        for flow in 0..10_u8 {
            let of_flow = |f: &&Vec<u8>| f[12..15] == [8, 0, 0x45] && f[34..38] == [0, flow, 0, 7];
            prop_assert!(before.iter().filter(of_flow).eq(after.iter().filter(of_flow)));
        }
        before.sort();
        after.sort();
        prop_assert!(before == after, "a frame was lost or changed");
    }
}

/// Merges frames whose checksums are complete, or pending if `pending`; returns how many datagrams each result stands for.
fn merged(frames: &[Frame], pending: bool, change: impl Fn(usize, &mut Packet)) -> Vec<usize> {
    let pool = pool(100, 2048);
    let mut list = PacketList::new();
    for (n, frame) in frames.iter().enumerate() {
        let mut p = small(&pool, &frame.bytes());
        p.set_checksum(Some(frame.checksum()));
        if !pending {
            fill_checksum(&mut p).unwrap();
        }
        change(n, &mut p);
        list.push_back(p);
    }
    merge(&mut list);
    list.iter().map(|p| p.wire_packets() as usize).collect()
}

fn sized(sizes: &[usize]) -> Vec<Frame> {
    let frame = |(n, &len): (usize, &usize)| Frame {
        id: n as u16,
        ..Frame::udp(false, len)
    };
    sizes.iter().enumerate().map(frame).collect()
}

#[test]
fn a_shorter_datagram_ends_a_frame_and_a_longer_one_begins_one() {
    for pending in [false, true] {
        let merged = |sizes: &[usize]| merged(&sized(sizes), pending, |_, _| ());
        assert_eq!(merged(&[20, 20, 20]), [3]);
        assert_eq!(merged(&[20, 20, 9, 9, 9, 20]), [3, 2, 1]);
        assert_eq!(merged(&[1000, 1000, 1000]), [3], "chained");
        assert_eq!(merged(&[20; 70]), [64, 6]);
    }
}

/// Each of these must reach the receiver as it came, for the receiver to judge.
#[test]
fn damaged_and_peculiar_datagrams_stay_alone() {
    let frames = sized(&[20, 20, 20]);
    let damage = |at: usize| {
        merged(&frames, false, |n, p| {
            if n == 1 {
                p.data_mut()[at] ^= 1;
            }
        })
    };
    assert_eq!(damage(24), [1, 1, 1], "IPv4 header checksum");
    assert_eq!(damage(40), [1, 1, 1], "UDP checksum");
    assert_eq!(damage(50), [1, 1, 1], "payload");
    assert_eq!(damage(0).len(), 2, "another destination is another flow");
    let no_checksum = |_: usize, p: &mut Packet| p.data_mut()[40..42].fill(0);
    assert_eq!(merged(&frames, false, no_checksum), [1, 1, 1]);
    let each = |change: fn(&mut Frame)| {
        let mut frames = frames.clone();
        frames.iter_mut().for_each(change);
        merged(&frames, true, |_, _| ())
    };
    assert_eq!(each(|f| f.padding = 4), [1, 1, 1]);
    assert_eq!(each(|f| f.payload.clear()), [1, 1, 1]);
    assert_eq!(each(|f| f.options = 1), [1, 1, 1]);
}
