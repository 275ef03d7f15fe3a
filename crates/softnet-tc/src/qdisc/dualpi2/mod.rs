//! `dualpi2`: two queues with one control law, for low latency beside classic traffic (L4S; RFC
//! 9332).
//!
//! **Queues.** Packets with ECT(1) or CE (`ecn_mask`) wait in the L queue, all others in the C
//! queue. A packet whose priority or whose first matching filter names `major:1` goes to the L
//! queue, too; with `:2` it goes there and is neither marked nor dropped.
//!
//! **Marking.** [PI2](law) computes `p'` from how long the first packets of both have waited. Of
//! the C queue `p'^2` are dropped, or marked where ECN-capable; of the L queue `k * p'` are marked
//! (the coupling), and whoever waited longer than `step_thresh`: a step, as in the kernel, not the
//! RFC's ramp, for which there is no attribute. When `k * p'` passes 1, marks are ignored and both
//! lose `p'^2`, or with `drop_on_overload` off the queue grows to its limit. While less than two
//! packets of the MTU wait nothing is dropped.
//!
//! **Turns.** The L queue goes first, but for `classic_protection` percent of the bytes.
//!
//! It has not been compared with the kernel's, packet by packet: Debian's kernel, which the
//! recordings are of, has no `dualpi2`.
//!
//! The probability is updated every `tupdate`, counted from the first call, when the next call
//! comes ([`periods`](crate::qdisc::periods)). At most [`DROPS`] packets are dropped before one
//! leaves. (In the kernel one call may drop all.)

pub(crate) mod law;
mod spec;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use std::collections::VecDeque;

use softnet::mem::{Packet, PacketList};
use softnet::offload::segment;
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::wire::traffic_class;

use crate::account::{Xstat, Xstats};
use crate::filter::{Filters, Lost};
use crate::handle::Handle;
use crate::qdisc::aqm::{ETHERNET_LEN, mark_ce, nanos, stamp};
use crate::qdisc::draws::Draws;
use crate::qdisc::kind::Kind;
use crate::qdisc::spec::{QdiscEnv, SpecError};
use law::{Law, ONE};

pub use law::dualpi2_shown_gain;
pub use spec::DualPi2Spec;

/// Packets that are dropped before one leaves, at most.
const DROPS: u32 = 64;

/// Where a packet waits, and what may happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The C queue.
    Classic,
    /// The L queue, and whether the step is for it.
    LowLatency { step: bool },
    /// The L queue; it is left alone.
    Spared,
}

/// `dualpi2`: two queues with one control law, for low latency beside classic traffic (RFC 9332).
#[derive(Debug)]
pub struct DualPi2 {
    handle: Handle,
    spec: DualPi2Spec,
    memory_limit: u64,
    /// Bytes of a frame of the device's MTU.
    frame: u32,
    law: Law,
    draws: Draws,
    filters: Filters,
    now: Time,
    classic: PacketList,
    low: PacketList,
    /// The class of each packet of the L queue.
    classes: VecDeque<Class>,
    /// Bytes that the C queue is ahead by, in percents: above 0 it is its turn.
    credit: i64,
    stats: QdiscStats,
    packets_in_c: u64,
    packets_in_l: u64,
    longest: u64,
    marks: u64,
    step_marks: u64,
    max_memory: u64,
    xstats: Xstats,
}

/// Statistics of its own, as `tc -s` names them. Times are in nanoseconds.
const XSTATS: [Xstat; 12] = [
    Xstat::Prob,
    Xstat::DelayC,
    Xstat::DelayL,
    Xstat::PacketsInC,
    Xstat::PacketsInL,
    Xstat::MaxQueue,
    Xstat::EcnMark,
    Xstat::StepMarks,
    Xstat::Credit,
    Xstat::MemoryUsed,
    Xstat::MaxMemoryUsed,
    Xstat::MemoryLimit,
];

impl Kind for DualPi2 {
    type Spec = DualPi2Spec;
    const NAME: &'static str = "dualpi2";
    const OPTIONS: &'static [crate::QdiscOption] = spec::OPTIONS;
    const HAS_FILTERS: bool = true;

    fn check(spec: &DualPi2Spec) -> Result<(), SpecError> {
        spec.check()
    }

    fn make(spec: &DualPi2Spec, handle: Handle, env: &QdiscEnv) -> DualPi2 {
        let mut qdisc = DualPi2 {
            handle,
            spec: spec.clone(),
            memory_limit: 0,
            frame: env.mtu.saturating_add(ETHERNET_LEN),
            law: Law::new(spec),
            draws: Draws::new(env.seed),
            filters: Filters::default(),
            now: Time::ZERO,
            classic: PacketList::new(),
            low: PacketList::new(),
            classes: VecDeque::new(),
            credit: 0,
            stats: QdiscStats::default(),
            packets_in_c: 0,
            packets_in_l: 0,
            longest: 0,
            marks: 0,
            step_marks: 0,
            max_memory: 0,
            xstats: Xstats::new(&XSTATS),
        };
        qdisc.set(spec);
        qdisc.reset_credit();
        qdisc.publish();
        qdisc
    }

