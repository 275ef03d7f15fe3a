//! `cake`: shaper, fair queues, AQM and priorities in one (tc-cake(8); Høiland-Jørgensen and
//! others, "Piece of CAKE", 2018).
//!
//! A packet's code point (or its mark, or its priority) says its [tin](tins); its
//! [hash](table) says its flow. A tin with packets that has sent less than its part of the rate
//! comes first, the last of those; else the one whose turn was earliest. In a tin, flows take
//! [turns](tin) by bytes, and hosts, too, where they are told apart. [COBALT](cobalt) looks after
//! each flow. The [rate](shaper) has no burst; what a packet [costs](framing) is what it takes on
//! the link behind.
//!
//! At the limit, of memory, the flow with most bytes loses its oldest packet.
//!
//! Where it differs from the kernel: the control law is exact; at most [`DROPS_PER_PACKET`] packets
//! are dropped before one leaves; the division of a host's quantum carries its rest instead of a
//! random one; a change of tins or isolation sorts what is queued anew, by its hash,
//! and drops none of it; with
//! `hosts` the two directions between two hosts have a queue each (the kernel's share one); with
//! `ack-filter` the oldest 128 packets of a flow are looked at. There is no NAT here, so `nat`
//! changes nothing. Flows are not shown as classes.
//!
//! Where the tree runs as several instances they share the rate: [`gate`].

mod ack;
mod autorate;
mod classify;
mod cobalt;
mod framing;
mod gate;
mod kind;
mod limit;
mod list;
mod loads;
mod publish;
mod shaper;
mod spec;
mod table;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
mod tin;
mod tins;

use softnet::mem::{Packet, PacketList};
use softnet::offload::segment;
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict, WireSize};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::wire::{network_offset, traffic_class};

use crate::account::Xstats;
use crate::filter::Filters;
use crate::handle::Handle;
use crate::qdisc::aqm::{DROPS_PER_PACKET, stamp};
use autorate::Autorate;
use classify::Named;
use cobalt::Fate;
use framing::Link;
use gate::Gate;
use limit::Longest;
use tin::Tin;
use tins::Mode;

pub(super) use spec::OPTIONS_MQ;
pub use spec::{AckFilter, CakeSpec, Diffserv, Framing, Isolation};

/// An average that moves on by 2^-`shift` of the difference.
#[inline]
fn ewma(average: u64, sample: u64, shift: u32) -> u64 {
    average - (average >> shift) + (sample >> shift)
}

/// As [`ewma`], by a quarter or by a 256th.
#[inline]
fn ewma_fast(average: u64, sample: u64, fast: bool) -> u64 {
    ewma(average, sample, if fast { 2 } else { 8 })
}

/// `cake`: shaper, fair queues, AQM and priorities in one (tc-cake(8)).
#[derive(Debug)]
pub struct Cake {
    handle: Handle,
    seed: u64,
    /// State of the random numbers.
    random: u64,
    /// Wire bytes of the longest frame.
    mtu: u32,
    spec: CakeSpec,
    mode: &'static Mode,
    link: Link,
    gate: Gate,
    filters: Filters,
    tins: Box<[Tin]>,
    /// The tin that was served last.
    current: usize,
    /// Bytes per second; 0: no limit. With `autorate_ingress` not that of the parameters.
    rate: u64,
    memory_limit: u64,
    most_memory: u64,
    longest: Option<Longest>,
    autorate: Autorate,
    stats: QdiscStats,
    xstats: Xstats,
}

/// Result of looking for the packet that leaves next.
enum Step {
    Packet(Packet),
    Not(Next),
}

/// Where a packet's network layer starts.
#[inline]
fn offset(packet: &Packet) -> u64 {
    network_offset(packet.data()) as u64
}

impl Cake {
    /// Time that has passed is not made good where nothing was queued.
    #[inline]
    fn begin(&mut self, tin: usize, now: Time) {
        let tin = &mut self.tins[tin];
        if tin.backlog == 0 {
            tin.next = tin.next.max(now);
            if self.stats.qlen == 0 {
                self.gate.begin(now);
            }
        }
    }

