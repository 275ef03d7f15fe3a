//! Packets that wait to be forwarded, and how many copies of them may be made at once.
//!
//! A frame to all of a thousand ports is a thousand system calls, so a call of
//! [`forward`](super::Forwarder::forward) makes no more copies than it is allowed. The frame at
//! which it stops, and what is behind it, waits where it came from. Copies are made in the order
//! of the ports' numbers, so a number says to which ports a frame has gone, whatever ports come and
//! go until it goes on: each gets it once at most.

use softnet::mem::{Packet, PacketList};

/// Packets of one queue, in order.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) packets: PacketList,
    /// The part of the work for the first that is done.
    pub(crate) begun: Option<Begun>,
}

/// A frame to several ports that has to wait. Its source is learnt, which may have moved since;
/// what it says of groups is heard, and it is counted by its port's storm control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// It has gone to ports with lower numbers.
    pub(super) next: u16,
}

impl Pending {
    /// A frame waits, in front of all others.
    pub(super) fn put_back(&mut self, packet: Packet, begun: Begun) {
        self.packets.push_front(packet);
        self.begun = Some(begun);
    }
}

impl From<PacketList> for Pending {
    fn from(packets: PacketList) -> Pending {
        Pending {
            packets,
            begun: None,
        }
    }
}
