//! Experiment `nolock-qdisc`: threads that make packets and hand them straight to a transmit queue
//! (the kernel's `pktgen` with `xmit_mode queue_xmit`), 64 bytes each, one in a call.
//!
//! `pfifo_fast` at the root and below `mq`, where each sender uses one of the queues; `tbf`, which
//! never limits here, `prio`, `fq` and `fq_codel` at the root. What differs is how a sender gets at
//! the qdisc:
//!
//! - `softnet`: the default policy;
//! - `rings`: the kernel's `pfifo_fast` without a lock, ported: senders fill its rings themselves;
//! - `locked`: one mutex around queueing, dequeueing and sending; waiters sleep;
//! - `busylock`: the kernel's locked path before 6.19, ported: root lock, a second lock for those
//!   who wait, driver lock.
//!
//! Case `htb`: two senders into one `htb`, whose classes they use in turn. Case `copy`: the shape
//! of the report that list adoption is known by, `fq` and a driver that copies 120 bytes of each
//! packet, with 30 queues.
//!
//! Beside them, qdiscs of all [kinds] beside `fq_codel`, by the number of flows, filters and
//! actions, and [one core](one_core) alone with an `htb`.
//!
//! The load and its checks are those of `tx-adopt`: what was sent was delivered or dropped, and
//! all buffers are back, after every turn.

mod dpdk_sched;
mod kinds;
mod one_core;

use std::time::Duration;

use serde_json::json;

use crate::error::BenchError;
use crate::htb_tree;
use crate::interleave;
use crate::options::Options;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::load::Plan;
use crate::tx_adopt::variants::{BUSYLOCK, LOCKED, MUTEX, RINGS, SPIN_ADOPT, Shape};
use crate::tx_adopt::{self, BULK, Driver, Ticks};

/// Name of the rows without a parameter `case`, for `--only case=`.
const PKTGEN: &str = "pktgen";
/// Numbers of threads, unless the command line names others.
const THREADS: [usize; 4] = [1, 2, 8, 64];
const FEW_THREADS: [usize; 2] = [1, 64];
/// Numbers of queues below `mq`; with one there is no `mq`.
const QUEUES: [usize; 3] = [2, 4, 8];
/// Senders and queues of the report's shape.
const SHAPES: [(usize, usize); 4] = [(2, 30), (8, 30), (60, 30), (240, 30)];
/// Bytes of a packet.
pub(crate) const FRAME: usize = 64;

/// A row, and its variants.
struct Case {
    shape: Shape,
    variants: Vec<&'static str>,
}

fn shape(threads: usize, qdisc: &'static str, params: Vec<Param>) -> Shape {
    let plan = Plan {
        threads,
        bulk: 1,
        offered: None,
        frame: FRAME,
        classes: 0,
        time: Duration::ZERO,
    };
    Shape {
        params,
        plan,
        qdisc,
        mq: None,
        driver: Driver::Null,
    }
}

fn pktgen(threads: usize, qdisc: &'static str, mq: Option<usize>) -> Case {
    let parent = if mq.is_some() { "mq" } else { "root" };
    let params = vec![
        ("threads", json!(threads)),
        ("qdisc", json!(qdisc)),
        ("parent", json!(parent)),
        ("queues", json!(mq.unwrap_or(1))),
    ];
    let mut variants = vec![OURS, LOCKED, BUSYLOCK];
    if qdisc == "pfifo_fast" {
        variants.push(RINGS);
    }
    let shape = Shape {
        mq,
        ..shape(threads, qdisc, params)
    };
    Case { shape, variants }
}

fn htb(classes: u16, bulk: usize) -> Case {
    let threads = 2;
    let params = vec![
        ("case", json!("htb")),
        ("threads", json!(threads)),
        ("qdisc", json!("htb")),
        ("classes", json!(classes)),
        ("bulk", json!(bulk)),
    ];
    let mut shape = shape(threads, "htb", params);
    (shape.plan.classes, shape.plan.bulk) = (classes, bulk);
    let variants = vec![OURS, MUTEX];
    Case { shape, variants }
}

fn copy((threads, queues): (usize, usize)) -> Case {
    let params = vec![
        ("case", json!("copy")),
        ("threads", json!(threads)),
        ("qdisc", json!("fq")),
        ("driver", json!(Driver::Copy.name())),
        ("queues", json!(queues)),
        ("bulk", json!(1)),
    ];
    let mut shape = Shape {
        mq: Some(queues),
        driver: Driver::Copy,
        ..shape(threads, "fq", params)
    };
    shape.plan.frame = tx_adopt::FRAME;
    let variants = vec![OURS, MUTEX, BUSYLOCK, SPIN_ADOPT];
    Case { shape, variants }
}

/// Every case, those that belong together next to each other.
fn cases(threads: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &threads in threads {
        cases.push(pktgen(threads, "pfifo_fast", None));
        let below = QUEUES.map(|queues| pktgen(threads, "pfifo_fast", Some(queues)));
        cases.extend(below);
        cases.extend(["tbf", "prio", "fq", "fq_codel"].map(|name| pktgen(threads, name, None)));
    }
    for classes in htb_tree::CLASSES {
        cases.extend([1, BULK].map(|bulk| htb(classes, bulk)));
    }
    cases.extend(SHAPES.map(copy));
    cases
}

/// The names of all variants.
pub(crate) fn variants() -> Vec<&'static str> {
    let mut names: Vec<_> = cases(&[1])
        .iter()
        .flat_map(|c| c.variants.clone())
        .collect();
    names.extend(one_core::VARIANTS);
    names
}

/// Measures.
pub(crate) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let ticks = Ticks::new();
    for Case {
        mut shape,
        variants,
    } in cases(&options.threads(&THREADS, &FEW_THREADS))
    {
        let mut named = shape.params.clone();
        let wanted = match named[0].0 {
            "case" => options.threads.is_empty() || options.threads.contains(&shape.plan.threads),
            _ => {
                named.push(("case", json!(PKTGEN)));
                true
            }
        };
        if !wanted || !only.allows(&named) {
            continue;
        }
        shape.plan.time = options.window(shape.plan.threads);
        let rounds = options.rounds().of(&shape.params, shape.plan.time);
        interleave::measure(options, rounds, shape.turns(variants, &ticks), results)?;
    }
    let kinds = kinds::measured();
    if kinds.iter().any(|params| only.allows(params)) && options.threads.is_empty() {
        let time = options.window(1);
        let rounds = options.rounds().of(&[], time).of_several();
        let rounds = rounds.in_turns_of(time * kinds.len() as u32 * 2);
        interleave::measure(options, rounds, vec![kinds::turn(time, &ticks)], results)?;
    }
    one_core::rows(options, results)
}

/// The parameters of all rows.
#[cfg(test)]
pub(crate) fn measured() -> Vec<Vec<Param>> {
    let senders = cases(&THREADS).into_iter().map(|case| case.shape.params);
    let apart = kinds::measured().into_iter().chain(one_core::measured());
    senders.chain(apart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx_adopt::load;

    /// The measurement itself fails if a packet is lost or stuck.
    #[test]
    fn every_variant_delivers_or_drops_all_packets() {
        let ticks = Ticks::new();
        for mut case in cases(&[1, 5]) {
            case.shape.plan.time = Duration::from_millis(5);
            for name in case.variants {
                load::until_delivered(|| case.shape.measure(name, &ticks))
                    .unwrap_or_else(|error| panic!("{name} {:?}: {error}", case.shape));
            }
        }
    }
}
