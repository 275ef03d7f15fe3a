//! Packets that actions of filters send to other links: the links by number, and the way there.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use softnet::mem::PacketList;
use softnet::qdisc::{Elsewhere, Target, To};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::{Outlet, TxRing};

use super::forwarder::copy;
use super::mirred::deliver_to;
use super::virtual_link::MAX_HOPS;
use crate::Device;

/// Links that packets may be sent to, at one time.
#[derive(Debug)]
pub(crate) struct Targets<R> {
    /// Devices, by number of their links. Weak: who retires a device waits for others to let go.
    pub(crate) links: HashMap<u32, Weak<Device<R>>>,
    /// Numbers of the links that share a block, by its number.
    pub(crate) blocks: HashMap<u32, Vec<u32>>,
}

/// The links of an engine that packets may be sent to.
#[derive(Debug)]
pub(crate) struct LinkTable<R> {
    /// Swapped as a whole.
    targets: ArcSwap<Targets<R>>,
    /// Held while a thread that is no worker of the engine runs filters of hooks.
    others: Mutex<()>,
}

/// The place that packets are sent from.
#[derive(Debug)]
pub(crate) struct Source<'a, R> {
    pub(crate) device: &'a Device<R>,
    /// Number of its link.
    pub(crate) index: u32,
}

impl<R> Clone for Source<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Source<'_, R> {}

impl<R: TxRing> LinkTable<R> {
    pub(crate) fn new() -> Self {
        LinkTable {
            targets: ArcSwap::from_pointee(Targets {
                links: HashMap::new(),
                blocks: HashMap::new(),
            }),
            others: Mutex::default(),
        }
    }

    /// Replaces the table.
    pub(crate) fn set(&self, targets: Targets<R>) {
        self.targets.store(Arc::new(targets));
    }

    /// The turn of a thread that is no worker of the engine to run filters of hooks. One for all
    /// hooks: those that share a block run the same filters, and after a swap old and new lists
    /// have filters in common.
    pub(super) fn turn_of_others(&self) -> MutexGuard<'_, ()> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`carry_out`](LinkTable::carry_out), for qdiscs: a packet that comes to one again and
    /// again is dropped in the end.
    fn carry_out_of_queue(&self, source: Source<'_, R>, elsewhere: &mut Elsewhere, now: Time) {
        let mut hopped = Elsewhere::default();
        for (target, packets) in elsewhere.drain() {
            for mut packet in packets {
                packet.add_hop();
                match packet.hops() > MAX_HOPS {
                    true => {
                        let drops = source.device.drops();
                        drops.lose(DropReason::RecursionLimit, Some(&packet));
                    }
                    false => hopped.push(target, packet),
                }
            }
        }
        let copied = elsewhere.take_copied();
        if copied > 0 {
            source.device.count_copied(copied);
        }
        self.carry_out(source, &mut hopped, now);
    }

    /// Sends packets where actions at a link have sent them.
    #[inline]
    pub(crate) fn carry_out(&self, source: Source<'_, R>, elsewhere: &mut Elsewhere, now: Time) {
        if !elsewhere.is_empty() {
            self.send_all(source, elsewhere, now);
        }
    }

    #[cold]
    fn send_all(&self, source: Source<'_, R>, elsewhere: &mut Elsewhere, now: Time) {
        let copied = elsewhere.take_copied();
        if copied > 0 {
            source.device.count_copied(copied);
        }
        for (Target { to, ingress }, packets) in elsewhere.drain() {
            match to {
                To::Link(index) => self.send(source, index, ingress, packets, now),
                To::Block(block) => self.send_to_block(source, block, ingress, packets, now),
            }
        }
    }

    fn send(
        &self,
        source: Source<'_, R>,
        index: u32,
        ingress: bool,
        packets: PacketList,
        now: Time,
    ) {
        let device = self
            .targets
            .load()
            .links
            .get(&index)
            .and_then(Weak::upgrade);
        match device {
            Some(device) => deliver_to(source.device, &device, ingress, packets, now),
            None => {
                let drops = source.device.drops();
                drops.lose(DropReason::DeviceDown, &packets);
            }
        }
    }

    /// To all links of a block but the one that the packets are at (`tcf_blockcast`).
    fn send_to_block(
        &self,
        source: Source<'_, R>,
        block: u32,
        ingress: bool,
        mut packets: PacketList,
        now: Time,
    ) {
        let targets = self.targets.load_full();
        let of_block = targets.blocks.get(&block).map_or(&[][..], Vec::as_slice);
        let others = of_block.iter().filter(|&&index| index != source.index);
        let others: Vec<u32> = others.copied().collect();
        let Some((&last, others)) = others.split_last() else {
            let drops = source.device.drops();
            drops.lose(DropReason::NoForward, &packets);
            return;
        };
        for &index in others {
            let mut copies = PacketList::new();
            packets.for_each_mut(|packet| {
                let wire_packets = packet.wire_packets();
                source.device.count_copied(wire_packets);
                match copy(packet, source.device.pool()) {
                    Some(copy) => copies.push_back(copy),
                    None => {
                        let drops = source.device.drops();
                        drops.lose(DropReason::NoBuffer, Some(&*packet));
                    }
                }
            });
            self.send(source, index, ingress, copies, now);
        }
        self.send(source, last, ingress, packets, now);
    }
}

/// The way of what actions of a device's qdiscs send to other links.
pub(crate) struct OfQueues<R> {
    pub(crate) device: Weak<Device<R>>,
    /// Number of its link.
    pub(crate) index: u32,
    pub(crate) links: Arc<LinkTable<R>>,
}

impl<R> fmt::Debug for OfQueues<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OfQueues({})", self.index)
    }
}

impl<R: TxRing> Outlet for OfQueues<R> {
    fn deliver(&self, elsewhere: &mut Elsewhere, now: Time) {
        match self.device.upgrade() {
            Some(device) => {
                let source = Source {
                    device: &device,
                    index: self.index,
                };
                self.links.carry_out_of_queue(source, elsewhere, now);
            }
            // It is being given up, and nobody counts for it any more.
            None => elsewhere.drain().for_each(drop),
        }
    }
}
