//! Qdiscs: which packet leaves next, and when.
//!
//! A qdisc is single-threaded: the [owner of the queue](crate::tx::TxQueue) calls it. It works on
//! lists, is told the time and reads no clock, allocates nothing for each packet, and frees
//! nothing itself. Everything that it needs besides packets is in the [`Cx`] of the call. It
//! counts as the kernel does: packets and bytes as they leave, a large frame as its wire packets
//! and wire bytes; drops where they happen.
//!
//! Here are those that need nothing else: FIFOs, `pfifo_fast` and `noqueue`. Qdiscs with classes,
//! and the tree of a device, are in the crate `softnet-tc`.
//!
//! # A qdisc of one's own
//!
//! A queue that sends the newest packet first:
//!
//! ```
//! use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
//! use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict};
//! use softnet::stats::DropReason;
//!
//! #[derive(Debug, Default)]
//! struct Lifo {
//!     stack: Vec<Packet>,
//!     stats: QdiscStats,
//! }
//!
//! impl Qdisc for Lifo {
//!     fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
//!         let mut verdict = Verdict::Queued;
//!         while let Some(packet) = packets.pop_front() {
//!             if self.stack.len() == 1000 {
//!                 self.stats.drops += 1;
//!                 cx.dropped.push(packet, DropReason::QdiscLimit);
//!                 verdict = Verdict::Dropped;
//!             } else {
//!                 self.stats.count_queued(&packet);
//!                 self.stack.push(packet);
//!             }
//!         }
//!         verdict
//!     }
//!
//!     fn dequeue(&mut self, budget: usize, out: &mut PacketList, _: &mut Cx) -> Next {
//!         let end = self.stats.packets + budget as u64;
//!         while self.stats.packets < end {
//!             let Some(packet) = self.stack.pop() else {
//!                 return Next::Idle;
//!             };
//!             self.stats.count_dequeued(&packet);
//!             out.push_back(packet);
//!         }
//!         Next::Ready
//!     }
//!
//!     fn drain(&mut self, out: &mut PacketList) {
//!         self.stats.count_drained();
//!         out.extend(self.stack.drain(..).rev());
//!     }
//!
//!     fn stats(&self) -> &QdiscStats {
//!         &self.stats
//!     }
//! }
//!
//! let pool = Pool::new(PoolConfig { buffers: 64, buffer_size: 2048 })?;
//! let mut cx = Cx::new(&pool);
//! let mut lifo = Lifo::default();
//! let mut packets = PacketList::new();
//! for mark in 1..=3 {
//!     let mut packet = pool.alloc()?;
//!     packet.append(&[0; 60]);
//!     packet.set_mark(mark);
//!     packets.push_back(packet);
//! }
//! assert_eq!(lifo.enqueue(&mut packets, &mut cx), Verdict::Queued);
//! assert_eq!((lifo.stats().qlen, lifo.stats().backlog), (3, 180));
//! let mut out = PacketList::new();
//! assert_eq!(lifo.dequeue(2, &mut out, &mut cx), Next::Ready);
//! assert_eq!(out.iter().map(Packet::mark).collect::<Vec<_>>(), [3, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Device`](crate::tx::Device) takes it as it is; in a `softnet-tc` tree it is a `CustomSpec`.

mod cx;
mod elsewhere;
mod fifo;
mod noqueue;
mod pfifo_fast;
mod stats;
mod wire_size;

use std::fmt;

pub use cx::Cx;
pub use elsewhere::{Elsewhere, Target, To};
pub use fifo::{Bfifo, Fifo, Pfifo};
pub use noqueue::Noqueue;
#[doc(hidden)]
pub use pfifo_fast::PRIO_TO_BAND;
pub use pfifo_fast::PfifoFast;
#[doc(hidden)]
pub use stats::QdiscStat;
pub use stats::QdiscStats;
pub use wire_size::{WireSize, WireSum};

use crate::mem::PacketList;
use crate::stats::ClassPath;
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

/// Packet that would leave a qdisc next.
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

/// Fate of enqueued packets (`NET_XMIT_*`). Ordered: of several, the last is the worst.
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

/// A qdisc. See the [module](self) for one of one's own.
///
/// A call that panics, where the program unwinds, takes the queue out of use, as that of a
/// [driver](crate::tx::TxRing).
pub trait Qdisc: Send + fmt::Debug {
    /// Takes all packets of `packets`, in order; what it refuses goes to [`Cx::dropped`]. Returns
    /// the worst verdict among them (INV-TX-9).
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict;

    /// Lets all of `packets` pass at once, in this order and without being enqueued, if nothing is
    /// queued and they would be neither refused, delayed nor reordered (the kernel's
    /// `TCQ_F_CAN_BYPASS`). True: they are charged and counted as sent, and the caller sends them.
    /// False: nothing has changed. `sum` is that of `packets`.
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let _ = (packets, sum, cx);
        false
    }

    /// Appends frames to `out` until they stand for `budget` wire packets or more. Stops earlier
    /// only if nothing more may leave now. Only what leaves is charged, so few are dropped before
    /// each.
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next;

    /// The packet that [`dequeue`](Qdisc::dequeue) at this time would return first. Changes
    /// nothing, and so can drop nothing (INV-Q-9). A qdisc that cannot tell, because it decides
    /// only as it takes a packet out, leaves this as it is: `Unknown`, unless nothing is queued.
    #[inline]
    fn peek(&self, now: Time) -> Peek {
        let _ = now;
        if self.stats().qlen == 0 {
            Peek::Idle
        } else {
            Peek::Unknown
        }
    }

    /// Moves everything queued to `out`, at once, without shaping and without counting it as sent.
    fn drain(&mut self, out: &mut PacketList);

    /// True if [`Packet::timestamp`](crate::mem::Packet::timestamp) is to be the time at which the
    /// packet was sent to this queue, by a sender that may not be the owner, for sojourn times and
    /// AQM. Asked when the qdisc is installed or changed. What was sent before then has an earlier
    /// time, or none ([`Time::ZERO`]). A [departure time](crate::mem::Packet::departure_time)
    /// stays.
    fn wants_enqueue_time(&self) -> bool {
        false
    }

    /// Adds the classes that the last enqueue or dequeue of one packet was about to `path`, and
    /// forgets them.
    #[doc(hidden)]
    fn take_classes(&mut self, path: &mut ClassPath) {
        let _ = path;
    }

    /// True if nothing is kept: what the driver does not take at once is dropped (`noqueue`).
    fn is_noqueue(&self) -> bool {
        false
    }

    /// The statistics that `tc -s qdisc` shows. They are right whenever no call is under way.
    fn stats(&self) -> &QdiscStats;
}
