//! The rate, framing, tins and their shares.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::qdisc::cake::{Diffserv, Framing};

/// Packets leave one after another, each when the one before has left, to the nanosecond.
#[test]
fn rate_is_exact() {
    for rate in [125, 12_500, FAST, 1_250_000_000] {
        let mut world = World::new(CakeSpec {
            memlimit: Some(u32::MAX),
            rtt: Duration::from_secs(4294),
            ..limited(rate)
        });
        let count = if rate < 1000 { 100 } else { 2000 };
        for n in 0..count {
            world.udp(ends(1, 2, n % 7), 1000, 0);
        }
        let left = world.run(u64::MAX);
        assert_eq!(left.len(), usize::from(count));
        for (n, (time, _)) in (0_u64..).zip(&left) {
            let exact = u128::from(n * 1000) * 1_000_000_000 / u128::from(rate);
            let exact = SECOND + exact as u64;
            assert!(
                time.abs_diff(exact) <= 1,
                "{rate}: {n} at {time}, not {exact}"
            );
        }
        assert_eq!(world.dropped(), 0);
    }
}

/// Cost of a packet: what it takes of an idle link.
fn cost(spec: CakeSpec, len: usize) -> u64 {
    let mut world = World::new(CakeSpec {
        bandwidth: Some(1_000_000),
        ..spec
    });
    world.udp(ends(1, 2, 3), len, 0);
    world.udp(ends(1, 2, 3), len, 0);
    let left = world.run(u64::MAX);
    (left[1].0 - left[0].0) / 1000
}

#[test]
fn framing_is_charged() {
    let with = |overhead, mpu, framing| CakeSpec {
        overhead,
        mpu,
        framing,
        ..CakeSpec::default()
    };
    for (overhead, mpu, framing, len, charged) in [
        (None, 0, Framing::Plain, 1000, 1000),
        // The Ethernet header goes, the overhead comes.
        (Some(0), 0, Framing::Plain, 1000, 986),
        (Some(38), 84, Framing::Plain, 1000, 1024),
        (Some(38), 84, Framing::Plain, 50, 84),
        (Some(-10), 0, Framing::Plain, 1000, 976),
        // AAL5: 40 and 8 bytes are one cell, a byte more is another.
        (Some(8), 0, Framing::Atm, 54, 53),
        (Some(8), 0, Framing::Atm, 55, 106),
        (Some(48), 0, Framing::Atm, 1514, 33 * 53),
        (Some(0), 0, Framing::Ptm, 78, 65),
        (Some(0), 0, Framing::Ptm, 79, 67),
        (Some(30), 0, Framing::Ptm, 1514, 1530 + 24),
        (None, 0, Framing::Ptm, 1000, 1016),
        (None, 64, Framing::Plain, 60, 64),
    ] {
        let spec = with(overhead, mpu, framing);
        assert_eq!(cost(spec.clone(), len), charged, "{spec:?} {len}");
    }
}

/// Lengths that were seen are shown.
#[test]
fn lengths_are_shown() {
    let mut world = World::new(CakeSpec {
        overhead: Some(10),
        ..CakeSpec::default()
    });
    world.udp(ends(1, 2, 3), 100, 0);
    world.udp(ends(1, 2, 3), 500, 0);
    let stats = [
        Xstat::MinNetworkSize,
        Xstat::MaxNetworkSize,
        Xstat::MinAdjSize,
        Xstat::MaxAdjSize,
    ];
    assert_eq!(stats.map(|stat| world.stat(stat)), [86, 486, 96, 496]);
    assert_eq!(world.tin(1, Xstat::MaxPktLen), 500);
    assert_eq!(world.tin(1, Xstat::SentPackets), 2);
}

/// The tin of each code point, as tc numbers tins, and of ARP. (As Linux 7.2 has them, by its
/// counters.)
#[test]
fn code_points_lead_to_tins() {
    let of = |diffserv, code: u8| {
        let mut world = World::new(CakeSpec {
            diffserv,
            ..CakeSpec::default()
        });
        world.udp(ends(1, 2, 3), 100, code << 2);
        let count = diffserv.order().len();
        (0..count)
            .find(|&tin| world.tin(tin, Xstat::SentPackets) == 1)
            .unwrap()
    };
    for (diffserv, expected) in include_str!("tins.txt").lines().map(|line| {
        let (name, tins) = line.split_once(' ').unwrap();
        let at = Diffserv::WORDS
            .iter()
            .position(|word| *word == name)
            .unwrap();
        (Diffserv::ALL[at], tins)
    }) {
        let tins: String = (0..64).map(|code| of(diffserv, code).to_string()).collect();
        assert_eq!(tins, expected, "{diffserv:?}");
    }
}

