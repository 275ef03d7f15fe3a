//! Case `many-ports`: a switch with a thousand hosts, each in a network namespace of its own with
//! IPv6, which has each host send to groups as it comes up. How long until the hosts are there,
//! until a ping is as fast as on an idle switch, how long pings between two of them take while all
//! others leave and come up again, and how long until all is gone.
//!
//! 2, 50, 500 and 1,000 hosts, or those of `--threads`. Beside that CPU time of the idle switch,
//! and datagrams between two of them. For Softnet and Open vSwitch they are TAP ports, for the
//! kernel's bridge veth pairs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{SHORT, flat_out, udp};
use crate::error::BenchError;
use crate::hosts::{Host, Topology};
use crate::interleave;
use crate::numbers::percentile;
use crate::options::Options;
use crate::ping;
use crate::process;
use crate::report::{Collector, OURS, Param};
use crate::switches::{self, KERNEL_GROUP, KernelBridge, OpenVswitch, Softnet, Switch, Wiring};

/// Value of the parameter `case`.
pub(super) const NAME: &str = "many-ports";
/// Time of a turn, about, and more for each host.
const TIME: Duration = Duration::from_secs(5);
const TIME_OF_EACH: Duration = Duration::from_millis(25);
/// Hosts, where there is time, and where there is not.
const HOSTS: [usize; 4] = [2, 50, 500, 1000];
const FEW_HOSTS: [usize; 1] = [20];
/// Time for which an idle switch is looked at.
const IDLE: Duration = Duration::from_secs(2);
/// A ping that is answered in this time finds the switch idle.
const CALM: Duration = Duration::from_millis(5);
/// Time to wait for something at most.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two pings while hosts come up, and for which they go on then.
const INTERVAL: Duration = Duration::from_millis(10);
const AFTER: Duration = Duration::from_secs(2);

pub(super) fn switches() -> Vec<Box<dyn Switch>> {
    vec![
        Box::new(Softnet::default()),
        Box::new(Softnet::querying()),
        Box::new(OpenVswitch::Stock),
        Box::new(KernelBridge),
    ]
}

/// Measures the case and adds its rows.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let numbers = match (&options.threads[..], options.seconds < SHORT) {
        ([], true) => &FEW_HOSTS[..],
        ([], false) => &HOSTS[..],
        (chosen, _) => chosen,
    };
    for hosts in numbers.iter().map(|hosts| (*hosts).max(2)) {
        let params = [("case", json!(NAME)), ("hosts", json!(hosts))];
        if !only.allows(&params) {
            continue;
        }
        let turn = {
            let params = params.clone();
            move |switch: &dyn Switch, results: &mut Collector| {
                run(switch, hosts, &params, results)
            }
        };
        let turns = switches::turns(switches(), &params, results, turn);
        let rounds = options.program_turns().0.of(&params, Duration::ZERO);
        let rounds = rounds.in_turns_of(TIME + TIME_OF_EACH * hosts as u32);
        interleave::measure(options, rounds, turns, results)?;
    }
    Ok(())
}

fn run(
    switch: &dyn Switch,
    hosts: usize,
    params: &[Param],
    results: &mut Collector,
) -> Result<(), BenchError> {
    let mut topology = Topology::of(hosts)?;
    let start = Instant::now();
    switch.connect(&mut topology, Wiring::default())?;
    ping::wait_until_up(&topology, PATIENCE)?;
    let running = start.elapsed();
    let calm = ping::wait_until_calm(&topology, [0, hosts - 1], CALM, PATIENCE)?;
    let mut fields = vec![
        ("running_seconds", running.as_secs_f64()),
        ("calm_seconds", calm.as_secs_f64()),
    ];
    fields.extend(while_others_join(&topology)?);
    if !topology.daemons.is_empty() {
        let before = used(&topology)?;
        std::thread::sleep(IDLE);
        let share = (used(&topology)? - before) / IDLE.as_secs_f64();
        fields.push(("idle_cpu_share", share));
    }
    let udp = udp::run(&topology, &flat_out(IDLE / 4))?;
    fields.push(("udp_pps", udp.delivered_pps));
    // The switch itself is the last daemon of each that has some.
    let daemons = topology.daemons.iter().map(process::Process::resident);
    let resident: Option<u64> = daemons.flatten().max();
    if let Some(bytes) = resident {
        let each = bytes as f64 / 1024.0 / hosts as f64;
        fields.push(("memory_per_port_kb", each));
    }
    if switch.name().starts_with(OURS) {
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
    results.add(switch.name(), params, &fields);
    Ok(())
}

/// CPU time of the switch's processes.
fn used(topology: &Topology) -> Result<f64, BenchError> {
    topology.daemons.iter().map(process::Process::cpu_s).sum()
}

/// Pings between the first two hosts while all others come up once more, and for some time then.
fn while_others_join(topology: &Topology) -> Result<[(&'static str, f64); 4], BenchError> {
    let others = topology.hosts.get(2..).unwrap_or_default();
    set_up(others, false)?;
    ping::wait_until_calm(topology, [0, 1], CALM, PATIENCE)?;
    let (joined, pings) = std::thread::scope(|scope| {
        let joining = scope.spawn(|| {
            let start = Instant::now();
            set_up(others, true)?;
            let joined = start.elapsed();
            std::thread::sleep(AFTER);
            Ok::<_, BenchError>(joined)
        });
        let pings = ping::run_while(topology, INTERVAL, || !joining.is_finished());
        let joined = joining
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, BenchError>((joined?, pings?))
    })?;
    let us = &pings.round_trips_us;
    Ok([
        ("joined_seconds", joined.as_secs_f64()),
        ("joining_ping_p50_us", percentile(us, 0.5)),
        ("joining_ping_p99_us", percentile(us, 0.99)),
        ("joining_ping_lost", pings.lost as f64),
    ])
}

fn set_up(hosts: &[Host], up: bool) -> Result<(), BenchError> {
    hosts.iter().try_for_each(|host| host.set_up(up))
}

/// Copies that the daemon has made of packets to groups.
fn copied(topology: &Topology) -> Result<f64, BenchError> {
    let softnet = Softnet::default();
    softnet.prepare()?;
    let printed = process::output(softnet.command(topology, "stats").arg("--json"))?;
    let stats: Value = serde_json::from_str(&printed)
        .map_err(|error| BenchError::Measure(format!("the counters: {error}")))?;
    let copied = &stats["conservation"]["copied"];
    copied
        .as_f64()
        .ok_or_else(|| BenchError::Measure("no count of copies".into()))
}
