//! Tools that the tests of this room share.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::super::PacketList;
use super::super::arena::Block;
use super::super::{Memory, Pool, PoolConfig, close};

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

/// Memory that is counted when it is given back.
#[derive(Debug)]
pub(in crate::mem) struct Area(Block, Arc<AtomicUsize>);

// SAFETY: as for the block it holds.
unsafe impl Memory for Area {
    fn bytes(&self) -> NonNull<[u8]> {
        self.0.bytes()
    }
}

impl Area {
    pub(in crate::mem) fn new(bytes: usize, given_back: &Arc<AtomicUsize>) -> Box<Area> {
        Box::new(Area(Block::new(bytes, 4096).unwrap(), given_back.clone()))
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Areas were given back so often, by whoever noticed that they could be. Waits: another test's
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

/// A pool of 512-byte buffers in an area of its own, and how often that was given back.
pub(in crate::mem) fn in_an_area(buffers: usize) -> (Pool, Arc<AtomicUsize>) {
    let given_back = Arc::default();
    let config = PoolConfig {
        buffers,
        buffer_size: 512,
    };
    let area = Area::new(buffers * 512, &given_back);
    (Pool::with_memory(config, area).unwrap(), given_back)
}
