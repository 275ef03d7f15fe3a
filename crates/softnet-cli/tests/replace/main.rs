//! A daemon that takes over from another: at its wish, and after its death.

#[path = "../common/mod.rs"]
mod common;

mod dies;
mod store;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{
    NamedNetns, PATIENCE, Running, Scratch, ask, carriers, end, may_make_networks, ping, softnet,
    text, two_ports, wait_for,
};
use rustix::process::Signal;

/// A configuration, and daemons that run it one after the other.
struct Place {
    scratch: Scratch,
    hosts: [NamedNetns; 2],
}

impl Place {
    /// Two TAP ports; `more` is in the file, too.
    fn new(tag: &str, engine: &str, more: &str) -> Place {
        let scratch = Scratch::new(tag);
        let hosts = ["a", "b"].map(|host| NamedNetns::new(&format!("{tag}{host}")));
        let ports = two_ports((&hosts[0], "queues = 2"), (&hosts[1], ""));
        let file = format!("[engine]\nworkers = 2\nbuffers = 8192\n{engine}\n{ports}{more}");
        scratch.file("config.toml", &file);
        Place { scratch, hosts }
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = softnet();
        command.arg("run").arg(self.scratch.path("config.toml"));
        command.args(options).arg("--socket");
        command.arg(self.scratch.path("s"));
        command
    }

    fn start(&self, options: &[&str]) -> Running {
        let mut running = Running::start(&mut self.command(options));
        wait_for("the daemon", || {
            running.assert_running();
            self.ask("stats").is_ok()
        });
        running
    }

    /// Has another daemon replace this one, which must account for all packets.
    fn replace(&self, running: Running) -> Running {
        let next = Running::start(&mut self.command(&["--replace"]));
        let output = running.finish();
        let log = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{log}");
        assert!(log.contains("replaced by another daemon"), "{log}");
        next
    }

    fn ask(&self, words: &str) -> Result<String, String> {
        let words: Vec<&str> = words.split(' ').collect();
        ask(&self.scratch.path("s"), &words)
    }

    /// The output of a program at a host.
    fn at(&self, host: usize, words: &str) -> Output {
        self.hosts[host].at(words)
    }

    fn ping(&self) {
        ping(&self.hosts);
    }

    /// See [`carriers`].
    fn carriers(&self) -> String {
        carriers(&self.hosts)
    }

    fn end(&self, running: Running) -> Output {
        let output = end(running, &self.hosts);
        assert!(!self.scratch.path("s").exists(), "its socket is removed");
        output
    }
}

/// A stream from one host to the other, in order from the first byte to the last.
struct Flow {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    /// Longest time without a byte, in microseconds.
    stalled: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    fn start(place: &Place) -> Flow {
        let listener = place.hosts[1].run(|| TcpListener::bind("10.9.0.2:7").expect("a port"));
        let mut from = place.hosts[0].run(|| TcpStream::connect("10.9.0.2:7").expect("a host"));
        let (mut to, _) = listener.accept().expect("a stream");
        let (stop, received, stalled): (Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>) =
            Default::default();
        let stops = stop.clone();
        let send = thread::spawn(move || {
            let mut next = 0_u64;
            while !stops.load(Ordering::Relaxed) {
                let numbers = (next..next + 512).flat_map(u64::to_be_bytes);
                let part: Vec<u8> = numbers.collect();
                from.write_all(&part).expect("the stream goes on");
                next += 512;
                // Both CPUs are not for it alone.
                thread::sleep(Duration::from_micros(200));
            }
        });
        let (counts, longest) = (received.clone(), stalled.clone());
        let receive = thread::spawn(move || {
            to.set_read_timeout(Some(PATIENCE)).expect("a socket");
            let (mut next, mut last, mut part) = (0_u64, Instant::now(), [0; 4096]);
            loop {
                match to.read_exact(&mut part) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return,
                    read => read.expect("the stream goes on"),
                }
                for number in part.chunks(8) {
                    assert_eq!(number, next.to_be_bytes());
                    next += 1;
                }
                longest.fetch_max(last.elapsed().as_micros() as u64, Ordering::Relaxed);
                last = Instant::now();
                counts.fetch_add(part.len() as u64, Ordering::Relaxed);
            }
        });
        Flow {
            stop,
            received,
            stalled,
            threads: vec![send, receive],
        }
    }

    /// Waits until it has gone on.
    fn goes_on(&self) {
        let before = self.received.load(Ordering::Relaxed);
        wait_for("the stream", || {
            self.received.load(Ordering::Relaxed) > before + 100_000
        });
    }

    /// The longest stall.
    fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("every byte came, in order");
        }
        Duration::from_micros(self.stalled.load(Ordering::Relaxed))
    }
}

