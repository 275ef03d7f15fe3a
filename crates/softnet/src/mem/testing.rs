//! What the tests of this room share.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::PacketList;
use super::arena::Block;
use super::{Memory, Pool, PoolConfig, close};

pub(super) fn small(buffers: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size: 512,
    })
    .unwrap()
}

pub(super) fn list(pool: &Pool, n: usize) -> PacketList {
    let mut list = PacketList::new();
    assert_eq!(pool.alloc_bulk(n, &mut list), n);
    list
}

/// Runs `f` on another thread, which has exited when this returns.
pub(super) fn elsewhere<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(f).join().unwrap()
}

/// Every buffer can be allocated, and each is another one.
pub(super) fn all_again(pool: &Pool) {
    let n = pool.stats().buffers;
    let all = list(pool, n);
    let distinct: std::collections::HashSet<_> = all.iter().map(|p| p.data().as_ptr()).collect();
    assert_eq!((distinct.len(), pool.alloc().is_err()), (n, true));
}

/// Memory that is counted when it is given back.
#[derive(Debug)]
pub(super) struct Area(Block, Arc<AtomicUsize>);

// SAFETY: as for the block it holds.
unsafe impl Memory for Area {
    fn bytes(&self) -> NonNull<[u8]> {
        self.0.bytes()
    }
}

impl Area {
    pub(super) fn new(bytes: usize, given_back: &Arc<AtomicUsize>) -> Box<Area> {
        Box::new(Area(Block::new(bytes, 4096).unwrap(), given_back.clone()))
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often areas were given back until now. A closed pool is taken down by whoever notices that
/// it can be; another test that closes one at this moment may have to do it.
pub(super) fn swept(given_back: &AtomicUsize) -> usize {
    for _ in 0..100 {
        close::sweep_all();
    }
    given_back.load(Ordering::Relaxed)
}
