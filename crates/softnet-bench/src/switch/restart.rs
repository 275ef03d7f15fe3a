//! Case `restart`: a ping every millisecond beside datagrams, while the daemon applies its
//! configuration anew (`reload`), is stopped and started (`restart`), or is killed and started
//! (`kill`). `dark_ms` is the longest time without an answer, `ping_lost` what was not answered.

use std::time::{Duration, Instant};

use serde_json::json;
use softnet_testbed::threads::joined;

use super::{flat_out, udp};
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave::{self, Turn};
use crate::options::Options;
use crate::ping;
use crate::process::{self, Process};
use crate::report::{Collector, OURS, Param};
use crate::switches::{self, Softnet, Switch as _, Wiring};

/// Value of the parameter `case`.
pub(super) const NAME: &str = "restart";
const EVENTS: [&str; 3] = ["reload", "restart", "kill"];
/// Datagrams per second meanwhile.
const PACE: f64 = 20_000.0;
/// Time before it happens, and after.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_millis(1500);
const INTERVAL: Duration = Duration::from_millis(1);

/// Measures the case and adds its rows.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let (rounds, _) = options.program_turns();
    for event in EVENTS {
        let params: [Param; 2] = [("case", json!(NAME)), ("event", json!(event))];
        if !only.allows(&params) {
            continue;
        }
        let of = params.clone();
        let turn = Turn::new(OURS, &params, move |results| {
            results.add(OURS, &of, &measure(event)?);
            Ok(())
        });
        let rounds = rounds.clone().of(&params, BEFORE + AFTER);
        let rounds = rounds.in_turns_of(BEFORE + AFTER + Duration::from_secs(1));
        interleave::measure(options, rounds, vec![turn], results)?;
    }
    Ok(())
}

fn measure(event: &str) -> Result<Vec<(&'static str, f64)>, BenchError> {
    let softnet = Softnet::default();
    softnet.prepare()?;
    let (mut topology, _) = switches::open(&softnet, 2, Wiring::default())?;
    let before = std::mem::take(&mut topology.daemons);
    let mut after = Vec::new();
    let end = Instant::now() + BEFORE + AFTER;
    let load = udp::Load {
        pace: Some(PACE),
        ..flat_out(BEFORE + AFTER)
    };
    let hosts = &topology;
    let (pings, dark) = std::thread::scope(|scope| {
        // While there is no interface, a datagram cannot be sent: that is what is measured.
        let datagrams = scope.spawn(|| udp::run(hosts, &load).map(drop));
        let happening = scope.spawn(|| {
            std::thread::sleep(BEFORE);
            happen(event, &softnet, hosts, before)
        });
        let (mut last, mut dark, mut answered) = (Instant::now(), Duration::ZERO, 0);
        let mut lost = 0;
        while Instant::now() < end {
            match ping::run(hosts, 1, INTERVAL) {
                Ok(pings) if pings.lost == 0 => {
                    dark = dark.max(last.elapsed());
                    last = Instant::now();
                    answered += 1;
                }
                _ => lost += 1,
            }
            std::thread::sleep(INTERVAL);
        }
        dark = dark.max(last.elapsed());
        after = joined(happening)?;
        // It may have met a host without an interface.
        let _ = joined(datagrams);
        Ok::<_, BenchError>(((answered, lost), dark))
    })?;
    topology.daemons = after;
    topology.check_running()?;
    if pings.0 == 0 {
        return Err(BenchError::Measure("no ping was answered".into()));
    }
    Ok(vec![
        ("dark_ms", dark.as_secs_f64() * 1e3),
        ("ping_lost", f64::from(pings.1)),
    ])
}

/// Does it; the daemon that runs then.
fn happen(
    event: &str,
    softnet: &Softnet,
    topology: &Topology,
    mut daemons: Vec<Process>,
) -> Result<Vec<Process>, BenchError> {
    match event {
        "reload" => {
            process::output(&mut softnet.command(topology, "reload"))?;
            return Ok(daemons);
        }
        "kill" => daemons.iter().try_for_each(Process::kill)?,
        _ => {}
    }
    daemons.clear();
    Ok(vec![softnet.start(topology)?])
}
