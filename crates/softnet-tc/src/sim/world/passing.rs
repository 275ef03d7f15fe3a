//! Packets that leave the trees: of which flow, what they say, and who gets them when.

use softnet::mem::Packet;
use softnet::time::Time;
use softnet::wire::network_offset;

use super::super::flow::Direction;
use super::super::flows::Seen;
use super::super::{Simulator, is_marked};
use super::connections::{Event, Tcp};
use super::{Events, Kind, World};

/// Whoever takes note of what leaves the tree of a direction.
struct Passing<'a> {
    direction: Direction,
    seen: &'a mut [Seen],
    kinds: &'a [Kind],
    tcp: &'a [Tcp],
    events: &'a mut Events,
}

impl World {
    /// Has the tree of a direction run, and notes what leaves. `depart` gets what leaves the first.
    pub(super) fn simulate<E, D: FnMut(Time, &Packet) -> Result<(), E>>(
        &mut self,
        direction: Direction,
        depart: &mut D,
        run: impl FnOnce(
            &mut Simulator,
            &mut dyn FnMut(Time, &Packet) -> Result<(), E>,
        ) -> Result<(), E>,
    ) -> Result<(), E> {
        let simulator = match (direction, &mut self.reverse) {
            (Direction::Reverse, Some(reverse)) => reverse,
            _ => &mut self.simulator,
        };
        let mut passing = Passing {
            direction,
            seen: &mut self.seen,
            kinds: &self.kinds,
            tcp: &self.tcp,
            events: &mut self.events,
        };
        let result = run(simulator, &mut |at, packet| {
            passing.left(at, packet);
            match direction {
                Direction::Forward => depart(at, packet),
                Direction::Reverse => Ok(()),
            }
        });
        for port in simulator.lost.drain(..) {
            let seen = usize::from(port).checked_sub(1);
            let seen = seen.and_then(|seen| self.seen.get_mut(seen));
            // Of answers the tree alone keeps count.
            if let Some(seen) = seen.filter(|seen| seen.direction == direction) {
                seen.now.dropped += 1;
            }
        }
        result
    }
}

impl Passing<'_> {
    /// A packet leaves: if it is of a flow, its receiver gets it half a round trip later.
    fn left(&mut self, at: Time, packet: &Packet) {
        let Some(flow) = usize::from(packet.port()).checked_sub(1) else {
            return;
        };
        let Some(seen) = self.seen.get_mut(flow) else {
            return;
        };
        if seen.direction != self.direction {
            return self.answer_left(at, packet, flow);
        }
        let (len, is_marked) = (packet.wire_len(), is_marked(packet));
        let sent = at.min(packet.timestamp());
        seen.left(at, len, is_marked, at.0 - sent.0);
        let (half, event) = match &self.kinds[flow] {
            Kind::Datagrams => return,
            Kind::Connection(index) => {
                let (tcp, data) = (&self.tcp[*index], packet.data());
                let number = tcp.number(tcp.template.number(data, network_offset(data)));
                let event = Event::Segment(*index, number, is_marked);
                (tcp.connection.rtt / 2, event)
            }
            Kind::Pings(replies) => {
                let len = u16::try_from(len).unwrap_or(u16::MAX);
                (replies.rtt / 2, Event::Asked(flow, sent, len))
            }
        };
        self.events.add(at.plus_nanos(half), event);
    }

    /// An answer leaves: the sender gets it half a round trip later.
    fn answer_left(&mut self, at: Time, packet: &Packet, flow: usize) {
        let data = packet.data();
        match &self.kinds[flow] {
            Kind::Datagrams => {}
            Kind::Connection(index) => {
                let tcp = &self.tcp[*index];
                let acks = tcp.acks.as_ref();
                let id = acks.map_or(0, |acks| acks.template.id(data, network_offset(data)));
                let rtt = tcp.connection.rtt;
                let arrives = at.plus_nanos(rtt - rtt / 2);
                self.events.add(arrives, Event::Told(*index, id));
            }
            Kind::Pings(replies) => {
                let sent = replies.template.time(data, network_offset(data));
                let arrives = at.plus_nanos(replies.rtt - replies.rtt / 2);
                let time = arrives.since(sent).as_nanos() as u64;
                self.seen[flow].now.rtts.record(time);
            }
        }
    }
}
