//! The kernel's counters in a host: an account that Softnet's own can be held against.

use std::fs;

use crate::Host;

/// An interface's counters, from the host's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Frames from Softnet. A large frame is one.
    pub rx_packets: u64,
    /// Frames from Softnet that the driver could not use.
    pub rx_errors: u64,
    /// Frames that Softnet read.
    pub tx_packets: u64,
    /// Frames that could not be handed to Softnet.
    pub tx_errors: u64,
    /// Frames that found the queue to Softnet full.
    pub tx_dropped: u64,
}

/// Counters of a host's `eth0`.
pub fn interface(host: &Host) -> Interface {
    let table = host.run(|| fs::read_to_string("/proc/thread-self/net/dev"));
    let table = table.expect("the interfaces' counters");
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("eth0:"));
    let Some(line) = line else {
        return Interface::default();
    };
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map(|n| n.parse().expect("a number"))
        .collect();
    // Eight columns for each way: bytes, packets, errors, drops, …
    Interface {
        rx_packets: numbers[1],
        rx_errors: numbers[2],
        tx_packets: numbers[9],
        tx_errors: numbers[10],
        tx_dropped: numbers[11],
    }
}

/// A counter of the host's protocols, such as `("Udp", "InCsumErrors")`. IPv6's are in protocol
/// `Udp6`.
pub fn protocol(host: &Host, protocol: &str, name: &str) -> u64 {
    let file = if protocol.ends_with('6') {
        "snmp6"
    } else {
        "snmp"
    };
    let text = host.run(|| fs::read_to_string(format!("/proc/thread-self/net/{file}")));
    let text = text.expect("the protocols' counters");
    let found = if file == "snmp6" {
        let key = format!("{protocol}{name}");
        text.lines()
            .find_map(|line| line.strip_prefix(&key)?.trim().parse().ok())
    } else {
        let prefix = format!("{protocol}: ");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        let names = lines.next().unwrap_or_default().split_whitespace();
        let values = lines.next().unwrap_or_default().split_whitespace();
        names
            .zip(values)
            .find_map(|(n, value)| (n == name).then(|| value.parse().ok())?)
    };
    found.unwrap_or_else(|| panic!("no counter {protocol} {name}"))
}

/// Packets whose checksum the host's kernel found wrong. TCP over IPv6 is counted with TCP.
pub fn checksum_errors(host: &Host) -> u64 {
    ["Udp", "Udp6", "Tcp", "Icmp", "Icmp6"]
        .iter()
        .map(|name| match *name {
            "Icmp6" => protocol(host, "Icmp6", "InErrors"),
            name => protocol(host, name, "InCsumErrors"),
        })
        .sum()
}
