//! Multicast snooping beside the running kernel's bridge: the same messages of hosts and routers
//! in, the same frames out of the same ports, and the same groups afterwards.
//!
//! One thing differs, and is told apart: a report of IGMPv3 or MLDv2 goes to routers only, where
//! the kernel's bridge floods it.

mod members;

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet::tx::{Sent, TxRing};
use softnet::wire::{Membership, checksum, multicast};
use softnet_engine::forward::{Group, McastRouter, MulticastOptions};
use softnet_engine::rx::{Receive, RxQueue};
use softnet_engine::testing::Net;
use softnet_engine::{Link, MdbEntry};
use softnet_io::{Buffers, Netns, Tap, TapConfig};
use softnet_tests::{skip, wait_for};

const PORTS: usize = 5;
const GROUP: [u8; 4] = [239, 1, 1, 1];
const OTHER: [u8; 4] = [239, 2, 2, 2];

/// Ports and what left there.
type Frames = Vec<(usize, Vec<u8>)>;

/// A bridge of the kernel's, with TAP devices as ports, in a namespace of its own.
struct Kernel {
    netns: Netns,
    taps: Vec<Tap>,
    pool: Pool,
}

impl Kernel {
    /// `None`, and the reason printed, where the test cannot run.
    fn new(options: &str) -> Option<Kernel> {
        for program in ["ip", "bridge"] {
            if let Err(e) = Command::new(program).arg("-V").output() {
                skip(&format!("needs {program}: {e}"));
                return None;
            }
        }
        let netns = match Netns::anonymous() {
            Ok(netns) => netns,
            Err(e) => {
                skip(&format!("needs network namespaces: {e}"));
                return None;
            }
        };
        let no_ipv6 = || {
            for which in ["all", "default"] {
                // A kernel without IPv6 sends nothing by itself.
                let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
                let _ = std::fs::write(file, "1");
            }
        };
        netns.run(no_ipv6).expect("the namespace");
        let pool = Pool::new(PoolConfig {
            buffers: 1024,
            buffer_size: 2048,
        })
        .expect("a pool");
        let mut kernel = Kernel {
            netns,
            taps: Vec::new(),
            pool,
        };
        // Hosts need no time to answer, and who is asked has all the time of the test.
        let snooping = "mcast_snooping 1 mcast_query_response_interval 0 \
                        mcast_last_member_interval 10000";
        if let Err(e) = kernel.run(&format!("ip link add br0 type bridge {snooping}")) {
            skip(&format!("needs the kernel's bridge with snooping: {e}"));
            return None;
        }
        for n in 0..PORTS {
            let config = TapConfig {
                netns: Some(kernel.netns.clone()),
                offload: false,
                up: false,
                ..TapConfig::new(format!("t{n}"))
            };
            let buffers = Buffers {
                small: kernel.pool.clone(),
                large: None,
            };
            match Tap::open(&config, &buffers) {
                Ok(tap) => kernel.taps.push(tap),
                Err(e) => {
                    skip(&format!("needs TAP devices: {e}"));
                    return None;
                }
            }
            kernel.set(&format!("ip link set t{n} up master br0"));
            let link = kernel.taps[n].link.clone();
            wait_for("the device to be up", || link.state().up);
        }
        kernel.set("ip link set br0 up");
        // The kernel does not report a bridge as ready before its ports forward.
        let forwards = |kernel: &Kernel| {
            let links = kernel.set("bridge link show");
            links.matches("state forwarding").count() == PORTS
        };
        wait_for("ports that forward", || forwards(&kernel));
        kernel.set(&format!("ip link set br0 type bridge {options}"));
        // A bridge that begins to query floods for a tick more, in which hosts may answer.
        std::thread::sleep(Duration::from_millis(50));
        Some(kernel)
    }

    fn run(&self, words: &str) -> Result<String, String> {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words);
        let output = self.netns.run(|| command.output()).expect("the namespace");
        let output = output.expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    fn set(&self, words: &str) -> String {
        self.run(words)
            .unwrap_or_else(|errors| panic!("{words}: {errors}"))
    }

