//! `dpdk-testpmd` with DPDK's driver for XDP sockets (`net_af_xdp`): a core that polls two veths
//! and passes to each what comes from the other.

use std::cell::OnceCell;
use std::path::Path;
use std::time::{Duration, Instant};

use super::veth::{connect, make_whole_frames};
use super::{Switch, Wiring, bridge_port};
use crate::error::{BenchError, chain};
use crate::hosts::Topology;
use crate::peers::dpdk::Memory;
use crate::peers::place::Place;
use crate::process::Process;
use crate::{ping, speed};

const PROGRAM: &str = "dpdk-testpmd";
/// A part of the line that it prints once it forwards.
const FORWARDS: &str = "packet forwarding - ports=2";
/// Time that it may take to start.
const PATIENCE: Duration = Duration::from_secs(20);
/// Packets of its pool, which is the memory of both ports' sockets, and megabytes for these and all
/// else.
const PACKETS: usize = 16_384;
const MEGABYTES: usize = 112;

/// The program between the veths of two hosts.
#[derive(Debug, Default)]
pub(crate) struct VethTestpmd {
    /// Kept for all turns.
    memory: OnceCell<Memory>,
}

impl Switch for VethTestpmd {
    fn name(&self) -> &'static str {
        "testpmd-af-xdp"
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        let place = Place::of_peers();
        let lacks = |what, package| BenchError::Unavailable(place.lacks(what, package));
        let program = place.find(PROGRAM).ok_or_else(|| lacks(PROGRAM, "dpdk"))?;
        // What it says would wait in a buffer otherwise.
        let by_lines = place
            .find("stdbuf")
            .ok_or_else(|| lacks("stdbuf", "coreutils"))?;
        connect(topology, wiring.queues)?;
        make_whole_frames(topology)?;
        let memory = self.memory.get_or_init(|| Memory::new(MEGABYTES));
        let mut command = topology.switch.command_in(&place, &by_lines);
        // The library that loads its XDP program would keep it in a file system of BPF, which is
        // not mounted in the namespace.
        command.env("LIBXDP_SKIP_DISPATCHER", "1");
        command.arg("-oL").arg(program);
        command.arg(format!("--lcores={}", lcores(&speed::cpus()?)));
        // The driver takes a pool of one piece.
        command.args(memory.arguments()).arg("--iova-mode=va");
        for (number, host) in topology.hosts.iter().enumerate() {
            let port = bridge_port(&host.interface);
            command.arg(format!(
                "--vdev=net_af_xdp{number},iface={port},force_copy=1"
            ));
        }
        // Without a period it would end with its standard input.
        command.args(["--", "--stats-period=3600"]);
        command.args(["--disable-link-check", "--no-lsc-interrupt"]);
        command.arg(format!("--total-num-mbufs={PACKETS}"));
        let said = topology.directory.path().join("testpmd");
        let process = Process::start_into(&mut command, &said)?;
        topology.daemons.push(process);
        wait_until_it_forwards(topology, &said)
    }
}

/// EAL's word for a thread that waits and one that polls, each on any of these CPUs.
fn lcores(cpus: &[usize]) -> String {
    let cpus: Vec<_> = cpus.iter().map(usize::to_string).collect();
    format!("(0-1)@({})", cpus.join(","))
}

/// Waits until hosts reach each other. A peer by which they do not is not available here.
fn wait_until_it_forwards(topology: &Topology, said: &Path) -> Result<(), BenchError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let is_over = topology.check_running().is_err() || Instant::now() > deadline;
        let text = std::fs::read(said).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if text.contains(FORWARDS) {
            break;
        }
        if is_over {
            let why = last_line(&text);
            return Err(BenchError::Unavailable(format!(
                "{PROGRAM} does not start with net_af_xdp: {why}"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    ping::wait_for_path(topology).map_err(|error| {
        let why = chain(&error);
        BenchError::Unavailable(format!("{PROGRAM} does not forward: {why}"))
    })
}

fn last_line(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim);
    lines.rfind(|line| !line.is_empty()).unwrap_or("no word")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_may_run_on_all_cpus_of_this_process() {
        assert_eq!(lcores(&[0]), "(0-1)@(0)");
        assert_eq!(lcores(&[2, 3, 7]), "(0-1)@(2,3,7)");
    }

    #[test]
    fn the_reason_is_what_was_said_last() {
        let said = "EAL: starting\nEAL: Error - exiting with code: 1\n  Cause: no ports\n\n";
        assert_eq!(last_line(said), "Cause: no ports");
        assert_eq!(last_line(""), "no word");
    }
}
