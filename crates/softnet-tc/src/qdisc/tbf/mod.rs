//! `tbf`: a token bucket (tc-tbf(8)). A packet leaves when the bucket holds tokens for all that
//! it costs on the link; an optional second, small bucket bounds the peak rate. What waits is
//! kept by the only class, `:1`: a `bfifo` of `limit` bytes, or whatever is grafted there.
//!
//! Both [buckets](crate::rate::bucket) are changed only when a packet leaves. INV-Q-3: over any window
//! T at most `burst + rate * T` bytes leave.
//!
//! A large frame (GSO) that costs more than the bucket holds is segmented, as it leaves: until
//! then it waits in one piece, so that it takes no more buffers than it came with. Anything else
//! that costs more is dropped with [`DropReason::QdiscOversize`]. What was let in before the
//! bucket was made smaller leaves when it is full, and then it stays empty for the time that the
//! rest of the cost takes.
//!
//! Where the tree runs as several instances, they share both buckets: [`shared`].

mod shared;
#[cfg(all(test, not(miri)))]
mod shared_tests;

use std::time::Duration;

use softnet::mem::{Packet, PacketList};
use softnet::offload::segment;
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict, WireSize, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::{Child, Children, LinkCost};
use crate::handle::Handle;
use crate::qdisc::kind::{AnyQdisc, Kind, QdiscSpec};
use crate::qdisc::option::{Field, Form, QdiscOption, Unset, options};
use crate::qdisc::spec::{QdiscEnv, SpecError};
use crate::rate::{Bucket, UNIT};
use crate::units::{ByteSize, Rate};
use shared::SharedBuckets;

/// Parameters of a token bucket, in the units of the kernel's interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TbfSpec {
    /// Bytes per second.
    pub rate: u64,
    /// Bucket size in bytes, at most 4 GiB.
    pub burst: u64,
    /// Bytes that may wait. Not used if the class is given a qdisc of its own.
    pub limit: u64,
    /// Peak rate in bytes per second.
    pub peakrate: Option<u64>,
    /// Size of the peak bucket in bytes; used with `peakrate` only.
    pub mtu: u32,
    /// What a packet costs beyond its length. Both buckets hold what one packet of their size
    /// costs.
    pub link: LinkCost,
}

impl TbfSpec {
    /// A rate with bursts of `burst`, in which a packet waits for at most `latency`: as `tbf rate
    /// burst latency` of tc.
    pub fn with_latency(rate: Rate, burst: ByteSize, latency: Duration) -> TbfSpec {
        let in_time = rate.bytes() as f64 * latency.as_secs_f64();
        TbfSpec {
            rate: rate.bytes(),
            burst: burst.bytes(),
            // As tc computes it. A float that is too large becomes the largest number.
            limit: (in_time + burst.bytes() as f64) as u64,
            ..TbfSpec::default()
        }
    }
}

/// Segments that one step makes at most: buffers that it takes from the pool.
const CHUNK: u64 = 64;

/// The two buckets, and what they let pass.
#[derive(Debug)]
struct Shaper {
    rate: Bucket,
    peak: Option<Bucket>,
    link: LinkCost,
    /// The buckets have been filled up to this time.
    changed: Time,
    /// The longest wire length that is let in: the smaller bucket.
    max_size: u64,
    /// The most tokens that a frame that is let in may cost: the smaller bucket with the link's
    /// framing.
    max_price: u64,
    /// One bucket, and a packet costs its length.
    is_simple: bool,
    /// In the place of both, where there are several instances.
    shared: Option<Box<SharedBuckets>>,
}

