//! `htb`: classes with rates of their own that borrow from each other (tc-htb(8)).
//!
//! A leaf has a qdisc with packets. It sends with tokens for its `rate`, and else borrows those of
//! the nearest class above that has some, up to its `ceil`. Leaves with tokens of their own are
//! served first, then those that borrow, from lower levels first; among equals those of the lowest
//! `prio`, in turn. [`scheduler`] and [`turn`] say which leaf that is, [`class`] what it may do.
//!
//! A packet goes to the leaf that its priority names (`major:minor`), else to the one of the first
//! filter that matches, else to the default class. Where priority or filter name a class that is
//! no leaf, that class's own filters are asked. What leads nowhere, and what has the qdisc's own
//! handle as priority or class, is *direct*: a queue of its own that is served before all classes,
//! at no class's rate.
//!
//! Differences from the kernel: a large frame is charged the overhead of each of its packets;
//! tokens are not rounded; a debt is at most 4.6 GB, as well as a minute.
//!
//! # Several instances
//!
//! Where the tree has an instance at each transmit queue, what the instances share is the rates
//! alone: a class has two pots of each instance, for `rate` and `ceil` ([`pots`], [`crate::rate`]).
//! Turns within a row, limits and queues are each instance's own. With N instances, and Q the
//! quantum of a pot, at least a packet:
//!
//! - **What leaves.** In every window T less than `ceil·T + cburst + N·(Q + a turn) + 1` bytes of a
//!   leaf; of an inner class, that and what the classes below it may send at once with tokens of
//!   their own, `burst + N·(Q + a turn) + 1` each, where their rates add up to no more than its
//!   ceil. Proof: what is charged to a pot is drawn from its word before more is sent that asks, so
//!   [`crate::rate`]'s bound holds with payment afterwards; a turn is at most what is in the pots
//!   and one frame. What does not ask, what the classes below send by themselves, is bounded by
//!   their rates. `ceil·T` pays for their `rate·T`; only what they send at once comes on top.
//! - **Work conservation.** While a word holds more than half its burst nobody waits for others; so
//!   if half of the burst is at least `N·Q + r·δ` where each instance with a backlog runs every δ,
//!   a look every millisecond included ([`crate::rate`] says more), nothing is lost but what is in
//!   pots, once.
//! - **Flows of a leaf** get the same wherever they are, and leaves below a class the same by their
//!   quanta wherever their flows are: an instance's weight is the sum of its leaves' quanta, each
//!   times the part of the leaf's flows that is here. `fq` and `fq_codel` know their flows; any
//!   other queue is one. To within three draws of an instance, as far as all of them run.
//! - **Priorities.** An instance where a leaf of a higher priority waits for a class is seen by the
//!   others at their next draw. So a packet of the highest priority waits for what is in their pots
//!   or reserved, at most `(N − 1)·(Q + a turn)/r` in all, besides what its class owes already. Who
//!   has a lower priority looks again after 200 µs, later less often, and stops nothing: what does
//!   not ask is sent.
//! - **Turns.** A class with tokens that waits for its turn does not borrow meanwhile; it counts
//!   that as an overlimit. Among leaves that borrow, one that owes bytes is passed over (the kernel
//!   lets it send a packet).
//! - A class that is a leaf again has the tokens that are left, not full buckets.

mod class;
mod deferred;
mod kind;
mod pots;
mod row;
mod scheduler;
mod sharing;
mod spec;
mod turn;

pub use spec::{HtbClassSpec, HtbSpec};

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Fifo, Next, Peek, Qdisc, Verdict, WireSize, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::{Child, Children, Sent, Xstats};
use crate::filter::{Filters, Lost};
use crate::handle::Handle;
use crate::qdisc::kind::of_children;
use class::LEVELS;
use scheduler::Scheduler;
use turn::Taken;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Direct,
    Leaf(usize),
}

