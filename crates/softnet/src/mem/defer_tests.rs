//! Remote frees, thieves and wake-ups: the INV-BUF items by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::cache::CACHE;
use super::testing::{all_again, assert_swept, elsewhere, list, small, watched};
use super::*;

/// The sums of the statistics at rest (INV-BUF-1).
fn conserved(pool: &Pool) {
    let s = pool.stats();
    assert_eq!(s.free, s.cached + s.deferred + s.depot + s.unused, "{s:?}");
}

/// INV-BUF-3: a cache never holds more than its size, and a put at the limit leaves half; a bulk
/// allocation gives as many distinct buffers as it says.
#[test]
fn inv_buf_3_caches_are_bounded() {
    let pool = small(2048);
    let sizes: &[usize] = if cfg!(miri) {
        &[1, 33]
    } else {
        &[1, 31, 32, 33, 127, 128, 129, 400]
    };
    for &n in sizes {
        let mut many = list(&pool, n);
        assert_eq!(many.iter().count(), n);
        while let Some(packet) = many.pop_front() {
            drop(packet);
            assert!(pool.thread_stats()[0].cached <= CACHE);
        }
        drop(list(&pool, n));
        assert!(pool.thread_stats()[0].cached <= CACHE);
    }
    let mut kept = list(&pool, 300);
    let mut rest = Vec::new();
    while pool.thread_stats()[0].cached > 0 {
        rest.push(pool.alloc());
    }
    for _ in 0..CACHE {
        drop(kept.pop_front());
    }
    assert_eq!(pool.thread_stats()[0].cached, CACHE);
    drop(kept.pop_front());
    assert_eq!(pool.thread_stats()[0].cached, CACHE / 2 + 1);
}

/// INV-BUF-4: an allocation that finds too few takes what there is and says so; nothing leaks.
#[test]
fn inv_buf_4_a_short_bulk_allocation_leaks_nothing() {
    let pool = small(50);
    let mut got = PacketList::new();
    assert_eq!(pool.alloc_bulk(80, &mut got), 50);
    assert_eq!(
        (got.len(), pool.stats().exhausted, pool.stats().free),
        (50, 1, 0)
    );
    drop(got);
    all_again(&pool);
}

/// INV-BUF-6: what another thread frees is back in its owner's cache when the owner polls.
#[test]
fn inv_buf_6_packets_return_to_their_owner() {
    let pool = small(1024);
    let out = list(&pool, 64);
    let before = pool.thread_stats()[0];
    elsewhere(move || drop(out));
    let waiting = pool.thread_stats()[0];
    assert_eq!((waiting.deferred, waiting.cached), (64, before.cached));
    pool.poll_remote_free();
    let after = pool.thread_stats()[0];
    assert_eq!((after.deferred, after.drained - before.drained), (0, 64));
    conserved(&pool);
    // Back in the cache, they are what is allocated next, before the depot.
    let depot = pool.stats().depot;
    drop(list(&pool, 64));
    assert_eq!(pool.stats().depot, depot);
}

/// INV-BUF-6 for a thread that uses more pools than it finds at once: each is looked into.
#[test]
fn inv_buf_6_packets_return_in_any_number_of_pools() {
    let pools: Vec<_> = (0..if cfg!(miri) { 7 } else { 40 })
        .map(|_| small(256))
        .collect();
    for pool in &pools {
        let out = list(pool, pool.inner().batch);
        elsewhere(move || drop(out));
    }
    for pool in &pools {
        assert!(pool.thread_stats()[0].deferred > 0);
        pool.poll_remote_free();
        assert_eq!(pool.thread_stats()[0].deferred, 0);
        assert!(pool.prepare_sleep());
    }
    pools.iter().for_each(Pool::poll_remote_free);
    for pool in &pools {
        let thread = super::thread::register(pool.inner()).unwrap();
        assert!(!thread.asleep.load(Ordering::Relaxed));
    }
}

