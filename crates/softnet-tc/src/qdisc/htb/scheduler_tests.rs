//! The scheduler alone, in virtual time: which leaf sends, when, and with whose tokens.

use softnet::time::Time;

use super::HtbClassSpec;
use super::test_world::{MS, SECOND, World, spec};
use crate::account::HtbClassStats;

/// G4, measured with the running kernel: 3000 bytes leave out of a burst of 2000; later five
/// packets have left with the leaf's own tokens, and three with those of the class above.
#[test]
fn g4_overdraft_by_one_packet() {
    let mut world = World::new();
    world.add(1, None, spec(10_000, 20_000, 2000, 2000));
    world.add(0x10, Some(1), spec(5_000, 20_000, 2000, 2000));
    for _ in 0..12 {
        if world.queues[world.slot(0x10)].len() < 5 {
            world.push(0x10, 1000);
        }
        world.send(usize::MAX);
        world.check();
    }
    assert_eq!((world.sent.len(), world.queued()), (3, 5));
    assert_eq!(
        (world.stats(1).overlimits, world.stats(0x10).overlimits),
        (1, 1)
    );
    assert_eq!(world.scheduler.overlimits, 2);
    // Tokens of -1000 bytes, at 5000 and 20,000 bytes a second.
    let HtbClassStats {
        tokens, ctokens, ..
    } = world.stats(0x10);
    assert_eq!(
        (i64::from(tokens) * 64, i64::from(ctokens) * 64),
        (-200_000_000, -50_000_000)
    );
    world.run(SECOND);
    let times: Vec<u64> = world.sent.iter().map(|d| d.time / MS).collect();
    assert_eq!(times, [0, 0, 0, 100, 200, 300, 400, 500]);
    let (leaf, above) = (world.stats(0x10), world.stats(1));
    assert_eq!((leaf.lended, leaf.borrowed), (5, 3));
    assert_eq!((above.lended, above.borrowed), (3, 0));
    world.check();
}

/// Classes whose time has come are looked at in one call up to a bound, and the others in the next.
#[test]
fn a_call_looks_at_so_many_classes() {
    const CLASSES: u16 = 1000;
    let mut world = World::new();
    for minor in 1..=CLASSES {
        world.add(minor, None, spec(10_000, 10_000, 1000, 1000));
        world.fill(minor, 2000, 2);
    }
    world.send(usize::MAX);
    assert_eq!(world.sent.len(), CLASSES.into());
    world.now = Time(SECOND);
    let (mut calls, mut most) = (0, 0);
    while world.queued() > 0 {
        let before = world.sent.len();
        world.send(usize::MAX);
        world.check();
        most = most.max(world.sent.len() - before);
        let next = world.scheduler.next_event();
        assert!(next > world.now);
        if world.queued() > 0 {
            assert_eq!(next, world.now.plus_nanos(1), "at once");
        }
        world.now = next;
        calls += 1;
    }
    assert!(most <= 128 && calls == 8, "{most} in one of {calls}");
}

/// A class under its own rate sends whatever the ceil of the class above says.
#[test]
fn own_rates_are_kept_above_the_ceil_of_the_class_above() {
    const MBIT: u64 = 125_000;
    let mut world = World::new();
    world.add(1, None, HtbClassSpec::new(MBIT));
    world.add(2, Some(1), HtbClassSpec::new(MBIT));
    world.add(3, Some(1), HtbClassSpec::new(MBIT));
    for minor in [2, 3] {
        world.fill(minor, 1000, 1500);
    }
    world.run(10 * SECOND);
    for minor in [2, 3] {
        let sent = world.sent_by(minor);
        assert!((10 * MBIT..=10 * MBIT + 2600).contains(&sent), "{sent}");
    }
    assert_eq!(world.stats(1).lended, 0);
}

