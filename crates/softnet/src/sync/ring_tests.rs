//! The ring on real threads and under miri, and against a plain queue (INV-RING-1, INV-RING-2, INV-RING-3, BUG-PF-7).

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

const EACH: usize = if cfg!(miri) { 40 } else { 30_000 };

/// A chain: what the ring carries. The ring does not look inside, so its nodes are but a number.
#[derive(Debug, PartialEq, Eq)]
struct Chain {
    sender: usize,
    number: usize,
    nodes: usize,
}

fn leak(chain: Chain) -> NonNull<Chain> {
    NonNull::from(Box::leak(Box::new(chain)))
}

fn own(chain: NonNull<Chain>) -> Chain {
    // SAFETY: made by `leak`, and given to us once: miri finds a chain that comes twice or never.
    *unsafe { Box::from_raw(chain.as_ptr()) }
}

/// Puts a chain in, if all of it fits.
fn produce(ring: &Ring<Chain>, sender: usize, number: usize, nodes: usize) -> Result<(), NoRoom> {
    let room = ring.reserve(nodes)?;
    // A chain that fits in part only: its other nodes are refused.
    let nodes = room.nodes();
    ring.publish(
        room,
        leak(Chain {
            sender,
            number,
            nodes,
        }),
    )
    .map_err(|(chain, why)| {
        own(chain);
        why
    })
}

fn consume(consumer: &mut RingConsumer<Chain>) -> Option<Chain> {
    let chain = own(consumer.take()?);
    consumer.release(chain.nodes);
    Some(chain)
}

#[test]
fn the_limit_is_exact_and_a_chain_is_cut() {
    for limit in [1, 2, 3, 7, 64] {
        let (ring, mut consumer) = Ring::new(limit).unwrap();
        for round in 0..5 {
            for n in 0..limit as usize {
                assert_eq!(produce(&ring, round, n, 1), Ok(()));
            }
            assert_eq!(produce(&ring, 0, 0, 1), Err(NoRoom::Full));
            assert_eq!(consume(&mut consumer).unwrap().number, 0);
            // Unlike in the kernel (G7), the slot is free at once; one node of three fits.
            assert_eq!(produce(&ring, 0, 99, 3), Ok(()));
            assert_eq!(ring.len(), limit as usize);
            for n in 1..limit as usize {
                assert_eq!(consume(&mut consumer).unwrap().number, n);
            }
            let last = consume(&mut consumer).unwrap();
            assert_eq!((last.number, last.nodes), (99, 1));
            assert!(consume(&mut consumer).is_none() && consumer.is_empty() && ring.is_empty());
        }
    }
}

/// BUG-PF-7: a ring of size 0 refuses everything and can grow; one above the longest is not made.
#[test]
fn bug_pf_7_a_ring_of_size_0() {
    let (ring, mut consumer) = Ring::new(0).unwrap();
    assert_eq!(produce(&ring, 0, 0, 1), Err(NoRoom::Full));
    assert!(consume(&mut consumer).is_none());
    assert!(consumer.resize(1, |_| unreachable!()));
    assert_eq!(produce(&ring, 0, 0, 1), Ok(()));
    assert_eq!(produce(&ring, 0, 0, 1), Err(NoRoom::Full));
    let mut taken = 0;
    consumer.resize(0, |chain| taken += own(chain).nodes);
    consumer.release(taken);
    assert_eq!((taken, ring.len()), (1, 0));
    assert_eq!(produce(&ring, 0, 0, 1), Err(NoRoom::Full));
    assert!(Ring::<Chain>::new(MAX_LIMIT + 1).is_none());
    assert!(!consumer.resize(MAX_LIMIT + 1, |_| unreachable!()));
}

/// A producer that stops between reserving and publishing holds up nobody: what is behind it leaves, its room stays taken, and it gets in later.
#[test]
fn a_hole_is_passed_when_something_is_behind_it() {
    let (ring, mut consumer) = Ring::new(4).unwrap();
    let late = ring.reserve(2).unwrap();
    assert!(consumer.take().is_none(), "nothing is published");
    assert!(!consumer.is_empty(), "but something is about to be");
    produce(&ring, 1, 0, 1).unwrap();
    assert_eq!(consume(&mut consumer).unwrap().sender, 1);
    assert_eq!(ring.len(), 2, "the late one keeps its room");
    for n in 0..2 {
        produce(&ring, 1, n, 1).unwrap();
    }
    assert_eq!(produce(&ring, 1, 2, 1), Err(NoRoom::Full));
    let chain = leak(Chain {
        sender: 2,
        number: 0,
        nodes: 2,
    });
    assert!(ring.publish(late, chain).is_ok());
    let senders: Vec<_> = std::iter::from_fn(|| consume(&mut consumer))
        .map(|c| c.sender)
        .collect();
    assert_eq!((senders, ring.len()), (vec![1, 1, 2], 0));
}

/// A producer that comes back after the ring was closed or shortened gets its chain back, and its room is free again.
#[test]
fn a_late_producer_is_refused_by_a_changed_ring() {
    let (ring, mut consumer) = Ring::new(8).unwrap();
    let chain = || {
        leak(Chain {
            sender: 0,
            number: 0,
            nodes: 4,
        })
    };
    let late = ring.reserve(4).unwrap();
    consumer.close(|_| unreachable!());
    assert_eq!(produce(&ring, 0, 0, 1), Err(NoRoom::Closed));
    let (refused, why) = ring.publish(late, chain()).unwrap_err();
    assert_eq!(
        (own(refused).nodes, why, ring.len()),
        (4, NoRoom::Closed, 0)
    );
    consumer.resize(8, |_| unreachable!());
    let late = ring.reserve(4).unwrap();
    consumer.resize(2, |_| unreachable!());
    let (refused, why) = ring.publish(late, chain()).unwrap_err();
    assert_eq!((own(refused).nodes, why, ring.len()), (4, NoRoom::Full, 0));
    assert_eq!(produce(&ring, 0, 0, 1), Ok(()));
    let late = ring.reserve(1).unwrap();
    let mut taken = Vec::new();
    consumer.resize(100, |chain| taken.push(own(chain)));
    assert!(ring.publish(late, chain()).is_ok(), "it still fits");
    consumer.release(1);
    assert_eq!((taken.len(), own(consumer.take().unwrap()).sender), (1, 0));
}

