//! Softnet's own daemon: `softnet run` on a configuration of TAP ports and a bridge.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LATENCY, Shape, Switch, Wiring};
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::process::{self, Process};

#[derive(Debug)]
pub(crate) struct Softnet {
    name: &'static str,
    /// Scheduling class of its workers.
    scheduling: &'static str,
    /// The bridge is the multicast querier.
    querier: bool,
    /// The daemon, once it is known to be there.
    program: OnceCell<PathBuf>,
}

impl Default for Softnet {
    fn default() -> Self {
        Softnet::scheduled(crate::report::OURS, "auto")
    }
}

impl Softnet {
    /// With workers of this scheduling class.
    pub(crate) fn scheduled(name: &'static str, scheduling: &'static str) -> Softnet {
        Softnet {
            name,
            scheduling,
            querier: false,
            program: OnceCell::new(),
        }
    }

    /// With a bridge that is the multicast querier.
    pub(crate) fn querying() -> Softnet {
        Softnet {
            querier: true,
            ..Softnet::scheduled("softnet-querier", "auto")
        }
    }

    /// The program, once it is prepared.
    pub(crate) fn program(&self) -> &Path {
        self.program
            .get()
            .map_or_else(|| Path::new("softnet"), PathBuf::as_path)
    }

    /// Connects the hosts; `far` is what the configuration says besides of the port to host b.
    pub(crate) fn connect_with(
        &self,
        topology: &mut Topology,
        wiring: Wiring,
        far: &str,
    ) -> Result<(), BenchError> {
        let text = self.configuration(topology, wiring.queues, far);
        self.run(topology, &text)
    }

    /// Runs the daemon on this configuration.
    pub(super) fn run(&self, topology: &mut Topology, text: &str) -> Result<(), BenchError> {
        let program = self.program();
        let path = topology.directory.path().join("softnet.toml");
        std::fs::write(&path, text)
            .map_err(|e| BenchError::io(format!("writing {}", path.display()), e))?;
        let socket = topology.directory.path().join("rtnetlink.sock");
        let mut command = topology.switch.command(program);
        command.arg("run").arg("--socket").arg(socket).arg(&path);
        let daemon = Process::start(&mut command)?;
        topology.daemons.push(daemon);
        Ok(())
    }

    fn configuration(&self, topology: &Topology, queues: usize, far: &str) -> String {
        let mut text = format!("[engine]\nscheduling = {:?}\n", self.scheduling);
        for (index, host) in topology.hosts.iter().enumerate() {
            let (name, netns, address) = (&host.interface, host.netns.name(), host.prefix());
            text += &format!(
                "[[port]]\nname = \"{name}\"\ndriver = \"tap\"\nnetns = \"{netns}\"\n\
                 address = [\"{address}\"]\nqueues = {queues}\n"
            );
            if index == 1 {
                text += far;
            }
            text.push('\n');
        }
        let ports: Vec<_> = topology.hosts.iter().map(|h| &h.interface).collect();
        let querier = self.querier;
        text + &format!(
            "[[bridge]]\nname = \"br0\"\nports = {ports:?}\nmcast_querier = {querier}\n"
        )
    }
}

impl Switch for Softnet {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&self) -> Result<(), BenchError> {
        if self.program.get().is_none() {
            let program = program()?;
            self.program.get_or_init(|| program);
        }
        Ok(())
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        let shape = |Shape { rate, burst, .. }| {
            format!(
                "qdisc = {{ kind = \"tbf\", rate = \"{rate}\", burst = \"{burst}\", latency = \
                 \"{LATENCY}\" }}\n"
            )
        };
        let far = wiring.shape.map(shape).unwrap_or_default();
        self.connect_with(topology, wiring, &far)
    }
}

/// The program that was built with this one. Under cargo it is brought up to date first, so that
/// no old one is measured.
fn program() -> Result<PathBuf, BenchError> {
    let this = std::env::current_exe().map_err(|e| BenchError::io("finding this program", e))?;
    let directory = this.parent().unwrap_or_else(|| Path::new("."));
    let program = directory.join("softnet");
    let cargo = std::env::var_os("CARGO");
    if cargo.is_some() || !program.is_file() {
        let mut build = Command::new(cargo.unwrap_or_else(|| "cargo".into()));
        build
            .args(["build", "--quiet", "--package", "softnet-cli"])
            .arg("--target-dir");
        build.arg(directory.parent().unwrap_or(directory));
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if directory.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        process::output(&mut build)?;
    }
    Ok(program)
}
