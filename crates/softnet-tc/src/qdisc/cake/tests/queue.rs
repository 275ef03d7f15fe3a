//! Memory, COBALT, large frames, changes in use.

use std::time::Duration;

use super::*;
use crate::qdisc::cake::{Diffserv, Isolation};
use crate::qdisc::kind::QdiscSpec;
use softnet::testing::{large_pool, large_tcp};

/// At the limit the flow with most bytes loses its oldest packets.
#[test]
fn longest_flow_loses() {
    let probe = World::new(CakeSpec::default());
    let each = udp(&probe.pool, ends(1, 2, 3), 1000, 0).memory();
    let memlimit = Some(20 * each as u32);
    let mut world = World::new(CakeSpec {
        memlimit,
        ..limited(1000)
    });
    world.cx.now = Time(10 * SECOND);
    for _ in 0..5 {
        assert_eq!(world.udp(ends(1, 2, 1), 1000, 0), Verdict::Queued);
    }
    for n in 0..25 {
        let verdict = world.udp(ends(1, 2, 2), 1000, 0);
        let expected = if n < 15 {
            Verdict::Queued
        } else {
            Verdict::Congestion
        };
        assert_eq!(verdict, expected);
    }
    // One of another flow costs the long one a packet, not its sender.
    assert_eq!(world.udp(ends(1, 2, 3), 100, 0), Verdict::Queued);
    assert_eq!(world.tin(1, Xstat::Drops), 11);
    assert_eq!(world.cake.stats().drops, 11);
    assert_eq!(world.stat(Xstat::MemoryUsed), 21 * each);
    assert!(world.tin(1, Xstat::UnresponsiveFlows) == 1);
    // A limit of less than a packet drops it.
    world.change(&CakeSpec {
        memlimit: Some(1),
        ..limited(1000)
    });
    assert_eq!(world.cake.stats().qlen, 0);
    assert_eq!(world.udp(ends(1, 2, 9), 100, 0), Verdict::Dropped);
    assert_eq!(world.dropped(), 32);
}

/// A flow that sends twice what may leave, and does not react, loses about half by BLUE while
/// others lose nothing.
#[test]
fn blue_drops_what_does_not_react() {
    let mut world = World::new(CakeSpec {
        memlimit: Some(400_000),
        ..limited(FAST / 10)
    });
    let mut lost_others = 0;
    for n in 0..60_000_u64 {
        world.udp(ends(1, 2, 1), 1000, 0);
        if n % 20 == 0 && world.udp(ends(1, 3, 2), 500, 0) != Verdict::Queued {
            lost_others += 1;
        }
        let next = world.cx.now.plus_nanos(400_000);
        world.run(next.nanos());
        world.cx.now = next;
    }
    assert_eq!(lost_others, 0);
    let drops = world.tin(1, Xstat::Drops);
    assert!((25_000..35_000).contains(&drops), "{drops}");
    // It drops before packets have waited for long.
    assert!(world.stat(Xstat::MemoryUsed) >= 400_000);
}

/// CoDel marks what can be marked, and drops what cannot; the last packet of a queue stays.
#[test]
fn codel_marks_and_drops() {
    for (tos, marks) in [(0, false), (1, true)] {
        let mut world = World::new(limited(FAST / 10));
        let mut sent = 0;
        for _ in 0..4000 {
            sent += 1;
            world.udp(ends(1, 2, 1), 1250, tos);
            // 10 % more than may leave.
            let next = world.cx.now.plus_nanos(909_000);
            let left = world.run(next.nanos());
            let ce = left
                .iter()
                .filter(|(_, packet)| packet.data()[15] & 3 == 3)
                .count();
            assert!(marks || ce == 0);
            world.cx.now = next;
        }
        let (drops, marked) = (world.tin(1, Xstat::Drops), world.tin(1, Xstat::EcnMark));
        assert_eq!(
            sent,
            world.cake.stats().packets + drops + world.cake.stats().qlen
        );
        match marks {
            true => assert!(drops == 0 && marked > 20, "{drops} {marked}"),
            false => assert!(drops > 20 && marked == 0, "{drops} {marked}"),
        }
        // One packet that waited for a minute leaves.
        world.run(u64::MAX);
        world.udp(ends(1, 2, 1), 100, 0);
        world.cx.now = world.cx.now.plus_nanos(60 * SECOND);
        assert_eq!(world.take(1).0.len(), 1);
    }
}

/// A dequeue's drops are bounded.
#[test]
fn drops_are_bounded() {
    let mut world = World::new(CakeSpec {
        rtt: Duration::from_micros(1),
        ..CakeSpec::default()
    });
    for _ in 0..2000 {
        world.udp(ends(1, 2, 1), 1000, 0);
    }
    world.cx.now = world.cx.now.plus_nanos(1000 * SECOND);
    while world.cake.stats().qlen > 0 {
        let before = world.cake.stats().drops;
        assert_eq!(world.take(1).0.len(), 1);
        let drops = world.cake.stats().drops - before;
        assert!(
            drops <= u64::from(super::super::DROPS_PER_PACKET),
            "{drops}"
        );
    }
}

