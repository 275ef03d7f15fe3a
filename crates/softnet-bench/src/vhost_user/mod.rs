//! Experiment `vhost-user`: ports of virtual machines. The guests are `dpdk-testpmd` on
//! `virtio_user`, which polls its rings as fast as a CPU can; the figures are what they count.
//!
//! - [Paths](paths) `reflect`, `switch` and `two-vms`: packets per second of one CPU, split and
//!   packed rings, against DPDK's own back end and Open vSwitch.
//! - [Path](kick) `kick`: the time from a guest's kick to its peer's call; the guests sleep.
//! - [Attacks](hostile): what machines get beside a hostile one, against an honest load.
//! - Case `senders`: [threads](senders) that send into one virtual queue.
//! - Case `vms`: many [machines](vms) with several queues, whose buffers return to their owner or
//!   not.
//! - Case `queues`: many [queues] of machines, and the pool's mechanisms one by one.

mod hostile;
mod kick;
mod ovs;
mod paths;
mod queues;
mod senders;
mod softnet;
mod testpmd;
mod vms;

use std::time::Duration;

use serde_json::Value;

use crate::error::BenchError;
use crate::interleave::Rounds;
use crate::options::{Options, SHORT};
use crate::report::Collector;
use testpmd::Testpmd;

const NAME: &str = "vhost-user";
const DPDK: &str = "dpdk-vhost";
const OVS: &str = "ovs";
const NO_DEFER: &str = "no-defer";
const RINGS: [&str; 2] = ["split", "packed"];
/// Descriptors of a ring where it is about packets per second: the most that there can be.
const QUEUE: usize = 1024;
/// Time for the rings to fill before something is measured, and the longest that is.
const WARM_UP: Duration = Duration::from_millis(200);
/// Time until packets flow and to end what carries them, about.
const START: Duration = Duration::from_millis(1300);

/// A switch that carries packets from and to guests.
trait BackEnd: std::fmt::Debug {
    /// Packets that it has dropped, if it tells.
    fn drops(&self) -> Option<u64> {
        None
    }

    /// CPU time that it has used, in seconds, if it tells.
    fn cpu_s(&self) -> Option<f64> {
        None
    }

    /// Ends it.
    ///
    /// # Errors
    /// If packets are unaccounted for.
    fn stop(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}

impl BackEnd for Testpmd {}

/// The Ethernet address of a guest's device.
fn address(device: usize) -> String {
    format!("02:00:00:00:01:{device:02x}")
}

/// Options of a guest's device for its rings.
fn device_options(ring: &str, queue: usize) -> String {
    let packed = usize::from(ring == "packed");
    format!("queue_size={queue},packed_vq={packed}")
}

/// Turns of each variant, and the time of each figure in one.
fn turns(options: &Options) -> (Rounds, Duration) {
    let (turns, time) = options.program_turns();
    // A run of a second is to see that all works; most of its time is that of programs to start.
    let time = if options.seconds < SHORT {
        time / 4
    } else {
        time
    };
    (turns, time)
}

/// Measures.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    let beside = [hostile::EQUAL_LOAD, hostile::UNLOADED];
    let known = [&[DPDK, OVS][..], &queues::VARIANTS, &beside].concat();
    options.check_variants(NAME, &known)?;
    let mut results = Collector::default();
    paths::rows(options, &mut results)?;
    kick::rows(options, &mut results)?;
    senders::rows(options, &mut results)?;
    vms::rows(options, &mut results)?;
    queues::rows(options, &mut results)?;
    hostile::rows(options, &mut results)?;
    Ok(results.report(NAME))
}

/// The parameters of all rows.
#[cfg(test)]
pub(crate) fn measured() -> Vec<Vec<crate::report::Param>> {
    let paths = [paths::measured(), kick::measured()].concat();
    let (senders, vms) = (senders::measured(), vms::measured());
    [paths, senders, vms, queues::measured(), hostile::measured()].concat()
}
