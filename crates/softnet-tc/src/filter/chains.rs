//! The filters of one qdisc as the packet path runs them.

use std::sync::Arc;

use super::frame::Frame;
use super::{ETH_P_ALL, FilterAction, FilterKind, FilterList, FilterSpec};
use crate::Handle;
use softnet::mem::Packet;
use softnet::stats::{DropReason, Published};

/// How often a packet may be sent back or to another chain (`max_reclassify_loop`).
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

/// The filters of one qdisc. They never change: the queue's owner swaps them as a whole.
#[derive(Debug, Default)]
pub(crate) struct Chains(Box<[Chain]>);

#[derive(Debug)]
struct Chain {
    number: u32,
    prios: Vec<Prio>,
}

#[derive(Debug)]
struct Prio {
    protocol: u16,
    filters: Vec<Filter>,
}

#[derive(Debug)]
struct Filter {
    spec: FilterSpec,
    /// The chain that it sends packets to, if that has filters.
    next: Option<usize>,
    /// Wire packets that matched. The queue's owner writes it, any thread may read it.
    hits: Arc<Published<1>>,
}

/// What a chain made of a packet.
enum Outcome {
    Decided(Classified),
    /// On to another chain, if it has filters.
    Restart(Option<usize>),
}

impl Chains {
    /// The filters of a list, with the counts of those that are in `before`, too. A change of the
    /// list leaves those that it does not touch in their order.
    pub(crate) fn new(list: &FilterList, before: &Chains) -> Chains {
        let mut rest = before.filters();
        let mut filter = |spec: &FilterSpec| {
            let mut ahead = rest.clone();
            let known = ahead.find(|old| old.spec.key() == spec.key());
            if known.is_some() {
                rest = ahead;
            }
            let known = known.filter(|old| old.spec == *spec);
            Filter {
                spec: spec.clone(),
                next: None,
                hits: known.map(|old| old.hits.clone()).unwrap_or_default(),
            }
        };
        let mut prio = |same: &[FilterSpec]| Prio {
            protocol: same[0].protocol,
            filters: same.iter().map(&mut filter).collect(),
        };
        let chain = |same: &[FilterSpec]| Chain {
            number: same[0].chain,
            prios: same
                .chunk_by(|a, b| a.prio == b.prio)
                .map(&mut prio)
                .collect(),
        };
        let all = list.as_slice().chunk_by(|a, b| a.chain == b.chain);
        let mut chains = Chains(all.map(chain).collect());
        let numbers: Vec<u32> = chains.0.iter().map(|chain| chain.number).collect();
        let filters = chains.0.iter_mut().flat_map(|chain| &mut chain.prios);
        for filter in filters.flat_map(|prio| &mut prio.filters) {
            let to = match filter.spec.action {
                FilterAction::Goto(chain) => chain,
                // Back to the start.
                _ => 0,
            };
            filter.next = numbers.binary_search(&to).ok();
        }
        chains
    }

    /// Whether nothing is ever classified.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The filters and how many wire packets each has matched, in the order in which they are
    /// tried. Any thread may ask at any time.
    pub(crate) fn hits(&self) -> impl Iterator<Item = (&FilterSpec, u64)> {
        self.filters()
            .map(|filter| (&filter.spec, filter.hits.get_one(0)))
    }

    fn filters(&self) -> impl Iterator<Item = &Filter> + Clone {
        let prios = self.0.iter().flat_map(|chain| &chain.prios);
        prios.flat_map(|prio| &prio.filters)
    }

    /// Where a packet goes. Only the owner of the queue calls this, because it counts.
    #[inline]
    pub(crate) fn classify(&self, packet: &Packet) -> Classified {
        if self.is_empty() {
            return Classified::None;
        }
        self.run(packet)
    }

    #[inline(never)]
    fn run(&self, packet: &Packet) -> Classified {
        let frame = Frame::new(packet);
        let mut at = self.0.first().filter(|chain| chain.number == 0);
        for _ in 0..=MAX_RESTARTS {
            let Some(chain) = at else {
                return Classified::None;
            };
            match chain.run(&frame) {
                Outcome::Decided(classified) => return classified,
                Outcome::Restart(next) => at = next.and_then(|next| self.0.get(next)),
            }
        }
        Classified::Drop(DropReason::ReclassifyLoop)
    }
}

impl Chain {
    fn run(&self, frame: &Frame<'_>) -> Outcome {
        for prio in &self.prios {
            if prio.protocol != ETH_P_ALL && frame.ethertype() != Some(prio.protocol) {
                continue;
            }
            for filter in &prio.filters {
                if !filter.spec.matches(frame) {
                    continue;
                }
                filter.hits.add(0, frame.packet.wire_packets());
                return match (filter.spec.action, &filter.spec.kind) {
                    (FilterAction::Pass, _) => {
                        let class = filter.spec.class.unwrap_or(Handle::NONE);
                        Outcome::Decided(Classified::Class(class))
                    }
                    (FilterAction::Drop, _) => {
                        Outcome::Decided(Classified::Drop(DropReason::FilterDrop))
                    }
                    (FilterAction::Goto(_) | FilterAction::Reclassify, _) => {
                        Outcome::Restart(filter.next)
                    }
                    // As the kernel, where these have looked their only match up.
                    (FilterAction::Continue, FilterKind::Flower(_) | FilterKind::Matchall) => {
                        break;
                    }
                    (FilterAction::Continue, _) => continue,
                };
            }
        }
        Outcome::Decided(Classified::None)
    }
}

impl FilterSpec {
    fn matches(&self, frame: &Frame<'_>) -> bool {
        match &self.kind {
            FilterKind::Flower(flower) => flower.matches(frame),
            FilterKind::U32(u32) => u32.matches(frame),
            FilterKind::Basic(all) => all.iter().all(|ematch| ematch.matches(frame)),
            FilterKind::Matchall => true,
            FilterKind::Fw { mask } => frame.packet.mark() & mask == self.handle,
        }
    }
}
