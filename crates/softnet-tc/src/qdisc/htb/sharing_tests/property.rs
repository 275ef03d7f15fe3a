//! Random classes: none has more than its rates allow.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    count: usize,
    /// Parent, rate and ceil (of a thousand), burst, priority.
    classes: Vec<(prop::sample::Index, u64, u64, u64, u8)>,
    /// Core, class, flows.
    loads: Vec<(prop::sample::Index, prop::sample::Index, u16)>,
    /// Delay, stalls.
    delays: Vec<(u64, u64)>,
    /// Core, class, packets of a frame, pace.
    supplies: Vec<(prop::sample::Index, prop::sample::Index, u64, u64)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let index = any::<prop::sample::Index>;
    let class = (index(), 1..1000u64, 1..1000u64, 0..200_000u64, 0..4u8);
    (
        any::<u64>(),
        1..6usize,
        prop::collection::vec(class, 1..8),
        prop::collection::vec((index(), index(), 0..50u16), 1..30),
        prop::collection::vec((0..200_000u64, prop_oneof![Just(0), 2..50u64]), 5),
        prop::collection::vec(
            (
                index(),
                index(),
                1..=43_u64,
                prop_oneof![Just(0), 1..20 * MS],
            ),
            0..8,
        ),
    )
        .prop_map(|(seed, count, classes, loads, delays, supplies)| Case {
            seed,
            count,
            classes,
            loads,
            delays,
            supplies,
        })
}

impl Case {
    /// A tree of up to four levels, where the leaves below a class have no more than its ceil. Some
    /// hold their packets back, or have large frames.
    fn build(&self) -> Cores {
        let mut cores = Cores::new(self.count, self.seed);
        for (core, &(delay, stalls)) in self.delays.iter().take(self.count).enumerate() {
            cores.set_delays(core, delay, stalls);
        }
        cores.add(1, None, class(RATE, RATE));
        for (at, (parent, rate, ceil, burst, prio)) in self.classes.iter().enumerate() {
            let parents: Vec<u16> = (cores.specs.keys().copied())
                .filter(|&minor| cores.path(minor).len() < 4)
                .collect();
            let parent = *parent.get(&parents);
            // Of eight classes each has at most an eighth of what the one above it has.
            let most = cores.specs[&parent].rate / 8;
            let rate = (most * rate / 1000).max(1000);
            let spec = HtbClassSpec {
                ceil: (RATE * ceil / 1000).max(rate),
                burst: *burst,
                cburst: *burst,
                prio: (*prio).into(),
                ..HtbClassSpec::new(rate)
            };
            cores.add(2 + at as u16, Some(parent), spec);
        }
        let leaves = cores.leaves();
        for (core, leaf, packets, pace) in &self.supplies {
            cores.set_supply(core.index(self.count), *leaf.get(&leaves), *packets, *pace);
        }
        cores
    }
}

/// Bytes that may leave of a class at once, with this ceil: `cburst`, a pot, which is no less than
/// a frame, and a frame of each instance, and what classes below it may send at once by
/// themselves.
fn bound(cores: &Cores, minor: u16, ceil: u64) -> u64 {
    let frame = cores.longest();
    let pot = |rate| quantum(rate).max(frame) + frame;
    let at_once = |burst, rate| burst + cores.count() as u64 * pot(rate) + 1;
    let below = (cores.specs.iter())
        .filter(|&(&of, _)| of != minor && cores.path(of).contains(&minor))
        .map(|(_, spec)| at_once(spec.burst, spec.rate));
    at_once(cores.specs[&minor].cburst, ceil) + below.sum::<u64>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// In any window of length T at most ceil * T + cburst + N * (Q + a turn) bytes of a class
    /// leave, whatever the instances do; what is asked for adds up (INV-Q-12).
    #[test]
    fn no_class_exceeds_its_ceil_anywhere(case in cases()) {
        let mut cores = case.build();
        let leaves = cores.leaves();
        let mut now = SECOND;
        for (core, leaf, flows) in &case.loads {
            let core = core.index(case.count);
            cores.set_flows(core, *leaf.get(&leaves), *flows, now);
            now += cores.below(5 * MS);
            cores.run_until(now);
            cores.check();
        }
        for (&minor, spec) in &cores.specs {
            let got = cores.worst_window(minor, spec.ceil);
            let bound = bound(&cores, minor, spec.ceil);
            prop_assert!(got <= bound, "{minor}: {got} > {bound}");
        }
    }

    /// Across changes, with the largest of the parameters.
    #[test]
    fn a_change_lets_no_more_pass(case in cases(), ceils in prop::collection::vec(1..1000u64, 4)) {
        let mut cores = case.build();
        let leaves = cores.leaves();
        for core in 0..case.count {
            leaves.iter().for_each(|&leaf| cores.set_flows(core, leaf, 1, SECOND));
        }
        let (mut now, mut most) = (SECOND, RATE);
        for ceil in ceils {
            now += 5 * MS;
            cores.run_until(now);
            // More than the leaves have by themselves.
            let ceil = RATE / 4 + RATE * ceil / 1000;
            let spec = HtbClassSpec { ceil, rate: ceil, ..cores.specs[&1].clone() };
            cores.change(1, spec, now);
            most = most.max(ceil);
        }
        cores.run_until(now + 5 * MS);
        let (got, bound) = (cores.worst_window(1, most), bound(&cores, 1, most));
        prop_assert!(got <= bound, "{got} > {bound}");
        cores.check();
    }
}
