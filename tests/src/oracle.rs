//! The running kernel as an oracle: frames through one of its qdiscs on a TAP device, what comes
//! out in which order, and what `tc -s` counts.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Instant;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use serde_json::Value;
use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet_engine::rx::{Receive, RxQueue};
use softnet_io::{Buffers, Links, Netns, Tap, TapConfig, TapRx};

use crate::{skip, sys};

/// Numbers that `tc -s qdisc` shows of one qdisc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcStats {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Failed attempts.
    pub overlimits: u64,
    /// Packets given back by the driver.
    pub requeues: u64,
    /// Bytes queued.
    pub backlog: u64,
    /// Packets queued.
    pub qlen: u64,
}

/// Numbers that `tc -s class` shows of one class of `htb`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcClass {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Times that it reached its ceil.
    pub overlimits: u64,
    /// Packets queued.
    pub qlen: u64,
    /// Packets sent with its tokens.
    pub lended: u64,
    /// Packets sent with those of a class above.
    pub borrowed: u64,
    /// In ticks of 64 ns.
    pub tokens: i64,
    /// As `tokens`, for the ceil.
    pub ctokens: i64,
}

impl TcClass {
    /// Reads a class's name and its numbers: `1:10 parent 1:1 ... Sent 0 bytes 0 pkt (dropped 0,
    /// overlimits 0 requeues 0) backlog 0b 0p requeues 0 lended: 0 borrowed: 0 giants: 0 tokens: 0
    /// ctokens: 0`. There is no JSON of it, and bytes queued are rounded.
    fn parse(text: &str) -> (String, TcClass) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |name: &str, skip: usize| {
            let at = words.iter().rposition(|word| *word == name);
            let word = at.and_then(|at| words.get(at + skip)).unwrap_or(&"");
            let digits = word.trim_matches(|c: char| !c.is_ascii_digit() && c != '-');
            let number = digits.parse::<i64>();
            number.unwrap_or_else(|_| panic!("{name} in {text}"))
        };
        let count = |name, skip| number(name, skip).cast_unsigned();
        let class = TcClass {
            bytes: count("Sent", 1),
            packets: count("Sent", 3),
            drops: count("(dropped", 1),
            overlimits: count("overlimits", 1),
            qlen: count("backlog", 2),
            lended: count("lended:", 1),
            borrowed: count("borrowed:", 1),
            tokens: number("tokens:", 1),
            ctokens: number("ctokens:", 1),
        };
        (words[0].to_owned(), class)
    }
}

/// A TAP device with a qdisc of the kernel's, in a namespace of its own. What the kernel sends is
/// read with [`read`](KernelQdisc::read).
#[derive(Debug)]
pub struct KernelQdisc {
    netns: Netns,
    tap: Tap,
    socket: OwnedFd,
    _pool: Pool,
}

/// Polls a queue; the driver loses nothing.
fn poll(queue: &mut TapRx, budget: usize) -> PacketList {
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    queue.poll(&mut Receive::new(budget, Time::ZERO, &mut packets, &drops));
    assert_eq!(drops.nonzero(), []);
    packets
}

impl KernelQdisc {
    /// A device with so many queues, each of which holds `tx_queue_len` frames until they are
    /// read; that is also the limit of its qdiscs. `None`, and the reason printed, where the test
    /// cannot run.
    pub fn new(queues: usize, tx_queue_len: u32) -> Option<KernelQdisc> {
        if let Err(e) = Command::new("tc").arg("-V").output() {
            skip(&format!("needs tc: {e}"));
            return None;
        }
        let netns = match Netns::anonymous() {
            Ok(netns) => netns,
            Err(e) => {
                skip(&format!("needs network namespaces: {e}"));
                return None;
            }
        };
        let pool = Pool::new(PoolConfig {
            buffers: 4096,
            buffer_size: 2048,
        })
        .expect("a pool");
        let config = TapConfig {
            queues,
            netns: Some(netns.clone()),
            offload: false,
            tx_queue_len,
            up: false,
            ..TapConfig::new("x0")
        };
        let buffers = Buffers {
            small: pool.clone(),
            large: None,
        };
        let tap = match Tap::open(&config, &buffers) {
            Ok(tap) => tap,
            Err(e) => {
                skip(&format!("needs TAP devices: {e}"));
                return None;
            }
        };
        let index = tap.index;
        let socket = netns.run(|| {
            // Nothing but what the test sends may pass; a kernel without IPv6 sends nothing by
            // itself.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/x0/disable_ipv6", "1");
            Links::open()
                .and_then(|mut links| links.set_up(index, true))
                .expect("the device goes up");
            let flags = SocketFlags::CLOEXEC;
            rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        });
        let socket = socket.expect("the namespace").expect("a packet socket");
        sys::bind_packet(&socket, index, 0);
        Some(KernelQdisc {
            netns,
            tap,
            socket,
            _pool: pool,
        })
    }

