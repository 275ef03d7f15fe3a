//! Queue selection: the kernel's rules (`skb_tx_hash`, traffic classes), the queues of workers, and
//! INV-TX-15, INV-MQ-2, INV-MQ-3.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::queue_map::{QueueMap, TcQueues};
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

/// A qdisc that tells flows apart does not compute the hash again by which a packet's queue or ring
/// was chosen.
#[test]
fn the_hash_of_a_choice_is_noted() {
    let pool = pool(4);
    let selector = Selector::new(4);
    let choices: [&dyn Fn(&mut Packet) -> usize; 3] = [
        &|packet| choose(&selector, packet, true),
        &|packet| selector.ring(packet),
        &|packet| select_ring(packet, 4),
    ];
    for choice in choices {
        let mut packet = frame(&pool, 1, 2, 60, 0);
        let chosen = choice(&mut packet);
        assert!(packet.flow_hash().is_some());
        assert_eq!(select_queue(&packet, 4), chosen);
        let mut recorded = frame(&pool, 1, 2, 60, 0);
        recorded.set_queue(Some(3));
        assert_eq!(choice(&mut recorded), 3);
        assert_eq!(recorded.flow_hash(), None, "there was no need of it");
    }
}

#[test]
fn a_single_queue_leaves_nothing_to_choose() {
    let pool = pool(4);
    let selector = Selector::new(1);
    selector.set(&classes(&[(1, 0)], [0; 16]));
    set_worker(1);
    assert!(selector.is_plain());
    assert_eq!(
        choose(&selector, &mut packet(&pool, 9, 3, Some(200)), true),
        0
    );
}

/// A worker's packets take its own queue, whatever was recorded: its number modulo the queues. Of
/// a class with several queues, those are meant.
#[test]
fn a_workers_packets_take_its_own_queue() {
    let pool = pool(64);
    let selector = Selector::new(4);
    let at = |worker, hash, priority, recorded| {
        set_worker(worker);
        choose(
            &selector,
            &mut packet(&pool, hash, priority, recorded),
            true,
        )
    };
    let hashes = [0, 1, u32::MAX];
    assert_eq!(hashes.map(|h| at(1, h, 0, None)), [1; 3]);
    assert_eq!(hashes.map(|h| at(6, h, 0, Some(3))), [2; 3]);
    selector.set(&classes(&[(1, 0), (3, 1)], prio(&[0, 1])));
    assert_eq!(hashes.map(|h| at(6, h, 0, None)), [0; 3]);
    assert_eq!(hashes.map(|h| at(5, h, 1, Some(0))), [3; 3]);
}

/// INV-TX-15: whoever sends a flow's packets, it keeps its queue while one of them waits, and
/// changes it after; also where one of the senders is no worker.
#[test]
fn inv_tx_15_a_flow_stays_while_its_queue_holds_packets() {
    let pool = pool(64);
    let selector = Selector::new(4);
    let at = |worker, hash, empty| {
        set_worker(worker);
        choose(&selector, &mut packet(&pool, hash, 0, None), empty)
    };
    assert_eq!(at(0, 77, false), 0);
    assert_eq!(at(1, 77, false), 0, "packets wait in queue 0");
    assert_eq!(at(1, 78, false), 1, "another flow");
    assert_eq!(at(2, 77, true), 2, "now it may move");
    assert_eq!(at(0, 77, false), 2);
    let outside = |empty| {
        let mut packet = packet(&pool, 77, 0, Some(3));
        std::thread::scope(|scope| {
            let choice = scope.spawn(|| choose(&selector, &mut packet, empty));
            choice.join().unwrap()
        })
    };
    assert_eq!((outside(false), outside(true)), (2, 3));
    // While a list of one sender is on its way, another sender finds the flow held.
    let mut held = Held::default();
    set_worker(2);
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

/// INV-MQ-2, and INV-MQ-3: without classes all is as before.
#[test]
fn inv_mq_2_and_3_a_class_uses_its_own_queues_only() {
    let pool = pool(64);
    let selector = Selector::new(4);
    let map = classes(&[(1, 0), (3, 1)], prio(&[0, 1, 1]));
    let in_class = |at: &dyn Fn(u32, u32, Option<u16>) -> usize| {
        for hash in (0..64).map(|n| n << 26) {
            for recorded in [None, Some(0), Some(1), Some(9)] {
                assert_eq!(at(hash, 0, recorded), 0);
                assert!((1..4).contains(&at(hash, 1, recorded)));
            }
        }
    };
    // A flow that waits in queue 0 is in no class's way.
    let at = |hash, priority, recorded| {
        let mut packet = packet(&pool, hash, priority, recorded);
        choose(&selector, &mut packet, false)
    };
    selector.set(&map);
    in_class(&at);
    in_class(&|hash, priority, recorded| {
        selector.ring(&mut packet(&pool, hash, priority, recorded))
    });
    selector.set(&QueueMap::default());
    assert!(selector.is_plain());
    assert_eq!(at(u32::MAX, 0, None), 3);
    set_worker(0);
    assert_eq!([0, 1 << 26, 2 << 26].map(|hash| at(hash, 0, None)), [0; 3]);
    selector.set(&map);
    in_class(&at);
}

fn any_map() -> impl Strategy<Value = QueueMap> {
    (
        proptest::array::uniform16(0u8..16),
        proptest::collection::vec((0u16..9, 0u16..9), 0..=16),
    )
        .prop_map(|(prio_tc_map, ranges)| classes(&ranges, prio_tc_map))
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
        worker in proptest::option::of(0usize..8),
        empty: bool,
    ) {
        let pool = pool(4);
        let selector = Selector::new(5);
        selector.set(&map);
        worker.into_iter().for_each(set_worker);
        let mut first = packet(&pool, hash, priority, recorded);
        prop_assert!(selector.ring(&mut first) < 5);
        let first = choose(&selector, &mut first, empty);
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
        classes(&[(3, 0)], [0; 16]),
    ];
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (selector, stop) = (&selector, &stop);
            scope.spawn(move || {
                let pool = pool(4);
                set_worker(worker);
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
