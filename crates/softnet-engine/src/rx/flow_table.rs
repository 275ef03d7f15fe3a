//! Where the consumer of each flow runs (the kernel's `rps_sock_flow_table`), for RFS.
//!
//! A table of hints: a consumer records its worker, the last one wins, and flows that share an
//! entry replace each other. A wrong hint costs a push to another worker, never order, which
//! [`Steering`](super::steer) keeps by itself. All access is Relaxed: an entry is one word and
//! carries no data.

use std::sync::atomic::{AtomicU32, Ordering};

/// Where the consumer of each flow runs: one word a flow, any thread may read and write.
#[derive(Debug)]
pub struct FlowTable {
    /// The upper bits of the flow's hash, and the worker's number plus 1 in the lower ones. 0:
    /// nothing recorded.
    entries: Box<[AtomicU32]>,
    /// The bits of an entry that hold the worker.
    workers: u32,
}

impl FlowTable {
    /// A table for about `flows` flows (rounded up to a power of two, at most 2^24) and workers 0
    /// to `workers` - 1.
    pub fn new(flows: usize, workers: usize) -> FlowTable {
        let flows = flows.clamp(1, 1 << 24).next_power_of_two();
        let workers = (workers.clamp(1, 1 << 15) + 1).next_power_of_two() as u32 - 1;
        FlowTable {
            entries: (0..flows).map(|_| AtomicU32::new(0)).collect(),
            workers,
        }
    }

    fn entry(&self, hash: u32) -> &AtomicU32 {
        &self.entries[hash as usize & (self.entries.len() - 1)]
    }

    /// The consumer of the flow with this hash
    /// ([`Packet::flow_hash`](softnet::mem::Packet::flow_hash)) runs on worker `worker` (the
    /// kernel's `rps_record_sock_flow`). A worker that the table was not made for is not recorded.
    pub fn record(&self, hash: u32, worker: usize) {
        let Ok(worker) = u32::try_from(worker + 1) else {
            return;
        };
        if worker > self.workers {
            return;
        }
        let (entry, value) = (self.entry(hash), (hash & !self.workers) | worker);
        // Written only if it changes, so that the line stays shared.
        if entry.load(Ordering::Relaxed) != value {
            entry.store(value, Ordering::Relaxed);
        }
    }

    /// The worker that was recorded for this flow last, unless another flow has taken its place.
    pub fn worker(&self, hash: u32) -> Option<usize> {
        let entry = self.entry(hash).load(Ordering::Relaxed);
        if (entry ^ hash) & !self.workers != 0 {
            return None;
        }
        (entry & self.workers).checked_sub(1).map(|w| w as usize)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_consumer_of_a_flow_and_of_no_other() {
        let table = FlowTable::new(16, 3);
        assert_eq!(table.worker(0), None);
        table.record(0xABCD_1234, 2);
        assert_eq!(table.worker(0xABCD_1234), Some(2));
        assert_eq!(table.worker(0xABCE_1234), None, "same entry, another flow");
        table.record(0xABCE_1234, 0);
        assert_eq!(table.worker(0xABCD_1234), None);
        assert_eq!(table.worker(0xABCE_1234), Some(0));
        table.record(0xABCE_1234, 3);
        assert_eq!(table.worker(0xABCE_1234), Some(0), "there is no worker 3");
    }
}
