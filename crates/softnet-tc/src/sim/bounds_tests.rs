//! The published bound of shared rates (see [`rate`](crate::rate)), over random trees, loads and
//! CPUs that stall: in every window T at most rate·T + burst + N·Q and a frame of each instance
//! leave of a class, and what classes below it may send at once by themselves. `.ci/long bounds`
//! has ten thousand of them.
//!
//! Classes whose rates are more together than that of the class above may send them all the same,
//! as in the kernel: nobody asks the class above for what a class has by itself. What holds then is
//! in `Case::most`.

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;
use softnet::mem::{Packet, Pool};
use softnet::testing::pool;
use softnet::time::Time;

use super::*;
use crate::rate::RateSpec;
use crate::*;

const FRAME: u64 = 1514;
const DURATION: u64 = 30_000_000;

fn cases() -> u32 {
    let number = std::env::var("SOFTNET_BOUND_CASES").ok();
    number.and_then(|number| number.parse().ok()).unwrap_or(200)
}

/// A class: rate and ceil as parts of the root's in 1/16, burst in bytes, priority.
type Leaf = (u64, u64, u64, u32);
/// A flow: its leaf, rate as a part of the root's in 1/8, frame length, rhythm.
type Load = (usize, u64, u16, u8);

#[derive(Clone, Debug)]
struct Case {
    cpus: Cpus,
    rate: u64,
    burst: u64,
    leaves: Vec<Leaf>,
    loads: Vec<Load>,
    /// A `tbf` in place of `htb`.
    is_tbf: bool,
    /// Each leaf has its part of the root's rate; else they share it.
    is_oversubscribed: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let cpus = (
        1..=16_usize,
        0..300_000_u64,
        prop::option::of(0.0..1.0_f64),
        any::<u64>(),
    );
    let leaf = (1..=16_u64, 1..=16_u64, 1600..20_000_u64, 0..4_u32);
    let load = (0..60_usize, 1..=16_u64, 60..=1514_u16, 0..4_u8);
    let rates = (500_000..20_000_000_u64, 1600..40_000_u64);
    let (leaves, loads) = (
        prop::collection::vec(leaf, 1..6),
        prop::collection::vec(load, 1..12),
    );
    let kinds = (any::<bool>(), any::<bool>());
    (cpus, rates, leaves, loads, kinds).prop_map(
        |(cpus, (rate, burst), leaves, loads, (is_tbf, is_oversubscribed))| {
            let (count, stall, skew, seed) = cpus;
            Case {
                cpus: Cpus {
                    count,
                    stall,
                    skew,
                    seed,
                },
                rate,
                burst,
                leaves,
                loads,
                is_tbf,
                is_oversubscribed,
            }
        },
    )
}

impl Case {
    fn class(&self, leaf: &Leaf) -> HtbClassSpec {
        let (rate, ceil, burst, prio) = *leaf;
        let parts = match self.is_oversubscribed {
            true => 1,
            // Together no more than the class above.
            false => self.leaves.len() as u64,
        };
        let rate = self.rate * rate / 16 / parts;
        HtbClassSpec {
            ceil: rate.max(self.rate * ceil / 16),
            burst,
            cburst: burst,
            prio,
            ..HtbClassSpec::new(rate)
        }
    }

    /// The rate that holds for what leaves the class above, which has R. Its leaves have S
    /// together.
    ///
    /// Where they share R, it is R.
    ///
    /// One CPU: the larger of R and S. Let a window go from s to e, and t be the last time in it at
    /// which a leaf borrowed. The class above had no debt then, though all that passed was charged
    /// to it, with whatever tokens: from s to t at most R·(t−s), a burst and a frame passed. From t
    /// to e leaves sent what was theirs: S·(e−t), and their bursts and frames.
    ///
    /// Several CPUs: R + S. One waits for its debt as it was when it was made, and does not see
    /// what others charge behind it. So it may borrow although the class above is in debt again.
    /// But what is borrowed was drawn from the class above and has come due: R·T, burst, pots and
    /// frames; what is theirs is S·T, bursts, pots and frames.
    ///
    /// Debts of a minute, which are forgiven, are not reached.
    fn most(&self) -> u64 {
        let own: u64 = self.leaves.iter().map(|leaf| self.class(leaf).rate).sum();
        match (self.is_oversubscribed && !self.is_tbf, self.cpus.count) {
            (false, _) => self.rate,
            (true, 1) => own.max(self.rate),
            (true, _) => own + self.rate,
        }
    }

