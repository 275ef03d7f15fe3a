//! Hosts whose interfaces are ends of veths, the other ends of which are ports of the drivers
//! `af_packet` and `af_xdp`: all kinds of traffic, and what happens to the interface meanwhile.

mod changes;
mod traffic;

use std::process::Command;

use softnet_engine::PortStats;
use softnet_tests::{HostConfig, Lan, LanConfig, Via, skip};

/// The drivers.
const DRIVERS: [Via; 2] = [Via::AfPacket, Via::AfXdp];

/// Hosts that are joined like this, some with several queues, with two workers.
fn lan(via: &[(Via, usize)], change: impl FnOnce(&mut LanConfig)) -> Option<Lan> {
    println!("{via:?}");
    for program in ["ip", "ethtool"] {
        if Command::new(program).arg("--version").output().is_err() {
            skip(&format!("needs {program}"));
            return None;
        }
    }
    if via.iter().any(|end| end.0 == Via::AfXdp) && !rustix::process::geteuid().is_root() {
        skip("XDP needs root");
        return None;
    }
    let host = |&(via, queues): &(Via, usize)| HostConfig {
        via,
        queues,
        ..HostConfig::default()
    };
    let mut config = LanConfig {
        hosts: via.iter().map(host).collect(),
        workers: 2,
        ..LanConfig::default()
    };
    change(&mut config);
    Lan::build(config)
}

fn port(lan: &Lan, host: usize) -> PortStats {
    lan.engine.stats().ports[host].clone()
}
