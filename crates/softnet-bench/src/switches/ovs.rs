//! Open vSwitch with its user-space datapath, run from a private directory: no system service, no
//! shared database.
//!
//! TAP ports, because they are its best here: over veth (AF_PACKET) it forwards TCP at half the
//! speed or less. The stock build cannot take frames larger than the MTU. The build with DPDK can
//! (`userspace-tso-enable`, an experimental option; DPDK itself is not initialised), and then
//! passes TCP in pieces of 64 KiB; it is a variant of its own. Its TAP ports have one queue.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Switch, Wiring};
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::peers::place::Place;
use crate::process::{self, Process};

#[derive(Debug, Clone, Copy)]
pub(crate) enum OpenVswitch {
    /// As the package openvswitch-switch has it.
    Stock,
    /// The build of the package openvswitch-switch-dpdk, with segmentation offload in user space.
    SegmentationOffload,
}

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Debian's places, before the alternatives system chooses one of them for PATH.
const STOCK: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
const WITH_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const PATIENCE: Duration = Duration::from_secs(10);

impl OpenVswitch {
    /// The switch, as its place calls it.
    fn daemon(self, place: &Place) -> Result<PathBuf, BenchError> {
        let (path, package) = match self {
            OpenVswitch::Stock => (STOCK, "openvswitch-switch"),
            OpenVswitch::SegmentationOffload => (WITH_DPDK, "openvswitch-switch-dpdk"),
        };
        let path = PathBuf::from(path);
        if place.has(&path) {
            return Ok(path);
        }
        let elsewhere = match self {
            OpenVswitch::Stock => place.find("ovs-vswitchd"),
            OpenVswitch::SegmentationOffload => None,
        };
        elsewhere.ok_or_else(|| BenchError::Unavailable(place.lacks("Open vSwitch", package)))
    }

    /// Starts it with a bridge of these ports, each the commands that add it.
    pub(super) fn start_with(
        self,
        topology: &mut Topology,
        ports: Vec<String>,
    ) -> Result<(), BenchError> {
        let place = Place::of_peers();
        let daemon = self.daemon(&place)?;
        let offload = match self {
            OpenVswitch::Stock => "other_config:userspace-tso-enable=false",
            OpenVswitch::SegmentationOffload => "other_config:userspace-tso-enable=true",
        };
        let directory = topology.directory.path();
        let command = |program: &Path| topology.switch.command_in(&place, program);
        let (files, daemons) = start(&place, &daemon, directory, &[offload.to_owned()], command)?;
        topology.daemons.extend(daemons);
        let mut commands = vec!["add-br br0 -- set bridge br0 datapath_type=netdev".to_owned()];
        commands.extend(ports);
        let commands = commands.join(" -- ");
        files.vsctl(&commands.split(' ').collect::<Vec<_>>())
    }

    /// The version that would be measured.
    pub(crate) fn version(self) -> Option<String> {
        let place = Place::of_peers();
        let mut command = place.command(&self.daemon(&place).ok()?);
        crate::machine::version(&process::output(command.arg("--version")).ok()?)
    }
}

impl Switch for OpenVswitch {
    fn name(&self) -> &'static str {
        match self {
            OpenVswitch::Stock => "ovs",
            OpenVswitch::SegmentationOffload => "ovs-tso",
        }
    }

    fn connect(&self, topology: &mut Topology, _wiring: Wiring) -> Result<(), BenchError> {
        let add = |host: &crate::hosts::Host| {
            let port = &host.interface;
            format!("add-port br0 {port} -- set interface {port} type=tap")
        };
        let ports = topology.hosts.iter().map(add).collect();
        self.start_with(topology, ports)?;
        // The daemon keeps the queues; only the kernel's side of the devices moves.
        for host in &topology.hosts {
            let (port, netns) = (&host.interface, host.netns.name());
            topology
                .switch
                .ip(&format!("link set {port} netns {netns}"))?;
        }
        topology.configure_hosts()
    }
}

