//! `sfq`: stochastic fairness queueing (tc-sfq(8); McKenney, 1990). Flows are hashed to queues,
//! which take turns by [deficit round robin](crate::qdisc::drr): each sends `quantum` bytes.
//!
//! A packet's queue is the one that its priority names (`major:minor`, major that of this qdisc,
//! minor 1 to `divisor`), else the one that the first matching filter names, else that of its
//! keyed flow hash. (In the kernel a packet that no filter matches is dropped.) Every `perturb`
//! seconds, counted from the first call, the key is another, and what is queued is hashed anew, in
//! its order: a look at each packet.
//!
//! At the limit the longest queue loses its newest packet, or with `headdrop` its oldest. A queue
//! of `depth` packets takes no more. With `redflowlimit` each queue has a [RED](crate::qdisc::red)
//! of its own.
//!
//! Parameters do not change in use, as in the kernel.

#[cfg(all(test, not(any(loom, miri))))]
mod perturb_tests;
mod slots;
mod spec;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::{Xstat, Xstats};
use crate::filter::Filters;
use crate::handle::Handle;
use crate::qdisc::aqm::{ETHERNET_LEN, mark_ce, nanos};
use crate::qdisc::draws::Draws;
use crate::qdisc::drr::{QUANTUM, RoundRobin};
use crate::qdisc::flow_hash::{flow_hash, keyed, named_flow};
use crate::qdisc::kind::Kind;
use crate::qdisc::periods::Periods;
use crate::qdisc::red::law::{Action, Law};
use crate::qdisc::spec::{QdiscEnv, SpecError};
use slots::Slots;

pub use spec::SfqSpec;

/// `sfq`: stochastic fairness queueing (tc-sfq(8)).
#[derive(Debug)]
pub struct Sfq {
    handle: Handle,
    /// As far as its parts allow each other.
    spec: SfqSpec,
    limit: u64,
    quantum: i32,
    law: Option<Law>,
    draws: Draws,
    seed: u64,
    perturb: Periods,
    perturbed: u64,
    now: Time,
    filters: Filters,
    slots: Slots,
    rounds: RoundRobin,
    stats: QdiscStats,
    marks: [u64; XSTATS.len()],
    xstats: Xstats,
}

/// Statistics of its own, as `tc -s` names them.
const XSTATS: [Xstat; 6] = [
    Xstat::ProbDrop,
    Xstat::ForcedDrop,
    Xstat::ProbMark,
    Xstat::ForcedMark,
    Xstat::ProbMarkHead,
    Xstat::ForcedMarkHead,
];
const DROP: usize = 0;
const MARK: usize = 2;
const MARK_HEAD: usize = 4;

impl Kind for Sfq {
    type Spec = SfqSpec;
    const NAME: &'static str = "sfq";
    const CAN_CHANGE: bool = false;
    const OPTIONS: &'static [crate::QdiscOption] = spec::OPTIONS;
    const HAS_FILTERS: bool = true;

    fn check(spec: &SfqSpec) -> Result<(), SpecError> {
        spec.check()
    }

    fn make(spec: &SfqSpec, handle: Handle, env: &QdiscEnv) -> Sfq {
        let spec = spec.effective();
        let frame = env.mtu.saturating_add(ETHERNET_LEN);
        let quantum = spec.quantum.unwrap_or(frame);
        Sfq {
            handle,
            limit: spec.packets().into(),
            quantum: quantum.clamp(*QUANTUM.start(), *QUANTUM.end()) as i32,
            law: spec.red.as_ref().map(Law::new),
            draws: Draws::new(env.seed),
            seed: env.seed,
            perturb: Periods::new(nanos(spec.perturb)),
            perturbed: 0,
            now: Time::ZERO,
            filters: Filters::default(),
            slots: Slots::new(spec.flows, spec.divisor),
            rounds: RoundRobin::default(),
            stats: QdiscStats::default(),
            marks: [0; XSTATS.len()],
            xstats: Xstats::new(&XSTATS),
            spec,
        }
    }

