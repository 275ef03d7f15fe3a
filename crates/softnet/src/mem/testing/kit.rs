//! Tools that the tests of this room share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::super::PacketList;
use super::super::{Pool, PoolConfig, close};

pub(in crate::mem) fn small(buffers: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size: 512,
    })
    .unwrap()
}

pub(in crate::mem) fn list(pool: &Pool, n: usize) -> PacketList {
    let mut list = PacketList::new();
    assert_eq!(pool.alloc_bulk(n, &mut list), n);
    list
}

/// Runs `f` on another thread, which has exited when this returns.
pub(in crate::mem) fn elsewhere<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(f).join().unwrap()
}

/// Every buffer can be allocated, and each is another one.
pub(in crate::mem) fn all_again(pool: &Pool) {
    let n = pool.stats().buffers;
    let all = list(pool, n);
    let distinct: std::collections::HashSet<_> = all.iter().map(|p| p.data().as_ptr()).collect();
    assert_eq!((distinct.len(), pool.alloc().is_err()), (n, true));
}

/// Counts the pools that are gone.
pub(in crate::mem) struct Gone(pub(in crate::mem) Arc<AtomicUsize>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Pools were freed so often, by whoever noticed that they could be. Waits: another test's
/// thread may have taken the closed pool out of the list and not have freed it yet.
pub(in crate::mem) fn assert_given_back(given_back: &AtomicUsize, times: usize) {
    for _ in 0..10_000 {
        if given_back.load(Ordering::Relaxed) >= times {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(given_back.load(Ordering::Relaxed), times);
}

/// The same after a sweep.
pub(in crate::mem) fn assert_swept(given_back: &AtomicUsize, times: usize) {
    close::sweep();
    assert_given_back(given_back, times);
}

/// A pool of 512-byte buffers, which drops `witness` when it is freed.
pub(in crate::mem) fn witnessed(buffers: usize, witness: impl Send + Sync + 'static) -> Pool {
    let pool = small(buffers);
    let first = pool.inner().arena.witness.set(Box::new(witness));
    assert!(first.is_ok(), "one for each pool");
    pool
}

/// A pool of 512-byte buffers, and how often it was freed.
pub(in crate::mem) fn watched(buffers: usize) -> (Pool, Arc<AtomicUsize>) {
    let given_back = Arc::default();
    let pool = witnessed(buffers, Gone(Arc::clone(&given_back)));
    (pool, given_back)
}
