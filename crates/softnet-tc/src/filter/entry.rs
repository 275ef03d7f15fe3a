//! One filter with what it has counted.

use std::sync::Arc;

use softnet::qdisc::WireSize;
use softnet::stats::Published;

use super::ematch;
use super::frame::{ETHERNET, Frame};
use super::{FilterKind, FilterSpec, Indev, U32};
use crate::action::{ActionList, Tally};
use crate::handle::Handle;

/// Where [`Filter::counts`] has which number.
const TRIED: usize = 0;
const MATCHED: usize = 1;
const PACKETS: usize = 2;
const BYTES: usize = 3;

/// Statistics of a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterStats {
    /// Frames that were compared with it one by one, by `u32` and `basic`; the others look a
    /// frame's match up.
    pub tried: u64,
    /// Frames that matched.
    pub matched: u64,
    /// Wire packets that matched.
    pub packets: u64,
    /// Their wire bytes; where packets arrive, without Ethernet headers, as the kernel counts.
    pub bytes: u64,
    /// For `u32`, frames for which the mark held, and then those for which each key and all before
    /// it held.
    pub held: Vec<u64>,
}

impl FilterStats {
    /// Adds what the same filter has counted in another instance of its tree.
    pub(crate) fn add(&mut self, other: &FilterStats) {
        self.tried = self.tried.wrapping_add(other.tried);
        self.matched = self.matched.wrapping_add(other.matched);
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        for (sum, held) in self.held.iter_mut().zip(&other.held) {
            *sum = sum.wrapping_add(*held);
        }
    }
}

/// A filter in use. The qdisc's list and its chains share it.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) spec: FilterSpec,
    /// Where it is among those of one mask: lower ones first.
    pub(super) order: u64,
    counts: Arc<Counts>,
    /// For each action. None is shared with another instance of the filter.
    tallies: Arc<[Tally]>,
}

/// Counts of a filter. The queue's owner writes them, any thread may read them. `all` is in a cache
/// line that no other thread writes to or has to read: instances are made one after the other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts {
    all: Published<4>,
    held: Box<[Published<1>]>,
}

impl Filter {
    pub(super) fn new(spec: FilterSpec, order: u64) -> Arc<Filter> {
        let parts = match &spec.kind {
            FilterKind::U32(of) => 1 + of.keys.len(),
            _ => 0,
        };
        let actions = spec.actions.as_slice().iter();
        let tallies = actions.map(|action| action.tally()).collect();
        let held = (0..parts).map(|_| Published::default()).collect();
        Arc::new(Filter {
            spec,
            order,
            counts: Arc::new(Counts {
                all: Published::default(),
                held,
            }),
            tallies,
        })
    }

    /// The same filter, which counts on, with its actions as they are now.
    pub(super) fn with_actions(&self, actions: ActionList) -> Arc<Filter> {
        let (before, now) = (self.spec.actions.as_slice(), actions.as_slice());
        let same = before.len() == now.len();
        let same = same && before.iter().zip(now).all(|(a, b)| a.shares_credit(b));
        let tallies = match same {
            true => self.tallies.clone(),
            false => now.iter().map(|action| action.tally()).collect(),
        };
        Arc::new(Filter {
            spec: FilterSpec {
                actions,
                ..self.spec.clone()
            },
            order: self.order,
            counts: self.counts.clone(),
            tallies,
        })
    }

    /// Counts of its actions.
    #[inline]
    pub(super) fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    pub(super) fn stats(&self) -> FilterStats {
        let [tried, matched, packets, bytes] = self.counts.all.get();
        FilterStats {
            tried,
            matched,
            packets,
            bytes,
            held: self
                .counts
                .held
                .iter()
                .map(|count| count.get_one(0))
                .collect(),
        }
    }

    /// Counts a frame that matches.
    #[inline]
    pub(super) fn count(&self, size: WireSize) {
        let counts = &self.counts.all;
        counts.add(MATCHED, 1);
        counts.add(PACKETS, size.packets);
        counts.add(BYTES, size.bytes);
    }

    /// As [`tries`](Filter::tries), for `u32`, whose offsets count from byte `from` on.
    pub(super) fn tries_from(
        &self,
        of: &U32,
        frame: &Frame<'_>,
        from: i64,
        next: u32,
    ) -> Option<bool> {
        self.counts.all.add(TRIED, 1);
        let mut held = self.counts.held.iter();
        let mut count = || held.next().into_iter().for_each(|n| n.add(0, 1));
        of.matches(frame, from, next, &mut count)
    }

    /// True if a frame matches; counts that it was tried. `None`: it is to be compared with no
    /// further filter of the priority.
    #[inline]
    pub(super) fn tries(&self, frame: &Frame<'_>) -> Option<bool> {
        match &self.spec.kind {
            // Not worth a call.
            FilterKind::Matchall => Some(true),
            kind => self.compares(kind, frame),
        }
    }

    /// As [`tries`](Filter::tries), for a filter of this kind.
    #[inline(never)]
    fn compares(&self, kind: &FilterKind, frame: &Frame<'_>) -> Option<bool> {
        Some(match kind {
            FilterKind::U32(of) => self.tries_from(of, frame, ETHERNET, 0)?,
            FilterKind::U32Table { .. } | FilterKind::U32Root => false,
            FilterKind::Basic(all) => {
                self.counts.all.add(TRIED, 1);
                ematch::holds(all, frame)
            }
            FilterKind::Matchall => true,
            FilterKind::Flower(flower) => flower.matches(frame),
            FilterKind::Fw { mask, indev } => {
                let has_received = |indev: &Indev| indev.has_received(frame.packet);
                frame.packet.mark() & mask == self.spec.handle
                    && indev.as_ref().is_none_or(has_received)
            }
            FilterKind::FwClass => {
                let class = Handle::from_raw(frame.packet.mark());
                let is_own = class.major() == 0 || class.qdisc() == self.spec.parent.qdisc();
                class != Handle::NONE && is_own
            }
        })
    }
}
