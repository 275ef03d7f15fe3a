//! Case `uplink`: a host without an interface of the system reaches a server there by user-mode
//! networking: passt behind Softnet, or pasta.

use std::time::Duration;

use serde_json::json;

use super::{WARM_UP, iperf};
use crate::cpu;
use crate::error::BenchError;
use crate::interleave;
use crate::options::Options;
use crate::report::Collector;
use crate::switches::{self, Passt, Pasta, Softnet, Switch};

/// Value of the parameter `case`.
pub(super) const NAME: &str = "uplink";

pub(super) fn switches() -> Vec<Box<dyn Switch>> {
    vec![Box::new(Passt(Softnet::default())), Box::new(Pasta)]
}

/// Measures the case and adds its rows.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let (rounds, slice) = options.program_turns();
    let slice = iperf::whole(slice);
    let params = [("case", json!(NAME))];
    let turn = move |switch: &dyn Switch, results: &mut Collector| turn(switch, slice, results);
    let turns = switches::turns(switches(), &params, results, turn);
    let rounds = rounds.of(&params, slice).in_turns_of(slice + WARM_UP);
    interleave::measure(options, rounds, turns, results)
}

fn turn(switch: &dyn Switch, slice: Duration, results: &mut Collector) -> Result<(), BenchError> {
    let topology = switches::open_uplink(switch)?;
    let server = iperf::Server::start(&topology)?;
    results.lasting(slice);
    let cpu = cpu::busy()?;
    let tcp = server.tcp(slice, None)?;
    let cpu = cpu::busy()? - cpu;
    let fields = [
        ("tcp_gbps", tcp.bits / tcp.seconds / 1e9),
        ("cpu_s_per_gbit", cpu / (tcp.bits / 1e9)),
    ];
    results.add(switch.name(), &[("case", json!(NAME))], &fields);
    drop(server);
    switches::close(topology)
}
