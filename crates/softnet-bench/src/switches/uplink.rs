//! Ways of a host to servers of the system without rights: passt behind Softnet, and pasta.
//!
//! Host b is the system: it has the only default route, from which passt and pasta take what they
//! give to host a: the system's own address and router. The router is nobody else: its address,
//! [`ADDRESS_B`], leads to the system's loopback.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::softnet::Softnet;
use super::{Switch, Wiring};
use crate::error::BenchError;
use crate::hosts::{ADDRESS_B, Topology};
use crate::process::{self, Process};

/// Longest IP packet in bytes, of both.
const MTU: u32 = 1500;
/// Time for the way to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives the system its address and router.
fn make_system(topology: &Topology) -> Result<(), BenchError> {
    // Both come from one package.
    for program in ["passt", "pasta"] {
        if process::find(program).is_none() {
            return Err(BenchError::Unavailable(format!(
                "`{program}` is not installed (package passt)"
            )));
        }
    }
    let (system, address) = (topology.b(), topology.hosts[0].prefix());
    system.ip("link add b0 type veth peer name b1")?;
    system.ip(&format!("address add {address} dev b0"))?;
    system.ip("link set b0 up")?;
    system.ip("link set b1 up")?;
    system.ip(&format!("route add default via {ADDRESS_B}"))
}

/// A topology in which host a reaches the system.
///
/// # Errors
/// [`BenchError::Unavailable`] if a program is not there. One that ends, or does not carry packets,
/// has failed.
pub(crate) fn open(switch: &dyn Switch) -> Result<Topology, BenchError> {
    let mut topology = Topology::new()?;
    switch.connect(&mut topology, Wiring::default())?;
    let listen = || TcpListener::bind("127.0.0.1:0").map_err(|e| BenchError::io("listening", e));
    let listener = topology.b().run(listen)?;
    let port = listener.local_addr();
    let port = port.map_err(|e| BenchError::io("listening", e))?.port();
    let deadline = Instant::now() + PATIENCE;
    let reach = || {
        let address = (ADDRESS_B, port).into();
        Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
    };
    while !topology.a().run(reach)? {
        topology.check_running()?;
        if Instant::now() > deadline {
            let what = format!("host a does not reach the system by {}", switch.name());
            return Err(BenchError::Measure(what));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(topology)
}

/// A port of passt and a TAP port, in a bridge.
#[derive(Debug)]
pub(crate) struct Passt(pub(crate) Softnet);

impl Switch for Passt {
    fn name(&self) -> &'static str {
        "softnet-passt"
    }

    fn prepare(&self) -> Result<(), BenchError> {
        self.0.prepare()
    }

    fn connect(&self, topology: &mut Topology, _: Wiring) -> Result<(), BenchError> {
        make_system(topology)?;
        let host = &topology.hosts[0];
        let (name, netns, address) = (&host.interface, host.netns.name(), host.prefix());
        let text = format!(
            "[[port]]\nname = \"uplink\"\ndriver = \"stream\"\nuplink = \"passt\"\nmtu = {MTU}\n\
             [[port]]\nname = \"{name}\"\ndriver = \"tap\"\nnetns = \"{netns}\"\nmtu = {MTU}\n\
             address = [\"{address}\"]\ngateway = [\"{ADDRESS_B}\"]\n\
             [[bridge]]\nname = \"br0\"\nports = [\"uplink\", \"{name}\"]\n"
        );
        let file = topology.directory.write("softnet.toml", &text)?;
        let socket = topology.directory.path().join("rtnetlink.sock");
        // In the system, where its helper starts passt.
        let mut command = topology.b().command(self.0.program());
        command.arg("run").arg("--socket").arg(socket).arg(file);
        let daemon = Process::start(&mut command)?;
        topology.daemons.push(daemon);
        Ok(())
    }
}

/// pasta with a TAP interface in host a's namespace: passt's own way there.
#[derive(Debug)]
pub(crate) struct Pasta;

impl Switch for Pasta {
    fn name(&self) -> &'static str {
        "pasta"
    }

    fn connect(&self, topology: &mut Topology, _: Wiring) -> Result<(), BenchError> {
        make_system(topology)?;
        let host = &topology.hosts[0];
        let netns = format!("/run/netns/{}", host.netns.name());
        let mut command = topology.b().command("pasta");
        command.args(["--foreground", "--quiet", "--config-net", "--ipv4-only"]);
        command.args(["--mtu", &MTU.to_string(), "--ns-ifname", &host.interface]);
        // Nothing is spliced: what is measured goes by the interface.
        for ports in ["-t", "-u", "-T", "-U"] {
            command.args([ports, "none"]);
        }
        // As nobody, which root becomes otherwise, it may not enter the namespace.
        command.args(["--runas", "0", "--netns", &netns]);
        let daemon = Process::start(&mut command)?;
        topology.daemons.push(daemon);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A program that is there and ends at once.
    struct Ends;

    impl Switch for Ends {
        fn name(&self) -> &'static str {
            "ends"
        }

        fn connect(&self, topology: &mut Topology, _: Wiring) -> Result<(), BenchError> {
            let process = Process::start(&mut Command::new("true"))?;
            topology.daemons.push(process);
            Ok(())
        }
    }

    #[test]
    fn only_what_is_not_there_is_unavailable() {
        if let Err(BenchError::Unavailable(why)) = Topology::new() {
            return softnet_tests::skip(&why);
        }
        let failed = open(&Ends).map(drop);
        assert!(
            matches!(failed, Err(BenchError::Command { .. })),
            "{failed:?}"
        );
    }
}
