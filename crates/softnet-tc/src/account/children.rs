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

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Noqueue, Peek, Pfifo, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use super::child::Child;
use super::counters::{apply, zip};
use super::direct_pfifo::Run;
use crate::filter::Filters;
use crate::handle::Handle;
use crate::qdisc::AnyQdisc;

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
    pub(super) slots: Vec<Box<Child>>,
    /// The slot of each minor number, plus one; 0: there is no such class.
    minors: Vec<u32>,
    /// Slots whose classes are gone. Their children have no queue.
    free: Vec<u16>,
    /// Filters of the classes that have some, by slot.
    filters: BTreeMap<usize, Filters>,
    /// Number of children that ask for the time of the push.
    want_enqueue_time: usize,
    /// Replacing a class's qdisc keeps its counters: so for classes that are added one by one.
    counts_on: bool,
    /// The parent's name.
    handle: Handle,
    /// Slot of the child that was called last; [`NO_SLOT`] if that was asked for since.
    pub(super) last: u32,
    /// The parent's statistics: what is queued in the children, and what left them or was dropped
    /// there since the parent was made, by those that are gone, too. The parent adds its own.
    pub(crate) stats: QdiscStats,
}

/// No child's slot: there are fewer.
const NO_SLOT: u32 = u32::MAX;

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

    /// The children of a parent whose classes are added one by one.
    pub(crate) fn none() -> Children {
        Children {
            slots: Vec::new(),
            minors: Vec::new(),
            free: Vec::new(),
            filters: BTreeMap::new(),
            want_enqueue_time: 0,
            counts_on: true,
            handle: Handle::NONE,
            last: NO_SLOT,
            stats: QdiscStats::default(),
        }
    }

    /// The slot of a class.
    #[inline]
    pub(crate) fn find(&self, minor: u16) -> Option<usize> {
        let slot = *self.minors.get(usize::from(minor))?;
        (slot as usize).checked_sub(1)
    }

    /// Adds a class, which there must not be yet. Returns its slot, and the child of a class that
    /// had the slot before, to be freed.
    pub(crate) fn insert(
        &mut self,
        minor: u16,
        mut child: Box<Child>,
    ) -> (usize, Option<Box<Child>>) {
        child.minor = minor;
        let (slot, old) = match self.free.pop() {
            Some(slot) => {
                let old = std::mem::replace(&mut self.slots[usize::from(slot)], child);
                (slot, Some(old))
            }
            None => {
                self.slots.push(child);
                // At most as many classes as there are minor numbers.
                ((self.slots.len() - 1) as u16, None)
            }
        };
        let minor = usize::from(minor);
        if self.minors.len() <= minor {
            self.minors.resize(minor + 1, 0);
        }
        self.minors[minor] = u32::from(slot) + 1;
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

    /// Sets the number of bands, classes 1, 2 and so on that the parent comes with. A new one is a
    /// `pfifo` with this limit. Returns what those held that are no more, the first band's first.
    pub(crate) fn resize(&mut self, bands: u16, limit: u32) -> PacketList {
        let mut removed = PacketList::new();
        // The last first, so that a band's slot is its number when there are more again.
        for band in (bands..self.len() as u16).rev() {
            let mut held = PacketList::new();
            self.remove(band + 1, &mut held);
            held.append(&mut removed);
            removed = held;
        }
        for band in self.len() as u16..bands {
            self.insert(band + 1, Child::new(AnyQdisc::Pfifo(Pfifo::new(limit))));
        }
        removed
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

    /// Names the parent.
    pub(crate) fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    /// The child that was called last, and its class. Forgets it.
    pub(crate) fn take_last(&mut self) -> Option<(Handle, &mut AnyQdisc)> {
        let last = std::mem::replace(&mut self.last, NO_SLOT);
        let child = self.slots.get_mut(last as usize)?;
        Some((self.handle.class(child.minor), &mut child.qdisc))
    }

    /// True if a child asks for the time of the push.
    pub(crate) fn wants_enqueue_time(&self) -> bool {
        self.want_enqueue_time > 0
    }

    /// Number of classes.
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
        slots.map(|(minor, &slot)| (minor, &*self.slots[slot as usize - 1]))
    }

    /// By their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Child> {
        self.slots.iter().map(|child| &**child)
    }

    /// Flows with packets in all of them.
    pub(crate) fn flows(&self) -> u64 {
        let flows = self.slots.iter().map(|child| u64::from(child.flows()));
        flows.sum()
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
        self.last = slot as u32;
        let child = &mut *self.slots[slot];
        let before = *child.qdisc.stats();
        let had_stash = child.has_stash();
        let result = f(child);
        let mut change = zip(child.qdisc.stats(), &before, u64::wrapping_sub);
        if had_stash || child.has_stash() {
            apply(&mut change, &child.take_change());
        }
        apply(&mut self.stats, &change);
        child.counters.add(&change);
        result
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

    /// Packet that leaves a child next; see [`Child::peek`].
    #[inline]
    pub(crate) fn peek(&mut self, slot: usize, cx: &mut Cx) -> Peek {
        match self.slots[slot].peek_only(cx.now) {
            known @ (Peek::Packet(_) | Peek::Idle) => known,
            _ => self.with(slot, |child| child.peek(cx)),
        }
    }

    /// Sends the packet that a look at a child has shown. Returns what left.
    #[inline]
    pub(crate) fn send_one(&mut self, slot: usize, out: &mut PacketList, cx: &mut Cx) -> WireSum {
        let mut one = PacketList::new();
        self.dequeue(slot, 1, &mut one, cx);
        let sum = WireSum::from(&one);
        out.append(&mut one);
        sum
    }

    /// Sends one packet of a child of any kind, if its length `fits`. Where more is queued then,
    /// the next look says how long that is.
    ///
    /// # Errors
    /// The time until which the child sends nothing; `None`: it has nothing.
    #[inline]
    pub(crate) fn pop_turn(
        &mut self,
        slot: usize,
        fits: impl FnOnce(u64) -> bool,
        out: &mut PacketList,
        cx: &mut Cx,
    ) -> Result<Run, Option<Time>> {
        let later = cx.now.plus_nanos(1);
        let size = match self.peek(slot, cx) {
            Peek::Packet(size) => size,
            Peek::At(time) => return Err(Some(time.max(later))),
            // It dropped what it had as it was looked at; or it does not do what it says.
            Peek::Idle | Peek::Unknown => {
                return Err((!self.slots[slot].is_empty()).then_some(later));
            }
        };
        if !fits(size.bytes) {
            return Ok(Run {
                sent: WireSum::default(),
                next: Some(size.bytes),
            });
        }
        let sent = self.send_one(slot, out, cx);
        if sent.packets == 0 {
            return Err(Some(later));
        }
        let next = (!self.slots[slot].is_empty()).then_some(0);
        Ok(Run { sent, next })
    }

    /// Drops what a class held that is gone, or is no leaf any more, as the kernel does.
    pub(crate) fn purge(&mut self, packets: &mut PacketList, cx: &mut Cx) {
        self.stats.drops += packets.len() as u64;
        cx.dropped.append(packets.take(), DropReason::QdiscReset);
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
        let passes = !child.has_stash() && child.qdisc.try_pass(packets, sum, cx);
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
            !child.has_stash() && child.qdisc.try_pass(packets, sum, cx)
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
