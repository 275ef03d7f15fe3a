//! The rings that a queue feeds, each with the list of what it did not take (the kernel's
//! `gso_skb` and `skb_bad_txq`). Used by the queue's owner alone.
//!
//! Nearly every queue has one ring, and a list that is empty: [`Rings::send`] is then one call of
//! the driver. A qdisc that serves a whole device feeds all of its rings. They are told apart in
//! this file only.
//!
//! A ring that refuses packets, or says that it has no capacity, is *blocked*: it is left alone
//! (INV-TX-11) until the driver wakes the queue, and until then what leaves the qdisc for it
//! waits on its list, behind what it refused (INV-TX-4, BUG-TX-9). Other rings go on, so one full
//! ring does not hold back the others' packets.
//!
//! Packets that wait here have left the qdisc, which can neither reorder nor drop them any more.
//! So the lists are short. With one ring the qdisc stops at the first refusal; with several, when
//! one list holds [`REQUEUE_LIMIT`] frames. (The batch that exceeds the limit still goes on the
//! list; it has at most [`RUN_QUOTA`](super::RUN_QUOTA) frames, more if large ones of them were
//! segmented.) Then all rings wait for that one.
//!
//! The sum of what waits for any of them is kept, so a run in which no ring is full looks at those
//! only that its packets leave by.

use std::time::Duration;

use super::budget::Budget;
use super::counts::Counts;
use super::ring::{Sent, TxRing, Xmit};
use super::select::select_ring;
use crate::mem::PacketList;
use crate::stats::{DropReason, Dropped};
use crate::time::Time;

/// Frames that wait for one ring, while others go on, when the qdisc stops. A driver's ring holds
/// a few hundred, so this lasts until a ring that is full, but not stuck, has capacity again.
pub const REQUEUE_LIMIT: usize = 256;

/// A ring and what it did not take.
#[derive(Debug)]
struct Slot<R> {
    ring: R,
    /// Packets that it is being offered; empty otherwise.
    fresh: PacketList,
    requeued: PacketList,
    /// The ring is full, and the driver has not woken the queue since.
    blocked: bool,
    /// When the ring refused packets for the first time since it took some or was restarted.
    refused: Option<Time>,
}

impl<R: TxRing> Slot<R> {
    fn new(ring: R) -> Self {
        Slot {
            ring,
            fresh: PacketList::new(),
            requeued: PacketList::new(),
            blocked: false,
            refused: None,
        }
    }

    /// Offers what is `fresh`; the ring takes it out of the list as far as it has capacity.
    fn offer(&mut self, sent: &mut Sent, now: Time) {
        // Also where the answer is a number: a driver frees what is done with when it is asked.
        if self.ring.available(now) != Some(0) {
            self.ring.xmit(&mut self.fresh, sent);
        }
    }

    fn block(&mut self, now: Time) {
        self.blocked = true;
        self.refused.get_or_insert(now);
    }

    /// Keeps packets that the ring has to take after those that wait.
    fn requeue(&mut self, packets: &mut PacketList, now: Time, held: &mut Counts) {
        held.add(Counts::of(&*packets));
        self.requeued.append(packets);
        self.block(now);
    }

    /// Offers what waits, as far as the budget goes. Returns whether more may leave now, and how
    /// many frames were refused again.
    fn retry(
        &mut self,
        budget: &mut Budget,
        noqueue: bool,
        held: &mut Counts,
        sent: &mut Sent,
        dropped: &mut Dropped,
    ) -> (bool, u64) {
        if self.requeued.is_empty() || self.blocked {
            return (false, 0);
        }
        if budget.is_used_up() {
            return (true, 0);
        }
        self.requeued
            .split_wire_packets(budget.packets, &mut self.fresh);
        let offered = Counts::of(&self.fresh);
        self.offer(sent, budget.start);
        let mut rest = self.fresh.take();
        let refused = Counts::of(&rest);
        held.subtract(offered);
        held.add(refused);
        budget.charge(offered.packets - refused.packets);
        if refused.frames < offered.frames {
            self.refused = None;
        }
        rest.append(&mut self.requeued);
        if noqueue {
            held.subtract(Counts::of(&rest));
            dropped.append(rest, DropReason::DriverRefused);
            self.refused = None;
            return (false, 0);
        }
        self.requeued = rest;
        if refused.frames != 0 {
            self.block(budget.start);
            return (false, refused.frames as u64);
        }
        (!self.requeued.is_empty(), 0)
    }
}

