//! The built-in disciplines behind one type, dispatched by a match instead of an indirect call; a user's own is boxed.

use super::{Bfifo, Next, Pfifo, PfifoFast, Qdisc, QdiscStats, Tbf};
use crate::packet::PacketList;
use crate::stats::Dropped;
use crate::time::Time;

/// Any discipline.
#[derive(Debug)]
pub enum AnyQdisc {
    /// No queue at all: a packet that the driver does not take at once is dropped.
    Noqueue(Pfifo),
    /// See [`Pfifo`].
    Pfifo(Pfifo),
    /// See [`Bfifo`].
    Bfifo(Bfifo),
    /// See [`PfifoFast`].
    PfifoFast(Box<PfifoFast>),
    /// See [`Tbf`].
    Tbf(Box<Tbf>),
    /// A discipline from outside this crate.
    Custom(Box<dyn Qdisc>),
}

macro_rules! dispatch {
    ($self:expr, $q:ident => $call:expr) => {
        match $self {
            AnyQdisc::Noqueue($q) | AnyQdisc::Pfifo($q) => $call,
            AnyQdisc::Bfifo($q) => $call,
            AnyQdisc::PfifoFast($q) => $call,
            AnyQdisc::Tbf($q) => $call,
            AnyQdisc::Custom($q) => $call,
        }
    };
}

impl AnyQdisc {
    /// Whether packets that the driver does not take are dropped instead of kept.
    pub fn is_noqueue(&self) -> bool {
        matches!(self, AnyQdisc::Noqueue(_))
    }
}

impl Qdisc for AnyQdisc {
    fn enqueue(&mut self, packets: &mut PacketList, now: Time, dropped: &mut Dropped) {
        dispatch!(self, q => q.enqueue(packets, now, dropped));
    }
    fn dequeue(
        &mut self,
        budget: usize,
        now: Time,
        out: &mut PacketList,
        dropped: &mut Dropped,
    ) -> Next {
        dispatch!(self, q => q.dequeue(budget, now, out, dropped))
    }
    fn drain(&mut self, out: &mut PacketList) {
        dispatch!(self, q => q.drain(out));
    }
    fn stats(&self) -> QdiscStats {
        dispatch!(self, q => q.stats())
    }
}
