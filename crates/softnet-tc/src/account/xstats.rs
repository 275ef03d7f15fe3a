//! Statistics of one kind of qdisc, beside those that every qdisc has: what `tc -s` shows on the
//! lines behind the first two. Each is declared once, with tc's name.

use std::sync::Arc;

use softnet::stats::Published;

/// The most statistics that a kind has.
const MAX: usize = 24;

/// Value that is shown for several instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    Sum,
    Highest,
    /// The lowest that is not 0.
    Next,
}

macro_rules! xstats {
    ($($stat:ident $name:literal $join:ident,)*) => {
        /// A statistic that only some kinds have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "names are tc's")]
        pub enum Xstat { $($stat),* }

        impl Xstat {
            /// Name, as in tc.
            pub fn name(self) -> &'static str {
                match self { $(Xstat::$stat => $name),* }
            }

            fn join(self) -> Join {
                match self { $(Xstat::$stat => Join::$join),* }
            }
        }
    };
}

// Times are in nanoseconds.
xstats! {
    Count "count" Highest,
    LastCount "lastcount" Highest,
    Delay "ldelay" Highest,
    Dropping "dropping" Highest,
    DropNext "drop_next" Highest,
    MaxPacket "maxpacket" Highest,
    EcnMark "ecn_mark" Sum,
    DropOverLimit "drop_overlimit" Sum,
    CeMark "ce_mark" Sum,
    NewFlowCount "new_flow_count" Sum,
    MemoryUsed "memory_used" Sum,
    DropOverMemory "drop_overmemory" Sum,
    NewFlowsLen "new_flows_len" Sum,
    OldFlowsLen "old_flows_len" Sum,
    SharedPackets "shared_pkts" Sum,
    Flows "flows" Sum,
    InactiveFlows "inactive_flows" Sum,
    ThrottledFlows "throttled_flows" Sum,
    NextPacketDelay "next_packet_delay" Next,
    Collected "gc" Sum,
    Throttled "throttled" Sum,
    Latency "latency" Highest,
    FlowsLimit "flows_plimit" Sum,
    PacketsTooLong "pkts_too_long" Sum,
    AllocErrors "alloc_errors" Sum,
    HorizonDrops "horizon_drops" Sum,
    HorizonCaps "horizon_caps" Sum,
    Band0Drops "band0_drops" Sum,
    Band1Drops "band1_drops" Sum,
    Band2Drops "band2_drops" Sum,
    Band0Packets "band0_pkts" Sum,
    Band1Packets "band1_pkts" Sum,
    Band2Packets "band2_pkts" Sum,
    FastpathPackets "fastpath" Sum,
    DirectPackets "direct_packets_stat" Sum,
    DirectDrops "direct_drops" Sum,
    Marked "marked" Sum,
    EarlyDrops "early" Sum,
    QueueDrops "pdrop" Sum,
    MaxP "max_p" Highest,
    ProbDrop "prob_drop" Sum,
    ForcedDrop "forced_drop" Sum,
    ProbMark "prob_mark" Sum,
    ForcedMark "forced_mark" Sum,
    ProbMarkHead "prob_mark_head" Sum,
    ForcedMarkHead "forced_mark_head" Sum,
    Prob "prob" Highest,
    PieDelay "delay" Highest,
    AvgDqRate "avg_dq_rate" Sum,
    DqRateEstimating "dq_rate_estimating" Highest,
    PacketsIn "pkts_in" Sum,
    OverLimit "overlimit" Sum,
    OverMemory "overmemory" Sum,
    MaxQueue "maxq" Highest,
    DelayC "delay_c" Highest,
    DelayL "delay_l" Highest,
    PacketsInC "pkts_in_c" Sum,
    PacketsInL "pkts_in_l" Sum,
    StepMarks "step_marks" Sum,
    Credit "credit" Sum,
    MaxMemoryUsed "max_memory_used" Sum,
    CapacityEstimate "capacity_estimate" Sum,
    MemoryLimit "memory_limit" Highest,
    MinNetworkSize "min_network_size" Next,
    MaxNetworkSize "max_network_size" Highest,
    MinAdjSize "min_adj_size" Next,
    MaxAdjSize "max_adj_size" Highest,
    ActiveQueues "active_queues" Highest,
    AvgHdrOffset "avg_hdr_offset" Highest,
    ThresholdRate "threshold_rate" Highest,
    SentBytes "sent_bytes" Sum,
    BacklogBytes "backlog_bytes" Sum,
    Target "target" Highest,
    Interval "interval" Highest,
    PeakDelay "peak_delay" Highest,
    AvgDelay "avg_delay" Highest,
    BaseDelay "base_delay" Next,
    SentPackets "sent_packets" Sum,
    WayIndirectHits "way_indirect_hits" Sum,
    WayMisses "way_misses" Sum,
    WayCollisions "way_collisions" Sum,
    Drops "drops" Sum,
    AckDrops "ack_drops" Sum,
    SparseFlows "sparse_flows" Sum,
    BulkFlows "bulk_flows" Sum,
    UnresponsiveFlows "unresponsive_flows" Sum,
    MaxPktLen "max_pkt_len" Highest,
    FlowQuantum "flow_quantum" Highest,
    Delayed "delayed" Sum,
    Dropped "dropped" Sum,
    Corrupted "corrupted" Sum,
    Duplicated "duplicated" Sum,
    Reordered "reordered" Sum,
    EcnMarked "ecn_marked" Sum,
    AllocationErrors "allocation_errors" Sum,
}

