//! Experiment `switch`: two hosts, joined by Softnet or by what one would use instead, and
//! ordinary traffic between them.
//!
//! Each turn of a variant makes the topology afresh: three network namespaces, the switch in one
//! of them, then TCP with the default and a small segment size (iperf3), 64-byte UDP
//! (`sendmmsg`), pings on the idle path; anew, 200 TCP senders with small
//! segments over ports of four queues, and (case `churn`) 1,200 that send little.
//!
//! [Many hosts](many_ports); hosts behind [veths](veth), whose other ends are the ports; a host
//! whose [uplink] is user-mode networking; the switch beside [programs](busy_host) that want all
//! CPUs; an equal [load] offered to all; the kernel's own [policies](policy). CPU time is what the
//! whole machine spent, traffic generators included.
//!
//! `start_ms` is the time from the start of the first program to the first ping answered.

use std::time::Duration;

use serde_json::{Value, json};

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave;
use crate::numbers::ping_fields;
use crate::options::{Options, SHORT};
use crate::report::{Collector, Field, Param};
use crate::switches::{self, KernelBridge, OpenVswitch, Softnet, Switch, Wiring};
use crate::tap_case::clients;
use crate::traffic::{iperf, udp};
use crate::{cpu, ping};

mod busy_host;
mod load;
mod many_ports;
mod policy;
mod uplink;
mod veth;

/// Value of the parameter `case` of the rows with 200 connections.
const MANY_CLIENTS: &str = "many-clients";
/// The same of those with 1,200 connections that send little and are replaced.
const CHURN: &str = "churn";
/// The segment size that makes TCP costly: 400 bytes, as in the reports this is compared with.
const SMALL_MSS: u16 = 400;
/// Bytes of payload of the small datagrams.
const SMALL_DATAGRAM: usize = 64;
/// Pings per turn, and the time from one to the next: enough for everything on the way to go to
/// sleep.
const PINGS: usize = 1000;
const PING_INTERVAL: Duration = Duration::from_millis(2);
/// Time for 200 connections to find their rates: in the first second they lose more than they
/// send.
const CLIENTS_WARM_UP: Duration = Duration::from_secs(2);
/// Time for the path to settle before a rate is measured.
const WARM_UP: Duration = Duration::from_millis(500);
fn switches() -> Vec<Box<dyn Switch>> {
    vec![
        Box::new(Softnet::default()),
        Box::new(OpenVswitch::Stock),
        Box::new(OpenVswitch::SegmentationOffload),
        Box::new(KernelBridge),
    ]
}

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    let mut known = switches::names(&switches());
    known.extend(switches::names(&busy_host::switches()));
    known.extend(switches::names(&many_ports::switches()));
    known.extend(switches::names(&veth::switches()));
    known.extend(switches::names(&uplink::switches()));
    known.extend(switches::names(&load::switches()));
    options.check_variants("switch", &known)?;
    let (rounds, slice) = options.program_turns();
    let mut results = Collector::default();
    if options.includes("case", busy_host::NAME)? {
        busy_host::rows(options, &mut results)?;
    }
    if options.includes("case", many_ports::NAME)? {
        many_ports::rows(options, &mut results)?;
    }
    if options.includes("case", veth::NAME)? {
        veth::rows(options, &mut results)?;
    }
    if options.includes("case", uplink::NAME)? {
        uplink::rows(options, &mut results)?;
    }
    if options.includes("case", load::NAME)? {
        load::rows(options, &mut results)?;
    }
    policy::rows(options, &mut results)?;
    let includes = |case| options.includes("case", case);
    let (all, many, churn) = (includes("")?, includes(MANY_CLIENTS)?, includes(CHURN)?);
    if all || many || churn {
        let seconds = options.seconds;
        let turn = move |switch: &dyn Switch, results: &mut Collector| {
            let run = Run {
                switch,
                slice,
                seconds,
            };
            if all {
                run.alone(results)?;
            }
            if many {
                run.clients(MANY_CLIENTS, clients::many_params(), clients::many, results)?;
            }
            if churn {
                run.clients(CHURN, clients::short_params(), clients::short, results)?;
            }
            Ok(())
        };
        let turns = switches::turns(switches(), &[], &mut results, turn);
        // TCP twice, datagrams, pings, and both kinds of many senders.
        let clients = CLIENTS_WARM_UP + 2 * slice;
        let mut turn = iperf::whole(slice) * 2 + slice + PINGS as u32 * PING_INTERVAL;
        turn += 2 * clients + Duration::from_secs(1);
        let rounds = rounds.of(&[], slice).of_several().in_turns_of(turn);
        interleave::measure(options, rounds, turns, &mut results)?;
    }
    Ok(results.report("switch"))
}

