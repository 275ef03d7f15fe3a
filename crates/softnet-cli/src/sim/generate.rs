//! `--generate KEY=VALUE,…`: a flow, or TCP connections, in words.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use softnet::time::Time;
use softnet_tc::Handle;
use softnet_tc::sim::tcp::Algorithm;
use softnet_tc::sim::{Direction, Flow, FlowError, Pattern};

use crate::config::{time, units};

/// Flows or connections to generate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Generated {
    /// Their name in results and expectations.
    pub name: String,
    /// Addresses, rate and times.
    pub flow: Flow,
    /// Connections, if they are such.
    pub tcp: Option<Tcp>,
    /// The source port was given: connections count from it.
    pub has_port: bool,
    /// Round-trip time without queues, if its packets are answered.
    pub echo: Option<u64>,
}

/// TCP connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tcp {
    pub count: u16,
    pub algorithm: Algorithm,
    pub rtt: u64,
    pub ecn: bool,
    pub bytes: Option<u64>,
    pub receive_window: Option<u64>,
    /// Pages with pauses in between.
    pub pages: bool,
}

/// Length of a ping's frame: 56 bytes of data, as ping sends.
const PING: u16 = 98;

const KEYS: &str = "name, rate, for, size, start, pattern, src, dst, sport, dport, dscp, prio, \
                    mark, seed, on, off, ping, direction; of connections tcp, web, cc, rtt, ecn, \
                    bytes, rwnd";

/// The shortest round trip, ns: without one, no time passes between a loss and its repair.
const LEAST_RTT: u64 = 1_000;
/// The longest, ns: a sender that hears nothing for 20 minutes gives up.
const LONGEST_RTT: u64 = 600_000_000_000;

/// Packets of a burst at most: no more find a buffer.
const LONGEST_BURST: u32 = 4_194_304;

/// The largest receive window, bytes (RFC 7323, 2.3). What is in flight takes memory here.
const LARGEST_WINDOW: u64 = 1 << 30;

impl Generated {
    /// Their name in results; empty if they have none.
    pub(super) fn shown_name(&self) -> &str {
        match self.tcp {
            Some(_) if self.name.is_empty() => "tcp",
            _ => &self.name,
        }
    }

    /// The end of the time for which they send.
    pub(super) fn ends(&self) -> Time {
        self.flow.start.plus_nanos(self.flow.duration)
    }
}

/// Reads a flow. An error begins with its column, from 1.
pub(super) fn flow(text: &str) -> Result<Generated, String> {
    let column = Cell::new(1);
    read(text, &column).map_err(|error| format!("column {}: {error}", column.get()))
}

