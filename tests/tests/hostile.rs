//! A host that sends what no well-behaved host does: broken headers, offload metadata that lies, addresses that may not be used. Each frame is
//! delivered as it is or dropped and counted, none brings a worker down, and other traffic goes on.
//!
//! Frames come from a packet socket, so the sending kernel has a say first: it refuses some, and drops others on their way to the
//! device. Behind each frame goes a probe on the same path, by whose arrival the frame's fate is decided.

use etherparse::{PacketBuilder, VlanId};
use softnet::packet::VnetHeader;
use softnet::stats::DropReason;
use softnet_tests::raw::{ALL, PacketSocket};
use softnet_tests::traffic::{Connection, Flow, pattern, ping};
use softnet_tests::{HostConfig, Lan, LanConfig, PATIENCE, wait_for};

/// IEEE 802 local experimental EtherType: no host's business.
const PROBE: [u8; 2] = [0x88, 0xb5];
/// What marks our frames' source addresses, whatever their first byte.
const MARK: [u8; 3] = [0x66, 0, 0];

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// The sending kernel did not take it or dropped it before the device, or the receiving one dropped it before anybody saw it.
    Kernel,
    /// Softnet dropped it: the reason, and the wire packets counted.
    Dropped(DropReason, u64),
    /// It arrived, as these frames.
    Arrived(Vec<Vec<u8>>),
}

/// What must become of a frame.
#[derive(Clone, Debug)]
enum Expect {
    /// It arrives as it was sent.
    Unharmed,
    /// Softnet drops it as so many wire packets.
    Drop(DropReason, u64),
    /// Softnet drops it for one of these reasons, if the kernel has not done so.
    Bad(&'static [DropReason]),
    /// It is not for Softnet to judge: anything but to vanish.
    Any,
}

use Expect::{Any, Bad, Drop, Unharmed};

/// What offload metadata is dropped for that lies.
const LIES: &[DropReason] = &[
    DropReason::BadGso,
    DropReason::BadChecksumOffload,
    DropReason::BadHeader,
];

#[derive(Clone, Debug)]
struct Attack {
    name: String,
    header: VnetHeader,
    frame: Vec<u8>,
    expect: Expect,
}

struct Attacker<'a> {
    lan: &'a Lan,
    socket: PacketSocket,
    capture: PacketSocket,
    sent: u16,
}

