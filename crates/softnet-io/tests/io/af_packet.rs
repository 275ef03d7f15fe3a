//! The driver `af_packet` at both ends of a veth: frames as they are, tags and large frames among
//! them.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{buffers, bytes, namespace, pool, skip};
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet::wire::{Checksum, GsoKind};
use softnet_engine::Link;
use softnet_engine::rx::{Polled, Receive, RxQueue};
use softnet_io::rights::AskError;
use softnet_io::{
    AfPacket, AfPacketError, AfPacketSpec, Buffers, InterfaceError, LinkError, Netns,
};

const TCP_PAYLOAD: usize = 20_000;

/// A veth between `va` and `vb` in a namespace of its own.
fn veth(mtu: u32) -> Option<Netns> {
    let netns = namespace()?;
    let ip = |arguments: &str| {
        let run = || Command::new("ip").args(arguments.split(' ')).status();
        netns.run(run).unwrap()
    };
    let Ok(made) = ip(&format!(
        "link add va mtu {mtu} type veth peer name vb mtu {mtu}"
    )) else {
        skip("needs iproute2");
        return None;
    };
    assert!(made.success());
    for name in ["va", "vb"] {
        // No frames of the kernel's own.
        assert!(
            ip(&format!("link set {name} addrgenmode none up"))
                .unwrap()
                .success()
        );
    }
    // The kernel sees a carrier a moment later.
    softnet_tests::wait_for("the carriers", || {
        let run = || Command::new("ip").args(["link", "show"]).output();
        let shown = netns.run(run).unwrap().unwrap().stdout;
        String::from_utf8_lossy(&shown)
            .matches(" state UP ")
            .count()
            == 2
    });
    Some(netns)
}

fn open(netns: &Netns, name: &str, queues: usize, buffers: &Buffers) -> AfPacket {
    let spec = AfPacketSpec::new(name);
    netns
        .run(|| AfPacket::open(&spec, queues, 1500, buffers))
        .unwrap()
        .unwrap()
}

fn packet(pool: &Pool, frame: &[u8]) -> Packet {
    let mut chunks = frame.chunks(1700);
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(chunks.next().unwrap_or_default()));
    for chunk in chunks {
        let mut segment = pool.alloc().unwrap();
        assert!(segment.append(chunk));
        packet.append_segment(segment);
    }
    packet
}

/// Arrivals of `count` frames and drops, in polls of at most `budget`.
fn receive(device: &mut AfPacket, count: usize, budget: usize) -> (Vec<Packet>, DropCounters) {
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    softnet_tests::wait_for("frames", || {
        for rx in &mut device.rx {
            let before = packets.wire_packets();
            let mut receive = Receive::new(budget, Time::ZERO, &mut packets, &drops);
            let Polled { more, .. } = rx.poll(&mut receive);
            let got = packets.wire_packets() - before;
            assert!(!more || got as usize + drops.total() as usize >= budget);
        }
        packets.len() + drops.total() as usize >= count
    });
    (packets.into_iter().collect(), drops)
}

fn send(device: &mut AfPacket, packets: impl IntoIterator<Item = Packet>) -> Sent {
    let mut packets: PacketList = packets.into_iter().collect();
    let mut sent = Sent::default();
    while device.tx[0].xmit(&mut packets, &mut sent) == Xmit::Busy {}
    assert!(packets.is_empty());
    sent
}

/// Tags behind the addresses, and an unknown protocol or TCP over IPv4 with a checksum to fill in.
fn frame(tags: &[[u8; 4]], tcp: bool, payload: usize) -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].to_vec();
    frame.extend(tags.as_flattened());
    if tcp {
        frame.extend([0x08, 0x00]);
        let len = (40 + payload) as u16;
        let mut ip = [
            0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        let sum: u32 = ip
            .chunks(2)
            .map(|c| u32::from(u16::from_be_bytes([c[0], c[1]])))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(ip);
        // The pseudo-header's sum stays as it is.
        frame.extend([
            0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0x12, 0x34, 0, 0,
        ]);
    } else {
        frame.extend([0x88, 0xb5]);
    }
    frame.extend((0..payload).map(|i| (i * 7) as u8));
    frame
}

