//! The kernel's bridge over veth pairs, as it comes.

use std::process::Command;

use super::{Switch, Wiring, veth};
use crate::error::BenchError;
use crate::hosts::{Topology, bridge_port};

#[derive(Debug)]
pub(crate) struct KernelBridge;

/// Group of the bridge's ports, by which they are deleted at once.
pub(crate) const GROUP: u32 = 7;

impl Switch for KernelBridge {
    fn name(&self) -> &'static str {
        "kernel-bridge"
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        let set = format!("group {GROUP} master br0 up");
        let commands = ["link add br0 type bridge\n", &set, "link set br0 up\n"];
        veth::connect_with(topology, wiring.queues, commands)
    }

    fn tc(&self, topology: &Topology) -> Option<(Command, String)> {
        let port = bridge_port(&topology.hosts[1].interface);
        Some((topology.switch.command("tc"), port))
    }
}
