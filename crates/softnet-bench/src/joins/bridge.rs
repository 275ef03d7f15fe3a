//! The kernel's bridge over veth pairs.

use super::{Join, LATENCY, Shape, Wiring};
use crate::error::BenchError;
use crate::hosts::Site;

#[derive(Debug)]
pub(crate) struct KernelBridge;

impl Join for KernelBridge {
    fn name(&self) -> &'static str {
        "kernel-bridge"
    }

    fn join(&self, site: &mut Site, wiring: Wiring) -> Result<(), BenchError> {
        let switch = &site.switch;
        switch.ip("link add br0 type bridge")?;
        for host in &site.hosts {
            let (inside, netns, queues) = (&host.interface, host.netns.name(), wiring.queues);
            let outside = port(inside);
            let queues = format!("numtxqueues {queues} numrxqueues {queues}");
            switch.ip(&format!(
                "link add {outside} {queues} type veth peer name {inside} netns {netns} {queues}"
            ))?;
            switch.ip(&format!("link set {outside} master br0 up"))?;
        }
        switch.ip("link set br0 up")?;
        if let Some(Shape { rate, burst, .. }) = wiring.shape {
            let port = port(&site.hosts[1].interface);
            switch.tc(&format!(
                "qdisc add dev {port} root tbf rate {rate} burst {burst} latency {LATENCY}"
            ))?;
        }
        site.configure_hosts()
    }
}

/// The bridge's end of the pair whose other end is `interface`.
fn port(interface: &str) -> String {
    format!("p{interface}")
}
