//! Queueing disciplines (qdiscs): which packet leaves next, and when. One file per kind.
//!
//! A qdisc is single-threaded: the owner of the [queue](crate::tx::TxQueue) calls it. It works on
//! batches, takes `now`, reads no clock and frees nothing itself (see [`Dropped`]). It counts as the
//! kernel counts: packets and bytes at dequeue, a large frame as its wire packets and wire bytes;
//! drops where they happen, and at each qdisc above.
//!
//! Kinds with classes are in `softnet-tc`. A qdisc knows nothing of those above it.

mod fifo;
mod pfifo_fast;
mod wire_size;

use std::fmt;

pub use fifo::{Bfifo, Pfifo, PfifoHeadDrop};
pub use pfifo_fast::{PRIO_TO_BAND, PfifoFast};
pub use wire_size::{WireSize, WireSum};

use crate::mem::PacketList;
use crate::stats::Dropped;
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

/// What became of enqueued packets (`NET_XMIT_*`). Ordered: of several, the last is the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Queued.
    #[default]
    Queued,
    /// Taken elsewhere: neither queued nor dropped (`__NET_XMIT_STOLEN`).
    Stolen,
    /// Queued, but another packet was dropped for it (`NET_XMIT_CN`).
    Congestion,
    /// Dropped (`NET_XMIT_DROP`).
    Dropped,
}

/// A queueing discipline.
pub trait Qdisc: Send + fmt::Debug {
    /// Takes all packets of `packets`, in order; what it refuses goes to `dropped`. Returns the
    /// worst verdict among them (INV-TX-9).
    fn enqueue(&mut self, packets: &mut PacketList, now: Time, dropped: &mut Dropped) -> Verdict;

    /// Lets all of `packets` pass at once, in this order and without being enqueued, if nothing is
    /// queued and they would be neither refused, delayed nor reordered (the kernel's
    /// `TCQ_F_CAN_BYPASS`). True: they are charged and counted as sent, and the caller sends them.
    /// False: nothing has changed. `sum` is that of `packets`.
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, now: Time) -> bool {
        let _ = (packets, sum, now);
        false
    }

    /// Appends frames to `out` until they stand for `budget` wire packets or more. Stops earlier only if nothing more may leave now.
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

    /// Whether nothing is kept: what the driver does not take at once is dropped (`noqueue`).
    fn is_noqueue(&self) -> bool {
        false
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
    /// Bytes of the buffers that hold what is queued (not shown by tc). A discipline from outside this crate may leave it 0: then its frames count as one small
    /// buffer each.
    pub memory: u64,
}

impl QdiscStats {
    /// Counts packets that leave.
    #[inline]
    pub fn count_sent(&mut self, sum: WireSum) {
        self.bytes += sum.bytes;
        self.packets += sum.packets;
    }
}
