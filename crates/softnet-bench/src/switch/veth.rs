//! Case `veth`: hosts behind veths, whose other ends the switch uses as it would a NIC.

use std::time::Duration;

use serde_json::json;

use super::{SMALL_DATAGRAM, SMALL_MSS, WARM_UP, iperf, udp};
use crate::cpu;
use crate::error::BenchError;
use crate::interleave;
use crate::options::Options;
use crate::report::{Collector, OURS, Param};
use crate::switches::{
    self, KernelBridge, OpenVswitch, Softnet, Switch, VethLoop, VethOpenVswitch, VethSoftnet,
    VethTestpmd, Wiring,
};

/// Value of the parameter `case`.
pub(super) const NAME: &str = "veth";

pub(super) fn switches() -> Vec<Box<dyn Switch>> {
    vec![
        Box::new(VethSoftnet {
            name: OURS,
            driver: "af_packet",
            daemon: Softnet::default(),
        }),
        Box::new(VethSoftnet {
            name: "af-xdp",
            driver: "af_xdp",
            daemon: Softnet::default(),
        }),
        Box::new(VethTestpmd::default()),
        Box::new(VethLoop),
        Box::new(KernelBridge),
        Box::new(VethOpenVswitch(OpenVswitch::Stock)),
        Box::new(VethOpenVswitch(OpenVswitch::SegmentationOffload)),
    ]
}

/// Measures the case and adds its rows.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let (rounds, slice) = options.program_turns();
    let slice = iperf::whole(slice);
    let params = [("case", json!(NAME))];
    let turn = move |switch: &dyn Switch, results: &mut Collector| turn(switch, slice, results);
    let turns = switches::turns(switches(), &params, results, turn);
    // TCP twice and datagrams.
    let turn = (slice + WARM_UP) * 3 + Duration::from_secs(1);
    let rounds = rounds.of(&params, slice).of_several().in_turns_of(turn);
    interleave::measure(options, rounds, turns, results)
}

fn turn(switch: &dyn Switch, slice: Duration, results: &mut Collector) -> Result<(), BenchError> {
    let (topology, _) = switches::open(switch, 2, Wiring::default())?;
    let server = iperf::Server::start(&topology)?;
    let case = ("case", json!(NAME));
    for mss in [None, Some(SMALL_MSS)] {
        results.lasting(slice);
        let cpu = cpu::busy()?;
        let tcp = server.tcp(slice, mss)?;
        let cpu = cpu::busy()? - cpu;
        let mss = mss.map(|mss| ("mss", json!(mss)));
        let params: Vec<Param> = [case.clone()].into_iter().chain(mss).collect();
        let fields = [
            ("tcp_gbps", tcp.bits / tcp.seconds / 1e9),
            ("cpu_s_per_gbit", cpu / (tcp.bits / 1e9)),
        ];
        results.add(switch.name(), &params, &fields);
    }
    results.lasting(slice);
    let load = udp::Load {
        payload: SMALL_DATAGRAM,
        pace: None,
        warm_up: WARM_UP.min(slice),
        time: slice,
    };
    let udp = udp::run(&topology, &load)?;
    let fields = [
        ("udp_pps", udp.delivered_pps),
        ("udp_offered_pps", udp.offered_pps),
        (
            "cpu_s_per_mpkt",
            udp.cpu_s / (udp.delivered_pps * udp.seconds) * 1e6,
        ),
    ];
    results.add(
        switch.name(),
        &[case, ("payload", json!(SMALL_DATAGRAM))],
        &fields,
    );
    drop(server);
    switches::close(topology)
}
