//! `softnet dump-config` and `softnet reload` against a running daemon.

mod common;

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    NamedNetns, PATIENCE, Running, Scratch, has_program, may_make_networks, softnet, text,
    wait_for,
};
use rustix::process::Signal;
use serde_json::Value;

/// A running daemon, its file and its socket.
struct Daemon {
    running: Running,
    config: PathBuf,
    socket: PathBuf,
}

impl Daemon {
    fn start(scratch: &Scratch, config: &str) -> Daemon {
        Daemon::on(scratch.file("config.toml", config), scratch.path("socket"))
    }

    fn on(config: PathBuf, socket: PathBuf) -> Daemon {
        let mut command = softnet();
        command.arg("run").arg(&config).arg("--socket").arg(&socket);
        let mut daemon = Daemon {
            running: Running::start(&mut command),
            config,
            socket,
        };
        wait_for("the daemon", || {
            daemon.running.assert_running();
            daemon.ask("dump-config").status.success()
        });
        daemon
    }

    fn ask(&self, command: &str) -> Output {
        let mut softnet = softnet();
        let words = command.split(' ');
        softnet.args(words).arg("--socket").arg(&self.socket);
        softnet.output().expect("softnet")
    }

    /// What a command prints, which succeeds.
    fn say(&self, command: &str) -> String {
        let output = self.ask(command);
        assert!(
            output.status.success(),
            "{command}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn stats(&self) -> Value {
        serde_json::from_str(&self.say("stats --json")).expect("an object")
    }

    /// Another text in its file.
    fn write(&self, config: &str) {
        fs::write(&self.config, config).expect("the file");
    }

    /// Runs a program against it that succeeds.
    fn exec(&self, program: &str) {
        self.print(program);
    }

    /// What a program prints that runs against it, and succeeds.
    fn print(&self, program: &str) -> String {
        let mut softnet = softnet();
        softnet
            .arg("exec")
            .arg("--socket")
            .arg(&self.socket)
            .arg("--");
        let output = softnet.args(program.split(' ')).output().expect("softnet");
        assert!(
            output.status.success(),
            "{program}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Stops it; it must have been well. Returns what it noted.
    fn stop(self) -> String {
        self.running.signal(Signal::TERM);
        let output = self.running.finish();
        let noted = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{noted}");
        noted
    }
}

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

#[test]
fn what_is_dumped_builds_the_same_again() {
    let scratch = Scratch::new("dump");
    let daemon = Daemon::start(&scratch, TREE);
    if has_program("tc") && has_program("ip") {
        daemon.exec("tc class change dev a classid 1:10 htb rate 3mbit ceil 4mbit burst 20k");
        daemon.exec("tc class add dev a parent 1: classid 1:30 htb rate 1mbit");
        daemon.exec("tc qdisc add dev a parent 1:30 handle 30: bfifo limit 5000");
        daemon.exec("tc qdisc replace dev b root handle 8: prio bands 4");
        daemon.exec("tc qdisc add dev b parent 8:2 tbf rate 1mbit burst 10k latency 50ms");
        daemon.exec("ip link set dev b alias b-side txqueuelen 9");
        daemon.exec("ip link set dev b nomaster");
        daemon.exec("ip link add new type dummy");
        let dumped = daemon.say("dump-config");
        for part in [
            "rate = 3000000\nceil = 4000000",
            "parent = \"1:30\"\nhandle = \"30:\"\nkind = \"bfifo\"\nlimit = 5000",
            "parent = \"8:2\"",
            "alias = \"b-side\"",
            "name = \"new\"",
        ] {
            assert!(dumped.contains(part), "{part:?} in\n{dumped}");
        }
    }
    let dumped = daemon.say("dump-config");
    assert!(!dumped.starts_with('#'), "{dumped}");
    let (config, socket) = (daemon.config.clone(), daemon.socket.clone());
    daemon.stop();
    fs::write(&config, &dumped).expect("the file");
    let again = Daemon::on(config, socket);
    assert_eq!(again.say("dump-config"), dumped);
    // The file is what runs: nothing is to be changed.
    let noted = again.stats();
    again.say("reload");
    assert_eq!(again.say("dump-config"), dumped);
    assert_eq!(again.stats()["ports"], noted["ports"]);
    again.stop();
}

#[test]
fn a_reload_makes_it_as_the_file_says() {
    let scratch = Scratch::new("reload");
    let daemon = Daemon::start(&scratch, TREE);
    let first = daemon.say("dump-config");
    let changed = TREE
        .replace("rate = \"5mbit\"", "rate = \"6mbit\"")
        .replace("limit = 7", "limit = 8")
        .replace("ip_proto = \"udp\"", "ip_proto = \"tcp\"")
        .replace("group = 5", "group = 6")
        .replace("queues = 2", "queues = 2\nxps = [\"0\", \"1\"]")
        .replace("ports = [\"a\", \"b\"]", "ports = [\"b\", \"c\"]")
        .replace(
            "[[bridge]]",
            "[[port]]\nname = \"c\"\ndriver = \"null\"\nmirror = { to = \"b\" }\n[[bridge]]",
        );
    daemon.write(&changed);
    daemon.say("reload");
    let second = daemon.say("dump-config");
    for part in [
        "rate = 6000000",
        "limit = 8",
        "ip_proto = 6",
        "group = 6",
        "xps = [\"0\", \"1\"]",
        "mirror = [{ ",
        "ports = [\"b\", \"c\"]",
    ] {
        assert!(second.contains(part), "{part:?} in\n{second}");
    }
    // And back, on SIGHUP; what somebody else changed meanwhile goes.
    if has_program("tc") {
        daemon.exec("tc qdisc replace dev b root pfifo limit 99");
    }
    daemon.write(TREE);
    daemon.running.signal(Signal::HUP);
    wait_for("the reload", || daemon.say("dump-config") == first);
    assert_eq!(daemon.stop().matches("reloaded: ").count(), 2);
}

/// What a port may send: dumped as it runs, changed in place, and back after a reload that fails.
#[test]
fn what_ports_may_send_is_reloaded() {
    let config = |first: &str| {
        format!(
            "[engine]\nworkers = 1\nbuffers = 256\n\
             [[port]]\nname = \"a\"\ndriver = \"null\"\n{first}\
             [[port]]\nname = \"b\"\ndriver = \"null\"\n\
             [[bridge]]\nname = \"br0\"\nports = [\"a\", \"b\"]\n"
        )
    };
    let guarded = config(
        "isolated = true\nlocked = true\nallowed_macs = [\"02:00:00:00:00:01\"]\n\
         allowed_ips = [\"10.0.0.5/32\", \"fd00::/64\"]\nstorm = { broadcast = 7 }\n",
    );
    let limited = config("max_macs = 3\n");
    let scratch = Scratch::new("reload-guard");
    let daemon = Daemon::start(&scratch, &guarded);
    let first = daemon.say("dump-config");
    for part in [
        "isolated = true\nlocked = true\nallowed_macs = [\"02:00:00:00:00:01\"]\n",
        "allowed_ips = [\"10.0.0.5/32\", \"fd00::/64\"]\nstorm = { broadcast = 7 }\n",
    ] {
        assert!(first.contains(part), "{part:?} in\n{first}");
    }
    if has_program("bridge") {
        let shown = daemon.print("bridge -d link show dev a");
        assert!(shown.contains("isolated on locked on"), "{shown}");
        let shown = daemon.print("bridge -d link show dev b");
        assert!(shown.contains("isolated off locked off"), "{shown}");
        daemon.exec("bridge link set dev a isolated off locked off learning off");
        assert!(!daemon.say("dump-config").contains("locked"));
        daemon.exec("bridge link set dev b isolated on");
        assert!(daemon.say("dump-config").contains("isolated"));
    }
    let tap = "[[port]]\nname = \"t\"\ndriver = \"tap\"\nnetns = \"softnet-no-such\"\n";
    daemon.write(&(limited.clone() + tap));
    let before = daemon.say("dump-config");
    assert_eq!(daemon.ask("reload").status.code(), Some(2));
    assert_eq!(daemon.say("dump-config"), before);
    daemon.write(&limited);
    daemon.say("reload");
    let second = daemon.say("dump-config");
    assert!(second.contains("max_macs = 3\n"), "{second}");
    for gone in ["isolated", "locked", "allowed", "storm"] {
        assert!(!second.contains(gone), "{second}");
    }
    daemon.write(&guarded);
    daemon.say("reload");
    assert_eq!(daemon.say("dump-config"), first);
    if has_program("bridge") {
        let shown = daemon.print("bridge -d link show dev a");
        // What the file has no key for stays.
        assert!(shown.contains("learning off"), "{shown}");
    }
    daemon.stop();
}

#[test]
fn what_cannot_be_applied_changes_nothing() {
    let scratch = Scratch::new("reload-not");
    let daemon = Daemon::start(&scratch, TREE);
    let before = daemon.say("dump-config");
    let file = daemon.config.display().to_string();
    let other = TREE.replace("limit = 7", "limit = 8");
    let tap = "[[port]]\nname = \"t\"\ndriver = \"tap\"\nnetns = \"softnet-no-such\"\n[[bridge]]";
    // The tree does not fit the device: seen when the file is read.
    let mq = "driver = \"null\"\nqdisc = { kind = \"mq\" }\n[[bridge]]";
    for (config, expected) in [
        (
            other.clone() + "colour = 1\n",
            ": key `bridge.colour`: is unknown",
        ),
        (
            other.replace("workers = 1", "workers = 2"),
            ": [engine] differs from what it was",
        ),
        (
            other.replace("[[bridge]]", tap),
            ": port \"t\" cannot be opened: ",
        ),
        (
            other.replace("[[bridge]]", &format!("[[port]]\nname = \"m\"\n{mq}")),
            ": key `port.qdisc`: ",
        ),
    ] {
        daemon.write(&config);
        let output = daemon.ask("reload");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let start = format!("softnet: {file}");
        assert!(
            said.starts_with(&start) && said.contains(expected),
            "{expected}: {said}"
        );
        assert_eq!(daemon.say("dump-config"), before);
    }
    daemon.running.signal(Signal::HUP);
    daemon.write(&other);
    daemon.say("reload");
    assert!(daemon.say("dump-config").contains("limit = 8"));
    daemon.stop();
}

#[test]
fn other_ports_lose_nothing() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("reload-traffic");
    let (a, b) = (NamedNetns::new("la"), NamedNetns::new("lb"));
    let config = |more: &str| {
        format!(
            r#"
[[port]]
name = "eth-a"
driver = "tap"
netns = {:?}
address = ["10.9.0.1/24"]
[[port]]
name = "eth-b"
driver = "tap"
netns = {:?}
address = ["10.9.0.2/24"]
[[port.qdisc]]
kind = "prio"
handle = "1:"
[[bridge]]
name = "br0"
ports = ["eth-a", "eth-b"]
{more}"#,
            a.name, b.name
        )
    };
    let one = config("[[port]]\nname = \"x\"\ndriver = \"null\"\nqdisc = { kind = \"fq\" }\n");
    let two = config("[[port]]\nname = \"y\"\ndriver = \"null\"\n[[bridge]]\nname = \"br1\"\n");
    let daemon = Daemon::start(&scratch, &one);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, a, b) = (&done, &a, &b);
        scope.spawn(move || transfer(a, b, done));
        let mut sent = 0;
        for round in 0..10 {
            // Packets flow all the while.
            wait_for("traffic", || {
                let now = number(port(&daemon.stats(), "eth-b").expect("eth-b"), "tx_packets");
                let more = now > sent + 50;
                sent = if more { now } else { sent };
                more
            });
            daemon.write(if round % 2 == 0 { &two } else { &one });
            daemon.say("reload");
            let stats = daemon.stats();
            let now = number(port(&stats, "eth-b").expect("eth-b"), "tx_packets");
            assert!(now >= sent, "counted anew: {now} after {sent}");
            assert_eq!(port(&stats, "x").is_some(), round % 2 == 1);
            assert_eq!(port(&stats, "y").is_some(), round % 2 == 0);
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = daemon.stats();
    for name in ["eth-a", "eth-b"] {
        let port = port(&stats, name).expect(name);
        assert_eq!(port["drops"], serde_json::json!({}), "{stats}");
    }
    // It says so if a packet is not accounted for.
    assert_eq!(daemon.stop().matches("reloaded: ").count(), 10);
}

/// Sends bytes from one host to the other until it is done, and checks that all arrive.
fn transfer(a: &NamedNetns, b: &NamedNetns, done: &AtomicBool) {
    let listener = b.run(|| TcpListener::bind("10.9.0.2:0").expect("listening"));
    let address = listener.local_addr().expect("its address");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            std::io::copy(&mut stream, &mut std::io::sink()).expect("receiving")
        });
        let mut stream = a.run(|| TcpStream::connect(address).expect("connecting"));
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let mut sent = 0;
        while !done.load(Ordering::Relaxed) {
            stream.write_all(&[7; 4096]).expect("sending");
            sent += 4096;
            // Few enough that no queue overflows on any machine.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(stream);
        assert_eq!(receiver.join().expect("the receiver"), sent);
    });
}