/// Starts the database and the switch `daemon` with these settings; the switch comes first, as it
/// wants its database until the end.
fn start<'a>(
    place: &'a Place,
    daemon: &Path,
    directory: &Path,
    settings: &[String],
    command: impl Fn(&Path) -> Command,
) -> Result<(Files<'a>, [Process; 2]), BenchError> {
    let files = Files::new(directory, place)?;
    let create = ["create", &files.inside("conf.db"), SCHEMA];
    process::output(
        files
            .command(place.command(&files.database_tool))
            .args(create),
    )?;
    let socket = format!("unix:{}", files.inside("db.sock"));
    let mut server = files.command(command(&files.database_server));
    server
        .arg(files.inside("conf.db"))
        .arg(format!("--remote=p{socket}"))
        .arg(format!("--unixctl={}", files.inside("ovsdb.ctl")))
        .arg("-vconsole:off");
    let server = Process::start(&mut server)?;
    wait_for(&directory.join("db.sock"), &server)?;
    let set = ["--no-wait", "init", "--", "set", "Open_vSwitch", "."];
    let settings = settings.iter().map(String::as_str);
    files.vsctl(&set.into_iter().chain(settings).collect::<Vec<_>>())?;
    let mut switch = files.command(command(daemon));
    switch
        .arg(socket)
        .arg(format!("--unixctl={}", files.inside("vswitchd.ctl")))
        .arg("-vconsole:off");
    Ok((files, [Process::start(&mut switch)?, server]))
}

/// Starts the build with DPDK, with one thread that polls, on `cpu`, and a bridge of ports that
/// connect to the front ends at `sockets`. `memory`: what EAL is told. The switch is the first.
pub(crate) fn vhost_user(
    directory: &Path,
    sockets: &[PathBuf],
    cpu: usize,
    memory: &[String],
) -> Result<[Process; 2], BenchError> {
    let place = Place::of_peers();
    let daemon = OpenVswitch::SegmentationOffload.daemon(&place)?;
    let mask = 1_u64.checked_shl(cpu as u32).unwrap_or(1);
    let settings = [
        "other_config:dpdk-init=true".to_owned(),
        format!("other_config:dpdk-lcore-mask={mask:#x}"),
        format!("other_config:pmd-cpu-mask={mask:#x}"),
        format!("other_config:dpdk-extra=\"{}\"", memory.join(" ")),
    ];
    let command = |program: &Path| place.command(program);
    let (files, daemons) = start(&place, &daemon, directory, &settings, command)?;
    let mut commands = vec!["add-br br0 -- set bridge br0 datapath_type=netdev".to_owned()];
    commands.extend(sockets.iter().enumerate().map(|(n, socket)| {
        let socket = place.inside(socket);
        format!(
            "add-port br0 vm{n} -- set interface vm{n} type=dpdkvhostuserclient \
             options:vhost-server-path={}",
            socket.display()
        )
    }));
    files.vsctl(&commands.join(" -- ").split(' ').collect::<Vec<_>>())?;
    Ok(daemons)
}

/// Where this instance keeps what others keep in /etc, /run and /var, and the programs that work
/// with it.
struct Files<'a> {
    place: &'a Place,
    /// As the place calls it.
    directory: PathBuf,
    database_tool: PathBuf,
    database_server: PathBuf,
    control: PathBuf,
}

impl Files<'_> {
    fn new<'a>(directory: &Path, place: &'a Place) -> Result<Files<'a>, BenchError> {
        let find = |name: &str| {
            let lacks = || BenchError::Unavailable(place.lacks(name, "openvswitch-switch"));
            place.find(name).ok_or_else(lacks)
        };
        Ok(Files {
            place,
            directory: place.inside(directory),
            database_tool: find("ovsdb-tool")?,
            database_server: find("ovsdb-server")?,
            control: find("ovs-vsctl")?,
        })
    }

    fn inside(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn command(&self, mut command: Command) -> Command {
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.directory);
        }
        command
    }

    /// Runs `ovs-vsctl`, which waits until the daemon has done what it was told.
    fn vsctl(&self, arguments: &[&str]) -> Result<(), BenchError> {
        let mut command = self.command(self.place.command(&self.control));
        command.arg(format!("--db=unix:{}", self.inside("db.sock")));
        // The server's socket is there before the server listens.
        command
            .arg("--retry")
            .arg(format!("--timeout={}", PATIENCE.as_secs()))
            .args(arguments);
        process::output(&mut command).map(drop)
    }
}

/// Waits until the server has made its socket.
fn wait_for(socket: &Path, server: &Process) -> Result<(), BenchError> {
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() {
        server.check_running()?;
        if Instant::now() > deadline {
            return Err(BenchError::command("ovsdb-server", "does not listen"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
