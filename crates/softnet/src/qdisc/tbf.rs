//! `tbf`: a token bucket (tc-tbf(8)). A packet leaves when the bucket holds tokens for all that it costs on the link; an optional second, small
//! bucket bounds the peak rate. What waits is kept by the only class, `:1`: a `bfifo` of `limit` bytes, or whatever is grafted there.
//!
//! Both [buckets](super::bucket) are changed only when a packet leaves. INV-Q-3: over any window T at most `burst + rate * T` bytes leave.
//!
//! A large frame (GSO) that costs more than the bucket holds is segmented, as it leaves: until then it waits in one piece, so
//! that it takes no more buffers than it came with. Anything else that costs more could never leave and is dropped with
//! [`DropReason::QdiscOversize`].

use super::bucket::{Bucket, UNIT};
use super::children::Children;
use super::{AnyQdisc, Bfifo, LinkCost, Next, Peek, Qdisc, QdiscStats, TbfSpec, WireSize};
use crate::packet::{Packet, PacketList, segment};
use crate::pool::Pool;
use crate::stats::{DropReason, Dropped};
use crate::time::Time;

/// Segments that one step makes at most: buffers that it takes from the pool.
const CHUNK: u64 = 64;

/// The two buckets, and what they let pass.
#[derive(Debug)]
struct Shaper {
    rate: Bucket,
    peak: Option<Bucket>,
    link: LinkCost,
    /// When the buckets were last changed; `None` while they are full.
    changed: Option<Time>,
    /// The longest wire length that may pass: the smaller bucket.
    max_size: u64,
    /// The most that a frame may cost: the smaller bucket with the link's framing.
    max_cost: u64,
}

impl Shaper {
    fn new(spec: &TbfSpec) -> Shaper {
        // As the kernel does: a bucket holds what one packet of its size costs.
        let rate = Bucket::new(spec.rate, spec.link.charge(spec.burst));
        let mtu = u64::from(spec.mtu);
        let peak = spec
            .peakrate
            .map(|rate| Bucket::new(rate, spec.link.charge(mtu)));
        Shaper {
            rate,
            peak,
            link: spec.link,
            changed: None,
            max_size: peak.map_or(spec.burst, |_| spec.burst.min(mtu)),
            max_cost: peak.map_or(u64::MAX, |peak| peak.bytes()).min(rate.bytes()),
        }
    }

    /// What a frame costs, in token units; `None` if it can never leave in one piece.
    #[inline]
    fn price(&self, size: WireSize) -> Option<u64> {
        let cost = self.link.cost(size);
        (size.bytes <= self.max_size && cost <= self.max_cost).then(|| cost * UNIT)
    }

    /// What a frame's next wire packet costs, if it is segmented and all of them can leave.
    fn price_of_each(&self, size: WireSize) -> Option<u64> {
        self.price(size.first())
    }

    /// Takes the tokens for the next wire packets of a frame that is segmented, at most `limit`. Returns how many were paid for, and how long to wait for
    /// the tokens of the next, if they were missing.
    fn take_some(&mut self, size: WireSize, limit: u64, now: Time) -> (u64, Option<u64>) {
        for paid in 0..limit.min(size.packets) {
            let mut one = size;
            if paid + 1 == size.packets {
                one.each = size.bytes - paid * size.each;
            }
            // Checked when it was let in; nothing makes it longer.
            let price = self.price_of_each(one).unwrap_or(0);
            if let Err(wait) = self.take(price, now) {
                return (paid, Some(wait));
            }
        }
        (limit.min(size.packets), None)
    }

    /// Tokens in both buckets now, and nanoseconds until they suffice.
    #[inline]
    fn ask(&self, price: u64, now: Time) -> (u64, u64, u64) {
        let elapsed = self
            .changed
            .map_or(u64::MAX, |then| now.nanos().saturating_sub(then.nanos()));
        let tokens = self.rate.after(elapsed);
        let wait = self.rate.wait(tokens, price);
        match &self.peak {
            None => (tokens, 0, wait),
            Some(peak) => {
                let peak_tokens = peak.after(elapsed);
                (tokens, peak_tokens, wait.max(peak.wait(peak_tokens, price)))
            }
        }
    }

    /// Takes the tokens for a frame, or says how long to wait for them.
    #[inline]
    fn take(&mut self, price: u64, now: Time) -> Result<(), u64> {
        let (tokens, peak_tokens, wait) = self.ask(price, now);
        if wait > 0 {
            return Err(wait);
        }
        self.changed = Some(self.changed.map_or(now, |then| then.max(now)));
        self.rate.set(tokens, price);
        if let Some(peak) = &mut self.peak {
            peak.set(peak_tokens, price);
        }
        Ok(())
    }

