//! The unmodified `ip` and `bridge` on Softnet's links, beside the same commands on the kernel's.

use std::process::{Command, Output};

use crate::common::{
    Daemon, NamedNetns, Running, Scratch, has_program, may_make_networks, softnet, text, wait_for,
};
use rustix::process::Signal;
use serde_json::Value;

/// Commands on three TAP ports `t0`, `t1`, `t2` and a bridge `br0`, all of them down, so that both
/// say the same of their state. What is printed as JSON is compared.
const SCRIPT: &str = "
ip link set t0 address 02:00:00:00:01:00
ip link set t1 address 02:00:00:00:01:01
ip link set t2 address 02:00:00:00:01:02
ip link add br0 address 02:00:00:00:01:ff type bridge ageing_time 20000 vlan_default_pvid 0
ip link add br0 type bridge
ip link set t0 master br0
ip link set t1 master br0
ip link set br0 master br0
ip -d -j link show br0
ip -d -j link show t0
ip -d -j link show t2
ip -d -j link show type bridge
ip -j link show master br0
ip -j link show type bridge_slave
ip -j -s link show t2
ip -j -s -s link show t2
bridge -j link
bridge -d -j link
bridge -j link show dev t0
bridge link set dev t0 isolated on learning off flood off
bridge link set dev t0 mcast_flood off bcast_flood off hairpin on
bridge -d -j link show dev t0
ip link set t1 type bridge_slave isolated on
ip link set t1 type bridge_slave guard off
ip link set t2 type bridge_slave isolated on
bridge link set dev t2 isolated on
bridge link set dev t1 fastleave off mcast_to_unicast off
ip -d -j link show t1
ip link set br0 type bridge ageing_time 1000 stp_state 0
ip link set br0 type bridge mcast_snooping 0
ip link set t0 type bridge ageing_time 1000
ip -d -j link show br0
bridge fdb add 02:00:00:00:00:01 dev t0 master static
bridge fdb add 02:00:00:00:00:01 dev t0 master static
bridge fdb add 02:00:00:00:00:01 dev t1 master static
bridge fdb add 02:00:00:00:00:02 dev t0 master
bridge fdb add 02:00:00:00:00:03 dev t2 master static
bridge fdb add 02:00:00:00:00:04 dev t1 master static sticky
bridge fdb add 02:00:00:00:00:05 dev t1 master permanent sticky
bridge fdb add 00:00:00:00:00:00 dev t1 master static
bridge fdb add 02:00:00:00:00:06 dev t1 master static vlan 77
bridge fdb replace 02:00:00:00:00:07 dev t0 master static
bridge fdb append 02:00:00:00:00:08 dev t0 master static
bridge fdb replace 02:00:00:00:00:08 dev t1 master permanent
bridge -j fdb show
bridge -s -j fdb show
bridge -j fdb show br br0
bridge -j fdb show brport t0
bridge -j fdb show dev t1
bridge -j fdb show br br0 state static
bridge -j fdb get 02:00:00:00:00:01 br br0
bridge -j fdb get 02:00:00:00:00:01 dev t0 master
bridge fdb get 02:00:00:00:00:01 dev t2 master
bridge fdb get 02:00:00:00:00:77 br br0
bridge fdb del 02:00:00:00:00:01 dev t1 master
bridge fdb del 02:00:00:00:00:01 dev t0 master
bridge fdb del 02:00:00:00:00:01 dev t0 master
bridge fdb del 02:00:00:00:00:02 dev t1
bridge fdb flush dev t1 master static nopermanent
bridge -j fdb show br br0
bridge fdb flush dev br0 brport t0
bridge -j fdb show br br0
bridge fdb flush dev br0 permanent
bridge fdb flush dev t2
bridge fdb flush dev br0 brport t2
bridge -j fdb show br br0
ip -j addr
ip -j addr show dev t0
ip -j route
ip -6 -j route
ip -j neigh
ip route get 10.0.0.1
ip link set t0 nomaster
bridge -j link
ip link set t2 master br0
bridge -j -d link show dev t2
ip -d -j link show t2
ip link del br0
bridge -j link
ip -j link show t1
";

/// Answers of Linux 7.2 and iproute2 7.3 about VLANs: command, exit code, JSON. A dummy stands for
/// each port there, and all are up.
const VLANS: &str = include_str!("../../../../tests/golden/vlans.txt");

