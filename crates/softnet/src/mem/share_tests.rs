//! Shared packets: the INV-BUF items that concern them by name.

use super::PacketList;
use super::testing::{all_again, elsewhere, list, small};

/// INV-BUF-2: a packet that comes back is fresh, and so is one that was shared.
#[test]
fn inv_buf_2_a_shared_packet_comes_back_fresh() {
    let pool = small(2);
    let mut one = pool.alloc().unwrap();
    assert!(one.append(b"data"));
    let two = one.share(&pool).unwrap();
    let bytes = (one.data().as_ptr(), two.data().as_ptr());
    assert_eq!(bytes.0, bytes.1);
    drop(one);
    drop(two);
    let both = list(&pool, 2);
    let starts: Vec<_> = both.iter().map(|p| p.data().as_ptr()).collect();
    assert_ne!(starts[0], starts[1], "each header has its own buffer again");
    assert!(
        both.iter()
            .all(|p| p.is_empty() && !p.is_shared() && !p.is_chained())
    );
}

/// INV-BUF-8: data is freed once, after the last holder let go, on whatever thread, in whatever
/// order.
#[test]
fn inv_buf_8_shared_data_is_freed_once_by_the_last() {
    for last in if cfg!(miri) { 1..3 } else { 0..4 } {
        let pool = small(64);
        let mut first = pool.alloc().unwrap();
        assert!(first.append(b"head"));
        for part in [b"one", b"two"] {
            let mut segment = pool.alloc().unwrap();
            assert!(segment.append(part));
            first.append_segment(segment);
        }
        first.set_mark(7);
        let mut second = first.share(&pool).unwrap();
        let third = second.share(&pool).unwrap();
        second.set_mark(8);
        second.pull_front(2);
        assert_eq!(
            (first.mark(), third.mark(), first.len(), second.len()),
            (7, 7, 10, 8)
        );
        let fourth = first.share(&pool).unwrap();
        let mut holders = vec![first, second, third, fourth];
        let keep = holders.remove(last);
        elsewhere(move || drop(holders));
        assert!(!keep.is_shared());
        let content: Vec<u8> = keep.segments().flatten().copied().collect();
        assert_eq!(
            content,
            if last == 1 {
                &b"adonetwo"[..]
            } else {
                b"headonetwo"
            }
        );
        assert!(pool.stats().free <= 64 - 3);
        elsewhere(move || drop(keep));
        assert_eq!(pool.stats().free, 64);
        all_again(&pool);
    }
}

/// Shared data cannot be changed; the last holder may change it, and `make_unique` copies it
/// before.
#[test]
fn shared_packets_are_read_only() {
    let (pool, other) = (small(8), small(8));
    let mut one = pool.alloc().unwrap();
    assert!(one.append(b"same"));
    let mut two = one.share(&other).unwrap();
    assert_eq!(
        (two.headroom(), two.tailroom_mut().len(), two.append(b"x")),
        (0, 0, false)
    );
    assert!(one.push_front(1).is_none() && one.push_front(0).is_none());
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one.data_mut()[0] = 0));
    assert!(refused.is_err());
    assert!(two.make_unique(&other));
    two.data_mut()[0] = b'S';
    assert!(one.append(b" again"), "the only holder may");
    assert_eq!((one.data(), two.data()), (&b"same again"[..], &b"Same"[..]));
    // The holder that remains has a header of another pool, and the room of the data's.
    let mut three = one.share(&other).unwrap();
    drop(one);
    assert_eq!(three.push_front(3).map(|room| room.len()), Some(3));
    assert_eq!(three.tailroom_mut().len(), 256 - 10);
    let segment = other.alloc().unwrap();
    three.append_segment(segment);
    drop(pool);
    drop(three);
    drop(two);
    assert_eq!(other.stats().free, 8);
}

/// INV-BUF-8, BUG-BUF-9: shared packets, also as segments of others, and across pools, are freed
/// in lists.
#[test]
fn inv_buf_8_shared_segments_across_pools() {
    let (a, b) = (small(16), small(16));
    let mut data = a.alloc().unwrap();
    assert!(data.append(b"payload"));
    let mut packets = PacketList::new();
    for _ in 0..5 {
        let mut frame = b.alloc().unwrap();
        assert!(frame.append(b"header"));
        frame.append_segment(data.share(&b).unwrap());
        packets.push_back(frame);
    }
    packets.push_back(data);
    assert_eq!((a.stats().free, b.stats().free), (15, 6));
    elsewhere(move || drop(packets));
    assert_eq!((a.stats().free, b.stats().free), (16, 16));
    all_again(&a);
    all_again(&b);
}
