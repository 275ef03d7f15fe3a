//! The filters of one qdisc or class as the packet path runs them.

use std::sync::Arc;

use softnet::mem::Packet;
use softnet::qdisc::{Cx, QdiscStats, Target, Verdict};
use softnet::stats::DropReason;

use super::FilterKind;
use super::entry::Filter;
use super::frame::{Frame, Read};
use super::priority::Priority;
use crate::action::{Control, InFlight, exec};
use crate::handle::Handle;

/// Times that a packet may be sent back or to another chain (`max_reclassify_loop`).
const MAX_RESTARTS: usize = 16;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classified {
    /// To this class, which need not exist; [`Handle::NONE`] if the filter names none.
    Class(Handle),
    /// No filter decided.
    None,
    /// Nowhere.
    Drop(DropReason),
    /// To another link. The caller gives it to [`Cx::elsewhere`].
    Redirect(Target),
    /// Nowhere, as if it had been sent. The caller drops it as [`DropReason::FilterStolen`], and
    /// counts no drop of a qdisc.
    Consumed,
}

impl Classified {
    /// The class that a filter names, if one decided.
    ///
    /// # Errors
    /// If the packet does not go on.
    #[inline]
    pub(crate) fn class(self) -> Result<Option<Handle>, Lost> {
        Err(match self {
            Classified::Class(class) => return Ok(Some(class)),
            Classified::None => return Ok(None),
            Classified::Drop(reason) => Lost::Dropped(reason),
            Classified::Redirect(target) => Lost::Redirected(target),
            Classified::Consumed => Lost::Consumed,
        })
    }
}

/// Cause for which a packet does not go on in a qdisc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Dropped(DropReason),
    Redirected(Target),
    Consumed,
}

impl Lost {
    /// Sends the packet where it belongs, and counts its drop.
    #[cold]
    pub(crate) fn settle(self, packet: Packet, stats: &mut QdiscStats, cx: &mut Cx) -> Verdict {
        match self {
            Lost::Dropped(reason) => {
                stats.drops += 1;
                cx.dropped.push(packet, reason);
                return Verdict::Dropped;
            }
            Lost::Redirected(target) => cx.elsewhere.push(target, packet),
            Lost::Consumed => cx.dropped.push(packet, DropReason::FilterStolen),
        }
        Verdict::Stolen
    }
}

/// The filters of one qdisc or class in use. They never change: the queue's owner swaps them as a
/// whole.
#[derive(Debug, Default)]
pub struct Filters(Option<Box<[Chain]>>);

/// One chain, its lowest priority first.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) number: u32,
    pub(super) priorities: Vec<Arc<Priority>>,
}

impl Filters {
    /// Chains in their numbers' order.
    pub(super) fn new(chains: Vec<Chain>) -> Filters {
        Filters((!chains.is_empty()).then(|| chains.into()))
    }

    /// No filter.
    pub(crate) const fn none() -> Filters {
        Filters(None)
    }

    /// True if nothing is ever classified.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Where a packet goes, which actions may change meanwhile; copies of it may be in
    /// [`Cx::elsewhere`] afterwards. Only the owner of the queue calls this, because it counts.
    #[inline]
    pub fn classify(&self, packet: &mut Packet, cx: &mut Cx) -> Classified {
        match &self.0 {
            Some(chains) => run(chains, packet, cx),
            None => Classified::None,
        }
    }
}

#[inline(never)]
fn run(chains: &[Chain], packet: &mut Packet, cx: &mut Cx) -> Classified {
    let mut read = Read::new(cx.arriving);
    let mut in_flight = InFlight::new(packet, cx);
    let mut number = 0;
    for _ in 0..=MAX_RESTARTS {
        let Ok(at) = chains.binary_search_by_key(&number, |chain| chain.number) else {
            return Classified::None;
        };
        let decided = chains[at].run(packet, &mut read, &mut in_flight, cx);
        let Some((filter, control)) = decided else {
            return Classified::None;
        };
        match control {
            Control::Goto(chain) => number = chain,
            Control::Reclassify => number = 0,
            Control::Drop => return Classified::Drop(DropReason::FilterDrop),
            Control::Stolen | Control::Queued | Control::Trap => {
                let moved = in_flight.moved;
                return moved.map_or(Classified::Consumed, Classified::Redirect);
            }
            // `Continue` does not leave a chain.
            Control::Pass
            | Control::Pipe
            | Control::Jump(_)
            | Control::Repeat
            | Control::Continue => {
                return Classified::Class(match filter.spec.kind {
                    FilterKind::FwClass => Handle::from_raw(packet.mark()),
                    _ => filter.spec.class.unwrap_or(Handle::NONE),
                });
            }
        }
    }
    Classified::Drop(DropReason::ReclassifyLoop)
}

impl Chain {
    /// The filter that decides, and the packet's way behind it; `None`: there is none.
    #[inline]
    fn run(
        &self,
        packet: &mut Packet,
        read: &mut Read,
        in_flight: &mut InFlight,
        cx: &mut Cx,
    ) -> Option<(&Filter, Control)> {
        for priority in &self.priorities {
            if priority.is_walked() {
                match walk(priority, packet, read, in_flight, cx) {
                    Some(decided) => return Some(decided),
                    None => continue,
                }
            }
            let mut from = 0;
            while let Some(filter) = priority.find(&Frame::new(packet, read), &mut from) {
                let control = act(filter, packet, read, in_flight, cx);
                if control != Control::Continue {
                    return Some((filter, control));
                }
            }
        }
        None
    }
}

/// The filter of a priority of `u32` that decides, and the way behind it; `None`: the next
/// priority is tried.
#[inline(never)]
fn walk<'a>(
    priority: &'a Priority,
    packet: &mut Packet,
    read: &mut Read,
    in_flight: &mut InFlight,
    cx: &mut Cx,
) -> Option<(&'a Filter, Control)> {
    let mut walk = priority.walk(&Frame::new(packet, read))?;
    while let Some(filter) = walk.next(&Frame::new(packet, read)) {
        let control = act(filter, packet, read, in_flight, cx);
        if control != Control::Continue {
            return Some((filter, control));
        }
    }
    None
}

/// The way of a packet behind a filter that matches, which counts it; [`Control::Continue`]: the
/// next one is tried.
#[inline]
fn act(
    filter: &Filter,
    packet: &mut Packet,
    read: &mut Read,
    in_flight: &mut InFlight,
    cx: &mut Cx,
) -> Control {
    filter.count(in_flight.size);
    let actions = &filter.spec.actions;
    if actions.is_empty() {
        return Control::Pass;
    }
    let control = exec(actions, filter.tallies(), packet, in_flight, cx);
    // What it says may be of a packet that was changed.
    read.forget();
    control
}
