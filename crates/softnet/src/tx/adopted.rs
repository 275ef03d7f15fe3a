//! Packets that the owner has taken over and not enqueued yet, in the order in which it came.
//!
//! An enqueue costs 50 to 150 ns where headers are cold, and thousands of packets may wait for an
//! owner that was off its CPU, or move to another qdisc. Nobody pays for all of them at once: an
//! owner enqueues [`ADOPTIONS`], and leaves the rest here, where it goes first in the next round
//! (INV-TX-3) and counts as queued (INV-TX-6).

use super::counts::Counts;
use crate::mem::PacketList;

/// Packets of others that one owner enqueues: four runs' worth, some tens of microseconds at most,
/// so that a round that sends its quota shortens what waits here and in the qdisc together.
pub(super) const ADOPTIONS: usize = 4 * super::RUN_QUOTA;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Adopted {
    packets: PacketList,
    counts: Counts,
}

impl Adopted {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn append(&mut self, packets: &mut PacketList) {
        self.counts.add(Counts::of(&*packets));
        self.packets.append(packets);
    }

    /// Moves the first `n` packets, or all, to `to`, which is empty.
    pub(super) fn split_front(&mut self, n: usize, to: &mut PacketList) {
        self.packets.split_front(n, to);
        self.counts.subtract(Counts::of(&*to));
    }

    /// Takes all.
    pub(super) fn take(&mut self) -> PacketList {
        self.counts = Counts::default();
        self.packets.take()
    }
}
