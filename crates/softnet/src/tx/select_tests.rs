//! Queue selection: the kernel's rules (`skb_tx_hash`, XPS, traffic classes) and INV-TX-15,
//! INV-MQ-2, INV-MQ-3.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::queue_map::{MAX_CPUS, QueueMap, QueueMapError, TcQueues};
use super::select::*;
use crate::mem::{Packet, Pool};
use crate::testing::{frame, pool};

fn packet(pool: &Pool, hash: u32, priority: u32, recorded: Option<u16>) -> Packet {
    let mut packet = frame(pool, 1, 2, 60, 0);
    packet.set_flow_hash(hash);
    packet.set_priority(priority);
    packet.set_queue(recorded);
    packet
}

/// The choice for one packet, after which nothing is held.
fn choose(selector: &Selector, packet: &mut Packet, is_empty: bool) -> usize {
    selector.choose(packet, &mut Held::default(), |_| is_empty)
}

fn classes(ranges: &[(u16, u16)], prio_tc_map: [u8; 16]) -> QueueMap {
    QueueMap {
        prio_tc_map,
        classes: ranges
            .iter()
            .map(|&(count, offset)| TcQueues { count, offset })
            .collect(),
        ..QueueMap::default()
    }
}

fn prio(map: &[u8]) -> [u8; 16] {
    std::array::from_fn(|i| map.get(i).copied().unwrap_or(0))
}

/// `reciprocal_scale(hash, count) + offset`, and the recorded queue brought into the class's
/// range by subtraction.
#[test]
fn chooses_as_skb_tx_hash_does() {
    let pool = pool(64);
    let selector = Selector::new(8);
    let at = |hash, priority, recorded| {
        choose(
            &selector,
            &mut packet(&pool, hash, priority, recorded),
            true,
        )
    };
    assert_eq!(
        [0, 0x2000_0000, u32::MAX].map(|h| at(h, 0, None)),
        [0, 1, 7]
    );
    assert_eq!(
        [0, 7, 8, 23].map(|q| at(u32::MAX, 0, Some(q))),
        [0, 7, 0, 7]
    );
    selector.set(&classes(&[(2, 0), (3, 4)], prio(&[0, 1])));
    assert!(!selector.is_plain());
    assert_eq!([0, u32::MAX].map(|h| at(h, 0, None)), [0, 1]);
    assert_eq!([0, u32::MAX].map(|h| at(h, 1, None)), [4, 6]);
    // Below the offset: taken as it is, then by the count. At or above it: from the offset.
    assert_eq!(
        [0, 1, 3, 4, 6, 7, 10].map(|q| at(0, 1, Some(q))),
        [4, 5, 4, 4, 6, 4, 4]
    );
    // BUG-PF-8: only the low four bits of a priority count.
    assert_eq!(at(0, 0xFFFF_FFF1, None), 4);
}

#[test]
fn a_single_queue_leaves_nothing_to_choose() {
    let pool = pool(4);
    let selector = Selector::new(1);
    selector.set(&QueueMap {
        xps_cpus: vec![vec![0]],
        ..classes(&[(1, 0)], [0; 16])
    });
    assert!(selector.is_plain());
    assert_eq!(
        choose(&selector, &mut packet(&pool, 9, 3, Some(200)), true),
        0
    );
}

/// XPS: the receive-queue map goes before the CPU map, a row with one queue gives it, one with
/// several chooses by hash, an empty one falls to the hash over all.
#[test]
fn maps_of_receive_queues_and_cpus() {
    let pool = pool(64);
    let selector = Selector::new(4);
    selector.set(&QueueMap {
        xps_cpus: vec![vec![3], vec![3, 5], vec![5], vec![]],
        xps_rxqs: vec![vec![], vec![], vec![], vec![7]],
        ..QueueMap::default()
    });
    let at = |cpu, hash, recorded| {
        set_sender_cpu(cpu);
        choose(&selector, &mut packet(&pool, hash, 0, recorded), true)
    };
    assert_eq!((at(3, 0, None), at(3, u32::MAX, None)), (0, 1));
    assert_eq!((at(5, 0, None), at(5, u32::MAX, None)), (1, 2));
    assert_eq!(at(3, 0, Some(7)), 3, "received on queue 7");
    assert_eq!(at(3, 0, Some(6)), 0, "no row for queue 6");
    assert_eq!(at(4, u32::MAX, None), 3, "no row for thread 4: by hash");
    assert_eq!(at(4, u32::MAX, Some(2)), 2, "no row: as recorded");
    assert_eq!(at(MAX_CPUS + 5, u32::MAX, None), 3, "beyond the map");
}

/// INV-TX-15: whoever sends a flow's packets, it keeps its queue while one of them waits, and
/// changes it after.
#[test]
fn inv_tx_15_a_flow_stays_while_its_queue_holds_packets() {
    let pool = pool(64);
    let selector = Selector::new(4);
    selector.set(&QueueMap {
        xps_cpus: vec![vec![0], vec![1], vec![2], vec![]],
        ..QueueMap::default()
    });
    let at = |cpu, hash, empty| {
        set_sender_cpu(cpu);
        choose(&selector, &mut packet(&pool, hash, 0, None), empty)
    };
    assert_eq!(at(0, 77, false), 0);
    assert_eq!(at(1, 77, false), 0, "packets wait in queue 0");
    assert_eq!(at(1, 78, false), 1, "another flow");
    assert_eq!(at(2, 77, true), 2, "now it may move");
    assert_eq!(at(0, 77, false), 2);
    // While a list of one sender is on its way, another sender finds the flow held.
    let mut held = Held::default();
    set_sender_cpu(2);
    for _ in 0..3 {
        assert_eq!(
            selector.choose(&mut packet(&pool, 77, 0, None), &mut held, |_| true),
            2
        );
    }
    assert_eq!(at(1, 77, true), 2);
    held.release();
    assert_eq!(at(1, 77, true), 1);
}

