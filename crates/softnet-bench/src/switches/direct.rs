//! No switch: the two hosts have the ends of one veth. What is measured between them are the
//! traffic generators and the hosts' stacks.

use super::{Switch, Wiring};
use crate::error::BenchError;
use crate::hosts::Topology;

#[derive(Debug)]
pub(crate) struct Direct;

impl Switch for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn connect(&self, topology: &mut Topology, _: Wiring) -> Result<(), BenchError> {
        let [a, b] = [0, 1].map(|index| &topology.hosts[index]);
        a.netns.ip(&format!(
            "link add {} type veth peer name {} netns {}",
            a.interface,
            b.interface,
            b.netns.name()
        ))?;
        topology.configure_hosts()
    }
}
