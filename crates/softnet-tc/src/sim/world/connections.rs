//! TCP connections of a world: what happens to each, and when.

use softnet::mem::Packet;
use softnet::time::Time;

use super::super::flow::{self, Flow, FlowError, Random};
use super::super::frame::Template;
use super::super::tcp::{Acknowledgment, Algorithm, MSS, Receiver, Sender};
use super::answers::Acks;
use super::pages::Pages;
use super::{Kind, World};

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
    /// Bytes that the receiver has room for; if none are given, room grows as in Linux.
    pub receive_window: Option<u64>,
    /// Pages are sent, with pauses in between.
    pub pages: bool,
    /// Addresses, ports and marks of its packets. Rate, size and pattern have no meaning.
    pub flow: Flow,
}

#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) connection: Connection,
    pub(super) template: Template,
    /// Acknowledgments, where they are packets.
    pub(super) acks: Option<Acks>,
    sender: Sender,
    receiver: Receiver,
    /// Segments that there are to send in all.
    all: u64,
    seen: usize,
    /// Times for which an event of the kind is in the heap.
    timer: Option<Time>,
    pace: Option<Time>,
    pages: Option<Pages>,
}

impl Tcp {
    /// Number of a segment, of which its packet has 32 bits.
    pub(super) fn number(&self, on_wire: u32) -> u64 {
        nearest(self.sender.acknowledged_up_to(), on_wire)
    }
}

/// The number nearest to `to` that ends with these bits: no window is near half of what they count.
fn nearest(to: u64, bits: u32) -> u64 {
    let ahead = bits.wrapping_sub(to as u32).cast_signed();
    to.wrapping_add_signed(ahead.into())
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Start(usize),
    End(usize),
    /// A segment reaches its receiver, with a mark or not.
    Segment(usize, u64, bool),
    /// The receiver has waited long enough.
    Delayed(usize),
    Acknowledged(usize, Acknowledgment),
    /// The acknowledgment of this number reaches the sender.
    Told(usize, u32),
    /// A ping of a flow reaches its receiver: when it was sent, and its length.
    Asked(usize, Time, u16),
    Timeout(usize),
    Paced(usize),
    /// Somebody asks for a page.
    Request(usize),
}

impl World {
    /// Takes over what senders have counted.
    pub(in crate::sim) fn collect(&mut self) {
        for tcp in &mut self.tcp {
            let (seen, stats) = (&mut self.seen[tcp.seen], &mut tcp.sender.stats);
            seen.now.rtts.merge(&stats.rtts);
            stats.rtts.clear();
            seen.now.again += std::mem::take(&mut stats.again);
            let all = tcp.connection.bytes.map(|_| tcp.all);
            seen.is_done = all.is_some_and(|all| tcp.sender.acknowledged_up_to() >= all);
        }
    }

