//! The senders that a policy's comments ask for (`# generate: …`), for the simulation and for
//! hosts: both with the same addresses and ports.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use crate::hosts::ADDRESS_B;
use crate::traffic::flows::{Flow, Kind};

/// Source ports: those of a line of senders follow those of the line before.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 1000;
/// Microseconds within which senders start: 99 % of a host's timers are late by less, as measured.
const LATE: u64 = 500;
/// Microseconds from one sender's start to the next one's in run 1, modulo [`LATE`]: with a common
/// divisor the starts of some would coincide.
const STEP: u64 = 97;
/// Address that they send from, unless a line names another.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Senders of a policy, a line each, in their order.
#[derive(Debug)]
pub(super) struct Senders(Vec<(String, Flow)>);

impl Senders {
    /// Senders of a script's comments.
    pub(super) fn of(script: &str) -> Senders {
        let lines = script.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("# generate: "));
        let ports = (FIRST_PORT..).step_by(PORTS.into());
        let senders = lines.zip(ports);
        Senders(
            senders
                .map(|(line, port)| (line.into(), flow(line, port)))
                .collect(),
        )
    }

    /// A congestion control that is not among those that are available.
    pub(super) fn missing(&self, available: &str) -> Option<&str> {
        self.0.iter().find_map(|(_, flow)| match &flow.kind {
            Kind::Tcp { congestion, .. } => {
                let known = available.split_whitespace().any(|name| name == congestion);
                (!known).then_some(congestion.as_str())
            }
            Kind::Udp { .. } => None,
        })
    }

    /// Their names, each once.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.0.iter().map(|(line, _)| name(line)).collect();
        // Those of the same name are next to each other.
        names.dedup();
        names
    }

    /// The name of the sender with this source port.
    pub(super) fn with_port(&self, port: u16) -> Option<&str> {
        let line = port.checked_sub(FIRST_PORT)? / PORTS;
        self.0.get(usize::from(line)).map(|(line, _)| name(line))
    }

    /// Senders as hosts have them.
    pub(super) fn flows(&self) -> Vec<Flow> {
        self.0.iter().map(|(_, flow)| flow.clone()).collect()
    }

    /// Senders as `softnet sim --generate` has them, each for so long, a line for each connection.
    /// All start at once in run 0; in each other run they start in an order of its own.
    pub(super) fn generated(&self, time: Duration, run: u64) -> Vec<String> {
        let millis = time.as_millis();
        let mut generated = Vec::new();
        for (line, flow) in &self.0 {
            let replaced = ["for=", "src=", "tcp="];
            let own = line.split(',');
            let own = own.filter(|part| !replaced.iter().any(|key| part.starts_with(key)));
            let own = own.collect::<Vec<_>>().join(",");
            let (src, dst) = (flow.from.ip(), flow.to.ip());
            let (count, kind) = match flow.kind {
                Kind::Tcp { count, .. } => (count, ",tcp=1"),
                Kind::Udp { .. } => (1, ""),
            };
            for number in 0..count {
                let sport = flow.from.port() + number;
                let late = (generated.len() as u64 + 1) * run * STEP % LATE;
                generated.push(format!(
                    "{own}{kind},for={millis}ms,start={late}us,src={src},sport={sport},dst={dst}"
                ));
            }
        }
        generated
    }

    /// The round-trip time of connections, which is one in a policy.
    pub(super) fn rtt(&self) -> Option<&str> {
        self.0.iter().find_map(|(line, _)| value(line, "rtt"))
    }
}

fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = line.split(',').filter_map(|part| part.split_once('='));
    pairs.find_map(|(name, value)| (name == key).then_some(value))
}

fn name(line: &str) -> &str {
    value(line, "name").unwrap_or_default()
}

/// A line's senders with source ports from this one on. The defaults are those of `softnet sim`.
fn flow(line: &str, port: u16) -> Flow {
    let number = |key: &str| value(line, key).and_then(|value| value.parse::<u16>().ok());
    let source = value(line, "src").and_then(|text| text.parse().ok());
    let (kind, destination) = match number("tcp") {
        Some(count) => {
            let congestion = value(line, "cc").unwrap_or("cubic").to_owned();
            (Kind::Tcp { count, congestion }, 80)
        }
        None => {
            let size = usize::from(number("size").unwrap_or(1514));
            let rate = value(line, "rate");
            let rate = rate.and_then(|rate| scaled(rate, &[("kbit", 1e3), ("mbit", 1e6)]));
            let rate = rate.unwrap_or_default();
            (Kind::Udp { size, rate }, 9)
        }
    };
    let destination = number("dport").unwrap_or(destination);
    Flow {
        from: SocketAddrV4::new(source.unwrap_or(SOURCE), port),
        to: SocketAddrV4::new(ADDRESS_B, destination),
        dscp: number("dscp").unwrap_or_default() as u8,
        kind,
    }
}

/// A number with one of these units, times its size.
pub(super) fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, scale)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * scale)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "#!/bin/sh\n\
        # generate: name=call,rate=200kbit,size=200,dscp=46,src=10.0.0.3,for=20s\n\
        # generate: name=many,tcp=8,cc=reno,rtt=30ms,dport=443,for=20s\n\
        # generate: name=many,tcp=1,rtt=30ms,for=20s\n\
        set -e\n";

    #[test]
    fn lines_are_the_same_for_hosts_and_simulation() {
        let senders = Senders::of(SCRIPT);
        assert_eq!(senders.names(), ["call", "many"]);
        assert_eq!(senders.rtt(), Some("30ms"));
        let flows = senders.flows();
        let [call, reno, cubic] = &flows[..] else {
            panic!("three lines: {senders:?}");
        };
        assert_eq!((call.dscp, call.to.to_string()), (46, "10.99.0.2:9".into()));
        let kind = Kind::Udp {
            size: 200,
            rate: 200_000.0,
        };
        assert_eq!(
            (&call.kind, call.from.to_string()),
            (&kind, "10.0.0.3:20000".into())
        );
        let tcp = |count, name: &str| Kind::Tcp {
            count,
            congestion: name.to_owned(),
        };
        assert_eq!((&reno.kind, reno.to.port()), (&tcp(8, "reno"), 443));
        assert_eq!((&cubic.kind, cubic.to.port()), (&tcp(1, "cubic"), 80));
        let generated = |run| senders.generated(Duration::from_millis(1500), run);
        let first = |start, port| {
            format!(
                "name=many,cc=reno,rtt=30ms,dport=443,tcp=1,for=1500ms,start={start}us,\
                 src=10.0.0.1,sport={port},dst=10.99.0.2"
            )
        };
        assert_eq!(generated(0).len(), 1 + 8 + 1);
        assert_eq!(generated(0)[1], first(0, 21_000));
        assert_eq!(generated(1)[1], first(194, 21_000));
        assert_eq!(generated(1)[8], first(373, 21_007));
        let call = "name=call,rate=200kbit,size=200,dscp=46,for=1500ms,start=97us,src=10.0.0.3,";
        assert!(generated(1)[0].starts_with(call), "{:?}", generated(1));
        assert_eq!(senders.missing("reno bbr cubic\n"), None);
        assert_eq!(senders.missing("bbr cubic\n"), Some("reno"));
        assert_eq!(senders.with_port(21_007), Some("many"));
        assert_eq!(
            (senders.with_port(19_999), senders.with_port(23_000)),
            (None, None)
        );
    }
}