    fn filters_mut(&mut self) -> Option<&mut Filters> {
        Some(&mut self.filters)
    }

    fn flows(&self) -> u64 {
        self.rounds.lens().1.into()
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

impl Sfq {
    /// A call comes: hashes flows anew if it is time.
    fn begin(&mut self, now: Time, cx: &mut Cx) {
        self.now = self.now.max(now);
        let due = self.perturb.due(self.now);
        if due == self.perturbed {
            return;
        }
        // The key of a period does not depend on which calls came in others.
        self.seed = Draws::new(self.draws.clone().u64() ^ due).u64();
        self.perturbed = due;
        // What filters say stays.
        if self.filters.is_empty() {
            self.rehash(cx);
        }
    }

    /// Queues everything anew, flow by flow in the order of their turns, and counts it for RED, as
    /// if it came now. What finds no place is dropped.
    fn rehash(&mut self, cx: &mut Cx) {
        let mut all = PacketList::new();
        while let Some(index) = self.rounds.take(&mut *self.slots.slots) {
            while let Some(packet) = self.slots.pop(index) {
                all.push_back(packet);
            }
        }
        while let Some(mut packet) = all.pop_front() {
            let bucket = self.bucket(&mut packet);
            let slot = self.slots.find(bucket).or_else(|| self.slots.add(bucket));
            match slot {
                Some(index) if !self.is_full(index) => {
                    if let Some(law) = &self.law {
                        let slot = &mut self.slots.slots[index as usize];
                        law.count(&mut slot.average, slot.backlog);
                    }
                    self.append(index, packet);
                }
                _ => {
                    self.stats.count_dropped(&packet);
                    cx.dropped.push(packet, DropReason::QdiscLimit);
                }
            }
        }
    }

    fn bucket(&self, packet: &mut Packet) -> usize {
        // The divisor is a power of 2.
        (keyed(flow_hash(packet), self.seed) & (self.spec.divisor - 1)) as usize
    }

    #[inline]
    fn is_full(&mut self, index: u32) -> bool {
        self.slots.at(index).packets.len() >= self.spec.depth as usize
    }

    /// Puts a packet, which is counted, at the end of a flow.
    #[inline]
    fn append(&mut self, index: u32, packet: Packet) {
        self.slots.push(index, packet);
        let slot = self.slots.at(index);
        if slot.packets.len() == 1 {
            slot.credit = self.quantum;
            // New flows wait for the others: else they might send alone.
            self.rounds.add_old(&mut *self.slots.slots, index);
        }
    }

    /// RED of a flow that has packets. False: the packet, or with `headdrop` the oldest, is to be
    /// dropped.
    fn admit(&mut self, index: u32, packet: &mut Packet, cx: &Cx) -> bool {
        let Some(law) = &self.law else {
            return true;
        };
        let slot = &mut self.slots.slots[index as usize];
        law.count(&mut slot.average, slot.backlog);
        let forced = match law.decide(&mut slot.average, &mut self.draws) {
            Action::Pass => return true,
            Action::Early => 0,
            Action::Forced => 1,
        };
        self.stats.overlimits += 1;
        if self.spec.ecn && !(forced == 1 && self.spec.harddrop) {
            if self.spec.headdrop
                && let Some(mut first) = slot.packets.pop_front()
            {
                // Marked, it may be a copy, in other memory.
                self.stats.count_removed(&first);
                let marked = mark_ce(&mut first, &cx.pool);
                self.stats.count_queued(&first);
                slot.packets.push_front(first);
                if marked {
                    self.marks[MARK_HEAD + forced] += 1;
                    return true;
                }
            }
            if mark_ce(packet, &cx.pool) {
                self.marks[MARK + forced] += 1;
                return true;
            }
        }
        self.marks[DROP + forced] += 1;
        false
    }

    /// Drops a packet of the longest flow, or where all have one, that of the flow whose turn it
    /// is. Returns the flow.
    fn drop_longest(&mut self, cx: &mut Cx) -> Option<u32> {
        let index = match self.slots.longest() {
            0 => return None,
            1 => self.rounds.take(&mut *self.slots.slots)?,
            _ => self.slots.find_longest(),
        };
        let packet = if self.spec.headdrop {
            self.slots.pop(index)?
        } else {
            self.slots.pop_back(index)?
        };
        self.stats.count_dropped(&packet);
        cx.dropped.push(packet, DropReason::QdiscLimit);
        Some(index)
    }

    /// Queues a packet, and says what became of it.
    #[inline]
    fn push(&mut self, mut packet: Packet, cx: &mut Cx) -> Verdict {
        let divisor = self.spec.divisor as usize;
        let bucket = match named_flow(&mut packet, self.handle, &self.filters, divisor, cx) {
            Ok(named) => named.unwrap_or_else(|| self.bucket(&mut packet)),
            Err(lost) => return lost.settle(packet, &mut self.stats, cx),
        };
        let index = match self.slots.find(bucket) {
            None => match self.slots.add(bucket) {
                Some(index) => index,
                None => {
                    self.stats.drops += 1;
                    cx.dropped.push(packet, DropReason::QdiscLimit);
                    return Verdict::Dropped;
                }
            },
            Some(index) => {
                let reason = if !self.admit(index, &mut packet, cx) {
                    Some(DropReason::QdiscCongested)
                } else {
                    self.is_full(index).then_some(DropReason::QdiscLimit)
                };
                if let Some(reason) = reason {
                    return self.refuse(index, packet, reason, cx);
                }
                index
            }
        };
        self.stats.count_queued(&packet);
        self.append(index, packet);
        if self.stats.qlen <= self.limit {
            return Verdict::Queued;
        }
        match self.drop_longest(cx) {
            Some(loser) if loser == index => Verdict::Congestion,
            _ => Verdict::Queued,
        }
    }

    /// A flow takes no more: drops the packet, or with `headdrop` the flow's oldest for it.
    #[cold]
    fn refuse(&mut self, index: u32, packet: Packet, reason: DropReason, cx: &mut Cx) -> Verdict {
        if !self.spec.headdrop {
            self.stats.drops += 1;
            cx.dropped.push(packet, reason);
            return Verdict::Dropped;
        }
        self.stats.count_queued(&packet);
        if let Some(oldest) = self.slots.replace(index, packet) {
            self.stats.count_dropped(&oldest);
            cx.dropped.push(oldest, reason);
        }
        Verdict::Congestion
    }
}

impl Qdisc for Sfq {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.begin(cx.now, cx);
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            verdict = verdict.max(self.push(packet, cx));
        }
        if self.law.is_some() {
            self.xstats.set(self.marks);
        }
        verdict
    }

