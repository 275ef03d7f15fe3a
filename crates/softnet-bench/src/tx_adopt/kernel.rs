//! Peer `kernel`: UDP sockets that send through one veth device with a root qdisc of the kernel's,
//! by `sendmmsg`. The datagrams are addressed to a station that is not there, so that the far end
//! drops them at once.
//!
//! The call goes through the whole sending stack, so its figures stand beside the others', not
//! against them.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use softnet::stats::Counts;
use softnet_testbed::mmsg::{Batch, set_priority};
use softnet_testbed::threads::joined;

use super::load::{Outcome, Plan, cpu};
use super::ticks::Ticks;
use crate::error::BenchError;
use crate::files;
use crate::hosts::Topology;
use crate::htb_tree::priority;

/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
const TARGET: &str = "10.9.0.2:9";
const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const STOP: u8 = 2;

/// Two namespaces joined by a veth pair.
#[derive(Debug)]
pub(crate) struct Veth {
    topology: Topology,
    ticks: Ticks,
}

impl Veth {
    /// Makes them, with `commands` for `tc` carried out.
    pub(crate) fn new(commands: &[String], ticks: Ticks) -> Result<Veth, BenchError> {
        let topology = Topology::new()?;
        let (a, b) = (topology.a(), topology.b());
        a.ip("link add a0 type veth peer name b0")?;
        a.ip(&format!("link set b0 netns {}", b.name()))?;
        a.ip("address add 10.9.0.1/24 dev a0")?;
        a.ip("link set a0 txqueuelen 1000 up")?;
        b.ip("link set b0 up")?;
        a.ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:99 dev a0")?;
        let commands = commands.join("\n") + "\n";
        let file = topology.directory.write("tc", &commands)?;
        // A kernel without the qdisc says so here.
        a.tc(&format!("-batch {}", file.display()))
            .map_err(|e| BenchError::Unavailable(e.to_string()))?;
        Ok(Veth { topology, ticks })
    }

    /// Packets that the device has sent, and has dropped.
    fn counters(&self) -> Result<(u64, u64), BenchError> {
        self.topology.a().run(|| {
            let path = "/proc/thread-self/net/dev";
            let text = files::read(path)?;
            transmitted(&text, "a0")
                .ok_or_else(|| BenchError::Measure(format!("{path} has no line for a0")))
        })
    }

    /// Sends.
    pub(crate) fn measure(&self, plan: &Plan) -> Result<Outcome, BenchError> {
        // Of each thread one, or one for each of its classes.
        let mut sockets: Vec<Vec<UdpSocket>> = Vec::new();
        sockets.resize_with(plan.threads, Vec::new);
        for number in 0..plan.threads.max(plan.classes.into()) {
            let socket = self.topology.a().run(|| {
                let failed = |e| BenchError::io("opening a UDP socket", e);
                let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed)?;
                socket.connect(TARGET).map_err(failed)?;
                if plan.classes > 0 {
                    let class = priority(number as u16 % plan.classes);
                    set_priority(&socket, class).map_err(failed)?;
                }
                Ok(socket)
            })?;
            sockets[number % plan.threads].push(socket);
        }
        let phase = AtomicU8::new(WARMING);
        std::thread::scope(|scope| {
            let phase = &phase;
            let senders: Vec<_> = sockets
                .into_iter()
                .map(|sockets| scope.spawn(move || self.send(&sockets, plan, phase)))
                .collect();
            std::thread::sleep((plan.time / 8).max(Duration::from_millis(20)));
            let before = self.counters();
            let (start, used) = (Instant::now(), cpu());
            phase.store(MEASURING, Ordering::Relaxed);
            std::thread::sleep(plan.time);
            let after = self.counters();
            let (time, used) = (start.elapsed(), cpu().saturating_sub(used));
            phase.store(STOP, Ordering::Relaxed);
            let mut call = Counts::default();
            let mut dropped = 0;
            for sender in senders {
                let (histogram, refused) = joined(sender)?;
                call.merge(&histogram);
                dropped += refused;
            }
            let (before, after) = (before?, after?);
            Ok(Outcome {
                delivered: after.0 - before.0,
                drops: after.1 - before.1 + dropped,
                time,
                cpu: used,
                waited: None,
                call,
                sojourn: None,
            })
        })
    }

    /// One sender: the times of its calls, and datagrams that were refused while that was
    /// measured.
    fn send(
        &self,
        sockets: &[UdpSocket],
        plan: &Plan,
        phase: &AtomicU8,
    ) -> Result<(Counts<4>, u64), BenchError> {
        let bulk = plan.bulk;
        let mut batch = Batch::new(plan.frame - HEADERS);
        let mut histogram = Counts::default();
        let mut refused = 0;
        for socket in sockets.iter().cycle() {
            let phase = phase.load(Ordering::Relaxed);
            if phase == STOP {
                break;
            }
            let start = self.ticks.nanos();
            let sent = match batch.send(socket, bulk) {
                Ok(sent) => sent,
                // The qdisc dropped the first one.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => 0,
                Err(e) => return Err(BenchError::io("sending a datagram", e)),
            };
            if phase == MEASURING {
                histogram.record(self.ticks.nanos() - start);
                // The one at which the call ended; those behind it were not tried.
                refused += u64::from(sent < bulk);
            }
        }
        Ok((histogram, refused))
    }
}

/// `/proc/net/dev`: packets sent and dropped on egress by `device`.
fn transmitted(text: &str, device: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| {
        line.trim_start()
            .strip_prefix(device)
            .and_then(|rest| rest.strip_prefix(':'))
    })?;
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    Some((*numbers.get(9)?, *numbers.get(11)?))
}

#[cfg(test)]
mod tests {
    use super::super::path::FRAME;
    use super::*;
    use crate::qdiscs::in_kernel;

    #[test]
    fn counters_are_read_from_the_device_s_line() {
        let text = "Inter-| Receive\n face |bytes\n   lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n   \
                    a0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(transmitted(text, "a0"), Some((10, 12)));
        assert_eq!(transmitted(text, "b0"), None);
    }

    #[test]
    fn the_kernel_sends_through_each_qdiscs() {
        for name in ["pfifo_fast", "tbf", "htb"] {
            let plan = Plan {
                threads: 2,
                bulk: 1,
                offered: None,
                frame: FRAME,
                classes: 0,
                time: Duration::from_millis(20),
            };
            let outcome =
                Veth::new(&in_kernel(name, 0), Ticks::new()).and_then(|veth| veth.measure(&plan));
            match outcome {
                Ok(outcome) => assert!(outcome.delivered > 0, "{name}"),
                Err(BenchError::Unavailable(why)) => {
                    softnet_tests::skip(&format!("{name}: {why}"));
                }
                Err(other) => panic!("{name}: {other}"),
            }
        }
    }
}
