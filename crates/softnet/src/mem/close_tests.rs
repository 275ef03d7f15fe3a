//! The end of a pool: no sweep is missed, and the user's code runs under no lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::ThreadId;

use super::testing::{assert_given_back, elsewhere, small, watched};
use super::*;

/// The last packet is freed while another thread sweeps and has already looked at the pool.
#[test]
fn the_last_packet_comes_during_a_sweep() {
    let (pool, given_back) = watched(64);
    let last = pool.alloc().unwrap();
    drop(pool);
    let sweeping = close::CLOSING.lock();
    let sweeping = sweeping.unwrap_or_else(PoisonError::into_inner);
    elsewhere(move || drop(last));
    assert_eq!(given_back.load(Ordering::Relaxed), 0);
    drop(sweeping);
    close::sweep_again();
    assert_given_back(&given_back, 1);
}

/// The last handle is dropped while a thread is in its cache. Its next free is its last.
#[test]
fn a_pool_is_closed_under_a_thread_that_frees_later() {
    let (pool, given_back) = watched(64);
    let last = pool.alloc().unwrap();
    // SAFETY: used here only; dropped before the thread enters again.
    let inside = unsafe { thread::enter(pool.id) }.expect("registered");
    drop(pool);
    drop(inside);
    assert_eq!(given_back.load(Ordering::Relaxed), 0);
    drop(last);
    assert_given_back(&given_back, 1);
}

/// The same, but it frees no more: it exits, or uses another pool for the first time.
#[test]
fn a_pool_is_closed_under_a_thread_that_frees_no_more() {
    for exits in [true, false] {
        let given_back = elsewhere(move || {
            let (other, (pool, given_back)) = (small(64), watched(64));
            drop(pool.alloc().unwrap());
            // SAFETY: as above.
            let inside = unsafe { thread::enter(pool.id) }.expect("registered");
            drop(pool);
            drop(inside);
            if !exits {
                drop(other.alloc());
                assert_given_back(&given_back, 1);
            }
            given_back
        });
        assert_given_back(&given_back, 1);
    }
}

/// The last handle is dropped while a thread is on the slow path, in its cache or turned away.
#[test]
fn a_pool_is_closed_under_a_thread_on_the_slow_path() {
    for turned_away in [false, true] {
        let (pool, given_back) = watched(64);
        drop(pool.alloc().unwrap());
        let cache = pool.inner().threads.get(0).expect("this thread's").clone();
        let claim = turned_away.then(|| cache.lock.claim().expect("nobody else's"));
        let inner = pool.inner.0;
        let before = given_back.clone();
        // SAFETY: there is a handle until `f` drops it; the thread is not inside.
        unsafe {
            slow::enter(inner, |slow| {
                assert_eq!(slow.thread.is_none(), turned_away);
                drop(pool);
                assert_eq!(before.load(Ordering::Relaxed), 0);
            });
        }
        assert_given_back(&given_back, 1);
        drop(claim);
    }
}

/// A value owned by a waker panics while the pool is freed: nothing of the pool is used afterwards
/// (under miri), and the memory is given back all the same.
#[test]
fn a_waker_may_panic_when_it_is_dropped() {
    /// Here only: another test's sweep may be the one that drops it.
    struct Panics(ThreadId, Arc<AtomicUsize>);
    impl Drop for Panics {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            assert_ne!(self.0, std::thread::current().id(), "a waker's drop");
        }
    }
    let dropped = Arc::default();
    let (pool, given_back) = watched(64);
    let panics = Panics(std::thread::current().id(), Arc::clone(&dropped));
    pool.set_waker(move || assert!(panics.1.load(Ordering::Relaxed) == 0));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(pool)));
    assert_given_back(&given_back, 1);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    drop(small(64).alloc());
}
