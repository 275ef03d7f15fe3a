//! Answers that pass a tree of their own: acknowledgments of connections and replies to pings are
//! packets, which wait there and may be lost.

use std::collections::VecDeque;

use softnet::mem::{Packet, Pool};
use softnet::time::Time;

use super::super::flow::Flow;
use super::super::frame::Template;
use super::super::tcp::Acknowledgment;
use super::{Kind, World};

/// Acknowledgments of a connection. Each has a number, and tells all that its receiver knew as it
/// was sent: what those before it told, and the segments that arrived since. So one that is lost is
/// made good by the next.
#[derive(Debug)]
pub(super) struct Acks {
    pub(super) template: Template,
    /// News for the sender, by the numbers of the acknowledgments that tell it first.
    waiting: VecDeque<Acknowledgment>,
    /// Number of the first of them.
    first: u32,
}

impl Acks {
    /// Acknowledgments of a connection that sends `flow`; none if its addresses make no sense.
    pub(super) fn of(flow: &Flow) -> Option<Acks> {
        Some(Acks {
            template: Template::acknowledgments(&flow.back())?,
            waiting: VecDeque::new(),
            first: 0,
        })
    }

    /// The next one, of all segments before `number`; none if no buffer is free. What it would have
    /// told, the one behind it tells.
    pub(super) fn send(
        &mut self,
        number: u64,
        told: Acknowledgment,
        pool: &Pool,
    ) -> Option<Packet> {
        let id = self.first.wrapping_add(self.waiting.len() as u32);
        self.waiting.push_back(told);
        self.template.acknowledgment(number as u32, id, pool)
    }

    /// News for the sender as one arrives; nothing if a later one came first.
    pub(super) fn arrived(&mut self, id: u32) -> Option<Acknowledgment> {
        let ahead = id.wrapping_sub(self.first);
        // Numbers have 32 bits; those of the past are in the upper half.
        let count = if ahead >> 31 == 0 {
            (ahead as usize + 1).min(self.waiting.len())
        } else {
            0
        };
        self.first = self.first.wrapping_add(count as u32);
        let known = self.waiting.drain(..count);
        known.reduce(|mut told, more| {
            told.numbers.extend(more.numbers);
            told.marked += more.marked;
            told.window = more.window;
            told
        })
    }
}

/// Replies to the packets of a flow.
#[derive(Debug)]
pub(super) struct Replies {
    /// Round-trip time without queues, ns.
    pub(super) rtt: u64,
    pub(super) template: Template,
}

impl Replies {
    /// To the packets of `flow`; none if its addresses make no sense.
    pub(super) fn to(flow: &Flow, rtt: u64) -> Option<Replies> {
        Some(Replies {
            rtt,
            template: Template::replies(&flow.back(), *flow.size.end())?,
        })
    }
}

impl World {
    /// A ping that was sent at some time reaches its receiver, which replies.
    pub(super) fn asked<E>(
        &mut self,
        (seen, sent, len): (usize, Time, u16),
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        let Kind::Pings(replies) = &self.kinds[seen] else {
            return Ok(());
        };
        let packet = replies.template.reply(len, sent, &self.pool);
        self.answer(packet, seen, now, depart)
    }

    /// An answer to a flow goes into the tree of the other direction.
    pub(super) fn answer<E>(
        &mut self,
        packet: Option<Packet>,
        seen: usize,
        now: Time,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        let direction = self.seen[seen].direction.other();
        self.enter(packet, (seen, direction), now, depart)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use softnet::wire::{fold, pseudo_header, sum_bytes};

    use super::super::tests::flow;
    use super::*;

    /// The checksum of the transport header is right, and the ends are exchanged.
    fn check(packet: &Packet, protocol: u8) {
        let data = packet.data();
        let (source, destination) = (&data[26..30], &data[30..34]);
        assert_eq!(
            (source, destination),
            (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..])
        );
        let len = (data.len() - 34) as u32;
        let sum = pseudo_header(source, destination, protocol, len) + sum_bytes(&data[34..]);
        assert_eq!(fold(sum), 0xffff);
    }

    #[test]
    fn a_reply_carries_a_time() {
        let pool = softnet::testing::pool(4);
        let replies = Replies::to(&flow(1), 1000).expect("of one family");
        let time = Time(5 << 40 | 7);
        for (len, expected) in [(42, 50), (99, 99), (1514, 1514), (9000, 1514)] {
            let packet = replies.template.reply(len, time, &pool).expect("a buffer");
            assert_eq!(packet.len(), expected);
            assert_eq!(replies.template.time(packet.data(), 14), time);
            check(&packet, 17);
        }
    }

    #[test]
    fn a_later_acknowledgment_tells_what_earlier_ones_did() {
        let told = |numbers, marked, window| Acknowledgment {
            numbers,
            marked,
            window,
        };
        let pool = softnet::testing::pool(4);
        // The numbers wrap meanwhile.
        let mut acks = Acks {
            first: u32::MAX,
            ..Acks::of(&flow(1)).expect("of one family")
        };
        for number in 0..4_u64 {
            let told = told(vec![number], 1, number);
            let packet = acks.send(number + 1, told, &pool).expect("a buffer");
            assert_eq!(packet.len(), 66);
            check(&packet, 6);
            let id = acks.template.id(packet.data(), 14);
            assert_eq!(id, u32::MAX.wrapping_add(number as u32));
        }
        assert_eq!(acks.arrived(1), Some(told(vec![0, 1, 2], 3, 2)));
        // Overtaken, and twice the same.
        assert_eq!(acks.arrived(u32::MAX), None);
        assert_eq!(acks.arrived(1), None);
        assert_eq!(acks.arrived(2), Some(told(vec![3], 1, 3)));
        assert_eq!(acks.arrived(3), None, "never sent");
    }
}
