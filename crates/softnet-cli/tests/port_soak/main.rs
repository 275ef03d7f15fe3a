//! Ports of all drivers, which come and go under load, as do their interfaces, and passt. At each
//! rest every packet is accounted for, every port is there, and its station is heard.
//!
//! It takes `SOFTNET_PORT_SOAK_SECONDS` (5).

#[path = "../common/mod.rs"]
mod common;

mod net;
mod uplink;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::FileTypeExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Daemon, NamedNetns, ask, has_program, kill_passt, may_make_networks, text, wait_for,
};
use net::{Net, datagram};
use serde_json::Value;
use softnet_tests::guest::{FrontEnd, Guest, GuestConfig};
use softnet_tests::random::Random;

/// Time between two rests.
const LOAD: Duration = Duration::from_secs(2);
/// Ports of the stations that are hosts, whose numbers are from 1 on, and of the others on their
/// bridge.
const HOSTS: [&str; 7] = [
    "tap",
    "tap2",
    "foreign",
    "af_packet",
    "af_xdp",
    "stream",
    "dgram",
];
const OTHERS: [&str; 3] = ["vhost_user", "pcap", "null"];
/// Ports of the other bridge: passt serves one station, and answers for all other addresses.
const BEHIND: [&str; 2] = ["guest", UPLINK];
const UPLINK: &str = "uplink";
/// Number of the station that is a virtual machine.
const MACHINE: u8 = 8;
/// UDP port where stations hear each other at a rest.
const REST: u16 = 8;

/// Ports that come and go.
fn changed() -> Vec<&'static str> {
    [&HOSTS[1..], &OTHERS, &[UPLINK]].concat()
}

impl Daemon {
    fn add(&self, net: &Net, name: &str) -> Result<String, String> {
        let keys = net.keys(name);
        let bridge = match name {
            UPLINK => "bridge=br1",
            _ => "bridge=br0",
        };
        let mut words = vec!["port", "add", name, bridge];
        words.extend(keys.iter().map(String::as_str));
        ask(&self.socket, &words)
    }

    fn has(&self, name: &str) -> bool {
        self.stats()["ports"].as_array().is_some_and(|ports| {
            let mut ports = ports.iter();
            ports.any(|port| port["name"] == name)
        })
    }

    /// Waits until every packet is accounted for, and none is queued.
    fn rest(&self) {
        let mut last = Value::Null;
        let start = Instant::now();
        let holds = |sums: &Value| {
            let sum = |key: &str| sums[key].as_u64().expect("a number");
            sum("queued") == 0 && sum("rx") + sum("copied") == sum("tx") + sum("dropped")
        };
        while last.is_null() || !holds(&last) {
            assert!(start.elapsed() < common::PATIENCE, "{last}");
            last = self.stats()["conservation"].clone();
        }
    }
}

/// A virtual machine that connects to its port whenever that is there.
struct Machine {
    socket: PathBuf,
    connected: Option<(Guest, FrontEnd)>,
}

impl Machine {
    fn connect(socket: &Path) -> Option<(Guest, FrontEnd)> {
        let is_there = fs::metadata(socket).is_ok_and(|file| file.file_type().is_socket());
        let mut front_end = is_there.then(|| FrontEnd::connect(socket).ok())??;
        let mut guest = Guest::new(GuestConfig {
            pairs: 1,
            size: 256,
            packed: false,
            event_index: true,
            features: 0,
        });
        guest.start(&mut front_end).ok()?;
        Some((guest, front_end))
    }

    /// Sends a frame, and returns what has come.
    fn turn(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        if self.connected.as_ref().is_none_or(|c| c.1.is_closed()) {
            self.connected = Machine::connect(&self.socket);
        }
        let mut came = Vec::new();
        if let Some((guest, _)) = &mut self.connected {
            came.extend(std::iter::from_fn(|| guest.ring(0).receive()));
            guest.offer(0, u16::MAX);
            // What finds no place is not sent.
            let _ = guest.send(1, frame);
        }
        came
    }
}

