//! A driver's ring behind a byte limit, for drivers that complete packets later: the descriptor
//! rings of AF_XDP and vhost-user. A driver that is done with a packet when `xmit` returns (TAP,
//! null) has no use for it.

use super::dql::{Dql, DqlBounds};
use super::ring::{RingFile, Sent, TxRing, Xmit};
use super::waker::RingWaker;
use crate::mem::{Packet, PacketList};
use crate::time::Time;

/// A ring that is done with its packets some time after `xmit` has returned.
pub trait Completes: TxRing {
    /// Moves the packets that the device is done with to `done`, where they are freed in bulk; a
    /// driver that copies has none. Returns how many bytes the device has completed since the last
    /// call, counted as [`Sent::bytes`] counted them. Does not block. When there is something to
    /// return after a time without, the driver wakes the queue.
    fn complete(&mut self, done: &mut PacketList) -> u64;
}

/// A ring that holds no more bytes than keep it busy (BQL, see [`Dql`]); the rest stays in the
/// qdisc, where it can be overtaken.
#[derive(Debug)]
pub struct ByteLimited<R> {
    ring: R,
    dql: Dql,
}

impl<R: Completes> ByteLimited<R> {
    /// Puts a limit before an empty ring.
    pub fn new(ring: R, bounds: DqlBounds, now: Time) -> Self {
        ByteLimited {
            ring,
            dql: Dql::new(bounds, now),
        }
    }

    /// The limit and what is in the ring.
    pub fn dql(&self) -> &Dql {
        &self.dql
    }
}

impl<R: Completes> TxRing for ByteLimited<R> {
    /// Takes packets while the limit allows. Busy also where the limit is what stops them.
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        while !packets.is_empty() {
            let Some(bytes_left) = self.dql.available() else {
                return Xmit::Busy;
            };
            let mut part = PacketList::new();
            let mut bytes = 0;
            while bytes <= bytes_left
                && let Some(packet) = packets.pop_front()
            {
                bytes += packet.wire_len();
                part.push_back(packet);
            }
            let before = sent.bytes;
            let last = part.iter().last().map_or(0, Packet::wire_len);
            let result = self.ring.xmit(&mut part, sent);
            match sent.bytes - before {
                0 => {}
                // The last object's size is told apart (`last_obj_cnt`); after a refusal it is not
                // known, and the sum is an upper bound.
                all if part.is_empty() && all > last => {
                    self.dql.queued(all - last);
                    self.dql.queued(last);
                }
                all => self.dql.queued(all),
            }
            if result == Xmit::Busy {
                part.append(packets);
                packets.append(&mut part);
                return Xmit::Busy;
            }
        }
        Xmit::Complete
    }

    fn available(&mut self, now: Time) -> Option<u64> {
        let mut done = PacketList::new();
        let completed = self.ring.complete(&mut done);
        drop(done);
        self.dql.completed(completed, now);
        // One packet more than fits may go in: with anything in hand, at least one byte.
        Some(self.dql.available().map_or(0, |bytes| bytes + 1))
    }

    fn restart(&mut self, now: Time) {
        self.ring.restart(now);
        self.dql.reset(now);
    }

    fn bind(&mut self, waker: RingWaker) {
        self.ring.bind(waker);
    }

    fn file(&self) -> std::io::Result<Option<RingFile>> {
        self.ring.file()
    }
}