/// Leaves that borrow share what is lent as their quanta are, within 0.1 %.
#[test]
fn what_is_borrowed_is_shared_as_the_quanta_are() {
    let mut world = World::new();
    world.add(1, None, spec(12_500_000, 12_500_000, 20_000, 20_000));
    let quanta = [
        (2, 1500, 700),
        (3, 3000, 1500),
        (4, 15_000, 1514),
        (7, 7777, 333),
    ];
    for (minor, quantum, bytes) in quanta {
        let leaf = HtbClassSpec {
            quantum: Some(quantum),
            ..spec(1, 12_500_000, 1, 20_000)
        };
        world.add(minor, Some(1), leaf);
        world.fill(minor, bytes, (45_000_000 / bytes) as usize);
    }
    world.run(5 * SECOND);
    let total: u64 = quanta.iter().map(|q| u64::from(q.1)).sum();
    let sent: u64 = quanta.iter().map(|q| world.sent_by(q.0)).sum();
    assert!(sent >= 62_500_000, "all of the rate is used: {sent}");
    for (minor, quantum, _) in quanta {
        let share = world.sent_by(minor) as f64 / sent as f64;
        let fair = f64::from(quantum) / total as f64;
        assert!(
            (share / fair - 1.0).abs() < 0.001,
            "{minor}: {share} of {fair}"
        );
    }
}

#[test]
fn a_lower_number_of_priority_is_served_first() {
    let mut world = World::new();
    world.add(1, None, spec(100_000, 100_000, 10_000, 10_000));
    for (minor, prio) in [(2, 3), (3, 0), (4, 7), (5, 0)] {
        let leaf = spec(1, 100_000, 0, 10_000);
        world.add(minor, Some(1), HtbClassSpec { prio, ..leaf });
        world.fill(minor, 1000, 3);
    }
    world.run(SECOND);
    // First each leaf sends the one packet that it may send with no debt, whatever it costs.
    assert_eq!(world.order(), [3, 5, 2, 4, 3, 5, 3, 5, 2, 2, 4, 4]);
    world.check();
}

/// Own tokens go before borrowed ones, whatever the priorities.
#[test]
fn who_borrows_waits_for_who_does_not() {
    let mut world = World::new();
    world.add(1, None, spec(100_000, 100_000, 100_000, 100_000));
    let first = HtbClassSpec {
        prio: 0,
        ..spec(1, 100_000, 0, 100_000)
    };
    world.add(2, Some(1), first);
    let second = HtbClassSpec {
        prio: 7,
        ..spec(50_000, 100_000, 5000, 100_000)
    };
    world.add(3, Some(1), second);
    world.fill(2, 1000, 1);
    world.send(usize::MAX);
    for minor in [2, 3] {
        world.fill(minor, 1000, 8);
    }
    world.send(usize::MAX);
    let sent: Vec<(u16, usize)> = world.sent.iter().map(|d| (d.minor, d.level)).collect();
    let own = [(3, 0); 6];
    let expected = [&[(2, 0)][..], &own, &[(2, 7); 8], &[(3, 7); 2]].concat();
    assert_eq!(sent, expected);
}

/// Eight levels; a leaf borrows through all of them from the one at the root.
#[test]
fn a_leaf_borrows_through_eight_levels() {
    let mut world = World::new();
    world.add(1, None, spec(1_000_000, 1_000_000, 100_000, 100_000));
    for minor in 2..=8 {
        world.add(minor, Some(minor - 1), spec(1, 1_000_000, 0, 100_000));
    }
    let level = |world: &World, minor| world.scheduler.level(world.slot(minor)).unwrap();
    for minor in 1..=8 {
        assert_eq!(u16::from(level(&world, minor)), 8 - minor);
    }
    world.fill(8, 1000, 20);
    world.send(usize::MAX);
    world.check();
    let levels: Vec<usize> = world.sent.iter().map(|d| d.level).collect();
    // The first packet puts all but the root in debt.
    assert_eq!(levels[0], 0);
    assert_eq!(levels[1..], [7; 19]);
    assert_eq!((world.stats(1).lended, world.stats(1).borrowed), (19, 0));
    for minor in 2..=8 {
        assert_eq!(world.stats(minor).borrowed, 19, "{minor}");
    }
}

