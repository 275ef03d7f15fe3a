//! `merge` as the inverse of `segment`.

use proptest::prelude::*;

use super::testing::{Frame, Transport, bytes_of, large_frames, packet, pool};
use super::*;
use crate::mem::{Packet, PacketList, Pool};
use crate::wire::Gso;

const ALL: Features = Features {
    checksum: true,
    tso4: true,
    tso6: true,
    ecn: true,
    uso: true,
    scatter_gather: true,
    mtu: 1500,
};

/// The wire packets that a large frame with `frame`'s headers and payload is cut into.
fn datagrams(frame: &Frame, size: u16, pool: &Pool) -> PacketList {
    let mut large = packet(&frame.bytes());
    large.set_checksum(Some(frame.checksum()));
    let segments = frame.payload.len().div_ceil(usize::from(size)) as u16;
    large.set_gso((segments > 1).then(|| Gso {
        kind: frame.kind(),
        ecn: false,
        size,
        segments,
        header_len: frame.header_len() as u16,
    }));
    let mut out = PacketList::new();
    segment(large, usize::MAX, pool, &mut out).unwrap();
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

/// Packets that leave when every large frame is cut again.
fn cut_again(list: PacketList, pool: &Pool) -> Vec<Vec<u8>> {
    let mut out = PacketList::new();
    for packet in list {
        segment(packet, usize::MAX, pool, &mut out).unwrap();
    }
    bytes(&out)
}

proptest! {
    /// Segment, merge, segment: every byte is the same, whatever the frame.
    #[test]
    fn merging_is_undone_by_segmenting(frame in large_frames(4000), size in 1_u16..1600) {
        let mut frame = frame;
        if let Transport::Tcp { flags, .. } = &mut frame.transport
            && *flags & 1 == 0
        {
            // Half of them as data in the middle of a connection.
            *flags = 0x10 | *flags & 0x48;
        }
        let mergeable = match &frame.transport {
            Transport::Tcp { flags, .. } => flags & !(0x08 | 0x40) == 0x10,
            _ => true,
        };
        let size = size.max(frame.payload.len().div_ceil(200) as u16).max(frame.least_size());
        let pool = pool(800, 2048);
        let mut list = datagrams(&frame, size, &pool);
        let (wire, wire_len) = (bytes(&list), list.bytes());
        merge(&mut list, &ALL);
        prop_assert_eq!(list.wire_packets(), wire.len() as u64);
        prop_assert_eq!(list.iter().map(Packet::wire_len).sum::<u64>(), wire_len);
        if frame.options == 0 && mergeable && wire.len() > 1 {
            prop_assert!(list.len() < wire.len(), "nothing was merged");
        }
        prop_assert_eq!(cut_again(list, &pool), wire);
        prop_assert_eq!(pool.stats().free, pool.stats().buffers);
    }

    /// Flows that are mixed, with packets of all kinds between: each flow's packets stay in
    /// order, and none is lost or changed.
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
        merge(&mut list, &ALL);
        let mut after = cut_again(list, &pool);
        // IPv4 identifications of datagrams that are never fragmented may change: compare without
        // them and the header's checksum.
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

/// Merges frames whose checksums are complete, or pending if `pending`; returns how many
/// datagrams each result stands for.
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
    merge(&mut list, &ALL);
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

/// TCP segments as they come from a sender without segmentation offload.
fn segments(sizes: &[usize]) -> Vec<Frame> {
    let mut seq = 0xFFFF_FF00_u32;
    let mut frames = Vec::new();
    for (n, &len) in sizes.iter().enumerate() {
        frames.push(Frame {
            id: n as u16,
            seq,
            transport: Transport::Tcp {
                options: 3,
                flags: 0x10,
            },
            ..Frame::tcp(false, len)
        });
        seq = seq.wrapping_add(len as u32);
    }
    frames
}

fn with_flags(frame: &mut Frame, flags: u8) {
    frame.transport = Transport::Tcp { options: 3, flags };
}

/// Ends of a large TCP frame: a shorter segment, PSH, a gap, another acknowledgement, another flag.
#[test]
fn tcp_segments_merge_as_far_as_they_join() {
    for pending in [false, true] {
        let check = |change: &dyn Fn(&mut Vec<Frame>), expected: &[usize]| {
            let mut frames = segments(&[100; 6]);
            change(&mut frames);
            assert_eq!(merged(&frames, pending, |_, _| ()), expected);
        };
        check(&|_| (), &[6]);
        check(&|f| f[2].payload.truncate(99), &[3, 3]);
        check(&|f| with_flags(&mut f[2], 0x18), &[3, 3]);
        check(&|f| with_flags(&mut f[0], 0x18), &[1, 5]);
        check(&|f| with_flags(&mut f[2], 0x11), &[2, 1, 3]);
        check(&|f| with_flags(&mut f[2], 0x50), &[2, 1, 3]);
        check(&|f| f[3].seq = f[3].seq.wrapping_add(1), &[3, 1, 2]);
        check(&|f| drop(f.remove(2)), &[2, 3]);
        check(&|f| f.swap(2, 3), &[2, 1, 1, 2]);
        check(&|f| f[4].traffic_class = 0, &[4, 1, 1]);
        check(&|f| f.iter_mut().for_each(|f| f.payload.clear()), &[1; 6]);
    }
    // Another window or acknowledgement.
    for at in [14 + 20 + 8, 14 + 20 + 14] {
        let one = merged(&segments(&[100; 4]), true, |n, p| {
            if n == 2 {
                p.data_mut()[at] ^= 1;
            }
        });
        assert_eq!(one, [2, 1, 1]);
    }
}

/// Only what the driver takes.
#[test]
fn kinds_that_the_driver_does_not_take_stay_alone() {
    let pool = pool(100, 2048);
    let tcp6_only = Features {
        tso4: false,
        uso: false,
        ..ALL
    };
    let no_checksum = Features {
        checksum: false,
        ..ALL
    };
    let no_chains = Features {
        scatter_gather: false,
        ..ALL
    };
    for frames in [segments(&[100; 3]), sized(&[20; 3])] {
        let mut list: PacketList = frames
            .iter()
            .map(|frame| {
                let mut p = small(&pool, &frame.bytes());
                p.set_checksum(Some(frame.checksum()));
                p
            })
            .collect();
        for features in [tcp6_only, no_checksum, no_chains] {
            merge(&mut list, &features);
            assert_eq!(list.len(), 3);
        }
    }
}
