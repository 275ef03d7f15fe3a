//! A tree with senders: flows that send as they are told, and TCP connections that react.
//!
//! Senders are before the tree; behind the link is half of a connection's round trip to its
//! receiver, and the other half is on the way back. That has no queue, or a tree and a link of its
//! own: then answers are packets there, and others may send there, too, and be answered here.
//!
//! Whoever drives it also lets packets of a capture arrive. Everything that happens has a time and
//! a number: the order is the same on every run.

mod answers;
mod connections;
mod pages;
mod passing;
mod schedule;

pub use connections::Connection;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::net::IpAddr;

use softnet::mem::{Packet, Pool};
use softnet::time::Time;

use super::flow::{Arrivals, Direction, Flow, FlowError};
use super::flows::{FlowReport, Seen};
use super::frame::Template;
use super::report::Report;
use super::windows::Windows;
use super::{Simulator, flow};
use answers::Replies;
use connections::{Event, Tcp};
use schedule::Schedule;

/// Key that tells flows apart: addresses, ports, protocol.
type Key = (IpAddr, IpAddr, u16, u16, u8);

#[derive(Debug)]
struct Udp {
    template: Template,
    arrivals: Arrivals,
    /// Length of the frame that is due.
    len: u16,
    seen: usize,
}

impl Udp {
    /// Draws the next arrival; returned is when it comes.
    fn draw(&mut self) -> Option<Time> {
        let (time, len) = self.arrivals.next()?;
        self.len = len;
        Some(time)
    }
}

/// Kind of a flow, with what answers it as a packet.
#[derive(Debug)]
enum Kind {
    /// Nothing.
    Datagrams,
    /// It is the connection of this number.
    Connection(usize),
    /// Replies.
    Pings(Replies),
}

/// Events to come. Those of one time happen in the order in which they were added.
#[derive(Debug, Default)]
struct Events {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    count: u64,
}

impl Events {
    fn add(&mut self, time: Time, event: Event) {
        self.count += 1;
        self.heap.push(Reverse((time, self.count, event)));
    }
}

/// Who is next. Of several at the same time the first one here: what waits in a tree was asked for
/// before.
#[derive(Clone, Copy, Debug)]
enum Next {
    Tree(Direction),
    Event,
    /// An arrival of the flow of this number.
    Arrival(usize),
}

/// A tree with senders.
#[derive(Debug)]
pub struct World {
    pub(super) simulator: Simulator,
    /// Tree of the reverse direction.
    pub(super) reverse: Option<Simulator>,
    pool: Pool,
    udp: Vec<Udp>,
    tcp: Vec<Tcp>,
    pub(super) seen: Vec<Seen>,
    /// Kind of each flow.
    kinds: Vec<Kind>,
    keys: HashSet<Key>,
    /// The next arrival of each flow.
    arrivals: Schedule,
    pub(super) windows: Option<Windows>,
    events: Events,
    /// Packets that were not sent because no buffer was free.
    pub no_buffer: u64,
    /// The same in the reverse direction.
    pub reverse_no_buffer: u64,
}

impl World {
    /// No senders yet.
    pub fn new(mut simulator: Simulator, pool: &Pool) -> World {
        simulator.keeps_lost = true;
        World {
            simulator,
            reverse: None,
            pool: pool.clone(),
            udp: Vec::new(),
            tcp: Vec::new(),
            seen: Vec::new(),
            kinds: Vec::new(),
            keys: HashSet::new(),
            arrivals: Schedule::default(),
            windows: None,
            events: Events::default(),
            no_buffer: 0,
            reverse_no_buffer: 0,
        }
    }

    /// With a tree for the reverse direction, of the same packet pool. To be called before senders
    /// are added: without it, nothing that answers them waits or is lost.
    #[must_use]
    pub fn with_reverse(mut self, mut simulator: Simulator) -> World {
        simulator.keeps_lost = true;
        self.reverse = Some(simulator);
        self
    }

    fn watch(
        &mut self,
        name: &str,
        flow: &Flow,
        protocol: u8,
        kind: Kind,
    ) -> Result<usize, FlowError> {
        if flow.direction == Direction::Reverse && self.reverse.is_none() {
            return Err(FlowError::Direction);
        }
        if self.seen.len() >= flow::MAX_FLOWS {
            return Err(FlowError::Many);
        }
        if !self.keys.insert(key(flow, protocol)) {
            return Err(FlowError::Same);
        }
        self.seen.push(Seen::new(name, flow));
        self.kinds.push(kind);
        Ok(self.seen.len() - 1)
    }

    /// Adds a flow.
    ///
    /// # Errors
    /// If it makes no sense, or cannot be told from another.
    pub fn add_flow(&mut self, name: &str, flow: Flow) -> Result<(), FlowError> {
        let arrivals = flow.arrivals()?;
        let template = Template::datagrams(&flow, *flow.size.end()).ok_or(FlowError::Size)?;
        let seen = self.watch(name, &flow, flow::UDP, Kind::Datagrams)?;
        let index = self.udp.len();
        self.udp.push(Udp {
            template,
            arrivals,
            len: 0,
            seen,
        });
        if let Some(time) = self.udp[index].draw() {
            self.arrivals.add((time, index));
        }
        Ok(())
    }