impl Attacker<'_> {
    fn new(lan: &Lan) -> Attacker<'_> {
        Attacker {
            lan,
            socket: PacketSocket::open(&lan.hosts[0], 0),
            capture: PacketSocket::open(&lan.hosts[1], ALL),
            sent: 0,
        }
    }

    /// A fresh source address with this first byte.
    fn source(&mut self, first: u8) -> [u8; 6] {
        self.sent += 1;
        let [hi, lo] = self.sent.to_be_bytes();
        [first, MARK[0], MARK[1], MARK[2], hi, lo]
    }

    fn drops(&self) -> Vec<(DropReason, u64)> {
        self.lan.engine.stats().drops()
    }

    /// Sends the frame, and a probe behind it; looks what arrives before the probe.
    fn fate(&mut self, header: VnetHeader, frame: &[u8]) -> Fate {
        let before = self.drops();
        if self.socket.send(header, frame).is_err() {
            return Fate::Kernel;
        }
        let source = self.source(2);
        let mut probe = [&self.lan.hosts[1].mac[..], &source, &PROBE].concat();
        probe.resize(60, 0);
        self.socket
            .send(VnetHeader::default(), &probe)
            .expect("sending a probe");
        let mut arrived = Vec::new();
        loop {
            let (_, seen) = self.capture.receive(PATIENCE).expect("the probe");
            if seen == probe {
                break;
            }
            if frame.len() >= 14 && seen.get(6..12) == Some(&frame[6..12]) {
                arrived.push(seen);
            }
        }
        // Numbers are published at the end of a run.
        wait_for("every packet to be accounted for", || {
            self.lan.engine.stats().conservation().holds()
        });
        let after = self.drops();
        let new: Vec<_> = after
            .into_iter()
            .map(|(reason, n)| {
                let old = before.iter().find(|d| d.0 == reason);
                (reason, n - old.map_or(0, |d| d.1))
            })
            .filter(|&(_, n)| n > 0)
            .collect();
        match (&new[..], arrived.is_empty()) {
            ([], true) => Fate::Kernel,
            ([], false) => Fate::Arrived(arrived),
            (&[(reason, n)], true) => Fate::Dropped(reason, n),
            _ => panic!("arrived as {} frames and dropped: {new:?}", arrived.len()),
        }
    }

    fn attack(&mut self, attack: &Attack) {
        let Attack {
            name,
            header,
            frame,
            expect,
        } = attack;
        let mut frame = frame.clone();
        if frame.get(6..12) == Some(&[0xee; 6]) {
            let source = self.source(2);
            frame[6..12].copy_from_slice(&source);
        }
        let fate = self.fate(*header, &frame);
        let shown = match &fate {
            Fate::Arrived(frames) => {
                let lengths: Vec<usize> = frames.iter().take(3).map(Vec::len).collect();
                format!("arrived, {} frames: {lengths:?}…", frames.len())
            }
            other => format!("{other:?}"),
        };
        println!("{name} ({} bytes): {shown}", frame.len());
        match (expect, &fate) {
            (Unharmed, Fate::Arrived(frames)) => {
                assert_eq!(frames.len(), 1, "{name}");
                // The receiving kernel has taken the outer VLAN tag off.
                let untagged = [&frame[..12], frame.get(16..).unwrap_or_default()].concat();
                let tagged = frame.get(12..14) == Some(&[0x81, 0]) && frames[0] == untagged;
                assert!(frames[0] == frame || tagged, "{name}: {:02x?}", frames[0]);
            }
            (Drop(reason, n), Fate::Dropped(r, m)) => assert_eq!((r, m), (reason, n), "{name}"),
            (Bad(reasons), Fate::Dropped(reason, _)) => {
                assert!(reasons.contains(reason), "{name}: {reason}");
            }
            (Bad(_), Fate::Kernel) | (Any, _) => {}
            _ => panic!("{name}: {expect:?} expected, {shown}"),
        }
    }
}

/// Frames from host 0 to host 1, with a source address to be filled in.
struct Frames<'a>(&'a Lan);

impl Frames<'_> {
    fn ethernet(&self, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.0.hosts[1].mac.to_vec();
        frame.extend([0xee; 6]);
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn udp(&self, v6: bool, len: usize) -> Vec<u8> {
        self.ip(v6, |ip| {
            let mut frame = Vec::new();
            ip.udp(1, 9)
                .write(&mut frame, &pattern(1, len))
                .expect("a frame");
            frame
        })
    }

    fn tcp(&self, v6: bool, len: usize) -> Vec<u8> {
        self.ip(v6, |ip| {
            let mut frame = Vec::new();
            ip.tcp(1, 9, 1, 1000)
                .ack(1)
                .write(&mut frame, &pattern(1, len))
                .expect("a frame");
            frame
        })
    }

    fn ip(
        &self,
        v6: bool,
        finish: impl FnOnce(etherparse::PacketBuilderStep<etherparse::IpHeaders>) -> Vec<u8>,
    ) -> Vec<u8> {
        let (a, b) = (&self.0.hosts[0], &self.0.hosts[1]);
        let ethernet = PacketBuilder::ethernet2([0xee; 6], b.mac);
        finish(if v6 {
            ethernet.ipv6(a.v6.octets(), b.v6.octets(), 64)
        } else {
            ethernet.ipv4(a.v4.octets(), b.v4.octets(), 64)
        })
    }

    /// The frame behind this many VLAN tags.
    fn tagged(&self, frame: &[u8], tags: u16) -> Vec<u8> {
        let mut out = frame[..12].to_vec();
        for id in 1..=tags {
            let id = VlanId::try_new(id).expect("a VLAN number");
            out.extend([0x81, 0x00]);
            out.extend(id.value().to_be_bytes());
        }
        out.extend(&frame[12..]);
        out
    }
}

