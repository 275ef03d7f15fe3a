//! Softnet's own pool.

use softnet::mem::{Packet, PacketList, Pool};

use super::{Buffers, Counts, DATA};
use crate::error::BenchError;

/// Softnet's pool.
#[derive(Debug)]
pub(crate) struct Softnet(Pool);

impl Softnet {
    /// With `defer` false, a packet stays with the thread that frees it.
    pub(crate) fn new(buffers: usize, defer: bool) -> Result<Softnet, BenchError> {
        let pool = super::pool(buffers, DATA)?;
        if !defer {
            pool.set_defer_max(0);
        }
        Ok(Softnet(pool))
    }
}

impl Buffers for Softnet {
    type Packet = Packet;
    type Burst = PacketList;

    fn alloc(&self) -> Option<Packet> {
        self.0.alloc().ok()
    }

    fn alloc_bulk(&self, n: usize, burst: &mut PacketList) -> usize {
        self.0.alloc_bulk(n, burst)
    }

    fn frame_len(&self, packet: &Packet) -> usize {
        packet.len()
    }

    fn push(&self, burst: &mut PacketList, packet: Packet) {
        burst.push_back(packet);
    }

    fn gather(&self, packets: impl Iterator<Item = Packet>) -> PacketList {
        packets.collect()
    }

    fn pop(&self, burst: &mut PacketList) -> Option<Packet> {
        burst.pop_front()
    }

    fn free(&self, packet: Packet) {
        drop(packet);
    }

    fn free_bulk(&self, burst: PacketList) {
        drop(burst);
    }

    fn start(&self) {
        let thread = std::thread::current();
        self.0.set_waker(move || thread.unpark());
    }

    fn before_sleep(&self) -> bool {
        self.0.prepare_sleep()
    }

    fn after_sleep(&self) {
        self.0.poll_remote_free();
    }

    fn counts(&self) -> Counts {
        let stats = self.0.stats();
        Counts {
            depot_ops: Some(stats.depot_ops),
            deferred: Some(stats.remote_freed),
            bypassed: Some(stats.bypassed),
            wakes: Some(stats.kicks),
        }
    }
}
