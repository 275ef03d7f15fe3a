//! The container case of experiment `nolock-qdisc`: a load generator (wrk) on host a, a proxy
//! (nginx) on host b, a web server (nginx) on host c, joined by Softnet or by what one would use
//! instead.
//!
//! Every request crosses the switch four times, in small packets. Softnet has its default
//! qdisc, `pfifo_fast`, at each port; the kernel's bridge has none, as it comes. All share
//! the machine's CPUs.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave::{self, in_any_order};
use crate::options::Options;
use crate::report::{Collector, Field, Param};
use crate::switches::{
    self, EmbeddedSoftnet, KernelBridge, OpenVswitch, PortThreads, Switch, Wiring,
};
use crate::traffic::iperf;
use crate::{cpu, process};

mod nginx;
mod wrk;

/// The case's name: rows carry it as the parameter `case`.
const CASE: &str = "web";
/// Connections from the load generator to the proxy.
const CONNECTIONS: [u32; 3] = [16, 64, 1024];
/// Requests before the first measurement, so that the proxy has its connections to the server.
const WARM_UP: Duration = Duration::from_secs(1);

/// The names of the variants.
pub(crate) fn variants() -> Vec<&'static str> {
    switches::names(&switches())
}

fn switches() -> Vec<Box<dyn Switch>> {
    vec![
        Box::new(EmbeddedSoftnet),
        Box::new(PortThreads::Lockless),
        Box::new(PortThreads::Locked),
        Box::new(OpenVswitch::Stock),
        Box::new(OpenVswitch::SegmentationOffload),
        Box::new(KernelBridge),
    ]
}

/// Measures the case and adds its rows. Names that `--variants` has beside those of its
/// [`variants`] are passed over.
///
/// # Errors
/// What ends an experiment.
pub(crate) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let mut connections = CONNECTIONS.to_vec();
    connections.retain(|&count| only.allows(&params(count)));
    if connections.is_empty() {
        return Ok(());
    }
    let (rounds, slice) = options.program_turns();
    let slice = iperf::whole(slice);
    let params = [("case", json!(CASE))];
    let time = slice * connections.len() as u32 + WARM_UP + Duration::from_secs(2);
    let turn = move |switch: &dyn Switch, results: &mut Collector| {
        turn(switch, &connections, slice, results)
    };
    let turns = switches::turns(switches(), &params, results, turn);
    let rounds = rounds.of(&params, slice).of_several().in_turns_of(time);
    interleave::measure(options, rounds, turns, results)
}

fn params(connections: u32) -> [Param; 2] {
    [("case", json!(CASE)), ("connections", json!(connections))]
}

fn turn(
    switch: &dyn Switch,
    connections: &[u32],
    slice: Duration,
    results: &mut Collector,
) -> Result<(), BenchError> {
    for (program, package) in [("wrk", "wrk"), ("nginx", "nginx")] {
        if process::find(program).is_none() {
            return Err(BenchError::Unavailable(format!(
                "`{program}` is not installed (package {package})"
            )));
        }
    }
    let (mut topology, _) = switches::open(switch, 3, Wiring::default())?;
    nginx::start(&mut topology)?;
    // A shorter run is to see it work, not to judge its figures.
    if let Some(&most) = connections.iter().max().filter(|_| slice >= WARM_UP) {
        wrk::run(&topology, nginx::proxy(&topology), most, WARM_UP)?;
    }
    let each = |connections| measure(&topology, connections, slice);
    for (connections, fields) in in_any_order(connections, each)? {
        results.add(switch.name(), &params(connections), &fields);
    }
    switches::close(topology)
}

fn measure(
    topology: &Topology,
    connections: u32,
    slice: Duration,
) -> Result<Vec<Field>, BenchError> {
    let engine = || topology.engine.as_ref().map(|e| e.counters()).transpose();
    let (busy, before) = (cpu::busy()?, engine()?);
    let web = wrk::run(topology, nginx::proxy(topology), connections, slice)?;
    let (busy, after) = (cpu::busy()? - busy, engine()?);
    let requests = web.requests.max(1.0);
    let mut fields = vec![
        ("rps", web.requests_per_second),
        ("p50_ns", web.p50_ns),
        ("p99_ns", web.p99_ns),
        ("errors", web.errors),
        ("cpu_us_per_request", busy * 1e6 / requests),
    ];
    if let (Some(after), Some(before)) = (after, before) {
        let counted = after - before;
        fields.extend([
            ("frames_per_request", counted.frames as f64 / requests),
            ("sleeps_per_request", counted.sleeps as f64 / requests),
            ("worker_us_per_request", counted.cpu_s * 1e6 / requests),
            ("drops", counted.drops as f64),
        ]);
    }
    Ok(fields)
}

/// A command that runs `program` on one of the hosts.
fn on(topology: &Topology, host: usize, program: &str) -> Command {
    let program = process::find(program).unwrap_or_else(|| program.into());
    topology.hosts[host].netns.command(program)
}
