//! Switches whose hosts have veths, the other ends of which are in the switch's namespace: those
//! that use what is there, as a NIC is.

use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ovs::OpenVswitch;
use super::softnet::Softnet;
use super::{Switch, Wiring, bridge_port};
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::process::{self, Process};

/// Makes a veth for each host.
pub(super) fn connect(topology: &Topology, queues: usize) -> Result<(), BenchError> {
    connect_with(topology, queues, ["", "up", ""])
}

/// The same with commands for `ip` before that, settings of each outer end, and commands behind.
pub(super) fn connect_with(
    topology: &Topology,
    queues: usize,
    [before, set, behind]: [&str; 3],
) -> Result<(), BenchError> {
    let mut commands = before.to_owned();
    for host in &topology.hosts {
        let (inside, netns) = (&host.interface, host.netns.name());
        let outside = bridge_port(inside);
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        commands += &format!(
            "link add {outside} {queues} type veth peer name {inside} netns {netns} {queues}\n\
             link set {outside} {set}\n"
        );
    }
    commands += behind;
    // One program for all: a thousand would take longer than the kernel does.
    let file = topology.directory.write("veth.ip", &commands)?;
    let mut ip = Command::new("ip");
    ip.args(["-n", topology.switch.name(), "-batch"]).arg(&file);
    process::output(&mut ip)?;
    topology.configure_hosts()
}

/// Has hosts make frames with checksums, none larger than the MTU.
pub(super) fn make_whole_frames(topology: &Topology) -> Result<(), BenchError> {
    if process::find("ethtool").is_none() {
        return Err(BenchError::Unavailable("`ethtool` is not installed".into()));
    }
    for host in &topology.hosts {
        let mut ethtool = host.netns.command("ethtool");
        process::output(ethtool.args(["-K", &host.interface, "tx", "off"]))?;
    }
    Ok(())
}

/// Buffers of a pool that the daemon can lock twice, for each of two ports, with a quarter of the
/// limit to spare for what other programs of root lock: the default number, or fewer where it may
/// not raise the limit.
fn lockable() -> Result<u64, BenchError> {
    /// Default of `buffers`, bytes of a buffer, and the least that has some for each ring.
    const BUFFERS: u64 = 65_536;
    const BYTES: u64 = 2048;
    const LEAST: u64 = 512;
    let limit = getrlimit(Resource::Memlock);
    let bytes = limit.maximum;
    let all = Rlimit {
        current: None,
        maximum: None,
    };
    // The daemon raises the limit by itself if it may. Here it stays as it was, for other switches.
    if setrlimit(Resource::Memlock, all).is_ok() {
        let lowered = setrlimit(Resource::Memlock, limit);
        lowered.map_err(|e| BenchError::io("putting a limit back", e))?;
        return Ok(BUFFERS);
    }
    let buffers = bytes.map_or(BUFFERS, |bytes| (bytes / 8 * 3 / BYTES).min(BUFFERS));
    if buffers < LEAST {
        return Err(BenchError::Unavailable(format!(
            "locked memory is limited to {} bytes, a pool of {buffers} buffers (`ulimit -l`)",
            bytes.unwrap_or(0)
        )));
    }
    Ok(buffers)
}

/// Softnet with ports of this driver.
#[derive(Debug)]
pub(crate) struct VethSoftnet {
    pub(crate) name: &'static str,
    pub(crate) driver: &'static str,
    pub(crate) daemon: Softnet,
}

impl Switch for VethSoftnet {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&self) -> Result<(), BenchError> {
        self.daemon.prepare()
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        connect(topology, wiring.queues)?;
        let (driver, queues) = (self.driver, wiring.queues);
        let mut text = String::new();
        if driver == "af_xdp" {
            make_whole_frames(topology)?;
            text = format!("[engine]\nbuffers = {}\n", lockable()?);
        }
        let ports = topology.hosts.iter();
        let ports: Vec<_> = ports.map(|host| bridge_port(&host.interface)).collect();
        for port in &ports {
            text += &format!(
                "[[port]]\nname = \"{port}\"\ndriver = \"{driver}\"\nqueues = {queues}\n"
            );
        }
        text += &format!("[[bridge]]\nname = \"br0\"\nports = {ports:?}\n");
        self.daemon.run(topology, &text)
    }
}

/// A loop of `recv` and `send` for each direction: the least that a user-space switch does.
#[derive(Debug)]
pub(crate) struct VethLoop;

impl Switch for VethLoop {
    fn name(&self) -> &'static str {
        "loop"
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        connect(topology, wiring.queues)?;
        let this =
            std::env::current_exe().map_err(|e| BenchError::io("finding this program", e))?;
        let program = this
            .parent()
            .unwrap_or_else(|| Path::new("."))
            .join("veth_loop");
        if !program.is_file() {
            let text = "build it with `cargo build --release -p softnet-bench --bin veth_loop`";
            return Err(BenchError::Unavailable(format!(
                "veth_loop is not there; {text}"
            )));
        }
        let mut command = topology.switch.command(&program);
        command.args(
            topology
                .hosts
                .iter()
                .map(|host| bridge_port(&host.interface)),
        );
        let process = Process::start(&mut command)?;
        topology.daemons.push(process);
        Ok(())
    }
}

/// Open vSwitch on the same veths. The stock build takes no frame without its checksum and none
/// larger than the MTU: its hosts make them themselves, which is its best here.
#[derive(Debug)]
pub(crate) struct VethOpenVswitch(pub(crate) OpenVswitch);

impl Switch for VethOpenVswitch {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        connect(topology, wiring.queues)?;
        if matches!(self.0, OpenVswitch::Stock) {
            make_whole_frames(topology)?;
        }
        let add = |host: &crate::hosts::Host| {
            let port = bridge_port(&host.interface);
            format!("add-port br0 {port}")
        };
        let ports: Vec<_> = topology.hosts.iter().map(add).collect();
        self.0.start_with(topology, ports)
    }
}
