//! What an engine has counted.

use std::sync::Arc;

use crate::rx::{DeviceCounters, DeviceDrops, WorkerStats};
use softnet::mem::PoolStats;
use softnet::stats::DropReason;
use softnet::tx::DeviceStats;
use softnet_tc::ClassStats;

/// A port's numbers.
#[derive(Clone, Debug, Default)]
pub struct PortStats {
    /// The port's name.
    pub name: String,
    /// Its numbers.
    pub device: DeviceStats,
    /// What the device behind the driver dropped by itself. Not among the packets received or sent
    /// here, so no part of the conservation either.
    pub device_drops: DeviceDrops,
    /// Its disciplines and classes. Only in the final numbers; else see [`Engine::classes`](super::Engine::classes), which is slower than a reading of the others.
    pub classes: Vec<ClassStats>,
}

/// What the devices that a port has had dropped by themselves.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Those that are gone.
    before: DeviceDrops,
    /// The one that it has.
    counters: Option<Arc<dyn DeviceCounters>>,
}

impl Losses {
    /// The port has another device now.
    pub(super) fn open(&mut self, counters: Option<Arc<dyn DeviceCounters>>) {
        self.close();
        self.counters = counters;
    }

    /// The port's device is gone.
    pub(super) fn close(&mut self) {
        self.before = self.total();
        self.counters = None;
    }

    pub(super) fn total(&self) -> DeviceDrops {
        let now = self.counters.as_ref().map(|counters| counters.dropped());
        let now = now.unwrap_or_default();
        DeviceDrops {
            rx: self.before.rx + now.rx,
            tx: self.before.tx + now.tx,
        }
    }
}

/// An engine's numbers, from one reading. Exact when nothing moves.
#[derive(Clone, Debug, Default)]
pub struct EngineStats {
    /// By port.
    pub ports: Vec<PortStats>,
    /// By worker.
    pub workers: Vec<WorkerStats>,
    /// The packet pool's.
    pub pool: PoolStats,
    /// Those of the other pools that ports receive into (see [`RxQueue::pools`](crate::rx::RxQueue::pools)).
    pub port_pools: Vec<PoolStats>,
    /// Wire packets added by copying, of flooded packets and by actions.
    pub copied: u64,
}

/// The sum that must come out even when nothing moves: `rx + copied = tx + dropped + queued`, all in wire packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conservation {
    /// Received on all ports.
    pub rx: u64,
    /// Added by copying.
    pub copied: u64,
    /// Handed to devices.
    pub tx: u64,
    /// Dropped for any reason.
    pub dropped: u64,
    /// Waiting in transmit queues and in workers' backlogs.
    pub queued: u64,
}

impl Conservation {
    /// Whether no packet is unaccounted for.
    pub fn holds(&self) -> bool {
        self.rx + self.copied == self.tx + self.dropped + self.queued
    }
}

impl EngineStats {
    /// Wire packets in the workers' backlogs: handed over, or put there by actions, and not yet processed.
    pub fn in_backlogs(&self) -> u64 {
        let sum = |f: fn(&WorkerStats) -> u64| {
            self.workers
                .iter()
                .fold(0_u64, |sum, w| sum.wrapping_add(f(w)))
        };
        // The counters wrap. Read while packets move, the second may be ahead of the first.
        let deferred: u64 = self.ports.iter().map(|p| p.device.deferred).sum();
        let put = sum(|w| w.handed_over).wrapping_add(deferred);
        let waiting = put.wrapping_sub(sum(|w| w.taken_over)) as i64;
        waiting.max(0) as u64
    }

    /// Sums over all ports and workers.
    pub fn conservation(&self) -> Conservation {
        let sum = |f: fn(&DeviceStats) -> u64| self.ports.iter().map(|p| f(&p.device)).sum();
        Conservation {
            rx: sum(|d| d.rx_packets),
            copied: self.copied,
            tx: sum(|d| d.tx_packets),
            dropped: sum(DeviceStats::dropped),
            queued: sum(|d| d.queued) + self.in_backlogs(),
        }
    }

    /// Drops of all ports by reason.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        DropReason::ALL
            .iter()
            .map(|&reason| {
                let drops = self.ports.iter().flat_map(|p| &p.device.drops);
                (reason, drops.filter(|d| d.0 == reason).map(|d| d.1).sum())
            })
            .filter(|&(_, n)| n != 0)
            .collect()
    }
}