/// `htb`: classes with rates of their own that borrow from each other (tc-htb(8)).
#[derive(Debug)]
pub struct Htb {
    handle: Handle,
    default: u16,
    direct_limit: u32,
    direct: Fifo,
    direct_packets: u64,
    direct_drops: u64,
    xstats: Xstats,
    filters: Filters,
    /// Which leaf is next. It knows the classes by the slots of their children.
    scheduler: Scheduler,
    classes: Children,
}

impl Htb {
    /// Where a packet goes.
    ///
    /// # Errors
    /// If a filter takes it out.
    #[inline]
    fn classify(&self, packet: &mut Packet, cx: &mut Cx) -> Result<To, Lost> {
        match self.named(packet) {
            Ok(to) => Ok(to),
            Err(filters) => self.filter(packet, filters, cx),
        }
    }

    /// Where a packet goes because of its priority.
    ///
    /// # Errors
    /// If that names no leaf: which filters are asked. They are those of the class that it names.
    #[inline]
    fn named(&self, packet: &Packet) -> Result<To, &Filters> {
        let named = Handle::from_raw(packet.priority());
        if named == self.handle {
            return Ok(To::Direct);
        }
        match self.find_named(packet) {
            Some(leaf) if self.scheduler.level(leaf) == Some(0) => Ok(To::Leaf(leaf)),
            Some(inner) => Err(self.classes.filters(inner)),
            None => Err(&self.filters),
        }
    }

    /// Where filters send a packet. Those of an inner class that they lead to are asked next, of
    /// eight at most (BUG-HTB-4).
    #[inline(never)]
    fn filter<'a>(
        &'a self,
        packet: &mut Packet,
        mut filters: &'a Filters,
        cx: &mut Cx,
    ) -> Result<To, Lost> {
        for _ in 0..=LEVELS {
            let Some(named) = filters.classify(packet, cx).class()? else {
                return Ok(self.default());
            };
            if named == self.handle {
                return Ok(To::Direct);
            }
            if named.qdisc() != self.handle {
                return Ok(self.default());
            }
            match self.scheduler.find(named.minor()) {
                Some(leaf) if self.scheduler.level(leaf) == Some(0) => return Ok(To::Leaf(leaf)),
                Some(inner) => filters = self.classes.filters(inner),
                None => return Ok(self.default()),
            }
        }
        Err(Lost::Dropped(DropReason::ReclassifyLoop))
    }

    /// The class that a packet's priority names.
    #[inline]
    fn find_named(&self, packet: &Packet) -> Option<usize> {
        let named = Handle::from_raw(packet.priority());
        let ours = named.qdisc() == self.handle;
        ours.then(|| self.scheduler.find(named.minor())).flatten()
    }

    /// Where a packet goes that is not classified.
    fn default(&self) -> To {
        let class = self.scheduler.find(self.default);
        let leaf = class.filter(|&slot| self.scheduler.level(slot) == Some(0));
        leaf.map_or(To::Direct, To::Leaf)
    }

    /// Enqueues in a leaf that is a `pfifo`, with the packets at the front of a list that go the
    /// same way, as long as there is space.
    ///
    /// # Errors
    /// Returns the packet if the class is no such leaf, or has no space.
    #[inline(always)]
    fn push_pfifo(
        &mut self,
        leaf: usize,
        packet: Packet,
        others: &mut PacketList,
        same: impl Fn(&Packet) -> bool,
    ) -> Result<(), Packet> {
        if self.classes.push_pfifo_run(leaf, packet, others, same)? {
            self.scheduler.activate(leaf);
        }
        Ok(())
    }

    fn put(&mut self, to: To, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let To::Leaf(leaf) = to else {
            return self.put_direct(packets, cx);
        };
        let verdict = self.classes.enqueue(leaf, packets, cx);
        // A `netem` may lose all of them, and says that they are queued.
        if !self.is_empty(leaf) {
            self.scheduler.activate(leaf);
        }
        verdict
    }

    fn put_direct(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            if self.direct.len() < self.direct_limit as usize {
                self.count_direct(1);
                self.direct.push(packet, &mut self.classes.stats);
            } else {
                self.classes.stats.drops += 1;
                self.direct_drops += 1;
                self.count_direct(0);
                cx.dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
            }
        }
        verdict
    }

    fn count_direct(&mut self, frames: u64) {
        self.direct_packets += frames;
        self.xstats.set([self.direct_packets, self.direct_drops]);
    }

    fn is_empty(&self, leaf: usize) -> bool {
        self.classes.get(leaf).is_none_or(Child::is_empty)
    }

    /// As [`serve`](Htb::serve), if a leaf with tokens of its own is next that is a `pfifo`. This
    /// is what is usual.
    #[inline]
    fn serve_pfifo(&mut self, left: &mut u64, out: &mut PacketList, now: Time) -> bool {
        let Some(turn) = self.scheduler.next_own(now) else {
            return false;
        };
        // What this waits for, the packet that is sent now does not.
        if let Some(leaf) = self.scheduler.second_own(turn) {
            self.scheduler.prefetch(leaf);
            self.classes.prefetch(leaf);
            self.classes.prefetch_next(leaf);
        }
        let allowed = || self.scheduler.allowed(turn, now);
        let Some(sent) = self.classes.pop_pfifo(turn.leaf, *left, allowed, out) else {
            return false;
        };
        self.scheduler.charge(turn, sent, now);
        *left = left.saturating_sub(sent.size.packets);
        true
    }

    /// Serves one leaf. False: none may send, or none has anything that it lets go.
    fn serve(
        &mut self,
        left: &mut u64,
        held: &mut Time,
        out: &mut PacketList,
        cx: &mut Cx,
    ) -> bool {
        let Htb {
            scheduler, classes, ..
        } = self;
        let now = cx.now;
        let mut packets = 0;
        let served = scheduler.serve(now, |scheduler, turn| {
            let allowed = || scheduler.allowed(turn, now);
            let taken = match classes.pop_pfifo(turn.leaf, *left, allowed, out) {
                Some(sent) => Taken::Sent(sent),
                None => {
                    let (taken, next) =
                        classes.with(turn.leaf, |child| take(child, allowed, *left, out, cx));
                    if let Next::At(time) = next {
                        *held = time.min(*held);
                    }
                    taken
                }
            };
            if let Taken::Sent(sent) = taken {
                packets = sent.size.packets;
            }
            taken
        });
        *left = left.saturating_sub(packets);
        served
    }
}

