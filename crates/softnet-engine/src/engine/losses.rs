//! Drops by devices themselves, and sums of what devices counted.

use std::sync::Arc;

use crate::link::{DeviceDrops, Link};
use softnet::stats::DropReason;
use softnet::tx::DeviceStats;

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
    total.panics += more.panics;
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
    /// Drops by devices that are gone.
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

    /// See [`Link::speed`].
    pub(super) fn speed(&self) -> Option<u64> {
        self.link.as_ref().and_then(|link| link.speed())
    }

    /// See [`Link::may_have_another_speed`].
    pub(super) fn may_have_another_speed(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.may_have_another_speed())
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
