//! `fq`: a queue for each flow, served in turn, and not before its time (tc-fq(8)).
//!
//! **Flows.** A packet's flow is its flow hash under `orphan_mask`; its band is that of its
//! priority. Bands take turns by weight, the flows of a band by [deficit round
//! robin](crate::qdisc::drr), those that just got packets first. A flow is of the band of its
//! latest packet, and goes there as its turn ends.
//!
//! **Time.** A packet with a [departure time](softnet::mem::Packet::departure_time), which a
//! program that embeds the queue sets, does not leave before it. Packets of a flow leave in the
//! order of their times, of which that of a packet without one is when it came; those with the
//! same, in the order in which they came. A flow that is held back for its first packet stays so
//! for an earlier one, as in the kernel.
//! With `maxrate` a flow is paced: a quantum at a time, or each packet where the rate is low or
//! the packet has a departure time. A flow whose first packet is not due is out of its band's
//! turns, in a heap by time.
//!
//! **Runs.** Packets of one flow that follow each other in a list are queued with one look-up, and
//! as many leave as flow and band may send in the turn: each is treated as if it were alone.
//!
//! **Passing.** A few packets that find nothing queued, are due and are not paced leave at once,
//! without a flow.
//!
//! **Limits** are by band and by flow. A call takes at most as many flows out of the heap as
//! packets are asked for, and the table of flows moves a few of them for each new one. Into the
//! heap a call puts all flows that it comes upon and that are not due, each once for a packet;
//! those that have no credit are passed over, each a few times. Other than by these two a call's
//! work does not grow with the number of flows. A packet that is due before the last one of its
//! flow costs a look at the flow's others.

mod arrive;
mod leave;
#[cfg(all(test, not(any(loom, miri))))]
mod pass_tests;
mod publish;
mod shrink;
mod spec;
mod table;
#[cfg(all(test, not(any(loom, miri))))]
mod table_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::Xstats;
use crate::handle::Handle;
use crate::qdisc::aqm::{ETHERNET_LEN, nanos};
use crate::qdisc::drr::{Flows, QUANTUM, RoundRobin};
use crate::qdisc::kind::Kind;
use crate::qdisc::spec::{QdiscEnv, SpecError};
use publish::{Counters, FASTPATH, XSTATS};
use spec::BANDS;
use table::{FETCHED, Flow, FlowTable, ticks};

pub use spec::FqSpec;

const SECOND: u64 = 1_000_000_000;

/// The flows of a band that take turns.
#[derive(Debug, Default)]
pub(crate) struct Band {
    rounds: RoundRobin,
    /// Bytes that it may still send in its turn.
    credit: i64,
    weight: i64,
    /// Frames in it.
    pub(crate) len: u64,
    drops: u64,
}

/// `fq`: a queue for each flow, served in turn, and not before its time (tc-fq(8)).
#[derive(Debug)]
pub struct Fq {
    spec: FqSpec,
    /// Bytes of a frame of the device's MTU.
    frame: u32,
    seed: u64,
    quantum: i32,
    initial_quantum: i32,
    refill_ticks: u32,
    flows: FlowTable,
    pub(crate) bands: [Band; BANDS],
    /// The band whose turn it is.
    turn: usize,
    /// Throttled flows, each once, by the time at which its first packet is due.
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    /// When the last packet of each flow is due at the latest, where some have departure times.
    last: BTreeMap<u32, Time>,
    /// Frames of each priority, so that a change of the map is a change of sums.
    priorities: [u64; 16],
    /// The latest time of a call. Senders read the clock before they wait for the queue, so that
    /// one may come with an older reading; what came without a departure time does not wait then.
    now: Time,
    stats: QdiscStats,
    counters: Counters,
    xstats: Xstats,
}

/// The most packets that pass together: they do not take turns by flows. As in the kernel.
const PASS: usize = 8;
/// Packets of a list from which on their flows are asked for first.
const FETCHED_FROM: usize = 4;

impl Kind for Fq {
    type Spec = FqSpec;
    const NAME: &'static str = "fq";
    const OPTIONS: &'static [crate::QdiscOption] = spec::OPTIONS;

    fn check(spec: &FqSpec) -> Result<(), SpecError> {
        spec.check()
    }

    fn make(spec: &FqSpec, _: Handle, env: &QdiscEnv) -> Fq {
        let mut fq = Fq {
            spec: spec.clone(),
            frame: env.mtu.saturating_add(ETHERNET_LEN),
            seed: env.seed,
            quantum: 0,
            initial_quantum: 0,
            refill_ticks: 0,
            flows: FlowTable::new(env.seed),
            bands: Default::default(),
            turn: 0,
            timers: BinaryHeap::new(),
            last: BTreeMap::new(),
            priorities: [0; 16],
            now: Time::ZERO,
            stats: QdiscStats::default(),
            counters: Counters::default(),
            xstats: Xstats::new(&XSTATS),
        };
        fq.set(spec);
        fq
    }

