//! A child of a qdisc: what is attached to a class, and a packet that was taken out of it to look
//! at its length.

use std::sync::Arc;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, WireSize};
use softnet::sync::prefetch;
use softnet::time::Time;

use super::counters::{ClassCounters, apply};
use crate::qdisc::AnyQdisc;

/// -1 modulo 2^64.
const MINUS: u64 = u64::MAX;

/// A packet that was taken out. It counts as the child's until it leaves.
#[derive(Debug, Default)]
struct Stash {
    packet: Option<Packet>,
    /// Difference that the present call made by putting a packet here or taking it from here: the
    /// qdisc counts it as sent, the child as queued.
    change: QdiscStats,
}

/// A child. What most packets need is in its first two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Child {
    pub(super) qdisc: AnyQdisc,
    /// The child's statistics, as its parent has taken them over.
    pub(super) counters: Arc<ClassCounters>,
    /// There once a packet has been taken out to look at its length, of a qdisc that cannot
    /// [`peek`](Qdisc::peek): not of a `pfifo`.
    stash: Option<Box<Stash>>,
    /// The child is the one that its parent came with.
    pub(super) default: bool,
    /// It asks for the time of the push.
    pub(super) wants_enqueue_time: bool,
    /// The class's number.
    pub(super) minor: u16,
}

impl Child {
    /// A class's own qdisc.
    pub(crate) fn new(qdisc: AnyQdisc) -> Box<Child> {
        Box::new(Child {
            qdisc,
            stash: None,
            counters: Arc::default(),
            default: true,
            wants_enqueue_time: false,
            minor: 0,
        })
    }

    pub(crate) fn qdisc_mut(&mut self) -> &mut AnyQdisc {
        &mut self.qdisc
    }

    pub(crate) fn counters(&self) -> &Arc<ClassCounters> {
        &self.counters
    }

    /// True if it is the qdisc that the parent came with.
    pub(crate) fn is_default(&self) -> bool {
        self.default
    }

    /// True if the class has no queue: it has classes below it.
    pub(crate) fn is_inner(&self) -> bool {
        self.qdisc.is_noqueue()
    }

    /// Asks for the lines that most packets need.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&raw const self.qdisc);
        prefetch(&raw const self.counters);
    }

    /// The stashed packet. A `pfifo` has none, and its stash is in a cache line of its own.
    #[inline]
    fn stashed(&self) -> Option<&Packet> {
        match self.qdisc {
            AnyQdisc::Pfifo(_) => None,
            _ => self.stash.as_ref()?.packet.as_ref(),
        }
    }

    /// True if a packet is stashed.
    #[inline]
    pub(super) fn has_stash(&self) -> bool {
        let stash = self.stash.as_ref();
        stash.is_some_and(|stash| stash.packet.is_some())
    }

    fn take_stashed(&mut self) -> Option<Packet> {
        self.stash.as_mut()?.packet.take()
    }

    /// Takes the difference that the stash made in the present call.
    pub(super) fn take_change(&mut self) -> QdiscStats {
        let stash = self.stash.as_mut();
        stash.map_or_else(QdiscStats::default, |stash| {
            std::mem::take(&mut stash.change)
        })
    }

    /// True if nothing is queued.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.qdisc.stats().qlen == 0 && self.stashed().is_none()
    }

    /// Packets that are queued.
    #[inline]
    pub(crate) fn qlen(&self) -> u64 {
        let stashed = self.stashed().map_or(0, Packet::wire_packets);
        self.qdisc.stats().qlen + stashed
    }

    /// Flows with packets; see [`AnyQdisc::flows`].
    pub(crate) fn flows(&self) -> u16 {
        self.qdisc.flows().max(u16::from(self.has_stash()))
    }

    /// As [`Qdisc::dequeue`]; the stash leaves first.
    #[inline]
    pub(crate) fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        if !self.has_stash() {
            return self.qdisc.dequeue(budget, out, cx);
        }
        self.dequeue_stash(budget, out, cx)
    }

    #[cold]
    fn dequeue_stash(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        if budget == 0 {
            return Next::Ready;
        }
        let mut left = budget;
        if let Some(packet) = self.take_stashed() {
            left = left.saturating_sub(packet.wire_packets() as usize);
            self.note_stash(&packet, 1, MINUS);
            out.push_back(packet);
        }
        self.qdisc.dequeue(left, out, cx)
    }

    /// Packet that leaves next; never [`Peek::Unknown`]. The next [`dequeue`](Child::dequeue) at
    /// this time returns it (INV-Q-9).
    pub(crate) fn peek(&mut self, cx: &mut Cx) -> Peek {
        match self.peek_only(cx.now) {
            known @ (Peek::Packet(_) | Peek::Idle) => return known,
            // It is asked all the same: it counts that nothing may leave yet, as in the kernel.
            Peek::At(_) | Peek::Unknown => {}
        }
        let mut one = PacketList::new();
        let next = self.qdisc.dequeue(1, &mut one, cx);
        match (one.pop_front(), next) {
            (Some(packet), _) => {
                let size = WireSize::from(&packet);
                self.note_stash(&packet, MINUS, 1);
                self.stash.get_or_insert_default().packet = Some(packet);
                Peek::Packet(size)
            }
            (None, Next::Idle) => Peek::Idle,
            (None, Next::At(time)) => Peek::At(time),
            // Says that more is ready, and returns nothing: try again, but not at once.
            (None, Next::Ready) => Peek::At(cx.now.plus_nanos(1)),
        }
    }

    /// Packet that leaves next, if that can be told without taking it out.
    #[inline]
    pub(crate) fn peek_only(&self, now: Time) -> Peek {
        match self.stashed() {
            Some(packet) => Peek::Packet(packet.into()),
            None => self.qdisc.peek(now),
        }
    }

    /// Counts `packet` so many times (modulo 2^64) as sent and as queued.
    pub(super) fn note_stash(&mut self, packet: &Packet, sent: u64, queued: u64) {
        let (bytes, packets) = packet.wire();
        let change = QdiscStats {
            bytes: bytes.wrapping_mul(sent),
            packets: packets.wrapping_mul(sent),
            qlen: queued,
            backlog: bytes.wrapping_mul(queued),
            queued: packets.wrapping_mul(queued),
            memory: packet.memory().wrapping_mul(queued),
            ..QdiscStats::default()
        };
        apply(&mut self.stash.get_or_insert_default().change, &change);
    }

    pub(super) fn drain(&mut self, out: &mut PacketList) {
        if let Some(packet) = self.take_stashed() {
            self.note_stash(&packet, 0, MINUS);
            out.push_back(packet);
        }
        self.qdisc.drain(out);
    }
}
