//! Case `policy`: the same `tc` commands for Softnet's port and for that of the kernel's bridge:
//! how well a rate is kept, TCP through it, and pings beside that.
//!
//! A little more than the rate is offered in datagrams of 1,514 bytes with headers; what counts is
//! what arrives. A kernel without a kind of qdisc has no figure for it.

use std::time::Duration;

use serde_json::json;

use super::{WARM_UP, iperf, ping_row, udp};
use crate::cpu;
use crate::error::BenchError;
use crate::interleave;
use crate::options::{Options, SHORT};
use crate::process;
use crate::report::{Collector, Param};
use crate::switches::{self, KernelBridge, Softnet, Switch, Wiring};
use softnet_testbed::threads::joined;

/// Value of the parameter `case`.
pub(super) const NAME: &str = "policy";
/// Time for which a rate is measured in a turn, if there is that much time.
const TIME: Duration = Duration::from_millis(1500);
/// Load offered to measure how a rate is kept, as a part of the rate, and the least of it that
/// must be reached.
const OVERLOAD: f64 = 1.2;
const ENOUGH: f64 = 1.05;
/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Bytes of payload of a datagram that fills a frame of 1514 bytes.
const FULL_DATAGRAM: usize = 1514 - HEADERS;
const FRAME_BITS: f64 = 1514.0 * 8.0;

/// A policy towards host b.
#[derive(Debug, Clone, Copy)]
struct Policy {
    qdisc: &'static str,
    classes: u32,
    rate: &'static str,
    megabits: f64,
}

const fn policy(qdisc: &'static str, classes: u32, rate: &'static str, megabits: f64) -> Policy {
    Policy {
        qdisc,
        classes,
        rate,
        megabits,
    }
}

const POLICIES: [Policy; 6] = [
    policy("tbf", 0, "10mbit", 10.0),
    policy("tbf", 0, "100mbit", 100.0),
    policy("tbf", 0, "1gbit", 1000.0),
    policy("htb", 10, "100mbit", 100.0),
    policy("htb", 1000, "100mbit", 100.0),
    policy("fq_codel", 0, "100mbit", 100.0),
];

impl Policy {
    fn params(&self) -> Vec<Param> {
        let classes = (self.classes > 0).then(|| ("classes", json!(self.classes)));
        let first = [("case", json!(NAME)), ("qdisc", json!(self.qdisc))];
        let rate = [("rate", json!(self.rate))];
        first.into_iter().chain(classes).chain(rate).collect()
    }

    /// For `tc -batch`.
    fn commands(&self, dev: &str) -> String {
        let rate = self.rate;
        let tbf =
            format!("qdisc add dev {dev} root handle 1: tbf rate {rate} burst 64k latency 50ms\n");
        match self.qdisc {
            "tbf" => tbf,
            "fq_codel" => tbf + &format!("qdisc add dev {dev} parent 1:1 handle 2: fq_codel\n"),
            _ => {
                let mut text = format!(
                    "qdisc add dev {dev} root handle 1: htb default 2\n\
                     class add dev {dev} parent 1: classid 1:1 htb rate {rate} burst 64k\n"
                );
                for minor in 2..2 + self.classes {
                    text += &format!(
                        "class add dev {dev} parent 1:1 classid 1:{minor:x} htb rate 64kbit ceil \
                         {rate} quantum 1514\n"
                    );
                }
                text
            }
        }
    }

    fn turn(
        &self,
        switch: &dyn Switch,
        (time, slice): (Duration, Duration),
        results: &mut Collector,
    ) -> Result<(), BenchError> {
        let (topology, _) = switches::open(switch, 2, Wiring::default())?;
        let Some((mut tc, port)) = switch.tc(&topology) else {
            return Err(BenchError::Unavailable("it has no tc".into()));
        };
        let file = topology.directory.write("policy", &self.commands(&port))?;
        match process::output(tc.arg("-batch").arg(&file)) {
            Err(BenchError::Command { problem, .. }) if problem.contains("kind is unknown") => {
                let why = format!("this kernel has no {}", self.qdisc);
                return Err(BenchError::Unavailable(why));
            }
            other => other?,
        };
        let (params, name) = (self.params(), switch.name());
        let load = udp::Load {
            payload: FULL_DATAGRAM,
            pace: Some(OVERLOAD * self.megabits * 1e6 / FRAME_BITS),
            warm_up: WARM_UP,
            time,
        };
        let udp = udp::run(&topology, &load)?;
        let mbps = |pps: f64| pps * FRAME_BITS / 1e6;
        let (measured, offered) = (mbps(udp.delivered_pps), mbps(udp.offered_pps));
        if offered < ENOUGH * self.megabits {
            let why = format!("the sender offered {offered:.0} Mb/s, too little for the limit");
            results.skip(name, &params, &why);
        } else {
            let error = (measured / self.megabits - 1.0).abs() * 100.0;
            let fields = [
                ("measured_mbps", measured),
                ("offered_mbps", offered),
                ("rate_error_percent", error),
            ];
            results.lasting(time).add(name, &params, &fields);
        }
        let server = match iperf::Server::start(&topology) {
            // It was said of other rows.
            Err(BenchError::Unavailable(_)) => return topology.check_running(),
            server => server?,
        };
        let busy = cpu::busy()?;
        let (tcp, pings) = std::thread::scope(|scope| {
            let tcp = scope.spawn(|| server.tcp(slice, None));
            std::thread::sleep(slice / 4);
            let pings = ping_row(&topology, slice / 2);
            Ok::<_, BenchError>((joined(tcp)?, pings?))
        })?;
        let gigabits = tcp.bits / 1e9;
        let mut fields = vec![
            ("tcp_gbps", gigabits / tcp.seconds),
            ("cpu_s_per_gbit", (cpu::busy()? - busy) / gigabits.max(1e-9)),
        ];
        fields.extend(pings);
        results.lasting(slice).add(name, &params, &fields);
        topology.check_running()
    }
}

/// Measures the case and adds its rows.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let (rounds, slice) = options.program_turns();
    let slice = iperf::whole(slice);
    let time = TIME.min(Duration::from_secs_f64(options.seconds));
    let few = if options.seconds < SHORT {
        1
    } else {
        POLICIES.len()
    };
    for policy in POLICIES.into_iter().take(few) {
        let params = policy.params();
        if !only.allows(&params) {
            continue;
        }
        let turn = move |switch: &dyn Switch, results: &mut Collector| {
            policy.turn(switch, (time, slice), results)
        };
        let switches: Vec<Box<dyn Switch>> =
            vec![Box::new(Softnet::default()), Box::new(KernelBridge)];
        let turns = switches::turns(switches, &params, results, turn);
        let turn = time + slice + WARM_UP + Duration::from_secs(1);
        let rounds = rounds.clone().of(&params, time).in_turns_of(turn);
        interleave::measure(options, rounds, turns, results)?;
    }
    Ok(())
}
