//! The one place where a qdisc accounts for its children.
//!
//! In the kernel a child tells its ancestors of every packet that it loses or gains outside of a
//! plain enqueue or dequeue, and most of the errors of its qdiscs were such calls that were
//! missing, came twice, too early or with the wrong number (BUG-TX-18 to BUG-TX-20, BUG-TBF-1).
//! Here nobody tells anybody. A child can be changed only through [`Children`], which compares the
//! child's statistics before and after and applies the difference. Each ancestor of a child is on
//! the path down to it, so all of them are right when the call returns, whatever happened below:
//! enqueue, drops at either end, segmentation, a change, a graft. (Where a child is a `pfifo` of
//! which the difference is known beforehand, that is applied instead.) The same difference goes to
//! the class's [`ClassCounters`], which other threads read.

use std::collections::BTreeMap;
use std::sync::Arc;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Noqueue, Peek, Qdisc, QdiscStats, Verdict, WireSize, WireSum};
use softnet::time::Time;

use super::counters::{ClassCounters, apply, zip};
use crate::filter::Filters;
use crate::qdisc::AnyQdisc;

/// -1 modulo 2^64.
const MINUS: u64 = u64::MAX;

/// A child. What most packets need is in its first two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Child {
    qdisc: AnyQdisc,
    /// The child's statistics, as its parent has taken them over.
    counters: Arc<ClassCounters>,
    /// A packet taken out to look at its length, of a qdisc that cannot [`peek`](Qdisc::peek): not
    /// of a `pfifo`. It counts as the child's until it leaves.
    stash: Option<Packet>,
    /// What the present call changed by putting a packet into the stash or taking it from there:
    /// the qdisc counts it as sent, the child as queued.
    stashed: QdiscStats,
    /// The child is the one that its parent came with.
    default: bool,
    /// It asks for the time of the push.
    wants_enqueue_time: bool,
}

impl Child {
    /// A class's own qdisc.
    pub(crate) fn new(qdisc: AnyQdisc) -> Box<Child> {
        Box::new(Child {
            qdisc,
            stash: None,
            stashed: QdiscStats::default(),
            counters: Arc::default(),
            default: true,
            wants_enqueue_time: false,
        })
    }

    pub(crate) fn qdisc_mut(&mut self) -> &mut AnyQdisc {
        &mut self.qdisc
    }

    pub(crate) fn counters(&self) -> &Arc<ClassCounters> {
        &self.counters
    }

    /// Whether it is the qdisc that the parent came with.
    pub(crate) fn is_default(&self) -> bool {
        self.default
    }

    /// Whether the class has no queue: it has classes below it.
    pub(crate) fn is_inner(&self) -> bool {
        self.qdisc.is_noqueue()
    }

    /// Whether nothing is queued.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.stash.is_none() && self.qdisc.stats().qlen == 0
    }

    /// Flows with packets; see [`AnyQdisc::flows`].
    pub(crate) fn flows(&self) -> u16 {
        self.qdisc.flows().max(u16::from(self.stash.is_some()))
    }

    /// As [`Qdisc::dequeue`]; the stash leaves first.
    #[inline]
    pub(crate) fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
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
    pub(crate) fn peek(&mut self, cx: &mut Cx) -> Peek {
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
    pub(crate) fn peek_only(&self, now: Time) -> Peek {
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

/// What left a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) frames: u64,
    /// Of all of them together.
    pub(crate) size: WireSize,
    /// Nothing is queued any more.
    pub(crate) emptied: bool,
    /// Flows with packets afterwards, or one.
    pub(crate) flows: u16,
}

/// The children of one qdisc, one for each class. A class keeps its slot as long as it exists.
/// Finding it takes one look into a table: 2 bytes for each number up to the highest one so far. A
/// class takes less than 400 bytes with its qdisc and what is published, without what a boxed kind
/// has more.
#[derive(Debug)]
pub(crate) struct Children {
    /// One allocation for each, so that only pointers move when there are more.
    #[expect(
        clippy::vec_box,
        reason = "a queue's owner must not wait for children to move"
    )]
    slots: Vec<Box<Child>>,
    /// The slot of each minor number, plus one; 0: there is no such class.
    minors: Vec<u16>,
    /// Slots whose classes are gone. Their children have no queue.
    free: Vec<u16>,
    /// Those of classes that have some, by slot.
    filters: BTreeMap<usize, Filters>,
    /// How many children ask for the time of the push.
    want_enqueue_time: usize,
    /// A class counts on when it gets another qdisc, as those do that are added one by one.
    counts_on: bool,
    /// The parent's statistics: what is queued in the children, and what left them or was dropped
    /// there since the parent was made, by those that are gone, too. The parent adds its own.
    pub(crate) stats: QdiscStats,
}

