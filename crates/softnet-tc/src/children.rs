//! The one place where a qdisc accounts for its children.
//!
//! In the kernel a child tells its ancestors of every packet that it loses or gains outside of a
//! plain enqueue or dequeue, and most of the errors of its qdiscs were such calls that were
//! missing, came twice, too early or with the wrong number (BUG-TX-18 to BUG-TX-20, BUG-TBF-1).
//! Here nobody tells anybody. A child can be changed only through [`Children`], which compares the
//! child's statistics before and after and applies the difference. Each ancestor of a child is on
//! the path down to it, so all of them are right when the call returns, whatever happened below:
//! enqueue, drops at either end, segmentation, a change, a graft.

use std::sync::Arc;

use super::{AnyQdisc, Cx, Next, Peek, Qdisc, QdiscStats, Verdict, WireSize, WireSum};
use softnet::mem::{Packet, PacketList};
use softnet::stats::Published;
use softnet::time::Time;

/// The statistics of a class, which are those of the qdisc on it. The owner of the queue writes
/// them as they change; any thread may read them, at any rate.
#[derive(Debug, Default)]
pub struct ClassCounters(Published<8>);

impl ClassCounters {
    /// The statistics now. Each is whole, but they need not be from the same moment.
    pub fn get(&self) -> QdiscStats {
        let [
            bytes,
            packets,
            drops,
            overlimits,
            qlen,
            backlog,
            queued,
            memory,
        ] = self.0.get();
        QdiscStats {
            bytes,
            packets,
            drops,
            overlimits,
            requeues: 0,
            qlen,
            backlog,
            queued,
            memory,
        }
    }

    fn reset(&self) {
        self.0.set([0; 8]);
    }

    #[inline]
    fn count_sent(&self, sum: WireSum) {
        self.0.add(0, sum.bytes);
        self.0.add(1, sum.packets);
    }

    #[inline]
    fn add(&self, delta: &QdiscStats) {
        self.0.add(0, delta.bytes);
        self.0.add(1, delta.packets);
        self.0.add(2, delta.drops);
        self.0.add(3, delta.overlimits);
        self.0.add(4, delta.qlen);
        self.0.add(5, delta.backlog);
        self.0.add(6, delta.queued);
        self.0.add(7, delta.memory);
    }
}

/// -1 modulo 2^64.
const MINUS: u64 = u64::MAX;

/// What changed, modulo 2^64.
#[inline]
fn delta(before: &QdiscStats, after: &QdiscStats) -> QdiscStats {
    QdiscStats {
        bytes: after.bytes.wrapping_sub(before.bytes),
        packets: after.packets.wrapping_sub(before.packets),
        drops: after.drops.wrapping_sub(before.drops),
        overlimits: after.overlimits.wrapping_sub(before.overlimits),
        requeues: 0,
        qlen: after.qlen.wrapping_sub(before.qlen),
        backlog: after.backlog.wrapping_sub(before.backlog),
        queued: after.queued.wrapping_sub(before.queued),
        memory: after.memory.wrapping_sub(before.memory),
    }
}

/// Adds what changed in a child. `overlimits` and `requeues` are the parent's own, as in the
/// kernel.
#[inline]
fn apply(sum: &mut QdiscStats, delta: &QdiscStats) {
    sum.bytes = sum.bytes.wrapping_add(delta.bytes);
    sum.packets = sum.packets.wrapping_add(delta.packets);
    sum.drops = sum.drops.wrapping_add(delta.drops);
    sum.qlen = sum.qlen.wrapping_add(delta.qlen);
    sum.backlog = sum.backlog.wrapping_add(delta.backlog);
    sum.queued = sum.queued.wrapping_add(delta.queued);
    sum.memory = sum.memory.wrapping_add(delta.memory);
}

