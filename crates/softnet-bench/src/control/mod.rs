//! Experiment `control`: what the control path costs those whose packets flow, and how long large
//! policies take.
//!
//! `case load`: one TCP connection as fast as it goes through the switch, whose far port has an
//! `htb` with 100 classes; meanwhile the unmodified `tc`, two of them fed by pipes, dumps the
//! classes with their statistics 100 times a second and changes a class 1,000 times a second.
//! `burn` is the same program without those clients, beside a thread that burns the CPU time that
//! they used. `lost` is what the ports dropped and the qdiscs.
//!
//! `case batch`: `tc -batch` with a file of 10,000 htb classes, then how long `tc -s class show`
//! and `tc -s qdisc show` take; `kernel` is the same file on a veth device. `case memory`: what the
//! daemon's resident memory grows by with 10,000 classes that have a `leaf` each, on a port of two
//! queues in parallel, before a packet has come.

mod batch;
mod clients;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use softnet_testbed::threads::joined;

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave::{self, Turn};
use crate::options::Options;
use crate::process;
use crate::random::Random;
use crate::report::{Collector, OURS, Param};
use crate::switches::{self, Softnet, Switch as _, Wiring};
use crate::traffic::iperf;
use clients::Clients;
pub(crate) use clients::compute;

/// The program without clients, beside a thread that uses as much CPU time.
const BURN: &str = "burn";
/// Dumps and changes a second.
const DUMPS: u32 = 100;
const CHANGES: u32 = 1000;
/// Time of the cases `batch` and `memory`, about.
const BATCH_TIME: Duration = Duration::from_secs(18);
/// Leaf classes behind the loaded port.
const CLASSES: u32 = 100;

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    options.check_variants("control", &[OURS, BURN, batch::KERNEL])?;
    let (rounds, slice) = options.program_turns();
    let slice = iperf::whole(slice);
    let mut results = Collector::default();
    results.expect([OURS, BURN, batch::KERNEL].into_iter());
    let only = options.only()?;
    let both = options.clone();
    let measure = move |results: &mut Collector| {
        let softnet = Softnet::default();
        softnet.prepare()?;
        if only.allows(&[("case", json!("load"))]) {
            load(&both, &softnet, slice, results)?;
        }
        if only.allows(&[("case", json!("batch"))]) {
            batch::turn(&both, &softnet, results)?;
        }
        for leaf in batch::LEAVES {
            if only.allows(&batch::memory_params(leaf)) {
                batch::memory(&both, &softnet, leaf, results)?;
            }
        }
        Ok(())
    };
    // The clients alone, then beside each of three; the kernel's batch takes longest.
    let turn = slice.min(Duration::from_secs(1)) + 3 * slice + BATCH_TIME;
    let rounds = rounds.of(&[], slice).of_several().in_turns_of(turn);
    let all = Turn::new(OURS, &[], measure);
    interleave::interleave(rounds, vec![all], &mut results)?;
    Ok(results.report("control"))
}

/// The commands that give a device an htb with leaf classes below one class, each with a
/// qdisc `leaf` if there is one. No rate limits here.
fn tree(device: &str, classes: u32, leaf: Option<&str>) -> String {
    let mut text = format!(
        "qdisc add dev {device} root handle 1: htb default 2\n\
         class add dev {device} parent 1: classid 1:1 htb rate 100gbit quantum 60000\n"
    );
    for minor in 2..classes + 2 {
        text += &format!(
            "class add dev {device} parent 1:1 classid 1:{minor:x} htb rate 1gbit ceil 100gbit \
             quantum 60000\n"
        );
        if let Some(leaf) = leaf {
            text += &format!(
                "qdisc add dev {device} parent 1:{minor:x} handle {:x}: {leaf}\n",
                minor + 1
            );
        }
    }
    text
}

/// One turn of the loaded switch.
fn load(
    options: &Options,
    softnet: &Softnet,
    slice: Duration,
    results: &mut Collector,
) -> Result<(), BenchError> {
    let params: [Param; 1] = [("case", json!("load"))];
    let opened = switches::open(softnet, 2, Wiring::default());
    let (topology, _) = match opened {
        Err(BenchError::Unavailable(why)) => {
            results.skip(OURS, &params, &why);
            return Ok(());
        }
        opened => opened?,
    };
    let device = &topology.hosts[1].interface;
    let tree = tree(device, CLASSES, None);
    let file = topology.directory.write("tree", &tree)?;
    process::output(softnet.exec(&topology, "tc").arg("-batch").arg(&file))?;
    let server = match iperf::Server::start(&topology) {
        Err(BenchError::Unavailable(why)) => {
            results.skip(OURS, &params, &why);
            return Ok(());
        }
        server => server?,
    };
    // How much CPU time the clients use is known once they have run.
    let clients = || Clients::start(|| softnet.exec(&topology, "tc"), device);
    let calibration = clients()?;
    std::thread::sleep(slice.min(Duration::from_secs(1)));
    let used = calibration.stop()?;
    let mut share = used.cpu_s / used.seconds;
    let mut phases = [(OURS, false), (OURS, true), (BURN, false)];
    Random::of_now().shuffle(&mut phases);
    for (variant, again) in phases.into_iter().filter(|(name, _)| options.wants(name)) {
        results.count_again(again);
        let lost = lost(softnet, &topology)?;
        let mut fields = Vec::new();
        let tcp = if variant == OURS {
            let clients = clients()?;
            let tcp = server.tcp(slice, None)?;
            let used = clients.stop()?;
            share = used.cpu_s / used.seconds;
            fields.push(("dumps_per_s", used.dumps / used.seconds));
            fields.push(("changes_per_s", used.changes / used.seconds));
            fields.push(("clients_cpu", share));
            tcp
        } else {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let burner = scope.spawn(|| compute(share, &done));
                let tcp = server.tcp(slice, None);
                done.store(true, Ordering::Relaxed);
                fields.push(("clients_cpu", joined(burner)));
                tcp
            })?
        };
        fields.insert(0, ("tcp_gbps", tcp.bits / tcp.seconds / 1e9));
        fields.push(("lost", self::lost(softnet, &topology)? - lost));
        results.add(variant, &params, &fields);
        results.count_again(false);
    }
    topology.check_running()
}

/// Packets that the switch's ports and qdiscs have dropped.
fn lost(softnet: &Softnet, topology: &Topology) -> Result<f64, BenchError> {
    let mut total = 0.0;
    for (program, arguments, at) in [
        ("ip", ["-s", "-j", "link", "show"], "/stats64/rx/dropped"),
        ("ip", ["-s", "-j", "link", "show"], "/stats64/tx/dropped"),
        ("tc", ["-s", "-j", "qdisc", "show"], "/drops"),
    ] {
        let printed = process::output(softnet.exec(topology, program).args(arguments))?;
        let list: Vec<Value> = serde_json::from_str(&printed)
            .map_err(|e| BenchError::command(program, format!("it printed no JSON: {e}")))?;
        let numbers = list
            .iter()
            .filter_map(|object| object.pointer(at)?.as_f64());
        total += numbers.sum::<f64>();
    }
    Ok(total)
}
