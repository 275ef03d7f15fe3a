//! The machine's speed, by a fixed piece of work beside each turn: a host that serves others, too,
//! may slow a virtual machine down, or move its CPUs, in the middle of a round.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::thread::CpuSet;
use serde_json::{Value, json};

use crate::buffers::pinned;
use crate::error::BenchError;
use crate::machine::Steal;
use crate::numbers::percentile;

/// Greatest ratio of the slowest to the fastest work, and of the slowest to the fastest hand-over,
/// in a round that counts.
pub(crate) const WORK_BOUND: f64 = 1.15;
pub(crate) const PASS_BOUND: f64 = 1.5;
/// Greatest share of the CPUs' time that the host may take in a round that counts.
pub(crate) const STEAL_BOUND: f64 = 0.05;
/// Times that a round is measured again.
const AGAIN: u32 = 2;
/// Pieces of work, steps of one, and passes of a cache line in one: some 2 ms each way.
const PIECES: usize = 40;
const STEPS: u64 = 8_000;
const PASSES: u64 = 300;
/// The piece that counts: one of the faster, as what another program takes is not the machine's
/// speed.
const QUARTILE: f64 = 0.25;

/// Nanoseconds of a thousand steps of work on the slowest CPU while all work, and of handing a
/// cache line from one CPU to another, if there are two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speed {
    pub(crate) work_ns: f64,
    pub(crate) pass_ns: f64,
}

impl Speed {
    /// The speed now.
    fn now(cpus: &[usize]) -> Result<Speed, BenchError> {
        let start = Barrier::new(cpus.len());
        let line = AtomicU64::new(0);
        let one = |index: usize| {
            let pinned = pinned::pin(cpus[index]);
            start.wait();
            let work = pieces(|| {
                std::hint::black_box((0..STEPS).fold([1_u64, 2, 3, 4], |lanes, step| {
                    lanes.map(|lane| (lane ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15))
                }));
            });
            start.wait();
            let pass = (index < 2 && cpus.len() > 1).then(|| pass(&line, index as u64));
            pinned.map(|()| (work * 1e3 / STEPS as f64, pass.unwrap_or(0.0)))
        };
        let all: Result<Vec<_>, _> = std::thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> = (0..cpus.len())
                .map(|index| scope.spawn(move || one(index)))
                .collect();
            let joined = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(joined).collect()
        });
        let most =
            |times: (f64, f64), other: &(f64, f64)| (times.0.max(other.0), times.1.max(other.1));
        let (work_ns, pass_ns) = all?.iter().fold((0.0, 0.0), most);
        Ok(Speed { work_ns, pass_ns })
    }
}

/// Nanoseconds of one piece.
fn pieces(mut piece: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        piece();
        start.elapsed().as_secs_f64() * 1e9
    };
    percentile(&(0..PIECES).map(time).collect::<Vec<_>>(), QUARTILE)
}

/// Nanoseconds of one pass of the line, which the other thread hands back.
fn pass(line: &AtomicU64, side: u64) -> f64 {
    let mut turn = side;
    let passes = pieces(|| {
        for _ in 0..PASSES {
            while line.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
            line.store(turn + 1, Ordering::Release);
            turn += 2;
        }
    });
    passes / (2 * PASSES) as f64
}

/// The CPUs that this process may use.
pub(crate) fn cpus() -> Result<Vec<usize>, BenchError> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|e| BenchError::io("asking which CPUs may be used", e))?;
    let cpus = 0..CpuSet::MAX_CPU;
    Ok(cpus.filter(|&cpu| allowed.is_set(cpu)).collect())
}

/// A look at the machine's speed in all rounds, and in the one that goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    cpus: Vec<usize>,
    round: Vec<Speed>,
    /// Since this try began.
    steal: Option<Steal>,
    tries: u32,
    seen: Seen,
}

/// A summary of all rounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) rounds: u64,
    /// Measured again.
    pub(crate) again: u64,
    /// In which the speed changed, or the host took too much, in the last try, too.
    pub(crate) unsteady: u64,
    /// The least and the most of each.
    pub(crate) work_ns: Option<(f64, f64)>,
    pub(crate) pass_ns: Option<(f64, f64)>,
}

