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
