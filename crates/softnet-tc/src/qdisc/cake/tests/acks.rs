//! The filter of acknowledgments, case by case.

use proptest::prelude::*;

use super::*;
use crate::qdisc::cake::{AckFilter, ack};

const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// A TCP packet with options, which are padded, and data.
fn tcp(pool: &Pool, port: u16, ack: u32, flags: u8, options: &[u8], data: usize) -> Packet {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let header = 20 + options.len();
    let mut rest = vec![0, 80, 0, 0, 0, 0];
    rest.extend(ack.to_be_bytes());
    rest.extend([((header / 4) << 4) as u8, flags, 1, 0, 0, 0, 0, 0]);
    rest.extend(options);
    ip(pool, ends(1, 2, port), 34 + header + data, 0, 6, &rest)
}

fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut option = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
    for (start, end) in blocks {
        option.extend(start.to_be_bytes());
        option.extend(end.to_be_bytes());
    }
    option
}

fn timestamp(sent: u32, echo: u32) -> Vec<u8> {
    let mut option = vec![1, 1, 8, 10];
    option.extend(sent.to_be_bytes());
    option.extend(echo.to_be_bytes());
    option
}

/// One packet of a case: acknowledgment, flags, options, bytes of data.
type Case<'a> = (u32, u8, Vec<u8>, usize);

/// Places of the packets that are left, in their order, when each has come behind the others.
fn left(filter: AckFilter, packets: &[Case<'_>]) -> Vec<usize> {
    let mut world = World::new(CakeSpec {
        ack_filter: filter,
        ..CakeSpec::default()
    });
    for (number, (ack, flags, options, data)) in packets.iter().enumerate() {
        let mut packet = tcp(&world.pool, 5, *ack, *flags, options, *data);
        packet.set_mark(number as u32);
        assert_eq!(world.send(packet), Verdict::Queued);
    }
    let drops = world.tin(1, Xstat::AckDrops);
    assert_eq!(drops, world.cake.stats().drops);
    let (out, _) = world.take(64);
    assert_eq!(out.len() as u64 + drops, packets.len() as u64);
    out.iter().map(|packet| packet.mark() as usize).collect()
}

fn pure(ack: u32) -> Case<'static> {
    (ack, ACK, Vec::new(), 0)
}

#[test]
fn later_acknowledgments_make_earlier_ones_needless() {
    let three = [pure(1000), pure(2000), pure(3000)];
    assert_eq!(left(AckFilter::Off, &three), [0, 1, 2]);
    // Two that are needless, the oldest goes.
    assert_eq!(left(AckFilter::Filter, &three), [1, 2]);
    assert_eq!(left(AckFilter::Filter, &three[..2]), [0, 1]);
    assert_eq!(left(AckFilter::Aggressive, &three), [2]);
    let many: Vec<_> = (1..40).map(|n| pure(n * 1000)).collect();
    assert_eq!(left(AckFilter::Filter, &many), [37, 38]);
    assert_eq!(left(AckFilter::Aggressive, &many), [38]);
    // Across the end of the numbers.
    let wraps = [pure(u32::MAX - 10), pure(5), pure(900)];
    assert_eq!(left(AckFilter::Filter, &wraps), [1, 2]);
    // Data behind them says it, too.
    let data = [pure(1000), pure(2000), (3000, ACK | 8, Vec::new(), 500)];
    assert_eq!(left(AckFilter::Filter, &data), [1, 2]);
}

#[test]
fn what_says_more_stays() {
    let keeps = |case: &[Case<'_>]| {
        let all: Vec<usize> = (0..case.len()).collect();
        assert_eq!(left(AckFilter::Aggressive, case), all, "{case:?}");
    };
    // Duplicates, older ones, data, other flags.
    keeps(&[pure(1000), pure(1000), pure(1000)]);
    keeps(&[pure(2000), pure(1000)]);
    keeps(&[(1000, ACK, Vec::new(), 10), pure(2000)]);
    for flags in [0x11, 0x18, 0x14, 0x30, 0x12, 0x00] {
        keeps(&[(1000, flags, Vec::new(), 0), pure(2000)]);
    }
    keeps(&[pure(1000), (2000, 0x12, Vec::new(), 0)]);
    keeps(&[pure(1000), (2000, 0x02, Vec::new(), 0)]);
    // A change of ECN's flags.
    keeps(&[(1000, ACK | ECE, Vec::new(), 0), pure(2000)]);
    keeps(&[pure(1000), (2000, ACK | ECE, Vec::new(), 0)]);
    // Options: unknown, those of SYN, a wrong length.
    for option in [
        vec![2, 4, 5, 0xb4],
        vec![253, 4, 1, 2],
        vec![8, 4, 0, 0],
        vec![34, 2],
        vec![5, 9],
    ] {
        keeps(&[(1000, ACK, option, 0), pure(2000)]);
    }
    keeps(&[(1000, ACK, vec![1, 1, 7, 0], 0), pure(2000)]);
    // Timestamps that are not older.
    keeps(&[
        (1000, ACK, timestamp(9, 5), 0),
        (2000, ACK, timestamp(8, 5), 0),
    ]);
    keeps(&[
        (1000, ACK, timestamp(8, 6), 0),
        (2000, ACK, timestamp(8, 5), 0),
    ]);
}