/// The statistics say where freed packets went: to their owner in magazines, past a full
/// remote-free list to the depot, each magazine one exchange.
#[test]
fn statistics_count_returns_to_owners_and_depot_exchanges() {
    let pool = small(1024);
    let out = list(&pool, 64);
    let before = pool.stats();
    assert_eq!(
        (before.depot_ops, before.remote_freed),
        (2, 0),
        "64 buffers never used before, 32 at once"
    );
    elsewhere(move || drop(out));
    let sent = pool.stats();
    assert_eq!((sent.remote_freed, sent.depot_ops), (64, 2));
    pool.poll_remote_free();
    assert_eq!(pool.stats().depot_ops, 2);
    pool.set_defer_max(32);
    let out = list(&pool, 96);
    let before = pool.stats();
    elsewhere(move || drop(out));
    let after = pool.stats();
    assert_eq!(
        (
            after.remote_freed - before.remote_freed,
            after.bypassed - before.bypassed,
            after.depot_ops - before.depot_ops
        ),
        (32, 64, 2)
    );
    all_again(&pool);
}

/// A thread that allocates as much as it frees for others keeps that, up to half its cache; when
/// it allocates no more, all goes to the owner.
#[test]
fn balanced_threads_keep_what_they_free() {
    let pool = small(if cfg!(miri) { 512 } else { 4096 });
    let rounds = if cfg!(miri) { 4 } else { 20 };
    let mut foreign: Vec<_> = (0..2 * rounds).map(|_| list(&pool, 32)).collect();
    let theirs = pool.clone();
    elsewhere(move || {
        let mut own = Vec::new();
        for packets in foreign.drain(..rounds) {
            own.push(list(&theirs, 32));
            drop(packets);
        }
        let owner = theirs.thread_stats()[0];
        assert_eq!(
            (owner.deferred, theirs.stats().bypassed),
            (theirs.inner().batch, 0),
            "all but the first magazine"
        );
        for packets in foreign {
            drop(packets);
        }
        let cached = theirs.thread_stats()[1].cached;
        assert!(cached <= CACHE / 2, "{cached}");
        conserved(&theirs);
        drop(list(&theirs, 1));
    });
    all_again(&pool);
}

/// INV-BUF-6, BUG-BUF-6: if the owner is gone, its packets are freed nevertheless, and
/// what it held can be allocated.
#[test]
fn inv_buf_6_nothing_stays_with_a_thread_that_exited() {
    let pool = small(256);
    let theirs = pool.clone();
    let packets = elsewhere(move || {
        drop(list(&theirs, 60));
        list(&theirs, 60)
    });
    assert_eq!(pool.stats().cached, 0, "the thread gave back its cache");
    drop(packets);
    elsewhere(move || {
        assert_eq!(pool.stats().deferred, 0);
        conserved(&pool);
        all_again(&pool);
    });
}

/// INV-BUF-5 and INV-BUF-9: a remote-free list never holds more than the limit, from any number of
/// threads; what is too much goes to the depot.
#[test]
fn inv_buf_5_and_9_the_remote_free_list_is_bounded() {
    let pool = small(if cfg!(miri) { 512 } else { 4096 });
    pool.set_defer_max(50);
    let threads = if cfg!(miri) { 2 } else { 8 };
    let lists: Vec<_> = (0..threads).map(|_| list(&pool, 100)).collect();
    thread::scope(|scope| {
        let mut freeing = Vec::new();
        for packets in lists {
            let pool = &pool;
            freeing.push(scope.spawn(move || {
                for packet in packets {
                    drop(packet);
                    assert!(pool.thread_stats()[0].deferred <= 50);
                }
            }));
        }
        // The end of the scope does not wait for a thread that still gives its cache back.
        freeing.into_iter().for_each(|t| t.join().unwrap());
    });
    let stats = pool.stats();
    assert_eq!(stats.free, stats.buffers);
    assert!(
        stats.deferred <= 50 && stats.bypassed >= 100 * threads as u64 - 50 - 32 * threads as u64
    );
    all_again(&pool);
}

