//! Sizes, exhaustion and conservation. The kernel's past errors (BUG-BUF items) are in
//! `bug_tests`, `defer_tests` and `share_tests`; of these, the following cannot happen here:
//!
//! - BUG-BUF-2, as far as routes, connection tracking and namespaces go: a packet refers to other
//!   packets' buffers and to nothing else.
//! - BUG-BUF-4, as far as a notification for each packet goes: there is none; what is told is
//!   that the whole memory is free.
//! - BUG-BUF-8, as far as interrupts go: nothing interrupts a thread inside its cache but a
//!   signal handler, which must not use a pool (`Pool`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use super::testing::{elsewhere, list, small};
use super::*;
use crate::sync::membarrier::CALLS;

#[test]
fn sizes_are_checked() {
    let new = |buffers, buffer_size| {
        Pool::new(PoolConfig {
            buffers,
            buffer_size,
        })
        .map(drop)
    };
    assert_eq!(new(1, 500), Err(PoolError::BufferSize(500)));
    assert_eq!(new(1, 65_600), Err(PoolError::BufferSize(65_600)));
    assert_eq!(new(0, 512), Err(PoolError::Buffers(0)));
    assert_eq!(new(1, 65_536), Ok(()));
}

/// INV-BUF-1: whatever was done, every buffer can be allocated again, and each is another one.
#[test]
fn exhaustion_is_an_error_and_every_buffer_comes_back() {
    let rounds = if cfg!(miri) { 2 } else { 3 };
    let pool = small(100);
    for _ in 0..rounds {
        let mut list = PacketList::new();
        assert_eq!(pool.alloc_bulk(60, &mut list), 60);
        let singles: Vec<_> = (0..40).map(|_| pool.alloc().unwrap()).collect();
        assert_eq!(pool.alloc().map(drop), Err(Exhausted));
        assert_eq!(pool.alloc_bulk(5, &mut list), 0);
        let mut seen = std::collections::HashSet::new();
        let all = singles.iter().chain(list.iter());
        assert!(
            all.map(|p| p.data().as_ptr())
                .all(|start| seen.insert(start))
        );
    }
    assert_eq!(
        pool.stats(),
        PoolStats {
            buffers: 100,
            free: 100,
            exhausted: 2 * rounds,
            ..pool.stats()
        }
    );
}

#[test]
fn buffers_cached_by_threads_that_ended_are_not_stranded() {
    let pool = small(200);
    for _ in 0..if cfg!(miri) { 8 } else { 20 } {
        let pool = pool.clone();
        std::thread::spawn(move || {
            let list: PacketList = (0..10).map(|_| pool.alloc().unwrap()).collect();
            assert_eq!(list.len(), 10);
        })
        .join()
        .unwrap();
    }
    let mut all = PacketList::new();
    assert_eq!(pool.alloc_bulk(200, &mut all), 200);
}

#[test]
fn packets_may_outlive_the_pool_and_two_pools_mix() {
    let (a, b) = (small(8), small(8));
    let mut list = PacketList::new();
    for i in 0..8 {
        list.push_back(if i % 2 == 0 { &a } else { &b }.alloc().unwrap());
    }
    drop(a);
    let mut orphan = list.pop_front().unwrap();
    assert!(orphan.append(b"still here"));
    drop(list);
    assert_eq!(b.stats().free, 8);
    assert_eq!(orphan.data(), b"still here");
    drop(orphan);
    // Sweeps the closed pool; miri reports a leak if it does not.
    drop(small(1));
}

#[test]
fn conservation_over_threads_that_free_what_others_allocated() {
    let (threads, rounds) = if cfg!(miri) { (2, 20) } else { (8, 2000) };
    let pool = small(256);
    std::thread::scope(|scope| {
        for t in 0..threads {
            let (sender, receiver) = mpsc::sync_channel::<PacketList>(4);
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut list = PacketList::new();
                    pool.alloc_bulk(1 + (round + t) % 7, &mut list);
                    let _ = sender.send(list);
                }
            });
            scope.spawn(move || receiver.iter().for_each(drop));
        }
    });
    assert_eq!(pool.stats().free, 256);
}

/// Many threads that allocate and free a lot keep no more than half of a small pool together, so
/// that one that needs more finds it without taking it from them.
#[test]
fn many_caches_hold_half_of_the_pool_together() {
    let (threads, buffers) = if cfg!(miri) { (3, 512) } else { (8, 2048) };
    let pool = small(buffers);
    let barrier = std::sync::Barrier::new(threads);
    let cached = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                drop(pool.alloc().unwrap());
                barrier.wait();
                for _ in 0..if cfg!(miri) { 1 } else { 4 } {
                    let mut list = PacketList::new();
                    let n = buffers / 10;
                    // What a thread that lost its CPU inside the pool has is not to be had then.
                    for _ in 0..1_000_000 {
                        if list.len() == n {
                            break;
                        }
                        pool.alloc_bulk(n - list.len(), &mut list);
                        std::thread::yield_now();
                    }
                    assert_eq!(list.len(), n);
                    drop(list);
                }
                if barrier.wait().is_leader() {
                    cached.store(pool.stats().cached as u64, Ordering::Relaxed);
                }
                // Those that end give back what they have.
                barrier.wait();
            });
        }
    });
    let cached = cached.into_inner();
    let half = buffers as u64 / 2;
    assert!(cached <= half, "{cached} of {buffers} lie in caches");
}

/// Where a pool stays exhausted, few of the allocations that fail raid the caches of other threads;
/// what is free there is found all the same.
#[test]
fn an_exhausted_pool_is_raided_now_and_then() {
    let (buffers, failures) = if cfg!(miri) { (16, 10) } else { (256, 50_000) };
    let pool = small(buffers);
    let mut all = PacketList::new();
    pool.alloc_bulk(buffers, &mut all);
    let freed = all.pop_front();
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(freed);
            // SAFETY: not inside, and left before anything else is done.
            let inside = unsafe { thread::enter(pool.id) }.expect("registered by the free");
            barrier.wait();
            barrier.wait();
            drop(inside);
            // Its exit would give everything back.
            barrier.wait();
            barrier.wait();
        });
        barrier.wait();
        let before = CALLS.get();
        let failed = (0..failures).filter(|_| pool.alloc().is_err()).count();
        let raids = CALLS.get() - before;
        barrier.wait();
        barrier.wait();
        let found = (0..=1024).find_map(|_| pool.alloc().ok());
        barrier.wait();
        assert_eq!(failed, failures, "the other thread is in its cache");
        assert!((1..=16 + failures / 1024).contains(&raids), "{raids} raids");
        assert!(found.is_some(), "a buffer is free");
    });
}

/// Headers that came in magazines are asked for once, ahead of their use; those that were freed
/// here or never used before, not at all.
#[test]
fn headers_that_come_from_elsewhere_are_fetched_once() {
    let pool = small(1024);
    let cold = || {
        let thread = thread::register(pool.inner()).expect("one thread");
        // SAFETY: its owner looks, and is not in it.
        unsafe { thread.lock.peek() }.cold.get()
    };
    drop(list(&pool, 128));
    assert_eq!(cold(), 0);
    let out = list(&pool, 128);
    elsewhere(move || drop(out));
    pool.poll_remote_free();
    assert_eq!(pool.thread_stats()[0].cached, 128);
    assert_eq!(cold(), 96, "those that come first were fetched");
    for _ in 0..2 {
        drop(list(&pool, 32));
        assert_eq!(cold(), 64);
    }
    drop(list(&pool, 128));
    assert_eq!(cold(), 0);
}