/// A socket of a host.
fn udp(host: &NamedNetns, port: u16) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(("0.0.0.0", port)));
    let socket = socket.expect("a socket");
    socket.set_broadcast(true).expect("a broadcast");
    let wait = Some(Duration::from_millis(100));
    socket.set_read_timeout(wait).expect("a time");
    socket
}

/// True once this very datagram comes; others are what is left of before.
fn comes(socket: &UdpSocket, expected: &[u8]) -> bool {
    let mut buffer = [0; 2048];
    let mut next = || socket.recv(&mut buffer).map(|n| buffer[..n] == *expected);
    loop {
        match next() {
            Ok(true) => return true,
            Ok(false) => {}
            Err(_) => return false,
        }
    }
}

/// Traffic from a host to any other while `load` says so.
fn host_load(host: &NamedNetns, seed: u64, load: &AtomicBool, stop: &AtomicBool) {
    let socket = udp(host, 0);
    let mut random = Random::new(seed);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..random.below(20) {
            let to = match random.below(64) {
                0 => 255,
                _ => 1 + random.below(8),
            };
            let len = *random.pick(&[18, 18, 18, 300, 1400, 1472, 10_000]);
            if load.load(Ordering::Relaxed) {
                // Its interface may be away, and others not be there.
                let _ = socket.send_to(&vec![1; len], format!("10.9.0.{to}:9"));
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// One thing that happens to a port or to its interface.
fn change(net: &Net, daemon: &Daemon, random: &mut Random) {
    let name = *random.pick(&changed());
    // What fails is not there, or there already.
    match random.below(11) {
        0..=2 => {
            let _ = ask(&daemon.socket, &["port", "del", name]);
        }
        3..=5 => {
            let _ = daemon.add(net, name);
        }
        6 => {
            let number = *random.pick(&[3, 4, 5]);
            let host = &net.hosts[number - 1];
            host.ip(&["link", "set", "eth0", "down"]);
            thread::sleep(Duration::from_millis(random.below(20)));
            host.ip(&["link", "set", "eth0", "up"]);
        }
        // The interface is the same, whatever it is called meanwhile.
        7 => {
            let wire = format!("wire{}", random.pick(&[4, 5]));
            for [from, to] in [[&*wire, "other"], ["other", &*wire]] {
                net.wires.ip(&["link", "set", from, "down"]);
                net.wires.ip(&["link", "set", from, "name", to]);
                net.wires.ip(&["link", "set", to, "up"]);
                thread::sleep(Duration::from_millis(random.below(20)));
            }
        }
        8 => {
            let wire = format!("wire{}", random.pick(&[4, 5]));
            for mtu in ["1400", "1500"] {
                net.wires.ip(&["link", "set", &wire, "mtu", mtu]);
                thread::sleep(Duration::from_millis(random.below(20)));
            }
        }
        9 => {
            let number = *random.pick(&[4, 5]);
            net.wires.ip(&["link", "del", &format!("wire{number}")]);
            thread::sleep(Duration::from_millis(random.below(20)));
            net.connect(number);
        }
        _ if daemon.has(UPLINK) => kill_passt(&net.uplink.system, daemon),
        _ => {}
    }
}

/// Every port is there, and every station hears the first, and is heard by it.
fn everybody_is_heard(net: &Net, daemon: &Daemon, machine: &mut Machine, nonce: &mut u64) {
    for name in changed() {
        wait_for(&format!("{name} to be there"), || {
            daemon.has(name) || daemon.add(net, name).is_ok()
        });
    }
    let mut fresh = || {
        *nonce += 1;
        nonce.to_be_bytes()
    };
    let first = udp(&net.hosts[0], REST);
    for (number, host) in (2..).zip(&net.hosts[1..]) {
        let other = udp(host, REST);
        // A server of datagrams that is made anew knows nobody before somebody speaks.
        for (from, to, address) in [(&other, &first, 1), (&first, &other, number)] {
            let nonce = fresh();
            wait_for(&format!("{number} and 1 to hear each other"), || {
                let _ = from.send_to(&nonce, (format!("10.9.0.{address}").as_str(), REST));
                comes(to, &nonce)
            });
        }
    }
    let nonce = fresh();
    let frame = datagram(MACHINE, 1, REST, &nonce);
    wait_for("the virtual machine to be heard", || {
        machine.turn(&frame);
        comes(&first, &nonce)
    });
    let nonce = fresh();
    wait_for("the virtual machine to hear", || {
        let _ = first.send_to(&nonce, ("10.9.0.255", REST));
        let came = machine.turn(&frame);
        came.iter().any(|frame| frame.ends_with(&nonce))
    });
    let nonce = fresh();
    wait_for("the server behind passt", || net.uplink.answers(&nonce));
    // Pauses before another passt double: those of a port that is made anew begin again.
    ask(&daemon.socket, &["port", "del", UPLINK]).expect("it is there");
    wait_for("another uplink", || daemon.add(net, UPLINK).is_ok());
}

#[test]
fn soak_of_all_drivers() {
    let programs = ["ethtool", "ip", "passt"];
    if !may_make_networks() || !programs.into_iter().all(has_program) {
        return;
    }
    let seconds = std::env::var("SOFTNET_PORT_SOAK_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(5);
    let end = Instant::now() + Duration::from_secs(seconds);
    let net = Net::new();
    let daemon = net.start("switch", &[&[&HOSTS[..], &OTHERS].concat(), &BEHIND]);
    let peers = net.start("peers", &[&["to_stream", "host6"], &["to_dgram", "host7"]]);
    let machine = Mutex::new(Machine {
        socket: net.scratch.path("vhost_user.sock"),
        connected: None,
    });
    let (mut random, mut nonce) = (Random::new(seconds), 0);
    let (load, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut changes, mut rests) = (0, 0);
    thread::scope(|scope| {
        for (number, host) in (0..).zip(&net.hosts) {
            let (load, stop) = (&load, &stop);
            scope.spawn(move || host_load(host, number, load, stop));
        }
        scope.spawn(|| {
            let frame = datagram(MACHINE, 1, 9, &[8; 500]);
            while !stop.load(Ordering::Relaxed) {
                if load.load(Ordering::Relaxed) {
                    machine.lock().expect("it goes on").turn(&frame);
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| net.uplink.load(&load, &stop));
        let _ends = Ends(&stop);
        let _tells = Tells(&net, &daemon);
        loop {
            let rest = (Instant::now() + LOAD).min(end);
            load.store(true, Ordering::Relaxed);
            while Instant::now() < rest {
                change(&net, &daemon, &mut random);
                changes += 1;
                thread::sleep(Duration::from_millis(random.below(100)));
            }
            load.store(false, Ordering::Relaxed);
            let mut machine = machine.lock().expect("it goes on");
            daemon.rest();
            peers.rest();
            everybody_is_heard(&net, &daemon, &mut machine, &mut nonce);
            daemon.rest();
            rests += 1;
            if Instant::now() >= end {
                break;
            }
        }
    });
    println!("{changes} changes, {rests} rests");
    daemon.stop();
    peers.stop();
}

/// Prints the state of all things, if a panic drops it.
struct Tells<'a>(&'a Net, &'a Daemon);

impl Drop for Tells<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        // It may be the daemon that failed: a panic that left this would abort, and leave all.
        drop(catch_unwind(AssertUnwindSafe(|| {
            println!("{:#}", self.1.stats());
            println!("{}", self.1.run("bridge -s fdb show"));
        })));
        for host in self.0.hosts.iter().chain([&self.0.wires]) {
            for command in ["ip -d -s link", "ip neigh", "nstat -as"] {
                let output = host.at(command);
                println!("{}, {command}:\n{}", host.name, text(&output.stdout));
            }
        }
    }
}

/// Says so when it is dropped, in a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
