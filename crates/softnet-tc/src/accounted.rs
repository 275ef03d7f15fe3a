//! A qdisc at the root of a transmit queue with a [size table](super::SizeTable). Its packets count
//! as the table says from the moment they are enqueued until they leave, so that every sum is of
//! the same numbers whatever becomes of the table meanwhile (INV-Q-11).

use super::{AnyQdisc, Cx, Next, Noqueue, Peek, Qdisc, QdiscStats, SizeTable, Verdict};
use softnet::mem::{Packet, PacketList};
use softnet::time::Time;

/// A qdisc with a size table.
#[derive(Debug)]
pub struct Accounted {
    /// None: it had one, and may still hold packets that count by it.
    table: Option<SizeTable>,
    qdisc: AnyQdisc,
}

impl Accounted {
    pub(super) fn new(table: SizeTable) -> Box<Accounted> {
        Box::new(Accounted {
            table: Some(table),
            qdisc: AnyQdisc::Noqueue(Noqueue::default()),
        })
    }

    pub(super) fn qdisc(&self) -> &AnyQdisc {
        &self.qdisc
    }

    pub(super) fn qdisc_mut(&mut self) -> &mut AnyQdisc {
        &mut self.qdisc
    }
}

impl AnyQdisc {
    /// Gives a root the table in `fresh`, or takes its table away. Returns the old table, and
    /// leaves in `fresh` what was allocated and is not needed, both to be freed.
    pub(super) fn set_table(&mut self, fresh: &mut Option<Box<Accounted>>) -> Option<SizeTable> {
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
}

/// What leaves counts as its length again.
fn restore(out: &mut PacketList) {
    out.for_each_mut(|packet| packet.set_accounted(None));
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

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let next = self.qdisc.dequeue(budget, out, cx);
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