/// The rings that a queue feeds: its own, or all of the device, or none.
#[derive(Debug)]
pub(super) struct Rings<R> {
    slots: Vec<Slot<R>>,
    /// Packets that were requeued, of all rings.
    held: Counts,
    /// Packets that the drivers took.
    pub(super) sent: Sent,
    /// Frames that a driver gave back.
    pub(super) requeues: u64,
    /// The qdisc stands still: the driver is full and has not woken the queue (INV-TX-11: it is
    /// not tried meanwhile).
    stopped: bool,
    /// A packet that the driver does not take is dropped.
    pub(super) noqueue: bool,
    /// Slots with a part of the batch that is being shared out; empty otherwise.
    touched: Vec<usize>,
}

impl<R: TxRing> Rings<R> {
    pub(super) fn new(rings: Vec<R>, noqueue: bool) -> Self {
        Rings {
            slots: rings.into_iter().map(Slot::new).collect(),
            held: Counts::default(),
            sent: Sent::default(),
            requeues: 0,
            stopped: false,
            noqueue,
            touched: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Packets that were requeued.
    pub(super) fn requeued(&self) -> Counts {
        let lists = self.slots.iter().flat_map(|slot| &slot.requeued);
        debug_assert_eq!(self.held, Counts::of(lists));
        self.held
    }

    /// True if a ring was full when it was tried last.
    pub(super) fn is_held_up(&self) -> bool {
        self.stopped || self.held.frames != 0
    }

    /// True if there are rings, and none was full when it was tried last.
    pub(super) fn are_free(&self) -> bool {
        !self.slots.is_empty() && !self.is_held_up()
    }

    /// Bytes that the ring should be given now (see [`TxRing::available`]). One of several is
    /// asked when it gets something.
    #[inline]
    pub(super) fn available(&mut self, now: Time) -> Option<u64> {
        match &mut *self.slots {
            [only] => only.ring.available(now),
            _ => None,
        }
    }

    /// As [`available`](Rings::available), where nothing waits for the ring. Stops if that is
    /// nothing. (A driver may say `Some(0)` once, and later that there is no limit.)
    #[inline]
    pub(super) fn capacity(&mut self, now: Time) -> Option<u64> {
        let [only] = &mut *self.slots else {
            return None;
        };
        let bytes = only.ring.available(now);
        if bytes == Some(0) {
            self.stopped = true;
            only.block(now);
        } else {
            only.refused = None;
        }
        bytes
    }

    /// Hands a batch to the driver, and keeps what it does not take. Busy: something waits here,
    /// and the qdisc must stop if the rings are [stopped](Rings::is_stopped).
    #[inline]
    pub(super) fn send(
        &mut self,
        batch: &mut PacketList,
        now: Time,
        dropped: &mut Dropped,
    ) -> Xmit {
        let [only] = &mut *self.slots else {
            return self.fan_out(batch, now, dropped);
        };
        let sent = only.ring.xmit(batch, &mut self.sent);
        if !self.sent.dropped.is_empty() {
            self.count_dropped(dropped);
        }
        if sent == Xmit::Complete {
            return Xmit::Complete;
        }
        self.keep(batch, now, dropped)
    }

    /// Keeps what the only ring did not take.
    #[cold]
    fn keep(&mut self, rest: &mut PacketList, now: Time, dropped: &mut Dropped) -> Xmit {
        if rest.is_empty() {
            return Xmit::Complete;
        }
        if self.noqueue {
            self.send_or_drop(rest, dropped);
            return Xmit::Complete;
        }
        self.requeues += rest.len() as u64;
        self.slots[0].requeue(rest, now, &mut self.held);
        self.stopped = true;
        Xmit::Busy
    }

    /// Nothing can wait for the only ring. It may be busy so that others have their turn, and is
    /// offered the rest for as long as it takes any.
    fn send_or_drop(&mut self, rest: &mut PacketList, dropped: &mut Dropped) {
        let mut before = usize::MAX;
        while !rest.is_empty() && rest.len() < before {
            before = rest.len();
            self.slots[0].ring.xmit(rest, &mut self.sent);
            self.count_dropped(dropped);
        }
        dropped.append(rest.take(), DropReason::DriverRefused);
    }

    /// [`send`](Rings::send) to several rings: to each all that it gets of the batch at once,
    /// unless packets wait for it.
    #[inline(never)]
    fn fan_out(&mut self, batch: &mut PacketList, now: Time, dropped: &mut Dropped) -> Xmit {
        let rings = self.slots.len();
        if rings == 0 {
            // Who takes the rings away takes the packets along, so nothing comes here.
            dropped.append(batch.take(), DropReason::DeviceDown);
            return Xmit::Complete;
        }
        while let Some(mut packet) = batch.pop_front() {
            let ring = select_ring(&mut packet, rings);
            let slot = &mut self.slots[ring];
            if slot.fresh.is_empty() {
                self.touched.push(ring);
            }
            slot.fresh.push_back(packet);
        }
        while let Some(ring) = self.touched.pop() {
            let slot = &mut self.slots[ring];
            if slot.requeued.is_empty() {
                slot.offer(&mut self.sent, now);
                // INV-TX-7: what is put behind these was not refused by anyone.
                self.requeues += slot.fresh.len() as u64;
            }
            let mut rest = slot.fresh.take();
            if !rest.is_empty() {
                slot.requeue(&mut rest, now, &mut self.held);
            }
            // Each ring says what it dropped, and why.
            self.count_dropped(dropped);
        }
        self.stopped = self.is_full();
        if self.is_held_up() {
            Xmit::Busy
        } else {
            Xmit::Complete
        }
    }

    /// Offers what was requeued to rings that are not blocked, as far as the budget goes. Returns
    /// whether more of it may leave now.
    pub(super) fn retry(&mut self, budget: &mut Budget, dropped: &mut Dropped) -> bool {
        if self.stopped {
            return false;
        }
        let mut more = false;
        for ring in 0..self.slots.len() {
            let slot = &mut self.slots[ring];
            let (held, sent) = (&mut self.held, &mut self.sent);
            let (again, refused) = slot.retry(budget, self.noqueue, held, sent, dropped);
            more |= again;
            self.requeues += refused;
            self.count_dropped(dropped);
        }
        self.stopped = !more && self.is_full();
        more
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// True if the qdisc must stop.
    fn is_full(&self) -> bool {
        let limit = if self.slots.len() > 1 {
            REQUEUE_LIMIT
        } else {
            1
        };
        // No list holds more than all together.
        self.held.frames >= limit && self.slots.iter().any(|slot| slot.requeued.len() >= limit)
    }

    #[cold]
    fn count_dropped(&mut self, dropped: &mut Dropped) {
        for (reason, packets) in self.sent.dropped.drain(..) {
            dropped.note(reason, packets);
        }
    }

    /// Rings may have capacity again: they are tried anew.
    pub(super) fn unblock(&mut self) {
        self.stopped = false;
        self.slots.iter_mut().for_each(|slot| slot.blocked = false);
    }

    /// Since when the ring that has been full for longest has taken nothing. None if no ring is
    /// full.
    pub(super) fn refused_since(&self) -> Option<Time> {
        if !self.is_held_up() {
            return None;
        }
        self.slots.iter().filter_map(|slot| slot.refused).min()
    }

    /// Has rings [restarted](TxRing::restart) that have taken nothing for `timeout`, and tries
    /// them anew.
    pub(super) fn restart(&mut self, now: Time, timeout: Duration) {
        for slot in &mut self.slots {
            if slot
                .refused
                .is_some_and(|since| now.since(since) >= timeout)
            {
                slot.ring.restart(now);
                (slot.blocked, slot.refused) = (false, None);
            }
        }
        self.stopped = false;
    }

    /// Takes what was requeued: for each ring, in the order in which it would have left. No ring
    /// counts as blocked any more.
    pub(super) fn take_requeued(&mut self) -> PacketList {
        let mut all = PacketList::new();
        for slot in &mut self.slots {
            all.append(&mut slot.requeued);
            (slot.blocked, slot.refused) = (false, None);
        }
        self.held = Counts::default();
        self.stopped = false;
        all
    }

    /// As [`take_requeued`](Rings::take_requeued), after a panic of a driver: also what was being
    /// offered.
    pub(super) fn abandon(&mut self, dropped: &mut Dropped) -> PacketList {
        self.count_dropped(dropped);
        self.touched.clear();
        let mut all = self.take_requeued();
        for slot in &mut self.slots {
            all.append(&mut slot.fresh);
        }
        all
    }

    /// Takes the rings. What was requeued has been taken before.
    pub(super) fn take(&mut self) -> Vec<R> {
        let slots = std::mem::take(&mut self.slots);
        slots.into_iter().map(|slot| slot.ring).collect()
    }

    /// Adds rings.
    pub(super) fn extend(&mut self, rings: Vec<R>) {
        self.slots.extend(rings.into_iter().map(Slot::new));
    }
}
