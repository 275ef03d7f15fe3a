//! `softnet run` on the example of the README, between two named network namespaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::common::{
    HostState, NamedNetns, PATIENCE, Running, Scratch, copy_program, has_program,
    may_make_networks, skip, softnet, text, two_ports, wait_for,
};
use rustix::process::Signal;
use serde_json::Value;

/// The example, with its namespaces' names replaced by ours.
fn example(a: &NamedNetns, b: &NamedNetns) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-hosts.toml");
    let example = std::fs::read_to_string(path).expect("the example");
    assert!(example.contains("netns = \"host-a\"") && example.contains("netns = \"host-b\""));
    example
        .replace("netns = \"host-a\"", &format!("netns = {:?}", a.name))
        .replace("netns = \"host-b\"", &format!("netns = {:?}", b.name))
}

/// Starts the program and waits until its devices are there.
fn start(config: &Path, a: &NamedNetns, b: &NamedNetns) -> Running {
    let mut running = Running::start(softnet().arg("run").arg("--json").arg(config));
    wait_for("the ports", || {
        running.assert_running();
        a.interfaces().contains("eth-a") && b.interfaces().contains("eth-b")
    });
    running
}

/// Connects through the switch. An interface may be there before its address is, at either end.
fn connect(from: &NamedNetns, remote: &SocketAddr) -> TcpStream {
    use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable};
    let mut connected = None;
    wait_for("a route", || {
        match from.run(|| TcpStream::connect_timeout(remote, PATIENCE)) {
            Err(e) if matches!(e.kind(), NetworkUnreachable | HostUnreachable) => false,
            result => {
                connected = Some(result.expect("connecting through the switch"));
                true
            }
        }
    });
    connected.expect("a connection")
}

/// Sends half a megabyte from one namespace to the other and back, and compares.
fn exchange(from: &NamedNetns, to: &NamedNetns, address: &str) {
    let any = if address.contains(':') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let listener = to.run(|| TcpListener::bind(any)).expect("listening");
    let port = listener.local_addr().expect("bound").port();
    let remote = SocketAddr::new(address.parse().expect("an address"), port);
    let data: Vec<u8> = (0..1 << 19)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Not blocking: the other side may fail.
            listener.set_nonblocking(true).expect("a listener");
            let mut stream = None;
            wait_for("a connection", || {
                stream = listener.accept().ok();
                stream.is_some()
            });
            let Some((mut stream, _)) = stream else {
                return;
            };
            stream.set_nonblocking(false).expect("a stream");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("reading");
            stream.write_all(&received).expect("sending back");
        });
        let mut stream = connect(from, &remote);
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(&data).expect("sending");
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("shutdown");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("reading the answer");
        assert!(back == data, "what came back differs");
    });
}

/// Asserts that the host of one namespace answers a ping from the other. (`ping` is not everywhere;
/// where it is, it must work.)
fn ping(from: &NamedNetns, address: &str) {
    let mut ping = Command::new("ip");
    ping.args([
        "netns", "exec", &from.name, "ping", "-c", "3", "-i", "0.01", "-W", "5", address,
    ]);
    if Command::new("ping").arg("-V").output().is_ok() {
        let output = ping.output().expect("ping");
        assert!(
            output.status.success(),
            "{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }
}

#[test]
fn two_hosts() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let before = HostState::now();
    let scratch = Scratch::new("two-hosts");
    let (a, b) = (NamedNetns::new("a"), NamedNetns::new("b"));
    let config = scratch.file("two-hosts.toml", &example(&a, &b));
    let mut running = start(&config, &a, &b);
    exchange(&a, &b, "10.9.0.2");
    ping(&a, "10.9.0.2");
    exchange(&a, &b, "fd00:9::2");
    exchange(&b, &a, "10.9.0.1");

    // A device that is deleted comes back, and so does its traffic: with the same Ethernet
    // address, so that the other host's neighbour table stays right.
    a.ip(&["link", "del", "dev", "eth-a"]);
    wait_for("the deleted port", || {
        running.assert_running();
        a.interfaces().contains("eth-a")
    });
    exchange(&b, &a, "10.9.0.1");

    running.signal(Signal::TERM);
    let output = running.finish();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("port \"eth-a\": its device is gone"),
        "{stderr}"
    );
    assert!(stderr.contains("port \"eth-a\": open again"), "{stderr}");
    // What hosts send as soon as their interfaces are up waits until the bridge is there.
    assert!(!stdout.contains("no_forward"), "{stdout}");
    let json: Value = serde_json::from_str(&stdout).expect("one object");
    for (port, name) in ["eth-a", "eth-b"].into_iter().enumerate() {
        let port = &json["ports"][port];
        assert_eq!(port["name"], name);
        for counter in ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"] {
            assert!(port[counter].as_u64().expect("a counter") > 0, "{stdout}");
        }
    }
    assert!(
        !a.interfaces().contains("eth-a") && !b.interfaces().contains("eth-b"),
        "a device is left"
    );
    drop((a, b));
    assert_eq!(HostState::now(), before);
}

