//! Experiment `defer-free`: A allocates packets and hands them to B, which frees them: where does
//! the memory go?
//!
//! Paths: `one-way` from CPU to CPU, `sleeping`, where A sleeps when it can send no more,
//! `both-ways` at once, and the two where a packet is freed where it was allocated, so that
//! returning it to its owner must cost nothing: `one-cpu` (two threads on it) and `one-thread`. The
//! ring between A and B is the same for all but DPDK, which uses its own; the variants `ring` and
//! `dpdk-ring` are the hand-off alone, without packets.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::baselines::depot::Depot;
use crate::buffers::pinned::{self, Cpus, HandOff, Path};
use crate::buffers::{Buffers, Figure, Reading, Schedule, Softnet, Sources};
use crate::error::BenchError;
use crate::options::Options;
use crate::peers::allocators::{General, Malloc, Mimalloc};
use crate::peers::dpdk::{self, Dpdk, Ops};
use crate::report::{Collector, OURS};

mod token;

/// Packets in each pool: for a pair of threads, and for many, whose caches and rings hold more.
const BUFFERS: usize = 8192;
const MANY_BUFFERS: usize = 65_536;
const BULKS: &[usize] = &[1, 2, 4, 8, 16, 32];
/// Where packets stay on one CPU, or A sleeps.
const FEW_BULKS: &[usize] = &[1, 8, 32];
/// With more than a pair of threads, or little time.
const FEWER_BULKS: &[usize] = &[1, 32];
const THREADS: &[usize] = &[2, 8, 64];
const FEW_THREADS: &[usize] = &[2];
/// Softnet's pool with deferral turned off: what deferral costs where all is local.
const NO_DEFER: &str = "no-defer";
const RING: &str = "ring";
const DPDK_RING: &str = "dpdk-ring";
const VARIANTS: &[&str] = &[
    OURS,
    NO_DEFER,
    "depot",
    "dpdk",
    "dpdk-rts",
    "dpdk-hts",
    "dpdk-lf-stack",
    "malloc",
    "jemalloc",
    "mimalloc",
    "snmalloc",
    RING,
    DPDK_RING,
];

/// A pool or allocator whose packets pass from thread to thread.
trait Source {
    fn hand_off(&self, plan: HandOff, time: Duration) -> Result<Reading, BenchError>;
}

struct Local<B> {
    buffers: B,
    cpus: Cpus,
}

impl<B: Buffers> Source for Local<B> {
    fn hand_off(&self, plan: HandOff, time: Duration) -> Result<Reading, BenchError> {
        pinned::hand_off(&self.buffers, self.cpus, plan, time)
    }
}

/// Started at its first turn.
struct Peer {
    cpus: Cpus,
    buffers: usize,
    ops: Ops,
    /// Only the hand-off is measured.
    ring: bool,
    dpdk: RefCell<Option<Dpdk>>,
}

impl Source for Peer {
    fn hand_off(&self, plan: HandOff, time: Duration) -> Result<Reading, BenchError> {
        let mut dpdk = self.dpdk.borrow_mut();
        let dpdk = match &mut *dpdk {
            Some(dpdk) => dpdk,
            none => none.insert(Dpdk::start(self.cpus, self.buffers, self.ops)?),
        };
        if self.ring {
            dpdk.ring(plan.bulk, time)
        } else {
            dpdk.hand_off(plan, time)
        }
    }
}

/// A variant that was left out when this program was built.
#[cfg(not(all(feature = "jemalloc", feature = "snmalloc")))]
struct NotBuilt(&'static str);

#[cfg(not(all(feature = "jemalloc", feature = "snmalloc")))]
impl Source for NotBuilt {
    fn hand_off(&self, _plan: HandOff, _time: Duration) -> Result<Reading, BenchError> {
        Err(BenchError::Unavailable(format!(
            "built without the feature `{}`",
            self.0
        )))
    }
}

fn sources(cpus: Cpus, buffers: usize) -> Result<Sources<dyn Source>, BenchError> {
    fn local<B: Buffers + 'static>(buffers: B, cpus: Cpus) -> Rc<dyn Source> {
        Rc::new(Local { buffers, cpus })
    }
    let dpdk = |ops, ring| -> Rc<dyn Source> {
        Rc::new(Peer {
            cpus,
            buffers,
            ops,
            ring,
            dpdk: RefCell::new(None),
        })
    };
    Ok(vec![
        (OURS, local(Softnet::new(buffers, true)?, cpus)),
        (NO_DEFER, local(Softnet::new(buffers, false)?, cpus)),
        ("depot", local(Depot::new(buffers)?, cpus)),
        ("dpdk", dpdk(Ops::Ring, false)),
        ("dpdk-rts", dpdk(Ops::RingRelaxed, false)),
        ("dpdk-hts", dpdk(Ops::RingHeadTail, false)),
        ("dpdk-lf-stack", dpdk(Ops::Stack, false)),
        ("malloc", local(General::<Malloc>::new(), cpus)),
        #[cfg(feature = "jemalloc")]
        (
            "jemalloc",
            local(General::<crate::peers::allocators::Jemalloc>::new(), cpus),
        ),
        #[cfg(not(feature = "jemalloc"))]
        ("jemalloc", Rc::new(NotBuilt("jemalloc"))),
        ("mimalloc", local(General::<Mimalloc>::new(), cpus)),
        #[cfg(feature = "snmalloc")]
        (
            "snmalloc",
            local(General::<crate::peers::allocators::Snmalloc>::new(), cpus),
        ),
        #[cfg(not(feature = "snmalloc"))]
        ("snmalloc", Rc::new(NotBuilt("snmalloc"))),
        (RING, local(token::Tokens, cpus)),
        (DPDK_RING, dpdk(Ops::Ring, true)),
    ])
}

