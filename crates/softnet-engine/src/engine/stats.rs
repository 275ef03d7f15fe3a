//! What an engine has counted.

use std::sync::Arc;

use super::Engine;
use super::devices::Devices;
use super::error::EngineError;
use super::state::Port;
use crate::link::{DeviceDrops, Link, LinkState};
use crate::rx::WorkerStats;
use softnet::mem::{Pool, PoolStats};
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
            device_drops: port.losses.total(),
            link: port.link.get(),
            status: port.losses.status(),
            classes: Vec::new(),
            filters: Vec::new(),
        }
    }
}

/// Adds what one device counted to what another did. What tells its queues apart is not added.
pub(super) fn sum(total: &mut DeviceStats, more: &DeviceStats) {
    total.rx_packets += more.rx_packets;
    total.rx_bytes += more.rx_bytes;
    total.tx_packets += more.tx_packets;
    total.tx_bytes += more.tx_bytes;
    total.queued += more.queued;
    total.copied += more.copied;
    total.deferred += more.deferred;
    total.tx_timeouts += more.tx_timeouts;
    sum_drops(&mut total.drops, &more.drops);
}

/// Adds counts by reason.
pub(super) fn sum_drops(total: &mut Vec<(DropReason, u64)>, more: &[(DropReason, u64)]) {
    for &(reason, count) in more {
        match total.iter_mut().find(|drops| drops.0 == reason) {
            Some(drops) => drops.1 += count,
            None => total.push((reason, count)),
        }
    }
}

/// Drops by the devices that a port has had.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Those that are gone.
    before: DeviceDrops,
    /// The one that it has.
    link: Option<Arc<dyn Link>>,
}

impl Losses {
    /// The port has another device now, or none.
    pub(super) fn open(&mut self, link: Option<Arc<dyn Link>>) {
        self.before = self.total();
        self.link = link;
    }

    /// See [`Link::status`].
    pub(super) fn status(&self) -> Option<String> {
        self.link.as_ref().and_then(|link| link.status())
    }

    /// See [`Link::set_mtu`].
    pub(super) fn set_mtu(&self, mtu: u32) {
        if let Some(link) = &self.link {
            link.set_mtu(mtu);
        }
    }

    pub(super) fn total(&self) -> DeviceDrops {
        let now = self.link.as_ref().map(|link| link.dropped());
        let now = now.unwrap_or_default();
        DeviceDrops {
            rx: self.before.rx + now.rx,
            tx: self.before.tx + now.tx,
        }
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
    /// Those of the other pools that ports receive into (see
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
    /// Whether no packet is unaccounted for.
    pub fn holds(&self) -> bool {
        self.rx + self.copied == self.tx + self.dropped + self.queued
    }
}

impl EngineStats {
    /// What each port counted, and the removed ones.
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
        let put = sum(|w| w.handed_over).wrapping_add(deferred);
        let waiting = put.wrapping_sub(sum(|w| w.taken_over)) as i64;
        waiting.max(0) as u64
    }

    /// Sums over all ports and workers.
    pub fn conservation(&self) -> Conservation {
        let sum = |f: fn(&DeviceStats) -> u64| self.devices().map(f).sum();
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
        let mut drops = Vec::new();
        self.devices().for_each(|d| sum_drops(&mut drops, &d.drops));
        drops.sort_unstable();
        drops
    }
}

impl<D: Devices> Engine<D> {
    /// All counters. Stops no worker.
    pub fn stats(&self) -> EngineStats {
        let state = self.state();
        let now = state.clock.now();
        let ports: Vec<_> = state.ports.iter().flatten().map(PortStats::of).collect();
        let mut removed = state.removed.clone();
        sum_drops(&mut removed.drops, &state.orphans.nonzero());
        let by_actions: u64 = ports.iter().map(|p| p.device.copied).sum();
        EngineStats {
            ports,
            workers: state.workers.iter().map(|w| w.shared.stats(now)).collect(),
            pool: state.pool.stats(),
            port_pools: state.pools()[1..].iter().map(Pool::stats).collect(),
            copied: state.copied.sum(0) + by_actions + removed.copied,
            removed,
        }
    }

    /// The counters of one port. Stops no worker.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn port_stats(&self, index: u32) -> Result<PortStats, EngineError> {
        Ok(PortStats::of(self.state().port(index)?))
    }
}