impl Shaper {
    fn new(spec: &TbfSpec, shared: Option<Box<SharedBuckets>>) -> Shaper {
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
            changed: Time::ZERO,
            max_size: peak.map_or(spec.burst, |_| spec.burst.min(mtu)),
            max_price: peak
                .map_or(u64::MAX, |peak| peak.capacity())
                .min(rate.capacity()),
            is_simple: peak.is_none() && spec.link.is_plain() && shared.is_none(),
            shared,
        }
    }

    /// What a frame costs, in token units.
    #[inline]
    fn price(&self, size: WireSize) -> u64 {
        self.link.cost(size).saturating_mul(UNIT)
    }

    /// Whether a frame may be let in: in one piece it costs no more than the buckets hold.
    #[inline]
    fn admits(&self, size: WireSize) -> bool {
        size.bytes <= self.max_size && self.price(size) <= self.max_price
    }

    /// Tokens in both buckets now, and nanoseconds until they suffice or are full.
    #[inline]
    fn ask(&self, price: u64, now: Time) -> (u64, u64, u64) {
        let (now, then) = (now.nanos(), self.changed.nanos());
        let elapsed = now.saturating_sub(then);
        let tokens = self.rate.after(elapsed);
        let mut wait = self.rate.wait(tokens, price);
        let mut peak_tokens = 0;
        if let Some(peak) = &self.peak {
            peak_tokens = peak.after(elapsed);
            wait = wait.max(peak.wait(peak_tokens, price));
        }
        if wait > 0 {
            // They are filled from `changed` on, which may be later than now.
            wait = wait.saturating_add(then.saturating_sub(now));
        }
        (tokens, peak_tokens, wait)
    }

    /// Takes the tokens for a frame. A price above what a bucket holds takes all of it, and the
    /// rest in time in which it is not filled.
    #[inline]
    fn charge(&mut self, (tokens, peak_tokens): (u64, u64), price: u64, now: Time) {
        self.rate.set(tokens.saturating_sub(price));
        let mut debt = self.rate.time_for(price.saturating_sub(tokens));
        if let Some(peak) = &mut self.peak {
            peak.set(peak_tokens.saturating_sub(price));
            debt = debt.max(peak.time_for(price.saturating_sub(peak_tokens)));
        }
        self.changed = self.changed.max(now).plus_nanos(debt);
    }

    /// Takes the tokens for a frame, or says how long to wait for them.
    #[inline]
    fn take(&mut self, price: u64, flows: impl Fn() -> u16, now: Time) -> Result<(), u64> {
        if let Some(shared) = &mut self.shared {
            return shared.take(price / UNIT, flows, now);
        }
        match self.ask(price, now) {
            (tokens, peak_tokens, 0) => {
                self.charge((tokens, peak_tokens), price, now);
                Ok(())
            }
            (.., wait) => Err(wait),
        }
    }

    /// Takes the tokens for the next wire packets of a frame that is segmented, at most `limit`.
    /// Returns how many were paid for, and how long to wait for the tokens of the next, if they
    /// were missing.
    fn take_some(
        &mut self,
        size: WireSize,
        limit: u64,
        flows: impl Fn() -> u16,
        now: Time,
    ) -> (u64, Option<u64>) {
        for paid in 0..limit.min(size.packets) {
            let mut one = size;
            if paid + 1 == size.packets {
                one.each = size.bytes.saturating_sub(paid * size.each);
            }
            if let Err(wait) = self.take(self.price(one.first()), &flows, now) {
                return (paid, Some(wait));
            }
        }
        (limit.min(size.packets), None)
    }
}

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

