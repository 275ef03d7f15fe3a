//! `softnet capture` at TAP ports with real traffic.

#[path = "../common/mod.rs"]
mod common;

mod load;
mod shown;
mod slow;

use std::fs::{self, File};
use std::io::Read;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use common::{
    Daemon, NamedNetns, Running, Scratch, has_program, may_make_networks, ping, softnet, text,
    two_ports, wait_for,
};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use rustix::process::Signal;

/// Bytes of a datagram, and of its frame.
const LEN: usize = 1000;
const FRAME: usize = LEN + 8 + 20 + 14;

/// A daemon with two TAP ports: what goes to `eth-b` waits in class 1:20.
struct Shaped {
    switch: Daemon,
    scratch: Scratch,
    hosts: [NamedNetns; 2],
}

/// A captured packet.
#[derive(Debug)]
struct Packet {
    /// 1 on its way in, 2 on its way out.
    direction: u32,
    queue: Option<u32>,
    has_verdict: bool,
    missed: u64,
    comment: String,
    len: usize,
}

/// A whole file.
#[derive(Debug, Default)]
struct Capture {
    port: String,
    packets: Vec<Packet>,
    matched: u64,
    missed: u64,
}

impl Capture {
    fn read(file: impl Read) -> Capture {
        let mut reader = PcapNgReader::new(file).expect("a capture");
        let mut capture = Capture::default();
        let mut ended = false;
        while let Some(block) = reader.next_block() {
            assert!(!ended, "a block behind the statistics");
            match block.expect("a block") {
                Block::InterfaceDescription(interface) => {
                    for option in interface.options {
                        match option {
                            InterfaceDescriptionOption::IfName(name) => {
                                capture.port = name.into_owned();
                            }
                            InterfaceDescriptionOption::IfTsResol(power) => assert_eq!(power, 9),
                            other => panic!("{other:?}"),
                        }
                    }
                }
                Block::EnhancedPacket(packet) => {
                    let mut read = Packet {
                        direction: 0,
                        queue: None,
                        has_verdict: false,
                        missed: 0,
                        comment: String::new(),
                        len: packet.data.len(),
                    };
                    for option in packet.options {
                        match option {
                            EnhancedPacketOption::Comment(text) => {
                                read.comment = text.into_owned();
                            }
                            EnhancedPacketOption::Flags(flags) => read.direction = flags,
                            EnhancedPacketOption::DropCount(count) => read.missed = count,
                            EnhancedPacketOption::Unknown(option) => match option.code {
                                6 => {
                                    let queue = option.value[..4].try_into().expect("a number");
                                    read.queue = Some(u32::from_le_bytes(queue));
                                }
                                7 => read.has_verdict = option.value[..2] == [1, 2],
                                other => panic!("option {other}"),
                            },
                            other => panic!("{other:?}"),
                        }
                    }
                    capture.packets.push(read);
                }
                Block::InterfaceStatistics(statistics) => {
                    ended = true;
                    for option in statistics.options {
                        match option {
                            InterfaceStatisticsOption::IsbIfRecv(n) => capture.matched = n,
                            InterfaceStatisticsOption::IsbIfDrop(n) => capture.missed = n,
                            _ => {}
                        }
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(ended, "no statistics");
        capture
    }

    /// Times waited, in nanoseconds.
    fn waited(&self) -> Vec<u64> {
        let waited = |packet: &Packet| {
            let (_, rest) = packet.comment.split_once("waited ")?;
            rest.split(' ').next()?.parse().ok()
        };
        self.packets.iter().filter_map(waited).collect()
    }
}

impl Shaped {
    fn start(tag: &str, rate: &str) -> Shaped {
        let scratch = Scratch::new(tag);
        let hosts = ["a", "b"].map(|host| NamedNetns::new(&format!("{tag}{host}")));
        for host in &hosts {
            // With IPv6 they say things by themselves. (Where this may not be written, they do.)
            let file = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
            let _ = host.run(|| fs::write(file, "1"));
        }
        let shaped = format!(
            "[[port.qdisc]]\nkind = \"htb\"\nhandle = \"1:\"\ndefault = \"20\"\n\
             [[port.class]]\nclassid = \"1:20\"\nrate = \"{rate}\"\n\
             [[port.qdisc]]\nkind = \"pfifo\"\nparent = \"1:20\"\nlimit = 20\n"
        );
        let ports = two_ports((&hosts[0], ""), (&hosts[1], &shaped));
        let monitor = scratch.path("monitor");
        let config = format!(
            "[engine]\nworkers = 2\nmonitor_socket = {:?}\n{ports}",
            monitor.display().to_string()
        );
        let switch = Daemon::start(&scratch, &config);
        ping(&hosts);
        Shaped {
            switch,
            scratch,
            hosts,
        }
    }

    fn command(&self, words: &str) -> Command {
        let mut command = softnet();
        command.args(words.split(' '));
        command.arg("--socket").arg(&self.switch.socket);
        command
    }

    /// Starts a capture into a file of this name.
    fn capture(&self, words: &str, name: &str) -> Running {
        let path = self.scratch.path(name);
        let words = format!("capture {words} -w {}", path.display());
        let running = Running::start(&mut self.command(&words));
        wait_for("the capture", || {
            fs::metadata(&path).is_ok_and(|file| file.len() > 0)
        });
        running
    }

    fn read(&self, name: &str) -> Capture {
        Capture::read(File::open(self.scratch.path(name)).expect("a file"))
    }

    /// Sends datagrams from `a` to a port of `b`.
    fn send(&self, port: u16, count: usize) {
        self.hosts[0].run(|| {
            let socket = UdpSocket::bind("10.9.0.1:0").expect("a socket");
            let to = ("10.9.0.2", port);
            for _ in 0..count {
                // Where nobody listens the host's answer to the last one may come first.
                let _ = socket.send_to(&[7; LEN], to);
            }
        });
    }

    /// Packets that a port has received or sent.
    fn packets(&self, port: &str, key: &str) -> u64 {
        let output = self.command("stats --json").output().expect("softnet");
        let stats: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let ports = stats["ports"].as_array().expect("ports");
        let port = ports.iter().find(|of| of["name"] == port).expect("a port");
        port[key].as_u64().expect("a number")
    }

    /// Ends it. It says whether every packet is accounted for.
    fn end(self) {
        self.switch.stop();
    }
}

/// Ends a capture by a signal.
fn interrupt(running: Running) -> Output {
    running.signal(Signal::INT);
    let output = running.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

#[test]
fn captures_tell_what_happens_to_packets() {
    if !may_make_networks() {
        return;
    }
    let daemon = Shaped::start("capture", "1mbit");
    let lines = Running::start(&mut daemon.command("capture eth-a -c 3 udp dst port 5001"));
    let arriving = daemon.capture("eth-a udp port 5001", "in.pcapng");
    let leaving = daemon.capture("eth-b:1:20 udp and port 5001", "out.pcapng");
    let dropped = daemon.capture("eth-b --dropped udp port 5001", "dropped.pcapng");
    wait_for("the lines", || {
        daemon.switch.running.has_thread("capture") && daemon.captures() == 4
    });
    let fifth = daemon.command("capture eth-a").output().expect("softnet");
    assert_eq!(fifth.status.code(), Some(2));
    assert!(text(&fifth.stderr).contains("there are 4 captures already"));
    // More than the class holds, so that some wait and some are dropped.
    daemon.send(5001, 100);
    daemon.send(5002, 10);
    let output = lines.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for line in lines {
        assert!(line.contains(" in eth-a 10.9.0.1:"), "{line}");
        assert!(line.contains("> 10.9.0.2:5001 udp, length 1042"), "{line}");
    }
    wait_for("everything to be captured", || {
        let counts = ["in", "out", "dropped"].map(|name| daemon.written(name));
        counts[0] == 100 && counts[1] + counts[2] == 100
    });
    for running in [arriving, leaving, dropped] {
        let output = interrupt(running);
        assert!(text(&output.stderr).contains("missed: 0"));
    }
    let seen = daemon.read("in.pcapng");
    assert_eq!((&*seen.port, seen.packets.len()), ("eth-a", 100));
    assert_eq!((seen.matched, seen.missed), (100, 0));
    assert!(seen.packets.iter().all(|p| p.direction == 1));
    assert!(seen.packets.iter().all(|p| p.len == FRAME));
    let left = daemon.read("out.pcapng");
    let gone = daemon.read("dropped.pcapng");
    assert_eq!(left.packets.len() + gone.packets.len(), 100);
    assert!(left.packets.len() >= 20 && gone.packets.len() >= 20);
    for packet in &left.packets {
        assert_eq!((packet.direction, packet.queue), (2, Some(0)));
        assert!(packet.comment.starts_with("queue 0, class 1:20, waited "));
        assert!(!packet.has_verdict && packet.missed == 0);
    }
    // Each packet takes 8 ms at that rate.
    let longest = left.waited().into_iter().max();
    assert!(longest > Some(8_000_000), "{longest:?}");
    for packet in &gone.packets {
        assert_eq!(packet.direction, 2);
        let ends = packet.comment.ends_with("dropped: qdisc_limit");
        assert!(ends && packet.has_verdict, "{packet:?}");
        assert!(packet.comment.contains("class 1:20"), "{packet:?}");
    }
    if has_program("tshark") {
        let fields = ["frame.comment", "frame.interface_name", "udp.dstport"];
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(daemon.scratch.path("dropped.pcapng"));
        tshark.args(["-T", "fields"]);
        for field in fields {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().expect("tshark");
        let said = text(&output.stdout);
        let first = said.lines().next().unwrap_or_default();
        let fields: Vec<&str> = first.split('\t').collect();
        assert!(fields[0].contains("dropped: qdisc_limit"), "{first}");
        assert_eq!(fields[1..], ["eth-b", "5001"]);
    }
    daemon.end();
}

impl Shaped {
    /// Datagrams to port 5001 in a file that is being written: by their UDP headers.
    fn written(&self, name: &str) -> usize {
        let file = fs::read(self.scratch.path(&format!("{name}.pcapng")));
        let file = file.unwrap_or_default();
        let header = [0x13, 0x89, 0x03, 0xf0];
        file.windows(4).filter(|bytes| *bytes == header).count()
    }

    /// Threads that send captures.
    fn captures(&self) -> usize {
        let tasks = fs::read_dir(self.switch.running.proc().join("task")).expect("its threads");
        let names = tasks.flatten().map(|task| task.path().join("comm"));
        let names = names.filter_map(|name| fs::read_to_string(name).ok());
        names.filter(|name| name.trim_end() == "capture").count()
    }
}

#[test]
fn captures_are_for_who_may_change_things_and_for_what_is_there() {
    if !may_make_networks() {
        return;
    }
    let daemon = Shaped::start("refused", "10mbit");
    let mut reader = softnet();
    reader.args(["capture", "eth-a", "--socket"]);
    let output = reader.arg(daemon.scratch.path("monitor")).output();
    let output = output.expect("softnet");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("Operation not permitted"));
    let path = daemon.scratch.path("none.pcapng");
    for (words, said) in [
        ("capture eth-c", "there is no port \"eth-c\""),
        ("capture eth-b:1:99", "port \"eth-b\" has no class 1:99"),
        ("capture eth-b:x", "is not a class"),
        (
            "capture eth-a portrange 1-9",
            "write `(port 80 or port 81)`",
        ),
        ("capture eth-a host example.org", "names are not looked up"),
        ("capture eth-a -c 0", "invalid value '0'"),
        ("capture eth-a --story udp", "cannot be used with"),
    ] {
        let mut command = daemon.command(words);
        let output = command.arg("-w").arg(&path).output().expect("softnet");
        assert_eq!(output.status.code(), Some(2), "{words}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(said), "{words}: {stderr}");
        assert!(!Path::exists(&path), "{words}: a file for nothing");
    }
    assert_eq!(daemon.captures(), 0);
    daemon.end();
}
