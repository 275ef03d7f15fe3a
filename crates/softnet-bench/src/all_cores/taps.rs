//! Case `taps`: eight TCP connections (iperf3) between two TAP ports of two queues each. The port
//! that they leave by has an `htb` of one class with an `fq_codel`: 1 Gb/s, or a rate that is never
//! reached (`none`). `softnet` has an instance at each queue (`parallel = true`), `adopt` one for
//! both.
//!
//! `rate_error_percent` is the error of the rate, with the headers of frames of 1514 bytes put back
//! on what arrived; `fairness_percent` how far a connection is from the mean at most.

use std::rc::Rc;
use std::time::Duration;

use serde_json::json;

use super::shaped::apart;
use super::{ADOPT, QUEUES};
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::interleave::{self, Turn};
use crate::options::Options;
use crate::report::{Collector, OURS, Param};
use crate::switches::{self, Softnet, Switch, Wiring};
use crate::traffic::iperf;

/// Name of these rows for `--only case=`.
const CASE: &str = "taps";
const FLOWS: usize = 8;
/// Megabits per second, or a rate that is never reached.
const RATES: [Option<u32>; 2] = [Some(1000), None];
const NEVER: u32 = 100_000;
/// Frames of 1514 bytes carry so much of TCP's stream.
const FRAME: f64 = 1514.0;
const PAYLOAD: f64 = 1448.0;

/// The daemon, with an `htb` towards host b.
#[derive(Debug)]
struct Shaped<'a> {
    softnet: &'a Softnet,
    name: &'static str,
    rate: Option<u32>,
}

impl Shaped<'_> {
    /// The port's qdiscs, as the configuration has them.
    fn qdiscs(&self) -> String {
        let parallel = self.name == OURS;
        let rate = self.rate.unwrap_or(NEVER);
        // As much as passes in 10 ms, as in the other cases.
        let burst = u64::from(rate) * 1_000_000 / 8 / 100;
        format!(
            "parallel = {parallel}\n\
             [[port.qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\ndefault = \"0x1\"\n\
             [[port.class]]\nparent = \"1:\"\nclassid = \"1:1\"\nrate = \"{rate}mbit\"\n\
             burst = \"{burst}\"\ncburst = \"{burst}\"\n\
             [[port.qdisc]]\nparent = \"1:1\"\nhandle = \"2:\"\nkind = \"fq_codel\"\n"
        )
    }
}

impl Switch for Shaped<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        self.softnet.connect_with(topology, wiring, &self.qdiscs())
    }
}

fn params(rate: Option<u32>) -> Vec<Param> {
    let rate = rate.map_or_else(|| json!("none"), |rate| json!(rate));
    vec![
        ("case", json!(CASE)),
        ("queues", json!(QUEUES)),
        ("qdisc", json!("htb")),
        ("classes", json!(1)),
        ("leaf", json!("fq_codel")),
        ("flows", json!(FLOWS)),
        ("rate_mbps", rate),
    ]
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    if !options.threads.is_empty() {
        return Ok(());
    }
    let (rounds, slice) = options.program_turns();
    let slice = iperf::whole(slice);
    let softnet = Rc::new(Softnet::default());
    for rate in RATES {
        if !only.allows(&params(rate)) {
            continue;
        }
        let turn = |name| {
            let softnet = softnet.clone();
            let measure = move |results: &mut Collector| {
                softnet.prepare()?;
                let switch = Shaped {
                    softnet: &softnet,
                    name,
                    rate,
                };
                let wiring = Wiring { queues: QUEUES };
                let (topology, _) = switches::open(&switch, 2, wiring)?;
                let server = iperf::Server::start(&topology)?;
                let flows = server.tcp_flows(slice, FLOWS)?;
                let bits: f64 = flows.iter().sum();
                let bytes: Vec<u64> = flows.iter().map(|bits| (bits / 8.0) as u64).collect();
                let mut fields = vec![
                    ("tcp_gbps", bits / 1e9),
                    ("fairness_percent", apart(&bytes)),
                ];
                if let Some(rate) = rate {
                    let error = bits * FRAME / PAYLOAD / (f64::from(rate) * 1e6) - 1.0;
                    fields.push(("rate_error_percent", error.abs() * 100.0));
                }
                results.add(name, &params(rate), &fields);
                topology.check_running()
            };
            Turn::new(name, &params(rate), measure)
        };
        let rounds = rounds.clone().of(&params(rate), slice);
        let rounds = rounds.in_turns_of(slice + Duration::from_secs(2));
        interleave::measure(options, rounds, [OURS, ADOPT].map(turn).into(), results)?;
    }
    Ok(())
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    RATES.map(params).into()
}
