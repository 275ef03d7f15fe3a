//! Ports of all drivers on one bridge, which come and go under load, as do their interfaces. At
//! each rest every packet is accounted for, every port is there, and its station is heard.
//!
//! It takes `SOFTNET_PORT_SOAK_SECONDS` (5).

mod common;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Daemon, NamedNetns, Scratch, ask, has_program, may_make_networks, text, wait_for};
use serde_json::Value;
use softnet_tests::guest::{FrontEnd, Guest, GuestConfig};
use softnet_tests::random::Random;

/// Time between two rests.
const LOAD: Duration = Duration::from_secs(2);
/// Ports of the stations that are hosts, whose numbers are from 1 on, and of the others.
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
/// Number of the station that is a virtual machine.
const MACHINE: u8 = 8;
const BROADCAST: [u8; 6] = [0xff; 6];
/// UDP port where stations hear each other at a rest.
const REST: u16 = 8;

fn mac(number: u8) -> String {
    format!("02:00:00:00:02:{number:02x}")
}

/// UDP over IPv4 in a broadcast frame to a station, without a checksum.
fn datagram(from: u8, to: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = [
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, from, 10, 9, 0, to,
    ];
    ip[2..4].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    let sum = softnet::wire::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let length = (8 + payload.len() as u16).to_be_bytes();
    let port = port.to_be_bytes();
    let ethernet = [&BROADCAST[..], &[2, 0, 0, 0, 2, from, 8, 0]].concat();
    [&ethernet, &ip[..], &port, &port, &length, &[0, 0], payload].concat()
}

