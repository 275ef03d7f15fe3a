//! A pointer ring of packets: [`Ring`] with owned lists at its ends.
//!
//! A list is one chain, linked through the packets' header lines: it costs one reservation and one slot, however long it is.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::list::RawList;
use super::{Header, Packet, PacketList};
use crate::sync::{Linked, NoRoom, Ring, RingConsumer};

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
    /// Taken out of the ring, but not yet gone: the rest of a list longer than a budget, or what was there before a resize.
    kept: PacketList,
}

impl PacketRingConsumer {
    /// Moves up to `budget` packets to `out`, in order, and calls `count` for each.
    #[inline]
    pub fn consume(&mut self, budget: usize, out: &mut PacketList, mut count: impl FnMut(&Packet)) {
        let mut left = budget;
        while left > 0 {
            let packet = match self.kept.pop_front() {
                Some(packet) => packet,
                None => match self.consumer.next() {
                    Some(chain) => self.unchain(chain),
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

    /// The first packet of a chain; the others are kept.
    #[inline]
    fn unchain(&mut self, chain: NonNull<Header>) -> Packet {
        // SAFETY: the ring gave the chain to us alone; it came out of a `PacketList`, so `next` links its packets and ends with `None`.
        unsafe {
            let mut next = Header::next(chain);
            while let Some(node) = next {
                next = Header::next(node);
                self.kept.push_back(Packet::from_raw(node));
            }
            Packet::from_raw(chain)
        }
    }

    /// Whether nothing is in the ring, kept, or about to be put in.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.consumer.is_empty()
    }

    /// Changes the limit while producers go on. Returns the newest packets, if they are more than the limit now.
    /// Changes nothing if `limit` is above [`MAX_LIMIT`](crate::sync::MAX_LIMIT).
    pub fn resize(&mut self, limit: u32) -> PacketList {
        let mut kept = self.kept.take();
        let mut chains = Vec::new();
        self.consumer.resize(limit, |chain| chains.push(chain));
        self.keep(chains, &mut kept);
        let mut first = PacketList::new();
        kept.split_front(limit as usize, &mut first);
        self.kept = first;
        self.consumer.release(kept.len());
        kept
    }

    /// Opens a closed ring, with `first` in it, before all that producers put in. Returns what of it does not fit. Changes nothing if `limit` is
    /// above [`MAX_LIMIT`](crate::sync::MAX_LIMIT).
    pub fn open(&mut self, limit: u32, mut first: PacketList) -> PacketList {
        first.split_front(limit as usize, &mut self.kept);
        let kept = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        let opened = self.consumer.open(limit, kept, |_| ());
        debug_assert!(opened, "the limit is checked by the caller");
        first
    }

    /// Takes out all that is in the ring, which stays open.
    pub fn take(&mut self) -> PacketList {
        let ring = self.consumer.ring();
        if !ring.is_open() {
            return PacketList::new();
        }
        let limit = ring.limit();
        let mut all = self.kept.take();
        let mut chains = Vec::new();
        self.consumer.resize(limit, |chain| chains.push(chain));
        self.keep(chains, &mut all);
        self.consumer.release(all.len());
        all
    }

    /// Closes the ring, and returns what was in it.
    pub fn close(&mut self) -> PacketList {
        let mut all = self.kept.take();
        let mut chains = Vec::new();
        self.consumer.close(|chain| chains.push(chain));
        self.keep(chains, &mut all);
        self.consumer.release(all.len());
        all
    }

    fn keep(&mut self, chains: Vec<NonNull<Header>>, to: &mut PacketList) {
        for chain in chains {
            let first = self.unchain(chain);
            to.push_back(first);
            to.append(&mut self.kept);
        }
    }
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
            .field("kept", &self.kept.len())
            .finish()
    }
}
