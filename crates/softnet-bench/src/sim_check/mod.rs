//! Experiment `sim-check`: policies of `examples/policies` in `softnet sim`, and the same scripts
//! on a TAP port of the daemon, with the senders that their comments ask for: Linux's own TCP with
//! the congestion control that is named, and datagrams. The round-trip time is a `netem` of
//! Softnet's on the way back; as in the simulation, no sender makes large frames.
//!
//! For each name of senders: the rate, and the time that frames stayed in the tree, 50 and 99 %.
//! On the port that is from `softnet capture`, which tells it of each frame to the nanosecond (the
//! histograms of `softnet stats` know the power of two). Percentiles are a connection's own; of
//! several they are the mean, weighted by frames, since the simulation gives no others.
//!
//! The simulation runs several times, with other seeds and starts: what is measured is compared
//! with the nearest run.
//!
//! A tenth policy, `tcp` (`tcp.sh` beside this file), compares the simulated TCP with Linux's: Reno
//! and Cubic alone, beside each other, and in fair queues.
//!
//! Left out: `l4s`, for which the host has no sender, and `priority`, whose link has a rate.

mod figures;
mod senders;

use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use softnet_testbed::threads::joined;

use crate::error::BenchError;
use crate::files;
use crate::hosts::ADDRESS_B;
use crate::interleave::{self, Turn};
use crate::options::{Options, SHORT};
use crate::process::{self, Process};
use crate::report::{Collector, OURS, Param};
use crate::switches::{self, Softnet, Switch as _, Wiring};
use crate::traffic::flows;
use crate::traffic::window::Window;
use figures::Figures;
use senders::Senders;

const NAME: &str = "sim-check";
/// Time for which senders send.
const TIME: Duration = Duration::from_millis(3200);
/// Time that the capture has to start, and connections to be made.
const WARM_UP: Duration = Duration::from_millis(300);
/// Time for the simulations, to connect the hosts, and to end.
const SETUP: Duration = Duration::from_millis(2500);
/// Runs of the simulation, each with a seed and an order of starts of its own: where the outcome
/// depends on chance, one run is one of many.
const RUNS: u64 = 9;
/// Figures of one name of senders in each of them.
type Runs = Vec<Figures>;
/// Policies that are measured at the same time, each with a daemon: the time is better spent on
/// longer windows, and together they send at most 160 Mb/s.
const AT_ONCE: usize = 3;
/// Interval of the timer whose delay is measured.
const TICK: Duration = Duration::from_millis(1);

/// Each three that are measured together have slow and fast ones.
const POLICIES: [&str; 10] = [
    "htb-voip",
    "fair-queue",
    "diffserv",
    "cake-uplink",
    "host-fairness",
    "two-tenants",
    "per-flow-rate",
    "policing",
    "wifi-like",
    TCP,
];
/// The policy that is no example.
const TCP: &str = "tcp";
/// The kernel's list of congestion controls.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// A script, and the senders that its comments ask for.
struct Policy {
    name: &'static str,
    path: String,
    senders: Senders,
}

impl Policy {
    fn read(name: &'static str) -> Result<Policy, BenchError> {
        let folder = match name {
            TCP => "src/sim_check",
            _ => "../../examples/policies",
        };
        let path = format!("{}/{folder}/{name}.sh", env!("CARGO_MANIFEST_DIR"));
        let senders = Senders::of(&files::read(&path)?);
        Ok(Policy {
            name,
            path,
            senders,
        })
    }

    fn params(&self, flow: &str) -> Vec<Param> {
        vec![("policy", json!(self.name)), ("flow", json!(flow))]
    }

    /// For each name of senders, the figures of every run in virtual time.
    fn simulate(&self, softnet: &Softnet, time: Duration) -> Result<Vec<Runs>, BenchError> {
        let names = self.senders.names();
        let mut all = vec![Runs::new(); names.len()];
        for run in 0..RUNS {
            let mut sim = Command::new(softnet.program());
            sim.args(["sim", "--json", "--dev", "eth0", "--script", &self.path]);
            sim.arg("--seed").arg((run + 1).to_string());
            for flow in self.senders.generated(time, run) {
                sim.args(["--generate", &flow]);
            }
            let printed = process::output(&mut sim)?;
            let told: Value = serde_json::from_str(&printed).map_err(|e| {
                BenchError::command("softnet sim", format!("it printed no JSON: {e}"))
            })?;
            let figures = figures::simulated(&told, &names);
            for (runs, figures) in all.iter_mut().zip(figures) {
                runs.push(figures);
            }
        }
        Ok(all)
    }

