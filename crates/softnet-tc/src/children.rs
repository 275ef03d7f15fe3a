//! The one place where a discipline accounts for its children.
//!
//! In the kernel a child tells its ancestors of every packet that it loses or gains outside of a plain enqueue or dequeue, and most of the
//! errors of its disciplines were such calls that were missing, came twice, too early or with the wrong number (BUG-TX-18 to BUG-TX-20, BUG-TBF-1).
//! Here nobody tells anybody. A child can be changed only through [`Children::with`], which afterwards compares the child's numbers with those that it
//! showed last and applies the difference. As each ancestor of a child is on the way down to it, all of them are right when the call
//! returns, whatever happened below: enqueue, drops at either end, segmentation, a change, a graft. Comparing twice changes nothing.
//!
//! May use other disciplines; does not touch packets but to count what is in the stash.

use super::{AnyQdisc, Next, Peek, Qdisc, QdiscStats, Verdict, WireSize, WireSum};
use softnet::mem::{Packet, PacketList};
use softnet::stats::Dropped;
use softnet::time::Time;

/// A child and what is known of it.
#[derive(Debug)]
pub(super) struct Child {
    qdisc: AnyQdisc,
    /// A packet taken out to look at its length, of a discipline that cannot [`peek`](Qdisc::peek). It counts as the child's until it leaves.
    stash: Option<Packet>,
    /// Wire bytes and packets that came out of the discipline into the stash and were taken from there without being sent.
    unsent: (u64, u64),
    /// The numbers that the parent has taken over.
    seen: QdiscStats,
    /// The child is the one that its parent came with.
    default: bool,
}

impl Child {
    fn new(qdisc: AnyQdisc) -> Child {
        Child {
            qdisc,
            stash: None,
            unsent: (0, 0),
            seen: QdiscStats::default(),
            default: true,
        }
    }

    /// The discipline's numbers, with the stash counted as queued.
    fn stats(&self) -> QdiscStats {
        let mut stats = self.qdisc.stats();
        stats.bytes = stats.bytes.saturating_sub(self.unsent.0);
        stats.packets = stats.packets.saturating_sub(self.unsent.1);
        if let Some(packet) = &self.stash {
            let (bytes, packets) = (packet.wire_len(), packet.wire_packets());
            stats.bytes = stats.bytes.saturating_sub(bytes);
            stats.packets = stats.packets.saturating_sub(packets);
            stats.qlen += 1;
            stats.backlog += bytes;
            stats.queued += packets;
            stats.memory += packet.memory();
        }
        stats
    }

    pub(super) fn qdisc(&self) -> &AnyQdisc {
        &self.qdisc
    }

    pub(super) fn qdisc_mut(&mut self) -> &mut AnyQdisc {
        &mut self.qdisc
    }

    /// Whether it is the discipline that the parent came with.
    pub(super) fn is_default(&self) -> bool {
        self.default
    }

    pub(super) fn enqueue(
        &mut self,
        packets: &mut PacketList,
        now: Time,
        dropped: &mut Dropped,
    ) -> Verdict {
        self.qdisc.enqueue(packets, now, dropped)
    }

    /// As [`Qdisc::dequeue`]; what was looked at leaves first.
    pub(super) fn dequeue(
        &mut self,
        budget: usize,
        now: Time,
        out: &mut PacketList,
        dropped: &mut Dropped,
    ) -> Next {
        if budget > 0
            && let Some(packet) = self.stash.take()
        {
            let left = budget.saturating_sub(packet.wire_packets() as usize);
            out.push_back(packet);
            return self.qdisc.dequeue(left, now, out, dropped);
        }
        match self.qdisc.dequeue(budget, now, out, dropped) {
            _ if self.stash.is_some() => Next::Ready,
            next => next,
        }
    }

    /// What leaves next; never [`Peek::Unknown`]. The next [`dequeue`](Child::dequeue) at this time returns it (INV-Q-9).
    pub(super) fn peek(&mut self, now: Time, dropped: &mut Dropped) -> Peek {
        match self.peek_only(now) {
            known @ (Peek::Packet(_) | Peek::Idle) => return known,
            // It is asked all the same: it counts that nothing may leave yet, as in the kernel.
            Peek::At(_) | Peek::Unknown => {}
        }
        let mut one = PacketList::new();
        let next = self.qdisc.dequeue(1, now, &mut one, dropped);
        match (one.pop_front(), next) {
            (Some(packet), _) => {
                let size = WireSize::from(&packet);
                self.stash = Some(packet);
                Peek::Packet(size)
            }
            (None, Next::Idle) => Peek::Idle,
            (None, Next::At(time)) => Peek::At(time),
            // Says that more is ready, and returns nothing: try again, but not at once.
            (None, Next::Ready) => Peek::At(now.plus_nanos(1)),
        }
    }