    /// Frames that wait to be read at the ports.
    fn drain(&mut self) -> Frames {
        let mut out = Frames::new();
        for (n, tap) in self.taps.iter_mut().enumerate() {
            let (mut packets, drops) = (PacketList::new(), DropCounters::new());
            tap.rx[0].poll(&mut Receive::new(64, Time::ZERO, &mut packets, &drops));
            out.extend(packets.iter().map(|packet| (n, bytes(packet))));
        }
        out
    }

    /// Every link of the frame's way is in the call that writes it.
    fn send(&mut self, port: usize, frame: &[u8]) -> Frames {
        let mut packet = self.pool.alloc().expect("a buffer");
        assert!(packet.append(frame));
        let mut list: PacketList = [packet].into_iter().collect();
        let mut sent = Sent::default();
        self.taps[port].tx[0].xmit(&mut list, &mut sent);
        assert_eq!(sent.packets, 1, "the kernel takes the frame");
        self.drain()
    }

    /// Members: group, source, port, and flags as `bridge` prints them.
    fn members(&self) -> Vec<String> {
        let text = self.set("bridge -j -d mdb show");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let mut members = Vec::new();
        for entry in value[0]["mdb"].as_array().into_iter().flatten() {
            let Some(port) = entry["port"]
                .as_str()
                .and_then(|port| port.strip_prefix('t'))
            else {
                continue;
            };
            let word = |key: &str| entry[key].as_str().unwrap_or("").to_owned();
            let has = |flag: &str| {
                let flags = entry["flags"].as_array();
                flags.is_some_and(|flags| flags.iter().any(|known| known == flag))
            };
            let mut sources: Vec<&str> = Vec::new();
            for source in entry["source_list"].as_array().into_iter().flatten() {
                sources.extend(source["address"].as_str());
            }
            sources.sort_unstable();
            members.push(format!(
                "{} {} {port} {} {} {sources:?} blocked {} star {}",
                word("grp"),
                word("src"),
                word("state"),
                word("filter_mode"),
                has("blocked"),
                has("added_by_star_ex"),
            ));
        }
        members.sort();
        members
    }

    fn routers(&self) -> Vec<usize> {
        let text = self.set("bridge -j -d mdb show");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let routers = value[0]["router"]["br0"].as_array();
        let port = |value: &Value| value["port"].as_str()?.strip_prefix('t')?.parse().ok();
        let mut routers: Vec<usize> = routers.into_iter().flatten().filter_map(port).collect();
        routers.sort_unstable();
        routers
    }
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Our bridge.
struct Ours {
    net: Net,
    out: Arc<Mutex<Frames>>,
}

impl Ours {
    fn new(change: impl FnOnce(&mut MulticastOptions)) -> Ours {
        let net = Net::new(1, PORTS);
        let out = Arc::new(Mutex::new(Frames::new()));
        for (n, port) in net.ports.iter().enumerate() {
            let out = out.clone();
            port.script.set_sink(move |packet| {
                out.lock().unwrap().push((n, bytes(&packet)));
            });
        }
        let mut options = net.engine.bridge(net.bridge).unwrap().options;
        options.multicast.query_response_interval = Duration::ZERO;
        options.multicast.last_member_interval = Duration::from_secs(100);
        change(&mut options.multicast);
        net.engine.set_bridge(net.bridge, options).unwrap();
        Ours { net, out }
    }

    fn send(&mut self, port: usize, frame: &[u8]) -> Frames {
        let mut packet = self.net.pool.alloc().expect("a buffer");
        assert!(packet.append(frame));
        self.net.receive(port, [packet]);
        self.net.settle();
        std::mem::take(&mut *self.out.lock().unwrap())
    }

    fn members(&self) -> Vec<String> {
        let (entries, _) = self.net.engine.mdb(self.net.bridge).unwrap();
        let mut members: Vec<String> = entries.iter().map(|entry| self.member(entry)).collect();
        members.sort();
        members
    }

    fn member(&self, entry: &MdbEntry) -> String {
        let ports = &self.net.ports;
        let port = ports
            .iter()
            .position(|p| p.id == entry.port)
            .expect("a port");
        let Group::Ip(group) = entry.group else {
            panic!("{entry:?}");
        };
        let source = entry
            .source
            .map_or_else(String::new, |source| source.to_string());
        let mode = match (entry.has_sources, entry.exclude) {
            (false, _) => "",
            (true, true) => "exclude",
            (true, false) => "include",
        };
        let mut sources: Vec<String> = entry.sources.iter().map(|s| s.0.to_string()).collect();
        sources.sort_unstable();
        let sources: Vec<&str> = match entry.has_sources {
            true => sources.iter().map(String::as_str).collect(),
            false => Vec::new(),
        };
        let state = if entry.permanent { "permanent" } else { "temp" };
        format!(
            "{group} {source} {port} {state} {mode} {sources:?} blocked {} star {}",
            entry.blocked, entry.star_exclude,
        )
    }

