use super::*;
use crate::time::Time;
use crate::wire::{Checksum, Gso, GsoKind};

fn pool(buffers: usize, buffer_size: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size,
    })
    .unwrap()
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + 1) as u8).collect()
}

fn content(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// A packet with `data` spread over as many buffers as it takes.
fn chained(pool: &Pool, data: &[u8]) -> Packet {
    let mut packet = pool.alloc().unwrap();
    let room = packet.tailroom_mut().len().min(data.len());
    assert!(packet.append(&data[..room]));
    for part in data[room..].chunks(100) {
        let mut segment = pool.alloc().unwrap();
        assert!(segment.append(part));
        packet.append_segment(segment);
    }
    packet
}

#[test]
fn headroom_data_and_tailroom_add_up() {
    let pool = pool(4, 512);
    let mut p = pool.alloc().unwrap();
    assert_eq!((p.len(), p.headroom()), (0, HEADROOM));
    assert_eq!(p.tailroom_mut().len(), 256);
    assert!(p.append(b"payload"));
    p.push_front(3).unwrap().copy_from_slice(b"hdr");
    assert_eq!(p.data(), b"hdrpayload");
    p.pull_front(1);
    assert_eq!((p.data(), p.headroom()), (&b"drpayload"[..], HEADROOM - 2));
    assert!(p.push_front(HEADROOM).is_none(), "more than the headroom");
    assert!(!p.append(&[0; 512]), "more than the tailroom");
    assert_eq!(p.len(), 9);
}

/// A packet takes what its buffer holds: behind what it has, and no more.
#[test]
fn bytes_that_are_filled_in_are_bounded_by_the_tailroom() {
    let pool = pool(2, 512);
    let mut packet = pool.alloc().unwrap();
    let all = bytes(300);
    let fill = |packet: &mut Packet, n: usize| {
        let rest = &all[packet.len()..];
        packet.extend_with(n, |place| place.copy_from_slice(&rest[..place.len()]))
    };
    assert_eq!(fill(&mut packet, 0), 0);
    assert_eq!(fill(&mut packet, 100), 100);
    assert_eq!(fill(&mut packet, 200), 156);
    assert_eq!(fill(&mut packet, 1), 0);
    assert_eq!((packet.data(), packet.len()), (&all[..256], 256));
    let mut other = packet.share(&pool).unwrap();
    assert_eq!(other.extend_with(1, |_| ()), 0, "it is shared");
}

#[test]
#[should_panic(expected = "extend beyond the buffer")]
fn extend_is_bounded() {
    pool(1, 512).alloc().unwrap().extend(257);
}

#[test]
fn chains_read_copy_and_free_as_one() {
    let pool = pool(40, 512);
    let data = bytes(1500);
    let mut packet = chained(&pool, &data);
    packet.set_priority(6);
    packet.set_gso(Some(Gso {
        kind: GsoKind::Udp,
        ecn: false,
        size: 100,
        segments: 15,
        header_len: 42,
    }));
    assert!(packet.is_chained());
    assert_eq!((packet.len(), packet.wire_packets()), (1500, 15));
    assert_eq!(packet.wire_len(), 1500 + 14 * 42);
    assert_eq!(content(&packet), data);
    let copy = packet.copy(&pool).unwrap();
    drop(packet);
    assert_eq!(
        (
            content(&copy),
            copy.priority(),
            copy.gso().unwrap().segments
        ),
        (data, 6, 15)
    );
    drop(copy);
    assert_eq!(pool.stats().free, 40);
}

#[test]
fn a_fresh_packet_has_nothing_of_the_last_user() {
    let pool = pool(1, 512);
    let mut p = pool.alloc().unwrap();
    assert!(p.append(b"x"));
    p.set_mark(1);
    p.set_flow_hash(2);
    p.set_checksum(Some(Checksum {
        start: 3,
        offset: 4,
    }));
    p.set_timestamp(Time(5));
    p.set_queue(Some(6));
    drop(p);
    let p = pool.alloc().unwrap();
    assert_eq!(
        (p.len(), p.mark(), p.flow_hash(), p.checksum()),
        (0, 0, None, None)
    );
    assert_eq!((p.timestamp(), p.queue(), p.gso()), (Time(0), None, None));
}

/// A departure time is told apart from the time of an arrival, however late that is. Copies have
/// it, too; a fresh packet has none.
#[test]
fn a_departure_time_is_no_arrival() {
    let pool = pool(2, 512);
    let mut p = pool.alloc().unwrap();
    p.set_timestamp(Time(u64::MAX));
    assert_eq!(p.departure_time(), None);
    p.set_departure_time(Time(5));
    assert_eq!(
        (p.departure_time(), p.timestamp()),
        (Some(Time(5)), Time(5))
    );
    let mut copy = pool.alloc().unwrap();
    copy.copy_metadata(&p);
    assert_eq!(copy.departure_time(), Some(Time(5)));
    p.set_timestamp(Time(6));
    assert_eq!((p.departure_time(), p.timestamp()), (None, Time(6)));
    drop((p, copy));
    assert_eq!(pool.alloc().unwrap().departure_time(), None);
}

fn numbered(pool: &Pool, numbers: impl IntoIterator<Item = u32>) -> PacketList {
    numbers
        .into_iter()
        .map(|n| {
            let mut p = pool.alloc().unwrap();
            assert!(p.append(&[0; 10]));
            p.set_mark(n);
            p
        })
        .collect()
}

fn marks(list: &PacketList) -> Vec<u32> {
    list.iter().map(Packet::mark).collect()
}

#[test]
fn lists_keep_order_and_counts() {
    let pool = pool(16, 512);
    let mut list = numbered(&pool, 0..5);
    let mut more = numbered(&pool, 5..7);
    list.append(&mut more);
    list.append(&mut PacketList::new());
    assert!(more.is_empty() && more.bytes() == 0);
    more.append(&mut list);
    assert_eq!(
        (marks(&more), more.len(), more.bytes()),
        ((0..7).collect(), 7, 70)
    );
    let mut front = PacketList::new();
    more.split_front(3, &mut front);
    assert_eq!(
        (marks(&front), marks(&more)),
        (vec![0, 1, 2], vec![3, 4, 5, 6])
    );
    let first = front.pop_front().unwrap();
    more.push_front(first);
    more.for_each_mut(|p| p.set_mark(p.mark() + 10));
    assert_eq!(
        more.into_iter().map(|p| p.mark()).collect::<Vec<_>>(),
        [10, 13, 14, 15, 16]
    );
    drop(front);
    assert_eq!(pool.stats().free, 16);
}

/// Packets are changed where they are: their lengths count, another packet takes the place of one,
/// and a panic loses none.
#[test]
fn packets_of_a_list_are_changed_in_place() {
    let pool = pool(16, 512);
    let mut list = numbered(&pool, 0..5);
    list.for_each_mut(|packet| {
        packet.set_mark(packet.mark() + 10);
        if packet.mark() % 2 == 0 {
            let mut other = pool.packet(&[0; 100]).unwrap();
            other.set_mark(packet.mark());
            *packet = other;
        }
    });
    let (len, bytes) = (list.len(), list.bytes());
    assert_eq!((marks(&list), len, bytes), ((10..15).collect(), 5, 320));
    list.push_back(numbered(&pool, 15..16).pop_front().unwrap());
    let change = std::panic::AssertUnwindSafe(|| {
        list.for_each_mut(|packet| {
            packet.set_mark(packet.mark() + 10);
            assert!(packet.mark() < 23, "enough");
        });
    });
    assert!(std::panic::catch_unwind(change).is_err());
    assert_eq!(marks(&list), [20, 21, 22, 23, 14, 15]);
    let (mut front, mut all) = (PacketList::new(), 0);
    list.split_front(2, &mut front);
    front.append(&mut list);
    while let Some(packet) = front.pop_front() {
        all += packet.len();
    }
    assert_eq!((all, front.bytes(), pool.stats().free), (330, 0, 16));
}

#[test]
fn adoption_keeps_the_order_of_pushes_and_gives_back_what_is_too_much() {
    let pool = pool(16, 512);
    let adoption = PacketAdoption::expecting(0);
    let waiting = adoption.push(numbered(&pool, 0..3), 3, 2);
    assert_eq!(waiting.expect("an empty list takes any chain"), 0);
    let refused = adoption.push(numbered(&pool, 3..5), 2, 4).unwrap_err();
    assert_eq!(
        (marks(&refused), refused.len(), refused.bytes()),
        (vec![3, 4], 2, 20)
    );
    assert_eq!(adoption.push(numbered(&pool, [7]), 1, 4).unwrap(), 3);
    adoption.push(PacketList::new(), 0, 0).unwrap();
    adoption.push(refused, 2, 6).unwrap();
    assert_eq!(adoption.len(), 6);
    let taken = adoption.take();
    assert_eq!(
        (marks(&taken), taken.len(), taken.bytes()),
        (vec![0, 1, 2, 7, 3, 4], 6, 60)
    );
    assert!(adoption.is_empty() && adoption.take().is_empty());
    adoption.push(taken, 6, 0).unwrap();
    drop(adoption);
    assert_eq!(
        pool.stats().free,
        16,
        "dropping the list frees what it holds"
    );
}

/// A packet counts as what is said, until it is taken back; a share of it and a copy count as
/// their own length, and neither disturbs the other.
#[test]
fn what_a_packet_counts_as() {
    let pool = pool(8, 512);
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(&[7; 100]));
    assert_eq!((packet.wire(), packet.accounted()), ((100, 1), None));
    let len = AccountedLen {
        each: 1,
        last: u32::MAX,
    };
    packet.set_accounted(Some(len));
    assert_eq!(packet.wire(), (u64::from(u32::MAX), 1));
    assert_eq!((packet.gso(), packet.accounted()), (None, Some(len)));
    let mut share = packet.share(&pool).unwrap();
    let copy = packet.copy(&pool).unwrap();
    assert_eq!((share.wire(), copy.wire()), ((100, 1), (100, 1)));
    // Both at once: each has a place of its own.
    share.set_accounted(Some(AccountedLen { each: 2, last: 3 }));
    assert_eq!(
        (packet.wire_len(), share.wire_len()),
        (u64::from(u32::MAX), 3)
    );
    drop(packet);
    assert_eq!((share.wire_len(), share.data()), (3, &[7; 100][..]));
    share.set_accounted(None);
    assert_eq!((share.wire(), share.is_plain()), ((100, 1), true));
    let gso = Gso {
        kind: GsoKind::TcpV4,
        ecn: true,
        size: 10,
        segments: 5,
        header_len: 54,
    };
    share.set_gso(Some(gso));
    share.set_accounted(Some(AccountedLen { each: 53, last: 7 }));
    assert_eq!((share.wire(), share.gso()), ((4 * 53 + 7, 5), Some(gso)));
    share.set_segments_left(2);
    assert_eq!(share.wire(), (53 + 7, 2));
    share.set_accounted(None);
    assert!(share.is_partial());
    assert_eq!(share.wire(), (16 + 2 * 54, 2));
    share.set_gso(None);
    share.set_accounted(Some(len));
    share.set_gso(None);
    assert_eq!((share.accounted(), share.wire()), (None, (100, 1)));
    drop((share, copy));
    assert!(!pool.alloc().unwrap().header().flags.has(0xff));
    assert_eq!(pool.stats().free, 8);
}

