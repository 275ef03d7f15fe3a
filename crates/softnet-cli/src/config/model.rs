//! A checked configuration.

use std::path::PathBuf;

use softnet_engine::{EngineConfig, Spec};
use softnet_io::{DeviceSpec, MetricsPlace, Scheduling};

use super::allow::Allow;
use super::error;
use super::expect::Expected;

/// A valid configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// The file's name, for messages.
    pub file: String,
    /// Worker threads.
    pub workers: usize,
    /// The CPU of each worker; none: wherever the system puts them.
    pub cpus: Vec<usize>,
    /// Scheduling class of the workers; `None`: the best that the system allows.
    pub scheduling: Option<Scheduling>,
    /// Packet buffers.
    pub buffers: usize,
    /// Settings of the engine.
    pub settings: EngineConfig,
    /// Where the daemon listens.
    pub control: ControlConfig,
    /// Ports, bridges and rate groups.
    pub links: Spec<DeviceSpec>,
    /// Where each port is named in the file.
    pub places: Vec<error::Place>,
    /// File in which the running state outlives the daemon.
    pub state: Option<PathBuf>,
    /// Things that ports added at run time may open of others.
    pub allow: Vec<Allow>,
    /// Place where metrics are to be had.
    pub metrics: Option<MetricsPlace>,
    /// Classes of a port that have metrics of their own.
    pub metrics_classes: usize,
    /// Bounds that `softnet sim` holds ports' policies against.
    pub expected: Vec<Expected>,
    /// Hash of the text, if it is of files.
    pub hash: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            file: String::new(),
            workers: 1,
            cpus: Vec::new(),
            scheduling: None,
            buffers: 65_536,
            settings: EngineConfig::default(),
            control: ControlConfig {
                socket: None,
                mode: 0o600,
                group: None,
                monitor: None,
                monitor_group: None,
            },
            links: Spec::default(),
            places: Vec::new(),
            state: None,
            allow: Vec::new(),
            metrics: None,
            metrics_classes: 10_000,
            expected: Vec::new(),
            hash: String::new(),
        }
    }
}

impl Config {
    /// The part that a reload does not change.
    pub(crate) fn of_engine(&self) -> Config {
        Config {
            links: Spec::default(),
            places: Vec::new(),
            allow: Vec::new(),
            expected: Vec::new(),
            hash: String::new(),
            ..self.clone()
        }
    }

    /// `2 ports, 1 bridge, 4 workers, 65536 buffers`.
    pub(crate) fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        [
            count(self.links.ports.len(), "port"),
            count(self.links.bridges.len(), "bridge"),
            count(self.workers, "worker"),
            count(self.buffers, "buffer"),
        ]
        .join(", ")
    }
}

/// Where the daemon listens for requests, and who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlConfig {
    /// The socket's path; the default one if none.
    pub socket: Option<PathBuf>,
    /// Mode of the socket.
    pub mode: u32,
    /// Group of the socket's file, by name or number, whose members may change things.
    pub group: Option<String>,
    /// A second socket, on which nothing can be changed.
    pub monitor: Option<PathBuf>,
    /// Group of the second socket, if it is not open to everybody.
    pub monitor_group: Option<String>,
}
