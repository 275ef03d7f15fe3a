//! A qdisc at the root of a transmit queue with a [size table](crate::SizeTable), with a
//! [limit](Limit) that it shares with other queues, or both. Its packets count as the table says
//! from the moment they are enqueued until they leave, so that every sum is of the same numbers
//! whatever becomes of the table meanwhile (INV-Q-11). The limit counts what leaves, in its own
//! length.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Noqueue, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::time::Time;

use super::size_table::SizeTable;
use crate::qdisc::AnyQdisc;
use crate::rate::Limit;

/// A qdisc with a size table or a limit.
#[derive(Debug)]
pub struct Accounted {
    /// None: it may have had one, and still hold packets that count by it.
    table: Option<SizeTable>,
    limit: Option<Limit>,
    qdisc: AnyQdisc,
}

impl Accounted {
    pub(crate) fn new(table: SizeTable) -> Box<Accounted> {
        Box::new(Accounted {
            table: Some(table),
            limit: None,
            qdisc: AnyQdisc::Noqueue(Noqueue::default()),
        })
    }

    /// For a root that shares a limit.
    pub(crate) fn limited(limit: Limit) -> Box<Accounted> {
        Box::new(Accounted {
            table: None,
            limit: Some(limit),
            qdisc: AnyQdisc::Noqueue(Noqueue::default()),
        })
    }

    pub(crate) fn qdisc(&self) -> &AnyQdisc {
        &self.qdisc
    }

    pub(crate) fn qdisc_mut(&mut self) -> &mut AnyQdisc {
        &mut self.qdisc
    }
}

impl AnyQdisc {
    /// Gives a root the table in `fresh`, or takes its table away. Returns the old table, and
    /// leaves in `fresh` what was allocated and is not needed, both to be freed.
    pub(crate) fn set_table(&mut self, fresh: &mut Option<Box<Accounted>>) -> Option<SizeTable> {
        if let AnyQdisc::Accounted(root) = self {
            let table = fresh.as_mut().and_then(|fresh| fresh.table.take());
            return std::mem::replace(&mut root.table, table);
        }
        if let Some(mut root) = fresh.take() {
            std::mem::swap(&mut root.qdisc, self);
            *self = AnyQdisc::Accounted(root);
        }
        None
    }

    /// Gives a root the limit in `fresh`, or takes its limit away. Returns the old one, and leaves
    /// in `fresh` what was allocated and is not needed, both to be freed. A `noqueue` has none: it
    /// cannot hold anything back.
    pub(crate) fn set_limit(&mut self, fresh: &mut Option<Box<Accounted>>) -> Option<Limit> {
        match self {
            AnyQdisc::Accounted(root) => {
                let limit = fresh.as_mut().and_then(|fresh| fresh.limit.take());
                return std::mem::replace(&mut root.limit, limit);
            }
            AnyQdisc::Noqueue(_) => return None,
            _ => {}
        }
        if let Some(mut root) = fresh.take() {
            std::mem::swap(&mut root.qdisc, self);
            *self = AnyQdisc::Accounted(root);
        }
        None
    }
}

/// A packet that leaves counts as its length again.
fn restore(out: &mut PacketList) {
    out.for_each_mut(|packet| packet.set_accounted(None));
}

impl Accounted {
    /// As [`dequeue`](Qdisc::dequeue), while there is credit.
    fn dequeue_limited(&mut self, budget: u64, out: &mut PacketList, cx: &mut Cx) -> Next {
        let (now, mut left) = (cx.now, budget);
        let Accounted { limit, qdisc, .. } = self;
        let Some(limit) = limit else {
            return Next::Idle;
        };
        let next = loop {
            if left == 0 {
                break Next::Ready;
            }
            let allowed = match limit.allowed(|| qdisc.flows(), now) {
                Ok(packets) => packets.min(left),
                Err(_) if qdisc.stats().qlen == 0 => break Next::Idle,
                Err(time) => {
                    limit.announce(time);
                    return Next::At(time);
                }
            };
            let mut some = PacketList::new();
            let next = qdisc.dequeue(allowed as usize, &mut some, cx);
            restore(&mut some);
            let (mut bytes, mut packets) = (0, 0);
            for packet in some.iter() {
                bytes += packet.wire_len();
                packets += packet.wire_packets();
            }
            out.append(&mut some);
            left = left.saturating_sub(packets);
            if packets > 0 {
                limit.charge(bytes, packets, || qdisc.flows(), now);
            }
            if next != Next::Ready || packets == 0 {
                break next;
            }
        };
        match next {
            Next::Ready => limit.announce(now),
            // The qdisc holds back what it has, if anything.
            Next::Idle | Next::At(_) => limit.leave(),
        }
        next
    }
}

impl Qdisc for Accounted {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        if let Some(table) = &self.table {
            packets.for_each_mut(|packet: &mut Packet| table.account(packet));
        }
        let verdict = self.qdisc.enqueue(packets, cx);
        restore(&mut cx.reinject);
        verdict
    }

    /// A packet may pass a limit that has credit; a size table has to see every packet.
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let Accounted {
            table: None,
            limit: Some(limit),
            qdisc,
        } = self
        else {
            return false;
        };
        let now = cx.now;
        let passes = limit.covers(sum.bytes, sum.packets, now) && qdisc.try_pass(packets, sum, cx);
        if passes {
            limit.charge(sum.bytes, sum.packets, || 1, now);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let next = match self.limit {
            Some(_) => self.dequeue_limited(budget as u64, out, cx),
            None => self.qdisc.dequeue(budget, out, cx),
        };
        restore(out);
        restore(&mut cx.reinject);
        next
    }

    fn peek(&self, now: Time) -> Peek {
        self.qdisc.peek(now)
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.qdisc.drain(out);
        restore(out);
    }

    fn wants_enqueue_time(&self) -> bool {
        self.qdisc.wants_enqueue_time()
    }

    fn stats(&self) -> &QdiscStats {
        self.qdisc.stats()
    }
}
