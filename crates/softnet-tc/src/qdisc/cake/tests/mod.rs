//! `cake` in virtual time.

mod acks;
mod fairness;
mod parallel;
mod property;
mod queue;
mod shaping;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::{Cx, Next, Qdisc, Verdict};
use softnet::stats::DropCounters;
use softnet::testing::pool;
use softnet::time::Time;
use softnet::wire::checksum;

use super::{Cake, CakeSpec};
use crate::account::Xstat;
use crate::handle::Handle;
use crate::qdisc::kind::Kind;
use crate::qdisc::spec::QdiscEnv;
use crate::testing::MS;

const HANDLE: Handle = Handle::new(1, 0);
const SECOND: u64 = 1_000_000_000;
/// 100 Mbit/s.
const FAST: u64 = 12_500_000;

/// Ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ends {
    source: u8,
    destination: u8,
    port: u16,
}

fn ends(source: u8, destination: u8, port: u16) -> Ends {
    Ends {
        source,
        destination,
        port,
    }
}

/// An IPv4 packet of `len` bytes in Ethernet.
fn ip(pool: &Pool, ends: Ends, len: usize, tos: u8, protocol: u8, rest: &[u8]) -> Packet {
    let mut bytes = vec![0; 14];
    bytes[12] = 8;
    bytes.extend([0x45, tos]);
    bytes.extend(((len - 14) as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, ends.source]);
    bytes.extend([10, 0, 1, ends.destination]);
    let sum = checksum(&bytes[14..]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(ends.port.to_be_bytes());
    bytes.extend(rest);
    bytes.resize(len, 0);
    pool.packet(&bytes).unwrap()
}

fn udp(pool: &Pool, ends: Ends, len: usize, tos: u8) -> Packet {
    let rest = [[0, 53], ((len - 34) as u16).to_be_bytes(), [0; 2]].concat();
    ip(pool, ends, len, tos, 17, &rest)
}

/// A `cake` and its packets.
struct World {
    cake: Cake,
    cx: Cx,
    pool: Pool,
    /// Wire packets that were dropped.
    lost: u64,
}

impl World {
    fn new(spec: CakeSpec) -> World {
        World::with(spec, 8192)
    }

    fn with(spec: CakeSpec, buffers: usize) -> World {
        let pool = pool(buffers);
        let mut env = QdiscEnv::new(&pool);
        env.seed = 7;
        let cake = Cake::make(&spec, HANDLE, &env);
        let mut cx = Cx::new(&pool);
        cx.now = Time(SECOND);
        World {
            cake,
            cx,
            pool,
            lost: 0,
        }
    }

    fn change(&mut self, spec: &CakeSpec) {
        self.cake.change(spec, &mut self.cx);
        self.settle();
    }

    fn send(&mut self, packet: Packet) -> Verdict {
        let verdict = self.cake.enqueue(&mut packet.into(), &mut self.cx);
        self.settle();
        verdict
    }

    fn udp(&mut self, ends: Ends, len: usize, tos: u8) -> Verdict {
        let packet = udp(&self.pool, ends, len, tos);
        self.send(packet)
    }

    /// Packets that may leave now, at most so many.
    fn take(&mut self, budget: usize) -> (PacketList, Next) {
        let mut out = PacketList::new();
        let next = self.cake.dequeue(budget, &mut out, &mut self.cx);
        self.settle();
        (out, next)
    }

    /// Packets that leave until this time, or until nothing is queued; each with its time.
    fn run(&mut self, end: u64) -> Vec<(u64, Packet)> {
        let mut all = Vec::new();
        loop {
            let (out, next) = self.take(1);
            all.extend(out.into_iter().map(|packet| (self.cx.now.nanos(), packet)));
            match next {
                Next::Idle => break,
                Next::Ready => {}
                Next::At(time) if time.nanos() < end => self.cx.now = time,
                Next::At(_) => break,
            }
        }
        all
    }

    /// A statistic of a tin, as tc numbers them.
    fn tin(&self, tin: usize, stat: Xstat) -> u64 {
        self.cake.xstats().unwrap().parts()[tin]
            .value(stat)
            .unwrap()
    }

    fn stat(&self, stat: Xstat) -> u64 {
        self.cake.xstats().unwrap().value(stat).unwrap()
    }

    /// Frees what was dropped.
    fn settle(&mut self) {
        self.lost += self.cx.dropped.wire_packets();
        self.cx.dropped.settle(&DropCounters::new());
    }

    fn dropped(&self) -> u64 {
        self.lost
    }
}

fn limited(rate: u64) -> CakeSpec {
    CakeSpec {
        bandwidth: Some(rate),
        ..CakeSpec::default()
    }
}

/// The last byte of a packet's source and destination address, and the source port.
fn ends_of(packet: &Packet) -> Ends {
    let data = packet.data();
    ends(data[29], data[33], u16::from_be_bytes([data[34], data[35]]))
}