/// The figures of one number of threads, in the order in which they are measured.
fn plans(threads: usize, two_cpus: bool, short: bool) -> Vec<HandOff> {
    let many = threads > 2 || short;
    let bulks = if many { FEWER_BULKS } else { BULKS };
    let few = if many { FEWER_BULKS } else { FEW_BULKS };
    let mut plans = Vec::new();
    let mut add = |path, threads, bulks: &[usize]| {
        plans.extend(bulks.iter().map(|&bulk| HandOff {
            path,
            threads,
            bulk,
        }));
    };
    if two_cpus {
        add(Path::OneWay, threads, bulks);
        add(Path::BothWays, threads, bulks);
        if !short {
            add(Path::Sleeping, threads, few);
        }
    }
    if threads == 2 {
        if !short {
            add(Path::OneCpu, threads, few);
        }
        add(Path::OneThread, 1, few);
    }
    plans
}

fn path_name(path: Path) -> &'static str {
    match path {
        Path::OneWay => "one-way",
        Path::Sleeping => "sleeping",
        Path::BothWays => "both-ways",
        Path::OneCpu => "one-cpu",
        Path::OneThread => "one-thread",
    }
}

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    options.check_variants("defer-free", VARIANTS)?;
    let threads = options.threads(THREADS, FEW_THREADS);
    if let Some(odd) = threads.iter().find(|n| **n % 2 == 1) {
        return Err(BenchError::Usage(format!(
            "defer-free measures pairs of threads: {odd} is no even number"
        )));
    }
    let cpus = Cpus::choose()?;
    let mut results = Collector::default();
    if cpus.a == cpus.b {
        let why = "needs two CPUs";
        results.skip(OURS, &[("path", json!(path_name(Path::OneWay)))], why);
    }
    for &threads in threads {
        let schedule = Schedule::new(options, threads);
        let buffers = if threads == 2 { BUFFERS } else { MANY_BUFFERS };
        let mut sources = sources(cpus, buffers)?;
        sources.retain(|(name, _)| options.wants(name));
        for plan in plans(threads, cpus.a != cpus.b, schedule.short) {
            let params = vec![
                ("path", json!(path_name(plan.path))),
                ("threads", json!(plan.threads)),
                ("bulk", json!(plan.bulk)),
            ];
            let mut figures = Vec::new();
            for (name, source) in &sources {
                let bare = [RING, DPDK_RING].contains(name);
                let pool = [OURS, NO_DEFER, "depot"].contains(name);
                if bare && (plan.path, plan.threads) != (Path::OneWay, 2)
                    || !pool && plan.path == Path::Sleeping
                {
                    continue;
                }
                if name.starts_with("dpdk") && plan.threads > dpdk::MAX_THREADS {
                    let why = format!("at most {} threads", dpdk::MAX_THREADS);
                    results.skip(name, &params, &why);
                    continue;
                }
                let source = source.clone();
                figures.push(Figure {
                    name,
                    params: params.clone(),
                    measure: Box::new(move |time| source.hand_off(plan, time)),
                    slice: schedule.slice,
                });
            }
            schedule.run(figures, &mut results)?;
        }
    }
    Ok(results.report("defer-free", &["ns_per_packet"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_one_cpu_gets_the_paths_that_it_can_do() {
        let two = [Path::OneWay, Path::BothWays, Path::Sleeping];
        let paths = |threads, two_cpus| {
            let mut paths: Vec<_> = plans(threads, two_cpus, false)
                .iter()
                .map(|p| p.path)
                .collect();
            paths.dedup();
            paths
        };
        assert_eq!(paths(2, false), [Path::OneCpu, Path::OneThread]);
        assert_eq!(
            paths(2, true),
            [&two[..], &[Path::OneCpu, Path::OneThread]].concat()
        );
        assert_eq!(paths(64, true), two);
        assert!(paths(64, false).is_empty());
    }
}