/// The column is that of the key that was read last, or is meant.
fn read(text: &str, column: &Cell<usize>) -> Result<Generated, String> {
    let mut name = String::new();
    let mut tcp = Tcp {
        count: 0,
        algorithm: Algorithm::Cubic,
        rtt: 20_000_000,
        ecn: false,
        bytes: None,
        receive_window: None,
        pages: false,
    };
    let (mut on_off, mut interval) = ((0, 0), None);
    let mut flow = Flow {
        rate: 0,
        size: 1514..=1514,
        start: Time::ZERO,
        duration: 0,
        pattern: Pattern::Constant,
        seed: 1,
        source: (Ipv4Addr::new(10, 0, 0, 1).into(), 10_000),
        destination: (Ipv4Addr::new(10, 0, 0, 2).into(), 9),
        dscp: 0,
        priority: 0,
        mark: 0,
        direction: Direction::Forward,
    };
    let mut seen = Vec::new();
    let mut columns = Vec::new();
    let mut end = 1;
    for part in text.split(',') {
        column.set(end);
        end += part.chars().count() + 1;
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        if seen.contains(&key) {
            return Err(format!("{key} is given twice"));
        }
        seen.push(key);
        columns.push(column.get());
        let number = |what: &str| format!("{key}: {value:?} is not {what}");
        match key {
            "rate" => flow.rate = units::rate(value).map_err(|error| format!("rate: {error}"))?,
            "for" => {
                flow.duration = time(value).map_err(|error| format!("for: {error}"))?;
                if flow.duration == 0 {
                    return Err(number("longer than nothing"));
                }
            }
            "start" => {
                flow.start = Time(time(value).map_err(|error| format!("start: {error}"))?);
            }
            "size" => {
                flow.size =
                    range(value).ok_or_else(|| number("a length or a range like 64-1500"))?
            }
            "pattern" => {
                flow.pattern =
                    pattern(value).ok_or_else(|| number("constant, poisson or bursts:N"))?;
                if matches!(flow.pattern, Pattern::Bursts(n) if n > LONGEST_BURST) {
                    let most = format!("a rhythm; bursts have at most {LONGEST_BURST} packets");
                    return Err(number(&most));
                }
            }
            "name" if value.is_empty() => return Err("the name is empty".to_owned()),
            "name" if value.parse::<Handle>().is_ok() => {
                return Err(number("a name; it is that of a class"));
            }
            "name" => name = value.to_owned(),
            "on" => on_off.0 = time(value).map_err(|error| format!("on: {error}"))?,
            "off" => on_off.1 = time(value).map_err(|error| format!("off: {error}"))?,
            "ping" => {
                let every = time(value).map_err(|error| format!("ping: {error}"))?;
                if every == 0 {
                    return Err(number("longer than nothing"));
                }
                interval = Some(every);
            }
            "rwnd" => {
                let bytes = units::size(value).map_err(|error| format!("rwnd: {error}"))?;
                if bytes > LARGEST_WINDOW {
                    return Err(number("a receive window; the largest is 1g"));
                }
                tcp.receive_window = Some(bytes);
            }
            "tcp" | "web" => {
                tcp.pages = key == "web";
                let count = value.parse().ok().filter(|n| (1..=10_000).contains(n));
                tcp.count = count.ok_or_else(|| number("a number from 1 to 10000"))?;
            }
            "cc" => {
                let known = Algorithm::named(value);
                tcp.algorithm = known.ok_or_else(|| number("reno, cubic, dctcp or bbr"))?;
            }
            "rtt" => {
                tcp.rtt = time(value).map_err(|error| format!("rtt: {error}"))?;
                if !(LEAST_RTT..=LONGEST_RTT).contains(&tcp.rtt) {
                    return Err(number(
                        "a round trip; the shortest is 1us, the longest 600s",
                    ));
                }
            }
            "ecn" => {
                tcp.ecn = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(number("on or off")),
                }
            }
            "bytes" => {
                let bytes = units::size(value).map_err(|error| format!("bytes: {error}"))?;
                tcp.bytes = Some(bytes);
            }
            "direction" => {
                flow.direction = match value {
                    "forward" => Direction::Forward,
                    "reverse" => Direction::Reverse,
                    _ => return Err(number("forward or reverse")),
                }
            }
            "seed" => flow.seed = value.parse().map_err(|_| number("a number"))?,
            "src" => flow.source.0 = value.parse::<IpAddr>().map_err(|_| number("an address"))?,
            "dst" => {
                flow.destination.0 = value.parse::<IpAddr>().map_err(|_| number("an address"))?
            }
            "sport" => flow.source.1 = value.parse().map_err(|_| number("a port"))?,
            "dport" => flow.destination.1 = value.parse().map_err(|_| number("a port"))?,
            "dscp" => flow.dscp = value.parse().map_err(|_| number("a code point"))?,
            "prio" => flow.priority = value.parse().map_err(|_| number("a priority"))?,
            "mark" => flow.mark = value.parse().map_err(|_| number("a mark"))?,
            _ => return Err(format!("{key:?} is unknown; known: {KEYS}")),
        }
    }
    let has = |key| {
        let place = seen.iter().position(|seen| *seen == key);
        if let Some(&found) = place.and_then(|place| columns.get(place)) {
            column.set(found);
        }
        place.is_some()
    };
    if flow.direction == Direction::Reverse {
        // It comes from where the others go.
        if !has("src") {
            flow.source.0 = Ipv4Addr::new(10, 0, 0, 2).into();
        }
        if !has("dst") {
            flow.destination.0 = Ipv4Addr::new(10, 0, 0, 1).into();
        }
    }
    let is_tcp = has("tcp") || has("web");
    for key in ["cc", "rtt", "ecn", "bytes", "rwnd"] {
        let is_of_pings = key == "rtt" && has("ping");
        if has(key) && !is_tcp && !is_of_pings {
            return Err(format!("{key} is of connections; add tcp=1"));
        }
    }
    for (one, other) in [
        ("tcp", "web"),
        ("bytes", "web"),
        ("ping", "rate"),
        ("ping", "pattern"),
        ("on", "pattern"),
        ("ping", "on"),
    ] {
        if has(one) && has(other) {
            return Err(format!("{one} and {other} exclude each other"));
        }
    }
    if has("on") != has("off") {
        return Err("on and off belong together, as in on=1s,off=500ms".to_owned());
    }
    if has("on") {
        let (on, off) = on_off;
        flow.pattern = Pattern::OnOff { on, off };
    }
    if let Some(interval) = interval {
        if !has("size") {
            flow.size = PING..=PING;
        }
        (flow.rate, flow.pattern) = (1, Pattern::Every(interval));
    }
    if is_tcp {
        for key in ["rate", "size", "pattern", "on", "ping"] {
            if has(key) {
                return Err(format!(
                    "{key} is not for connections: they send what they may"
                ));
            }
        }
        let last = u32::from(flow.source.1) + u32::from(tcp.count) - 1;
        if has("sport") && last > u32::from(u16::MAX) {
            return Err(format!(
                "sport: {} connections have ports up to {last}; the last one is 65535",
                tcp.count
            ));
        }
        // DCTCP is nothing without marks.
        tcp.ecn |= tcp.algorithm == Algorithm::Dctcp;
        (flow.rate, flow.destination.1) = (1, if has("dport") { flow.destination.1 } else { 80 });
    }
    for key in ["rate", "for"] {
        let is_needed = key != "rate" || !(is_tcp || has("ping"));
        if is_needed && !has(key) {
            column.set(end);
            return Err(format!(
                "`{key}` is missing; a flow is written like rate=8mbit,for=10s"
            ));
        }
    }
    // What the flow itself knows better.
    flow.arrivals().map_err(|error| {
        column.set(1);
        has(match error {
            FlowError::Rate => "rate",
            FlowError::Size => "size",
            FlowError::Family if has("src") => "src",
            FlowError::Family => "dst",
            FlowError::Dscp => "dscp",
            _ => "pattern",
        });
        error.to_string()
    })?;
    Ok(Generated {
        name,
        has_port: has("sport"),
        echo: interval.map(|_| tcp.rtt),
        tcp: is_tcp.then_some(tcp),
        flow,
    })
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    Some(least.parse().ok()?..=most.parse().ok()?)
}

fn pattern(text: &str) -> Option<Pattern> {
    match text {
        "constant" => Some(Pattern::Constant),
        "poisson" => Some(Pattern::Poisson),
        _ => text
            .strip_prefix("bursts:")?
            .parse()
            .ok()
            .map(Pattern::Bursts),
    }
}

#[cfg(test)]
// By its path: the fuzz targets have this file, too.
#[path = "generate/tests.rs"]
mod tests;
