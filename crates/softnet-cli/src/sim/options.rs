//! The command line of `softnet sim`.

use std::path::PathBuf;

use clap::Args;

use super::generate::{self, Generated};
use crate::config::{Expectation, time, units};

pub(crate) const HELP: &str = "The tree file has one [[qdisc]] for each `tc qdisc add`, one \
                               [[class]] for each `tc class add` and one [[filter]] for each `tc \
                               filter add`, in tc's words; a port of a configuration file takes \
the same:

  [[qdisc]]
  handle = \"1:\"
  kind = \"tbf\"
  rate = \"10mbit\"
  burst = \"32k\"
  latency = \"50ms\"

  [[qdisc]]
  parent = \"1:1\"
  handle = \"10:\"
  kind = \"prio\"

  [[filter]]
  dst_port = 53
  flowid = \"10:1\"

A flow to generate is a list of KEY=VALUE with tc's units; times must have one:

  rate, for              how much, and for how long; both are needed
  size                   bytes of a frame, or a range of them: 64-1500
  start                  when it begins
  pattern                constant, poisson or bursts:N
  src, dst, sport, dport addresses and ports
  dscp, prio, mark       of its packets
  seed                   of what is random in it
  name                   what results and expectations call it
  direction              forward (the default) or reverse, through the policy of --reverse; what
                         answers it comes back through the other one
  on, off                it sends at the rate for a while, then not for another
  ping                   how far apart packets are that are answered, without a rate; with rtt

TCP connections, which react to loss, marks and delay, are a list, too:

  tcp, for               how many, and for how long; both are needed
  cc                     cubic (the default), reno, dctcp or bbr
  rtt                    round-trip time without queues; 20ms by default
  ecn                    on or off (the default; dctcp always has it)
  bytes                  what each sends at most
  rwnd                   what the receiver has room for; by default it grows, up to 6m
  web                    how many, in place of tcp: users who ask for pages, of 56k on average
                         (Pareto), with pauses of 2s
  name, start, src, ...  as above

An expectation is a subject, a figure and a bound:

  root | CLASS | PORT | a flow's name | reverse root | reverse CLASS
  rate | loss | drops | marks | fair | sojourn [p99] | rtt [p99]
  < VALUE, <= VALUE, > VALUE, >= VALUE, = VALUE or VALUE..VALUE
  (of times mean, p50, p90, p99, p999 or max; p99 where none is named;
  percentiles are right to 0.8 %; a bound that every value keeps is refused)

  softnet sim --tree tree.toml --generate rate=8mbit,for=10s \\
      --generate rate=1mbit,for=10s,size=100,dport=53
  softnet sim --script shape.sh --dev eth0 --link 100mbit \\
      --generate tcp=8,rtt=20ms,for=10s \\
      --generate name=voip,rate=100kbit,size=200,dscp=46,for=10s \\
      --expect 'voip sojourn p99 < 5ms' --expect 'root rate > 45mbit'

