//! Case `queues`: [machines](super::vms) with many queues. Two workers receive; one of them, on a
//! CPU of its own, forwards all packets, so that half of the buffers are freed by another worker
//! than allocated them. The other one shares the guests' CPU.
//!
//! Do the pool's mechanisms pay, one by one and together? Variants turn off the return of buffers
//! to their owner (`no-defer`), the allocation of several at once (`per-packet`), the look at what
//! has returned before a look into the depot (`no-drain`), and all three (`all-off`).

use serde_json::json;

use super::NO_DEFER;
use super::softnet::{Setup, Without};
use super::vms::{FRAME, RING, Row, measure_rows, sizes_of};
use crate::buffers::pinned::Cpus;
use crate::buffers::source::PER_PACKET;
use crate::error::BenchError;
use crate::options::Options;
use crate::report::{Collector, OURS, Param};

/// Name of these rows for `--only case=`.
const CASE: &str = "queues";
const NO_DRAIN: &str = "no-drain";
const ALL_OFF: &str = "all-off";
pub(super) const VARIANTS: [&str; 5] = [OURS, NO_DEFER, PER_PACKET, NO_DRAIN, ALL_OFF];
/// Queue pairs in all, and machines that share them: at most 8 each, more a device of the guests'
/// program may not have.
const SIZES: [(usize, usize); 3] = [(8, 2), (16, 2), (64, 8)];
/// Descriptors of a ring.
const DESCRIPTORS: usize = 256;

fn params(queues: usize, vms: usize) -> Vec<Param> {
    vec![
        ("case", json!(CASE)),
        ("vms", json!(vms)),
        ("queues", json!(queues)),
        ("frame", json!(FRAME)),
        ("ring", json!(RING)),
    ]
}

fn without(variant: &str) -> Without {
    let is = |name| [name, ALL_OFF].contains(&variant);
    Without {
        defer: is(NO_DEFER),
        bulk: is(PER_PACKET),
        drain: is(NO_DRAIN),
    }
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let cpus = Cpus::choose()?;
    let row = |&(queues, vms): &(usize, usize)| {
        let setup = |name| Setup {
            queues: queues / vms,
            cpus: vec![cpus.a, cpus.b],
            without: without(name),
            rps: vec![0],
        };
        Row {
            params: params(queues, vms),
            vms,
            descriptors: DESCRIPTORS,
            variants: VARIANTS.map(|name| (name, setup(name))).into(),
        }
    };
    let rows = sizes_of(options, &SIZES).iter().map(row);
    measure_rows(options, cpus, rows, results)
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    SIZES.map(|(queues, vms)| params(queues, vms)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_lacks_one_mechanism_and_the_last_all() {
        let count = |variant: &str| {
            let Without { defer, bulk, drain } = without(variant);
            [defer, bulk, drain].into_iter().filter(|off| *off).count()
        };
        assert_eq!(VARIANTS.map(count), [0, 1, 1, 1, 3]);
        assert_ne!(without(PER_PACKET), without(NO_DRAIN));
        assert_ne!(without(NO_DEFER), without(NO_DRAIN));
    }

    #[test]
    fn machines_share_the_queues_in_pairs() {
        for (queues, vms) in SIZES {
            assert_eq!((queues % vms, vms % 2), (0, 0));
            assert!((1..=8).contains(&(queues / vms)));
        }
    }
}