impl Kind for Tbf {
    type Spec = TbfSpec;
    const NAME: &'static str = "tbf";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Tbf(s) =>
        /// a rate
        "rate": Form::Rate => Field::U64(&mut s.rate);
            unset = Unset::Required("the rate to shape to, like \"100mbit\""),
        /// a size; the bucket. At least a frame
        "burst": Form::Size => Field::U64(&mut s.burst);
            unset = Unset::Required("the bucket's size, like \"32k\""); wrong = "\"x\"",
        /// a size; bytes that may wait
        "limit": Form::Size => Field::U64(&mut s.limit);
            unset = Unset::Words("from `latency`"); wrong = "1000",
        /// a time; how long a packet may wait. It sets `limit`; one of the two is required
        "latency": Form::Own; unset = Unset::Required(""); wrong = "\"x\"",
        /// a rate above `rate`, the most at any moment
        "peakrate": Form::Rate => Field::OptU64(&mut s.peakrate);
            unset = Unset::Words("none"); wrong = "\"2mbit\"",
        /// a size; the bucket of `peakrate`
        "mtu": Form::Own; unset = Unset::Words("none"); wrong = "1540",
        /// bytes that each packet takes on the link besides its own, 0 to 65535
        "overhead": Form::Own; unset = Unset::Words("`0`"); wrong = "-1",
        /// the least bytes that a packet takes on the link, 0 to 65535
        "mpu": Form::Own; unset = Unset::Words("`0`"); wrong = "-1",
        /// `"ethernet"`, or `"atm"` (also `"adsl"`), which counts cells of 53 bytes
        "linklayer": Form::Own; unset = Unset::Words("`\"ethernet\"`"); wrong = "\"dsl\"",
    };

    fn check(spec: &TbfSpec) -> Result<(), SpecError> {
        const MAX_RATE: u64 = 1_000_000_000_000;
        let wrong = |parameter, reason| Err(SpecError::parameter("tbf", parameter, reason));
        if !(1..=MAX_RATE).contains(&spec.rate) || spec.peakrate.is_some_and(|p| p > MAX_RATE) {
            return wrong("rate", "must be between 1 byte/s and 1 Tbyte/s");
        }
        if !(1..=u64::from(u32::MAX)).contains(&spec.burst) {
            return wrong("burst", "must be between 1 byte and 4 GiB");
        }
        match spec.peakrate {
            Some(peak) if peak <= spec.rate => wrong("peakrate", "must be higher than rate"),
            Some(_) if spec.mtu == 0 => wrong(
                "mtu",
                "must be given with peakrate (the size of its bucket, at least one packet)",
            ),
            _ => Ok(()),
        }
    }

    /// Full buckets.
    fn make(spec: &TbfSpec, handle: Handle, env: &QdiscEnv) -> Tbf {
        let shared = SharedBuckets::new(spec, handle, env).map(Box::new);
        let child = Tbf::default_child(spec, env).make(Handle::NONE, env);
        Tbf {
            shaper: Shaper::new(spec, shared),
            class: Children::new([child]),
            segmenting: None,
        }
    }

    /// Fills the buckets, as the kernel does, but for shared ones. What is queued stays; of what
    /// the new buckets are too small for, each packet leaves when they are full. `limit` is that
    /// of the class's own queue, if it still has that.
    fn change(&mut self, spec: &TbfSpec, cx: &mut Cx) {
        let mut shared = self.shaper.shared.take();
        if let Some(shared) = &mut shared {
            shared.change(spec, cx.now);
        }
        self.shaper = Shaper::new(spec, shared);
        self.class.with(0, |child| {
            if child.is_default()
                && let AnyQdisc::Bfifo(queue) = child.qdisc_mut()
            {
                queue.set_limit(spec.limit);
            }
        });
    }

    fn classes(_: &TbfSpec) -> u16 {
        1
    }

    fn default_child(spec: &TbfSpec, _: &QdiscEnv) -> QdiscSpec {
        QdiscSpec::Bfifo { limit: spec.limit }
    }

    fn children(&self) -> Option<&Children> {
        Some(&self.class)
    }

    fn children_mut(&mut self) -> Option<&mut Children> {
        Some(&mut self.class)
    }
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

    /// Whether a frame may be let in, in one piece or segmented. Of the segments the first is
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
            class.stats.count_returned(frame);
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

    fn wants_enqueue_time(&self) -> bool {
        self.class.wants_enqueue_time()
    }

    fn stats(&self) -> &QdiscStats {
        &self.class.stats
    }
}
