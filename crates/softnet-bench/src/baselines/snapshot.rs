//! The backlog as the kernel had it before its loop was changed (2014): a flag says that the
//! worker is scheduled; the worker looks how much there is, and if that fits its quota it clears
//! the flag *before* it processes it. What arrives meanwhile finds the flag clear, and sends
//! another wake-up.
//!
//! The lists are Softnet's own, lock-free where the kernel's are locked, so that the loop and its
//! flag are all that differs.

use std::sync::atomic::{AtomicBool, Ordering};

use softnet::mem::{PacketAdoption, PacketList};

/// Packets handed to a worker, and whether it has been told.
#[derive(Debug)]
pub(crate) struct Snapshot {
    input: PacketAdoption,
    scheduled: AtomicBool,
    max: usize,
}

/// The worker's side.
#[derive(Debug, Default)]
pub(crate) struct SnapshotOwner {
    process: PacketList,
}

impl Snapshot {
    pub(crate) fn new(max: usize) -> Snapshot {
        Snapshot {
            input: PacketAdoption::expecting(max),
            scheduled: AtomicBool::new(false),
            max,
        }
    }

    /// Appends packets, or gives them back if there is no room. True: the worker is to be told.
    pub(crate) fn push(&self, packets: PacketList) -> Result<bool, PacketList> {
        let count = packets.len();
        self.input.push(packets, count, self.max)?;
        Ok(!self.scheduled.swap(true, Ordering::SeqCst))
    }

    /// True if nothing was handed over since the worker took what there was.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// The worker, which has nothing to do, need not be told while it looks around. False: it has
    /// been told meanwhile.
    pub(crate) fn begin_looking(&self) -> bool {
        !self.scheduled.swap(true, Ordering::SeqCst)
    }

    /// It is to be told again. False: something came before that.
    pub(crate) fn end_looking(&self) -> bool {
        // Before the look at the list, as a sender pushes before it looks at the flag: one of them
        // sees the other.
        self.scheduled.store(false, Ordering::SeqCst);
        if self.is_empty() {
            return true;
        }
        self.scheduled.store(true, Ordering::SeqCst);
        false
    }
}

impl SnapshotOwner {
    /// The loop before the change: up to `quota` packets into `out`, which is empty.
    pub(crate) fn poll(&mut self, backlog: &Snapshot, quota: usize, out: &mut PacketList) {
        if !backlog.scheduled.load(Ordering::SeqCst) {
            return;
        }
        self.process.split_front(quota, out);
        if out.len() == quota {
            return;
        }
        if backlog.input.len() < quota - out.len() {
            // Complete, although what is there is still to be processed. Cleared before the list
            // is taken, so that nothing is left without the flag.
            backlog.scheduled.store(false, Ordering::SeqCst);
        }
        let mut taken = backlog.input.take();
        self.process.append(&mut taken);
        let room = quota - out.len();
        if !backlog.scheduled.load(Ordering::Relaxed) && self.process.len() > room {
            // More came between the look and the taking: the kernel's lock excludes that.
            backlog.scheduled.store(true, Ordering::SeqCst);
        }
        self.process.split_front(room, out);
    }
}

#[cfg(test)]
mod tests {
    use softnet::mem::{Pool, PoolConfig};

    use super::*;

    #[test]
    fn the_flag_is_clear_while_what_was_there_is_processed() {
        let pool = Pool::new(PoolConfig {
            buffers: 256,
            buffer_size: 2048,
        })
        .expect("a small pool");
        let list = |n| {
            let mut list = PacketList::new();
            pool.alloc_bulk(n, &mut list);
            list
        };
        let (backlog, mut owner) = (Snapshot::new(100), SnapshotOwner::default());
        assert!(backlog.push(list(3)).expect("room"));
        assert!(!backlog.push(list(2)).expect("room"), "told already");
        let mut out = PacketList::new();
        owner.poll(&backlog, 64, &mut out);
        assert_eq!(out.len(), 5);
        assert!(
            backlog.push(list(1)).expect("room"),
            "told again, while five are processed"
        );
        assert!(!backlog.push(list(80)).expect("room"));
        let mut out = PacketList::new();
        owner.poll(&backlog, 64, &mut out);
        assert_eq!(out.len(), 64);
        assert!(
            !backlog.push(list(1)).expect("room"),
            "more than the quota: still scheduled"
        );
        let mut out = PacketList::new();
        owner.poll(&backlog, 64, &mut out);
        assert_eq!(out.len(), 18);
        assert!(
            backlog.push(list(101)).is_ok_and(|told| told),
            "an empty list takes any"
        );
        assert!(backlog.push(list(1)).is_err());
    }

    #[test]
    fn polling_worker_gets_no_wake_up() {
        let pool = Pool::new(PoolConfig {
            buffers: 4,
            buffer_size: 2048,
        })
        .expect("a small pool");
        let one = || PacketList::from(pool.alloc().expect("the pool is large enough"));
        let (backlog, mut owner) = (Snapshot::new(100), SnapshotOwner::default());
        assert!(backlog.begin_looking());
        assert!(!backlog.push(one()).expect("room"));
        assert!(!backlog.end_looking(), "something came");
        let mut out = PacketList::new();
        owner.poll(&backlog, 64, &mut out);
        assert_eq!(out.len(), 1);
        assert!(backlog.begin_looking() && backlog.end_looking());
        assert!(backlog.push(one()).expect("room"));
        assert!(!backlog.begin_looking(), "it has been told");
    }
}
