//! Flows as the classes that `tc class show` has of them.

use softnet::time::Time;

use super::FqCodel;

/// A flow of `fq_codel`, which `tc class show` has as a class, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Frames that wait.
    pub qlen: u64,
    /// Their wire bytes.
    pub backlog: u64,
    /// Bytes that it may still send in this round.
    pub deficit: i32,
    /// Nanoseconds that its oldest packet has waited.
    pub sojourn: u64,
    /// Packets dropped or marked since CoDel began to drop.
    pub count: u32,
    /// `count` at that time.
    pub last_count: u32,
    /// Nanoseconds until the next drop is due, negative if it was; `None`: CoDel drops nothing.
    pub drop_next: Option<i64>,
}

impl FlowStats {
    /// The flow of two instances: sums, and the state of the one with more bytes.
    pub(crate) fn join(self, other: FlowStats) -> FlowStats {
        let of = if self.backlog >= other.backlog {
            self
        } else {
            other
        };
        FlowStats {
            qlen: self.qlen + other.qlen,
            backlog: self.backlog + other.backlog,
            ..of
        }
    }
}

impl FqCodel {
    /// The flows with bytes, from class `from` on: flow 0 is class 1. Those beyond class 65,535
    /// and the one that others share have no name.
    pub(crate) fn classes_from(
        &self,
        from: u16,
        now: Time,
    ) -> impl Iterator<Item = (u16, FlowStats)> {
        let last = u16::try_from(self.flows.len()).unwrap_or(u16::MAX);
        (from.max(1)..=last).filter_map(move |class| {
            let found = self.flows.get(usize::from(class) - 1);
            let (flow, backlog) = found.filter(|&(_, backlog)| backlog > 0)?;
            let (count, last_count, drop_next) = flow.codel.state();
            let front = flow.packets.front();
            let stats = FlowStats {
                qlen: flow.packets.len() as u64,
                backlog,
                deficit: flow.credit,
                sojourn: front.map_or(0, |packet| {
                    now.nanos().saturating_sub(packet.timestamp().nanos())
                }),
                count,
                last_count,
                drop_next: drop_next.map(|at| at.nanos().wrapping_sub(now.nanos()) as i64),
            };
            Some((class, stats))
        })
    }
}
