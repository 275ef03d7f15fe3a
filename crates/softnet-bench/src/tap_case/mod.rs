//! The cases of experiment `backlog` with real sockets: two hosts, joined by Softnet through two TAP ports, or by what one would use instead.
//!
//! `tap-rr`: many flows of one request and one response each at a time, one byte long, as netperf's TCP_RR.
//! `many-clients`: many TCP senders with a segment size of 400 bytes, by iperf (version 2), then more senders of little each; ports have four queues. `wake-latency`: one datagram at
//! a time, so seldom that everything on its way sleeps. All share the machine's CPUs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cpu;
use crate::error::BenchError;
use crate::hosts::Site;
use crate::interleave::{Variant, interleave};
use crate::joins::{self, Counters, EmbeddedSoftnet, Join, KernelBridge, OpenVswitch, Wiring};
use crate::numbers::percentile;
use crate::options::Options;
use crate::report::{Collector, Param};

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
/// Senders of iperf, and those that send little each.
const CLIENTS: usize = 200;
const SHORT_CLIENTS: usize = 1200;
/// Queues of each port in `many-clients`.
const QUEUES: usize = 4;
/// The segment size of `many-clients`.
const MSS: u16 = 400;
/// Of the time for a figure, what `wake-latency` takes: it needs many samples for its 99 %, at 80 a second.
const WAKE_SLICES: u32 = 4;
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
        joins::names(&self.joins())
    }

    fn joins(self) -> Vec<Box<dyn Join>> {
        if self == Case::WakeLatency {
            return vec![
                Box::new(EmbeddedSoftnet::new()),
                Box::new(OpenVswitch::Stock),
                Box::new(KernelBridge),
            ];
        }
        let mut joins: Vec<Box<dyn Join>> = vec![Box::new(EmbeddedSoftnet::new())];
        joins.push(Box::new(EmbeddedSoftnet::new().steered("softnet-rps")));
        if self == Case::ManyClients {
            // Only where packets change workers are they freed away from home.
            let depot = EmbeddedSoftnet::without_deferral;
            joins.push(Box::new(depot()));
            joins.push(Box::new(depot().steered("depot-rps")));
        }
        joins.push(Box::new(OpenVswitch::Stock));
        joins.push(Box::new(OpenVswitch::SegmentationOffload));
        joins.push(Box::new(KernelBridge));
        joins
    }

    /// Measures the case and adds its rows. Names that `--variants` has beside those of its [`variants`](Case::variants) are passed over.
    ///
    /// # Errors
    /// What ends an experiment.
    pub(crate) fn rows(self, options: &Options, results: &mut Collector) -> Result<(), BenchError> {
        if !options.includes("case", self.name())? {
            return Ok(());
        }
        let mut variants: Vec<Box<dyn Variant>> = joins::choose(self.joins(), &options.variants)
            .into_iter()
            .map(|join| {
                Box::new(Turn {
                    case: self,
                    join,
                    slice: options.slice(),
                }) as Box<dyn Variant>
            })
            .collect();
        interleave(options.rounds(), &mut variants, results)
    }
}

struct Turn {
    case: Case,
    join: Box<dyn Join>,
    slice: Duration,
}

impl Variant for Turn {
    fn name(&self) -> &'static str {
        self.join.name()
    }

    fn params(&self) -> Vec<Param> {
        vec![self.case.param()]
    }

    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError> {
        self.join.prepare()?;
        match self.case {
            Case::TapRr => self.with_site(1, |site| self.rr(site, results)),
            Case::ManyClients => {
                self.with_site(QUEUES, |site| self.many_clients(site, results))?;
                self.with_site(QUEUES, |site| self.short_clients(site, results))
            }
            Case::WakeLatency => self.with_site(1, |site| self.wake_latency(site, results)),
        }
    }
}

impl Turn {
    fn with_site(
        &self,
        queues: usize,
        measure: impl FnOnce(&Site) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let wiring = Wiring {
            queues,
            ..Wiring::default()
        };
        let (mut site, _) = joins::open(&*self.join, 2, wiring)?;
        measure(&site)?;
        site.check_running()?;
        match site.engine.take() {
            Some(engine) => engine.stop(),
            None => Ok(()),
        }
    }

    fn rr(&self, site: &Site, results: &mut Collector) -> Result<(), BenchError> {
        let window = Window::after(WARM_UP, self.slice);
        let (rr, seen) = rr::run(site, FLOWS, window)?;
        let count = rr.latencies_us.len() as f64;
        if count == 0.0 {
            return Err(BenchError::Measure(format!(
                "{}: no request was answered",
                self.name()
            )));
        }
        let mut fields = vec![
            ("tps", count / window.seconds()),
            ("p90_us", percentile(&rr.latencies_us, 0.90)),
            ("p95_us", percentile(&rr.latencies_us, 0.95)),
            ("p99_us", percentile(&rr.latencies_us, 0.99)),
            ("cpu_us_per_transaction", seen.busy_s * 1e6 / count),
            ("cpu_share", seen.cpu_share(window)),
        ];
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

    fn wake_latency(&self, site: &Site, results: &mut Collector) -> Result<(), BenchError> {
        let seen = wake::run(site, self.slice * WAKE_SLICES)?;
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
            for (name, fraction) in names.into_iter().zip([0.5, 0.9, 0.99]) {
                fields.push((name, percentile(times, fraction)));
            }
        }
        let (least, most) = wake::INTERVAL_MS;
        let params = [
            self.case.param(),
            ("interval_ms", json!(format!("{least}-{most}"))),
        ];
        results.add(self.name(), &params, &fields);
        Ok(())
    }