impl Children {
    /// The children of classes 1, 2 and so on, that the parent comes with.
    pub(crate) fn new(qdiscs: impl IntoIterator<Item = AnyQdisc>) -> Children {
        let mut children = Children {
            counts_on: false,
            ..Children::none()
        };
        for (minor, qdisc) in (1..).zip(qdiscs) {
            children.insert(minor, Child::new(qdisc));
        }
        children
    }

    /// Those of a parent whose classes are added.
    pub(crate) fn none() -> Children {
        Children {
            slots: Vec::new(),
            minors: Vec::new(),
            free: Vec::new(),
            filters: BTreeMap::new(),
            want_enqueue_time: 0,
            counts_on: true,
            stats: QdiscStats::default(),
        }
    }

    /// The slot of a class.
    #[inline]
    pub(crate) fn find(&self, minor: u16) -> Option<usize> {
        let slot = *self.minors.get(usize::from(minor))?;
        usize::from(slot).checked_sub(1)
    }

    /// Adds a class, which there must not be yet. Returns its slot, and the child of a class that
    /// had the slot before, to be freed.
    pub(crate) fn insert(&mut self, minor: u16, child: Box<Child>) -> (usize, Option<Box<Child>>) {
        let (slot, old) = match self.free.pop() {
            Some(slot) => {
                let old = std::mem::replace(&mut self.slots[usize::from(slot)], child);
                (slot, Some(old))
            }
            None => {
                self.slots.push(child);
                // At most as many classes as there are minor numbers but 0.
                (self.slots.len() as u16 - 1, None)
            }
        };
        let minor = usize::from(minor);
        if self.minors.len() <= minor {
            self.minors.resize(minor + 1, 0);
        }
        self.minors[minor] = slot + 1;
        self.note_changed(usize::from(slot));
        (usize::from(slot), old)
    }

    /// Removes a class, and what it holds. Returns its qdisc, to be freed.
    pub(crate) fn remove(&mut self, minor: u16, out: &mut PacketList) -> Option<AnyQdisc> {
        let slot = self.find(minor)?;
        self.minors[usize::from(minor)] = 0;
        self.free.push(slot as u16);
        Some(self.close(slot, out))
    }

    /// Takes a class's queue away, and what it holds. Returns its qdisc, to be freed.
    pub(crate) fn close(&mut self, slot: usize, out: &mut PacketList) -> AnyQdisc {
        self.with(slot, |child| child.drain(out));
        let child = &mut self.slots[slot];
        child.default = true;
        let old = std::mem::replace(&mut child.qdisc, AnyQdisc::Noqueue(Noqueue::default()));
        self.note_changed(slot);
        old
    }

    /// A child is another one, or was changed below: it may ask for the time of the push, or not
    /// any more. There may be too many children to ask them all.
    pub(crate) fn note_changed(&mut self, slot: usize) {
        let child = &mut self.slots[slot];
        let wants = child.qdisc.wants_enqueue_time();
        let wanted = std::mem::replace(&mut child.wants_enqueue_time, wants);
        self.want_enqueue_time += usize::from(wants);
        self.want_enqueue_time -= usize::from(wanted);
    }

    /// Whether a child asks for the time of the push.
    pub(crate) fn wants_enqueue_time(&self) -> bool {
        self.want_enqueue_time > 0
    }

