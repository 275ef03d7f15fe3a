//! `softnet sim`: a tree of qdiscs in virtual time, fed by a capture, by flows, or by connections
//! that react. Thin: the simulator is `softnet_tc::sim`; [`capture`] reads and writes captures,
//! [`generate`] reads flows, [`script`] runs a script for its tree, [`expect`] holds results
//! against bounds, [`watch`] says when they were first broken, [`output`] prints, [`svg`] draws.

mod capture;
mod expect;
mod explain;
mod generate;
mod output;
mod outside;
mod script;
mod series;
mod svg;
mod watch;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use softnet::mem::{Packet, Pool, PoolConfig};
use softnet::time::Time;
use softnet::wire::Network;
use softnet_tc::sim::{Connection, Cpus, Flow, FlowReport, Report, SimLink, Simulator, World};
use softnet_tc::{QdiscEnv, QdiscSpec, SpecError, Tree};

use crate::config::{self, units};
use crate::failure::{Exit, Failure};
use crate::report::{note, print};

use capture::{CaptureReader, CaptureWriter};
pub(crate) use expect::Expectation;
use generate::Generated;
use outside::Outside;
use watch::Watch;

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
  name                   what results and expectations call it
  on, off                it sends at the rate for a while, then not for another
  ping                   how far apart packets are that are answered, without a rate; with rtt

TCP connections, which react to loss, marks and delay, are a list, too:

  tcp, for               how many, and for how long; both are needed
  cc                     cubic (the default), reno, dctcp or bbr
  rtt                    round-trip time without queues; 20ms by default
  ecn                    on or off (the default; dctcp always has it)
  bytes                  what each sends at most
  rwnd                   what the receiver has room for; 6m by default
  web                    how many, in place of tcp: users who ask for pages with pauses
  name, start, src, ...  as above

An expectation is a subject, a figure and a bound:

  root | CLASS | PORT | a flow's name
  rate | loss | drops | marks | fair | sojourn [p99] | rtt [p99]
  < VALUE, <= VALUE, > VALUE, >= VALUE, = VALUE or VALUE..VALUE
  (of times mean, p50, p90, p99, p999 or max; p99 where none is named;
  percentiles are right to 0.8 %)

  softnet sim --tree tree.toml --generate rate=8mbit,for=10s \\
      --generate rate=1mbit,for=10s,size=100,dport=53
  softnet sim --script shape.sh --dev eth0 --link 100mbit \\
      --generate tcp=8,rtt=20ms,for=10s \\
      --generate name=voip,rate=100kbit,size=200,dscp=46,for=10s \\
      --expect 'voip sojourn p99 < 5ms' --expect 'root rate > 45mbit'

