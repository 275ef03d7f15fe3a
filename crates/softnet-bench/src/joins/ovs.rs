//! Open vSwitch with its user-space datapath, run from a private directory: no system service, no shared database.
//!
//! TAP ports, because they are its best here: over veth (AF_PACKET) it forwards TCP at half the speed or less. The stock build
//! cannot take frames larger than the MTU. The build with DPDK can (`userspace-tso-enable`, an experimental option; DPDK itself
//! is not initialised), and then passes TCP in pieces of 64 KiB; it is a variant of its own. Its TAP ports have one queue.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Join, Wiring};
use crate::error::BenchError;
use crate::hosts::Site;
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
    fn daemon(self) -> Result<PathBuf, BenchError> {
        let (found, package) = match self {
            OpenVswitch::Stock => {
                let installed = PathBuf::from(STOCK);
                let found = installed
                    .is_file()
                    .then_some(installed)
                    .or_else(|| process::find("ovs-vswitchd"));
                (found, "openvswitch-switch")
            }
            OpenVswitch::SegmentationOffload => {
                let installed = PathBuf::from(WITH_DPDK);
                (
                    installed.is_file().then_some(installed),
                    "openvswitch-switch-dpdk",
                )
            }
        };
        found.ok_or_else(|| {
            BenchError::Unavailable(format!("Open vSwitch is not installed (package {package})"))
        })
    }
}

impl Join for OpenVswitch {
    fn name(&self) -> &'static str {
        match self {
            OpenVswitch::Stock => "ovs",
            OpenVswitch::SegmentationOffload => "ovs-tso",
        }
    }

    fn cannot_shape(&self) -> Option<&'static str> {
        Some("Open vSwitch's user-space datapath has no shaper")
    }

    fn join(&self, site: &mut Site, _wiring: Wiring) -> Result<(), BenchError> {
        let daemon = self.daemon()?;
        for tool in ["ovsdb-tool", "ovsdb-server", "ovs-vsctl"] {
            if process::find(tool).is_none() {
                return Err(BenchError::Unavailable(format!(
                    "`{tool}` is not installed"
                )));
            }
        }
        let files = Files::new(site.directory.path());
        process::output(
            files
                .command(Command::new("ovsdb-tool"))
                .arg("create")
                .arg(&files.database)
                .arg(SCHEMA),
        )?;
        let mut server = files.command(site.switch.command("ovsdb-server"));
        server
            .arg(&files.database)
            .arg(format!("--remote=punix:{}", files.socket.display()))
            .arg(format!(
                "--unixctl={}",
                files.directory.join("ovsdb.ctl").display()
            ))
            .arg("-vconsole:off");
        let server = Process::start(&mut server)?;
        wait_for(&files.socket, &server)?;
        let offload = match self {
            OpenVswitch::Stock => "other_config:userspace-tso-enable=false",
            OpenVswitch::SegmentationOffload => "other_config:userspace-tso-enable=true",
        };
        files.vsctl(&[
            "--no-wait",
            "init",
            "--",
            "set",
            "Open_vSwitch",
            ".",
            offload,
        ])?;
        let mut switch = files.command(site.switch.command(&daemon));
        switch
            .arg(format!("unix:{}", files.socket.display()))
            .arg(format!(
                "--unixctl={}",
                files.directory.join("vswitchd.ctl").display()
            ))
            .arg("-vconsole:off");
        let switch = Process::start(&mut switch)?;
        // Stopped first: it wants its database until the end.
        site.daemons.extend([switch, server]);
        let mut commands = vec!["add-br br0 -- set bridge br0 datapath_type=netdev".to_owned()];
        commands.extend(site.hosts.iter().map(|host| {
            let port = &host.interface;
            format!("add-port br0 {port} -- set interface {port} type=tap")
        }));
        let commands = commands.join(" -- ");
        files.vsctl(&commands.split(' ').collect::<Vec<_>>())?;
        // The daemon keeps the queues; only the kernel's side of the devices moves.
        for host in &site.hosts {
            let (port, netns) = (&host.interface, host.netns.name());
            site.switch.ip(&format!("link set {port} netns {netns}"))?;
        }
        site.configure_hosts()
    }
}

/// Where this instance keeps what others keep in /etc, /run and /var.
struct Files {
    directory: PathBuf,
    database: PathBuf,
    socket: PathBuf,
}

impl Files {
    fn new(directory: &Path) -> Files {
        Files {
            directory: directory.to_owned(),
            database: directory.join("conf.db"),
            socket: directory.join("db.sock"),
        }
    }

    fn command(&self, mut command: Command) -> Command {
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.directory);
        }
        command
    }

    /// Runs `ovs-vsctl`, which waits until the daemon has done what it was told.
    fn vsctl(&self, arguments: &[&str]) -> Result<(), BenchError> {
        let mut command = self.command(Command::new("ovs-vsctl"));
        command.arg(format!("--db=unix:{}", self.socket.display()));
        command
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
