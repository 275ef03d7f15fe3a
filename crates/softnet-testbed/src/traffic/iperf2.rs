//! iperf (version 2) on host a, with many parallel clients.
//!
//! Their traffic is counted by our sink on host b: iperf's own server may corrupt its heap when
//! many connections end at once.

use std::process::Stdio;
use std::time::Duration;

use super::sink;
use crate::error::TestbedError;
use crate::hosts::Topology;
use crate::process::{self, Process};

/// Running clients, stopped with the value.
#[derive(Debug)]
pub struct Clients {
    process: Process,
}

impl Clients {
    /// Starts `count` of them in one process; they send for at least `time`.
    pub fn start(
        topology: &Topology,
        count: usize,
        mss: u16,
        time: Duration,
    ) -> Result<Clients, TestbedError> {
        if process::find("iperf").is_none() {
            return Err(TestbedError::Unavailable(
                "`iperf` (version 2) is not installed (package iperf)".into(),
            ));
        }
        let server = sink::address(topology);
        let mut command = topology.a().command("iperf");
        command
            .args(["-c", &server.ip().to_string()])
            .args(["-p", &server.port().to_string()])
            .args(["-P", &count.to_string()])
            .args(["-M", &mss.to_string()])
            // They are stopped when they have been measured.
            .args(["-t", &(time.as_secs() + 10).to_string()])
            // It says that the segment size is not what it asked for: host b's route allows less
            // for the options.
            .stderr(Stdio::null());
        Ok(Clients {
            process: Process::start(&mut command)?,
        })
    }

    /// An error if they have ended before their time.
    pub fn check(&self) -> Result<(), TestbedError> {
        self.process.check_running()
    }
}
