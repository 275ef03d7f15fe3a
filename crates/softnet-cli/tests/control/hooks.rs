//! Packets at hooks: what comes out of which port, byte for byte, and what is counted.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::answers::parse_in_order;
use super::common::{Daemon, Scratch, wait_for};
use super::{Differences, Iproute};
use softnet_tests::PATIENCE;

const PORTS: usize = 3;

/// A part of a recording.
enum Step<'a> {
    /// Lines of commands and their answers.
    Commands(Vec<&'a str>),
    /// Frames that came in, and those that went out of each port.
    Frames(Vec<(usize, Vec<u8>)>, [Vec<Vec<u8>>; PORTS]),
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Number of the port and bytes of the frame, behind the mark.
fn frame(text: &str) -> (usize, Vec<u8>) {
    let (port, hex) = text.split_once(' ').expect("a port and a frame");
    (port[1..].parse().expect("p0 to p2"), bytes(hex))
}

fn steps(recording: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for line in recording.lines().skip(1) {
        if let Some(sent) = line.strip_prefix("> ") {
            // Frames that follow on those that went out are a step of their own.
            match steps.last_mut() {
                Some(Step::Frames(all, out)) if out.iter().all(Vec::is_empty) => {
                    all.push(frame(sent));
                }
                _ => steps.push(Step::Frames(
                    vec![frame(sent)],
                    [const { Vec::new() }; PORTS],
                )),
            }
        } else if let Some(out) = line.strip_prefix("< ") {
            let Some(Step::Frames(_, all)) = steps.last_mut() else {
                panic!("nothing came in before {line}")
            };
            let (port, out) = frame(out);
            all[port].push(out);
        } else if let Some(Step::Commands(lines)) = steps.last_mut() {
            lines.push(line);
        } else {
            steps.push(Step::Commands(vec![line]));
        }
    }
    steps
}

/// The other end of a port.
struct End {
    stream: UnixStream,
    received: Vec<u8>,
}

impl End {
    fn send(&mut self, frame: &[u8]) {
        let length = u32::try_from(frame.len()).expect("a small frame");
        let whole = [&length.to_be_bytes(), frame].concat();
        self.stream.write_all(&whole).expect("sending");
    }

    /// Frames that are here.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let mut some = [0; 4096];
        self.stream.set_nonblocking(true).expect("a socket");
        loop {
            match self.stream.read(&mut some) {
                Ok(0) => panic!("the port is gone"),
                Ok(len) => self.received.extend(&some[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.stream.set_nonblocking(false).expect("a socket");
        let mut frames = Vec::new();
        while let Some((length, rest)) = self.received.split_first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some(frame) = rest.get(..length) else {
                break;
            };
            frames.push(frame.to_vec());
            self.received.drain(..4 + length);
        }
        frames
    }
}

/// A daemon with one worker, and what its ports are connected to.
struct Bench {
    daemon: Daemon,
    ends: [End; PORTS],
    /// Frames that each port was given.
    sent: [u64; PORTS],
}

impl Bench {
    fn start(scratch: &Scratch) -> Bench {
        let path = |port| scratch.path(&format!("p{port}"));
        let port = |port| {
            let socket = path(port);
            format!(
                "[[port]]\nname = \"p{port}\"\ndriver = \"stream\"\nserver = true\n\
                 socket = {socket:?}\n"
            )
        };
        let ports: String = (0..PORTS).map(port).collect();
        let daemon = Daemon::start(scratch, &format!("[engine]\nworkers = 1\n{ports}"));
        let ends = std::array::from_fn(|port| End {
            stream: UnixStream::connect(path(port)).expect("a port's socket"),
            received: Vec::new(),
        });
        let bench = Bench {
            daemon,
            ends,
            sent: [0; PORTS],
        };
        wait_for("connections", || {
            let up = |port: &&Value| port["name"] != "lo" && port["link"]["up"] == true;
            bench.ports().iter().filter(up).count() == PORTS
        });
        bench
    }

    fn ports(&self) -> Vec<Value> {
        self.daemon.stats()["ports"]
            .as_array()
            .expect("a list")
            .clone()
    }

    /// All that was sent has been taken from the sockets.
    fn wait_until_received(&self) {
        wait_for("the ports to receive", || {
            let ports = self.ports();
            let received = |port: usize| {
                let found = ports.iter().find(|of| of["name"] == format!("p{port}"));
                found.expect("a port")["rx_packets"].as_u64()
            };
            (0..PORTS).all(|port| received(port) == Some(self.sent[port]))
        });
    }

    fn send(&mut self, port: usize, frame: &[u8]) {
        self.ends[port].send(frame);
        self.sent[port] += 1;
    }

    /// Sends frames; returns what went out. `expected` is how many are waited for.
    fn exchange(&mut self, frames: &[(usize, Vec<u8>)], expected: usize) -> [Vec<Vec<u8>>; PORTS] {
        for (port, frame) in frames {
            self.send(*port, frame);
        }
        let mut out = [const { Vec::new() }; PORTS];
        let mut take = |ends: &mut [End; PORTS]| {
            for (end, out) in ends.iter_mut().zip(&mut out) {
                out.extend(end.take());
            }
            out.iter().map(Vec::len).sum::<usize>()
        };
        let start = Instant::now();
        while take(&mut self.ends) < expected && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        // What the worker does with a frame is done when it takes another one that comes later.
        // The last port is of no bridge: nothing becomes of these.
        for _ in 0..3 {
            self.wait_until_received();
            self.send(PORTS - 1, &[2; 60]);
        }
        self.wait_until_received();
        take(&mut self.ends);
        out
    }
}

/// Bytes and packets of a line of statistics, and the rest.
fn counts(line: &str) -> Option<(u64, u64, &str)> {
    let (bytes, rest) = line
        .trim_start()
        .strip_prefix("Sent ")?
        .split_once(" bytes ")?;
    let (packets, rest) = rest.split_once(" pkt")?;
    Some((bytes.parse().ok()?, packets.parse().ok()?, rest))
}

/// True for lines of statistics that differ by tags alone: Linux counts what is sent without the
/// outer VLAN tag of a frame, which it keeps beside it.
fn is_same_but_for_tags(linux: &str, ours: &str) -> bool {
    let (Some(linux), Some(ours)) = (counts(linux), counts(ours)) else {
        return false;
    };
    let (_, packets, rest) = ours;
    let tags = ours.0.checked_sub(linux.0);
    (linux.1, linux.2) == (packets, rest)
        && tags.is_some_and(|tags| tags % 4 == 0 && tags <= 4 * packets)
}

/// Frames of a port, a line each.
fn lines(frames: &[Vec<u8>]) -> Vec<String> {
    let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect();
    frames.iter().map(hex).collect()
}

#[test]
fn packets_become_what_linux_7_2_made_of_them() {
    for iproute in Iproute::all() {
        compare(&iproute);
    }
}

/// Has Softnet do what the recording of this version says.
fn compare(iproute: &Iproute) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
    let path = format!("{folder}/hooks.iproute2-{}.txt", iproute.version);
    let recording = fs::read_to_string(path).expect("a recording");
    let mut differences = Differences::of(&parse_in_order(&recording));
    let scratch = Scratch::new("hooks");
    let mut bench = Bench::start(&scratch);
    let (mut section, mut wrong) = (String::new(), String::new());
    for step in steps(&recording) {
        match step {
            Step::Commands(lines) => {
                let linux = parse_in_order(&format!("== {section}\n{}", lines.join("\n")));
                let commands = lines.iter().filter_map(|line| line.strip_prefix("$ "));
                let mut ours = parse_in_order(&bench.daemon.answers(&scratch, iproute, commands));
                for (linux, ours) in linux.iter().zip(&mut ours) {
                    if linux.command.ends_with(" ingress") {
                        continue;
                    }
                    for (linux, ours) in linux.said.iter().zip(&mut ours.said) {
                        if is_same_but_for_tags(linux, ours) {
                            ours.clone_from(linux);
                        }
                    }
                }
                wrong += &differences.compare(&linux, &ours);
                if let Some(last) = linux.last() {
                    section.clone_from(&last.section);
                }
            }
            Step::Frames(sent, expected) => {
                let count = expected.iter().map(Vec::len).sum();
                let out = bench.exchange(&sent, count);
                for port in 0..PORTS {
                    let (linux, ours) = (lines(&expected[port]), lines(&out[port]));
                    if linux != ours {
                        wrong += &format!("{section}: p{port} sent {ours:#?}, not {linux:#?}\n");
                    }
                }
            }
        }
    }
    bench.daemon.stop();
    assert!(wrong.is_empty(), "{wrong}");
    differences.all_were_seen();
}