impl Watch {
    /// One that looks on, or not.
    pub(crate) fn new(on: bool) -> Result<Watch, BenchError> {
        Ok(Watch {
            cpus: if on { cpus()? } else { Vec::new() },
            ..Watch::default()
        })
    }

    /// Looks at the speed.
    pub(crate) fn look(&mut self) -> Result<(), BenchError> {
        if !self.cpus.is_empty() {
            self.steal.get_or_insert_with(Steal::begin);
            self.round.push(Speed::now(&self.cpus)?);
        }
        Ok(())
    }

    /// Ends a try of a round; true if it is to be measured again.
    pub(crate) fn measure_again(&mut self) -> bool {
        if self.round.is_empty() {
            return false;
        }
        let range = |value: fn(&Speed) -> f64| {
            let values = self.round.iter().map(value);
            let most = values.clone().fold(0.0, f64::max);
            (values.fold(f64::INFINITY, f64::min), most)
        };
        let (work, pass) = (range(|speed| speed.work_ns), range(|speed| speed.pass_ns));
        self.round.clear();
        let steal = self.steal.take();
        let taken = steal.map_or(0.0, |steal| steal.share(self.cpus.len()));
        let unsteady =
            work.1 > WORK_BOUND * work.0 || pass.1 > PASS_BOUND * pass.0 || taken > STEAL_BOUND;
        if unsteady && self.tries < AGAIN {
            self.tries += 1;
            self.seen.again += 1;
            return true;
        }
        self.tries = 0;
        self.seen.add(&Seen {
            rounds: 1,
            again: 0,
            unsteady: unsteady.into(),
            work_ns: Some(work),
            pass_ns: Some(pass),
        });
        false
    }

    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        self.rounds += other.rounds;
        self.again += other.again;
        self.unsteady += other.unsteady;
        let wider = |a: Option<(f64, f64)>, b: Option<(f64, f64)>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.work_ns = wider(self.work_ns, other.work_ns);
        self.pass_ns = wider(self.pass_ns, other.pass_ns);
    }

    /// The `speed` object of a report.
    pub(crate) fn to_json(&self) -> Value {
        let rounded = |ns: f64| json!(crate::numbers::significant(ns, 4));
        let pair = |range: Option<(f64, f64)>| range.map(|(a, b)| [rounded(a), rounded(b)]);
        json!({
            "rounds": self.rounds, "again": self.again, "unsteady": self.unsteady,
            "work_ns": pair(self.work_ns), "pass_ns": pair(self.pass_ns),
        })
    }

    /// Reads what [`to_json`](Seen::to_json) gave.
    pub(crate) fn parse(value: &Value) -> Seen {
        let count = |name: &str| value[name].as_u64().unwrap_or(0);
        let pair = |name: &str| Some((value[name][0].as_f64()?, value[name][1].as_f64()?));
        Seen {
            rounds: count("rounds"),
            again: count("again"),
            unsteady: count("unsteady"),
            work_ns: pair("work_ns"),
            pass_ns: pair("pass_ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_with(watch: &mut Watch, work_ns: &[f64]) -> bool {
        let speed = |&work_ns| Speed {
            work_ns,
            pass_ns: 60.0,
        };
        watch.round = work_ns.iter().map(speed).collect();
        watch.measure_again()
    }

    #[test]
    fn a_round_is_measured_again_twice_if_the_speed_changes() {
        let mut watch = Watch::default();
        assert!(!try_with(&mut watch, &[100.0, 105.0, 110.0]));
        assert!(try_with(&mut watch, &[100.0, 180.0, 100.0]));
        assert!(!try_with(&mut watch, &[180.0, 180.0]));
        for again in [true, true, false, true] {
            assert_eq!(try_with(&mut watch, &[100.0, 120.0]), again);
        }
        let seen = watch.seen();
        assert_eq!((seen.rounds, seen.again, seen.unsteady), (3, 4, 1));
        assert_eq!(seen.work_ns, Some((100.0, 180.0)));
        assert_eq!(Seen::parse(&seen.to_json()), *seen);
    }

    #[test]
    fn the_speed_is_measured() {
        let mut watch = Watch::new(true).expect("the CPUs are known");
        watch.look().expect("threads can be bound to CPUs");
        assert!(watch.round[0].work_ns > 0.0, "{watch:?}");
        assert_eq!(watch.round[0].pass_ns > 0.0, watch.cpus.len() > 1);
    }
}
