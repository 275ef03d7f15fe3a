//! Our bridge beside the running kernel's: the same changes by `ip` and `bridge`, the same frames
//! in, the same frames out, and the same database and VLANs afterwards. What the kernel cannot do
//! (VLANs, if it was built without) is not compared.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::stats::DropCounters;
use softnet::testing::Random;
use softnet::time::Time;
use softnet::tx::{Sent, TxRing};
use softnet::wire::EthernetAddress;
use softnet_engine::forward::{BridgePortOptions, FdbState, VlanFlags};
use softnet_engine::rx::{Receive, RxQueue};
use softnet_engine::testing::Net;
use softnet_engine::{FdbSpec, Link};
use softnet_io::{Buffers, Netns, Tap, TapConfig, TapRx};
use softnet_tests::{skip, wait_for};

const PORTS: usize = 4;
const STEPS: usize = 800;
const VLANS: u32 = 4;

/// Port and bytes.
type Frames = Vec<(usize, Vec<u8>)>;
/// Address, VLAN or 0, port, state, and whether it is sticky.
type Entries = BTreeSet<([u8; 6], u16, usize, &'static str, bool)>;
/// Port, VLAN, whether it is the pvid, and whether it leaves untagged.
type Vlans = BTreeSet<(usize, u16, bool, bool)>;

/// Polls a queue; the driver loses nothing.
fn poll(queue: &mut TapRx, budget: usize) -> PacketList {
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    queue.poll(&mut Receive::new(budget, Time::ZERO, &mut packets, &drops));
    assert_eq!(drops.nonzero(), []);
    packets
}

/// A bridge of the kernel's, with TAP devices as ports, in a namespace of its own.
struct Kernel {
    netns: Netns,
    taps: Vec<Tap>,
    pool: Pool,
    /// It can filter VLANs.
    vlans: bool,
}

impl Kernel {
    /// `None`, and the reason printed, where the test cannot run.
    fn new() -> Option<Kernel> {
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
            vlans: false,
        };
        if let Err(e) = kernel.run("ip link add br0 up type bridge mcast_snooping 0") {
            skip(&format!("needs the kernel's bridge: {e}"));
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
        kernel.vlans = kernel
            .run("ip link set br0 type bridge vlan_filtering 1")
            .is_ok();
        if kernel.vlans {
            kernel.set("ip link set br0 type bridge vlan_filtering 0");
        } else {
            println!("the kernel's bridge has no VLANs: they are not compared");
        }
        Some(kernel)
    }

    fn run(&self, words: &str) -> Result<String, String> {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words);
        let output = self.netns.run(|| command.output()).expect("the namespace");
        let output = output.expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    fn set(&self, words: &str) -> String {
        self.run(words)
            .unwrap_or_else(|errors| panic!("{words}: {errors}"))
    }

    /// Every link of the frame's way is in the call that writes it.
    fn send(&mut self, port: usize, frame: &[u8]) -> Frames {
        let mut packet = self.pool.alloc().expect("a buffer");
        assert!(packet.append(frame));
        let mut list: PacketList = [packet].into_iter().collect();
        let mut sent = Sent::default();
        self.taps[port].tx[0].xmit(&mut list, &mut sent);
        assert_eq!(sent.packets, 1, "the kernel takes the frame");
        let mut out = Frames::new();
        for (n, tap) in self.taps.iter_mut().enumerate() {
            let packets = poll(&mut tap.rx[0], 64);
            out.extend(packets.iter().map(|packet| (n, bytes(packet))));
        }
        out
    }

    fn json(&self, words: &str) -> Vec<Value> {
        let value: Value = serde_json::from_str(&self.set(words)).expect("JSON");
        value.as_array().expect("a list").clone()
    }

    fn port(name: &Value) -> Option<usize> {
        name.as_str()?.strip_prefix('t')?.parse().ok()
    }

    /// Entries of stations, without the addresses of the ports themselves.
    fn entries(&self) -> Entries {
        let entry = |value: &Value| {
            let mac = value["mac"].as_str()?;
            let mut octets = mac.split(':').map(|octet| u8::from_str_radix(octet, 16));
            let address = std::array::from_fn(|_| octets.next().expect("six").expect("an octet"));
            let flags = value["flags"].as_array();
            let sticky = flags.is_some_and(|flags| flags.iter().any(|flag| flag == "sticky"));
            let state = match value["state"].as_str()? {
                "permanent" => "permanent",
                "static" => "static",
                "" => "",
                other => panic!("the state {other}"),
            };
            let vlan = value["vlan"].as_u64().unwrap_or(0);
            let vlan = u16::try_from(vlan).expect("12 bits");
            let port = Self::port(&value["ifname"])?;
            // As this test's stations are.
            (address[..5] == [2, 0, 0, 0, 0] && value["master"].is_string())
                .then_some((address, vlan, port, state, sticky))
        };
        let values = self.json("bridge -j fdb show br br0");
        values.iter().filter_map(entry).collect()
    }

    fn vlans(&self) -> Vlans {
        let mut all = Vlans::new();
        for value in self.json("bridge -j vlan show") {
            let Some(port) = Self::port(&value["ifname"]) else {
                continue;
            };
            for vlan in value["vlans"].as_array().expect("VLANs") {
                let number = vlan["vlan"].as_u64().expect("a number");
                let flags = vlan["flags"].as_array();
                let has = |name: &str| flags.is_some_and(|f| f.iter().any(|flag| flag == name));
                let number = u16::try_from(number).expect("12 bits");
                all.insert((port, number, has("PVID"), has("Egress Untagged")));
            }
        }
        all
    }
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Our bridge.
struct Ours {
    net: Net,
    bridge: u32,
    out: Arc<Mutex<Frames>>,
}

impl Ours {
    fn new(vlans: bool) -> Ours {
        let net = Net::new(1, PORTS);
        let out = Arc::new(Mutex::new(Frames::new()));
        for (n, port) in net.ports.iter().enumerate() {
            let out = out.clone();
            port.script.set_sink(move |packet| {
                out.lock().unwrap().push((n, bytes(&packet)));
            });
        }
        let bridge = net.bridge;
        if !vlans {
            let mut options = net.engine.bridge(bridge).unwrap().options;
            options.default_pvid = None;
            net.engine.set_bridge(bridge, options).unwrap();
        }
        Ours { net, bridge, out }
    }

    fn port(&self, port: usize) -> u32 {
        self.net.ports[port].id
    }

    fn number(&self, port: u32) -> usize {
        let ports = &self.net.ports;
        ports.iter().position(|p| p.id == port).expect("a port")
    }

    fn send(&mut self, port: usize, frame: &[u8]) -> Frames {
        let mut packet = self.net.pool.alloc().expect("a buffer");
        assert!(packet.append(frame));
        self.net.receive(port, [packet]);
        self.net.settle();
        let mut out = std::mem::take(&mut *self.out.lock().unwrap());
        out.sort();
        out
    }

    fn entries(&self) -> Entries {
        let (entries, next) = self.net.engine.fdb_entries(self.bridge, 0, 1000).unwrap();
        assert_eq!(next, None);
        let state = |state| match state {
            FdbState::Permanent => "permanent",
            FdbState::Static => "static",
            FdbState::Dynamic => "",
        };
        let entries = entries.iter().map(|entry| {
            let vlan = entry.vlan.unwrap_or(0);
            let port = self.number(entry.port);
            (
                entry.address.0,
                vlan,
                port,
                state(entry.state),
                entry.sticky,
            )
        });
        entries.collect()
    }

    fn vlans(&self) -> Vlans {
        let mut all = Vlans::new();
        for port in 0..PORTS {
            // One that has left has none.
            if let Ok(member) = self.net.engine.bridge_port(self.port(port)) {
                let vlans = member.vlans.iter();
                all.extend(vlans.map(|(vlan, f)| (port, vlan, f.pvid, f.untagged)));
            }
        }
        all
    }
}

fn on(yes: bool) -> &'static str {
    if yes { "on" } else { "off" }
}

/// A frame between stations of this test, to a group or to all, untagged or with a tag.
fn frame(random: &mut Random) -> Vec<u8> {
    let station = |n: u32| [2, 0, 0, 0, 0, n as u8];
    let to = match random.below(8) {
        6 => [1, 0, 0x5E, 0, 0, 99],
        7 => [0xFF; 6],
        n => station(n),
    };
    let mut frame = [to, station(random.below(6))].concat();
    if random.below(2) == 0 {
        let tci = 0x6000 | random.below(VLANS) as u16;
        frame.extend([0x81, 0]);
        frame.extend(tci.to_be_bytes());
    }
    frame.extend([0x88, 0xB5]);
    let len = [46, 300][random.below(2) as usize];
    frame.extend((0..len).map(|n| n as u8));
    frame
}

/// Makes one change to both. Returns what it was, in words.
fn change(random: &mut Random, kernel: &Kernel, ours: &Ours) -> String {
    let n = random.below(PORTS as u32) as usize;
    let (port, engine) = (ours.port(n), &ours.net.engine);
    let kinds = if kernel.vlans { 8 } else { 5 };
    let station = random.below(6) as u8;
    let address = EthernetAddress([2, 0, 0, 0, 0, station]);
    let vlan = (kernel.vlans && random.below(2) == 0).then(|| 1 + random.below(VLANS - 1) as u16);
    let in_vlan = vlan.map_or_else(String::new, |vlan| format!(" vlan {vlan}"));
    // What both must think of the change.
    let both = |words: String, ours: Result<(), String>| {
        let theirs = kernel.run(&words);
        assert_eq!(
            theirs.is_ok(),
            ours.is_ok(),
            "{words}: {theirs:?}, {ours:?}"
        );
        words
    };
    match random.below(kinds) {
        0 | 1 => {
            let Ok(mut member) = engine.bridge_port(port) else {
                return String::new();
            };
            let BridgePortOptions {
                isolated,
                locked,
                learning,
                flood,
                mcast_flood,
                bcast_flood,
                hairpin,
                multicast: _,
            } = &mut member.options;
            let options = [
                ("isolated", isolated),
                ("locked", locked),
                ("learning", learning),
                ("flood", flood),
                ("mcast_flood", mcast_flood),
                ("bcast_flood", bcast_flood),
                ("hairpin", hairpin),
            ];
            let (name, value) = options.into_iter().nth(random.below(7) as usize).unwrap();
            // Locked ports take little: mostly off.
            *value = !*value && (name != "locked" || random.below(6) == 0);
            let words = format!("bridge link set dev t{n} {name} {}", on(*value));
            let set = engine.set_bridge_port(port, member.options);
            both(words, set.map_err(|e| e.to_string()))
        }
        2 | 3 => {
            let (state, word) = [
                (FdbState::Permanent, "permanent"),
                (FdbState::Static, "static"),
                (FdbState::Static, "static sticky"),
                (FdbState::Dynamic, "dynamic"),
            ][random.below(4) as usize];
            let spec = FdbSpec {
                address,
                vlan,
                state,
                sticky: word.ends_with("sticky"),
            };
            // Without a VLAN, an entry is added for each VLAN of the port. Where one is in the way,
            // the kernel keeps those that it made before, and we none.
            let several = kernel.vlans && vlan.is_none();
            let replace = random.below(2) == 0 || several;
            let verb = if replace { "replace" } else { "add" };
            let words = format!("bridge fdb {verb} {address} dev t{n} master {word}{in_vlan}");
            let added = engine.add_fdb(port, spec, replace);
            both(words, added.map_err(|e| e.to_string()))
        }
        4 if random.below(4) > 0 => {
            let words = format!("bridge fdb del {address} dev t{n} master{in_vlan}");
            let removed = engine.remove_fdb(port, address, vlan);
            both(words, removed.map_err(|e| e.to_string()))
        }
        4 => {
            if engine.bridge_port(port).is_ok() {
                engine.set_master(port, None).unwrap();
                kernel.set(&format!("ip link set t{n} nomaster"));
            } else {
                engine.set_master(port, Some(ours.bridge)).unwrap();
                kernel.set(&format!("ip link set t{n} master br0"));
            }
            format!("t{n} joins or leaves")
        }
        5 | 6 => {
            let vlan = 1 + random.below(VLANS - 1) as u16;
            let verb = random.below(4);
            if verb == 0 {
                let words = format!("bridge vlan del dev t{n} vid {vlan}");
                let had = engine.bridge_port(port).map(|p| p.vlans.contains(vlan));
                engine.remove_vlans(port, vlan..=vlan).ok();
                if had.unwrap_or(false) {
                    kernel.set(&words);
                }
                return words;
            }
            let flags = VlanFlags {
                pvid: random.below(2) == 0,
                untagged: random.below(2) == 0,
            };
            let word = |flag, word| if flag { word } else { "" };
            let words = format!(
                "bridge vlan add dev t{n} vid {vlan}{}{}",
                word(flags.pvid, " pvid"),
                word(flags.untagged, " untagged")
            );
            let added = engine.add_vlans(port, vlan..=vlan, flags);
            both(words, added.map_err(|e| e.to_string()))
        }
        _ => {
            let mut options = engine.bridge(ours.bridge).unwrap().options;
            if random.below(2) == 0 {
                // Mostly on.
                options.vlan_filtering = !options.vlan_filtering || random.below(2) == 0;
            } else {
                let pvid = random.below(VLANS) as u16;
                options.default_pvid = (pvid > 0).then_some(pvid);
            }
            let words = format!(
                "ip link set br0 type bridge vlan_filtering {} vlan_default_pvid {}",
                u8::from(options.vlan_filtering),
                options.default_pvid.unwrap_or(0)
            );
            let set = engine.set_bridge(ours.bridge, options);
            both(words, set.map_err(|e| e.to_string()))
        }
    }
}

#[test]
fn forwards_as_the_kernel() {
    let seed = 0x5EED_0001;
    let Some(mut kernel) = Kernel::new() else {
        return;
    };
    let mut ours = Ours::new(kernel.vlans);
    let mut random = Random(seed);
    let mut words = Vec::new();
    let mut forwarded = 0;
    for step in 0..STEPS {
        if random.below(3) == 0 {
            words.push(change(&mut random, &kernel, &ours));
            let tail = || words[words.len().saturating_sub(12)..].join("\n");
            assert_eq!(ours.vlans(), kernel_vlans(&kernel), "after\n{}", tail());
        } else {
            let port = random.below(PORTS as u32) as usize;
            let frame = frame(&mut random);
            let (theirs, out) = (kernel.send(port, &frame), ours.send(port, &frame));
            forwarded += out.len();
            words.push(format!("t{port}: {:02x?}", &frame[..18]));
            let tail = words[words.len().saturating_sub(12)..].join("\n");
            assert_eq!(out, theirs, "step {step} of {seed:#x}, after\n{tail}");
        }
        let tail = || words[words.len().saturating_sub(12)..].join("\n");
        assert_eq!(
            ours.entries(),
            kernel.entries(),
            "step {step}, after\n{}",
            tail()
        );
    }
    assert!(
        forwarded > STEPS / 6,
        "too few frames to compare: {forwarded}"
    );
    ours.net.stop();
}

fn kernel_vlans(kernel: &Kernel) -> Vlans {
    if kernel.vlans {
        kernel.vlans()
    } else {
        Vlans::new()
    }
}
