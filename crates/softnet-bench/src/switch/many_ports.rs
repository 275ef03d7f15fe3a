//! Case `many-ports`: a switch with a thousand hosts, each in a network namespace of its own with
//! IPv6, which has each host send to groups as it comes up. How long until the hosts are there,
//! until a ping is as fast as on an idle switch, and until all is gone again.
//!
//! `--threads N` says how many hosts. For Softnet and Open vSwitch they are TAP ports, for the
//! kernel's bridge veth pairs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::ping;
use crate::process;
use crate::report::{Collector, OURS, Param};
use crate::switches::{KERNEL_GROUP, Softnet, Switch, Wiring};

/// Hosts, where there is time, and where there is not.
pub(super) const HOSTS: usize = 1000;
pub(super) const FEW_HOSTS: usize = 20;
/// A ping that is answered in this time finds the switch idle.
const CALM: Duration = Duration::from_millis(5);
/// Time to wait for something at most.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures one switch with so many hosts.
pub(super) fn run(
    switch: &dyn Switch,
    hosts: usize,
    results: &mut Collector,
) -> Result<(), BenchError> {
    let params: [Param; 2] = [("case", json!("many-ports")), ("hosts", json!(hosts))];
    let mut topology = Topology::of(hosts)?;
    let start = Instant::now();
    switch.connect(&mut topology, Wiring::default())?;
    ping::wait_until_up(&topology, PATIENCE)?;
    let running = start.elapsed();
    let calm = ping::wait_until_calm(&topology, CALM, PATIENCE)?;
    let mut fields = vec![
        ("running_seconds", running.as_secs_f64()),
        ("calm_seconds", calm.as_secs_f64()),
    ];
    // The switch itself is the last daemon of each that has some.
    let daemons = topology.daemons.iter().map(process::Process::resident);
    let resident: Option<u64> = daemons.flatten().max();
    if let Some(bytes) = resident {
        fields.push(("memory_per_port_kb", bytes as f64 / 1024.0 / hosts as f64));
    }
    if switch.name() == OURS {
        fields.push(("copied_packets", copied(&topology)?));
    }
    let stop = Instant::now();
    match topology.daemons.is_empty() {
        true => topology
            .switch
            .ip(&format!("link delete group {KERNEL_GROUP}"))?,
        false => topology.daemons.clear(),
    }
    fields.push(("stop_seconds", stop.elapsed().as_secs_f64()));
    results.add(switch.name(), &params, &fields);
    Ok(())
}

/// Copies that the daemon has made of packets to groups.
fn copied(topology: &Topology) -> Result<f64, BenchError> {
    let softnet = Softnet::default();
    softnet.prepare()?;
    let mut command = topology.switch.command(softnet.program());
    let socket = topology.directory.path().join("rtnetlink.sock");
    command.args(["stats", "--json", "--socket"]).arg(socket);
    let printed = process::output(&mut command)?;
    let stats: Value = serde_json::from_str(&printed)
        .map_err(|error| BenchError::Measure(format!("the counters: {error}")))?;
    let copied = &stats["conservation"]["copied"];
    copied
        .as_f64()
        .ok_or_else(|| BenchError::Measure("no count of copies".into()))
}
