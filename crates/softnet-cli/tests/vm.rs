//! `softnet run` with the ports of virtual machines: their sockets, and what is changed while
//! frames pass. The guests are memory and rings of this process.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use common::{Daemon, Running, Scratch, has_program, softnet, text, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};
use softnet_tests::guest::{BUFFER, FrontEnd, Guest, GuestConfig, HEADER};

impl Daemon {
    fn reload(&self, config: &str) {
        self.write(config);
        self.say("reload");
    }

    fn port(&self, name: &str) -> Option<Value> {
        let stats = self.stats();
        let mut ports = stats["ports"].as_array().expect("ports").iter();
        ports.find(|port| port["name"] == name).cloned()
    }

    fn link(&self, name: &str) -> Value {
        self.port(name).expect("the port")["link"].clone()
    }

    fn wait_status(&self, name: &str, part: &str) {
        wait_for(part, || {
            self.link(name)["status"].to_string().contains(part)
        });
    }
}

fn port(scratch: &Scratch, name: &str, more: &str) -> String {
    let socket = scratch.path(&format!("{name}.sock"));
    format!("[[port]]\nname = {name:?}\ndriver = \"vhost_user\"\nsocket = {socket:?}\n{more}")
}

fn config(ports: &[String], bridged: &[&str]) -> String {
    let ports = ports.concat();
    let bridge = format!("[[bridge]]\nname = \"br0\"\nports = {bridged:?}\n");
    format!("[engine]\nworkers = 1\nbuffers = 1024\n{ports}{bridge}")
}

