//! iperf3: a server on host b, a client on host a.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::TestbedError;
use crate::hosts::{ADDRESS_B, Topology};
use crate::process::{self, Process};

/// Time that the server gets to listen.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts at a test whose result got lost: a flood of datagrams may drown the connection that
/// brings it.
const ATTEMPTS: usize = 3;

/// The whole seconds that a program gets which takes no others.
pub fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs_f64().round().max(1.0) as u64)
}

/// The server, running.
#[derive(Debug)]
pub struct Server<'a> {
    topology: &'a Topology,
    process: Process,
}

/// The result of a TCP test.
#[derive(Debug)]
pub struct Tcp {
    /// Received, in the time.
    pub bits: f64,
    /// Seconds that the test took.
    pub seconds: f64,
    /// Segments sent again.
    pub retransmits: f64,
}

impl<'a> Server<'a> {
    /// Starts it.
    pub fn start(topology: &'a Topology) -> Result<Server<'a>, TestbedError> {
        if process::find("iperf3").is_none() {
            return Err(TestbedError::Unavailable(
                "`iperf3` is not installed".into(),
            ));
        }
        // It tells on stderr that it was stopped, and what went wrong to the client as well.
        let process = Process::start(
            topology
                .b()
                .command("iperf3")
                .arg("-s")
                .stderr(Stdio::null()),
        )?;
        Ok(Server { topology, process })
    }

    /// TCP from a to b.
    pub fn tcp(&self, time: Duration, mss: Option<u16>) -> Result<Tcp, TestbedError> {
        let mss = mss.map(|mss| ["-M".to_owned(), mss.to_string()]);
        tcp(&self.client(time, mss.iter().flatten())?)
    }

    /// TCP from a to b, at most so many bits per second.
    pub fn tcp_at(&self, time: Duration, bits: u64) -> Result<Tcp, TestbedError> {
        tcp(&self.client(time, ["-b", &bits.to_string()])?)
    }

    /// TCP from a to b over so many connections: bits per second of each, from the second second
    /// on.
    pub fn tcp_flows(&self, time: Duration, flows: usize) -> Result<Vec<f64>, TestbedError> {
        let end = self.client(time, ["-O", "1", "-P", &flows.to_string()])?;
        let bits = |flow| number(&end, &format!("/streams/{flow}/receiver/bits_per_second"));
        (0..flows).map(bits).collect()
    }

    /// Runs a client; the `end` object of its report.
    fn client(
        &self,
        time: Duration,
        arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
    ) -> Result<Value, TestbedError> {
        let seconds = whole(time).as_secs().to_string();
        let mut command = self.topology.a().command("iperf3");
        command.args(["-J", "-c", &ADDRESS_B.to_string(), "-t", &seconds]);
        command.args(arguments);
        let mut problem = String::new();
        for _ in 0..ATTEMPTS {
            let printed = self.retry(&mut command)?;
            let report: Value = serde_json::from_str(&printed).map_err(|e| {
                TestbedError::command("iperf3 -J", format!("its report is not JSON: {e}"))
            })?;
            match (report.get("end"), report.get("error")) {
                (Some(end), None)
                    if end.get("sum").or_else(|| end.get("sum_received")).is_some() =>
                {
                    return Ok(end.clone());
                }
                (_, error) => problem = format!("it reported no result: {error:?}"),
            }
        }
        Err(TestbedError::command("iperf3 -J", problem))
    }

    /// The server needs a moment until it listens, and after each test.
    fn retry(&self, command: &mut Command) -> Result<String, TestbedError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let result = process::output(command);
            match &result {
                Err(TestbedError::Command { problem, .. })
                    if Instant::now() < deadline
                        && (problem.contains("refused") || problem.contains("busy")) =>
                {
                    self.process.check_running()?;
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => return result,
            }
        }
    }
}

fn tcp(end: &Value) -> Result<Tcp, TestbedError> {
    Ok(Tcp {
        bits: 8.0 * number(end, "/sum_received/bytes")?,
        seconds: number(end, "/sum_received/seconds")?,
        retransmits: number(end, "/sum_sent/retransmits")?,
    })
}

fn number(end: &Value, pointer: &str) -> Result<f64, TestbedError> {
    end.pointer(pointer).and_then(Value::as_f64).ok_or_else(|| {
        TestbedError::command(
            "iperf3 -J",
            format!("its report has no number at end{pointer}"),
        )
    })
}
