//! The built-in kinds behind one type: dispatched by a match, not by an indirect call. A user's
//! own kind is boxed.

use super::children::Children;
use super::{
    Bfifo, Cx, Handle, Next, Noqueue, Peek, Pfifo, PfifoFast, PfifoHeadDrop, Prio, Qdisc,
    QdiscSpec, QdiscStats, SpecError, Tbf, Verdict, WireSum,
};
use softnet::mem::PacketList;
use softnet::time::Time;

/// Any qdisc.
#[derive(Debug)]
pub enum AnyQdisc {
    /// No queue at all: a packet that the driver does not take at once is dropped.
    Noqueue(Noqueue),
    /// See [`Pfifo`].
    Pfifo(Pfifo),
    /// See [`Bfifo`].
    Bfifo(Bfifo),
    /// See [`PfifoHeadDrop`].
    PfifoHeadDrop(Box<PfifoHeadDrop>),
    /// See [`PfifoFast`].
    PfifoFast(Box<PfifoFast>),
    /// See [`Tbf`].
    Tbf(Box<Tbf>),
    /// See [`Prio`].
    Prio(Box<Prio>),
    /// A qdisc from outside this crate.
    Custom(Box<dyn Qdisc>),
}

macro_rules! dispatch {
    ($self:expr, $q:ident => $call:expr) => {
        match $self {
            AnyQdisc::Noqueue($q) => $call,
            AnyQdisc::Pfifo($q) => $call,
            AnyQdisc::Bfifo($q) => $call,
            AnyQdisc::PfifoHeadDrop($q) => $call,
            AnyQdisc::PfifoFast($q) => $call,
            AnyQdisc::Tbf($q) => $call,
            AnyQdisc::Prio($q) => $call,
            AnyQdisc::Custom($q) => $call,
        }
    };
}

impl AnyQdisc {
    /// The children of a qdisc with classes.
    pub(super) fn children(&self) -> Option<&Children> {
        match self {
            AnyQdisc::Tbf(tbf) => Some(tbf.children()),
            AnyQdisc::Prio(prio) => Some(prio.children()),
            _ => None,
        }
    }

    /// As [`children`](AnyQdisc::children), to change them.
    pub(super) fn children_mut(&mut self) -> Option<&mut Children> {
        match self {
            AnyQdisc::Tbf(tbf) => Some(tbf.children_mut()),
            AnyQdisc::Prio(prio) => Some(prio.children_mut()),
            _ => None,
        }
    }

    /// The position of class `minor` among the children.
    pub(super) fn find(&self, minor: u16) -> Option<usize> {
        let index = usize::from(minor).checked_sub(1)?;
        (index < self.children()?.len()).then_some(index)
    }

    /// Does something with the qdisc at the end of a path of classes. Each qdisc above takes over
    /// what has changed. `None`: there is no such class.
    pub(super) fn at<T>(
        &mut self,
        path: &[Handle],
        f: impl FnOnce(&mut AnyQdisc) -> T,
    ) -> Option<T> {
        let Some((class, rest)) = path.split_first() else {
            return Some(f(self));
        };
        let index = self.find(class.minor())?;
        let children = self.children_mut()?;
        children.with(index, |child| child.qdisc_mut().at(rest, f))
    }

    /// Replaces the child at the end of a path; see [`Children::graft`]. Returns the old one.
    pub(super) fn graft(
        &mut self,
        path: &[Handle],
        qdisc: AnyQdisc,
        default: bool,
        cx: &mut Cx,
    ) -> Option<AnyQdisc> {
        let (class, above) = path.split_last()?;
        self.at(above, |parent| {
            let index = parent.find(class.minor())?;
            Some(parent.children_mut()?.graft(index, qdisc, default, cx))
        })?
    }

    /// Gives a qdisc other parameters of its kind while it is in use, all at once or not at all
    /// (INV-Q-10). What is queued stays, but for what can never leave any more.
    ///
    /// # Errors
    /// If the parameters are wrong ([`QdiscSpec::check`]) or of another kind, or the kind has
    /// none.
    pub fn change(&mut self, spec: &QdiscSpec, cx: &mut Cx) -> Result<(), SpecError> {
        spec.check()?;
        match (self, spec) {
            (AnyQdisc::Pfifo(queue), QdiscSpec::Pfifo { limit }) => queue.set_limit(*limit),
            (AnyQdisc::Bfifo(queue), QdiscSpec::Bfifo { limit }) => queue.set_limit(*limit),
            (AnyQdisc::PfifoHeadDrop(queue), QdiscSpec::PfifoHeadDrop { limit }) => {
                queue.set_limit(*limit);
            }
            (AnyQdisc::PfifoFast(queue), QdiscSpec::PfifoFast { limit }) => {
                queue.resize(*limit, &mut cx.dropped);
            }
            (AnyQdisc::Tbf(tbf), QdiscSpec::Tbf(spec)) => tbf.change(spec),
            (AnyQdisc::Prio(prio), QdiscSpec::Prio(spec)) => prio.change(spec, cx),
            _ => return Err(SpecError::Change(spec.kind())),
        }
        Ok(())
    }
}

impl Qdisc for AnyQdisc {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        dispatch!(self, q => q.enqueue(packets, cx))
    }
    // Into the transmit path, with the simple kinds; those with children are calls.
    #[inline(always)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        dispatch!(self, q => q.try_pass(packets, sum, cx))
    }
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        dispatch!(self, q => q.dequeue(budget, out, cx))
    }
    fn peek(&self, now: Time) -> Peek {
        dispatch!(self, q => q.peek(now))
    }
    fn drain(&mut self, out: &mut PacketList) {
        dispatch!(self, q => q.drain(out));
    }
    fn wants_enqueue_time(&self) -> bool {
        dispatch!(self, q => q.wants_enqueue_time())
    }
    fn is_noqueue(&self) -> bool {
        matches!(self, AnyQdisc::Noqueue(_))
    }
    fn stats(&self) -> &QdiscStats {
        dispatch!(self, q => q.stats())
    }
}