    fn tree(&self) -> TreeSpec {
        let mut spec = TreeSpec::new();
        let root = Handle::new(1, 0);
        if self.is_tbf {
            let tbf = TbfSpec {
                rate: self.rate,
                burst: self.burst,
                limit: 1 << 20,
                ..TbfSpec::default()
            };
            spec.add(Handle::ROOT, root, QdiscSpec::Tbf(tbf)).unwrap();
            return spec;
        }
        let htb = QdiscSpec::Htb(HtbSpec::default());
        spec.add(Handle::ROOT, root, htb).unwrap();
        let inner = HtbClassSpec {
            burst: self.burst,
            cburst: self.burst,
            ..HtbClassSpec::new(self.rate)
        };
        let inner = ClassSpec::Htb(inner);
        spec.add_class(root, Handle::new(1, 1), inner).unwrap();
        for (leaf, minor) in self.leaves.iter().zip(10..) {
            let of = ClassSpec::Htb(self.class(leaf));
            let class = Handle::new(1, minor);
            spec.add_class(Handle::new(1, 1), class, of).unwrap();
        }
        spec
    }

    fn flow(&self, number: u16, load: &Load) -> Flow {
        let (leaf, part, size, pattern) = load;
        let leaf = (leaf % self.leaves.len()) as u16;
        let pattern = match pattern {
            0 => Pattern::Constant,
            1 => Pattern::Poisson,
            2 => Pattern::Bursts(20),
            _ => Pattern::OnOff {
                on: 2_000_000,
                off: 5_000_000,
            },
        };
        Flow {
            rate: (self.rate * part / 8).max(1),
            size: *size..=*size,
            start: Time(1_000_000_000),
            duration: DURATION,
            pattern,
            seed: self.cpus.seed ^ u64::from(number),
            source: ([10, 0, 0, 1].into(), number),
            destination: ([10, 0, 0, 2].into(), 9),
            dscp: 0,
            priority: match self.is_tbf {
                true => 0,
                false => Handle::new(1, 10 + leaf).raw(),
            },
            mark: u32::from(leaf),
            direction: Direction::Forward,
        }
    }

    /// Departures: when, which leaf, how many bytes.
    fn run(&self, pool: &Pool) -> Vec<(u64, u32, u64)> {
        let env = QdiscEnv {
            seed: self.cpus.seed,
            ..QdiscEnv::new(pool)
        };
        let simulator = Simulator::parallel(self.tree(), self.cpus, &env, SimLink::default());
        let mut world = World::new(simulator.unwrap(), pool);
        for (load, number) in self.loads.iter().zip(0..) {
            world.add_flow("", self.flow(number, load)).unwrap();
        }
        let mut left = Vec::new();
        let Ok((report, flows)) = world.finish(&mut |time, packet: &Packet| {
            left.push((time.0, packet.mark(), packet.wire_len()));
            Ok::<(), Infallible>(())
        });
        assert!(report.holds(), "{report:?}");
        let delivered: u64 = flows.iter().map(|flow| flow.delivered).sum();
        assert_eq!(delivered, left.len() as u64);
        // What leaves the leaves leaves the root, and nothing else does.
        let (root, classes) = report.classes.split_first().unwrap();
        let leaves = classes.iter().filter(|class| class.class.minor() >= 10);
        let frames: u64 = leaves.map(|class| class.sojourn.frames).sum();
        assert!(self.is_tbf || frames == root.sojourn.frames);
        left
    }
}

/// The most that was sent beyond a rate in any window, in bytes.
fn worst<'a>(left: impl Iterator<Item = &'a (u64, u32, u64)>, rate: u64) -> u64 {
    let (mut level, mut last, mut worst) = (0_u128, 0, 0);
    for &(time, _, bytes) in left {
        level = level.saturating_sub(u128::from(time - last) * u128::from(rate));
        last = time;
        level += u128::from(bytes) * 1_000_000_000;
        worst = worst.max(level);
    }
    (worst / 1_000_000_000) as u64
}