/// A child.
#[derive(Debug)]
pub(super) struct Child {
    qdisc: AnyQdisc,
    /// A packet taken out to look at its length, of a qdisc that cannot [`peek`](Qdisc::peek). It
    /// counts as the child's until it leaves.
    stash: Option<Packet>,
    /// What the present call changed by putting a packet into the stash or taking it from there:
    /// the qdisc counts it as sent, the child as queued.
    stashed: QdiscStats,
    /// The child's statistics, as its parent has taken them over.
    counters: Arc<ClassCounters>,
    /// The child is the one that its parent came with.
    default: bool,
}

impl Child {
    fn new(qdisc: AnyQdisc) -> Child {
        Child {
            qdisc,
            stash: None,
            stashed: QdiscStats::default(),
            counters: Arc::default(),
            default: true,
        }
    }

    pub(super) fn qdisc_mut(&mut self) -> &mut AnyQdisc {
        &mut self.qdisc
    }

    pub(super) fn counters(&self) -> &Arc<ClassCounters> {
        &self.counters
    }

    /// Whether it is the qdisc that the parent came with.
    pub(super) fn is_default(&self) -> bool {
        self.default
    }

    /// Whether nothing is queued.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.stash.is_none() && self.qdisc.stats().qlen == 0
    }

    /// As [`Qdisc::dequeue`]; the stash leaves first.
    #[inline]
    pub(super) fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        if self.stash.is_none() {
            return self.qdisc.dequeue(budget, out, cx);
        }
        self.dequeue_stash(budget, out, cx)
    }

    #[cold]
    fn dequeue_stash(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        if budget == 0 {
            return Next::Ready;
        }
        let mut left = budget;
        if let Some(packet) = self.stash.take() {
            left = left.saturating_sub(packet.wire_packets() as usize);
            self.note_stash(&packet, 1, MINUS);
            out.push_back(packet);
        }
        self.qdisc.dequeue(left, out, cx)
    }

    /// What leaves next; never [`Peek::Unknown`]. The next [`dequeue`](Child::dequeue) at this
    /// time returns it (INV-Q-9).
    pub(super) fn peek(&mut self, cx: &mut Cx) -> Peek {
        match self.peek_only(cx.now) {
            known @ (Peek::Packet(_) | Peek::Idle) => return known,
            // It is asked all the same: it counts that nothing may leave yet, as in the kernel.
            Peek::At(_) | Peek::Unknown => {}
        }
        let mut one = PacketList::new();
        let next = self.qdisc.dequeue(1, &mut one, cx);
        match (one.pop_front(), next) {
            (Some(packet), _) => {
                let size = WireSize::from(&packet);
                self.note_stash(&packet, MINUS, 1);
                self.stash = Some(packet);
                Peek::Packet(size)
            }
            (None, Next::Idle) => Peek::Idle,
            (None, Next::At(time)) => Peek::At(time),
            // Says that more is ready, and returns nothing: try again, but not at once.
            (None, Next::Ready) => Peek::At(cx.now.plus_nanos(1)),
        }
    }

    /// What leaves next, if that can be told without taking it out.
    pub(super) fn peek_only(&self, now: Time) -> Peek {
        match &self.stash {
            Some(packet) => Peek::Packet(packet.into()),
            None => self.qdisc.peek(now),
        }
    }

    /// Counts `packet` so many times (modulo 2^64) as sent and as queued.
    fn note_stash(&mut self, packet: &Packet, sent: u64, queued: u64) {
        let (bytes, packets) = packet.wire();
        let change = QdiscStats {
            bytes: bytes.wrapping_mul(sent),
            packets: packets.wrapping_mul(sent),
            qlen: queued,
            backlog: bytes.wrapping_mul(queued),
            queued: packets.wrapping_mul(queued),
            memory: packet.memory().wrapping_mul(queued),
            ..QdiscStats::default()
        };
        apply(&mut self.stashed, &change);
    }

    fn drain(&mut self, out: &mut PacketList) {
        if let Some(packet) = self.stash.take() {
            self.note_stash(&packet, 0, MINUS);
            out.push_back(packet);
        }
        self.qdisc.drain(out);
    }
}

