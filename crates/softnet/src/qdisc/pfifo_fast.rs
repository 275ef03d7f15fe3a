//! `pfifo_fast` (tc-pfifo_fast(8)): what a device has unless it is told otherwise.

use super::{Cx, Fifo, Next, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use crate::mem::{Packet, PacketList};
use crate::stats::{DropReason, Dropped};
use crate::time::Time;

/// Band of each of the 16 priorities (`prio2band` of the kernel, indexed by `TC_PRIO_*`).
pub const PRIO_TO_BAND: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// `pfifo_fast`: three bands in strict priority (INV-PF-1), chosen by the packet's priority. Each
/// is a FIFO (INV-PF-2), and the limit holds for each by itself (INV-PF-3).
#[derive(Debug)]
pub struct PfifoFast {
    bands: [Fifo; 3],
    limit: u32,
    stats: QdiscStats,
}

impl PfifoFast {
    /// Empty, for at most `limit` frames in each band (the device's `txqueuelen`).
    pub fn new(limit: u32) -> PfifoFast {
        PfifoFast {
            bands: Default::default(),
            limit,
            stats: QdiscStats::default(),
        }
    }

    /// Changes the limit (`txqueuelen`). What does not fit any more, the newest of each band, is
    /// dropped.
    pub fn resize(&mut self, limit: u32, dropped: &mut Dropped) {
        self.limit = limit;
        for band in &mut self.bands {
            while band.len() > limit as usize
                && let Some(newest) = band.pop_newest(&mut self.stats)
            {
                dropped.push(newest, DropReason::QdiscLimit);
            }
        }
    }
}

impl Qdisc for PfifoFast {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            // The mask keeps a priority above 15 in range (BUG-PF-8).
            let priority = (packet.priority() & 15) as usize;
            let band = &mut self.bands[usize::from(PRIO_TO_BAND[priority])];
            if band.len() < self.limit as usize {
                band.push(packet, &mut self.stats);
            } else {
                self.stats.drops += 1;
                cx.dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
            }
        }
        verdict
    }

    /// Packets of one priority, so that no band is passed over.
    #[inline]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, _: &mut Cx) -> bool {
        let len = packets.len();
        let passes = self.stats.qlen == 0
            && len <= self.limit as usize
            && (len == 1 || is_of_one_priority(packets));
        if passes {
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, _: &mut Cx) -> Next {
        let end = self.stats.packets + budget as u64;
        for band in &mut self.bands {
            // None if a large frame of the band before had more.
            let left = end.saturating_sub(self.stats.packets);
            if band.dequeue(left as usize, out, &mut self.stats) == Next::Ready {
                return Next::Ready;
            }
        }
        Next::Idle
    }

    fn peek(&self, _: Time) -> Peek {
        let first = self.bands.iter().find(|band| !band.is_empty());
        first.map_or(Peek::Idle, Fifo::peek)
    }

    fn drain(&mut self, out: &mut PacketList) {
        for band in &mut self.bands {
            band.drain(out, &mut self.stats);
        }
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

#[inline(never)]
fn is_of_one_priority(packets: &PacketList) -> bool {
    let mut priorities = packets.iter().map(Packet::priority);
    let first = priorities.next();
    priorities.all(|priority| Some(priority) == first)
}
