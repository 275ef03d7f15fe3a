//! RFC 8289 in its own words, and what happens to a queue.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Qdisc};
use softnet::wire::traffic_class;

use crate::qdisc::AqmSpec;

/// A packet of the reference.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) mark: u32,
    pub(crate) bytes: u64,
    pub(crate) time: u64,
    pub(crate) ect: bool,
}

/// RFC 8289, section 5, line by line, with its names. `bytes` is what the test of `maxpacket_`
/// looks at. Marks instead of dropping where `ecn` is set, as the kernel does, and stops at the
/// number of drops that are allowed before a packet leaves: what else is due is forgiven.
#[derive(Debug, Default)]
pub(crate) struct Rfc8289 {
    pub(crate) queue: VecDeque<Waiting>,
    target: u64,
    interval: u64,
    maxpacket: u64,
    ecn: bool,
    first_above_time: u64,
    drop_next: u64,
    pub(crate) count: u32,
    lastcount: u32,
    dropping: bool,
}

/// The packet that left, whether it was marked, and those dropped before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) packet: Option<(u32, bool)>,
    pub(crate) dropped: Vec<u32>,
}

impl Rfc8289 {
    /// Times are in microseconds.
    pub(crate) fn new(target: u64, interval: u64, ecn: bool) -> Rfc8289 {
        Rfc8289 {
            target: target * 1000,
            interval: interval * 1000,
            maxpacket: 1514,
            ecn,
            ..Rfc8289::default()
        }
    }

    /// An empty queue is below the target.
    pub(crate) fn clear(&mut self) {
        (self.first_above_time, self.dropping) = (0, false);
    }

    fn control_law(&self, t: u64) -> u64 {
        // The largest whole number of nanoseconds that is at most interval / sqrt(count).
        let square = u128::from(self.interval) * u128::from(self.interval);
        t + (square / u128::from(self.count)).isqrt() as u64
    }

    fn dodequeue(&mut self, now: u64, bytes: &mut u64) -> (Option<Waiting>, bool) {
        let Some(p) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        *bytes -= p.bytes;
        let sojourn_time = now - p.time;
        let mut ok_to_drop = false;
        if sojourn_time < self.target || *bytes <= self.maxpacket {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(p), ok_to_drop)
    }

    pub(crate) fn deque(&mut self, now: u64, bytes: &mut u64, may_drop: &mut u32) -> Left {
        let mut left = Left::default();
        let (mut p, mut ok_to_drop) = self.dodequeue(now, bytes);
        let mut marked = false;
        let marks = |p: &Option<Waiting>, ecn: bool| ecn && p.as_ref().is_some_and(|p| p.ect);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                if *may_drop == 0 {
                    self.drop_next = self.control_law(now);
                    break;
                }
                self.count += 1;
                if marks(&p, self.ecn) {
                    marked = true;
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                left.dropped.extend(p.map(|p| p.mark));
                *may_drop -= 1;
                (p, ok_to_drop) = self.dodequeue(now, bytes);
                if !ok_to_drop {
                    self.dropping = false;
                } else {
                    self.drop_next = self.control_law(self.drop_next);
                }
            }
        } else if ok_to_drop && *may_drop > 0 {
            if marks(&p, self.ecn) {
                marked = true;
            } else {
                left.dropped.extend(p.map(|p| p.mark));
                *may_drop -= 1;
                (p, _) = self.dodequeue(now, bytes);
            }
            self.dropping = true;
            let delta = self.count.wrapping_sub(self.lastcount);
            self.count = 1;
            if delta > 1 && now.saturating_sub(self.drop_next) < 16 * self.interval {
                self.count = delta;
            }
            self.drop_next = self.control_law(now);
            self.lastcount = self.count;
        }
        left.packet = p.map(|p| (p.mark, marked));
        left
    }
}

/// A packet that leaves at once, and what was dropped before it.
pub(crate) fn leave(qdisc: &mut impl Qdisc, cx: &mut Cx) -> Left {
    let mut out = PacketList::new();
    qdisc.dequeue(1, &mut out, cx);
    assert!(out.len() <= 1);
    let left = Left {
        packet: out.front().map(|packet| {
            let class = traffic_class(packet.data());
            (packet.mark(), class == Some(3))
        }),
        dropped: cx.dropped.packets().iter().map(Packet::mark).collect(),
    };
    cx.dropped.settle(&softnet::stats::DropCounters::new());
    left
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Packets arrive: bytes, ECN bits, flow.
    Arrive(Vec<(usize, bool, u32)>),
    /// Time passes, in microseconds.
    Wait(u64),
    /// So many packets leave.
    Leave(usize),
}

/// Times in which queues build up and drain.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packet = (60..1_514_usize, any::<bool>(), 0..4_u32);
    let step = prop_oneof![
        3 => prop::collection::vec(packet, 1..12).prop_map(Step::Arrive),
        2 => (0..3_000_u64).prop_map(Step::Wait),
        1 => (0..60_000_u64).prop_map(Step::Wait),
        4 => (0..7_usize).prop_map(Step::Leave),
    ];
    prop::collection::vec(step, 1..400)
}

pub(crate) fn spec(target: u64, interval: u64, ecn: bool) -> AqmSpec {
    AqmSpec {
        target: Duration::from_micros(target),
        interval: Duration::from_micros(interval),
        ecn,
        ..AqmSpec::default()
    }
}