    /// One packet alone, so that flows take their turns.
    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, _: &mut Cx) -> bool {
        let passes = packets.len() == 1 && self.rounds.is_empty() && self.filters.is_empty();
        if passes {
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.begin(cx.now, cx);
        let end = self.stats.packets + budget as u64;
        while self.stats.packets < end
            && let Some(index) = self.rounds.select(&mut *self.slots.slots, self.quantum)
            && let Some(packet) = self.slots.pop(index)
        {
            self.stats.count_dequeued(&packet);
            let slot = self.slots.at(index);
            if slot.packets.is_empty() {
                self.rounds.remove(&mut *self.slots.slots);
            } else {
                let bytes = i32::try_from(packet.wire_len()).unwrap_or(i32::MAX);
                slot.credit = slot.credit.saturating_sub(bytes);
            }
            out.push_back(packet);
        }
        if self.stats.qlen == 0 {
            Next::Idle
        } else {
            Next::Ready
        }
    }

    /// Flow by flow, in the order in which they would have been served.
    fn drain(&mut self, out: &mut PacketList) {
        while let Some(index) = self.rounds.take(&mut *self.slots.slots) {
            while let Some(packet) = self.slots.pop(index) {
                out.push_back(packet);
            }
        }
        self.stats.count_drained();
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}