/// Statistics that only some kinds have. The owner of the queue writes them at the end of a call,
/// where they have changed; any thread may read them, at any rate.
#[derive(Clone, Debug)]
pub struct Xstats {
    stats: &'static [Xstat],
    values: Arc<Published<MAX>>,
    /// Statistics of the same qdisc in other instances of its tree.
    others: Vec<Arc<Published<MAX>>>,
    /// Statistics of parts of the qdisc that have some of their own.
    parts: Vec<Xstats>,
}

/// A statistic of two instances.
fn join(stat: Xstat, a: u64, b: u64) -> u64 {
    match (stat.join(), a, b) {
        (Join::Highest, ..) => a.max(b),
        (Join::Next, 1.., 1..) => a.min(b),
        _ => a.wrapping_add(b),
    }
}

impl Xstats {
    /// All 0.
    pub(crate) fn new<const N: usize>(stats: &'static [Xstat; N]) -> Xstats {
        const { assert!(N <= MAX, "as many as there is space for") };
        Xstats {
            stats,
            values: Arc::default(),
            others: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// With so many parts that have statistics of their own.
    pub(crate) fn with_parts<const N: usize>(
        mut self,
        stats: &'static [Xstat; N],
        parts: usize,
    ) -> Xstats {
        self.parts = std::iter::repeat_with(|| Xstats::new(stats))
            .take(parts)
            .collect();
        self
    }

    /// Statistics of the parts: of the tins of `cake`.
    pub fn parts(&self) -> &[Xstats] {
        &self.parts
    }

    /// Shows another instance's together with these.
    pub(crate) fn join(&mut self, other: &Xstats) {
        self.others.push(other.values.clone());
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            part.join(other);
        }
    }

    /// Stores what has changed, in the order of the names.
    #[inline]
    pub(crate) fn set<const N: usize>(&self, values: [u64; N]) {
        for (index, value) in values.into_iter().enumerate() {
            if self.values.get_one(index) != value {
                self.values.put(index, value);
            }
        }
    }

    /// Stores the one at this place of the names.
    #[inline]
    pub(crate) fn set_one(&self, place: usize, value: u64) {
        self.values.put(place, value);
    }

    /// The statistics now. Each is whole, but they need not be from the same moment.
    pub fn values(&self) -> impl Iterator<Item = (Xstat, u64)> + '_ {
        let mut values = self.values.get();
        for other in &self.others {
            let others = self.stats.iter().zip(other.get());
            for (value, (&stat, other)) in values.iter_mut().zip(others) {
                *value = join(stat, *value, other);
            }
        }
        self.stats.iter().copied().zip(values)
    }

    /// One statistic now, if the kind has it.
    pub fn value(&self, stat: Xstat) -> Option<u64> {
        let found = self.values().find(|(of, _)| *of == stat);
        found.map(|(_, value)| value)
    }

    /// As [`values`](Xstats::values), with tc's names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.values().map(|(stat, value)| (stat.name(), value))
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn instances_are_shown_together() {
        const STATS: [Xstat; 4] = [
            Xstat::EcnMark,
            Xstat::MaxPacket,
            Xstat::NextPacketDelay,
            Xstat::Flows,
        ];
        let with = |values| {
            let xstats = Xstats::new(&STATS);
            xstats.set(values);
            xstats
        };
        let mut shown = with([1, 100, 0, 7]);
        let others = [[2, 300, 50, 1], [4, 200, 40, 1]].map(with);
        others.iter().for_each(|other| shown.join(other));
        let values: Vec<u64> = shown.iter().map(|(_, value)| value).collect();
        assert_eq!(values, [7, 300, 40, 9]);
        // What an instance counts is read when it is shown.
        others[1].set([5, 200, 0, 1]);
        let values: Vec<u64> = shown.iter().map(|(_, value)| value).collect();
        assert_eq!(values, [8, 300, 50, 9]);
    }
}