    fn routers(&self) -> Vec<usize> {
        let (_, routers) = self.net.engine.mdb(self.net.bridge).unwrap();
        let ports = &self.net.ports;
        let place = |id| ports.iter().position(|port| port.id == id);
        let mut routers: Vec<usize> = routers.iter().filter_map(|r| place(r.port)).collect();
        routers.sort_unstable();
        routers
    }
}

/// Both bridges.
struct Pair {
    kernel: Kernel,
    ours: Ours,
}

impl Pair {
    fn new(options: &str, change: impl FnOnce(&mut MulticastOptions)) -> Option<Pair> {
        Some(Pair {
            kernel: Kernel::new(options)?,
            ours: Ours::new(change),
        })
    }

    /// Sends a frame through both, and compares what leaves, and what is known afterwards.
    fn send(&mut self, what: &str, port: usize, frame: &[u8]) -> Vec<usize> {
        let [theirs, ours] = [self.kernel.send(port, frame), self.ours.send(port, frame)];
        let [theirs, ours] = [theirs, ours].map(|frames| {
            let mut frames: Frames = frames
                .into_iter()
                .filter(|f| !is_query_of_bridge(f))
                .collect();
            frames.sort();
            frames
        });
        let report = multicast(frame, frame.len(), false);
        let is_long = report.is_ok_and(|read| {
            let message = read.and_then(|read| read.message);
            matches!(message, Some(Membership::Records(_)))
        });
        if is_long {
            // Flooded by the kernel.
            assert!(ours.iter().all(|frame| theirs.contains(frame)), "{what}");
        } else {
            assert_eq!(theirs, ours, "{what}");
        }
        assert_eq!(self.kernel.members(), self.ours.members(), "after {what}");
        assert_eq!(self.kernel.routers(), self.ours.routers(), "after {what}");
        ours.iter().map(|frame| frame.0).collect()
    }

    fn all(&mut self, what: &str, group: [u8; 4]) -> Vec<Vec<usize>> {
        let send = |port| self.send(what, port, &data(port as u8 + 1, group));
        (0..PORTS).map(send).collect()
    }

