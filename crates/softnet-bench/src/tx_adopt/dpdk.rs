//! Peer `dpdk-hts`: `rte_ring`, whose producers enter one at a time (head and tail), with one
//! drainer, in a C program of its own. The ring is a FIFO, so there is no figure for `fq`.

use std::time::Duration;

use serde_json::Value;
use softnet::stats::Counts;

use super::load::{Outcome, Plan};
use super::path::Driver;
use crate::error::BenchError;
use crate::peers::dpdk;

pub(super) const HTS: &str = "dpdk-hts";
const SOURCE: &str = include_str!("../../peers/dpdk_ring.c");
/// Memory for rings and packets.
const MEGABYTES: usize = 128;

/// Runs the program once.
///
/// # Errors
/// [`BenchError::Unavailable`] without libdpdk or a C compiler.
pub(super) fn measure(driver: Driver, plan: &Plan) -> Result<Outcome, BenchError> {
    let program = dpdk::compile("dpdk_ring", SOURCE)?;
    let ms = |time: Duration| time.as_millis().max(1).to_string();
    let memory = dpdk::Memory::new(MEGABYTES);
    let arguments = [
        plan.threads.to_string(),
        plan.bulk.to_string(),
        ms(plan.time / 8),
        ms(plan.time),
        driver.name().to_owned(),
    ];
    let answer = program.run(&arguments, &memory)?;
    let (sent, received) = (answer.number("sent")?, answer.number("received")?);
    if sent != received {
        return Err(BenchError::Measure(format!(
            "{HTS}: of {sent} packets sent, {received} were delivered"
        )));
    }
    let call = counts(&answer.fields["call"]).ok_or_else(|| answer.wrong())?;
    let sojourn = counts(&answer.fields["sojourn"]).ok_or_else(|| answer.wrong())?;
    Ok(Outcome {
        delivered: answer.number("delivered")?,
        drops: 0,
        time: Duration::from_nanos(answer.number("ns")?),
        cpu: Duration::from_nanos(answer.number("cpu_ns")?),
        waited: None,
        call,
        sojourn,
    })
}

/// Pairs of a bucket and its count; 16 buckets for each power of two.
fn counts(pairs: &Value) -> Option<Counts<4>> {
    let mut counts = Counts::default();
    for pair in pairs.as_array()? {
        let (bucket, count) = (pair[0].as_u64()?, pair[1].as_u64()?);
        let smallest = match bucket >> 4 {
            0 => bucket,
            power => (16 + bucket % 16).checked_shl(u32::try_from(power).ok()? - 1)?,
        };
        (0..count).for_each(|_| counts.record(smallest));
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::super::path::FRAME;
    use super::*;

    #[test]
    fn the_ring_delivers_all_packets() {
        let mut plan = Plan {
            threads: 2,
            bulk: 4,
            offered: None,
            frame: FRAME,
            classes: 0,
            time: Duration::from_millis(10),
        };
        loop {
            match measure(Driver::Copy, &plan) {
                Ok(outcome) if outcome.call.percentile(0.5).is_some() => break,
                // Others may have the CPUs for so long.
                Ok(_) => plan.time *= 4,
                Err(BenchError::Unavailable(why)) => return softnet_tests::skip(&why),
                Err(other) => panic!("{other}"),
            }
            assert!(plan.time < Duration::from_secs(10), "nothing is delivered");
        }
    }
}
