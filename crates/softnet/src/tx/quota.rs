//! Quota of buffers that a port's queues may hold, so that those of one port never take the pools
//! from the others.
//!
//! A limit in bytes or packets says nothing of buffers: 6 MB of small packets are 100,000
//! buffers, more than there are, and a large frame of any length is one of 64 KiB. So each queue
//! has a quota besides, in bytes of buffers, which bounds both kinds. The engine gives every port
//! half of the smaller pool divided by the number of ports
//! ([`Device::set_buffer_quota`](super::Device::set_buffer_quota)).
//!
//! Who counts: qdiscs, each for what it holds, where a packet comes and goes
//! (`QdiscStats::memory`); the owner of the queue looks once for each list that it enqueues.
//! Nothing is counted in two places, and no counter is shared by threads.
//!
//! Packets that wait for the owner are not counted but limited in frames: to as many as half of
//! the quota holds of such as the sender has. So one port's queues hold at most one and a half
//! times their quota, and all together three quarters of each pool. (Frames, not bytes: small
//! packets that wait are in the way of a sender of long ones.) Not counted: the few buffers that a
//! driver keeps ready for each of its receive queues, out of the last quarter.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::mem::{Packet, PacketList};
use crate::stats::{DropReason, Dropped};

/// Bytes that a frame of a qdisc that does not count counts as.
pub(super) const SMALL_BUFFER: u64 = 2048;
/// The longest frame that a driver puts in a small buffer.
const SMALL_FRAME: u64 = 1792;
/// A large frame's buffer.
const LARGE_BUFFER: u64 = 65_536;
/// More than any frame takes: 64 KiB in large or small buffers, shared or not.
const ANY_FRAME: u64 = 3 * LARGE_BUFFER / 2;

/// The quota of one queue. Written by the control path.
#[derive(Debug)]
pub(super) struct Quota(AtomicU64);

impl Default for Quota {
    /// None.
    fn default() -> Quota {
        Quota(AtomicU64::new(u64::MAX))
    }
}

impl Quota {
    /// Bytes of buffers. Relaxed, as where it is read: each enqueue goes by some value, and no
    /// other memory depends on it.
    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn limit(&self) -> Option<Limit> {
        let bytes = self.0.load(Ordering::Relaxed);
        (bytes != u64::MAX).then_some(Limit(bytes))
    }

    /// Frames that may wait for the owner of the queue, of senders that send `packets`: at most
    /// `max`.
    #[inline]
    pub(super) fn max_burst(&self, packets: &PacketList, max: usize) -> usize {
        let Some(Limit(bytes)) = self.limit() else {
            return max;
        };
        // Where one of them may be long, all are looked at: one in a large buffer among small ones
        // would pass for small.
        let each = if packets.bytes() < SMALL_FRAME {
            SMALL_BUFFER
        } else {
            let memory: u64 = packets.iter().map(Packet::memory).sum();
            memory / packets.len().max(1) as u64
        };
        max.min((bytes / 2 / each.max(SMALL_BUFFER)).max(1) as usize)
    }
}

/// A quota that there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(u64);

impl Limit {
    /// Drops the packets at the end that are beyond the quota of a queue that holds `used` bytes
    /// of buffers. One that holds nothing takes one, whatever its size.
    #[inline]
    pub(super) fn cut(self, used: u64, packets: &mut PacketList, dropped: &mut Dropped) {
        // Most queues are far from it.
        let long = packets.bytes() / SMALL_FRAME;
        let most = packets.len() as u64 * SMALL_BUFFER + long * ANY_FRAME;
        if used + most > self.0 {
            self.cut_counted(used, packets, dropped);
        }
    }

    #[cold]
    fn cut_counted(self, mut used: u64, packets: &mut PacketList, dropped: &mut Dropped) {
        let mut fit = PacketList::new();
        while let Some(packet) = packets.pop_front() {
            let memory = packet.memory();
            if used == 0 || used + memory <= self.0 {
                used += memory;
                fit.push_back(packet);
            } else {
                dropped.push(packet, DropReason::BufferQuota);
            }
        }
        *packets = fit;
    }
}
