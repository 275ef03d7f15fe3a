//! Which of several queues a packet takes (the kernel's `skb_tx_hash`).
//!
//! INV-TX-15: a flow takes the same queue while their number is unchanged, and the index is always below it.

use crate::packet::{Packet, parse};

/// The queue of a packet: the one it was received on, where that was recorded, else by its flow's hash.
pub(super) fn select_queue(packet: &Packet, queues: usize) -> usize {
    if queues < 2 {
        return 0;
    }
    if let Some(recorded) = packet.queue() {
        return usize::from(recorded) % queues;
    }
    let hash = packet
        .flow_hash()
        .or_else(|| parse(packet).ok().map(|headers| headers.flow_hash(packet)))
        .unwrap_or(0);
    // reciprocal_scale: the product's upper half is below `queues`.
    ((u64::from(hash) * queues as u64) >> 32) as usize
}