/// The numbers of every qdisc and class, as `tc -s` has them: a tree at one port, one
/// qdisc for each queue at the other.
#[test]
fn qdiscs_and_classes_are_counted() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("classes");
    let (a, b) = (NamedNetns::new("ca"), NamedNetns::new("cb"));
    let tree = r#"
[[port.qdisc]]
handle = "1:"
kind = "prio"
bands = 3
[[port.qdisc]]
parent = "1:3"
handle = "30:"
kind = "tbf"
rate = "50mbit"
burst = "32k"
limit = "1m"
[[port.filter]]
ip_proto = "tcp"
flowid = "1:3"
"#;
    let config = two_ports((&a, "queues = 2"), (&b, tree));
    let config = scratch.file("classes.toml", &config);
    let socket = scratch.path("socket");
    // At the end as an object, or before it as tables.
    let finish = |json: bool| {
        let mut command = softnet();
        command
            .arg("run")
            .arg(&config)
            .args(json.then_some("--json"));
        command.arg("--socket").arg(&socket);
        let mut running = Running::start(&mut command);
        wait_for("the ports", || {
            running.assert_running();
            a.interfaces().contains("eth-a") && b.interfaces().contains("eth-b")
        });
        exchange(&a, &b, "10.9.0.2");
        let mut stats = softnet();
        let tables = stats.arg("stats").arg("--socket").arg(&socket).output();
        let tables = text(&tables.expect("softnet").stdout);
        running.signal(Signal::TERM);
        let output = running.finish();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        if json {
            return stdout;
        }
        let end = stdout.lines().collect::<Vec<_>>();
        assert!(
            matches!(end[..], [sum] if sum.starts_with("received ") && sum.contains(" = sent ")),
            "{stdout}"
        );
        tables
    };

    let stdout = finish(true);
    let json: Value = serde_json::from_str(&stdout).expect("one object");
    let classes = |port: usize| json["ports"][port]["classes"].as_array().expect("classes");
    let names = |port: usize| -> Vec<String> {
        let name =
            |c: &Value| format!("{} {} {}", c["class"], c["kind"], c["qdisc"]).replace('"', "");
        classes(port).iter().map(name).collect()
    };
    let number =
        |port: usize, class: usize, key: &str| classes(port)[class][key].as_u64().expect(key);
    assert_eq!(
        names(0),
        ["root mq null", ":1 pfifo_fast null", ":2 pfifo_fast null"]
    );
    assert_eq!(
        names(1),
        [
            "root prio 1:",
            "1:1 pfifo null",
            "1:2 pfifo null",
            "1:3 tbf 30:",
            "30:1 bfifo null"
        ]
    );
    for port in 0..2 {
        let own = &json["ports"][port];
        assert_eq!(own["tx_packets"], number(port, 0, "packets"), "{stdout}");
        for class in 0..classes(port).len() {
            assert_eq!(number(port, class, "backlog"), 0);
        }
    }
    assert_eq!(
        number(0, 0, "packets"),
        number(0, 1, "packets") + number(0, 2, "packets")
    );
    let bands: u64 = (1..4).map(|band| number(1, band, "packets")).sum();
    assert_eq!(number(1, 0, "packets"), bands);
    // Half a megabyte there, and the answers' acknowledgements, all of them in the third band.
    assert!(number(1, 3, "bytes") > 1 << 19, "{stdout}");
    assert!(number(1, 3, "overlimits") > 0, "{stdout}");
    let pools = json["pools"].as_array().expect("pools");
    assert_eq!(pools.len(), 2, "small and large buffers");
    for pool in pools {
        assert_eq!(pool["exhausted"], 0, "{stdout}");
    }

    let stdout = finish(false);
    let line = |start: [&str; 4]| {
        let line = stdout.lines().find(|line| {
            let fields: Vec<&str> = line.split_whitespace().take(4).collect();
            fields.starts_with(&start[..start.iter().filter(|s| !s.is_empty()).count()])
        });
        line.unwrap_or_else(|| panic!("no {start:?} in\n{stdout}"))
    };
    line(["port", "class", "qdisc", "sent"]);
    line(["eth-a", "root", "mq", ""]);
    line(["eth-a", ":2", "pfifo_fast", ""]);
    line(["eth-b", "root", "prio", "1:"]);
    let sent = line(["eth-b", "1:3", "tbf", "30:"])
        .split_whitespace()
        .nth(5);
    let sent: u64 = sent.and_then(|field| field.parse().ok()).expect("bytes");
    assert!(sent > 1 << 19, "{stdout}");
}

