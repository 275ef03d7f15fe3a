//! Shared parts of several modules' tests.

pub(crate) mod alone;
pub(crate) mod bench;
#[cfg(not(loom))]
pub(crate) mod codel_model;
pub(crate) mod round_robin;
#[cfg(not(loom))]
pub(crate) mod sparse;
#[cfg(not(loom))]
pub(crate) mod specs;
#[cfg(not(loom))]
pub(crate) mod steps;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, Verdict};
use softnet::testing::Random;
use softnet::wire::{Gso, GsoKind};

use crate::handle::Handle;

pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn handle(text: &str) -> Handle {
    text.parse().unwrap()
}

/// An IPv4 packet of `len` bytes in Ethernet with this type of service.
pub(crate) fn ip(pool: &Pool, len: usize, tos: u8, mark: u32) -> Packet {
    let mut bytes = vec![0; len];
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, tos]);
    bytes[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    bytes[22..24].copy_from_slice(&[64, 253]);
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(&bytes));
    packet.set_mark(mark);
    packet
}

/// A large frame of 8 datagrams of 192 bytes.
pub(crate) fn large(pool: &Pool) -> Packet {
    let mut large = pool.alloc().unwrap();
    let payload = 8 * 150;
    let mut bytes = vec![0; 14 + 20 + 8 + payload];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&((28 + payload) as u16).to_be_bytes());
    bytes[22] = 64;
    bytes[23] = 17;
    bytes[38..40].copy_from_slice(&((8 + payload) as u16).to_be_bytes());
    assert!(large.append(&bytes));
    large.set_gso(Some(Gso {
        kind: GsoKind::Udp,
        ecn: false,
        size: 150,
        segments: 8,
        header_len: 42,
    }));
    large
}

/// One minus what flows differ: 1 if all have the same (Jain, Chiu and Hawe, 1984).
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&x| x as f64).sum();
    let squares: f64 = shares.iter().map(|&x| (x as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Bytes of each of `flows` flows, which always have packets, among the first 200,000 packets.
/// Each has sizes of its own.
pub(crate) fn shares(
    qdisc: &mut impl Qdisc,
    flows: u32,
    packet: impl Fn(usize, u32) -> Packet,
    cx: &mut Cx,
) -> Vec<u64> {
    let mut random = Random(3);
    let mut size = |flow: u32| match flow % 4 {
        0 => 60,
        1 => 1514,
        2 => 60 + random.below(1400) as usize,
        _ => [60, 600, 1514][random.below(3) as usize],
    };
    for flow in 0..flows {
        let mut list: PacketList = (0..60).map(|_| packet(size(flow), flow)).collect();
        qdisc.enqueue(&mut list, cx);
    }
    let mut bytes = vec![0; flows as usize];
    for _ in 0..25_000 {
        let mut out = PacketList::new();
        qdisc.dequeue(8, &mut out, cx);
        let mut again = PacketList::new();
        for packet_out in out {
            bytes[packet_out.mark() as usize] += packet_out.len() as u64;
            let flow = packet_out.mark();
            drop(packet_out);
            again.push_back(packet(size(flow), flow));
        }
        qdisc.enqueue(&mut again, cx);
    }
    assert_eq!(cx.dropped.wire_packets(), 0);
    bytes
}

/// A qdisc that cannot be looked into, so that what stands above it has to take packets out.
#[derive(Debug)]
pub(crate) struct Opaque<Q>(pub(crate) Q);

impl<Q: Qdisc> Qdisc for Opaque<Q> {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.0.enqueue(packets, cx)
    }
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.0.dequeue(budget, out, cx)
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.0.drain(out);
    }
    fn stats(&self) -> &QdiscStats {
        self.0.stats()
    }
}
