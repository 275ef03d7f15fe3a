//! A container attacks the switch with offload headers, as a packet socket lets it: large frames
//! that claim to be thousands of packets, towards a port with a rate limit. Two other hosts on the
//! same switch must hardly notice.
//!
//! An attack that was not held off stopped the switch for hundreds of milliseconds, as each frame
//! was cut into thousands of packets, which the port then dropped. How long that takes depends on
//! what else the machine does. So it is the buffers taken for such packets that are bounded here.

use std::time::Duration;

use etherparse::PacketBuilder;
use softnet::stats::DropReason;
use softnet::wire::{TCP_MIN_GSO_SIZE, VnetHeader};
use softnet_tc::{QdiscSpec, TbfSpec};
use softnet_tests::raw::PacketSocket;
use softnet_tests::traffic::{Pinger, ping};
use softnet_tests::{Host, HostConfig, Lan, LanConfig, counters};

/// Frames of an attack, sent in bursts. All fit the device's ring.
const FRAMES: usize = 200;
const BURST: usize = 20;
/// Bytes that the victim's queue holds.
const LIMIT: u64 = 1 << 19;
/// Bytes that the victim's port may send at once; then a byte takes 100 ms.
const BUCKET: u64 = 32 << 10;
/// Buffers for what the hosts send besides.
const MARGIN: u64 = 256;

const PAYLOAD: usize = 65_000;

/// Attacker, victim, and two that have nothing to do with it.
fn lan() -> Option<Lan> {
    let lan = Lan::build(LanConfig {
        hosts: vec![HostConfig::default(); 4],
        workers: 2,
        cpu: None,
        buffers: 65_536,
        large: 2048,
        ..LanConfig::default()
    })?;
    // The switch learns who is where.
    ping(&lan.hosts[0], &lan.hosts[1], false, 56);
    Some(lan)
}

/// The victim's qdisc hardly sends, so that nothing here depends on how long it takes.
fn shaped() -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate: 10,
        burst: BUCKET,
        limit: LIMIT,
        ..TbfSpec::default()
    })
}

fn tcp(from: &Host, to: &Host) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(from.mac, to.mac)
        .ipv4(from.v4.octets(), to.v4.octets(), 64)
        .tcp(1, 9, 1, 1000)
        .ack(1)
        .write(&mut frame, &[0; PAYLOAD])
        .expect("a frame");
    frame
}

fn udp(from: &Host, to: &Host) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(from.mac, to.mac)
        .ipv4(from.v4.octets(), to.v4.octets(), 64)
        .udp(1, 9)
        .write(&mut frame, &[0; PAYLOAD])
        .expect("a frame");
    frame
}

/// A TCP frame's header that claims segments of `size` bytes.
fn tcp_header(size: u16) -> VnetHeader {
    VnetHeader {
        flags: 1,
        gso_type: 1,
        hdr_len: 54.into(),
        gso_size: size.into(),
        csum_start: 34.into(),
        csum_offset: 16.into(),
        ..VnetHeader::default()
    }
}

/// A UDP frame's header that claims datagrams of `size` bytes.
fn udp_header(size: u16) -> VnetHeader {
    VnetHeader {
        gso_type: 5,
        hdr_len: 42.into(),
        csum_offset: 6.into(),
        ..tcp_header(size)
    }
}

/// An attack with this frame, which claims to be packets of `len` bytes, while others ping. What
/// the victim's port does not send or queue may not be cut. Returns how many frames the attacker's
/// port has received.
fn attack(lan: &Lan, header: VnetHeader, frame: &[u8], len: u64) -> u64 {
    let [attacker, _, c, d] = &lan.hosts[..] else {
        panic!("four hosts")
    };
    let counts = || {
        // Behind all that was sent, and past the victim's port.
        ping(attacker, c, false, 56);
        lan.all_reads_counted();
        (
            counters::interface(attacker).tx_packets,
            lan.pool().allocated,
        )
    };
    // Empty at the start.
    lan.set_qdisc(1, &QdiscSpec::Pfifo { limit: 1000 });
    lan.settle();
    lan.set_qdisc(1, &shaped());
    let before = counts();
    let socket = PacketSocket::open(attacker, 0);
    let pinger = Pinger::open(c, d, false);
    for _ in 0..FRAMES / BURST {
        for _ in 0..BURST {
            // The kernel may refuse it.
            let _ = socket.send(header, frame);
        }
        pinger.ping(56);
    }
    let after = counts();
    let (frames, buffers) = (after.0 - before.0, after.1 - before.1);
    let most = MARGIN + 2 * frames + (LIMIT + BUCKET) / len;
    println!("{header:?}: {frames} frames took {buffers} buffers of {most}");
    assert!(buffers <= most, "{buffers} buffers, {most} expected");
    frames
}

#[test]
fn large_frames_of_tiny_packets_do_not_stop_the_switch() {
    let Some(lan) = lan() else { return };
    let frame = tcp(&lan.hosts[0], &lan.hosts[1]);
    for size in [1, 8, 88] {
        let dropped = || lan.dropped(0, DropReason::GsoSize);
        let before = dropped();
        let frames = attack(&lan, tcp_header(size), &frame, 54 + u64::from(size));
        assert!(frames >= FRAMES as u64, "the kernel takes no such frame");
        // Those that no honest stack sends count as one each, whatever their header claims.
        let refused = if size < TCP_MIN_GSO_SIZE { FRAMES } else { 0 };
        assert_eq!(dropped() - before, refused as u64, "{size} bytes");
    }
    lan.stop_within(Duration::ZERO);
}

#[test]
fn lying_lengths_do_not_stop_the_switch() {
    let Some(lan) = lan() else { return };
    let (attacker, victim) = (&lan.hosts[0], &lan.hosts[1]);
    let (tcp, udp) = (tcp(attacker, victim), udp(attacker, victim));
    let mut lies = Vec::new();
    for hdr_len in [0, 1, 53, 66, 4000, 65_054, u16::MAX] {
        let mut header = tcp_header(8);
        header.hdr_len = hdr_len.into();
        lies.push((header, tcp.clone()));
    }
    for (start, offset) in [(0, 0), (34, 6), (60_000, 16), (u16::MAX, u16::MAX)] {
        let mut header = tcp_header(88);
        header.csum_start = start.into();
        header.csum_offset = offset.into();
        lies.push((header, tcp.clone()));
    }
    for size in [1, 8, 88, 508, 600] {
        lies.push((udp_header(size), udp.clone()));
    }
    // Lengths inside the frame: of IP, of UDP, and of the TCP header.
    for (at, value) in [(16, [0, 60]), (16, [0xff, 0xff]), (46, [0xf0, 0x10])] {
        let mut frame = tcp.clone();
        frame[at..at + 2].copy_from_slice(&value);
        lies.push((tcp_header(8), frame));
    }
    let mut frame = udp;
    frame[38..40].copy_from_slice(&[0, 8]);
    lies.push((udp_header(600), frame));
    let mut taken = 0;
    for (header, frame) in &lies {
        let frames = attack(&lan, *header, frame, 54 + 8);
        taken += u64::from(frames >= FRAMES as u64);
    }
    assert!(taken > 5, "the kernel takes none of these frames");
    lan.stop_within(Duration::ZERO);
}
