//! Work that one owner of a queue may do before it hands the queue over.

use crate::time::Time;

/// Work that an owner may do before it hands over.
///
/// It sends at most its quota of wire packets, and what the last frame has beyond that if the
/// driver takes it in one piece. A frame that has to be segmented is segmented as far as the
/// quota goes; the rest waits, in one piece, for the next owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Wire packets to send.
    pub(super) packets: usize,
    /// Packets of other senders to enqueue (or to drop, where the device is down).
    pub(super) adoptions: usize,
    /// When the thread became the owner.
    pub(super) start: Time,
}

impl Budget {
    /// Charges wire packets that were sent, or dropped instead.
    #[inline]
    pub(super) fn charge(&mut self, wire_packets: u64) {
        self.packets = self.packets.saturating_sub(wire_packets as usize);
    }

    /// Charges packets that were taken off the adoption list.
    #[inline]
    pub(super) fn adopt(&mut self, packets: usize) {
        self.adoptions = self.adoptions.saturating_sub(packets);
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.packets == 0
    }
}
