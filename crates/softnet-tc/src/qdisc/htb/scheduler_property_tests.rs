//! The scheduler alone, with random classes and packets.

use proptest::prelude::*;

use super::HtbClassSpec;
use super::test_world::{Departure, MS, SECOND, World, spec};
use crate::account::{LinkCost, LinkLayer};

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
                prio: prio.min(3).into(),
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

    /// Costs of packets beyond their lengths are counted; nothing gets stuck.
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
