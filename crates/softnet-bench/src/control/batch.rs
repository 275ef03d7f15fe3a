//! A policy of 10,000 classes, made and shown.

use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave::in_any_order;
use crate::options::Options;
use crate::process;
use crate::report::{Collector, OURS, Param};
use crate::switches::{self, Softnet, Wiring};

/// The running kernel.
pub(super) const KERNEL: &str = "kernel";
const CLASSES: u32 = 10_000;
/// In a run of a second, to see that it works: the kernel takes 7 s for all of them.
const FEW: u32 = 500;

/// One turn of each variant.
pub(super) fn turn(
    options: &Options,
    softnet: &Softnet,
    results: &mut Collector,
) -> Result<(), BenchError> {
    let classes = if options.seconds < 2.0 { FEW } else { CLASSES };
    let params: [Param; 2] = [("case", json!("batch")), ("classes", json!(classes))];
    let asked: Vec<_> = [OURS, KERNEL]
        .into_iter()
        .filter(|name| options.wants(name))
        .collect();
    let each = |variant| match variant {
        OURS => Ok(ours(softnet, classes)),
        _ => Ok(kernel(classes)),
    };
    for (variant, measured) in in_any_order(&asked, each)? {
        match measured {
            Ok(fields) => results.add(variant, &params, &fields),
            Err(BenchError::Unavailable(why)) => results.skip(variant, &params, &why),
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

type Fields = [(&'static str, f64); 3];

fn ours(softnet: &Softnet, classes: u32) -> Result<Fields, BenchError> {
    let (topology, _) = switches::open(softnet, 2, Wiring::default())?;
    let device = &topology.hosts[1].interface;
    measure(&topology, device, classes, || softnet.exec(&topology, "tc"))
}

fn kernel(classes: u32) -> Result<Fields, BenchError> {
    let topology = Topology::new()?;
    topology.switch.ip("link add k0 type veth peer name k1")?;
    topology.switch.ip("link set k0 up")?;
    measure(&topology, "k0", classes, || topology.switch.command("tc"))
}

fn measure(
    topology: &Topology,
    device: &str,
    classes: u32,
    tc: impl Fn() -> Command,
) -> Result<Fields, BenchError> {
    let tree = super::tree(device, classes, None);
    let file = topology.directory.write("batch", &tree)?;
    let time = |command: &mut Command| {
        let begin = Instant::now();
        let printed = process::output(command)?;
        Ok::<_, BenchError>((begin.elapsed().as_secs_f64() * 1e3, printed))
    };
    let (batch, _) = time(tc().arg("-batch").arg(&file))?;
    let (show, printed) = time(tc().args(["-s", "class", "show", "dev", device]))?;
    let shown = printed
        .lines()
        .filter(|line| line.starts_with("class htb"))
        .count();
    if shown != classes as usize + 1 {
        return Err(BenchError::Measure(format!(
            "{shown} of {classes} classes are shown"
        )));
    }
    let (qdisc, _) = time(tc().args(["-s", "qdisc", "show"]))?;
    Ok([("batch_ms", batch), ("show_ms", show), ("qdisc_ms", qdisc)])
}

/// Leaves of the case `memory`.
pub(super) const LEAVES: [&str; 2] = ["fq_codel", "cake"];

pub(super) fn memory_params(leaf: &str) -> [Param; 2] {
    [("case", json!("memory")), ("leaf", json!(leaf))]
}

/// Memory that the daemon takes for so many classes.
pub(super) fn memory(
    options: &Options,
    softnet: &Softnet,
    leaf: &'static str,
    results: &mut Collector,
) -> Result<(), BenchError> {
    if !options.wants(OURS) {
        return Ok(());
    }
    let classes = if options.seconds < 2.0 { FEW } else { CLASSES };
    let mut topology = Topology::new()?;
    softnet.connect_with(&mut topology, Wiring { queues: 2 }, "parallel = true\n")?;
    crate::ping::wait_for_path(&topology)?;
    let resident = || {
        let bytes = topology.daemons.iter().find_map(process::Process::resident);
        bytes.ok_or_else(|| BenchError::Measure("the daemon has ended".into()))
    };
    let before = resident()?;
    let device = &topology.hosts[1].interface;
    let tree = super::tree(device, classes, Some(leaf));
    let file = topology.directory.write("batch", &tree)?;
    process::output(softnet.exec(&topology, "tc").arg("-batch").arg(&file))?;
    let megabytes = resident()?.saturating_sub(before) as f64 / 1e6;
    results.add(OURS, &memory_params(leaf), &[("memory_mb", megabytes)]);
    topology.check_running()
}