struct Run<'a> {
    switch: &'a dyn Switch,
    slice: Duration,
    seconds: f64,
}

/// 64-byte datagrams as fast as the sender can.
fn flat_out(time: Duration) -> udp::Load {
    udp::Load {
        payload: SMALL_DATAGRAM,
        pace: None,
        warm_up: WARM_UP.min(time),
        time,
    }
}

/// Pings for some time, one each [`PING_INTERVAL`].
fn ping_row(topology: &Topology, time: Duration) -> Result<Vec<Field>, BenchError> {
    let count = (time.as_nanos() / PING_INTERVAL.as_nanos()) as usize;
    let pings = ping::run(topology, count.max(20), PING_INTERVAL)?;
    let us = &pings.round_trips_us;
    if us.is_empty() {
        return Err(BenchError::Measure("no ping was answered".into()));
    }
    Ok([ping_fields(us), vec![("ping_lost", pings.lost as f64)]].concat())
}

impl Run<'_> {
    fn name(&self) -> &'static str {
        self.switch.name()
    }

    fn add(&self, params: &[Param], fields: &[Field], results: &mut Collector) {
        results.add(self.name(), params, fields);
    }

    /// One program at a time.
    fn alone(&self, results: &mut Collector) -> Result<(), BenchError> {
        let (topology, start) = switches::open(self.switch, 2, Wiring::default())?;
        self.add(&[], &[("start_ms", start.as_secs_f64() * 1e3)], results);
        match iperf::Server::start(&topology) {
            Ok(server) => {
                self.tcp(&server, None, results)?;
                self.tcp(&server, Some(SMALL_MSS), results)?;
            }
            Err(BenchError::Unavailable(why)) => {
                results.skip(self.name(), &[("generator", json!("iperf3"))], &why);
            }
            Err(other) => return Err(other),
        }
        self.udp(&topology, results)?;
        self.ping(&topology, results)
    }

    fn tcp(
        &self,
        server: &iperf::Server<'_>,
        mss: Option<u16>,
        results: &mut Collector,
    ) -> Result<(), BenchError> {
        results.lasting(iperf::whole(self.slice));
        let cpu = cpu::busy()?;
        let tcp = server.tcp(self.slice, mss)?;
        let cpu = cpu::busy()? - cpu;
        let params: Vec<Param> = mss.map(|mss| ("mss", json!(mss))).into_iter().collect();
        let fields = [
            ("tcp_gbps", tcp.bits / tcp.seconds / 1e9),
            ("retransmits", tcp.retransmits),
            ("cpu_s_per_gbit", cpu / (tcp.bits / 1e9)),
        ];
        self.add(&params, &fields, results);
        Ok(())
    }

    fn udp(&self, topology: &Topology, results: &mut Collector) -> Result<(), BenchError> {
        let udp = udp::run(topology, &flat_out(self.slice))?;
        let cpu_s_per_packet = udp.cpu_s / (udp.delivered_pps * udp.seconds);
        let params = [("payload", json!(SMALL_DATAGRAM))];
        let fields = [
            ("udp_pps", udp.delivered_pps),
            ("udp_offered_pps", udp.offered_pps),
            ("cpu_s_per_mpkt", cpu_s_per_packet * 1e6),
        ];
        results.lasting(self.slice);
        self.add(&params, &fields, results);
        Ok(())
    }

    fn ping(&self, topology: &Topology, results: &mut Collector) -> Result<(), BenchError> {
        let time = PINGS as u32 * PING_INTERVAL;
        let fields = ping_row(topology, time.min(Duration::from_secs_f64(self.seconds)))?;
        results.lasting(time);
        self.add(&[], &fields, results);
        results.lasting(self.slice);
        Ok(())
    }

    fn clients(
        &self,
        case: &str,
        mut params: Vec<Param>,
        measure: fn(&Topology, Duration, Duration) -> Result<Vec<Field>, BenchError>,
        results: &mut Collector,
    ) -> Result<(), BenchError> {
        let wiring = Wiring {
            queues: clients::QUEUES,
        };
        let (topology, _) = switches::open(self.switch, 2, wiring)?;
        let (warm_up, time) = if self.seconds < SHORT {
            (self.slice, self.slice)
        } else {
            (CLIENTS_WARM_UP, 2 * self.slice)
        };
        params.insert(0, ("case", json!(case)));
        match measure(&topology, warm_up, time) {
            Ok(fields) => results.lasting(time).add(self.name(), &params, &fields),
            Err(BenchError::Unavailable(why)) => results.skip(self.name(), &params, &why),
            Err(other) => return Err(other),
        }
        topology.check_running()
    }
}
