//! The kernel's bridge over veth pairs: as it comes, and with what spreads its work over the CPUs.

use std::process::Command;

use super::{LATENCY, Shape, Switch, Wiring, gro};
use crate::error::BenchError;
use crate::hosts::{NamedNetns, Topology};
use crate::process;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelBridge {
    /// Nothing set.
    Plain,
    /// RPS over all CPUs at the bridge's ports, GRO at both ends of each pair. RPS at the hosts'
    /// ends costs TCP more than it gains.
    Rps,
}

/// Group of the bridge's ports, by which they are deleted at once.
pub(crate) const GROUP: u32 = 7;

impl Switch for KernelBridge {
    fn name(&self) -> &'static str {
        match self {
            KernelBridge::Plain => "kernel-bridge",
            KernelBridge::Rps => "kernel-bridge-rps",
        }
    }

    fn setting(&self) -> Option<&'static str> {
        (*self == KernelBridge::Rps).then_some("RPS over all CPUs, GRO")
    }

    fn cannot_shape(&self) -> Option<&'static str> {
        (*self == KernelBridge::Rps).then_some("tbf's accuracy is measured without RPS")
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        let switch = &topology.switch;
        let mut commands = "link add br0 type bridge\n".to_owned();
        for host in &topology.hosts {
            let (inside, netns, queues) = (&host.interface, host.netns.name(), wiring.queues);
            let outside = port(inside);
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
        for host in topology.hosts.iter().filter(|_| *self == KernelBridge::Rps) {
            let outside = port(&host.interface);
            host.netns.run(|| enable_gro(&host.interface))?;
            switch.run(|| enable_gro(&outside))?;
            enable_rps(switch, &outside)?;
        }
        if let Some(Shape { rate, burst, .. }) = wiring.shape {
            let port = port(&topology.hosts[1].interface);
            switch.tc(&format!(
                "qdisc add dev {port} root tbf rate {rate} burst {burst} latency {LATENCY}"
            ))?;
        }
        topology.configure_hosts()
    }
}

/// The bridge's end of the pair whose other end is `interface`.
pub(crate) fn port(interface: &str) -> String {
    format!("p{interface}")
}

fn enable_gro(interface: &str) -> Result<(), BenchError> {
    gro::enable(interface).map_err(|e| BenchError::io(format!("enabling GRO on {interface}"), e))
}

/// Lets all CPUs take part in what `interface` receives.
fn enable_rps(netns: &NamedNetns, interface: &str) -> Result<(), BenchError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mask = format!("{:x}", (1u64 << cpus.min(32)) - 1);
    // `ip netns exec` mounts the namespace's own /sys.
    let set = "for f in /sys/class/net/$0/queues/rx-*/rps_cpus; do echo $1 >$f || exit; done";
    let mut command = netns.command("sh");
    process::output(command.args(["-c", set, interface, &mask])).map(drop)
}