    /// Takes one packet in.
    fn take_in(&mut self, mut packet: Packet, cx: &mut Cx) -> Verdict {
        let named = match self.classify(&mut packet, cx) {
            Ok(named) => named,
            Err(lost) => return lost.settle(packet, &mut self.stats, cx),
        };
        stamp(&mut packet, cx.now);
        let tin = self.tin_of(&mut packet, cx);
        self.begin(tin, cx.now);
        let flow = self.flow_of(tin, &mut packet, named);
        let counters = &mut self.tins[tin].counters;
        counters.longest = counters.longest.max(packet.wire_len());
        let arrived = packet.wire_len();
        if self.spec.split_gso && packet.gso().is_some() {
            if !self.push_segments(tin, flow, packet, cx) {
                return Verdict::Dropped;
            }
        } else {
            if self.spec.ack_filter != AckFilter::Off {
                self.filter_acks(tin, flow, &packet, cx);
            }
            self.push(tin, flow, packet);
        }
        self.estimate(arrived, cx.now);
        self.tins[tin].activate(flow, self.spec.isolation);
        self.most_memory = self.most_memory.max(self.stats.memory);
        let (mut verdict, own) = (Verdict::Queued, (tin, flow));
        while self.stats.memory > self.memory_limit
            && let Some(lost) = self.drop_longest(cx)
        {
            if lost == own {
                // The new packet is the flow's last.
                let is_lost = self.tins[tin].flow(flow).packets.is_empty();
                verdict = if is_lost {
                    Verdict::Dropped
                } else {
                    Verdict::Congestion
                };
            }
        }
        verdict
    }

    /// Queues the wire packets of a large frame. False: it was dropped.
    fn push_segments(&mut self, tin: usize, flow: u16, frame: Packet, cx: &mut Cx) -> bool {
        let mut segments = PacketList::new();
        match segment(frame, usize::MAX, &cx.pool, &mut segments) {
            Ok(_) => {}
            Err(error) => {
                self.stats.drops += 1;
                cx.dropped.note(error.reason, error.packets);
                self.tins[tin].give_up(flow);
                return false;
            }
        }
        while let Some(packet) = segments.pop_front() {
            self.push(tin, flow, packet);
        }
        true
    }

    /// Queues a packet at the end of a flow.
    #[inline]
    fn push(&mut self, tin: usize, flow: u16, packet: Packet) {
        self.link.see(WireSize::from(&packet), offset(&packet));
        self.append(tin, flow, packet);
    }

    #[inline]
    fn append(&mut self, tin: usize, flow: u16, packet: Packet) {
        self.stats.count_queued(&packet);
        let (bytes, packets) = packet.wire();
        let of = &mut self.tins[tin];
        of.counters.packets += packets;
        of.counters.bytes += bytes;
        of.push(flow, packet);
        if let Some(longest) = &mut self.longest
            && (longest.tin, longest.flow) != (tin, flow)
        {
            longest.others = longest.others.max(of.flow(flow).backlog);
        }
    }

    /// Queues a packet that was queued before. Filters are not asked again: their actions are done.
    fn sort(&mut self, mut packet: Packet, now: Time) {
        let code = traffic_class(packet.data()).map(|class| class >> 2);
        let tin = self.tin_at(&packet, code);
        self.begin(tin, now);
        let flow = self.flow_of(tin, &mut packet, Named::default());
        self.append(tin, flow, packet);
        self.tins[tin].activate(flow, self.spec.isolation);
    }

    /// Drops an acknowledgment that a new packet makes needless.
    fn filter_acks(&mut self, tin: usize, flow: u16, new: &Packet, cx: &mut Cx) {
        let aggressive = self.spec.ack_filter == AckFilter::Aggressive;
        let of = &mut self.tins[tin];
        let Some(needless) = ack::filter(&mut of.flow(flow).packets, new, aggressive) else {
            return;
        };
        let bytes = needless.wire_len();
        of.flow(flow).backlog -= bytes;
        of.backlog -= bytes;
        of.counters.ack_drops += 1;
        self.stats.count_dropped(&needless);
        if self.spec.ingress {
            self.charge(tin, &needless, true, cx.now);
        }
        cx.dropped.push(needless, DropReason::AckFilter);
    }

    /// Follows the rate of what arrives.
    fn estimate(&mut self, bytes: u64, now: Time) {
        if !self.spec.autorate_ingress || !self.gate.is_own() {
            self.autorate.pass(now);
        } else if let Some(rate) = self.autorate.arrived(bytes, now) {
            self.rate = rate;
            self.configure();
        }
    }

    /// Charges a packet to its tin and to the rate. Returns the bytes.
    #[inline]
    fn charge(&mut self, tin: usize, packet: &Packet, dropped: bool, now: Time) -> u64 {
        let bytes = self.link.cost(WireSize::from(packet), offset(packet));
        if self.rate > 0 {
            self.tins[tin].charge(bytes, now);
            self.gate.charge(bytes, dropped, now);
        }
        bytes
    }

    /// The tin that is served next. There is one with packets.
    #[inline]
    fn choose(&mut self, now: Time) -> Option<usize> {
        if self.rate == 0 {
            return self.take_turns();
        }
        let mut best = None;
        let mut earliest = i64::MAX;
        for (index, tin) in self.tins.iter().enumerate() {
            let until = tin.next.nanos().wrapping_sub(now.nanos()).cast_signed();
            if tin.is_active() && (until <= 0 || until <= earliest) {
                (best, earliest) = (Some(index), until);
            }
        }
        best
    }

