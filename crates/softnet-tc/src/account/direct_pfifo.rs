//! Enqueue and dequeue of a child that is a `pfifo`, without the comparison of its statistics
//! before and after: what changes is known beforehand. Most classes of `htb` have such a child.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Qdisc, QdiscStats, WireSize, WireSum};

use super::children::Children;
use crate::qdisc::AnyQdisc;

/// Packets that left a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) frames: u64,
    /// Size of all of them together.
    pub(crate) size: WireSize,
    /// Nothing is queued any more.
    pub(crate) emptied: bool,
    /// Flows with packets afterwards, or one.
    pub(crate) flows: u16,
}

/// Packets that left a child in its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Nothing, if the first packet was not allowed.
    pub(crate) sent: WireSum,
    /// Wire bytes of the packet that is next. `None`: nothing is queued any more.
    pub(crate) next: Option<u64>,
}

impl Children {
    /// Asks for a child, in which a packet will be enqueued soon, or from which one will leave.
    #[inline]
    pub(crate) fn prefetch(&self, slot: usize) {
        if let Some(child) = self.slots.get(slot) {
            child.prefetch();
        }
    }

    /// Asks for what the next packet of a child needs, which will leave soon. That shows only in
    /// the child, so best of one that was asked for before.
    #[inline]
    pub(crate) fn prefetch_next(&self, slot: usize) {
        if let Some(child) = self.slots.get(slot)
            && let AnyQdisc::Pfifo(fifo) = &child.qdisc
        {
            fifo.prefetch();
            child.counters.prefetch();
        }
    }

    /// Enqueues a packet in a child that is a `pfifo`. What changes is known beforehand, and need
    /// not be compared. True: it is the only one.
    ///
    /// # Errors
    /// Returns the packet if the child is another kind, or has no space.
    #[inline]
    pub(crate) fn push_pfifo(&mut self, slot: usize, packet: Packet) -> Result<bool, Packet> {
        self.push_pfifo_run(slot, packet, &mut PacketList::new(), |_| false)
    }

    /// As [`push_pfifo`](Children::push_pfifo), with the packets at the front of a list that go the
    /// same way, as long as there is space for them. What changes is counted once. True: there were
    /// none before.
    ///
    /// # Errors
    /// Returns the first packet, as there.
    // So that a call without other packets has no loop.
    #[inline(always)]
    pub(crate) fn push_pfifo_run(
        &mut self,
        slot: usize,
        first: Packet,
        others: &mut PacketList,
        same: impl Fn(&Packet) -> bool,
    ) -> Result<bool, Packet> {
        self.last = slot as u32;
        let child = &mut *self.slots[slot];
        let AnyQdisc::Pfifo(fifo) = &mut child.qdisc else {
            return Err(first);
        };
        let added = fifo.push_run(first, others, same)?;
        self.stats.count_added(&added);
        let now = fifo.stats();
        child.counters.put_queued(now);
        Ok(now.qlen == added.qlen)
    }

    /// Takes packets of a child that is a `pfifo`, until they stand for `most` wire packets or for
    /// more bytes than allowed, which is asked only where there are several. `None`: it is another
    /// kind, or empty.
    #[inline]
    pub(crate) fn pop_pfifo(
        &mut self,
        slot: usize,
        most: u64,
        allowed: impl Fn() -> u64,
        out: &mut PacketList,
    ) -> Option<Sent> {
        self.last = slot as u32;
        let child = &mut *self.slots[slot];
        let AnyQdisc::Pfifo(fifo) = &mut child.qdisc else {
            return None;
        };
        let queued = fifo.stats().qlen;
        let (mut each, mut limit) = (0, 0);
        let taken = fifo.pop_while(out, |taken, packet| {
            if taken.qlen == 1 {
                each = WireSize::from(packet).each;
                if queued > 1 {
                    limit = allowed();
                }
            }
            taken.qlen < queued && taken.queued < most && taken.backlog <= limit
        });
        if taken.qlen == 0 {
            return None;
        }
        self.stats.count_taken(&taken);
        child.counters.count_taken(&taken, fifo.stats());
        Some(Sent {
            frames: taken.qlen,
            size: WireSize {
                packets: taken.queued,
                bytes: taken.backlog,
                each,
            },
            emptied: fifo.stats().qlen == 0,
            flows: 1,
        })
    }

    /// Takes packets of a child that is a `pfifo`, each as long as `more` says so of what was taken
    /// before and of its wire bytes: a turn of a round robin, which is counted once. `None`: it is
    /// another kind, or empty.
    #[inline]
    pub(crate) fn pop_pfifo_turn(
        &mut self,
        slot: usize,
        more: impl Fn(WireSum, u64) -> bool,
        out: &mut PacketList,
    ) -> Option<Run> {
        let child = &mut *self.slots[slot];
        let AnyQdisc::Pfifo(fifo) = &mut child.qdisc else {
            return None;
        };
        let sum = |taken: &QdiscStats| WireSum {
            packets: taken.queued,
            bytes: taken.backlog,
        };
        let (taken, next) = fifo.pop_run(out, |taken, bytes| more(sum(taken), bytes));
        if taken.qlen > 0 {
            self.last = slot as u32;
            self.stats.count_taken(&taken);
            child.counters.count_taken(&taken, fifo.stats());
        } else if next.is_none() {
            return None;
        }
        Some(Run {
            sent: sum(&taken),
            next,
        })
    }
}