/// Bytes of each tin, as tc numbers them, in a second in which all of `tos` always have packets.
fn shares(spec: CakeSpec, tos: &[u8]) -> Vec<u64> {
    let mut world = World::new(CakeSpec {
        rtt: Duration::from_secs(1000),
        ..spec
    });
    let end = 2 * SECOND;
    let mut bytes = vec![0; tos.len()];
    let mut feed: Vec<usize> = (0..tos.len()).flat_map(|tin| [tin; 20]).collect();
    while world.cx.now.nanos() < end {
        for tin in feed.drain(..) {
            world.udp(ends(1, 2, tin as u16), 1000, tos[tin]);
        }
        let (out, next) = world.take(1);
        for packet in out {
            let tin = usize::from(ends_of(&packet).port);
            bytes[tin] += packet.len() as u64;
            feed.push(tin);
        }
        match next {
            Next::At(time) => world.cx.now = time,
            Next::Ready => {
                world.cx.now =
                    world
                        .cx
                        .now
                        .plus_nanos(if spec_is_free(&world) { 100_000 } else { 0 })
            }
            Next::Idle => {}
        }
    }
    bytes
}

fn spec_is_free(world: &World) -> bool {
    world.cake.spec.bandwidth.is_none()
}

/// Where all have more than they may send, each tin has its part of the rate before others, and
/// best effort what is left.
#[test]
fn tins_have_their_parts() {
    let percent = |bytes: Vec<u64>| -> Vec<u64> {
        let sum: u64 = bytes.iter().sum();
        bytes.iter().map(|of| (of * 1000 + sum / 2) / sum).collect()
    };
    let spec = |diffserv| CakeSpec {
        diffserv,
        ..limited(FAST)
    };
    // Bulk, best effort, video, voice.
    let four = shares(spec(Diffserv::Diffserv4), &[0x20, 0, 0x40, 0xb8]);
    let sum: u64 = four.iter().sum();
    assert!(sum.abs_diff(FAST) < 5000, "{sum}");
    let parts = percent(four);
    for (part, expected) in parts.iter().zip([62, 188, 500, 250]) {
        assert!(part.abs_diff(expected) <= 12, "{parts:?}");
    }
    // A tin alone has all; two have their parts.
    let parts = percent(shares(spec(Diffserv::Diffserv3), &[0xb8]));
    assert_eq!(parts, [1000]);
    let parts = percent(shares(spec(Diffserv::Diffserv3), &[0, 0xb8]));
    assert!(parts[1].abs_diff(250) <= 12, "{parts:?}");
    // Without a rate they take turns by bytes, 16 to 1 to 4.
    let parts = percent(shares(CakeSpec::default(), &[0x20, 0, 0xb8]));
    for (part, expected) in parts.iter().zip([48, 762, 190]) {
        assert!(part.abs_diff(expected) <= 12, "{parts:?}");
    }
}

/// Mark and priority say the tin, in tc's numbers.
#[test]
fn marks_and_priorities_name_tins() {
    let mut world = World::new(CakeSpec {
        fwmark: 0xf0,
        ..CakeSpec::default()
    });
    for (mark, priority, tos, tin) in [
        (0x10, 0, 0, 0),
        (0x20, 0, 0xb8, 1),
        (0x37, 0, 0, 2),
        // Of four there are three: the next that says something.
        (0x40, 0, 0xb8, 2),
        (0x0f, 0, 0, 1),
        (0, HANDLE.class(1).raw(), 0xb8, 0),
        (0, HANDLE.class(4).raw(), 0xb8, 2),
        (0, Handle::new(2, 1).raw(), 0, 1),
    ] {
        let before = world.tin(tin, Xstat::SentPackets);
        let mut packet = udp(&world.pool, ends(1, 2, 3), 100, tos);
        packet.set_mark(mark);
        packet.set_priority(priority);
        world.send(packet);
        assert_eq!(
            world.tin(tin, Xstat::SentPackets),
            before + 1,
            "{mark:#x} {priority:#x}"
        );
    }
}

/// With `ingress` what is dropped counts against the rate; without, it does not.
#[test]
fn drops_of_ingress_are_charged() {
    let sent = |ingress| {
        let mut world = World::new(CakeSpec {
            ingress,
            memlimit: Some(40_000),
            ..limited(FAST)
        });
        let mut bytes = 0;
        let end = 2 * SECOND;
        while world.cx.now.nanos() < end {
            // Twice what may leave.
            for port in 0..2 {
                world.udp(ends(1, 2, port), 1000, 0);
            }
            let next = world.cx.now.plus_nanos(80_000);
            bytes += world
                .run(next.nanos())
                .iter()
                .map(|(_, p)| p.len() as u64)
                .sum::<u64>();
            world.cx.now = next;
        }
        bytes
    };
    let (all, part) = (sent(false), sent(true));
    assert!(all.abs_diff(FAST) < FAST / 500, "{all}");
    // Two thirds pass whatever is dropped.
    assert!(part < FAST * 3 / 4 && part > FAST * 64 / 100, "{part}");
}

