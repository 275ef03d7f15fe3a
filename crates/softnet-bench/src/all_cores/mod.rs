//! Experiment `all-cores`: one policy for the queues of a device, each of which has a thread that
//! sends.
//!
//! - Case `unlimited`: packets per second with [rates that never limit](unlimited), and the time
//!   that a packet takes through a qdisc that is not loaded.
//! - Cases `rate`, `skew`, `sparse`, `on-off` and `fair`: how well a [rate](shaped) is kept,
//!   reached and shared.
//! - Case `taps`: TCP between two [TAP ports](taps) of a switch.
//!
//! The variants differ in the state that the queues share:
//!
//! - `softnet`: each queue has an instance of the tree, and the instances share the rates;
//! - `adopt`: one instance, which the senders share by list adoption;
//! - `private`: each queue has a tree of its own with its part of the rate;
//! - `cake-mq-kernel`: the [algorithm](divided) of the kernel's `cake_mq`, not its code.
//!
//! After every turn what was sent was delivered or dropped, and all buffers are back.

mod device;
mod divided;
mod load;
mod shaped;
mod taps;
mod unlimited;

use serde_json::Value;

use crate::error::BenchError;
use crate::options::Options;
use crate::report::{Collector, OURS};

const NAME: &str = "all-cores";
const ADOPT: &str = "adopt";
const PRIVATE: &str = "private";
const CAKE_MQ_KERNEL: &str = "cake-mq-kernel";
/// Queues of a device, each with a sender.
const QUEUES: usize = 2;

/// State that the queues of a device in this process share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// The rates.
    Rates,
    /// The instance.
    Instance,
    Nothing,
}

/// Measures.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    let known = [OURS, ADOPT, PRIVATE, CAKE_MQ_KERNEL];
    options.check_variants(NAME, &known)?;
    let mut results = Collector::default();
    unlimited::rows(options, &mut results)?;
    shaped::rows(options, &mut results)?;
    taps::rows(options, &mut results)?;
    Ok(results.report(NAME))
}

/// The parameters of all rows.
#[cfg(test)]
pub(crate) fn measured() -> Vec<Vec<crate::report::Param>> {
    [unlimited::measured(), shaped::measured(), taps::measured()].concat()
}
