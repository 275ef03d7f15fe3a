//! The cases of experiment `backlog` with real sockets: two hosts, joined by Softnet through two
//! TAP ports, or by what one would use instead.
//!
//! `tap-rr`: many flows of one request and one response each at a time, one byte long, as
//! netperf's TCP_RR; `no-poll` and `snapshot-no-poll` are plain switches that differ in the loop of
//! the threads to which packets are handed. `wake-latency`: one datagram at a time, so
//! seldom that everything on its way sleeps. All share the machine's CPUs.

use std::time::Duration;

use serde_json::json;

use crate::backlog::inbox;
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave;
use crate::numbers::{percentile, percentiles};
use crate::options::{Options, SHORT};
use crate::report::{Collector, Field, Param};
use crate::switches::{
    self, EmbeddedSoftnet, KernelBridge, OpenVswitch, PortThreads, Switch, Wiring,
};
use crate::traffic::window::Window;
use crate::traffic::{one_way, rr};

pub(crate) mod clients;

/// The parameters and figures of a row.
type Figures = (Vec<Param>, Vec<Field>);

/// Flows of requests and responses.
const FLOWS: usize = 200;
/// Time of `wake-latency`: its 99 % needs a thousand samples, of which there are 80 a second.
const WAKE_TIME: Duration = Duration::from_secs(13);
/// Time for the flows to get going before anything is counted.
const WARM_UP: Duration = Duration::from_millis(300);

/// A case of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Requests and responses.
    TapRr,
    /// One packet at a time, while everything sleeps.
    WakeLatency,
}

impl Case {
    /// All of them.
    pub(crate) const ALL: [Case; 2] = [Case::TapRr, Case::WakeLatency];

    /// Rows carry it as the parameter `case`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::TapRr => "tap-rr",
            Case::WakeLatency => "wake-latency",
        }
    }

    fn param(self) -> Param {
        ("case", json!(self.name()))
    }

    /// The names of the variants.
    pub(crate) fn variants(self) -> Vec<&'static str> {
        switches::names(&self.switches())
    }

    fn switches(self) -> Vec<Box<dyn Switch>> {
        let mut switches: Vec<Box<dyn Switch>> = vec![
            Box::new(EmbeddedSoftnet),
            Box::new(OpenVswitch::Stock),
            Box::new(KernelBridge),
        ];
        if self == Case::TapRr {
            switches.insert(2, Box::new(OpenVswitch::SegmentationOffload));
            let inboxes = [inbox::NO_POLL, inbox::NO_POLL_SNAPSHOT].map(PortThreads::Inbox);
            switches.extend(inboxes.map(|switch| Box::new(switch) as Box<dyn Switch>));
        }
        switches
    }

    /// Measures the case and adds its rows. Names that `--variants` has beside those of its
    /// [`variants`](Case::variants) are passed over.
    ///
    /// # Errors
    /// What ends an experiment.
    pub(crate) fn rows(
        self,
        options: &Options,
        results: &mut Collector,
    ) -> Result<(), BenchError> {
        if !options.includes("case", self.name())? {
            return Ok(());
        }
        let (rounds, slice) = options.program_turns();
        let slice = match self {
            Case::WakeLatency if options.seconds >= SHORT => WAKE_TIME,
            _ => slice,
        };
        let measure = move |switch: &dyn Switch, results: &mut Collector| {
            let (topology, _) = switches::open(switch, 2, Wiring::default())?;
            let (params, fields) = match self {
                Case::TapRr => self.rr(&topology, slice)?,
                Case::WakeLatency => self.wake_latency(&topology, slice)?,
            };
            results.add(switch.name(), &params, &fields);
            switches::close(topology)
        };
        let turns = switches::turns(self.switches(), &[self.param()], results, measure);
        let rounds = rounds.of(&[self.param()], slice).of_several();
        let rounds = rounds.in_turns_of(WARM_UP + slice + Duration::from_secs(1));
        interleave::measure(options, rounds, turns, results)
    }

    fn rr(self, topology: &Topology, slice: Duration) -> Result<Figures, BenchError> {
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
        Ok((vec![self.param(), ("flows", json!(FLOWS))], fields))
    }

    fn wake_latency(self, topology: &Topology, slice: Duration) -> Result<Figures, BenchError> {
        let seen = one_way::run(topology, slice)?;
        let mut fields = vec![
            ("samples", seen.to_program.len() as f64),
            ("lost", seen.sent as f64 - seen.to_program.len() as f64),
        ];
        let names = [
            ["stack_p50_us", "stack_p90_us", "stack_p99_us"],
            ["program_p50_us", "program_p90_us", "program_p99_us"],
        ];
        for (names, times) in names.into_iter().zip([&seen.to_stack, &seen.to_program]) {
            if times.is_empty() {
                let why = "no datagram arrived with a time stamp";
                return Err(BenchError::Measure(why.into()));
            }
            let of = names.into_iter().zip([0.5, 0.9, 0.99]);
            let at = |fraction| Some(percentile(times, fraction));
            fields.extend(percentiles(of, times.len(), at));
        }
        let (least, most) = one_way::INTERVAL_MS;
        let interval = json!(format!("{least}-{most}"));
        Ok((vec![self.param(), ("interval_ms", interval)], fields))
    }
}
