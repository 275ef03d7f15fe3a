//! What the driver's rings gave back, and what waits for a ring that is full while others go on: a list for each ring (the kernel's `gso_skb` and
//! `skb_bad_txq`). Only the thread that runs the queue is ever here.
//!
//! A ring that refuses packets, or says that it has no room, is *blocked*: it is left alone (INV-TX-11) until the driver [wakes](TxQueue::wake) the queue, and until
//! then what leaves the discipline for it waits on its list, behind what it refused (INV-TX-4, BUG-TX-9). Rings that are not blocked go on, so one
//! full ring does not hold back the others' packets.
//!
//! What waits here has left the discipline, which can neither reorder nor shorten it any more. So the lists are short: where one ring is all there is, the
//! discipline stops at the first refusal; where there are several, when one list holds [`REQUEUE_LIMIT`] frames. (The batch with which it comes to that
//! still goes on it; one of [`RUN_QUOTA`](super::RUN_QUOTA) frames, more if large ones of them were segmented.) Then all rings wait for that one, as they
//! would without the lists.

use std::time::Duration;

use super::queue::TxQueue;
use super::ring::{Sent, TxRing, Xmit};
use super::runner::{Budget, Left, Runner};
use super::select::select_queue;
use super::watch::Watch;
use crate::mem::PacketList;
use crate::qdisc::Qdisc;
use crate::stats::DropReason;
use crate::time::Time;

/// Frames that wait for one ring, while others go on, when the discipline stops. A driver's ring holds a few hundred, so this lasts until a ring
/// that is full for want of speed alone has room again.
pub const REQUEUE_LIMIT: usize = 256;

/// Frames, wire bytes, wire packets, and bytes of the buffers that hold them.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    frames: usize,
    bytes: u64,
    packets: u64,
    memory: u64,
}

impl Counts {
    fn of(list: &PacketList) -> Counts {
        list.iter().fold(Counts::default(), |sum, packet| {
            let (bytes, packets) = packet.wire();
            Counts {
                frames: sum.frames + 1,
                bytes: sum.bytes + bytes,
                packets: sum.packets + packets,
                memory: sum.memory + packet.memory(),
            }
        })
    }

    fn add(&mut self, more: Counts) {
        self.frames += more.frames;
        self.bytes += more.bytes;
        self.packets += more.packets;
        self.memory += more.memory;
    }

    fn sub(&mut self, less: Counts) {
        self.frames -= less.frames;
        self.bytes -= less.bytes;
        self.packets -= less.packets;
        self.memory -= less.memory;
    }
}

/// What waits for one ring.
#[derive(Debug, Default)]
struct Waiting {
    /// Of a batch that is being shared out; empty otherwise.
    fresh: PacketList,
    waiting: PacketList,
    counts: Counts,
    /// The ring is full and has not been heard of since. Then something waits.
    blocked: bool,
    /// When the ring, one of several, refused packets for the first time since it took some or was restarted.
    since: Option<Time>,
}

impl Waiting {
    /// Notes that what waits was refused.
    fn refused(&mut self, now: Time) {
        self.blocked = true;
        self.since.get_or_insert(now);
    }
}

/// What waits for the rings of a queue.
#[derive(Debug, Default)]
pub(super) struct Requeue {
    /// By ring; made when something waits for the first time.
    lists: Vec<Waiting>,
    /// Of all lists.
    total: Counts,
    /// Rings that have something of the batch that is being shared out; empty otherwise.
    touched: Vec<usize>,
    /// When the run began, where there are several rings.
    pub(super) now: Time,
}

impl Requeue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.total.frames == 0
    }

    /// Frames.
    pub(super) fn len(&self) -> usize {
        self.total.frames
    }

    /// Wire bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.total.bytes
    }

    /// Wire packets.
    pub(super) fn packets(&self) -> u64 {
        self.total.packets
    }

    /// Bytes of the buffers that hold it.
    pub(super) fn memory(&self) -> u64 {
        self.total.memory
    }

    /// Has lists for `rings` rings.
    fn reach(&mut self, rings: usize) {
        if self.lists.len() < rings {
            self.lists.resize_with(rings, Waiting::default);
        }
    }

    /// Puts `more` behind what waits for `ring`, which is full.
    fn append(&mut self, ring: usize, more: &mut PacketList) {
        let counts = Counts::of(more);
        let list = &mut self.lists[ring];
        list.counts.add(counts);
        list.waiting.append(more);
        list.refused(self.now);
        self.total.add(counts);
    }

    /// Takes everything: for each ring, in the order in which it would have left. No ring counts as blocked any more.
    pub(super) fn take(&mut self) -> PacketList {
        let mut all = PacketList::new();
        for list in &mut self.lists {
            all.append(&mut list.waiting);
            *list = Waiting::default();
        }
        self.total = Counts::default();
        all
    }

    /// Rings may have room again, or are others: they are tried anew.
    pub(super) fn unblock(&mut self) {
        self.lists.iter_mut().for_each(|list| list.blocked = false);
    }

    /// Since when the ring that has been full for longest has taken nothing. None if there is no such ring.
    fn since(&self) -> Option<Time> {
        let full = self.lists.iter().filter(|list| !list.waiting.is_empty());
        full.filter_map(|list| list.since).min()
    }

    /// Whether the discipline must stop, where it feeds `rings` rings.
    fn is_full(&self, rings: usize) -> bool {
        let limit = if rings > 1 { REQUEUE_LIMIT } else { 1 };
        self.total.frames >= limit && self.lists.iter().any(|l| l.counts.frames >= limit)
    }
}