#[test]
fn a_stream_goes_on_while_the_daemon_is_replaced() {
    if !may_make_networks() {
        return;
    }
    let place = Place::new("replace", "", "[[port]]\nname = \"x\"\ndriver = \"null\"\n");
    let mut daemon = place.start(&[]);
    place.ping();
    for words in [
        "port add c driver=null mtu=1400 bridge=br0",
        "port del x",
        "tc qdisc add dev eth-b root tbf rate 400mbit burst 64k latency 50ms",
    ] {
        place.ask(words).expect(words);
    }
    let (state, carriers) = (place.ask("dump-config"), place.carriers());
    let flow = Flow::start(&place);
    for _ in 0..3 {
        flow.goes_on();
        daemon = place.replace(daemon);
        flow.goes_on();
        assert_eq!(place.carriers(), carriers, "no carrier dropped");
        assert_eq!(place.ask("dump-config"), state);
    }
    println!("longest stall: {:?}", flow.end());
    let shown = place.ask("port show --json").expect("shown");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let ports = shown["ports"].as_array().expect("a list");
    let added = ports.iter().find(|port| port["name"] == "c").expect("c");
    assert_eq!(added["run_time"], true);
    // Devices are changed by the new helper as by the old one.
    place.ask("port set eth-a mtu=1400").expect("changed");
    let shown = text(&place.at(0, "ip link show eth-a").stdout);
    assert!(shown.contains("mtu 1400"), "{shown}");
    place.end(daemon);
}

#[test]
fn a_successor_that_fails_leaves_the_daemon() {
    if !may_make_networks() {
        return;
    }
    let place = Place::new("replacefails", "socket_mode = \"0666\"", "");
    let daemon = place.start(&[]);
    place.ping();
    let (state, carriers) = (place.ask("dump-config"), place.carriers());
    let flow = Flow::start(&place);
    let mut tries = 0;
    let mut fails = |change: &dyn Fn(&mut Command), file: &str, code: i32, why: &str| {
        let path = place.scratch.path("config.toml");
        let before = fs::read_to_string(&path).expect("ours");
        fs::write(&path, before.clone() + file).expect("ours");
        let mut command = place.command(&["--replace", "--strict"]);
        change(&mut command);
        let output = Running::start(&mut command).finish();
        let log = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{log}");
        assert!(log.contains(why), "{log}");
        fs::write(&path, before).expect("ours");
        flow.goes_on();
        assert_eq!(place.carriers(), carriers);
        assert_eq!(place.ask("dump-config"), state);
        tries += 1;
    };
    // Before it asks, and when its turn has come.
    fails(&|_| {}, "[[port]]\nname = 1\n", 2, "name");
    let missing = "[[port]]\nname = \"u\"\ndriver = \"af_packet\"\ninterface = \"none0\"\n";
    fails(&|_| {}, missing, 2, "none0");
    fails(&|_| {}, missing, 2, "none0");
    // By somebody else.
    let nobody = |command: &mut Command| {
        command.uid(65534).gid(65534);
    };
    fails(&nobody, "", 1, "not permitted");
    println!("longest stall: {:?}", flow.end());
    let output = place.end(daemon);
    let log = text(&output.stderr);
    assert_eq!(log.matches("not replaced").count(), 2, "{log}");
}

/// Whenever the daemon dies, the successor runs.
#[test]
fn a_daemon_that_dies_while_it_is_replaced_is_replaced() {
    if !may_make_networks() {
        return;
    }
    let place = Place::new("replacedies", "", "");
    let mut daemon = place.start(&[]);
    for delay in [0, 10, 20, 40, 60, 80, 100, 150] {
        place.ping();
        let mut next = Running::start(&mut place.command(&["--replace"]));
        thread::sleep(Duration::from_millis(delay));
        // It may have ended by itself.
        let _ = rustix::process::kill_process(daemon.pid(), Signal::KILL);
        drop(daemon);
        wait_for("the successor", || {
            next.assert_running();
            place.ask("stats").is_ok()
        });
        daemon = next;
    }
    place.ping();
    place.end(daemon);
}

