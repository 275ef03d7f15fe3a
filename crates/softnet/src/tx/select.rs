//! Which of a device's queues a packet takes (the kernel's `netdev_pick_tx` and `skb_tx_hash`).
//!
//! Traffic classes, if there are any, say which queues a packet may take (INV-MQ-2). Among those a
//! worker's packets take the worker's own queue, its number modulo theirs, so that workers do not
//! meet at a queue. What other threads send takes the recorded receive queue, or that of the
//! flow's hash.
//!
//! INV-TX-15: a flow keeps its queue as long as packets of it wait there, whichever thread sends
//! them (see [`FlowSlot`]), and the index is always below the number of queues. Where no worker
//! sends, the choice depends on the packet alone, and no slot is needed.
//!
//! The classes are atomic words that the control path stores and senders load: a sender that
//! reads half of a change chooses a queue of either map, and one that exists.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::queue_map::{MAX_CLASSES, QueueMap, TcQueues};
use crate::mem::Packet;
use crate::sync::{FlowPin, FlowSlot};
use crate::wire;

/// Flows told apart for each traffic class. Flows that share a slot move together.
const FLOWS: usize = 1024;

thread_local! {
    static WORKER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Says that this thread is a worker, of this number among those that send: it has transmit queues
/// of its own.
pub fn set_worker(number: usize) {
    WORKER.set(Some(number));
}

/// `reciprocal_scale`: the product's upper half is below `n`.
fn scale(hash: u32, n: usize) -> usize {
    ((u64::from(hash) * n as u64) >> 32) as usize
}

/// The flow's hash: noted, or computed; 0 for a packet without flow.
fn flow_hash(packet: &Packet) -> u32 {
    packet
        .flow_hash()
        .unwrap_or_else(|| wire::flow_hash(packet.data(), packet.len()))
}

/// As [`flow_hash`], and notes it, for qdiscs that tell flows apart by it.
fn noted_hash(packet: &mut Packet) -> u32 {
    packet.flow_hash().unwrap_or_else(|| {
        let hash = flow_hash(packet);
        packet.set_flow_hash(hash);
        hash
    })
}

/// The queue of a packet by itself: the one it was received on, where that was recorded, else by
/// its flow's hash.
pub fn select_queue(packet: &Packet, queues: usize) -> usize {
    match queues {
        0 | 1 => 0,
        _ => tx_hash(packet.queue(), 0..queues, || flow_hash(packet)),
    }
}

/// As [`select_queue`], of several rings; the hash is noted.
pub(super) fn select_ring(packet: &mut Packet, rings: usize) -> usize {
    tx_hash(packet.queue(), 0..rings, || noted_hash(packet))
}

/// `skb_tx_hash`: one of the queues in `range`, which is not empty, by the recorded one or the
/// flow's hash.
fn tx_hash(recorded: Option<u16>, range: Range<usize>, hash: impl FnOnce() -> u32) -> usize {
    let (offset, count) = (range.start, range.len());
    match recorded.map(usize::from) {
        Some(recorded) => offset + recorded.checked_sub(offset).unwrap_or(recorded) % count,
        None => offset + scale(hash(), count),
    }
}

/// State by which a device chooses queues.
#[derive(Debug)]
pub(super) struct Selector {
    /// Queues there are.
    queues: usize,
    /// Workers have sent.
    workers: AtomicBool,
    num_tc: AtomicU8,
    /// Four bits for each of the 16 priorities.
    prio_tc: AtomicU64,
    /// Offset and count of each class.
    classes: [AtomicU32; MAX_CLASSES],
    /// The queues of flows, by class and hash.
    flows: Box<[FlowSlot]>,
}

impl Selector {
    /// For a device with `queues` queues: no classes.
    pub(super) fn new(queues: usize) -> Selector {
        let slots = if queues < 2 { 0 } else { MAX_CLASSES * FLOWS };
        Selector {
            queues,
            workers: AtomicBool::new(false),
            num_tc: AtomicU8::new(0),
            prio_tc: AtomicU64::new(0),
            classes: Default::default(),
            flows: (0..slots).map(|_| FlowSlot::default()).collect(),
        }
    }

    /// Puts a map in force, whatever it says: [`class`](Selector::class) keeps to the queues that
    /// there are. Classes beyond the 16th have no packets. Control path, one caller at a time.
    pub(super) fn set(&self, map: &QueueMap) {
        let nibbles = map.prio_tc_map.iter().rev();
        let prio_tc = nibbles.fold(0, |word, &tc| word << 4 | u64::from(tc & 15));
        let none = TcQueues::default();
        for (tc, class) in self.classes.iter().enumerate() {
            let TcQueues { count, offset } = *map.classes.get(tc).unwrap_or(&none);
            class.store(
                u32::from(offset) << 16 | u32::from(count),
                Ordering::Relaxed,
            );
        }
        self.prio_tc.store(prio_tc, Ordering::Relaxed);
        // Release: a sender that reads it sees the rest.
        let num_tc = map.classes.len().min(MAX_CLASSES) as u8;
        self.num_tc.store(num_tc, Ordering::Release);
    }

    /// True if there are no classes, or only one queue.
    pub(super) fn is_plain(&self) -> bool {
        self.num_tc.load(Ordering::Relaxed) == 0 || self.queues < 2
    }

    /// The class of a packet, and its queues: a range within the device's, and never empty.
    fn class(&self, packet: &Packet) -> (usize, Range<usize>) {
        // Acquire: pairs with `set`.
        if self.num_tc.load(Ordering::Acquire) == 0 {
            return (0, 0..self.queues);
        }
        let shift = 4 * (packet.priority() & 15);
        let tc = (self.prio_tc.load(Ordering::Relaxed) >> shift & 15) as usize;
        let word = self.classes[tc].load(Ordering::Relaxed);
        let (offset, count) = ((word >> 16) as usize, (word & 0xFFFF) as usize);
        // A class without queues uses all, as in the kernel; so does one whose queues do not
        // exist.
        let range = offset.min(self.queues)..(offset + count).min(self.queues);
        if range.is_empty() {
            (tc, 0..self.queues)
        } else {
            (tc, range)
        }
    }

    /// Chooses the packet's ring, where all rings are fed by one queue: by the packet alone.
    pub(super) fn ring(&self, packet: &mut Packet) -> usize {
        if self.queues < 2 {
            return 0;
        }
        let range = self.class(packet).1;
        tx_hash(packet.queue(), range, || noted_hash(packet))
    }

    /// Chooses the packet's queue. `is_empty` says whether nothing waits in a queue; see
    /// [`FlowSlot::pin`]. The choice holds until `held` is let go: push before that.
    pub(super) fn choose<'a>(
        &'a self,
        packet: &mut Packet,
        held: &mut Held<'a>,
        is_empty: impl Fn(usize) -> bool,
    ) -> usize {
        if self.queues < 2 {
            return 0;
        }
        let (tc, range) = self.class(packet);
        if range.len() == 1 {
            return range.start;
        }
        let wanted = match WORKER.get() {
            Some(worker) => range.start + worker % range.len(),
            None => tx_hash(packet.queue(), range.clone(), || noted_hash(packet)),
        };
        // Relaxed: between a worker's first packet and another thread's there is no order.
        if !self.workers.load(Ordering::Relaxed) {
            if WORKER.get().is_none() {
                return wanted;
            }
            self.workers.store(true, Ordering::Relaxed);
        }
        let hash = noted_hash(packet);
        let slot = &self.flows[tc * FLOWS + hash as usize % FLOWS];
        held.queue(slot).unwrap_or_else(|| {
            let may = |queue: u16| range.contains(&usize::from(queue));
            held.add(slot.pin(wanted as u16, may, |queue| is_empty(usize::from(queue))))
        })
    }
}

/// The flows whose packets are on their way to a queue.
#[derive(Debug, Default)]
pub(super) struct Held<'a> {
    pins: [Option<FlowPin<'a>>; 16],
    len: usize,
}

impl<'a> Held<'a> {
    /// True if there is no room for another flow.
    pub(super) fn is_full(&self) -> bool {
        self.len == self.pins.len()
    }

    /// Lets go of all, after their packets were pushed.
    pub(super) fn release(&mut self) {
        self.pins[..self.len].fill_with(|| None);
        self.len = 0;
    }

    /// The queue of a flow that was added last.
    fn queue(&self, slot: &FlowSlot) -> Option<usize> {
        let last = self.pins.get(self.len.checked_sub(1)?)?.as_ref()?;
        last.is_of(slot).then(|| usize::from(last.queue()))
    }

    fn add(&mut self, pin: FlowPin<'a>) -> usize {
        let queue = usize::from(pin.queue());
        // Without room the pin ends here: the caller looks before.
        if let Some(place) = self.pins.get_mut(self.len) {
            *place = Some(pin);
            self.len += 1;
        }
        queue
    }
}