    fn fill(&mut self) {
        self.changed = None;
        self.rate.fill();
        self.peak.iter_mut().for_each(Bucket::fill);
    }
}

/// `tbf`, a token bucket (tc-tbf(8)). Over any time `T` at most `burst + rate * T` bytes leave, and not less while packets wait: no rounding adds up.
/// A large frame longer than the bucket is segmented; anything else that is longer is dropped.
#[derive(Debug)]
pub struct Tbf {
    shaper: Shaper,
    class: Children,
    /// The frame that is being segmented: out of the class, but still queued.
    segmenting: Option<Packet>,
    limit: u64,
    pool: Pool,
    /// Drops of our own.
    drops: u64,
    /// Wire bytes and packets that left the class only to be dropped here.
    lost: (u64, u64),
    overlimits: u64,
}

impl Tbf {
    /// An empty queue with full buckets. `pool` provides the buffers of segmented frames. `spec` has been
    /// [checked](super::QdiscSpec::build).
    pub(super) fn new(spec: &TbfSpec, pool: Pool) -> Tbf {
        Tbf {
            shaper: Shaper::new(spec),
            class: Children::new([AnyQdisc::Bfifo(Bfifo::new(spec.limit))]),
            segmenting: None,
            limit: spec.limit,
            pool,
            drops: 0,
            lost: (0, 0),
            overlimits: 0,
        }
    }

    /// What the class is if it is given nothing else.
    pub(super) fn default_child(&self) -> AnyQdisc {
        AnyQdisc::Bfifo(Bfifo::new(self.limit))
    }

    pub(super) fn children(&self) -> &Children {
        &self.class
    }

    pub(super) fn children_mut(&mut self) -> &mut Children {
        &mut self.class
    }

    /// Changes all parameters at once and fills the buckets, as the kernel does. What is queued stays; what the new buckets can never let pass is
    /// segmented or dropped. `limit` is that of the class's own queue, if it still has that.
    pub(super) fn change(&mut self, spec: &TbfSpec, now: Time, dropped: &mut Dropped) {
        let shrinks = Shaper::new(spec).max_cost < self.shaper.max_cost
            || spec.burst < self.shaper.max_size
            || spec.link != self.shaper.link;
        self.shaper = Shaper::new(spec);
        self.limit = spec.limit;
        self.class.with(0, |child| {
            if child.is_default()
                && let AnyQdisc::Bfifo(queue) = child.qdisc_mut()
            {
                queue.set_limit(spec.limit);
            }
        });
        if shrinks {
            // A packet that was let in before might block the queue for ever now.
            let mut again = PacketList::new();
            self.drain(&mut again);
            self.enqueue(&mut again, now, dropped);
        }
    }

    /// Drops what can never leave, not even segmented.
    fn admit(&mut self, packets: &mut PacketList, dropped: &mut Dropped) -> PacketList {
        let mut accepted = PacketList::new();
        while let Some(packet) = packets.pop_front() {
            let size = WireSize::from(&packet);
            if self.shaper.price(size).is_some()
                || packet.gso().is_some() && self.shaper.price_of_each(size).is_some()
            {
                accepted.push_back(packet);
            } else {
                self.drops += 1;
                dropped.push(packet, DropReason::QdiscOversize);
            }
        }
        accepted
    }

    /// The frame that is being segmented, if there is one, without sending it.
    fn take_back(&mut self) -> Option<Packet> {
        let packet = self.segmenting.take()?;
        self.lost.0 += packet.wire_len();
        self.lost.1 += packet.wire_packets();
        Some(packet)
    }

    /// Sends frames that need not be segmented until `left` is used up, or until one comes up that must be. The result is why it stopped before that.
    #[inline]
    fn dequeue_whole(
        &mut self,
        left: &mut u64,
        now: Time,
        out: &mut PacketList,
        dropped: &mut Dropped,
    ) -> Option<Next> {
        let Tbf {
            shaper,
            class,
            segmenting,
            overlimits,
            drops,
            lost,
            ..
        } = self;
        class.with(0, |child| {
            while *left > 0 {
                let size = match child.peek(now, dropped) {
                    Peek::Packet(size) => size,
                    Peek::At(time) => return Some(Next::At(time)),
                    Peek::Idle | Peek::Unknown => return Some(Next::Idle),
                };
                let Some(price) = shaper.price(size) else {
                    let mut large = PacketList::new();
                    child.dequeue(1, now, &mut large, dropped);
                    if size.packets > 1 && shaper.price_of_each(size).is_some() {
                        *segmenting = large.pop_front();
                        return None;
                    }
                    // Only a discipline that lengthens packets gets here: what was let in fits.
                    *drops += large.len() as u64;
                    *lost = (lost.0 + size.bytes, lost.1 + size.packets);
                    dropped.append(large, DropReason::QdiscOversize);
                    continue;
                };
                if let Err(wait) = shaper.take(price, now) {
                    *overlimits += 1;
                    return Some(Next::At(now.plus_nanos(wait)));
                }
                child.dequeue(1, now, out, dropped);
                *left = left.saturating_sub(size.packets);
            }
            None
        })
    }

