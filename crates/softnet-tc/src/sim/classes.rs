//! Fate of the packets of each class, told from how the class's numbers change.

use std::collections::BTreeMap;

use softnet::mem::PacketList;
use softnet::qdisc::QdiscStats;
use softnet::stats::{DropReason, Dropped};
use softnet::time::Time;

use crate::handle::Handle;
use crate::tree::Tree;

/// Drops and sojourn times of one class. Grows by 8 bytes with each frame.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassTrace {
    seen: QdiscStats,
    drops: BTreeMap<DropReason, u64>,
    /// Nanoseconds from each frame's arrival to its departure from the tree.
    pub(super) sojourns: Vec<u64>,
}

impl ClassTrace {
    /// Wire packets dropped in the class or below, by reason.
    pub(super) fn drops(&self) -> Vec<(DropReason, u64)> {
        self.drops.iter().map(|(&reason, &n)| (reason, n)).collect()
    }
}

/// The classes of a tree.
#[derive(Debug, Default)]
pub(super) struct ClassTraces(pub(super) BTreeMap<Handle, ClassTrace>);

impl ClassTraces {
    /// After one step: `left` is the frame that left, if one did, and `dropped` what was dropped.
    /// It concerns the classes that count it.
    pub(super) fn step(&mut self, tree: &Tree, left: &PacketList, dropped: &Dropped, now: Time) {
        tree.each_class(|class| {
            let trace = self.0.entry(class.class).or_default();
            let seen = std::mem::replace(&mut trace.seen, class.stats);
            if class.stats.packets != seen.packets {
                let stays = left.iter().map(|p| now.since(p.timestamp()).as_nanos());
                let stays = stays.map(|nanos| u64::try_from(nanos).unwrap_or(u64::MAX));
                trace.sojourns.extend(stays);
            }
            if class.stats.drops != seen.drops {
                let counts = DropReason::ALL.iter().zip(dropped.counts());
                for (&reason, &count) in counts.filter(|(_, count)| **count != 0) {
                    *trace.drops.entry(reason).or_default() += u64::from(count);
                }
            }
        });
    }
}
