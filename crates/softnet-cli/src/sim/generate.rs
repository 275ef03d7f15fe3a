//! `--generate KEY=VALUE,…`: a flow, or TCP connections, in words.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use softnet::time::Time;
use softnet_tc::sim::tcp::Algorithm;
use softnet_tc::sim::{Direction, Flow, FlowError, Pattern};

use crate::config::units;

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
                flow.duration = units::time(value).map_err(|error| format!("for: {error}"))?
            }
            "start" => {
                flow.start = Time(units::time(value).map_err(|error| format!("start: {error}"))?);
            }
            "size" => {
                flow.size =
                    range(value).ok_or_else(|| number("a length or a range like 64-1500"))?
            }
            "pattern" => {
                flow.pattern =
                    pattern(value).ok_or_else(|| number("constant, poisson or bursts:N"))?;
            }
            "name" if value.is_empty() => return Err("the name is empty".to_owned()),
            "name" => name = value.to_owned(),
            "on" => on_off.0 = units::time(value).map_err(|error| format!("on: {error}"))?,
            "off" => on_off.1 = units::time(value).map_err(|error| format!("off: {error}"))?,
            "ping" => {
                let every = units::time(value).map_err(|error| format!("ping: {error}"))?;
                interval = Some(every.max(1));
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
                tcp.rtt = units::time(value).map_err(|error| format!("rtt: {error}"))?;
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
        let size = u128::from(*flow.size.start());
        flow.rate = u64::try_from(size * 1_000_000_000 / u128::from(interval)).unwrap_or(u64::MAX);
    }
    if is_tcp {
        for key in ["rate", "size", "pattern", "on", "ping"] {
            if has(key) {
                return Err(format!(
                    "{key} is not for connections: they send what they may"
                ));
            }
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

/// TCP or not, source, destination.
type Ends = (bool, (IpAddr, u16), (IpAddr, u16));

/// The addresses and ports that senders have: nobody tells the packets of two apart that have the
/// same.
#[derive(Debug, Default)]
pub(super) struct Senders {
    taken: HashSet<Ends>,
    /// The next port of those that were told none.
    next: u16,
}

impl Senders {
    /// The first port of senders that have a name, unless they are told another.
    const FIRST: u16 = 20_000;

    /// Takes the addresses and ports of a flow or, if `tcp`, a connection. One without a port gets
    /// a free one.
    pub(super) fn take(&mut self, flow: &mut Flow, tcp: bool, chosen: bool) -> Result<(), String> {
        if chosen {
            return match self.taken.insert((tcp, flow.source, flow.destination)) {
                true => Ok(()),
                false => Err(format!(
                    "two senders from {} port {} to {} port {}; give one another sport",
                    flow.source.0, flow.source.1, flow.destination.0, flow.destination.1
                )),
            };
        }
        for _ in 0..=u16::MAX {
            flow.source.1 = Self::FIRST.wrapping_add(self.next);
            self.next = self.next.wrapping_add(1);
            if self.taken.insert((tcp, flow.source, flow.destination)) {
                return Ok(());
            }
        }
        Err(format!("no port of {} is left", flow.source.0))
    }

    /// The same for a flow without a name, which has the port that it has while that is free.
    pub(super) fn take_nameless(&mut self, flow: &mut Flow) -> Result<(), String> {
        match self.taken.insert((false, flow.source, flow.destination)) {
            true => Ok(()),
            false => self.take(flow, false, false),
        }
    }
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
mod tests {
    use super::*;

    #[test]
    fn connections_in_words() {
        let two = flow("name=web,tcp=2,cc=bbr,rtt=30ms,for=5s,bytes=1m").expect("connections");
        let tcp = two.tcp.expect("connections");
        assert_eq!(
            (two.name.as_str(), tcp.count, tcp.algorithm),
            ("web", 2, Algorithm::Bbr)
        );
        assert_eq!(
            (tcp.rtt, tcp.bytes, tcp.ecn),
            (30_000_000, Some(1 << 20), false)
        );
        let dctcp = flow("tcp=1,cc=dctcp,for=1s").expect("a connection").tcp;
        assert!(dctcp.expect("a connection").ecn);
    }

    #[test]
    fn senders_that_pause_in_words() {
        let ping = flow("ping=20ms,for=1s,rtt=5ms").expect("pings");
        assert_eq!((ping.echo, ping.tcp), (Some(5_000_000), None));
        assert_eq!((ping.flow.rate, ping.flow.size), (4900, 98..=98));
        let web = flow("web=3,for=1s,rwnd=64k").expect("pages").tcp;
        let web = web.expect("connections");
        assert_eq!((web.count, web.pages), (3, true));
        assert_eq!(web.receive_window, Some(65_536));
        let talk = flow("rate=1mbit,for=1s,on=1s,off=1500ms").expect("a flow");
        let (on, off) = (1_000_000_000, 1_500_000_000);
        assert_eq!(talk.flow.pattern, Pattern::OnOff { on, off });
    }

    #[test]
    fn senders_that_the_page_shows() {
        let page = include_str!("../../../../docs/policy-ci.md");
        let rows = page.lines().filter(|line| line.starts_with("| "));
        let rows: Vec<&str> = rows.filter(|line| line.contains(",for=")).collect();
        assert_eq!(rows.len(), 5, "{rows:?}");
        for row in rows {
            let example = row.rsplit('`').nth(1).expect(row);
            assert!(flow(example).is_ok(), "{example}");
        }
    }

    #[test]
    fn flows_in_words() {
        let back = flow("rate=8mbit,for=10s,direction=reverse");
        let back = back.expect("a flow").flow;
        assert_eq!(back.direction, Direction::Reverse);
        assert_eq!(
            (back.source.0, back.destination.0),
            (IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 1]))
        );
        let plain = flow("rate=8mbit,for=10s").expect("a flow").flow;
        assert_eq!((plain.rate, plain.duration), (1_000_000, 10_000_000_000));
        let all = flow(
            "rate=1mbit,for=1s,size=64-1500,start=5ms,pattern=bursts:8,src=fd00::1,dst=fd00::2,\
             sport=1,dport=53,dscp=46,prio=6,mark=7,seed=9",
        )
        .expect("a flow")
        .flow;
        assert_eq!(
            (all.size, all.start, all.pattern),
            (64..=1500, Time(5_000_000), Pattern::Bursts(8))
        );
        assert_eq!(
            (
                all.destination.1,
                all.dscp,
                all.priority,
                all.mark,
                all.seed
            ),
            (53, 46, 6, 7, 9)
        );
        for (text, part) in [
            ("", "not KEY=VALUE"),
            ("rate=1mbit", "`for` is missing"),
            ("for=1s", "`rate` is missing"),
            ("rate=1mbit,for=1s,rate=2mbit", "given twice"),
            ("rate=1furlong,for=1s", "rate: "),
            ("rate=1mbit,for=1s,size=9000", "frames must have"),
            ("rate=1mbit,for=1s,size=9-8", "frames must have"),
            ("rate=1mbit,for=1s,pattern=bursts:0", "at least one"),
            ("rate=1mbit,for=1s,pattern=jazz", "constant, poisson"),
            ("rate=1mbit,for=1s,src=::1", "both be IPv4 or both"),
            ("rate=1mbit,for=1s,colour=red", "known: name, rate, for"),
            ("rate=1mbit,for=1s,cc=reno", "cc is of connections"),
            ("tcp=2,for=1s,rate=1mbit", "rate is not for connections"),
            ("tcp=0,for=1s", "a number from 1 to 10000"),
            ("tcp=1,for=1s,cc=vegas", "reno, cubic, dctcp or bbr"),
            ("tcp=1", "`for` is missing"),
            ("tcp=1,for=1s,ecn=1", "on or off"),
            ("tcp=1,web=2,for=1s", "tcp and web exclude"),
            ("tcp=1,for=1s,ping=1s", "ping is not for connections"),
            ("rate=1mbit,for=1s,on=1s", "on and off belong together"),
            ("rate=1mbit,for=1s,on=0,off=1s", "longer than nothing"),
            ("ping=1s,rate=1mbit,for=1s", "ping and rate exclude"),
            ("rate=1mbit,for=1s,rwnd=64k", "rwnd is of connections"),
            ("tcp=1,rtt=0ms,for=1s", "the shortest is 1us"),
            ("tcp=1,rtt=601s,for=1s", "the longest 600s"),
            ("tcp=1,rtt=9e9s,for=1s", "the longest 600s"),
            ("tcp=1,rwnd=1025m,for=1s", "the largest is 1g"),
            (
                "rate=1mbit,for=1s,direction=back",
                "direction: \"back\" is not forward or reverse",
            ),
        ] {
            let error = flow(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_column() {
        for (text, start) in [
            ("", "column 1: \"\" is not KEY=VALUE"),
            ("rate=1mbit", "column 12: `for` is missing"),
            ("rate=1mbit,for=1s,rate=2mbit", "column 19: rate is given"),
            ("rate=1furlong,for=1s", "column 1: rate: "),
            ("for=1s,rate=1mbit,size=9-8", "column 19: frames must have"),
            ("rate=1mbit,dscp=64,for=1s", "column 12: a DSCP is"),
            ("rate=1mbit,for=1s,dst=::1", "column 19: source and"),
            ("rate=1mbit,for=1s,colour=red", "column 19: \"colour\" is"),
            ("cc=reno,rate=1mbit,for=1s", "column 1: cc is of"),
            ("tcp=1,direction=up,for=1s", "column 7: direction: "),
            ("tcp=2,for=1s,rate=1mbit", "column 14: rate is not"),
            (
                "name=\u{fc}ber,tcp=1,cc=x,for=1s",
                "column 17: cc: \"x\" is",
            ),
        ] {
            let error = flow(text).expect_err(text);
            assert!(error.starts_with(start), "{text}: {error}");
        }
    }

    #[test]
    fn no_two_senders_are_alike() {
        let mut senders = Senders::default();
        let mut one = flow("rate=1mbit,for=1s").expect("a flow").flow;
        let mut ports: Vec<u16> = Vec::new();
        for _ in 0..3 {
            senders.take_nameless(&mut one).expect("free");
            ports.push(one.source.1);
        }
        assert_eq!(ports, [10_000, 20_000, 20_001]);
        let error = senders.take(&mut one, false, true).expect_err("taken");
        assert!(error.starts_with("two senders from 10.0.0.1 port 20001 to 10.0.0.2 port 9"));
        senders
            .take(&mut one, true, true)
            .expect("of another protocol");
    }
}
