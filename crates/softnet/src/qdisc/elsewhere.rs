//! Packets that leave a queue or a hook for another link, because an action says so.

use crate::mem::{Packet, PacketList};

/// A place that an action sends packets to (`mirred`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The links.
    pub to: To,
    /// True if they arrive there; else they leave through it.
    pub ingress: bool,
}

/// The links of a [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// The link with this index.
    Link(u32),
    /// All links of a block but the one of arrival.
    Block(u32),
}

/// Packets for other links, in the order in which actions sent them. The caller of whoever ran the
/// actions carries them out.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// Neighbours of one target are one list.
    lists: Vec<(Target, PacketList)>,
    /// Wire packets that are copies.
    copied: u64,
}

impl Elsewhere {
    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Adds a packet.
    pub fn push(&mut self, target: Target, packet: Packet) {
        match self.lists.last_mut() {
            Some((last, list)) if *last == target => list.push_back(packet),
            _ => self.lists.push((target, PacketList::from(packet))),
        }
    }

    /// Adds a copy of a packet that goes on.
    pub fn push_copy(&mut self, target: Target, copy: Packet) {
        self.copied += copy.wire_packets();
        self.push(target, copy);
    }

    /// Wire packets that are copies, since this was last asked.
    pub fn take_copied(&mut self) -> u64 {
        std::mem::take(&mut self.copied)
    }

    /// Takes all packets out.
    pub fn drain(&mut self) -> impl Iterator<Item = (Target, PacketList)> + '_ {
        self.lists.drain(..)
    }
}
