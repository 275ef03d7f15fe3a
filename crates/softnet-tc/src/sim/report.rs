//! Report of a simulation, for each class and in all.

use softnet::qdisc::QdiscStats;
use softnet::stats::DropReason;

use super::classes::{ClassTrace, ClassTraces};
use super::world::jain;
use crate::account::{HtbClassStats, Xstats};
use crate::handle::Handle;
use crate::tree::{ClassStats, Tree};

/// Sojourn times of frames, in nanoseconds. Percentiles are frames' own times (nearest rank), not
/// interpolated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sojourn {
    /// Frames.
    pub frames: u64,
    /// The mean, rounded down.
    pub mean: u64,
    /// Half of the frames stayed no longer.
    pub p50: u64,
    /// 90 % stayed no longer.
    pub p90: u64,
    /// 99 % stayed no longer.
    pub p99: u64,
    /// 99.9 % stayed no longer.
    pub p999: u64,
    /// The longest stay.
    pub max: u64,
}

impl Sojourn {
    /// Summary of these times, in any order.
    pub fn of(times: &[u64]) -> Sojourn {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let Some(&max) = sorted.last() else {
            return Sojourn::default();
        };
        let frames = sorted.len() as u64;
        // The smallest time that at least `per_mille` of them do not exceed.
        let rank =
            |per_mille: u64| sorted[((frames * per_mille).div_ceil(1000) as usize).max(1) - 1];
        let sum: u128 = sorted.iter().map(|&t| u128::from(t)).sum();
        Sojourn {
            frames,
            mean: (sum / u128::from(frames)) as u64,
            p50: rank(500),
            p90: rank(900),
            p99: rank(990),
            p999: rank(999),
            max,
        }
    }
}

/// One class.
#[derive(Clone, Debug)]
pub struct ClassReport {
    /// The class, or the root.
    pub class: Handle,
    /// Handle of the qdisc that is attached.
    pub qdisc: Handle,
    /// Kind of that qdisc.
    pub kind: &'static str,
    /// Statistics of that qdisc.
    pub stats: QdiscStats,
    /// Statistics that only a class of `htb` has.
    pub htb: Option<HtbClassStats>,
    /// Mean rate over the whole simulation, in bits per second.
    pub rate: u64,
    /// Wire packets dropped in it or below, by reason.
    pub drops: Vec<(DropReason, u64)>,
    /// From arrival to departure.
    pub sojourn: Sojourn,
    /// Jain's index of the bytes that its flows sent: 1 if all sent as much.
    pub fair: f64,
    /// Wire packets that left with a congestion mark.
    pub marked: u64,
    /// Statistics that only qdiscs of its kind have, with tc's names.
    pub xstats: Vec<(&'static str, u64)>,
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
}

impl Report {
    pub(super) fn new(
        tree: &Tree,
        traces: &ClassTraces,
        offered: (u64, u64),
        span: u64,
        drops: Vec<(DropReason, u64)>,
    ) -> Report {
        let class = |class: ClassStats| {
            let trace = traces.0.get(&class.class);
            let bits = u128::from(class.stats.bytes) * 8 * 1_000_000_000;
            ClassReport {
                class: class.class,
                qdisc: class.qdisc,
                kind: class.kind,
                htb: class.htb,
                stats: class.stats,
                rate: bits.checked_div(u128::from(span)).unwrap_or(0) as u64,
                drops: trace.map_or_else(Vec::new, ClassTrace::drops),
                fair: jain(
                    trace
                        .into_iter()
                        .flat_map(|trace| trace.flows.values().copied()),
                ),
                marked: trace.map_or(0, |trace| trace.marked),
                sojourn: Sojourn::of(trace.map_or(&[], |trace| &trace.sojourns)),
                xstats: class.xstats.iter().flat_map(Xstats::iter).collect(),
            }
        };
        Report {
            span,
            offered,
            drops,
            classes: tree.classes().into_iter().map(class).collect(),
        }
    }

    /// The numbers of the whole tree.
    pub fn root(&self) -> QdiscStats {
        self.classes
            .first()
            .map(|class| class.stats)
            .unwrap_or_default()
    }

    /// True if every packet is accounted for.
    pub fn holds(&self) -> bool {
        let dropped: u64 = self.drops.iter().map(|&(_, n)| n).sum();
        let root = self.root();
        self.offered.0 == root.packets + root.queued + dropped
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<u64> = (1..=1000).rev().collect();
        let s = Sojourn::of(&times);
        assert_eq!(
            (s.p50, s.p90, s.p99, s.p999, s.max, s.mean),
            (500, 900, 990, 999, 1000, 500)
        );
        let one = Sojourn::of(&[7]);
        assert_eq!((one.p50, one.p999, one.frames), (7, 7, 1));
        assert_eq!(Sojourn::of(&[]), Sojourn::default());
    }
}
