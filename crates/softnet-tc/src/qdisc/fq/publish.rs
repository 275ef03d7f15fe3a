//! Statistics, as `tc -s` shows them.

use std::cmp::Reverse;

use super::Fq;
use crate::account::Xstat;
use crate::qdisc::aqm::nanos;

/// Counters beside [`QdiscStats`](softnet::qdisc::QdiscStats).
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) throttled: u64,
    /// Moving average of how late a throttled flow is noticed, in nanoseconds.
    pub(super) latency: u64,
    pub(super) ce_marks: u64,
    pub(super) flow_limit: u64,
    pub(super) too_long: u64,
    pub(super) no_flow: u64,
    pub(super) horizon_drops: u64,
    pub(super) horizon_caps: u64,
    pub(super) fastpath: u64,
}

/// Statistics of its own, as `tc -s` names them. Times are in nanoseconds.
pub(super) const XSTATS: [Xstat; 20] = [
    Xstat::Flows,
    Xstat::InactiveFlows,
    Xstat::ThrottledFlows,
    Xstat::NextPacketDelay,
    Xstat::Collected,
    Xstat::Throttled,
    Xstat::Latency,
    Xstat::CeMark,
    Xstat::FlowsLimit,
    Xstat::PacketsTooLong,
    Xstat::AllocErrors,
    Xstat::HorizonDrops,
    Xstat::HorizonCaps,
    Xstat::Band0Drops,
    Xstat::Band1Drops,
    Xstat::Band2Drops,
    Xstat::Band0Packets,
    Xstat::Band1Packets,
    Xstat::Band2Packets,
    Xstat::FastpathPackets,
];
/// Place of the only one that a packet that passes changes.
pub(super) const FASTPATH: usize = XSTATS.len() - 1;

impl Fq {
    /// Stores what has changed.
    pub(super) fn publish(&self) {
        let counters = &self.counters;
        let (flows, waiting) = (u64::from(self.flows.len()), self.timers.len() as u64);
        let next = self.timers.peek();
        let delay = next.map_or(0, |Reverse((time, _))| nanos(time.since(self.now)));
        let [high, medium, low] = &self.bands;
        self.xstats.set([
            flows,
            flows - self.listed() - waiting,
            waiting,
            delay,
            self.flows.collected,
            counters.throttled,
            counters.latency,
            counters.ce_marks,
            counters.flow_limit,
            counters.too_long,
            counters.no_flow,
            counters.horizon_drops,
            counters.horizon_caps,
            high.drops,
            medium.drops,
            low.drops,
            high.len,
            medium.len,
            low.len,
            counters.fastpath,
        ]);
    }
}
