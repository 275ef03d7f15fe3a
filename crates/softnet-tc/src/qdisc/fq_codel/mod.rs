//! `fq_codel`: a CoDel queue for each of many flows, served in turn (tc-fq_codel(8), RFC 8290).
//!
//! A packet's flow is the one that its priority names (`major:minor`, major that of this qdisc,
//! minor 1 to `flows`), else the one that the first matching filter names, else that of its keyed
//! flow hash. (In the kernel a packet that no filter matches is dropped.) [Deficit round
//! robin](crate::qdisc::drr) serves flows by bytes, those that just got packets first.
//! [CoDel](crate::qdisc::aqm) looks after each; a flow is left alone while the whole qdisc holds no
//! more than one packet, as in the kernel.
//!
//! Flows lie in [pages] that the qdiscs of a device borrow from a bounded store. Where it is empty,
//! flows of a qdisc share one queue.
//!
//! At the limit, of packets or of memory, the flow with most bytes loses its oldest packets: up to
//! half of its bytes or `drop_batch` packets at once, so that the search for it is paid rarely.
//!
//! [pages]: flows

mod flows;
#[cfg(all(test, not(any(loom, miri))))]
mod flows_tests;
mod page_store;
mod shown;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;

use crate::account::{Xstat, Xstats};
use crate::filter::{Filters, Lost};
use crate::handle::Handle;
use crate::qdisc::aqm::{Aqm, AqmSpec, Codel, ETHERNET_LEN, stamp};
use crate::qdisc::drr::{Emptied, Flows, QUANTUM, RoundRobin, UNLISTED};
use crate::qdisc::flow_hash::{named_flow, place};
use crate::qdisc::kind::{Kind, QdiscSpec};
use crate::qdisc::option::{
    Absent, Attribute, Form, QdiscOption, Unset, Wire, options, parameters,
};
use crate::qdisc::spec::{QdiscEnv, SpecError};

pub use flows::FlowStore;
use flows::{FlowTable, SHARED};
pub use shown::FlowStats;

const MAX_FLOWS: u32 = 65_536;

parameters! {
    /// Parameters of `fq_codel`. Defaults are the kernel's.
    pub struct FqCodelSpec {
        /// Frames that may wait. One that the parent has taken out to look at it (`tbf`, `htb`) is
        /// the parent's.
        pub limit: u32 = 10_240,
        /// Bytes of buffers that may wait.
        pub memory_limit: u32 = 32 << 20,
        /// Queues, 1 to 65,536. Flows that hash alike share one.
        pub flows: u32 = 1024,
        /// Bytes that a flow sends in a round, at least 256; `None`: a packet of the device's MTU.
        pub quantum: Option<u32> = None,
        /// Packets that are dropped at once at the limit, at most; 0 counts as 1.
        pub drop_batch: u32 = 64,
        /// Target, interval and marking.
        pub aqm: AqmSpec = AqmSpec {
            ecn: true,
            ..AqmSpec::default()
        },
    }
}

/// `fq_codel`: a CoDel queue for each of many flows, served in turn (tc-fq_codel(8)).
#[derive(Debug)]
pub struct FqCodel {
    handle: Handle,
    seed: u64,
    limit: u64,
    memory_limit: u64,
    quantum: i32,
    /// `quantum` where none is given.
    mtu: u32,
    drop_batch: u64,
    aqm: Aqm,
    filters: Filters,
    flows: FlowTable,
    rounds: RoundRobin,
    stats: QdiscStats,
    new_flows: u64,
    limit_drops: u64,
    memory_drops: u64,
    xstats: Xstats,
    /// Searches through all flows.
    #[cfg(test)]
    pub(crate) searches: u32,
}

/// Statistics of its own, as `tc -s` names them.
const XSTATS: [Xstat; 10] = [
    Xstat::MaxPacket,
    Xstat::DropOverLimit,
    Xstat::NewFlowCount,
    Xstat::EcnMark,
    Xstat::MemoryUsed,
    Xstat::DropOverMemory,
    Xstat::CeMark,
    Xstat::NewFlowsLen,
    Xstat::OldFlowsLen,
    Xstat::SharedPackets,
];

