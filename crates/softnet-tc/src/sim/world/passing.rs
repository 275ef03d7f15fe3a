//! Packets that leave the trees: of which flow, what they say, and who gets them when.

use softnet::mem::Packet;
use softnet::time::Time;
use softnet::wire::network_offset;

use super::super::flow::Direction;
use super::super::{Simulator, is_marked};
use super::connections::{Event, Tcp};
use super::{Kind, World};

/// A packet of a flow, or an answer to it, that left.
#[derive(Debug)]
pub(super) struct Departed {
    pub(super) at: Time,
    /// Number of the flow.
    pub(super) seen: usize,
    /// Number of a segment or an acknowledgment; of a reply, when what it answers was sent.
    pub(super) number: u64,
    pub(super) is_marked: bool,
    pub(super) len: u64,
    pub(super) sojourn: u64,
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
        let mut departed = std::mem::take(&mut self.departed);
        let (seen, kinds, tcp) = (&self.seen, &self.kinds, &self.tcp);
        let simulator = match (direction, &mut self.reverse) {
            (Direction::Reverse, Some(reverse)) => reverse,
            _ => &mut self.simulator,
        };
        let result = run(simulator, &mut |at, packet| {
            let flow = usize::from(packet.port()).checked_sub(1);
            if let Some(number) = flow.filter(|&number| number < seen.len()) {
                let is_answer = seen[number].direction != direction;
                let says = number_in(packet, &kinds[number], is_answer, tcp);
                departed.push(departed_of(at, number, packet, says));
            }
            match direction {
                Direction::Forward => depart(at, packet),
                Direction::Reverse => Ok(()),
            }
        });
        for left in departed.drain(..) {
            self.left(&left, direction);
        }
        self.departed = departed;
        if self.tree_of(direction).lost.is_empty() {
            return result;
        }
        let mut lost = std::mem::take(&mut self.tree_of(direction).lost);
        for port in lost.drain(..) {
            let seen = usize::from(port).checked_sub(1);
            let seen = seen.and_then(|seen| self.seen.get_mut(seen));
            // Of answers the tree alone keeps count.
            if let Some(seen) = seen.filter(|seen| seen.direction == direction) {
                seen.now.dropped += 1;
            }
        }
        self.tree_of(direction).lost = lost;
        result
    }

    fn tree_of(&mut self, direction: Direction) -> &mut Simulator {
        match (direction, &mut self.reverse) {
            (Direction::Reverse, Some(reverse)) => reverse,
            _ => &mut self.simulator,
        }
    }

    /// A packet left: its receiver gets it half a round trip later.
    fn left(&mut self, left: &Departed, direction: Direction) {
        let Some(seen) = self.seen.get_mut(left.seen) else {
            return;
        };
        if seen.direction != direction {
            self.answer_left(left);
            return;
        }
        seen.left(left.at, left.len, left.is_marked, left.sojourn);
        let (half, event) = match &self.kinds[left.seen] {
            Kind::Datagrams => return,
            Kind::Connection(index) => {
                let tcp = &self.tcp[*index];
                let number = tcp.number(left.number as u32);
                let event = Event::Segment(*index, number, left.is_marked);
                (tcp.connection.rtt / 2, event)
            }
            Kind::Pings(replies) => {
                let sent = Time(left.at.0.saturating_sub(left.sojourn));
                let len = u16::try_from(left.len).unwrap_or(u16::MAX);
                (replies.rtt / 2, Event::Asked(left.seen, sent, len))
            }
        };
        self.at(left.at.plus_nanos(half), event);
    }
}

/// Number in a packet of a flow, or in an answer to it: see [`Departed::number`].
fn number_in(packet: &Packet, kind: &Kind, is_answer: bool, tcp: &[Tcp]) -> u64 {
    let data = packet.data();
    match (kind, is_answer) {
        (Kind::Connection(index), false) => {
            let template = &tcp[*index].template;
            template.number(data, network_offset(data)).into()
        }
        (Kind::Connection(index), true) => {
            let acks = tcp[*index].acks.as_ref();
            acks.map_or(0, |acks| {
                acks.template.id(data, network_offset(data)).into()
            })
        }
        (Kind::Pings(replies), true) => replies.template.time(data, network_offset(data)).0,
        _ => 0,
    }
}

/// Notes on a packet that leaves.
fn departed_of(at: Time, seen: usize, packet: &Packet, number: u64) -> Departed {
    Departed {
        at,
        seen,
        number,
        is_marked: is_marked(packet),
        len: packet.wire_len(),
        sojourn: at.0.saturating_sub(packet.timestamp().0),
    }
}