/// The message of `softnet run` about a configuration that it refuses.
fn refused(scratch: &Scratch, config: &str) -> String {
    let mut command = softnet();
    command
        .args(["run", "--strict"])
        .arg(scratch.file("bad.toml", config));
    let output = command.arg("--socket").arg(scratch.path("other")).output();
    let output = output.expect("softnet");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

fn mode(path: &Path) -> u32 {
    let file = fs::metadata(path).expect("the socket");
    file.permissions().mode() & 0o7777
}

#[test]
fn a_machines_socket() {
    let scratch = Scratch::new("vm-socket");
    let socket = scratch.path("vm1.sock");
    let one = |more: &str| config(&[port(&scratch, "vm1", more)], &["vm1"]);
    // Its mode is its owner's alone, or what the file says; it goes with the daemon.
    for (more, expected) in [
        ("", 0o600),
        ("socket_mode = \"0666\"\n", 0o666),
        ("socket_group = \"0\"\n", 0o660),
    ] {
        let daemon = Daemon::start(&scratch, &one(more));
        assert_eq!(mode(&socket), expected, "{more}");
        daemon.stop();
        assert!(!socket.exists());
    }
    // That of a daemon that was killed is taken over; that of one that lives is not.
    let killed = Daemon::start(&scratch, &one(""));
    killed.running.signal(Signal::KILL);
    killed.running.finish();
    // Its helper removes it, unless that was killed, too.
    wait_for("the end of the helper", || !socket.exists());
    drop(UnixListener::bind(&socket).expect("a socket"));
    // A program that another test starts has it for a moment, until it is that program.
    wait_for("the end of the server", || {
        UnixStream::connect(&socket).is_err()
    });
    assert!(socket.exists());
    let daemon = Daemon::start(&scratch, &one(""));
    let in_use = refused(&scratch, &one(""));
    assert!(in_use.contains("another server listens there"), "{in_use}");
    let guest = FrontEnd::connect(&socket).expect("it listens");
    daemon.wait_status("vm1", "connected");
    drop(guest);
    daemon.stop();

    let other = UnixListener::bind(&socket).expect("a socket");
    let in_use = refused(&scratch, &one(""));
    assert!(in_use.contains("another server listens there"), "{in_use}");
    drop(other);
    fs::remove_file(&socket).expect("its file stays");
    fs::write(&socket, "precious").expect("a file");
    let said = refused(&scratch, &one(""));
    assert!(said.contains("exists and is not a socket"), "{said}");
    assert_eq!(fs::read_to_string(&socket).expect("it"), "precious");

    let at = |path: &Path| one("").replace(&format!("{socket:?}"), &format!("{path:?}"));
    let missing = scratch.path("no-such-folder/vm1.sock");
    let said = refused(&scratch, &at(&missing));
    assert!(said.contains("cannot bind"), "{said}");
    let said = refused(&scratch, &at(&scratch.path(&"x".repeat(100))));
    assert!(said.contains("1 to 107 bytes"), "{said}");
    fs::remove_file(&socket).expect("it is there");
    let said = refused(&scratch, &one("socket_group = \"no-such-group\"\n"));
    assert!(said.contains("no group \"no-such-group\""), "{said}");
    assert!(!socket.exists());
}

/// A guest at a port.
struct Machine {
    guest: Guest,
    front_end: FrontEnd,
}

impl Machine {
    fn at(scratch: &Scratch, name: &str, pairs: usize) -> Machine {
        let mut guest = Guest::new(GuestConfig {
            pairs,
            size: 64,
            packed: true,
            event_index: true,
            features: 0,
        });
        let path = scratch.path(&format!("{name}.sock"));
        let mut front_end = FrontEnd::connect(&path).expect("it listens");
        guest.start(&mut front_end).expect("the port is there");
        Machine { guest, front_end }
    }

    /// Sends a broadcast frame with a mark.
    fn send(&mut self, mark: u32) {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.extend(mark.to_be_bytes());
        frame.resize(64, 0);
        self.guest.with(1, |ring| {
            ring.complete();
            assert!(ring.send([0; HEADER], &frame, false));
        });
    }

    /// Waits for the frame with this mark, which is the next.
    fn receive(&mut self, mark: u32) {
        let mut frame = None;
        wait_for("a frame", || {
            let rings = (0..2 * self.guest.config().pairs).step_by(2);
            frame = rings
                .filter_map(|ring| self.guest.ring(ring).receive())
                .next();
            frame.is_some()
        });
        let frame = frame.expect("a frame");
        assert_eq!(frame[HEADER + 14..HEADER + 18], mark.to_be_bytes());
    }

    /// Offers a buffer on each queue.
    fn offer(&mut self) {
        for ring in (0..2 * self.guest.config().pairs).step_by(2) {
            self.guest.with(ring, |ring| ring.fill(1, BUFFER));
        }
    }
}

#[test]
fn machines_at_a_switch_that_is_changed() {
    if !has_program("ip") || !has_program("tc") {
        return;
    }
    let scratch = Scratch::new("vm-change");
    let pool = "qdisc = { kind = \"pfifo\", handle = \"1:\", limit = 100 }\n";
    let vm1 = port(&scratch, "vm1", "");
    let vm2 = |more: &str| port(&scratch, "vm2", &format!("{more}{pool}"));
    let both = config(&[vm1.clone(), vm2("")], &["vm1", "vm2"]);
    let daemon = Daemon::start(&scratch, &both);
    daemon.wait_status("vm1", "waiting for a front end at");
    assert_eq!(daemon.link("vm1")["up"], json!(false));
    let mut one = Machine::at(&scratch, "vm1", 1);
    let mut two = Machine::at(&scratch, "vm2", 1);
    for name in ["vm1", "vm2"] {
        daemon.wait_status(name, "connected, 2 of 2 packed rings enabled");
        wait_for("the link", || daemon.link(name)["up"] == json!(true));
    }
    let mut mark = 0;
    let mut exchange = |one: &mut Machine, two: &mut Machine| {
        mark += 1;
        two.offer();
        one.send(mark);
        two.receive(mark);
    };
    exchange(&mut one, &mut two);

    // The qdisc, with packets in it that wait for the guest: each comes, in order.
    for mark in 1000..1020 {
        one.send(mark);
    }
    let queued = || daemon.port("vm2").expect("it is there")["queued"].clone();
    wait_for("the frames to wait", || queued() == json!(20));
    for kind in ["fq_codel", "tbf rate 1gbit burst 64k latency 1s", "pfifo"] {
        let replace = "exec -- tc qdisc replace dev vm2 root ";
        daemon.say(&format!("{replace}{kind}"));
        assert!(
            daemon
                .say("dump-config")
                .contains(kind.split(' ').next().expect("a kind"))
        );
        wait_for("all of them to wait", || queued() == json!(20));
    }
    for mark in 1000..1020 {
        two.offer();
        two.receive(mark);
    }
    exchange(&mut one, &mut two);

    // Taken down, nothing passes; the guest's rings stay as they are.
    daemon.say("exec -- ip link set vm2 down mtu 9000");
    let received = || daemon.port("vm1").expect("it is there")["rx_packets"].as_u64();
    let before = received();
    one.send(7);
    wait_for("the frame to be taken", || received() > before);
    let shown = daemon.say("exec -- ip link show vm2");
    assert!(
        shown.contains("mtu 9000") && !shown.contains("LOWER_UP"),
        "{shown}"
    );
    daemon.say("exec -- ip link set vm2 up");
    wait_for("the link", || daemon.link("vm2")["up"] == json!(true));
    exchange(&mut one, &mut two);

    // As the dump says it is: nothing is replaced by that.
    let dump = daemon.say("dump-config");
    daemon.reload(&dump);
    assert_eq!(daemon.say("dump-config"), dump);
    exchange(&mut one, &mut two);

    // What is said of one port does not touch the other.
    for more in ["queues = 2\n", "queues = 2\nsocket_mode = \"0666\"\n"] {
        daemon.reload(&config(&[vm1.clone(), vm2(more)], &["vm1", "vm2"]));
        two.front_end.wait_closed();
        let was_here = daemon.port("vm1").expect("it is there");
        assert!(was_here["tx_packets"].is_u64() && was_here["rx_packets"].as_u64() > Some(20));
        two = Machine::at(&scratch, "vm2", 2);
        daemon.wait_status("vm2", "connected, 4 of 4 packed rings enabled");
        wait_for("the link", || daemon.link("vm2")["up"] == json!(true));
        exchange(&mut one, &mut two);
    }
    assert_eq!(mode(&scratch.path("vm2.sock")), 0o666);

    // Removed, and there again at another place, as a client.
    daemon.reload(&config(std::slice::from_ref(&vm1), &["vm1"]));
    two.front_end.wait_closed();
    assert!(!scratch.path("vm2.sock").exists());
    assert!(daemon.port("vm2").is_none());
    let listener = UnixListener::bind(scratch.path("vm2.sock")).expect("a socket");
    daemon.reload(&config(&[vm1, vm2("server = false\n")], &["vm1", "vm2"]));
    let mut guest = Guest::new(GuestConfig {
        pairs: 1,
        ..two.guest.config()
    });
    let mut front_end = FrontEnd::accept(&listener).expect("the port connects");
    guest.start(&mut front_end).expect("the port is there");
    let mut two = Machine { guest, front_end };
    wait_for("the link", || daemon.link("vm2")["up"] == json!(true));
    exchange(&mut one, &mut two);
    daemon.stop();
    // A front end's socket is not ours to remove.
    assert!(scratch.path("vm2.sock").exists() && !scratch.path("vm1.sock").exists());
}

/// The front end keeps its connection, and the rings go on where they were.
#[test]
fn machines_go_on_while_the_daemon_is_replaced() {
    let scratch = Scratch::new("vm-replace");
    let ports = ["vm1", "vm2"].map(|name| port(&scratch, name, ""));
    let mut daemon = Daemon::start(&scratch, &config(&ports, &["vm1", "vm2"]));
    let mut machines = ["vm1", "vm2"].map(|name| Machine::at(&scratch, name, 1));
    let is_up = |daemon: &Daemon| {
        for name in ["vm1", "vm2"] {
            wait_for("the link", || daemon.link(name)["up"] == json!(true));
        }
    };
    is_up(&daemon);
    for mark in 0..100 {
        let [one, two] = &mut machines;
        two.offer();
        one.send(mark);
        if mark % 33 == 32 {
            // It has to come, by whichever daemon.
            let mut command = softnet();
            command.arg("run").arg(&daemon.config);
            command.args(["--replace", "--socket"]);
            let next = Running::start(command.arg(&daemon.socket));
            let output = daemon.running.finish();
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            daemon = Daemon {
                running: next,
                ..daemon
            };
            wait_for("the daemon", || daemon.ask("stats").status.success());
            is_up(&daemon);
        }
        two.receive(mark);
        assert!(!one.front_end.is_closed() && !two.front_end.is_closed());
    }
    daemon.stop();
    for name in ["vm1.sock", "vm2.sock", "socket"] {
        assert!(!scratch.path(name).exists(), "{name}");
    }
}