/// INV-MQ-2 with every kind of map, and INV-MQ-3: without classes all is as before.
#[test]
fn inv_mq_2_and_3_a_class_uses_its_own_queues_only() {
    let pool = pool(64);
    let selector = Selector::new(4);
    let everywhere = vec![vec![0]; 4];
    selector.set(&QueueMap {
        xps_cpus: everywhere.clone(),
        xps_rxqs: everywhere,
        ..classes(&[(1, 0), (3, 1)], prio(&[0, 1, 1]))
    });
    set_sender_cpu(0);
    for hash in (0..64).map(|n| n << 26) {
        for recorded in [None, Some(0), Some(1), Some(9)] {
            let at = |priority| {
                choose(
                    &selector,
                    &mut packet(&pool, hash, priority, recorded),
                    true,
                )
            };
            assert_eq!(at(0), 0);
            assert!((1..4).contains(&at(1)));
        }
    }
    selector.set(&QueueMap::default());
    assert!(selector.is_plain());
    assert_eq!(
        choose(&selector, &mut packet(&pool, u32::MAX, 0, None), true),
        3
    );
}

#[test]
fn maps_that_do_not_fit_are_refused() {
    use QueueMapError as E;
    let check = |map: &QueueMap| map.check(4).unwrap_err();
    assert_eq!(check(&classes(&[(1, 0); 17], [0; 16])), E::Classes(17));
    let map = E::Map {
        priority: 2,
        class: 2,
        classes: 2,
    };
    assert_eq!(check(&classes(&[(1, 0), (1, 1)], prio(&[0, 1, 2]))), map);
    let none = E::Map {
        priority: 0,
        class: 1,
        classes: 0,
    };
    assert_eq!(check(&classes(&[], prio(&[1]))), none);
    assert_eq!(check(&classes(&[(1, 0), (0, 1)], [0; 16])), E::Empty(1));
    let beyond = E::Beyond {
        class: 0,
        last: 4,
        queues: 4,
    };
    assert_eq!(check(&classes(&[(3, 2)], [0; 16])), beyond);
    assert_eq!(
        check(&classes(&[(2, 0), (1, 3), (2, 1)], [0; 16])),
        E::Overlap(0, 2)
    );
    let rows = QueueMap {
        xps_rxqs: vec![vec![]; 5],
        ..QueueMap::default()
    };
    assert!(matches!(check(&rows), E::Rows { rows: 5, .. }));
    let number = QueueMap {
        xps_cpus: vec![vec![0, 1024]],
        ..QueueMap::default()
    };
    assert!(matches!(
        check(&number),
        E::Number {
            number: 1024,
            most: 1023,
            ..
        }
    ));
    assert_eq!(classes(&[(2, 0), (2, 2)], prio(&[0, 1])).check(4), Ok(()));
}

fn any_map() -> impl Strategy<Value = QueueMap> {
    let sets = || proptest::collection::vec(proptest::collection::vec(0usize..6, 0..4), 0..=5);
    (
        proptest::array::uniform16(0u8..16),
        proptest::collection::vec((0u16..9, 0u16..9), 0..=16),
        sets(),
        sets(),
    )
        .prop_map(|(prio_tc_map, ranges, xps_cpus, xps_rxqs)| QueueMap {
            xps_cpus,
            xps_rxqs,
            ..classes(&ranges, prio_tc_map)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// INV-TX-15, BUG-TX-25: below the number of queues, whatever the map (also one that no check
    /// has passed) and the packet.
    #[test]
    fn inv_tx_15_the_index_is_always_below_the_number_of_queues(
        map in any_map(),
        hash: u32,
        priority: u32,
        recorded in proptest::option::of(0u16..300),
        cpu in 0usize..8,
        empty: bool,
    ) {
        let pool = pool(4);
        let selector = Selector::new(5);
        selector.set(&map);
        set_sender_cpu(cpu);
        let first = choose(&selector, &mut packet(&pool, hash, priority, recorded), empty);
        prop_assert!(first < 5);
        let mut again = packet(&pool, hash, priority, recorded);
        prop_assert_eq!(choose(&selector, &mut again, empty), first);
    }
}

/// The control path changes the map while threads choose: the index stays in range.
#[test]
#[cfg_attr(
    miri,
    ignore = "minutes of spinning senders, and none of the code is unsafe"
)]
fn maps_change_under_the_senders() {
    let selector = Selector::new(3);
    let stop = AtomicBool::new(false);
    let maps = [
        QueueMap::default(),
        classes(&[(1, 2), (2, 0)], prio(&[0, 1])),
        QueueMap {
            xps_cpus: vec![vec![0, 1], vec![1], vec![0]],
            ..QueueMap::default()
        },
        QueueMap {
            xps_rxqs: vec![vec![1], vec![0, 1], vec![]],
            ..classes(&[(3, 0)], [0; 16])
        },
    ];
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let (selector, stop) = (&selector, &stop);
            scope.spawn(move || {
                let pool = pool(4);
                set_sender_cpu(cpu);
                let mut n = 0u32;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    n = n.wrapping_add(0x1357_9BDF);
                    let mut p = packet(&pool, n, n & 1, (n & 2 != 0).then_some(1));
                    assert!(choose(selector, &mut p, n & 4 != 0) < 3);
                }
            });
        }
        for round in 0..2_000 {
            selector.set(&maps[round % maps.len()]);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
