//! Statistics of an engine.

use super::losses::{sum, sum_drops};
use super::state::Port;
use crate::forward::{ActionStats, Role};
use crate::link::{DeviceDrops, LinkState};
use crate::rx::WorkerStats;
use softnet::mem::PoolStats;
use softnet::stats::DropReason;
use softnet::tx::{DeviceStats, TxRing};
use softnet_tc::{ClassStats, FilterSpec, FilterStats};

/// A port's counters.
#[derive(Clone, Debug, Default)]
pub struct PortStats {
    /// The port's name.
    pub name: String,
    /// Counters, with those of other queues that it had before.
    pub device: DeviceStats,
    /// Actions on what leaves it.
    pub actions: Vec<ActionStats>,
    /// It has no device: what it receives and sends is another port's, too.
    pub is_virtual: bool,
    /// Drops by the device behind the driver. Not among the packets received or sent
    /// here, so no part of the conservation either.
    pub device_drops: DeviceDrops,
    /// The state of its link.
    pub link: LinkState,
    /// The peer at its other end, if its driver tells.
    pub status: Option<String>,
    /// Qdiscs and classes. Only in the final counters; else see
    /// [`Engine::classes`](super::Engine::classes), which is slower than a reading of the others.
    pub classes: Vec<ClassStats>,
    /// Filters. Only in the final counters; else see
    /// [`Engine::filters`](super::Engine::filters).
    pub filters: Vec<(FilterSpec, FilterStats)>,
}

impl PortStats {
    pub(super) fn of<Q, R: TxRing>(port: &Port<Q, R>) -> PortStats {
        let mut device = port.device.stats();
        sum(&mut device, &port.before);
        PortStats {
            name: port.device.name().to_string(),
            device,
            actions: port.actions.stats(),
            is_virtual: port.role != Role::Device,
            device_drops: port.losses.total(),
            link: port.link.get(),
            status: port.losses.status(),
            classes: Vec::new(),
            filters: Vec::new(),
        }
    }
}

/// Counters of a removed port without a device, as part of those of all removed ones: what it sent
/// went through backlogs.
pub(super) fn passed_on(counted: &DeviceStats) -> DeviceStats {
    DeviceStats {
        rx_packets: 0,
        rx_bytes: 0,
        tx_packets: 0,
        tx_bytes: 0,
        deferred: counted.deferred.wrapping_add(counted.tx_packets),
        ..counted.clone()
    }
}

/// An engine's counters, from one reading. Exact when nothing moves.
#[derive(Clone, Debug, Default)]
pub struct EngineStats {
    /// By port.
    pub ports: Vec<PortStats>,
    /// By worker.
    pub workers: Vec<WorkerStats>,
    /// The packet pool's.
    pub pool: PoolStats,
    /// Counters of the other pools that ports receive into (see
    /// [`RxQueue::pools`](crate::rx::RxQueue::pools)).
    pub port_pools: Vec<PoolStats>,
    /// Wire packets added by copying, of flooded packets and by actions.
    pub copied: u64,
    /// The sums of what removed ports counted.
    pub removed: DeviceStats,
}

/// The sum that must come out even when nothing moves: `rx + copied = tx + dropped + queued`, all
/// in wire packets.
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
    /// No packet is unaccounted for.
    pub fn holds(&self) -> bool {
        self.rx + self.copied == self.tx + self.dropped + self.queued
    }
}

impl EngineStats {
    /// Counters of each port, and of the removed ones.
    fn devices(&self) -> impl Iterator<Item = &DeviceStats> {
        let ports = self.ports.iter().map(|port| &port.device);
        ports.chain([&self.removed])
    }

    /// Wire packets in the workers' backlogs: steered there or put there by actions, and not yet
    /// processed.
    pub fn in_backlogs(&self) -> u64 {
        let sum = |f: fn(&WorkerStats) -> u64| {
            self.workers
                .iter()
                .fold(0_u64, |sum, w| sum.wrapping_add(f(w)))
        };
        // The counters wrap. Read while packets move, the second may be ahead of the first.
        let deferred: u64 = self.devices().map(|device| device.deferred).sum();
        let virtuals = self.ports.iter().filter(|port| port.is_virtual);
        let given_back: u64 = virtuals.map(|port| port.device.tx_packets).sum();
        let deferred = deferred.wrapping_add(given_back);
        let put = sum(|w| w.handed_over).wrapping_add(deferred);
        let waiting = put.wrapping_sub(sum(|w| w.taken_over)) as i64;
        waiting.max(0) as u64
    }

    /// Sums over all ports and workers.
    pub fn conservation(&self) -> Conservation {
        let sum = |f: fn(&DeviceStats) -> u64| self.devices().map(f).sum();
        let of_devices = |f: fn(&DeviceStats) -> u64| {
            let ports = self.ports.iter().filter(|port| !port.is_virtual);
            ports.map(|port| f(&port.device)).sum::<u64>() + f(&self.removed)
        };
        Conservation {
            rx: of_devices(|d| d.rx_packets),
            copied: self.copied,
            tx: of_devices(|d| d.tx_packets),
            dropped: sum(DeviceStats::dropped),
            queued: sum(|d| d.queued) + self.in_backlogs(),
        }
    }

    /// Drops of all ports by reason.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let mut drops = Vec::new();
        self.devices().for_each(|d| sum_drops(&mut drops, &d.drops));
        drops.sort_unstable();
        drops
    }
}
