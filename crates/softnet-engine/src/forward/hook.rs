//! Hooks of a port as they run: filters for what it received, on the worker that received it, and
//! for what is sent to it, on the thread that sends (`sch_handle_ingress`, `sch_handle_egress`).
//!
//! Each worker runs a copy of the filters that counts apart, so that none waits for another, and no
//! cache line is shared but for the sums of [`HookCounts`]. Threads that are no workers of the
//! engine share one copy, and a lock of all hooks. The control path swaps all copies as a whole.
//!
//! Packets that actions send elsewhere are carried out when the filters have seen all of a list, in
//! the order in which they were sent; see [`mirred`](super::mirred) for the bounds of loops.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use softnet::mem::{PacketList, Turn};
use softnet::qdisc::Cx;
use softnet::stats::DropReason;
use softnet::sync::PerCpu;
use softnet::time::Time;
use softnet::tx::{Egress, TxRing, XmitResult};
use softnet_tc::{AnyQdisc, Classified, Filters, Side, filtered_size};

use super::elsewhere::{LinkTable, Source};
use super::mirred::Actions;
use crate::Device;

/// Positions in [`Hooks::counts`].
const PACKETS: usize = 0;
const BYTES: usize = 1;
const DROPS: usize = 2;

/// Counters of the hooks of a port, of the times when they had filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// Wire packets.
    pub packets: u64,
    /// Their wire bytes; of those that arrive, without Ethernet headers, as the kernel counts.
    pub bytes: u64,
    /// Wire packets that filters dropped.
    pub drops: u64,
}

thread_local! {
    /// The engine that this thread is a worker of, by its table of links, and its number there.
    static WORKER: Cell<(usize, usize)> = const { Cell::new((0, usize::MAX)) };
    /// The context of filters, between two runs.
    static CONTEXT: RefCell<Option<Box<Cx>>> = const { RefCell::new(None) };
}

/// Says that this thread is the worker of a number in the engine with these links.
pub(crate) fn set_worker<R>(links: &Arc<LinkTable<R>>, index: usize) {
    WORKER.set((Arc::as_ptr(links).addr(), index));
}

/// Copies of the filters at one hook.
#[derive(Debug)]
pub(crate) struct Copies {
    /// By worker.
    workers: Box<[Filters]>,
    /// That of all other threads, which run it [in turn](LinkTable::turn_of_others).
    others: Filters,
}

impl Copies {
    /// One for each worker, and one behind for other threads. None if they are empty.
    pub(crate) fn new(mut filters: Vec<Filters>) -> Option<Arc<Copies>> {
        let others = filters.pop()?;
        if others.is_empty() {
            return None;
        }
        Some(Arc::new(Copies {
            workers: filters.into(),
            others,
        }))
    }
}

/// One hook.
#[derive(Debug, Default)]
struct Point {
    /// There are filters. Read before `copies`, which costs more; it says nothing about memory.
    active: AtomicBool,
    copies: ArcSwapOption<Copies>,
}

/// Both hooks of a port.
#[derive(Debug)]
pub(crate) struct Hooks<R> {
    /// Number of the port.
    port: u16,
    /// Number of its link.
    index: u32,
    links: Arc<LinkTable<R>>,
    points: [Point; 2],
    counts: PerCpu<3>,
}

impl<R: TxRing> Hooks<R> {
    pub(crate) fn new(port: u16, index: u32, links: Arc<LinkTable<R>>) -> Self {
        Hooks {
            port,
            index,
            links,
            points: Default::default(),
            counts: PerCpu::new(),
        }
    }

    /// Gives a hook other filters.
    pub(crate) fn set(&self, side: Side, copies: Option<Arc<Copies>>) {
        let point = &self.points[side as usize];
        point.active.store(copies.is_some(), Ordering::Relaxed);
        // The last of the old ones is dropped here, or where they run.
        point.copies.store(copies);
    }

