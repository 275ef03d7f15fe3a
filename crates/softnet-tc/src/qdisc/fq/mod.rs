//! `fq`: a queue for each flow, served in turn, and not before its time (tc-fq(8)).
//!
//! **Flows.** A packet's flow is its flow hash under `orphan_mask`; its band is that of its
//! priority. Bands take turns by weight, the flows of a band by [deficit round
//! robin](crate::qdisc::drr), those that just got packets first. A flow is of the band of its
//! latest packet, and goes there as its turn ends.
//!
//! **Time.** A packet with a [departure time](Packet::departure_time), which a program that embeds
//! the queue sets, does not leave before it. Packets of a flow leave in the order of their times,
//! of which that of a packet without one is when it came; those with the same, in the order in
//! which they came. A flow that is held back for its first packet stays so for an earlier one, as
//! in the kernel.
//! With `maxrate` a flow is paced: a quantum at a time, or each packet where the rate is low or
//! the packet has a departure time. A flow whose first packet is not due is out of its band's
//! turns, in a heap by time.
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

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::Xstats;
use crate::handle::Handle;
use crate::qdisc::aqm::{ETHERNET_LEN, mark_ce, nanos};
use crate::qdisc::drr::{Emptied, Flows, QUANTUM, RoundRobin};
use crate::qdisc::flow_hash::flow_hash;
use crate::qdisc::kind::Kind;
use crate::qdisc::spec::{QdiscEnv, SpecError};
use publish::{Counters, FASTPATH, XSTATS};
use spec::BANDS;
use table::{FETCHED, Flow, FlowTable, State, ticks};

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

    /// Notes when a packet is to leave. False: too late to wait for.
    #[inline]
    fn set_time(&mut self, packet: &mut Packet) -> bool {
        match packet.departure_time() {
            Some(time) if time > self.now => self.check_horizon(packet, time),
            // Due since then.
            Some(_) => true,
            None => {
                // Due since it came, for `ce_threshold`.
                packet.set_timestamp(self.now);
                true
            }
        }
    }

    #[cold]
    fn check_horizon(&mut self, packet: &mut Packet, time: Time) -> bool {
        let horizon = self.now + self.spec.horizon;
        if time <= horizon {
            return true;
        }
        if self.spec.horizon_drop {
            self.counters.horizon_drops += 1;
            return false;
        }
        self.counters.horizon_caps += 1;
        packet.set_departure_time(horizon);
        true
    }

    /// Queues a packet, or says why not. Returns its flow. What is queued is counted in `added`.
    #[inline]
    fn push(
        &mut self,
        mut packet: Packet,
        added: &mut QdiscStats,
    ) -> Result<u32, (Packet, DropReason)> {
        let band = self.spec.priomap[(packet.priority() & 15) as usize];
        if self.bands[usize::from(band)].len >= self.spec.limit.into() {
            self.bands[usize::from(band)].drops += 1;
            return Err((packet, DropReason::QdiscLimit));
        }
        if !self.set_time(&mut packet) {
            return Err((packet, DropReason::FqHorizonLimit));
        }
        let Some(index) = self.flow_of(&mut packet) else {
            return Err((packet, DropReason::FqFlowLimit));
        };
        if self.flows.at(index).packets.len() >= self.spec.flow_limit as usize {
            self.counters.flow_limit += 1;
            return Err((packet, DropReason::FqFlowLimit));
        }
        self.append(index, packet, added);
        Ok(index)
    }

    /// Queues the packets of a list that follow one of this flow, as long as they are of the same
    /// flow and priority, have no departure times and there is room: what [`push`](Fq::push) would
    /// do, with one look at the flow. Returns how many, and the packet behind them.
    #[inline]
    fn push_run(
        &mut self,
        index: u32,
        priority: u32,
        packets: &mut PacketList,
        added: &mut QdiscStats,
    ) -> (usize, Option<Packet>) {
        let now = self.now;
        let mask = self.spec.orphan_mask;
        let band = &mut self.bands[usize::from(self.spec.priomap[(priority & 15) as usize])];
        let flow = self.flows.at(index);
        let key = flow.key;
        let of_band = u64::from(self.spec.limit).saturating_sub(band.len);
        let of_flow = u64::from(self.spec.flow_limit).saturating_sub(flow.packets.len() as u64);
        let room = if flow.timed { 0 } else { of_band.min(of_flow) };
        let (mut len, mut next) = (0, None);
        let run = std::iter::from_fn(|| {
            let mut packet = packets.pop_front()?;
            let goes_on = len < room
                && packet.priority() == priority
                && packet.departure_time().is_none()
                && flow_hash(&mut packet) & mask == key;
            if !goes_on {
                next = Some(packet);
                return None;
            }
            packet.set_timestamp(now);
            added.count_queued(&packet);
            len += 1;
            Some(packet)
        });
        flow.packets.extend(run);
        band.len += len;
        self.priorities[(priority & 15) as usize] += len;
        (len as usize, next)
    }

    /// The flow of a packet. `None`: there are too many.
    #[inline]
    fn flow_of(&mut self, packet: &mut Packet) -> Option<u32> {
        let key = flow_hash(packet) & self.spec.orphan_mask;
        let index = self.flows.find_or_add(key, self.initial_quantum, self.now);
        self.counters.no_flow += u64::from(index.is_none());
        index
    }

    /// Asks for the flows of the first packets of a list, as far as those say which they are.
    #[inline]
    fn fetch(&self, packets: &PacketList) {
        if packets.len() >= FETCHED_FROM && self.flows.has_many() {
            let mask = self.spec.orphan_mask;
            let hashes = packets.iter().take(FETCHED).filter_map(Packet::flow_hash);
            self.flows.fetch(hashes.map(|hash| hash & mask));
        }
    }

    /// Queues a packet of a flow whose packets need not be in the order in which they came.
    #[cold]
    fn sort_in(&mut self, index: u32, packet: Packet) {
        let flow = self.flows.at(index);
        let time = packet.timestamp();
        let none = if flow.packets.is_empty() {
            Time::ZERO
        } else {
            // Without a departure time: due when it came.
            self.now
        };
        let last = self.last.get(&index).copied().filter(|_| flow.timed);
        let last = last.unwrap_or(none);
        flow.timed = true;
        self.last.insert(index, last.max(time));
        if time >= last {
            flow.packets.push_back(packet);
            return;
        }
        let earlier = flow.packets.iter();
        let earlier = earlier.take_while(|other| other.timestamp() <= time);
        let (count, mut sorted) = (earlier.count(), PacketList::new());
        flow.packets.split_front(count, &mut sorted);
        sorted.push_back(packet);
        sorted.append(&mut flow.packets);
        flow.packets = sorted;
    }

    /// Queues a packet in a flow.
    #[inline]
    fn append(&mut self, index: u32, packet: Packet, added: &mut QdiscStats) {
        let priority = (packet.priority() & 15) as usize;
        let band = self.spec.priomap[priority];
        let flow = self.flows.at(index);
        flow.band = band;
        added.count_queued(&packet);
        if flow.timed || packet.departure_time().is_some() {
            self.sort_in(index, packet);
        } else {
            flow.packets.push_back(packet);
        }
        self.priorities[priority] += 1;
        self.bands[usize::from(band)].len += 1;
        let flow = self.flows.at(index);
        if flow.state == State::Idle {
            flow.state = State::Listed;
            if flow.idle_ticks(self.now) > self.refill_ticks {
                flow.credit = flow.credit.max(self.quantum);
            }
            let rounds = &mut self.bands[usize::from(band)].rounds;
            rounds.add_new(&mut self.flows, index);
        }
    }

    /// Brings throttled flows back that are due, at most so many.
    fn release(&mut self, most: usize) {
        for n in 0..most {
            let Some(&Reverse((time, index))) = self.timers.peek() else {
                return;
            };
            if time > self.now {
                return;
            }
            if n == 0 {
                let latency = &mut self.counters.latency;
                *latency = *latency - *latency / 8 + nanos(self.now.since(time)) / 8;
            }
            self.timers.pop();
            let flow = self.flows.at(index);
            flow.state = State::Listed;
            let band = usize::from(flow.band);
            self.bands[band].rounds.add_old(&mut self.flows, index);
        }
    }

    /// The band that sends next: it has flows, and credit.
    #[inline]
    fn select_band(&mut self) -> Option<usize> {
        loop {
            let band = &self.bands[self.turn];
            if band.credit > 0 && !band.rounds.is_empty() {
                return Some(self.turn);
            }
            if self.listed() == 0 {
                return None;
            }
            self.turn = (self.turn + 1) % BANDS;
            let band = &mut self.bands[self.turn];
            band.credit = (band.credit + band.weight).min(band.weight);
        }
    }

    /// Flows that take turns.
    #[inline]
    pub(crate) fn listed(&self) -> u64 {
        let lens = self.bands.iter().map(|band| band.rounds.lens());
        lens.map(|(new, old)| u64::from(new + old)).sum()
    }

    /// Takes packets of the flow whose turn it is, as long as flow and band may send, until there
    /// are `budget` wire packets or more in `taken`: there may be none that is due.
    #[inline]
    fn pop(
        &mut self,
        band: usize,
        budget: u64,
        taken: &mut QdiscStats,
        out: &mut PacketList,
        cx: &Cx,
    ) {
        let now = self.now;
        let Fq {
            spec,
            flows,
            bands,
            timers,
            counters,
            last,
            priorities,
            ..
        } = self;
        let rounds = &mut bands[band].rounds;
        let stays = |flow: &Flow| usize::from(flow.band) == band;
        let Some(index) = rounds.select_if(flows, self.quantum, stays) else {
            return;
        };
        let many = flows.has_many();
        if many {
            flows.fetch_behind(index);
        }
        let flow = flows.at(index);
        let own = usize::from(flow.band);
        if flow.credit <= 0 {
            flow.credit += self.quantum;
            rounds.remove(flows);
            bands[own].rounds.add_old(flows, index);
            return;
        }
        let Some(first) = flow.packets.front() else {
            if rounds.empty(flows) == Emptied::Kept {
                bands[own].rounds.add_old(flows, index);
            } else {
                flows.at(index).set_idle(now);
            }
            return;
        };
        let due = |flow: &Flow, first: &Packet| first.timestamp().max(flow.time_next);
        let time = due(flow, first);
        if time > now {
            rounds.remove(flows);
            let flow = flows.at(index);
            flow.state = State::Throttled;
            flow.time_next = time;
            timers.push(Reverse((time, index)));
            counters.throttled += 1;
            return;
        }
        let mut run = PacketList::new();
        while flow.credit > 0
            && bands[band].credit > 0
            && taken.queued < budget
            && let Some(first) = flow.packets.front()
        {
            let due = due(flow, first);
            if due > now {
                break;
            }
            let Some(mut packet) = flow.packets.pop_front() else {
                break;
            };
            match flow.packets.front() {
                // It is likely to be the next one of all.
                Some(next) if many => next.prefetch(),
                Some(_) => (),
                None if flow.timed => {
                    flow.timed = false;
                    last.remove(&index);
                }
                None => (),
            }
            taken.count_queued(&packet);
            let bytes = packet.wire_len();
            let late = |threshold| now.since(due) > threshold;
            if spec.ce_threshold.is_some_and(late) {
                counters.ce_marks += u64::from(mark_ce(&mut packet, &cx.pool));
            }
            let cost = i32::try_from(bytes).unwrap_or(i32::MAX);
            flow.credit = flow.credit.saturating_sub(cost);
            bands[band].credit -= i64::from(cost);
            let priority = (packet.priority() & 15) as usize;
            priorities[priority] -= 1;
            bands[usize::from(spec.priomap[priority])].len -= 1;
            if let Some(rate) = spec.maxrate
                && spec.is_paced()
            {
                let paced = if packet.departure_time().is_some() {
                    // By itself, as it was to leave by itself.
                    Some(bytes)
                } else if rate <= spec.low_rate_threshold {
                    flow.credit = 0;
                    Some(bytes)
                } else {
                    (flow.credit <= 0).then(|| bytes.max(self.quantum as u64))
                };
                if let Some(bytes) = paced {
                    pace(flow, bytes, rate, now, counters);
                }
            }
            run.push_back(packet);
        }
        out.append(&mut run);
    }

    /// When the next packet may leave, if none may now.
    fn next(&self) -> Next {
        match self.timers.peek() {
            _ if self.stats.qlen == 0 => Next::Idle,
            Some(&Reverse((time, _))) if self.listed() == 0 && time > self.now => {
                Next::At(time + self.spec.timer_slack)
            }
            _ => Next::Ready,
        }
    }
}

/// Says when the next packet of a flow may leave, after so many bytes.
fn pace(flow: &mut Flow, bytes: u64, rate: u64, now: Time, counters: &mut Counters) {
    let mut delay = bytes.saturating_mul(SECOND) / rate;
    if delay > SECOND {
        delay = SECOND;
        counters.too_long += 1;
    }
    if flow.time_next != Time::ZERO {
        // It left late: make up for it, by half of the delay at most.
        let late = nanos(now.since(flow.time_next));
        delay -= late.min(delay / 2);
    }
    flow.time_next = now.plus_nanos(delay);
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
        while let Some(mut packet) = next {
            if fetched == 0 {
                self.fetch(packets);
                fetched = FETCHED;
            }
            let (priority, hash) = (packet.priority(), flow_hash(&mut packet));
            let differs = |other| (other ^ hash) & self.spec.orphan_mask != 0;
            let follower = packets.front().and_then(Packet::flow_hash);
            let alone = follower.is_some_and(differs);
            let (run, behind) = match self.push(packet, &mut added) {
                Ok(index) if !alone => self.push_run(index, priority, packets, &mut added),
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
