//! Which of a device's queues a packet takes (the kernel's `netdev_pick_tx`, `get_xps_queue` and
//! `skb_tx_hash`).
//!
//! In this order: a device with one queue has nothing to choose; the receive-queue map, by the
//! queue that the packet was received on; the CPU map, by the number of the sending thread; the
//! recorded receive queue; the flow's hash. With traffic classes, all of these choose among the
//! queues of the packet's class only (INV-MQ-2).
//!
//! INV-TX-15: while the map is unchanged a flow keeps its queue as long as packets of it wait,
//! whichever thread sends them (see [`FlowSlot`]), and the index is always below the number of
//! queues. Without a CPU or receive-queue map the choice depends on the packet alone, and no slot
//! is needed.
//!
//! All of a map is atomic words that the control path stores and senders load: a sender that
//! reads half of a change chooses a queue of either map, and one that exists.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::queue_map::{MAX_CPUS, MAX_QUEUES, QueueMap, TcQueues};
use crate::mem::Packet;
use crate::sync::{FlowPin, FlowSlot};

/// Flows told apart for each traffic class. Flows that share a slot move together.
const FLOWS: usize = 1024;
const CLASSES: usize = 16;

const CLASSIFY: u8 = 1;
const XPS_CPUS: u8 = 2;
const XPS_RXQS: u8 = 4;

static NEXT_SENDER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SENDER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number by which the CPU map knows this thread (`skb->sender_cpu`): what [`set_sender_cpu`]
/// said, else threads are numbered in the order in which they first ask.
pub fn sender_cpu() -> usize {
    SENDER.with(|sender| {
        if sender.get() == usize::MAX {
            sender.set(NEXT_SENDER.fetch_add(1, Ordering::Relaxed));
        }
        sender.get()
    })
}

/// Says by which number the CPU map is to know this thread. The engine's workers have their own
/// numbers, from 0.
pub fn set_sender_cpu(cpu: usize) {
    SENDER.with(|sender| sender.set(cpu));
}

/// `reciprocal_scale`: the product's upper half is below `n`.
fn scale(hash: u32, n: usize) -> usize {
    ((u64::from(hash) * n as u64) >> 32) as usize
}

/// The flow's hash: noted, or computed; 0 for a packet without flow.
fn flow_hash(packet: &Packet) -> u32 {
    packet
        .flow_hash()
        .or_else(|| {
            packet
                .parse()
                .ok()
                .map(|headers| headers.flow_hash(packet.data()))
        })
        .unwrap_or(0)
}

/// The queue of a packet by itself: the one it was received on, where that was recorded, else by
/// its flow's hash.
pub fn select_queue(packet: &Packet, queues: usize) -> usize {
    match queues {
        0 | 1 => 0,
        _ => tx_hash(packet, 0..queues),
    }
}

/// `skb_tx_hash`: one of the queues in `range`, which is not empty.
fn tx_hash(packet: &Packet, range: std::ops::Range<usize>) -> usize {
    let (offset, count) = (range.start, range.len());
    match packet.queue().map(usize::from) {
        Some(recorded) => offset + recorded.checked_sub(offset).unwrap_or(recorded) % count,
        None => offset + scale(flow_hash(packet), count),
    }
}

/// A set of queues, as bits.
#[derive(Debug, Default)]
struct QueueSet([AtomicU64; MAX_QUEUES / 64]);