    /// Runs `tc` with these words.
    pub fn tc(&self, words: &str) -> String {
        self.try_tc(words)
            .unwrap_or_else(|errors| panic!("tc {words}: {errors}"))
    }

    /// As [`tc`](KernelQdisc::tc); what it says if it fails.
    pub fn try_tc(&self, words: &str) -> Result<String, String> {
        let run = || Command::new("tc").args(words.split_whitespace()).output();
        let output = self.netns.run(run).expect("the namespace").expect("tc");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Gives the device a fresh qdisc `1:`, with this kind and options.
    pub fn set_root(&self, kind: &str) {
        // "replace" would change one of the same kind, and keep its numbers.
        self.tc("qdisc replace dev x0 root handle fffd: pfifo");
        self.tc(&format!("qdisc replace dev x0 root handle 1: {kind}"));
    }

    /// True if the kernel has the token bucket; says that the test is skipped if not.
    pub fn has_tbf(&self) -> bool {
        self.has("tbf rate 1mbit burst 2000 limit 2000")
    }

    /// True if the kernel has a qdisc; says that the test is skipped if not.
    pub fn has(&self, kind: &str) -> bool {
        let words = format!("qdisc replace dev x0 root handle fffe: {kind}");
        let has = self.try_tc(&words).is_ok();
        if !has {
            skip(&format!("the kernel has no {kind}"));
        }
        has
    }

    /// Changes the queue length of device and qdiscs.
    pub fn set_tx_queue_len(&self, packets: u32) {
        let index = self.tap.index;
        let set = || Links::open().and_then(|mut links| links.set_tx_queue_len(index, packets));
        self.netns
            .run(set)
            .expect("the namespace")
            .expect("the queue length");
    }

    /// Sends a frame with a priority; false if it was dropped, as the kernel says with `ENOBUFS`.
    pub fn send(&self, frame: &[u8], priority: u32) -> bool {
        let value = i32::try_from(priority).expect("a small priority");
        sys::set_option(&self.socket, libc::SOL_SOCKET, libc::SO_PRIORITY, value);
        match rustix::net::send(&self.socket, frame, SendFlags::empty()) {
            Ok(n) => {
                assert_eq!(n, frame.len());
                true
            }
            Err(rustix::io::Errno::NOBUFS) => false,
            Err(e) => panic!("sending: {}", io::Error::from(e)),
        }
    }

    /// The frames that the device has for its reader now: queue, time of reading, and bytes.
    pub fn read(&mut self) -> Vec<(usize, Instant, Vec<u8>)> {
        let mut all = Vec::new();
        for (queue, rx) in self.tap.rx.iter_mut().enumerate() {
            loop {
                let packets = poll(rx, 64);
                if packets.is_empty() {
                    break;
                }
                let now = Instant::now();
                let bytes = |p: Packet| p.segments().flatten().copied().collect();
                all.extend(packets.into_iter().map(|p| (queue, now, bytes(p))));
            }
        }
        all
    }

    /// Reads at most `limit` frames of the first queue, one at a time.
    pub fn read_some(&mut self, limit: usize) -> usize {
        poll(&mut self.tap.rx[0], limit).len()
    }

    /// The numbers of the qdiscs whose handle or parent is `name`, or of the root.
    pub fn stats(&self, name: &str) -> Vec<TcStats> {
        let text = self.tc("-s -j qdisc show dev x0");
        let value: Value = serde_json::from_str(&text).expect("tc prints JSON");
        let list = value.as_array().expect("a list of qdiscs");
        let wanted = |qdisc: &&Value| match name {
            "root" => qdisc["root"] == Value::Bool(true),
            "children" => qdisc["root"] != Value::Bool(true),
            name => qdisc["handle"] == name || qdisc["parent"] == name,
        };
        let number = |qdisc: &Value, key: &str| {
            qdisc[key]
                .as_u64()
                .unwrap_or_else(|| panic!("{key} in {qdisc}"))
        };
        list.iter()
            .filter(wanted)
            .map(|qdisc| TcStats {
                bytes: number(qdisc, "bytes"),
                packets: number(qdisc, "packets"),
                drops: number(qdisc, "drops"),
                overlimits: number(qdisc, "overlimits"),
                requeues: number(qdisc, "requeues"),
                backlog: number(qdisc, "backlog"),
                qlen: number(qdisc, "qlen"),
            })
            .collect()
    }

    /// The numbers of all classes of `htb`.
    pub fn classes(&self) -> BTreeMap<String, TcClass> {
        let text = self.tc("-s class show dev x0");
        let classes = text.split("class htb ").skip(1);
        classes.map(TcClass::parse).collect()
    }

    /// Frames that the device itself dropped.
    pub fn device_dropped(&self) -> u64 {
        let table = self
            .netns
            .run(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        let table = table.expect("the namespace").expect("the counters");
        let line = table
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("x0:"))
            .expect("the device");
        let column = line.split_whitespace().nth(11).expect("twelve columns");
        column.parse().expect("a number")
    }
}
