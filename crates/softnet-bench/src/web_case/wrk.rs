//! wrk on host a: HTTP requests over so many connections, each of which waits for its answer
//! before it asks again.

use std::net::SocketAddrV4;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::on;
use crate::error::BenchError;
use crate::hosts::Topology;
use crate::process;
use crate::traffic::iperf::whole;

const CLIENT: usize = 0;
/// Files that wrk and the like may open.
const FILES: u64 = 16_384;

/// The result.
#[derive(Debug, PartialEq)]
pub(super) struct Web {
    pub(super) requests: f64,
    pub(super) requests_per_second: f64,
    /// Half of the answers came within this time, 99 % within that.
    pub(super) p50_ns: f64,
    pub(super) p99_ns: f64,
    /// Connections refused or lost, and answers that took more than 2 s.
    pub(super) errors: f64,
}

/// Asks for the page for `time`, which wrk takes in whole seconds.
pub(super) fn run(
    topology: &Topology,
    server: SocketAddrV4,
    connections: u32,
    time: Duration,
) -> Result<Web, BenchError> {
    allow_files();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let seconds = whole(time).as_secs();
    let mut command = on(topology, CLIENT, "wrk");
    command
        .arg(format!("-t{}", cpus.min(connections)))
        .arg(format!("-c{connections}"))
        .arg(format!("-d{seconds}s"))
        .args(["--latency", &format!("http://{server}/index.html")]);
    parse(&process::output(&mut command)?).map_err(|problem| BenchError::command("wrk", problem))
}

/// Children may open as many files as the system lets us.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        let raised = Rlimit {
            current: Some(limit.maximum.map_or(FILES, |maximum| maximum.min(FILES))),
            maximum: limit.maximum,
        };
        // If it is refused, wrk says that it has too few.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

fn parse(printed: &str) -> Result<Web, String> {
    let after = |what: &str| {
        let line = printed
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(what));
        line.map(str::trim)
    };
    if let Some(other) = after("Non-2xx or 3xx responses:") {
        return Err(format!("{other} answers were no success"));
    }
    let requests = printed
        .lines()
        .find_map(|line| line.trim_start().split_once(" requests in "))
        .and_then(|(count, _)| count.parse().ok());
    let errors = after("Socket errors:").map_or(0.0, |counts| {
        let words = counts.split([' ', ',']);
        words.filter_map(|word| word.parse::<f64>().ok()).sum()
    });
    let web = (|| {
        Some(Web {
            requests: requests?,
            requests_per_second: after("Requests/sec:")?.parse().ok()?,
            p50_ns: nanoseconds(after("50%")?)?,
            p99_ns: nanoseconds(after("99%")?)?,
            errors,
        })
    })();
    web.ok_or_else(|| format!("what it printed is not understood: {}", printed.trim()))
}

/// `635.00us`, `1.23ms`, `2.10s`, `1.50m`
fn nanoseconds(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let unit = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
Running 1s test @ http://10.99.0.2:8080/index.html
  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.10ms    1.04ms  12.99ms   76.48%
    Req/Sec    10.32k   744.64    11.48k    70.00%
  Latency Distribution
     50%  635.50us
     75%    3.59ms
     90%    4.34ms
     99%    1.25s 
  20544 requests in 1.00s, 24.04MB read
  Socket errors: connect 1, read 2, write 0, timeout 40
Requests/sec:  20513.93
Transfer/sec:     24.01MB
";

    #[test]
    fn a_report_of_wrk_is_read() {
        let web = Web {
            requests: 20_544.0,
            requests_per_second: 20_513.93,
            p50_ns: 635_500.0,
            p99_ns: 1.25e9,
            errors: 43.0,
        };
        assert_eq!(parse(PRINTED), Ok(web));
    }

    #[test]
    fn failures_and_nonsense_are_errors() {
        let failed = format!("{PRINTED}  Non-2xx or 3xx responses: 7\n");
        assert!(parse(&failed).is_err_and(|e| e.contains('7')));
        assert!(parse("unable to connect").is_err());
        let cut = PRINTED.replace("1.25s", "1.25h");
        assert!(parse(&cut).is_err());
    }
}
