//! `softnet dump-config` and `softnet reload` against a running daemon.

#[path = "../common/mod.rs"]
mod common;

mod bridge;
mod dump;
mod file;
mod life;
mod ports;
mod rates;
mod run_time;
mod state;

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    Daemon, NamedNetns, PATIENCE, Scratch, has_program, may_make_networks, softnet, text,
    two_ports, wait_for,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use softnet_io::Links;

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().expect(key)
}

fn port<'a>(stats: &'a Value, name: &str) -> Option<&'a Value> {
    stats["ports"]
        .as_array()?
        .iter()
        .find(|port| port["name"] == name)
}

const TREE: &str = r#"
[engine]
workers = 1
buffers = 256
[[port]]
name = "a"
driver = "null"
queues = 2
alias = "with \"quotes\""
txqueuelen = 50
[[port.qdisc]]
handle = "1:"
kind = "htb"
default = "20"
[[port.class]]
classid = "1:10"
rate = "10mbit"
estimator = { interval = "1s", average = "8s" }
[[port.class]]
classid = "1:20"
rate = "5mbit"
ceil = "10mbit"
[[port.qdisc]]
parent = "1:20"
handle = "20:"
kind = "fq_codel"
[[port.filter]]
prio = 3
ip_proto = "udp"
flowid = "1:10"
[[port]]
name = "b"
driver = "null"
up = false
qdisc = { kind = "pfifo", limit = 7 }
[[bridge]]
name = "br0"
group = 5
ports = ["a", "b"]
"#;

fn display(path: &Path) -> String {
    path.display().to_string()
}

const PLAIN: &str = "[engine]\nworkers = 1\nbuffers = 256\n\
    [[port]]\nname = \"a\"\ndriver = \"null\"\n\
    [[port]]\nname = \"b\"\ndriver = \"null\"\n\
    [[bridge]]\nname = \"br0\"\nports = [\"a\", \"b\"]\n";

/// Gives a port of a bridge what only `bridge` can: options, VLANs, a station.
fn isolate(daemon: &Daemon, port: &str) {
    daemon.run("ip link set dev br0 type bridge vlan_filtering 1");
    for command in [
        "link set dev PORT learning off flood off",
        "vlan del dev PORT vid 1",
        "vlan add dev PORT vid 20 pvid untagged",
        "vlan add dev PORT vid 30-40",
        "fdb add 02:00:00:00:00:07 dev PORT master static vlan 20",
        "fdb add 02:00:00:00:00:08 dev PORT master static sticky vlan 30",
    ] {
        daemon.run(&format!("bridge {}", command.replace("PORT", port)));
    }
}