Exit codes:
  0    success
  1    it failed: a capture cannot be read or written
  2    the command line, the policy or an expectation is wrong
  3    an expectation failed";

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("input").args(["pcap", "generate"]).required(true).multiple(true),
    group = clap::ArgGroup::new("policy").args(["tree", "config", "script"]).required(true)
)]
pub(crate) struct Options {
    /// The tree of qdiscs (TOML)
    #[arg(long, value_name = "FILE")]
    tree: Option<PathBuf>,
    /// The configuration whose port's tree it is
    #[arg(long, value_name = "FILE", requires = "port")]
    config: Option<PathBuf>,
    /// The port
    #[arg(long, value_name = "NAME", requires = "config")]
    port: Option<String>,
    /// A script of tc, ip and bridge that makes the tree; it sees devices that nothing is behind,
    /// and no other network
    #[arg(long, value_name = "SH", requires = "dev")]
    script: Option<PathBuf>,
    /// The device at which the script leaves the tree; it is there before
    #[arg(long, value_name = "NAME", requires = "script")]
    dev: Option<String>,
    /// Another tree (TOML), for the same packets; both results are printed
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// A bound that the results must keep, such as 'root rate > 45mbit'; may be given several times
    #[arg(long, value_name = "EXPR")]
    expect: Vec<Expectation>,
    /// Write what came of the expectations in JUnit's format
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Draw rate, delay and drops of each class over time, and the distribution of its sojourn
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Tell the story of the Nth packet that arrives: which filters looked at it, where it went,
    /// what it waited for and who left before it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    explain: Option<u64>,
    /// Simulated CPUs, each with a transmit queue and an instance of the tree, as a port with
    /// `parallel = true` has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    cpus: Option<u16>,
    /// Delay with which a CPU begins, in 99 of 100 cases at most, like p99=200us; it is
    /// exponentially distributed
    #[arg(long, value_name = "p99=TIME", requires = "cpus", value_parser = stall)]
    stall: Option<u64>,
    /// Share of the flows that the first CPU sends, like 90%; without it all have equal parts
    #[arg(long, value_name = "SHARE", requires = "cpus", value_parser = skew)]
    skew: Option<f64>,
    /// Seed of what is random in flows, instead of their own
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Capture whose packets arrive, at its times: pcap or pcapng, also gzipped, of Ethernet, Linux
    /// cooked captures or raw IP; `-` is standard input
    #[arg(long, value_name = "IN")]
    pcap: Option<PathBuf>,
    /// Where to write what leaves and when (pcap with nanoseconds)
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// A flow to generate; may be given several times
    #[arg(long, value_name = "FLOW", value_parser = generate::flow)]
    generate: Vec<Generated>,
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

fn stall(text: &str) -> Result<u64, String> {
    let time = text
        .strip_prefix("p99=")
        .ok_or("it is written like p99=200us")?;
    units::time(time).map_err(|error| error.to_string())
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
    match units::rate(text) {
        Ok(0) => Err("the link needs a rate of at least one byte per second".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the policy, and another beside it if one is named, and holds the results against what is
/// expected.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    // Hashes are to be the same on every run.
    softnet::wire::use_fixed_key();
    let mut expected = options.expect.clone();
    let first = policy(options, &mut expected)?;
    let port = options.port.as_deref().or(options.dev.as_deref());
    let watch = || Watch::new(&expected, port, options.svg.is_some(), options.explain);
    let mut watches = vec![watch()];
    let mut results = vec![of(options, first, &mut watches[0])?];
    if let Some(path) = &options.compare {
        watches.push(watch());
        results.push(of(options, tree_file(path)?, &mut watches[1])?);
    }
    let check = |((report, flows, _), watch): (&Simulated, &Watch<'_>)| {
        let outcomes = expected
            .iter()
            .zip(watch.broken())
            .map(|(expected, broken)| expected.check(report, flows, port, *broken));
        outcomes
            .map(|outcome| (outcome.holds(), outcome.json(), outcome.to_string()))
            .collect()
    };
    let outcomes: Vec<Vec<(bool, Value, String)>> =
        results.iter().zip(&watches).map(check).collect();
    let failed = outcomes
        .iter()
        .flatten()
        .filter(|(holds, ..)| !holds)
        .count();
    let told = |(report, flows, outside): &Simulated,
                outcomes: &[(bool, Value, String)],
                watch: &Watch<'_>| {
        let mut object = output::json(report, flows, *outside);
        object["expectations"] = outcomes.iter().map(|(_, json, _)| json.clone()).collect();
        if let Some(story) = watch.story_json() {
            object["explained"] = story;
        }
        object
    };
    let text = match (options.json, results.as_slice(), outcomes.as_slice()) {
        (true, [one], [of]) => format!("{:#}\n", told(one, of, &watches[0])),
        (true, ..) => {
            let all = results.iter().zip(&outcomes).zip(&watches);
            let all = all.map(|((one, of), watch)| told(one, of, watch));
            format!("{:#}\n", json!({ "compared": all.collect::<Vec<_>>() }))
        }
        (false, ..) => {
            let all = results.iter().zip(&outcomes).enumerate();
            let texts = all.map(|(place, ((report, flows, outside), of))| {
                let head = match (results.len(), place, &options.compare) {
                    (1, ..) | (.., None) => String::new(),
                    (_, 0, _) => "the policy\n".to_owned(),
                    (.., Some(other)) => format!("\n{}\n", other.display()),
                };
                let lines: String = of.iter().map(|(.., text)| format!("{text}\n")).collect();
                head + &output::table(report, flows, *outside) + &lines + &watches[place].story()
            });
            texts.collect()
        }
    };
    print(&text)
        .map_err(|error| Failure::because(Exit::Failure, "cannot print the result", &error))?;
    if let Some(path) = &options.junit {
        let (report, flows, _) = &results[0];
        let outcomes: Vec<_> = expected
            .iter()
            .zip(watches[0].broken())
            .map(|(expected, broken)| expected.check(report, flows, port, *broken))
            .collect();
        std::fs::write(path, expect::junit(&outcomes)).map_err(|error| {
            Failure::because(Exit::Failure, path.display().to_string(), &error)
        })?;
    }
    if let Some(path) = &options.svg {
        let names = ["the policy".to_owned()].into_iter();
        let names = names.chain(
            options
                .compare
                .iter()
                .map(|path| path.display().to_string()),
        );
        let drawn = names.zip(&results).zip(&watches);
        let drawn: Vec<_> = drawn
            .filter_map(|((name, (report, ..)), watch)| Some((name, report, watch.series()?)))
            .collect();
        std::fs::write(path, svg::draw(&drawn)).map_err(|error| {
            Failure::because(Exit::Failure, path.display().to_string(), &error)
        })?;
    }
    match failed {
        0 => Ok(()),
        failed => {
            let all = outcomes.iter().map(Vec::len).sum::<usize>();
            let text = format!("{failed} of {all} expectations failed");
            Err(Failure::new(Exit::Warnings, text))
        }
    }
}

/// The tree that the command line names. Adds what its file expects of it.
fn policy(options: &Options, expected: &mut Vec<Expectation>) -> Result<QdiscSpec, Failure> {
    let config = |text: String| Failure::new(Exit::Config, text);
    if let Some(path) = &options.tree {
        return tree_file(path);
    }
    if let (Some(script), Some(dev)) = (&options.script, &options.dev) {
        return script::tree(script, dev);
    }
    let (Some(path), Some(name)) = (&options.config, &options.port) else {
        return Err(config(
            "name a policy: --tree, --config and --port, or --script".to_owned(),
        ));
    };
    let (file, warnings) = config::load(path, None).map_err(|error| config(error.to_string()))?;
    warnings.iter().for_each(note);
    let of_port = file.expected.into_iter().filter(|of| of.port == *name);
    expected.extend(of_port.map(|of| of.expectation));
    let mut ports = file.links.ports.into_iter();
    let port = ports.find(|port| port.settings.name == *name);
    let port = port.ok_or_else(|| config(format!("{}: there is no port {name:?}", file.file)))?;
    Ok(port.qdisc)
}

fn tree_file(path: &Path) -> Result<QdiscSpec, Failure> {
    let (spec, warnings) =
        config::load_tree(path).map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    warnings.iter().for_each(note);
    Ok(spec)
}

/// Result of a simulation.
type Simulated = (Report, Vec<FlowReport>, Outside);

fn of(options: &Options, spec: QdiscSpec, watch: &mut Watch<'_>) -> Result<Simulated, Failure> {
    let failed =
        |what: &str, error: &dyn std::error::Error| Failure::because(Exit::Failure, what, error);
    let pool = Pool::new(PoolConfig {
        buffers: options.buffers as usize,
        buffer_size: 2048,
    })
    .map_err(|error| failed("cannot have so many buffers", &error))?;
    let env = QdiscEnv::new(&pool);
    let link = SimLink {
        rate: options.link,
        ..SimLink::default()
    };
    let simulator = simulator(options, spec, &env, link)
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
    let mut world = World::new(simulator, &pool);
    senders(options, &mut world)?;
    watch.begin(&mut world);
    let mut outside = Outside::default();
    while let Some(capture) = &mut capture {
        let Some(time) = capture.next_time()? else {
            break;
        };
        // Of what happens at the same time the capture's packets come before senders'.
        while world.due().is_some_and(|next| next < time) {
            world.step(&mut depart)?;
            watch.look(&mut world);
        }
        if let Some(mut packet) = capture.take(&pool, &mut outside) {
            if options.tos_priority {
                prioritize(&mut packet);
            }
            world.arrive(packet, time, &mut depart)?;
        }
    }
    while world.due().is_some() {
        world.step(&mut depart)?;
        watch.look(&mut world);
    }
    watch.end(&mut world);
    outside.no_buffer += world.no_buffer;
    let (report, flows) = world.finish(&mut depart)?;
    if let Some(out) = out {
        out.finish()?;
    }
    Ok((report, flows, outside))
}

/// The tree, on as many CPUs as it is to have.
fn simulator(
    options: &Options,
    spec: QdiscSpec,
    env: &QdiscEnv,
    link: SimLink,
) -> Result<Simulator, SpecError> {
    let Some(count) = options.cpus else {
        return Ok(Simulator::new(Tree::build(spec, env)?, link));
    };
    let cpus = Cpus {
        count: count.into(),
        stall: options.stall.unwrap_or(0),
        skew: options.skew,
        seed: options.seed.unwrap_or(1),
    };
    let simulator = Simulator::parallel(spec, cpus, env, link)?;
    if simulator.cpus() < cpus.count {
        note(format_args!(
            "this tree has {} instances at most: so many CPUs send",
            simulator.cpus()
        ));
    }
    Ok(simulator)
}

/// Adds what is to be generated.
fn senders(options: &Options, world: &mut World) -> Result<(), Failure> {
    let wrong = |error: softnet_tc::sim::FlowError| {
        Failure::because(Exit::Config, "cannot generate a flow", &error)
    };
    // Connections have ports of their own, unless they are told others.
    let mut port = 20_000_u16;
    for (place, generated) in options.generate.iter().enumerate() {
        let Generated {
            name,
            flow,
            tcp,
            has_port,
            echo,
        } = generated;
        let mut flow = flow.clone();
        if let Some(seed) = options.seed {
            flow.seed = seed.wrapping_add(place as u64);
        }
        let Some(tcp) = tcp else {
            if !name.is_empty() && !has_port {
                flow.source.1 = port;
                port = port.wrapping_add(1);
            }
            let added = match echo {
                Some(rtt) => world.add_pings(name, flow, *rtt),
                None => world.add_flow(name, flow),
            };
            added.map_err(wrong)?;
            continue;
        };
        for number in 0..tcp.count {
            if !has_port {
                flow.source.1 = port;
                port = port.wrapping_add(1);
            }
            let connection = Connection {
                algorithm: tcp.algorithm,
                ecn: tcp.ecn,
                rtt: tcp.rtt,
                start: flow.start,
                duration: flow.duration,
                bytes: tcp.bytes,
                receive_window: tcp.receive_window,
                pages: tcp.pages,
                flow: Flow {
                    // Each has pages of its own.
                    seed: flow.seed.wrapping_add(u64::from(number) << 32),
                    ..flow.clone()
                },
            };
            let name = if name.is_empty() { "tcp" } else { name };
            world.add_connection(name, connection).map_err(wrong)?;
            if *has_port {
                flow.source.1 = flow.source.1.wrapping_add(1);
            }
        }
    }
    Ok(())
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
