//! Path `ping`: pings between two guests in QEMU, whose CPUs are emulated. Each switch has a pair
//! of them, and they boot once.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;
use softnet_tests::qemu::{Guest, GuestConfig, find_image};

use super::ovs::Ovs;
use super::softnet::{Setup, Switch};
use super::{BackEnd as _, OVS, OVS_SLEEP};
use crate::buffers::pinned::Cpus;
use crate::error::BenchError;
use crate::hosts::Directory;
use crate::interleave::{self, Turn};
use crate::numbers::ping_fields;
use crate::options::Options;
use crate::report::{Collector, Field, OURS, Param};
use crate::switches::set_ovs_sleep;

const RING: &str = "split";
/// Microseconds that Open vSwitch's thread sleeps at most.
const SLEEP: u32 = 100;
/// From a ping to the next.
const INTERVAL: Duration = Duration::from_millis(10);
/// For the guests to reach each other.
const PATIENCE: Duration = Duration::from_secs(20);
const TARGET: &str = "10.9.0.2";

fn params() -> Vec<Param> {
    vec![("path", json!("ping")), ("ring", json!(RING))]
}

/// Two guests.
struct Guests {
    two: [Guest; 2],
    sockets: [PathBuf; 2],
    directory: Directory,
}

impl Guests {
    /// Starts them. They wait for a switch.
    fn start(image: &Path) -> Result<Guests, BenchError> {
        let directory = Directory::private()?;
        let path = |name: String| directory.path().join(name);
        let sockets = [1, 2].map(|n| path(format!("vm{n}.sock")));
        let two = [1, 2].map(|n| {
            let config = GuestConfig {
                socket: &sockets[n - 1],
                server: true,
                address: &format!("10.9.0.{n}/24"),
                queues: 1,
                device: "",
            };
            Guest::start(image, path(format!("vm{n}.log")), &config)
        });
        Ok(Guests {
            two,
            sockets,
            directory,
        })
    }

    /// Pings for some time.
    fn ping(&mut self, time: Duration) -> Result<Vec<Field>, BenchError> {
        let [guest, _] = &mut self.two;
        let start = Instant::now();
        while guest.run(&format!("ping -c 1 -W 1 {TARGET}")).0 != 0 {
            if start.elapsed() > PATIENCE {
                let why = "the guests do not reach each other".to_owned();
                return Err(BenchError::Measure(why));
            }
        }
        let interval = INTERVAL.as_secs_f64();
        let count = (time.as_secs_f64() / interval) as usize + 1;
        let (_, said) = guest.run(&format!("ping -c {count} -i {interval} -W 5 {TARGET}"));
        let times = round_trips(&said);
        if times.len() * 10 < count * 9 || times.len() < 2 {
            return Err(BenchError::command("ping", said));
        }
        // The program's code is not in the guest's cache at the first.
        let times = &times[1..];
        Ok(ping_fields(times))
    }
}

/// Time until guests answer, about.
const BOOT: Duration = Duration::from_secs(3);

/// A switch and its guests.
struct Pair<S> {
    switch: S,
    guests: Guests,
}

/// The pairs that are measured by turns.
#[derive(Default)]
struct Pairs {
    softnet: Option<Pair<Switch>>,
    ovs: Option<Pair<Ovs>>,
}

impl Pairs {
    fn measure(
        &mut self,
        variant: &str,
        image: &Path,
        cpu: usize,
        time: Duration,
    ) -> Result<Vec<Field>, BenchError> {
        if variant == OURS {
            return boot(&mut self.softnet, image, |guests| {
                let setup = Setup {
                    queues: 1,
                    // As `softnet run` has it: the guests compete for every CPU.
                    cpus: vec![None],
                    defer: true,
                    steer: false,
                    connect: true,
                };
                Switch::start(&guests.sockets, &setup)
            })?
            .guests
            .ping(time);
        }
        let pair = boot(&mut self.ovs, image, |guests| {
            Ovs::start(&guests.directory, &guests.sockets, cpu)
        })?;
        // It would take a CPU while others are measured.
        pair.switch.pause(false)?;
        let sleep = if variant == OVS_SLEEP { SLEEP } else { 0 };
        set_ovs_sleep(pair.guests.directory.path(), sleep)?;
        let fields = pair.guests.ping(time);
        pair.switch.pause(true)?;
        fields
    }
}

/// The switch that `start` starts and its guests, which boot if there are none.
fn boot<'p, S>(
    pair: &'p mut Option<Pair<S>>,
    image: &Path,
    start: impl FnOnce(&Guests) -> Result<S, BenchError>,
) -> Result<&'p mut Pair<S>, BenchError> {
    match pair {
        Some(pair) => Ok(pair),
        None => {
            let guests = Guests::start(image)?;
            let switch = start(&guests)?;
            let pair = pair.insert(Pair { switch, guests });
            pair.guests.two.iter_mut().for_each(Guest::await_ready);
            Ok(pair)
        }
    }
}

/// Round-trip times that `ping` printed, in microseconds.
fn round_trips(said: &str) -> Vec<f64> {
    let time = |line: &str| {
        let (_, time) = line.split_once("time=")?;
        time.strip_suffix(" ms")?.parse::<f64>().ok()
    };
    said.lines().filter_map(time).map(|ms| ms * 1e3).collect()
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let variants = [OURS, OVS, OVS_SLEEP];
    let wanted = variants.iter().any(|name| options.wants(name));
    if !wanted || !options.only()?.allows(&params()) || !options.threads.is_empty() {
        return Ok(());
    }
    let image = match find_image() {
        Ok(image) => image,
        Err(_) if options.plan => Default::default(),
        Err(why) => {
            results.skip(OURS, &params(), why);
            return Ok(());
        }
    };
    let (rounds, time) = super::turns(options);
    let cpu = Cpus::choose()?.a;
    let pairs = Rc::new(RefCell::new(Pairs::default()));
    let turn = |name: &&'static str| {
        let (name, pairs, image) = (*name, pairs.clone(), image.clone());
        Turn {
            name,
            params: params(),
            measure: Box::new(move |results| {
                let fields = pairs.borrow_mut().measure(name, &image, cpu, time)?;
                results.add(name, &params(), &fields);
                Ok(())
            }),
        }
    };
    let sleep = format!("pmd-sleep-max={SLEEP}");
    results.note(OVS_SLEEP, "setting", &sleep);
    let turn_of_each = variants.iter().map(turn).collect();
    let rounds = rounds.of(&params(), time).in_turns_of(time + BOOT);
    interleave::measure(options, rounds, turn_of_each, results)?;
    let softnet = pairs.borrow_mut().softnet.take();
    softnet.map_or(Ok(()), |pair| Box::new(pair.switch).stop())
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    vec![params()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_those_of_each_answer() {
        let said = "\
PING 10.9.0.2 (10.9.0.2): 56 data bytes
64 bytes from 10.9.0.2: seq=0 ttl=64 time=4.310 ms
64 bytes from 10.9.0.2: seq=2 ttl=64 time=0.250 ms

3 packets transmitted, 2 packets received, 33% packet loss
round-trip min/avg/max = 0.250/2.280/4.310 ms";
        assert_eq!(round_trips(said), [4310.0, 250.0]);
    }
}
