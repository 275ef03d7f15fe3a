//! Case `vms`: machines of two queue pairs each, every other one of which sends to the next, with
//! frames of TCP segments of 400 bytes. The switch has a worker on each of two CPUs, one of which
//! the guests' program polls on. Each queue is read by one worker; with `steering rps` the flows
//! are shared out over both, so that buffers are freed by another worker than allocated them.
//! Variant `no-defer`: the same, but a buffer stays with the worker that frees it.
//!
//! Few return even so: each worker allocates as much as it frees for the other, and keeps that
//! (see [`softnet::mem`]). So both variants do nearly the same work, as `remote_freed_per_packet`
//! shows, and the rows say what deferral costs where it has nothing to do.

use std::time::Duration;

use serde_json::json;

use super::softnet::{Setup, Switch, Without};
use super::testpmd::{self, Rates, Testpmd};
use super::{BackEnd as _, NO_DEFER, QUEUE, START, WARM_UP, address, device_options};
use crate::buffers::pinned::Cpus;
use crate::error::BenchError;
use crate::hosts::Directory;
use crate::interleave::{self, Turn};
use crate::options::{Options, SHORT};
use crate::report::{Collector, Field, OURS, Param};

/// Name of these rows for `--only case=`.
const CASE: &str = "vms";
pub(super) const RING: &str = "split";
const VMS: [usize; 2] = [2, 8];
const QUEUES: usize = 2;
const STEERING: [&str; 2] = ["none", "rps"];
/// Ethernet, IPv4 and TCP headers, and 400 bytes.
pub(super) const FRAME: usize = 454;
/// Bursts of 32 packets that go round, from each queue.
const BURSTS: usize = 4;

fn params(vms: usize, steering: &str) -> Vec<Param> {
    vec![
        ("case", json!(CASE)),
        ("vms", json!(vms)),
        ("queues", json!(QUEUES)),
        ("frame", json!(FRAME)),
        ("steering", json!(steering)),
        ("ring", json!(RING)),
    ]
}

/// Figures of `vms` machines in pairs, which are on `cpu` and have rings of so many `descriptors`.
pub(super) fn measure(
    setup: &Setup,
    vms: usize,
    descriptors: usize,
    cpu: usize,
    time: Duration,
) -> Result<Vec<Field>, BenchError> {
    let directory = Directory::private()?;
    let socket = |n| directory.path().join(format!("{n}.sock"));
    let sockets: Vec<_> = (0..vms).map(socket).collect();
    let (switch, queues) = (Switch::start(&sockets, setup)?, setup.queues);
    let device = |(n, path): (usize, &std::path::PathBuf)| {
        let ring = device_options(RING, descriptors);
        let options = format!("mac={},{ring},queues={queues}", address(n));
        testpmd::front_end(n, path, &options)
    };
    let devices: Vec<_> = sockets.iter().enumerate().map(device).collect();
    let mut arguments = vec![
        "--forward-mode=mac".to_owned(),
        "--txonly-multi-flow".to_owned(),
        format!("--txpkts={FRAME}"),
        format!("--rxq={queues}"),
        format!("--txq={queues}"),
    ];
    // Pairs: 0 and 1, 2 and 3, ...
    arguments.extend((0..vms).map(|n| format!("--eth-peer={n},{}", address(n ^ 1))));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    // Each ring of the guest may be full of them, and of as many again that wait to be sent.
    let packets = 8192 + 2 * vms * queues * descriptors;
    let mut guest = Testpmd::start(cpu, &devices, packets, &arguments)?;
    guest.ask(&format!("start tx_first {BURSTS}"))?;
    std::thread::sleep(WARM_UP.min(time));
    let (before, cpu_before) = (switch.stats(), switch.cpu_s());
    let rates = Rates::sum(&guest.rates(time)?);
    let (after, cpu_after) = (switch.stats(), switch.cpu_s());
    let (was, is) = (before.conservation(), after.conservation());
    let sent = ((is.tx - was.tx) as f64).max(1.0);
    let freed = after.pool.remote_freed - before.pool.remote_freed;
    let exchanges = after.pool.depot_ops - before.pool.depot_ops;
    let mut fields = vec![
        ("mpps", rates.received / 1e6),
        ("drops", (is.dropped - was.dropped) as f64),
        ("remote_freed_per_packet", freed as f64 / sent),
        ("depot_ops_per_packet", exchanges as f64 / sent),
    ];
    if let (Some(before), Some(after)) = (cpu_before, cpu_after) {
        fields.push(("cpu_s_per_mpkt", (after - before) / sent * 1e6));
    }
    drop(guest);
    Box::new(switch).stop()?;
    Ok(fields)
}

/// Machines in pairs, with so many descriptors a ring, and the switch of each variant.
pub(super) struct Row {
    pub(super) params: Vec<Param>,
    pub(super) vms: usize,
    pub(super) descriptors: usize,
    pub(super) variants: Vec<(&'static str, Setup)>,
}

/// Measures those rows that are asked for, in turns of their variants.
pub(super) fn measure_rows(
    options: &Options,
    cpus: Cpus,
    rows: impl Iterator<Item = Row>,
    results: &mut Collector,
) -> Result<(), BenchError> {
    let only = options.only()?;
    let (rounds, time) = super::turns(options);
    if !options.threads.is_empty() {
        return Ok(());
    }
    for row in rows {
        let (params, vms, descriptors) = (row.params, row.vms, row.descriptors);
        if !only.allows(&params) {
            continue;
        }
        let turn = |(name, setup): (&'static str, Setup)| {
            let of = params.clone();
            let measure = move |results: &mut Collector| {
                let fields = measure(&setup, vms, descriptors, cpus.b, time)?;
                results.add(name, &of, &fields);
                Ok(())
            };
            Turn::new(name, &params, measure)
        };
        let all = row.variants.into_iter().map(turn).collect();
        let rounds = rounds.clone().of(&params, time).in_turns_of(time + START);
        interleave::measure(options, rounds, all, results)?;
    }
    Ok(())
}

/// Sizes that a run measures: in a short one only the least.
pub(super) fn sizes_of<'a, T>(options: &Options, all: &'a [T]) -> &'a [T] {
    if options.seconds < SHORT {
        &all[..1]
    } else {
        all
    }
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let cpus = Cpus::choose()?;
    let row = |vms, steering: &str| {
        let setup = |name| Setup {
            queues: QUEUES,
            cpus: vec![cpus.a, cpus.b],
            without: Without {
                defer: name == NO_DEFER,
                ..Without::default()
            },
            rps: if steering == "rps" { 0..2 } else { 0..0 }.collect(),
        };
        Row {
            params: params(vms, steering),
            vms,
            descriptors: QUEUE,
            variants: [OURS, NO_DEFER].map(|name| (name, setup(name))).into(),
        }
    };
    let sizes = sizes_of(options, &VMS).iter();
    let rows = sizes.flat_map(|&vms| STEERING.map(|steering| row(vms, steering)));
    measure_rows(options, cpus, rows, results)
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    let of = |vms| STEERING.map(|steering| params(vms, steering));
    VMS.into_iter().flat_map(of).collect()
}
