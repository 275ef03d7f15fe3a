//! A worker's loop, the same for all variants: rounds of polls within NAPI's budget, wake-ups for
//! others at the start of each poll and at the end of the round, sleep when there is nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use softnet::mem::PacketList;
use softnet_engine::rx::{BUDGET, WEIGHT};

use super::inbox::{Inbox, Owner};

/// Works until `stop`. `handle` processes packets and leaves what is to be sent in the list; that
/// goes to `peer`. Returns how many of those found no room.
pub(crate) fn work(
    owner: &mut dyn Owner,
    peer: Option<&Arc<dyn Inbox>>,
    stop: &AtomicBool,
    mut handle: impl FnMut(&mut PacketList),
) -> usize {
    let mut refused = 0;
    loop {
        let (mut done, mut owed) = (0, false);
        while done < BUDGET {
            if let Some(peer) = peer.filter(|_| std::mem::take(&mut owed)) {
                peer.kick();
            }
            let mut packets = PacketList::new();
            owner.poll(WEIGHT, &mut packets);
            if packets.is_empty() {
                break;
            }
            done += packets.len();
            handle(&mut packets);
            if let Some(peer) = peer
                && !packets.is_empty()
            {
                refused += peer.push(packets);
                owed = true;
            }
        }
        if let Some(peer) = peer.filter(|_| owed) {
            peer.kick();
        }
        if done == 0 {
            if stop.load(Ordering::Acquire) {
                return refused;
            }
            owner.wait();
        }
    }
}

/// Times this thread gave the CPU up because it had nothing to do.
pub(super) fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .and_then(|n| n.trim().parse().ok())
        .unwrap_or(0)
}