const C_TAG: [u8; 4] = [0x81, 0x00, 0xa0, 0x07];
const S_TAG: [u8; 4] = [0x88, 0xa8, 0x00, 0x09];

#[test]
fn tags_cross_both_ways() {
    let Some(netns) = veth(1500) else { return };
    let buffers = buffers();
    let (mut a, mut b) = (
        open(&netns, "va", 1, &buffers),
        open(&netns, "vb", 1, &buffers),
    );
    // The kernel says so some time after they were taken up.
    softnet_tests::wait_for("the links to be up", || {
        a.link.state().up && b.link.state().up
    });
    let source = pool(64, 2048);
    for tags in [
        &[][..],
        &[C_TAG],
        &[S_TAG],
        &[S_TAG, C_TAG],
        &[C_TAG, C_TAG],
    ] {
        for (one, other) in [(true, false), (false, true)] {
            let (from, to) = if one {
                (&mut a, &mut b)
            } else {
                (&mut b, &mut a)
            };
            for payload in [46, 100, 1400] {
                let _ = other;
                let plain = frame(tags, false, payload);
                let tcp = frame(tags, true, payload);
                let mut unfinished = packet(&source, &tcp);
                let start = (14 + 4 * tags.len() + 20) as u16;
                let checksum = Checksum { start, offset: 16 };
                unfinished.set_checksum(Some(checksum));
                let sent = send(from, [packet(&source, &plain), unfinished]);
                assert_eq!((sent.packets, sent.dropped), (2, vec![]));
                let (received, drops) = receive(to, 2, 64);
                assert_eq!(drops.nonzero(), []);
                assert_eq!(bytes(&received[0]), plain);
                assert_eq!(bytes(&received[1]), tcp);
                assert_eq!(received[1].checksum(), Some(checksum));
            }
        }
    }
    drop((a, b));
    assert_eq!(buffers.small.stats().free, 256, "a buffer was not freed");
    assert_eq!(buffers.large.unwrap().stats().free, 16);
}

/// In one piece, with large buffers and without, in any budget.
#[test]
fn large_frames_cross() {
    let Some(netns) = veth(1500) else { return };
    let with = buffers();
    let without = Buffers {
        large: None,
        ..buffers()
    };
    let source = pool(256, 2048);
    for buffers in [&with, &without] {
        let (mut a, mut b) = (open(&netns, "va", 1, &with), open(&netns, "vb", 1, buffers));
        for tags in [&[][..], &[C_TAG], &[S_TAG, C_TAG]] {
            let tcp = frame(tags, true, TCP_PAYLOAD);
            let header_len = (14 + 4 * tags.len() + 40) as u16;
            let large = || {
                let mut packet = packet(&source, &tcp);
                packet.set_checksum(Some(Checksum {
                    start: header_len - 20,
                    offset: 16,
                }));
                let gso = softnet::wire::Gso {
                    kind: GsoKind::TcpV4,
                    ecn: false,
                    size: 1400,
                    header_len,
                    segments: TCP_PAYLOAD.div_ceil(1400) as u16,
                };
                packet.set_gso(Some(gso));
                packet
            };
            let sent = send(&mut a, (0..3).map(|_| large()));
            assert_eq!(sent.dropped, []);
            assert_eq!(sent.packets, 3 * TCP_PAYLOAD.div_ceil(1400) as u64);
            for budget in [1, 16] {
                if budget == 16 {
                    send(&mut a, (0..3).map(|_| large()));
                }
                let (received, drops) = receive(&mut b, 3, budget);
                assert_eq!(drops.nonzero(), []);
                for packet in &received {
                    assert_eq!(bytes(packet), tcp);
                    assert_eq!(packet.gso(), large().gso());
                    assert_eq!(packet.checksum(), large().checksum());
                }
            }
        }
    }
}

