//! A container attacks the switch with offload headers, as a packet socket lets it: large frames
//! that claim to be thousands of packets, towards a port with a rate limit. Two other hosts on the
//! same switch must hardly notice.
//!
//! How long pings take depends on what else the machine does. So each attack is compared with a
//! control that costs as much CPU time: the same pings beside honest frames to the same port,
//! which become wire packets of the same length at the same rate; and an attempt that fails is
//! repeated. The bound is far below what an attack did that is not held off: it stopped the switch
//! for hundreds of milliseconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use softnet::stats::DropReason;
use softnet::wire::VnetHeader;
use softnet_tc::{QdiscSpec, TbfSpec};
use softnet_tests::raw::PacketSocket;
use softnet_tests::traffic::{Pinger, ping};
use softnet_tests::{Host, HostConfig, Lan, LanConfig, counters};

/// How long each attack lasts.
const ATTACK: Duration = Duration::from_millis(700);
/// Frames sent at once, and how often.
const BURST: usize = 20;
const PAUSE: Duration = Duration::from_millis(4);
/// How often the others ping.
const INTERVAL: Duration = Duration::from_millis(1);
/// What 99 of 100 pings must take at most, if the control does.
const BOUND: Duration = Duration::from_millis(5);
/// What they may take at most on a machine so busy that those of the control take long, too.
const WORST: Duration = Duration::from_millis(100);
/// Attempts of which one must succeed.
const ATTEMPTS: usize = 8;

const PAYLOAD: usize = 65_000;

/// One attack at a time: each takes a CPU.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits for its turn.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attacker, victim, and two that have nothing to do with it. The victim's port is that of the
/// README's example.
fn lan() -> Option<Lan> {
    let rate = 100_000_000 / 8;
    let burst = 32 << 10;
    let victim = HostConfig {
        qdisc: QdiscSpec::Tbf(TbfSpec {
            rate,
            burst,
            // 50 ms.
            limit: rate / 20 + burst,
            ..TbfSpec::default()
        }),
        ..HostConfig::default()
    };
    let other = HostConfig::default();
    Lan::build(LanConfig {
        hosts: vec![other.clone(), victim, other.clone(), other],
        workers: 2,
        buffers: 65_536,
        large: 2048,
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

fn udp(from: &Host, to: &Host, payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(from.mac, to.mac)
        .ipv4(from.v4.octets(), to.v4.octets(), 64)
        .udp(1, 9)
        .write(&mut frame, &vec![0; payload])
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

/// Sends frames until `done`; returns how many the kernel took.
fn flood(socket: &PacketSocket, frames: &[(VnetHeader, Vec<u8>)], done: &AtomicBool) -> u64 {
    let mut sent = 0;
    let mut frames = frames.iter().cycle();
    while !done.load(Ordering::Relaxed) {
        for (header, frame) in frames.by_ref().take(BURST) {
            sent += u64::from(socket.send(*header, frame).is_ok());
        }
        thread::sleep(PAUSE);
    }
    sent
}

/// What 99 of 100 pings between the others take at most, while these frames are sent. Each counts
/// from the time when it was due, so that a standstill counts for every ping that it held up.
fn pings_beside(lan: &Lan, frames: &[(VnetHeader, Vec<u8>)]) -> Duration {
    let socket = PacketSocket::open(&lan.hosts[0], 0);
    let pinger = Pinger::open(&lan.hosts[2], &lan.hosts[3], false);
    let done = AtomicBool::new(false);
    let mut times = Vec::new();
    let sent = thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&socket, frames, &done));
        let start = Instant::now();
        let mut due = start;
        while due < start + ATTACK {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            pinger.ping(56);
            times.push(due.elapsed());
            due += INTERVAL;
        }
        done.store(true, Ordering::Relaxed);
        flood.join().expect("the flood")
    });
    assert!(sent > 0, "the kernel takes no such frame");
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Attacks with these frames, until an attempt is as harmless as honest ones that become wire
/// packets of `len` bytes.
fn harmless(lan: &Lan, name: &str, frames: &[(VnetHeader, Vec<u8>)], len: u16) {
    // As a program without privileges sends them (`UDP_SEGMENT`).
    let size = len - 42;
    let most = (PAYLOAD / usize::from(size)).min(128);
    let frame = udp(&lan.hosts[0], &lan.hosts[1], most * usize::from(size));
    let honest = [(udp_header(size), frame)];
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let control = pings_beside(lan, &honest);
        let attack = pings_beside(lan, frames);
        println!("{name}: p99 {attack:?}, control {control:?}");
        if attack <= BOUND.max(2 * control).min(WORST) {
            return;
        }
        seen.push((attack, control));
    }
    panic!("{name} held up the pings of others: p99 and control {seen:?}");
}

/// What a frame's header claims must not enter the counters of what was received.
fn received(lan: &Lan) -> u64 {
    lan.port(0).rx_packets
}

#[test]
fn large_frames_of_tiny_packets_do_not_stop_the_switch() {
    let _alone = alone();
    let Some(lan) = lan() else { return };
    let (attacker, victim) = (&lan.hosts[0], &lan.hosts[1]);
    // The switch learns who is where.
    ping(attacker, victim, false, 56);
    ping(&lan.hosts[2], &lan.hosts[3], false, 56);
    let large = tcp(attacker, victim);

    let (before, sent_before) = (received(&lan), counters::interface(attacker).tx_packets);
    let frames = [(tcp_header(1), large.clone())];
    let socket = PacketSocket::open(attacker, 0);
    for _ in 0..100 {
        let _ = socket.send(frames[0].0, &frames[0].1);
    }
    lan.all_frames_polled();
    let sent = counters::interface(attacker).tx_packets - sent_before;
    let counted = received(&lan) - before;
    assert_eq!(counted, sent, "each of them counts as one");
    assert!(lan.dropped(0, DropReason::GsoSize) > 0);

    for size in [1, 8, 88] {
        let frames = [(tcp_header(size), large.clone())];
        harmless(
            &lan,
            &format!("segments of {size} bytes"),
            &frames,
            54 + size,
        );
    }
    lan.settle();
    let stats = lan.stop();
    assert!(stats.conservation().holds());
}

#[test]
fn lying_lengths_do_not_stop_the_switch() {
    let _alone = alone();
    let Some(lan) = lan() else { return };
    let (attacker, victim) = (&lan.hosts[0], &lan.hosts[1]);
    ping(attacker, victim, false, 56);
    ping(&lan.hosts[2], &lan.hosts[3], false, 56);
    let (tcp, udp) = (tcp(attacker, victim), udp(attacker, victim, PAYLOAD));
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
    harmless(&lan, "lying lengths", &lies, 54 + 8);
    lan.settle();
    let stats = lan.stop();
    assert!(stats.conservation().holds());
}
