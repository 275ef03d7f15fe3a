//! Experiment `defer-free`: A allocates packets and hands them to B, which frees them: where does
//! the memory go?
//!
//! Paths: `one-way` from CPU to CPU, `sleeping`, where A sleeps when it can send no more,
//! `both-ways` at once, and the two where a packet is freed where it was allocated, so that
//! returning it to its owner must cost nothing: `one-cpu` (two threads on it) and `one-thread`. The
//! ring between A and B is the same for all but DPDK, which uses its own.

use serde_json::{Value, json};

use crate::buffers::pinned::{Cpus, HandOff, Path};
use crate::buffers::source::{self, DEPOT, NO_DEFER};
use crate::buffers::{figure, take_turns};
use crate::error::BenchError;
use crate::options::{Options, SHORT};
use crate::peers::{allocators, dpdk};
use crate::report::{Collector, OURS};

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
const POOLS: [&str; 4] = [OURS, NO_DEFER, DEPOT, "dpdk"];

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
    let names = [&POOLS[..], &allocators::NAMES].concat();
    options.check_variants("defer-free", &names)?;
    let mut threads = options.threads(THREADS, FEW_THREADS);
    if options.threads.is_empty() {
        threads.retain(|n| n % 2 == 0);
    }
    if let Some(odd) = threads.iter().find(|n| **n % 2 == 1) {
        return Err(BenchError::Usage(format!(
            "defer-free measures pairs of threads: {odd} is no even number"
        )));
    }
    let cpus = Cpus::choose()?;
    let mut results = Collector::default();
    let only = options.only()?;
    let one_way = [("path", json!(path_name(Path::OneWay)))];
    if cpus.a == cpus.b && only.allows(&one_way) {
        results.skip(OURS, &one_way, "needs two CPUs");
    }
    for threads in threads {
        let slice = options.window(threads);
        let buffers = if threads == 2 { BUFFERS } else { MANY_BUFFERS };
        let mut sources = Vec::new();
        for &name in names.iter().filter(|name| options.wants(name)) {
            sources.push((name, source::named(name, cpus, buffers)?));
        }
        for plan in plans(threads, cpus.a != cpus.b, options.seconds < SHORT) {
            let params = vec![
                ("path", json!(path_name(plan.path))),
                ("threads", json!(plan.threads)),
                ("bulk", json!(plan.bulk)),
            ];
            if !only.allows(&params) {
                continue;
            }
            let mut figures = Vec::new();
            for (name, source) in &sources {
                let sleeps = [OURS, NO_DEFER, DEPOT].contains(name);
                if !sleeps && plan.path == Path::Sleeping {
                    continue;
                }
                if *name == "dpdk" && plan.threads > dpdk::MAX_THREADS {
                    let why = format!("at most {} threads", dpdk::MAX_THREADS);
                    results.skip(name, &params, &why);
                    continue;
                }
                let source = source.clone();
                let measure = move |time| source.hand_off(plan, time);
                figures.push(figure(name, params.clone(), slice, measure));
            }
            take_turns(options, slice, figures, &mut results)?;
        }
    }
    Ok(results.report("defer-free"))
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