impl Kind for FqCodel {
    type Spec = FqCodelSpec;
    const NAME: &'static str = "fq_codel";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::FqCodel(s) =>
        /// a time; the delay that may last
        "target": Form::Time => s.aqm.target; attr = Some(Attribute::new(1, Wire::CodelMicros)),
        /// packets
        "limit": Form::Size => s.limit; attr = Some(Attribute::new(2, Wire::U32)),
        /// a time, about the longest round trip; at least 1us
        "interval": Form::Time => s.aqm.interval;
            attr = Some(Attribute::new(3, Wire::CodelMicros)),
        /// mark ECN-capable packets instead of dropping them
        "ecn": Form::Flag => s.aqm.ecn; attr = Some(Attribute::new(4, Wire::U32)),
        /// a size; bytes that a flow sends in a round, at most 1048576. Less than 256 counts as 256
        "quantum": Form::Size => s.quantum;
            unset = Unset::Words("a frame of the port's MTU"); wrong = "\"2m\"";
            attr = Some(
                Attribute::new(6, Wire::U32).within(256, 1 << 20).absent(Absent::Frames(1)),
            ),
        /// packets that are dropped at once at a limit
        "drop_batch": Form::Size => s.drop_batch; wrong = "-1";
            attr = Some(Attribute::new(8, Wire::U32).within(1, u32::MAX)),
        /// a size; bytes of buffers
        "memory_limit": Form::Size => s.memory_limit; wrong = "\"8g\"";
            attr = Some(Attribute::new(9, Wire::U32).within(0, 1 << 31)),
        /// queues, 1 to 65536; cannot be changed while in use
        "flows": Form::Size => s.flows; wrong = "0"; attr = Some(Attribute::new(5, Wire::U32)),
        /// a time; ECN-capable packets that waited longer are marked
        "ce_threshold": Form::Time => s.aqm.ce_threshold;
            unset = Unset::Words("none"); attr = Some(Attribute::new(7, Wire::CodelMicros)),
        /// traffic class and mask, like `"0x01/0x03"`, of the packets that `ce_threshold` is for
        "ce_threshold_selector": Form::Own; unset = Unset::Words("all"); wrong = "\"1\"",
    };
    const HAS_FILTERS: bool = true;

    fn check(spec: &FqCodelSpec) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter("fq_codel", parameter, reason));
        if !(1..=MAX_FLOWS).contains(&spec.flows) {
            return wrong("flows", format!("must be 1 to {MAX_FLOWS}"));
        }
        if spec.quantum.is_some_and(|quantum| quantum > *QUANTUM.end()) {
            return wrong("quantum", format!("must be at most {}", QUANTUM.end()));
        }
        spec.aqm.check("fq_codel")
    }

    fn make(spec: &FqCodelSpec, handle: Handle, env: &QdiscEnv) -> FqCodel {
        let mut qdisc = FqCodel {
            handle,
            seed: env.seed,
            limit: 0,
            memory_limit: 0,
            quantum: 0,
            mtu: env.mtu.saturating_add(ETHERNET_LEN),
            drop_batch: 0,
            aqm: Aqm::new(&spec.aqm, env),
            filters: Filters::default(),
            flows: FlowTable::new(&env.flows, spec.flows as usize),
            rounds: RoundRobin::default(),
            stats: QdiscStats::default(),
            new_flows: 0,
            limit_drops: 0,
            memory_drops: 0,
            xstats: Xstats::new(&XSTATS),
            #[cfg(test)]
            searches: 0,
        };
        qdisc.set(spec);
        qdisc
    }

    /// The number of flows stays. What is over the new limits is dropped from the flows with most
    /// bytes.
    fn change(&mut self, spec: &FqCodelSpec, cx: &mut Cx) {
        self.set(spec);
        self.shrink(cx);
        self.publish();
    }

    fn filters_mut(&mut self) -> Option<&mut Filters> {
        Some(&mut self.filters)
    }

    fn flows(&self) -> u64 {
        self.listed()
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

impl FqCodel {
    fn set(&mut self, spec: &FqCodelSpec) {
        self.limit = spec.limit.into();
        self.memory_limit = spec.memory_limit.into();
        // Of less, a packet would cost too many rounds (BUG-CODEL-3).
        let quantum = spec.quantum.unwrap_or(self.mtu);
        self.quantum = quantum.clamp(*QUANTUM.start(), *QUANTUM.end()) as i32;
        self.drop_batch = spec.drop_batch.max(1).into();
        self.aqm.change(&spec.aqm);
    }

    /// Flows that take turns.
    pub(crate) fn listed(&self) -> u64 {
        let (new, old) = self.rounds.lens();
        u64::from(new) + u64::from(old)
    }

    fn publish(&self) {
        let (new, old) = self.rounds.lens();
        self.xstats.set([
            self.aqm.max_packet,
            self.limit_drops,
            self.new_flows,
            self.aqm.ecn_marks,
            self.stats.memory,
            self.memory_drops,
            self.aqm.ce_marks,
            new.into(),
            old.into(),
            self.flows.shared_packets,
        ]);
    }

    /// The flow of a packet.
    ///
    /// # Errors
    /// If a filter takes it out.
    #[inline]
    fn classify(&mut self, packet: &mut Packet, cx: &mut Cx) -> Result<u32, Lost> {
        let flows = self.flows.len();
        let named = named_flow(packet, self.handle, &self.filters, flows, cx)?;
        let flow = named.unwrap_or_else(|| place(packet, self.seed, flows));
        Ok(self.flows.find(flow))
    }

    /// Queues a packet at the end of its flow.
    #[inline]
    fn push(&mut self, index: u32, packet: Packet) {
        self.stats.count_queued(&packet);
        let (flow, backlog) = self.flows.entry(index);
        *backlog += packet.wire_len();
        flow.packets.push_back(packet);
        if flow.link == UNLISTED {
            flow.credit = self.quantum;
            self.new_flows += 1;
            self.flows.come(index);
            self.rounds.add_new(&mut self.flows, index);
        }
    }

    #[inline]
    fn is_over_memory(&self) -> bool {
        self.stats.memory > self.memory_limit
    }

    /// True if there is more than the limits allow; never if nothing is queued.
    #[inline]
    fn is_over(&self) -> bool {
        self.stats.qlen > self.limit || self.is_over_memory()
    }

    /// Drops packets until the limits hold (INV-Q-6). Returns whether a given flow lost some.
    #[inline]
    fn enforce_for(&mut self, flow: u32, cx: &mut Cx) -> bool {
        let mut hit = false;
        while self.is_over() {
            hit |= self.drop_fattest(cx) == flow;
        }
        hit
    }

    /// As [`enforce_for`](FqCodel::enforce_for), where the limits may be much lower than what is
    /// queued. Each pass over the flows halves the largest one's bytes.
    fn shrink(&mut self, cx: &mut Cx) {
        while self.is_over() {
            let half = self.largest() / 2;
            for index in (0..self.flows.len() as u32).chain([SHARED]) {
                // At 0 those without a byte lose theirs, too.
                while self.is_over() && (half == 0 || *self.flows.entry(index).1 > half) {
                    let over_memory = self.is_over_memory();
                    if !self.drop_first(index, over_memory, cx) {
                        break;
                    }
                }
            }
        }
    }

    /// Wire bytes of the flow with most of them.
    fn largest(&mut self) -> u64 {
        #[cfg(test)]
        {
            self.searches += 1;
        }
        self.flows.largest()
    }

    /// Drops the oldest packet of a flow, if there is one.
    fn drop_first(&mut self, index: u32, over_memory: bool, cx: &mut Cx) -> bool {
        let (flow, backlog) = self.flows.entry(index);
        let Some(packet) = flow.packets.pop_front() else {
            return false;
        };
        *backlog -= packet.wire_len();
        self.stats.count_dropped(&packet);
        cx.dropped.push(packet, DropReason::QdiscLimit);
        self.limit_drops += 1;
        self.memory_drops += u64::from(over_memory);
        flow.codel.count_drop();
        if flow.packets.is_empty() {
            // Nothing waits, so nothing has waited too long (BUG-CODEL-2).
            flow.codel.clear();
        }
        true
    }

    /// Drops the oldest packets of the flow with most bytes (RFC 8290 4.1.3), which it returns.
    #[cold]
    fn drop_fattest(&mut self, cx: &mut Cx) -> u32 {
        let over_memory = self.is_over_memory();
        let largest = self.largest();
        // A flow of frames without a byte is one, too.
        let index = self.flows.with_bytes(largest);
        let mut drops = 0;
        while (drops == 0
            || drops < self.drop_batch && *self.flows.entry(index).1 > largest.div_ceil(2))
            && self.drop_first(index, over_memory, cx)
        {
            drops += 1;
        }
        index
    }

    /// Takes the next packet out of a flow.
    #[inline]
    fn pop(&mut self, index: u32, cx: &mut Cx) -> Option<Packet> {
        let (flow, backlog) = self.flows.entry(index);
        let before = self.stats.backlog;
        let packet = flow
            .codel
            .dequeue(&mut flow.packets, &mut self.aqm, &mut self.stats, cx);
        *backlog -= before - self.stats.backlog;
        if let Some(packet) = &packet {
            let bytes = i32::try_from(packet.wire_len()).unwrap_or(i32::MAX);
            flow.credit = flow.credit.saturating_sub(bytes);
        }
        packet
    }
}

impl Qdisc for FqCodel {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(mut packet) = packets.pop_front() {
            let index = match self.classify(&mut packet, cx) {
                Ok(index) => index,
                Err(lost) => {
                    verdict = verdict.max(lost.settle(packet, &mut self.stats, cx));
                    continue;
                }
            };
            stamp(&mut packet, cx.now);
            self.push(index, packet);
            if self.enforce_for(index, cx) {
                // The new packet is the flow's last.
                let lost = self.flows.at(index).packets.is_empty();
                verdict = verdict.max(if lost {
                    Verdict::Dropped
                } else {
                    Verdict::Congestion
                });
            }
        }
        self.publish();
        verdict
    }

    /// One packet alone, so that flows take their turns. When no flow is listed, none has CoDel
    /// state or credit that the packet would change (BUG-CODEL-2).
    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let passes = packets.len() == 1
            && self.rounds.is_empty()
            && self.limit > 0
            && self.filters.is_empty()
            && !self.aqm.come_late(packets, cx.now)
            && packets.front().map_or(0, Packet::memory) <= self.memory_limit;
        if passes {
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.aqm.begin(cx.now);
        let end = self.stats.packets + budget as u64;
        while self.stats.packets < end
            && let Some(index) = self.rounds.select(&mut self.flows, self.quantum)
        {
            match self.pop(index, cx) {
                Some(packet) => out.push_back(packet),
                None => {
                    if self.rounds.empty(&mut self.flows) == Emptied::Kept {
                        self.rounds.add_old(&mut self.flows, index);
                    } else {
                        self.flows.leave(index);
                    }
                }
            }
        }
        let idle = self.stats.qlen == 0;
        if idle {
            // What another call would do, so that the next packet may pass.
            while let Some(index) = self.rounds.take(&mut self.flows) {
                self.flows.at(index).codel.clear();
                self.flows.leave(index);
            }
        }
        self.publish();
        if idle { Next::Idle } else { Next::Ready }
    }

    /// Flow by flow, in the order in which they would have been served.
    fn drain(&mut self, out: &mut PacketList) {
        while let Some(index) = self.rounds.take(&mut self.flows) {
            let (flow, backlog) = self.flows.entry(index);
            out.append(&mut flow.packets);
            flow.codel = Codel::default();
            *backlog = 0;
            self.flows.leave(index);
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
