//! Fate of the packets of each class, told from how the class's numbers change.

use std::collections::BTreeMap;

use softnet::mem::{Packet, PacketList};
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
    /// Bytes of each flow that left, by the hash of its headers.
    pub(super) flows: BTreeMap<u32, u64>,
    /// Wire packets that left with a congestion mark.
    pub(super) marked: u64,
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
        let seen = |packet: &Packet| {
            let headers = packet.parse().ok();
            let flow = headers
                .as_ref()
                .map_or(0, |headers| headers.flow_hash(packet.data()));
            let is_marked = headers.is_some_and(|headers| headers.traffic_class & 3 == 3);
            let marked = if is_marked { packet.wire_packets() } else { 0 };
            (flow, packet.wire_len(), marked)
        };
        let flows: Vec<(u32, u64, u64)> = left.iter().map(seen).collect();
        tree.each_class(|class| {
            let trace = self.0.entry(class.class).or_default();
            let seen = std::mem::replace(&mut trace.seen, class.stats);
            if class.stats.packets != seen.packets {
                let stays = left.iter().map(|p| now.since(p.timestamp()).as_nanos());
                let stays = stays.map(|nanos| u64::try_from(nanos).unwrap_or(u64::MAX));
                trace.sojourns.extend(stays);
                for &(flow, bytes, marked) in &flows {
                    *trace.flows.entry(flow).or_default() += bytes;
                    trace.marked += marked;
                }
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
