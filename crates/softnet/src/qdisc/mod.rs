//! Queueing disciplines: which packet leaves next, and when. One file per discipline.
//!
//! A discipline is single-threaded: it is owned by whoever [runs](crate::tx::TxQueue) the transmit queue. It works on batches, takes
//! `now` and reads no clock, frees nothing itself (see [`Dropped`]) and counts as the kernel counts: packets and bytes at
//! dequeue, a large frame as its wire packets and wire bytes; drops at enqueue.

mod any;
mod bucket;
mod children;
mod fifo;
mod filter;
mod handle;
mod link;
mod pfifo_fast;
mod plan;
mod prio;
mod spec;
mod tbf;
mod trace;
mod tree;

use std::fmt;

pub use any::AnyQdisc;
pub use fifo::{Bfifo, Pfifo, PfifoHeadDrop};
pub use filter::{FilterSpec, Match, Prefix};
pub use handle::{BadHandle, Handle};
pub use link::{LinkCost, LinkLayer, WireSize};
pub use pfifo_fast::{PRIO_TO_BAND, PfifoFast};
pub use plan::{Node, TreeError, TreeSpec};
pub use prio::{MAX_BANDS, Prio, PrioSpec};
pub use spec::{CustomSpec, QdiscEnv, QdiscSpec, SpecError, TbfSpec};
pub use tbf::Tbf;
pub use trace::Trace;
pub use tree::{ClassStats, Tree};

use crate::packet::PacketList;
use crate::stats::{DropReason, Dropped};
use crate::time::Time;

/// When to call [`Qdisc::dequeue`] again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing is queued.
    Idle,
    /// The budget ended it; more is ready now.
    Ready,
    /// Something is queued, but nothing may leave before this time.
    At(Time),
}

/// What would leave a discipline next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// A packet of this size, now.
    Packet(WireSize),
    /// Nothing is queued.
    Idle,
    /// Something is queued, but nothing may leave before this time.
    At(Time),
    /// It cannot be told without taking it out.
    Unknown,
}

/// A queueing discipline.
pub trait Qdisc: Send + fmt::Debug {
    /// Takes all packets of `packets`, in order; what it refuses goes to `dropped`.
    fn enqueue(&mut self, packets: &mut PacketList, now: Time, dropped: &mut Dropped);

    /// Says whether `packets`, in this order, may leave at once without being enqueued, because nothing is queued and the discipline would neither refuse,
    /// delay nor reorder them (the kernel's `TCQ_F_CAN_BYPASS`). The transmit path then sends and counts them.
    fn bypass(&self, _packets: &PacketList) -> bool {
        false
    }

    /// Appends up to `budget` packets to `out`. Stops earlier only if nothing more may leave now.
    fn dequeue(
        &mut self,
        budget: usize,
        now: Time,
        out: &mut PacketList,
        dropped: &mut Dropped,
    ) -> Next;

    /// What [`dequeue`](Qdisc::dequeue) at this time would return first. Changes nothing, and so can drop nothing (INV-Q-9). A discipline that cannot
    /// tell, because it decides only as it takes a packet out, leaves this as it is.
    fn peek(&self, now: Time) -> Peek {
        let _ = now;
        Peek::Unknown
    }

    /// Moves everything queued to `out`, at once and without shaping; statistics of what leaves are not counted. For taking the
    /// discipline away.
    fn drain(&mut self, out: &mut PacketList);

    /// Drops everything queued as [`DropReason::QdiscReset`], and starts afresh but for statistics. They do not count these drops, as the kernel's do
    /// not.
    fn reset(&mut self, dropped: &mut Dropped) {
        let mut gone = PacketList::new();
        self.drain(&mut gone);
        dropped.append(gone, DropReason::QdiscReset);
    }

    /// The numbers that `tc -s qdisc` shows.
    fn stats(&self) -> QdiscStats;
}

/// Numbers of a discipline, named as `tc -s` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Wire bytes that left.
    pub bytes: u64,
    /// Wire packets that left.
    pub packets: u64,
    /// Frames refused.
    pub drops: u64,
    /// Times that a packet had to wait for its rate.
    pub overlimits: u64,
    /// Frames that the driver gave back.
    pub requeues: u64,
    /// Frames queued.
    pub qlen: u64,
    /// Wire bytes queued.
    pub backlog: u64,
    /// Wire packets queued (not shown by tc; closes the conservation sum).
    pub queued: u64,
}

#[cfg(test)]
mod tests;
