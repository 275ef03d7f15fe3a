//! `pfifo_fast`: three FIFO bands in strict priority, chosen by the packet's priority (tc-pfifo_fast(8)).
//!
//! INV-PF-1 strict priority, INV-PF-2 FIFO per band, INV-PF-3 the limit holds for each band by itself. This is the plain form, used by
//! one thread at a time.

use super::fifo::Fifo;
use super::{Next, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use crate::mem::PacketList;
use crate::stats::{DropReason, Dropped};
use crate::time::Time;

/// Band of each of the 16 priorities (`prio2band` of the kernel, indexed by `TC_PRIO_*`).
pub const PRIO_TO_BAND: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// `pfifo_fast`: three FIFO bands in strict priority, chosen by the packet's priority (tc-pfifo_fast(8)). The limit holds for each band.
#[derive(Debug)]
pub struct PfifoFast {
    bands: [Fifo; 3],
    limit: u32,
    stats: QdiscStats,
}

impl PfifoFast {
    /// Empty, with room for `limit` frames in each band (the device's `txqueuelen`).
    pub fn new(limit: u32) -> PfifoFast {
        PfifoFast {
            bands: Default::default(),
            limit,
            stats: QdiscStats::default(),
        }
    }

    /// Frames that each band has room for.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes the limit (`txqueuelen`). What does not fit any more, the newest of each band, is dropped.
    pub fn resize(&mut self, limit: u32, dropped: &mut Dropped) {
        self.limit = limit;
        for band in &mut self.bands {
            let surplus = band.cut(limit as usize);
            self.stats.drops += surplus.len() as u64;
            dropped.append(surplus, DropReason::QdiscLimit);
        }
    }
}

impl Qdisc for PfifoFast {
    fn enqueue(&mut self, packets: &mut PacketList, _: Time, dropped: &mut Dropped) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            // The mask keeps a priority above 15 in range (BUG-PF-8).
            let band =
                &mut self.bands[usize::from(PRIO_TO_BAND[(packet.priority() & 15) as usize])];
            if band.len() < self.limit as usize {
                band.push(packet);
            } else {
                self.stats.drops += 1;
                dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
            }
        }
        verdict
    }

    /// One packet alone, so that no band is passed over.
    #[inline]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, _: Time) -> bool {
        let passes = packets.len() == 1 && self.limit > 0 && self.bands.iter().all(Fifo::is_empty);
        if passes {
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(
        &mut self,
        budget: usize,
        _now: Time,
        out: &mut PacketList,
        _: &mut Dropped,
    ) -> Next {
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

    fn peek(&self, _now: Time) -> Peek {
        let first = self.bands.iter().find(|band| !band.is_empty());
        first.map_or(Peek::Idle, Fifo::peek)
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.bands.iter_mut().for_each(|band| band.drain(out));
    }

    fn stats(&self) -> QdiscStats {
        let mut stats = self.stats;
        self.bands
            .iter()
            .for_each(|band| band.add_length(&mut stats));
        stats
    }
}
