//! The limit of memory: where it is reached, the flow with most bytes loses its oldest packet.

use softnet::qdisc::Cx;
use softnet::stats::DropReason;

use super::Cake;

/// The flow with most bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Longest {
    pub(super) tin: usize,
    pub(super) flow: u16,
    /// No other flow has more.
    pub(super) others: u64,
}

impl Cake {
    /// Drops what is over the limit.
    pub(super) fn enforce(&mut self, cx: &mut Cx) {
        while self.stats.memory > self.memory_limit && self.drop_longest(cx).is_some() {}
    }

    /// Drops the oldest packet of the flow with most bytes, and says which it is.
    #[cold]
    pub(super) fn drop_longest(&mut self, cx: &mut Cx) -> Option<(usize, u16)> {
        let longest = self.longest();
        self.longest = longest;
        let Longest { tin, flow, .. } = longest?;
        let packet = self.tins[tin].pop(flow)?;
        let of = &mut self.tins[tin];
        let params = of.params;
        of.counts.unresponsive += u32::from(of.flow(flow).cobalt.full(&params, cx.now));
        of.counters.drops += 1;
        self.stats.count_dropped(&packet);
        if self.spec.ingress {
            self.charge(tin, &packet, true, cx.now);
        }
        cx.dropped.push(packet, DropReason::QdiscLimit);
        Some((tin, flow))
    }

    /// The flow with most bytes. It is searched for where another may have more.
    fn longest(&mut self) -> Option<Longest> {
        if let Some(known) = self.longest {
            let flow = self.tins[known.tin].flow(known.flow);
            if !flow.packets.is_empty() && flow.backlog >= known.others {
                return Some(known);
            }
        }
        let mut longest: Option<(u64, usize, u16)> = None;
        let mut others = 0;
        for (tin, of) in self.tins.iter().enumerate() {
            let flows = of.table.iter().flat_map(|table| &table.flows);
            for (index, flow) in (0..).zip(flows) {
                if flow.packets.is_empty() {
                    continue;
                }
                match longest {
                    Some((most, ..)) if flow.backlog <= most => others = others.max(flow.backlog),
                    _ => {
                        others = longest.map_or(0, |(most, ..)| most);
                        longest = Some((flow.backlog, tin, index));
                    }
                }
            }
        }
        longest.map(|(_, tin, flow)| Longest { tin, flow, others })
    }
}
