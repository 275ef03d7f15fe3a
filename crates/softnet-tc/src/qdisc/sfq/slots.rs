//! The flows of an `sfq` that have packets, and which of them has most.
//!
//! Slots of the default numbers are borrowed from a store of the device's while there are packets,
//! as [the flows of others](crate::qdisc::flow_store) are: an idle `sfq` has nothing to remember.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use softnet::mem::{Packet, PacketList};
use softnet::sync::{PageStore, Pages};

use super::spec::{MAX_DEPTH, SfqSpec};
use crate::qdisc::drr::{Linked, UNLISTED};
use crate::qdisc::red::law::Average;

/// No slot.
const NONE: u32 = u32::MAX;

/// A flow.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(super) packets: PacketList,
    /// Wire bytes in it.
    pub(super) backlog: u64,
    pub(super) average: Average,
    /// The queue that it was hashed to.
    pub(super) bucket: u32,
    pub(super) credit: i32,
    link: u32,
    /// The neighbours among flows of as many packets; of a free slot, the next free one.
    before: u32,
    after: u32,
}

impl Linked for Slot {
    fn link(&mut self) -> &mut u32 {
        &mut self.link
    }
    fn credit(&mut self) -> &mut i32 {
        &mut self.credit
    }
}

/// The slots, and lists of them by their numbers of packets.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(super) slots: Box<[Slot]>,
    /// The slot of each queue.
    buckets: Box<[u32]>,
    /// The first slot with so many packets; of none, the first free one.
    first: [u32; MAX_DEPTH as usize + 1],
    /// Packets of the longest.
    longest: usize,
}

impl Default for Slots {
    fn default() -> Slots {
        let SfqSpec { flows, divisor, .. } = SfqSpec::default().effective();
        Slots::new(flows, divisor)
    }
}

/// Bytes of slots of the default numbers.
pub(crate) fn default_bytes() -> usize {
    let SfqSpec { flows, divisor, .. } = SfqSpec::default().effective();
    size_of::<Slots>() + flows as usize * size_of::<Slot>() + divisor as usize * size_of::<u32>()
}

/// The slots of a qdisc: its own, or borrowed ones.
#[derive(Debug)]
pub(super) struct Lent {
    /// One slot for all flows, or as many as the qdisc was given.
    own: Slots,
    pages: Pages<Slots>,
}

impl Lent {
    pub(super) fn new(spec: &SfqSpec, store: &Arc<PageStore<Slots>>) -> Lent {
        let default = SfqSpec::default().effective();
        let borrows = (spec.flows, spec.divisor) == (default.flows, default.divisor);
        let (flows, divisor) = match borrows {
            true => (1, 1),
            false => (spec.flows, spec.divisor),
        };
        Lent {
            own: Slots::new(flows, divisor),
            pages: Pages::new(store, usize::from(borrows)),
        }
    }

    /// A packet comes, and none is there: borrows slots.
    #[inline]
    pub(super) fn borrow(&mut self) {
        if self.pages.places() > 0 && self.pages.get(0).is_none() {
            self.pages.take(0);
        }
    }

    /// True if all flows share one.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.pages.places() > 0 && self.pages.get(0).is_none()
    }

    /// No packet is there: gives borrowed slots back where there are not enough for all.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.pages.is_short() && self.pages.places() > 0 {
            self.pages.give_back(0);
        }
    }
}

impl Deref for Lent {
    type Target = Slots;
    #[inline(always)]
    fn deref(&self) -> &Slots {
        self.pages.get(0).unwrap_or(&self.own)
    }
}

impl DerefMut for Lent {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Slots {
        self.pages.get_mut(0).unwrap_or(&mut self.own)
    }
}

