//! Experiment `switch`: two hosts, joined by Softnet or by what one would use instead, and
//! ordinary traffic between them.
//!
//! Each turn of a variant makes the topology afresh: three network namespaces, the switch in one
//! of them, then TCP with the default and a small segment size (iperf3), 64-byte UDP (iperf3, and
//! `sendmmsg`, which offers more), pings on the idle path; anew, 200 TCP senders with small
//! segments over ports of four queues, and (case `churn`) 1,200 that send little; the accuracy of
//! `tbf` at three rates where the variant can shape; a thousand hosts (`many_ports`). Case `veth`
//! has hosts behind veths, whose other ends are the ports. Case `busy-host` is the switch beside
//! programs that want all CPUs. CPU time is what the whole machine spent, traffic generators
//! included.
//!
//! `start_ms` is the time from the start of the first program to the first ping answered.

use std::time::Duration;

use serde_json::{Value, json};

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave;
use crate::numbers::ping_fields;
use crate::options::{Options, SHORT};
use crate::report::{Collector, Field, OURS, Param};
use crate::switches::{self, KernelBridge, OpenVswitch, Shape, Softnet, Switch, Wiring};
use crate::tap_case::clients;
use crate::traffic::{iperf, udp};
use crate::{cpu, ping};

mod busy_host;
mod many_ports;
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
/// Time for which a rate limit is measured in a turn, if there is that much time.
const SHAPE_TIME: Duration = Duration::from_millis(1500);
/// Time for 200 connections to find their rates: in the first second they lose more than they
/// send.
const CLIENTS_WARM_UP: Duration = Duration::from_secs(2);
/// Time for the path to settle before a rate is measured.
const WARM_UP: Duration = Duration::from_millis(500);
/// Load offered to measure how a rate is kept, as a part of the rate, and the least of it that
/// must be reached.
const OVERLOAD: f64 = 1.2;
const ENOUGH: f64 = 1.05;
/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Bytes of payload of a datagram that fills a frame of 1514 bytes.
const FULL_DATAGRAM: usize = 1514 - HEADERS;

const SHAPES: [Shape; 3] = [
    Shape {
        rate: "10mbit",
        bits_per_second: 10e6,
        burst: "32k",
    },
    Shape {
        rate: "100mbit",
        bits_per_second: 100e6,
        burst: "32k",
    },
    Shape {
        rate: "1gbit",
        bits_per_second: 1e9,
        burst: "64k",
    },
];

