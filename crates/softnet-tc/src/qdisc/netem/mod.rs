//! `netem`: a link with delay, loss, copies, damage, another order and a rate (tc-netem(8)).
//!
//! Each packet is decided on as it comes, in the order of the kernel's `netem_enqueue`: copied,
//! lost, damaged, refused at the limit; then its [delay](distribution) is drawn, and it waits in a
//! [queue by time](queue). `rate` adds the time that the packet takes on the link, behind the
//! latest that waits. Of `reorder` one in `gap` packets leaves at once. With a qdisc at the only
//! class, `:1`, packets go there when their delay is over, and leave as it says. [Slots](slot) hold
//! packets back once more.
//!
//! A copy is enqueued at the root, once: it says by [`deferred`](Packet::deferred), as the kernel's
//! does by `tc_depth`, that it is none to copy again. With the same `seed` the same packets are
//! lost as in the kernel ([`random`]); what the kernel draws from other sources (the byte that is
//! damaged, the first of correlated numbers, slots without a distribution) comes from the seed as
//! well.
//!
//! A large frame (GSO) is segmented as it comes if any of this can make a difference to one of its
//! packets: all but a delay without jitter. So each is lost, delayed and counted by itself, as on a
//! wire. Beyond [`CUTS`] segments of one call it stays whole, as in the kernel, and is not damaged.
//!
//! Where a tree has an instance at each transmit queue, each has a `netem` of its own, with its
//! `limit`, `rate`, slots and random numbers.

mod distribution;
mod kind;
mod loss;
mod queue;
mod random;
#[cfg(all(test, not(any(loom, miri))))]
mod random_tests;
mod slot;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use std::time::Duration;

use softnet::mem::{Packet, PacketList};
use softnet::offload::{fill_checksum, segment};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::time::Time;

use super::aqm::mark_ce;
use crate::account::{Child, Children, Xstat, Xstats};
use distribution::around;
use loss::Loss;
use queue::TimeQueue;
use random::{Correlated, Prng};
use slot::Slots;

pub use distribution::Distribution;
pub use kind::NetemSpec;
pub use loss::LossModel;
pub use slot::SlotSpec;

/// Segments that one call makes of large frames at most.
const CUTS: u64 = 4096;
/// Segments that one step makes: buffers that it takes from the pool at once.
const CHUNK: usize = 64;
/// Packets that go to the class's qdisc in one call at most.
const MOVES: usize = 1024;

/// A time in nanoseconds, as the kernel keeps it.
fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Statistics, in the order of [`NAMES`].
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    delayed: u64,
    lost: u64,
    corrupted: u64,
    duplicated: u64,
    reordered: u64,
    marked: u64,
    no_buffer: u64,
}

const NAMES: [Xstat; 7] = [
    Xstat::Delayed,
    Xstat::Dropped,
    Xstat::Corrupted,
    Xstat::Duplicated,
    Xstat::Reordered,
    Xstat::EcnMarked,
    Xstat::AllocationErrors,
];

/// The random numbers of each decision.
#[derive(Debug)]
struct Draws {
    prng: Prng,
    /// For what the kernel draws from elsewhere.
    other: Prng,
    delay: Correlated,
    loss: Correlated,
    duplicate: Correlated,
    reorder: Correlated,
    corrupt: Correlated,
}

/// `netem`, a link with errors (tc-netem(8)). Without jitter packets leave in order, each exactly
/// its delay after it came.
#[derive(Debug)]
pub struct Netem {
    spec: NetemSpec,
    /// Large frames are segmented.
    cuts: bool,
    draws: Draws,
    loss: Loss,
    /// Packets since the last that left at once.
    counter: u32,
    /// Packets that leave at once, the latest first.
    front: PacketList,
    queue: TimeQueue,
    slots: Slots,
    /// The class, which has no queue unless a qdisc is attached.
    class: Children,
    counts: Counts,
    xstats: Xstats,
}

impl Netem {
    /// As many packets wait for their time as may. Those in the class count no more.
    #[inline]
    fn is_full(&self) -> bool {
        let passed = self.class.get(0).map_or(0, |child| child.qlen());
        self.class.stats.qlen - passed >= self.spec.limit.into()
    }

    /// Segments a large frame, and takes its packets one by one.
    fn enqueue_large(&mut self, frame: Packet, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        let mut rest = Some(frame);
        while let Some(frame) = rest.take() {
            if self.is_full() {
                // Whatever else would become of its packets.
                return self.refuse(frame, DropReason::QdiscLimit, cx);
            }
            let mut packets = PacketList::new();
            match segment(frame, CHUNK, &cx.pool, &mut packets) {
                Ok(more) => rest = more,
                Err(error) => {
                    self.counts.no_buffer += 1;
                    self.class.stats.drops += 1;
                    cx.dropped.note(error.reason, error.packets);
                    return Verdict::Dropped;
                }
            }
            while let Some(packet) = packets.pop_front() {
                verdict = verdict.max(self.enqueue_one(packet, cx));
            }
        }
        verdict
    }

