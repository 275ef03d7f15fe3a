//! The built-in disciplines behind one type, dispatched by a match instead of an indirect call; a user's own is boxed.

use super::children::Children;
use super::{
    Bfifo, Cx, Handle, Next, Noqueue, Peek, Pfifo, PfifoFast, PfifoHeadDrop, Prio, Qdisc,
    QdiscSpec, QdiscStats, SpecError, Tbf, Tree, Verdict, WireSum,
};
use softnet::mem::PacketList;
use softnet::time::Time;

/// Any discipline.
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
    /// Several of them; see [`Tree`].
    Tree(Box<Tree>),
    /// A discipline from outside this crate.
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
            AnyQdisc::Tree($q) => $call,
            AnyQdisc::Custom($q) => $call,
        }
    };
}

impl AnyQdisc {
    /// The kind's name, as in tc.
    pub fn kind(&self) -> &'static str {
        match self {
            AnyQdisc::Noqueue(_) => "noqueue",
            AnyQdisc::Pfifo(_) => "pfifo",
            AnyQdisc::Bfifo(_) => "bfifo",
            AnyQdisc::PfifoHeadDrop(_) => "pfifo_head_drop",
            AnyQdisc::PfifoFast(_) => "pfifo_fast",
            AnyQdisc::Tbf(_) => "tbf",
            AnyQdisc::Prio(_) => "prio",
            AnyQdisc::Tree(tree) => tree.spec().kind(),
            AnyQdisc::Custom(_) => "custom",
        }
    }

    /// The children of a discipline with classes.
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

    /// What a class of this discipline has if it is given nothing else.
    pub(super) fn default_child(&self) -> Option<AnyQdisc> {
        match self {
            AnyQdisc::Tbf(tbf) => Some(tbf.default_child()),
            AnyQdisc::Prio(_) => Some(Prio::band()),
            _ => None,
        }
    }

    /// The tree, if it is one.
    pub fn tree_mut(&mut self) -> Option<&mut Tree> {
        match self {
            AnyQdisc::Tree(tree) => Some(tree),
            _ => None,
        }
    }

    /// Gives a discipline other parameters of its kind while it is in use, all at once or not at all (INV-Q-10). What is queued stays, but for what can
    /// never leave any more.
    ///
    /// # Errors
    /// If the parameters are wrong ([`QdiscSpec::check`]), or of another kind, or the kind has none.
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
            // That at its root.
            (AnyQdisc::Tree(tree), spec) => {
                let root = tree.spec().child_of(Handle::ROOT).map(|node| node.handle);
                let root = root.ok_or_else(|| SpecError::Change(spec.kind()))?;
                return tree.change(root, spec, cx);
            }
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