    /// How many classes there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Child> {
        self.slots.get(slot).map(|child| &**child)
    }

    /// The filters of a class.
    pub(crate) fn filters(&self, slot: usize) -> &Filters {
        static NONE: Filters = Filters::none();
        self.filters.get(&slot).unwrap_or(&NONE)
    }

    /// Replaces the filters of a class, and returns what there was.
    pub(crate) fn set_filters(&mut self, slot: usize, filters: Filters) -> Filters {
        let old = if filters.is_empty() {
            self.filters.remove(&slot)
        } else {
            self.filters.insert(slot, filters)
        };
        old.unwrap_or_default()
    }

    /// With the minor numbers of their classes, in that order.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (u16, &Child)> {
        let slots = (0..=u16::MAX)
            .zip(&self.minors)
            .filter(|&(_, &slot)| slot != 0);
        slots.map(|(minor, &slot)| (minor, &*self.slots[usize::from(slot) - 1]))
    }

    /// By their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Child> {
        self.slots.iter().map(|child| &**child)
    }

    /// Gives an empty child of a new parent another qdisc.
    pub(crate) fn set(&mut self, slot: usize, qdisc: AnyQdisc) {
        let child = &mut self.slots[slot];
        (child.qdisc, child.default) = (qdisc, false);
        self.note_changed(slot);
    }

    /// The way to change a child, whatever happens to it. Takes over its statistics afterwards.
    #[inline]
    pub(crate) fn with<T>(&mut self, slot: usize, f: impl FnOnce(&mut Child) -> T) -> T {
        let child = &mut *self.slots[slot];
        let before = *child.qdisc.stats();
        let had_stash = child.stash.is_some();
        let result = f(child);
        let mut change = zip(child.qdisc.stats(), &before, u64::wrapping_sub);
        if had_stash || child.stash.is_some() {
            apply(&mut change, &std::mem::take(&mut child.stashed));
        }
        apply(&mut self.stats, &change);
        child.counters.add(&change);
        result
    }

    /// Enqueues a packet in a child that is a `pfifo`. What changes is known beforehand, and need
    /// not be compared. True: it is the only one.
    ///
    /// # Errors
    /// Returns the packet if the child is another kind, or has no space.
    #[inline]
    pub(crate) fn push_pfifo(&mut self, slot: usize, packet: Packet) -> Result<bool, Packet> {
        let child = &mut *self.slots[slot];
        let AnyQdisc::Pfifo(fifo) = &mut child.qdisc else {
            return Err(packet);
        };
        let QdiscStats {
            qlen,
            backlog,
            queued,
            memory,
            ..
        } = *fifo.stats();
        fifo.push(packet)?;
        let now = fifo.stats();
        self.stats.qlen += 1;
        self.stats.backlog += now.backlog - backlog;
        self.stats.queued += now.queued - queued;
        self.stats.memory += now.memory - memory;
        child.counters.put_queued(now);
        Ok(qlen == 0)
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

    /// Enqueues in one child.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        slot: usize,
        packets: &mut PacketList,
        cx: &mut Cx,
    ) -> Verdict {
        self.with(slot, |child| child.qdisc.enqueue(packets, cx))
    }

    /// Dequeues from one child.
    #[inline]
    pub(crate) fn dequeue(
        &mut self,
        slot: usize,
        budget: usize,
        out: &mut PacketList,
        cx: &mut Cx,
    ) -> Next {
        self.with(slot, |child| child.dequeue(budget, out, cx))
    }

    /// As [`Qdisc::try_pass`], through one child. Only what left has changed then.
    #[inline(always)]
    pub(crate) fn try_pass(
        &mut self,
        slot: usize,
        packets: &PacketList,
        sum: WireSum,
        cx: &mut Cx,
    ) -> bool {
        let child = &mut self.slots[slot];
        if let AnyQdisc::Htb(_) = child.qdisc {
            return self.try_pass_htb(slot, packets, sum, cx);
        }
        let passes = child.stash.is_none() && child.qdisc.try_pass(packets, sum, cx);
        if passes {
            child.counters.count_sent(sum);
            self.stats.count_sent(sum);
        }
        passes
    }

    /// An `htb` may also count overlimits then.
    #[inline(never)]
    fn try_pass_htb(
        &mut self,
        slot: usize,
        packets: &PacketList,
        sum: WireSum,
        cx: &mut Cx,
    ) -> bool {
        self.with(slot, |child| {
            child.stash.is_none() && child.qdisc.try_pass(packets, sum, cx)
        })
    }

    /// Replaces a child, which it returns; `default` says that the new one is what the parent
    /// comes with. What the old one holds moves to the new one, in the order in which it would
    /// have left; what does not fit is dropped and counted there.
    pub(crate) fn graft(
        &mut self,
        slot: usize,
        qdisc: AnyQdisc,
        default: bool,
        cx: &mut Cx,
    ) -> AnyQdisc {
        let mut moved = PacketList::new();
        self.with(slot, |child| child.drain(&mut moved));
        let child = &mut self.slots[slot];
        let old = std::mem::replace(&mut child.qdisc, qdisc);
        child.default = default;
        if !self.counts_on {
            child.counters.reset();
        }
        self.note_changed(slot);
        self.enqueue(slot, &mut moved, cx);
        old
    }

    /// As [`Qdisc::drain`]: first child first.
    pub(crate) fn drain(&mut self, out: &mut PacketList) {
        for slot in 0..self.slots.len() {
            self.with(slot, |child| child.drain(out));
        }
    }
}