/// Frames that leave one port are seen at a third one, and a port with a queue for each worker
/// loses and reorders nothing.
#[test]
fn a_mirrored_port_and_queues_by_worker() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("mirror");
    let (a, b, m) = (
        NamedNetns::new("ma"),
        NamedNetns::new("mb"),
        NamedNetns::new("mm"),
    );
    let ports = two_ports((&a, "queues = 2"), (&b, "mirror = { to = \"eth-m\" }"));
    let config = format!(
        "[engine]\nworkers = 2\n{ports}\
         [[port]]\nname = \"eth-m\"\ndriver = \"tap\"\nnetns = {:?}\n",
        m.name
    );
    let config = scratch.file("mirror.toml", &config);
    let running = start(&config, &a, &b);
    exchange(&a, &b, "10.9.0.2");
    exchange(&b, &a, "10.9.0.1");
    running.signal(Signal::TERM);
    let output = running.finish();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).expect("one object");
    let ports = json["ports"].as_array().expect("ports");
    let port = |name: &str| {
        ports
            .iter()
            .find(|port| port["name"] == name)
            .expect("a port")
    };
    let sent = |name: &str| port(name)["tx_packets"].as_u64().expect("a counter");
    // Half a megabyte went this way twice, in wire packets.
    assert!(sent("eth-b") > 600, "{stdout}");
    assert_eq!(sent("eth-m"), sent("eth-b"), "{stdout}");
    assert_eq!(json["conservation"]["copied"], sent("eth-b"), "{stdout}");
    assert!(
        port("eth-b")["batch"]["measured"].as_u64().expect("it") > 0,
        "{stdout}"
    );
}

/// A device with several queues comes back each time it is deleted, whichever of its queues
/// notices first; workers may be tied to CPUs, and the worker alone may serve a port.
#[test]
fn a_port_with_several_queues_comes_back() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("again");
    let (a, b) = (NamedNetns::new("ra"), NamedNetns::new("rb"));
    let lines = "queues = 4\nserved_by = \"worker\"\nburst = 2000";
    let config = "[engine]\ncpus = [0, 0]\n".to_owned() + &two_ports((&a, lines), (&b, ""));
    let config = scratch.file("again.toml", &config);
    let mut running = start(&config, &a, &b);
    for _ in 0..3 {
        exchange(&b, &a, "10.9.0.1");
        a.ip(&["link", "del", "dev", "eth-a"]);
        wait_for("the deleted port", || {
            running.assert_running();
            a.interfaces().contains("eth-a")
        });
    }
    // From the other side: the interface may be there and not have its address yet.
    exchange(&b, &a, "10.9.0.1");
    let stderr = running.stop();
    assert_eq!(stderr.matches("its device is gone").count(), 3, "{stderr}");
    assert!(!stderr.contains("cannot be opened"), "{stderr}");
}

#[test]
fn a_cpu_that_there_is_not_is_named() {
    let scratch = Scratch::new("cpu");
    let config = scratch.file("cpu.toml", "[engine]\ncpus = [0, 1023]\n");
    let running = Running::start(softnet().arg("run").arg(&config));
    let output = running.finish();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("worker 1 cannot run on CPU 1023: it may be any of 0"),
        "{stderr}"
    );
}

#[test]
fn no_port_at_all_runs_until_it_is_told_to_stop() {
    let scratch = Scratch::new("empty");
    let config = scratch.file("empty.toml", "[engine]\nworkers = 1\n");
    for signal in [Signal::TERM, Signal::INT] {
        let mut running = Running::start(softnet().arg("run").arg(&config));
        wait_for("the worker", || {
            running.assert_running();
            running.has_thread("softnet/0")
        });
        running.signal(signal);
        let output = running.finish();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        assert!(
            printed
                .lines()
                .any(|line| line == "received 0 = sent 0 + dropped 0 + queued 0"),
            "{printed}"
        );
    }
}

/// Root of a user namespace, who may make nothing in the system's `/run`.
#[test]
fn root_of_a_user_namespace_listens_in_a_place_of_its_own() {
    if !may_make_networks() || !has_program("unshare") || !has_program("setpriv") {
        return;
    }
    let scratch = Scratch::new("rootless");
    let program = scratch.path("softnet");
    copy_program(&program);
    let runtime = scratch.path("runtime");
    std::fs::create_dir(&runtime).expect("it is new");
    std::os::unix::fs::chown(&runtime, Some(65534), Some(65534)).expect("it is ours");
    let config = scratch.file(
        "rootless.toml",
        "[[port]]\nname = \"p\"\ndriver = \"null\"\n",
    );
    let rootless = |program: &Path| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(["unshare", "-Urn"])
            .arg(program)
            .env("XDG_RUNTIME_DIR", &runtime)
            .env_remove("SOFTNET_SOCKET");
        command
    };
    let allowed = rootless(Path::new("true")).output().expect("setpriv");
    if !allowed.status.success() {
        return skip("needs user namespaces for everyone");
    }
    let mut running = Running::start(rootless(&program).arg("run").arg(&config));
    wait_for("the daemon", || {
        running.assert_running();
        // Clients look there, too.
        let stats = rootless(&program).arg("stats").output().expect("softnet");
        stats.status.success()
    });
    assert!(runtime.join("softnet/rtnetlink.sock").exists());
    running.stop();
}
