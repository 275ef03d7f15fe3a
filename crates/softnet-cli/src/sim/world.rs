//! One policy in virtual time: what arrives, from a capture or from senders, and what of it is
//! written.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use softnet::mem::{Packet, Pool, PoolConfig};
use softnet::time::Time;
use softnet::wire::Network;
use softnet_tc::sim::{
    Connection, Cpus, Direction, Flow, FlowReport, Report, SimLink, Simulator, World,
};
use softnet_tc::{QdiscEnv, SpecError, Tree, TreeSpec};

use super::Options;
use super::capture::{CaptureReader, CaptureWriter};
use super::generate::Generated;
use super::outside::Outside;
use super::policy::{self, Policy};
use super::senders::Senders;
use super::watch::Watch;
use crate::failure::{Exit, Failure};
use crate::report::note;

/// Result of a simulation.
pub(super) type Simulated = (Report, Vec<FlowReport>, Outside);

/// A world, and the capture of what leaves it.
struct Run {
    world: World,
    out: Option<CaptureWriter>,
}

impl Run {
    /// Has what is due happen.
    fn step(&mut self) -> Result<(), Failure> {
        let Run { world, out } = self;
        let Ok(()) = world.step(&mut |time, packet: &Packet| leaves(out, time, packet));
        self.write()
    }

    /// A packet of a capture arrives.
    fn arrive(&mut self, packet: Packet, time: Time) -> Result<(), Failure> {
        let Run { world, out } = self;
        let Ok(()) = world.arrive(packet, time, &mut |time, packet: &Packet| {
            leaves(out, time, packet)
        });
        self.write()
    }

    /// Writes what left, which has a story now.
    fn write(&mut self) -> Result<(), Failure> {
        match &mut self.out {
            Some(out) => out.write(self.world.simulator().take_stories()),
            None => Ok(()),
        }
    }

    /// Says what happened when nothing is due any more.
    fn finish(self) -> Result<(Report, Vec<FlowReport>), Failure> {
        let Run { world, mut out } = self;
        let Ok(reports) =
            world.finish(&mut |time, packet: &Packet| leaves(&mut out, time, packet));
        if let Some(out) = out {
            out.finish()?;
        }
        Ok(reports)
    }
}

fn leaves(out: &mut Option<CaptureWriter>, time: Time, packet: &Packet) -> Result<(), Infallible> {
    if let Some(out) = out {
        out.leaves(time, packet);
    }
    Ok(())
}

/// Simulates a policy, with that of the reverse direction if there is one. What leaves the former
/// is written to `out`.
pub(super) fn simulate(
    options: &Options,
    policy: Policy,
    reverse: Option<&Policy>,
    piped: &Option<Arc<[u8]>>,
    out: Option<&Path>,
    watch: &mut Watch<'_>,
) -> Result<Simulated, Failure> {
    let failed =
        |what: &str, error: &dyn std::error::Error| Failure::because(Exit::Failure, what, error);
    let pool = Pool::new(PoolConfig {
        buffers: options.buffers as usize,
        buffer_size: 2048,
    })
    .map_err(|error| failed("cannot have so many buffers", &error))?;
    let env = policy.env(options.seed, &pool);
    let rate = options.link.map(|link| link.forward);
    let forward = simulator(options, policy.tree, &env, rate)
        .map_err(|error| Failure::because(Exit::Config, "cannot build the tree", &error))?;
    let mut world = World::new(forward, &pool);
    if let Some(reverse) = reverse {
        // Other packets are lost than in the first tree.
        let seed = options.seed.unwrap_or(policy::SEED).wrapping_add(1);
        let env = reverse.env(Some(seed), &pool);
        let rate = options
            .link
            .map(|link| link.reverse.unwrap_or(link.forward));
        let reverse = simulator(options, reverse.tree.clone(), &env, rate).map_err(|error| {
            Failure::because(Exit::Config, "cannot build the tree of --reverse", &error)
        })?;
        world = world.with_reverse(reverse);
    }
    let mut capture = match &options.pcap {
        Some(path) => Some(CaptureReader::open(path, piped.clone())?),
        None => None,
    };
    let base = capture.as_ref().map_or(0, CaptureReader::base);
    let snaplen = capture.as_ref().map_or(65_535, CaptureReader::snaplen);
    let out = match out {
        Some(path) => Some(CaptureWriter::create(path, base, snaplen)?),
        None => None,
    };
    senders(options, &mut world)?;
    watch.begin(&mut world);
    if out.is_some() {
        world.simulator().tell_all();
    }
    let mut run = Run { world, out };
    let mut outside = Outside::default();
    while let Some(capture) = &mut capture {
        let Some(time) = capture.next_time()? else {
            break;
        };
        // Of what happens at the same time the capture's packets come before senders'.
        while run.world.due().is_some_and(|next| next < time) {
            run.step()?;
            watch.look(&mut run.world);
        }
        if let Some(mut packet) = capture.take(&pool, &mut outside) {
            if options.tos_priority {
                prioritize(&mut packet);
            }
            run.arrive(packet, time)?;
        }
    }
    while run.world.due().is_some() {
        run.step()?;
        watch.look(&mut run.world);
    }
    watch.end(&mut run.world);
    outside.no_buffer += run.world.no_buffer;
    outside.reverse_no_buffer = run.world.reverse_no_buffer;
    let (report, flows) = run.finish()?;
    Ok((report, flows, outside))
}

/// The tree, on as many CPUs as it is to have.
fn simulator(
    options: &Options,
    spec: TreeSpec,
    env: &QdiscEnv,
    rate: Option<u64>,
) -> Result<Simulator, SpecError> {
    let link = SimLink {
        rate,
        ..SimLink::default()
    };
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
    let mut taken = Senders::default();
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
        let alike = |why: String| {
            let text = format!("--generate, number {}: {why}", place + 1);
            Failure::new(Exit::Config, text)
        };
        if flow.direction == Direction::Reverse && options.reverse.is_none() {
            let why = "direction=reverse has no policy; name one by --reverse";
            return Err(alike(why.to_owned()));
        }
        let Some(tcp) = tcp else {
            let free = match name.is_empty() && !has_port {
                true => taken.take_nameless(&mut flow),
                false => taken.take(&mut flow, false, *has_port),
            };
            free.map_err(alike)?;
            let added = match echo {
                Some(rtt) => world.add_pings(name, flow, *rtt),
                None => world.add_flow(name, flow),
            };
            added.map_err(wrong)?;
            continue;
        };
        for number in 0..tcp.count {
            taken.take(&mut flow, true, *has_port).map_err(alike)?;
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
            let name = generated.shown_name();
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