/// The estimate of what arrives becomes the rate.
#[test]
fn autorate_follows_what_arrives() {
    let spec = CakeSpec {
        autorate_ingress: true,
        ..limited(FAST / 10)
    };
    let mut world = World::new(spec.clone());
    for n in 0..40_000_u64 {
        world.udp(ends(1, 2, 3), 1250, 0);
        // 100 Mbit/s, with pauses.
        let pause = if n % 100 == 99 { 1_000_000 } else { 90_000 };
        world.cx.now = world.cx.now.plus_nanos(pause);
        while let (out, Next::Ready) = world.take(64) {
            drop(out);
        }
    }
    let estimate = world.stat(Xstat::CapacityEstimate);
    assert!(estimate.abs_diff(FAST) < FAST / 6, "{estimate}");
    let rate = world.tin(1, Xstat::ThresholdRate);
    assert!(
        rate <= estimate && rate > estimate * 7 / 8,
        "{rate} of {estimate}"
    );
    // Another change leaves it.
    world.change(&CakeSpec { wash: true, ..spec });
    assert_eq!(world.tin(1, Xstat::ThresholdRate), rate);
}

#[test]
fn wash_clears_code_points_alone() {
    let mut world = World::new(CakeSpec {
        wash: true,
        ..CakeSpec::default()
    });
    world.udp(ends(1, 2, 3), 100, 0xb9);
    assert_eq!(world.tin(2, Xstat::SentPackets), 1, "before it is washed");
    let (out, _) = world.take(1);
    let data = out.front().unwrap().data();
    assert_eq!(data[15], 1);
    assert_eq!(checksum(&data[14..34]), 0);
}

/// Parameters that follow from a rate, as Linux 7.2 shows them.
#[test]
fn parameters_are_the_kernels() {
    let show = |spec: CakeSpec| {
        let world = World::new(spec);
        let tins = world.cake.spec.diffserv.order().len();
        let of = |tin| {
            let stat = |stat| world.tin(tin, stat);
            (
                stat(Xstat::ThresholdRate),
                stat(Xstat::FlowQuantum),
                stat(Xstat::Target) / 1000,
                stat(Xstat::Interval) / 1000,
            )
        };
        (
            world.stat(Xstat::MemoryLimit),
            (0..tins).map(of).collect::<Vec<_>>(),
        )
    };
    let (memory, tins) = show(limited(FAST));
    assert_eq!(memory, 5_000_000);
    let expected = [
        (781_250, 300, 5000, 100_000),
        (FAST, 1514, 5000, 100_000),
        (3_125_000, 762, 5000, 100_000),
    ];
    assert_eq!(tins, expected);
    assert_eq!(show(CakeSpec::default()).0, 15_503_360);
    let (memory, tins) = show(limited(125));
    assert_eq!(memory, 4 << 20);
    assert_eq!(tins[0].0, 7);
    let precedence = show(CakeSpec {
        diffserv: Diffserv::Precedence,
        ..limited(125_000)
    })
    .1;
    let rates: Vec<u64> = precedence.iter().map(|tin| tin.0).collect();
    assert_eq!(
        rates,
        [
            125_000, 109_375, 95_703, 83_740, 73_272, 64_113, 56_098, 49_085
        ]
    );
    // 32 bits of microseconds, whatever they are.
    let long = show(CakeSpec {
        rtt: Duration::from_secs(4294),
        ..limited(u64::MAX >> 24)
    });
    assert_eq!(long.0, 15_503_360);
}

proptest! {
    /// In every window what leaves is at most what the rate allows, and two packets.
    #[test]
    fn no_window_exceeds_the_rate(
        rate in 10_000..20_000_000_u64,
        sends in prop::collection::vec((60..1514_usize, 0..8_u16, 0..2_000_000_u64), 1..200),
    ) {
        let mut world = World::new(limited(rate));
        let mut left = Vec::new();
        for (len, port, wait) in sends {
            world.udp(ends(1, 2, port), len, 0);
            let next = world.cx.now.plus_nanos(wait);
            left.extend(world.run(next.nanos()));
            world.cx.now = next;
        }
        left.extend(world.run(u64::MAX));
        for (n, (begin, _)) in left.iter().enumerate() {
            let mut bytes = 0;
            for (time, packet) in &left[n..] {
                bytes += packet.len() as u64;
                let earned = u128::from(rate) * u128::from(time - begin) / 1_000_000_000;
                prop_assert!(u128::from(bytes) <= earned + 2 * 1514);
            }
        }
    }
}
