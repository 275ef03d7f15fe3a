//! The frames, and what must become of each.

use etherparse::{PacketBuilder, VlanId};
use softnet::stats::DropReason;
use softnet::wire::VnetHeader;
use softnet_tests::Lan;
use softnet_tests::traffic::pattern;

use crate::attacker::Expect::{Any, Bad, Drop, Unharmed};
use crate::attacker::{Attack, Expect, LIES, MARK};

/// Frames from host 0 to host 1, with a source address to be filled in.
pub(crate) struct Frames<'a>(pub(crate) &'a Lan);

impl Frames<'_> {
    pub(crate) fn ethernet(&self, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.0.hosts[1].mac.to_vec();
        frame.extend([0xee; 6]);
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    pub(crate) fn udp(&self, v6: bool, len: usize) -> Vec<u8> {
        self.ip(v6, |ip| {
            let mut frame = Vec::new();
            ip.udp(1, 9)
                .write(&mut frame, &pattern(1, len))
                .expect("a frame");
            frame
        })
    }

    pub(crate) fn tcp(&self, v6: bool, len: usize) -> Vec<u8> {
        self.ip(v6, |ip| {
            let mut frame = Vec::new();
            ip.tcp(1, 9, 1, 1000)
                .ack(1)
                .write(&mut frame, &pattern(1, len))
                .expect("a frame");
            frame
        })
    }

    pub(crate) fn ip(
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
    pub(crate) fn tagged(&self, frame: &[u8], tags: u16) -> Vec<u8> {
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

pub(crate) fn attack(name: impl Into<String>, frame: Vec<u8>, expect: Expect) -> Attack {
    Attack {
        name: name.into(),
        header: VnetHeader::default(),
        frame,
        expect,
    }
}

pub(crate) fn patched(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Headers that are cut off or lie about lengths. None of a switch's business: it must not
/// stumble, nor change them.
pub(crate) fn broken_headers(f: &Frames<'_>) -> Vec<Attack> {
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
pub(crate) fn bad_addresses(f: &Frames<'_>) -> Vec<Attack> {
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
pub(crate) fn too_long(f: &Frames<'_>) -> Vec<Attack> {
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
pub(crate) fn gso(kind: u8, size: u16, start: u16, offset: u16, hdr_len: u16) -> VnetHeader {
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
pub(crate) fn lying_offload(f: &Frames<'_>) -> Vec<Attack> {
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
    for size in [0, 1, 2, 7] {
        let header = gso(1, size, 34, 16, 54);
        lie(
            format!("segments of {size}"),
            header,
            tcp4.clone(),
            Bad(LIES),
        );
    }
    for size in [8, 7999, 8000, 65_535] {
        let header = gso(1, size, 34, 16, 54);
        lie(format!("segments of {size}"), header, tcp4.clone(), Any);
    }
    for size in [0, 1, 8, 62] {
        let header = gso(5, size, 34, 6, 42);
        lie(
            format!("datagrams of {size}"),
            header,
            udp4.clone(),
            Bad(LIES),
        );
    }
    lie(
        "128 datagrams".into(),
        gso(5, 63, 34, 6, 42),
        udp4.clone(),
        Any,
    );
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