/// The children of one qdisc.
#[derive(Debug)]
pub(super) struct Children {
    slots: Vec<Child>,
    /// The parent's statistics: what is queued in the children, and what left them or was dropped
    /// there since the parent was made, by those that are gone, too. The parent adds its own.
    pub(super) stats: QdiscStats,
}

impl Children {
    /// Children that the parent comes with.
    pub(super) fn new(qdiscs: impl IntoIterator<Item = AnyQdisc>) -> Children {
        Children {
            slots: qdiscs.into_iter().map(Child::new).collect(),
            stats: QdiscStats::default(),
        }
    }

    /// Whether a child asks for the time of the push.
    pub(super) fn wants_enqueue_time(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|child| child.qdisc.wants_enqueue_time())
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Child> {
        self.slots.get(index)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Child> {
        self.slots.iter()
    }

    /// Gives an empty child of a new parent another qdisc.
    pub(super) fn set(&mut self, index: usize, qdisc: AnyQdisc) {
        let child = &mut self.slots[index];
        (child.qdisc, child.default) = (qdisc, false);
    }

    /// The only way to change a child. Takes over its statistics afterwards.
    #[inline]
    pub(super) fn with<T>(&mut self, index: usize, f: impl FnOnce(&mut Child) -> T) -> T {
        let child = &mut self.slots[index];
        let before = *child.qdisc.stats();
        let had_stash = child.stash.is_some();
        let result = f(child);
        let mut change = delta(&before, child.qdisc.stats());
        if had_stash || child.stash.is_some() {
            apply(&mut change, &std::mem::take(&mut child.stashed));
        }
        apply(&mut self.stats, &change);
        child.counters.add(&change);
        result
    }

    /// Enqueues in one child.
    #[inline]
    pub(super) fn enqueue(
        &mut self,
        index: usize,
        packets: &mut PacketList,
        cx: &mut Cx,
    ) -> Verdict {
        self.with(index, |child| child.qdisc.enqueue(packets, cx))
    }

    /// Dequeues from one child.
    #[inline]
    pub(super) fn dequeue(
        &mut self,
        index: usize,
        budget: usize,
        out: &mut PacketList,
        cx: &mut Cx,
    ) -> Next {
        self.with(index, |child| child.dequeue(budget, out, cx))
    }

    /// As [`Qdisc::try_pass`], through one child. Only what left has changed then.
    #[inline(always)]
    pub(super) fn try_pass(
        &mut self,
        index: usize,
        packets: &PacketList,
        sum: WireSum,
        cx: &mut Cx,
    ) -> bool {
        let child = &mut self.slots[index];
        let passes = child.stash.is_none() && child.qdisc.try_pass(packets, sum, cx);
        if passes {
            child.counters.count_sent(sum);
            self.stats.count_sent(sum);
        }
        passes
    }

    /// Replaces a child, which it returns; `default` says that the new one is what the parent
    /// comes with. What the old one holds moves to the new one, in the order in which it would
    /// have left; what does not fit is dropped and counted there.
    pub(super) fn graft(
        &mut self,
        index: usize,
        qdisc: AnyQdisc,
        default: bool,
        cx: &mut Cx,
    ) -> AnyQdisc {
        let mut moved = PacketList::new();
        self.with(index, |child| child.drain(&mut moved));
        let child = &mut self.slots[index];
        let old = std::mem::replace(&mut child.qdisc, qdisc);
        child.default = default;
        // A new qdisc counts from nothing.
        child.counters.reset();
        self.enqueue(index, &mut moved, cx);
        old
    }

    /// Adds a child at the end.
    pub(super) fn push(&mut self, qdisc: AnyQdisc) {
        self.slots.push(Child::new(qdisc));
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
