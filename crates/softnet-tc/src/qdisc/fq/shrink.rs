//! Drops after a change, where there is more than the new limit.

use std::cmp::Reverse;

use softnet::qdisc::Cx;
use softnet::stats::DropReason;
use softnet::time::Time;

use super::Fq;
use super::spec::BANDS;
use crate::qdisc::drr::Flows;

impl Fq {
    /// Drops what is over the limit of a band: of the longest flows, what came after others. Each
    /// pass over the flows halves what the longest may keep.
    pub(super) fn shrink(&mut self, cx: &mut Cx) {
        let over = |fq: &Fq| (0..BANDS as u8).any(|band| fq.is_over(band));
        let drops = self.stats.drops;
        let mut most = usize::MAX;
        while over(self) {
            let flows = &mut self.flows;
            let lens = flows.slots().map(|index| flows.at(index).packets.len());
            most = lens.max().unwrap_or(0).min(most) / 2;
            for index in self.flows.slots() {
                self.shorten(index, most, cx);
            }
        }
        if self.stats.drops == drops {
            return;
        }
        // What comes does not wait for the time of a packet that is gone.
        let (flows, now) = (&mut self.flows, self.now);
        self.timers.retain(|&Reverse((_, index))| {
            let flow = flows.at(index);
            let waits = !flow.packets.is_empty();
            if !waits {
                flow.time_next = Time::ZERO;
                flow.set_idle(now);
            }
            waits
        });
        self.last.retain(|&index, _| flows.at(index).timed);
    }

    /// Drops packets of a flow behind so many as long as their band is over its limit.
    fn shorten(&mut self, index: u32, most: usize, cx: &mut Cx) {
        if self.flows.at(index).packets.len() <= most {
            return;
        }
        let mut packets = self.flows.at(index).packets.take();
        while let Some(packet) = packets.pop_front() {
            let priority = (packet.priority() & 15) as usize;
            let band = self.spec.priomap[priority];
            let is_over = self.is_over(band);
            let flow = self.flows.at(index);
            if flow.packets.len() < most || !is_over {
                flow.packets.push_back(packet);
                continue;
            }
            self.priorities[priority] -= 1;
            let band = &mut self.bands[usize::from(band)];
            band.len -= 1;
            band.drops += 1;
            self.stats.count_dropped(&packet);
            cx.dropped.push(packet, DropReason::QdiscLimit);
        }
    }
}
