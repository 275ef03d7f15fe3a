//! Mechanisms of a pool that experiments turn off: the same program without one of them is its
//! control. In no build without the feature `controls`.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{PacketList, Pool};

/// Mechanisms that are off; none at first.
#[derive(Debug, Default)]
pub(in crate::mem) struct Controls {
    no_bulk: AtomicBool,
    no_drain: AtomicBool,
}

impl Controls {
    #[inline]
    pub(in crate::mem) fn no_bulk(&self) -> bool {
        self.no_bulk.load(Ordering::Relaxed)
    }

    pub(in crate::mem) fn no_drain(&self) -> bool {
        self.no_drain.load(Ordering::Relaxed)
    }
}

impl Pool {
    /// With false, [`alloc_bulk`](Pool::alloc_bulk) allocates packet by packet, from now on.
    pub fn set_bulk(&self, on: bool) {
        self.inner().controls.no_bulk.store(!on, Ordering::Relaxed);
    }

    /// With false, a thread whose cache is empty looks into the depot first, not into its
    /// remote-free list, from now on.
    pub fn set_drain_before_refill(&self, on: bool) {
        self.inner().controls.no_drain.store(!on, Ordering::Relaxed);
    }

    /// As [`alloc_bulk`](Pool::alloc_bulk), packet by packet.
    pub(in crate::mem) fn alloc_each(&self, n: usize, list: &mut PacketList) -> usize {
        let before = list.len();
        list.extend(std::iter::from_fn(|| self.alloc().ok()).take(n));
        list.len() - before
    }
}

#[cfg(test)]
mod tests {
    use super::super::{all_again, elsewhere, list, small};

    #[test]
    fn lists_are_as_long_packet_by_packet() {
        let pool = small(64);
        pool.set_bulk(false);
        let mut all = list(&pool, 40);
        assert_eq!(pool.alloc_bulk(40, &mut all), 24, "all that there are");
        assert_eq!(all.len(), 64);
        drop(all);
        all_again(&pool);
    }

    #[test]
    fn without_draining_the_depot_comes_first() {
        let pool = small(1024);
        for (on, deferred) in [(true, 0), (false, 128)] {
            let out = list(&pool, 128);
            elsewhere(move || drop(out));
            assert_eq!(pool.thread_stats()[0].deferred, 128);
            pool.set_drain_before_refill(on);
            drop(list(&pool, 1));
            assert_eq!(pool.thread_stats()[0].deferred, deferred);
        }
        all_again(&pool);
    }
}