    /// Sends wire packets of the frame that is being segmented, at most `limit`. Returns how many, and the time for which the next must wait.
    fn segment(
        &mut self,
        limit: u64,
        now: Time,
        out: &mut PacketList,
        dropped: &mut Dropped,
    ) -> (u64, Option<Time>) {
        let Some(frame) = self.segmenting.take() else {
            return (0, None);
        };
        let size = WireSize::from(&frame);
        let (paid, wait) = self.shaper.take_some(size, limit.min(CHUNK), now);
        self.overlimits += u64::from(wait.is_some());
        let wait = wait.map(|wait| now.plus_nanos(wait));
        if paid == 0 {
            self.segmenting = Some(frame);
            return (0, wait);
        }
        match segment(frame, paid as usize, &self.pool, out) {
            Ok(rest) => {
                self.segmenting = rest;
                (paid, wait)
            }
            Err(error) => {
                self.drops += 1;
                self.lost.0 += size.bytes;
                self.lost.1 += error.packets;
                dropped.note(error.reason, error.packets);
                (paid, None)
            }
        }
    }
}

impl Qdisc for Tbf {
    fn enqueue(&mut self, packets: &mut PacketList, now: Time, dropped: &mut Dropped) {
        let fits = |packet| self.shaper.price(WireSize::from(packet)).is_some();
        if packets.iter().all(fits) {
            self.class
                .with(0, |child| child.enqueue(packets, now, dropped));
        } else {
            let mut accepted = self.admit(packets, dropped);
            self.class
                .with(0, |child| child.enqueue(&mut accepted, now, dropped));
        }
    }

    fn dequeue(
        &mut self,
        budget: usize,
        now: Time,
        out: &mut PacketList,
        dropped: &mut Dropped,
    ) -> Next {
        let mut left = budget as u64;
        while left > 0 {
            if self.segmenting.is_some() {
                match self.segment(left, now, out, dropped) {
                    (_, Some(time)) => return Next::At(time),
                    (sent, None) => left = left.saturating_sub(sent),
                }
                continue;
            }
            if let Some(next) = self.dequeue_whole(&mut left, now, out, dropped) {
                return next;
            }
        }
        // Tokens may be missing; that is seen at the next call.
        match self.class.get(0).map(|child| child.peek_only(now)) {
            _ if self.segmenting.is_some() => Next::Ready,
            Some(Peek::Idle) | None => Next::Idle,
            Some(Peek::At(time)) => Next::At(time),
            Some(Peek::Packet(_) | Peek::Unknown) => Next::Ready,
        }
    }

    fn peek(&self, now: Time) -> Peek {
        if let Some(frame) = &self.segmenting {
            let one = WireSize::from(frame).first();
            let price = self.shaper.price(one).unwrap_or(0);
            return match self.shaper.ask(price, now).2 {
                0 => Peek::Packet(one),
                wait => Peek::At(now.plus_nanos(wait)),
            };
        }
        let child = self.class.get(0).map(|child| child.peek_only(now));
        match child.unwrap_or(Peek::Idle) {
            Peek::Packet(size) => match self.shaper.price(size) {
                Some(price) => match self.shaper.ask(price, now).2 {
                    0 => Peek::Packet(size),
                    wait => Peek::At(now.plus_nanos(wait)),
                },
                // It will be segmented; how long the first packet is shows then.
                None => Peek::Unknown,
            },
            other => other,
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        out.extend(self.take_back());
        self.class.drain(out);
    }

    fn reset(&mut self, dropped: &mut Dropped) {
        if let Some(frame) = self.take_back() {
            dropped.push(frame, DropReason::QdiscReset);
        }
        self.class.reset(dropped);
        self.shaper.fill();
    }

    fn stats(&self) -> QdiscStats {
        let totals = self.class.totals();
        let mut stats = QdiscStats {
            bytes: totals.bytes.saturating_sub(self.lost.0),
            packets: totals.packets.saturating_sub(self.lost.1),
            drops: totals.drops + self.drops,
            overlimits: self.overlimits,
            ..totals
        };
        if let Some(frame) = &self.segmenting {
            let (bytes, packets) = frame.wire();
            stats.bytes = stats.bytes.saturating_sub(bytes);
            stats.packets = stats.packets.saturating_sub(packets);
            stats.qlen += 1;
            stats.backlog += bytes;
            stats.queued += packets;
        }
        stats
    }
}
