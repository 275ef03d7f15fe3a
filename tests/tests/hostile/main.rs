//! A host that sends what no well-behaved host does: broken headers, offload metadata that lies,
//! addresses that may not be used. Each frame is delivered as it is or dropped and counted, none
//! brings a worker down, and other traffic goes on.
//!
//! Frames come from a packet socket, so the sending kernel has a say first: it refuses some, and
//! drops others on their way to the device. Behind each frame goes a probe on the same path, by
//! whose arrival the frame's fate is decided.

mod attacker;
mod attacks;

use attacker::{Attack, Attacker, LIES, MARK};
use attacks::{Frames, bad_addresses, broken_headers, lying_offload, too_long};
use softnet::wire::VnetHeader;
use softnet_tests::raw::PacketSocket;
use softnet_tests::traffic::{Connection, Flow, pattern, ping};
use softnet_tests::{HostConfig, Lan, LanConfig};

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
        lan.all_reads_counted();
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

/// Thousands of frames with random damage and random metadata. Seeds are fixed; what the kernels
/// let through differs.
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
                let first = if dice[4].is_multiple_of(2) { 14 } else { 12 };
                let at = first + usize::from(dice[5 + damage]) % 60;
                frame[at] ^= dice[8 + damage];
            }
            if dice[11].is_multiple_of(4) {
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
                lan.all_reads_counted();
            }
        }
        println!("the kernel took {taken} frames and refused {refused}");
        assert!(
            taken > 1000,
            "the kernel refused nearly everything: {refused}"
        );
        lan.all_reads_counted();
        lan.settle();
        still_works(&lan);
        let drops = lan.stop().drops();
        assert!(drops.iter().any(|d| LIES.contains(&d.0)), "{drops:?}");
    }
}
