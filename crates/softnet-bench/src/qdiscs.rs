//! The qdiscs that are measured, by name: none of them limits or refuses anything.

use std::time::Duration;

use softnet_tc::{AqmSpec, CakeSpec, FqCodelSpec, FqSpec, PrioSpec, QdiscSpec, TbfSpec};

use crate::error::BenchError;
use crate::htb_tree;

/// Bytes per second, bucket and limit of a `tbf` that never limits.
const RATE: u64 = 100_000_000_000;
const BURST: u64 = 1 << 30;

/// The qdisc of this name, for packets of a pool of `packets`; `htb` with so many classes.
///
/// # Errors
/// If there is none of that name.
pub(crate) fn spec(name: &str, classes: u16, packets: usize) -> Result<QdiscSpec, BenchError> {
    let limit = packets as u32;
    Ok(match name {
        "pfifo" => QdiscSpec::Pfifo { limit },
        "pfifo_fast" => QdiscSpec::PfifoFast { limit },
        "prio" => QdiscSpec::Prio(PrioSpec::default()),
        "tbf" => QdiscSpec::Tbf(TbfSpec {
            rate: RATE,
            burst: BURST,
            limit: BURST,
            ..TbfSpec::default()
        }),
        "fq" => QdiscSpec::Fq(FqSpec {
            limit,
            flow_limit: limit,
            ..FqSpec::default()
        }),
        "fq_codel" => QdiscSpec::FqCodel(FqCodelSpec {
            limit,
            memory_limit: u32::MAX,
            aqm: AqmSpec {
                target: Duration::from_secs(60),
                ..AqmSpec::default()
            },
            ..FqCodelSpec::default()
        }),
        "cake" => QdiscSpec::Cake(CakeSpec::default()),
        "htb" => htb_tree::spec(classes).map_err(|e| BenchError::Measure(e.to_string()))?,
        other => return Err(BenchError::Measure(format!("there is no qdisc {other}"))),
    })
}

/// The commands for `tc` that make the kernel's on device `a0`; none if it is not measured. The
/// limits are far above what the device does.
pub(crate) fn in_kernel(name: &str, classes: u16) -> Vec<String> {
    let lines: &[&str] = match (name, classes) {
        ("pfifo_fast", _) => &["qdisc add dev a0 root pfifo_fast"],
        ("tbf", _) => &["qdisc add dev a0 root tbf rate 100gbit burst 100mb limit 100mb"],
        ("htb", 0) => &[
            "qdisc add dev a0 root handle 1: htb default 1",
            "class add dev a0 parent 1: classid 1:1 htb rate 100gbit burst 100mb cburst 100mb",
        ],
        ("htb", classes) => return htb_tree::commands("a0", classes),
        _ => &[],
    };
    lines.iter().map(|line| (*line).to_owned()).collect()
}
