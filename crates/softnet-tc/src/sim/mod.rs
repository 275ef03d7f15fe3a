//! A tree of qdiscs in virtual time: packets arrive when the caller says and leave when the tree
//! lets them. The same arrivals give the same departures, to the nanosecond, on every run.
//!
//! The [`Simulator`] does what a transmit queue and its worker do: it enqueues each arrival and
//! runs the queue; what is held back runs again at the time that the tree asked for. Behind the
//! tree is a link, which takes everything at once, or one packet after the other at a rate. It
//! reads no clock and starts no thread.

mod classes;
mod flow;
mod report;
pub mod tcp;
mod world;

pub use flow::{Arrivals, Flow, FlowError, Pattern};
pub use report::{ClassReport, Report, Sojourn};
pub use world::{Connection, FlowReport, World, jain};

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Qdisc, WireSize};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;

use self::classes::ClassTraces;
use crate::account::LinkCost;
use crate::tree::Tree;

/// Link behind the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimLink {
    /// Bytes per second; `None` takes everything at once.
    pub rate: Option<u64>,
    /// Cost of a packet beyond its length.
    pub cost: LinkCost,
}

/// A tree in virtual time.
#[derive(Debug)]
pub struct Simulator {
    tree: Tree,
    classes: ClassTraces,
    link: SimLink,
    now: Time,
    /// When the link can take the next packet, and what that nanosecond has to spare, in
    /// billionths of a byte.
    free: Time,
    remainder: u64,
    /// When the tree wants to be run again.
    timer: Option<Time>,
    cx: Cx,
    drops: DropCounters,
    offered: (u64, u64),
    first: Option<Time>,
}

impl Simulator {
    /// Nothing has arrived yet.
    pub fn new(tree: Tree, link: SimLink) -> Simulator {
        Simulator {
            cx: Cx::new(&tree.env().pool),
            tree,
            classes: ClassTraces::default(),
            link,
            now: Time::ZERO,
            free: Time::ZERO,
            remainder: 0,
            timer: None,
            drops: DropCounters::new(),
            offered: (0, 0),
            first: None,
        }
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Time at which something leaves, or the tree is to be asked again; none if nothing waits.
    pub fn due(&self) -> Option<Time> {
        self.timer
    }

    /// The tree, to change it between arrivals.
    pub fn tree(&mut self) -> (&mut Tree, &mut Cx) {
        (&mut self.tree, self.cx.at(self.now))
    }

    /// A packet arrives at `time`, or now if that has passed. What leaves until then goes to
    /// `depart` first, with the time at which the link begins to send it.
    ///
    /// # Errors
    /// The errors of `depart`; the simulation cannot go on then.
    pub fn arrive<E>(
        &mut self,
        mut packet: Packet,
        time: Time,
        depart: &mut (impl FnMut(Time, &Packet) -> Result<(), E> + ?Sized),
    ) -> Result<(), E> {
        // What is due at this very moment was asked for before the packet came.
        self.run_until(time, depart)?;
        self.now = self.now.max(time);
        self.first.get_or_insert(self.now);
        self.offered.0 += packet.wire_packets();
        self.offered.1 += packet.wire_len();
        packet.set_timestamp(self.now);
        let mut list = PacketList::from(packet);
        self.tree.enqueue(&mut list, self.cx.at(self.now));
        self.note(&PacketList::new());
        self.reinject();
        self.run(depart)
    }

    /// Lets everything leave that may leave up to `time`.
    ///
    /// # Errors
    /// As [`arrive`](Simulator::arrive).
    pub fn run_until<E>(
        &mut self,
        time: Time,
        depart: &mut (impl FnMut(Time, &Packet) -> Result<(), E> + ?Sized),
    ) -> Result<(), E> {
        while let Some(timer) = self.timer.filter(|&timer| timer <= time) {
            self.now = self.now.max(timer);
            self.run(depart)?;
        }
        Ok(())
    }

    /// Lets everything leave that ever will, and says what happened.
    ///
    /// # Errors
    /// As [`arrive`](Simulator::arrive).
    pub fn finish<E>(
        mut self,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<Report, E> {
        self.run_until(Time(u64::MAX - 1), depart)?;
        let span = self
            .first
            .map_or(0, |first| self.now.since(first).as_nanos() as u64);
        Ok(Report::new(
            &self.tree,
            &self.classes,
            self.offered,
            span,
            self.drops.nonzero(),
        ))
    }

    /// Runs the queue as long as something may leave now.
    fn run<E>(
        &mut self,
        depart: &mut (impl FnMut(Time, &Packet) -> Result<(), E> + ?Sized),
    ) -> Result<(), E> {
        self.timer = None;
        loop {
            if self.free > self.now {
                // The link is sending; the tree is asked again when it is free.
                self.timer = (self.tree.stats().qlen > 0).then_some(self.free);
                return Ok(());
            }
            // One frame at a time, so that the classes' numbers tell which it concerns.
            let mut out = PacketList::new();
            let next = self.tree.dequeue(1, &mut out, self.cx.at(self.now));
            self.note(&out);
            let again = self.reinject();
            let empty = out.is_empty();
            for packet in out {
                self.occupy(&packet);
                depart(self.now, &packet)?;
            }
            match next {
                _ if again => {}
                Next::Idle => return Ok(()),
                Next::At(time) => {
                    // Later than now, whatever a qdisc from outside says: time has to go on.
                    self.timer = Some(time.max(self.now.plus_nanos(1)).max(self.free));
                    return Ok(());
                }
                Next::Ready if empty => {
                    self.timer = Some(self.now.plus_nanos(1));
                    return Ok(());
                }
                Next::Ready => {}
            }
        }
    }

    /// Enqueues at the root what a qdisc wants to have there: once, as a transmit queue does.
    /// False: there was nothing.
    fn reinject(&mut self) -> bool {
        if self.cx.reinject.is_empty() {
            return false;
        }
        let mut again = self.cx.reinject.take();
        if std::mem::take(&mut self.cx.copied) > 0 {
            self.offered.0 += again.wire_packets();
            self.offered.1 += again.iter().map(Packet::wire_len).sum::<u64>();
        }
        self.tree.enqueue(&mut again, self.cx.at(self.now));
        let more = self.cx.reinject.take();
        self.cx.dropped.append(more, DropReason::RecursionLimit);
        self.note(&PacketList::new());
        true
    }

    /// Notes what left and what was dropped, and frees the latter.
    fn note(&mut self, left: &PacketList) {
        self.classes
            .step(&self.tree, left, &self.cx.dropped, self.now);
        self.cx.dropped.settle(&self.drops);
    }

    /// The link sends a packet from now on. Exact: what a nanosecond has left over is kept for the
    /// next packet that follows at once.
    fn occupy(&mut self, packet: &Packet) {
        let Some(rate) = self.link.rate.filter(|&rate| rate > 0) else {
            return;
        };
        let need = u128::from(self.link.cost.cost(WireSize::from(packet))) * 1_000_000_000;
        let saved = if self.free == self.now {
            self.remainder
        } else {
            0
        };
        let owed = need.saturating_sub(u128::from(saved));
        let nanos = owed.div_ceil(u128::from(rate));
        let spare = nanos * u128::from(rate) + u128::from(saved) - need;
        self.remainder = u64::try_from(spare).unwrap_or(u64::MAX);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.free = self.now.plus_nanos(nanos);
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
