//! A tree with senders: flows that send as they are told, and TCP connections that react.
//!
//! Senders are before the tree; behind the link is half of a connection's round trip to its
//! receiver, and the other half is on the way back. Whoever drives it also lets packets of a
//! capture arrive. Everything that happens has a time and a number: the order is the same on every
//! run.

mod connections;
mod pages;

pub use connections::Connection;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::net::IpAddr;

use softnet::mem::{Packet, Pool};
use softnet::time::Time;
use softnet::wire::network_offset;

use super::flow::{Arrivals, Flow, FlowError};
use super::flows::{FlowReport, Seen};
use super::frame::Template;
use super::report::Report;
use super::windows::Windows;
use super::{Simulator, flow, is_marked};
use connections::{Event, Tcp};

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

/// A packet of a flow that left.
#[derive(Debug)]
struct Departed {
    at: Time,
    /// Number of the flow.
    seen: usize,
    number: u32,
    is_marked: bool,
    len: u64,
    sojourn: u64,
}

/// A tree with senders.
#[derive(Debug)]
pub struct World {
    pub(super) simulator: Simulator,
    pool: Pool,
    udp: Vec<Udp>,
    tcp: Vec<Tcp>,
    pub(super) seen: Vec<Seen>,
    /// The connection of each flow that is one.
    connections: Vec<Option<usize>>,
    keys: HashSet<Key>,
    /// The next arrival of each flow.
    arrivals: BinaryHeap<Reverse<(Time, usize)>>,
    pub(super) windows: Option<Windows>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    count: u64,
    departed: Vec<Departed>,
    /// Packets that were not sent because no buffer was free.
    pub no_buffer: u64,
}

impl World {
    /// No senders yet.
    pub fn new(mut simulator: Simulator, pool: &Pool) -> World {
        simulator.keeps_lost = true;
        World {
            simulator,
            pool: pool.clone(),
            udp: Vec::new(),
            tcp: Vec::new(),
            seen: Vec::new(),
            connections: Vec::new(),
            keys: HashSet::new(),
            arrivals: BinaryHeap::new(),
            windows: None,
            events: BinaryHeap::new(),
            count: 0,
            departed: Vec::new(),
            no_buffer: 0,
        }
    }

    fn watch(
        &mut self,
        name: &str,
        flow: &Flow,
        protocol: u8,
        tcp: Option<usize>,
    ) -> Result<usize, FlowError> {
        if self.seen.len() >= flow::MAX_FLOWS {
            return Err(FlowError::Many);
        }
        if !self.keys.insert(key(flow, protocol)) {
            return Err(FlowError::Same);
        }
        self.seen.push(Seen::new(name, flow.start, flow.duration));
        self.connections.push(tcp);
        Ok(self.seen.len() - 1)
    }

    /// Adds a flow.
    ///
    /// # Errors
    /// If it makes no sense, or cannot be told from another.
    pub fn add_flow(&mut self, name: &str, flow: Flow) -> Result<(), FlowError> {
        let arrivals = flow.arrivals()?;
        let template = Template::datagrams(&flow, *flow.size.end()).ok_or(FlowError::Size)?;
        let seen = self.watch(name, &flow, flow::UDP, None)?;
        let index = self.udp.len();
        self.udp.push(Udp {
            template,
            arrivals,
            len: 0,
            seen,
        });
        if let Some(time) = self.udp[index].draw() {
            self.arrivals.push(Reverse((time, index)));
        }
        Ok(())
    }

    /// Adds a flow whose packets are answered: each tells a round-trip time, which is `rtt` without
    /// queues.
    ///
    /// # Errors
    /// As [`add_flow`](World::add_flow).
    pub fn add_pings(&mut self, name: &str, flow: Flow, rtt: u64) -> Result<(), FlowError> {
        self.add_flow(name, flow)?;
        if let Some(seen) = self.seen.last_mut() {
            seen.set_echo(rtt);
        }
        Ok(())
    }

    /// The simulator, for what it has to tell.
    pub fn simulator(&mut self) -> &mut Simulator {
        &mut self.simulator
    }