/// Takes packets of one leaf until they stand for `left` wire packets or for more bytes than
/// allowed, which is asked only where there are several.
fn take(
    child: &mut Child,
    allowed: impl Fn() -> u64,
    left: u64,
    out: &mut PacketList,
    cx: &mut Cx,
) -> (Taken, Next) {
    let mut frames = 0;
    let mut sum = WireSum::default();
    let mut last = None;
    let mut next = Next::Ready;
    let mut limit = None;
    while !child.is_empty() && sum.packets < left {
        if frames > 0 && sum.bytes > *limit.get_or_insert_with(&allowed) {
            break;
        }
        let mut one = PacketList::new();
        next = child.dequeue(1, &mut one, cx);
        let Some(packet) = one.front() else { break };
        sum.add(packet);
        last = Some(WireSize::from(packet));
        out.append(&mut one);
        frames += 1;
    }
    let taken = match last {
        None if child.is_empty() => Taken::Empty,
        None => Taken::Held,
        Some(size) => Taken::Sent(Sent {
            frames,
            size: WireSize {
                packets: sum.packets,
                bytes: sum.bytes,
                each: size.each,
            },
            emptied: child.is_empty(),
            flows: child.flows(),
        }),
    };
    // Says that more is ready, and returns nothing: try again, but not at once.
    if frames == 0 && next == Next::Ready {
        next = Next::At(cx.now.plus_nanos(1));
    }
    (taken, next)
}

