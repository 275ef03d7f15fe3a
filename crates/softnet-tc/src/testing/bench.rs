//! Trees with packets in them, without devices.

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::{DropCounters, DropReason};
use softnet::testing::{frame, pool};
use softnet::time::Time;
use softnet::tx::Qdiscs;

use super::handle;
use crate::*;

/// A tree with a clock that stands still, and what it dropped.
pub(crate) struct Bench {
    pub(crate) tree: Tree,
    pub(crate) pool: Pool,
    pub(crate) cx: Cx,
}

impl Bench {
    pub(crate) fn new<const N: usize>(nodes: [(&str, &str, QdiscSpec); N]) -> Bench {
        let mut spec = TreeSpec::new();
        for (parent, name, qdisc) in nodes {
            spec.add(handle(parent), handle(name), qdisc).unwrap();
        }
        let pool = pool(256);
        let env = QdiscEnv::new(&pool);
        Bench {
            tree: Tree::build(spec, &env).unwrap(),
            cx: Cx::new(&pool),
            pool,
        }
    }

    /// Enqueues packets of one priority and length with these marks; returns how many were dropped
    /// meanwhile.
    pub(crate) fn offer(
        &mut self,
        marks: impl IntoIterator<Item = u32>,
        len: usize,
        priority: u32,
    ) -> u64 {
        let before = self.cx.dropped.wire_packets();
        for mark in marks {
            let mut packet = frame(&self.pool, 1, 2, len, mark);
            packet.set_priority(priority);
            self.tree.enqueue(&mut packet.into(), &mut self.cx);
        }
        self.cx.dropped.wire_packets() - before
    }

    pub(crate) fn leave(&mut self, budget: usize, now: Time) -> (Vec<u32>, Next) {
        let mut out = PacketList::new();
        let next = self.tree.dequeue(budget, &mut out, self.cx.at(now));
        (out.iter().map(Packet::mark).collect(), next)
    }

    pub(crate) fn all(&mut self) -> Vec<u32> {
        self.leave(usize::MAX >> 1, Time::ZERO).0
    }

    pub(crate) fn class(&self, name: &str) -> QdiscStats {
        let name = handle(name);
        let classes = self.tree.classes();
        let class = classes.iter().find(|class| class.class == name);
        class.expect("the class").stats
    }

    pub(crate) fn reasons(&mut self) -> Vec<(DropReason, u64)> {
        let counters = DropCounters::new();
        self.cx.dropped.settle(&counters);
        counters.nonzero()
    }
}

/// The transmit queues of a device.
pub(crate) struct AllQueues<'a>(pub(crate) &'a mut [AnyQdisc], pub(crate) &'a mut Cx);

impl Queues for AllQueues<'_> {
    fn install(&mut self, qdiscs: Qdiscs<AnyQdisc>) {
        assert_eq!(qdiscs.instances.len(), self.0.len());
        for (queue, qdisc) in qdiscs.instances.into_iter().enumerate() {
            self.install_at(queue, qdisc);
        }
    }

    fn install_at(&mut self, queue: usize, qdisc: AnyQdisc) {
        (&mut self.0[queue], &mut *self.1).install_at(0, qdisc);
    }

    fn with(&mut self, queue: usize, f: &mut dyn FnMut(&mut AnyQdisc, &mut Cx)) {
        f(&mut self.0[queue], self.1);
    }
}
