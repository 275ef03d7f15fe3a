//! Queueing disciplines: which packet leaves next, and when. One file per discipline.
//!
//! A discipline is single-threaded: it is owned by whoever [runs](crate::tx::TxQueue) the transmit queue. It works on batches, takes
//! `now` and reads no clock, frees nothing itself (see [`Dropped`]) and counts as the kernel counts: packets and bytes at
//! dequeue, a large frame as its wire packets and wire bytes; drops where they happen, and at each discipline above.
//!
//! Disciplines with classes ([`Tbf`], [`Prio`]) hold others, and a [`Tree`] gives all of them names. A discipline knows nothing of those above it.
//!
//! # A discipline of one's own
//!
//! This one sends small packets before large ones. It must keep its lengths right, put what it refuses into `dropped`, and stop early in `dequeue` only
//! when nothing more may leave. It can stand wherever a built-in one can.
//!
//! ```
//! use softnet::mem::{PacketList, Pool, PoolConfig};
//! use softnet::qdisc::*;
//! use softnet::stats::{DropReason, Dropped};
//! use softnet::time::Time;
//!
//! #[derive(Debug, Default)]
//! struct SmallFirst {
//!     small: PacketList,
//!     large: PacketList,
//!     stats: QdiscStats,
//! }
//!
//! impl Qdisc for SmallFirst {
//!     fn enqueue(&mut self, list: &mut PacketList, _: Time, dropped: &mut Dropped) -> Verdict {
//!         let mut verdict = Verdict::Queued;
//!         while let Some(packet) = list.pop_front() {
//!             if self.stats.qlen == 1000 {
//!                 self.stats.drops += 1;
//!                 dropped.push(packet, DropReason::QdiscLimit);
//!                 verdict = Verdict::Dropped;
//!                 continue;
//!             }
//!             self.stats.qlen += 1;
//!             self.stats.backlog += packet.wire_len();
//!             self.stats.queued += packet.wire_packets();
//!             let small = packet.wire_len() <= 128;
//!             if small { &mut self.small } else { &mut self.large }.push_back(packet);
//!         }
//!         verdict
//!     }
//!
//!     fn dequeue(&mut self, budget: usize, _: Time, out: &mut PacketList, _: &mut Dropped) -> Next {
//!         let mut left = budget as u64;
//!         while left > 0 {
//!             let Some(packet) = self.small.pop_front().or_else(|| self.large.pop_front()) else {
//!                 return Next::Idle;
//!             };
//!             left = left.saturating_sub(packet.wire_packets());
//!             self.stats.qlen -= 1;
//!             self.stats.backlog -= packet.wire_len();
//!             self.stats.queued -= packet.wire_packets();
//!             self.stats.bytes += packet.wire_len();
//!             self.stats.packets += packet.wire_packets();
//!             out.push_back(packet);
//!         }
//!         if self.stats.qlen == 0 { Next::Idle } else { Next::Ready }
//!     }
//!
//!     fn drain(&mut self, out: &mut PacketList) {
//!         out.append(&mut self.small);
//!         out.append(&mut self.large);
//!         (self.stats.qlen, self.stats.backlog, self.stats.queued) = (0, 0, 0);
//!     }
//!
//!     fn stats(&self) -> QdiscStats {
//!         self.stats
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Below a shaper, as a device's discipline (`DeviceConfig::qdisc`) or by itself:
//! let shaper = TbfSpec { rate: 125_000, burst: 10_000, limit: 0, ..TbfSpec::default() };
//! let mut tree = TreeSpec::new();
//! tree.add(Handle::ROOT, "1:".parse()?, QdiscSpec::Tbf(shaper))?;
//! let own = CustomSpec::new("small_first", |_| Box::new(SmallFirst::default()));
//! tree.add("1:1".parse()?, "10:".parse()?, QdiscSpec::Custom(own))?;
//!
//! let pool = Pool::new(PoolConfig { buffers: 64, buffer_size: 2048 })?;
//! let mut queue = QdiscSpec::Tree(tree).build(&QdiscEnv { pool: pool.clone() })?;
//! let mut packets = PacketList::new();
//! for len in [1000, 100, 1200, 60] {
//!     let mut packet = pool.alloc()?;
//!     packet.extend(len);
//!     packets.push_back(packet);
//! }
//! let mut dropped = Dropped::new();
//! queue.enqueue(&mut packets, Time::ZERO, &mut dropped);
//! let mut out = PacketList::new();
//! assert_eq!(queue.dequeue(64, Time::ZERO, &mut out, &mut dropped), Next::Idle);
//! let lengths: Vec<usize> = out.iter().map(|packet| packet.len()).collect();
//! assert_eq!(lengths, [100, 60, 1000, 1200]);
//! # Ok(())
//! # }
//! ```

mod any;
mod bucket;
mod children;
mod fifo;
mod filter;
mod handle;
mod link;
mod mq;
mod pfifo_fast;
mod plan;
mod prio;
mod spec;
mod tbf;
mod tree;

use std::fmt;

pub use any::AnyQdisc;
pub use fifo::{Bfifo, Pfifo, PfifoHeadDrop};
pub use filter::{FilterSpec, Match, Prefix};
pub use handle::{BadHandle, Handle};
pub use link::{LinkCost, LinkLayer, WireSize, WireSum};
pub use mq::{MqSpec, MqprioSpec};
pub use pfifo_fast::{PRIO_TO_BAND, PfifoFast};
pub use plan::{Node, TreeError, TreeSpec};
pub use prio::{MAX_BANDS, Prio, PrioSpec};
pub use spec::{CustomSpec, QdiscEnv, QdiscSpec, SpecError, TbfSpec};
pub use tbf::Tbf;
pub use tree::{ClassStats, Tree};

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
    fn count_sent(&mut self, sum: WireSum) {
        self.bytes += sum.bytes;
        self.packets += sum.packets;
    }
}

#[cfg(all(test, not(miri)))]
mod filter_tests;
#[cfg(all(test, not(miri)))]
mod plan_tests;
#[cfg(all(test, not(miri)))]
mod tests;
#[cfg(all(test, not(miri)))]
mod tree_property_tests;
#[cfg(all(test, not(miri)))]
mod tree_tests;