/// INV-BUF-10: without deferral everything stays with the thread that frees it, and nobody is
/// woken.
#[test]
fn inv_buf_10_deferral_can_be_turned_off() {
    let pool = small(1024);
    pool.set_defer_max(0);
    pool.set_waker(|| panic!("woken"));
    let packets = list(&pool, 100);
    let (sent, freed) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let theirs = pool.clone();
    let thread = thread::spawn(move || {
        drop(packets);
        let owner = theirs.thread_stats()[1];
        sent.send((owner.cached, owner.outgoing)).unwrap();
        let _ = ended.recv();
    });
    let (cached, outgoing) = freed.recv().unwrap();
    let stats = pool.stats();
    assert_eq!(
        (outgoing, stats.deferred, stats.kicks, stats.bypassed),
        (0, 0, 0, 0)
    );
    assert_eq!(cached, 100);
    drop(end);
    thread.join().unwrap();
    all_again(&pool);
}

/// INV-BUF-11, BUG-BUF-5: the owner in a packet is a thread that allocated, or none.
#[test]
fn inv_buf_11_owners_are_valid() {
    let pool = small(64);
    let mine = pool.alloc().unwrap();
    let theirs = pool.clone();
    let other = elsewhere(move || theirs.alloc().unwrap());
    let owners = pool.thread_stats().len();
    assert_eq!(owners, 2);
    for packet in [&mine, &other] {
        assert!(usize::from(packet.header().owner) < owners);
    }
}