/// Bytes that may leave at once: the burst, a pot and a frame of each instance, and one unit.
fn at_once(burst: u64, rate: u64, cpus: usize) -> u64 {
    let spec = RateSpec {
        rate,
        burst: 0,
        unit: FRAME + 8,
    };
    burst + cpus as u64 * (spec.quantum() + FRAME + 8) + 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn no_rate_is_exceeded_anywhere(case in case()) {
        let pool = pool(4096);
        let left = case.run(&pool);
        prop_assert_eq!(pool.stats().free, 4096);
        let cpus = case.cpus.count;
        let mut below = 0;
        if !case.is_tbf {
            let mut of_leaf: BTreeMap<u32, Vec<(u64, u32, u64)>> = BTreeMap::new();
            left.iter().for_each(|&one| of_leaf.entry(one.1).or_default().push(one));
            for (number, leaf) in case.leaves.iter().enumerate() {
                let spec = case.class(leaf);
                let of = of_leaf.remove(&(number as u32)).unwrap_or_default();
                let (got, bound) = (
                    worst(of.iter(), spec.ceil),
                    at_once(spec.cburst, spec.ceil, cpus) + at_once(spec.burst, spec.rate, cpus),
                );
                prop_assert!(got <= bound, "leaf {number}: {got} > {bound}");
                below += at_once(spec.burst, spec.rate, cpus);
            }
        }
        let (got, bound) = (
            worst(left.iter(), case.most()),
            at_once(case.burst, case.rate, cpus) + below,
        );
        prop_assert!(got <= bound, "{got} > {bound}");
    }
}

/// A CPU with nearly all flows, and one that stalls, let the whole rate pass.
#[test]
fn a_rate_is_used_up_by_cpus_that_stall() {
    let rate = 12_500_000;
    let case = Case {
        cpus: Cpus {
            count: 8,
            stall: 200_000,
            skew: Some(0.9),
            seed: 7,
        },
        rate,
        burst: 400_000,
        leaves: vec![(16, 16, 100_000, 0)],
        loads: vec![(0, 8, 1000, 0); 12],
        is_tbf: true,
        is_oversubscribed: false,
    };
    let pool = pool(8192);
    let left = case.run(&pool);
    let from = 1_000_000_000 + DURATION / 2;
    let bytes: u64 = (left.iter())
        .filter(|one| (from..from + DURATION / 4).contains(&one.0))
        .map(|one| one.2)
        .sum();
    let due = rate * (DURATION / 4) / 1_000_000_000;
    assert!(bytes > due * 9 / 10, "{bytes} of {due}");
    assert_eq!(case.run(&pool), left, "the same again");
}

/// Leaves send what is theirs though it is more than the class above has, and no more.
#[test]
fn rates_beyond_that_of_the_class_above_are_had() {
    let rate = 1_000_000;
    let case = Case {
        cpus: Cpus {
            count: 1,
            stall: 0,
            skew: None,
            seed: 7,
        },
        rate,
        burst: 1600,
        leaves: vec![(16, 16, 1600, 0), (16, 16, 1600, 0)],
        loads: vec![(0, 16, 1000, 0), (1, 16, 1000, 0)],
        is_tbf: false,
        is_oversubscribed: true,
    };
    assert_eq!(case.most(), 2 * rate);
    let pool = pool(4096);
    let left = case.run(&pool);
    let bound = 3 * at_once(1600, rate, 1);
    assert!(worst(left.iter(), case.most()) <= bound);
    let (from, until) = (1_000_000_000 + DURATION / 2, 1_000_000_000 + DURATION);
    let of = left.iter().filter(|one| (from..until).contains(&one.0));
    let bytes: u64 = of.map(|one| one.2).sum();
    let due = 2 * rate * (DURATION / 2) / 1_000_000_000;
    assert!(
        (due * 9 / 10..=due * 11 / 10).contains(&bytes),
        "{bytes} of {due}"
    );
}
