//! The cases of experiment `backlog` with real sockets: two hosts, joined by Softnet through two
//! TAP ports, or by what one would use instead.
//!
//! `tap-rr`: many flows of one request and one response each at a time, one byte long, as
//! netperf's TCP_RR. `many-clients`: many TCP senders with a segment size of 400 bytes, by iperf
//! (version 2), then more senders of little each; ports have four queues. `wake-latency`: one
//! datagram at a time, so seldom that everything on its way sleeps. All share the machine's CPUs.

use std::time::Duration;

use serde_json::json;

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave::{Variant, interleave};
use crate::numbers::{percentile, percentiles};
use crate::options::{Options, SHORT};
use crate::report::{Collector, Field, Param};
use crate::switches::{self, EmbeddedSoftnet, KernelBridge, OpenVswitch, Switch, Wiring};

pub(crate) mod clients;
mod events;
mod iperf2;
mod rr;
mod senders;
mod sink;
#[allow(
    unsafe_code,
    reason = "recvmsg with control messages has no safe wrapper"
)]
mod stamp;
mod wake;
mod window;

use window::Window;

/// Fields that Softnet is compared by.
pub(crate) const COMPARE: &[&str] = &[
    "tps",
    "p90_us",
    "p95_us",
    "p99_us",
    "cpu_us_per_transaction",
    "worker_us_per_transaction",
    "gbps",
    "cpu_s_per_gbit",
    "stack_p50_us",
    "stack_p99_us",
    "program_p50_us",
    "program_p99_us",
];
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
    /// Bulk transfer by many.
    ManyClients,
    /// One packet at a time, while everything sleeps.
    WakeLatency,
}

impl Case {
    /// All of them.
    pub(crate) const ALL: [Case; 3] = [Case::TapRr, Case::ManyClients, Case::WakeLatency];

    /// Rows carry it as the parameter `case`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::TapRr => "tap-rr",
            Case::ManyClients => "many-clients",
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
        if self == Case::WakeLatency {
            return vec![
                Box::new(EmbeddedSoftnet::new()),
                Box::new(OpenVswitch::Stock),
                Box::new(KernelBridge::Plain),
            ];
        }
        let mut switches: Vec<Box<dyn Switch>> = vec![Box::new(EmbeddedSoftnet::new())];
        switches.push(Box::new(EmbeddedSoftnet::new().steered("softnet-rps")));
        if self == Case::ManyClients {
            // Only where packets change workers are they freed away from their owner. Peers are
            // in `switch`.
            let no_defer = EmbeddedSoftnet::without_deferral;
            switches.push(Box::new(no_defer()));
            switches.push(Box::new(no_defer().steered("no-defer-rps")));
            return switches;
        }
        switches.push(Box::new(OpenVswitch::Stock));
        switches.push(Box::new(OpenVswitch::SegmentationOffload));
        switches.push(Box::new(KernelBridge::Plain));
        switches.push(Box::new(KernelBridge::Rps));
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
        let rounds = rounds.of(&[self.param()], slice);
        let mut variants: Vec<Box<dyn Variant>> =
            switches::choose(self.switches(), &options.variants)
                .into_iter()
                .map(|switch| {
                    switch.note_setting(results);
                    Box::new(Turn {
                        case: self,
                        switch,
                        slice,
                    }) as Box<dyn Variant>
                })
                .collect();
        let windows = if self == Case::ManyClients { 2 } else { 1 };
        let turn = windows * (WARM_UP + slice + Duration::from_secs(1));
        interleave(
            rounds.of_several().in_turns_of(turn),
            &mut variants,
            results,
        )
    }
}

struct Turn {
    case: Case,
    switch: Box<dyn Switch>,
    slice: Duration,
}

impl Variant for Turn {
    fn name(&self) -> &'static str {
        self.switch.name()
    }

    fn params(&self) -> Vec<Param> {
        vec![self.case.param()]
    }

    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError> {
        self.switch.prepare()?;
        match self.case {
            Case::TapRr => self.with_site(1, |topology| self.rr(topology, results)),
            Case::ManyClients => {
                self.with_site(clients::QUEUES, |topology| {
                    let done = clients::many(topology, WARM_UP, self.slice);
                    self.add_clients(clients::many_params(), done, results)
                })?;
                self.with_site(clients::QUEUES, |topology| {
                    let done = clients::short(topology, self.slice);
                    self.add_clients(clients::short_params(), done, results)
                })
            }
            Case::WakeLatency => {
                self.with_site(1, |topology| self.wake_latency(topology, results))
            }
        }
    }
}

impl Turn {
    fn with_site(
        &self,
        queues: usize,
        measure: impl FnOnce(&Topology) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let wiring = Wiring {
            queues,
            ..Wiring::default()
        };
        let (mut topology, _) = switches::open(&*self.switch, 2, wiring)?;
        measure(&topology)?;
        topology.check_running()?;
        match topology.engine.take() {
            Some(engine) => engine.stop(),
            None => Ok(()),
        }
    }

    fn rr(&self, topology: &Topology, results: &mut Collector) -> Result<(), BenchError> {
        let window = Window::after(WARM_UP, self.slice);
        let (rr, seen) = rr::run(topology, FLOWS, window)?;
        let count = rr.latencies_us.len() as f64;
        if count == 0.0 {
            return Err(BenchError::Measure(format!(
                "{}: no request was answered",
                self.name()
            )));
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
        let params = [self.case.param(), ("flows", json!(FLOWS))];
        results.add(self.name(), &params, &fields);
        Ok(())
    }

    fn wake_latency(
        &self,
        topology: &Topology,
        results: &mut Collector,
    ) -> Result<(), BenchError> {
        let seen = wake::run(topology, self.slice)?;
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
                return Err(BenchError::Measure(format!(
                    "{}: no datagram arrived with a time stamp",
                    self.name()
                )));
            }
            let of = names.into_iter().zip([0.5, 0.9, 0.99]);
            let at = |fraction| Some(percentile(times, fraction));
            fields.extend(percentiles(of, times.len(), at));
        }
        let (least, most) = wake::INTERVAL_MS;
        let params = [
            self.case.param(),
            ("interval_ms", json!(format!("{least}-{most}"))),
        ];
        results.add(self.name(), &params, &fields);
        Ok(())
    }

    fn add_clients(
        &self,
        mut params: Vec<Param>,
        done: Result<Vec<Field>, BenchError>,
        results: &mut Collector,
    ) -> Result<(), BenchError> {
        params.insert(0, self.case.param());
        match done {
            Ok(fields) => results.add(self.name(), &params, &fields),
            Err(BenchError::Unavailable(why)) => results.skip(self.name(), &params, &why),
            Err(other) => return Err(other),
        }
        Ok(())
    }
}