/// Each frame once, whichever socket gets it, and those of a flow in order.
#[test]
fn queues_share_out_flows() {
    let Some(netns) = veth(1500) else { return };
    let buffers = buffers();
    let (mut a, mut b) = (
        open(&netns, "va", 1, &buffers),
        open(&netns, "vb", 3, &buffers),
    );
    let source = pool(256, 2048);
    for round in 0..10_u8 {
        let packets: Vec<_> = (0..96_u8)
            .map(|i| {
                let mut frame = frame(&[], true, 8);
                // The flow, and the place in it.
                frame[34] = i % 16;
                frame[54] = i / 16;
                frame[55] = round;
                packet(&source, &frame)
            })
            .collect();
        assert_eq!(send(&mut a, packets).packets, 96);
        let (received, drops) = receive(&mut b, 96, 64);
        assert_eq!((received.len(), drops.nonzero()), (96, vec![]));
        let mut queues: Vec<Option<u16>> = Vec::new();
        for flow in 0..16 {
            let of_flow = received.iter().filter(|p| bytes(p)[34] == flow);
            let of_flow: Vec<_> = of_flow.map(|p| (bytes(p)[54], p.queue())).collect();
            let places: Vec<u8> = of_flow.iter().map(|&(place, _)| place).collect();
            assert_eq!(places, [0, 1, 2, 3, 4, 5]);
            assert!(of_flow.iter().all(|&(_, queue)| queue == of_flow[0].1));
            queues.push(of_flow[0].1);
        }
        queues.sort_unstable();
        queues.dedup();
        assert!(queues.len() > 1, "all flows are at {queues:?}");
    }
}

#[test]
fn frames_that_find_no_buffer_are_dropped() {
    let Some(netns) = veth(1500) else { return };
    let few = Buffers {
        small: pool(8, 2048),
        large: None,
    };
    let mut a = open(&netns, "va", 1, &buffers());
    let mut b = open(&netns, "vb", 1, &few);
    let source = pool(64, 2048);
    let packets = (0..20).map(|_| packet(&source, &frame(&[], false, 60)));
    send(&mut a, packets);
    let (received, drops) = receive(&mut b, 20, 64);
    assert_eq!(received.len(), 8);
    assert_eq!(drops.nonzero(), [(DropReason::NoBuffer, 12)]);
    // Longer than the interface takes.
    let sent = send(&mut a, [packet(&source, &frame(&[], false, 1600))]);
    assert_eq!(sent.dropped, [(DropReason::TooLong, 1)]);
}

/// While an interface is renamed nothing is found by its new name for a moment.
#[test]
fn a_rename_is_not_the_end() {
    let Some(netns) = veth(1500) else { return };
    let device = open(&netns, "va", 1, &buffers());
    let done = AtomicBool::new(false);
    let ip = |arguments: &str| {
        let run = || Command::new("ip").args(arguments.split(' ')).status();
        assert!(netns.run(run).unwrap().unwrap().success(), "{arguments}");
    };
    ip("link set va down");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                ip("link set va name other");
                ip("link set other name va");
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert!(!device.link.state().up);
        }
    });
    assert!(!device.link.is_gone());
}

#[test]
fn the_speed_is_the_interfaces() {
    let Some(netns) = veth(1500) else { return };
    let device = open(&netns, "va", 1, &buffers());
    // Each veth says 10 Gb/s.
    let speed = Some(1_250_000_000);
    assert_eq!(device.link.speed(), speed);
    assert!(!device.link.may_have_another_speed());
    let run = || {
        let mut ip = Command::new("ip");
        ip.args(["link", "set", "va", "mtu", "1400"]).status()
    };
    assert!(netns.run(run).unwrap().unwrap().success());
    // The report is there; a worker reads it.
    assert_eq!(device.link.state().mtu, Some(1400));
    assert!(device.link.may_have_another_speed());
    assert_eq!(device.link.speed(), speed);
    assert!(!device.link.may_have_another_speed());
}

#[test]
fn errors_name_the_interface() {
    let Some(netns) = veth(1500) else { return };
    let open = |name: &str, queues| {
        let open = || AfPacket::open(&AfPacketSpec::new(name), queues, 1500, &buffers());
        netns.run(open).unwrap().unwrap_err()
    };
    assert!(matches!(
        open("none", 1),
        AskError::Own(AfPacketError::Interface(InterfaceError::Link(LinkError::NotFound(name))))
            if name == "none"
    ));
    assert_eq!(
        open("lo", 1).to_string(),
        "the interface 'lo' is not an Ethernet device"
    );
    assert!(matches!(
        open("va", 0),
        AskError::Own(AfPacketError::BadQueues(0))
    ));
    assert!(matches!(
        open("va", 257),
        AskError::Own(AfPacketError::BadQueues(257))
    ));
}