    fn stop(self) {
        self.ours.net.stop();
    }
}

/// A query that the bridge itself sends: of nobody's address, or of IPv6, which nobody else
/// speaks here.
fn is_query_of_bridge((_, frame): &(usize, Vec<u8>)) -> bool {
    frame[12..14] == [0x86, 0xdd]
        || frame.len() > 38 && frame[12..14] == [8, 0] && frame[23] == 2 && frame[26..30] == [0; 4]
}

fn set_sum(bytes: &mut [u8], at: usize) {
    let sum = checksum(bytes);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// An IPv4 packet of 10.0.0.`host` to a group.
fn ipv4(host: u8, to: [u8; 4], protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut header = vec![0x46, 0xc0];
    header.extend((24 + body.len() as u16).to_be_bytes());
    header.extend([0, 0, 0x40, 0, 1, protocol, 0, 0, 10, 0, 0, host]);
    header.extend(to);
    header.extend([0x94, 4, 0, 0]);
    set_sum(&mut header, 10);
    let mac = [1, 0, 0x5e, to[1] & 0x7f, to[2], to[3]];
    let source = [2, 0, 0, 0, 0, host];
    // Without padding, which the kernel takes off messages.
    [&mac[..], &source, &[8, 0], &header, body].concat()
}

fn igmp(host: u8, to: [u8; 4], message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    set_sum(&mut message, 2);
    ipv4(host, to, 2, &message)
}

fn join(host: u8, group: [u8; 4]) -> Vec<u8> {
    igmp(host, group, &[&[0x16, 0, 0, 0], &group[..]].concat())
}

fn leave(host: u8, group: [u8; 4]) -> Vec<u8> {
    igmp(
        host,
        [224, 0, 0, 2],
        &[&[0x17, 0, 0, 0], &group[..]].concat(),
    )
}

/// A query of IGMPv3, to be answered at once.
fn query(host: u8) -> Vec<u8> {
    igmp(
        host,
        [224, 0, 0, 1],
        &[0x11, 0, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0],
    )
}

fn record(host: u8, kind: u8, group: [u8; 4], sources: &[u8]) -> Vec<u8> {
    let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    message.extend(group);
    sources.iter().for_each(|&n| message.extend([10, 0, 0, n]));
    igmp(host, [224, 0, 0, 22], &message)
}

fn data(host: u8, group: [u8; 4]) -> Vec<u8> {
    ipv4(host, group, 17, &[0; 30])
}

#[test]
fn without_a_querier() {
    let Some(mut pair) = Pair::new("mcast_querier 0", |_| {}) else {
        return;
    };
    pair.send("a join", 1, &join(2, GROUP));
    for sent in pair.all("data", GROUP) {
        assert_eq!(sent.len(), PORTS - 1);
    }
    pair.send("a leave", 1, &leave(2, GROUP));
    pair.stop();
}

#[test]
fn with_a_querier_of_its_own() {
    let Some(mut pair) = Pair::new("mcast_querier 1", |options| options.querier = true) else {
        return;
    };
    pair.all("data to nobody", GROUP);
    pair.send("a join", 1, &join(2, GROUP));
    pair.send("another join", 3, &join(4, GROUP));
    pair.send("a join of another group", 3, &join(4, OTHER));
    assert_eq!(
        pair.all("data", GROUP),
        [vec![1, 3], vec![3], vec![1, 3], vec![1], vec![1, 3]]
    );
    pair.all("data to the other", OTHER);
    pair.all("data to a local group", [224, 0, 0, 251]);
    pair.send("a join of a local group", 2, &join(3, [224, 0, 0, 251]));
    pair.send("a report of IGMPv3", 2, &record(3, 4, GROUP, &[]));
    pair.send("a leave of IGMPv3", 2, &record(3, 3, GROUP, &[]));
    pair.send(
        "a report of nothing",
        2,
        &igmp(3, [224, 0, 0, 22], &[0x22, 0, 0, 0, 0, 0, 0, 0]),
    );
    let mut wrong = join(3, GROUP);
    wrong[45] ^= 1;
    pair.send("a wrong checksum", 2, &wrong);
    let mut wrong = data(3, GROUP);
    wrong[24] ^= 1;
    pair.send("a wrong checksum of IP", 2, &wrong);
    pair.send(
        "an unknown type",
        2,
        &igmp(3, GROUP, &[0x77, 0, 0, 0, 239, 1, 1, 1]),
    );
    let arp = [&[1, 0, 0x5e, 1, 1, 1, 2, 0, 0, 0, 0, 3, 8, 6][..], &[0; 46]].concat();
    pair.send("what is not IP", 2, &arp);
    pair.stop();
}

#[test]
fn routers() {
    let Some(mut pair) = Pair::new("mcast_querier 1", |options| options.querier = true) else {
        return;
    };
    pair.send("a query", 4, &query(5));
    // A tick of the kernel's, in which hosts answer.
    std::thread::sleep(Duration::from_millis(50));
    pair.send("a join", 1, &join(2, GROUP));
    pair.all("data", GROUP);
    pair.all("data to nobody", OTHER);
    pair.send("PIM", 3, &ipv4(4, [224, 0, 0, 13], 103, &[0x20, 0, 0, 0]));
    pair.send(
        "an advertisement",
        0,
        &igmp(1, [224, 0, 0, 106], &[0x30, 20, 0, 0, 0, 0, 0, 0]),
    );
    pair.all("data to routers", OTHER);
    for (port, router) in [(0, McastRouter::Off), (2, McastRouter::On)] {
        let number = router as u8;
        pair.kernel.set(&format!(
            "bridge link set dev t{port} mcast_router {number}"
        ));
        let engine = &pair.ours.net.engine;
        let id = pair.ours.net.ports[port].id;
        let mut options = engine.bridge_port(id).unwrap().options;
        options.multicast.router = router;
        engine.set_bridge_port(id, options).unwrap();
    }
    pair.all("data to other routers", OTHER);
    pair.send("a query where no router is to be", 0, &query(1));
    pair.stop();
}