/// A pcap file of such frames.
fn packet_file() -> Vec<u8> {
    let words = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1];
    let mut file: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    for number in 0..300 {
        let frame = datagram(77, 1, 9, &vec![7; number * 4]);
        let len = frame.len() as u32;
        file.extend([0, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

/// The hosts, and the switch's ends of veths.
struct Net {
    hosts: Vec<NamedNetns>,
    wires: NamedNetns,
    scratch: Scratch,
}

impl Net {
    fn new() -> Net {
        let host = |name| NamedNetns::new(&format!("all{name}"));
        let net = Net {
            hosts: HOSTS.map(host).into(),
            wires: NamedNetns::new("allw"),
            scratch: Scratch::new("all"),
        };
        fs::write(net.scratch.path("in.pcap"), packet_file()).expect("a file");
        let foreign = &net.hosts[2];
        foreign.ip(&["tuntap", "add", "eth0", "mode", "tap", "vnet_hdr"]);
        net.configure(3);
        for number in [4, 5] {
            net.connect(number);
        }
        net
    }

    /// Gives a host's own interface its addresses.
    fn configure(&self, number: u8) {
        let host = &self.hosts[usize::from(number) - 1];
        let (mac, address) = (mac(number), format!("10.9.0.{number}/24"));
        let broadcast = ["broadcast", "10.9.0.255"];
        host.ip(&["link", "set", "eth0", "address", &mac]);
        host.ip(&[&["address", "add", &address, "dev", "eth0"], &broadcast[..]].concat());
        host.ip(&["link", "set", "eth0", "up"]);
    }

    /// Makes a host's veth.
    fn connect(&self, number: u8) {
        let host = &self.hosts[usize::from(number) - 1];
        let wire = format!("wire{number}");
        let peer = ["type", "veth", "peer", "name", "eth0", "netns", &host.name];
        self.wires
            .ip(&[&["link", "add", &wire], &peer[..]].concat());
        self.wires.ip(&["link", "set", &wire, "up"]);
        // A port of af_xdp has no offloads.
        let output = host.at("ethtool -K eth0 tx off txvlan off");
        assert!(output.status.success(), "{}", text(&output.stderr));
        self.configure(number);
    }

    /// The keys of a port, each as in a file and as in a command.
    fn keys(&self, name: &str) -> Vec<String> {
        let path = |file: &str| format!("{:?}", self.scratch.path(file));
        let tap = |host: u8| {
            vec![
                "driver=\"tap\"".to_owned(),
                format!("netns={:?}", self.hosts[usize::from(host) - 1].name),
                format!("mac={:?}", mac(host)),
                format!("address=[\"10.9.0.{host}/24\"]"),
                "interface=\"eth0\"".to_owned(),
            ]
        };
        let wire = |driver: &str, number: u8| {
            vec![
                format!("driver={driver:?}"),
                format!("interface=\"wire{number}\""),
                format!("netns={:?}", self.wires.name),
            ]
        };
        let socket = |driver: &str, server: bool| {
            vec![
                format!("driver={driver:?}"),
                format!("socket={}", path(&format!("{driver}.sock"))),
                format!("server={server}"),
            ]
        };
        match name {
            "tap" => tap(1),
            "tap2" => tap(2),
            "foreign" => vec![
                "driver=\"tap\"".to_owned(),
                "attach=true".to_owned(),
                "interface=\"eth0\"".to_owned(),
                format!("netns={:?}", self.hosts[2].name),
            ],
            "af_packet" => wire("af_packet", 4),
            "af_xdp" => wire("af_xdp", 5),
            "pcap" => vec![
                "driver=\"pcap\"".to_owned(),
                format!("read={}", path("in.pcap")),
                format!("write={}", path("out.pcap")),
                "pace=\"fast\"".to_owned(),
            ],
            "null" => vec!["driver=\"null\"".to_owned()],
            "host6" => tap(6),
            "host7" => tap(7),
            "to_stream" => socket("stream", false),
            "to_dgram" => socket("dgram", false),
            driver => socket(driver, true),
        }
    }

    /// A daemon with these bridges.
    fn start(&self, name: &str, bridges: &[&[&str]]) -> Daemon {
        // As much as one who may not raise the limit may lock for two ports of af_xdp.
        let mut file = String::from("[engine]\nworkers = 2\nbuffers = 2048\n");
        for (number, ports) in bridges.iter().enumerate() {
            for port in *ports {
                let keys = self.keys(port).join("\n");
                file += &format!("[[port]]\nname = {port:?}\n{keys}\n");
            }
            file += &format!("[[bridge]]\nname = \"br{number}\"\nports = {ports:?}\n");
        }
        let file = self.scratch.file(&format!("{name}.toml"), &file);
        Daemon::on(file, self.scratch.path(name))
    }
}

impl Daemon {
    fn add(&self, net: &Net, name: &str) -> Result<String, String> {
        let keys = net.keys(name);
        let mut words = vec!["port", "add", name, "bridge=br0"];
        words.extend(keys.iter().map(String::as_str));
        ask(&self.socket, &words)
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
    let names = [&HOSTS[1..], &OTHERS].concat();
    let name = *random.pick(&names);
    // What fails is not there, or there already.
    match random.below(10) {
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
        _ => {
            let number = *random.pick(&[4, 5]);
            net.wires.ip(&["link", "del", &format!("wire{number}")]);
            thread::sleep(Duration::from_millis(random.below(20)));
            net.connect(number);
        }
    }
}

/// Every port is there, and every station hears the first, and is heard by it.
fn everybody_is_heard(net: &Net, daemon: &Daemon, machine: &mut Machine, nonce: &mut u64) {
    for name in [&HOSTS[1..], &OTHERS].concat() {
        let mut answer = Err(String::new());
        wait_for(&format!("{name} to be there"), || {
            let there = daemon.stats()["ports"].as_array().is_some_and(|ports| {
                let mut ports = ports.iter();
                ports.any(|port| port["name"] == name)
            });
            answer = if there {
                Ok(String::new())
            } else {
                daemon.add(net, name)
            };
            answer.is_ok()
        });
    }
    let mut fresh = || {
        *nonce += 1;
        nonce.to_be_bytes()
    };
    let first = udp(&net.hosts[0], REST);
    for (number, host) in (2..).zip(&net.hosts[1..]) {
        let other = udp(host, REST);
        for (from, to, address) in [(&first, &other, number), (&other, &first, 1)] {
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
}

#[test]
fn soak_of_all_drivers() {
    if !may_make_networks() || !has_program("ethtool") || !has_program("ip") {
        return;
    }
    let seconds = std::env::var("SOFTNET_PORT_SOAK_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(5);
    let end = Instant::now() + Duration::from_secs(seconds);
    let net = Net::new();
    let daemon = net.start("switch", &[&[&HOSTS[..], &OTHERS].concat()]);
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
        let _ends = Ends(&stop);
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

/// Says so when it is dropped, in a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