/// The daemon in a namespace of its own.
struct Bench {
    daemon: Daemon,
    scratch: Scratch,
    _netns: NamedNetns,
}

impl Bench {
    fn start(tag: &str) -> Option<Bench> {
        if !may_make_networks() || !has_program("ip") || !has_program("bridge") {
            return None;
        }
        let scratch = Scratch::new(tag);
        let netns = NamedNetns::new(&format!("{tag}-softnet"));
        let config = scratch.file("empty.toml", "");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &netns.name]);
        command.arg(softnet().get_program());
        let bench = Bench {
            daemon: Daemon::by(command, config, scratch.path("socket")),
            scratch,
            _netns: netns,
        };
        for port in ["t0", "t1", "t2"] {
            bench.must(&format!("ip link add {port} type tun"));
        }
        Some(bench)
    }

    /// A command on Softnet's links.
    fn run(&self, command: &str) -> Output {
        let mut softnet = self.daemon.exec();
        softnet.args(command.split_whitespace());
        softnet.output().expect("softnet")
    }

    fn must(&self, command: &str) {
        self.daemon.run(command);
    }

    fn stop(self) {
        self.daemon.running.signal(Signal::INT);
        let output = self.daemon.running.finish();
        assert!(output.status.success(), "{}", text(&output.stderr));
        drop(self.scratch);
    }
}

/// Fields that differ for a reason: numbers are each side's own, a port of Softnet has its default
/// qdisc before it is up, its device ends with it, times pass, and the
/// host behind a TAP device talks.
const DIFFER: &[&str] = &[
    "ifindex",
    "qdisc",
    "persist",
    "mcast_startup_query_intvl",
    "gc_timer",
    "used",
    "updated",
    "bytes",
    "packets",
    "dropped",
];

/// True for a field that the kernel may have and Softnet not: one of a host or a driver, or newer
/// than others.
fn of_kernel(field: &str) -> bool {
    let prefixes = [
        "inet6_",
        "gso_",
        "tso_",
        "gro_",
        "parent",
        "fdb_",
        "mcast_n",
        "mcast_max",
    ];
    let others = [
        "altnames",
        "netns-immutable",
        "stp_mode",
        "neigh_forward_grat",
        "carrier_changes",
    ];
    prefixes.iter().any(|prefix| field.starts_with(prefix)) || others.contains(&field)
}

/// Not of the ports of the script: the kernel's own entries and loopback.
fn is_foreign(value: &Value) -> bool {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let has_self = |flags: &Vec<Value>| flags.contains(&Value::from("self"));
    text("ifname") == "lo"
        || value["mac"].is_string()
            && (value["flags"].as_array().is_some_and(has_self)
                || !text("mac").starts_with("02:00:00:00:00:"))
}

/// Compares what both say, and returns where it differs.
fn difference(at: &str, kernel: &Value, ours: &Value) -> Option<String> {
    match (kernel, ours) {
        (Value::Object(kernel), Value::Object(ours)) => {
            let missing = kernel.keys().find(|&key| {
                !ours.contains_key(key) && !of_kernel(key) && !DIFFER.contains(&key.as_str())
            });
            if let Some(key) = missing {
                return Some(format!("{at}.{key} is missing"));
            }
            ours.iter().find_map(|(key, value)| {
                let at = format!("{at}.{key}");
                match kernel.get(key) {
                    _ if DIFFER.contains(&key.as_str()) => None,
                    Some(known) => difference(&at, known, value),
                    // Of a kernel that is built without.
                    None if key.starts_with("vlan_") => None,
                    None => Some(format!("{at} is ours alone")),
                }
            })
        }
        (Value::Array(kernel), Value::Array(ours)) => {
            let sorted = |values: &[Value]| {
                let values = values.iter().filter(|value| !is_foreign(value));
                // `ip` prints an empty object for what it leaves out.
                let values =
                    values.filter(|value| value.as_object().is_none_or(|o| !o.is_empty()));
                let mut values: Vec<Value> = values.cloned().collect();
                values.sort_by_key(|value| {
                    let name = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
                    (name("ifname"), name("mac"))
                });
                values
            };
            let (kernel, ours) = (sorted(kernel), sorted(ours));
            if kernel.len() != ours.len() {
                return Some(format!("{at}: {kernel:?} and {ours:?}"));
            }
            let mut pairs = kernel.iter().zip(&ours).enumerate();
            pairs.find_map(|(n, (kernel, ours))| difference(&format!("{at}[{n}]"), kernel, ours))
        }
        _ if kernel == ours => None,
        _ => Some(format!("{at}: {kernel} and {ours}")),
    }
}

