//! Case `busy-host`: the switch on a machine whose programs want all of its CPUs.
//!
//! `load=tcp`: pings beside one TCP stream. `load=burners`: pings, TCP and small datagrams beside
//! three programs that use all the CPU they get. `load=flood`: CPU that one such program gets
//! beside a flood of small datagrams.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use softnet_testbed::threads::joined;

use super::{PING_INTERVAL as INTERVAL, SMALL_DATAGRAM, SMALL_MSS, WARM_UP, flat_out, iperf, udp};
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave;
use crate::options::Options;
use crate::process::Process;
use crate::report::{Collector, Param};
use crate::switches::{self, KernelBridge, OpenVswitch, Softnet, Switch, Wiring};

/// Value of the parameter `case`.
pub(super) const NAME: &str = "busy-host";
/// Programs that burn CPU: more than there are CPUs.
const BURNERS: usize = 3;
/// As many as a 99 % needs, and some that may be lost.
const PINGS: u32 = 1100;

pub(super) fn switches() -> Vec<Box<dyn Switch>> {
    vec![
        Box::new(Softnet::default()),
        Box::new(Softnet::scheduled("softnet-nice", "nice")),
        Box::new(Softnet::scheduled("softnet-realtime", "realtime")),
        Box::new(OpenVswitch::Stock),
        Box::new(OpenVswitch::SegmentationOffload),
        Box::new(KernelBridge),
    ]
}

/// Measures the case and adds its rows.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let (rounds, slice) = options.program_turns();
    let slice = iperf::whole(slice);
    let params = [("case", json!(NAME))];
    let turn =
        move |switch: &dyn Switch, results: &mut Collector| Run { switch, slice }.turn(results);
    let turns = switches::turns(switches(), &params, results, turn);
    // TCP three times, datagrams twice, and pings.
    let turn = (slice + WARM_UP) * 5 + slice.max(PINGS * INTERVAL) + Duration::from_secs(1);
    let rounds = rounds.of(&params, slice).of_several().in_turns_of(turn);
    interleave::measure(options, rounds, turns, results)
}

struct Run<'a> {
    switch: &'a dyn Switch,
    slice: Duration,
}

impl Run<'_> {
    fn turn(&self, results: &mut Collector) -> Result<(), BenchError> {
        let (topology, _) = switches::open(self.switch, 2, Wiring::default())?;
        let server = iperf::Server::start(&topology)?;
        let slice = self.slice;
        let pings = std::thread::scope(|scope| {
            let tcp = scope.spawn(|| server.tcp(slice, None));
            std::thread::sleep(WARM_UP.min(slice / 4));
            let pings = self.ping(&topology, slice / 2);
            joined(tcp)?;
            pings
        })?;
        self.add("tcp", &[], &pings, results);
        self.flood(&topology, results)?;
        let burners: Vec<_> = (0..BURNERS).map(|_| burner()).collect::<Result<_, _>>()?;
        let time = self.slice.max(PINGS * INTERVAL);
        let pings = self.ping(&topology, time)?;
        self.add("burners", &[], &pings, results.lasting(time));
        results.lasting(self.slice);
        for mss in [None, Some(SMALL_MSS)] {
            let tcp = server.tcp(self.slice, mss)?;
            let params: Vec<Param> = mss.map(|mss| ("mss", json!(mss))).into_iter().collect();
            let gbps = tcp.bits / tcp.seconds / 1e9;
            self.add("burners", &params, &[("tcp_gbps", gbps)], results);
        }
        let udp = self.small_datagrams(&topology)?;
        let params = [("payload", json!(SMALL_DATAGRAM))];
        let fields = [("udp_pps", udp.delivered_pps)];
        self.add("burners", &params, &fields, results);
        drop(burners);
        topology.check_running()
    }

    fn add(
        &self,
        load: &str,
        params: &[Param],
        fields: &[(&'static str, f64)],
        results: &mut Collector,
    ) {
        let mut all = vec![("case", json!(NAME)), ("load", json!(load))];
        all.extend_from_slice(params);
        results.add(self.switch.name(), &all, fields);
    }

    fn ping(
        &self,
        topology: &Topology,
        time: Duration,
    ) -> Result<Vec<(&'static str, f64)>, BenchError> {
        super::ping_row(topology, time)
    }

    fn small_datagrams(&self, topology: &Topology) -> Result<udp::Measured, BenchError> {
        udp::run(topology, &flat_out(self.slice))
    }

    fn flood(&self, topology: &Topology, results: &mut Collector) -> Result<(), BenchError> {
        let burner = burner()?;
        let before = burner.cpu_s()?;
        let start = std::time::Instant::now();
        let udp = self.small_datagrams(topology)?;
        let seconds = start.elapsed().as_secs_f64();
        let share = (burner.cpu_s()? - before) / seconds;
        let fields = [("burner_share", share), ("udp_pps", udp.delivered_pps)];
        self.add("flood", &[], &fields, results);
        Ok(())
    }
}

/// A program that uses all the CPU it gets.
fn burner() -> Result<Process, BenchError> {
    Process::start(Command::new("sh").args(["-c", "while :; do :; done"]))
}