    /// Adds a connection.
    ///
    /// # Errors
    /// If its addresses or marks make no sense, or it cannot be told from another.
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
        let ecn = match (connection.ecn, connection.algorithm) {
            (false, _) => 0,
            (true, Algorithm::Dctcp) => 1,
            (true, _) => 2,
        };
        let template = Template::segments(&of, ecn).ok_or(FlowError::Family)?;
        let acks = self.reverse.as_ref().and_then(|_| Acks::of(&of));
        let seen = self.watch(name, &of, flow::TCP, Kind::Connection(index))?;
        let all = match (connection.pages, connection.bytes) {
            // The first request is a part of a pause late.
            (true, _) => 0,
            (false, Some(bytes)) => bytes.div_ceil(MSS),
            (false, None) => u64::MAX,
        };
        let mut pages = (connection.pages).then_some(Pages(Random(connection.flow.seed)));
        let (first, event) = match &mut pages {
            Some(pages) => (pages.pause() / 4, Event::Request(index)),
            None => (0, Event::Start(index)),
        };
        self.events.add(connection.start.plus_nanos(first), event);
        let end = connection.start.plus_nanos(connection.duration);
        self.events.add(end, Event::End(index));
        let mut sender = Sender::new(connection.algorithm, all, connection.ecn);
        let window = connection.receive_window;
        let receiver = window.map_or_else(Receiver::default, Receiver::with_window);
        sender.set_receive_window(receiver.window());
        self.tcp.push(Tcp {
            sender,
            connection,
            template,
            acks,
            receiver,
            all,
            seen,
            timer: None,
            pace: None,
            pages,
        });
        Ok(())
    }

    pub(super) fn happen<E>(
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
                let rtt = tcp.sender.round_trip();
                let told = tcp.receiver.arrived(now, number, is_marked, rtt);
                let due = tcp.receiver.due().filter(|_| tcp.receiver.due() != before);
                if let Some(due) = due {
                    self.events.add(due, Event::Delayed(index));
                }
                match told {
                    Some(told) => self.acknowledge(index, told, now, depart),
                    None => Ok(()),
                }
            }
            Event::Delayed(index) => {
                let tcp = &mut self.tcp[index];
                if tcp.receiver.due().is_some_and(|due| due <= now)
                    && let Some(told) = tcp.receiver.acknowledge()
                {
                    return self.acknowledge(index, told, now, depart);
                }
                Ok(())
            }
            Event::Acknowledged(index, told) => self.acknowledged(index, &told, now, depart),
            Event::Told(index, id) => {
                let acks = self.tcp[index].acks.as_mut();
                match acks.and_then(|acks| acks.arrived(id)) {
                    Some(told) => self.acknowledged(index, &told, now, depart),
                    None => Ok(()),
                }
            }
            Event::Asked(seen, sent, len) => self.asked((seen, sent, len), now, depart),
            Event::Request(index) => {
                let tcp = &mut self.tcp[index];
                let end = tcp.connection.start.plus_nanos(tcp.connection.duration);
                if let Some(pages) = tcp.pages.as_mut().filter(|_| now < end) {
                    tcp.sender.more(pages.segments());
                }
                self.transmit(index, now, depart)
            }
            Event::Timeout(index) => {
                let tcp = &mut self.tcp[index];
                // Another one was set for an earlier time.
                if tcp.timer != Some(now) {
                    return Ok(());
                }
                tcp.timer = None;
                let is_due = tcp.sender.timeout_at().is_some_and(|at| at <= now);
                let probe = is_due.then(|| tcp.sender.timed_out(now)).flatten();
                if let Some(number) = probe {
                    self.send_segment(index, number, now, depart)?;
                }
                self.transmit(index, now, depart)
            }
            Event::Paced(index) => {
                self.tcp[index].pace = None;
                self.transmit(index, now, depart)
            }
        }
    }

    /// A receiver sends an acknowledgment.
    fn acknowledge<E>(
        &mut self,
        index: usize,
        told: Acknowledgment,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        let tcp = &mut self.tcp[index];
        let number = tcp.receiver.arrived_up_to();
        let Some(acks) = &mut tcp.acks else {
            let half = tcp.connection.rtt - tcp.connection.rtt / 2;
            self.events
                .add(now.plus_nanos(half), Event::Acknowledged(index, told));
            return Ok(());
        };
        let packet = acks.send(number, told, &self.pool);
        let seen = tcp.seen;
        self.answer(packet, seen, now, depart)
    }

    /// A sender learns what arrived.
    fn acknowledged<E>(
        &mut self,
        index: usize,
        told: &Acknowledgment,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        let tcp = &mut self.tcp[index];
        let was_idle = tcp.sender.is_idle();
        tcp.sender.set_receive_window(told.window);
        tcp.sender.acknowledged(now, &told.numbers, told.marked);
        let is_read = !was_idle && tcp.sender.is_idle();
        if let Some(pages) = tcp.pages.as_mut().filter(|_| is_read) {
            let at = now.plus_nanos(pages.pause());
            self.events.add(at, Event::Request(index));
        }
        self.transmit(index, now, depart)
    }

    /// A sender sends what it may.
    fn transmit<E>(
        &mut self,
        index: usize,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(number) = self.tcp[index].sender.send(now) {
            self.send_segment(index, number, now, depart)?;
        }
        let tcp = &mut self.tcp[index];
        let pace = tcp.sender.paced_at().filter(|&at| at > now);
        if let Some(at) = pace.filter(|_| tcp.pace.is_none()) {
            tcp.pace = Some(at);
            self.events.add(at, Event::Paced(index));
        }
        let tcp = &mut self.tcp[index];
        if let Some(at) = tcp.sender.timeout_at().map(|at| at.max(now))
            && tcp.timer.is_none_or(|timer| at < timer)
        {
            tcp.timer = Some(at);
            self.events.add(at, Event::Timeout(index));
        }
        Ok(())
    }

    fn send_segment<E>(
        &mut self,
        index: usize,
        number: u64,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        let tcp = &self.tcp[index];
        let (packet, seen) = (tcp.template.segment(number as u32, &self.pool), tcp.seen);
        self.send(packet, seen, now, depart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of more than 2^32 segments, which are 6 TB.
    #[test]
    fn numbers_go_on_beyond_those_on_the_wire() {
        assert_eq!([8, 12].map(|bits| nearest(10, bits)), [8, 12]);
        let turn = 1 << 32;
        let beside = [u32::MAX, 0, 1].map(|bits| nearest(turn - 1, bits));
        assert_eq!(beside, [turn - 1, turn, turn + 1]);
        assert_eq!(nearest(turn, u32::MAX), turn - 1);
        assert_eq!(nearest(3 * turn + 5, 7), 3 * turn + 7);
    }
}