/// Several producers, one consumer, and a ring that is resized and closed all the while: every chain comes once or is refused, each
/// producer's in its order, never more than the limit.
#[test]
fn inv_ring_1_2_nothing_is_lost_under_concurrency() {
    let (ring, mut consumer) = Ring::new(8).unwrap();
    let producers = 3;
    let accepted: Vec<AtomicUsize> = (0..producers).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(producers);
    std::thread::scope(|scope| {
        for sender in 0..producers {
            let (ring, accepted, left) = (&ring, &accepted[sender], &left);
            scope.spawn(move || {
                for number in 0..EACH {
                    loop {
                        match produce(ring, sender, number, 1) {
                            Ok(()) => break,
                            // Now and then, a refused chain is gone for good.
                            Err(_) if number % 7 == 0 => break,
                            Err(_) => std::thread::yield_now(),
                        }
                    }
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        let mut next = vec![0; producers];
        let mut seen = |chain: Chain| {
            assert!(
                chain.number >= next[chain.sender],
                "out of order: {chain:?}"
            );
            // Only every seventh may be missing.
            assert!(
                (next[chain.sender]..chain.number).all(|n| n % 7 == 0),
                "lost before {chain:?}"
            );
            next[chain.sender] = chain.number + 1;
        };
        let mut turn = 0_u32;
        loop {
            let over = left.load(Ordering::Acquire) == 0;
            let mut any = false;
            while let Some(chain) = consume(&mut consumer) {
                any = true;
                seen(chain);
                turn += 1;
                if turn.is_multiple_of(64) {
                    break;
                }
            }
            assert!(ring.len() <= 64);
            if over && !any {
                break;
            }
            let mut kept = Vec::new();
            match turn % 9 {
                0 => consumer.close(|chain| kept.push(own(chain))),
                n => assert!(consumer.resize(
                    [3, 16, 5, 1, 33, 64, 2, 9][n as usize - 1],
                    |chain| {
                        kept.push(own(chain));
                    }
                )),
            }
            consumer.release(kept.len());
            kept.into_iter().for_each(&mut seen);
            let mut kept = Vec::new();
            consumer.resize(8, |chain| kept.push(own(chain)));
            consumer.release(kept.len());
            kept.into_iter().for_each(&mut seen);
            std::thread::yield_now();
        }
    });
    assert!(accepted.iter().all(|n| n.load(Ordering::Relaxed) == EACH));
    let mut rest = 0;
    consumer.close(|chain| {
        own(chain);
        rest += 1;
    });
    assert_eq!(
        rest, 0,
        "INV-RING-3: empty means empty once the producers have returned"
    );
}

/// A consumer that stops for good does not keep producers: they are refused.
#[test]
fn producers_never_wait_for_the_consumer() {
    let (ring, consumer) = Ring::new(4).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let refused = (0..10)
                .filter(|&n| produce(&ring, 0, n, 1).is_err())
                .count();
            assert_eq!(refused, 6);
            done.store(true, Ordering::Relaxed);
        });
    });
    assert!(done.load(Ordering::Relaxed));
    let mut consumer = consumer;
    consumer.close(|chain| {
        own(chain);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]

    /// Against a plain queue with the same limit, from a start anywhere in the range of positions.
    #[test]
    fn it_is_a_bounded_queue(
        limit in 0..20_u32,
        steps in proptest::collection::vec((0..8_u8, 1..6_usize, 0..40_u32), 1..120),
    ) {
        let (ring, mut consumer) = Ring::new(limit).unwrap();
        let mut model: VecDeque<(usize, usize)> = VecDeque::new();
        let (mut limit, mut closed) = (limit as usize, false);
        for (number, (step, nodes, size)) in steps.into_iter().enumerate() {
            let length: usize = model.iter().map(|c| c.1).sum();
            match step {
                0..=3 => {
                    let fits = nodes.min(limit.saturating_sub(length));
                    let result = produce(&ring, 0, number, nodes);
                    if closed {
                        prop_assert_eq!(result, Err(NoRoom::Closed));
                    } else if fits == 0 {
                        prop_assert_eq!(result, Err(NoRoom::Full));
                    } else {
                        prop_assert_eq!(result, Ok(()));
                        model.push_back((number, fits));
                    }
                }
                4 | 5 => {
                    let chain = consume(&mut consumer).map(|c| (c.number, c.nodes));
                    prop_assert_eq!(chain, model.pop_front());
                }
                _ => {
                    let mut taken = Vec::new();
                    let mut take = |chain| {
                        let chain = own(chain);
                        taken.push((chain.number, chain.nodes));
                    };
                    if step == 6 {
                        prop_assert!(consumer.resize(size, &mut take));
                        (limit, closed) = (size as usize, false);
                    } else {
                        consumer.close(&mut take);
                        closed = true;
                    }
                    prop_assert_eq!(&taken, &model.drain(..).collect::<Vec<_>>());
                    consumer.release(taken.iter().map(|c| c.1).sum());
                }
            }
            prop_assert_eq!(ring.len(), model.iter().map(|c| c.1).sum::<usize>());
        }
        consumer.close(|chain| {
        own(chain);
    });
    }
}