    fn at(&mut self, time: Time, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    /// Time of what happens next by itself; none if nothing does.
    pub fn due(&self) -> Option<Time> {
        let udp = self.arrivals.peek().map(|Reverse((time, _))| *time);
        let event = self.events.peek().map(|Reverse((time, ..))| *time);
        [udp, event, self.simulator.due()]
            .into_iter()
            .flatten()
            .min()
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
        match self.due() {
            Some(now) => self.step_at(now, depart),
            None => Ok(()),
        }
    }

    fn step_at<E>(
        &mut self,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        self.turn(now);
        // What is due at this moment was asked for before.
        if self.simulator.due() == Some(now) {
            self.simulate(depart, |simulator, depart| simulator.run_until(now, depart))?;
            return Ok(());
        }
        if self
            .events
            .peek()
            .is_some_and(|Reverse((time, ..))| *time == now)
        {
            if let Some(Reverse((now, _, event))) = self.events.pop() {
                self.happen(now, event, depart)?;
            }
            return Ok(());
        }
        let Some(mut first) = self.arrivals.peek_mut() else {
            return Ok(());
        };
        let Reverse((now, index)) = *first;
        let udp = &mut self.udp[index];
        let (packet, seen) = (udp.template.packet(udp.len, &self.pool), udp.seen);
        match udp.draw() {
            Some(time) => {
                *first = Reverse((time, index));
                drop(first);
            }
            None => _ = PeekMut::pop(first),
        }
        self.send(packet, seen, now, depart)
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
        self.simulate(depart, |simulator, depart| {
            simulator.arrive(packet, now, depart)
        })
    }

    /// A packet of a flow arrives, if there was a buffer for it. There are no ports here: the
    /// number of the flow is in the place of the port of arrival, where whatever becomes of the
    /// packet leaves it.
    fn send<E>(
        &mut self,
        packet: Option<Packet>,
        seen: usize,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        self.seen[seen].now.sent += 1;
        let Some(mut packet) = packet else {
            self.no_buffer += 1;
            return Ok(());
        };
        // As many flows as there are numbers but 0.
        packet.set_port(seen as u16 + 1);
        self.arrive(packet, now, depart)
    }

    /// Has the simulator run, and notes what leaves.
    fn simulate<E, D: FnMut(Time, &Packet) -> Result<(), E>>(
        &mut self,
        depart: &mut D,
        run: impl FnOnce(
            &mut Simulator,
            &mut dyn FnMut(Time, &Packet) -> Result<(), E>,
        ) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut departed = std::mem::take(&mut self.departed);
        let (connections, tcp) = (&self.connections, &self.tcp);
        let result = run(&mut self.simulator, &mut |at, packet| {
            if let Some(seen) = usize::from(packet.port()).checked_sub(1) {
                let index = connections.get(seen).copied().flatten();
                let template = index.map(|index| &tcp[index].template);
                departed.push(departed_of(at, seen, packet, template));
            }
            depart(at, packet)
        });
        for left in departed.drain(..) {
            self.left(&left);
        }
        self.departed = departed;
        let mut lost = std::mem::take(&mut self.simulator.lost);
        for port in lost.drain(..) {
            let seen = usize::from(port).checked_sub(1);
            if let Some(seen) = seen.and_then(|seen| self.seen.get_mut(seen)) {
                seen.now.dropped += 1;
            }
        }
        self.simulator.lost = lost;
        result
    }

    /// A packet left: its receiver gets it half a round trip later.
    fn left(&mut self, left: &Departed) {
        let Some(seen) = self.seen.get_mut(left.seen) else {
            return;
        };
        seen.left(left.at, left.len, left.is_marked, left.sojourn);
        if let Some(index) = self.connections[left.seen] {
            let tcp = &self.tcp[index];
            let arrives = left.at.plus_nanos(tcp.connection.rtt / 2);
            let number = tcp.number(left.number);
            self.at(arrives, Event::Segment(index, number, left.is_marked));
        }
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
        while let Some(now) = self.due() {
            self.step_at(now, depart)?;
        }
        self.collect();
        let flows = self.seen.iter_mut().map(Seen::in_all).collect();
        Ok((self.simulator.finish(depart)?, flows))
    }
}

fn key(flow: &Flow, protocol: u8) -> Key {
    let (source, sport) = flow.source;
    let (destination, dport) = flow.destination;
    (source, destination, sport, dport, protocol)
}

/// Notes on a packet that leaves; with the template of its segments if it is of a connection.
fn departed_of(at: Time, seen: usize, packet: &Packet, segments: Option<&Template>) -> Departed {
    let data = packet.data();
    Departed {
        at,
        seen,
        number: segments.map_or(0, |of| of.number(data, network_offset(data))),
        is_marked: is_marked(packet),
        len: packet.wire_len(),
        sojourn: at.since(packet.timestamp()).as_nanos() as u64,
    }
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

#[cfg(all(test, not(miri)))]
#[path = "world_tests.rs"]
mod tests;