impl QueueSet {
    fn store(&self, queues: impl Iterator<Item = usize>) {
        let mut words = [0; MAX_QUEUES / 64];
        queues.for_each(|q| words[q / 64] |= 1u64 << (q % 64));
        for (slot, word) in self.0.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    /// One of those in `range`, by `hash`, if there are any.
    fn choose(&self, range: &std::ops::Range<usize>, hash: impl FnOnce() -> u32) -> Option<usize> {
        let below = |n: usize, word: usize| match n.saturating_sub(word * 64) {
            n if n >= 64 => u64::MAX,
            n => (1 << n) - 1,
        };
        let words: [u64; MAX_QUEUES / 64] = std::array::from_fn(|i| {
            let word = self.0[i].load(Ordering::Relaxed);
            word & below(range.end, i) & !below(range.start, i)
        });
        let count: u32 = words.iter().map(|w| w.count_ones()).sum();
        let mut skip = match count {
            0 => return None,
            1 => 0,
            n => scale(hash(), n as usize) as u32,
        };
        words.iter().enumerate().find_map(|(i, &word)| {
            let here = word.count_ones();
            if skip >= here {
                skip -= here;
                return None;
            }
            let rest = (0..skip).fold(word, |w, _| w & (w - 1));
            Some(i * 64 + rest.trailing_zeros() as usize)
        })
    }
}

/// Rows of queue sets, made when first needed.
type Rows = OnceLock<Box<[QueueSet]>>;

fn fill(rows: &Rows, len: usize, sets: &[Vec<usize>]) {
    if sets.is_empty() && rows.get().is_none() {
        return;
    }
    let rows = rows.get_or_init(|| (0..len).map(|_| QueueSet::default()).collect());
    for (number, row) in rows.iter().enumerate() {
        let uses = |q: &usize| sets[*q].contains(&number);
        row.store((0..sets.len()).filter(uses));
    }
}

/// What a device chooses queues by.
#[derive(Debug)]
pub(super) struct Selector {
    /// Queues there are.
    queues: usize,
    /// Which of the following mean anything.
    uses: AtomicU8,
    num_tc: AtomicU8,
    /// Four bits for each of the 16 priorities.
    prio_tc: AtomicU64,
    /// Offset and count of each class.
    classes: [AtomicU32; CLASSES],
    cpus: Rows,
    rxqs: Rows,
    flows: OnceLock<Box<[FlowSlot]>>,
}

impl Selector {
    /// For a device with `queues` queues: no classes, no maps.
    pub(super) fn new(queues: usize) -> Selector {
        Selector {
            queues,
            uses: AtomicU8::new(0),
            num_tc: AtomicU8::new(0),
            prio_tc: AtomicU64::new(0),
            classes: Default::default(),
            cpus: Rows::new(),
            rxqs: Rows::new(),
            flows: OnceLock::new(),
        }
    }

    /// Puts a checked map in force. Control path, one caller at a time.
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
        self.num_tc
            .store(map.classes.len() as u8, Ordering::Relaxed);
        fill(&self.cpus, MAX_CPUS, &map.xps_cpus);
        fill(&self.rxqs, MAX_QUEUES, &map.xps_rxqs);
        let mut uses = 0;
        for (used, bit) in [
            (!map.classes.is_empty(), CLASSIFY),
            (!map.xps_cpus.is_empty(), XPS_CPUS),
            (!map.xps_rxqs.is_empty(), XPS_RXQS),
        ] {
            uses |= if used { bit } else { 0 };
        }
        if uses & (XPS_CPUS | XPS_RXQS) != 0 {
            let flows = self
                .flows
                .get_or_init(|| (0..CLASSES * FLOWS).map(|_| FlowSlot::default()).collect());
            flows.iter().for_each(FlowSlot::forget);
        }
        // Release: a sender that reads it sees the rest.
        self.uses.store(uses, Ordering::Release);
    }

    /// Whether the choice is that of [`select_queue`].
    pub(super) fn is_plain(&self) -> bool {
        self.uses.load(Ordering::Relaxed) == 0 || self.queues < 2
    }

    /// The class of a packet, and its queues: a range within the device's, and never empty.
    fn class(&self, packet: &Packet) -> (usize, std::ops::Range<usize>) {
        if self.num_tc.load(Ordering::Relaxed) == 0 {
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
        // Acquire: pairs with `set`.
        let uses = self.uses.load(Ordering::Acquire);
        let (tc, range) = self.class(packet);
        if uses & (XPS_CPUS | XPS_RXQS) == 0 {
            return tx_hash(packet, range);
        }
        let hash = flow_hash(packet);
        packet.set_flow_hash(hash);
        let by_rxq = || {
            let rows = self.rxqs.get().filter(|_| uses & XPS_RXQS != 0)?;
            let row = rows.get(usize::from(packet.queue()?))?;
            row.choose(&range, || hash)
        };
        let by_cpu = || {
            let rows = self.cpus.get().filter(|_| uses & XPS_CPUS != 0)?;
            rows.get(sender_cpu())?.choose(&range, || hash)
        };
        let wanted = by_rxq()
            .or_else(by_cpu)
            .unwrap_or_else(|| tx_hash(packet, range.clone()));
        let Some(flows) = self.flows.get() else {
            return wanted;
        };
        let slot = &flows[tc * FLOWS + hash as usize % FLOWS];
        held.queue(slot).unwrap_or_else(|| {
            let exists = |queue: u16| usize::from(queue) < self.queues;
            held.add(slot.pin(wanted as u16, exists, |queue| is_empty(usize::from(queue))))
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
    /// Whether there is no room for another flow.
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
