//! Report of a simulation, for each class and in all.

use std::collections::BTreeMap;

use softnet::qdisc::QdiscStats;
use softnet::stats::DropReason;

use super::classes::{Classes, Span};
use super::instances::Instances;
use super::times::{Sojourn, Times};
use crate::account::{HtbClassStats, Xstats, zip};
use crate::handle::Handle;
use crate::tree::ClassStats;

/// One class.
#[derive(Clone, Debug)]
pub struct ClassReport {
    /// The class, or the root.
    pub class: Handle,
    /// Handle of the qdisc that is attached.
    pub qdisc: Handle,
    /// Kind of that qdisc.
    pub kind: &'static str,
    /// Statistics of that qdisc. In a window, what changed in it, and what is queued at its end.
    pub stats: QdiscStats,
    /// Statistics that only a class of `htb` has.
    pub htb: Option<HtbClassStats>,
    /// Mean rate over the whole simulation or window, in bits per second.
    pub rate: u64,
    /// Wire packets dropped in it or below, by reason.
    pub drops: Vec<(DropReason, u64)>,
    /// From arrival to departure.
    pub sojourn: Sojourn,
    /// Distribution of the same.
    pub times: Times,
    /// Jain's index of the bytes that its flows sent: 1 if all sent as much.
    pub fair: f64,
    /// Wire packets that left with a congestion mark.
    pub marked: u64,
    /// Statistics that only qdiscs of its kind have, with tc's names.
    pub xstats: Vec<(&'static str, u64)>,
}

impl ClassReport {
    /// Reports on all classes of a tree, over so many nanoseconds. `before` are their statistics
    /// at the start of that time.
    pub(super) fn all(
        tree: &Instances,
        classes: &Classes,
        span: Span,
        nanos: u64,
        before: &BTreeMap<Handle, QdiscStats>,
    ) -> Vec<ClassReport> {
        let mut sums = classes.sums(span);
        let report = |class: ClassStats| {
            let before = before.get(&class.class).copied().unwrap_or_default();
            let QdiscStats {
                qlen,
                backlog,
                queued,
                memory,
                ..
            } = class.stats;
            let stats = QdiscStats {
                qlen,
                backlog,
                queued,
                memory,
                ..zip(&class.stats, &before, u64::saturating_sub)
            };
            let (tally, fair) = sums.remove(&class.class).unwrap_or_default();
            let bits = u128::from(stats.bytes) * 8 * 1_000_000_000;
            let rate = bits.checked_div(u128::from(nanos)).unwrap_or(0);
            ClassReport {
                class: class.class,
                qdisc: class.qdisc,
                kind: class.kind,
                htb: class.htb,
                stats,
                rate: u64::try_from(rate).unwrap_or(u64::MAX),
                drops: tally.drops.into_iter().collect(),
                sojourn: tally.times.summary(),
                times: tally.times,
                fair,
                marked: tally.marked,
                xstats: class.xstats.iter().flat_map(Xstats::iter).collect(),
            }
        };
        tree.classes().into_iter().map(report).collect()
    }
}

/// Report of a simulation.
#[derive(Clone, Debug)]
pub struct Report {
    /// Nanoseconds from the first arrival to the last event.
    pub span: u64,
    /// Wire packets and wire bytes that arrived, those that a qdisc made by copying included.
    pub offered: (u64, u64),
    /// Wire packets dropped, by reason. Offered = sent + dropped + queued.
    pub drops: Vec<(DropReason, u64)>,
    /// The root, and all classes, each before those below it.
    pub classes: Vec<ClassReport>,
    /// Report on the tree of the reverse direction, if there is one.
    pub reverse: Option<Box<Report>>,
}

impl Report {
    pub(super) fn new(
        tree: &Instances,
        classes: &Classes,
        offered: (u64, u64),
        span: u64,
        drops: Vec<(DropReason, u64)>,
    ) -> Report {
        Report {
            span,
            offered,
            drops,
            classes: ClassReport::all(tree, classes, Span::All, span, &BTreeMap::new()),
            reverse: None,
        }
    }

    /// The numbers of the whole tree.
    pub fn root(&self) -> QdiscStats {
        self.classes
            .first()
            .map(|class| class.stats)
            .unwrap_or_default()
    }

    /// True if every packet of this tree is accounted for.
    pub fn holds(&self) -> bool {
        let dropped: u64 = self.drops.iter().map(|&(_, n)| n).sum();
        let root = self.root();
        self.offered.0 == root.packets + root.queued + dropped
    }
}
