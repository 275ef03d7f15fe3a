//! Experiment `sim-check`: policies of `examples/policies` in `softnet sim`, and the same scripts
//! on a TAP port of the daemon, with the senders that their comments ask for: Linux's own TCP with
//! the congestion control that is named, and datagrams. The round-trip time is a `netem` of
//! Softnet's on the way back; as in the simulation, no sender makes large frames.
//!
//! Of each name of senders: the rate, and the time that frames stayed in the tree, 50 and 99 %. On
//! the port that is from `softnet capture`, which tells it of each frame to the nanosecond (the
//! histograms of `softnet stats` know the power of two). Percentiles are a connection's own; of
//! several they are the mean, weighted by frames, since the simulation gives no others.
//!
//! Left out: `l4s`, for which the host has no sender, and `priority`, whose link has a rate.

mod figures;
mod senders;

use std::fs::File;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use softnet_testbed::threads::joined;

use crate::error::BenchError;
use crate::hosts::{ADDRESS_B, Topology};
use crate::interleave::{self, Turn};
use crate::numbers::percentile;
use crate::options::{Options, SHORT};
use crate::process::{self, Process};
use crate::report::{Collector, Field, OURS, Param};
use crate::switches::{self, Softnet, Switch as _, Wiring};
use crate::traffic::flows;
use crate::traffic::window::Window;
use figures::Figures;
use senders::Senders;

const NAME: &str = "sim-check";
/// Time for which senders send.
const TIME: Duration = Duration::from_millis(3300);
/// Time that the capture has to start, and connections to be made.
const WARM_UP: Duration = Duration::from_millis(300);
/// Time for the simulations, to connect the hosts, and to end.
const SETUP: Duration = Duration::from_millis(1300);
/// Policies that are measured at the same time, each with a daemon: the time is better spent on
/// longer windows, and together they send at most 160 Mb/s.
const AT_ONCE: usize = 3;
/// Interval of the timer whose delay is measured.
const TICK: Duration = Duration::from_millis(1);

/// A script, and the senders that its comments ask for.
struct Policy {
    name: &'static str,
    path: &'static str,
    script: &'static str,
}

macro_rules! policy {
    ($name:literal) => {
        Policy {
            name: $name,
            path: concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../examples/policies/",
                $name,
                ".sh"
            ),
            script: include_str!(concat!("../../../../examples/policies/", $name, ".sh")),
        }
    };
}

/// Each three that are measured together have slow and fast ones.
static POLICIES: [Policy; 9] = [
    policy!("htb-voip"),
    policy!("fair-queue"),
    policy!("diffserv"),
    policy!("cake-uplink"),
    policy!("host-fairness"),
    policy!("two-tenants"),
    policy!("per-flow-rate"),
    policy!("policing"),
    policy!("wifi-like"),
];

/// The parameters and figures of a row.
type Row = (Vec<Param>, Vec<Field>);

impl Policy {
    fn params(&self, flow: &str) -> Vec<Param> {
        vec![("policy", json!(self.name)), ("flow", json!(flow))]
    }

    /// The figures of each name of senders in virtual time.
    fn simulate(
        &self,
        softnet: &Softnet,
        senders: &Senders,
        time: Duration,
    ) -> Result<Vec<Figures>, BenchError> {
        let mut sim = Command::new(softnet.program());
        sim.args(["sim", "--json", "--dev", "eth0", "--script", self.path]);
        for flow in senders.generated(time) {
            sim.args(["--generate", &flow]);
        }
        let printed = process::output(&mut sim)?;
        let told: Value = serde_json::from_str(&printed)
            .map_err(|e| BenchError::command("softnet sim", format!("it printed no JSON: {e}")))?;
        Ok(figures::simulated(&told, &senders.names()))
    }

    /// The figures of each name of senders on a port, and delays of a timer meanwhile, ns.
    fn measure(
        &self,
        softnet: &Softnet,
        senders: &Senders,
        time: Duration,
    ) -> Result<(Vec<Figures>, Vec<f64>), BenchError> {
        let (topology, _) = switches::open(softnet, 2, Wiring::default())?;
        let [near, far] = [0, 1].map(|host| topology.hosts[host].interface.as_str());
        prepare(&topology, senders, near, far)?;
        if let Some(rtt) = senders.rtt() {
            let mut tc = softnet.exec(&topology, "tc");
            tc.args(["qdisc", "add", "dev", near, "root", "netem", "delay", rtt]);
            process::output(tc.args(["limit", "100000"]))?;
        }
        let mut script = softnet.exec(&topology, "sh");
        process::output(script.arg(self.path).env("DEV", far))?;
        let left = topology.directory.path().join("left");
        let file = File::create(&left).map_err(|e| BenchError::io("making a file", e))?;
        let mut capture = softnet.command(&topology, "capture");
        capture.args([far, "dst", "host", &ADDRESS_B.to_string()]);
        let capture = Process::start_into(&mut capture, file)?;
        std::thread::sleep(WARM_UP);
        let window = Window::after(WARM_UP, time);
        let start = SystemTime::now() + window.from.saturating_duration_since(Instant::now());
        let (sent, delays) = std::thread::scope(|scope| {
            let sent = scope.spawn(|| flows::run(&topology, &senders.flows(), window));
            let delays = delays(window);
            (joined(sent), delays)
        });
        sent?;
        capture.check_running()?;
        drop(capture);
        let told = std::fs::read_to_string(&left).map_err(|e| BenchError::io("reading", e))?;
        let measured = figures::measured(&told, senders, start, time)?;
        switches::close(topology)?;
        Ok((measured, delays))
    }

