//! Drops flows that dominate a half-full backlog: those with more than half of the latest packets
//! (the kernel's `skb_flow_limit`). Each worker has one limit, for what *it* steers, so nothing is
//! shared (BUG-RX-7).

/// Packets looked back on (the kernel's `FLOW_LIMIT_HISTORY`).
const HISTORY: usize = 128;
/// Buckets that flows fall into (the kernel's `net.core.flow_limit_table_len`).
const BUCKETS: usize = 4096;

/// The latest packets by flow.
#[derive(Debug)]
pub(super) struct FlowLimit {
    history: [u16; HISTORY],
    next: usize,
    /// Occurrences of each bucket in `history`. Bucket 0 starts with all of it, which the kernel's
    /// does, too.
    buckets: Box<[u8]>,
}

impl Default for FlowLimit {
    fn default() -> Self {
        let mut buckets = vec![0; BUCKETS].into_boxed_slice();
        buckets[0] = HISTORY as u8;
        FlowLimit {
            history: [0; HISTORY],
            next: 0,
            buckets,
        }
    }
}

impl FlowLimit {
    /// Notes a packet of the flow with this hash. True if the flow has more than half of the
    /// history, so that the packet is to be dropped.
    pub(super) fn exceeds(&mut self, hash: u32) -> bool {
        // The upper bits: the lower ones choose the worker.
        let bucket = (hash >> 20) as u16;
        let oldest = std::mem::replace(&mut self.history[self.next], bucket);
        self.next = (self.next + 1) % HISTORY;
        self.buckets[usize::from(oldest)] -= 1;
        let count = &mut self.buckets[usize::from(bucket)];
        *count += 1;
        usize::from(*count) > HISTORY / 2
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// INV-RX-9: of a large flow and many small ones, only the large one is dropped, as far as it
    /// has more than half. The table is the caller's alone (BUG-RX-7: `exceeds` takes `&mut self`).
    #[test]
    fn only_the_flow_that_has_more_than_half_is_dropped() {
        let mut limit = FlowLimit::default();
        let (mut large, mut small) = (0, 0);
        for n in 0..10_000_u32 {
            // Three of four packets are the large flow's.
            if n % 4 != 0 {
                large += u32::from(limit.exceeds(0xABCD_0000));
            } else {
                small += u32::from(limit.exceeds(n.wrapping_mul(0x9E37_79B9) | 0x8000_0000));
            }
        }
        assert_eq!(small, 0);
        assert!(large > 7000, "{large}");
        let even = (0..10_000_u32)
            .filter(|n| limit.exceeds((n % 2) << 30 | 1 << 29))
            .count();
        assert!(even <= 64, "two flows of equal size are no flood: {even}");
    }
}