/// Offers packets to one ring, which takes them out of the list as far as it has room.
fn offer<R: TxRing>(ring: &mut R, packets: &mut PacketList, sent: &mut Sent, now: Time) {
    // Also where the answer is a number: a driver frees what is done with when it is asked.
    if ring.available(now) != Some(0) {
        ring.xmit(packets, sent);
    }
}

impl<R: TxRing, Q: Qdisc> Runner<R, Q> {
    /// What a run does first where something waits for a ring: tries the rings that may have room again, as far as the budget goes. `Nothing` if the discipline may go on.
    #[cold]
    #[inline(never)]
    pub(super) fn resume(&mut self, queue: &TxQueue<R, Q>, budget: &mut Budget) -> Left {
        if queue.take_woken() {
            self.stopped = false;
            self.requeued.unblock();
        } else if self.stopped {
            return Left::Stopped;
        }
        let (now, noqueue) = (budget.start, self.qdisc.is_noqueue());
        let mut more = false;
        let Requeue { lists, total, .. } = &mut self.requeued;
        for (list, ring) in lists.iter_mut().zip(&mut self.rings) {
            if list.waiting.is_empty() || list.blocked {
                continue;
            }
            if budget.packets == 0 {
                more = true;
                break;
            }
            let before = list.counts;
            let mut some = PacketList::new();
            list.waiting.split_wire_packets(budget.packets, &mut some);
            offer(ring, &mut some, &mut self.sent, now);
            let full = !some.is_empty();
            some.append(&mut list.waiting);
            list.waiting = some;
            if noqueue {
                let rest = list.waiting.take();
                self.cx.dropped.append(rest, DropReason::DriverRefused);
            }
            if before.frames > list.waiting.len() {
                list.since = None;
                list.counts = Counts::of(&list.waiting);
                budget.charge(before.packets - list.counts.packets);
                total.sub(before);
                total.add(list.counts);
            }
            if full {
                list.refused(now);
            } else if !list.waiting.is_empty() {
                more = true;
            }
        }
        self.note_refused();
        if more {
            return Left::More;
        }
        self.stopped = self.requeued.is_full(self.rings.len());
        if self.stopped {
            Left::Stopped
        } else {
            Left::Nothing
        }
    }

    /// [`send`](Runner::send) to several rings: to each all that it gets of the batch at once, unless it is blocked. Busy if the discipline must stop.
    #[inline(never)]
    pub(super) fn spread(&mut self, batch: &mut PacketList) -> Xmit {
        let (rings, now) = (self.rings.len(), self.requeued.now);
        if rings == 0 {
            // Who takes the rings away takes the packets along, so nothing comes here.
            self.cx.dropped.append(batch.take(), DropReason::DeviceDown);
            return Xmit::Complete;
        }
        self.requeued.reach(rings);
        let Requeue { lists, touched, .. } = &mut self.requeued;
        while let Some(packet) = batch.pop_front() {
            let ring = select_queue(&packet, rings);
            let list = &mut lists[ring];
            if list.fresh.is_empty() {
                touched.push(ring);
            }
            list.fresh.push_back(packet);
        }
        while let Some(ring) = self.requeued.touched.pop() {
            let list = &mut self.requeued.lists[ring];
            let mut fresh = list.fresh.take();
            if list.waiting.is_empty() {
                offer(&mut self.rings[ring], &mut fresh, &mut self.sent, now);
                // INV-TX-7: what is put behind these was not refused by anyone.
                self.requeues += fresh.len() as u64;
            }
            if !fresh.is_empty() {
                self.requeued.append(ring, &mut fresh);
            }
        }
        self.note_refused();
        self.stopped = self.requeued.is_full(rings);
        if self.stopped {
            Xmit::Busy
        } else {
            Xmit::Complete
        }
    }

    /// Notes what the only ring dropped, and keeps what it did not take.
    #[cold]
    pub(super) fn keep(&mut self, mut rest: PacketList) -> Xmit {
        self.note_refused();
        if rest.is_empty() {
            return Xmit::Complete;
        }
        if self.qdisc.is_noqueue() {
            self.cx.dropped.append(rest, DropReason::DriverRefused);
            return Xmit::Complete;
        }
        self.requeues += rest.len() as u64;
        self.requeued.reach(1);
        self.requeued.append(0, &mut rest);
        self.stopped = true;
        Xmit::Busy
    }

    /// Notes what the rings refused for good.
    fn note_refused(&mut self) {
        if let Some((reason, packets)) = self.sent.dropped.take() {
            self.cx.dropped.note(reason, packets);
        }
    }

    /// Says since when a driver has been full that has taken nothing since: of several, the one of which it is longest.
    #[inline]
    pub(super) fn watched(&self, watch: &Watch, left: Left, now: Time) {
        if self.rings.len() > 1 {
            self.watched_by_ring(watch);
        } else {
            watch.ran(left == Left::Stopped, self.sent(), now);
        }
    }

    #[cold]
    fn watched_by_ring(&self, watch: &Watch) {
        watch.stopped_since(self.requeued.since());
    }

    /// Has rings [restarted](TxRing::restart) that have taken nothing for `timeout`, and tries them anew: the only one, or those of several that did not.
    pub(super) fn restart(&mut self, now: Time, timeout: Duration) {
        let rings = self.rings.len();
        if let [only] = &mut *self.rings {
            only.restart(now);
        }
        for (list, ring) in self.requeued.lists.iter_mut().zip(&mut self.rings) {
            let stuck = |since| now.since(since) >= timeout;
            if rings == 1 || list.blocked && list.since.is_some_and(stuck) {
                if rings > 1 {
                    ring.restart(now);
                }
                list.blocked = false;
                list.since = None;
            }
        }
        self.stopped = false;
    }
}