/// A full bucket stays full, and a debt is paid at the same moment: tokens count time.
#[test]
fn a_change_of_the_rate_preserves_time() {
    let mut world = World::new();
    world.add(1, None, spec(1000, 1000, 10_000, 10_000));
    world.fill(1, 1000, 4);
    world.send(usize::MAX);
    // Six seconds are left; the new bucket holds five: ten packets, and one beyond.
    world.change(1, spec(2000, 2000, 10_000, 10_000));
    world.fill(1, 1000, 20);
    world.send(usize::MAX);
    assert_eq!(world.sent.len(), 4 + 11);
    assert_eq!(i64::from(world.stats(1).tokens) * 64, -(SECOND as i64) / 2);
    // The debt of half a second is paid after half a second, at any rate.
    world.change(1, spec(500, 500, 10_000, 10_000));
    assert_eq!(i64::from(world.stats(1).tokens) * 64, -(SECOND as i64) / 2);
    world.run(SECOND / 2 - 1);
    assert_eq!(world.sent.len(), 15);
    world.run(SECOND / 2);
    assert_eq!(world.sent.len(), 16);
    world.run(SECOND / 2 + 4 * SECOND);
    assert_eq!(world.sent.len(), 18, "two seconds a packet");
    world.check();
}

/// BUG-HTB-1, BUG-HTB-2: a leaf with packets goes, and with it all that its class above had.
#[test]
fn a_busy_class_is_deleted() {
    let mut world = World::new();
    world.add(1, None, spec(1000, 1000, 1000, 1000));
    world.add(2, Some(1), spec(1, 1000, 0, 1000));
    world.add(3, Some(1), spec(1, 1000, 0, 1000));
    for minor in [2, 3] {
        world.fill(minor, 100, 8);
    }
    // Both borrow, and it is the turn of 2.
    world.send(5);
    world.remove(2);
    world.check();
    let slot = world.slot(3);
    world.scheduler.deactivate(slot);
    world.scheduler.deactivate(slot);
    world.queues[slot].clear();
    world.check();
    assert!(!world.send(1));
    world.remove(3);
    world.check();
    // The class above is a leaf again, with full buckets.
    assert_eq!(world.scheduler.level(world.slot(1)), Some(0));
    world.fill(1, 100, 12);
    world.send(usize::MAX);
    assert_eq!(world.stats(1).lended, 3 + 11);
    world.check();
}

/// A leaf that becomes an inner class while it waits; and its first class takes its tokens.
#[test]
fn a_waiting_leaf_becomes_an_inner_class() {
    let mut world = World::new();
    world.add(1, None, spec(1000, 1000, 1000, 1000));
    world.fill(1, 500, 5);
    world.send(usize::MAX);
    assert_eq!(world.sent.len(), 3);
    world.add(2, Some(1), spec(1000, 1000, 1000, 1000));
    world.check();
    world.fill(2, 500, 5);
    world.run(10 * SECOND);
    assert_eq!((world.sent.len(), world.queued()), (8, 0));
    world.check();
}

/// No product overflows at the highest rate, and no debt is endless.
#[test]
fn extreme_parameters_count() {
    let most = spec(
        1_000_000_000_000,
        1_000_000_000_000,
        u32::MAX.into(),
        u32::MAX.into(),
    );
    let least = spec(1, 1, 0, 0);
    let mut world = World::new();
    world.add(1, None, least.clone());
    world.add(2, Some(1), most.clone());
    world.add(3, Some(1), least.clone());
    world.fill(2, u32::MAX.into(), 50);
    world.fill(3, u32::MAX.into(), 3);
    world.run(SECOND);
    assert_eq!(world.sent_by(2), 50 * u64::from(u32::MAX));
    // A debt is forgotten after a minute.
    assert_eq!(i64::from(world.stats(3).tokens) * 64, -60 * SECOND as i64);
    world.run(61 * SECOND);
    assert_eq!(world.sent_by(3), 2 * u64::from(u32::MAX));
    world.now = Time(u64::MAX - 1);
    world.change(3, most);
    world.change(2, least);
    world.fill(2, 1, 3);
    world.send(usize::MAX);
    world.check();
}
