//! The filters of one qdisc or class as the packet path runs them.

use std::sync::Arc;

use softnet::mem::Packet;
use softnet::stats::DropReason;

use super::FilterAction;
use super::frame::Frame;
use super::priority::Priority;
use crate::handle::Handle;

/// Times that a packet may be sent back or to another chain (`max_reclassify_loop`).
const MAX_RESTARTS: usize = 16;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Classified {
    /// To this class, which need not exist; [`Handle::NONE`] if the filter names none.
    Class(Handle),
    /// No filter decided.
    None,
    /// Nowhere.
    Drop(DropReason),
}

/// The filters of one qdisc or class in use. They never change: the queue's owner swaps them as a
/// whole.
#[derive(Debug, Default)]
pub(crate) struct Filters(Option<Box<[Chain]>>);

/// One chain, its lowest priority first.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) number: u32,
    pub(super) priorities: Vec<Arc<Priority>>,
}

/// Result of a chain for a packet.
enum Outcome {
    Decided(Classified),
    /// On to another chain, if it has filters.
    Restart(u32),
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
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Where a packet goes. Only the owner of the queue calls this, because it counts.
    #[inline]
    pub(crate) fn classify(&self, packet: &Packet) -> Classified {
        match &self.0 {
            Some(chains) => run(chains, packet),
            None => Classified::None,
        }
    }
}

#[inline(never)]
fn run(chains: &[Chain], packet: &Packet) -> Classified {
    let frame = Frame::new(packet);
    let mut number = 0;
    for _ in 0..=MAX_RESTARTS {
        let Ok(at) = chains.binary_search_by_key(&number, |chain| chain.number) else {
            return Classified::None;
        };
        match chains[at].run(&frame) {
            Outcome::Decided(classified) => return classified,
            Outcome::Restart(next) => number = next,
        }
    }
    Classified::Drop(DropReason::ReclassifyLoop)
}

impl Chain {
    fn run(&self, frame: &Frame<'_>) -> Outcome {
        let decided = self.priorities.iter().find_map(|priority| {
            priority.run(frame, |filter| {
                Some(match filter.spec.action {
                    FilterAction::Pass => {
                        let class = filter.spec.class.unwrap_or(Handle::NONE);
                        Outcome::Decided(Classified::Class(class))
                    }
                    FilterAction::Drop => {
                        Outcome::Decided(Classified::Drop(DropReason::FilterDrop))
                    }
                    FilterAction::Goto(chain) => Outcome::Restart(chain),
                    FilterAction::Reclassify => Outcome::Restart(0),
                    FilterAction::Continue => return None,
                })
            })
        });
        decided.unwrap_or(Outcome::Decided(Classified::None))
    }
}