fn json(output: &Output) -> Value {
    let text = text(&output.stdout);
    match text.trim() {
        "" => Value::Array(Vec::new()),
        text => serde_json::from_str(text).expect("JSON"),
    }
}

#[test]
fn as_the_kernel_does() {
    let Some(bench) = Bench::start("links") else {
        return;
    };
    let netns = NamedNetns::new("links-kernel");
    for port in ["t0", "t1", "t2"] {
        netns.ip(&["tuntap", "add", port, "mode", "tap", "vnet_hdr"]);
    }
    let mut wrong = Vec::new();
    for command in SCRIPT.lines().filter(|line| !line.is_empty()) {
        let mut words = command.split_whitespace();
        let kernel = Command::new("ip")
            .args(["netns", "exec", &netns.name])
            .args(&mut words)
            .output()
            .expect("ip");
        let ours = bench.run(command);
        if kernel.status.code() != ours.status.code() {
            let (kernel, ours) = (text(&kernel.stderr), text(&ours.stderr));
            wrong.push(format!("{command}: {kernel:?} and {ours:?}"));
        } else if command.contains(" -j ") {
            let difference = difference("", &json(&kernel), &json(&ours));
            wrong.extend(difference.map(|difference| format!("{command}: {difference}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    bench.stop();
}

/// Commands on the ports and a bridge, all of them up. What is shown is compared as text, in any
/// order.
const GROUPS: &str = "
bridge mdb show
bridge mdb add dev br0 port t0 grp 239.1.1.1 permanent
bridge mdb add dev br0 port t0 grp 239.1.1.1 permanent
bridge mdb add dev br0 port t1 grp 239.1.1.1 permanent
bridge mdb add dev br0 port t1 grp ff05::7 permanent
bridge mdb add dev br0 port t1 grp ff02::1 permanent
bridge mdb add dev br0 port t1 grp 224.0.0.7 permanent
bridge mdb add dev br0 port t1 grp 10.0.0.1 permanent
bridge mdb add dev br0 port t1 grp 01:02:03:04:05:06 permanent
bridge mdb add dev br0 port t1 grp 01:02:03:04:05:06
bridge mdb add dev br0 port t2 grp 239.1.1.1 permanent
bridge mdb add dev t0 port t1 grp 239.1.1.1 permanent
bridge mdb show
bridge -d mdb show
bridge -s -d mdb show
bridge mdb show dev br0
bridge link set dev t1 mcast_router 2
bridge -d mdb show
bridge -s -d mdb show
bridge link set dev t1 mcast_router 0
bridge -d mdb show
bridge mdb del dev br0 port t0 grp 239.1.1.1
bridge mdb del dev br0 port t0 grp 239.1.1.1
bridge mdb del dev br0 port t1 grp ff05::7
bridge mdb show
ip link set br0 type bridge mcast_igmp_version 3
ip link set br0 type bridge mcast_igmp_version 4
ip link set br0 type bridge mcast_mld_version 2
ip link set br0 type bridge mcast_mld_version 3
bridge mdb add dev br0 port t0 grp 239.1.1.2 permanent
bridge -d mdb show
bridge -s -d mdb show
bridge mdb add dev br0 port t0 grp 239.1.1.3 src 10.0.0.1 permanent
bridge -d mdb show
bridge mdb del dev br0 port t0 grp 239.1.1.3 src 10.0.0.1
ip link set br0 type bridge mcast_querier 1 mcast_query_interval 3000 mcast_hash_max 64
ip link set br0 type bridge mcast_snooping 0
bridge mdb add dev br0 port t0 grp 239.1.1.4 permanent
";

#[test]
fn groups_as_the_kernel_does() {
    let Some(bench) = Bench::start("groups") else {
        return;
    };
    let netns = NamedNetns::new("groups-kernel");
    let kernel = |command: &str| {
        let output = Command::new("ip")
            .args(["netns", "exec", &netns.name])
            .args(command.split_whitespace())
            .output();
        output.expect("ip")
    };
    for port in ["t0", "t1", "t2"] {
        netns.ip(&["tuntap", "add", port, "mode", "tap", "vnet_hdr"]);
    }
    for command in [
        "add br0 type bridge",
        "set t0 master br0",
        "set t1 master br0",
        "set t0 up",
        "set t1 up",
        "set t2 up",
        "set br0 up",
    ] {
        let command = format!("ip link {command}");
        assert!(kernel(&command).status.success(), "{command}");
        bench.must(&command);
    }
    let lines = |output: &Output| {
        let text = text(&output.stdout);
        // Groups of hosts behind TAP devices, which join by themselves.
        let lines = text.lines().filter(|line| !line.contains(" grp ff02::"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let mut wrong = Vec::new();
    for command in GROUPS.lines().filter(|line| !line.is_empty()) {
        let (kernel, ours) = (kernel(command), bench.run(command));
        if kernel.status.code() != ours.status.code() {
            let (kernel, ours) = (text(&kernel.stderr), text(&ours.stderr));
            wrong.push(format!("{command}: {kernel:?} and {ours:?}"));
        } else if lines(&kernel) != lines(&ours) {
            wrong.push(format!(
                "{command}: {:#?} and {:#?}",
                lines(&kernel),
                lines(&ours)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    bench.stop();
}

#[test]
fn vlans_as_linux_7_2() {
    let Some(bench) = Bench::start("vlans") else {
        return;
    };
    bench.must("ip link add br0 type bridge vlan_filtering 1 vlan_default_pvid 1");
    for command in [
        "t0 master br0",
        "t1 master br0",
        "t0 up",
        "t1 up",
        "t2 up",
        "br0 up",
    ] {
        bench.must(&format!("ip link set {command}"));
    }
    let mut wrong = Vec::new();
    for line in VLANS.lines().filter(|line| !line.is_empty()) {
        let (command, wanted) = line.split_once(" => ").expect("a command and its end");
        let (code, answer) = wanted.split_once(' ').unwrap_or((wanted, ""));
        let output = bench.run(command);
        if output.status.code() != code.parse().ok() {
            let stderr = text(&output.stderr);
            wrong.push(format!("{command}: {} {stderr:?}", output.status));
        } else if command.contains(" -j ") {
            let wanted = serde_json::from_str(answer).expect("JSON");
            let difference = difference("", &wanted, &json(&output));
            wrong.extend(difference.map(|difference| format!("{command}: {difference}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    bench.stop();
}

/// `ip monitor` and `bridge monitor` print what is changed.
#[test]
fn changes_are_told() {
    let Some(bench) = Bench::start("monitor") else {
        return;
    };
    bench.must("ip link add br0 type bridge vlan_default_pvid 0");
    let log = bench.scratch.path("log");
    let monitors: Vec<_> = [("ip", "link"), ("bridge", "all")]
        .map(|(program, what)| {
            let mut command = bench.daemon.exec();
            command.args(["sh", "-c"]);
            // Written line by line to one file, which is read while they run.
            let script = format!("exec {program} monitor {what} >>{}", log.display());
            command.arg(script);
            Running::start(&mut command)
        })
        .into();
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    // Until both listen, changes are made again and again.
    wait_for("what monitors print", || {
        bench.must("ip link set t0 master br0");
        bench.must("bridge fdb replace 02:00:00:00:00:01 dev t0 master static");
        bench.must("bridge fdb del 02:00:00:00:00:01 dev t0 master");
        bench.must("ip link set t0 nomaster");
        let log = logged();
        // Of `ip`, then of `bridge`.
        log.contains("mtu 1500 master br0 state DOWN")
            && log.contains("mtu 1500 master br0 state disabled priority 32 cost 2")
            && log.contains("Deleted 2: t0")
            && log.contains("02:00:00:00:00:01 dev t0 master br0 static")
            && log.contains("Deleted 02:00:00:00:00:01 dev t0 master br0 static")
    });
    for monitor in monitors {
        monitor.signal(Signal::TERM);
        // `ip` asks for the number of its namespace first.
        assert_eq!(text(&monitor.finish().stderr), "");
    }
    bench.stop();
}