    pub(crate) fn counts(&self) -> HookCounts {
        HookCounts {
            packets: self.counts.sum(PACKETS),
            bytes: self.counts.sum(BYTES),
            drops: self.counts.sum(DROPS),
        }
    }

    /// A hook has filters.
    #[inline]
    pub(crate) fn is_active(&self, side: Side) -> bool {
        self.points[side as usize].active.load(Ordering::Relaxed)
    }

    /// Has the filters look at packets. Those that go on stay in the list.
    pub(crate) fn run(
        &self,
        side: Side,
        device: &Device<R>,
        packets: &mut PacketList,
        now: Time,
    ) -> XmitResult {
        let point = &self.points[side as usize];
        let copies = point.copies.load();
        let Some(copies) = &*copies else {
            return XmitResult::Success;
        };
        // A run within a run has a context of its own.
        let known = CONTEXT.take().filter(|cx| cx.pool.is_same(device.pool()));
        let mut cx = known.unwrap_or_else(|| Box::new(Cx::new(device.pool())));
        cx.now = now;
        cx.arriving = side == Side::Ingress;
        let (links, number) = WORKER.get();
        let is_own = links == Arc::as_ptr(&self.links).addr();
        match copies.workers.get(number).filter(|_| is_own) {
            Some(filters) => self.filter(side, filters, packets, &mut cx),
            None => {
                let _turn = self.links.turn_of_others();
                self.filter(side, &copies.others, packets, &mut cx);
            }
        }
        let dropped = cx.dropped.wire_packets();
        cx.dropped.settle(device.drops());
        let source = Source {
            device,
            index: self.index,
        };
        self.links.carry_out(source, &mut cx.elsewhere, now);
        CONTEXT.set(Some(cx));
        match dropped {
            0 => XmitResult::Success,
            _ if packets.is_empty() => XmitResult::Drop,
            _ => XmitResult::Congestion,
        }
    }

    fn filter(&self, side: Side, filters: &Filters, packets: &mut PacketList, cx: &mut Cx) {
        let (mut sum, mut bytes, mut drops) = (0, 0, 0);
        let mut on = PacketList::new();
        for mut packet in packets.take() {
            let size = filtered_size(&packet, cx);
            (sum, bytes) = (sum + size.packets, bytes + size.bytes);
            match filters.classify(&mut packet, cx) {
                Classified::Class(_) | Classified::None => on.push_back(packet),
                Classified::Drop(reason) => {
                    drops += size.packets;
                    cx.dropped.push(packet, reason);
                }
                Classified::Redirect(target) => {
                    if !target.ingress {
                        // For an `ifb`: the place to go on from. Copies have none.
                        packet.set_port(self.port);
                        packet.set_turn(match side {
                            Side::Ingress => Turn::Ingress,
                            Side::Egress => Turn::Egress,
                        });
                    }
                    cx.elsewhere.push(target, packet);
                }
                Classified::Consumed => cx.dropped.push(packet, DropReason::FilterStolen),
            }
        }
        *packets = on;
        self.counts.add(PACKETS, sum);
        self.counts.add(BYTES, bytes);
        if drops > 0 {
            self.counts.add(DROPS, drops);
        }
    }
}

/// The way of packets that are sent to a port, before a queue is chosen: its hook, then its own
/// actions.
#[derive(Debug)]
pub(crate) struct Departure<R> {
    pub(crate) hooks: Option<Arc<Hooks<R>>>,
    pub(crate) actions: Arc<Actions<R>>,
}

impl<R: TxRing> Egress<R, AnyQdisc> for Departure<R> {
    fn apply(&self, device: &Device<R>, packets: &mut PacketList, now: Time) -> XmitResult {
        let mut result = XmitResult::Success;
        if let Some(hooks) = &self.hooks {
            result = hooks.run(Side::Egress, device, packets, now);
            if packets.is_empty() {
                return result;
            }
        }
        result.max(self.actions.apply(device, packets, now))
    }
}