    /// The figures of each name of senders on a port, and delays of a timer meanwhile, ns.
    fn measure(
        &self,
        softnet: &Softnet,
        time: Duration,
    ) -> Result<(Vec<Figures>, Vec<f64>), BenchError> {
        let (topology, _) = switches::open(softnet, 2, Wiring::default())?;
        let [near, far] = [0, 1].map(|host: usize| topology.hosts[host].interface.as_str());
        let all = self.senders.flows();
        let (a, b) = (topology.a(), topology.b());
        a.ip(&format!("link set dev {near} gso_max_segs 1"))?;
        for flow in &all {
            let address = flow.from.ip();
            a.ip(&format!("address replace {address}/32 dev {near}"))?;
        }
        b.ip(&format!("route add 10.0.0.0/24 dev {far}"))?;
        if let Some(rtt) = self.senders.rtt() {
            let mut tc = softnet.exec(&topology, "tc");
            tc.args(["qdisc", "add", "dev", near, "root", "netem", "delay", rtt]);
            process::output(tc.args(["limit", "100000"]))?;
        }
        let mut script = softnet.exec(&topology, "sh");
        process::output(script.arg(&self.path).env("DEV", far))?;
        let left = topology.directory.path().join("left");
        let mut capture = softnet.command(&topology, "capture");
        capture.args([far, "dst", "host", &ADDRESS_B.to_string()]);
        let capture = Process::start_into(&mut capture, &left)?;
        std::thread::sleep(WARM_UP);
        let window = Window::after(WARM_UP, time);
        let start = SystemTime::now() + window.from.saturating_duration_since(Instant::now());
        let (sent, delays) = std::thread::scope(|scope| {
            let sent = scope.spawn(|| flows::run(&topology, &all, window));
            let delays = delays(window);
            (joined(sent), delays)
        });
        sent?;
        // The daemon tells of frames a moment after they left.
        std::thread::sleep(WARM_UP / 3);
        capture.check_running()?;
        drop(capture);
        let told = files::read(&left)?;
        let measured = figures::measured(&told, &self.senders, start, time)?;
        switches::close(topology)?;
        Ok((measured, delays))
    }
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
    names: &[&'static str],
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
    let available = files::read(AVAILABLE)?;
    let mut ready = Vec::new();
    for &name in names {
        let policy = Policy::read(name)?;
        if let Some(congestion) = policy.senders.missing(&available) {
            let why = format!("this kernel has no congestion control {congestion}");
            results.skip(OURS, &[("policy", json!(name))], &why);
            continue;
        }
        let simulated = policy.simulate(softnet, time)?;
        ready.push((policy, simulated));
    }
    let measured = std::thread::scope(|scope| {
        let threads: Vec<_> = ready
            .iter()
            .map(|(policy, _)| scope.spawn(move || policy.measure(softnet, time)))
            .collect();
        let measured = threads.into_iter().map(joined);
        measured.collect::<Result<Vec<_>, BenchError>>()
    })?;
    for ((policy, simulated), (measured, delays)) in ready.iter().zip(&measured) {
        let both = simulated.iter().zip(measured);
        for (name, (simulated, measured)) in policy.senders.names().into_iter().zip(both) {
            let fields = figures::fields(simulated, measured, delays);
            results.add(OURS, &policy.params(name), &fields);
        }
    }
    Ok(())
}

/// Measures.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    options.check_variants(NAME, &[OURS])?;
    let mut chosen = Vec::new();
    for name in POLICIES {
        if options.includes("policy", name)? {
            chosen.push(name);
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
    for names in chosen.chunks(AT_ONCE) {
        let (names, softnet) = (names.to_vec(), softnet.clone());
        let measure = move |results: &mut Collector| turn(&names, &softnet, time, results);
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
    let of = |name| -> Vec<_> {
        let policy = Policy::read(name).expect("it is there");
        let names = policy.senders.names().into_iter();
        names.map(|name| policy.params(name)).collect()
    };
    POLICIES.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::flows::Kind;

    #[test]
    fn hosts_can_send_what_the_policies_ask_for() {
        for name in POLICIES {
            let policy = Policy::read(name).expect("it is there");
            let senders = &policy.senders;
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
                "dport", "for", "start",
            ];
            for line in senders.generated(TIME, 1) {
                let keys = line.split(',').filter_map(|part| part.split('=').next());
                let unknown: Vec<_> = keys.filter(|key| !known.contains(key)).collect();
                assert!(unknown.is_empty(), "{}: {unknown:?}", policy.name);
            }
        }
    }
}