#[test]
fn ecn_flags_and_timestamps() {
    let ece = |ack| (ack, ACK | ECE, Vec::new(), 0);
    assert_eq!(left(AckFilter::Aggressive, &[ece(1), ece(2), ece(3)]), [2]);
    // The last before the change stays.
    let change = [pure(1), pure(2), ece(3), ece(4), ece(5), ece(6)];
    assert_eq!(left(AckFilter::Filter, &change), [1, 4, 5]);
    let old = |n| (n * 100, ACK, timestamp(n, n), 0);
    assert_eq!(
        left(AckFilter::Aggressive, &[old(1), old(2), old(2 + 1)]),
        [2]
    );
    // MD5 says nothing of its own.
    let md5 = [vec![19, 18], vec![0; 16]].concat();
    assert_eq!(
        left(AckFilter::Aggressive, &[(1, ACK, md5, 0), pure(2)]),
        [1]
    );
}

#[test]
fn sack_blocks_are_kept() {
    let with = |ack, blocks: &[(u32, u32)]| (ack, ACK, sack(blocks), 0);
    // The same number: more blocks say more.
    let grows = [with(100, &[(200, 300)]), with(100, &[(200, 400)])];
    assert_eq!(left(AckFilter::Aggressive, &grows), [1]);
    let more = [
        with(100, &[(200, 300)]),
        with(100, &[(500, 600), (200, 300)]),
    ];
    assert_eq!(left(AckFilter::Aggressive, &more), [1]);
    for keeps in [
        // Not covered, the same, fewer, none, and a D-SACK.
        [with(100, &[(200, 300)]), with(100, &[(500, 600)])],
        [with(100, &[(200, 300)]), with(100, &[(200, 300)])],
        [
            with(100, &[(200, 300), (500, 600)]),
            with(200, &[(500, 600)]),
        ],
        [with(100, &[(200, 300)]), pure(150)],
        [with(100, &[(20, 30)]), with(200, &[(20, 30), (400, 500)])],
    ] {
        assert_eq!(left(AckFilter::Aggressive, &keeps), [0, 1], "{keeps:?}");
    }
}

/// Only those of one connection, in a queue that several share.
#[test]
fn connections_are_told_apart() {
    let mut world = World::new(CakeSpec {
        ack_filter: AckFilter::Aggressive,
        isolation: crate::qdisc::cake::Isolation::Flowblind,
        ..CakeSpec::default()
    });
    for (port, ack) in [(1, 100), (2, 200), (1, 300), (2, 400), (1, 500), (1, 600)] {
        let packet = tcp(&world.pool, port, ack, ACK, &[], 0);
        world.send(packet);
    }
    let (out, _) = world.take(64);
    let left: Vec<u16> = out.iter().map(|packet| ends_of(packet).port).collect();
    // Not adjacent ones wait for a second that is needless.
    assert_eq!(left, [2, 2, 1, 1].map(|port| port), "{left:?}");
}

proptest! {
    /// Hostile packets: nothing panics, nothing is lost but what is counted, and what has data or
    /// is no TCP stays.
    #[test]
    fn hostile_packets(
        packets in prop::collection::vec(
            (any::<u16>(), any::<[u8; 60]>(), 20..80_usize, any::<bool>()), 1..30),
        aggressive: bool,
    ) {
        let pool = pool(64);
        let mut queue = PacketList::new();
        let mut dropped = 0;
        for (flags, bytes, len, valid) in packets {
            let mut rest = bytes.to_vec();
            rest.splice(..2, [0, 80]);
            if valid {
                rest[10] = (flags >> 8) as u8 | 0x50;
                rest[11] = 0x10;
            }
            let packet = ip(&pool, ends(1, 2, 3), 34 + len, 0, 6, &rest);
            if let Some(needless) = ack::filter(&mut queue, &packet, aggressive) {
                let data = needless.data();
                prop_assert_eq!(data[47] & !0xC0, ACK);
                let header = usize::from(data[46] >> 4) * 4;
                prop_assert_eq!(header, data.len() - 34);
                dropped += 1;
            }
            queue.push_back(packet);
        }
        prop_assert!(dropped < 30);
    }
}
