//! `dpdk-testpmd`, told what to do at its prompt: the guests (`net_virtio_user`), and DPDK's own
//! back end (`net_vhost`).

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::error::{BenchError, chain};
use crate::peers::dpdk::Memory;
use crate::peers::place::Place;
use crate::process::Dialogue;

const PROGRAM: &str = "dpdk-testpmd";
const PROMPT: &str = "testpmd> ";
/// Time that it may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Megabytes for all but packets, and bytes that a packet takes.
const BASE_MB: usize = 64;
const PACKET: usize = 2560;

/// Packets per second that a device has sent and received.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) received: f64,
    pub(super) sent: f64,
}

impl Rates {
    /// Rates of all devices together.
    pub(super) fn sum(devices: &[Rates]) -> Rates {
        devices.iter().fold(Rates::default(), |sum, one| Rates {
            received: sum.received + one.received,
            sent: sum.sent + one.sent,
        })
    }
}

/// The running program, all of whose threads are on one CPU. Ends with the value.
#[derive(Debug)]
pub(super) struct Testpmd {
    dialogue: Dialogue,
    _memory: Memory,
}

impl Testpmd {
    /// Starts it with these devices and `packets` in its pool.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] if it is not there or does not start even with a device that
    /// does nothing; any error if it does not start with these.
    pub(super) fn start(
        cpu: usize,
        devices: &[String],
        packets: usize,
        arguments: &[&str],
    ) -> Result<Testpmd, BenchError> {
        static WORKS: OnceLock<Result<(), String>> = OnceLock::new();
        let works = WORKS.get_or_init(|| {
            let nothing = ["net_null0".to_owned()];
            let tried = Testpmd::run(cpu, &nothing, 2048, &[]);
            tried.map(drop).map_err(|e| chain(&e))
        });
        works.clone().map_err(BenchError::Unavailable)?;
        Testpmd::run(cpu, devices, packets, arguments)
    }

    fn run(
        cpu: usize,
        devices: &[String],
        packets: usize,
        arguments: &[&str],
    ) -> Result<Testpmd, BenchError> {
        let place = Place::of_peers();
        let lacks = |what, package| BenchError::Unavailable(place.lacks(what, package));
        let program = place.find(PROGRAM).ok_or_else(|| lacks(PROGRAM, "dpdk"))?;
        // Its answers would wait in a buffer otherwise.
        let by_lines = place
            .find("stdbuf")
            .ok_or_else(|| lacks("stdbuf", "coreutils"))?;
        let memory = Memory::new(BASE_MB + ((packets * PACKET) >> 20));
        let mut command = place.command(&by_lines);
        command.arg("-oL").arg(program);
        command.arg(format!("--lcores=0@{cpu},1@{cpu}"));
        command.args(memory.arguments());
        // A front end can hand over few files.
        command.args(memory.as_one_file());
        command.args(devices.iter().map(|device| format!("--vdev={device}")));
        // It would wait 9 s for a front end.
        command.args(["--", "-i", "--disable-link-check", "--no-lsc-interrupt"]);
        command.arg(format!("--total-num-mbufs={packets}"));
        command.args(arguments);
        let mut dialogue = Dialogue::start(&mut command)?;
        dialogue.hear(PROMPT, PATIENCE)?;
        Ok(Testpmd {
            dialogue,
            _memory: memory,
        })
    }

    /// Enters a line; returns what it has to say to that.
    pub(super) fn ask(&mut self, line: &str) -> Result<String, BenchError> {
        self.dialogue.say(line)?;
        self.dialogue.hear(PROMPT, PATIENCE)
    }

    /// Rates of each device over `time`, by the program's own clock.
    pub(super) fn rates(&mut self, time: Duration) -> Result<Vec<Rates>, BenchError> {
        // It says what was done since it was asked before.
        self.ask("show port stats all")?;
        std::thread::sleep(time);
        let said = self.ask("show port stats all")?;
        let rates = rates(&said);
        if rates.is_empty() {
            return Err(BenchError::command(PROGRAM, format!("said `{said}`")));
        }
        Ok(rates)
    }
}

/// The rates in the statistics of all ports.
fn rates(said: &str) -> Vec<Rates> {
    let figures = |key: &str| {
        let lines = said
            .lines()
            .filter_map(|line| line.trim().strip_prefix(key));
        let first = |line: &str| line.split_whitespace().next()?.parse::<f64>().ok();
        lines.filter_map(first).collect::<Vec<_>>()
    };
    let (received, sent) = (figures("Rx-pps:"), figures("Tx-pps:"));
    let pairs = received.into_iter().zip(sent);
    pairs
        .map(|(received, sent)| Rates { received, sent })
        .collect()
}

/// The guest's end of the socket `path`, as the program's arguments have it.
pub(super) fn front_end(number: usize, path: &Path, options: &str) -> String {
    let path = Place::of_peers().inside(path);
    format!("net_virtio_user{number},path={},{options}", path.display())
}

/// DPDK's own end of it.
pub(super) fn back_end(number: usize, path: &Path) -> String {
    let path = Place::of_peers().inside(path);
    format!("net_vhost{number},iface={},queues=1", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_each_port() {
        let said = "\
  ######################## NIC statistics for port 0  ########################
  RX-packets: 8483552    RX-missed: 0          RX-bytes:  509013120
  TX-packets: 8486976    TX-errors: 0          TX-bytes:  509218560

  Throughput (since last show)
  Rx-pps:      2750442          Rx-bps:   1320212160
  Tx-pps:      2751357          Tx-bps:   1320651440
  Rx-pps:            7          Rx-bps:   0
  Tx-pps:            0          Tx-bps:   0
testpmd> ";
        let rates = rates(said);
        let [first, second] = &rates[..] else {
            panic!("{rates:?}");
        };
        assert_eq!((first.received, first.sent), (2_750_442.0, 2_751_357.0));
        assert_eq!((second.received, second.sent), (7.0, 0.0));
        let sum = Rates::sum(&rates);
        assert_eq!((sum.received, sum.sent), (2_750_449.0, 2_751_357.0));
    }
}
