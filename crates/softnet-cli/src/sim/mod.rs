//! `softnet sim`: a tree of qdiscs in virtual time, fed by a capture or by generated flows.
//! Thin: the simulator is `softnet_tc::sim`; [`capture`] reads and writes pcap files, [`generate`]
//! reads flows, [`output`] prints.

mod capture;
mod generate;
mod output;
mod outside;

use std::iter::Peekable;
use std::path::PathBuf;

use clap::Args;
use softnet::mem::{Packet, Pool, PoolConfig};
use softnet::time::Time;
use softnet::wire::Network;
use softnet_tc::sim::{Arrivals, Flow, Report, SimLink, Simulator};
use softnet_tc::{QdiscEnv, QdiscSpec, Tree};

use crate::config::{self, units};
use crate::failure::{Exit, Failure};
use crate::report::{note, print};

use capture::{CaptureReader, CaptureWriter};
use outside::Outside;

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

A flow to generate is a list of KEY=VALUE with tc's units:

  rate, for              how much, and for how long; both are needed
  size                   bytes of a frame, or a range of them: 64-1500
  start                  when it begins
  pattern                constant, poisson or bursts:N
  src, dst, sport, dport addresses and ports
  dscp, prio, mark       of its packets
  seed                   of what is random in it

  softnet sim --tree tree.toml --generate rate=8mbit,for=10s \\
      --generate rate=1mbit,for=10s,size=100,dport=53

Exit codes:
  0    success
  1    it failed: a capture cannot be read or written
  2    the command line or the tree is wrong";

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("input").args(["pcap", "generate"]).required(true).multiple(true)
)]
pub(crate) struct Options {
    /// The tree of qdiscs (TOML)
    #[arg(long, value_name = "FILE")]
    tree: PathBuf,
    /// Capture whose packets arrive, at its times (pcap, Ethernet)
    #[arg(long, value_name = "IN")]
    pcap: Option<PathBuf>,
    /// Where to write what leaves and when (pcap with nanoseconds)
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// A flow to generate; may be given several times
    #[arg(long, value_name = "FLOW", value_parser = generate::flow)]
    generate: Vec<Flow>,
    /// Rate of the link behind the tree; without it, the link takes all that the tree lets pass
    #[arg(long, value_name = "RATE", value_parser = link_rate)]
    link: Option<u64>,
    /// Give the capture's packets the priority that Linux gives packets it routes, by their type
    /// of service
    #[arg(long)]
    tos_priority: bool,
    /// Packet buffers of 2 KiB: what can wait in the tree at the same time
    #[arg(
        long, value_name = "N", default_value_t = 65_536,
        value_parser = clap::value_parser!(u32).range(256..=4_194_304)
    )]
    buffers: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

fn link_rate(text: &str) -> Result<u64, String> {
    match units::rate(text) {
        Ok(0) => Err("the link needs a rate of at least one byte per second".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (spec, warnings) = config::load_tree(&options.tree)
        .map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    warnings.iter().for_each(note);
    let (report, outside) = simulate(options, spec)?;
    let text = if options.json {
        output::json(&report, outside)
    } else {
        output::table(&report, outside)
    };
    print(&text)
        .map_err(|error| Failure::because(Exit::Failure, "cannot print the result", &error))
}

fn simulate(options: &Options, spec: QdiscSpec) -> Result<(Report, Outside), Failure> {
    let failed =
        |what: &str, error: &dyn std::error::Error| Failure::because(Exit::Failure, what, error);
    let pool = Pool::new(PoolConfig {
        buffers: options.buffers as usize,
        buffer_size: 2048,
    })
    .map_err(|error| failed("cannot have so many buffers", &error))?;
    let env = QdiscEnv::new(&pool);
    let tree = Tree::build(spec, &env)
        .map_err(|error| Failure::because(Exit::Config, "cannot build the tree", &error))?;
    let mut capture = match &options.pcap {
        Some(path) => Some(CaptureReader::open(path)?),
        None => None,
    };
    let base = capture.as_ref().map_or(0, CaptureReader::base);
    let snaplen = capture.as_ref().map_or(65_535, CaptureReader::snaplen);
    let mut out = match &options.out {
        Some(path) => Some(CaptureWriter::create(path, base, snaplen)?),
        None => None,
    };
    let mut depart = |time: Time, packet: &Packet| match &mut out {
        Some(out) => out.write(time, packet),
        None => Ok(()),
    };
    let link = SimLink {
        rate: options.link,
        ..SimLink::default()
    };
    let mut simulator = Simulator::new(tree, link);
    let mut flows = flows(&options.generate)?;
    let mut outside = Outside::default();
    loop {
        // The earliest; of those at the same time the capture's, then the flows' in their order.
        let captured = match &mut capture {
            Some(capture) => capture.next_time()?,
            None => None,
        };
        let generated = flows
            .iter_mut()
            .enumerate()
            .filter_map(|(index, (_, arrivals))| arrivals.peek().map(|&(time, _)| (time, index)))
            .min();
        let (time, packet) = match (&mut capture, captured, generated) {
            (Some(capture), Some(time), generated)
                if generated.is_none_or(|(at, _)| time <= at) =>
            {
                let mut packet = capture.take(&pool, &mut outside);
                if options.tos_priority {
                    packet.iter_mut().for_each(prioritize);
                }
                (time, packet)
            }
            (_, _, Some((time, index))) => {
                let (flow, arrivals) = &mut flows[index];
                let len = arrivals.next().map_or(0, |(_, len)| len);
                let packet = flow.packet(len, &pool);
                outside.no_buffer += u64::from(packet.is_none());
                (time, packet)
            }
            _ => break,
        };
        if let Some(packet) = packet {
            simulator.arrive(packet, time, &mut depart)?;
        } else {
            // What leaves until then gives its buffers back.
            simulator.run_until(time, &mut depart)?;
        }
    }
    let report = simulator.finish(&mut depart)?;
    if let Some(out) = out {
        out.finish()?;
    }
    Ok((report, outside))
}

type FlowArrivals<'a> = (&'a Flow, Peekable<Arrivals>);

fn flows(flows: &[Flow]) -> Result<Vec<FlowArrivals<'_>>, Failure> {
    let arrivals = |flow: &Flow| flow.arrivals().map(Iterator::peekable);
    let all: Result<Vec<_>, _> = flows
        .iter()
        .map(|flow| Ok((flow, arrivals(flow)?)))
        .collect();
    all.map_err(|error: softnet_tc::sim::FlowError| {
        Failure::because(Exit::Config, "cannot generate a flow", &error)
    })
}

/// Linux's `rt_tos2priority`: low delay is interactive (6), with high throughput as well
/// interactive bulk (4), high throughput alone is bulk (2).
fn prioritize(packet: &mut Packet) {
    let Ok(headers) = packet.parse() else { return };
    if headers.network == Network::V4 {
        let priority = match headers.traffic_class & 0x18 {
            0x00 => 0,
            0x08 => 2,
            0x10 => 6,
            _ => 4,
        };
        packet.set_priority(priority);
    }
}