fn attack(name: impl Into<String>, frame: Vec<u8>, expect: Expect) -> Attack {
    Attack {
        name: name.into(),
        header: VnetHeader::default(),
        frame,
        expect,
    }
}

fn patched(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Headers that are cut off or lie about lengths. None of a switch's business: it must not stumble, nor change them.
fn broken_headers(f: &Frames<'_>) -> Vec<Attack> {
    let mut attacks = vec![
        attack("runt", f.ethernet(0x0800, &[])[..13].to_vec(), Any),
        attack("empty IPv4", f.ethernet(0x0800, &[]), Unharmed),
        attack("empty IPv6", f.ethernet(0x86dd, &[]), Unharmed),
        attack("length field", f.ethernet(64, &pattern(1, 64)), Unharmed),
        attack("type ffff", f.ethernet(0xffff, &pattern(1, 64)), Unharmed),
    ];
    for (name, whole) in [
        ("UDP over IPv4", f.udp(false, 10)),
        ("UDP over IPv6", f.udp(true, 10)),
        ("TCP over IPv4", f.tcp(false, 10)),
        ("TCP over IPv6", f.tcp(true, 10)),
    ] {
        // In the middle of each header.
        for len in (15..whole.len()).step_by(3) {
            let frame = whole[..len].to_vec();
            attacks.push(attack(format!("{name} cut at {len}"), frame, Unharmed));
        }
    }
    for ihl in [0x40, 0x41, 0x44, 0x4f] {
        let frame = patched(f.udp(false, 4), 14, &[ihl]);
        attacks.push(attack(format!("IPv4 header of {ihl:#x}"), frame, Unharmed));
    }
    for len in [0u16, 19, 20, 27, 1000, 65_535] {
        let bytes = len.to_be_bytes();
        let v4 = patched(f.udp(false, 100), 16, &bytes);
        let v6 = patched(f.udp(true, 100), 18, &bytes);
        let udp = patched(f.udp(false, 100), 38, &bytes);
        attacks.push(attack(format!("IPv4 of length {len}"), v4, Unharmed));
        attacks.push(attack(format!("IPv6 of length {len}"), v6, Unharmed));
        attacks.push(attack(format!("UDP of length {len}"), udp, Unharmed));
    }
    for offset in [0x00, 0x40, 0xf0] {
        let frame = patched(f.tcp(false, 4), 46, &[offset]);
        attacks.push(attack(format!("TCP offset {offset:#x}"), frame, Unharmed));
    }
    // Extension headers: longer than the packet, a chain without end, and a fragment of nothing.
    for (next, ext) in [(0, [17, 255]), (60, [60, 0]), (44, [17, 0]), (43, [0, 0])] {
        let mut frame = patched(f.udp(true, 200), 20, &[next]);
        for at in (54..200).step_by(8) {
            frame = patched(frame, at, &ext);
        }
        attacks.push(attack(format!("IPv6 extension {next}"), frame, Unharmed));
    }
    let fragment = patched(f.udp(false, 100), 20, &[0x20, 0x05]);
    attacks.push(attack("fragment", fragment, Unharmed));
    for tags in [1, 2, 5] {
        let frame = f.tagged(&f.udp(false, 100), tags);
        attacks.push(attack(format!("{tags} VLAN tags"), frame, Unharmed));
        let cut = f.tagged(&f.ethernet(0x8100, &[]), tags - 1);
        // The receiving kernel drops a frame whose tag it cannot take off before anybody sees it.
        attacks.push(attack(format!("VLAN tag {tags} cut"), cut, Any));
    }
    attacks
}

/// Addresses that a switch must not forward by, or to.
fn bad_addresses(f: &Frames<'_>) -> Vec<Attack> {
    let udp = || f.udp(false, 20);
    let mut attacks = Vec::new();
    for first in [0x01, 0x33, 0xff] {
        let frame = patched(udp(), 6, &[first, MARK[0], MARK[1], MARK[2], 0xff, first]);
        attacks.push(attack(
            format!("multicast source {first:#x}"),
            frame,
            Drop(DropReason::BadSource, 1),
        ));
    }
    attacks.push(attack(
        "zero source",
        patched(udp(), 6, &[0; 6]),
        Drop(DropReason::BadSource, 1),
    ));
    attacks.push(attack(
        "broadcast source",
        patched(udp(), 6, &[0xff; 6]),
        Drop(DropReason::BadSource, 1),
    ));
    for last in [0x00, 0x01, 0x02, 0x0e, 0x0f] {
        let frame = patched(udp(), 0, &[0x01, 0x80, 0xc2, 0, 0, last]);
        attacks.push(attack(
            format!("link-local destination {last:#x}"),
            frame,
            Drop(DropReason::LinkLocal, 1),
        ));
    }
    let group = patched(udp(), 0, &[0x01, 0x80, 0xc2, 0, 0, 0x10]);
    attacks.push(attack("group address above", group, Unharmed));
    let own = [2, MARK[0], MARK[1], MARK[2], 0xaa, 0xaa];
    let frame = patched(patched(udp(), 0, &own), 6, &own);
    attacks.push(attack("to itself", frame, Drop(DropReason::Sameport, 1)));
    attacks
}

/// Packets longer than the receiving port's MTU.
fn too_long(f: &Frames<'_>) -> Vec<Attack> {
    let long = f.udp(false, 5000);
    let mut large = attack(
        "large frame with long packets",
        f.tcp(false, 20_000),
        Drop(DropReason::Mtu, 5),
    );
    large.header = gso(1, 4000, 34, 16, 54);
    vec![
        attack("longest", f.udp(false, 1472), Unharmed),
        attack("jumbo", long, Drop(DropReason::Mtu, 1)),
        large,
    ]
}

/// Like a large frame's header.
fn gso(kind: u8, size: u16, start: u16, offset: u16, hdr_len: u16) -> VnetHeader {
    VnetHeader {
        flags: 1,
        gso_type: kind,
        hdr_len: hdr_len.into(),
        gso_size: size.into(),
        csum_start: start.into(),
        csum_offset: offset.into(),
        ..VnetHeader::default()
    }
}

/// Virtio-net headers that do not fit their frames.
fn lying_offload(f: &Frames<'_>) -> Vec<Attack> {
    let mut attacks = Vec::new();
    let mut lie = |name: String, header: VnetHeader, frame: Vec<u8>, expect: Expect| {
        attacks.push(Attack {
            name,
            header,
            frame,
            expect,
        });
    };
    // A checksum that is not where the packet's is. (With `start` 34 and offset 6 it would be.)
    for (start, offset) in [
        (0, 0),
        (0, 12),
        (14, 10),
        (14, 26),
        (20, 2),
        (33, 7),
        (34, 0),
        (34, 7),
        (34, 65_535),
        (140, 1),
        (65_535, 6),
    ] {
        let header = gso(0, 0, start, offset, 0);
        lie(
            format!("checksum at {start}+{offset}"),
            header,
            f.udp(false, 100),
            Bad(LIES),
        );
        let header = gso(0, 0, start, offset, 0);
        let frame = f.ethernet(0x0800, &f.udp(false, 100)[14..30]);
        lie(
            format!("checksum at {start}+{offset} of a cut packet"),
            header,
            frame,
            Bad(LIES),
        );
    }
    // In the payload, where the checksum of a packet in a tunnel may be.
    lie(
        "checksum at 133+6".into(),
        gso(0, 0, 133, 6, 0),
        f.udp(false, 100),
        Any,
    );
    // Large frames of another kind than their header says.
    let (tcp4, tcp6, udp4) = (f.tcp(false, 8000), f.tcp(true, 8000), f.udp(false, 8000));
    lie(
        "TCPv6 that is TCPv4".into(),
        gso(4, 1000, 34, 16, 54),
        tcp4.clone(),
        Bad(LIES),
    );
    lie(
        "TCPv4 that is TCPv6".into(),
        gso(1, 1000, 54, 16, 74),
        tcp6,
        Bad(LIES),
    );
    lie(
        "TCPv4 that is UDP".into(),
        gso(1, 1000, 34, 16, 54),
        udp4.clone(),
        Bad(LIES),
    );
    lie(
        "UDP that is TCP".into(),
        gso(5, 1000, 34, 6, 42),
        tcp4.clone(),
        Bad(LIES),
    );
    lie(
        "UDP with ECN".into(),
        gso(0x85, 1000, 34, 6, 42),
        udp4.clone(),
        Any,
    );
    lie(
        "UDP fragmentation".into(),
        gso(3, 1000, 34, 6, 42),
        udp4.clone(),
        Any,
    );
    lie(
        "unknown kind".into(),
        gso(0x7f, 1000, 34, 16, 54),
        tcp4.clone(),
        Any,
    );
    for size in [0, 1, 2, 7999, 8000, 65_535] {
        lie(
            format!("segments of {size}"),
            gso(1, size, 34, 16, 54),
            tcp4.clone(),
            Any,
        );
    }
    for hdr_len in [0, 1, 14, 40, 53, 55, 8000, 9000, 65_535] {
        lie(
            format!("headers of {hdr_len}"),
            gso(1, 1000, 34, 16, hdr_len),
            tcp4.clone(),
            Any,
        );
    }
    let mut plain = gso(1, 1000, 34, 16, 54);
    plain.flags = 0;
    lie("no checksum asked for".into(), plain, tcp4.clone(), Any);
    plain.gso_type = 5;
    lie("no checksum asked for UDP".into(), plain, udp4.clone(), Any);
    // Large frames whose own headers are broken.
    let large = gso(1, 1000, 34, 16, 54);
    for len in [20, 34, 40, 54] {
        lie(
            format!("large frame cut at {len}"),
            large,
            tcp4[..len].to_vec(),
            Any,
        );
    }
    lie(
        "large frame with a long TCP header".into(),
        large,
        patched(tcp4.clone(), 46, &[0xf0]),
        Any,
    );
    lie(
        "large frame with no TCP header".into(),
        large,
        patched(tcp4.clone(), 46, &[0x00]),
        Any,
    );
    lie(
        "large fragment".into(),
        large,
        patched(tcp4.clone(), 20, &[0x20, 0x05]),
        Any,
    );
    lie(
        "large frame that says it is short".into(),
        large,
        patched(tcp4.clone(), 16, &[0, 60]),
        Any,
    );
    lie(
        "large datagram that says it is short".into(),
        gso(5, 1000, 34, 6, 42),
        patched(udp4, 38, &[0, 60]),
        Any,
    );
    for tags in [1, 2, 5] {
        let by = 4 * tags;
        let frame = f.tagged(&tcp4, tags);
        lie(
            format!("large frame behind {tags} VLAN tags"),
            gso(1, 1000, 34 + by, 16, 54 + by),
            frame,
            Any,
        );
    }
    attacks
}

/// A sender that may send jumbo frames, and a receiver that takes none.
fn lan(offload: bool) -> Option<Lan> {
    let sender = HostConfig {
        mtu: 9000,
        ..HostConfig::default()
    };
    let receiver = HostConfig {
        offload,
        ..HostConfig::default()
    };
    Lan::build(LanConfig {
        hosts: vec![sender, receiver],
        ..LanConfig::default()
    })
}

/// Traffic goes on, in both directions.
fn still_works(lan: &Lan) {
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    for v6 in [false, true] {
        ping(a, b, v6, 56);
        Flow::open(b, a, v6).echo(1000);
        Connection::open(a, b, v6).transfer(1, 1 << 20);
        Connection::open(b, a, v6).transfer(2, 1 << 20);
    }
}

fn run(attacks: impl Fn(&Frames<'_>) -> Vec<Attack>) {
    for offload in [true, false] {
        let Some(lan) = lan(offload) else { return };
        still_works(&lan);
        let mut attacker = Attacker::new(&lan);
        for attack in attacks(&Frames(&lan)) {
            attacker.attack(&attack);
        }
        lan.all_frames_polled();
        still_works(&lan);
        lan.stop();
    }
}

#[test]
fn broken_headers_pass_unharmed() {
    run(broken_headers);
}

#[test]
fn bad_addresses_are_dropped_with_their_reason() {
    run(bad_addresses);
}

#[test]
fn packets_beyond_the_mtu_are_dropped_with_their_reason() {
    run(too_long);
}

#[test]
fn lying_offload_metadata_is_dropped_or_harmless() {
    run(lying_offload);
}

/// Thousands of frames with random damage and random metadata. Seeds are fixed; what the kernels let through differs.
#[test]
fn random_damage_is_survived() {
    for offload in [true, false] {
        let Some(lan) = lan(offload) else { return };
        let frames = Frames(&lan);
        let whole = [
            frames.udp(false, 3000),
            frames.udp(true, 3000),
            frames.tcp(false, 3000),
            frames.tcp(true, 3000),
            frames.tagged(&frames.tcp(true, 100), 2),
        ];
        let socket = PacketSocket::open(&lan.hosts[0], 0);
        let (mut taken, mut refused) = (0, 0);
        for n in 0..6000 {
            let dice = pattern(0x0051_u64 << 32 | n, 32);
            let word = |at: usize| u16::from_le_bytes([dice[at], dice[at + 1]]);
            let mut frame = whole[usize::from(dice[0]) % whole.len()].clone();
            frame[6..12].copy_from_slice(&[2, MARK[0], MARK[1], MARK[2], dice[1], dice[2]]);
            // Up to three damaged bytes among the headers; the EtherType stays in half of them.
            for damage in 0..usize::from(dice[3] % 4) {
                let first = if dice[4] % 2 == 0 { 14 } else { 12 };
                let at = first + usize::from(dice[5 + damage]) % 60;
                frame[at] ^= dice[8 + damage];
            }
            if dice[11] % 4 == 0 {
                frame.truncate(14 + usize::from(word(12)) % 120);
            }
            let kinds = [0, 1, 4, 5, 0x81, 0x84, dice[14]];
            let header = VnetHeader {
                flags: dice[15] % 4,
                gso_type: kinds[usize::from(dice[16]) % kinds.len()],
                hdr_len: (word(17) % 128).into(),
                gso_size: (word(19) % 1400).into(),
                csum_start: [34, 54, word(21) % 128][usize::from(dice[23]) % 3].into(),
                csum_offset: [6, 16, word(24) % 64][usize::from(dice[26]) % 3].into(),
                ..VnetHeader::default()
            };
            match socket.send(header, &frame) {
                Ok(()) => taken += 1,
                Err(_) => refused += 1,
            }
            if n % 200 == 0 {
                lan.all_frames_polled();
            }
        }
        println!("the kernel took {taken} frames and refused {refused}");
        assert!(
            taken > 1000,
            "the kernel refused nearly everything: {refused}"
        );
        lan.all_frames_polled();
        lan.settle();
        still_works(&lan);
        let drops = lan.stop().drops();
        assert!(drops.iter().any(|d| LIES.contains(&d.0)), "{drops:?}");
    }
}
