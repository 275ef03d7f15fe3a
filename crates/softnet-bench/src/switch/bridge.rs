//! The kernel's bridge over veth pairs.

use super::{Join, LATENCY, Shape};
use crate::error::BenchError;
use crate::hosts::Site;

#[derive(Debug)]
pub(super) struct KernelBridge;

impl Join for KernelBridge {
    fn name(&self) -> &'static str {
        "kernel-bridge"
    }

    fn cannot_shape(&self) -> Option<&'static str> {
        None
    }

    fn join(&self, site: &mut Site, shape: Option<Shape>) -> Result<(), BenchError> {
        let switch = &site.switch;
        switch.ip("link add br0 type bridge")?;
        for (host, inside, outside) in [(&site.a, "a0", "pa"), (&site.b, "b0", "pb")] {
            switch.ip(&format!(
                "link add {outside} type veth peer name {inside} netns {}",
                host.name()
            ))?;
            switch.ip(&format!("link set {outside} master br0 up"))?;
        }
        switch.ip("link set br0 up")?;
        if let Some(Shape { rate, burst, .. }) = shape {
            switch.tc(&format!(
                "qdisc add dev pb root tbf rate {rate} burst {burst} latency {LATENCY}"
            ))?;
        }
        site.configure_hosts()
    }
}
