//! The scheduler alone, in virtual time: which leaf sends, when, and with whose tokens.

use proptest::prelude::*;
use softnet::time::Time;

use super::test_world::{Departure, MS, SECOND, World, spec};
use super::{HtbClassSpec, HtbClassStats};
use crate::{LinkCost, LinkLayer};

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
    assert_eq!((tokens * 64, ctokens * 64), (-200_000_000, -50_000_000));
    world.run(SECOND);
    let times: Vec<u64> = world.sent.iter().map(|d| d.time / MS).collect();
    assert_eq!(times, [0, 0, 0, 100, 200, 300, 400, 500]);
    let (leaf, above) = (world.stats(0x10), world.stats(1));
    assert_eq!((leaf.lended, leaf.borrowed), (5, 3));
    assert_eq!((above.lended, above.borrowed), (3, 0));
    world.check();
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
    assert_eq!(world.stats(1).tokens * 64, -(SECOND as i64) / 2);
    // The debt of half a second is paid after half a second, at any rate.
    world.change(1, spec(500, 500, 10_000, 10_000));
    assert_eq!(world.stats(1).tokens * 64, -(SECOND as i64) / 2);
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
    assert_eq!(world.stats(3).tokens * 64, -60 * SECOND as i64);
    world.run(61 * SECOND);
    assert_eq!(world.sent_by(3), 2 * u64::from(u32::MAX));
    world.now = Time(u64::MAX - 1);
    world.change(3, most);
    world.change(2, least);
    world.fill(2, 1, 3);
    world.send(usize::MAX);
    world.check();
}

#[derive(Clone, Debug)]
enum Step {
    Push(prop::sample::Index, u64, usize),
    Wait(u64),
    Send(usize),
    Add(prop::sample::Index, HtbClassSpec),
    Change(prop::sample::Index, HtbClassSpec),
    Remove(prop::sample::Index),
}

fn specs(framed: bool) -> impl Strategy<Value = HtbClassSpec> {
    let rate = || prop_oneof![1..2000_u64, 1..1_000_000_u64];
    let burst = || 0..20_000_u64;
    let rest = (0..8_u8, prop::option::of(1..9000_u32), 0..60_u16);
    let fields = ((rate(), rate()), (burst(), burst()), rest);
    fields.prop_map(
        move |((rate, ceil), (burst, cburst), (prio, quantum, overhead))| {
            let link = LinkCost {
                overhead,
                mpu: 64,
                linklayer: LinkLayer::Atm,
            };
            HtbClassSpec {
                prio: prio.min(3),
                quantum,
                link: if framed { link } else { LinkCost::default() },
                ..spec(rate, ceil, burst, cburst)
            }
        },
    )
}

fn steps(framed: bool) -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        8 => (index(), 60..1600_u64, 1..20_usize).prop_map(|(at, l, n)| Step::Push(at, l, n)),
        4 => prop_oneof![0..5 * MS, 0..5 * SECOND, Just(70 * SECOND)].prop_map(Step::Wait),
        4 => (0..30_usize).prop_map(Step::Send),
        3 => (index(), specs(framed)).prop_map(|(at, spec)| Step::Add(at, spec)),
        1 => (index(), specs(framed)).prop_map(|(at, spec)| Step::Change(at, spec)),
        1 => index().prop_map(Step::Remove),
    ];
    let start = prop::collection::vec((index(), specs(framed)), 1..10)
        .prop_map(|adds| adds.into_iter().map(|(at, spec)| Step::Add(at, spec)));
    let steps = (start, prop::collection::vec(step, 1..40));
    steps.prop_map(|(start, steps)| start.chain(steps).collect())
}

impl World {
    fn leaves(&self) -> Vec<u16> {
        let minors = self.specs.keys().copied();
        minors
            .filter(|&minor| !self.parents.values().any(|&p| p == Some(minor)))
            .collect()
    }

    /// Classes on the way up from this one, which is the first.
    fn path(&self, minor: u16) -> Vec<u16> {
        let above = |minor: &u16| self.parents.get(minor).copied().flatten();
        std::iter::successors(Some(minor), above).collect()
    }