/// INV-BUF-5, BUG-BUF-10: a sleeping owner is woken at half the bound, once, and again only after
/// it slept again.
#[test]
fn inv_buf_5_one_wake_up_a_sleep() {
    let pool = small(1024);
    pool.set_defer_max(64);
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    pool.set_waker(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let free = |n| {
        let out = list(&pool, n);
        assert!(pool.prepare_sleep());
        elsewhere(move || drop(out));
    };
    free(31);
    assert_eq!(woken.load(Ordering::Relaxed), 0, "below half the bound");
    pool.poll_remote_free();
    free(300);
    assert_eq!((woken.load(Ordering::Relaxed), pool.stats().kicks), (1, 1));
    assert!(pool.stats().bypassed > 0);
    pool.poll_remote_free();
    // Awake: nobody is woken.
    let out = list(&pool, 64);
    elsewhere(move || drop(out));
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    assert!(pool.prepare_sleep(), "the list was taken in before");
    pool.poll_remote_free();
    free(64);
    assert_eq!(woken.load(Ordering::Relaxed), 2);
}

/// A waker may use the pool.
#[test]
fn a_waker_may_allocate() {
    let pool = small(256);
    pool.set_defer_max(8);
    let theirs = pool.clone();
    pool.set_waker(move || drop(theirs.alloc()));
    let out = list(&pool, 16);
    pool.prepare_sleep();
    elsewhere(move || drop(out));
    assert_eq!(pool.stats().kicks, 1);
    pool.poll_remote_free();
    // The waker holds a handle; it goes with the thread's registration.
    pool.set_waker(|| {});
}

/// Nothing is stranded: a sleeping thread's cache, magazines and remote-free list are taken before
/// an allocation fails.
#[test]
fn sleeping_threads_are_stolen_from() {
    let pool = small(512);
    let foreign = list(&pool, 40);
    let theirs = pool.clone();
    let (ready, is_ready) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let sleeper = thread::spawn(move || {
        let own = list(&theirs, 20);
        drop(foreign);
        drop(own);
        ready.send(list(&theirs, 10)).unwrap();
        let _ = ended.recv();
        all_again(&theirs);
    });
    // Freed here for the sleeper, who does not take them in.
    drop(is_ready.recv().unwrap());
    pool.prepare_sleep();
    pool.poll_remote_free();
    let owner = pool.thread_stats()[1];
    assert!(
        owner.cached > 0 && owner.deferred > 0 && owner.outgoing > 0,
        "{owner:?}"
    );
    all_again(&pool);
    assert!(pool.stats().stolen > 0);
    drop(end);
    sleeper.join().unwrap();
}

/// INV-BUF-7: a packet has no side effect that could be late: when the free returns, the pool
/// counts it as free, wherever it is.
#[test]
fn inv_buf_7_a_deferred_packet_counts_as_free_at_once() {
    let pool = small(64);
    let packet = pool.alloc().unwrap();
    let theirs = pool.clone();
    elsewhere(move || {
        drop(packet);
        assert_eq!(theirs.stats().free, 64);
    });
}

/// A thread may still allocate and free in a destructor that runs after its caches are gone.
#[test]
fn unregistered_threads_may_allocate_and_free() {
    struct Late(
        std::cell::RefCell<Vec<Packet>>,
        std::cell::RefCell<Option<Pool>>,
    );
    impl Drop for Late {
        fn drop(&mut self) {
            // Whichever destructor runs first: this must work.
            let pool = self.1.take().unwrap();
            self.0.borrow_mut().extend(pool.alloc());
            self.0.borrow_mut().clear();
        }
    }
    use std::cell::RefCell;
    thread_local!(static LATE: Late = const {
        Late(RefCell::new(Vec::new()), RefCell::new(None))
    });
    let pool = small(64);
    for order in [false, true] {
        let theirs = pool.clone();
        elsewhere(move || {
            let pool = theirs;
            if order {
                drop(pool.alloc());
            }
            LATE.with(|late| {
                *late.1.borrow_mut() = Some(pool.clone());
                late.0
                    .borrow_mut()
                    .extend((0..20).map(|_| pool.alloc().unwrap()));
            });
        });
        assert_eq!(pool.stats().free, 64);
    }
    all_again(&pool);
}

/// Caches of threads that exited are used again.
#[test]
fn thread_caches_are_reused() {
    let pool = small(256);
    for _ in 0..if cfg!(miri) {
        5
    } else {
        2 * thread_cache::THREADS
    } {
        let pool = pool.clone();
        elsewhere(move || drop(list(&pool, 3)));
    }
    assert_eq!(pool.thread_stats().len(), 1);
}

/// The last packet frees a pool without handles, whichever thread drops it; a waker with the last
/// handle does not hang.
#[test]
fn the_last_packet_frees_the_pool() {
    let (pool, freed) = watched(64);
    let mut packet = pool.alloc().unwrap();
    let shared = packet.share(&pool).unwrap();
    let theirs = pool.clone();
    let far = elsewhere(move || theirs.alloc().unwrap());
    drop(pool);
    drop(packet);
    drop(far);
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    elsewhere(move || drop(shared));
    assert_swept(&freed, 1);
}

/// Many more threads than CPUs, all registered at the same time, each freeing what another
/// allocated.
#[test]
fn two_hundred_and_forty_threads_share_a_pool() {
    let threads = if cfg!(miri) { 4 } else { 240 };
    let pool = small(8192);
    let barrier = std::sync::Barrier::new(threads);
    let mail: Vec<_> = (0..threads)
        .map(|_| std::sync::Mutex::new(PacketList::new()))
        .collect();
    thread::scope(|scope| {
        for t in 0..threads {
            let (pool, mail, barrier) = (&pool, &mail, &barrier);
            scope.spawn(move || {
                // The first use registers it.
                drop(pool.alloc());
                barrier.wait();
                for _ in 0..20 {
                    let fresh = list(pool, 17);
                    let old =
                        std::mem::replace(&mut *mail[(t + 1) % threads].lock().unwrap(), fresh);
                    drop(old);
                    drop(mail[t].lock().unwrap().take());
                }
            });
        }
    });
    // What is still in the mail is freed here: in a cache that a thread gave up, or, if none of
    // them is that far yet, in one more.
    drop(mail);
    assert_eq!(pool.stats().free, 8192);
    let owners = pool.thread_stats().len();
    assert!((threads..=threads + 1).contains(&owners), "{owners}");
}
