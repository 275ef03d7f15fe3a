//! The part of the time that is measured, and what machine, hosts and devices did in it.

use std::time::{Duration, Instant};

use crate::cpu;
use crate::error::TestbedError;
use crate::hosts::{NamedNetns, Topology, bridge_port};
use crate::in_process::Counters;

/// The part of the time that is measured.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The start.
    pub from: Instant,
    /// The end.
    pub to: Instant,
}

impl Window {
    /// One that begins after `warm_up`.
    pub fn after(warm_up: Duration, time: Duration) -> Window {
        let from = Instant::now() + warm_up;
        Window {
            from,
            to: from + time,
        }
    }

    /// The length.
    pub fn seconds(self) -> f64 {
        (self.to - self.from).as_secs_f64()
    }

    /// Waits until the window has passed; what the machine and the engine did in it.
    pub fn watch(self, topology: &Topology) -> Result<Seen, TestbedError> {
        let engine = || topology.engine.as_ref().map(|e| e.counters()).transpose();
        std::thread::sleep(self.from.saturating_duration_since(Instant::now()));
        let (busy, resent, before) = (cpu::busy()?, retransmits(topology)?, engine()?);
        let lost = device_drops(topology)?;
        std::thread::sleep(self.to.saturating_duration_since(Instant::now()));
        Ok(Seen {
            busy_s: cpu::busy()? - busy,
            retransmits: retransmits(topology)? - resent,
            device_drops: device_drops(topology)? - lost,
            counters: engine()?.zip(before).map(|(after, before)| after - before),
        })
    }
}

/// Events during a window.
#[derive(Debug)]
pub struct Seen {
    /// CPU time of the machine.
    pub busy_s: f64,
    /// Segments that host a sent again.
    pub retransmits: f64,
    /// Packets lost inside the devices between hosts and switch.
    pub device_drops: f64,
    /// The engine's counters, where it is in this program.
    pub counters: Option<Counters>,
}

impl Seen {
    /// The share of all CPUs.
    pub fn cpu_share(&self, window: Window) -> f64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.busy_s / (window.seconds() * cpus as f64)
    }
}

/// TCP segments that host a has sent again so far.
fn retransmits(topology: &Topology) -> Result<f64, TestbedError> {
    let text = net(topology.a(), "snmp")?;
    snmp(&text, "Tcp:", "RetransSegs")
        .ok_or_else(|| TestbedError::Measure("/proc/net/snmp has no RetransSegs".into()))
}

/// Packets that the kernel's side of the devices between hosts and switch has lost so far, either
/// way: nobody fetched them in time, or they found no buffer. No switch sees them.
fn device_drops(topology: &Topology) -> Result<f64, TestbedError> {
    let mut sum = 0.0;
    let at_switch = net(&topology.switch, "dev")?;
    for host in &topology.hosts {
        sum += dropped(&net(&host.netns, "dev")?, &host.interface);
        sum += dropped(&at_switch, &bridge_port(&host.interface));
    }
    Ok(sum)
}

/// A file of /proc/net as the namespace has it.
fn net(netns: &NamedNetns, file: &str) -> Result<String, TestbedError> {
    let path = format!("/proc/thread-self/net/{file}");
    netns.run(|| {
        std::fs::read_to_string(&path).map_err(|e| TestbedError::io(format!("reading {path}"), e))
    })
}

/// Drops of `interface` either way, by the lines of /proc/net/dev; 0 if there is no such interface.
fn dropped(text: &str, interface: &str) -> f64 {
    let line = text.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == interface).then_some(numbers)
    });
    let numbers = line.unwrap_or_default().split_whitespace();
    let numbers: Vec<f64> = numbers.filter_map(|n| n.parse().ok()).collect();
    // Each way: bytes, packets, errors, drops, and four more.
    [3, 11]
        .iter()
        .filter_map(|&column| numbers.get(column))
        .sum()
}

/// A number from two lines that start with `protocol`: one of names, one of values.
fn snmp(text: &str, protocol: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let mut words = lines.next()?.split_whitespace();
    let column = words.position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 7 42\n";
        assert_eq!(snmp(text, "Tcp:", "RetransSegs"), Some(42.0));
        assert_eq!(snmp(text, "Ip:", "B"), Some(2.0));
        assert_eq!(snmp(text, "Udp:", "B"), None);
        assert_eq!(snmp("Tcp: RetransSegs\n", "Tcp:", "RetransSegs"), None);
    }

    #[test]
    fn drops_of_a_device_are_those_of_both_ways() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n\
                    lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n\
                    pa0: 9 8 7 6 5 4 3 2 1 2 3 40 5 6 7 8\n";
        assert_eq!(dropped(text, "pa0"), 46.0);
        assert_eq!(dropped(text, "a0"), 0.0);
    }
}
