//! A tree with senders: flows that send as they are told, and TCP connections that react.
//!
//! Senders are before the tree; behind the link is half of a connection's round trip to its
//! receiver, and the other half is on the way back. Whoever drives it also lets packets of a
//! capture arrive. Everything that happens has a time and a number: the order is the same on every
//! run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::iter::Peekable;
use std::net::IpAddr;

use softnet::mem::{Packet, Pool};
use softnet::time::Time;

use super::flow::{Arrivals, Flow, FlowError};
use super::report::{Report, Sojourn};
use super::tcp::{Acknowledgment, Algorithm, MSS, Receiver, Sender};
use super::{Simulator, flow};

/// A connection to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// Congestion control of the sender.
    pub algorithm: Algorithm,
    /// The sender and the receiver use ECN (RFC 3168); with [`Algorithm::Dctcp`] its packets ask
    /// for L4S (ECT(1), RFC 9331).
    pub ecn: bool,
    /// Round-trip time without queues, ns.
    pub rtt: u64,
    /// When it begins.
    pub start: Time,
    /// Time for which it sends, ns.
    pub duration: u64,
    /// Bytes that it sends at most.
    pub bytes: Option<u64>,
    /// Addresses, ports and marks of its packets. Rate, size and pattern have no meaning.
    pub flow: Flow,
}

/// Fate of a flow or connection.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// Name of the flow.
    pub name: String,
    /// Packets that it sent into the tree.
    pub sent: u64,
    /// Packets that left the tree.
    pub delivered: u64,
    /// Bytes of frames that left the tree.
    pub bytes: u64,
    /// Packets that left with a congestion mark.
    pub marked: u64,
    /// Bits per second that left from its start to its end.
    pub rate: u64,
    /// Time in the tree, ns.
    pub sojourn: Sojourn,
    /// Round-trip times of a connection, ns.
    pub rtt: Sojourn,
    /// Segments that a connection sent again.
    pub again: u64,
}

/// Key that tells flows apart: addresses, ports, protocol.
type Key = (IpAddr, IpAddr, u16, u16, u8);

/// Counters of a flow's packets.
#[derive(Debug, Default)]
struct Seen {
    name: String,
    /// Time for which it is to send, ns.
    duration: u64,
    start: Time,
    sent: u64,
    delivered: u64,
    bytes: u64,
    /// Bytes that left while it was to send.
    in_time: u64,
    marked: u64,
    sojourns: Vec<u64>,
    /// The last packet's departure.
    last: Time,
}

impl Seen {
    /// The end of the time for which it is to send.
    fn end(&self) -> Time {
        self.start.plus_nanos(self.duration)
    }
}

#[derive(Debug)]
struct Udp {
    flow: Flow,
    arrivals: Peekable<Arrivals>,
    seen: usize,
}

#[derive(Debug)]
struct Tcp {
    connection: Connection,
    sender: Sender,
    receiver: Receiver,
    seen: usize,
    /// Times for which an event of the kind is in the heap.
    timer: Option<Time>,
    pace: Option<Time>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start(usize),
    End(usize),
    /// A segment reaches its receiver, with a mark or not.
    Segment(usize, u64, bool),
    /// The receiver has waited long enough.
    Delayed(usize),
    Acknowledged(usize, Acknowledgment),
    Timeout(usize),
    Paced(usize),
}

/// A packet that left: the connection or flow, its number, its mark.
#[derive(Debug)]
struct Departed {
    at: Time,
    key: Option<Key>,
    number: u32,
    is_marked: bool,
    len: u64,
    sojourn: u64,
}

/// A tree with senders.
#[derive(Debug)]
pub struct World {
    simulator: Simulator,
    pool: Pool,
    udp: Vec<Udp>,
    tcp: Vec<Tcp>,
    seen: Vec<Seen>,
    keys: HashMap<Key, (usize, Option<usize>)>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    count: u64,
    departed: Vec<Departed>,
    /// Packets that were not sent because no buffer was free.
    pub no_buffer: u64,
}

impl World {
    /// No senders yet.
    pub fn new(simulator: Simulator, pool: &Pool) -> World {
        World {
            simulator,
            pool: pool.clone(),
            udp: Vec::new(),
            tcp: Vec::new(),
            seen: Vec::new(),
            keys: HashMap::new(),
            events: BinaryHeap::new(),
            count: 0,
            departed: Vec::new(),
            no_buffer: 0,
        }
    }