#[test]
fn large_frames_are_cut() {
    for split_gso in [true, false] {
        let pool = large_pool(256);
        let env = QdiscEnv::new(&pool);
        let spec = CakeSpec {
            split_gso,
            ..limited(FAST)
        };
        let mut world = World {
            cake: Cake::make(&spec, HANDLE, &env),
            cx: Cx::new(&pool),
            pool: pool.clone(),
            lost: 0,
        };
        world.cx.now = Time(SECOND);
        let large = large_tcp(&pool, 10_000, 1000, 1);
        let (bytes, packets) = large.wire();
        assert_eq!(packets, 10);
        world.send(large);
        let stats = *world.cake.stats();
        let frames = if split_gso { 10 } else { 1 };
        assert_eq!(
            (stats.qlen, stats.queued, stats.backlog),
            (frames, 10, bytes)
        );
        assert_eq!(world.tin(1, Xstat::SentPackets), 10);
        let left = world.run(u64::MAX);
        assert_eq!(left.len() as u64, frames);
        assert_eq!(world.cake.stats().bytes, bytes);
        // Each of them is charged.
        let time = world.cx.now.nanos() - SECOND;
        let gone = if split_gso { bytes * 9 / 10 } else { 0 };
        assert!(time.abs_diff(gone * SECOND / FAST) < 10_000, "{time}");
    }
    // No buffer for the pieces: all of it is lost, and counted.
    let pool = large_pool(8);
    let mut world = World::new(CakeSpec::default());
    world.cx = Cx::new(&pool);
    assert_eq!(
        world.send(large_tcp(&pool, 10_000, 1000, 1)),
        Verdict::Dropped
    );
    assert_eq!((world.dropped(), world.cake.stats().qlen), (10, 0));
    assert_eq!(world.cake.flows(), 0);
}

/// Fifty changes a second of every parameter lose nothing, keep the order of each flow, and the
/// rate is the one of each moment.
#[test]
fn changes_lose_nothing() {
    let mut world = World::new(limited(FAST));
    let (mut number, mut left) = (0_u32, Vec::new());
    for round in 0..200_u64 {
        for _ in 0..24 {
            let mut packet = udp(
                &world.pool,
                ends((number % 5) as u8, 9, (number % 7) as u16),
                1000,
                0,
            );
            packet.set_mark(number);
            number += 1;
            assert_eq!(world.send(packet), Verdict::Queued);
        }
        let end = world.cx.now.plus_nanos(2 * MS);
        left.extend(world.run(end.nanos()).into_iter().map(|(_, packet)| packet));
        world.cx.now = end;
        let diffserv = Diffserv::ALL[round as usize % 5];
        let isolation = Isolation::ALL[(round / 5) as usize % 8];
        let rate = FAST * (80 + round % 50) / 100;
        let spec = match round % 3 {
            0 => limited(rate),
            _ => CakeSpec {
                diffserv,
                isolation,
                ..limited(rate)
            },
        };
        world.change(&CakeSpec {
            rtt: Duration::from_secs(9),
            ..spec
        });
        let stats = world.cake.stats();
        assert_eq!(stats.packets + stats.qlen, u64::from(number));
    }
    left.extend(world.run(u64::MAX).into_iter().map(|(_, packet)| packet));
    assert_eq!((left.len(), world.dropped()), (number as usize, 0));
    for flow in 0..35 {
        let of = |mark: &u32| mark % 35 == flow;
        let marks: Vec<u32> = left.iter().map(Packet::mark).filter(of).collect();
        assert!(marks.is_sorted(), "{marks:?}");
    }
}

/// A `cake` that no packet has passed is small.
#[test]
fn idle_cakes_are_small() {
    let world = World::new(CakeSpec {
        diffserv: Diffserv::Diffserv8,
        ..limited(FAST)
    });
    assert!(world.cake.tins.iter().all(|tin| tin.table.is_none()));
    let own = size_of::<Cake>() + 8 * size_of_val(&world.cake.tins[0]);
    // Statistics: of 8 tins and of the whole.
    let published = 9 * (24 * 8 + 16 + 88);
    assert!(own + published < 8 << 10, "{own} and {published}");
    // One that has a few flows in one tin.
    assert!(size_of::<super::super::table::Table>() < 19 << 10);
}

/// The queue of a parent's look, and of nothing.
#[test]
fn nothing_is_idle() {
    let mut world = World::new(limited(FAST));
    assert_eq!(world.take(8).1, Next::Idle);
    world.udp(ends(1, 2, 3), 100, 0);
    let mut out = PacketList::new();
    world.cake.drain(&mut out);
    assert_eq!(
        (out.len(), world.cake.stats().qlen, world.cake.flows()),
        (1, 0, 0)
    );
    assert_eq!(world.take(8).1, Next::Idle);
    assert!(
        QdiscSpec::Cake(CakeSpec {
            memlimit: Some(0),
            ..limited(1)
        })
        .check()
        .is_err()
    );
}