    fn many_clients(&self, site: &Site, results: &mut Collector) -> Result<(), BenchError> {
        let params = self.client_params("iperf", CLIENTS);
        let sink = sink::Sink::listen(site, MSS)?;
        let clients = match iperf2::Clients::start(site, CLIENTS, MSS, WARM_UP + self.slice) {
            Err(BenchError::Unavailable(why)) => {
                results.skip(self.name(), &params, &why);
                return Ok(());
            }
            other => other?,
        };
        let window = Window::after(WARM_UP, self.slice);
        let (received, seen) = sink.count(site, None, window, || clients.check())?;
        drop(clients);
        let extra = [("connections_seen", received.connections as f64)];
        self.add_bulk(&params, received.bytes, window, &seen, &extra, results);
        Ok(())
    }

    fn short_clients(&self, site: &Site, results: &mut Collector) -> Result<(), BenchError> {
        let params = self.client_params("sockets", SHORT_CLIENTS);
        let sink = sink::Sink::listen(site, MSS)?;
        let window = Window::after(WARM_UP, self.slice);
        let limit = Some(senders::EACH);
        let (received, seen, failed) = std::thread::scope(|scope| {
            let senders = scope.spawn(|| senders::run(site, SHORT_CLIENTS, window));
            let counted = sink.count(site, limit, window, || Ok(()));
            let failed = senders
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            let (received, seen) = counted?;
            Ok::<_, BenchError>((received, seen, failed))
        })?;
        let extra = [
            (
                "connections_per_s",
                received.finished as f64 / window.seconds(),
            ),
            ("failed", failed as f64),
        ];
        self.add_bulk(&params, received.bytes, window, &seen, &extra, results);
        Ok(())
    }

    fn client_params(&self, generator: &str, clients: usize) -> Vec<Param> {
        vec![
            self.case.param(),
            ("generator", Value::from(generator)),
            ("clients", json!(clients)),
            ("mss", json!(MSS)),
            ("queues", json!(QUEUES)),
        ]
    }

    fn add_bulk(
        &self,
        params: &[Param],
        bytes: u64,
        window: Window,
        seen: &Seen,
        extra: &[(&'static str, f64)],
        results: &mut Collector,
    ) {
        let gbit = bytes as f64 * 8.0 / 1e9;
        let mut fields = vec![
            ("gbps", gbit / window.seconds()),
            ("cpu_s_per_gbit", seen.busy_s / gbit.max(1e-9)),
            ("retransmits", seen.retransmits),
        ];
        fields.extend(extra);
        if let Some(counted) = seen.counters {
            let frames = (counted.frames as f64).max(1.0);
            let buffers = (counted.allocated as f64).max(1.0);
            fields.extend([
                ("worker_s_per_gbit", counted.cpu_s / gbit.max(1e-9)),
                ("drops", counted.drops as f64),
                ("packets_per_frame", counted.packets as f64 / frames),
                ("depot_ops_per_packet", counted.depot_ops as f64 / buffers),
                ("sent_home_per_packet", counted.sent_home as f64 / buffers),
                ("bypassed_per_packet", counted.bypassed as f64 / buffers),
                ("kicks_per_packet", counted.kicks as f64 / buffers),
                ("exhausted", counted.exhausted as f64),
            ]);
        }
        results.add(self.name(), params, &fields);
    }
}

/// The part of the time that is measured.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Instant,
    to: Instant,
}

impl Window {
    fn after(warm_up: Duration, time: Duration) -> Window {
        let from = Instant::now() + warm_up;
        Window {
            from,
            to: from + time,
        }
    }

    fn seconds(self) -> f64 {
        (self.to - self.from).as_secs_f64()
    }

    /// Waits until the window has passed; what the machine and the engine did in it.
    fn watch(self, site: &Site) -> Result<Seen, BenchError> {
        let engine = || site.engine.as_ref().map(|e| e.counters()).transpose();
        std::thread::sleep(self.from.saturating_duration_since(Instant::now()));
        let (busy, resent, before) = (cpu::busy()?, retransmits(site)?, engine()?);
        std::thread::sleep(self.to.saturating_duration_since(Instant::now()));
        Ok(Seen {
            busy_s: cpu::busy()? - busy,
            retransmits: retransmits(site)? - resent,
            counters: engine()?.zip(before).map(|(after, before)| after - before),
        })
    }
}

/// What happened during a window.
#[derive(Debug)]
struct Seen {
    /// CPU time of the machine.
    busy_s: f64,
    /// Segments that host a sent again.
    retransmits: f64,
    /// What the engine counted, where it is in this program.
    counters: Option<Counters>,
}

impl Seen {
    /// Of all CPUs.
    fn cpu_share(&self, window: Window) -> f64 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.busy_s / (window.seconds() * cpus as f64)
    }
}

/// TCP segments that host a has sent again so far.
fn retransmits(site: &Site) -> Result<f64, BenchError> {
    let path = "/proc/thread-self/net/snmp";
    let text = site.a().run(|| {
        std::fs::read_to_string(path).map_err(|e| BenchError::io(format!("reading {path}"), e))
    })?;
    snmp(&text, "Tcp:", "RetransSegs")
        .ok_or_else(|| BenchError::Measure(format!("{path} has no RetransSegs")))
}

/// A number from two lines that start with `protocol`: one of names, one of values.
fn snmp(text: &str, protocol: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let mut words = lines.next()?.split_whitespace();
    let column = words.position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 7 42\n";
        assert_eq!(snmp(text, "Tcp:", "RetransSegs"), Some(42.0));
        assert_eq!(snmp(text, "Ip:", "B"), Some(2.0));
        assert_eq!(snmp(text, "Udp:", "B"), None);
        assert_eq!(snmp("Tcp: RetransSegs\n", "Tcp:", "RetransSegs"), None);
    }
}
