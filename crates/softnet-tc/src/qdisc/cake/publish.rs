//! Statistics, as `tc -s` shows them.

use super::Cake;
use crate::account::Xstat;

/// Statistics of the qdisc.
pub(super) const XSTATS: [Xstat; 9] = [
    Xstat::CapacityEstimate,
    Xstat::MemoryLimit,
    Xstat::MemoryUsed,
    Xstat::AvgHdrOffset,
    Xstat::MaxNetworkSize,
    Xstat::MaxAdjSize,
    Xstat::MinNetworkSize,
    Xstat::MinAdjSize,
    Xstat::ActiveQueues,
];

/// Statistics of a tin.
pub(super) const TIN_XSTATS: [Xstat; 20] = [
    Xstat::ThresholdRate,
    Xstat::SentBytes,
    Xstat::BacklogBytes,
    Xstat::Target,
    Xstat::Interval,
    Xstat::SentPackets,
    Xstat::Drops,
    Xstat::EcnMark,
    Xstat::AckDrops,
    Xstat::PeakDelay,
    Xstat::AvgDelay,
    Xstat::BaseDelay,
    Xstat::WayIndirectHits,
    Xstat::WayMisses,
    Xstat::WayCollisions,
    Xstat::SparseFlows,
    Xstat::BulkFlows,
    Xstat::UnresponsiveFlows,
    Xstat::MaxPktLen,
    Xstat::FlowQuantum,
];

impl Cake {
    /// Stores what has changed.
    pub(super) fn publish(&self) {
        let seen = &self.link.seen;
        self.xstats.set([
            self.autorate.estimate,
            self.memory_limit,
            self.most_memory,
            seen.offset(),
            seen.most[0],
            seen.most[1],
            seen.least[0],
            seen.least[1],
            0,
        ]);
        // As tc has them.
        for (part, &tin) in self.xstats.parts().iter().zip(self.mode.order) {
            let tin = &self.tins[usize::from(tin)];
            let counters = &tin.counters;
            part.set([
                tin.rate,
                counters.bytes,
                tin.backlog,
                tin.params.target,
                tin.params.interval,
                counters.packets,
                counters.drops,
                counters.marks,
                counters.ack_drops,
                counters.peak,
                counters.average,
                counters.base,
                counters.ways.hits,
                counters.ways.misses,
                counters.ways.collisions,
                u64::from(tin.counts.sparse + tin.counts.decaying),
                tin.counts.bulk.into(),
                tin.counts.unresponsive.into(),
                counters.longest,
                tin.flow_quantum.into(),
            ]);
        }
    }
}
