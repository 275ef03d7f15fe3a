//! The running kernel as an oracle: frames through one of its qdiscs on a TAP device, what comes
//! out in which order, and what `tc -s` counts.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Instant;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use serde_json::Value;
use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet_engine::rx::{CountDrop, RxQueue};
use softnet_io::{Buffers, Links, Netns, Tap, TapConfig};

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

/// A TAP device with a qdisc of the kernel's, in a namespace of its own. What the kernel sends is
/// read with [`read`](KernelQdisc::read).
#[derive(Debug)]
pub struct KernelQdisc {
    netns: Netns,
    tap: Tap,
    socket: OwnedFd,
    _pool: Pool,
}

struct NoDrop;
impl CountDrop for NoDrop {
    fn count_drop(&mut self, reason: DropReason, packets: u64) {
        panic!("the driver lost {packets} packets: {reason}");
    }
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
        let run = || Command::new("tc").args(words.split_whitespace()).output();
        let output = self.netns.run(run).expect("the namespace").expect("tc");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tc {words}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Gives the device a fresh qdisc `1:`, with this kind and options.
    pub fn set_root(&self, kind: &str) {
        // "replace" would change one of the same kind, and keep its numbers.
        self.tc("qdisc replace dev x0 root handle fffd: pfifo");
        self.tc(&format!("qdisc replace dev x0 root handle 1: {kind}"));
    }

    /// Whether the kernel has the token bucket; says that the test is skipped if not.
    pub fn has_tbf(&self) -> bool {
        let words = "qdisc replace dev x0 root handle fffe: tbf rate 1mbit burst 2000 limit 2000";
        let run = || {
            let words = words.split_whitespace();
            Command::new("tc").args(words).output()
        };
        let output = self.netns.run(run).expect("the namespace").expect("tc");
        let has = output.status.success();
        if !has {
            skip("the kernel has no tbf");
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
                let mut packets = PacketList::new();
                rx.poll(64, Time::ZERO, &mut packets, &mut NoDrop);
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
        let mut packets = PacketList::new();
        self.tap.rx[0].poll(limit, Time::ZERO, &mut packets, &mut NoDrop);
        packets.len()
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
