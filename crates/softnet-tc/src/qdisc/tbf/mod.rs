//! `tbf`: a token bucket (tc-tbf(8)). A packet leaves when the bucket holds tokens for all that
//! it costs on the link; an optional second, small bucket bounds the peak rate. What waits is
//! kept by the only class, `:1`: a `bfifo` of `limit` bytes, or whatever is grafted there.
//!
//! Both [buckets](crate::rate::bucket) are changed only when a packet leaves. INV-Q-3: over any
//! window T at most `burst + rate * T` bytes leave.
//!
//! A large frame (GSO) that costs more than the bucket holds is segmented, as it leaves: until
//! then it waits in one piece, so that it takes no more buffers than it came with. Anything else
//! that costs more is dropped with [`DropReason::QdiscOversize`]. What was let in before the
//! bucket was made smaller leaves when it is full, and then it stays empty for the time that the
//! rest of the cost takes.
//!
//! Where the tree runs as several instances, they share both buckets: [`shared`].

mod kind;
mod shaper;
mod shared;
#[cfg(all(test, not(any(loom, miri))))]
mod shared_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use softnet::mem::{Packet, PacketList};
use softnet::offload::segment;
use softnet::qdisc::{Cx, Next, Peek, Qdisc, Verdict, WireSize, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::{Child, Children};
use crate::qdisc::kind::of_children;
use crate::rate::UNIT;
use shaper::Shaper;

pub use kind::TbfSpec;

/// Segments that one step makes at most: buffers that it takes from the pool.
const CHUNK: u64 = 64;

/// `tbf`, a token bucket (tc-tbf(8)). Over any time `T` at most `burst + rate * T` bytes leave,
/// and not less while packets wait: no rounding adds up. A large frame longer than the bucket is
/// segmented; anything else that is longer is dropped.
#[derive(Debug)]
pub struct Tbf {
    shaper: Shaper,
    class: Children,
    /// The frame that is being segmented: out of the class, but still queued.
    segmenting: Option<Packet>,
}

impl Tbf {
    /// As [`try_pass`](Qdisc::try_pass), with two buckets and the link's framing.
    #[cold]
    fn try_pass_framed(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let prices = packets
            .iter()
            .map(|packet| self.shaper.price(packet.into()));
        let price = prices.fold(0, u64::saturating_add);
        if self.shaper.shared.is_some() {
            return price <= self.shaper.max_price
                && self.try_pass_shared(packets, sum, price / UNIT, cx);
        }
        let (tokens, peak_tokens, wait) = self.shaper.ask(price, cx.now);
        let passes = price <= self.shaper.max_price
            && wait == 0
            && self.class.try_pass(0, packets, sum, cx);
        if passes {
            self.shaper.charge((tokens, peak_tokens), price, cx.now);
        }
        passes
    }

    /// As [`try_pass`](Qdisc::try_pass), with shared buckets, of which it costs so many bytes.
    #[inline]
    fn try_pass_shared(
        &mut self,
        packets: &PacketList,
        sum: WireSum,
        price: u64,
        cx: &mut Cx,
    ) -> bool {
        let Some(shared) = &mut self.shaper.shared else {
            return false;
        };
        // With a backlog it is no matter of the tokens.
        let passes = self.class.stats.qlen == 0
            && shared.has(price, cx.now)
            && self.class.try_pass(0, packets, sum, cx);
        if passes {
            shared.spend(price);
        }
        passes
    }

    /// True if a frame may be let in, in one piece or segmented. Of the segments the first is
    /// longest, and no longer than the frame.
    #[inline]
    fn admits(&self, size: WireSize) -> bool {
        self.shaper.admits(size.first())
    }

    /// Sends frames that need not be segmented until `left` is used up, or until one comes up
    /// that must be. The result is why it stopped before that.
    #[inline]
    fn dequeue_whole(
        &mut self,
        left: &mut u64,
        out: &mut PacketList,
        cx: &mut Cx,
    ) -> Option<Next> {
        let Tbf {
            shaper,
            class,
            segmenting,
            ..
        } = self;
        let mut missing = 0;
        let next = class.with(0, |child| {
            while *left > 0 {
                let size = match child.peek(cx) {
                    Peek::Packet(size) => size,
                    Peek::At(time) => return Some(Next::At(time)),
                    Peek::Idle | Peek::Unknown => return Some(Next::Idle),
                };
                if size.packets > 1 && !shaper.admits(size) {
                    let mut large = PacketList::new();
                    child.dequeue(1, &mut large, cx);
                    *segmenting = large.pop_front();
                    return None;
                }
                if let Err(wait) = shaper.take(shaper.price(size), || child.flows(), cx.now) {
                    missing += 1;
                    return Some(Next::At(cx.now.plus_nanos(wait)));
                }
                child.dequeue(1, out, cx);
                *left = left.saturating_sub(size.packets);
            }
            None
        });
        class.stats.overlimits += missing;
        if let Some(frame) = segmenting {
            // Out of the class, but not sent.
            let (bytes, packets) = frame.wire();
            class.stats.bytes -= bytes;
            class.stats.packets -= packets;
            class.stats.count_queued(frame);
        }
        next
    }

    /// Sends wire packets of the frame that is being segmented, at most `limit`. Returns how
    /// many, and the time for which the next must wait.
    fn segment(&mut self, limit: u64, out: &mut PacketList, cx: &mut Cx) -> (u64, Option<Time>) {
        let Some(frame) = self.segmenting.take() else {
            return (0, None);
        };
        let size = WireSize::from(&frame);
        // The frame's own is not among those that are queued, unless it has more.
        let flows = || self.class.get(0).map_or(0, Child::flows).max(1);
        let (paid, wait) = (self.shaper).take_some(size, limit.min(CHUNK), flows, cx.now);
        let stats = &mut self.class.stats;
        stats.overlimits += u64::from(wait.is_some());
        let wait = wait.map(|wait| cx.now.plus_nanos(wait));
        if paid == 0 {
            self.segmenting = Some(frame);
            return (0, wait);
        }
        stats.count_removed(&frame);
        match segment(frame, paid as usize, &cx.pool, out) {
            Ok(rest) => {
                let (bytes, packets) = rest.as_ref().map_or((0, 0), Packet::wire);
                stats.bytes += size.bytes - bytes;
                stats.packets += size.packets - packets;
                if let Some(rest) = &rest {
                    stats.count_queued(rest);
                }
                self.segmenting = rest;
                (paid, wait)
            }
            Err(error) => {
                stats.drops += 1;
                cx.dropped.note(error.reason, error.packets);
                (paid, None)
            }
        }
    }

    #[inline]
    fn dequeue_some(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let mut left = budget as u64;
        while left > 0 {
            if self.segmenting.is_some() {
                match self.segment(left, out, cx) {
                    (_, Some(time)) => return Next::At(time),
                    (sent, None) => left = left.saturating_sub(sent),
                }
                continue;
            }
            if let Some(next) = self.dequeue_whole(&mut left, out, cx) {
                return next;
            }
        }
        // Tokens may be missing; that is seen at the next call.
        match self.class.get(0).map(|child| child.peek_only(cx.now)) {
            _ if self.segmenting.is_some() => Next::Ready,
            Some(Peek::Idle) | None => Next::Idle,
            Some(Peek::At(time)) => Next::At(time),
            Some(Peek::Packet(_) | Peek::Unknown) => Next::Ready,
        }
    }
}

impl Qdisc for Tbf {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        if packets.iter().all(|packet| self.admits(packet.into())) {
            return self.class.enqueue(0, packets, cx);
        }
        let mut accepted = PacketList::new();
        while let Some(packet) = packets.pop_front() {
            if self.admits((&packet).into()) {
                accepted.push_back(packet);
            } else {
                self.class.stats.drops += 1;
                cx.dropped.push(packet, DropReason::QdiscOversize);
            }
        }
        self.class.enqueue(0, &mut accepted, cx);
        Verdict::Dropped
    }

    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let shaper = &mut self.shaper;
        // Then each of them is admitted, too.
        if sum.bytes > shaper.max_size || self.segmenting.is_some() {
            return false;
        }
        if !shaper.is_simple {
            if shaper.shared.is_some() && shaper.link.is_plain() {
                return self.try_pass_shared(packets, sum, sum.bytes, cx);
            }
            return self.try_pass_framed(packets, sum, cx);
        }
        let price = sum.bytes * UNIT;
        let now = cx.now;
        let elapsed = now.nanos().saturating_sub(shaper.changed.nanos());
        let tokens = shaper.rate.after(elapsed);
        let passes = price <= tokens && self.class.try_pass(0, packets, sum, cx);
        if passes {
            shaper.rate.set(tokens - price);
            shaper.changed = shaper.changed.max(now);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let next = self.dequeue_some(budget, out, cx);
        if let Some(shared) = &mut self.shaper.shared {
            shared.announce(next, cx.now);
            match next {
                Next::Idle => shared.leave(),
                Next::Ready => {}
                Next::At(_) => {
                    // It may be the class that holds its packets back.
                    let class = self.class.get(0).map(|child| child.peek_only(cx.now));
                    if self.segmenting.is_none() && !matches!(class, Some(Peek::Packet(_))) {
                        shared.leave();
                    }
                }
            }
        }
        next
    }

    fn peek(&self, now: Time) -> Peek {
        let child = match &self.segmenting {
            Some(frame) => Peek::Packet(WireSize::from(frame).first()),
            None => self
                .class
                .get(0)
                .map_or(Peek::Idle, |child| child.peek_only(now)),
        };
        let Peek::Packet(size) = child else {
            return child;
        };
        if size.packets > 1 && !self.shaper.admits(size) {
            // It will be segmented; how long the first packet is shows then.
            return Peek::Unknown;
        }
        let price = self.shaper.price(size);
        if let Some(shared) = &self.shaper.shared {
            return match shared.covers(price / UNIT, now) {
                true => Peek::Packet(size),
                false => Peek::Unknown,
            };
        }
        match self.shaper.ask(price, now).2 {
            0 => Peek::Packet(size),
            wait => Peek::At(now.plus_nanos(wait)),
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        if let Some(frame) = self.segmenting.take() {
            self.class.stats.count_removed(&frame);
            out.push_back(frame);
        }
        if let Some(shared) = &mut self.shaper.shared {
            shared.leave();
        }
        self.class.drain(out);
    }

    of_children!(class);
}