    /// Packets over the new limits are dropped in the order in which they would have left.
    fn change(&mut self, spec: &DualPi2Spec, cx: &mut Cx) {
        self.begin(cx.now);
        let protection = self.spec.classic_protection;
        self.set(spec);
        self.law.change(spec);
        if spec.classic_protection != protection {
            self.reset_credit();
        }
        while (self.stats.qlen > self.spec.limit.into() || self.stats.memory > self.memory_limit)
            && let Some((packet, ..)) = self.take()
        {
            self.stats.count_dropped(&packet);
            cx.dropped.push(packet, DropReason::QdiscLimit);
        }
        self.publish();
    }

    fn filters_mut(&mut self) -> Option<&mut Filters> {
        Some(&mut self.filters)
    }

    fn flows(&self) -> u64 {
        u64::from(!self.classic.is_empty()) + u64::from(!self.low.is_empty())
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

/// ECN bits of a packet; 0 where it has none.
fn ecn(packet: &Packet) -> u8 {
    traffic_class(packet.data()).map_or(0, |class| class & 3)
}

impl DualPi2 {
    fn set(&mut self, spec: &DualPi2Spec) {
        self.spec = spec.clone();
        self.memory_limit = spec.memory_limit(self.frame).into();
    }

    /// The C queue's credit with which turns begin.
    fn reset_credit(&mut self) {
        let ahead = 2 * i64::from(self.spec.classic_protection) - 100;
        self.credit = i64::from(self.frame) * ahead;
    }

    fn begin(&mut self, now: Time) {
        self.now = self.now.max(now);
        let came = |list: &PacketList| list.front().map(Packet::timestamp);
        let oldest = match (came(&self.classic), came(&self.low)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.law.catch_up(self.now, oldest);
    }

    fn publish(&mut self) {
        let delay = |list: &PacketList| {
            let first = list.front();
            first.map_or(0, |packet| nanos(self.now.since(packet.timestamp())))
        };
        self.xstats.set([
            self.law.prob.into(),
            delay(&self.classic),
            delay(&self.low),
            self.packets_in_c,
            self.packets_in_l,
            self.longest,
            self.marks,
            self.step_marks,
            self.credit.cast_unsigned(),
            self.stats.memory,
            self.max_memory,
            self.memory_limit,
        ]);
    }

    /// The class of a packet; the step is for none yet.
    ///
    /// # Errors
    /// If a filter takes it out.
    fn classify(&self, packet: &mut Packet, cx: &mut Cx) -> Result<Class, Lost> {
        let low = Class::LowLatency { step: false };
        if ecn(packet) & self.spec.ecn_mask != 0 {
            return Ok(low);
        }
        let named = Handle::from_raw(packet.priority());
        let class = if named.major() != 0 && named.qdisc() == self.handle {
            Some(named)
        } else {
            self.filters.classify(packet, cx).class()?
        };
        Ok(match class.map(Handle::minor) {
            Some(1) => low,
            Some(2) => Class::Spared,
            _ => Class::Classic,
        })
    }

    /// True by chance.
    #[inline]
    fn roll(&mut self, prob: u32) -> bool {
        self.draws.u32() <= prob
    }

    /// True with the square of a probability.
    #[inline]
    fn roll_twice(&mut self, prob: u32) -> bool {
        self.roll(prob) && self.roll(prob)
    }

    fn mark(&mut self, packet: &mut Packet, cx: &Cx) -> bool {
        let marked = mark_ce(packet, &cx.pool);
        self.marks += u64::from(marked);
        marked
    }

    /// Marks a packet by the control law. True: it is to be dropped.
    #[inline]
    fn drops(&mut self, packet: &mut Packet, class: Class, cx: &Cx) -> bool {
        let prob = self.law.prob;
        if prob == 0 || class == Class::Spared || self.stats.backlog < 2 * u64::from(self.frame) {
            return false;
        }
        let coupled = u64::from(prob) * u64::from(self.spec.coupling_factor);
        let overload = coupled > ONE.into();
        if class == Class::Classic {
            let hit = self.roll_twice(prob);
            return hit && (overload || !self.mark(packet, cx));
        }
        if overload {
            if self.spec.drop_on_overload && self.roll_twice(prob) {
                return true;
            }
            self.mark(packet, cx);
            return false;
        }
        self.roll(coupled as u32) && !self.mark(packet, cx)
    }

    /// Marks a packet of the L queue that waited too long. True: it is to be dropped, as it cannot
    /// be marked.
    #[inline]
    fn drops_at_step(&mut self, packet: &mut Packet, class: Class, cx: &Cx) -> bool {
        if class != (Class::LowLatency { step: true }) {
            return false;
        }
        let is_beyond = match self.spec.step_packets {
            Some(packets) => self.low.len() as u64 > packets.into(),
            None => self.now.since(packet.timestamp()) > self.spec.step_thresh,
        };
        if !is_beyond {
            return false;
        }
        let marked = self.mark(packet, cx);
        self.step_marks += u64::from(marked);
        !marked
    }

    /// Queues a packet, or says why not.
    fn push(
        &mut self,
        mut packet: Packet,
        mut class: Class,
        cx: &Cx,
    ) -> Result<(), (Packet, DropReason)> {
        if let Class::LowLatency { step } = &mut class {
            *step = self.low.len() as u64 >= self.spec.min_qlen_step.into();
        }
        let memory = self.stats.memory + packet.memory();
        if self.stats.qlen >= self.spec.limit.into() || memory > self.memory_limit {
            self.stats.overlimits += 1;
            return Err((packet, DropReason::QdiscLimit));
        }
        if self.spec.drop_enqueue && self.drops(&mut packet, class, cx) {
            return Err((packet, DropReason::QdiscCongested));
        }
        stamp(&mut packet, self.now);
        self.longest = self.longest.max(self.stats.qlen);
        self.stats.count_queued(&packet);
        self.max_memory = self.max_memory.max(self.stats.memory);
        if class == Class::Classic {
            self.packets_in_c += 1;
            self.classic.push_back(packet);
        } else {
            self.packets_in_l += 1;
            self.low.push_back(packet);
            self.classes.push_back(class);
        }
        Ok(())
    }

    /// Takes out the packet whose turn it is, and what it changes the credit by if it leaves. It
    /// is still counted.
    #[inline]
    fn take(&mut self) -> Option<(Packet, Class, i64)> {
        let is_low = self.classic.is_empty() || self.credit <= 0;
        if is_low && let Some(packet) = self.low.pop_front() {
            let class = self.classes.pop_front().unwrap_or(Class::Spared);
            let weight = if self.classic.is_empty() {
                0
            } else {
                i64::from(self.spec.classic_protection)
            };
            let bytes = packet.wire_len() as i64;
            return Some((packet, class, weight * bytes));
        }
        let packet = self.classic.pop_front()?;
        let weight = if self.low.is_empty() {
            0
        } else {
            100 - i64::from(self.spec.classic_protection)
        };
        let bytes = packet.wire_len() as i64;
        Some((packet, Class::Classic, -weight * bytes))
    }

    /// The next packet that leaves; drops what does not on the way.
    fn next(&mut self, cx: &mut Cx) -> Option<Packet> {
        let mut may_drop = DROPS;
        while let Some((mut packet, class, credit)) = self.take() {
            // As the law sees it, the packet is out. Marked, it may be a copy, in other memory.
            self.stats.count_removed(&packet);
            let drops = may_drop > 0
                && (!self.spec.drop_enqueue && self.drops(&mut packet, class, cx)
                    || self.drops_at_step(&mut packet, class, cx));
            if !drops {
                self.credit += credit;
                let (bytes, packets) = packet.wire();
                self.stats.count_sent(WireSum { packets, bytes });
                return Some(packet);
            }
            may_drop -= 1;
            self.stats.drops += 1;
            cx.dropped.push(packet, DropReason::QdiscCongested);
        }
        self.reset_credit();
        None
    }
}

impl Qdisc for DualPi2 {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.begin(cx.now);
        let mut verdict = Verdict::Queued;
        while let Some(mut packet) = packets.pop_front() {
            let class = match self.classify(&mut packet, cx) {
                Ok(class) => class,
                Err(lost) => {
                    verdict = verdict.max(lost.settle(packet, &mut self.stats, cx));
                    continue;
                }
            };
            let mut parts = PacketList::new();
            if self.spec.split_gso && packet.gso().is_some() {
                let count = packet.wire_packets() as usize;
                if let Err(error) = segment(packet, count, &cx.pool, &mut parts) {
                    self.stats.drops += 1;
                    cx.dropped.note(error.reason, error.packets);
                    verdict = Verdict::Dropped;
                }
            } else {
                parts.push_back(packet);
            }
            while let Some(packet) = parts.pop_front() {
                if let Err((packet, reason)) = self.push(packet, class, cx) {
                    self.stats.drops += 1;
                    cx.dropped.push(packet, reason);
                    verdict = Verdict::Dropped;
                }
            }
        }
        self.publish();
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.begin(cx.now);
        let end = self.stats.packets + budget as u64;
        while self.stats.packets < end
            && let Some(packet) = self.next(cx)
        {
            out.push_back(packet);
        }
        self.publish();
        if self.stats.qlen == 0 {
            Next::Idle
        } else {
            Next::Ready
        }
    }

    /// The L queue first.
    fn drain(&mut self, out: &mut PacketList) {
        out.append(&mut self.low);
        out.append(&mut self.classic);
        self.classes.clear();
        self.stats.count_drained();
        self.law.reset();
        self.reset_credit();
        self.publish();
    }

    fn wants_enqueue_time(&self) -> bool {
        true
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}
