//! What a simulation wants to know of each class: why packets were dropped below it, and how long each packet stayed.

use crate::packet::PacketList;
use crate::stats::DropReason;
use crate::time::Time;

/// Drops by reason and the time that each frame spent in a class. Grows by 8 bytes with each frame.
#[derive(Clone, Debug)]
pub struct Trace {
    drops: [u64; DropReason::ALL.len()],
    sojourns: Vec<u64>,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace {
            drops: [0; DropReason::ALL.len()],
            sojourns: Vec::new(),
        }
    }
}

impl Trace {
    /// Wire packets dropped in the class, by reason.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let counts = DropReason::ALL.iter().copied().zip(self.drops);
        counts.filter(|&(_, n)| n != 0).collect()
    }

    /// Nanoseconds from each frame's [`timestamp`](crate::packet::Packet::timestamp) to its departure, in order of departure.
    pub fn sojourns(&self) -> &[u64] {
        &self.sojourns
    }

    pub(super) fn dropped(
        &mut self,
        before: &[u32; DropReason::ALL.len()],
        after: &[u32; DropReason::ALL.len()],
    ) {
        for ((sum, before), after) in self.drops.iter_mut().zip(before).zip(after) {
            *sum += u64::from(after - before);
        }
    }

    pub(super) fn left(&mut self, packets: &PacketList, now: Time) {
        let stays = packets.iter().map(|p| now.since(p.timestamp()).as_nanos());
        self.sojourns
            .extend(stays.map(|nanos| u64::try_from(nanos).unwrap_or(u64::MAX)));
    }
}
