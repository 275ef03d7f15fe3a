//! A tree on simulated CPUs: one instance of it at each, if it can have several, which share its
//! rates. A CPU sends what is queued at it; it may be late whenever it has to begin.

use softnet::mem::Packet;
use softnet::qdisc::{Qdisc, QdiscStats};
use softnet::time::Time;

use super::flow::Random;
use crate::qdisc::{AnyQdisc, QdiscEnv, SpecError};
use crate::tree::{ClassStats, DeviceTree, Tree, TreeSpec};

/// CPUs to simulate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cpus {
    /// Number of them, and of transmit queues.
    pub count: usize,
    /// Nanoseconds by which a CPU begins late in 99 of 100 cases at most. The delay is
    /// exponentially distributed: 4.6 times less on average.
    pub stall: u64,
    /// Share of the flows that the first CPU sends, from 0 to 1; the others have equal parts of the
    /// rest. By default all have equal parts.
    pub skew: Option<f64>,
    /// For what is random.
    pub seed: u64,
}

/// State of a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cpu {
    /// When its instance is run again.
    pub(super) timer: Option<Time>,
    /// When it was run last, among all.
    turn: u64,
}

/// The instances.
#[derive(Debug)]
pub(super) struct Instances {
    pub(super) first: Tree,
    others: Vec<AnyQdisc>,
    pub(super) cpus: Vec<Cpu>,
    turns: u64,
    late: Random,
    stall: u64,
    skew: f64,
}

impl Instances {
    /// A tree on one CPU that is never late.
    pub(super) fn one(tree: Tree) -> Instances {
        Instances {
            first: tree,
            others: Vec::new(),
            cpus: vec![Cpu::default()],
            turns: 0,
            late: Random(0),
            stall: 0,
            skew: 1.0,
        }
    }

    /// A tree on several.
    pub(super) fn new(
        spec: impl Into<TreeSpec>,
        of: Cpus,
        env: &QdiscEnv,
    ) -> Result<Instances, SpecError> {
        let env = QdiscEnv {
            parallel: true,
            ..env.clone()
        };
        let (first, others) = Tree::with_queues(spec, of.count.max(1), &env)?;
        let count = others.len() + 1;
        Ok(Instances {
            cpus: vec![Cpu::default(); count],
            first,
            others,
            turns: 0,
            late: Random(of.seed),
            stall: of.stall,
            skew: of.skew.unwrap_or(1.0 / count as f64).clamp(0.0, 1.0),
        })
    }

    /// The CPU that sends the flow of a packet.
    #[inline]
    pub(super) fn cpu_of(&self, packet: &Packet) -> usize {
        let count = self.cpus.len();
        if count == 1 {
            return 0;
        }
        let hash = f64::from(packet.flow_hash().unwrap_or(0)) / (f64::from(u32::MAX) + 1.0);
        match hash < self.skew {
            true => 0,
            false => {
                let part = (hash - self.skew) / (1.0 - self.skew);
                1 + ((part * (count - 1) as f64) as usize).min(count - 2)
            }
        }
    }

    /// The instance of a CPU.
    #[inline]
    pub(super) fn at(&mut self, cpu: usize) -> &mut AnyQdisc {
        match cpu.checked_sub(1) {
            None => &mut self.first,
            Some(other) => &mut self.others[other],
        }
    }

    /// Statistics of the instance of a CPU.
    #[inline]
    pub(super) fn stats(&self, cpu: usize) -> &QdiscStats {
        match cpu.checked_sub(1) {
            None => self.first.stats(),
            Some(other) => self.others[other].stats(),
        }
    }

    /// Packets that left and frames that were dropped, of all.
    #[inline]
    pub(super) fn left_and_refused(&self) -> (u64, u64) {
        let all = (0..self.cpus.len()).map(|cpu| self.stats(cpu));
        all.fold((0, 0), |(left, refused), stats| {
            (left + stats.packets, refused + stats.drops)
        })
    }

    /// The tree, without its instances.
    pub(super) fn tree(&self) -> &DeviceTree {
        &self.first.tree
    }

    /// The root and all classes.
    pub(super) fn classes(&self) -> Vec<ClassStats> {
        let all: Vec<QdiscStats> = (0..self.cpus.len()).map(|cpu| *self.stats(cpu)).collect();
        self.tree().classes(&all)
    }

    /// The CPU that runs next, and when. Of several at the same time the one that ran longest ago.
    #[inline]
    pub(super) fn next(&self) -> Option<(Time, usize)> {
        if let [only] = &self.cpus[..] {
            return only.timer.map(|time| (time, 0));
        }
        let timers = self.cpus.iter().enumerate();
        let timers = timers.filter_map(|(cpu, of)| Some((of.timer?, of.turn, cpu)));
        timers.min().map(|(time, _, cpu)| (time, cpu))
    }

    /// A CPU runs.
    #[inline]
    pub(super) fn runs(&mut self, cpu: usize) {
        self.turns += 1;
        self.cpus[cpu].turn = self.turns;
        self.cpus[cpu].timer = None;
    }

    /// Nanoseconds by which a CPU is late.
    #[inline]
    pub(super) fn late(&mut self) -> u64 {
        match self.stall {
            0 => 0,
            // 1 % is beyond ln 100 times the mean.
            stall => (self.late.exponential() * stall as f64 / 100_f64.ln()) as u64,
        }
    }
}