/// What comes from ports of a group and what goes to them waits, and is not lost.
#[test]
fn a_rate_group_holds_back_and_a_reload_lets_go() {
    const DATAGRAMS: u32 = 60;
    if !may_make_networks() {
        return;
    }
    let scratch = Scratch::new("rate-group");
    let (a, b) = (NamedNetns::new("ra"), NamedNetns::new("rb"));
    let config = |group: &str| {
        let port = |name: &str, netns: &NamedNetns, address: u8| {
            format!(
                "[[port]]\nname = \"{name}\"\ndriver = \"tap\"\nnetns = {:?}\naddress = \
                 [\"10.9.8.{address}/24\"]\n{group}\n",
                netns.name
            )
        };
        format!(
            "[[rate_group]]\nname = \"slow\"\npps = 1\npps_burst = 20\n{}{}[[bridge]]\nname = \
             \"br0\"\nports = [\"a\", \"b\"]\n",
            port("a", &a, 1),
            port("b", &b, 2)
        )
    };
    let daemon = Daemon::start(&scratch, &config(""));
    let receiver = b.run(|| UdpSocket::bind("10.9.8.2:9").expect("a socket"));
    let sender = a.run(|| UdpSocket::bind("10.9.8.1:0").expect("a socket"));
    sender.connect("10.9.8.2:9").expect("a route");
    let timeout = Some(std::time::Duration::from_millis(200));
    receiver.set_read_timeout(timeout).expect("a timeout");
    let mut bytes = [0; 4];
    let mut received = Vec::new();
    let mut receive = |until: &mut dyn FnMut(usize) -> bool| {
        wait_for("datagrams", || {
            while receiver.recv(&mut bytes).is_ok() {
                received.push(u32::from_be_bytes(bytes));
            }
            until(received.len())
        });
        received.clone()
    };
    // Neighbours know each other.
    sender.send(&0_u32.to_be_bytes()).expect("sent");
    receive(&mut |count| count == 1);

    daemon.write(&config("rate_group = \"slow\""));
    daemon.say("reload");
    assert!(daemon.say("dump-config").contains("rate_group = \"slow\""));
    for n in 1..=DATAGRAMS {
        sender.send(&n.to_be_bytes()).expect("sent");
    }
    // What the bucket holds passes, and one more in a second.
    receive(&mut |count| count > 10);
    let passed = receive(&mut |_| true).len();
    let seconds = 30;
    assert!(passed < 20 + seconds, "{passed}");
    daemon.write(&config(""));
    daemon.say("reload");
    let received = receive(&mut |count| count == 1 + DATAGRAMS as usize);
    assert!(received.is_sorted(), "{received:?}");
    daemon.write(&config("rate_group = \"fast\""));
    assert!(
        !daemon.ask("reload").status.success(),
        "there is no such group"
    );
    daemon.stop();
}

#[test]
fn no_daemon_is_told() {
    let scratch = Scratch::new("reload-none");
    let socket = scratch.path("nobody");
    for command in ["reload", "dump-config"] {
        let mut softnet = softnet();
        let output = softnet.arg(command).arg("--socket").arg(&socket).output();
        let output = output.expect("softnet");
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        let expected = format!("softnet: no daemon can be reached at {}", display(&socket));
        assert!(said.starts_with(&expected), "{said}");
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}