    /// Without a rate tins take turns by bytes.
    fn take_turns(&mut self) -> Option<usize> {
        if !self.tins.iter().any(Tin::is_active) {
            return None;
        }
        loop {
            let tin = &mut self.tins[self.current];
            if tin.deficit >= 0 && tin.is_active() {
                return Some(self.current);
            }
            if tin.deficit <= 0 {
                tin.deficit += tin.quantum;
            }
            self.current = (self.current + 1) % self.tins.len();
        }
    }

    #[inline]
    fn random(&mut self) -> u32 {
        // Marsaglia's xorshift64*.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// The packet that leaves next (`cake_dequeue`).
    #[inline]
    fn step(&mut self, cx: &mut Cx) -> Step {
        let (now, isolation) = (cx.now, self.spec.isolation);
        let mut decays = true;
        let mut may_drop = DROPS_PER_PACKET;
        'tin: loop {
            if self.stats.qlen == 0 {
                return Step::Not(Next::Idle);
            }
            if self.rate > 0
                && let Some(time) = self.gate.wait(&mut self.tins, isolation, now)
            {
                self.stats.overlimits += 1;
                return Step::Not(Next::At(time));
            }
            let Some(tin) = self.choose(now) else {
                return Step::Not(Next::Idle);
            };
            'flow: loop {
                let decay = std::mem::take(&mut decays);
                let Some(flow) = self.tins[tin].select(decay, isolation) else {
                    continue 'tin;
                };
                loop {
                    let random = self.random();
                    let of = &mut self.tins[tin];
                    let Some(mut packet) = of.pop(flow) else {
                        of.empty(flow, isolation, now);
                        continue 'tin;
                    };
                    self.stats.count_removed(&packet);
                    let sojourn = now.nanos().saturating_sub(packet.timestamp().nanos());
                    let bulk = if self.spec.ingress { of.counts.bulk } else { 0 };
                    let (params, waited) = (of.params, (sojourn, bulk.into()));
                    let entry = of.flow(flow);
                    let cobalt = &mut entry.cobalt;
                    let fate =
                        cobalt.decide(&params, now, waited, &mut packet, &cx.pool, || random);
                    // The last packet may be marked, but stays.
                    if fate == Fate::Drop && !entry.packets.is_empty() && may_drop > 0 {
                        may_drop -= 1;
                        of.counters.drops += 1;
                        self.stats.drops += 1;
                        if self.spec.ingress {
                            self.charge_flow(tin, flow, &packet, true, now);
                        }
                        cx.dropped.push(packet, DropReason::QdiscCongested);
                        if self.spec.ingress {
                            continue 'flow;
                        }
                        continue;
                    }
                    of.counters.marks += u64::from(fate == Fate::Marked);
                    of.counters.delay(sojourn);
                    self.charge_flow(tin, flow, &packet, false, now);
                    let (bytes, packets) = packet.wire();
                    self.stats.bytes += bytes;
                    self.stats.packets += packets;
                    return Step::Packet(packet);
                }
            }
        }
    }

    #[inline]
    fn charge_flow(&mut self, tin: usize, flow: u16, packet: &Packet, dropped: bool, now: Time) {
        let bytes = self.charge(tin, packet, dropped, now);
        let tin = &mut self.tins[tin];
        tin.deficit = tin.deficit.saturating_sub_unsigned(bytes);
        let deficit = &mut tin.flow(flow).deficit;
        *deficit = deficit.saturating_sub(i32::try_from(bytes).unwrap_or(i32::MAX));
    }

    /// Moves everything out, flow by flow.
    fn take_all(&mut self, isolation: Isolation, out: &mut PacketList) {
        for tin in &mut self.tins {
            while let Some(mut flow) = tin.take_out(isolation) {
                out.append(&mut flow.packets);
            }
        }
        self.longest = None;
        self.stats.count_drained();
    }
}

impl Qdisc for Cake {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            verdict = verdict.max(self.take_in(packet, cx));
        }
        self.publish();
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let end = self.stats.packets + budget as u64;
        let mut next = None;
        while next.is_none() && self.stats.packets < end {
            match self.step(cx) {
                Step::Packet(packet) => out.push_back(packet),
                Step::Not(why) => next = Some(why),
            }
        }
        let left = if self.stats.qlen == 0 {
            Next::Idle
        } else {
            Next::Ready
        };
        let next = next.unwrap_or(left);
        self.gate.end(next, cx.now);
        self.publish();
        next
    }

    fn peek(&self, now: Time) -> Peek {
        if self.stats.qlen == 0 {
            return Peek::Idle;
        }
        let held = self.gate.held(now).filter(|_| self.rate > 0);
        held.map_or(Peek::Unknown, Peek::At)
    }

    /// Flow by flow.
    fn drain(&mut self, out: &mut PacketList) {
        self.take_all(self.spec.isolation, out);
        self.gate.leave();
        self.publish();
    }

    fn wants_enqueue_time(&self) -> bool {
        true
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}
