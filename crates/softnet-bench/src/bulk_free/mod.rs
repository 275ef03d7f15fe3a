//! Experiment `bulk-free`: packets allocated and freed on one thread, at several bulk sizes, and a
//! forwarding loop with transmit completion, packet by packet and in bulk. Against DPDK's mbuf
//! pool and general allocators.

use serde_json::{Value, json};

use crate::buffers::pinned::{BATCH, Cpus};
use crate::buffers::source::{self, DEPOT, FAST_FREE, PER_PACKET};
use crate::buffers::{figure, take_turns};
use crate::error::BenchError;
use crate::options::{Options, SHORT};
use crate::peers::allocators;
use crate::report::{Collector, OURS};

/// Packets in each pool.
const BUFFERS: usize = 8192;
const BULKS: &[usize] = &[1, 2, 4, 8, 16, 32, 64];
const SHORT_BULKS: &[usize] = &[1, 8, 32];
const POOLS: [&str; 5] = [OURS, PER_PACKET, DEPOT, "dpdk", FAST_FREE];

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    if !options.threads.is_empty() {
        eprintln!("softnet-bench: bulk-free: --threads has no meaning here and is ignored");
    }
    let names = [&POOLS[..], &allocators::NAMES].concat();
    options.check_variants("bulk-free", &names)?;
    let slice = options.window(1);
    let mut sources = Vec::new();
    for name in names.into_iter().filter(|name| options.wants(name)) {
        sources.push((name, source::named(name, Cpus::choose()?, BUFFERS)?));
    }
    let mut results = Collector::default();
    let bulks = if options.seconds < SHORT {
        SHORT_BULKS
    } else {
        BULKS
    };
    let only = options.only()?;
    for &bulk in bulks {
        let params = [("bulk", json!(bulk))];
        if !only.allows(&params) {
            continue;
        }
        // Packet by packet is what bulk 1 is.
        let figures = sources.iter().filter(|(name, _)| *name != PER_PACKET);
        let figures = figures.map(|(name, source)| {
            let source = source.clone();
            figure(name, params.to_vec(), slice, move |time| {
                source.same_thread(bulk, time)
            })
        });
        take_turns(options, slice, figures.collect(), &mut results)?;
    }
    let params = [("path", json!("forward")), ("bulk", json!(BATCH))];
    if only.allows(&params) {
        let forwarding = sources.iter().filter(|(name, _)| *name != FAST_FREE);
        let figures = forwarding.map(|(name, source)| {
            let (source, bulk) = (source.clone(), *name != PER_PACKET);
            let forward = move |time| source.forward(bulk, time);
            figure(name, params.to_vec(), slice, forward)
        });
        take_turns(options, slice, figures.collect(), &mut results)?;
    }
    let mut report = results.report("bulk-free");
    report["buffers"] = json!(BUFFERS);
    report["allocated_bytes"] = json!(crate::buffers::DATA + 64);
    Ok(report)
}
