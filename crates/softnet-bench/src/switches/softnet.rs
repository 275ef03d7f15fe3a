//! Softnet's own daemon: `softnet run` on a configuration of TAP ports and a bridge.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{Switch, Wiring};
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::process::{self, Process};

/// Name of the configuration.
const FILE: &str = "softnet.toml";

#[derive(Debug)]
pub(crate) struct Softnet {
    name: &'static str,
    /// Keys of `[engine]`.
    engine: String,
    /// The bridge is the multicast querier.
    querier: bool,
    /// The daemon, once it is known to be there.
    program: OnceLock<PathBuf>,
}

impl Default for Softnet {
    fn default() -> Self {
        Softnet::with(crate::report::OURS, "")
    }
}

impl Softnet {
    /// With workers of this scheduling class.
    pub(crate) fn scheduled(name: &'static str, scheduling: &'static str) -> Softnet {
        Softnet::with(name, &format!("scheduling = {scheduling:?}"))
    }

    /// With these lines in the section `[engine]`.
    fn with(name: &'static str, engine: &str) -> Softnet {
        Softnet {
            name,
            engine: engine.to_owned(),
            querier: false,
            program: OnceLock::new(),
        }
    }

    /// With a bridge that is the multicast querier.
    pub(crate) fn querying() -> Softnet {
        Softnet {
            querier: true,
            ..Softnet::with("softnet-querier", "")
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
        topology.directory.write(FILE, text)?;
        let mut command = self.command(topology, "run");
        let daemon = Process::start(command.arg(topology.directory.path().join(FILE)))?;
        topology.daemons.push(daemon);
        Ok(())
    }

    /// A command of the program, for the daemon of this topology.
    pub(crate) fn command(&self, topology: &Topology, command: &str) -> Command {
        let mut own = topology.switch.command(self.program());
        let socket = topology.directory.path().join("rtnetlink.sock");
        own.arg(command).arg("--socket").arg(socket);
        own
    }

    /// `tc` or `ip` for the daemon of this topology.
    pub(crate) fn exec(&self, topology: &Topology, program: &str) -> Command {
        let mut command = self.command(topology, "exec");
        command.args(["--", program]);
        command
    }

    fn configuration(&self, topology: &Topology, queues: usize, far: &str) -> String {
        let mut text = format!("[engine]\n{}\n", self.engine);
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
        self.connect_with(topology, wiring, "")
    }

    fn tc(&self, topology: &Topology) -> Option<(Command, String)> {
        let port = topology.hosts[1].interface.clone();
        Some((self.exec(topology, "tc"), port))
    }
}

/// The program that was built with this one. An optimized one is brought up to date first under
/// cargo, so that no old one is measured.
fn program() -> Result<PathBuf, BenchError> {
    let this = std::env::current_exe().map_err(|e| BenchError::io("finding this program", e))?;
    let directory = this.parent().unwrap_or_else(|| Path::new("."));
    let program = directory.join("softnet");
    let cargo = std::env::var_os("CARGO");
    let release = directory.file_name().is_some_and(|name| name == "release");
    if !program.is_file() || cargo.is_some() && release {
        let mut build = Command::new(cargo.unwrap_or_else(|| "cargo".into()));
        build
            .args(["build", "--quiet", "--package", "softnet-cli"])
            .arg("--target-dir");
        build.arg(directory.parent().unwrap_or(directory));
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if release {
            build.arg("--release");
        }
        process::output(&mut build)?;
    }
    Ok(program)
}