    /// Adds a flow whose packets are answered: each tells a round-trip time, which is `rtt` without
    /// queues. Where answers pass a tree, a reply is as long as what it answers, but has room for a
    /// time: 50 bytes at least (IPv6: 70).
    ///
    /// # Errors
    /// As [`add_flow`](World::add_flow).
    pub fn add_pings(&mut self, name: &str, flow: Flow, rtt: u64) -> Result<(), FlowError> {
        let replies = self.reverse.as_ref().map(|_| Replies::to(&flow, rtt));
        self.add_flow(name, flow)?;
        match (replies, self.kinds.last_mut(), self.seen.last_mut()) {
            (Some(Some(replies)), Some(kind), _) => *kind = Kind::Pings(replies),
            (_, _, Some(seen)) => seen.set_echo(rtt),
            _ => {}
        }
        Ok(())
    }

    /// The simulator, for what it has to tell.
    pub fn simulator(&mut self) -> &mut Simulator {
        &mut self.simulator
    }

    /// When something happens next by itself, and what.
    #[inline]
    fn next(&self) -> Option<(Time, Next)> {
        let arrival = self.arrivals.first();
        let mut next = arrival.map(|(time, flow)| (time, Next::Arrival(flow)));
        let mut or = |time: Option<Time>, what| {
            if let Some(time) = time
                && next.is_none_or(|(other, _)| time <= other)
            {
                next = Some((time, what));
            }
        };
        let event = self.events.heap.peek();
        or(event.map(|Reverse((time, ..))| *time), Next::Event);
        let reverse = self.reverse.as_ref().and_then(Simulator::due);
        or(reverse, Next::Tree(Direction::Reverse));
        or(self.simulator.due(), Next::Tree(Direction::Forward));
        next
    }

    /// Time of what happens next by itself; none if nothing does.
    pub fn due(&self) -> Option<Time> {
        self.next().map(|(time, _)| time)
    }

    /// Has what is [`due`](World::due) happen. What leaves goes to `depart`, with the time at
    /// which the link begins to send it.
    ///
    /// # Errors
    /// The errors of `depart`; the simulation cannot go on then.
    pub fn step<E>(
        &mut self,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.next() {
            Some(next) => self.step_to(next, depart),
            None => Ok(()),
        }
    }

    fn step_to<E>(
        &mut self,
        (now, next): (Time, Next),
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        self.turn(now);
        match next {
            Next::Tree(direction) => self.simulate(direction, depart, |simulator, depart| {
                simulator.run_until(now, depart)
            }),
            Next::Event => match self.events.heap.pop() {
                Some(Reverse((.., event))) => self.happen(now, event, depart),
                None => Ok(()),
            },
            Next::Arrival(flow) => {
                let udp = &mut self.udp[flow];
                let (packet, seen) = (udp.template.packet(udp.len, &self.pool), udp.seen);
                self.arrivals.happened(udp.draw());
                self.send(packet, seen, now, depart)
            }
        }
    }

    /// A packet of somebody else arrives.
    ///
    /// # Errors
    /// As [`step`](World::step).
    pub fn arrive<E>(
        &mut self,
        packet: Packet,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        self.turn(now);
        self.simulate(Direction::Forward, depart, |simulator, depart| {
            simulator.arrive(packet, now, depart)
        })
    }

    /// A packet of a flow arrives, if there was a buffer for it.
    fn send<E>(
        &mut self,
        packet: Option<Packet>,
        seen: usize,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        let of = &mut self.seen[seen];
        of.now.sent += 1;
        let direction = of.direction;
        self.enter(packet, (seen, direction), now, depart)
    }

    /// A packet of a flow, or an answer to it, arrives at the tree of its direction. There are no
    /// ports here: the number of the flow is in the place of the port of arrival, where whatever
    /// becomes of the packet leaves it.
    fn enter<E>(
        &mut self,
        packet: Option<Packet>,
        (seen, direction): (usize, Direction),
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(mut packet) = packet else {
            match direction {
                Direction::Forward => self.no_buffer += 1,
                Direction::Reverse => self.reverse_no_buffer += 1,
            }
            return Ok(());
        };
        // As many flows as there are numbers but 0.
        packet.set_port(seen as u16 + 1);
        self.simulate(direction, depart, |simulator, depart| {
            simulator.arrive(packet, now, depart)
        })
    }

    /// Lets everything leave that ever will, and says what happened: of the tree, and of each flow
    /// and connection in the order in which they were added.
    ///
    /// # Errors
    /// As [`step`](World::step).
    pub fn finish<E>(
        mut self,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(Report, Vec<FlowReport>), E> {
        while let Some(next) = self.next() {
            self.step_to(next, depart)?;
        }
        self.collect();
        let flows = self.seen.iter_mut().map(Seen::in_all).collect();
        let reverse = match self.reverse.take() {
            Some(reverse) => {
                let report = reverse.finish(&mut |_: Time, _: &Packet| Ok::<(), E>(()))?;
                Some(Box::new(report))
            }
            None => None,
        };
        let report = Report {
            reverse,
            ..self.simulator.finish(depart)?
        };
        Ok((report, flows))
    }
}

fn key(flow: &Flow, protocol: u8) -> Key {
    let (source, sport) = flow.source;
    let (destination, dport) = flow.destination;
    (source, destination, sport, dport, protocol)
}

/// Jain's index of these rates: 1 if all are equal, 1/n if one has all.
pub fn jain(rates: impl IntoIterator<Item = u64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for rate in rates {
        let rate = rate as f64;
        (n, sum, squares) = (n + 1.0, sum + rate, squares + rate * rate);
    }
    match squares > 0.0 {
        true => sum * sum / (n * squares),
        false => 1.0,
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod reverse_tests;
#[cfg(all(test, not(any(loom, miri))))]
#[path = "world_tests.rs"]
mod tests;
