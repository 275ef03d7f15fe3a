//! Packets of 64 bytes between guest and back end, each on a CPU of its own.
//!
//! - Path `reflect`: the guest makes packets (`flowgen`), the back end sends each back.
//! - Paths `switch` and `two-vms`: a guest of two devices sends what it receives at one out of the
//!   other (`mac`), so that a fixed number of packets goes round, none of which is ever dropped.
//!   The back end takes them from device to device; DPDK's own on the path `switch` reflects.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::ovs::Ovs;
use super::softnet::{Reflector, Setup, Switch};
use super::testpmd::{self, Rates, Testpmd};
use super::{BackEnd, DPDK, OVS, QUEUE, RINGS, START, WARM_UP, address, device_options};
use crate::buffers::pinned::Cpus;
use crate::error::{BenchError, chain};
use crate::hosts::Directory;
use crate::interleave::{self, Turn};
use crate::options::{Options, SHORT};
use crate::report::{Collector, Field, OURS, Param};

/// Packets in the pool of a testpmd.
const PACKETS: usize = 16_384;
/// Bursts of 32 packets that go round, from each device.
const BURSTS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Reflect,
    Switch,
    TwoVms,
}

impl Path {
    const ALL: [Path; 3] = [Path::Reflect, Path::Switch, Path::TwoVms];

    fn name(self) -> &'static str {
        match self {
            Path::Reflect => "reflect",
            Path::Switch => "switch",
            Path::TwoVms => "two-vms",
        }
    }

    fn variants(self) -> Vec<&'static str> {
        match self {
            Path::TwoVms => vec![OURS, DPDK, OVS],
            _ => vec![OURS, DPDK],
        }
    }

    fn devices(self) -> usize {
        match self {
            Path::Reflect => 1,
            Path::Switch | Path::TwoVms => 2,
        }
    }

    /// The kinds of rings measured; in a short run, one kind for the path of the switch.
    fn rings(self, short: bool) -> &'static [&'static str] {
        match self {
            Path::Switch if short => &RINGS[..1],
            _ => &RINGS,
        }
    }

    fn params(self, ring: &str) -> Vec<Param> {
        vec![("path", json!(self.name())), ("ring", json!(ring))]
    }

    fn back_end(
        self,
        variant: &str,
        directory: &Directory,
        sockets: &[PathBuf],
        cpu: usize,
    ) -> Result<Box<dyn BackEnd>, BenchError> {
        Ok(match (variant, self) {
            (OURS, Path::Reflect) => Box::new(Reflector::start(&sockets[0], cpu)?),
            (OURS, _) => Box::new(Switch::start(sockets, &Setup::on(cpu))?),
            (OVS, _) => Box::new(Ovs::start(directory, sockets, cpu)?),
            (_, Path::Reflect | Path::Switch) => Box::new(forwarder(
                sockets,
                cpu,
                &["--forward-mode=mac", "--port-topology=loop"],
            )?),
            (_, Path::TwoVms) => Box::new(forwarder(sockets, cpu, &["--forward-mode=io"])?),
        })
    }

    /// Starts the guest; packets flow.
    fn guest(
        self,
        variant: &str,
        sockets: &[PathBuf],
        ring: &str,
        cpu: usize,
    ) -> Result<Testpmd, BenchError> {
        // Open vSwitch is the one that connects.
        let server = if variant == OVS { ",server=1" } else { "" };
        let devices: Vec<_> = sockets
            .iter()
            .enumerate()
            .map(|(n, path)| {
                let ring = device_options(ring, QUEUE);
                let options = format!("mac={},{ring}{server}", address(n));
                testpmd::front_end(n, path, &options)
            })
            .collect();
        let (mode, start) = match self {
            Path::Reflect => ("--forward-mode=flowgen", "start".to_owned()),
            _ => ("--forward-mode=mac", format!("start tx_first {BURSTS}")),
        };
        // Each device sends to the other.
        let peers = [0, 1].map(|n| format!("--eth-peer={n},{}", address(1 - n)));
        let mut arguments = vec![mode];
        if self.devices() == 2 {
            arguments.extend(peers.iter().map(String::as_str));
        }
        let mut guest = Testpmd::start(cpu, &devices, PACKETS, &arguments)?;
        guest.ask(&start)?;
        Ok(guest)
    }

    fn measure(
        self,
        variant: &str,
        ring: &str,
        cpus: Cpus,
        time: Duration,
    ) -> Result<Vec<Field>, BenchError> {
        let directory = Directory::private()?;
        let socket = |n| directory.path().join(format!("{n}.sock"));
        let sockets: Vec<_> = (0..self.devices()).map(socket).collect();
        let back_end = self.back_end(variant, &directory, &sockets, cpus.a)?;
        let guest = self.guest(variant, &sockets, ring, cpus.b);
        let mut guest = guest.map_err(|error| match variant {
            // It runs on without DPDK if that does not start.
            OVS => BenchError::Unavailable(format!("it does not connect: {}", chain(&error))),
            _ => error,
        })?;
        std::thread::sleep(WARM_UP.min(time));
        let dropped = back_end.drops();
        let rates = Rates::sum(&guest.rates(time)?);
        let mut fields = vec![("mpps", rates.received / 1e6)];
        if self == Path::Reflect {
            fields.push(("offered_mpps", rates.sent / 1e6));
        }
        if let (Some(before), Some(after)) = (dropped, back_end.drops()) {
            fields.push(("drops", (after - before) as f64));
        }
        drop(guest);
        back_end.stop()?;
        Ok(fields)
    }
}

/// DPDK's own back end.
fn forwarder(sockets: &[PathBuf], cpu: usize, arguments: &[&str]) -> Result<Testpmd, BenchError> {
    let devices = sockets.iter().enumerate();
    let devices: Vec<_> = devices
        .map(|(n, path)| testpmd::back_end(n, path))
        .collect();
    let mut forwarder = Testpmd::start(cpu, &devices, PACKETS, arguments)?;
    forwarder.ask("start")?;
    Ok(forwarder)
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let (rounds, time) = super::turns(options);
    let cpus = Cpus::choose()?;
    for path in Path::ALL {
        let rings = path.rings(options.seconds < SHORT).iter();
        let rings = rings.filter(|ring| only.allows(&path.params(ring)));
        let rings: Vec<&str> = rings.copied().collect();
        if rings.is_empty() || !options.threads.is_empty() {
            continue;
        }
        let turn = |name| {
            let rings = rings.clone();
            // Both kinds of rings in one turn, as they are compared with each other.
            let measure = move |results: &mut Collector| {
                for ring in &rings {
                    let fields = path.measure(name, ring, cpus, time)?;
                    results.add(name, &path.params(ring), &fields);
                }
                Ok(())
            };
            Turn::new(name, &[("path", json!(path.name()))], measure)
        };
        let all = path.variants().into_iter().map(turn).collect();
        let turn = (time + START) * rings.len() as u32;
        let rounds = rounds.clone().of(&[("path", json!(path.name()))], time);
        interleave::measure(options, rounds.of_several().in_turns_of(turn), all, results)?;
    }
    Ok(())
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    let of = |path: Path| RINGS.map(|ring| path.params(ring));
    Path::ALL.into_iter().flat_map(of).collect()
}