Exit codes:
  0    success
  1    it failed: a result cannot be written
  2    the command line, the policy, a capture or an expectation is wrong
  3    an expectation failed";

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("input").args(["pcap", "generate"]).required(true).multiple(true),
    group = clap::ArgGroup::new("policy").args(["tree", "config", "script"]).required(true),
    group = clap::ArgGroup::new("of_port").args(["config", "compare", "reverse"]).multiple(true),
    group = clap::ArgGroup::new("of_dev").args(["script", "compare", "reverse"]).multiple(true)
)]
pub(crate) struct Options {
    /// The tree of qdiscs (TOML)
    #[arg(long, value_name = "FILE")]
    pub(super) tree: Option<PathBuf>,
    /// A configuration file; the tree is that of its port --port
    #[arg(long, value_name = "FILE", requires = "port")]
    pub(super) config: Option<PathBuf>,
    /// The port of the configuration file
    #[arg(long, value_name = "NAME", requires = "of_port")]
    pub(super) port: Option<String>,
    /// A script of tc, ip and bridge that makes the tree, run by what its first line names, or sh,
    /// for at most a minute; its devices lead nowhere, and it has no other network
    #[arg(long, value_name = "SH", requires = "dev")]
    pub(super) script: Option<PathBuf>,
    /// The device at which the script makes the tree; it exists when the script starts
    #[arg(long, value_name = "NAME", requires = "of_dev")]
    pub(super) dev: Option<String>,
    /// Another policy for the same packets: a script, a configuration or a tree, by the file; both
    /// results are printed, and expectations are about the first
    #[arg(long, value_name = "FILE")]
    pub(super) compare: Option<PathBuf>,
    /// The policy of the reverse direction, read like that of --compare: acknowledgments and
    /// replies to pings pass it; without one they come back at once
    #[arg(long, value_name = "FILE")]
    pub(super) reverse: Option<PathBuf>,
    /// The device or port of --reverse, if it is not that of the first policy
    #[arg(long, value_name = "NAME", requires = "reverse")]
    pub(super) reverse_dev: Option<String>,
    /// A bound that the results must keep, such as 'root rate > 45mbit'; may be given several times
    #[arg(long, value_name = "EXPR")]
    pub(super) expect: Vec<Expectation>,
    /// Write what came of the expectations in JUnit's format
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
    /// Draw rate, delay and drops of each class over time, and the distribution of its sojourn
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Tell the story of the Nth packet that arrives: which filters looked at it, where it went,
    /// what it waited for and who left before it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) explain: Option<u64>,
    /// Simulated CPUs, each with a transmit queue and an instance of the tree, as a port with
    /// `parallel = true` has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) cpus: Option<u16>,
    /// Delay with which a CPU begins, in 99 of 100 cases at most, like p99=200us; it is
    /// exponentially distributed, and not longer than the senders send, nor than 600s
    #[arg(long, value_name = "p99=TIME", requires = "cpus", value_parser = stall)]
    pub(super) stall: Option<u64>,
    /// Share of the flows that the first CPU sends, like 90%; without it all have equal parts
    #[arg(long, value_name = "SHARE", requires = "cpus", value_parser = skew)]
    pub(super) skew: Option<f64>,
    /// Seed of what is random: in qdiscs (1 without this) and, instead of their own, in flows
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Capture whose packets arrive, at its times: pcap or pcapng, also gzipped, of Ethernet, Linux
    /// cooked captures or raw IP; `-` is standard input
    #[arg(long, value_name = "IN")]
    pub(super) pcap: Option<PathBuf>,
    /// Where to write what leaves the first policy and when (pcapng), with the story of each packet
    /// as its comment, as --explain tells it
    #[arg(long, value_name = "OUT")]
    pub(super) out: Option<PathBuf>,
    /// A flow to generate; may be given several times
    #[arg(long, value_name = "FLOW", value_parser = generate::flow)]
    pub(super) generate: Vec<Generated>,
    /// Rate of the link behind the tree; without it, the link takes all that the tree lets pass.
    /// With --reverse it is that of both directions, unless there are two: 50mbit/1mbit
    #[arg(long, value_name = "RATE[/RATE]", value_parser = link_rates)]
    pub(super) link: Option<LinkRates>,
    /// Give the capture's packets the priority that Linux gives packets it routes, by their type
    /// of service
    #[arg(long)]
    pub(super) tos_priority: bool,
    /// Packet buffers of 2 KiB: what can wait in the tree at the same time
    #[arg(
        long, value_name = "N", default_value_t = 65_536,
        value_parser = clap::value_parser!(u32).range(256..=4_194_304)
    )]
    pub(super) buffers: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

/// Rates of the link in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkRates {
    pub forward: u64,
    /// That of the reverse direction, if it has one of its own.
    pub reverse: Option<u64>,
}

fn link_rates(text: &str) -> Result<LinkRates, String> {
    let (forward, reverse) = match text.split_once('/') {
        Some((forward, reverse)) => (forward, Some(reverse)),
        None => (text, None),
    };
    Ok(LinkRates {
        forward: link_rate(forward)?,
        reverse: reverse.map(link_rate).transpose()?,
    })
}

/// The longest delay of a CPU, ns: sums of many fit in the times that there are.
const LONGEST_STALL: u64 = 600_000_000_000;

fn stall(text: &str) -> Result<u64, String> {
    let text = text
        .strip_prefix("p99=")
        .ok_or("it is written like p99=200us")?;
    let nanos = time(text)?;
    match nanos <= LONGEST_STALL {
        true => Ok(nanos),
        false => Err("the longest is 600s".to_owned()),
    }
}

fn skew(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().map(|number| number / scale);
    let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "it is a share like 0.9 or 90%".to_owned())
}

fn link_rate(text: &str) -> Result<u64, String> {
    match units::rate(text).map_err(|error| error.to_string())? {
        0 => Err("the link needs a rate of at least one byte per second".to_owned()),
        rate => Ok(rate),
    }
}