    fn watch(&mut self, name: &str, flow: &Flow, protocol: u8, tcp: Option<usize>) -> usize {
        let key = key(flow, protocol);
        // Flows that look alike are told apart by nobody.
        if let Some(&(seen, _)) = self.keys.get(&key) {
            return seen;
        }
        let seen = self.seen.len();
        self.seen.push(Seen {
            name: name.to_owned(),
            duration: flow.duration,
            start: flow.start,
            ..Seen::default()
        });
        self.keys.insert(key, (seen, tcp));
        seen
    }

    /// Adds a flow.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn add_flow(&mut self, name: &str, flow: Flow) -> Result<(), FlowError> {
        let arrivals = flow.arrivals()?.peekable();
        let seen = self.watch(name, &flow, flow::UDP, None);
        self.udp.push(Udp {
            flow,
            arrivals,
            seen,
        });
        Ok(())
    }

    /// Adds a connection.
    ///
    /// # Errors
    /// If its addresses or marks make no sense.
    pub fn add_connection(&mut self, name: &str, connection: Connection) -> Result<(), FlowError> {
        // Rate and size are not its own.
        Flow {
            rate: 1,
            size: 1514..=1514,
            ..connection.flow.clone()
        }
        .arrivals()?;
        let of = Flow {
            start: connection.start,
            duration: connection.duration,
            ..connection.flow.clone()
        };
        let index = self.tcp.len();
        let seen = self.watch(name, &of, flow::TCP, Some(index));
        let all = connection
            .bytes
            .map_or(u64::MAX, |bytes| bytes.div_ceil(MSS));
        self.at(connection.start, Event::Start(index));
        let end = connection.start.plus_nanos(connection.duration);
        self.at(end, Event::End(index));
        self.tcp.push(Tcp {
            sender: Sender::new(connection.algorithm, all, connection.ecn),
            connection,
            receiver: Receiver::default(),
            seen,
            timer: None,
            pace: None,
        });
        Ok(())
    }

    fn at(&mut self, time: Time, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    /// Time of what happens next by itself; none if nothing does.
    pub fn due(&mut self) -> Option<Time> {
        let udp = self.udp.iter_mut().filter_map(|udp| udp.arrivals.peek());
        let udp = udp.map(|&(time, _)| time).min();
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
        let Some(now) = self.due() else {
            return Ok(());
        };
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
        let udp = self.udp.iter_mut().position(|udp| {
            let next = udp.arrivals.peek();
            next.is_some_and(|&(time, _)| time == now)
        });
        let Some(udp) = udp.and_then(|index| self.udp.get_mut(index)) else {
            return Ok(());
        };
        let len = udp.arrivals.next().map_or(0, |(_, len)| len);
        let (packet, seen) = (udp.flow.packet(len, &self.pool), udp.seen);
        self.seen[seen].sent += 1;
        match packet {
            Some(packet) => self.arrive(packet, now, depart),
            None => {
                self.no_buffer += 1;
                Ok(())
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
        self.simulate(depart, |simulator, depart| {
            simulator.arrive(packet, now, depart)
        })
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
        let result = run(&mut self.simulator, &mut |at, packet| {
            departed.push(seen_of(at, packet));
            depart(at, packet)
        });
        for left in departed.drain(..) {
            self.left(&left);
        }
        self.departed = departed;
        result
    }

    /// A packet left: its receiver gets it half a round trip later.
    fn left(&mut self, left: &Departed) {
        let known = left.key.and_then(|key| self.keys.get(&key));
        let Some(&(seen, tcp)) = known else {
            return;
        };
        let seen = &mut self.seen[seen];
        seen.delivered += 1;
        seen.bytes += left.len;
        if left.at <= seen.end() {
            seen.in_time += left.len;
        }
        seen.marked += u64::from(left.is_marked);
        seen.sojourns.push(left.sojourn);
        seen.last = left.at;
        if let Some(index) = tcp {
            let half = self.tcp[index].connection.rtt / 2;
            let arrives = left.at.plus_nanos(half);
            // Numbers on the wire have 32 bits; no window is near half of that.
            let number = u64::from(left.number);
            self.at(arrives, Event::Segment(index, number, left.is_marked));
        }
    }

    fn happen<E>(
        &mut self,
        now: Time,
        event: Event,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        match event {
            Event::Start(index) => self.transmit(index, now, depart),
            Event::End(index) => {
                self.tcp[index].sender.end();
                Ok(())
            }
            Event::Segment(index, number, is_marked) => {
                let tcp = &mut self.tcp[index];
                let before = tcp.receiver.due();
                let told = tcp.receiver.arrived(now, number, is_marked);
                let half = tcp.connection.rtt - tcp.connection.rtt / 2;
                let due = tcp.receiver.due().filter(|_| tcp.receiver.due() != before);
                if let Some(told) = told {
                    self.at(now.plus_nanos(half), Event::Acknowledged(index, told));
                }
                if let Some(due) = due {
                    self.at(due, Event::Delayed(index));
                }
                Ok(())
            }
            Event::Delayed(index) => {
                let tcp = &mut self.tcp[index];
                if tcp.receiver.due().is_some_and(|due| due <= now)
                    && let Some(told) = tcp.receiver.acknowledge()
                {
                    let half = tcp.connection.rtt - tcp.connection.rtt / 2;
                    self.at(now.plus_nanos(half), Event::Acknowledged(index, told));
                }
                Ok(())
            }
            Event::Acknowledged(index, (numbers, marked)) => {
                self.tcp[index].sender.acknowledged(now, &numbers, marked);
                self.transmit(index, now, depart)
            }
            Event::Timeout(index) => {
                let tcp = &mut self.tcp[index];
                tcp.timer = None;
                if tcp.sender.timeout_at().is_some_and(|at| at <= now) {
                    tcp.sender.timed_out();
                }
                self.transmit(index, now, depart)
            }
            Event::Paced(index) => {
                self.tcp[index].pace = None;
                self.transmit(index, now, depart)
            }
        }
    }

    /// A sender sends what it may.
    fn transmit<E>(
        &mut self,
        index: usize,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(number) = self.tcp[index].sender.send(now) {
            let tcp = &self.tcp[index];
            let ecn = match (tcp.connection.ecn, tcp.connection.algorithm) {
                (false, _) => 0,
                (true, Algorithm::Dctcp) => 1,
                (true, _) => 2,
            };
            let packet = flow::segment(&tcp.connection.flow, number as u32, ecn, &self.pool);
            self.seen[tcp.seen].sent += 1;
            match packet {
                Some(packet) => self.arrive(packet, now, depart)?,
                None => self.no_buffer += 1,
            }
        }
        let tcp = &mut self.tcp[index];
        let pace = tcp.sender.paced_at().filter(|&at| at > now);
        if let Some(at) = pace.filter(|_| tcp.pace.is_none()) {
            tcp.pace = Some(at);
            self.at(at, Event::Paced(index));
        }
        let tcp = &mut self.tcp[index];
        if tcp.timer.is_none()
            && let Some(at) = tcp.sender.timeout_at()
        {
            tcp.timer = Some(at);
            self.at(at.max(now), Event::Timeout(index));
        }
        Ok(())
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
        while self.due().is_some() {
            self.step(depart)?;
        }
        let mut rtts: HashMap<usize, (Sojourn, u64)> = HashMap::new();
        for tcp in &self.tcp {
            let stats = &tcp.sender.stats;
            rtts.insert(tcp.seen, (Sojourn::of(&stats.rtts), stats.again));
        }
        let flows = self.seen.iter().enumerate().map(|(index, seen)| {
            let (rtt, again) = rtts.get(&index).copied().unwrap_or_default();
            let span = seen
                .end()
                .min(seen.last)
                .since(seen.start)
                .as_nanos()
                .max(1);
            FlowReport {
                name: seen.name.clone(),
                sent: seen.sent,
                delivered: seen.delivered,
                bytes: seen.bytes,
                marked: seen.marked,
                rate: (u128::from(seen.in_time) * 8_000_000_000 / span) as u64,
                sojourn: Sojourn::of(&seen.sojourns),
                rtt,
                again,
            }
        });
        let flows = flows.collect();
        Ok((self.simulator.finish(depart)?, flows))
    }
}

fn key(flow: &Flow, protocol: u8) -> Key {
    let (source, sport) = flow.source;
    let (destination, dport) = flow.destination;
    (source, destination, sport, dport, protocol)
}

/// Notes on a packet that leaves.
fn seen_of(at: Time, packet: &Packet) -> Departed {
    let data = packet.data();
    let headers = packet.parse().ok();
    let transport = headers.as_ref().and_then(|headers| {
        let (_, start) = headers.offsets();
        data.get(start..start + 8)?.first_chunk::<8>().copied()
    });
    let key = headers
        .as_ref()
        .zip(transport)
        .and_then(|(headers, bytes)| {
            let (source, destination) = headers.addresses(data)?;
            let [a, b, c, d, ..] = bytes;
            let (sport, dport) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            Some((source, destination, sport, dport, headers.protocol))
        });
    Departed {
        at,
        key,
        number: transport.map_or(0, |[_, _, _, _, a, b, c, d]| {
            u32::from_be_bytes([a, b, c, d])
        }),
        is_marked: headers.is_some_and(|headers| headers.traffic_class & 3 == 3),
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
mod tests {
    use std::convert::Infallible;

    use softnet::mem::PoolConfig;

    use super::super::{Pattern, SimLink};
    use super::*;
    use crate::qdisc::{FqCodelSpec, QdiscEnv, QdiscSpec};
    use crate::tree::Tree;

    fn flow(sport: u16) -> Flow {
        Flow {
            rate: 1,
            size: 1514..=1514,
            start: Time::ZERO,
            duration: 1,
            pattern: Pattern::Constant,
            seed: 1,
            source: ([10, 0, 0, 1].into(), sport),
            destination: ([10, 0, 0, 2].into(), 80),
            dscp: 0,
            priority: 0,
            mark: 0,
        }
    }

    fn connection(sport: u16, algorithm: Algorithm, ecn: bool) -> Connection {
        Connection {
            algorithm,
            ecn,
            rtt: 20_000_000,
            start: Time::ZERO,
            duration: 10_000_000_000,
            bytes: None,
            flow: flow(sport),
        }
    }

    fn run(spec: QdiscSpec, connections: &[Connection]) -> (Report, Vec<FlowReport>) {
        let pool = Pool::new(PoolConfig {
            buffers: 8192,
            buffer_size: 2048,
        });
        let pool = pool.expect("a pool");
        let tree = Tree::build(spec, &QdiscEnv::new(&pool)).expect("a tree");
        let link = SimLink {
            rate: Some(1_250_000),
            ..SimLink::default()
        };
        let mut world = World::new(Simulator::new(tree, link), &pool);
        for (index, connection) in connections.iter().enumerate() {
            world
                .add_connection(&index.to_string(), connection.clone())
                .expect("valid");
        }
        let (report, flows) = world
            .finish(&mut |_, _| Ok::<_, Infallible>(()))
            .expect("no errors");
        assert!(report.holds());
        assert_eq!(
            report.offered.0,
            flows.iter().map(|flow| flow.sent).sum::<u64>()
        );
        (report, flows)
    }

    #[test]
    fn a_connection_fills_the_link_and_a_long_queue() {
        for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
            let (_, flows) = run(
                QdiscSpec::Pfifo { limit: 100 },
                &[connection(1, algorithm, false)],
            );
            let rate = flows[0].rate as f64;
            assert!((9.0e6..10.05e6).contains(&rate), "{algorithm:?} {rate}");
            // 100 packets of 1514 bytes at 10 Mb/s take 121 ms.
            assert!(
                flows[0].sojourn.p99 > 100_000_000,
                "{algorithm:?} {:?}",
                flows[0].sojourn
            );
            assert!(flows[0].again > 0, "{algorithm:?} loses and sends again");
        }
    }

    #[test]
    fn fair_queues_share_among_unlike_connections() {
        let connections = [
            connection(1, Algorithm::Reno, false),
            connection(2, Algorithm::Cubic, false),
            connection(3, Algorithm::Bbr, false),
        ];
        let spec = QdiscSpec::FqCodel(FqCodelSpec::default());
        let (_, flows) = run(spec, &connections);
        let rates: Vec<u64> = flows.iter().map(|flow| flow.rate).collect();
        assert!(jain(rates.iter().copied()) > 0.95, "{rates:?}");
        assert!(rates.iter().sum::<u64>() > 9_000_000, "{rates:?}");
        assert!(flows[1].sojourn.p50 < 30_000_000, "{:?}", flows[1].sojourn);
    }

    #[test]
    fn marks_spare_losses() {
        let spec = FqCodelSpec::default();
        let (report, flows) = run(
            QdiscSpec::FqCodel(spec),
            &[connection(1, Algorithm::Cubic, true)],
        );
        assert!(flows[0].marked > 0, "{flows:?}");
        assert!(report.drops.is_empty(), "{:?}", report.drops);
        assert!(flows[0].rate > 9_000_000, "{}", flows[0].rate);
    }

    #[test]
    fn the_same_again_is_the_same() {
        let connections = [
            connection(1, Algorithm::Bbr, false),
            connection(2, Algorithm::Cubic, false),
        ];
        let once = run(QdiscSpec::Pfifo { limit: 50 }, &connections);
        let again = run(QdiscSpec::Pfifo { limit: 50 }, &connections);
        assert_eq!(format!("{:?}", once.1), format!("{:?}", again.1));
    }

    #[test]
    fn jain_is_of_rates() {
        assert_eq!(jain([5, 5, 5]), 1.0);
        assert_eq!(jain([9, 0, 0]), 1.0 / 3.0);
        assert_eq!(jain([]), 1.0);
    }
}
