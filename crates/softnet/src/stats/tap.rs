//! Somebody who looks at the packets of a device: a capture.

use std::fmt;

use super::DropReason;
use crate::mem::{Packet, PacketList};
use crate::time::Time;

/// Transmit queue and class that a packet was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the queue.
    pub queue: u16,
    /// The classes on the way down from its root.
    pub classes: ClassPath,
}

/// Classes (`major:minor`) on the way of a packet down from the root, each below the one before;
/// 0 where there are no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassPath([u32; 8]);

impl ClassPath {
    /// Adds a class below the others. What is deeper than most trees takes the last place.
    pub fn push(&mut self, class: u32) {
        let last = self.0.len() - 1;
        let place = self.0.iter().position(|&class| class == 0);
        self.0[place.unwrap_or(last)] = class;
    }

    /// From the root down.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.0.into_iter().filter(|&class| class != 0)
    }

    /// The last one; 0 for none.
    pub fn leaf(&self) -> u32 {
        self.iter().next_back().unwrap_or(0)
    }
}

/// Sees what a device receives, sends and drops. Owners of queues and workers call it, while they
/// have what they call it for, so it waits for nobody.
pub trait Tap: Send + Sync + fmt::Debug {
    /// Packets were received.
    fn received(&self, packets: &mut dyn Iterator<Item = &Packet>, now: Time);

    /// Packets leave the qdisc of a transmit queue for the driver.
    fn sent(&self, packets: &PacketList, place: Place, now: Time);

    /// A packet is dropped. Without a place: not by a transmit queue, or by one that many packets
    /// waited for.
    fn dropped(&self, packet: &Packet, place: Option<Place>, reason: DropReason);

    /// So many wire packets were dropped of which nothing is left to look at.
    fn unseen(&self, packets: u64);
}