    /// Drops packets beyond the new `limit`; the others hold for what comes. With another mask
    /// all that waits finds its flow anew; what flows have sent before is forgotten, as it may
    /// have been several's.
    fn change(&mut self, spec: &FqSpec, cx: &mut Cx) {
        self.now = self.now.max(cx.now);
        let mut moved = PacketList::new();
        if spec.orphan_mask != self.spec.orphan_mask {
            self.drain(&mut moved);
            self.flows = FlowTable::new(self.seed);
        }
        self.set(spec);
        let mut added = QdiscStats::default();
        while let Some(mut packet) = moved.pop_front() {
            match self.flow_of(&mut packet) {
                Some(index) => self.append(index, packet, &mut added),
                None => {
                    self.stats.drops += 1;
                    cx.dropped.push(packet, DropReason::FqFlowLimit);
                }
            }
        }
        self.stats.count_added(&added);
        self.shrink(cx);
        self.publish();
    }

    fn flows(&self) -> u64 {
        self.listed()
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

impl Fq {
    fn set(&mut self, spec: &FqSpec) {
        self.spec = spec.clone();
        let frames = |n| self.frame.saturating_mul(n);
        let quantum = spec.quantum.unwrap_or_else(|| frames(2));
        let initial = spec.initial_quantum.unwrap_or_else(|| frames(10));
        self.quantum = quantum.clamp(*QUANTUM.start(), *QUANTUM.end()) as i32;
        self.initial_quantum = i32::try_from(initial).unwrap_or(i32::MAX);
        self.refill_ticks = ticks(nanos(spec.refill_delay));
        for (band, weight) in self.bands.iter_mut().zip(spec.weights) {
            band.weight = weight.into();
            band.len = 0;
        }
        for (frames, &band) in self.priorities.iter().zip(&spec.priomap) {
            self.bands[usize::from(band)].len += frames;
        }
    }

    fn is_over(&self, band: u8) -> bool {
        self.bands[usize::from(band)].len > self.spec.limit.into()
    }

    /// Flows that take turns.
    #[inline]
    pub(crate) fn listed(&self) -> u64 {
        let lens = self.bands.iter().map(|band| band.rounds.lens());
        lens.map(|(new, old)| u64::from(new + old)).sum()
    }
}

impl Qdisc for Fq {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        let mut added = QdiscStats::default();
        self.now = self.now.max(cx.now);
        self.fetch(packets);
        // Packets in the list whose flows were asked for.
        let mut fetched = FETCHED - 1;
        let mut next = packets.pop_front();
        while let Some(packet) = next {
            if fetched == 0 {
                self.fetch(packets);
                fetched = FETCHED;
            }
            let priority = packet.priority();
            let (run, behind) = match self.push(packet, &mut added) {
                Ok(index) if self.may_follow(index, packets) => {
                    self.push_run(index, priority, packets, &mut added)
                }
                Ok(_) => (0, packets.pop_front()),
                Err((packet, reason)) => {
                    self.stats.drops += 1;
                    cx.dropped.push(packet, reason);
                    verdict = Verdict::Dropped;
                    (0, packets.pop_front())
                }
            };
            fetched = fetched.saturating_sub(run + 1);
            next = behind;
        }
        self.stats.count_added(&added);
        self.publish();
        verdict
    }

    /// As the kernel's `fq_fastpath_check`: what finds nothing queued, is due and is not paced
    /// needs no flow, and costs no credit.
    #[inline]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let spec = &self.spec;
        let room = spec.limit.min(spec.flow_limit) as usize;
        if self.stats.qlen != 0 || packets.len() > PASS.min(room) || spec.is_paced() {
            return false;
        }
        let now = self.now.max(cx.now);
        let marks = spec.ce_threshold.is_some();
        let is_due = |time: Time| time <= now && !marks;
        if !packets
            .iter()
            .all(|packet| packet.departure_time().is_none_or(is_due))
        {
            return false;
        }
        self.now = now;
        self.stats.count_sent(sum);
        self.counters.fastpath += packets.len() as u64;
        self.xstats.set_one(FASTPATH, self.counters.fastpath);
        true
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.now = self.now.max(cx.now);
        self.release(budget);
        let mut taken = QdiscStats::default();
        while taken.queued < budget as u64
            && let Some(band) = self.select_band()
        {
            self.pop(band, budget as u64, &mut taken, out, cx);
        }
        self.stats.count_taken(&taken);
        self.publish();
        self.next()
    }

    /// Flow by flow: those that take turns, then the throttled ones by their times. What comes
    /// after that does not wait for the time of a packet that is gone.
    fn drain(&mut self, out: &mut PacketList) {
        let now = self.now;
        let mut empty = |flow: &mut Flow| {
            out.append(&mut flow.packets);
            flow.time_next = Time::ZERO;
            flow.set_idle(now);
        };
        for band in &mut self.bands {
            while let Some(index) = band.rounds.take(&mut self.flows) {
                empty(self.flows.at(index));
            }
            // BUG-FQ-2: the frames of a band are gone, too.
            (band.len, band.credit) = (0, 0);
        }
        while let Some(Reverse((_, index))) = self.timers.pop() {
            empty(self.flows.at(index));
        }
        self.last.clear();
        self.priorities = [0; 16];
        self.stats.count_drained();
        self.publish();
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}