    fn step(&mut self, step: &Step) {
        let leaves = self.leaves();
        match step {
            Step::Push(at, bytes, count) if !leaves.is_empty() => {
                self.fill(*at.get(&leaves), *bytes, *count);
            }
            Step::Wait(time) => self.run(self.now.nanos() + time),
            Step::Send(limit) => {
                self.send(*limit);
            }
            Step::Add(at, spec) => {
                let minors: Vec<u16> = self.specs.keys().copied().collect();
                // Minor numbers far from each other, and not in the order of the slots.
                let minor = (minors.len() as u16 + 1).wrapping_mul(0x9e37) & 0x7FFF;
                let parent = at
                    .index(minors.len() + 1)
                    .checked_sub(1)
                    .map(|at| minors[at]);
                let depth = parent.map_or(0, |parent| self.path(parent).len());
                if minor != 0 && !minors.contains(&minor) && depth < 8 {
                    self.add(minor, parent, spec.clone());
                }
            }
            Step::Change(at, spec) if !self.specs.is_empty() => {
                let minors: Vec<u16> = self.specs.keys().copied().collect();
                self.change(*at.get(&minors), spec.clone());
            }
            Step::Remove(at) if !leaves.is_empty() => self.remove(*at.get(&leaves)),
            _ => {}
        }
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A turn of several packets is the same as several turns: the same packets leave in the same
    /// order at the same times, and every class counts the same.
    #[test]
    fn long_turns_change_nothing(steps in steps(false)) {
        let (mut long, mut short) = (World::new(), World::new());
        short.runs = false;
        for step in &steps {
            long.step(step);
            short.step(step);
            prop_assert_eq!(&long.sent, &short.sent);
            for minor in long.specs.keys() {
                prop_assert_eq!(long.stats(*minor), short.stats(*minor));
            }
        }
    }

    /// In any window a class sends at most `ceil * T + cburst` and one packet beyond what the
    /// classes below it send with their own tokens (INV-Q-3); and everything leaves if one comes
    /// back at the times that are asked for (INV-Q-8).
    #[test]
    fn no_class_exceeds_its_ceil(steps in steps(false)) {
        let mut world = World::new();
        for mut step in steps {
            match &mut step {
                Step::Change(..) | Step::Remove(_) => continue,
                // What takes more than a minute is not remembered.
                Step::Add(_, spec) => spec.ceil = spec.ceil.max(60),
                _ => {}
            }
            world.step(&step);
        }
        let levels: Vec<(u16, usize)> = world.specs.keys()
            .map(|&minor| (minor, world.path(minor).len()))
            .collect();
        for (minor, depth) in levels {
            let spec = &world.specs[&minor];
            let own: Vec<Departure> = world.sent.iter().copied()
                .filter(|d| {
                    let path = world.path(d.minor);
                    let lender = match d.level {
                        0 => path.len(),
                        level => LEVELS_TO_DEPTH - level,
                    };
                    path.contains(&minor) && lender <= depth
                })
                .collect();
            let mut sums = vec![0];
            for departure in &own {
                sums.push(sums[sums.len() - 1] + departure.bytes);
            }
            let packet = own.iter().map(|d| d.bytes).max().unwrap_or(0);
            for (start, first) in own.iter().enumerate() {
                for (end, last) in own.iter().enumerate().skip(start) {
                    let time = u128::from(last.time - first.time);
                    let most = (time * u128::from(spec.ceil)).div_ceil(1_000_000_000);
                    let most = most + u128::from(spec.cburst + packet);
                    let sent = u128::from(sums[end + 1] - sums[start]);
                    prop_assert!(sent <= most, "{:x}: {} of {}", minor, sent, most);
                }
            }
        }
        world.run(u64::MAX / 2);
        prop_assert_eq!(world.queued(), 0);
    }

    /// What packets cost beyond their lengths is counted; nothing gets stuck.
    #[test]
    fn framing_keeps_the_books(steps in steps(true)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        world.run(u64::MAX / 2);
        prop_assert_eq!(world.queued(), 0);
        world.check();
    }
}

/// A class at the root with classes below has level 7 and depth 1.
const LEVELS_TO_DEPTH: usize = 8;