    fn refuse(&mut self, packet: Packet, reason: DropReason, cx: &mut Cx) -> Verdict {
        self.class.stats.drops += 1;
        cx.dropped.push(packet, reason);
        Verdict::Dropped
    }

    /// `netem_enqueue`.
    #[inline]
    fn enqueue_one(&mut self, mut packet: Packet, cx: &mut Cx) -> Verdict {
        let Draws {
            prng,
            loss,
            duplicate,
            ..
        } = &mut self.draws;
        let spec = &self.spec;
        let mut twice = packet.deferred() == 0 && duplicate.happens(spec.duplicate, prng);
        self.counts.duplicated += u64::from(twice);
        if self.loss.next(spec.loss, loss, prng) {
            if spec.ecn && mark_ce(&mut packet, &cx.pool) {
                self.counts.marked += 1;
            } else {
                self.counts.lost += 1;
                if !twice {
                    // Its sender is not told, as of a loss on a wire.
                    self.refuse(packet, DropReason::NetemLoss, cx);
                    return Verdict::Queued;
                }
                twice = false;
            }
        }
        let copy = if twice {
            self.copy(&mut packet, cx)
        } else {
            None
        };
        let Draws { prng, corrupt, .. } = &mut self.draws;
        if corrupt.happens(self.spec.corrupt, prng) && packet.gso().is_none() {
            if let Err(reason) = self.damage(&mut packet, cx) {
                self.counts.no_buffer += 1;
                return self.refuse(packet, reason, cx);
            }
            self.counts.corrupted += 1;
        }
        if self.is_full() {
            return self.refuse(packet, DropReason::QdiscLimit, cx);
        }
        if let Some(copy) = copy {
            cx.copied += copy.wire_packets();
            cx.reinject.push_back(copy);
        }
        self.class.stats.count_queued(&packet);
        if self.is_early() {
            self.counts.reordered += 1;
            self.counter = 0;
            self.front.push_front(packet);
        } else {
            let time = self.time_of(&packet, cx.now);
            self.counter = self.counter.wrapping_add(1);
            self.queue.push(time, packet);
        }
        Verdict::Queued
    }

    /// A copy, to be enqueued at the root.
    #[cold]
    fn copy(&mut self, packet: &mut Packet, cx: &Cx) -> Option<Packet> {
        let copy = packet.share(&cx.pool);
        self.counts.no_buffer += u64::from(copy.is_none());
        copy.map(|mut copy| {
            // One of a stack of `netem` must not copy it, either.
            copy.set_deferred(1);
            copy
        })
    }

    /// Changes one bit, behind the back of whatever checksum there is.
    #[cold]
    fn damage(&mut self, packet: &mut Packet, cx: &Cx) -> Result<(), DropReason> {
        packet.linearize(&cx.pool)?;
        if !packet.make_unique(&cx.pool) {
            return Err(DropReason::NoBuffer);
        }
        fill_checksum(packet)?;
        let other = &mut self.draws.other;
        let at = other.below(u32::try_from(packet.len()).unwrap_or(u32::MAX)) as usize;
        if let Some(byte) = packet.data_mut().get_mut(at) {
            *byte ^= 1 << other.below(8);
        }
        Ok(())
    }

    /// True if the packet leaves at once, before all that wait.
    #[inline]
    fn is_early(&mut self) -> bool {
        let NetemSpec { gap, reorder, .. } = self.spec;
        let Draws {
            prng,
            reorder: draw,
            ..
        } = &mut self.draws;
        gap != 0 && self.counter >= gap - 1 && reorder >= draw.next(prng)
    }

    /// The time at which a packet leaves that comes now.
    #[inline]
    fn time_of(&mut self, packet: &Packet, now: Time) -> u64 {
        let Draws { prng, delay, .. } = &mut self.draws;
        let spec = &self.spec;
        let jitter = nanos(spec.jitter).min(i32::MAX.into()) as u32;
        let table = spec.distribution.as_ref();
        let mut delay = around(nanos(spec.delay), jitter, table, || delay.next(prng));
        let mut from = now.nanos();
        if spec.rate > 0 {
            // Behind the latest that waits; what its delay is longer than this one's counts.
            let last = self.queue.last().unwrap_or(0);
            if last > from {
                let ahead = i64::try_from(last - from).unwrap_or(i64::MAX);
                delay = delay.saturating_sub(ahead).max(0);
                from = last;
            }
            delay = delay.saturating_add(spec.time_on_link(packet.wire_len()));
        }
        self.counts.delayed += u64::from(delay != 0);
        // The greatest time means never.
        from.saturating_add_signed(delay).min(u64::MAX - 1)
    }

    /// A packet that is due (`netem_dequeue`).
    #[inline]
    fn take_due(&mut self, now: u64) -> Option<Packet> {
        let (time, _) = self.queue.first()?;
        if self.slots.is_before(time) {
            self.next_slot(now);
        }
        if self.slots.after(time) > now {
            return None;
        }
        let packet = self.queue.pop()?;
        if self.slots.spend(packet.wire_len()) {
            self.next_slot(now);
        }
        Some(packet)
    }