/// Packets that share data, each on its thread: the one whose buffer it is, too.
#[test]
fn packets_that_share_data_count_on_their_own_threads() {
    let pool = pool(4, 512);
    for last in 1..4 {
        let mut packet = pool.alloc().unwrap();
        assert!(packet.append(&[7; 100]));
        let shares = [(); 2].map(|()| packet.share(&pool).unwrap());
        std::thread::scope(|scope| {
            for (n, mut packet) in (1..).zip(shares.into_iter().chain([packet])) {
                scope.spawn(move || {
                    packet.set_accounted(Some(AccountedLen {
                        each: 1,
                        last: last * n,
                    }));
                    assert_eq!(packet.wire_len(), u64::from(last * n));
                    assert_eq!(packet.data(), &[7; 100]);
                });
            }
        });
    }
    drop(pool);
}

/// Bytes of any number come back in order, in as many segments as they need, or all buffers do.
#[test]
fn a_packet_of_bytes_has_the_segments_it_needs() {
    let pool = Pool::new(PoolConfig {
        buffers: 4,
        buffer_size: 512,
    })
    .unwrap();
    let most = pool.payload_size();
    for len in [
        0,
        1,
        most - 1,
        most,
        most + 1,
        2 * most,
        3 * most + 1,
        4 * most,
    ] {
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let packet = pool.packet(&bytes).unwrap();
        assert_eq!((packet.len(), packet.data().len()), (len, len.min(most)));
        assert_eq!(packet.segments().collect::<Vec<_>>().concat(), bytes);
        assert_eq!(packet.segments().count(), len.div_ceil(most).max(1));
    }
    assert!(pool.packet(&vec![0; 4 * most + 1]).is_err());
    assert_eq!(pool.stats().free, 4, "what was taken for it came back");
}
