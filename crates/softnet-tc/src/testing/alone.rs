//! One qdisc by itself, in virtual time.

use std::sync::OnceLock;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::DropCounters;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use crate::*;

pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) fn build(spec: QdiscSpec, pool: &Pool) -> AnyQdisc {
    spec.build(&QdiscEnv::new(pool)).unwrap()
}

pub(crate) fn packet(pool: &Pool, len: usize, priority: u32, mark: u32) -> Packet {
    let mut p = frame(pool, 1, 2, len, mark);
    p.set_priority(priority);
    p
}

/// A context at `now`. Segments come from a pool of their own.
pub(crate) fn cx(now: Time) -> Cx {
    static SEGMENTS: OnceLock<Pool> = OnceLock::new();
    let mut cx = Cx::new(SEGMENTS.get_or_init(|| pool(4096)));
    cx.now = now;
    cx
}

/// Enqueues one packet; returns whether it got in.
pub(crate) fn offer(q: &mut AnyQdisc, packet: Packet, now: Time) -> bool {
    let mut cx = cx(now);
    q.enqueue(&mut packet.into(), &mut cx);
    let refused = cx.dropped.wire_packets();
    cx.dropped.settle(&DropCounters::new());
    refused == 0
}

/// Takes what may leave now: marks, and when to come back.
pub(crate) fn leave(q: &mut AnyQdisc, now: Time) -> (Vec<u32>, Next) {
    let mut out = PacketList::new();
    let next = q.dequeue(usize::MAX >> 1, &mut out, &mut cx(now));
    (out.iter().map(Packet::mark).collect(), next)
}

/// Takes so many packets at most; returns how many there were.
pub(crate) fn leave_at_most(q: &mut AnyQdisc, budget: usize, now: Time) -> (usize, Next) {
    let mut out = PacketList::new();
    let next = q.dequeue(budget, &mut out, &mut cx(now));
    (out.len(), next)
}

pub(crate) fn tbf(rate: u64, burst: u64, limit: u64) -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate,
        burst,
        limit,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    })
}
