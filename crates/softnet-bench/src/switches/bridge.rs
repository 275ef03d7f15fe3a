//! The kernel's bridge over veth pairs, as it comes.

use std::process::Command;

use super::{Switch, Wiring};
use crate::error::BenchError;
use crate::hosts::{Topology, bridge_port};
use crate::process;

#[derive(Debug)]
pub(crate) struct KernelBridge;

/// Group of the bridge's ports, by which they are deleted at once.
pub(crate) const GROUP: u32 = 7;

impl Switch for KernelBridge {
    fn name(&self) -> &'static str {
        "kernel-bridge"
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        let switch = &topology.switch;
        let mut commands = "link add br0 type bridge\n".to_owned();
        for host in &topology.hosts {
            let (inside, netns, queues) = (&host.interface, host.netns.name(), wiring.queues);
            let outside = bridge_port(inside);
            let queues = format!("numtxqueues {queues} numrxqueues {queues}");
            commands += &format!(
                "link add {outside} {queues} type veth peer name {inside} netns {netns} {queues}\n\
                 link set {outside} group {GROUP} master br0 up\n"
            );
        }
        commands += "link set br0 up\n";
        // One program for all: a thousand would take longer than the kernel does.
        let file = topology.directory.path().join("bridge.ip");
        std::fs::write(&file, commands)
            .map_err(|e| BenchError::io(format!("writing {}", file.display()), e))?;
        let mut ip = Command::new("ip");
        ip.args(["-n", switch.name(), "-batch"]).arg(&file);
        process::output(&mut ip)?;
        topology.configure_hosts()
    }
    fn tc(&self, topology: &Topology) -> Option<(Command, String)> {
        let port = bridge_port(&topology.hosts[1].interface);
        Some((topology.switch.command("tc"), port))
    }
}
