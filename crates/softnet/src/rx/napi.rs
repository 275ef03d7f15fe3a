//! One receive queue as its worker sees it: weight, budget, scheduling state.

use std::sync::Arc;

use super::{CountDrop, RxQueue};
use crate::packet::PacketList;
use crate::stats::DropReason;
use crate::time::Time;
use crate::tx::{Device, TxRing};

/// Packets of one poll (the kernel's `dev_weight`).
pub const WEIGHT: usize = 64;
/// Packets of one round over all queues (the kernel's `netdev_budget`).
pub const BUDGET: usize = 300;

/// A receive queue, the device it belongs to, and whether it is to be polled.
#[derive(Debug)]
pub struct Napi<Q, R> {
    queue: Q,
    device: Arc<Device<R>>,
    /// Index of the port.
    port: u16,
    /// On the worker's poll list (NAPI_STATE_SCHED).
    pub(super) scheduled: bool,
}

/// Notes the drops of one poll, to be counted at its end.
struct Drops<'a, R> {
    device: &'a Device<R>,
    packets: u64,
}

impl<R: TxRing> CountDrop for Drops<'_, R> {
    fn count_drop(&mut self, reason: DropReason, packets: u64) {
        self.device.drops().add(reason, packets);
        self.packets += packets;
    }
}

/// What one poll brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Frames received, those dropped by the driver included.
    pub(super) frames: usize,
    pub(super) more: bool,
    pub(super) gone: bool,
}

impl<Q: RxQueue, R: TxRing> Napi<Q, R> {
    /// A queue of port `port`.
    pub fn new(queue: Q, device: Arc<Device<R>>, port: u16) -> Self {
        Napi {
            queue,
            device,
            port,
            scheduled: false,
        }
    }

    pub(super) fn queue(&self) -> &Q {
        &self.queue
    }

    pub(super) fn device(&self) -> &Device<R> {
        &self.device
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Receives up to `budget` packets into `out`, counts and stamps them.
    pub(super) fn poll(&mut self, budget: usize, now: Time, out: &mut PacketList) -> Work {
        let mut drops = Drops {
            device: &self.device,
            packets: 0,
        };
        let polled = self.queue.poll(budget, now, out, &mut drops);
        let (mut wire_packets, mut wire_bytes) = (drops.packets, 0);
        let dropped = drops.packets as usize;
        out.for_each_mut(|packet| {
            wire_packets += packet.wire_packets();
            wire_bytes += packet.wire_len();
            packet.set_port(self.port);
            packet.set_timestamp(now);
        });
        if wire_packets != 0 {
            self.device.count_received(wire_packets, wire_bytes);
        }
        Work {
            frames: out.len() + dropped,
            more: polled.more,
            gone: polled.gone,
        }
    }
}
