//! Switches that connect hosts: Softnet, the kernel's bridge, Open vSwitch.

use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::ping;
use crate::report::Collector;

mod bridge;
mod embedded;
#[allow(unsafe_code, reason = "an ioctl without a safe wrapper")]
mod gro;
mod ovs;
mod softnet;
mod threads;

pub(crate) use bridge::{GROUP as KERNEL_GROUP, KernelBridge, port as bridge_port};
pub(crate) use embedded::{EmbeddedSoftnet, buffers, failed};
pub(crate) use ovs::{OpenVswitch, set_sleep as set_ovs_sleep, vhost_user as ovs_vhost_user};
pub(crate) use softnet::Softnet;
pub(crate) use threads::PortThreads;

/// A token bucket towards host b; options are in `tc`'s words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) rate: &'static str,
    pub(crate) bits_per_second: f64,
    pub(crate) burst: &'static str,
}

/// Time that a packet may wait for tokens.
pub(crate) const LATENCY: &str = "50ms";

/// The settings of the ports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wiring {
    pub(crate) shape: Option<Shape>,
    /// Queues of each port each way, where the variant can have several.
    pub(crate) queues: usize,
}

impl Default for Wiring {
    /// One queue, unshaped.
    fn default() -> Wiring {
        Wiring {
            shape: None,
            queues: 1,
        }
    }
}

/// A switch between hosts.
pub(crate) trait Switch {
    /// As in the report.
    fn name(&self) -> &'static str;

    /// Preparations that are made once and are not part of connecting.
    fn prepare(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    /// Settings that are not its defaults.
    fn setting(&self) -> Option<&'static str> {
        None
    }

    /// Lets the rows say so.
    fn note_setting(&self, results: &mut Collector) {
        if let Some(setting) = self.setting() {
            results.note(self.name(), "setting", setting);
        }
    }

    /// Why there is no figure for shaping, if so.
    fn cannot_shape(&self) -> Option<&'static str> {
        None
    }

    /// Connects the hosts. Interfaces, addresses and packets may take a moment more.
    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError>;
}

/// The variants that were asked for: all if `names` is empty. Names of none of them are passed
/// over: they may be those of another part of the experiment, which checks them.
pub(crate) fn choose(
    mut switches: Vec<Box<dyn Switch>>,
    names: &[String],
) -> Vec<Box<dyn Switch>> {
    switches.retain(|switch| names.is_empty() || names.iter().any(|name| name == switch.name()));
    switches
}

/// The names of the variants.
pub(crate) fn names(switches: &[Box<dyn Switch>]) -> Vec<&'static str> {
    switches.iter().map(|switch| switch.name()).collect()
}

/// A topology whose hosts reach each other, and the time that took once the namespaces were there:
/// from the start of the first program to the first ping answered.
pub(crate) fn open(
    switch: &dyn Switch,
    hosts: usize,
    wiring: Wiring,
) -> Result<(Topology, Duration), BenchError> {
    let mut topology = Topology::of(hosts)?;
    let start = Instant::now();
    switch.connect(&mut topology, wiring)?;
    ping::wait_for_path(&topology)?;
    Ok((topology, start.elapsed()))
}
