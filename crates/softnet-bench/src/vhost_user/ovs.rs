//! Open vSwitch in user space.

use std::path::PathBuf;

use super::BackEnd;
use crate::error::BenchError;
use crate::hosts::Directory;
use crate::peers::dpdk::Memory;
use crate::process::Process;
use crate::switches::ovs_vhost_user;

const MEGABYTES: usize = 1024;

/// The running switch, with one thread that polls.
#[derive(Debug)]
pub(super) struct Ovs {
    /// The switch and its database.
    daemons: [Process; 2],
    _memory: Memory,
}

impl Ovs {
    /// Starts it on `cpu`.
    pub(super) fn start(
        directory: &Directory,
        sockets: &[PathBuf],
        cpu: usize,
    ) -> Result<Ovs, BenchError> {
        let memory = Memory::new(MEGABYTES);
        let arguments = memory.arguments();
        Ok(Ovs {
            daemons: ovs_vhost_user(directory.path(), sockets, cpu, &arguments)?,
            _memory: memory,
        })
    }
}

impl BackEnd for Ovs {
    fn cpu_s(&self) -> Option<f64> {
        self.daemons[0].cpu_s().ok()
    }
}