    /// What leaves next, if that can be told without taking it out.
    pub(super) fn peek_only(&self, now: Time) -> Peek {
        match &self.stash {
            Some(packet) => Peek::Packet(packet.into()),
            None => self.qdisc.peek(now),
        }
    }

    /// Empties the stash without sending what is in it.
    fn take_back(&mut self) -> Option<Packet> {
        let packet = self.stash.take()?;
        self.unsent.0 += packet.wire_len();
        self.unsent.1 += packet.wire_packets();
        Some(packet)
    }

    fn drain(&mut self, out: &mut PacketList) {
        out.extend(self.take_back());
        self.qdisc.drain(out);
    }
}

/// The children of one discipline, and their sum.
#[derive(Debug)]
pub(super) struct Children {
    slots: Vec<Child>,
    totals: QdiscStats,
}

impl Children {
    /// Children that the parent comes with.
    pub(super) fn new(qdiscs: impl IntoIterator<Item = AnyQdisc>) -> Children {
        Children {
            slots: qdiscs.into_iter().map(Child::new).collect(),
            totals: QdiscStats::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Child> {
        self.slots.get(index)
    }

    /// Lengths of all children; and, since the parent was made, what left them and what they dropped, those included that are gone. `overlimits` and
    /// `requeues` are the parent's own, as in the kernel.
    pub(super) fn totals(&self) -> QdiscStats {
        self.totals
    }

    /// The numbers of one child.
    pub(super) fn stats(&self, index: usize) -> QdiscStats {
        self.slots[index].seen
    }

    /// The only way to change a child. Takes over its numbers afterwards.
    #[inline]
    pub(super) fn with<T>(&mut self, index: usize, f: impl FnOnce(&mut Child) -> T) -> T {
        let child = &mut self.slots[index];
        let result = f(child);
        let is = child.stats();
        let was = std::mem::replace(&mut child.seen, is);
        let sum = &mut self.totals;
        // What was counted stays counted; lengths follow.
        // Saturating: a discipline from outside that miscounts must not stop the queue.
        sum.bytes += is.bytes.saturating_sub(was.bytes);
        sum.packets += is.packets.saturating_sub(was.packets);
        sum.drops += is.drops.saturating_sub(was.drops);
        sum.qlen = (sum.qlen + is.qlen).saturating_sub(was.qlen);
        sum.backlog = (sum.backlog + is.backlog).saturating_sub(was.backlog);
        sum.queued = (sum.queued + is.queued).saturating_sub(was.queued);
        sum.memory = (sum.memory + is.memory).saturating_sub(was.memory);
        result
    }

    /// Enqueues in one child.
    pub(super) fn enqueue(
        &mut self,
        index: usize,
        packets: &mut PacketList,
        now: Time,
        dropped: &mut Dropped,
    ) -> Verdict {
        self.with(index, |child| child.enqueue(packets, now, dropped))
    }

    /// As [`Qdisc::try_pass`], through one child. Only what left has changed then, and by how much
    /// is known, so this does not compare all numbers as [`with`](Children::with) does.
    #[inline(always)]
    pub(super) fn try_pass(
        &mut self,
        index: usize,
        packets: &PacketList,
        sum: WireSum,
        now: Time,
    ) -> bool {
        let child = &mut self.slots[index];
        let passes = child.stash.is_none() && child.qdisc.try_pass(packets, sum, now);
        if passes {
            child.seen.count_sent(sum);
            self.totals.count_sent(sum);
        }
        passes
    }

    /// Replaces a child; `default` says that the new one is what the parent comes with. What the old one holds moves to the new one, in the order in
    /// which it would have left; what does not fit is dropped and counted there.
    pub(super) fn graft(
        &mut self,
        index: usize,
        qdisc: AnyQdisc,
        default: bool,
        now: Time,
        dropped: &mut Dropped,
    ) {
        let mut moved = PacketList::new();
        self.with(index, |child| child.drain(&mut moved));
        let child = &mut self.slots[index];
        child.qdisc = qdisc;
        child.default = default;
        child.unsent = (0, 0);
        // Its own numbers start anew, but for packets that it may have brought with it.
        child.seen = QdiscStats {
            qlen: 0,
            backlog: 0,
            queued: 0,
            memory: 0,
            ..child.stats()
        };
        self.enqueue(index, &mut moved, now, dropped);
    }

    /// Adds a child at the end.
    pub(super) fn push(&mut self, qdisc: AnyQdisc) {
        self.slots.push(Child::new(qdisc));
        self.with(self.slots.len() - 1, |_| ());
    }

    /// Takes the last child away, and what it holds out of it.
    pub(super) fn pop(&mut self, out: &mut PacketList) {
        if let Some(last) = self.slots.len().checked_sub(1) {
            self.with(last, |child| child.drain(out));
            self.slots.pop();
        }
    }

    /// As [`Qdisc::drain`]: first child first.
    pub(super) fn drain(&mut self, out: &mut PacketList) {
        for index in 0..self.slots.len() {
            self.with(index, |child| child.drain(out));
        }
    }
}
