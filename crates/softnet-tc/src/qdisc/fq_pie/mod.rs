//! `fq_pie`: a [PIE](crate::qdisc::pie) queue for each of many flows, served in turn
//! (tc-fq_pie(8)).
//!
//! A packet's flow is the one that its priority names (`major:minor`, major that of this qdisc,
//! minor 1 to `flows`), else the one that the first matching filter names, else that of its keyed
//! flow hash. (In the kernel a packet that no filter matches is dropped.) [Deficit round
//! robin](crate::qdisc::drr) serves flows by bytes, those that just got packets first.
//!
//! A packet that does not fit the limit of packets or of memory is dropped. (The kernel counts
//! those over the limit of memory, and takes them.) A flow's probability is updated when a packet
//! comes to it or leaves it. The sender is told of drops. (In the kernel it is told of congestion.)

#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;

use crate::account::{Xstat, Xstats};
use crate::filter::Filters;
use crate::handle::Handle;
use crate::qdisc::aqm::{ETHERNET_LEN, mark_ce, stamp};
use crate::qdisc::drr::{Emptied, Linked, QUANTUM, RoundRobin, UNLISTED};
use crate::qdisc::flow_hash::{named_flow, place};
use crate::qdisc::kind::{Kind, QdiscSpec};
use crate::qdisc::option::{
    Absent, Attribute, Form, QdiscOption, Unset, Wire, options, parameters,
};
use crate::qdisc::pie::PieLawSpec;
use crate::qdisc::pie::law::{Law, Pie};
use crate::qdisc::spec::{QdiscEnv, SpecError};

const MAX_FLOWS: u32 = 65_536;

parameters! {
    /// Parameters of `fq_pie`. Defaults are the kernel's.
    pub struct FqPieSpec {
        /// Frames that may wait.
        pub limit: u32 = 10_240,
        /// Queues, 1 to 65,536. Flows that hash alike share one.
        pub flows: u32 = 1024,
        /// Target, gains and marking, of each flow.
        pub law: PieLawSpec = PieLawSpec::default(),
        /// Bytes that a flow sends in a round; `None`: a packet of the device's MTU.
        pub quantum: Option<u32> = None,
        /// Bytes of buffers that may wait.
        pub memory_limit: u32 = 32 << 20,
        /// Percent of the probability up to which packets are marked.
        pub ecn_prob: u32 = 10,
    }
}

/// A flow.
#[derive(Debug)]
struct Flow {
    packets: PacketList,
    /// Wire bytes in it.
    backlog: u64,
    credit: i32,
    link: u32,
    pie: Pie,
}

impl Linked for Flow {
    fn link(&mut self) -> &mut u32 {
        &mut self.link
    }
    fn credit(&mut self) -> &mut i32 {
        &mut self.credit
    }
}

/// `fq_pie`: a PIE queue for each of many flows, served in turn (tc-fq_pie(8)).
#[derive(Debug)]
pub struct FqPie {
    handle: Handle,
    seed: u64,
    limit: u64,
    memory_limit: u64,
    quantum: i32,
    /// `quantum` where none is given.
    mtu: u32,
    ecn_prob: u32,
    law: Law,
    filters: Filters,
    flows: Box<[Flow]>,
    rounds: RoundRobin,
    stats: QdiscStats,
    packets_in: u64,
    dropped: u64,
    overlimit: u64,
    overmemory: u64,
    marks: u64,
    new_flows: u64,
    xstats: Xstats,
}

/// Statistics of its own, as `tc -s` names them.
const XSTATS: [Xstat; 9] = [
    Xstat::PacketsIn,
    Xstat::Dropped,
    Xstat::OverLimit,
    Xstat::OverMemory,
    Xstat::EcnMark,
    Xstat::NewFlowCount,
    Xstat::NewFlowsLen,
    Xstat::OldFlowsLen,
    Xstat::MemoryUsed,
];

