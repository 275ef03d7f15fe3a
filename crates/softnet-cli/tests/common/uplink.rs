//! passt, and a system that has its guests be as itself.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::{Daemon, NamedNetns, softnet, text, wait_for};

/// A namespace with an address, 10.55.0.2, and a router, 10.55.0.1, which nobody looks for.
pub(crate) fn passt_system(tag: &str) -> NamedNetns {
    let system = NamedNetns::new(tag);
    system.ip(&["link", "set", "lo", "up"]);
    system.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
    system.ip(&["address", "add", "10.55.0.2/24", "dev", "v0"]);
    system.ip(&["link", "set", "v0", "up"]);
    system.ip(&["link", "set", "v1", "up"]);
    system.ip(&["route", "add", "default", "via", "10.55.0.1"]);
    system
}

/// The program, to be run in a namespace.
pub(crate) fn softnet_at(system: &NamedNetns) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &system.name]);
    command.arg(softnet().get_program());
    command
}

/// The number of a passt that runs in a namespace.
pub(crate) fn passt(system: &NamedNetns) -> Option<Pid> {
    let mut command = Command::new("ip");
    let output = command
        .args(["netns", "pids", &system.name])
        .output()
        .ok()?;
    let pids = text(&output.stdout);
    let is_passt = |pid: &&str| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("passt"))
    };
    let pid = pids.split_whitespace().find(is_passt)?;
    Pid::from_raw(pid.parse().ok()?)
}

/// Kills passt until its port says so.
pub(crate) fn kill_passt(system: &NamedNetns, daemon: &Daemon) {
    wait_for("the reason", || {
        // It is told until the next one is started: each time later.
        if let Some(pid) = passt(system) {
            // It may end just now.
            let _ = kill_process(pid, Signal::KILL);
        }
        daemon.say("stats --json").contains("passt: signal: 9")
    });
}