impl Slots {
    pub(super) fn new(flows: u32, divisor: u32) -> Slots {
        let slot = |index| Slot {
            packets: PacketList::new(),
            backlog: 0,
            average: Average::default(),
            bucket: 0,
            credit: 0,
            link: UNLISTED,
            before: NONE,
            after: if index + 1 < flows { index + 1 } else { NONE },
        };
        let mut first = [NONE; MAX_DEPTH as usize + 1];
        first[0] = 0;
        Slots {
            slots: (0..flows).map(slot).collect(),
            buckets: vec![NONE; divisor as usize].into(),
            first,
            longest: 0,
        }
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// The queue itself, or the only one.
    #[inline]
    fn own(&self, bucket: usize) -> usize {
        bucket.min(self.buckets.len() - 1)
    }

    /// The slot of a queue, if it has packets.
    #[inline]
    pub(super) fn find(&self, bucket: usize) -> Option<u32> {
        Some(self.buckets[self.own(bucket)]).filter(|&index| index != NONE)
    }

    /// Gives a queue a slot, into which a packet is to be pushed at once. `None`: none is free.
    pub(super) fn add(&mut self, bucket: usize) -> Option<u32> {
        let index = Some(self.first[0]).filter(|&index| index != NONE)?;
        let bucket = self.own(bucket);
        self.buckets[bucket] = index;
        let slot = self.at(index);
        slot.bucket = bucket as u32;
        slot.average = Average::default();
        Some(index)
    }

    /// Packets of the longest flow.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The flow that became one of the longest last; some flow has packets.
    pub(super) fn find_longest(&self) -> u32 {
        self.first[self.longest]
    }

    /// Adds a packet at the end of a flow.
    #[inline]
    pub(super) fn push(&mut self, index: u32, packet: Packet) {
        let len = self.at(index).packets.len();
        self.unlink(index, len);
        let slot = self.at(index);
        slot.backlog += packet.wire_len();
        slot.packets.push_back(packet);
        self.link(index, len + 1);
        self.longest = self.longest.max(len + 1);
    }

    /// Takes out the oldest packet of a flow.
    #[inline]
    pub(super) fn pop(&mut self, index: u32) -> Option<Packet> {
        self.take(index, PacketList::pop_front)
    }

    /// Takes out the newest packet of a flow: at a look at all of them.
    pub(super) fn pop_back(&mut self, index: u32) -> Option<Packet> {
        self.take(index, |packets| {
            let mut front = PacketList::new();
            packets.split_front(packets.len().saturating_sub(1), &mut front);
            std::mem::swap(packets, &mut front);
            front.pop_front()
        })
    }

    #[inline]
    fn take(
        &mut self,
        index: u32,
        pop: impl FnOnce(&mut PacketList) -> Option<Packet>,
    ) -> Option<Packet> {
        let len = self.at(index).packets.len();
        let packet = pop(&mut self.at(index).packets)?;
        self.unlink(index, len);
        if self.longest == len && self.first[len] == NONE {
            self.longest = len - 1;
        }
        let slot = self.at(index);
        slot.backlog -= packet.wire_len();
        if len == 1 {
            let bucket = slot.bucket as usize;
            self.buckets[bucket] = NONE;
        }
        self.link(index, len - 1);
        Some(packet)
    }

    /// Replaces the oldest packet of a flow by a new one at its end.
    pub(super) fn replace(&mut self, index: u32, packet: Packet) -> Option<Packet> {
        let slot = self.at(index);
        slot.backlog += packet.wire_len();
        slot.packets.push_back(packet);
        let oldest = slot.packets.pop_front()?;
        slot.backlog -= oldest.wire_len();
        Some(oldest)
    }

    fn link(&mut self, index: u32, len: usize) {
        let after = std::mem::replace(&mut self.first[len], index);
        let slot = self.at(index);
        (slot.before, slot.after) = (NONE, after);
        if after != NONE {
            self.at(after).before = index;
        }
    }

    fn unlink(&mut self, index: u32, len: usize) {
        let slot = self.at(index);
        let (before, after) = (slot.before, slot.after);
        if before == NONE {
            self.first[len] = after;
        } else {
            self.at(before).after = after;
        }
        if after != NONE {
            self.at(after).before = before;
        }
    }
}
