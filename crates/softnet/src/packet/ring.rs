//! A pointer ring of packets: [`Ring`] with owned lists at its ends.
//!
//! A list is one chain, linked through the packets' header lines: it costs one reservation and one slot, however long it is.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::list::RawList;
use super::{Header, Packet, PacketList};
use crate::sync::{Linked, MAX_LIMIT, NoRoom, Ring, RingConsumer};

/// What became of packets given to [`PacketRing::produce`].
#[derive(Debug)]
pub enum Produced {
    /// All are in.
    All,
    /// These did not fit; those before them are in.
    Refused(PacketList),
    /// The ring takes nothing now; none is in.
    Closed(PacketList),
}

/// The producers' side, shared by any number of threads. Nobody waits.
#[derive(Debug)]
pub struct PacketRing {
    ring: Arc<Ring<Header>>,
}

impl PacketRing {
    /// A ring for at most `limit` packets, and its consumer's side. `None` if `limit` is above [`MAX_LIMIT`](crate::sync::MAX_LIMIT).
    pub fn new(limit: u32) -> Option<(PacketRing, PacketRingConsumer)> {
        let (ring, consumer) = Ring::new(limit)?;
        let consumer = PacketRingConsumer {
            consumer,
            first: PacketList::new(),
            kept: PacketList::new(),
        };
        Some((PacketRing { ring }, consumer))
    }

    /// Puts the packets in, in order and next to each other; of those that do not fit, the last are refused.
    #[inline]
    pub fn produce(&self, mut packets: PacketList) -> Produced {
        let wanted = packets.len();
        if wanted == 0 {
            return Produced::All;
        }
        let room = match self.ring.reserve(wanted) {
            Ok(room) => room,
            Err(NoRoom::Full) => return Produced::Refused(packets),
            Err(NoRoom::Closed) => return Produced::Closed(packets),
        };
        let mut rest = PacketList::new();
        if room.nodes() < wanted {
            let mut first = PacketList::new();
            packets.split_front(room.nodes(), &mut first);
            rest = std::mem::replace(&mut packets, first);
        }
        let Some(raw) = packets.into_raw() else {
            return Produced::All;
        };
        match self.ring.publish(room, raw.head) {
            Ok(()) if rest.is_empty() => Produced::All,
            Ok(()) => Produced::Refused(rest),
            Err((head, why)) => {
                // SAFETY: the ring did not take the chain, so it is as `into_raw` gave it.
                let mut packets = unsafe { PacketList::from_raw(RawList { head, ..raw }) };
                packets.append(&mut rest);
                match why {
                    NoRoom::Full => Produced::Refused(packets),
                    NoRoom::Closed => Produced::Closed(packets),
                }
            }
        }
    }

    /// Packets in the ring, those its consumer keeps and those about to be put in included. Exact at rest.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether it is 0.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether it takes packets, as long as they fit.
    pub fn is_open(&self) -> bool {
        self.ring.is_open()
    }

    /// The limit in packets.
    pub fn limit(&self) -> u32 {
        self.ring.limit()
    }
}

/// The consumer's side, used by one thread at a time. Dropping it closes the ring and frees what is in it.
pub struct PacketRingConsumer {
    consumer: RingConsumer<Header>,
    /// What goes before all that producers put in.
    first: PacketList,
    /// Taken out of the ring, but not yet gone: the rest of a list longer than a budget, or what was there before a resize.
    kept: PacketList,
}

impl PacketRingConsumer {
    /// Moves up to `budget` packets to `out`, in order, and calls `count` for each.
    #[inline]
    pub fn consume(&mut self, budget: usize, out: &mut PacketList, mut count: impl FnMut(&Packet)) {
        let mut left = budget;
        while left > 0 {
            let taken = self.first.pop_front().or_else(|| self.kept.pop_front());
            let packet = match taken {
                Some(packet) => packet,
                None => match self.consumer.take() {
                    Some(chain) => unchain(chain, &mut self.kept),
                    None => break,
                },
            };
            count(&packet);
            out.push_back(packet);
            left -= 1;
        }
        if left < budget {
            self.consumer.release(budget - left);
        }
    }

    /// Whether nothing is in the ring, kept, or about to be put in.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.kept.is_empty() && self.consumer.is_empty()
    }

    /// Adds packets that go before all that producers have put in, behind those so added before. Returns those that do not fit.
    pub fn put_first(&mut self, mut packets: PacketList) -> PacketList {
        let fits = self.consumer.claim(packets.len());
        packets.split_front(fits, &mut self.first);
        packets
    }

    /// Changes the limit while producers go on. Returns the newest packets, if they are more than the limit now.
    /// Changes nothing if `limit` is above [`MAX_LIMIT`](crate::sync::MAX_LIMIT).
    pub fn resize(&mut self, limit: u32) -> PacketList {
        if limit > MAX_LIMIT {
            return PacketList::new();
        }
        let mut more = self.kept.take();
        self.consumer
            .resize(limit, |chain| append(chain, &mut more));
        let mut surplus = self.first.take();
        surplus.split_front(limit as usize, &mut self.first);
        let room = limit as usize - self.first.len();
        more.split_front(room, &mut self.kept);
        surplus.append(&mut more);
        self.consumer.release(surplus.len());
        surplus
    }

    /// Opens a closed ring, with `first` in it, before all that producers put in. Returns what of it does not fit. Changes nothing if `limit` is
    /// above [`MAX_LIMIT`](crate::sync::MAX_LIMIT).
    pub fn open(&mut self, limit: u32, mut first: PacketList) -> PacketList {
        first.split_front(limit as usize, &mut self.first);
        let nodes = u32::try_from(self.first.len()).unwrap_or(u32::MAX);
        let opened = self.consumer.open(limit, nodes, |_| ());
        debug_assert!(opened, "the limit is checked by the caller");
        first
    }

    /// Takes out all that is in the ring, which stays as it is, open or closed.
    pub fn take(&mut self) -> PacketList {
        if !self.consumer.ring().is_open() {
            return PacketList::new();
        }
        let limit = self.consumer.ring().limit();
        let mut all = self.first.take();
        all.append(&mut self.kept);
        self.consumer.resize(limit, |chain| append(chain, &mut all));
        self.consumer.release(all.len());
        all
    }

    /// Closes the ring, and returns what was in it.
    pub fn close(&mut self) -> PacketList {
        let mut all = self.first.take();
        all.append(&mut self.kept);
        self.consumer.close(|chain| append(chain, &mut all));
        self.consumer.release(all.len());
        all
    }
}

/// The first packet of a chain that the ring gave out; the others go to `rest`.
#[inline]
fn unchain(chain: NonNull<Header>, rest: &mut PacketList) -> Packet {
    // SAFETY: the ring gave the chain to its consumer alone; it came out of a `PacketList`, so `next` links its packets and ends with `None`.
    unsafe {
        let mut next = Header::next(chain);
        while let Some(node) = next {
            next = Header::next(node);
            rest.push_back(Packet::from_raw(node));
        }
        Packet::from_raw(chain)
    }
}

/// Adds a chain that the ring gave out to `to`.
fn append(chain: NonNull<Header>, to: &mut PacketList) {
    let mut rest = PacketList::new();
    let first = unchain(chain, &mut rest);
    to.push_back(first);
    to.append(&mut rest);
}

impl Drop for PacketRingConsumer {
    fn drop(&mut self) {
        drop(self.close());
    }
}

impl fmt::Debug for PacketRingConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketRingConsumer")
            .field("consumer", &self.consumer)
            .field("first", &self.first.len())
            .field("kept", &self.kept.len())
            .finish()
    }
}
