//! Case `tap-rr` of experiment `backlog`, with real sockets: two hosts, joined by Softnet through
//! two TAP ports, or by what one would use instead.
//!
//! Many flows of one request and one response each at a time, one byte long, as netperf's TCP_RR;
//! `no-poll` and `snapshot-no-poll` are plain switches that differ in the loop of the threads to
//! which packets are handed. All share the machine's CPUs.

use std::time::Duration;

use serde_json::json;

use crate::backlog::inbox;
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave;
use crate::numbers::{percentile, percentiles};
use crate::options::Options;
use crate::report::{Collector, Field};
use crate::switches::{
    self, EmbeddedSoftnet, KernelBridge, OpenVswitch, PortThreads, Switch, Wiring,
};
use crate::traffic::rr;
use crate::traffic::window::Window;

pub(crate) mod clients;

/// Rows carry it as the parameter `case`.
const NAME: &str = "tap-rr";
/// Flows of requests and responses.
const FLOWS: usize = 200;
/// Time for the flows to get going before anything is counted.
const WARM_UP: Duration = Duration::from_millis(300);

fn switches() -> Vec<Box<dyn Switch>> {
    let mut switches: Vec<Box<dyn Switch>> = vec![
        Box::new(EmbeddedSoftnet),
        Box::new(OpenVswitch::Stock),
        Box::new(OpenVswitch::SegmentationOffload),
        Box::new(KernelBridge),
    ];
    let inboxes = [inbox::NO_POLL, inbox::NO_POLL_SNAPSHOT].map(PortThreads::Inbox);
    switches.extend(inboxes.map(|switch| Box::new(switch) as Box<dyn Switch>));
    switches
}

/// The names of the variants.
pub(crate) fn variants() -> Vec<&'static str> {
    switches::names(&switches())
}

/// Measures the case and adds its rows. Names that `--variants` has beside those of its
/// [`variants`] are passed over.
///
/// # Errors
/// What ends an experiment.
pub(crate) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    if !options.includes("case", NAME)? {
        return Ok(());
    }
    let (rounds, slice) = options.program_turns();
    let case = [("case", json!(NAME))];
    let measure = move |switch: &dyn Switch, results: &mut Collector| {
        let (topology, _) = switches::open(switch, 2, Wiring::default())?;
        let params = [("case", json!(NAME)), ("flows", json!(FLOWS))];
        results.add(switch.name(), &params, &figures(&topology, slice)?);
        switches::close(topology)
    };
    let turns = switches::turns(switches(), &case, results, measure);
    let rounds = rounds.of(&case, slice).of_several();
    let rounds = rounds.in_turns_of(WARM_UP + slice + Duration::from_secs(1));
    interleave::measure(options, rounds, turns, results)
}

fn figures(topology: &Topology, slice: Duration) -> Result<Vec<Field>, BenchError> {
    let window = Window::after(WARM_UP, slice);
    let (rr, seen) = rr::run(topology, FLOWS, window)?;
    let count = rr.latencies_us.len() as f64;
    if count == 0.0 {
        return Err(BenchError::Measure("no request was answered".into()));
    }
    let mut fields = vec![
        ("tps", count / window.seconds()),
        ("cpu_us_per_transaction", seen.busy_s * 1e6 / count),
        ("cpu_share", seen.cpu_share(window)),
    ];
    let of = [("p90_us", 0.9), ("p95_us", 0.95), ("p99_us", 0.99)];
    let us = &rr.latencies_us;
    let at = |fraction| Some(percentile(us, fraction));
    fields.extend(percentiles(of, us.len(), at));
    if let Some(counted) = seen.counters {
        fields.extend([
            ("wakes_per_s", counted.wakes as f64 / window.seconds()),
            ("wakes_per_ktrans", counted.wakes as f64 * 1e3 / count),
            ("sleeps_per_ktrans", counted.sleeps as f64 * 1e3 / count),
            (
                "handed_over_per_ktrans",
                counted.handed_over as f64 * 1e3 / count,
            ),
            ("worker_us_per_transaction", counted.cpu_s * 1e6 / count),
            ("drops", counted.drops as f64),
        ]);
    }
    Ok(fields)
}