    #[cold]
    fn next_slot(&mut self, now: u64) {
        let Draws { prng, other, .. } = &mut self.draws;
        let table = self.spec.slot_distribution.as_ref();
        (self.slots).go_on(&self.spec.slot, table, now, prng, other);
    }

    /// Gives the class's qdisc what is due.
    fn move_due(&mut self, cx: &mut Cx) {
        let mut due = PacketList::new();
        let stamps = self.class.wants_enqueue_time();
        while due.len() < MOVES
            && let Some(mut packet) = self.take_due(cx.now.nanos())
        {
            self.class.stats.count_removed(&packet);
            if stamps && packet.departure_time().is_none() {
                // It has not waited there yet.
                packet.set_timestamp(cx.now);
            }
            due.push_back(packet);
        }
        if !due.is_empty() {
            self.class.enqueue(0, &mut due, cx);
        }
    }

    /// True if a qdisc is attached to the class.
    fn has_child(&self) -> bool {
        self.class.get(0).is_some_and(|child| !child.is_default())
    }

    /// Returns what the class's qdisc says, if it was asked.
    fn dequeue_some(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Option<Next> {
        let end = self.class.stats.packets + budget as u64;
        while self.class.stats.packets < end
            && let Some(packet) = self.front.pop_front()
        {
            self.class.stats.count_dequeued(&packet);
            out.push_back(packet);
        }
        let has_child = self.has_child();
        if has_child {
            self.move_due(cx);
        }
        let mut said = None;
        // Without a qdisc there may be what the last one held.
        if self.class.get(0).is_some_and(|child| !child.is_empty()) {
            let left = end.saturating_sub(self.class.stats.packets);
            if left > 0 {
                said = Some(self.class.dequeue(0, left as usize, out, cx));
            }
        }
        while !has_child
            && self.class.stats.packets < end
            && let Some(packet) = self.take_due(cx.now.nanos())
        {
            self.class.stats.count_dequeued(&packet);
            out.push_back(packet);
        }
        said
    }

    /// When to dequeue again. `child` is what the class's qdisc has said, if it was asked.
    fn next(&self, child: Option<Next>, now: Time) -> Next {
        if self.class.stats.qlen == 0 {
            return Next::Idle;
        }
        let holds = self.class.get(0).is_some_and(|child| !child.is_empty());
        let mut next = match child {
            Some(Next::Idle) => Time::MAX,
            Some(Next::At(time)) => time,
            Some(Next::Ready) => now,
            None if holds => now,
            None => Time::MAX,
        };
        if !self.front.is_empty() {
            next = now;
        }
        if let Some((time, _)) = self.queue.first() {
            next = next.min(Time(self.slots.after(time)));
        }
        if next <= now {
            Next::Ready
        } else {
            Next::At(next)
        }
    }

    fn publish(&self) {
        let Counts {
            delayed,
            lost,
            corrupted,
            duplicated,
            reordered,
            marked,
            no_buffer,
        } = self.counts;
        self.xstats.set([
            delayed, lost, corrupted, duplicated, reordered, marked, no_buffer,
        ]);
    }
}

impl Qdisc for Netem {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        let mut cuts = if self.cuts { CUTS } else { 0 };
        while let Some(packet) = packets.pop_front() {
            let count = packet.wire_packets();
            let one = if packet.gso().is_some() && count <= cuts {
                cuts -= count;
                self.enqueue_large(packet, cx)
            } else {
                self.enqueue_one(packet, cx)
            };
            verdict = verdict.max(one);
        }
        self.publish();
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let child = self.dequeue_some(budget, out, cx);
        self.next(child, cx.now)
    }

    fn peek(&self, now: Time) -> Peek {
        if let Some(first) = self.front.front() {
            return Peek::Packet(first.into());
        }
        if self.class.stats.qlen == 0 {
            return Peek::Idle;
        }
        let child = self.class.get(0).filter(|child| !child.is_empty());
        if self.has_child() || self.slots.is_on() {
            return Peek::Unknown;
        }
        match (
            child.map(|child| Child::peek_only(child, now)),
            self.queue.first(),
        ) {
            (Some(peek), _) => peek,
            (None, Some((time, packet))) if time <= now.nanos() => Peek::Packet(packet.into()),
            (None, Some((time, _))) => Peek::At(Time(time)),
            (None, None) => Peek::Idle,
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        let mut own = self.front.take();
        own.iter()
            .for_each(|packet| self.class.stats.count_removed(packet));
        out.append(&mut own);
        self.class.drain(out);
        while let Some(packet) = self.queue.pop() {
            self.class.stats.count_removed(&packet);
            out.push_back(packet);
        }
    }

    fn stats(&self) -> &QdiscStats {
        &self.class.stats
    }
}
