//! Segmenting, merging and segmenting again restores every packet, and keeps each flow in order.
//!
//! Input: numbers that say which frames to make, how to segment them, how to mix the wire packets,
//! and which bytes of these to damage. Where it ends, zeros follow.

use std::collections::HashMap;

use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::offload::{Features, merge, segment};
use softnet::wire::{Network, parse};

use super::frames::{Frame, Transport};

const ALL: Features = Features {
    checksum: true,
    tso4: true,
    tso6: true,
    ecn: true,
    uso: true,
    scatter_gather: true,
    mtu: 9000,
};

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A frame with 1 to 2048 bytes of payload, of flow `flow`.
    fn frame(&mut self, flow: u16) -> Frame {
        let kind = self.byte();
        let transport = match kind & 0x80 {
            0 => Transport::Udp,
            _ => Transport::Tcp {
                options: usize::from(self.byte() % 11),
                flags: self.byte(),
            },
        };
        let len = usize::from(self.number() % 2048) + 1;
        let pattern = self.byte();
        Frame {
            vlans: usize::from(kind & 3),
            v6: kind & 4 != 0,
            options: usize::from(kind >> 3 & 3),
            traffic_class: self.byte(),
            id: self.number(),
            ports: (flow, 7),
            seq: u32::from(self.number()) << 16 | 0xfff0,
            transport,
            payload: (0..len).map(|i| i as u8 ^ pattern).collect(),
            padding: 0,
        }
    }
}

thread_local! {
    /// For large frames, and two kinds for wire packets: in the last, these are chains.
    static POOLS: [Pool; 3] = [pool(8, 4096), pool(512, 2048), pool(1024, 576)];
}

pub(crate) fn run(input: &[u8]) {
    let mut input = Input(input);
    POOLS.with(|[large, small, smallest]| {
        let chained = input.byte() & 1 != 0;
        mix(&mut input, large, if chained { smallest } else { small });
    });
}

fn mix(input: &mut Input<'_>, large: &Pool, small: &Pool) {
    let mut flows = Vec::new();
    for flow in 0..1 + u16::from(input.byte() % 4) {
        let frame = input.frame(flow % 2);
        let least = frame
            .least_size()
            .max(frame.payload.len().div_ceil(40) as u16);
        let size = least + input.number() % 1024;
        let mut packet = packet(&frame.bytes(), large);
        let honest = packet.apply(&frame.vnet_header(size));
        honest.expect("an honest header is accepted");
        flows.push(segmented(packet, input.byte().into(), small));
    }
    let mut list = PacketList::new();
    while !flows.is_empty() {
        let chosen = usize::from(input.byte()) % flows.len();
        let Some(mut packet) = flows[chosen].pop_front() else {
            flows.swap_remove(chosen);
            continue;
        };
        let what = input.byte();
        if what & 1 != 0 {
            damage(&mut packet, input);
        }
        if what & 2 != 0 {
            pend_checksum(&mut packet);
        }
        list.push_back(packet);
    }

    // Copies that hold their headers in one segment, whatever damage has made of these.
    let copies = list.iter().map(|p| p.copy(large).expect("8 buffers"));
    let expected: Vec<Vec<u8>> = copies
        .flat_map(|copy| segmented(copy, 1, small))
        .map(|packet| bytes(&packet))
        .collect();
    let (packets, wire_len) = (list.wire_packets(), list.iter().map(Packet::wire_len).sum());
    merge(&mut list, &ALL);
    assert_eq!(list.wire_packets(), packets);
    assert_eq!(list.iter().map(Packet::wire_len).sum::<u64>(), wire_len);
    let chunk = input.byte();
    let found = list
        .into_iter()
        .flat_map(|packet| segmented(packet, chunk.into(), small))
        .map(|packet| bytes(&packet));
    assert_eq!(by_flow(found), by_flow(expected));
    assert_eq!(large.stats().free, large.stats().buffers);
    assert_eq!(small.stats().free, small.stats().buffers);
}

fn pool(buffers: usize, buffer_size: usize) -> Pool {
    let config = PoolConfig {
        buffers,
        buffer_size,
    };
    Pool::new(config).expect("a small pool")
}

fn packet(bytes: &[u8], pool: &Pool) -> Packet {
    let mut packet = pool.alloc().expect("8 buffers");
    assert!(packet.append(bytes));
    packet
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// The wire packets of a frame, made `chunk` at a time.
fn segmented(packet: Packet, chunk: usize, pool: &Pool) -> PacketList {
    let mut out = PacketList::new();
    let mut rest = Some(packet);
    while let Some(packet) = rest {
        let made = out.len();
        rest = segment(packet, chunk, pool, &mut out).expect("it can be segmented");
        assert!(out.len() - made <= chunk.max(1));
    }
    out
}

/// Changes one of the first 128 bytes.
fn damage(packet: &mut Packet, input: &mut Input<'_>) {
    let at = usize::from(input.byte() & 0x7f);
    let bits = input.byte();
    if let Some(byte) = packet.data_mut().get_mut(at) {
        *byte ^= bits;
    }
}

/// Leaves the checksum to be filled in, as a sender may.
fn pend_checksum(packet: &mut Packet) {
    if let Ok(headers) = packet.parse() {
        let len = packet.len();
        let checksum = headers.seed_checksum(packet.data_mut(), len);
        packet.set_checksum(checksum);
    }
}

/// Each flow's packets, without what merging may change: the identification of packets that are
/// never fragmented, and so the IPv4 header checksum.
fn by_flow(packets: impl IntoIterator<Item = Vec<u8>>) -> HashMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows: HashMap<Vec<u8>, Vec<Vec<u8>>> = HashMap::new();
    for mut packet in packets {
        let mut flow = Vec::new();
        if let Ok(headers) = parse(&packet, packet.len()) {
            let (ip, at) = headers.offsets();
            flow.extend(&packet[..ip]);
            flow.extend(format!("{:?}", headers.addresses(&packet)).bytes());
            flow.extend(format!("{:?} {}", headers.transport, at).bytes());
            if headers.network == Network::V4 && packet[ip + 6] & 0x40 != 0 {
                packet[ip + 4..ip + 6].fill(0);
                packet[ip + 10..ip + 12].fill(0);
            }
        }
        flows.entry(flow).or_default().push(packet);
    }
    flows
}
