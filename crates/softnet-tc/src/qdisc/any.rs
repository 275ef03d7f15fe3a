//! Any qdisc: the way down to one in a tree, and the calls of the packet path.

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::ClassPath;
use softnet::time::Time;

use super::kind::{AnyQdisc, Kind, dispatch};
use crate::account::{Children, Xstats};
use crate::filter::Filters;
use crate::handle::Handle;

impl AnyQdisc {
    /// The children of a qdisc with classes.
    pub(crate) fn children(&self) -> Option<&Children> {
        dispatch!(self, Kind::children())
    }

    /// As [`children`](AnyQdisc::children), to change them.
    pub(crate) fn children_mut(&mut self) -> Option<&mut Children> {
        dispatch!(self, Kind::children_mut())
    }

    /// The statistics of the kind, if it has some.
    pub(crate) fn xstats(&self) -> Option<&Xstats> {
        dispatch!(self, Kind::xstats())
    }

    /// [`Qdisc::stats`] of any kind, by a call.
    fn any_stats(&self) -> &QdiscStats {
        dispatch!(self, q => q.stats())
    }

    /// [`Qdisc::peek`] of any kind, by a call.
    fn any_peek(&self, now: Time) -> Peek {
        dispatch!(self, q => q.peek(now))
    }

    /// Flows with packets, as far as the qdisc tells them apart, and 1 for each queue of which it
    /// does not: the weight of a backlog in a [shared rate](crate::rate).
    pub(crate) fn flows(&self) -> u16 {
        if let AnyQdisc::Accounted(root) = self {
            return root.qdisc().flows();
        }
        let flows = dispatch!(self, Kind::flows());
        // A qdisc that is not empty may list none: the only packet is in a stash.
        let least = u16::from(self.stats().qlen > 0);
        u16::try_from(flows).unwrap_or(u16::MAX).max(least)
    }

    /// Replaces the filters of a class, or with 0 the qdisc's own, and returns what there was.
    /// Nothing happens where there are none.
    pub(crate) fn set_filters(&mut self, minor: u16, filters: Filters) -> Filters {
        if minor == 0 {
            return match dispatch!(self, Kind::filters_mut()) {
                Some(own) => std::mem::replace(own, filters),
                None => filters,
            };
        }
        let children = self.children_mut();
        let slot = children.as_ref().and_then(|of| of.find(minor));
        match (children, slot) {
            (Some(children), Some(slot)) => children.set_filters(slot, filters),
            _ => filters,
        }
    }

    /// Does something with the qdisc at the end of a path of classes. Each qdisc above takes over
    /// what has changed, and is told which child it was: a queue that became empty, or is not any
    /// more, may be its turn (INV-Q-7). `None`: there is no such class.
    pub(crate) fn at<T>(
        &mut self,
        path: &[Handle],
        cx: &mut Cx,
        f: impl FnOnce(&mut AnyQdisc, &mut Cx) -> T,
    ) -> Option<T> {
        if let AnyQdisc::Accounted(root) = self {
            return root.qdisc_mut().at(path, cx, f);
        }
        let Some((class, rest)) = path.split_first() else {
            return Some(f(self, cx));
        };
        self.with_child(class.minor(), cx, |children, slot, cx| {
            children.with(slot, |child| child.qdisc_mut().at(rest, cx, f))
        })?
    }

    /// Replaces the child at the end of a path; see [`Children::graft`]. Returns the old one.
    pub(crate) fn graft(
        &mut self,
        path: &[Handle],
        qdisc: AnyQdisc,
        default: bool,
        cx: &mut Cx,
    ) -> Option<AnyQdisc> {
        let (class, above) = path.split_last()?;
        self.at(above, cx, |parent, cx| {
            parent.with_child(class.minor(), cx, |children, slot, cx| {
                children.graft(slot, qdisc, default, cx)
            })
        })?
    }

    /// Changes what is at a class, and tells the kind.
    pub(crate) fn with_child<T>(
        &mut self,
        minor: u16,
        cx: &mut Cx,
        f: impl FnOnce(&mut Children, usize, &mut Cx) -> T,
    ) -> Option<T> {
        let children = self.children_mut()?;
        let slot = children.find(minor)?;
        let result = f(children, slot, cx);
        children.note_changed(slot);
        dispatch!(self, Kind::child_changed(slot, cx));
        Some(result)
    }
}

impl Qdisc for AnyQdisc {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        dispatch!(self, q => q.enqueue(packets, cx))
    }
    // Into the transmit path, with the simple kinds; the others are calls.
    #[inline(always)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        dispatch!(self, q => q.try_pass(packets, sum, cx))
    }
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        dispatch!(self, q => q.dequeue(budget, out, cx))
    }
    // A `pfifo`, as most children are, is looked at without a call; so is its length.
    #[inline]
    fn peek(&self, now: Time) -> Peek {
        match self {
            AnyQdisc::Pfifo(fifo) => fifo.peek(now),
            other => other.any_peek(now),
        }
    }
    fn drain(&mut self, out: &mut PacketList) {
        dispatch!(self, q => q.drain(out));
    }
    fn wants_enqueue_time(&self) -> bool {
        dispatch!(self, q => q.wants_enqueue_time())
    }
    fn take_classes(&mut self, path: &mut ClassPath) {
        if let AnyQdisc::Accounted(root) = self {
            root.qdisc_mut().take_classes(path);
        } else if let Some((class, below)) = self.children_mut().and_then(Children::take_last) {
            path.push(class.raw());
            below.take_classes(path);
        }
    }
    #[inline]
    fn is_noqueue(&self) -> bool {
        matches!(self, AnyQdisc::Noqueue(_))
    }
    #[inline]
    fn stats(&self) -> &QdiscStats {
        match self {
            AnyQdisc::Pfifo(fifo) => fifo.stats(),
            other => other.any_stats(),
        }
    }
}