/// Bytes of a frame behind its length, as stream sockets have them.
fn frame(mark: u8) -> Vec<u8> {
    let mut bytes = 60_u32.to_be_bytes().to_vec();
    bytes.extend([0xff; 6]);
    bytes.extend([2, 0, 0, 0, 0, mark]);
    bytes.extend([0x88, 0xb5]);
    bytes.resize(64, mark);
    bytes
}

#[test]
fn connections_and_half_frames_go_on() {
    let scratch = Scratch::new("replacestream");
    let port = |name: &str| {
        let path = scratch.path(name);
        format!("[[port]]\nname = {name:?}\ndriver = \"stream\"\nsocket = {path:?}\n")
    };
    let file = format!(
        "[engine]\nworkers = 1\nbuffers = 512\n{}{}[[bridge]]\nname = \"br0\"\n\
         ports = [\"p\", \"q\"]\n",
        port("p"),
        port("q"),
    );
    let config = scratch.file("config.toml", &file);
    let start = |options: &[&str]| {
        let mut command = softnet();
        command
            .arg("run")
            .arg(&config)
            .args(options)
            .arg("--socket");
        Running::start(command.arg(scratch.path("s")))
    };
    let mut daemon = start(&[]);
    wait_for("the ports", || {
        daemon.assert_running();
        scratch.path("s").exists() && scratch.path("q").exists()
    });
    let connect = |name: &str| {
        let mut stream = None;
        wait_for("the port", || {
            stream = UnixStream::connect(scratch.path(name)).ok();
            stream.is_some()
        });
        let stream = stream.expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    };
    let (mut p, mut q) = (connect("p"), connect("q"));
    let arrives = |q: &mut UnixStream, sent: &[u8]| {
        let mut got = [0; 64];
        q.read_exact(&mut got).expect("a frame");
        // One of the first that came late.
        while got[..] == frame(1) {
            q.read_exact(&mut got).expect("a frame");
        }
        assert_eq!(got, sent);
    };
    // Until both are up.
    p.set_nonblocking(false).expect("a socket");
    wait_for("the first frame", || {
        p.write_all(&frame(1)).expect("it reads");
        q.set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a socket");
        let mut got = [0; 64];
        q.read_exact(&mut got).is_ok()
    });
    q.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // What was sent meanwhile.
    q.set_nonblocking(true).expect("a socket");
    while q.read(&mut [0; 64]).is_ok() {}
    q.set_nonblocking(false).expect("a socket");
    for mark in 2..5 {
        let sent = frame(mark);
        let cut = 10 * usize::from(mark);
        p.write_all(&sent[..cut]).expect("it reads");
        // It is likely to have read that by now; what it has not read waits in the socket.
        thread::sleep(Duration::from_millis(50));
        let next = start(&["--replace"]);
        let output = daemon.finish();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        p.write_all(&sent[cut..]).expect("it reads");
        arrives(&mut q, &sent);
        daemon = next;
    }
    daemon.stop();
    for name in ["s", "p", "q"] {
        assert!(!scratch.path(name).exists(), "{name} is removed");
    }
}

#[test]
fn packet_sockets_are_handed_off() {
    if !may_make_networks() {
        return;
    }
    let netns = NamedNetns::new("replacepkt");
    netns.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
    netns.ip(&["link", "set", "v0", "up"]);
    netns.ip(&["link", "set", "v1", "up"]);
    let uplink = format!(
        "[[port]]\nname = \"u\"\ndriver = \"af_packet\"\ninterface = \"v1\"\nnetns = {:?}\n\
         queues = 2\n",
        netns.name
    );
    let place = Place::new("replacepk", "", &uplink);
    let daemon = place.start(&[]);
    let sockets = || {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &netns.name, "cat", "/proc/net/packet"]);
        let table = text(&command.output().expect("ip").stdout);
        // Numbers of the sockets are last.
        let lines = table.lines().skip(1);
        let numbers = lines.filter_map(|line| line.split_whitespace().last());
        let mut numbers: Vec<String> = numbers.map(str::to_owned).collect();
        numbers.sort();
        numbers
    };
    let before = sockets();
    assert_eq!(before.len(), 2);
    let daemon = place.replace(daemon);
    wait_for("its answer", || place.ask("stats").is_ok());
    assert_eq!(sockets(), before);
    place.end(daemon);
}