impl Qdisc for Htb {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        // Consecutive packets of one class stay one list.
        let mut run = PacketList::new();
        let mut current = To::Direct;
        while let Some(packet) = packets.pop_front() {
            if let Some(leaf) = packets.front().and_then(|next| self.find_named(next)) {
                self.classes.prefetch(leaf);
                self.scheduler.prefetch(leaf);
            }
            // What is usual needs no look at the class, and at what follows only at its priority.
            let priority = packet.priority();
            let same = |other: &Packet| other.priority() == priority;
            let mut packet = match self.find_named(&packet) {
                Some(leaf) if run.is_empty() => {
                    match self.push_pfifo(leaf, packet, packets, same) {
                        Ok(()) => continue,
                        Err(packet) => packet,
                    }
                }
                _ => packet,
            };
            let to = match self.classify(&mut packet, cx) {
                Ok(to) => to,
                Err(lost) => {
                    let lost = lost.settle(packet, &mut self.classes.stats, cx);
                    verdict = verdict.max(lost);
                    continue;
                }
            };
            if to != current && !run.is_empty() {
                verdict = verdict.max(self.put(current, &mut run, cx));
            }
            current = to;
            let packet = match to {
                To::Leaf(leaf) if run.is_empty() => {
                    match self.push_pfifo(leaf, packet, packets, |_| false) {
                        Ok(()) => continue,
                        Err(packet) => packet,
                    }
                }
                _ => packet,
            };
            run.push_back(packet);
        }
        if !run.is_empty() {
            verdict = verdict.max(self.put(current, &mut run, cx));
        }
        verdict
    }

    /// Packets of one leaf that has the tokens for all of them, or direct ones. Filters would
    /// count them twice, here and in `enqueue`.
    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let Some(first) = packets.front() else {
            return false;
        };
        if self.classes.stats.qlen != 0 {
            return false;
        }
        let to = |packet| match self.named(packet) {
            Ok(to) => Some(to),
            Err(filters) => filters.is_empty().then(|| self.default()),
        };
        let Some(to_all) = to(first) else {
            return false;
        };
        if !packets
            .iter()
            .skip(1)
            .all(|packet| to(packet) == Some(to_all))
        {
            return false;
        }
        let To::Leaf(leaf) = to_all else {
            let passes = packets.len() <= self.direct_limit as usize;
            if passes {
                self.count_direct(packets.len() as u64);
                self.classes.stats.count_sent(sum);
            }
            return passes;
        };
        if !self.scheduler.passes(leaf, packets.len(), sum, cx.now)
            || !self.classes.try_pass(leaf, packets, sum, cx)
        {
            return false;
        }
        let sizes = packets.iter().map(WireSize::from);
        self.scheduler.pass(leaf, sizes, sum, cx.now);
        self.classes.stats.overlimits = self.scheduler.overlimits;
        true
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let mut left = budget as u64;
        while left > 0 {
            let Some(packet) = self.direct.pop(&mut self.classes.stats) else {
                break;
            };
            left = left.saturating_sub(packet.wire_packets());
            out.push_back(packet);
        }
        let next = loop {
            if self.classes.stats.qlen == 0 {
                break Next::Idle;
            }
            if left == 0 {
                break Next::Ready;
            }
            if self.serve_pfifo(&mut left, out, cx.now) {
                continue;
            }
            let mut held = Time::MAX;
            if !self.serve(&mut left, &mut held, out, cx) {
                break Next::At(held.min(self.scheduler.next_event()));
            }
        };
        self.scheduler.settle(cx.now);
        self.classes.stats.overlimits = self.scheduler.overlimits;
        self.scheduler.announce(next, cx.now);
        next
    }

    /// Which leaf is next shows only when it is taken.
    fn peek(&self, now: Time) -> Peek {
        if let known @ Peek::Packet(_) = self.direct.peek() {
            return known;
        }
        if self.classes.stats.qlen == 0 {
            return Peek::Idle;
        }
        match self.scheduler.next_event() {
            time if time > now && self.scheduler.is_blocked() => Peek::At(time),
            _ => Peek::Unknown,
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.direct.drain(out, &mut self.classes.stats);
        self.classes.drain(out);
        self.scheduler.deactivate_all();
    }

    of_children!(classes);
}

#[cfg(all(test, not(any(loom, miri))))]
mod paced_leaves_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod scheduler_property_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod scheduler_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod sharing_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod sharing_world;
#[cfg(all(test, not(any(loom, miri))))]
mod test_world;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