    /// Rows of both, beside each other.
    fn rows(
        &self,
        senders: &Senders,
        simulated: &[Figures],
        (measured, delays): &(Vec<Figures>, Vec<f64>),
    ) -> Vec<Row> {
        let wake = [0.5, 0.99].map(|fraction| percentile(delays, fraction));
        let names = senders.names();
        let both = simulated.iter().zip(measured);
        let row = |(name, (simulated, measured)): (&&str, (&Figures, &Figures))| {
            (
                self.params(name),
                figures::fields(simulated, measured, wake),
            )
        };
        names.iter().zip(both).map(row).collect()
    }
}

/// Gives host a the senders' addresses, and keeps it from making large frames.
fn prepare(
    topology: &Topology,
    senders: &Senders,
    near: &str,
    far: &str,
) -> Result<(), BenchError> {
    let (a, b) = (topology.a(), topology.b());
    a.ip(&format!("link set dev {near} gso_max_segs 1"))?;
    for address in senders.addresses() {
        a.ip(&format!("address add {address}/32 dev {near}"))?;
    }
    b.ip(&format!("route add 10.0.0.0/24 dev {far}"))
}

/// Times by which a timer was late in the window, ns.
fn delays(window: Window) -> Vec<f64> {
    let mut delays = Vec::new();
    let mut due = window.from;
    while due < window.to {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        delays.push(due.elapsed().as_nanos() as f64);
        due = Instant::now() + TICK;
    }
    delays
}

/// A turn of policies that are measured at the same time.
fn turn(
    policies: &[&Policy],
    softnet: &Softnet,
    time: Duration,
    results: &mut Collector,
) -> Result<(), BenchError> {
    // Not every user's `softnet sim` can run a script either.
    if !rustix::process::geteuid().is_root() {
        let why = "making network namespaces takes root";
        return Err(BenchError::Unavailable(why.into()));
    }
    softnet.prepare()?;
    let mut ready = Vec::new();
    for policy in policies {
        let senders = Senders::of(policy.script);
        match senders.check() {
            Ok(()) => {}
            Err(BenchError::Unavailable(why)) => {
                results.skip(OURS, &[("policy", json!(policy.name))], &why);
                continue;
            }
            Err(other) => return Err(other),
        }
        let simulated = policy.simulate(softnet, &senders, time)?;
        ready.push((policy, senders, simulated));
    }
    let measured = std::thread::scope(|scope| {
        let threads: Vec<_> = ready
            .iter()
            .map(|(policy, senders, _)| {
                scope.spawn(move || policy.measure(softnet, senders, time))
            })
            .collect();
        let measured = threads.into_iter().map(joined);
        measured.collect::<Result<Vec<_>, BenchError>>()
    })?;
    for ((policy, senders, simulated), measured) in ready.iter().zip(&measured) {
        for (params, fields) in policy.rows(senders, simulated, measured) {
            results.add(OURS, &params, &fields);
        }
    }
    Ok(())
}

/// Measures.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    options.check_variants(NAME, &[OURS])?;
    let mut chosen = Vec::new();
    for policy in &POLICIES {
        if options.includes("policy", policy.name)? {
            chosen.push(policy);
        }
    }
    let (rounds, mut time) = options.program_turns();
    if options.seconds < SHORT {
        chosen.truncate(1);
    } else {
        time = TIME;
    }
    let mut results = Collector::default();
    let softnet = Rc::new(Softnet::default());
    for policies in chosen.chunks(AT_ONCE) {
        let (policies, softnet) = (policies.to_vec(), softnet.clone());
        let measure = move |results: &mut Collector| turn(&policies, &softnet, time, results);
        let rounds = rounds.clone().of(&[], time).of_several();
        let rounds = rounds.in_turns_of(time + 2 * WARM_UP + SETUP);
        let turns = vec![Turn::new(OURS, &[], measure)];
        interleave::measure(options, rounds, turns, &mut results)?;
    }
    Ok(results.report(NAME))
}

/// The parameters of all rows.
#[cfg(test)]
pub(crate) fn measured() -> Vec<Vec<Param>> {
    let of = |policy: &Policy| -> Vec<_> {
        let senders = Senders::of(policy.script);
        let names = senders.names();
        names.into_iter().map(|name| policy.params(name)).collect()
    };
    POLICIES.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::flows::Kind;

    #[test]
    fn hosts_can_send_what_the_policies_ask_for() {
        for policy in &POLICIES {
            let senders = Senders::of(policy.script);
            let flows = senders.flows();
            assert!(flows.len() >= 2, "{}", policy.name);
            assert!(senders.rtt().is_some(), "{}", policy.name);
            for flow in flows {
                if let Kind::Udp { size, rate } = flow.kind {
                    assert!(size >= 64 && rate > 0.0, "{}", policy.name);
                }
            }
            // Keys that hosts know, and no others.
            let known = [
                "name", "tcp", "cc", "rtt", "rate", "size", "dscp", "src", "sport", "dst",
                "dport", "for",
            ];
            for line in senders.generated(TIME) {
                let keys = line.split(',').filter_map(|part| part.split('=').next());
                let unknown: Vec<_> = keys.filter(|key| !known.contains(key)).collect();
                assert!(unknown.is_empty(), "{}: {unknown:?}", policy.name);
            }
            assert!(std::path::Path::new(policy.path).is_file());
        }
    }
}
