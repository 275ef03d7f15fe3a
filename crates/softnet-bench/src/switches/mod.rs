//! Switches that connect hosts: Softnet, the kernel's bridge, Open vSwitch.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::hosts::{Topology, bridge_port};
use crate::interleave::Turn;
use crate::ping;
use crate::report::{Collector, Param};

mod bridge;
mod embedded;
mod ovs;
mod softnet;
mod testpmd;
mod threads;
mod uplink;
mod veth;

pub(crate) use bridge::{GROUP as KERNEL_GROUP, KernelBridge};
pub(crate) use embedded::{EmbeddedSoftnet, buffers};
pub(crate) use ovs::{OpenVswitch, vhost_user as ovs_vhost_user};
pub(crate) use softnet::Softnet;
pub(crate) use testpmd::VethTestpmd;
pub(crate) use threads::PortThreads;
pub(crate) use uplink::{Passt, Pasta, open as open_uplink};
pub(crate) use veth::{VethLoop, VethOpenVswitch, VethSoftnet};

/// The settings of the ports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wiring {
    /// Queues of each port each way, where the variant can have several.
    pub(crate) queues: usize,
}

impl Default for Wiring {
    /// One queue.
    fn default() -> Wiring {
        Wiring { queues: 1 }
    }
}

/// A switch between hosts.
pub(crate) trait Switch {
    /// As in the report.
    fn name(&self) -> &'static str;

    /// Preparations that are made once and are not part of connecting.
    fn prepare(&self) -> Result<(), BenchError> {
        Ok(())
    }

    /// Settings that are not its defaults.
    fn setting(&self) -> Option<&'static str> {
        None
    }

    /// `tc`, and the device by which it knows the port to host b, if there is one.
    fn tc(&self, _: &Topology) -> Option<(Command, String)> {
        None
    }

    /// Connects the hosts. Interfaces, addresses and packets may take a moment more.
    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError>;
}

/// A turn of each switch, which `measure` is given once it is prepared. Rows say which settings are
/// not its defaults.
pub(crate) fn turns(
    switches: Vec<Box<dyn Switch>>,
    params: &[Param],
    results: &mut Collector,
    measure: impl Fn(&dyn Switch, &mut Collector) -> Result<(), BenchError> + Clone + 'static,
) -> Vec<Turn> {
    let turn = |switch: Box<dyn Switch>| {
        if let Some(setting) = switch.setting() {
            results.note(switch.name(), "setting", setting);
        }
        let measure = measure.clone();
        Turn {
            name: switch.name(),
            params: params.to_vec(),
            measure: Box::new(move |results| {
                switch.prepare()?;
                measure(&*switch, results)
            }),
        }
    };
    switches.into_iter().map(turn).collect()
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

/// Ends a topology of which no part may have ended before.
pub(crate) fn close(mut topology: Topology) -> Result<(), BenchError> {
    topology.check_running()?;
    topology
        .engine
        .take()
        .map_or(Ok(()), |engine| engine.stop())
}
