//! Case `load`: the same datagrams and the same TCP offered to all, at 10, 50 and 90 % of the
//! datagrams that the slower of Softnet and the kernel's bridge delivers flat out, which is
//! measured first. What that costs, with the daemon's share apart, and how long after it was due a
//! datagram is with the program that receives it. Naps of the sender count, too.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;

use super::{SMALL_DATAGRAM, WARM_UP, flat_out, iperf, udp};
use crate::cpu;
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave;
use crate::numbers::{percentile, percentiles};
use crate::options::Options;
use crate::process::Process;
use crate::report::{Collector, Param};
use crate::switches::{self, KernelBridge, OpenVswitch, Softnet, Switch, Wiring};

/// Value of the parameter `case`.
pub(super) const NAME: &str = "load";
const LOADS: [u32; 3] = [10, 50, 90];
/// TCP that is offered, Gb/s.
const GIGABITS: u32 = 1;

pub(super) fn switches() -> Vec<Box<dyn Switch>> {
    vec![
        Box::new(Softnet::default()),
        Box::new(OpenVswitch::Stock),
        Box::new(OpenVswitch::SegmentationOffload),
        Box::new(KernelBridge),
    ]
}

/// Measures the case and adds its rows.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let (rounds, slice) = options.program_turns();
    let params = [("case", json!(NAME))];
    let most = Rc::new(Cell::new(None));
    let turn = move |switch: &dyn Switch, results: &mut Collector| {
        let most = match most.get() {
            Some(most) => most,
            None => {
                let found = slower(slice)?;
                most.set(Some(found));
                found
            }
        };
        turn(switch, most, slice, results)
    };
    let turns = switches::turns(switches(), &params, results, turn);
    let turn = (slice + WARM_UP) * LOADS.len() as u32 + iperf::whole(slice);
    let rounds = rounds.of(&params, slice).of_several();
    interleave::measure(options, rounds.in_turns_of(turn + WARM_UP), turns, results)
}

/// Datagrams per second that the slower of the two delivers.
fn slower(slice: Duration) -> Result<f64, BenchError> {
    let softnet = Softnet::default();
    softnet.prepare()?;
    let mut least = f64::INFINITY;
    for switch in [&softnet as &dyn Switch, &KernelBridge] {
        let (topology, _) = switches::open(switch, 2, Wiring::default())?;
        least = least.min(udp::run(&topology, &flat_out(slice))?.delivered_pps);
    }
    Ok(least)
}

fn turn(
    switch: &dyn Switch,
    most: f64,
    slice: Duration,
    results: &mut Collector,
) -> Result<(), BenchError> {
    let (topology, _) = switches::open(switch, 2, Wiring::default())?;
    for percent in LOADS {
        let load = udp::Load {
            pace: Some(most * f64::from(percent) / 100.0),
            ..flat_out(slice)
        };
        let udp = udp::run(&topology, &load)?;
        let packets = (udp.delivered_pps * udp.seconds).max(1.0);
        let mut fields = vec![
            ("udp_pps", udp.delivered_pps),
            ("udp_offered_pps", udp.offered_pps),
            ("cpu_s_per_mpkt", udp.cpu_s / packets * 1e6),
            ("daemon_us_per_packet", udp.daemons_cpu_s / packets * 1e6),
        ];
        let of = [
            ("latency_p50_ns", 0.5),
            ("latency_p99_ns", 0.99),
            ("latency_p999_ns", 0.999),
        ];
        let us = &udp.latencies_us;
        let at = |fraction| Some(percentile(us, fraction) * 1e3);
        fields.extend(percentiles(of, us.len(), at));
        let params = [
            ("case", json!(NAME)),
            ("load", json!(format!("{percent}%"))),
            ("payload", json!(SMALL_DATAGRAM)),
        ];
        results.lasting(slice).add(switch.name(), &params, &fields);
    }
    tcp(switch, &topology, slice, results)?;
    switches::close(topology)
}

fn tcp(
    switch: &dyn Switch,
    topology: &Topology,
    slice: Duration,
    results: &mut Collector,
) -> Result<(), BenchError> {
    let params: [Param; 2] = [("case", json!(NAME)), ("offered_gbps", json!(GIGABITS))];
    let server = match iperf::Server::start(topology) {
        Err(BenchError::Unavailable(why)) => {
            results.skip(switch.name(), &params, &why);
            return Ok(());
        }
        server => server?,
    };
    let daemons = || -> Result<f64, BenchError> {
        let each = topology.daemons.iter().map(Process::cpu_s);
        each.sum()
    };
    let (busy, own) = (cpu::busy()?, daemons()?);
    let tcp = server.tcp_at(slice, u64::from(GIGABITS) * 1_000_000_000)?;
    let gigabits = (tcp.bits / 1e9).max(1e-9);
    let fields = [
        ("tcp_gbps", gigabits / tcp.seconds),
        ("cpu_s_per_gbit", (cpu::busy()? - busy) / gigabits),
        ("daemon_s_per_gbit", (daemons()? - own) / gigabits),
    ];
    let time = iperf::whole(slice);
    results.lasting(time).add(switch.name(), &params, &fields);
    Ok(())
}