impl Kind for FqPie {
    type Spec = FqPieSpec;
    const NAME: &'static str = "fq_pie";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::FqPie(s) =>
        /// packets
        "limit": Form::Size => s.limit; attr = Some(Attribute::new(1, Wire::U32)),
        /// queues, 1 to 65536; cannot be changed while in use
        "flows": Form::Size => s.flows; wrong = "0"; attr = Some(Attribute::new(2, Wire::U32)),
        /// a time; the delay that is aimed at
        "target": Form::Time => s.law.target; attr = Some(Attribute::new(3, Wire::TickMicros)),
        /// a time between two updates of a flow's probability
        "tupdate": Form::Time => s.law.tupdate; attr = Some(Attribute::new(4, Wire::Micros)),
        /// gain for the distance from the target, in 1/16 Hz
        "alpha": Form::Number("a number from 0 to 4294967295", 0, u32::MAX as u64)
            => s.law.alpha; wrong = "-1"; attr = Some(Attribute::new(5, Wire::U32)),
        /// gain for the change of the delay, in 1/16 Hz
        "beta": Form::Number("a number from 0 to 4294967295", 0, u32::MAX as u64)
            => s.law.beta; wrong = "-1"; attr = Some(Attribute::new(6, Wire::U32)),
        /// a size; bytes that a flow sends in a round, 1 to 1048576. Less than 256 counts as 256
        "quantum": Form::Size => s.quantum;
            unset = Unset::Words("a frame of the port's MTU"); wrong = "\"2m\"";
            attr = Some(Attribute::new(7, Wire::U32).absent(Absent::Frames(1))),
        /// a size; bytes of buffers
        "memory_limit": Form::Size => s.memory_limit; wrong = "\"8g\"";
            attr = Some(Attribute::new(8, Wire::U32)),
        /// percent of the probability up to which packets are marked
        "ecn_prob": Form::Number("a number from 0 to 4294967295", 0, u32::MAX as u64)
            => s.ecn_prob; wrong = "-1"; attr = Some(Attribute::new(9, Wire::U32)),
        /// mark ECN-capable packets instead of dropping them, up to `ecn_prob`
        "ecn": Form::Flag => s.law.ecn; attr = Some(Attribute::new(10, Wire::U32)),
        /// drop smaller packets less often
        "bytemode": Form::Flag => s.law.bytemode; attr = Some(Attribute::new(11, Wire::U32)),
        /// estimate the delay from the rate at which packets leave
        "dq_rate_estimator": Form::Flag => s.law.dq_rate_estimator;
            attr = Some(Attribute::new(12, Wire::U32)),
    };
    const HAS_FILTERS: bool = true;

    fn check(spec: &FqPieSpec) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter("fq_pie", parameter, reason));
        if !(1..=MAX_FLOWS).contains(&spec.flows) {
            return wrong("flows", format!("must be 1 to {MAX_FLOWS}"));
        }
        let most = *QUANTUM.end();
        if spec
            .quantum
            .is_some_and(|quantum| !(1..=most).contains(&quantum))
        {
            return wrong("quantum", format!("must be 1 to {most}"));
        }
        Ok(())
    }

    fn make(spec: &FqPieSpec, handle: Handle, env: &QdiscEnv) -> FqPie {
        let flow = || Flow {
            packets: PacketList::new(),
            backlog: 0,
            credit: 0,
            link: UNLISTED,
            pie: Pie::default(),
        };
        let mut qdisc = FqPie {
            handle,
            seed: env.seed,
            limit: 0,
            memory_limit: 0,
            quantum: 0,
            mtu: env.mtu.saturating_add(ETHERNET_LEN),
            ecn_prob: 0,
            law: Law::new(&spec.law, env),
            filters: Filters::default(),
            flows: std::iter::repeat_with(flow)
                .take(spec.flows as usize)
                .collect(),
            rounds: RoundRobin::default(),
            stats: QdiscStats::default(),
            packets_in: 0,
            dropped: 0,
            overlimit: 0,
            overmemory: 0,
            marks: 0,
            new_flows: 0,
            xstats: Xstats::new(&XSTATS),
        };
        qdisc.set(spec);
        qdisc
    }

    /// The number of flows stays. What is over the new limits is dropped in the order in which it
    /// would have left.
    fn change(&mut self, spec: &FqPieSpec, cx: &mut Cx) {
        self.law.begin(cx.now);
        for flow in &mut self.flows {
            flow.pie.catch_up(&self.law, flow.backlog);
            flow.pie.restart();
        }
        self.law.change(&spec.law);
        self.set(spec);
        while self.stats.qlen > self.limit || self.stats.memory > self.memory_limit {
            let Some(packet) = self.next() else { break };
            self.stats.count_dropped(&packet);
            cx.dropped.push(packet, DropReason::QdiscLimit);
        }
        self.publish();
    }

    fn filters_mut(&mut self) -> Option<&mut Filters> {
        Some(&mut self.filters)
    }

    fn flows(&self) -> u64 {
        let (new, old) = self.rounds.lens();
        u64::from(new) + u64::from(old)
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

impl FqPie {
    fn set(&mut self, spec: &FqPieSpec) {
        self.limit = spec.limit.into();
        self.memory_limit = spec.memory_limit.into();
        let quantum = spec.quantum.unwrap_or(self.mtu);
        self.quantum = quantum.clamp(*QUANTUM.start(), *QUANTUM.end()) as i32;
        self.ecn_prob = spec.ecn_prob;
    }

    fn publish(&self) {
        let (new, old) = self.rounds.lens();
        self.xstats.set([
            self.packets_in,
            self.dropped,
            self.overlimit,
            self.overmemory,
            self.marks,
            self.new_flows,
            new.into(),
            old.into(),
            self.stats.memory,
        ]);
    }

    /// Queues a packet, and says what became of it.
    #[inline]
    fn push(&mut self, mut packet: Packet, cx: &mut Cx) -> Verdict {
        let flows = self.flows.len();
        let index = match named_flow(&mut packet, self.handle, &self.filters, flows, cx) {
            Ok(named) => named.unwrap_or_else(|| place(&mut packet, self.seed, flows)),
            Err(lost) => return lost.settle(packet, &mut self.stats, cx),
        };
        let flow = &mut self.flows[index];
        flow.pie.catch_up(&self.law, flow.backlog);
        let mut reason = None;
        if self.stats.qlen >= self.limit {
            self.overlimit += 1;
            reason = Some(DropReason::QdiscLimit);
        } else if self.stats.memory + packet.memory() > self.memory_limit {
            self.overmemory += 1;
            reason = Some(DropReason::QdiscLimit);
        } else if (flow.pie).drops(&mut self.law, flow.backlog, packet.wire_len()) {
            if self.law.marks(&flow.pie, self.ecn_prob) && mark_ce(&mut packet, &cx.pool) {
                self.marks += 1;
            } else {
                reason = Some(DropReason::QdiscCongested);
            }
        }
        if let Some(reason) = reason {
            self.dropped += 1;
            flow.pie.dropped();
            self.stats.drops += 1;
            cx.dropped.push(packet, reason);
            return Verdict::Dropped;
        }
        self.packets_in += 1;
        stamp(&mut packet, cx.now);
        self.stats.count_queued(&packet);
        flow.backlog += packet.wire_len();
        flow.packets.push_back(packet);
        if flow.link == UNLISTED {
            flow.credit = self.quantum;
            self.new_flows += 1;
            self.rounds.add_new(&mut *self.flows, index as u32);
        }
        Verdict::Queued
    }

    /// Takes the next packet out of its flow; it is still counted.
    #[inline]
    fn next(&mut self) -> Option<Packet> {
        loop {
            let index = self.rounds.select(&mut *self.flows, self.quantum)?;
            let flow = &mut self.flows[index as usize];
            flow.pie.catch_up(&self.law, flow.backlog);
            if let Some(packet) = flow.packets.pop_front() {
                let bytes = packet.wire_len();
                flow.backlog -= bytes;
                let cost = i32::try_from(bytes).unwrap_or(i32::MAX);
                flow.credit = flow.credit.saturating_sub(cost);
                flow.pie
                    .left(&self.law, bytes, packet.timestamp(), flow.backlog);
                return Some(packet);
            }
            if self.rounds.empty(&mut *self.flows) == Emptied::Kept {
                self.rounds.add_old(&mut *self.flows, index);
            }
        }
    }
}

impl Qdisc for FqPie {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.law.begin(cx.now);
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            verdict = verdict.max(self.push(packet, cx));
        }
        self.publish();
        verdict
    }

    /// One packet alone, so that flows take their turns. It does not wait, so that nothing is
    /// measured of it.
    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, _: &mut Cx) -> bool {
        let passes = packets.len() == 1
            && self.rounds.is_empty()
            && self.limit > 0
            && self.filters.is_empty()
            && packets.front().map_or(0, Packet::memory) <= self.memory_limit;
        if passes {
            self.packets_in += sum.packets;
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.law.begin(cx.now);
        let end = self.stats.packets + budget as u64;
        while self.stats.packets < end
            && let Some(packet) = self.next()
        {
            self.stats.count_dequeued(&packet);
            out.push_back(packet);
        }
        let idle = self.stats.qlen == 0;
        if idle {
            // What another call would do, so that the next packet may pass.
            while self.rounds.take(&mut *self.flows).is_some() {}
        }
        self.publish();
        if idle { Next::Idle } else { Next::Ready }
    }

    /// Flow by flow, in the order in which they would have been served.
    fn drain(&mut self, out: &mut PacketList) {
        while let Some(index) = self.rounds.take(&mut *self.flows) {
            let flow = &mut self.flows[index as usize];
            out.append(&mut flow.packets);
            flow.backlog = 0;
            flow.pie.reset();
        }
        self.stats.count_drained();
        self.publish();
    }

    fn wants_enqueue_time(&self) -> bool {
        true
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}