fn switches() -> Vec<Box<dyn Switch>> {
    vec![
        Box::new(Softnet::default()),
        Box::new(Softnet::scheduled("softnet-nice", "nice")),
        Box::new(Softnet::scheduled("softnet-realtime", "realtime")),
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
    let includes = |case| options.includes("case", case);
    let (all, many, churn) = (includes("")?, includes(MANY_CLIENTS)?, includes(CHURN)?);
    // These have no goals.
    let (churn, shaped) = (churn && !options.judged, !options.judged);
    if all || many || churn {
        let seconds = options.seconds;
        let turn = move |switch: &dyn Switch, results: &mut Collector| {
            let run = Run {
                switch,
                slice,
                seconds,
            };
            // Other scheduling classes are of interest where CPUs are short.
            let ours = run.name() == OURS || !run.name().starts_with("softnet");
            if all && ours {
                run.alone(results)?;
                if shaped {
                    run.shaping(results)?;
                }
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
        // TCP and datagrams twice each, pings, and 200 senders.
        let clients = CLIENTS_WARM_UP + 2 * slice;
        let mut turn = iperf::whole(slice) * 3 + slice + PINGS as u32 * PING_INTERVAL;
        turn += clients + Duration::from_secs(2);
        if !options.judged {
            turn += clients + SHAPES.len() as u32 * (SHAPE_TIME + WARM_UP);
        }
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

impl Run<'_> {
    fn name(&self) -> &'static str {
        self.switch.name()
    }

    /// One program at a time.
    fn alone(&self, results: &mut Collector) -> Result<(), BenchError> {
        let (topology, start) = switches::open(self.switch, 2, Wiring::default())?;
        results.add(self.name(), &[], &[("start_ms", start.as_secs_f64() * 1e3)]);
        match iperf::Server::start(&topology) {
            Ok(server) => {
                self.tcp(&server, None, results)?;
                self.tcp(&server, Some(SMALL_MSS), results)?;
                self.udp_by_iperf(&server, results)?;
            }
            Err(BenchError::Unavailable(why)) => {
                results.skip(self.name(), &[("generator", json!("iperf3"))], &why);
            }
            Err(other) => return Err(other),
        }
        self.udp_by_sendmmsg(&topology, results)?;
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
        results.add(self.name(), &params, &fields);
        Ok(())
    }

    fn udp_by_iperf(
        &self,
        server: &iperf::Server<'_>,
        results: &mut Collector,
    ) -> Result<(), BenchError> {
        let cpu = cpu::busy()?;
        let udp = server.udp(self.slice, SMALL_DATAGRAM)?;
        let cpu = cpu::busy()? - cpu;
        self.add_udp(
            "iperf3",
            udp.delivered / udp.seconds,
            udp.offered / udp.seconds,
            cpu / udp.delivered,
            results,
        );
        Ok(())
    }

    fn udp_by_sendmmsg(
        &self,
        topology: &Topology,
        results: &mut Collector,
    ) -> Result<(), BenchError> {
        results.lasting(self.slice);
        let load = udp::Load {
            payload: SMALL_DATAGRAM,
            pace: None,
            warm_up: WARM_UP.min(self.slice),
            time: self.slice,
        };
        let udp = udp::run(topology, &load)?;
        self.add_udp(
            "sendmmsg",
            udp.delivered_pps,
            udp.offered_pps,
            udp.cpu_s / (udp.delivered_pps * udp.seconds),
            results,
        );
        Ok(())
    }

    fn add_udp(
        &self,
        generator: &str,
        delivered_pps: f64,
        offered_pps: f64,
        cpu_s_per_packet: f64,
        results: &mut Collector,
    ) {
        let params = [
            ("generator", json!(generator)),
            ("payload", json!(SMALL_DATAGRAM)),
        ];
        let fields = [
            ("udp_pps", delivered_pps),
            ("udp_offered_pps", offered_pps),
            ("cpu_s_per_mpkt", cpu_s_per_packet * 1e6),
        ];
        results.add(self.name(), &params, &fields);
    }

    fn ping(&self, topology: &Topology, results: &mut Collector) -> Result<(), BenchError> {
        let fit = (self.seconds / PING_INTERVAL.as_secs_f64()) as usize;
        let pings = ping::run(topology, PINGS.min(fit.max(20)), PING_INTERVAL)?;
        let us = &pings.round_trips_us;
        if us.is_empty() {
            return Err(BenchError::Measure(format!(
                "{}: no ping was answered",
                self.name()
            )));
        }
        let lost = ("ping_lost", pings.lost as f64);
        let fields = [ping_fields(us), vec![lost]].concat();
        let time = PINGS as u32 * PING_INTERVAL;
        results.lasting(time).add(self.name(), &[], &fields);
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
            ..Wiring::default()
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

    /// A little more than the rate is offered; what counts is what arrives, in bytes of frames.
    fn shaping(&self, results: &mut Collector) -> Result<(), BenchError> {
        let shapes = if self.seconds < SHORT {
            1
        } else {
            SHAPES.len()
        };
        for shape in &SHAPES[..shapes] {
            let params = [("qdisc", json!("tbf")), ("rate", json!(shape.rate))];
            if let Some(why) = self.switch.cannot_shape() {
                results.skip(self.name(), &params[..1], why);
                continue;
            }
            let (topology, _) = switches::open(
                self.switch,
                2,
                Wiring {
                    shape: Some(*shape),
                    ..Wiring::default()
                },
            )?;
            let frame_bits = ((FULL_DATAGRAM + HEADERS) * 8) as f64;
            let load = udp::Load {
                payload: FULL_DATAGRAM,
                pace: Some(OVERLOAD * shape.bits_per_second / frame_bits),
                warm_up: WARM_UP,
                time: SHAPE_TIME.min(Duration::from_secs_f64(self.seconds)),
            };
            let udp = udp::run(&topology, &load)?;
            let (measured, offered) =
                (udp.delivered_pps * frame_bits, udp.offered_pps * frame_bits);
            if offered < ENOUGH * shape.bits_per_second {
                let mbps = offered / 1e6;
                let why =
                    format!("the sender offered {mbps:.0} Mb/s, too little to measure the limit");
                results.skip(self.name(), &params, &why);
                continue;
            }
            let fields = [
                ("measured_mbps", measured / 1e6),
                ("offered_mbps", offered / 1e6),
                (
                    "error_percent",
                    (measured / shape.bits_per_second - 1.0) * 100.0,
                ),
            ];
            results
                .lasting(load.time)
                .add(self.name(), &params, &fields);
        }
        Ok(())
    }
}
